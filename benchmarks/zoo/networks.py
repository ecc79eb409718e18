"""The networks of the zoo: timm architectures of every family, small ones by preference."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ZooNetwork:
    """One architecture.

    Attributes:
        name: its name in timm.
        size: height and width of its input, pixels.
        options: further arguments of its builder, such as fewer blocks of the same kind.
    """

    name: str
    size: int = 96
    options: Mapping[str, Any] = field(default_factory=dict)


def _transformer(name: str, size: int = 128, **options: Any) -> ZooNetwork:
    """Returns a network whose builder has to know the size of its input."""
    return ZooNetwork(name=name, size=size, options={"img_size": size, **options})


CONVOLUTIONAL = (
    "inception_next_atto",
    "legacy_xception",
    "dpn48b",
    "dla34",
    "hrnet_w18_small",
    "selecsls42b",
    "regnetx_008",
    "regnety_008",
    "repvgg_a0",
    "mobileone_s0",
    "cs3darknet_s",
    "darknet17",
    "mobilenetv2_100",
    "mobilenetv3_large_100",
    "mobilenetv4_conv_small",
    "efficientnet_b0",
    "efficientnet_b4",
    "mixnet_s",
    "tinynet_e",
    "rexnet_100",
    "lcnet_050",
    "hardcorenas_a",
    "fbnetc_100",
    "ghostnet_100",
    "ese_vovnet19b_dw",
    "hgnetv2_b0",
    "convnext_atto",
    "nf_regnet_b0",
    "eca_nfnet_l0",
    "repvit_m0_9",
    "starnet_s1",
    "poolformer_s12",
)
"""Takes any size."""

RESNETS = (
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
    "legacy_seresnet18",
    "skresnet18",
    "resnest14d",
    "res2net50_26w_4s",
    "resnetv2_50",
)
"""One block per stage is enough to hold every kind of edge that the whole network has."""

ZOO = (
    *(ZooNetwork(name=name, options={"layers": (1, 1, 1, 1)}) for name in RESNETS),
    *(ZooNetwork(name=name) for name in CONVOLUTIONAL),
    ZooNetwork(name="densenet121", options={"block_config": (3, 4, 4, 3)}),
    ZooNetwork(name="inception_v3", size=160),
    ZooNetwork(name="edgenext_xx_small"),
    ZooNetwork(name="fastvit_t8"),
    ZooNetwork(name="mobilevit_xxs"),
    ZooNetwork(name="davit_tiny", size=224, options={"depths": (1, 1, 1, 1)}),
    ZooNetwork(name="coat_lite_tiny", size=224),
    ZooNetwork(name="pvt_v2_b0"),
    ZooNetwork(name="levit_128s", size=224),
    ZooNetwork(name="efficientvit_b0"),
    _transformer("efficientformer_l1", 224),
    _transformer("swin_tiny_patch4_window7_224", 224, depths=(1, 1, 1, 1)),
    _transformer("vit_tiny_patch16_224"),
    _transformer("deit_tiny_patch16_224"),
    _transformer("cait_xxs24_224", depth=4),
    _transformer("mixer_s32_224"),
    _transformer("maxvit_pico_rw_256"),
    _transformer("gcvit_xxtiny", 224),
    _transformer("twins_svt_small", 224, depths=(1, 1, 1, 1)),
    _transformer("crossvit_tiny_240", 240),
    _transformer("volo_d1_224"),
    _transformer("xcit_nano_12_p16_224"),
)
