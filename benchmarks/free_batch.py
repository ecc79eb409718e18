"""Which networks with a free batch keep it: `python -m benchmarks.free_batch [NAME …]`.

Architectures of timm with random weights are exported with a free batch (opset 17, the exporter by
tracing) and quantized for TensorRT and for OpenVINO on random pictures.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import timm
import torch

from compress.quantize.settings import QuantizeSettings
from export.quiet import quiet
from framefit.quantize_job import quantize_file

SIZE = 224
NAMES = (
    "resnet18",
    "convnext_atto",
    "mobilevit_xxs",
    "edgenext_xx_small",
    "efficientformer_l1",
    "vit_tiny_patch16_224",
    "swin_tiny_patch4_window7_224",
)


def export_free(name: str, path: Path) -> None:
    """Writes an architecture as an ONNX file whose batch is free."""
    torch.manual_seed(0)
    module = timm.create_model(name, num_classes=10).eval()
    with quiet():
        torch.onnx.export(
            module,
            (torch.rand(2, 3, SIZE, SIZE),),
            str(path),
            input_names=["image"],
            output_names=["classes"],
            dynamic_axes={"image": {0: "batch"}, "classes": {0: "batch"}},
            opset_version=17,
            dynamo=False,
        )


def keeps_batch(name: str, target: str, folder: Path) -> bool:
    """Tells whether the quantized network computes with any batch."""
    model, data = folder / f"{name}.onnx", folder / "data.npz"
    if not model.is_file():
        export_free(name, model)
    pictures = np.random.default_rng(0).random((4, 3, SIZE, SIZE), np.float32)
    np.savez(data, image=pictures)
    outcome = quantize_file(
        model,
        str(data),
        QuantizeSettings(target=target),
        out=folder / f"{name}.{target}.onnx",
        is_timed=False,
    )
    return bool(outcome.has_free_batch)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for name in sys.argv[1:] or NAMES:
            for target in ("tensorrt", "openvino"):
                kept = keeps_batch(name, target, Path(made))
                print(f"{name}, {target}: {'free' if kept else '1'}", flush=True)
