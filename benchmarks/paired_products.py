"""Which pairs of INT8 weights overflow on a processor without VNNI; a table of the page.

`python -m benchmarks.paired_products`

Each output channel of a layer has two weights of 127, every two in turn, and all inputs are the
largest integer: what is computed is right or far too small. OpenVINO is kept to AVX2
(`ONEDNN_MAX_CPU_ISA`, read once by its first network); onnxruntime takes what the processor has.
"""

import itertools
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from artifacts.atomic import write_json, write_text
from artifacts.paired_products import PAIR_SUM, LayerProducts, sum_pairs
from artifacts.processor import overflows_on_int8, read_flags
from benchmarks.machine import describe_machine
from benchmarks.marked import replace_section, table_lines
from benchmarks.quantizer_choices import PAGE, RAW
from compress.model_runner import open_runner
from framefit.network_session import open_in_memory

SECTION = "paired_products"
SIZE, ROWS = 8, 16
LARGE = 127
TYPES: dict[str, tuple[type, int]] = {
    "uint8": (np.uint8, 0),
    "uint8 with a zero point": (np.uint8, 100),
    "int8": (np.int8, 0),
}


@dataclass(frozen=True)
class Layer:
    """A layer whose every output channel has two weights.

    Attributes:
        name: for the table.
        operator: Conv, ConvTranspose, Gemm or MatMul.
        inputs: channels that an output reads.
        kernel: the window is that wide and high.
        groups: of the convolution.
        attributes: of the node.
    """

    name: str
    operator: str
    inputs: int
    kernel: int = 1
    groups: int = 1
    attributes: tuple[tuple[str, Any], ...] = ()

    def pairs(self) -> list[tuple[int, int]]:
        """Returns every two weights of a row."""
        return list(itertools.combinations(range(self.inputs * self.kernel**2), 2))

    def weight(self) -> NDArray[np.int8]:
        """Returns the weight, with a row for each pair; each group has all, but of one channel."""
        pairs = self.pairs()
        rows = np.zeros((len(pairs), self.inputs * self.kernel**2), np.int8)
        for row, pair in zip(rows, pairs, strict=True):
            row[list(pair)] = LARGE
        if self.operator in ("Gemm", "MatMul"):
            return rows if self.operator == "Gemm" else np.ascontiguousarray(rows.T)
        shaped = rows.reshape(len(pairs), self.inputs, self.kernel, self.kernel)
        if self.operator == "ConvTranspose":
            return np.ascontiguousarray(shaped.transpose(1, 0, 2, 3))
        return shaped if self.inputs == 1 else np.tile(shaped, (self.groups, 1, 1, 1))

    def model(self, dtype: type, zero_point: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
        """Returns the layer between Q/DQ, and the shape of its input."""
        channels = self.inputs * self.groups
        shape = (1, channels, SIZE, SIZE)
        if self.operator in ("Gemm", "MatMul"):
            shape = (ROWS, channels)
        result = np.float32(2 * LARGE * np.iinfo(dtype).max / 200)
        constants = {
            "one": np.float32(1), "zero": dtype(zero_point), "weight": self.weight(),
            "none": np.int8(0), "step": result, "start": dtype(0),
        }  # fmt: skip
        attributes = dict(self.attributes)
        if self.groups > 1:
            attributes["group"] = self.groups
        node = helper.make_node
        nodes = [
            node("QuantizeLinear", ["x", "one", "zero"], ["xq"]),
            node("DequantizeLinear", ["xq", "one", "zero"], ["xd"]),
            node("DequantizeLinear", ["weight", "one", "none"], ["wd"]),
            node(self.operator, ["xd", "wd"], ["computed"], **attributes),
            node("QuantizeLinear", ["computed", "step", "start"], ["yq"]),
            node("DequantizeLinear", ["yq", "step", "start"], ["y"]),
        ]
        graph = helper.make_graph(
            nodes,
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model), shape


DOUBLED = (("strides", [2, 2]),)
LAYERS = (
    Layer("Conv 3x3, 3 channels", "Conv", 3, 3, attributes=(("pads", [1] * 4),)),
    Layer("Conv 3x3, 8 channels", "Conv", 8, 3, attributes=(("pads", [1] * 4),)),
    Layer("Conv 3x3, 5 channels, stride 2", "Conv", 5, 3, attributes=DOUBLED),
    Layer("Conv 3x3, 4 channels, dilated", "Conv", 4, 3, attributes=(("dilations", [2, 2]),)),
    Layer("Conv 1x1, 16 channels", "Conv", 16),
    Layer("Conv 1x1, 21 channels", "Conv", 21),
    Layer("Conv 3x3 in 2 groups of 4", "Conv", 4, 3, 2),
    Layer("Conv 3x3 in 2 groups of 3", "Conv", 3, 3, 2),
    Layer("depthwise Conv 3x3", "Conv", 1, 3, 36),
    Layer("depthwise Conv 3x3, 2 outputs a channel", "Conv", 1, 3, 18),
    Layer("Conv 3x3, 1 channel", "Conv", 1, 3),
    Layer("ConvTranspose 2x2, 8 channels", "ConvTranspose", 8, 2, attributes=DOUBLED),
    Layer("ConvTranspose 4x4, 3 channels", "ConvTranspose", 3, 4, attributes=DOUBLED),
    Layer("MatMul, 32 channels", "MatMul", 32),
    Layer("Gemm, 31 channels", "Gemm", 31, attributes=(("transB", 1),)),
)


def main() -> None:
    """Measures, writes the raw figures and the section of the page."""
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX2"
    runtimes = ["openvino"]
    if overflows_on_int8(read_flags()):
        runtimes.append("onnxruntime")
    rows = [_measure(layer, runtimes) for layer in LAYERS]
    write_json(RAW.with_name(f"{SECTION}.json"), rows)
    lines = [
        f"Every two weights of an output channel, with inputs of {', '.join(TYPES)}: pairs that "
        "may overflow by the rule, those of them that do, and others that do. On "
        f"{describe_machine()}.",
        "",
        *table_lines(("layer", "pairs", *runtimes), (_cells(row, runtimes) for row in rows)),
    ]
    write_text(PAGE, replace_section(PAGE.read_text(encoding="utf-8"), SECTION, lines))


def _measure(layer: Layer, runtimes: list[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"layer": layer.name}
    for runtime in runtimes:
        expected = _expect(layer, runtime)
        row["pairs"] = len(expected)
        found = np.zeros_like(expected)
        for dtype, zero_point in TYPES.values():
            found |= _find_wrong(layer, runtime, dtype, zero_point)
        both, missed = found & expected, found & ~expected
        row[runtime] = [int(item.sum()) for item in (expected, both, missed)]
    return row


def _expect(layer: Layer, runtime: str) -> NDArray[np.bool_]:
    """Returns for each row of the layer's weight, [rows], whether it may overflow."""
    model, _ = layer.model(np.uint8, 0)
    node = next(item for item in model.graph.node if item.op_type == layer.operator)
    products = LayerProducts.of(node, layer.weight().shape, runtime)
    if products is None:
        raise ValueError(f"the weight of '{layer.name}' is no matrix")
    rows = np.moveaxis(layer.weight(), products.axis, 0).astype(np.int16)
    sums = sum_pairs(rows.reshape(len(rows), -1), products.find_partners()).max(axis=1)
    return np.asarray(sums > PAIR_SUM)


def _find_wrong(layer: Layer, runtime: str, dtype: type, zero_point: int) -> NDArray[np.bool_]:
    model, shape = layer.model(dtype, zero_point)
    inputs = {"x": np.full(shape, np.iinfo(dtype).max - zero_point, np.float32)}
    wanted = open_runner(model)(inputs)["y"]
    with open_in_memory(model, runtime) as session:
        got = session.run(inputs)["y"]
    channels = np.moveaxis(np.abs(got - wanted), 1, 0).reshape(wanted.shape[1], -1)
    return np.asarray(channels.max(axis=1) > 0.05 * np.abs(wanted).max())


def _cells(row: dict[str, Any], runtimes: list[str]) -> tuple[str, ...]:
    found = (", ".join(str(count) for count in row[runtime]) for runtime in runtimes)
    return (row["layer"], str(row["pairs"]), *found)


if __name__ == "__main__":
    main()
