import importlib.util

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnx_file import load_onnx
from export.fp16_check import run_model
from export.lint.report import lint_file
from export.scattered_sums import gather_scattered_sums
from export.to_trt import PlanSettings, build_plans

RNG = np.random.default_rng(0)
CHANNELS, CELLS, POINTS = 3, 20, 200
CROWDED = np.minimum(RNG.geometric(0.2, POINTS), CELLS - 4) - 1
"""The cell of each point: some have dozens, some one, the last ones none."""
ALIKE = np.broadcast_to(CROWDED, (1, CHANNELS, POINTS))
COLUMNS = np.stack([CROWDED // 5, CROWDED % 5 - 5], axis=-1)
CASES = {
    "rows": ("ScatterND", (CELLS, CHANNELS), CROWDED[:, None], {}),
    "cells": ("ScatterND", (4, 5, CHANNELS), COLUMNS.reshape(10, 20, 2), {}),
    "slices": ("ScatterElements", (1, CHANNELS, CELLS), ALIKE, {"axis": -1}),
    "values": ("ScatterElements", (1, CHANNELS, CELLS), RNG.permuted(ALIKE, axis=2), {"axis": 2}),
    "a part": ("ScatterElements", (4, CHANNELS, CELLS), ALIKE[:, :2], {"axis": 2}),
}


def make_network(path, operator, shape, indices, attributes, reduction="add", computed=()):
    """Writes points + cells → a scatter that adds; `computed` nodes make 'indices' of 'held'."""
    whole = indices.shape[-1] if operator == "ScatterND" else 0
    given = (*indices.shape[:-1], *shape[whole:]) if whole else indices.shape
    names = ["cells", "indices", "points"]
    scatter = helper.make_node(operator, names, ["y"], "add", reduction=reduction, **attributes)
    held = numpy_helper.from_array(indices.astype(np.int64), "held" if computed else "indices")
    graph = helper.make_graph(
        [*computed, scatter],
        "sums",
        [
            helper.make_tensor_value_info("cells", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info("points", TensorProto.FLOAT, given),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [held],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    feeds = {"cells": shape, "points": given}
    return path, {key: RNG.normal(size=size).astype(np.float32) for key, size in feeds.items()}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_sums_at_constant_places_stay_the_same_without_scatter(case, tmp_path):
    path, feeds = make_network(tmp_path / "a.onnx", *case)
    model = load_onnx(path)
    written = gather_scattered_sums(model)
    onnx.checker.check_model(written, full_check=True)
    assert not any(node.op_type.startswith("Scatter") for node in written.graph.node)
    (wanted,), (got,) = run_model(model, [feeds]), run_model(written, [feeds])
    np.testing.assert_allclose(got["y"], wanted["y"], atol=1e-5)
    read = [np.prod(i.dims) for i in written.graph.initializer if i.name.startswith("add_sum")]
    assert max(read) <= max(2 * np.prod(case[2].shape), np.prod(case[1]))


def test_places_that_constants_give_are_computed(tmp_path):
    widen = helper.make_node("Neg", ["held"], ["indices"], "widen")
    operator, shape, indices, _ = CASES["rows"]
    path, feeds = make_network(
        tmp_path / "a.onnx", operator, shape, -indices, {}, computed=(widen,)
    )
    model = load_onnx(path)
    written = gather_scattered_sums(model)
    assert not any(node.op_type == operator for node in written.graph.node)
    (wanted,), (got,) = run_model(model, [feeds]), run_model(written, [feeds])
    np.testing.assert_allclose(got["y"], wanted["y"], atol=1e-5)


def test_other_scatters_stay_as_they_are(tmp_path):
    for reduction in ("none", "max"):
        path, _ = make_network(tmp_path / f"{reduction}.onnx", *CASES["rows"], reduction=reduction)
        model = load_onnx(path)
        assert gather_scattered_sums(model) is model


@pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)
@pytest.mark.parametrize("name", ["rows", "slices"])
def test_a_network_that_adds_at_constant_places_builds(name, tmp_path):
    path, _ = make_network(tmp_path / "a.onnx", *CASES[name])
    assert lint_file(path).is_buildable
    (result,) = build_plans(path, settings=PlanSettings(flavour="tensorrt-rtx"))
    assert result.path.stat().st_size
