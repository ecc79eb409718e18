"""`framefit export` as typed, on small and on real networks."""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from artifacts.onnx_file import save_onnx
from artifacts.onnx_metadata import INPUT_SPEC_KEY, read_metadata
from artifacts.plan_manifest import read_verified_plan
from framefit.cli import main

needs_rtx = pytest.mark.skipif(
    importlib.util.find_spec("tensorrt_rtx") is None, reason="tensorrt_rtx is not installed"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@needs_rtx
def test_trt_builds_and_says_what_it_built(folder, int8_model, capsys):
    save_onnx(int8_model, folder / "model.int8.onnx", metadata={})
    arguments = ["export", "trt", "model.int8.onnx", "--int8", "--sm", "86", "--sm", "89"]
    assert main([*arguments, "--flavour", "tensorrt-rtx", "--json", "plan.json"]) == 0
    output = capsys.readouterr().out
    assert "compute capability 86, 89" in output
    assert "3 int8" in output
    written = json.loads((folder / "plan.json").read_text())
    assert written["compute_capabilities"] == [86, 89]
    assert len(read_verified_plan(written["plan"])) == written["plan_bytes"]


@needs_rtx
def test_trt_gives_no_figure_of_int8_on_random_input(folder, int8_model, capsys):
    save_onnx(int8_model, folder / "model.int8.onnx", metadata={})
    arguments = ["export", "trt", "model.int8.onnx", "--int8", "--sm", "86"]
    assert main([*arguments, "--flavour", "tensorrt-rtx"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "int8 is not judged on random input" in output
    assert json.loads((folder / "model.int8.plan.json").read_text())["plan_bytes"]


@needs_rtx
def test_trt_takes_the_newest_quantized_network_of_the_workspace(folder, int8_model, capsys):
    from framefit.workspace import Workspace

    assert main(["export", "trt", "--int8"]) == 2
    assert "no MODEL was given" in capsys.readouterr().err
    save_onnx(int8_model, folder / "mine.int8.onnx", metadata={})
    Workspace().record_artifact(folder / "mine.int8.onnx", "int8-onnx", "compress quantize")
    assert main(["export", "trt", "--int8", "--flavour", "tensorrt-rtx"]) == 0
    assert (folder / "mine.int8.plan").exists()
    assert Workspace().find_artifact("plan").name == "mine.int8.plan"


def test_python_m_export_is_the_same_command(folder):
    result = subprocess.run(
        [sys.executable, "-m", "export", "trt", "--int8"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "/usr/bin:/bin"},
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: no MODEL was given")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["trt", "missing.onnx"], "missing.onnx"),
        (["trt", "model.onnx", "--int8"], "compress quantize"),
        (["trt", "model.onnx", "--flavour", "tflite"], "flavour is 'tflite'"),
        (["trt", "model.onnx", "--out", "model.engine"], "ends in .plan"),
        (["trt", "model.onnx", "--keep-fp32", "nothing"], "no node 'nothing'"),
        (["trt", "model.pt"], "export onnx"),
        (["trt", "model.onnx", "--data", "nowhere"], "nowhere"),
        (["onnx", "missing.pt"], "missing.pt"),
        (["onnx", "model.onnx"], "model.onnx is an .onnx already"),
        (["onnx", "text.pt"], "text.pt"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(folder, float_model, arguments, complaint, capsys):
    save_onnx(float_model, folder / "model.onnx", metadata={})
    (folder / "text.pt").write_text("this is no checkpoint")
    before = sorted(folder.iterdir())
    assert main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_what_holds_no_network_is_not_sent_to_the_export(folder, capsys):
    (folder / "notes.md").write_text("# notes")
    assert main(["export", "trt", "notes.md"]) == 2
    assert capsys.readouterr().err == "error: notes.md is no ONNX model; expected an .onnx file\n"


def test_help_documents_the_removed_flags(capsys):
    assert main(["export", "trt", "--help"]) == 0
    output = capsys.readouterr().out
    for flag in ("--int8 with a calibrator", "--best", "--layerPrecisions", "--no-fp16"):
        assert flag in output


def test_onnx_exports_plain_weights_with_their_input_spec(folder, capsys):
    import torch
    from torch import nn

    (folder / "tiny_network.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 2, 3))\n"
    )
    torch.save(nn.Sequential(nn.Conv2d(3, 2, 3)).state_dict(), folder / "tiny.pt")
    arguments = ["export", "onnx", "tiny.pt", "--factory", "tiny_network:make"]
    shape = ["--input-shape", "1,3,12,16"]
    assert main([*arguments, *shape, "--color", "bgr", "--json", "export.json"]) == 0
    assert "tiny.onnx: exported by" in capsys.readouterr().out
    model = onnx.load(folder / "tiny.onnx")
    assert '"color": "bgr"' in read_metadata(model)[INPUT_SPEC_KEY]
    assert json.loads((folder / "export.json").read_text())["parity_max_abs"]["output"] < 1e-5
    assert main(arguments) == 2
    assert "--input-shape" in capsys.readouterr().err


@needs_rtx
@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "pictures", "spec"),
    [
        ("fastestdet/FastestDet.onnx", "fastestdet/images", []),
        (
            "ultraface/version-RFB-320.onnx",
            "ultraface/images",
            ["--mean", "0.498,0.498,0.498", "--std", "0.502,0.502,0.502"],
        ),
    ],
)
def test_real_networks_go_from_float_to_an_int8_plan(name, pictures, spec, folder, request, capsys):
    real = request.config.rootpath.parent / "shared" / "real"
    if not (real / name).exists():
        pytest.skip(f"{real / name} is absent")
    data = ["--data", str(real / pictures)]
    quantize = ["compress", "quantize", str(real / name), *data, "--samples", "2", *spec]
    assert main([*quantize, "--out", "int8.onnx"]) == 0
    arguments = ["export", "trt", "--int8", *data, "--flavour", "tensorrt-rtx"]
    assert main([*arguments, "--sm", "86", "--sm", "89", "--json", "plan.json"]) == 0
    plan = json.loads((folder / "plan.json").read_text())
    assert plan["compute_capabilities"] == [86, 89]
    assert plan["settings"]["nodes"]["int8"] > 50
    assert min(plan["settings"]["fp16_sqnr_db"].values()) > 30
    shutil.copy("int8.onnx", "copy.onnx")
    assert main(["engines", "run", "copy.onnx", *data, "--samples", "2"]) == 0
    captured = capsys.readouterr()
    assert "2 samples" in captured.out
    assert "'i8'" in captured.err
