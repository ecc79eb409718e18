"""The samples on which `compress prune` finds importance and judges quality."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from artifacts.input_spec import InputSpec
from artifacts.recurrence import Recurrence
from framefit.foreign_pixels import warn_of_foreign_training_pixels
from framefit.frame_states import export_states
from framefit.labelled_heads import label_heads
from framefit.module_first_layer import measure_module_layers
from framefit.training_samples import (
    IMAGE,
    SCENES,
    LabelOptions,
    find_byte_arrays,
    name_inputs,
    open_training_samples,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.prune.api import PruneData


def open_prune_data(
    module: "nn.Module",
    shapes: Mapping[str, tuple[int, ...]],
    spec: InputSpec,
    data: str | None,
    count: int,
    *,
    is_spec_assumed: bool,
    recurrence: Recurrence | None = None,
) -> "PruneData":
    """Opens what `--data` names, for importance, BatchNorm and the quality probe.

    Args:
        module: the network; one of perception learns from the labels of rendered scenes.
        shapes: of its inputs, by name.
        spec: how pixels become its input.
        data: "scenes", pictures or an `.npz`; None for no samples.
        count: use at most this many.
        is_spec_assumed: nothing says how pixels become its input.
        recurrence: its states, whose data are frames in order; None without any.

    Raises:
        InputError: the data do not fit the network.
    """
    from compress.prune.api import PruneData
    from compress.prune.importance import ImportanceData

    if data is None:
        return PruneData()
    names = name_inputs(shapes)
    heads = label_heads(module) if data == SCENES else {}
    opened = open_training_samples(
        data,
        names,
        spec,
        labels=LabelOptions(is_used=bool(heads)),
        heads=heads,
        in_bytes=find_byte_arrays(module, names, data),
        states=export_states(module, shapes, recurrence),
    )
    warn_of_foreign_training_pixels(
        opened, data, None if is_spec_assumed else spec, partial(measure_module_layers, module)
    )
    training = [opened.training[index] for index in range(min(count, len(opened.training)))]
    held_out = [opened.held_out[index] for index in range(min(count, len(opened.held_out)))]
    images, judged = (as_arguments(part, names) for part in (training, held_out))
    if not heads:
        return weigh_by_outputs(images, judged)
    importance = ImportanceData(_batches(training), _label_losses(heads), images)
    return PruneData(importance=importance, calibration=images, held_out=judged)


def as_arguments(
    samples: "Iterable[Mapping[str, Any]]", names: Collection[str]
) -> "list[tuple[Tensor, ...]]":
    """Returns a network's arguments for each sample, with a batch axis of one."""
    import torch

    return [
        tuple(torch.from_numpy(sample[name])[None].contiguous() for name in names)
        for sample in samples
    ]


def weigh_by_outputs(
    images: "Sequence[tuple[Tensor, ...]]", judged: "Sequence[tuple[Tensor, ...]]"
) -> "PruneData":
    """Returns data without labels: what changes the outputs is important.

    Args:
        images: arguments of the network.
        judged: others, for the quality probe.
    """
    from compress.prune.api import PruneData
    from compress.prune.importance import ImportanceData
    from compress.prune.importance.gradient import output_distance

    importance = ImportanceData(images, output_distance(samples=images), images)
    return PruneData(importance=importance, calibration=images, held_out=judged)


def _batches(samples: Sequence[Mapping[str, Any]]) -> list[Any]:
    import torch

    from perception.batches import Batch

    batches = []
    for sample in samples:
        tensors = {name: torch.from_numpy(value)[None] for name, value in sample.items()}
        batches.append(Batch(tensors.pop(IMAGE).contiguous(), tensors))
    return batches


def _label_losses(heads: Mapping[str, Any]) -> Callable[..., dict[str, "Tensor"]]:
    """Returns each head's own loss on a labelled batch."""

    def losses(module: "nn.Module", batch: Any) -> dict[str, "Tensor"]:
        outputs = module(batch.images)
        return {
            name: sum(head.loss(outputs, batch.targets).values()) for name, head in heads.items()
        }

    return losses
