"""A quantized network is run on its target, and what it computes there is told."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import engines.runtimes
import framefit.target_check
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from framefit.network_clock import NetworkClock
from framefit.target_check import check_on_target, warn_if_refused
from tests.framefit.conftest import make_network


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(2)
    return [{"image": rng.random((1, 3, 16, 24), np.float32)} for _ in range(6)]


@pytest.fixture(scope="module")
def quantized(samples, exact_weights):
    return quantize_model(make_network(), samples, QuantizeSettings(weights=exact_weights))


def time_network(model: onnx.ModelProto) -> float:
    return 1.0 if any(node.op_type == "QuantizeLinear" for node in model.graph.node) else 2.0


def check(quantized, samples) -> tuple:
    found = check_on_target(
        make_network(), quantized.model, samples, "openvino", quantized.outputs_db
    )
    return found.outputs_db["logits"], found.said_db


def test_a_target_that_does_what_the_file_says_is_not_warned_of(quantized, samples, caplog):
    there_db, said_db = check(quantized, samples)
    assert there_db == pytest.approx(quantized.outputs_db["logits"], abs=1.0)
    assert said_db == {}
    assert not caplog.messages


@pytest.mark.parametrize("flag", ["avx2", "avx_vnni"])
def test_a_target_that_computes_something_else_is_warned_of(
    flag, quantized, samples, caplog, monkeypatch
):
    monkeypatch.setattr(framefit.target_check, "read_flags", lambda: frozenset({"sse2", flag}))
    opened = engines.runtimes.open_session

    def open_wrong(*arguments):
        session = opened(*arguments)
        right = session.run
        session.run = lambda feeds: {"logits": right(feeds)["logits"][:, ::-1]}
        return session

    monkeypatch.setattr(engines.runtimes, "open_session", open_wrong)
    there_db, said_db = check(quantized, samples)
    assert there_db < 5.0
    assert said_db["logits"] == pytest.approx(quantized.outputs_db["logits"], abs=1.0)
    assert "openvino computes output 'logits'" in caplog.text
    assert ("no VNNI" in caplog.text) == (flag == "avx2")


def test_labels_are_judged_at_what_they_are_made_of(quantized, samples):
    labels = onnx.helper.make_node("ArgMax", ["logits"], ["labels"], name="decide", axis=1)
    ends = []
    for model in (make_network(), quantized.model):
        ends.append(onnx.ModelProto())
        ends[-1].CopyFrom(model)
        ends[-1].graph.node.append(labels)
        ends[-1].graph.output[0].CopyFrom(
            onnx.helper.make_tensor_value_info("labels", onnx.TensorProto.INT64, [1, 1, 16, 24])
        )
    found = check_on_target(*ends, samples, "openvino", {})
    assert found.outputs_db["labels"] == pytest.approx(quantized.outputs_db["logits"], abs=1.0)


def test_the_command_tells_both_figures(
    run, network: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine on which integers save time: what they do not make faster stays in float."""
    monkeypatch.setattr(NetworkClock, "__call__", lambda _, models: [*map(time_network, models)])
    result = run(
        *("compress", "quantize", network, "--data", pictures, "--target", "openvino"),
        *("--json", "out.json"),
    )
    assert result.code == 0, result.err
    stored = json.loads(Path("out.json").read_text(encoding="utf-8"))
    there = stored["on_target"]
    assert there["runtime"] == "openvino"
    assert there["outputs_db"]["logits"] == pytest.approx(
        stored["outputs"]["logits"]["sqnr_db"], abs=1.0
    )
    assert f"{there['outputs_db']['logits']:.1f}" in result.out
    assert f"on openvino, {there['samples']} of them" in result.out


@pytest.mark.parametrize("target", ["openvino", "onnxruntime", "tensorrt"])
@pytest.mark.parametrize("is_read", [True, False])
def test_a_network_that_its_target_does_not_open_is_warned_of(target, is_read, caplog):
    model = make_network()
    if not is_read:
        model.graph.node.append(onnx.helper.make_node("Foo", ["image"], ["foo"], domain="mine"))
        model.graph.output.append(onnx.helper.make_tensor_value_info("foo", 1, None))
        model.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    warn_if_refused(model, target)
    is_asked = target != "tensorrt"
    assert bool(caplog.messages) == (is_asked and not is_read)
    assert all("Foo" in text and f"--target {target}" in text for text in caplog.messages)
