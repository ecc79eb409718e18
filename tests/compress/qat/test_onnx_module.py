"""A graph run by torch gives what onnxruntime gives."""

import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.onnx_inputs import input_tensors
from compress.qat.onnx_module import OnnxModule
from export.to_onnx import export_onnx
from tests.openvino_agreement import run_as_written

REAL = Path(__file__).parents[4] / "shared" / "real"


def run_exactly(model: onnx.ModelProto, image: np.ndarray) -> dict[str, np.ndarray]:
    return run_as_written(model, {next(iter(input_tensors(model))): image})


def assert_parity(model: onnx.ModelProto, image: np.ndarray) -> None:
    with torch.no_grad():
        got = OnnxModule(model).eval()(torch.from_numpy(image))
    for name, wanted in run_exactly(model, image).items():
        scale = max(float(np.abs(wanted).max()), 1e-6)
        assert np.abs(got[name].numpy() - wanted).max() <= 1e-4 * scale, name


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["mobilenetv3_small_100", "resnet18", "efficientnet_b0", "convnext_atto", "regnety_002"],
)
def test_backbones_of_timm(name: str, tmp_path: Path) -> None:
    import timm

    torch.manual_seed(0)
    module = timm.create_model(name, pretrained=False, num_classes=5).eval()
    path = export_onnx(module, tmp_path / "m.onnx", input_shape={"image": (1, 3, 64, 64)})
    image = np.random.default_rng(0).standard_normal((1, 3, 64, 64), np.float32)
    assert_parity(load_onnx(path), image)


class Shuffled(nn.Module):
    """Operators that backbones lack."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.down = nn.Conv2d(3, 8, 3, 2, 1, padding_mode="zeros")
        self.act = nn.PReLU(8)
        self.up = nn.ConvTranspose2d(8, 4, 3, 2, 1, output_padding=1)
        self.norm = nn.InstanceNorm2d(4, affine=True)

    def forward(self, x):
        y = self.act(self.down(x))
        first, second = y.chunk(2, 1)
        y = torch.cat([second, first * torch.sigmoid(first)], 1)
        y = nn.functional.hardswish(y) * nn.functional.hardsigmoid(y.mean((2, 3), keepdim=True))
        y = nn.functional.avg_pool2d(y, 3, 1, 1) + y[:, :, :1].amax(3, keepdim=True)
        y = self.norm(self.up(y))
        y = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
        return nn.functional.pixel_shuffle(y, 2).flatten(1).softmax(-1)


def test_shuffles_transposed_convolutions_and_resizes(tmp_path: Path) -> None:
    path = export_onnx(
        Shuffled().eval(), tmp_path / "m.onnx", input_shape={"image": (1, 3, 16, 24)}
    )
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 24), np.float32)
    assert_parity(load_onnx(path), image)


def test_a_part_of_a_shape_is_the_size_that_a_map_is_resized_to(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["first"], start=0, end=2),
        helper.make_node("Concat", ["first", "size"], ["sizes"], axis=0),
        helper.make_node("Resize", ["x", "", "", "sizes"], ["large"], mode="linear"),
        helper.make_node("Shape", ["x"], ["last"], start=-1),
        helper.make_node("Resize", ["large", "", "", "last"], ["y"], mode="linear", axes=[3]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": [1, 4, 5, 6], "y": None}.items()
    ]
    size = numpy_helper.from_array(np.array([10, 9], np.int64), "size")
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [size])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "m.onnx")
    image = np.random.default_rng(0).standard_normal((1, 4, 5, 6), np.float32)
    assert_parity(load_onnx(tmp_path / "m.onnx"), image)


@pytest.mark.parametrize(
    ("operator", "attributes", "constants"),
    [
        ("GroupNormalization", {"num_groups": 2, "epsilon": 1e-3}, {"s": 4, "b": 4}),
        ("Mish", {}, {}),
        ("Selu", {}, {}),
        ("Softsign", {}, {}),
        ("Reciprocal", {}, {}),
        ("ReduceL2", {"keepdims": 1}, {"axes": [2, 3]}),
        ("ReduceMin", {"keepdims": 0}, {"axes": [1]}),
    ],
)
def test_operators_that_exporters_write_seldom(operator, attributes, constants, tmp_path) -> None:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            np.array(value, np.int64) if name == "axes" else rng.random(value).astype(np.float32),
            name,
        )
        for name, value in constants.items()
    ]
    node = helper.make_node(operator, ["x", *constants], ["y"], **attributes)
    shapes = {"x": [1, 4, 5, 6], "y": None}
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10),
        tmp_path / "m.onnx",
    )
    image = rng.uniform(0.5, 2, (1, 4, 5, 6)).astype(np.float32)
    assert_parity(load_onnx(tmp_path / "m.onnx"), image)


DECODERS = [
    "one = Constant<value = float {1.0}>() above = Greater(x, one) both = LessOrEqual(one, x) "
    "same = Equal(above, both) other = Not(same) any = Or(above, other) all = And(any, above) "
    "y = Where(all, x, one)",
    "half = Mul(x, x) more = Sin(x) y = Max(x, half, more)",
    "half = Mul(x, x) more = Sign(x) low = Min(x, half, more) mean = Mean(x, half, low) "
    "y = Sum(x, mean, low)",
    "up = Ceil(x) down = Floor(x) near = Round(x) rest = Mod<fmod = 1>(x, near) "
    "y = Sum(up, down, rest)",
    "a = Celu<alpha = 0.5>(x) b = ThresholdedRelu<alpha = 1.2>(a) c = Cos(b) y = Atan(c)",
    "a = LogSoftmax<axis = 1>(x) y = LpNormalization<axis = 3, p = 2>(a)",
    "at = ArgMax<axis = 1>(x) low = ArgMin<axis = 1, keepdims = 0>(x) lower = Unsqueeze(low, one) "
    "from = GatherElements<axis = 1>(x, lower) float = Cast<to = 1>(at) y = Add(float, from)",
    "two = Constant<value = int64[1] {2}>() most, at = TopK<axis = 1>(x, two) "
    "float = Cast<to = 1>(at) sum = Add(most, float) "
    'y = ScatterElements<axis = 1, reduction = "add">(x, at, sum)',
    "at = Constant<value = int64[2, 3] {0, 1, 2, 0, 3, -1}>() got = GatherND(x, at) "
    "new = Neg(got) y = ScatterND(x, at, new)",
    "one = Constant<value = float {1.0}>() above = Greater(x, one) places = NonZero(above) "
    "at = Transpose(places) got = GatherND(x, at) new = Neg(got) y = ScatterND(x, at, new)",
    "axis = Constant<value = int64 {3}>() a = CumSum<reverse = 1, exclusive = 1>(x, axis) "
    "b = CumSum(x, axis) c = Trilu<upper = 0>(a, one) y = Add(b, c)",
    "twice = Constant<value = int64[4] {1, 1, 2, 2}>() y = Tile(x, twice)",
    'y = Einsum<equation = "nchw,ndhw->ncd">(x, x)',
    "twice = Constant<value = int64[4] {1, 1, 2, 2}>() wide = Tile(x, twice) "
    "y = SpaceToDepth<blocksize = 2>(wide)",
    "to = Constant<value = int64[4] {1, 4, 7, 4}>() "
    'y = Resize<coordinate_transformation_mode = "asymmetric", nearest_mode = "floor">(x, , , to)',
    "to = Constant<value = int64[5] {1, 1, 8, 10, 9}>() deep = Unsqueeze(x, one) "
    'y = Resize<mode = "linear">(deep, , , to)',
    "to = Constant<value = int64[5] {1, 1, 8, 10, 9}>() deep = Unsqueeze(x, one) "
    'y = Resize<mode = "linear", coordinate_transformation_mode = "align_corners">(deep, , , to)',
    "y = ReduceL1(x, one)",
    "y = ReduceSumSquare(x, one)",
    "y = ReduceLogSumExp(x, one)",
    "from = Constant<value = int64 {0}>() to = Constant<value = int64 {6}>() "
    "step = Constant<value = int64 {1}>() line = Range(from, to, step) "
    "float = Cast<to = 1>(line) y = Mul(x, float)",
    "grid = Constant<value = float[1, 2, 2, 2] {-1.0, -0.9, 0.1, 0.2, 0.5, -0.3, 0.8, 1.1}>() "
    'y = GridSample<mode = "linear", padding_mode = "border">(x, grid)',
]


@pytest.mark.parametrize("nodes", DECODERS)
def test_operators_of_decoders(nodes: str, tmp_path: Path) -> None:
    head = '<ir_version: 10, opset_import: ["" : 21]> g (float[1, 4, 5, 6] x) => (float[?] y) '
    first = "one = Constant<value = int64[1] {1}>() " if "one = " not in nodes else ""
    model = onnx.parser.parse_model(head + "{ " + first + nodes + " }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    image = np.random.default_rng(0).uniform(0.5, 2, (1, 4, 5, 6)).astype(np.float32)
    assert_parity(load_onnx(tmp_path / "m.onnx"), image)


@pytest.mark.real
@pytest.mark.parametrize("name", ["ultraface/version-RFB-320.onnx", "fastestdet/FastestDet.onnx"])
def test_networks_that_nobody_here_made(name: str) -> None:
    if not REAL.is_dir():
        pytest.skip("../shared/real, with the trained networks, is not there")
    model = load_onnx(REAL / name)
    shape = [item.dim_value for item in model.graph.input[0].type.tensor_type.shape.dim]
    assert_parity(model, np.random.default_rng(0).random(shape, np.float32))


def test_unknown_operators_are_all_named() -> None:
    nodes = [
        helper.make_node("Asin", ["x"], ["y"], "a"),
        helper.make_node("Det", ["y"], ["z"], "b"),
    ]
    items = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 2]) for n in ("x", "z")]
    graph = helper.make_graph(nodes, "g", items[:1], items[1:])
    with pytest.raises(InputError, match="Asin, Det"):
        OnnxModule(helper.make_model(graph))


def test_gradients_reach_the_input() -> None:
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "w")
    items = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2]) for n in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "m")
    graph = helper.make_graph([node], "g", items[:1], items[1:], [weight])
    x = torch.ones(1, 2, requires_grad=True)
    OnnxModule(helper.make_model(graph))(x)["y"].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0, 2.0]]


class Attending(nn.Module):
    """Attention with a class token; exported, its shapes are constants with batch 1."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.mixed = nn.Linear(8, 24)

    def forward(self, x):
        patches = x.reshape(x.shape[0], 3, 4, 2, 4, 2).permute(0, 2, 4, 1, 3, 5)
        y = nn.functional.pad(patches.reshape(x.shape[0], 16, 12)[..., :7], (0, 1))
        y = torch.cat([self.token.expand(x.shape[0], -1, -1), y], 1)
        q, k, v = self.mixed(y).reshape(x.shape[0], 17, 3, 2, 4).permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-1, -2)).softmax(-1) @ v).transpose(1, 2)
        return y.reshape(x.shape[0], 17, 8)


class Folding(nn.Module):
    """Folds the batch in some way that is the same only for a batch of one."""

    def __init__(self, fold) -> None:
        super().__init__()
        self.fold = fold

    def forward(self, x):
        return self.fold(x)


FOLDS = {
    "mean": lambda x: x - x.mean(0, keepdim=True),
    "softmax": lambda x: x.reshape(3, 64).softmax(0).reshape(1, 3, 8, 8),
    "rows": lambda x: (x.reshape(-1, 64) @ x.reshape(-1, 64).t()).reshape(1, 9) / 64,
    "picked": lambda x: x[0].unsqueeze(0) * 2,
    "joined": lambda x: torch.cat([x, -x], 0).reshape(1, 6, 8, 8),
    "squeezed": lambda x: x.mean((0, 2, 3)),
    "turned": lambda x: x.permute(1, 0, 2, 3),
}


def check_batches(module: nn.Module, path: Path) -> bool:
    """Holds three samples against onnxruntime one by one; returns whether they ran together."""
    model = load_onnx(
        export_onnx(module.eval(), path / "m.onnx", input_shape={"image": (1, 3, 8, 8)})
    )
    images = np.random.default_rng(0).standard_normal((3, 3, 8, 8), np.float32)
    run = OnnxModule(model).eval()
    is_together = run.allow_batches(torch.from_numpy(images[:2]))
    with torch.no_grad():
        for name, got in run(torch.from_numpy(images)).items():
            for image, one in zip(images, got, strict=True):
                wanted = run_exactly(model, image[None])[name]
                np.testing.assert_allclose(one.numpy(), wanted.reshape(one.shape), atol=1e-5)
    return is_together


@pytest.mark.parametrize("module", [nn.ChannelShuffle(3), nn.PixelUnshuffle(2), Attending()])
def test_shapes_for_one_sample_leave_batches_together(module, tmp_path) -> None:
    assert check_batches(module, tmp_path)


@pytest.mark.parametrize("fold", FOLDS)
def test_a_network_that_would_mix_samples_is_computed_one_by_one(fold, tmp_path) -> None:
    assert not check_batches(Folding(FOLDS[fold]), tmp_path)


@pytest.fixture
def write_node():
    """Returns a function that writes a graph of one node, which reads x and constants."""

    def write(operator, shape, constants, outputs=("y",), **attributes):
        names = [name if value is not None else "" for name, value in constants.items()]
        node = helper.make_node(operator, ["x", *names], [*outputs], "node", **attributes)
        graph = helper.make_graph(
            [node],
            "node",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            [
                numpy_helper.from_array(value, name)
                for name, value in constants.items()
                if value is not None
            ],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)

    return write


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("shape", [(1, 6), (1, 4, 6), (1, 5, 4, 6), (1, 5, 6, 4, 4)])
@pytest.mark.parametrize("pads", [(0, 1), (2, 1), (-1, 2)])
def test_pads_of_any_axis(mode, shape, pads, write_node):
    for axis in range(1, len(shape)):
        given = np.zeros((2, len(shape)), np.int64)
        given[:, axis] = pads
        model = write_node("Pad", shape, {"pads": given.ravel()}, mode=mode)
        assert_parity(model, np.random.default_rng(0).standard_normal(shape, np.float32))


@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("pads", [(0, 0), (1, 1), (0, 1), (1, 0)])
@pytest.mark.parametrize("shape", [(1, 2, 7), (1, 2, 7, 6), (1, 2, 7, 6, 5)])
def test_means_over_one_to_three_axes(shape, pads, counts, write_node):
    axes = len(shape) - 2
    window = {"kernel_shape": [3] * axes, "strides": [2] * axes, "count_include_pad": counts}
    window["pads"] = [pads[0]] * axes + [pads[1]] * axes
    model = write_node("AveragePool", shape, {}, **window)
    assert_parity(model, np.random.default_rng(0).standard_normal(shape, np.float32))


@pytest.fixture
def write_recurrent(write_node):
    """Returns a function that writes a recurrent layer."""

    def write(operator, direction="forward", *, has_bias=True, has_state=True, **attributes):
        rng = np.random.default_rng(0)
        ways, size = 1 + (direction == "bidirectional"), 4
        rows = {"GRU": 3, "LSTM": 4, "RNN": 1}[operator] * size
        shapes = {"w": (ways, rows, 3), "r": (ways, rows, size), "b": (ways, 2 * rows)}
        shapes |= {"lengths": None, "h": (ways, 1, size), "c": (ways, 1, size)}
        left_out = {"lengths"} | ({"b"} if not has_bias else set())
        left_out |= set() if has_state else {"h", "c"}
        constants = {
            name: None if name in left_out else rng.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
            if name != "c" or operator == "LSTM"
        }
        outputs = ["y", "last"] + ["cell"] * (operator == "LSTM")
        options = {"hidden_size": size, "direction": direction} | attributes
        return write_node(operator, (7, 1, 3), constants, outputs, **options)

    return write


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("operator", "options"),
    [
        *itertools.product(["GRU", "LSTM", "RNN"], [{}, {"has_bias": False}, {"has_state": False}]),
        ("GRU", {"linear_before_reset": 1}),
    ],
)
def test_recurrent_layers(operator, direction, options, write_recurrent):
    model = write_recurrent(operator, direction, **options)
    steps = np.random.default_rng(1).standard_normal((7, 1, 3), np.float32)
    with torch.no_grad():
        got = OnnxModule(model)._run([torch.from_numpy(steps)])
    for name, wanted in run_exactly(model, steps).items():
        np.testing.assert_allclose(got[name].numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "options", "message"),
    [
        ("GRU", {"activations": ["Relu", "Tanh"]}, "a GRU with Relu, Tanh"),
        ("LSTM", {"clip": 1.0}, "clips its gates"),
        ("RNN", {"layout": 1}, "first axis is the batch"),
        ("LSTM", {"input_forget": 1}, "input and forget gates are one"),
    ],
)
def test_rare_recurrent_layers_are_refused(operator, options, message, write_recurrent):
    module = OnnxModule(write_recurrent(operator, **options))
    with pytest.raises(InputError, match=message):
        module(torch.zeros(7, 1, 3))
