"""Opens networks that can be trained, and writes them back in the form in which they came."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import InputError
from artifacts.file_kind import require_file
from artifacts.input_spec import InputSpec
from artifacts.recurrence import Recurrence
from artifacts.wording import name_some
from framefit.foreign_pixels import warn_of_foreign_training_pixels
from framefit.frame_states import export_states
from framefit.model_source import ModelOptions
from framefit.module_first_layer import measure_module_layers
from framefit.spec_choice import choose_spec, count_channels
from framefit.training_samples import (
    SCENES,
    LabelOptions,
    TrainingSamples,
    find_byte_arrays,
    name_inputs,
    open_pictures,
    open_training_samples,
    refuse_first_axis,
)
from framefit.workspace import Workspace

if TYPE_CHECKING:
    from torch import Tensor, nn

    from artifacts.checkpoint import Checkpoint

_log = logging.getLogger(__name__)
_MOST_FROZEN = 3
_SHOWN_SHARE = 0.005


@dataclass(frozen=True, kw_only=True)
class Trainable:
    """A network that can be trained.

    Attributes:
        module: the network.
        shapes: of its inputs, see `name_inputs`.
        own_shapes: the same by the names that the file or the user gives them.
        spec: how pixels become them.
        is_spec_assumed: nothing says how they do.
        in_bytes: inputs that arrays of bytes are for as they are, see `find_byte_arrays`.
        recurrence: its states; None without any.
    """

    module: "nn.Module"
    shapes: dict[str, tuple[int, ...]]
    own_shapes: dict[str, tuple[int, ...]]
    spec: InputSpec
    is_spec_assumed: bool
    in_bytes: frozenset[str] = frozenset()
    recurrence: Recurrence | None = None

    def open_samples(
        self,
        data: str,
        labels: LabelOptions | None,
        heads: Mapping[str, Any],
        teacher: "nn.Module | None" = None,
    ) -> TrainingSamples:
        """Opens samples for it, see `open_training_samples`.

        Args:
            data: see there.
            labels: see there.
            heads: see there.
            teacher: computes the states; the network itself where none is given.
        """
        samples = open_training_samples(
            data,
            self.shapes,
            self.spec,
            labels=labels,
            heads=heads,
            in_bytes=self.in_bytes,
            states=export_states(teacher or self.module, self.own_shapes, self.recurrence),
        )
        known = None if self.is_spec_assumed else self.spec
        warn_of_foreign_training_pixels(
            samples, data, known, partial(measure_module_layers, self.module)
        )
        return samples


def open_trainable(
    path: Path, options: ModelOptions, spec_options: Mapping[str, Any], data: str = SCENES
) -> Trainable:
    """Opens a network that can be trained.

    Args:
        path: its file.
        options: how to open it.
        spec_options: input spec values given by the user, see `choose_spec`.
        data: what it will learn from. It is tried on a sample, as random numbers may make no sense
            to it (indices, distances, points); rendered scenes are taken to be like those.

    Raises:
        InputError: it is an archive of torch.export, its inputs cannot be trained with, it fails
            with them, or it answers boxes that it chose.
    """
    from artifacts.raw_outputs import require_raw_outputs
    from export.network_file import open_network

    path = require_file(path, "a checkpoint (.pt)")
    if path.suffix.lower() in (".onnx", ".pt2"):
        raise InputError(f"{path} cannot be trained", "a checkpoint (.pt, .safetensors)")
    module, shapes, stored = open_network(path, replace(options, data=data).for_module())
    spec, warning = choose_spec(
        stored, Workspace().read_settings().input, spec_options, channels=count_channels(shapes)
    )
    named = name_inputs(shapes)
    is_single = all(shape[:1] == (1,) for shape in shapes.values())
    in_bytes = find_byte_arrays(module.eval(), named, data)
    states = options.recurrence.states if options.recurrence is not None else ()
    sample = open_example(data, named, spec, in_bytes, states) if is_single else None
    require_raw_outputs(module.eval(), sample or draw_example(shapes))
    require_single_samples(module, shapes)
    return Trainable(
        module=module,
        shapes=named,
        own_shapes=shapes,
        spec=spec,
        is_spec_assumed=bool(warning),
        in_bytes=in_bytes,
        recurrence=options.recurrence,
    )


def note_frozen(module: "nn.Module") -> None:
    """Warns of weights that the code that builds a network froze, so that they do not learn."""
    weights = dict(module.named_parameters())
    frozen = [name for name, weight in weights.items() if not weight.requires_grad]
    if frozen:
        share = sum(weights[name].numel() for name in frozen) / sum(
            weight.numel() for weight in weights.values()
        )
        _log.warning(
            "%s of the weights are frozen where the network is built (requires_grad is False) "
            "and do not learn: %s",
            f"{100 * share:.0f} %" if share >= _SHOWN_SHARE else "less than 1 %",
            name_some(frozen, _MOST_FROZEN),
        )


def require_single_samples(module: "nn.Module", shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that a network whose input is made for several samples takes one too.

    Raises:
        InputError: it does not: the first axis is something else, such as cameras.
    """
    from artifacts.module_run import run_module

    if all(shape[:1] == (1,) for shape in shapes.values()):
        return
    alone = {name: (1, *shape[1:]) for name, shape in shapes.items()}
    try:
        run_module(module, draw_example(alone))
    except InputError as error:
        raise refuse_first_axis(*next(iter(shapes.items()))) from error


def open_example(
    data: str,
    shapes: Mapping[str, tuple[int, ...]],
    spec: InputSpec,
    in_bytes: frozenset[str],
    states: Collection[str] = (),
) -> "tuple[Tensor, ...] | None":
    """Returns a network's arguments from the first sample of `data`; None for rendered scenes.

    States that it does not have are zeros.
    """
    import torch

    if data == SCENES:
        return None
    sample = open_pictures(data, shapes, spec, in_bytes=in_bytes, optional=states)[0]
    return tuple(
        torch.from_numpy(sample[name]) if name in sample else torch.zeros(shape)
        for name, shape in shapes.items()
    )


def draw_example(shapes: Mapping[str, tuple[int, ...]]) -> "tuple[Tensor, ...]":
    """Returns random arguments of a network, the same each time."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return tuple(torch.rand(shape, generator=generator) for shape in shapes.values())


def save_trained(source: Path, opened: Trainable, out: Path) -> None:
    """Writes new weights in the form that the network came in: a checkpoint, or plain weights.

    Args:
        source: the file that the network came in.
        opened: the network with the new weights.
        out: the file to write.
    """
    from artifacts.checkpoint import find_checkpoint, save_checkpoint, save_weights

    content = find_checkpoint(source)
    if content is None:
        save_weights(out, _copy_weights(opened.module))
    else:
        save_checkpoint(out, _update(content, opened, opened.module))


def save_edited(
    source: Path,
    opened: Trainable,
    module: "nn.Module",
    edits: Sequence[Mapping[str, Any]],
    out: Path,
    factory: str | None,
) -> None:
    """Writes a network with structural edits on top of those it came with, as a checkpoint.

    Args:
        source: the file that the network came in.
        opened: the network as it came.
        module: the edited one.
        edits: that made it so.
        out: the file to write.
        factory: that builds the network where the file holds weights alone.
    """
    from artifacts.checkpoint import Checkpoint, find_checkpoint, save_checkpoint

    content = find_checkpoint(source) or Checkpoint(
        builder=factory or "",
        config={},
        input_spec=opened.spec,
        state_dict={},
        shapes=dict(opened.own_shapes),
    )
    edited = [*content.edits, *map(dict, edits)]
    save_checkpoint(out, replace(_update(content, opened, module), edits=edited))


def _update(content: "Checkpoint", opened: Trainable, module: "nn.Module") -> "Checkpoint":
    """Returns a checkpoint with the module's weights and what is known of the input by now."""
    return replace(
        content,
        state_dict=_copy_weights(module),
        input_spec=opened.spec,
        is_spec_assumed=opened.is_spec_assumed,
    )


def _copy_weights(module: "nn.Module") -> "dict[str, Tensor]":
    return {name: value.detach().cpu() for name, value in module.state_dict().items()}
