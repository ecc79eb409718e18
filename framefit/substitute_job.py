"""The work of `compress substitute`: cheaper operators, measured, and repaired by distillation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import require_another_file, require_writable
from artifacts.digest import sha256_file
from artifacts.input_spec import InputSpec
from framefit.distill_job import train_student
from framefit.labelled_heads import label_heads, measure_heads
from framefit.model_source import ModelOptions
from framefit.module_clock import ModuleClock
from framefit.output_quality import measure_outputs
from framefit.trainable_network import note_frozen, open_trainable, save_edited
from framefit.training_samples import LabelOptions, Sample, TrainingSamples
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.distill.api import DistillResult
    from compress.distill.settings import DistillSettings
    from compress.substitute.api import Substitution
    from compress.train.settings import TrainerSettings

Progress = Callable[[str, int, int], None]
CALIBRATION_SAMPLES = 4
"""For timing only: the integers hardly change the time."""


@dataclass(frozen=True, kw_only=True)
class SubstituteOutcome:
    """What `substitute_file` made.

    Attributes:
        out: the checkpoint.
        source: the network's file.
        substitution: what was tried and kept.
        result: the repair; None where nothing paid or no repair was asked for.
        heads: figure per head of the original, and of the result before and after the repair, on
            held-out scenes; empty without labels.
        outputs: SQNR of each output against the original on held-out samples, dB: "substituted",
            and "repaired"; empty where nothing paid.
    """

    out: Path
    source: Path
    substitution: "Substitution"
    result: "DistillResult | None"
    heads: dict[str, dict[str, Any]]
    outputs: dict[str, dict[str, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        result = self.result
        return {
            "model": str(self.source),
            "out": str(self.out),
            "sha256": sha256_file(self.out) if self.out.exists() else None,
            "trials": [vars(trial) for trial in self.substitution.trials],
            "called": {kind: list(names) for kind, names in self.substitution.called.items()},
            "steps": result.steps if result else 0,
            "learning_rate": result.rate.to_dict() if result else None,
            "score": {"before": result.score_before, "after": result.score_after}
            if result
            else None,
            "heads": self.heads,
            "outputs_db": self.outputs,
        }


def substitute_file(
    model: Path,
    data: str,
    settings: "DistillSettings",
    training: "TrainerSettings",
    *,
    kinds: Sequence[str] | None = None,
    runtime: str = "openvino",
    is_int8: bool = True,
    out: Path | None = None,
    labels: LabelOptions | None = None,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> SubstituteOutcome:
    """Substitutes operators of a network's file where it pays, and repairs the network.

    Args:
        model: a framefit checkpoint, or plain weights with `--factory`.
        data: to repair with, see `open_training_samples`.
        settings: what the repaired network copies from the original.
        training: how it is trained.
        kinds: of operators to try; None for all.
        runtime: where the time counts.
        is_int8: whether it will run there in INT8.
        out: the checkpoint to write; None for the model's name with `.substituted.pt`, here.
        labels: see `open_training_samples`.
        model_options: how to open the network.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: told (what, done, total).

    Raises:
        InputError: a file, the data or an option is not usable, or there is nothing to substitute.
    """
    from artifacts.checkpoint import require_checkpoint_name
    from artifacts.module_copy import copy_module
    from compress.substitute.api import choose_substitutions
    from compress.train.launch import is_first_process

    options = model_options or ModelOptions()
    out = require_writable(out or Path(f"{model.stem}.substituted.pt"))
    require_checkpoint_name(out)
    require_another_file(out, {"the network": model})
    opened = open_trainable(model, options, spec_options or {}, data)
    module, spec = opened.module, opened.spec
    note_frozen(module)
    heads = label_heads(module)
    samples = opened.open_samples(data, labels, heads)
    few = [samples.training[i] for i in range(min(CALIBRATION_SAMPLES, len(samples.training)))]
    clock = ModuleClock(opened.shapes, few if is_int8 else (), runtime)
    substitution = choose_substitutions(
        module, clock, kinds, inputs=_example(few, samples.inputs), progress=progress
    )
    result, outputs = None, {}
    before = measure_heads(substitution.module, samples, spec)
    if substitution.edits:
        unrepaired = copy_module(substitution.module).eval()
        result = train_student(
            substitution.module,
            module,
            samples,
            settings,
            training,
            heads=heads,
            out=out,
            progress=progress,
        )
        versions = {"substituted": unrepaired, "repaired": substitution.module.eval()}
        outputs = measure_outputs(module.cpu(), versions, samples.held_out, samples.inputs)
    if is_first_process():
        save_edited(model, opened, substitution.module, substitution.edits, out, options.factory)
        Workspace().record_artifact(out, "checkpoint", "compress substitute")
    return SubstituteOutcome(
        out=out,
        source=model,
        substitution=substitution,
        result=result,
        heads=_figures(module, substitution.module, before, samples, spec),
        outputs=outputs,
    )


def _example(samples: "Sequence[Sample]", names: "Sequence[str]") -> "tuple[Tensor, ...]":
    """Returns the network's arguments for one sample."""
    from compress.train.batches import stack_samples

    return tuple(stack_samples(samples[:1])[name] for name in names)


def _figures(
    original: "nn.Module",
    changed: "nn.Module",
    before: Mapping[str, Any],
    samples: TrainingSamples,
    spec: InputSpec,
) -> dict[str, dict[str, Any]]:
    first, last = measure_heads(original, samples, spec), measure_heads(changed, samples, spec)
    return {
        name: {
            "metric": value["metric"],
            "original": first[name]["value"],
            "before": before[name]["value"],
            "after": value["value"],
        }
        for name, value in last.items()
    }
