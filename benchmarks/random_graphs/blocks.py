"""Blocks of several branches, as perception networks have them, with options drawn at random.

Each reads a picture of channels, (1, channels, height, width), and returns another.
"""

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.random_graphs.draft import Draft, require
from benchmarks.random_graphs.operators import Draw, by_vector, gelu, layer_norm, silu

Block = Callable[["Builder"], str]
"""Appends a block behind the end of a draft; returns the name of its result."""


class Builder:
    """Appends the layers of a block to a draft.

    Args:
        draft: whose end the block reads.

    Attributes:
        rng: draws weights and options.
        end, channels, height, width: the picture at the end, and its sizes.
    """

    def __init__(self, draft: Draft) -> None:
        require(draft.rank == 4 and min(draft.shape[2:]) >= 4 and draft.shape[1] >= 4)
        self.draft, self.rng, self.end = draft, draft.rng, draft.end
        _, self.channels, self.height, self.width = draft.shape
        self._activation = str(self.rng.choice(["Relu", "LeakyRelu", "HardSwish", "silu", "gelu"]))

    @property
    def places(self) -> int:
        """How many values a channel has."""
        return self.height * self.width

    def flip(self, share: float = 0.5) -> bool:
        """Returns yes so often."""
        return bool(self.rng.random() < share)

    def add(self, operator: str, *operands: str, **attributes: object) -> str:
        """Appends a node; returns the name of its result."""
        return self.draft.add(operator, operands, **attributes)

    def constant(self, value: object) -> str:
        """Returns the name of a new constant."""
        return self.draft.constant(value)

    def conv(
        self, x: str, before: int, after: int, size: int = 1, *, group: int = 1, stride: int = 1
    ) -> str:
        """Appends a Conv, with a bias or a BatchNormalization or neither."""
        weight = self.constant(self.draft.weight(after, before // group, size, size))
        bias = [self.constant(0.3 * self.rng.standard_normal(after))] if self.flip() else []
        window = {"pads": [size // 2] * 4, "strides": [stride] * 2}
        result = self.add("Conv", x, weight, *bias, group=group, **window)
        return result if bias or self.flip() else self.normalize(result, after)

    def normalize(self, x: str, channels: int) -> str:
        """Appends a BatchNormalization."""
        signs = self.rng.choice([-1, 1], channels)
        scale = self.rng.uniform(0.5, 1.5, channels) * signs
        rest = (*0.3 * self.rng.standard_normal((2, channels)), np.full(channels, 0.8))
        return self.add("BatchNormalization", x, *map(self.constant, (scale, *rest)))

    def activate(self, x: str) -> str:
        """Appends the block's activation."""
        rules = {"silu": silu, "gelu": gelu}
        if self._activation in rules:
            return self._apply(rules[self._activation], x, None)
        return self.add(self._activation, x)

    def linear(self, x: str, before: int, after: int) -> str:
        """Appends a MatMul along the last axis, with a bias or without."""
        weight = self.constant(self.draft.weight(before, after, axis=1))
        result = self.add("MatMul", x, weight)
        bias = 0.3 * self.rng.standard_normal(after)
        return self.add("Add", result, self.constant(bias)) if self.flip(0.7) else result

    def layer_norm(self, x: str, shape: Sequence[int]) -> str:
        """Appends a LayerNormalization of the last axis."""
        return self._apply(layer_norm, x, shape)

    def scale_channels(self, x: str, shape: Sequence[int]) -> str:
        """Appends a sum or product with a number for each index of an axis."""
        return self._apply(by_vector, x, shape)

    def reshape(self, x: str, *shape: int) -> str:
        """Appends a Reshape."""
        return self.add("Reshape", x, self.constant(list(shape)))

    def to_tokens(self, x: str, channels: int) -> str:
        """Returns places as rows: (1, places, channels)."""
        if self.flip():
            flat = self.reshape(x, 1, channels, self.places)
            return self.add("Transpose", flat, perm=[0, 2, 1])
        last = self.add("Transpose", x, perm=[0, 2, 3, 1])
        return self.reshape(last, 1, self.places, channels)

    def to_picture(self, x: str, channels: int) -> str:
        """Returns rows as a picture again."""
        turned = self.add("Transpose", x, perm=[0, 2, 1])
        return self.reshape(turned, 1, channels, self.height, self.width)

    def add_up(self, one: str, other: str) -> str:
        """Appends an Add of two tensors in either order."""
        operands = [one, other] if self.flip() else [other, one]
        return self.add("Add", *operands)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Appends a Split, or a Slice for each part."""
        if self.flip():
            operands = [x, self.constant(list(sizes))]
            return self.draft.add_several("Split", operands, len(sizes), axis=axis)
        ends = np.cumsum(sizes)
        parts = ([[end - size], [end], [axis]] for size, end in zip(sizes, ends, strict=True))
        return [self.add("Slice", x, *map(self.constant, part)) for part in parts]

    def pool_places(self, x: str) -> str:
        """Returns the mean or maximum of each channel, as (1, channels, 1, 1)."""
        operator = str(self.rng.choice(["GlobalAveragePool", "GlobalMaxPool", "ReduceMean"]))
        if operator == "ReduceMean":
            return self.add(operator, x, self.constant([2, 3]), keepdims=1)
        return self.add(operator, x)

    def gate(self, x: str) -> str:
        """Appends a Sigmoid or HardSigmoid."""
        return self.add(str(self.rng.choice(["Sigmoid", "HardSigmoid"])), x)

    def _apply(self, rule: Draw, x: str, shape: Sequence[int] | None) -> str:
        """Lets an operator's rule draw behind a tensor that is not the draft's end."""
        draft = self.draft
        kept = draft.end, draft.shape
        draft.end, draft.shape = x, tuple(shape or draft.shape)
        result = rule(draft)
        draft.end, draft.shape = kept
        return result


def residual(build: Builder) -> str:
    """Two Convs around which their input is added, with a Conv of its own or without."""
    first = build.activate(build.conv(build.end, build.channels, build.channels, 3))
    second = build.conv(first, build.channels, build.channels, 3)
    beside = build.end
    if build.flip(0.3):
        beside = build.conv(build.end, build.channels, build.channels)
    total = build.add_up(second, beside)
    return build.activate(total) if build.flip(0.7) else total


def inverted(build: Builder) -> str:
    """An inverted residual: 1x1, depthwise, squeeze and excite or not, 1x1."""
    wide = 2 * build.channels
    x = build.activate(build.conv(build.end, build.channels, wide))
    x = build.activate(build.conv(x, wide, wide, 3, group=wide))
    if build.flip():
        x = _excite(build, x, wide)
    return build.add_up(build.conv(x, wide, build.channels), build.end)


def _excite(build: Builder, x: str, channels: int) -> str:
    few = max(channels // 4, 2)
    hidden = build.activate(build.conv(build.pool_places(x), channels, few))
    return build.add("Mul", x, build.gate(build.conv(hidden, few, channels)))


def cross_stage(build: Builder) -> str:
    """Halves of the channels; one goes through Convs, all are joined (CSP, C2f)."""
    half = build.channels // 2
    x = build.activate(build.conv(build.end, build.channels, 2 * half))
    parts = build.split(x, [half, half], 1)
    for _ in range(int(build.rng.integers(1, 3))):
        y = build.activate(build.conv(parts[-1], half, half, 3))
        parts.append(build.add_up(y, parts[-1]) if build.flip() else y)
    joined = build.add("Concat", *parts, axis=1)
    return build.activate(build.conv(joined, half * len(parts), build.channels))


def shuffled(build: Builder) -> str:
    """Halves of the channels; one goes through a depthwise Conv; then channels are shuffled."""
    require(build.channels % 2 == 0)
    half = build.channels // 2
    kept, x = build.split(build.end, [half, half], 1)
    x = build.activate(build.conv(x, half, half))
    x = build.conv(x, half, half, 3, group=half)
    x = build.activate(build.conv(x, half, half))
    joined = build.add("Concat", *[kept, x][:: int(build.rng.choice([1, -1]))], axis=1)
    groups = build.reshape(joined, 1, 2, half, build.height, build.width)
    turned = build.add("Transpose", groups, perm=[0, 2, 1, 3, 4])
    return build.reshape(turned, 1, build.channels, build.height, build.width)


def reparametrized(build: Builder) -> str:
    """The sum of a 3x3 Conv, a 1x1 Conv and a BatchNormalization (RepVGG)."""
    wide = build.conv(build.end, build.channels, build.channels, 3)
    narrow = build.conv(build.end, build.channels, build.channels)
    total = build.add_up(wide, narrow)
    return build.activate(build.add_up(total, build.normalize(build.end, build.channels)))


def ghost(build: Builder) -> str:
    """A Conv, joined with a depthwise Conv of its result."""
    few = build.channels // 2
    first = build.activate(build.conv(build.end, build.channels, few))
    cheap = build.activate(build.conv(first, few, few, 3, group=few))
    return build.add("Concat", first, cheap, axis=1)


def pyramid_pool(build: Builder) -> str:
    """MaxPools one behind the other, joined (SPPF), or means that are resized again (PPM)."""
    few = build.channels // 2
    x = build.activate(build.conv(build.end, build.channels, few))
    parts = [x]
    for _ in range(2):
        if build.flip():
            window = {"kernel_shape": [3, 3], "pads": [1] * 4}
            parts.append(build.add("MaxPool", parts[-1], **window))
            continue
        require(build.height % 2 == build.width % 2 == 0)
        mean = build.add("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        parts.append(_double(build, build.activate(build.conv(mean, few, few))))
    return build.conv(build.add("Concat", *parts, axis=1), 3 * few, build.channels)


def _double(build: Builder, x: str) -> str:
    scales = build.constant([1.0, 1.0, 2.0, 2.0])
    modes = {"nearest": "asymmetric", "linear": "half_pixel"}
    mode = str(build.rng.choice([*modes]))
    options = {"mode": mode, "coordinate_transformation_mode": modes[mode]}
    return build.add("Resize", x, "", scales, **options)


def up_and_down(build: Builder) -> str:
    """A level below, resized or transposed again, is added to or joined with its input (FPN)."""
    require(build.height % 2 == build.width % 2 == 0)
    below = build.activate(build.conv(build.end, build.channels, build.channels, 3, stride=2))
    if build.flip():
        weight = build.draft.weight(build.channels, build.channels, 2, 2, axis=1)
        above = build.add("ConvTranspose", below, build.constant(weight), strides=[2, 2])
    else:
        above = _double(build, below)
    beside = build.conv(build.end, build.channels, build.channels)
    if build.flip():
        return build.activate(build.add_up(above, beside))
    joined = build.add("Concat", above, beside, axis=1)
    return build.activate(build.conv(joined, 2 * build.channels, build.channels, 3))


def weighted_sum(build: Builder) -> str:
    """Two branches, weighted by a Softmax of what both say (ASFF), or by numbers (BiFPN)."""
    one = build.activate(build.conv(build.end, build.channels, build.channels))
    other = build.activate(build.conv(build.end, build.channels, build.channels, 3))
    if build.flip():
        scaled = [build.add("Mul", item, build.constant(0.6)) for item in (one, other)]
        return build.add("Add", *scaled)
    votes = [build.conv(item, build.channels, 1) for item in (one, other)]
    shares = build.add("Softmax", build.add("Concat", *votes, axis=1), axis=1)
    parts = zip((one, other), build.split(shares, [1, 1], 1), strict=True)
    return build.add("Add", *(build.add("Mul", item, share) for item, share in parts))


def selective(build: Builder) -> str:
    """Two branches, weighted by a Softmax of the mean of their sum (selective kernels)."""
    convs = [build.conv(build.end, build.channels, build.channels, size) for size in (1, 3)]
    pair = [build.activate(item) for item in convs]
    mean = build.pool_places(build.add_up(*pair))
    votes = build.conv(build.activate(mean), build.channels, 2 * build.channels)
    rows = build.reshape(votes, 1, 2, build.channels, 1, 1)
    shares = build.split(build.add("Softmax", rows, axis=1), [1, 1], 1)
    parts = [
        build.add("Mul", item, build.reshape(share, 1, build.channels, 1, 1))
        for item, share in zip(pair, shares, strict=True)
    ]
    return build.add_up(*parts)


def excited(build: Builder) -> str:
    """Squeeze and excite behind a Conv."""
    x = build.activate(build.conv(build.end, build.channels, build.channels, 3))
    return _excite(build, x, build.channels)


def channel_neighbours(build: Builder) -> str:
    """A gate from a Conv along the channels' means (ECA)."""
    mean = build.reshape(build.pool_places(build.end), 1, 1, build.channels)
    weight = build.constant(build.draft.weight(1, 1, 3))
    vote = build.gate(build.add("Conv", mean, weight, pads=[1, 1]))
    return build.add("Mul", build.end, build.reshape(vote, 1, build.channels, 1, 1))


def place_gate(build: Builder) -> str:
    """A gate from the mean and the maximum over the channels (CBAM)."""
    axes = build.constant([1])
    parts = [build.add(name, build.end, axes, keepdims=1) for name in ("ReduceMean", "ReduceMax")]
    vote = build.conv(build.add("Concat", *parts, axis=1), 2, 1, 3)
    return build.add("Mul", build.end, build.gate(vote))


def shared_gate(build: Builder) -> str:
    """A gate by one pair of Convs that reads the means and the maxima (CBAM)."""
    few = max(build.channels // 2, 2)
    down = build.constant(build.draft.weight(few, build.channels, 1, 1))
    up = build.constant(build.draft.weight(build.channels, few, 1, 1))
    votes = []
    for operator in ("GlobalAveragePool", "GlobalMaxPool"):
        hidden = build.add("Relu", build.add("Conv", build.add(operator, build.end), down))
        votes.append(build.add("Conv", hidden, up))
    return build.add("Mul", build.end, build.gate(build.add("Add", *votes)))


def coordinates(build: Builder) -> str:
    """Gates of rows and columns from means over the other axis (coordinate attention)."""
    rows = build.add("ReduceMean", build.end, build.constant([3]), keepdims=1)
    columns = build.add("ReduceMean", build.end, build.constant([2]), keepdims=1)
    columns = build.add("Transpose", columns, perm=[0, 1, 3, 2])
    joined = build.add("Concat", rows, columns, axis=2)
    hidden = build.activate(build.conv(joined, build.channels, build.channels))
    rows, columns = build.split(hidden, [build.height, build.width], 2)
    columns = build.add("Transpose", columns, perm=[0, 1, 3, 2])
    votes = [build.gate(build.conv(x, build.channels, build.channels)) for x in (rows, columns)]
    return build.add("Mul", build.add("Mul", build.end, votes[0]), votes[1])


def large_kernel(build: Builder) -> str:
    """A chain of depthwise Convs and a 1x1 Conv as a factor of its input (LKA)."""
    x = build.activate(build.conv(build.end, build.channels, build.channels))
    gate = build.conv(x, build.channels, build.channels, 5, group=build.channels)
    gate = build.conv(gate, build.channels, build.channels, 3, group=build.channels)
    gate = build.conv(gate, build.channels, build.channels)
    product = build.add("Mul", gate, x)
    return build.add_up(build.conv(product, build.channels, build.channels), build.end)


def attention(build: Builder) -> str:
    """Attention of all places, with two heads, behind a LayerNormalization or without."""
    require(build.channels % 4 == 0 and build.places <= 256)
    channels, places, size = build.channels, build.places, build.channels // 2
    tokens = build.to_tokens(build.end, channels)
    x = build.layer_norm(tokens, (1, places, channels)) if build.flip(0.7) else tokens
    query, key, value = _project(build, x)
    if build.flip():
        query = build.add("Mul", query, build.constant(size**-0.5))
        scores = build.add("MatMul", query, key)
    else:
        scores = build.add("Div", build.add("MatMul", query, key), build.constant(size**0.5))
    if build.flip(0.3):
        near = 0.5 * build.rng.standard_normal((1, 2, places, places))
        scores = build.add("Add", scores, build.constant(near))
    shares = build.add("Softmax", scores, axis=3)
    return build.to_picture(_merge(build, build.add("MatMul", shares, value), tokens), channels)


def linear_attention(build: Builder) -> str:
    """Attention without a Softmax: ReLUs of queries and keys."""
    require(build.channels % 4 == 0 and build.places <= 256)
    tokens = build.to_tokens(build.end, build.channels)
    query, key, value = _project(build, tokens)
    query, key = (build.add("Relu", item) for item in (query, key))
    context = build.add("MatMul", key, value)
    mixed = build.add("MatMul", query, context)
    sums = build.add("ReduceSum", key, build.constant([3]), keepdims=1)
    norm = build.add("Add", build.add("MatMul", query, sums), build.constant(1e-2))
    merged = _merge(build, build.add("Div", mixed, norm), tokens)
    return build.to_picture(merged, build.channels)


def _project(build: Builder, x: str) -> tuple[str, str, str]:
    """Returns query (1, 2, places, size), key (1, 2, size, places) and value, of two heads."""
    channels, places, size = build.channels, build.places, build.channels // 2
    if build.flip():
        joined = build.linear(x, channels, 3 * channels)
        rows = build.reshape(joined, 1, places, 3, 2, size)
        turned = build.add("Transpose", rows, perm=[2, 0, 3, 1, 4])
        picks = [
            build.add("Gather", turned, build.constant(np.int64(place)), axis=0)
            for place in range(3)
        ]
    else:
        rows = [
            build.reshape(build.linear(x, channels, channels), 1, places, 2, size) for _ in range(3)
        ]
        picks = [build.add("Transpose", item, perm=[0, 2, 1, 3]) for item in rows]
    query, key, value = picks
    return query, build.add("Transpose", key, perm=[0, 1, 3, 2]), value


def _merge(build: Builder, heads: str, tokens: str) -> str:
    """Returns the heads' results as rows, through a layer, added to what they came from."""
    turned = build.add("Transpose", heads, perm=[0, 2, 1, 3])
    rows = build.reshape(turned, 1, build.places, build.channels)
    return build.add_up(tokens, build.linear(rows, build.channels, build.channels))


def windowed(build: Builder) -> str:
    """A layer of tokens in windows of 2x2 places (Swin), moved by a place or not."""
    require(build.height % 2 == build.width % 2 == 0)
    channels, tall, wide = build.channels, build.height // 2, build.width // 2
    x = build.add("Transpose", build.end, perm=[0, 2, 3, 1])
    if build.flip():
        x = build.add("Concat", *build.split(x, [1, build.height - 1], 1)[::-1], axis=1)
    windows = build.reshape(x, 1, tall, 2, wide, 2, channels)
    windows = build.add("Transpose", windows, perm=[0, 1, 3, 2, 4, 5])
    rows = build.reshape(windows, tall * wide, 4, channels)
    query, key, value = (build.linear(rows, channels, channels) for _ in range(3))
    scores = build.add("MatMul", query, build.add("Transpose", key, perm=[0, 2, 1]))
    shares = build.add("Softmax", build.add("Mul", scores, build.constant(0.2)), axis=2)
    mixed = build.add("MatMul", shares, value)
    back = build.reshape(build.linear(mixed, channels, channels), 1, tall, wide, 2, 2, channels)
    back = build.add("Transpose", back, perm=[0, 1, 3, 2, 4, 5])
    picture = build.reshape(back, 1, build.height, build.width, channels)
    return build.add_up(build.end, build.add("Transpose", picture, perm=[0, 3, 1, 2]))


def perceptron(build: Builder) -> str:
    """Two layers of each place behind a LayerNormalization, added to their input."""
    tokens = build.to_tokens(build.end, build.channels)
    x = build.layer_norm(tokens, (1, build.places, build.channels))
    x = build.activate(build.linear(x, build.channels, 2 * build.channels))
    x = build.linear(x, 2 * build.channels, build.channels)
    return build.to_picture(build.add_up(tokens, x), build.channels)


def mixer(build: Builder) -> str:
    """Layers along the places instead of the channels."""
    require(build.places <= 256)
    rows = build.reshape(build.end, 1, build.channels, build.places)
    x = build.activate(build.linear(rows, build.places, 16))
    x = build.linear(x, 16, build.places)
    picture = build.reshape(build.add_up(rows, x), 1, build.channels, build.height, build.width)
    return build.conv(picture, build.channels, build.channels)


def gated_units(build: Builder) -> str:
    """Half of a layer's channels gates the other half (GLU)."""
    last = build.add("Transpose", build.end, perm=[0, 2, 3, 1])
    x = build.linear(last, build.channels, 2 * build.channels)
    one, other = build.split(x, [build.channels] * 2, 3)
    x = build.add("Mul", one, build.activate(other))
    x = build.linear(x, build.channels, build.channels)
    return build.add("Transpose", build.add_up(x, last), perm=[0, 3, 1, 2])


def next_block(build: Builder) -> str:
    """Depthwise Conv, LayerNormalization and two layers with channels last (ConvNeXt)."""
    x = build.conv(build.end, build.channels, build.channels, 5, group=build.channels)
    x = build.add("Transpose", x, perm=[0, 2, 3, 1])
    shape = (1, build.height, build.width, build.channels)
    x = build.layer_norm(x, shape)
    x = build.activate(build.linear(x, build.channels, 2 * build.channels))
    x = build.linear(x, 2 * build.channels, build.channels)
    x = build.scale_channels(x, shape)
    return build.add_up(build.add("Transpose", x, perm=[0, 3, 1, 2]), build.end)


def normalized(build: Builder) -> str:
    """A Conv and a LayerNormalization of the channels, written out."""
    axes = build.constant([1])
    x = build.conv(build.end, build.channels, build.channels, 3)
    centred = build.add("Sub", x, build.add("ReduceMean", x, axes, keepdims=1))
    square = build.add("Mul", centred, centred)
    if build.flip():
        square = build.add("Pow", centred, build.constant(2.0))
    variance = build.add("ReduceMean", square, axes, keepdims=1)
    deviation = build.add("Sqrt", build.add("Add", variance, build.constant(1e-3)))
    shape = (1, build.channels, build.height, build.width)
    scaled = build.scale_channels(build.add("Div", centred, deviation), shape)
    return build.activate(build.conv(scaled, build.channels, build.channels))


def recurrent(build: Builder) -> str:
    """A GRU or LSTM along the columns' means."""
    size, gates = 8, {"GRU": 3, "LSTM": 4}
    mean = build.add("ReduceMean", build.end, build.constant([2]), keepdims=0)
    steps = build.add("Transpose", mean, perm=[2, 0, 1])
    operator = str(build.rng.choice([*gates]))
    rows = gates[operator] * size
    weights = (build.draft.weight(1, rows, n, axis=1) for n in (build.channels, size))
    bias = 0.3 * build.rng.standard_normal((1, 2 * rows))
    options = {"hidden_size": size} | ({"linear_before_reset": 1} if operator == "GRU" else {})
    result = build.add(operator, steps, *map(build.constant, (*weights, bias)), **options)
    turned = build.add(
        "Transpose", build.add("Squeeze", result, build.constant([1])), perm=[1, 2, 0]
    )
    vote = build.linear(build.add("Transpose", turned, perm=[0, 2, 1]), size, build.channels)
    gate = build.gate(build.add("Transpose", vote, perm=[0, 2, 1]))
    return build.add("Mul", build.end, build.reshape(gate, 1, build.channels, 1, build.width))


def focused(build: Builder) -> str:
    """Each second row and column, joined, and a Conv (Focus, patch merging)."""
    require(build.height % 2 == build.width % 2 == 0)
    parts = []
    for row in range(2):
        for column in range(2):
            bounds = ([row, column], [build.height, build.width], [2, 3], [2, 2])
            parts.append(build.add("Slice", build.end, *map(build.constant, bounds)))
    joined = build.add("Concat", *parts, axis=1)
    return build.activate(build.conv(joined, 4 * build.channels, build.channels, 3))


def strips(build: Builder) -> str:
    """Convs along rows and along columns (factorized, or strip pooling)."""
    sizes = ([1, 3], [3, 1])
    parts = []
    for height, width in sizes:
        weight = build.draft.weight(build.channels, build.channels, height, width)
        pads = [height // 2, width // 2] * 2
        parts.append(build.add("Conv", build.end, build.constant(weight), pads=pads))
    return build.conv(build.activate(build.add_up(*parts)), build.channels, build.channels)


def warped(build: Builder) -> str:
    """Values at places that a Conv's result moves (GridSample)."""
    offsets = build.add("Tanh", build.conv(build.end, build.channels, 2, 3))
    grid = build.add("Transpose", offsets, perm=[0, 2, 3, 1])
    result = build.add("GridSample", build.end, grid, padding_mode="border")
    return build.conv(result, build.channels, build.channels)


def distribution(build: Builder) -> str:
    """The mean of a distribution over the channels' groups (DFL), as a factor."""
    votes = build.reshape(build.conv(build.end, build.channels, 16), 1, 4, 4, build.places)
    turned = build.add("Transpose", votes, perm=[0, 2, 1, 3])
    weight = build.constant(np.arange(4.0).reshape(1, 4, 1, 1))
    mean = build.add("Conv", build.add("Softmax", turned, axis=1), weight)
    sides = build.reshape(mean, 1, 4, build.height, build.width)
    return build.conv(build.add("Concat", sides, build.end, axis=1), build.channels + 4, 8)


def depth_bins(build: Builder) -> str:
    """The mean depth by a Softmax over bins, joined with the picture."""
    shares = build.add("Softmax", build.conv(build.end, build.channels, 8, 3), axis=1)
    bins = build.constant(np.linspace(0.5, 4.0, 8).reshape(8, 1, 1))
    weighted = build.add("Mul", shares, bins)
    depth = build.add("ReduceSum", weighted, build.constant([1]), keepdims=1)
    joined = build.add("Concat", build.end, depth, axis=1)
    return build.activate(build.conv(joined, build.channels + 1, build.channels, 3))


def correlation(build: Builder) -> str:
    """Products of two branches, moved against each other (a cost volume)."""
    one = build.conv(build.end, build.channels, build.channels)
    other = build.activate(build.conv(build.end, build.channels, build.channels))
    costs = []
    for shift in range(3):
        pads = build.constant([0, 0, 0, shift, 0, 0, 0, -shift])
        moved = build.add("Pad", other, pads) if shift else other
        product = build.add("Mul", one, moved)
        costs.append(build.add("ReduceMean", product, build.constant([1]), keepdims=1))
    joined = build.add("Concat", *costs, build.end, axis=1)
    return build.conv(joined, build.channels + 3, build.channels, 3)


def dynamic(build: Builder) -> str:
    """A 1x1 layer whose weights are computed from the picture's mean."""
    mean = build.reshape(build.pool_places(build.end), 1, build.channels)
    few = 4
    weights = build.linear(mean, build.channels, few * build.channels)
    matrix = build.reshape(weights, 1, few, build.channels)
    rows = build.reshape(build.end, 1, build.channels, build.places)
    result = build.reshape(build.add("MatMul", matrix, rows), 1, few, build.height, build.width)
    return build.conv(build.activate(result), few, build.channels, 3)


def _on_draft(rule: Block) -> Draw:
    return lambda draft: rule(Builder(draft))


BLOCKS: dict[str, Draw] = {
    rule.__name__: _on_draft(rule)
    for rule in (
        *(residual, inverted, cross_stage, shuffled, reparametrized, ghost, pyramid_pool),
        *(up_and_down, weighted_sum, selective, excited, channel_neighbours, place_gate),
        *(shared_gate, coordinates, large_kernel, attention, linear_attention, windowed),
        *(perceptron, mixer, gated_units, next_block, normalized, recurrent, focused, strips),
        *(warped, distribution, depth_bins, correlation, dynamic),
    )
}
