"""The multi-head network: a shared backbone from timm, a light neck, one head per task."""

from typing import Any

import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from perception.heads import HEADS
from perception.heads.head import Head
from perception.neck import Neck

DEFAULT_CONFIG: dict[str, Any] = {
    "backbone": "resnet18",
    "out_indices": [1, 2, 3],
    "neck_channels": 40,
    "height": 288,
    "width": 512,
    "heads": {"detection": {}, "segmentation": {}, "depth": {}},
}


class PerceptionNetwork(nn.Module):
    """A backbone, a neck and the heads of `config`.

    Attributes:
        config: what `build` was given, completed with defaults.
        output_names: names of the outputs, in the order in which an export lists them.
        heads_metadata: per head its outputs, classes and strides, as stored in every artifact.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        size = (int(config["height"]), int(config["width"]))
        self.backbone = _backbone(config["backbone"], config["out_indices"])
        channels, strides = _measure(self.backbone, size)
        self.strides = strides
        self.neck = Neck(channels, config["neck_channels"])
        heads: dict[str, Head] = {}
        for name, settings in config["heads"].items():
            heads[name] = _head(name, config["neck_channels"], strides, settings)
        self.heads = nn.ModuleDict(heads)
        self.output_names = tuple(name for head in heads.values() for name in head.output_names)
        self.heads_metadata = {name: head.metadata for name, head in heads.items()}

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Runs the network.

        Args:
            x: [N, 3, H, W] float32, prepared as the input spec says.

        Returns:
            the raw outputs of every head's last convolution, in the order of `output_names`:
            logits, log distances and log inverse depth. Nothing is decoded here, so that INT8
            engines see convolutions only.
        """
        features = [
            _channels_first(feature, stride, x)
            for feature, stride in zip(self.backbone(x), self.strides, strict=True)
        ]
        levels = dict(zip(self.strides, self.neck(features), strict=True))
        outputs: dict[str, Tensor] = {}
        for head in self.heads.values():
            outputs.update(head(levels))
        return outputs


def build(config: dict[str, Any]) -> PerceptionNetwork:
    """Builds a network with random weights.

    Args:
        config: `backbone` (a timm name), `out_indices` (the backbone's features to use, finest
            first; left out: those at strides 4, 8 and 16), `neck_channels`, `height` and `width`
            of the input in pixels, `heads` (name → settings; a head left out is switched off).
            Missing keys take the values of `DEFAULT_CONFIG`.

    Raises:
        InputError: an unknown key, backbone or head, or a size that does not fit.
    """
    unknown = sorted(set(config) - set(DEFAULT_CONFIG))
    if unknown:
        raise InputError(
            f"network configuration has the unknown key '{unknown[0]}'",
            f"keys among {', '.join(DEFAULT_CONFIG)}",
        )
    completed = {**DEFAULT_CONFIG, **config}
    if "backbone" in config and "out_indices" not in config:
        completed["out_indices"] = None
    _check(completed)
    return PerceptionNetwork(completed)


def _check(config: dict[str, Any]) -> None:
    for key in ("height", "width", "neck_channels"):
        value = config[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{key} is {value!r}", "a whole number above 0")
    heads = config["heads"]
    if not isinstance(heads, dict) or not heads:
        raise InputError(f"heads is {heads!r}", f"at least one of {', '.join(HEADS)}")
    for name in heads:
        if name not in HEADS:
            raise InputError(f"there is no head '{name}'", f"heads among {', '.join(HEADS)}")


def _head(name: str, channels: int, strides: list[int], settings: dict[str, Any]) -> Head:
    try:
        return HEADS[name](channels, strides, **settings)
    except TypeError as error:
        raise InputError(f"settings {settings} of the head '{name}': {error}") from error


def _backbone(name: str, out_indices: list[int] | None) -> nn.Module:
    import timm

    try:
        if out_indices is None:
            full = timm.create_model(name, features_only=True, pretrained=False)
            reductions = full.feature_info.reduction()
            out_indices = [i for i, stride in enumerate(reductions) if stride in (4, 8, 16)]
        module: nn.Module = timm.create_model(
            name, features_only=True, out_indices=tuple(out_indices), pretrained=False
        )
    except (RuntimeError, ValueError, IndexError, AttributeError, AssertionError) as error:
        raise InputError(
            f"backbone '{name}' with features {out_indices} cannot be built: {error}",
            "a timm model that supports features_only, and indices of its features",
        ) from error
    return module


def _measure(backbone: nn.Module, size: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Returns channels and strides of the backbone's features at this input size."""
    channels = list(backbone.feature_info.channels())  # type: ignore[union-attr, operator]
    strides = list(backbone.feature_info.reduction())  # type: ignore[union-attr, operator]
    if not strides or strides != sorted(set(strides)):
        raise InputError(f"features at strides {strides}", "strides that grow from first to last")
    if any(extent % strides[-1] for extent in size):
        raise InputError(
            f"an input of {size[0]}x{size[1]} pixels",
            f"height and width that are multiples of the coarsest stride, {strides[-1]}",
        )
    return channels, strides


def _channels_first(feature: Tensor, stride: int, x: Tensor) -> Tensor:
    """Turns the [N, H, W, C] features of some transformers into [N, C, H, W]."""
    height, width = x.shape[-2] // stride, x.shape[-1] // stride
    if tuple(feature.shape[1:3]) == (height, width) and feature.shape[3] != width:
        return torch.permute(feature, (0, 3, 1, 2))
    return feature
