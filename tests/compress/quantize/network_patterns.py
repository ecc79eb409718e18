"""Small networks, one per pattern that placements treat on its own."""

import numpy as np
from onnx import helper


class Layers:
    """Collects nodes and weights; every method returns the name of what it computes."""

    def __init__(self):
        self.nodes, self.weights, self.rng = [], {}, np.random.default_rng(0)

    def add(self, kind, inputs, count=1, **attributes):
        name = f"{kind.lower()}{len(self.nodes)}"
        outputs = [name] if count == 1 else [f"{name}_{index}" for index in range(count)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, f"{name}_node", **attributes))
        return outputs[0] if count == 1 else outputs

    def constant(self, value):
        name = f"constant{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def conv(self, data, before, after, size=1, relu=True, gain=1.0, **attributes):
        group = attributes.get("group", 1)
        spread = gain / np.sqrt(before // group * size * size)
        weight = self.rng.standard_normal((after, before // group, size, size)) * spread
        inputs = [data, self.constant(weight.astype(np.float32))]
        inputs.append(self.constant((0.1 * self.rng.standard_normal(after)).astype(np.float32)))
        result = self.add("Conv", inputs, pads=[size // 2] * 4, **attributes)
        return self.add("Relu", [result]) if relu else result

    def reshape(self, data, shape):
        return self.add("Reshape", [data, self.constant(np.array(shape, np.int64))])

    def pick(self, data, index):
        return self.add("Gather", [data, self.constant(np.array(index, np.int64))], axis=0)


def shuffle(net):
    """Two blocks of ShuffleNetV2: Concat, channel shuffle, half of the channels pass by."""
    left, right = net.conv("x", 3, 8), net.conv("x", 3, 8, size=3)
    for _ in range(2):
        joined = net.add("Concat", [left, right], axis=1)
        pairs = net.reshape(joined, [8, 2, 192])
        halves = net.reshape(net.add("Transpose", [pairs], perm=[1, 0, 2]), [2, 1, 8, 12, 16])
        left, right = net.pick(halves, 0), net.conv(net.pick(halves, 1), 8, 8, size=3)
    return net.conv(net.add("Concat", [left, right], axis=1), 16, 5, relu=False)


def neck(net):
    """A feature pyramid: nearest upsampling joined with a finer level, which an average reads."""
    fine = net.conv("x", 3, 8, size=3)
    coarse = net.conv(fine, 8, 8, size=3, strides=[2, 2])
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    larger = net.add("Resize", [coarse, "", scales], mode="nearest")
    joined = net.add("Concat", [larger, fine], axis=1)
    pool = net.add("AveragePool", [joined], kernel_shape=[2, 2], strides=[2, 2])
    again = net.add("Resize", [net.conv(pool, 16, 6), "", scales], mode="nearest")
    return net.conv(net.add("Concat", [net.conv(joined, 16, 6), again], axis=1), 12, 5, relu=False)


def split(net):
    """A CSP block: half of the channels goes through a layer, all parts are joined."""
    sizes = net.constant(np.array([4, 4], np.int64))
    first, second = net.add("Split", [net.conv("x", 3, 8), sizes], count=2, axis=1)
    joined = net.add("Concat", [first, second, net.conv(second, 4, 4, size=3)], axis=1)
    return net.conv(joined, 12, 5, relu=False)


def joined_apart(net):
    """Two Concats, one after the other, whose integers have nothing to do with each other."""
    first, second, third, fourth = (net.conv("x", 3, 4, size=3) for _ in range(4))
    left = net.add("Concat", [first, second], axis=1)
    right = net.add("Concat", [third, fourth], axis=1)
    return net.add("Add", [net.conv(left, 8, 5, relu=False), net.conv(right, 8, 5, relu=False)])


def head(net):
    """A detector's last layer: scores and boxes out of one Conv, which leave in float."""
    sizes = net.constant(np.array([2, 6], np.int64))
    features = net.conv(net.conv("x", 3, 16), 16, 8, size=3, relu=False)
    scores, boxes = net.add("Split", [features, sizes], count=2, axis=1)
    return net.add("Concat", [net.add("Sigmoid", [scores]), net.add("Tanh", [boxes])], axis=1)


def uneven(net):
    """A narrow tensor with a layer of its own, joined with one that is 20 times as wide."""
    left, right = net.conv("x", 3, 4), net.conv("x", 3, 4, size=3)
    narrow = net.add("Concat", [left, right], axis=1)
    wide = net.conv("x", 3, 8, gain=20.0)
    joined = net.conv(net.add("Concat", [narrow, wide], axis=1), 16, 5, relu=False)
    return net.add("Add", [joined, net.conv(narrow, 8, 5, relu=False)])


def gate(net):
    """Squeeze and excite with SiLU before and hard-sigmoid inside."""
    data = net.conv("x", 3, 8, size=3, relu=False)
    data = net.add("Mul", [data, net.add("Sigmoid", [data])])
    squeezed = net.conv(net.add("GlobalAveragePool", [data]), 8, 4)
    excited = net.add("HardSigmoid", [net.conv(squeezed, 4, 8, relu=False)])
    return net.conv(net.add("Mul", [data, excited]), 8, 5, relu=False)


def attention(net):
    """One head over 192 places: MatMul, Softmax, MatMul."""
    queries, keys, values = (
        net.reshape(net.conv("x", 3, 8, relu=False), [1, 8, 192]) for _ in range(3)
    )
    scores = net.add("MatMul", [net.add("Transpose", [queries], perm=[0, 2, 1]), keys])
    likely = net.add("Softmax", [net.add("Mul", [scores, net.constant(np.float32(0.3))])], axis=-1)
    mixed = net.add("MatMul", [values, net.add("Transpose", [likely], perm=[0, 2, 1])])
    return net.conv(net.reshape(mixed, [1, 8, 12, 16]), 8, 5, relu=False)


def distances(net):
    """A detection head with DFL: the mean of a distribution over 4 distances."""
    logits = net.reshape(net.conv("x", 3, 16, size=3, relu=False), [1, 4, 4, 192])
    likely = net.add("Softmax", [net.add("Transpose", [logits], perm=[0, 2, 1, 3])], axis=1)
    steps = net.constant(np.arange(4, dtype=np.float32).reshape(1, 4, 1, 1))
    return net.add("Conv", [likely, steps])


def upsample(net):
    """A depthwise Conv, a ConvTranspose, and a linear Resize."""
    data = net.conv("x", 3, 8)
    data = net.conv(data, 8, 8, size=3, group=8)
    weight = net.constant((net.rng.standard_normal((8, 6, 2, 2)) * 0.3).astype(np.float32))
    data = net.add("Relu", [net.add("ConvTranspose", [data, weight], strides=[2, 2])])
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    return net.conv(net.add("Resize", [data, "", scales], mode="linear"), 6, 5, relu=False)


def pyramid(net):
    """The sum of two levels of a feature pyramid, each behind a layer and a ReLU."""
    fine, coarse = net.conv("x", 3, 8, size=3), net.conv("x", 3, 8)
    return net.conv(net.add("Add", [fine, coarse]), 8, 5, relu=False)


def blocks(net):
    """Two residual blocks of ResNet: a layer's result and a ReLU's are added behind a ReLU."""
    data = net.conv("x", 3, 8)
    for _ in range(2):
        branch = net.conv(net.conv(data, 8, 8, size=3), 8, 8, size=3, relu=False)
        data = net.add("Relu", [net.add("Add", [branch, data])])
    return net.conv(data, 8, 5, relu=False)


def levels(net):
    """Three levels of a feature pyramid: each is added to the resized sum of the coarser ones."""
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    fine = net.conv("x", 3, 8)
    middle = net.conv(fine, 8, 8, strides=[2, 2])
    coarse = net.conv(middle, 8, 8, strides=[2, 2])
    for lateral in (net.conv(middle, 8, 8), net.conv(fine, 8, 8)):
        larger = net.add("Resize", [coarse, "", scales], mode="nearest")
        coarse = net.add("Add", [lateral, larger])
    return net.conv(coarse, 8, 5, size=3, relu=False)


def gated_levels(net):
    """Two levels of a feature pyramid; each adds squeeze and excite of a layer to its result."""

    def laterals(data):
        lateral = net.conv(data, 8, 8, size=3, relu=False)
        squeezed = net.conv(net.add("GlobalAveragePool", [lateral]), 8, 4)
        excited = net.add("Sigmoid", [net.conv(squeezed, 4, 8, relu=False)])
        return net.add("Add", [lateral, net.add("Mul", [lateral, excited])])

    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    fine = net.conv("x", 3, 8)
    coarse = laterals(net.conv(fine, 8, 8, strides=[2, 2]))
    larger = net.add("Resize", [coarse, "", scales], mode="nearest")
    near = net.conv(net.add("Add", [laterals(fine), larger]), 8, 5, size=3, relu=False)
    far = net.conv(coarse, 8, 5, size=3, relu=False)
    return net.add("Mul", [near, net.add("Resize", [far, "", scales], mode="linear")])


def gated_shortcut(net):
    """A block of SE-ResNet: squeeze and excite of a layer is added to the shortcut."""
    shortcut = net.conv("x", 3, 8)
    data = net.conv(shortcut, 8, 8, size=3, relu=False)
    squeezed = net.conv(net.add("GlobalAveragePool", [data]), 8, 4)
    excited = net.add("Sigmoid", [net.conv(squeezed, 4, 8, relu=False)])
    block = net.add("Add", [net.add("Mul", [data, excited]), shortcut])
    return net.conv(net.add("Relu", [block]), 8, 5, relu=False)


PATTERNS = {
    rule.__name__: rule
    for rule in (
        shuffle,
        neck,
        split,
        joined_apart,
        head,
        uneven,
        gate,
        attention,
        distances,
        upsample,
        pyramid,
        blocks,
        levels,
        gated_levels,
        gated_shortcut,
    )
}
