"""The trained networks of ../shared/real: quality on held-out pictures, speed and plans."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors
from artifacts.samples import open_samples
from benchmarks.interleaved import time_networks
from compress.compare import compare_models
from compress.quantize.api import quantize_model
from compress.quantize.settings import QuantizeSettings
from export.to_trt import PlanSettings, build_plans

REAL = Path(__file__).parents[2] / "shared" / "real"
TARGETS = ("tensorrt", "openvino")


@dataclass(frozen=True)
class RealNetwork:
    """A network with the pictures it is calibrated and judged on.

    Attributes:
        name: what the table calls it.
        model: the `.onnx` file, below `REAL`.
        spec: how pixels become its input.
        calibration, held_out: file patterns below `REAL`, and every which picture of them is taken
            (start and step); the two never share a picture.
        split: the same in words.
    """

    name: str
    model: str
    spec: InputSpec
    calibration: tuple[str, slice]
    held_out: tuple[str, slice]
    split: str


NETWORKS = (
    RealNetwork(
        "UltraFace RFB-320",
        "ultraface/version-RFB-320.onnx",
        InputSpec(pixel_scale=1.0, mean=(127.0,) * 3, std=(128.0,) * 3),
        ("ultraface/images/*.jpg", slice(0, 8)),
        ("ultraface/images/*.jpg", slice(8, None)),
        "8 of its 12 pictures calibrate, the last 4 are held out",
    ),
    RealNetwork(
        "FastestDet",
        "fastestdet/FastestDet.onnx",
        InputSpec(color="bgr"),
        ("road/*.jpg", slice(None)),
        ("fastestdet/images/*.jpg", slice(None)),
        "the 13 road pictures calibrate, its own 5 are held out",
    ),
)


def measure_real_networks() -> list[dict[str, Any]]:
    """Returns one row per network and target; empty where ../shared/real is absent."""
    if not REAL.is_dir():
        return []
    rows: list[dict[str, Any]] = []
    for network in NETWORKS:
        with TemporaryDirectory() as folder:
            rows += _measure(network, Path(folder))
    return rows


def _measure(network: RealNetwork, folder: Path) -> list[dict[str, Any]]:
    model = load_onnx(REAL / network.model)
    calibration, held_out = (
        open_pictures(network, model, *choice) for choice in (network.calibration, network.held_out)
    )
    paths = {"float": folder / "float.onnx"}
    save_onnx(model, paths["float"], metadata={})
    quality, plans = {}, {}
    for target in TARGETS:
        result = quantize_model(model, calibration, QuantizeSettings(target=target))
        paths[target] = folder / f"{target}.onnx"
        save_onnx(result.model, paths[target], metadata={})
        quality[target] = compare_models(model, result.model, held_out)["outputs"]
        plans[target] = "-"
    settings = PlanSettings(int8=True, sm=(86, 89))
    built = build_plans(paths["tensorrt"], folder / "n.plan", settings=settings, samples=held_out)
    plans["tensorrt"] = ", ".join(str(sm) for sm in built[0].manifest.compute_capabilities)
    times = time_networks(paths)
    return [
        {
            "network": network.name,
            "split": network.split,
            "target": target,
            "outputs": quality[target],
            "float_ms": times["float"]["p50_ms"],
            "int8_ms": times[target]["p50_ms"],
            "smaller": paths["float"].stat().st_size / paths[target].stat().st_size,
            "plans": plans[target],
        }
        for target in TARGETS
    ]


def open_pictures(network: RealNetwork, model: Any, pattern: str, part: slice) -> Sequence[Any]:
    """Returns one sample per picture of a file pattern below `REAL`."""
    inputs = input_tensors(model)
    return [
        open_samples(path, inputs, network.spec)[0] for path in sorted(REAL.glob(pattern))[part]
    ]
