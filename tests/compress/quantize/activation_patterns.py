"""Small networks: activations as exporters spell them, gates, and decoders of detection heads."""

from functools import partial

import numpy as np


def sigmoid_mul(net, data):
    """SiLU, as torch exports it."""
    return net.add("Mul", [data, net.add("Sigmoid", [data])])


def hard_sigmoid_mul(net, data):
    """Hard-swish in two nodes."""
    return net.add("Mul", [data, net.add("HardSigmoid", [data], alpha=1 / 6, beta=0.5)])


def hard_swish(net, data):
    """Hard-swish in one node."""
    return net.add("HardSwish", [data])


def clip_mul_div(net, data):
    """Hard-swish from Add, Clip, Mul and Div."""
    three, low, high = (net.constant(np.float32(value)) for value in (3, 0, 6))
    clipped = net.add("Clip", [net.add("Add", [data, three]), low, high])
    return net.add("Div", [net.add("Mul", [data, clipped]), high])


def clip_div_mul(net, data):
    """Hard-swish as x times a hard sigmoid from Add, Clip and Div."""
    three, low, high = (net.constant(np.float32(value)) for value in (3, 0, 6))
    clipped = net.add("Clip", [net.add("Add", [data, three]), low, high])
    return net.add("Mul", [data, net.add("Div", [clipped, high])])


def gelu_erf(net, data):
    """GELU from Erf."""
    root, one, half = (net.constant(np.float32(value)) for value in (np.sqrt(2), 1, 0.5))
    bell = net.add("Add", [net.add("Erf", [net.add("Div", [data, root])]), one])
    return net.add("Mul", [net.add("Mul", [data, bell]), half])


def gelu_tanh(net, data):
    """GELU from Tanh."""
    cube, slope, root, one, half = (
        net.constant(np.float32(value)) for value in (3, 0.044715, np.sqrt(2 / np.pi), 1, 0.5)
    )
    cubic = net.add("Mul", [net.add("Pow", [data, cube]), slope])
    bent = net.add("Tanh", [net.add("Mul", [net.add("Add", [data, cubic]), root])])
    return net.add("Mul", [net.add("Mul", [data, net.add("Add", [bent, one])]), half])


def mish(net, data):
    """x * tanh(log(1 + e^x))."""
    return net.add("Mul", [data, net.add("Tanh", [net.add("Softplus", [data])])])


ACTIVATIONS = {
    rule.__name__: rule
    for rule in (
        sigmoid_mul,
        hard_sigmoid_mul,
        hard_swish,
        clip_mul_div,
        clip_div_mul,
        gelu_erf,
        gelu_tanh,
        mish,
    )
}


SHORTCUTS = ("sigmoid_mul", "clip_mul_div")


def behind_a_layer(activation):
    """Returns a network: a Conv with that activation, and a Conv that reads it."""

    def build(net):
        data = ACTIVATIONS[activation](net, net.conv("x", 3, 8, size=3, relu=False))
        return net.conv(data, 8, 5, relu=False)

    return build


def bottleneck(activation):
    """Returns a network: a shortcut added to a layer's activation, as in darknet and YOLO."""

    def build(net):
        data = ACTIVATIONS[activation](net, net.conv("x", 3, 16, size=3, relu=False))
        sizes = net.constant(np.array([8, 8], np.int64))
        passed, data = net.add("Split", [data, sizes], count=2, axis=1)
        again = ACTIVATIONS[activation](net, net.conv(data, 8, 8, size=3, relu=False))
        joined = net.add("Concat", [passed, data, net.add("Add", [data, again])], axis=1)
        return net.conv(joined, 24, 5, relu=False)

    return build


def _excited(net, data, gate):
    return net.conv(net.add("Mul", [data, gate]), 8, 5, relu=False)


def squeeze_conv(net):
    """Squeeze and excite with 1x1 Convs."""
    data = sigmoid_mul(net, net.conv("x", 3, 8, size=3, relu=False))
    squeezed = net.conv(net.add("GlobalAveragePool", [data]), 8, 4)
    gate = net.add("HardSigmoid", [net.conv(squeezed, 4, 8, relu=False)])
    return _excited(net, data, gate)


def squeeze_linear(net):
    """Squeeze and excite with ReduceMean and Gemm."""
    data = net.conv("x", 3, 8, size=3)
    axes = net.constant(np.array([2, 3], np.int64))
    squeezed = net.add("ReduceMean", [data, axes], keepdims=0)
    for before, after, kind in ((8, 4, "Relu"), (4, 8, "Sigmoid")):
        weight = net.constant(net.rng.standard_normal((after, before)).astype(np.float32))
        squeezed = net.add(kind, [net.add("Gemm", [squeezed, weight], transB=1)])
    return _excited(net, data, net.reshape(squeezed, [1, 8, 1, 1]))


def channel_conv(net):
    """ECA: a Conv over neighbouring channels, and the gate expanded as `expand_as` exports it."""
    data = net.conv("x", 3, 8, size=3)
    axes = net.constant(np.array([2, 3], np.int64))
    squeezed = net.reshape(net.add("ReduceMean", [data, axes], keepdims=0), [1, 1, 8])
    weight = net.constant(net.rng.standard_normal((1, 1, 3)).astype(np.float32))
    gate = net.add("Sigmoid", [net.add("Conv", [squeezed, weight], pads=[1, 1])])
    shape = net.constant(np.array([1, 8, 12, 16], np.int64))
    return _excited(net, data, net.add("Expand", [net.reshape(gate, [1, 8, 1, 1]), shape]))


def spatial(net):
    """Spatial attention of CBAM: mean and maximum over channels, a 7x7 Conv, one factor a pixel."""
    data = net.conv("x", 3, 8, size=3)
    axes = net.constant(np.array([1], np.int64))
    parts = [net.add(kind, [data, axes], keepdims=1) for kind in ("ReduceMean", "ReduceMax")]
    joined = net.add("Concat", parts, axis=1)
    gate = net.add("Sigmoid", [net.conv(joined, 2, 1, size=7, relu=False)])
    return _excited(net, data, gate)


def squeeze_maximum(net):
    """Channel attention of CBAM: mean and maximum of every channel, summed behind the layers."""
    data = net.conv("x", 3, 8, size=3)
    weight = net.constant(net.rng.standard_normal((8, 8, 1, 1)).astype(np.float32))
    kinds = ("GlobalAveragePool", "GlobalMaxPool")
    parts = [net.add("Conv", [net.add(kind, [data]), weight]) for kind in kinds]
    return _excited(net, data, net.add("Sigmoid", [net.add("Add", parts)]))


def squeeze_minimum(net):
    """A gate from the minimum of every channel."""
    data = net.conv("x", 3, 8, size=3, relu=False)
    axes = net.constant(np.array([2, 3], np.int64))
    gate = net.conv(net.add("ReduceMin", [data, axes], keepdims=1), 8, 8, relu=False)
    return _excited(net, data, net.add("Sigmoid", [gate]))


def squeeze_active_minimum(net):
    """A gate from the SiLU of every channel's minimum."""
    data = net.conv("x", 3, 8, size=3, relu=False)
    axes = net.constant(np.array([2, 3], np.int64))
    active = sigmoid_mul(net, net.add("ReduceMin", [data, axes], keepdims=1))
    return _excited(net, data, net.add("Sigmoid", [net.conv(active, 8, 8, relu=False)]))


GATES = {
    rule.__name__: rule
    for rule in (
        squeeze_conv,
        squeeze_linear,
        squeeze_maximum,
        channel_conv,
        spatial,
        squeeze_minimum,
        squeeze_active_minimum,
    )
}


def boxes(net):
    """A YOLO head: DFL over 16 bins, distances turned into boxes, scores by a Sigmoid."""
    data = net.conv("x", 3, 8, size=3)
    sizes = net.constant(np.array([64, 3], np.int64))
    joined = net.reshape(net.conv(data, 8, 67, relu=False), [1, 67, 192])
    distances, scores = net.add("Split", [joined, sizes], count=2, axis=1)
    bins = net.add("Transpose", [net.reshape(distances, [1, 4, 16, 192])], perm=[0, 2, 1, 3])
    steps = net.constant(np.arange(16, dtype=np.float32).reshape(1, 16, 1, 1))
    means = net.add("Conv", [net.add("Softmax", [bins], axis=1), steps])
    sides = net.add(
        "Split",
        [net.reshape(means, [1, 4, 192]), net.constant(np.array([2, 2], np.int64))],
        count=2,
        axis=1,
    )
    anchors = net.constant(net.rng.uniform(0, 16, (1, 2, 192)).astype(np.float32))
    corners = [net.add("Sub", [anchors, sides[0]]), net.add("Add", [anchors, sides[1]])]
    stride = net.constant(np.float32(8))
    found = net.add("Mul", [net.add("Concat", corners, axis=1), stride])
    return net.add("Concat", [found, net.add("Sigmoid", [scores])], axis=1)


def anchors(net):
    """An SSD head: centres by Mul and Add, sizes by Exp."""
    raw = net.reshape(net.conv(net.conv("x", 3, 8, size=3), 8, 4, relu=False), [1, 4, 192])
    halves = net.constant(np.array([2, 2], np.int64))
    centre, size = net.add("Split", [raw, halves], count=2, axis=1)
    priors = net.constant(net.rng.uniform(1, 2, (1, 2, 192)).astype(np.float32))
    centre = net.add("Add", [net.add("Mul", [centre, priors]), priors])
    half = net.constant(np.float32(0.1))
    size = net.add("Mul", [net.add("Exp", [net.add("Mul", [size, half])]), priors])
    return net.add(
        "Concat", [net.add("Sub", [centre, size]), net.add("Add", [centre, size])], axis=1
    )


DECODERS = {rule.__name__: rule for rule in (boxes, anchors)}


def point_context(net):
    """PointNet: every place reads its own values beside the maximum of all places."""
    data = net.conv("x", 3, 32, size=1)
    axes, shape = (net.constant(np.array(value, np.int64)) for value in ([2, 3], [1, 32, 12, 16]))
    maximum = net.add("ReduceMax", [data, axes], keepdims=1)
    joined = net.add("Concat", [data, net.add("Expand", [maximum, shape])], axis=1)
    return net.conv(joined, 64, 16, size=1)


def token_mean(net, is_gated=False):
    """The head of LeViT: the mean over tokens, SiLU if asked for, BatchNormalization, a Gemm."""
    data = net.reshape(net.conv("x", 3, 32, size=3), [1, 32, 192])
    tokens = net.add("Sigmoid", [net.add("Transpose", [data], perm=[0, 2, 1])])
    axes = net.constant(np.array([1], np.int64))
    mean = net.add("ReduceMean", [tokens, axes], keepdims=0)
    if is_gated:
        mean = net.add("Mul", [net.add("Sigmoid", [mean]), mean])
    shift = net.rng.standard_normal(32)
    statistics = [net.rng.random(32) + 0.5, shift, np.full(32, 0.5), np.full(32, 0.01)]
    inputs = [mean, *(net.constant(value.astype(np.float32)) for value in statistics)]
    weight = net.constant(net.rng.standard_normal((5, 32)).astype(np.float32))
    return net.add("Gemm", [net.add("BatchNormalization", inputs), weight], transB=1)


NETWORKS = (
    GATES
    | DECODERS
    | {"point_context": point_context, "token_mean": token_mean}
    | {"token_mean_silu": partial(token_mean, is_gated=True)}
    | {name: behind_a_layer(name) for name in ACTIVATIONS}
    | {f"bottleneck_{name}": bottleneck(name) for name in SHORTCUTS}
)
