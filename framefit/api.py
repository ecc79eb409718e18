"""What a Python program calls: modules and loaders in, objects out, no files needed.

The commands do the same with files. Data are what a program has: a folder of pictures or an `.npz`,
an array or a dictionary of arrays, a list, a `Dataset` or a `DataLoader`; see
`framefit.program_samples`.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from artifacts.compiled_module import without_compiler
from artifacts.errors import InputError, require_package
from artifacts.input_spec import InputSpec
from artifacts.module_run import evaluation_mode
from artifacts.onnx_file import check_onnx, load_before_plugins, named_shapes, save_onnx
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import read_input_spec
from artifacts.plugin_tail import PluginTail, join_plugins
from artifacts.processor import PAIRED_SUMS, overflows_on_int8, read_flags
from artifacts.samples import Samples, TensorShape, open_samples
from framefit.exported_module import export_module
from framefit.program_samples import Array, Items, ProgramSamples, open_items, read_first
from framefit.prune_goal import PruneGoal, check_values, prune_to_goal
from framefit.prune_samples import as_arguments, weigh_by_outputs
from framefit.quantize_choices import choose_clock, choose_weights, settle_forms
from framefit.training_samples import TrainingSamples, hold_out, read_sample_shapes

if TYPE_CHECKING:
    from torch import nn

    from compress.distill.api import DistillResult
    from compress.distill.settings import DistillSettings
    from compress.progress import Progress
    from compress.prune.api import PruneResult
    from compress.prune.settings import PruneSettings
    from compress.quantize.result import QuantizeResult
    from compress.quantize.settings import QuantizeSettings
    from compress.train.settings import TrainerSettings

Data = Path | str | Mapping[str, Any] | Iterable[Any]
SAMPLES = 32
_log = logging.getLogger(__name__)


def export(module: "nn.Module", data: Data, out: Path | str | None = None) -> onnx.ModelProto:
    """Exports a module to ONNX, and proves on onnxruntime that it computes the same.

    Args:
        module: the network; left as it is.
        data: its first sample says the inputs' shapes.
        out: a file to write too.

    Returns:
        the network with a batch of 1. A single input is called `input`, several as the arguments.

    Raises:
        InputError: the data do not fit, or the module cannot be exported.
    """
    model, _ = _open_network(module, _gather(data, 1, module))
    if out is not None:
        save(model, out)
    return model


def save(model: onnx.ModelProto, out: Path | str) -> Path:
    """Writes an ONNX model to one self-contained file, atomically, and returns its path.

    Raises:
        InputError: it cannot be written.
    """
    return save_onnx(model, out, metadata={})


def quantize(
    network: "nn.Module | onnx.ModelProto | Path | str",
    data: Data,
    settings: "QuantizeSettings | None" = None,
    *,
    samples: int | None = SAMPLES,
    input_spec: InputSpec | None = None,
    is_timed: bool = True,
    progress: "Progress | None" = None,
) -> "QuantizeResult":
    """Quantizes a network as `compress quantize` does, its timings on the target included.

    Args:
        network: a module, an ONNX model or an `.onnx` file.
        data: calibration data; for a module no files.
        settings: how; without any as suits TensorRT, with weights that do not overflow here.
        samples: use at most this many; None for all.
        input_spec: how pixels of files become the input; None for what the model says.
        is_timed: times the result on OpenVINO or onnxruntime where that is the target.
        progress: is told (what, done, total).

    Returns:
        the quantized model, of batch 1 where that was free, with its report; `framefit.save` writes
        it.

    Raises:
        InputError: the network, the data or a setting is not usable.
    """
    from compress.quantize.api import quantize_model
    from compress.quantize.settings import QuantizeSettings

    if settings is None:
        settings = QuantizeSettings(weights=choose_weights(None))
        _warn_of_overflow("weights are kept to sums that fit; QuantizeSettings() keeps all 8 bits")
    elif settings.weights == "int8":
        _warn_of_overflow(
            "they may overflow where OpenVINO or onnxruntime run the network here; "
            "QuantizeSettings(weights='int8-pairs') keeps them to what fits"
        )
    given = _gather(data, samples, network)
    model, plugins = _open_network(network, given)
    calibration = _open_samples(given, model, samples, input_spec)
    settings = settle_forms(settings)
    clock = choose_clock(settings, is_timed=is_timed)
    result = quantize_model(model, calibration, settings, progress, clock)
    return replace(result, model=join_plugins(result.model, plugins))


def compare(
    reference: "nn.Module | onnx.ModelProto | Path | str",
    candidate: "nn.Module | onnx.ModelProto | Path | str",
    data: Data,
    *,
    samples: int | None = None,
    input_spec: InputSpec | None = None,
    progress: "Progress | None" = None,
) -> dict[str, dict[str, float]]:
    """Compares a network with the one that it was made from, on data that neither was made with.

    Args:
        reference: right by definition.
        candidate: the network to judge.
        data: samples; for a module no files.
        samples: use at most this many; None for all.
        input_spec: how pixels of files become the input; None for what the reference says.
        progress: is told (what, done, total).

    Returns:
        for each output, and for each part of one that joins unlike tensors, its figures:
        "sqnr_db", "agreement", "max_abs" and more, see `compress.compare.OutputComparison`.

    Raises:
        InputError: a network or the data are not usable, or the networks have other outputs.
    """
    from compress.compare import compare_models

    given = _gather(data, samples, reference, candidate)
    model, other = (_open_network(network, given)[0] for network in (reference, candidate))
    found = compare_models(model, other, _open_samples(given, model, samples, input_spec), progress)
    return {**found["outputs"], **found["parts"]}


def prune(
    module: "nn.Module",
    data: Data,
    goal: PruneGoal,
    settings: "PruneSettings | None" = None,
    *,
    samples: int | None = SAMPLES,
    progress: "Progress | None" = None,
) -> "PruneResult":
    """Removes channels from a module, to a latency, a count of multiplications or a share.

    Args:
        module: the network, on the CPU; it is not changed, and looked at in evaluation mode.
        data: samples that say what is important; each tenth judges instead.
        goal: how far.
        settings: how.
        samples: use at most this many; None for all.
        progress: is told (what, done, total).

    Returns:
        the pruned module, not compiled and proven to compute what the original does without those
        channels, and `edits`, with which `artifacts.edits.apply_edits` makes it from the original.

    Raises:
        InputError: the goal cannot be reached, or the network cannot be pruned.
    """
    require_package("torch", "torch")
    import torch

    from compress.prune.settings import PruneSettings

    check_values(goal)
    module = without_compiler(module)
    with torch.inference_mode(mode=False), torch.enable_grad(), evaluation_mode(module):
        given, shapes = _open_for_module(module, data, samples)
        images, judged = (as_arguments(part, shapes) for part in (given.training, given.held_out))
        return prune_to_goal(
            module,
            images[0],
            goal,
            settings or PruneSettings(),
            weigh_by_outputs(images, judged),
            shapes,
            progress,
        )


def distill(
    student: "nn.Module",
    teacher: "nn.Module",
    data: Data,
    settings: "DistillSettings | None" = None,
    training: "TrainerSettings | None" = None,
    *,
    progress: "Progress | None" = None,
) -> "DistillResult":
    """Lets a student learn to answer as its teacher does; needs no labels.

    Args:
        student: changed in place.
        teacher: left as it is.
        data: all of it is learned from, but for each tenth sample, 32 at most, which judge.
        settings: what is copied.
        training: how; None as `compress distill` does, with mirrored pictures.
        progress: is told (what, done, total).

    Returns:
        the student with what was measured before and after; the better one is kept.

    Raises:
        InputError: there are fewer than two samples, the networks have no common output, or
            training diverged.
    """
    require_package("lightning_fabric", "train")
    from compress.distill.api import distill_module
    from compress.train.settings import TrainerSettings

    student, teacher = without_compiler(student), without_compiler(teacher)
    samples, _ = _open_for_module(student, data, None)
    training = training or TrainerSettings(flip_probability=samples.flip_probability)
    return distill_module(
        student,
        teacher,
        samples.training,
        samples.held_out,
        settings,
        training,
        inputs=samples.inputs,
        progress=progress,
    )


def _warn_of_overflow(what_follows: str) -> None:
    if overflows_on_int8(read_flags()):
        _log.warning("%s: %s", PAIRED_SUMS, what_follows)


def _gather(data: Data, limit: int | None, *networks: Any) -> Items | Path:
    """Returns what a program's data are made of, or where the files are.

    Args:
        data: what the program has.
        limit: the most samples that are wanted; None for all.
        networks: that they are for; the first module says what dictionaries call its only input.
    """
    if isinstance(data, str | Path):
        return Path(data)
    items = open_items(data, limit)
    module = next((one for one in networks if hasattr(one, "forward")), None)
    return items if module is None else items.for_module(without_compiler(module))


def _require_items(given: Items | Path) -> Items:
    """Refuses files where a module is to be run: they do not say the shapes of its inputs.

    Raises:
        InputError: these are files.
    """
    if isinstance(given, Path):
        raise InputError(
            f"the data of a module are the path {given}",
            "arrays or tensors, which say the shapes of its inputs",
            "export it first, with framefit.export(module, torch.zeros(1, 3, 360, 640))",
        )
    return given


def _open_network(
    network: "nn.Module | onnx.ModelProto | Path | str", given: Items | Path
) -> tuple[onnx.ModelProto, PluginTail | None]:
    """Returns a network as ONNX, and the plugins behind it."""
    if isinstance(network, str | Path):
        likely = _read_shapes(given, tuple(named_shapes(Path(network))))
        return load_before_plugins(Path(network), likely_shapes=likely)
    if isinstance(network, onnx.ModelProto):
        likely = _read_shapes(given, tuple(input_tensors(network)))
        return check_onnx(network, likely_shapes=likely), None
    network = without_compiler(network)
    first = read_first(network, _require_items(given))
    shapes = {name: array.shape for name, array in first.items()}
    integers = {name: array for name, array in first.items() if array.dtype.kind in "biu"}
    return export_module(network, shapes, integers), None


def _read_shapes(given: Items | Path, names: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the first sample, batch 1, by the names of a network's inputs."""
    if isinstance(given, Path):
        return read_sample_shapes(str(given))
    if not names or not len(given.values):
        return {}
    named = given.read(0, names)
    return {
        name: (1, *(array.shape[1:] if given.has_batch else array.shape))
        for name, array in named.items()
    }


def _open_samples(
    given: Items | Path, model: onnx.ModelProto, limit: int | None, spec: InputSpec | None
) -> Samples:
    """Returns samples for a network; pixels become its input as `spec` says, or the model."""
    tensors = input_tensors(model)
    if isinstance(given, Items):
        return ProgramSamples(given, tensors, limit)
    spec = spec or read_input_spec(model) or InputSpec()
    return open_samples(given, tensors, spec, limit=limit)


def _open_for_module(
    module: "nn.Module", data: Data, limit: int | None
) -> tuple[TrainingSamples, dict[str, tuple[int, ...]]]:
    """Returns samples for a module, and the shapes of its inputs by name, batch 1."""
    items = _require_items(_gather(data, limit, module))
    is_wide = {str(value.dtype) for value in module.parameters()} == {"torch.float64"}
    tensors = {
        name: TensorShape(array.shape, _type_for_module(array, is_wide=is_wide))
        for name, array in read_first(module, items).items()
    }
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    return hold_out(ProgramSamples(items, tensors, limit), shapes), shapes


def _type_for_module(array: Array, *, is_wide: bool) -> str:
    if array.dtype.kind != "f":
        return array.dtype.name
    return "float64" if is_wide else "float32"
