"""What a network is repaired with: pictures without labels, or labelled scenes."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from artifacts.errors import InputError, MissingInputsError
from artifacts.folder_samples import read_file_shapes
from artifacts.input_spec import InputSpec
from artifacts.npz_samples import NpzSamples, read_array_shapes
from artifacts.samples import Samples, TensorShape, open_samples
from framefit.frame_states import FrameStates
from framefit.workspace import Workspace
from perception.held_out import held_out_numbers

if TYPE_CHECKING:
    from torch import nn

    from perception.batches import Scenes, SceneSource
    from perception.heads.head import TargetEncoder

_log = logging.getLogger(__name__)
IMAGE = "image"
SCENES = "scenes"
MOST_HELD_OUT = 32
SCENE_COUNT = 20_000
SCENE_SEED = 11
_PICTURE_AXES = 4
_COLORS = (1, 3, 4)

Sample = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Labels of the training pictures, as the command line gives them.

    Attributes:
        is_used: learn from the labels too (rendered scenes).
        annotations: COCO annotation file of the pictures.
        masks: folder of masks of the pictures.
        mask_format: a key of `perception.training_data.MASK_FORMATS`.
    """

    is_used: bool = False
    annotations: Path | None = None
    masks: Path | None = None
    mask_format: str = "cityscapes"

    @property
    def has_files(self) -> bool:
        """Whether labels of own pictures are given."""
        return self.annotations is not None or self.masks is not None

    @property
    def is_given(self) -> bool:
        """Whether there are labels to learn from."""
        return self.is_used or self.has_files


@dataclass(frozen=True, kw_only=True)
class TrainingSamples:
    """Samples to learn from and others to look at.

    Attributes:
        training: "image" [C, H, W] each, and labels where there are any.
        held_out: the same, never learned from.
        labelled: heads that have labels.
        scenes: labelled scenes to measure quality on, by size; None without labels.
        inputs: names of the network's arguments in a sample, in their order.
        is_mirrored: whether mirrored samples make sense: pictures without labels.
    """

    training: Sequence[Sample]
    held_out: Sequence[Sample]
    labelled: tuple[str, ...] = ()
    scenes: "SceneSource | None" = None
    inputs: tuple[str, ...] = (IMAGE,)
    is_mirrored: bool = False

    @property
    def flip_probability(self) -> float:
        """Probability with which a trainer should mirror a sample."""
        return 0.5 if self.is_mirrored else 0.0


class PictureSamples(Sequence[Sample]):
    """Some of the samples of a folder or file, without their batch axis.

    Args:
        samples: of a network; each input has a batch axis of one.
        numbers: which of them.
    """

    def __init__(self, samples: Samples, numbers: Sequence[int]) -> None:
        self.samples = samples
        self.numbers = tuple(numbers)

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        """Returns one sample."""
        return {name: array[0] for name, array in self.samples[self.numbers[index]].items()}


class SceneSamples(Sequence[Sample]):
    """Rendered or labelled scenes as samples.

    Args:
        scenes: at the network's size.
        encoders: of the heads whose labels are wanted.
        spec: how pixels become inputs.
        count: at most this many.
    """

    def __init__(
        self,
        scenes: "Scenes",
        encoders: Sequence["TargetEncoder"],
        spec: InputSpec,
        count: int | None = None,
    ) -> None:
        self.scenes = scenes
        self.encoders = tuple(encoders)
        self.spec = spec
        self._count = min(len(scenes), count or len(scenes))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        """Returns one sample."""
        from perception.batches import encode_scene

        return encode_scene(self.scenes[index], self.encoders, self.spec, 1.0)


def refuse_first_axis(name: str, shape: Sequence[int]) -> InputError:
    """Returns the error for an input whose first axis is no batch of one, such as six cameras."""
    return InputError(
        f"input '{name}' of the network is {list(shape)}",
        "a batch axis of 1 first, as of every input of a network that learns from --data",
        f"build a module around it that takes {[1, *shape]} and drops the first axis",
    )


def name_inputs(shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of a network's inputs by the names that they have in a sample.

    Raises:
        InputError: one of several inputs has no batch axis of one, so that samples do not stack.
    """
    if len(shapes) == 1:
        return {IMAGE: tuple(*shapes.values())}
    for name, shape in shapes.items():
        if not shape or shape[0] != 1:
            raise refuse_first_axis(name, shape)
    return {name: tuple(shape) for name, shape in shapes.items()}


def read_sample_shapes(data: str | None) -> dict[str, tuple[int, ...]]:
    """Returns the shape of one sample of each array of an `.npz` or folder, a batch of one first.

    Empty for other data: pictures have no shape of their own, since they are resized.
    """
    if data is None or data == SCENES:
        return {}
    path = Workspace().find_dataset(data)
    if path.is_dir():
        return {name: (1, *shape) for name, shape in read_file_shapes(path).items()}
    if path.suffix.lower() != ".npz" or not path.is_file():
        return {}
    shapes = read_array_shapes(path)
    return {name: (1, *shape[1:]) for name, shape in shapes.items() if shape}


def open_training_samples(
    data: str,
    shapes: Mapping[str, Sequence[int]],
    spec: InputSpec,
    *,
    labels: LabelOptions | None = None,
    heads: Mapping[str, Any] | None = None,
    tensors: Mapping[str, TensorShape] | None = None,
    in_bytes: Collection[str] = (),
    states: FrameStates | None = None,
) -> TrainingSamples:
    """Opens what `--data` names.

    Args:
        data: "scenes" for rendered roads, or pictures: a folder, an `.npz`, a dataset of
            framefit.toml. Each tenth is held out.
        shapes: of the network's inputs by name; a single one is `IMAGE`, [N, C, H, W].
        spec: how pixels become inputs.
        labels: where labels are and whether to use them.
        heads: of the student, see `labelled_heads.label_heads`; needed for labels.
        tensors: types of the inputs' elements by name, and which may be bytes; "float32" where none
            is given.
        in_bytes: see `open_pictures`.
        states: of the network; the data are frames in order then. None where it has none.

    Raises:
        InputError: the data do not fit, there are too few, or labels are asked for and not there.
    """
    labels = labels or LabelOptions()
    encoders = [head.encoder for head in (heads or {}).values()]
    if labels.is_given and not encoders:
        raise InputError(
            "labels were given for a network that cannot learn from them",
            "the checkpoint (.pt) of a network of perception",
            "leave the labels out: the teacher's answers suffice",
        )
    if data == SCENES or labels.has_files:
        if len(shapes) > 1:
            raise InputError(
                f"{data} for a network with {len(shapes)} inputs", "an .npz with an array for each"
            )
        return _open_scenes(data, shapes[IMAGE], spec, labels, encoders)
    if labels.is_used:
        raise InputError(
            f"--labels was given for {data}",
            "--data scenes",
            "or name the labels of own pictures with --annotations or --masks",
        )
    optional = states.recurrence.states if states is not None else ()
    samples = open_pictures(data, shapes, spec, tensors, in_bytes, optional)
    if isinstance(samples, NpzSamples):
        warn_of_arrays(samples, data)
    if states is not None:
        samples = states.add_to(samples)
    return hold_out(samples, shapes, data)


def warn_of_arrays(samples: NpzSamples, data: str) -> None:
    """Names the arrays of a file that are read as numbers from 0 to 255, and those not read."""
    warnings = {
        "%s of %s: bytes, which the network computes with, so it gets 0 to 255; where training "
        "scaled them before, scale them in the file": samples.unscaled,
        "%s is not used of %s: no input of the network is called so, and labels are not read "
        "from an .npz": samples.unused,
    }
    for text, names in warnings.items():
        if names:
            _log.warning(text, ", ".join(f"'{name}'" for name in names), data)


def hold_out(
    samples: Samples, shapes: Mapping[str, Sequence[int]], what: str = "the data"
) -> TrainingSamples:
    """Returns samples without labels, each tenth of them held out.

    Args:
        samples: all there are.
        shapes: of the network's inputs by name.
        what: the samples are, for the error.

    Raises:
        InputError: there are fewer than two.
    """
    if len(samples) < 2:
        raise InputError(f"{len(samples)} sample in {what}", "at least 2, one of them held out")
    held_out = held_out_numbers(len(samples))[:MOST_HELD_OUT] or [len(samples) - 1]
    kept = [number for number in range(len(samples)) if number not in held_out]
    return TrainingSamples(
        training=PictureSamples(samples, kept),
        held_out=PictureSamples(samples, held_out),
        inputs=tuple(shapes),
        is_mirrored=len(shapes) == 1 and _ends_in_width(*shapes.values()),
    )


def _ends_in_width(shape: Sequence[int]) -> bool:
    """Returns whether an input is a picture [N, C, H, W], and not one with its colors last."""
    is_picture = len(shape) == _PICTURE_AXES
    return is_picture and (shape[1] in _COLORS or shape[-1] not in _COLORS)


def find_byte_arrays(
    module: "nn.Module", shapes: Mapping[str, Sequence[int]], data: str
) -> frozenset[str]:
    """Returns the inputs for which `data` may hold bytes that are no pictures.

    Args:
        module: the network, in evaluation mode.
        shapes: of its inputs, in the order of its arguments.
        data: what `--data` names; only an `.npz` holds such bytes.
    """
    if data == SCENES or Workspace().find_dataset(data).suffix.lower() != ".npz":
        return frozenset()
    from artifacts.module_inputs import find_byte_inputs

    return find_byte_inputs(module, shapes)


def open_pictures(
    data: str,
    shapes: Mapping[str, Sequence[int]],
    spec: InputSpec,
    tensors: Mapping[str, TensorShape] | None = None,
    in_bytes: Collection[str] = (),
    optional: Collection[str] = (),
) -> Samples:
    """Opens pictures or an `.npz`; a sample has a batch axis of one.

    Args:
        data: what to open.
        shapes: of the inputs, by name.
        spec: how pixels become inputs.
        tensors: types of the inputs' elements by name, and which may be bytes; "float32" where none
            is given.
        in_bytes: float inputs that an array of bytes is for as it is, see `find_byte_arrays`.
        optional: inputs that the data need not have: states.

    Raises:
        InputError: the data do not fit.
    """
    path = Workspace().find_dataset(data)
    alone = {name: (1, *shape[1:]) for name, shape in shapes.items()}
    known = {name: TensorShape(shape, "float32", name in in_bytes) for name, shape in alone.items()}
    for name, tensor in (tensors or {}).items():
        known[name] = replace(tensor, shape=alone[name])
    try:
        return open_samples(path, known, spec, optional=optional)
    except MissingInputsError as error:
        if len(error.missing) == len(shapes):
            raise
        raise error.naming_states(dict.fromkeys(error.missing, "OUTPUT")) from error


def _open_scenes(
    data: str,
    shape: Sequence[int],
    spec: InputSpec,
    labels: LabelOptions,
    encoders: Sequence["TargetEncoder"],
) -> TrainingSamples:
    from perception.training_data import picture_data, road_data

    if labels.has_files:
        source = picture_data(
            Workspace().find_dataset(data),
            annotations=labels.annotations,
            masks=labels.masks,
            mask_format=labels.mask_format,
        )
    else:
        source = road_data(SCENE_COUNT, SCENE_SEED, MOST_HELD_OUT)
    height, width = int(shape[2]), int(shape[3])
    used = tuple(encoders) if labels.is_given else ()
    training, held_out = source.training(height, width), source.held_out(height, width)
    return TrainingSamples(
        training=SceneSamples(training, used, spec),
        held_out=SceneSamples(held_out, used, spec, MOST_HELD_OUT),
        labelled=source.heads if labels.is_given else (),
        scenes=source.held_out,
        is_mirrored=not labels.is_given,
    )
