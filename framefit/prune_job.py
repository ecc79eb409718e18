"""The work of `compress prune`: a network's file in, a narrower network's file out."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.atomic import (
    require_another_file,
    require_writable,
)
from artifacts.digest import sha256_file
from artifacts.errors import InputError
from artifacts.file_kind import WEIGHT_SUFFIXES, require_file
from artifacts.input_spec import InputSpec
from artifacts.module_names import require_modules
from framefit.model_source import ModelOptions
from framefit.prune_goal import PruneGoal, check_values, prune_to_goal
from framefit.prune_samples import open_prune_data
from framefit.spec_choice import choose_spec, count_channels
from framefit.trainable_network import draw_example, require_single_samples
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.prune.api import PruneData, PruneResult
    from compress.prune.settings import PruneSettings
    from compress.prune.sparsity import SparseLayer

Progress = Callable[[str, int, int], None]
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PruneOutcome:
    """What `prune_file` made.

    Attributes:
        source, out: the network's file and the pruned one's.
        goal: how far it was to be pruned.
        result: what was pruned.
        parameters: number of weights before and after.
        sparse: layers and whether they have 2:4 sparsity; empty where it was not asked for.
    """

    source: Path
    out: Path
    goal: PruneGoal
    result: "PruneResult"
    parameters: tuple[int, int]
    sparse: "Sequence[SparseLayer]" = ()

    def to_dict(self) -> dict[str, Any]:
        """Returns the outcome for `--json`."""
        result = self.result
        return {
            "model": str(self.source),
            "out": str(self.out),
            "sha256": sha256_file(self.out),
            "parameters": list(self.parameters),
            "macs": list(result.macs),
            "latency_ms": result.latency_ms,
            "precision": self.goal.precision,
            "quality_db": list(result.quality),
            "largest_difference": max(result.differences, default=None),
            "narrowed_statistics": list(result.narrowed_statistics),
            "widths": [vars(width) for width in result.widths],
            "left_alone": [vars(item) for item in result.left_alone],
            "sparse": [vars(layer) for layer in self.sparse],
            "notes": list(result.notes),
        }


@dataclass(frozen=True)
class _Source:
    """An opened network and what is needed to store a pruned one."""

    module: "nn.Module"
    shapes: Mapping[str, tuple[int, ...]]
    spec: InputSpec
    is_spec_assumed: bool
    builder: str
    config: dict[str, Any]
    edits: list[dict[str, Any]]


def prune_file(
    model: Path | None,
    goal: PruneGoal,
    settings: "PruneSettings",
    *,
    data: str | None = None,
    out: Path | None = None,
    samples: int = 32,
    is_sparse: bool = False,
    model_options: ModelOptions | None = None,
    spec_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> PruneOutcome:
    """Prunes a network's file and writes the narrower network.

    Args:
        model: `.pt` or `.safetensors`; None for the newest checkpoint of the workspace.
        goal: how far.
        settings: how.
        data: pictures, an `.npz`, or "scenes"; None for a method that needs no samples.
        out: the file to write; None for the model's name with `.pruned.pt` in the current folder.
        samples: of `data` to use.
        is_sparse: also zero two of every four weights of eligible layers.
        model_options: factory and input shape.
        spec_options: input spec values given by the user, see `choose_spec`.
        progress: is told (what, done, total).

    Raises:
        InputError: the model, the data, the goal or the output path is not usable.
    """
    from artifacts.checkpoint import require_checkpoint_name
    from compress.prune.sparsity import make_sparse

    check_values(goal)
    model = model or Workspace().find_artifact("checkpoint")
    target = require_writable(out or Path(f"{model.stem}.pruned.pt"))
    require_checkpoint_name(target)
    require_another_file(target, {"the network": model})
    source = _open(model, model_options or ModelOptions(), spec_options or {}, data)
    require_modules(source.module, settings.protect)
    if data is not None:
        require_single_samples(source.module, source.shapes)
    opened = open_prune_data(
        source.module,
        source.shapes,
        source.spec,
        data,
        samples,
        is_spec_assumed=source.is_spec_assumed,
        recurrence=model_options.recurrence if model_options is not None else None,
    )
    inputs = _choose_example(source, opened)
    before = _count_parameters(source.module)
    result = prune_to_goal(source.module, inputs, goal, settings, opened, source.shapes, progress)
    sparse = make_sparse(result.module) if is_sparse else []
    _save(target, source, result)
    Workspace().record_artifact(target, "checkpoint", "compress prune")
    return PruneOutcome(
        source=model,
        out=target,
        goal=goal,
        result=result,
        parameters=(before, _count_parameters(result.module)),
        sparse=sparse,
    )


def _open(
    model: Path, options: ModelOptions, spec_options: Mapping[str, Any], data: str | None
) -> _Source:
    from artifacts.checkpoint import find_checkpoint
    from export.network_file import open_network

    path = require_file(model, "a network (.pt or .safetensors)")
    if path.suffix.lower() not in WEIGHT_SUFFIXES:
        raise InputError(
            f"{path} cannot be pruned",
            "a checkpoint or weights (.pt, .safetensors)",
            "a graph states its widths: save the module's state_dict(), and give --factory",
        )
    module, shapes, stored = open_network(path, replace(options, data=data).for_module())
    content = find_checkpoint(path)
    spec, warning = choose_spec(
        stored, Workspace().read_settings().input, spec_options, channels=count_channels(shapes)
    )
    known = (module, shapes, spec, bool(warning))
    if content is not None:
        return _Source(*known, content.builder, content.config, list(content.edits))
    return _Source(*known, options.factory or "", {}, [])


def _choose_example(source: _Source, data: "PruneData") -> "tuple[Tensor, ...]":
    """Returns what the network is followed and proven with: a sample, or random numbers.

    Indices, distances or points may make sense on samples only; a sample of one value throughout,
    such as a black picture, would prove little.
    """
    told = (
        sample
        for sample in data.calibration
        if all(bool((value != value.flatten()[0]).any()) or value.numel() < 2 for value in sample)
    )
    return next(told, None) or draw_example(source.shapes)


def _count_parameters(module: "nn.Module") -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _save(target: Path, source: _Source, result: "PruneResult") -> None:
    from artifacts.checkpoint import Checkpoint, save_checkpoint

    save_checkpoint(
        target,
        Checkpoint(
            builder=source.builder,
            config=source.config,
            input_spec=source.spec,
            state_dict=result.module.state_dict(),
            edits=[*source.edits, *result.edits],
            shapes={} if source.config else dict(source.shapes),
            is_spec_assumed=source.is_spec_assumed,
        ),
    )
