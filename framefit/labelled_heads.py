"""The heads of a perception network that have labels: their loss, and their figures."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.file_kind import WEIGHT_SUFFIXES
from artifacts.input_spec import InputSpec
from framefit.training_samples import TrainingSamples

if TYPE_CHECKING:
    from torch import Tensor, nn

    from compress.distill.lesson import LabelLoss


def label_heads(module: "nn.Module") -> dict[str, Any]:
    """Returns the heads of a perception network, which know their labels; empty for others."""
    from perception.network import PerceptionNetwork

    return dict(module.heads.items()) if isinstance(module, PerceptionNetwork) else {}


def open_label_heads(path: Path) -> dict[str, Any]:
    """Returns the heads of a perception network's file, see `label_heads`; empty for others.

    Raises:
        InputError: the file is damaged.
    """
    from artifacts.checkpoint import build_module, find_checkpoint

    if path.suffix.lower() not in WEIGHT_SUFFIXES:
        return {}
    content = find_checkpoint(path)
    if content is None or not content.builder.startswith("perception."):
        return {}
    return label_heads(build_module(content, label=f"the weights of {path}"))


def read_label_loss(heads: Mapping[str, Any], samples: TrainingSamples) -> "LabelLoss | None":
    """Returns the loss on labels of the heads that have some; None without labels."""
    used = {name: head for name, head in heads.items() if name in samples.labelled}
    if not used:
        return None

    def loss(outputs: dict[str, "Tensor"], targets: dict[str, "Tensor"]) -> dict[str, "Tensor"]:
        terms = {}
        for head in used.values():
            terms.update(head.loss(outputs, targets))
        return terms

    return loss


def measure_heads(
    module: "nn.Module", samples: TrainingSamples, spec: InputSpec, count: int = 32
) -> dict[str, dict[str, Any]]:
    """Returns the headline figure per head on held-out scenes; empty without labelled scenes."""
    import torch

    from perception.evaluate import evaluate_outputs
    from perception.network import PerceptionNetwork

    if samples.scenes is None or not isinstance(module, PerceptionNetwork):
        return {}
    network = module.cpu().eval()

    def predict(image: Any) -> dict[str, Any]:
        with torch.inference_mode():
            return {name: value.numpy() for name, value in network(torch.from_numpy(image)).items()}

    scenes = samples.scenes(network.config["height"], network.config["width"])
    chosen = [scenes[index] for index in range(min(len(scenes), count))]
    heads = {
        name: values
        for name, values in network.heads_metadata.items()
        if not samples.labelled or name in samples.labelled
    }
    return evaluate_outputs(predict, chosen, spec, heads)
