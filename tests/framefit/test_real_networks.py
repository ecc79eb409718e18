"""Networks that nobody here made, through the commands, judged on held-out pictures."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from artifacts.plan_manifest import read_manifest
from engines.runtimes import open_session

REAL = Path(__file__).parents[3] / "shared" / "real"

ULTRAFACE = ("--pixel-scale", "1", "--mean", "127,127,127", "--std", "128,128,128")


def copy_pictures(target: Path, pictures: list[Path]) -> Path:
    target.mkdir()
    for picture in pictures:
        shutil.copy(picture, target / f"{picture.parent.parent.name}-{picture.name}")
    return target


@pytest.mark.real
@pytest.mark.parametrize(
    ("model", "calibration", "held_out", "spec", "least_mean_db"),
    [
        (
            "ultraface/version-RFB-320.onnx",
            ("ultraface/images", slice(0, 8)),
            ("ultraface/images", slice(8, None)),
            ULTRAFACE,
            {"scores": 40.0, "boxes": 40.0},
        ),
        (
            "fastestdet/FastestDet.onnx",
            ("road", slice(None)),
            ("fastestdet/images", slice(None)),
            ("--color", "bgr"),
            {"758": 14.0},
        ),
    ],
)
def test_quantize_compare_build_and_run(
    run, folder: Path, exact_weights, model, calibration, held_out, spec, least_mean_db
) -> None:
    if not REAL.is_dir():
        pytest.skip("../shared/real, with the trained networks and pictures, is not there")
    folders = [
        copy_pictures(folder / name, sorted((REAL / source).glob("*.jpg"))[part])
        for name, (source, part) in (("calibration", calibration), ("held_out", held_out))
    ]
    source = (REAL / model).resolve()
    result = run(
        *("compress", "quantize", source, "--data", folders[0], *spec, "--out", "q.onnx"),
        *("--weights", exact_weights),
    )
    assert result.code == 0, result.err
    result = run("compress", "compare", source, "q.onnx", "--data", folders[1], "--json", "c.json")
    assert result.code == 0, result.err
    outputs = json.loads(Path("c.json").read_text())["outputs"]
    for name, floor_db in least_mean_db.items():
        assert outputs[name]["sqnr_mean_db"] >= floor_db

    result = run("export", "trt", "q.onnx", "--int8", "--sm", "86", "--sm", "89")
    if result.code == 4 and "tensorrt" in result.err:
        pytest.skip(f"no TensorRT here: {result.err}")
    assert result.code == 0, result.err
    assert set(read_manifest("q.plan").compute_capabilities) == {86, 89}

    with open_session("q.onnx", "openvino") as fast, open_session("q.onnx", "onnxruntime") as exact:
        rng = np.random.default_rng(0)
        feeds = {item.name: rng.random(item.shape, np.float32) for item in fast.inputs}
        got, wanted = fast.run(feeds), exact.run(feeds)
    for name, value in wanted.items():
        noise = np.square(got[name] - value).sum()
        assert noise < 0.05 * np.square(value).sum()
