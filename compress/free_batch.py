"""Gives a network that was worked on at a batch of 1 its free batch back, where it can have one.

Shapes that were computed from the batch have become constants meanwhile. Those that reshapes and
resizes lead to, and constants that need a row for each sample (class tokens, the grids of
GridSample), are written for any batch again. Two samples at once then have to give what each gives
alone, rounded or, where a value that falls to the next integer changes much of an output, without
the rounding of activations.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from artifacts.node_attributes import set_attributes
from artifacts.removed_pairs import remove_qdq
from artifacts.unread_constants import drop_unread_constants
from compress.model_runner import open_runner
from compress.sqnr import SignalToNoise

Array = NDArray[Any]
Shapes = Mapping[str, tuple[int, ...]]

NAMED_AXES_OPSET = 18
"""From it on a Resize may say which axes its sizes are of."""
_POLICY = "keep_aspect_ratio_policy"
LEAST_DB = 30.0
"""Sums in another order move a few values to the next integer; mixed samples are far below."""


def free_batch(
    model: onnx.ModelProto, batches: Mapping[str, str], samples: Sequence[Mapping[str, Array]]
) -> onnx.ModelProto | None:
    """Returns the model with a free batch, or None where it computes only with a batch of 1.

    Args:
        model: of static shapes, its batch 1; it is not changed.
        batches: the inputs whose batch is to be free, and how the file is to call it.
        samples: one or more, arrays by the input's name.
    """
    first = dict(samples[0])
    second = dict(samples[1]) if len(samples) > 1 else {k: _mirror(v) for k, v in first.items()}
    second = {**first, **{name: second[name] for name in batches}}
    pair = {**first, **{name: np.concatenate([first[name], second[name]]) for name in batches}}
    alone = _Samples(model, (first, second))
    for freed in _candidates(model, batches, first):
        grown = alone.find_grown(freed, pair)
        if grown is None:
            grown = alone.unrounded.find_grown(remove_qdq(freed), pair)
        if grown is not None:
            _name_batch(freed.graph, grown, next(iter(batches.values())))
            return freed
    return None


def find_computed_sizes(model: onnx.ModelProto) -> list[str]:
    """Returns the names of the nodes that resize to sizes which the network computes."""
    computed = {name for node in model.graph.node for name in node.output}
    return [
        node.name or node.output[0]
        for node in model.graph.node
        if node.op_type == "Resize" and len(node.input) > 3 and node.input[3] in computed
    ]


class _Samples:
    """Two samples, and what a network makes of each alone.

    Args:
        model: computes one sample.
        feeds: the two.
    """

    def __init__(self, model: onnx.ModelProto, feeds: Sequence[Mapping[str, Array]]) -> None:
        self._model, self._feeds = model, feeds

    @cached_property
    def unrounded(self) -> "_Samples":
        """The same of the network without its activations' rounding."""
        return _Samples(remove_qdq(self._model), self._feeds)

    @cached_property
    def _alone(self) -> list[dict[str, Array]]:
        return list(map(open_runner(self._model), self._feeds))

    def find_grown(
        self, freed: onnx.ModelProto, both: Mapping[str, Array]
    ) -> frozenset[str] | None:
        """Returns the outputs that two samples make twice as much of; None if one gets others.

        Args:
            freed: computes any number of samples.
            both: the two at once.
        """
        try:
            together = open_runner(freed)(both)
        except Exception:  # onnxruntime has a class of its own for each of many reasons
            return None
        first, second = self._alone
        if not all(_agree(value, first[name], second[name]) for name, value in together.items()):
            return None
        return frozenset(
            name for name, value in together.items() if value.shape[:1] != first[name].shape[:1]
        )


def _name_batch(graph: onnx.GraphProto, grown: Collection[str], name: str) -> None:
    """Gives the first axis of outputs the batch's name."""
    for value in graph.output:
        dims = value.type.tensor_type.shape.dim
        if dims and value.name in grown:
            dims[0].dim_param = name


def _mirror(picture: Array) -> Array:
    return np.ascontiguousarray(picture[..., ::-1])


def _agree(together: Array, first: Array, second: Array) -> bool:
    """Tells whether an output of two samples at once is what each gives alone."""
    if together.shape == first.shape:  # of no sample, such as the centres of a grid
        return np.array_equal(together, first) and np.array_equal(together, second)
    if not first.ndim or together.shape != (2 * len(first), *first.shape[1:]):
        return False
    noise = [SignalToNoise(), SignalToNoise()]
    for one, alone, part in zip(noise, (first, second), np.split(together, 2), strict=True):
        one.update(alone, part)
    return min(one.sqnr_db for one in noise) >= LEAST_DB


def _find_shapes(model: onnx.ModelProto, sample: Mapping[str, Array]) -> Shapes:
    """Returns the shapes that a sample's tensors have where they are moved or resized."""
    constants = {item.name for item in model.graph.initializer}
    named = {
        name
        for node in model.graph.node
        if node.op_type in ("Reshape", "Concat", "Resize")
        for name in (*node.input, *node.output)
        if name and name not in constants and name not in sample
    }
    found = open_runner(model, sorted(named))(sample)
    return {name: value.shape for name, value in {**sample, **found}.items()}


def _candidates(
    model: onnx.ModelProto, batches: Mapping[str, str], sample: Mapping[str, Array]
) -> Iterator[onnx.ModelProto]:
    """Yields copies that may compute with any batch: as it is, and with shapes rewritten."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    for value in copy.graph.input:
        if value.name in batches:
            value.type.tensor_type.shape.dim[0].dim_param = batches[value.name]
    for value in copy.graph.output:
        for dim in value.type.tensor_type.shape.dim[:1]:
            dim.Clear()
    yield copy
    shapes, source = _find_shapes(model, sample), next(iter(batches))
    _free_reshapes(copy.graph, shapes)
    _free_resizes(copy, source, shapes)
    _repeat_constants(copy.graph, source, shapes)
    drop_unread_constants(copy.graph)
    yield copy


def _free_reshapes(graph: onnx.GraphProto, shapes: Shapes) -> None:
    """Lets the first axis of each reshape follow: a batch is copied, anything else is the rest."""
    for node in graph.node:
        if node.op_type == "Reshape" and node.input[0] in shapes and shapes[node.output[0]]:
            first, *rest = shapes[node.output[0]]
            is_batch = first == 1 and shapes[node.input[0]][:1] == (1,)
            target = np.array([0 if is_batch else -1, *rest], np.int64)
            node.input[1] = _add(graph, f"{node.output[0]}/any_batch", target)
            _let_zero_copy(node)


def _let_zero_copy(node: onnx.NodeProto) -> None:
    """Has a 0 mean the input's axis: torch.export's Reshapes take it as an axis of nothing."""
    kept = [item for item in node.attribute if item.name != "allowzero"]
    del node.attribute[:]
    node.attribute.extend(kept)


def _free_resizes(model: onnx.ModelProto, source: str, shapes: Shapes) -> None:
    """Lets the batch of what is resized follow, where the sizes to resize to name it.

    They become factors where these give the same sizes exactly, or sizes of all axes but the batch
    where the opset lets a Resize name its axes. OpenVINO 2026.4 computes a shape
    that begins with the input's batch from the first layer's result, and in a network of integers
    what is resized to it, and what else is there, was 0 dB and less of what the file says.
    """
    graph, opset = model.graph, _find_opset(model)
    sizes = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    made: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        name = node.input[3] if node.op_type == "Resize" and len(node.input) > 3 else ""
        axes = next((list(item.ints) for item in node.attribute if item.name == "axes"), [0])
        if name in sizes and axes[0] == 0 and sizes[name][0] == 1:
            factors = _exact_factors(node, shapes.get(node.input[0], ()), sizes[name])
            if factors is not None:
                node.input[2] = _add(graph, f"{node.output[0]}/factors", factors)
                del node.input[3:]
            elif opset >= NAMED_AXES_OPSET and _has_sizes_alone(node):
                _name_axes(graph, node, sizes[name])
            else:
                if name not in made:
                    made[name] = _make_shape(graph, name, sizes[name][1:], source)
                node.input[3] = made[name][-1].output[0]
    nodes = [*chain.from_iterable(made.values()), *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _find_opset(model: onnx.ModelProto) -> int:
    return int(max(item.version for item in model.opset_import if item.domain in ("", "ai.onnx")))


def _has_sizes_alone(node: onnx.NodeProto) -> bool:
    """Tells whether no axis of a Resize changes what another one becomes."""
    policy = next((item.s for item in node.attribute if item.name == _POLICY), b"")
    return not node.input[1] and policy in (b"", b"stretch")


def _name_axes(graph: onnx.GraphProto, node: onnx.NodeProto, sizes: Array) -> None:
    """Has a Resize take the sizes of all axes but the batch."""
    axes = next((list(item.ints) for item in node.attribute if item.name == "axes"), None)
    set_attributes(node, axes=(axes or [*range(len(sizes))])[1:])
    node.input[3] = _add(graph, f"{node.output[0]}/sizes", sizes[1:])


def _exact_factors(node: onnx.NodeProto, known: tuple[int, ...], sizes: Array) -> Array | None:
    """Returns by what a Resize multiplies each axis; None where rounding would leave a doubt."""
    has_axes = any(item.name == "axes" for item in node.attribute)
    if has_axes or len(known) != len(sizes) or not _has_sizes_alone(node):
        return None
    factors = (sizes / np.array(known)).astype(np.float32)
    return factors if np.array_equal(factors.astype(np.float64) * known, sizes) else None


def _repeat_constants(graph: onnx.GraphProto, source: str, shapes: Shapes) -> None:
    """Repeats what needs rows for each sample: class tokens in front of them, places to read at."""
    constants = {item.name: tuple(item.dims) for item in graph.initializer}
    kept: list[onnx.NodeProto] = []
    repeated: dict[str, str] = {}
    for node in list(graph.node):
        if all(name in constants for name in node.input if name):
            constants |= {name: shapes.get(name, ()) for name in node.output}
        elif _has_equal_rows(node):
            for place, name in enumerate(node.input):
                if constants.get(name):
                    if name not in repeated:
                        kept += _repeat(graph, name, constants[name], source)
                        repeated[name] = kept[-1].output[0]
                    node.input[place] = repeated[name]
        kept.append(node)
    del graph.node[:]
    graph.node.extend(kept)


def _has_equal_rows(node: onnx.NodeProto) -> bool:
    """Tells whether the first axes of all inputs have to be of one size."""
    if node.op_type == "Concat":
        return bool(node.attribute[0].i != 0)
    return bool(node.op_type == "GridSample")


def _repeat(
    graph: onnx.GraphProto, name: str, dims: tuple[int, ...], source: str
) -> list[onnx.NodeProto]:
    """Returns what gives a constant for a batch of 1 its rows once more for each sample."""
    result = f"{name}/of_batch"
    if dims[0] == 1:
        made = _make_shape(graph, name, dims[1:], source)
        return [*made, helper.make_node("Expand", [name, made[-1].output[0]], [result], result)]
    made = _make_shape(graph, name, [1] * (len(dims) - 1), source)
    return [*made, helper.make_node("Tile", [name, made[-1].output[0]], [result], result)]


def _make_shape(
    graph: onnx.GraphProto, name: str, rest: Sequence[int] | Array, source: str
) -> list[onnx.NodeProto]:
    """Returns what computes a shape that begins with the batch of an input."""
    first = _add(graph, f"{source}/first_axis", np.array([0], np.int64))
    behind = _add(graph, f"{name}/rest", np.array(rest, np.int64))
    all_sizes, size, shape = f"{name}/input_shape", f"{name}/batch", f"{name}/batch_shape"
    return [
        helper.make_node("Shape", [source], [all_sizes], all_sizes),
        helper.make_node("Gather", [all_sizes, first], [size], size),
        helper.make_node("Concat", [size, behind], [shape], shape, axis=0),
    ]


def _add(graph: onnx.GraphProto, name: str, values: Array) -> str:
    if all(item.name != name for item in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(values, name))
    return name
