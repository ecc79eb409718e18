from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

torch = pytest.importorskip("torch", reason="trains networks: pip install framefit[torch,train]")

from artifacts.onnx_file import load_onnx  # noqa: E402
from benchmarks.fresh_networks import scenes, training  # noqa: E402
from benchmarks.peers.cases import CaseFiles, read_feeds  # noqa: E402
from benchmarks.peers.measure import judge_case  # noqa: E402
from benchmarks.peers.standing import counted_kinds  # noqa: E402
from benchmarks.unseen import page, trained  # noqa: E402
from benchmarks.unseen.networks import NETWORKS  # noqa: E402
from benchmarks.unseen.plans import build_plan  # noqa: E402


@pytest.fixture(scope="module")
def lessons() -> tuple[torch.Tensor, scenes.Targets]:
    return scenes.render_training(4, 5)


@pytest.mark.parametrize("name", NETWORKS)
def test_every_part_of_a_network_learns_and_every_head_answers(
    name: str, lessons: tuple[torch.Tensor, scenes.Targets]
) -> None:
    pictures, targets = lessons
    torch.manual_seed(0)
    network = NETWORKS[name]()
    outputs = network(pictures)
    network.lesson(outputs, targets).backward()
    still = [
        key
        for key, weight in network.named_parameters()
        if weight.requires_grad and (weight.grad is None or not weight.grad.isfinite().all())
    ]
    assert not still
    with torch.no_grad():
        larger = network.eval()(torch.rand(1, 3, trained.HEIGHT, trained.WIDTH))
    assert larger.keys() == outputs.keys()
    assert len(larger) >= 3
    for value in larger.values():
        assert value.isfinite().all()


@pytest.mark.slow
def test_training_lowers_the_loss(lessons: tuple[torch.Tensor, scenes.Targets]) -> None:
    torch.manual_seed(0)
    losses = training.train(NETWORKS["mobile_lanes"](), *lessons, steps=12)
    assert np.mean(losses[-3:]) < 0.95 * np.mean(losses[:3])


@pytest.mark.slow
def test_weights_are_trained_once_per_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained, "SCENES", 4)
    trained._render.cache_clear()
    (case,) = (
        case for case in trained.list_cases(tmp_path, steps=1) if case.name == "mobile_lanes"
    )
    files = CaseFiles(tmp_path / "case")
    files.folder.mkdir()
    case.write(files)
    (weights,) = tmp_path.glob("*.pt")
    before = weights.stat().st_mtime_ns
    trained.train_weights("mobile_lanes", tmp_path, 1)
    trained._render.cache_clear()
    assert [path.name for path in tmp_path.glob("*.pt")] == [weights.name]
    assert weights.stat().st_mtime_ns == before
    assert len(load_onnx(files.model).graph.output) == 10
    calibration, held_out = read_feeds(files.calibration), read_feeds(files.held_out)
    assert calibration[0]["image"].shape == (1, 3, trained.HEIGHT, trained.WIDTH)
    assert not any(
        np.array_equal(one["image"], other["image"]) for one in calibration for other in held_out
    )
    assert trained.digest("mobile_lanes", 1) != trained.digest("mobile_lanes", 2)


def test_the_page_counts_what_stands_and_what_is_slower_than_float() -> None:
    def row(db: float, ms: float, seconds: float) -> dict[str, Any]:
        outputs = {"y": {"sqnr_mean_db": db, "sqnr_db": db - 1}}
        return {
            "said": outputs, "run": outputs, "min_ms": ms, "cpu_ms": ms, "seconds": seconds,
            "import_s": 1.0 if seconds > 4 else 3.0,
        }  # fmt: skip

    case = judge_case(
        {
            "split": "some calibrate",
            "others": 0.0,
            "float_ms": 4.0,
            "float_cpu_ms": 8.0,
            "plan": {"is_buildable": False, "plan_bytes": 1},
            "files": {
                "NNCF default": row(30, 2.0, 5),
                "NNCF accurate": row(39, 1.0, 3),
                "NNCF mixed": {"failure": "a | b"},
                "framefit openvino": row(40, 2.0, 4.5),
                "framefit openvino timed": row(40, 2.0, 4.5),
                "framefit openvino quality": row(60, 5.0, 50),
            },
        }
    )
    summary = page.summarize_case(case)
    assert (summary["standing"], summary["judged"]) == (1, 2)
    assert summary["best_peer"] == "NNCF accurate"
    waited, worked = summary["cost"]["framefit openvino"]
    assert waited == pytest.approx(5.5 / 6)
    assert worked == pytest.approx(1.5)
    assert summary["slower"] == ["framefit openvino quality"]
    text = "\n".join(
        page.render(
            {"date": "today", "machine": "this", "versions": {"a": "1"}, "cases": {"net": case}}
        )
    )
    assert "NNCF accurate: 38.0 / 1.00" in text
    assert "built, but lint refuses it" in text
    assert "failed: a / b" in text
    assert "| 39.0 / 2.00 | - | 59.0 / 5.00 |" in text
    assert "Slower than float: framefit openvino quality." in text


def test_what_overflows_is_judged_by_what_is_computed() -> None:
    def row(said_db: float, run_db: float) -> dict[str, Any]:
        said, run = ({"y": {"sqnr_mean_db": db, "sqnr_db": db}} for db in (said_db, run_db))
        cost = {"min_ms": 1.0, "cpu_ms": 1.0, "seconds": 1.0, "import_s": 0.0}
        return {"said": said, "run": run, **cost}

    files = {"NNCF default": row(50, 10), "framefit openvino": row(40, 40)}
    case = {"others": 0.0, "float_ms": 4.0, "files": files}
    found = {}
    for overflows in (False, True):
        judged = judge_case(case, counted_kinds({"overflows": overflows}))
        standing = page.summarize_case(judged)["standing"]
        found[page.section_name({"overflows": overflows})] = standing
        assert page.judged_db(judged, "NNCF default")[0] == (10 if overflows else 50)
    assert found == {"unseen": 1, "unseen-without-vnni": 0}


def test_a_file_that_no_plan_can_be_built_of_says_why(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx", reason="builds a plan: pip install framefit[tensorrt-rtx]")
    weight = numpy_helper.from_array(np.ones((2, 2, 3, 3), np.float32), "w")
    scale = numpy_helper.from_array(np.float32(0.01), "s")
    zero_point = numpy_helper.from_array(np.int8(0), "z")
    pairs = [
        helper.make_node(operator, [f"{name}{before}", "s", "z"], [f"{name}{behind}"])
        for name in ("x", "w")
        for operator, before, behind in (
            ("QuantizeLinear", "", "_q"),
            ("DequantizeLinear", "_q", "_dq"),
        )
    ]

    def write(operator: str, name: str) -> Path:
        graph = helper.make_graph(
            [
                *pairs,
                helper.make_node("Conv", ["x_dq", "w_dq"], ["h"], pads=[1, 1, 1, 1]),
                helper.make_node(operator, ["h"], ["y"]),
            ],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 8, 8])],
            [weight, scale, zero_point],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.save(model, tmp_path / name)
        return tmp_path / name

    built = build_plan(write("Relu", "relu.onnx"))
    assert built["is_buildable"]
    assert built["plan_bytes"] > 0
    refused = build_plan(write("Bernoulli", "bernoulli.onnx"))
    assert not refused["is_buildable"]
    assert refused["failure"]
