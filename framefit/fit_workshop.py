"""Makes and judges the networks that `framefit fit` chooses from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import write_json
from artifacts.digest import sha256_file
from artifacts.errors import InputError, require_package
from artifacts.file_kind import WEIGHT_SUFFIXES
from framefit.begun_distillation import can_go_on, note_origin
from framefit.budget_job import make_report
from framefit.compare_job import compare_files
from framefit.export_job import export_onnx_file
from framefit.fit_ladder import Tried
from framefit.model_source import ModelOptions
from framefit.network_clock import RUNTIMES, NetworkClock
from framefit.quantize_choices import choose_weights, warn_of_pairs
from framefit.quantize_job import quantize_file
from latency_budget.report import Report
from latency_budget.restarts import ProcessSettings

if TYPE_CHECKING:
    from latency_budget.check import CheckSettings

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """What to fit, and to what.

    Attributes:
        model: `.onnx`, `.pt`, `.safetensors` or `.pt2`.
        budget: the budget's file.
        data: pictures or an `.npz`: they calibrate, distil, and compare the networks.
        out: folder for the networks and the report.
        target: where the network runs and is measured, one of `RUNTIMES`.
        tier: how much evidence each verdict rests on.
        environment: instead of the budget's; see `budget-check`.
        frames: instead of the tier's.
        timeout_s: see `ProcessSettings`.
        labels: labelled pictures for the budget's limits on heads, see `metric_judge.FORMS`.
        steps: of a distillation.
        model_options: how to open the model.
        spec_options: input spec values given by the user, see `choose_spec`.
    """

    model: Path
    budget: Path
    data: str
    out: Path
    target: str = "openvino"
    tier: str = "pr"
    environment: str | None = None
    frames: int | None = None
    timeout_s: float = ProcessSettings.timeout_s
    labels: str | None = None
    steps: int = 500
    model_options: ModelOptions = field(default_factory=ModelOptions)
    spec_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.target not in RUNTIMES:
            raise InputError(
                f"--target is '{self.target}'",
                " or ".join(RUNTIMES),
                "every candidate is measured, and TensorRT would build a plan for each",
            )


class FitWorkshop:
    """Makes networks in the folder and judges them with the budget."""

    def __init__(
        self,
        settings: FitSettings,
        check: "CheckSettings",
        progress: Progress | None,
        tell: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._check = check
        self._progress = progress
        self._tell = tell
        self._rounds = 0
        self.quality: dict[Path, dict[str, Any]] = {}
        self.is_trainable = settings.model.suffix.lower() in WEIGHT_SUFFIXES
        self._float = self._open_float()
        self._measure = self._open_measure()
        self._in_float = self._measure(self._float) if self._measure else {}

    def tell(self, line: str) -> None:
        """Shows what `fit` is at; the network that is being made has bars of its own."""
        self._tell(line)

    def time_float(self) -> float:
        """Returns the float network's latency back to back, in ms."""
        from artifacts.onnx_file import load_onnx

        return NetworkClock(self._settings.target)([load_onnx(self._float)])[0]

    def judge_float(self, latency_ms: float) -> Tried:
        """Judges the float network, which takes so long back to back."""
        return self._judge("float", self._float, latency_ms)

    def judge_again(self, tried: Tried) -> Tried:
        """Measures a network once more; its quality is known."""
        return replace(tried, report=self._check_budget(tried.artifact))

    def fit_integers(self, source: Path | None, within_ms: float, name: str) -> Tried:
        """Quantizes a network to a latency, and judges it."""
        from compress.quantize.search.contract import Contract
        from compress.quantize.settings import QuantizeSettings

        settings, self._rounds = self._settings, self._rounds + 1
        contracts: tuple[Contract, ...] = ()
        if self._measure and source is None:
            contracts = tuple(
                Contract(head=head, kind="drop", limit=item.max_drop)
                for head, item in self._check.budget.heads.items()
                if head in self._in_float
            )
        weights = choose_weights(settings.target)
        outcome = quantize_file(
            source or self._float,
            settings.data,
            QuantizeSettings(
                target=settings.target,
                weights=weights,
                within_ms=within_ms,
                contracts=contracts,
            ),
            out=settings.out / f"{settings.model.stem}.{self._rounds}.int8.onnx",
            model_options=settings.model_options if source else None,
            spec_options=settings.spec_options,
            progress=self._progress,
            labels=settings.labels if contracts else None,
        )
        warn_of_pairs(weights, settings.target)
        precision = outcome.result.precision
        if precision is None:
            raise AssertionError("a latency was asked for and not measured")
        return self._judge(name, outcome.out, precision.chosen.latency_ms)

    def narrow(self, int8_ms: float) -> Path:
        """Returns the original pruned to a latency in INT8, and distilled.

        A distillation of it that was interrupted goes on.
        """
        from compress.distill.settings import DistillSettings
        from compress.prune.settings import PruneSettings
        from compress.train.settings import TrainerSettings
        from framefit.distill_job import distill_file
        from framefit.prune_goal import PruneGoal
        from framefit.prune_job import prune_file

        require_package("lightning_fabric", "train")
        settings = self._settings
        stem = settings.out / f"{settings.model.stem}.{int8_ms:.2f}ms"
        common: dict[str, Any] = {
            "model_options": settings.model_options,
            "spec_options": settings.spec_options,
            "progress": self._progress,
        }
        pruned, out = (stem.with_name(f"{stem.name}.{kind}.pt") for kind in ("pruned", "distilled"))
        origin = {
            "model": sha256_file(settings.model),
            "factory": settings.model_options.factory,
            "data": settings.data,
            "int8_ms": int8_ms,
            "target": settings.target,
        }
        if can_go_on(pruned, out.with_suffix(".state"), origin):
            self.tell(f"fewer channels: {pruned} is distilled further, from where it was stopped")
        else:
            prune_file(
                settings.model,
                PruneGoal(target_ms=int8_ms, runtime=settings.target, precision="int8"),
                PruneSettings(),
                data=settings.data,
                out=pruned,
                **common,
            )
            note_origin(pruned, origin)
        distilled = distill_file(
            pruned,
            settings.model,
            settings.data,
            DistillSettings(),
            TrainerSettings(steps=settings.steps),
            out=out,
            **common,
        )
        return distilled.out

    def _open_float(self) -> Path:
        """Returns the float network as an ONNX file of static shapes."""
        settings = self._settings
        out = settings.out / f"{settings.model.stem}.onnx"
        if settings.model.suffix.lower() != ".onnx":
            return export_onnx_file(
                settings.model,
                out,
                model_options=replace(settings.model_options, data=settings.data),
                spec_options=settings.spec_options,
            )
        if not settings.model_options.input_shapes:
            return settings.model
        from artifacts.onnx_file import save_onnx
        from artifacts.onnx_metadata import read_metadata
        from framefit.model_source import open_model

        model = open_model(settings.model, settings.model_options).model
        return save_onnx(model, out, metadata=read_metadata(model))

    def _open_measure(self) -> Callable[[Path], dict[str, dict[str, Any]]] | None:
        """Returns what measures the heads' metrics of a file; None without labels."""
        if self._settings.labels is None:
            return None
        from artifacts.onnx_file import load_onnx
        from framefit.metric_judge import open_measure
        from framefit.model_source import open_model
        from framefit.spec_choice import choose_spec
        from framefit.workspace import Workspace

        opened = open_model(self._float)
        given = self._settings.spec_options
        spec, _ = choose_spec(opened.spec, Workspace().read_settings().input, given)
        measure = open_measure(opened.model, self._settings.labels, spec)
        return lambda path: measure(load_onnx(path))

    def _judge(self, name: str, artifact: Path, latency_ms: float) -> Tried:
        """Measures quality first, so that the report holds it beside the latency."""
        settings = self._settings
        compared = compare_files(
            self._float, artifact, settings.data, spec_options=settings.spec_options
        )
        self.quality[artifact] = {"outputs": compared.to_dict()["outputs"]}
        if self._measure is not None:
            heads = self._in_float if artifact == self._float else self._measure(artifact)
            self.quality[artifact]["heads"] = heads
        report = self._check_budget(artifact)
        return Tried(name=name, artifact=artifact, latency_ms=latency_ms, report=report)

    def _check_budget(self, artifact: Path) -> Report:
        """Checks the budget of a network whose quality is known."""
        check = self._check
        heads = self.quality[artifact].get("heads")
        if heads is not None:
            file = self._settings.out / "quality.json"
            write_json(
                file,
                {
                    head: {
                        "metric": found["metric"],
                        "reference": self._in_float[head]["value"],
                        "candidate": found["value"],
                    }
                    for head, found in heads.items()
                },
            )
            check = replace(check, quality=file)
        runtime = self._settings.target
        engine = {"runtime": runtime, "threads": None, "input_shape": None, "data": None}
        return make_report(check, artifact, None, None, None, engine, progress=self._progress)
