"""What is trained is what ships, and training brings back what rounding took."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from onnx import helper, numpy_helper
from torch import nn

from artifacts.errors import InputError
from artifacts.onnx_file import load_onnx
from artifacts.paired_products import RUNTIMES, LayerProducts
from compress.compare import compare_models
from compress.qat.api import layer_weights, train_quantized
from compress.qat.learned_scale import quantize_through
from compress.qat.onnx_module import OnnxModule
from compress.qat.quantized_module import QuantizedModule
from compress.qat.settings import QatSettings
from compress.quantize.api import quantize_model
from compress.quantize.placement.layers import LAYERS
from compress.quantize.rounding import Nearest
from compress.quantize.settings import QuantizeSettings
from compress.train.settings import TrainerSettings
from export.to_onnx import export_onnx

SIZE = (16, 24)
TRAINING = TrainerSettings(
    steps=100,
    batch_size=4,
    learning_rate=0.003,
    weight_decay=0.0,
    average_decay=0.9,
    probe_every=25,
    threads=1,
    device="cpu",
)


class Small(nn.Module):
    """A residual network with two outputs."""

    output_names = ("masks", "metres")

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.ReLU())
        self.one = nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1), nn.ReLU(), nn.Conv2d(12, 12, 1))
        self.up = nn.ConvTranspose2d(12, 8, 2, 2)
        self.masks = nn.Conv2d(8, 4, 1)
        self.metres = nn.Conv2d(12, 1, 3, 1, 1)

    def forward(self, x):
        y = self.stem(x)
        y = torch.relu(y + self.one(y))
        return {"masks": self.masks(torch.relu(self.up(y))), "metres": self.metres(y)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    path = tmp_path_factory.mktemp("qat") / "small.onnx"
    export_onnx(Small().eval(), path, input_shape={"image": (1, 3, *SIZE)})
    return load_onnx(path)


def images(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, 3, *SIZE), np.float32) for _ in range(count)]


def samples(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    return [{"image": image[0]} for image in images(count, seed)]


def quantize(network: onnx.ModelProto, count: int = 8, **settings) -> onnx.ModelProto:
    name = network.graph.input[0].name
    feeds = [{name: image} for image in images(count)]
    usual = {"rounding": Nearest()}
    if settings.get("weights") == "int4":
        usual["int4_share"] = 1
    chosen = QuantizeSettings(**usual | settings)
    return quantize_model(network, feeds, chosen).model


def run_exactly(model: onnx.ModelProto, image: np.ndarray, inner: bool = False):
    """Runs a model without optimizations; `inner` adds every Q node's integers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    if inner:
        for node in model.graph.node:
            if node.op_type == "QuantizeLinear":
                copy.graph.output.append(onnx.ValueInfoProto(name=node.output[0]))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(copy.SerializeToString(), options)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, {model.graph.input[0].name: image}), strict=True))


def run_torch(module: QuantizedModule, image: np.ndarray) -> dict[str, np.ndarray]:
    """Runs the module; the integers of its Q nodes are in the result too."""
    inner: dict[str, np.ndarray] = {}
    plain = module._quantize

    def watch(node, x):
        result = plain(node, x)
        inner[node.output[0]] = result.numpy()
        return result

    module._quantize = watch
    with torch.no_grad():
        outputs = module.eval()(torch.from_numpy(image))
    del module._quantize
    return inner | {name: value.numpy() for name, value in outputs.items()}


def disturb(module: QuantizedModule) -> QuantizedModule:
    """Moves everything that is learned, as training would."""
    torch.manual_seed(3)
    with torch.no_grad():
        for value in module.parameters():
            value.add_(torch.randn_like(value) * 0.4)
    return module


CASES = [
    {"target": "tensorrt", "weights": "int8"},
    {"target": "openvino", "weights": "int8"},
    {"target": "tensorrt", "weights": "int4"},
    {"target": "openvino", "weights": "int4", "weight_group": 4},
    {"target": "openvino", "weights": "int4", "int4_share": 0.85},
    {"target": "openvino", "weights": "int8", "symmetric": True},
    {"target": "onnxruntime", "weights": "int8"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_what_ships_computes_what_the_module_computed(network, case) -> None:
    module = disturb(QuantizedModule(quantize(network, **case)))
    shipped = module.write_model()
    onnx.checker.check_model(shipped)
    image = images(1, 5)[0]
    got, wanted = run_torch(module, image), run_exactly(shipped, image, inner=True)
    assert got.keys() == wanted.keys()
    for name, value in wanted.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-4 * np.ptp(value))
        else:
            assert np.mean(got[name] != value) <= 0.002, name
            assert np.abs(got[name] - value.astype(np.float32)).max() <= 1, name


def test_integers_are_identical_where_sums_are_exact(network) -> None:
    """With scales that are powers of two and whole biases no sum depends on its order."""
    model = quantize(network)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            is_scale = tensor.name.endswith("_scale")
            exact = 2.0 ** np.round(np.log2(array)) if is_scale else np.round(array * 256) / 256
            tensor.CopyFrom(numpy_helper.from_array(exact.astype(np.float32), tensor.name))
    module = QuantizedModule(model)
    with torch.no_grad():
        for latent in module.latents.values():
            latent.add_(torch.randn_like(latent) * 2)
    image = np.round(images(1, 5)[0] * 64).astype(np.float32) / 64
    got, wanted = run_torch(module, image), run_exactly(module.write_model(), image, inner=True)
    assert len(wanted) > 5
    for name, value in wanted.items():
        assert np.array_equal(got[name], value.astype(np.float32)), name


@pytest.mark.parametrize("weights", ["int8", "int8-pairs", "int7", "int4"])
def test_an_untrained_module_ships_the_graph_it_came_from(network, weights: str) -> None:
    model = quantize(network, weights=weights)
    assert QuantizedModule(model).write_model() == model


@pytest.mark.parametrize(("weights", "widest"), [("int8-pairs", 127), ("int7", 63)])
def test_trained_weights_keep_to_what_does_not_overflow(network, weights: str, widest) -> None:
    """However far training moves them."""
    module = QuantizedModule(quantize(network, weights=weights))
    with torch.no_grad():
        for latent in module.latents.values():
            latent.mul_(3)
    written = module.write_model()
    constants = {item.name: numpy_helper.to_array(item) for item in written.graph.initializer}
    makers = {output: node for node in written.graph.node for output in node.output}
    integers = [
        (LayerProducts.of(node, values.shape, runtime), values)
        for runtime in RUNTIMES
        for node in written.graph.node
        if node.op_type in LAYERS
        and (values := constants[makers[node.input[1]].input[0]]).dtype == np.int8
    ]
    assert max(int(values.max()) for _, values in integers) == widest
    assert [layer.count_overflowing(values) for layer, values in integers] == [0] * len(integers)


def test_training_brings_back_a_part_of_what_int4_lost(network) -> None:
    """The weights are random; benchmarks/qat.py says how much comes back in a trained network."""
    start = quantize(network, weights="int4", equalization=False)
    result = train_quantized(start, network, samples(32), samples(8, 1), training=TRAINING)
    errors = []
    for model in (start, result.model):
        sums = 0.0
        for image in images(8, 2):
            wanted, got = run_exactly(network, image), run_exactly(model, image)
            sums += sum(float(np.square(got[n] - wanted[n]).sum()) for n in wanted)
        errors.append(sums)
    assert errors[1] < 0.9 * errors[0]
    assert result.training.score_after < 0.9 * result.training.score_before


def test_integers_do_not_decay_unless_asked(network) -> None:
    """A weight decay pulls each integer towards 0, in INT8 by more than a whole step."""
    start = quantize(network, weights="int8")

    def scores(decay: float | None) -> tuple[tuple[int, float], ...]:
        training = replace(TRAINING, steps=20, probe_every=10, weight_decay=decay)
        result = train_quantized(start, network, samples(16), samples(8, 1), training=training)
        return result.training.scores

    assert scores(None) == scores(0.0)
    assert scores(0.3) != scores(0.0)


@pytest.mark.parametrize("without_gradients", [torch.no_grad, torch.inference_mode])
def test_training_does_not_mind_a_caller_without_gradients(network, without_gradients) -> None:
    start, training = quantize(network), replace(TRAINING, steps=2, probe_every=1)
    with without_gradients():
        result = train_quantized(start, network, samples(8), samples(4, 1), training=training)
    assert result.training.steps == 2


@pytest.fixture
def decided(network: onnx.ModelProto) -> onnx.ModelProto:
    """The network with its masks behind an ArgMax, and boxes that survive in place of metres."""
    weights = {
        "rows": np.array([1, 4, -1], np.int64),
        "row": np.array([1, 1, -1], np.int64),
        "most": np.array(20, np.int64),
        "overlap": np.array(0.5, np.float32),
        "threshold": np.array(0.1, np.float32),
    }
    nodes = [
        helper.make_node("ArgMax", ["masks"], ["labels"], "decide", axis=1, keepdims=0),
        helper.make_node("MaxPool", ["masks"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p", "rows"], ["columns"]),
        helper.make_node("Transpose", ["columns"], ["boxes"], perm=[0, 2, 1]),
        helper.make_node("Reshape", ["metres", "row"], ["scores"]),
        helper.make_node(
            "NonMaxSuppression", ["boxes", "scores", "most", "overlap", "threshold"], ["kept"]
        ),
    ]
    model = onnx.ModelProto()
    model.CopyFrom(network)
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(
        numpy_helper.from_array(value, name) for name, value in weights.items()
    )
    del model.graph.output[:]
    value = helper.make_tensor_value_info
    model.graph.output.append(value("labels", onnx.TensorProto.INT64, [1, *SIZE]))
    model.graph.output.append(value("kept", onnx.TensorProto.INT64, [None, 3]))
    return onnx.shape_inference.infer_shapes(model)


def test_what_is_decided_about_learns(decided: onnx.ModelProto, network: onnx.ModelProto) -> None:
    start = quantize(decided, weights="int4", equalization=False)
    result = train_quantized(start, decided, samples(32), samples(8, 1), training=TRAINING)
    assert set(result.training.losses_before) == {"labels", "boxes", "scores"}
    assert result.training.score_after < 0.9 * result.training.score_before
    assert result.model.graph.node == start.graph.node
    assert result.model.graph.output == decided.graph.output
    feeds = [{network.graph.input[0].name: image} for image in images(8, 2)]
    before, after = (
        compare_models(decided, model, feeds)["outputs"] for model in (start, result.model)
    )
    for name in ("labels", "kept"):
        assert after[name]["sqnr_db"] > before[name]["sqnr_db"] + 0.3, name


class Detector(nn.Module):
    """A detection head that sees no object anywhere, and a class map beside it."""

    output_names = ("detection_class_8", "detection_box_8", "detection_centre_8", "segmentation")

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.trunk = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.ReLU())
        self.ends = nn.ModuleList(nn.Conv2d(12, width, 1) for width in (3, 4, 1, 5))
        nn.init.constant_(self.ends[0].bias, -4.6)

    def forward(self, x):
        y = self.trunk(x)
        return dict(zip(self.output_names, [end(y) for end in self.ends], strict=True))


def test_every_output_learns_by_its_squared_error(tmp_path: Path) -> None:
    """A detector's own loss looks where its teacher sees an object; here that is nowhere."""
    names = list(Detector.output_names)
    heads = {"detection": {"outputs": names[:3]}, "segmentation": {"outputs": names[3:]}}
    shape = {"image": (1, 3, *SIZE)}
    export_onnx(Detector().eval(), tmp_path / "d.onnx", input_shape=shape, heads=heads)
    teacher = load_onnx(tmp_path / "d.onnx")
    start = quantize(teacher, weights="int4", equalization=False)
    training = train_quantized(
        start, teacher, samples(32), samples(8, 1), training=TRAINING
    ).training
    assert training.losses_before.keys() == set(Detector.output_names)
    wanted, got = (
        np.concatenate([run_exactly(model, image)["segmentation"] for image in images(8, 1)])
        for model in (teacher, start)
    )
    share = np.square(got - wanted).mean() / wanted.var()
    assert training.losses_before["segmentation"] == pytest.approx(share, rel=0.1)
    for name, before in training.losses_before.items():
        assert training.losses_after[name] < 1.02 * before, name
    assert training.score_after < 0.98 * training.score_before


def test_labels_are_learned_from_where_there_are_some(network) -> None:
    """Labels a tenth of a metre beyond the float network pull away from it.

    What is worse for a head than the start is not kept, so the start is one of few pictures.
    """

    def label_loss(outputs, targets):
        return {"metres": (outputs["metres"] - targets["far"]).square().mean()}

    def find_metres(model, one):
        return run_exactly(model, one["image"][None])["metres"][0]

    def label(one):
        return one | {"far": find_metres(network, one) + np.float32(0.1)}

    given, held_out = (list(map(label, samples(n, n))) for n in (16, 4))
    losses = {}
    for weight in (0.0, 1.0, 10.0, 100.0):
        result = train_quantized(
            quantize(network, 5, weights="int4"),
            network,
            given,
            held_out,
            QatSettings(label_weight=weight),
            replace(TRAINING, steps=25),
            label_loss=label_loss,
        )
        errors = [find_metres(result.model, one) - one["far"] for one in held_out]
        losses[weight] = float(np.mean(np.square(errors)))
        assert ("labels" in result.training.losses_before) == (weight > 0)
    assert losses[1.0] < losses[0.0]
    assert losses[100.0] < losses[10.0] < losses[0.0]


def test_networks_that_shuffle_channels_learn_in_batches(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3, 1, 1), nn.ChannelShuffle(2), nn.Conv2d(8, 4, 1))
    export_onnx(module.eval(), tmp_path / "m.onnx", input_shape={"image": (1, 3, *SIZE)})
    teacher = load_onnx(tmp_path / "m.onnx")
    start = quantize(teacher)
    result = train_quantized(
        start, teacher, samples(6), samples(3, 1), training=replace(TRAINING, steps=2)
    )
    assert result.training.steps == 2
    together = disturb(QuantizedModule(start)).eval()
    shipped = together.write_model()
    batch = np.concatenate(images(3, 5))
    assert together.allow_batches(torch.from_numpy(batch[:2]))
    with torch.no_grad():
        (got,) = together(torch.from_numpy(batch)).values()
    for image, one in zip(batch, got.numpy(), strict=True):
        (wanted,) = run_exactly(shipped, image[None]).values()
        np.testing.assert_allclose(one, wanted[0], atol=1e-5 * np.ptp(wanted))


def test_float_weights_are_recalled_without_changing_an_integer(network) -> None:
    start = quantize(network, weights="int4", equalization=False)
    module = QuantizedModule(start)
    assert module.recall_weights(layer_weights(network)) == len(module.latents)
    assert module.write_model() == start
    assert any((latent % 1 != 0).any() for latent in module.latents.values())


def test_float_weights_are_recalled_where_channels_were_rescaled(network, tmp_path: Path) -> None:
    rescaled = Small()
    factors = torch.exp(torch.linspace(-2, 2, 12))
    with torch.no_grad():
        rescaled.one[0].weight *= factors[:, None, None, None]
        rescaled.one[0].bias *= factors
        rescaled.one[2].weight /= factors[None, :, None, None]
    export_onnx(rescaled.eval(), tmp_path / "r.onnx", input_shape={"image": (1, 3, *SIZE)})
    start = quantize(load_onnx(tmp_path / "r.onnx"), weights="int4", equalization=False)
    module = QuantizedModule(start)
    beyond_telling = 1  # a 1x1 layer whose channels have 12 weights
    assert module.recall_weights(layer_weights(network)) == len(module.latents) - beyond_telling
    assert module.write_model() == start


def test_the_teacher_of_a_pruned_network_is_wider(network, tmp_path: Path) -> None:
    narrow = Small()
    narrow.stem[0], narrow.stem[1] = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
    narrow.one = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
    narrow.up, narrow.metres = nn.ConvTranspose2d(8, 8, 2, 2), nn.Conv2d(8, 1, 3, 1, 1)
    export_onnx(narrow.eval(), tmp_path / "n.onnx", input_shape={"image": (1, 3, *SIZE)})
    start = quantize(load_onnx(tmp_path / "n.onnx"))
    training = replace(TRAINING, steps=2)
    result = train_quantized(start, network, samples(6), samples(3, 1), training=training)
    assert result.training.steps == 2


def test_learned_scales_have_the_gradient_of_the_paper(network) -> None:
    """LSQ, equation 3: q - x/s inside the grid, the limit outside."""
    module = QuantizedModule(quantize(network))
    node = next(n for n in module.model.graph.node if n.op_type == "QuantizeLinear")
    scale = module._scale(node.input[1])
    assert scale.raw is not None
    step = float(scale().detach())
    for x, wanted in ((2.3 * step, 2 - 2.3), (1000 * step, 127), (-1000 * step, -128)):
        scale.raw.grad = None
        (module._quantize(node, torch.full((1, 1), x)) * scale()).sum().backward()
        assert float(scale.raw.grad) == pytest.approx(wanted * step * scale.rate, rel=1e-3)


def test_gradients_pass_strictly_inside_the_grid() -> None:
    """Whatever torch.clamp does at its limits, which torch 2.15 changed."""
    steps = torch.tensor([-9.0, -8.0, -7.6, 0.2, 6.6, 7.0, 7.4, 9.0], requires_grad=True)
    quantized = quantize_through(steps, -8, 7)
    assert quantized.tolist() == [-8.0, -8.0, -8.0, 0.0, 7.0, 7.0, 7.0, 7.0]
    quantized.sum().backward()
    assert steps.grad is not None
    assert steps.grad.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]


def test_equal_activations_share_one_scale(network) -> None:
    module = QuantizedModule(quantize(network))
    names = {n.input[1] for n in module.model.graph.node if n.op_type == "QuantizeLinear"}
    values = {float(module.constant(name)) for name in names}
    assert len({module._scale_keys[name] for name in names}) == len(values)


def test_a_float_network_is_refused(network) -> None:
    with pytest.raises(InputError, match="no Q/DQ pairs"):
        QuantizedModule(network)


def test_a_teacher_with_other_outputs_is_named(network, tmp_path: Path) -> None:
    other = onnx.ModelProto()
    other.CopyFrom(network)
    for item in other.graph.output:
        for node in other.graph.node:
            node.output[:] = [f"x_{n}" if n == item.name else n for n in node.output]
        item.name = f"x_{item.name}"
    with pytest.raises(InputError, match=r"no output in common.*x_m"):
        train_quantized(quantize(network), other, samples(2), samples(1), training=TRAINING)
    assert OnnxModule(other).output_names[0].startswith("x_")


@pytest.mark.parametrize(("name", "value"), [("scale_rate", -1.0), ("label_weight", math.inf)])
def test_settings_that_make_no_sense_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        QatSettings(**{name: value})


class Stereo(nn.Module):
    """Two pictures and a state; what it answers depends on each."""

    output_names = ("disparity",)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.tower = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU())
        self.speed = nn.Linear(4, 8)
        self.head = nn.Conv2d(16, 2, 3, 1, 1)

    def forward(self, left, right, state):
        features = torch.cat([self.tower(left), self.tower(right)], 1)
        scale = torch.sigmoid(self.speed(state)).repeat(1, 2)
        return {"disparity": self.head(features * scale[:, :, None, None])}


@pytest.mark.parametrize("batch_size", [1, 4])
def test_networks_of_several_inputs_learn(tmp_path: Path, batch_size: int) -> None:
    shapes = {"left": (3, *SIZE), "right": (3, *SIZE), "state": (4,)}
    path = tmp_path / "stereo.onnx"
    export_onnx(
        Stereo().eval(), path, input_shape={name: (1, *shape) for name, shape in shapes.items()}
    )
    teacher = load_onnx(path)
    rng = np.random.default_rng(0)
    data = [
        {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
        for _ in range(12)
    ]
    feeds = [{name: value[None] for name, value in sample.items()} for sample in data]
    start = quantize_model(
        teacher, feeds, QuantizeSettings(weights="int4", rounding=Nearest(), int4_share=1)
    ).model
    training = replace(TRAINING, batch_size=batch_size)
    result = train_quantized(
        start, teacher, data[:8], data[8:], training=training, inputs=tuple(shapes)
    )
    assert result.training.score_after < result.training.score_before
    module = QuantizedModule(result.model).eval()
    with torch.no_grad():
        (got,) = module(*(torch.from_numpy(value) for value in feeds[0].values())).values()
    session = ort.InferenceSession(result.model.SerializeToString())
    (wanted,) = session.run(None, feeds[0])
    np.testing.assert_allclose(got.numpy(), wanted, atol=0.02 * np.ptp(wanted))


def test_a_teacher_with_other_inputs_is_refused(network, tmp_path: Path) -> None:
    shape = {"left": (1, 3, *SIZE), "right": (1, 3, *SIZE), "state": (1, 4)}
    export_onnx(Stereo().eval(), tmp_path / "stereo.onnx", input_shape=shape)
    with pytest.raises(InputError, match=r"teacher's inputs are left, right, state"):
        train_quantized(
            quantize(network),
            load_onnx(tmp_path / "stereo.onnx"),
            samples(2),
            samples(1),
            training=TRAINING,
        )


@pytest.mark.parametrize(
    ("inputs", "changes", "message"),
    [
        (("image",), {}, "not the input 'image'"),
        (("left",), {}, "1 inputs are named: left; expected .* left, right, state"),
        (("right", "left", "state"), {}, "another order than the network's"),
        (
            ("left", "right", "state"),
            {"right": (1, 3, *SIZE)},
            r"'right' .* shape \[1, 3, 16, 24\]",
        ),
        (("left", "right", "state"), {"left": None}, "'left' of a sample is float64"),
        (("left", "right", "state"), {"state": (5,)}, r"\[5\]; expected \[4\]"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path: Path, inputs, changes, message) -> None:
    """Two pictures in the wrong order would be learned without a word."""
    shapes = {"left": (3, *SIZE), "right": (3, *SIZE), "state": (4,)}
    path = tmp_path / "stereo.onnx"
    export_onnx(
        Stereo().eval(), path, input_shape={name: (1, *shape) for name, shape in shapes.items()}
    )
    teacher = load_onnx(path)
    feed = {name: np.ones((1, *shape), np.float32) for name, shape in shapes.items()}
    start = quantize_model(teacher, [feed], QuantizeSettings(rounding=Nearest())).model
    sample = {
        name: np.ones(shapes[name]) if shape is None else np.ones(shape, np.float32)
        for name, shape in (shapes | changes).items()
    }
    with pytest.raises(InputError, match=message):
        train_quantized(start, teacher, [sample], [sample], training=TRAINING, inputs=inputs)
