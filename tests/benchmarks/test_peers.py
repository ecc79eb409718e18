from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.onnx_file import load_onnx, save_onnx
from benchmarks.peers import judge
from benchmarks.peers.cases import CaseFiles, own_case, read_feeds
from benchmarks.peers.judge import TITLES, measure_latency, measure_quality
from benchmarks.peers.makers import OURS, PEERS_PYTHON, Maker, list_ours, list_peers, make


@pytest.fixture
def files(tmp_path: Path) -> CaseFiles:
    files = CaseFiles(tmp_path)
    rng = np.random.default_rng(3)
    weight = rng.normal(size=(8, 3, 3, 3)).astype(np.float32)
    last = rng.normal(size=(4, 8, 1, 1)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["h"], name="first", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["h"], ["r"], name="relu"),
            helper.make_node("Conv", ["r", "v"], ["y"], name="second"),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 16, 16])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(last, "v")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, files.model)
    save_onnx(load_onnx(files.model), files.model, metadata={})
    for path in (files.calibration, files.held_out):
        np.savez(path, x=rng.random((4, 3, 16, 16), np.float32))
    return files


@pytest.mark.parametrize("runtime", TITLES)
def test_no_two_settings_write_the_same_file(files: CaseFiles, runtime: str) -> None:
    makers = [*list_peers(), *list_ours(runtime)]
    assert len({maker.out(files) for maker in makers}) == len(makers)
    for tool in {maker.tool for maker in makers}:
        costed = sum(maker.is_costed for maker in makers if maker.tool == tool)
        assert costed == (2 if tool == OURS else 1)


def test_framefit_makes_a_file_and_tells_its_cost(files: CaseFiles) -> None:
    maker = next(maker for maker in list_ours() if maker.is_costed)
    cost = make(maker, files, 4)
    assert cost.get("seconds", 0) > 0, cost
    assert cost["peak_mib"] > 50
    feeds = read_feeds(files.held_out)
    quality = measure_quality(files.model, {"ours": maker.out(files)}, feeds)["ours"]
    assert quality["said"]["y"]["sqnr_db"] > 25
    assert quality["run"]["y"]["sqnr_db"] > 25


def test_a_failure_is_told_in_one_line(files: CaseFiles) -> None:
    maker = Maker(tool=OURS, setting="x", script="child_framefit", options=("--target", "no"))
    cost = make(maker, files, 4)
    assert "\n" not in cost["failure"]
    assert cost["failure"]


def test_a_damaged_file_fails_alone(files: CaseFiles) -> None:
    damaged = files.folder / "damaged.onnx"
    damaged.write_bytes(b"no model")
    candidates = {"damaged": damaged, "float": files.model}
    quality = measure_quality(files.model, candidates, read_feeds(files.held_out))
    assert "failure" in quality["damaged"]["said"]
    assert "failure" in quality["damaged"]["run"]
    assert quality["float"]["said"]["y"]["sqnr_db"] > 100


@pytest.mark.parametrize("runtime", TITLES)
def test_a_file_is_judged_and_timed_on_each_runtime(files: CaseFiles, runtime: str) -> None:
    maker = next(maker for maker in list_ours(runtime) if maker.is_costed)
    assert "failure" not in make(maker, files, 4)
    paths = {"float": files.model, "ours": maker.out(files)}
    quality = measure_quality(files.model, paths, read_feeds(files.held_out), runtime)
    assert quality["float"]["run"]["y"]["sqnr_db"] > 100
    assert 25 < quality["ours"]["run"]["y"]["sqnr_db"] < 80
    latency = measure_latency(paths, 5, runtime)
    assert latency.keys() == paths.keys()
    for figures in latency.values():
        assert 0 < figures["min_ms"] <= min(figures["p50_ms"])
        assert len(figures["p50_ms"]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("maker", list_peers(), ids=lambda maker: maker.name)
def test_each_peer_makes_a_file_that_runs(files: CaseFiles, maker: Maker) -> None:
    if not PEERS_PYTHON.exists():
        pytest.skip("the peers' environment is missing: run 'make bench-quantize'")
    cost = make(maker, files, 4)
    assert "failure" not in cost, cost
    quality = measure_quality(files.model, {"it": maker.out(files)}, read_feeds(files.held_out))
    assert quality["it"]["run"]["y"]["sqnr_db"] > 10


def test_a_file_that_ends_the_runtime_fails_alone(
    files: CaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = CompletedProcess([], -11)
    monkeypatch.setattr(judge.subprocess, "run", lambda *args, **options: ended)
    quality = measure_quality(files.model, {"crashes": files.model}, read_feeds(files.held_out))
    assert quality["crashes"]["run"] == {"failure": "signal 11 when it is compiled"}
    assert "failure" not in quality["crashes"]["said"]


def test_a_network_of_ones_own_becomes_a_case(files: CaseFiles, tmp_path: Path) -> None:
    written = CaseFiles(tmp_path / "case")
    written.folder.mkdir()
    case = own_case(files.folder)
    case.write(written)
    assert case.name == files.folder.name
    assert [node.op_type for node in load_onnx(written.model).graph.node] == [
        "Conv",
        "Relu",
        "Conv",
    ]
    for own, copied in (
        (files.calibration, written.calibration),
        (files.held_out, written.held_out),
    ):
        np.testing.assert_array_equal(read_feeds(copied)[3]["x"], read_feeds(own)[3]["x"])
