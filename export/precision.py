"""Gives every tensor of a network its precision: INT8 by its Q/DQ, FP16 elsewhere, FP32 if needed.

TensorRT 11 knows no FP16 flag: a network is strongly typed, and what is not FP16 in the graph runs
in FP32. The same graph builds under TensorRT 10 with `STRONGLY_TYPED`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from artifacts.decided_outputs import find_choices, find_measured, pin_choices
from artifacts.errors import InputError
from artifacts.graph_checks import FLOAT_TYPES
from artifacts.graph_reading import read_tensors
from artifacts.half_precision import computes_in_bfloat16, widen_half
from artifacts.input_spec import InputSpec
from artifacts.opset import upgrade_opset
from artifacts.removed_pairs import remove_qdq
from artifacts.shape_inference import infer_shapes
from artifacts.synthetic_pictures import draw_prepared
from export.fp16_check import (
    Arrays,
    count_precisions,
    measure_ranges,
    run_model,
    simulate_fp16,
)
from export.fp16_plan import DEQUANTIZE, SCALE_OPSET, KeptInFp32, Planner
from export.fp16_rewrite import Rewriter
from export.fp16_scales import refit_weight_scales
from export.parity import measure_sqnr_db

MIN_SQNR_DB = 30.0
"""FP16 by itself leaves every output at least this on samples; 45 to 75 dB are usual."""

MIN_RANDOM_SQNR_DB = 20.0
"""The same on random pictures: they show only that nothing broke."""

MIN_AGREEMENT = 0.8
"""Share of an output's decisions (labels, masks) that FP16 by itself leaves as they are, at least;
on random pictures many are close."""


@dataclass(frozen=True, kw_only=True)
class PrecisionResult:
    """A strongly typed network and what FP16 costs it.

    Attributes:
        model: the network; inputs and outputs are as before.
        counts: computing nodes by precision: int8, fp16, fp32.
        kept: nodes that stay in FP32 though FP16 has them, with the reason.
        refitted: weights whose tiny scales were raised, see `export.fp16_scales`.
        sqnr_db: what FP16 by itself costs each output: the network with FP16 against FP32, both
            without Q/DQ; infinite where equal, NaN where other shapes came out.
        int8_sqnr_db: what int8 and FP16 together cost each output, against the network without
            both; None for a float network.
        is_on_samples: whether that was measured on the caller's samples or on random input.
    """

    model: onnx.ModelProto
    counts: dict[str, int]
    kept: tuple[KeptInFp32, ...]
    refitted: tuple[str, ...]
    sqnr_db: dict[str, float]
    int8_sqnr_db: dict[str, float] | None
    is_on_samples: bool


def has_qdq(model: onnx.ModelProto) -> bool:
    """Returns whether a network holds quantize/dequantize pairs."""
    return any(node.op_type == DEQUANTIZE for node in model.graph.node)


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
        InputError: `keep_fp32` names an unknown node, the result cannot be run, or FP16 brings an
            output below `MIN_SQNR_DB` (`MIN_RANDOM_SQNR_DB` without samples), or changes more of
            its decisions than `MIN_AGREEMENT` allows.
    """
    unknown = set(keep_fp32) - {node.name for node in model.graph.node}
    if unknown:
        raise InputError(f"{name} has no node '{min(unknown)}' to keep in FP32")
    if has_qdq(model):
        model = upgrade_opset(model, Path(name), target_opset=SCALE_OPSET)
    prepared = _inline_constants(widen_half(model) if computes_in_bfloat16(model) else model)
    inputs = list(samples) or [_random_sample(prepared)]
    fitted, refitted = refit_weight_scales(prepared)
    plan = Planner(fitted, _measure_widest(fitted, inputs), frozenset(keep_fp32)).plan()
    typed = Rewriter(fitted, plan).rewrite()
    onnx.checker.check_model(typed, full_check=True)
    simulation = simulate_fp16(typed)
    watched, choices = _find_watched(prepared), find_choices(prepared)
    shown = watched | {name: (name,) for name in choices}
    bare = run_model(_expose(remove_qdq(prepared), shown), inputs)
    given = [
        {**sample, **{name: outputs[name] for name in choices}}
        for sample, outputs in zip(inputs, bare, strict=True)
    ]
    halved = run_model(_expose(pin_choices(remove_qdq(simulation), choices), watched), given)
    costs = _compare(bare, halved, watched)
    _refuse_damage(name, costs, bare, halved, is_on_samples=bool(samples))
    return PrecisionResult(
        model=typed,
        counts=count_precisions(typed),
        kept=plan.kept,
        refitted=refitted,
        sqnr_db=costs,
        int8_sqnr_db=_compare(
            bare, run_model(_expose(pin_choices(simulation, choices), watched), given), watched
        )
        if has_qdq(model)
        else None,
        is_on_samples=bool(samples),
    )


def _measure_widest(
    model: onnx.ModelProto, samples: Sequence[Mapping[str, NDArray[Any]]]
) -> dict[str, float]:
    """Returns the largest magnitude of each tensor, with Q/DQ and without.

    What Q/DQ clips on these samples may pass on others, and FP16 is judged without them.
    """
    ranges = measure_ranges(model, samples)
    if has_qdq(model):
        for name, peak in measure_ranges(infer_shapes(remove_qdq(model)), samples).items():
            ranges[name] = max(ranges.get(name, 0.0), peak)
    return ranges


def _find_watched(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """Returns the tensors that each output is measured at.

    An output in float that depends on a decision (the sizes of a heatmap's best peaks), and one
    that says which places are the best, are measured at what is decided about and chosen from:
    near ties change places, which is no error. Labels and masks are measured as they are.
    """
    decided = find_measured(model)
    ranked: set[str] = set()
    for node in model.graph.node:
        if node.op_type == "TopK" or not ranked.isdisjoint(read_tensors(node)):
            ranked.update(node.output)
    watched = {}
    for value in model.graph.output:
        is_float = value.type.tensor_type.elem_type in FLOAT_TYPES
        found = decided.get(value.name, ()) if is_float or value.name in ranked else ()
        watched[value.name] = found or (value.name,)
    return watched


def _expose(model: onnx.ModelProto, watched: Mapping[str, tuple[str, ...]]) -> onnx.ModelProto:
    """Returns the model with every watched tensor as an output."""
    outputs = {value.name for value in model.graph.output}
    inner = {name for names in watched.values() for name in names} - outputs
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(inner))
    return exposed


def _compare(
    wanted: list[Arrays], got: list[Arrays], watched: Mapping[str, tuple[str, ...]]
) -> dict[str, float]:
    """Returns the SQNR per output, the worst of the tensors that it is measured at."""
    return {
        output: min(_compare_tensor(wanted, got, name) for name in names)
        for output, names in watched.items()
    }


def _compare_tensor(wanted: list[Arrays], got: list[Arrays], name: str) -> float:
    """Returns the SQNR of a tensor.

    Where only one side is finite, all is lost; where they have other shapes, such as other
    numbers of boxes, there is none (NaN).
    """
    if not _have_equal_shapes(wanted, got, name):
        return float("nan")
    left, right = _join(wanted, name), _join(got, name)
    finite = np.isfinite(left)
    if not np.array_equal(finite, np.isfinite(right)):
        return float("-inf")
    return measure_sqnr_db(left[finite], right[finite])


def _have_equal_shapes(wanted: list[Arrays], got: list[Arrays], name: str) -> bool:
    pairs = zip(wanted, got, strict=True)
    return all(left[name].shape == right[name].shape for left, right in pairs)


def _join(runs: list[Arrays], name: str) -> NDArray[Any]:
    return np.concatenate([outputs[name].reshape(-1) for outputs in runs])


def _refuse_damage(
    name: str,
    costs: dict[str, float],
    wanted: list[Arrays],
    got: list[Arrays],
    *,
    is_on_samples: bool,
) -> None:
    """Refuses what FP16 changes too much.

    Labels and masks are decisions: one that FP16 changes is no matter of decibels, so it is enough
    if most of them stay. How many boxes survive says nothing at all.

    Raises:
        InputError: it names the worst output.
    """
    least = MIN_SQNR_DB if is_on_samples else MIN_RANDOM_SQNR_DB
    fix = "keep the nodes that need it in FP32 (--keep-fp32), or all (--no-fp16)"
    if not is_on_samples:
        fix = f"check on pictures (--data) instead of random input; or {fix}"
    measured = {
        item: db
        for item, db in costs.items()
        if wanted[0][item].dtype.kind == "f" and not math.isnan(db)
    }
    worst = min(measured, key=lambda output: measured[output], default="")
    if worst and not measured[worst] >= least:
        raise InputError(
            f"{name}: FP16 brings output '{worst}' to an SQNR of {measured[worst]:.1f} dB",
            f"at least {least:.0f} dB",
            fix,
        )
    for output in costs:
        if output in measured or not _have_equal_shapes(wanted, got, output):
            continue
        left, right = _join(wanted, output), _join(got, output)
        kept = float(np.mean(left == right)) if left.size else 1.0
        if kept < MIN_AGREEMENT and not costs[output] >= least:
            raise InputError(
                f"{name}: with FP16 {kept:.0%} of the values of output '{output}' stay",
                f"at least {MIN_AGREEMENT:.0%}",
                fix,
            )


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
    return infer_shapes(prepared)


def _is_tensor_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and any(item.name == "value" for item in node.attribute)


def _random_sample(model: onnx.ModelProto) -> dict[str, NDArray[Any]]:
    """Returns random pixels as the network's input spec prepares them; without one, 0 to 1."""
    rng = np.random.default_rng(0)
    text = {item.key: item.value for item in model.metadata_props}.get("framefit.input_spec")
    spec = InputSpec.from_json(text) if text else InputSpec()
    weights = {tensor.name for tensor in model.graph.initializer}
    sample = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        kind = value.type.tensor_type
        shape = [dim.dim_value for dim in kind.shape.dim]
        values = draw_prepared(shape, rng, spec)
        sample[value.name] = values.astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return sample
