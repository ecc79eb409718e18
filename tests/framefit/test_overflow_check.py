"""Whoever runs or times a network on a processor that overflows on it is told."""

import numpy as np
import onnx
import pytest

from artifacts.onnx_file import save_onnx
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from framefit import overflow_check
from tests.framefit.conftest import make_network

WITHOUT_VNNI, WITH_VNNI = frozenset({"sse2", "avx2"}), frozenset({"sse2", "avx2", "avx_vnni"})
BENCH = ("engines", "bench", "net.onnx", "--runs", 5)
INIT = ("budget", "init", "new.toml", "net.onnx", "--frames", 20, "--rate-hz", 200)
SAID = "openvino may compute net.onnx otherwise than the file says, by "


@pytest.fixture(scope="module")
def quantized() -> dict[str, onnx.ModelProto]:
    rng = np.random.default_rng(2)
    samples = [{"image": rng.random((1, 3, 16, 24), np.float32)} for _ in range(4)]
    return {
        weights: quantize_model(make_network(), samples, QuantizeSettings(weights=weights)).model
        for weights in ("int8", "int8-pairs")
    }


@pytest.mark.parametrize(
    ("command", "weights", "flags", "is_warned"),
    [
        (BENCH, "int8", WITHOUT_VNNI, True),
        (INIT, "int8", WITHOUT_VNNI, True),
        (BENCH, "int8-pairs", WITHOUT_VNNI, False),
        (BENCH, "int8", WITH_VNNI, False),
        (BENCH, "int8", frozenset(), False),
    ],
)
def test_a_network_that_overflows_here_is_warned_of(
    quantized, run, folder, monkeypatch, command, weights, flags, is_warned
) -> None:
    save_onnx(quantized[weights], folder / "net.onnx", metadata={})
    monkeypatch.setattr(overflow_check, "read_flags", lambda: flags)
    done = run(*command)
    assert done.code == 0, done.err
    assert done.err.count(SAID) == is_warned
    assert ("quantize with --weights int8-pairs" in done.err) == is_warned


def test_a_network_of_a_free_size_is_warned_of(quantized, run, folder, monkeypatch) -> None:
    free = onnx.ModelProto()
    free.CopyFrom(quantized["int8"])
    for value in (*free.graph.input, *free.graph.output):
        value.type.tensor_type.shape.dim[2].dim_param = "height"
    del free.graph.value_info[:]
    onnx.save(free, folder / "net.onnx", save_as_external_data=True, size_threshold=0)
    monkeypatch.setattr(overflow_check, "read_flags", lambda: WITHOUT_VNNI)
    done = run(*BENCH, "--input-shape", "1,3,16,24")
    assert done.code == 0, done.err
    assert SAID in done.err


def test_what_no_such_runtime_opens_is_not_read(tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(overflow_check, "read_flags", lambda: WITHOUT_VNNI)
    overflow_check.warn_of_overflow(tmp_path / "absent.plan", None)
    overflow_check.warn_of_overflow(tmp_path / "absent.onnx", "tensorrt")
    assert not caplog.messages
