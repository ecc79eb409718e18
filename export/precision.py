"""Gives every tensor of a network its precision: INT8 by its Q/DQ, FP16 elsewhere, FP32 if needed.

TensorRT 11 knows no FP16 flag: a network is strongly typed, and what is not FP16 in the graph runs
in FP32. The same graph builds under TensorRT 10 with `STRONGLY_TYPED`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from artifacts.errors import InputError
from artifacts.opset import upgrade_opset
from export.fp16_check import (
    Arrays,
    count_precisions,
    measure_ranges,
    remove_qdq,
    run_model,
    simulate_fp16,
)
from export.fp16_plan import DEQUANTIZE, QUANTIZE, SCALE_OPSET, KeptInFp32, Planner
from export.fp16_rewrite import Rewriter
from export.parity import measure_sqnr_db

MIN_SQNR_DB = 40.0
"""A float network's outputs keep at least this in FP16; usual are 55 dB and more."""

MAX_DROP_DB = 2.0
"""A quantized network's outputs lose at most this, or stay above `MIN_SQNR_DB`."""


@dataclass(frozen=True, kw_only=True)
class PrecisionResult:
    """A strongly typed network and what FP16 costs it.

    Attributes:
        model: the network; inputs and outputs are as before.
        counts: computing nodes by precision: int8, fp16, fp32.
        kept: nodes that stay in FP32 though FP16 has them, with the reason.
        sqnr_db: per output, against the network in FP32 without Q/DQ; infinite where equal.
        fp32_sqnr_db: the same before FP16 came in: infinite for a float network, what int8 alone
            costs for a quantized one.
        is_on_samples: whether that was measured on the caller's samples or on random input.
    """

    model: onnx.ModelProto
    counts: dict[str, int]
    kept: tuple[KeptInFp32, ...]
    sqnr_db: dict[str, float]
    fp32_sqnr_db: dict[str, float]
    is_on_samples: bool


def has_qdq(model: onnx.ModelProto) -> bool:
    """Returns whether a network holds quantize/dequantize pairs."""
    kinds = {node.op_type for node in model.graph.node}
    return {QUANTIZE, DEQUANTIZE} <= kinds or DEQUANTIZE in kinds


def apply_fp16(
    model: onnx.ModelProto,
    samples: Sequence[Mapping[str, NDArray[Any]]] = (),
    *,
    keep_fp32: Sequence[str] = (),
    name: str = "the network",
) -> PrecisionResult:
    """Turns a float or Q/DQ network into a strongly typed one with FP16 outside the Q/DQ.

    Casts and FP16 constants are written out; network inputs and outputs stay FP32. With Q/DQ the
    opset is raised to 19, where scales may be FP16; if that fails, quantized operators give FP32
    (their Q/DQ keep FP32 scales, without a cast in between) and the result says so.

    Args:
        model: checked and shape-inferred, static shapes, opset 13 or newer; it is not changed.
        samples: input arrays by name, to measure ranges and SQNR on; empty takes random input,
            which finds no overflow that only real input causes.
        keep_fp32: names of nodes to keep in FP32.
        name: what to call the network in messages.

    Returns:
        the network with its precisions and their cost.

    Raises:
        InputError: `keep_fp32` names an unknown node, or the result cannot be run or differs from
            FP32 by more than `MIN_SQNR_DB` and `MAX_DROP_DB` allow.
    """
    unknown = set(keep_fp32) - {node.name for node in model.graph.node}
    if unknown:
        raise InputError(f"{name} has no node '{min(unknown)}' to keep in FP32")
    if has_qdq(model):
        model = upgrade_opset(model, Path(name), target_opset=SCALE_OPSET)
    prepared = _inline_constants(model)
    inputs = list(samples) or [_random_sample(prepared)]
    planner = Planner(prepared, measure_ranges(prepared, inputs), frozenset(keep_fp32))
    plan = planner.plan()
    typed = Rewriter(prepared, plan).rewrite()
    onnx.checker.check_model(typed, full_check=True)
    before, after = _measure_cost(prepared, typed, inputs)
    for output, sqnr_db in after.items():
        least = min(MIN_SQNR_DB, before[output] - MAX_DROP_DB)
        if not sqnr_db >= least:
            raise InputError(
                f"{name}: FP16 brings output '{output}' to an SQNR of {sqnr_db:.1f} dB",
                f"at least {least:.1f} dB",
                "keep the nodes that need it in FP32 (--keep-fp32), or all (--no-fp16)",
            )
    return PrecisionResult(
        model=typed,
        counts=count_precisions(typed),
        kept=plan.kept,
        sqnr_db=after,
        fp32_sqnr_db=before,
        is_on_samples=bool(samples),
    )


def _measure_cost(
    reference: onnx.ModelProto,
    typed: onnx.ModelProto,
    samples: Sequence[Mapping[str, NDArray[Any]]],
) -> tuple[dict[str, float], dict[str, float]]:
    """Returns the SQNR per output over all samples, without FP16 and with it."""
    bare = run_model(remove_qdq(reference), samples)
    before = _compare(bare, run_model(reference, samples))
    return before, _compare(bare, run_model(simulate_fp16(typed), samples))


def _compare(wanted: list[Arrays], got: list[Arrays]) -> dict[str, float]:
    """Returns the SQNR per output; where only one side is finite, all is lost."""
    sqnr_db = {}
    for name in wanted[0]:
        left = np.stack([outputs[name] for outputs in wanted])
        right = np.stack([outputs[name] for outputs in got])
        finite = np.isfinite(left)
        if not np.array_equal(finite, np.isfinite(right)):
            sqnr_db[name] = float("-inf")
        else:
            sqnr_db[name] = measure_sqnr_db(left[finite], right[finite])
    return sqnr_db


def _inline_constants(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the model with its Constant nodes turned into initializers."""
    prepared = onnx.ModelProto()
    prepared.CopyFrom(model)
    kept = []
    for node in prepared.graph.node:
        value = helper.get_node_attr_value(node, "value") if _is_tensor_constant(node) else None
        if value is None:
            kept.append(node)
        else:
            value.name = node.output[0]
            prepared.graph.initializer.append(value)
    del prepared.graph.node[:]
    prepared.graph.node.extend(kept)
    return onnx.shape_inference.infer_shapes(prepared, data_prop=True)


def _is_tensor_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and any(item.name == "value" for item in node.attribute)


def _random_sample(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Returns normally distributed input, seeded."""
    generator = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    sample = {}
    for value in model.graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            shape = [dim.dim_value for dim in kind.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            sample[value.name] = generator.normal(size=shape).astype(dtype)
    return sample
