"""What a random graph is drawn of: layers, which quantization is about, and what stands between."""

from collections.abc import Callable

import numpy as np

from benchmarks.random_graphs.draft import MOST_VALUES, Draft, require

Draw = Callable[[Draft], str]
"""Appends nodes behind the end of a draft; returns the name of their result."""

WIDTHS = (4, 6, 8, 16, 24, 32)
PLAIN = (
    *("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Mish", "Elu", "Softplus"),
    *("Abs", "Neg", "Identity"),
)
"""Operators of one tensor, without options."""


def _width(draft: Draft) -> int:
    return int(draft.rng.choice(WIDTHS))


def _bias(draft: Draft, width: int) -> list[str]:
    is_biased = draft.rng.random() < 0.5
    return [draft.constant(0.3 * draft.rng.standard_normal(width))] if is_biased else []


def conv(draft: Draft) -> str:
    """A Conv over all axes behind the channels: of 1 or 3 values, with a stride or without."""
    require(draft.rank > 2 and min(draft.shape[2:]) > 2)
    axes, width, size = draft.rank - 2, _width(draft), int(draft.rng.choice([1, 3]))
    weight = draft.constant(draft.weight(width, draft.shape[1], *[size] * axes))
    window = {"pads": [size // 2] * 2 * axes, "strides": [int(draft.rng.choice([1, 1, 2]))] * axes}
    return draft.add("Conv", [draft.end, weight, *_bias(draft, width)], **window)


def depthwise(draft: Draft) -> str:
    """A Conv of each channel for itself."""
    require(draft.rank == 4)
    channels = draft.shape[1]
    weight = draft.constant(draft.weight(channels, 1, 3, 3))
    operands = [draft.end, weight, *_bias(draft, channels)]
    return draft.add("Conv", operands, pads=[1] * 4, group=channels)


def grouped(draft: Draft) -> str:
    """A Conv of two groups."""
    require(draft.rank == 4 and draft.shape[1] % 2 == 0)
    weight = draft.constant(draft.weight(16, draft.shape[1] // 2, 3, 3))
    return draft.add("Conv", [draft.end, weight, *_bias(draft, 16)], pads=[1] * 4, group=2)


def transposed(draft: Draft) -> str:
    """A ConvTranspose that doubles height and width."""
    require(draft.rank == 4 and np.prod(draft.shape) < MOST_VALUES / 4)
    width, size = _width(draft), int(draft.rng.choice([2, 4]))
    weight = draft.constant(draft.weight(draft.shape[1], width, size, size, axis=1))
    pads = [size // 2 - 1] * 4
    operands = [draft.end, weight, *_bias(draft, width)]
    return draft.add("ConvTranspose", operands, strides=[2, 2], pads=pads)


def product(draft: Draft) -> str:
    """A MatMul along the last axis."""
    width = _width(draft)
    weight = draft.constant(draft.weight(draft.shape[-1], width, axis=1))
    result = draft.add("MatMul", [draft.end, weight])
    bias = _bias(draft, width)
    return draft.add("Add", [result, *bias]) if bias else result


def gemm(draft: Draft) -> str:
    """A Gemm of a matrix."""
    require(draft.rank == 2)
    width = _width(draft)
    weight = draft.constant(draft.weight(width, draft.shape[1]))
    return draft.add("Gemm", [draft.end, weight, *_bias(draft, width)], transB=1)


LAYERS: dict[str, Draw] = {
    rule.__name__: rule for rule in (conv, depthwise, grouped, transposed, product, gemm)
}


def _plain(operator: str) -> Draw:
    return lambda draft: draft.add(operator, [draft.end])


def silu(draft: Draft) -> str:
    """X sigmoid(x)."""
    return draft.add("Mul", [draft.end, draft.add("Sigmoid", [draft.end])])


def gelu(draft: Draft) -> str:
    """X (1 + erf(x / sqrt 2)) / 2."""
    scaled = draft.add("Mul", [draft.end, draft.constant(0.5**0.5)])
    lifted = draft.add("Add", [draft.add("Erf", [scaled]), draft.constant(1.0)])
    return draft.add("Mul", [draft.add("Mul", [draft.end, draft.constant(0.5)]), lifted])


def clip(draft: Draft) -> str:
    """A Clip with limits on both sides, or on one."""
    low, high = draft.constant(-0.5), draft.constant(1.5)
    options = ([low, high], [low], ["", high])
    return draft.add("Clip", [draft.end, *options[draft.rng.integers(3)]])


def prelu(draft: Draft) -> str:
    """A PRelu with a slope for each channel."""
    require(draft.rank == 4)
    slopes = draft.rng.uniform(0.1, 0.5, (draft.shape[1], 1, 1))
    return draft.add("PRelu", [draft.end, draft.constant(slopes)])


def by_number(draft: Draft) -> str:
    """A sum or product with one number."""
    operator = str(draft.rng.choice(["Add", "Sub", "Mul", "Div"]))
    operands = [draft.end, draft.constant(float(draft.rng.choice([0.3, -1.7])))]
    is_turned = operator in ("Sub", "Mul") and draft.rng.random() < 0.5
    return draft.add(operator, operands[::-1] if is_turned else operands)


def by_vector(draft: Draft) -> str:
    """A sum or product with one number for each index of an axis."""
    axis = draft.pick_axis()
    values = draft.rng.uniform(0.3, 1.5, draft.shape[axis])
    values *= draft.rng.choice([-1, 1], len(values))
    shape = [-1] + [1] * (draft.rank - axis - 1)
    operator = str(draft.rng.choice(["Add", "Mul"]))
    return draft.add(operator, [draft.end, draft.constant(values.reshape(shape))])


def gated(draft: Draft) -> str:
    """A product or difference of a tensor and its sigmoid."""
    operands = [draft.end, draft.add("Sigmoid", [draft.end])]
    operator = str(draft.rng.choice(["Mul", "Sub"]))
    return draft.add(operator, operands[:: int(draft.rng.choice([1, -1]))])


def shortcut(draft: Draft) -> str:
    """A 1x1 Conv around which its input is added to its result."""
    require(draft.rank == 4)
    channels = draft.shape[1]
    weight = draft.constant(draft.weight(channels, channels, 1, 1))
    operands = [draft.end, draft.add("Conv", [draft.end, weight])]
    return draft.add("Add", operands[:: int(draft.rng.choice([1, -1]))])


def branches(draft: Draft) -> str:
    """A Concat of two Convs, one of them with a ReLU."""
    require(draft.rank == 4)
    channels = draft.shape[1]
    one = draft.add("Conv", [draft.end, draft.constant(draft.weight(8, channels, 1, 1))])
    weight = draft.constant(draft.weight(6, channels, 3, 3))
    other = draft.add("Relu", [draft.add("Conv", [draft.end, weight], pads=[1] * 4)])
    return draft.add("Concat", [one, other], axis=1)


def squeezed(draft: Draft) -> str:
    """Squeeze and excite with one layer."""
    require(draft.rank == 4)
    channels = draft.shape[1]
    weight = draft.constant(draft.weight(channels, channels, 1, 1))
    pooled = draft.add("GlobalAveragePool", [draft.end])
    gate = draft.add("Sigmoid", [draft.add("Conv", [pooled, weight])])
    return draft.add("Mul", [draft.end, gate])


def reshape(draft: Draft) -> str:
    """Two axes become one."""
    require(draft.rank > 2)
    axis = int(draft.rng.integers(1, draft.rank - 1))
    sizes = draft.shape
    shape = [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]]
    return draft.add("Reshape", [draft.end, draft.constant(shape)])


def unfold(draft: Draft) -> str:
    """An axis becomes two."""
    require(draft.rank < 5)
    axis = draft.pick_axis(2)
    size = draft.shape[axis]
    factors = [factor for factor in (2, 3, 4) if size % factor == 0]
    require(factors)
    shape = [*draft.shape[:axis], factors[0], size // factors[0], *draft.shape[axis + 1 :]]
    return draft.add("Reshape", [draft.end, draft.constant(shape)])


def transpose(draft: Draft) -> str:
    """Axes behind the batch's in another order."""
    order = [0, *(int(axis) + 1 for axis in draft.rng.permutation(draft.rank - 1))]
    return draft.add("Transpose", [draft.end], perm=order)


def unsqueeze(draft: Draft) -> str:
    """A new axis."""
    require(draft.rank < 5)
    axis = int(draft.rng.integers(1, draft.rank + 1))
    return draft.add("Unsqueeze", [draft.end, draft.constant([axis])])


def squeeze(draft: Draft) -> str:
    """An axis of length 1 is taken away."""
    ones = [axis for axis in range(1, draft.rank) if draft.shape[axis] == 1]
    require(ones)
    return draft.add("Squeeze", [draft.end, draft.constant(ones[:1])])


def flatten(draft: Draft) -> str:
    """A matrix."""
    require(draft.rank > 2)
    return draft.add("Flatten", [draft.end], axis=int(draft.rng.integers(1, draft.rank)))


def slice_axis(draft: Draft) -> str:
    """An axis without its ends, or each second value of it."""
    axis = draft.pick_axis(3)
    step = int(draft.rng.choice([1, 1, 2]))
    parts = ([1], [draft.shape[axis] - 1], [axis], [step])
    return draft.add("Slice", [draft.end, *map(draft.constant, parts)])


def gather(draft: Draft) -> str:
    """Values by a row of indices, by one of them, or by a table."""
    axis = draft.pick_axis()
    shape = ((3,), (), (2, 3))[draft.rng.integers(3)]
    require(1 < draft.rank - 1 + len(shape) < 6)
    indices = draft.rng.integers(0, draft.shape[axis], shape)
    return draft.add("Gather", [draft.end, draft.constant(indices)], axis=axis)


def gather_elements(draft: Draft) -> str:
    """Other values along an axis at each place."""
    axis = draft.pick_axis()
    shape = [2 if place == axis else size for place, size in enumerate(draft.shape)]
    indices = draft.rng.integers(0, draft.shape[axis], shape)
    return draft.add("GatherElements", [draft.end, draft.constant(indices)], axis=axis)


def split(draft: Draft) -> str:
    """The first half of an axis, or its product with the gate that the other half is."""
    axis = draft.pick_axis(2)
    half = draft.shape[axis] // 2
    sizes = draft.constant([half, draft.shape[axis] - half])
    first, second = draft.add_several("Split", [draft.end, sizes], 2, axis=axis)
    if draft.shape[axis] != 2 * half or draft.rng.random() < 0.5:
        return first
    return draft.add("Mul", [first, draft.add("Sigmoid", [second])])


def join(draft: Draft) -> str:
    """A Concat of a tensor with its ReLU, or of its halves the other way round."""
    axis = draft.pick_axis(2)
    if draft.rng.random() < 0.5:
        require(np.prod(draft.shape) < MOST_VALUES / 2)
        return draft.add("Concat", [draft.end, draft.add("Relu", [draft.end])], axis=axis)
    half = draft.shape[axis] // 2
    sizes = draft.constant([half, draft.shape[axis] - half])
    parts = draft.add_several("Split", [draft.end, sizes], 2, axis=axis)
    return draft.add("Concat", parts[::-1], axis=axis)


def pad(draft: Draft) -> str:
    """A value more on either side of an axis: 0, another number, or what is there."""
    axis = draft.pick_axis(3)
    pads = np.zeros((2, draft.rank), int)
    pads[:, axis] = 1
    mode = str(draft.rng.choice(["constant", "constant", "reflect", "edge"]))
    value = [draft.constant(0.7)] if mode == "constant" and draft.rng.random() < 0.5 else []
    return draft.add("Pad", [draft.end, draft.constant(pads.ravel()), *value], mode=mode)


def repeat(draft: Draft) -> str:
    """An axis twice."""
    require(np.prod(draft.shape) < MOST_VALUES / 2)
    axis = draft.pick_axis()
    counts = [1 + (place == axis) for place in range(draft.rank)]
    return draft.add("Tile", [draft.end, draft.constant(counts)])


def resize(draft: Draft) -> str:
    """All axes behind the channels in double length."""
    require(draft.rank > 2 and np.prod(draft.shape) < MOST_VALUES / 2 ** (draft.rank - 2))
    scales = draft.constant([1.0, 1.0] + [2.0] * (draft.rank - 2))
    if draft.rank == 4 and draft.rng.random() < 0.5:
        return draft.add("Resize", [draft.end, "", scales], mode="linear")
    options = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return draft.add("Resize", [draft.end, "", scales], mode="nearest", **options)


def pool(draft: Draft) -> str:
    """The maximum or mean of two values of each axis behind the channels."""
    require(draft.rank > 2 and min(draft.shape[2:]) > 1)
    window = [2] * (draft.rank - 2)
    operator = str(draft.rng.choice(["MaxPool", "AveragePool"]))
    return draft.add(operator, [draft.end], kernel_shape=window, strides=window)


def pool_padded(draft: Draft) -> str:
    """The mean of three values of each axis behind the channels, zeros around them or not."""
    require(draft.rank > 2 and min(draft.shape[2:]) > 2)
    axes = draft.rank - 2
    window = {"kernel_shape": [3] * axes, "pads": [1] * 2 * axes}
    return draft.add(
        "AveragePool", [draft.end], count_include_pad=int(draft.rng.integers(2)), **window
    )


def pool_all(draft: Draft) -> str:
    """The mean or the maximum of each channel."""
    require(draft.rank > 2)
    operator = str(draft.rng.choice(["GlobalAveragePool", "GlobalMaxPool"]))
    return draft.add(operator, [draft.end])


def reduce(draft: Draft) -> str:
    """A mean, sum, maximum or minimum over an axis, which is kept or not."""
    require(draft.rank > 2)
    operator = str(draft.rng.choice(["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"]))
    axes = draft.constant([draft.pick_axis()])
    return draft.add(operator, [draft.end, axes], keepdims=int(draft.rng.integers(2)))


def shuffle(draft: Draft) -> str:
    """Channels become places, or places channels."""
    require(draft.rank == 4)
    if draft.shape[1] % 4 == 0:
        mode = str(draft.rng.choice(["DCR", "CRD"]))
        return draft.add("DepthToSpace", [draft.end], blocksize=2, mode=mode)
    require(draft.shape[2] % 2 == draft.shape[3] % 2 == 0)
    return draft.add("SpaceToDepth", [draft.end], blocksize=2)


def softmax(draft: Draft) -> str:
    """A Softmax over an axis."""
    return draft.add("Softmax", [draft.end], axis=draft.pick_axis())


def layer_norm(draft: Draft) -> str:
    """A LayerNormalization of the last axis."""
    size = draft.shape[-1]
    operands = [draft.rng.uniform(0.5, 1.5, size), 0.3 * draft.rng.standard_normal(size)]
    return draft.add("LayerNormalization", [draft.end, *map(draft.constant, operands)])


def batch_norm(draft: Draft) -> str:
    """A BatchNormalization, with scales of either sign."""
    require(draft.rank > 2)
    size = draft.shape[1]
    scale = draft.rng.uniform(0.5, 1.5, size) * draft.rng.choice([-1, 1], size)
    operands = [scale, *0.3 * draft.rng.standard_normal((2, size)), np.full(size, 0.8)]
    return draft.add("BatchNormalization", [draft.end, *map(draft.constant, operands)])


def group_norm(draft: Draft) -> str:
    """A GroupNorm of two groups, as it is exported."""
    require(draft.rank == 4 and draft.shape[1] % 2 == 0)
    rows = draft.add("Reshape", [draft.end, draft.constant([draft.shape[0], 2, -1])])
    operands = [draft.constant(np.ones(2)), draft.constant(np.zeros(2))]
    normal = draft.add("InstanceNormalization", [rows, *operands])
    return draft.add("Reshape", [normal, draft.constant(list(draft.shape))])


def unit_length(draft: Draft) -> str:
    """Vectors along an axis, divided by their length."""
    axes = draft.constant([draft.pick_axis()])
    length = draft.add("ReduceL2", [draft.end, axes], keepdims=1)
    return draft.add("Div", [draft.end, draft.add("Add", [length, draft.constant(1e-3)])])


def masked(draft: Draft) -> str:
    """A number in some places."""
    mask = draft.constant(draft.rng.random(draft.shape[1:]) < 0.7)
    return draft.add("Where", [mask, draft.end, draft.constant(-1.5)])


def largest(draft: Draft) -> str:
    """The two largest values along an axis."""
    axis = draft.pick_axis(3)
    return draft.add_several("TopK", [draft.end, draft.constant([2])], 2, axis=axis)[0]


def running_sum(draft: Draft) -> str:
    """A sum that grows along an axis."""
    return draft.add("CumSum", [draft.end, draft.constant(draft.pick_axis())])


OPERATORS: dict[str, Draw] = {name: _plain(name) for name in PLAIN} | {
    rule.__name__: rule
    for rule in (
        *(silu, gelu, clip, prelu, by_number, by_vector, gated, shortcut, branches, squeezed),
        *(reshape, unfold, transpose, unsqueeze, squeeze, flatten, slice_axis, gather),
        *(
            gather_elements,
            split,
            join,
            pad,
            repeat,
            resize,
            pool,
            pool_padded,
            pool_all,
            reduce,
            shuffle,
        ),
        *(softmax, layer_norm, batch_norm, group_norm, unit_length, masked, largest, running_sum),
    )
}
