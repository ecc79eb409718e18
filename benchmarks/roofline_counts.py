"""Multiply-accumulates of ten timm networks, beside those that timm publishes.

    .venv/bin/python -m benchmarks.roofline_counts

timm's figures (results/benchmark-infer-amp-nchw-pt113-cu117-rtx3090.csv of its repository) come
from fvcore, which also counts two operations for each BatchNorm result and five for each LayerNorm
result. An exported network has no BatchNorm left: it is folded into the convolutions. The column
`as fvcore` adds these again; `difference` is that of the plain count, which must be within 1 %.
"""

import io
import tempfile
import warnings
from pathlib import Path
from typing import Any

from artifacts.onnx_file import load_onnx
from latency_budget.why.node_costs import NetworkCosts, count_network

PUBLISHED_GMACS = {
    "resnet18": (224, 1.82),
    "resnet34": (224, 3.67),
    "resnet50": (224, 4.11),
    "vgg11": (224, 7.61),
    "regnetx_032": (224, 3.2),
    "dla34": (224, 3.07),
    "repvgg_a2": (224, 5.7),
    "mixer_s16_224": (224, 3.79),
    "vit_small_patch16_224": (224, 4.61),
    "convnext_pico": (288, 2.27),
}


def main() -> None:
    """Prints a Markdown table and fails where a network differs by more than 1 %."""
    print("| network | published, GMACs | counted | difference | as fvcore |")
    print("|---|---:|---:|---:|---:|")
    worst = 0.0
    for name, (side, published) in PUBLISHED_GMACS.items():
        costs = count_network(_export(name, side))
        counted = costs.macs / 1e9
        difference = counted / published - 1
        worst = max(worst, abs(difference))
        print(
            f"| {name} | {published} | {counted:.3f} | {difference:+.2%} "
            f"| {counted + _normalisation(costs) / 1e9:.3f} |",
            flush=True,
        )
    print(f"\nlargest difference {worst:.2%}")
    if worst > 0.01:
        raise SystemExit("a count differs from the published one by more than 1 %")


def _export(name: str, side: int) -> Any:
    import timm
    import torch

    network = timm.create_model(name, pretrained=False).eval()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "network.onnx"
        stream = io.BytesIO()
        torch.onnx.export(
            network, (torch.zeros(1, 3, side, side),), stream, dynamo=False, opset_version=17
        )
        path.write_bytes(stream.getvalue())
        return load_onnx(path)


def _normalisation(costs: NetworkCosts) -> float:
    """What fvcore counts for the normalisation after each convolution, or for LayerNorm."""
    layer_norms = [n for n in costs.nodes if n.op_type in ("LayerNormalization", "ReduceMean")]
    if layer_norms:
        per_norm = 2 if layer_norms[0].op_type == "ReduceMean" else 1
        return sum(5 * node.read_bytes / 4 / node.passes / per_norm for node in layer_norms)
    return sum(2 * node.write_bytes / 4 for node in costs.nodes if node.op_type == "Conv")


if __name__ == "__main__":
    main()
