"""What the command decides before it quantizes."""

import pytest
from onnx import helper

import framefit.quantize_choices
from compress.quantize.settings import QuantizeSettings
from framefit.quantize_choices import choose_weights, settle_forms, warn_of_pairs
from framefit.quantize_job import warn_of_computed_sizes


@pytest.mark.parametrize(
    ("target", "flag", "weights"),
    [
        ("openvino", "avx2", "int8-pairs"),
        ("onnxruntime", "avx2", "int8-pairs"),
        ("openvino", "avx_vnni", "int8"),
        ("tensorrt", "avx2", "int8"),
        (None, "avx2", "int8-pairs"),
        (None, "avx_vnni", "int8"),
    ],
)
def test_weights_are_paired_where_they_would_overflow_here(
    target, flag, weights, monkeypatch, caplog
) -> None:
    flags = frozenset({"sse2", flag})
    monkeypatch.setattr(framefit.quantize_choices, "read_flags", lambda: flags)
    assert choose_weights(target) == weights
    assert not caplog.messages
    warn_of_pairs(weights, target)
    assert ("--weights int8" in caplog.text) == (weights == "int8-pairs")


VNNI = frozenset({"sse2", "avx512_vnni"})
AMX = VNNI | {"amx_int8"}
AVX2 = frozenset({"sse2", "avx2"})


@pytest.mark.parametrize(
    ("flags", "asked", "symmetric"),
    [
        (VNNI, {}, False),
        (AMX, {}, None),
        (AVX2, {"weights": "int8-pairs"}, False),
        (VNNI, {"prefer": "speed"}, None),
        (VNNI, {"within_ms": 5.0}, None),
        (VNNI, {"prefer": "quality"}, False),
        (VNNI, {"symmetric": True}, True),
        (VNNI, {"target": "onnxruntime"}, None),
        (VNNI, {"activations": "float"}, None),
    ],
)
def test_zero_points_that_cost_no_time_are_not_timed(flags, asked, symmetric, monkeypatch) -> None:
    monkeypatch.setattr(framefit.quantize_choices, "read_flags", lambda: flags)
    settings = QuantizeSettings(**({"target": "openvino"} | asked))
    assert settle_forms(settings).symmetric is symmetric


@pytest.mark.parametrize(
    ("flags", "asked", "by_tanh"),
    [
        (AVX2, {}, False),
        (AVX2, {"prefer": "speed"}, False),
        (AVX2, {"swish_by_tanh": True}, True),
        (AVX2, {"target": "onnxruntime"}, None),
        (AVX2 | {"avx512f"}, {}, None),
        (VNNI, {}, False),
        (VNNI, {"swish_by_tanh": True}, True),
        (frozenset({"sse2", "avx2", "avx_vnni"}), {}, None),
        (AMX, {}, None),
    ],
)
def test_silu_stays_as_it_is_where_that_was_always_faster(
    flags, asked, by_tanh, monkeypatch
) -> None:
    monkeypatch.setattr(framefit.quantize_choices, "read_flags", lambda: flags)
    settings = QuantizeSettings(**({"target": "openvino"} | asked))
    assert settle_forms(settings).swish_by_tanh is by_tanh


@pytest.mark.parametrize(
    ("asked", "weights"),
    [
        (("--target", "openvino"), "int8-pairs"),
        ((), "int8-pairs"),
        (("--target", "tensorrt"), "int8"),
        (("--target", "openvino", "--weights", "int8"), "int8"),
    ],
)
def test_the_command_takes_the_type_that_was_asked_for(
    asked, weights, run, network, pictures, folder, monkeypatch
) -> None:
    monkeypatch.setattr(framefit.quantize_choices, "read_flags", lambda: frozenset({"sse2"}))
    result = run(
        *("compress", "quantize", network, "--data", pictures),
        *("--pixel-scale", "255", "--no-timing", "--json", "done.json", *asked),
    )
    assert result.code == 0, result.err
    assert f'"weights": "{weights}"' in (folder / "done.json").read_text(encoding="utf-8")
    assert (folder / "net.int8.onnx").exists()


def test_a_current_folder_that_cannot_be_written_stops_no_work(
    run, network, pictures, folder, tmp_path_factory
) -> None:
    (folder / ".framefit").write_text("in the way", encoding="utf-8")
    out = tmp_path_factory.mktemp("elsewhere") / "net.onnx"
    result = run("compress", "quantize", network, "--data", pictures, "--out", str(out))
    assert result.code == 0, result.err
    assert "will begin anew" in result.err
    assert out.exists()


@pytest.mark.parametrize("is_computed", [False, True])
def test_sizes_made_of_a_free_batch_are_warned_of_where_openvino_runs_them(is_computed, caplog):
    makers = [helper.make_node("Identity", ["sizes"], ["made"])] if is_computed else []
    sizes = "made" if is_computed else "sizes"
    resize = helper.make_node("Resize", ["x", "", "", sizes], ["y"], "enlarge")
    graph = helper.make_graph([*makers, resize], "g", [], [])
    warn_of_computed_sizes(helper.make_model(graph))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == is_computed
    assert all(
        line.startswith("enlarge: resized to sizes made of the free batch") for line in lines
    )
    assert all("opset 18 or newer" in line for line in lines)
