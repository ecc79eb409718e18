"""What each runtime's ONNX reader takes."""

from dataclasses import dataclass

from artifacts.errors import InputError

_NEVER_IN_TENSORRT = frozenset(
    {
        "AffineGrid",
        "Bernoulli",
        "BitCast",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "CausalConvWithState",
        "CenterCropPad",
        "Col2Im",
        "Compress",
        "ConcatFromSequence",
        "ConvInteger",
        "CumProd",
        "DFT",
        "Det",
        "DynamicQuantizeLinear",
        "ImageDecoder",
        "LinearAttention",
        "MatMulInteger",
        "MaxRoiPool",
        "MaxUnpool",
        "MelWeightMatrix",
        "Multinomial",
        "NegativeLogLikelihoodLoss",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "QLinearConv",
        "QLinearMatMul",
        "RegexFullMatch",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SequenceMap",
        "SoftmaxCrossEntropyLoss",
        "SplitToSequence",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "SwiGLU",
        "TfIdfVectorizer",
        "Unique",
    }
)
"""From `operators.md` of the ONNX parser (10.15), and `supports_operator` of TensorRT-RTX 1.7."""

_ONLY_IN_CLASSIC = frozenset({"DeformConv", "NonMaxSuppression", "NonZero", "RoiAlign"})
"""Implemented by plugins or kernels that TensorRT-RTX does not ship; found by building them."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A runtime as the rules see it.

    Attributes:
        name: what `--target` calls it.
        title: what messages call it.
        newest_opset: the newest standard operator set that its reader promises to read.
        refused_operators: operators of ONNX that it does not have.
        is_tensorrt: whether TensorRT's rules of quantization hold.
        is_rtx: whether it is TensorRT-RTX.
        float_bytes: size of an activation outside the Q/DQ, as `export trt` types it.
    """

    name: str
    title: str
    newest_opset: int
    refused_operators: frozenset[str] = frozenset()
    is_tensorrt: bool = False
    is_rtx: bool = False
    float_bytes: int = 4


_ALL = (
    Target(
        name="tensorrt-10",
        title="TensorRT 10",
        newest_opset=24,
        refused_operators=_NEVER_IN_TENSORRT | {"Swish"},
        is_tensorrt=True,
        float_bytes=2,
    ),
    Target(
        name="tensorrt-11",
        title="TensorRT 11",
        newest_opset=24,
        refused_operators=_NEVER_IN_TENSORRT,
        is_tensorrt=True,
        float_bytes=2,
    ),
    Target(
        name="tensorrt-rtx",
        title="TensorRT-RTX",
        newest_opset=25,
        refused_operators=_NEVER_IN_TENSORRT | _ONLY_IN_CLASSIC,
        is_tensorrt=True,
        is_rtx=True,
        float_bytes=2,
    ),
    Target(name="openvino", title="OpenVINO", newest_opset=24),
    Target(name="onnxruntime", title="onnxruntime", newest_opset=26),
)
TARGETS = {target.name: target for target in _ALL}
DEFAULT_TARGET = "tensorrt-11"
UNVERSIONED = {"tensorrt": DEFAULT_TARGET}
"""Names that `compress quantize --target` knows, and which target each stands for here."""


def find_target(name: str) -> Target:
    """Returns a target by name.

    Raises:
        InputError: there is none of that name.
    """
    name = UNVERSIONED.get(name, name)
    if name not in TARGETS:
        raise InputError(f"target is '{name}'", f"one of {', '.join(TARGETS)}")
    return TARGETS[name]
