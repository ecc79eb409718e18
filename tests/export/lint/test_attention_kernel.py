"""Which forms of the Attention operator TensorRT-RTX builds, as lint says."""

import numpy as np
import pytest
from onnx import TensorProto

from export.lint import lint_model
from export.precision import apply_fp16

LENGTH, HEADS = 16, 2
HEADS_SECOND = [0, 2, 1, 3]


def draw_attention(
    draw, *, axes=3, size=16, mask=None, pairs="", key_heads=HEADS, dtype=np.float32, **attributes
):
    heads = {"q": HEADS, "k": key_heads, "v": key_heads}
    d = draw(**{name: (1, LENGTH, count * size) for name, count in heads.items()})
    if axes == "heads":
        d.inputs = {name: (1, count, LENGTH, size) for name, count in heads.items()}
    names = []
    for name, count in heads.items():
        if axes == "reshaped":
            parts = d.op("Reshape", name, d.constant(np.asarray([1, LENGTH, count, size])))
            name = d.op("Transpose", parts, perm=HEADS_SECOND)
        scale = dtype(0.05)
        names.append(d.pair(name, scale) if name[0] in pairs else name)
    if mask is not None:
        d.inputs["mask"] = mask
        names.append("mask")
    if dtype == np.float16:
        d.types = dict.fromkeys((*d.inputs, "node"), TensorProto.FLOAT16)
    if axes == 3:
        attributes |= {"q_num_heads": HEADS, "kv_num_heads": key_heads}
    return d.model(d.op("Attention", *names, name="node", **attributes), opset=23)


ANYHOW = [{}, {"axes": "reshaped"}, {"size": 8}, {"axes": "reshaped", "size": 300}]
IN_FP16 = [
    {"axes": "heads"},
    {"mask": (LENGTH, LENGTH)},
    {"axes": "heads", "mask": (1, HEADS, LENGTH, LENGTH)},
    {"is_causal": 1},
    {"pairs": "qkv"},
    {"key_heads": 1},
    {"axes": "heads", "size": 256},
]
NEVER = [
    {"axes": "heads", "size": 8},
    {"size": 8, "is_causal": 1},
    {"size": 8, "pairs": "q"},
    {"size": 8, "key_heads": 1},
    {"axes": "heads", "size": 264},
    {"mask": (LENGTH, LENGTH), "is_causal": 1},
    {"softcap": 2.0},
]


@pytest.mark.parametrize("form", ANYHOW)
def test_plain_attention_builds_in_any_type(form, draw, build_with_rtx):
    for dtype in (np.float32, np.float16):
        model = draw_attention(draw, dtype=dtype, **form)
        assert not lint_model(model, target="tensorrt-rtx").findings
        assert build_with_rtx(model)["is_built"]


@pytest.mark.parametrize("form", IN_FP16)
def test_what_a_fused_kernel_computes_builds_in_fp16_only(form, draw, build_with_rtx):
    model = draw_attention(draw, **form)
    report = lint_model(model, target="tensorrt-rtx")
    assert [item.severity for item in report.findings if item.rule == "attention-kernel"] == [
        "warning"
    ]
    assert report.is_buildable
    assert not build_with_rtx(model)["is_built"]
    assert build_with_rtx(apply_fp16(model).model)["is_built"]


@pytest.mark.parametrize("form", NEVER)
def test_what_no_kernel_computes_is_an_error(form, draw, build_with_rtx):
    for dtype in (np.float32, np.float16):
        model = draw_attention(draw, dtype=dtype, **form)
        assert not lint_model(model, target="tensorrt-rtx").is_buildable
        assert not build_with_rtx(model)["is_built"]
