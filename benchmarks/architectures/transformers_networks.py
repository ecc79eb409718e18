"""Networks of `transformers`, in small: every kind of layer, few of each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn

from benchmarks.architectures.architecture import SQUARE, WIDE, Architecture

_VIT = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "image_size": 128}
_STAGES = {"hidden_sizes": [24, 48, 96, 128], "depths": [1, 1, 2, 1]}
_PYRAMID = {"hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]}
_RESNET = {"embedding_size": 16, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]}
_SWIN = {
    "embed_dim": 24,
    "depths": [1, 1, 2, 1],
    "num_heads": [2, 2, 4, 4],
    "window_size": 4,
    "image_size": 128,
}
_HGNET = {
    "stem_channels": [3, 16, 16],
    "hidden_sizes": [32, 64, 96, 128],
    "stage_in_channels": [16, 32, 64, 96],
    "stage_mid_channels": [16, 16, 32, 32],
    "stage_out_channels": [32, 64, 96, 128],
    "stage_num_blocks": [1, 1, 1, 1],
    "stage_numb_of_layers": [2, 2, 2, 2],
    "embedding_size": 16,
}
_DETR = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_queries": 20,
}
_HYBRID_DETR = {
    "encoder_hidden_dim": 64,
    "encoder_in_channels": [64, 96, 128],
    "encoder_ffn_dim": 128,
    "d_model": 64,
    "num_queries": 20,
    "decoder_in_channels": [64] * 3,
    "decoder_ffn_dim": 128,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "encoder_attention_heads": 4,
}
_FROM_FOUR_LAYERS = {**_VIT, "num_hidden_layers": 4}
_DPT_NECK = {"neck_hidden_sizes": [16, 32, 64, 64], "fusion_hidden_size": 32}
_STAGE_NAMES = [f"stage{number}" for number in range(1, 5)]

_CLASSIFIERS: dict[str, dict[str, Any]] = {
    "ResNet": _RESNET,
    "RegNet": {**_RESNET, "groups_width": 16, "layer_type": "y"},
    "ConvNext": _STAGES,
    "ConvNextV2": _STAGES,
    "Swin": _SWIN,
    "Swinv2": _SWIN,
    "Cvt": {"embed_dim": [16, 32, 64], "depth": [1, 2, 3], "num_heads": [1, 2, 4]},
    "Pvt": {**_PYRAMID, "image_size": 128, "num_attention_heads": [1, 2, 4, 4]},
    "PvtV2": {**_PYRAMID, "num_attention_heads": [1, 2, 4, 4]},
    "PoolFormer": _PYRAMID,
    "FocalNet": {"embed_dim": 24, "depths": [1, 1, 1, 1], "image_size": 128},
    "Levit": {
        "image_size": 128,
        "hidden_sizes": [32, 48, 64],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [16, 16, 16],
    },
    "EfficientNet": {"width_coefficient": 0.5, "depth_coefficient": 0.5, "hidden_dim": 640},
    "MobileNetV1": {"depth_multiplier": 0.5},
    "Hiera": {
        "embed_dim": 24,
        "image_size": [128, 128],
        "depths": [1, 1, 2, 1],
        "num_heads": [1, 2, 4, 4],
    },
    "Bit": {
        "embedding_size": 16,
        "hidden_sizes": [32, 64, 96, 128],
        "depths": [1, 1, 1, 1],
        "num_groups": 8,
    },
    "SwiftFormer": {"embed_dims": [24, 32, 64, 96], "depths": [1, 1, 2, 1]},
    "ViT": {**_VIT, "num_hidden_layers": 2},
    "DeiT": {**_VIT, "num_hidden_layers": 2},
    "Beit": {**_VIT, "num_hidden_layers": 2, "use_relative_position_bias": True},
    "ViTMSN": {**_VIT, "num_hidden_layers": 2},
    "IJepa": {**_VIT, "num_hidden_layers": 2},
    "Dinov2": {**_VIT, "num_hidden_layers": 2, "patch_size": 16},
    "Dinov2WithRegisters": {**_VIT, "num_hidden_layers": 2, "patch_size": 16},
    "HGNetV2": _HGNET,
    "TextNet": {"stem_out_channels": 16, "hidden_sizes": [16, 32, 48, 64, 96]},
}


def list_transformers() -> Iterator[Architecture]:
    """Returns the networks, each named after its class."""
    for family, options in _CLASSIFIERS.items():
        yield _of(f"{family}ForImageClassification", SQUARE, **options)
    yield from _list_detectors()
    yield from _list_segmenters()
    yield from _list_depths()
    yield from _list_backbones()


def _list_detectors() -> Iterator[Architecture]:
    last = {
        "backbone_config": _inner("ResNet", **_RESNET, layer_type="basic", out_features=_last())
    }
    plain = {"use_timm_backbone": False, "backbone": None, "use_pretrained_backbone": False}
    for family in ("Detr", "ConditionalDetr", "TableTransformer"):
        yield _of(f"{family}ForObjectDetection", **plain, **last, **_DETR)
    width = {key: value for key, value in _DETR.items() if key != "d_model"}
    yield _of("DabDetrForObjectDetection", **plain, **last, **width, hidden_size=64)
    three = _inner("ResNet", **_RESNET, layer_type="basic", out_features=_STAGE_NAMES[1:])
    yield _of(
        "DeformableDetrForObjectDetection",
        **{**plain, **_DETR, "backbone_config": three, "num_feature_levels": 3},
    )
    stages = {**_RESNET, "depths": [1, 1, 1, 1]}
    backbone = _inner("RTDetrResNet", **stages, out_features=_STAGE_NAMES[1:])
    for family in ("RTDetr", "RTDetrV2"):
        yield _of(f"{family}ForObjectDetection", **_HYBRID_DETR, backbone_config=backbone)
    lighter = {
        "stage_downsample": [False, True, True, True],
        "stage_light_block": [False, False, True, True],
        "stage_kernel_size": [3, 3, 5, 5],
    }
    yield _of(
        "DFineForObjectDetection",
        **_HYBRID_DETR,
        backbone_config=_inner("HGNetV2", **_HGNET, **lighter, out_features=_STAGE_NAMES[1:]),
        feat_strides=[8, 16, 32],
        decoder_n_points=[4, 4, 4],
    )
    yield _of(
        "YolosForObjectDetection",
        **{**_VIT, "image_size": [128, 192], "num_hidden_layers": 2, "num_detection_tokens": 20},
    )


def _list_segmenters() -> Iterator[Architecture]:
    heads = {"decoder_hidden_size": 64, "num_attention_heads": [1, 2, 4, 4]}
    yield _of("SegformerForSemanticSegmentation", **_PYRAMID, **heads)
    upernet = {"hidden_size": 64, "auxiliary_in_channels": 96}
    for family, options in (("Swin", _SWIN), ("ConvNext", _STAGES)):
        backbone = _inner(family, **options, out_features=_STAGE_NAMES)
        yield _of(
            "UperNetForSemanticSegmentation", **upernet, backbone_config=backbone, suffix=family
        )
    yield _of(
        "BeitForSemanticSegmentation",
        SQUARE,
        **_FROM_FOUR_LAYERS,
        out_indices=[1, 2, 3, 4],
        use_relative_position_bias=True,
    )
    yield _of(
        "Data2VecVisionForSemanticSegmentation",
        SQUARE,
        **_FROM_FOUR_LAYERS,
        out_indices=[0, 1, 2, 3],
    )
    swin = _inner("Swin", **_SWIN, out_features=_STAGE_NAMES)
    yield _of(
        "MaskFormerForInstanceSegmentation",
        backbone_config=swin,
        decoder_config=_inner("Detr", **_DETR),
        fpn_feature_size=64,
        mask_feature_size=64,
    )
    yield _of(
        "Mask2FormerForUniversalSegmentation",
        backbone_config=swin,
        feature_size=64,
        mask_feature_size=64,
        hidden_dim=64,
        encoder_feedforward_dim=128,
        encoder_layers=2,
        decoder_layers=3,
        num_attention_heads=4,
        dim_feedforward=128,
        num_queries=20,
    )
    yield _of(
        "MobileViTForSemanticSegmentation",
        hidden_sizes=[48, 64, 80],
        neck_hidden_sizes=[8, 16, 24, 32, 48, 64, 160],
        aspp_out_channels=64,
    )
    yield _of("MobileViTV2ForSemanticSegmentation", width_multiplier=0.5, aspp_out_channels=64)
    yield _of("MobileNetV2ForSemanticSegmentation", depth_multiplier=0.35)
    yield _of(
        "DPTForSemanticSegmentation",
        SQUARE,
        **{**_FROM_FOUR_LAYERS, **_DPT_NECK},
        backbone_out_indices=[0, 1, 2, 3],
        auxiliary_loss_weight=0.4,
    )
    yield _of(
        "EomtForUniversalSegmentation",
        SQUARE,
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=128,
        patch_size=16,
        num_queries=10,
        num_blocks=2,
        num_upscale_blocks=2,
    )
    vitdet = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 128,
        "pretrain_image_size": 128,
        "num_channels": 4,
        "window_size": 0,
        "out_features": ["stage2"],
    }
    yield _of(
        "VitMatteForImageMatting",
        (1, 4, 128, 128),
        backbone_config=_inner("VitDet", **vitdet),
        hidden_size=64,
        convstream_hidden_sizes=[16, 24, 32],
        fusion_hidden_sizes=[64, 48, 32, 16],
    )


def _list_depths() -> Iterator[Architecture]:
    yield _of(
        "DPTForDepthEstimation",
        SQUARE,
        **{**_FROM_FOUR_LAYERS, **_DPT_NECK},
        backbone_out_indices=[0, 1, 2, 3],
    )
    heads = {"decoder_hidden_size": 32, "num_attention_heads": [1, 2, 4, 4]}
    yield _of("GLPNForDepthEstimation", **_PYRAMID, **heads)
    dino = _inner(
        "Dinov2",
        hidden_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=128,
        patch_size=16,
        out_features=_STAGE_NAMES,
        reshape_hidden_states=False,
    )
    for family in ("DepthAnything", "PromptDepthAnything"):
        yield _of(
            f"{family}ForDepthEstimation",
            **_DPT_NECK,
            backbone_config=dino,
            reassemble_hidden_size=64,
            patch_size=16,
            head_hidden_size=16,
        )
    yield _of(
        "ZoeDepthForDepthEstimation",
        SQUARE,
        **_DPT_NECK,
        backbone_config=_inner(
            "Beit",
            **_FROM_FOUR_LAYERS,
            patch_size=16,
            use_relative_position_bias=True,
            reshape_hidden_states=False,
            out_features=_STAGE_NAMES,
        ),
        bottleneck_features=32,
        num_relative_features=16,
    )


def _list_backbones() -> Iterator[Architecture]:
    yield _of(
        "Swin2SRForImageSuperResolution",
        (1, 3, 64, 96),
        embed_dim=32,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=8,
        image_size=64,
        upscale=2,
        upsampler="pixelshuffledirect",
    )
    yield _of("SuperPointForKeypointDetection")
    yield _of(
        "VitPoseForPoseEstimation",
        (1, 3, 128, 96),
        backbone_config=_inner(
            "VitPoseBackbone",
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=[128, 96],
            patch_size=[16, 16],
            out_features=["stage2"],
        ),
        use_simple_decoder=False,
    )
    yield _of(
        "VitDetBackbone",
        SQUARE,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        image_size=128,
        pretrain_image_size=128,
        window_size=4,
        window_block_indices=[0, 2],
        residual_block_indices=[1],
        use_relative_position_embeddings=True,
        out_features=["stage3"],
    )
    small = {**_VIT, "num_hidden_layers": 2, "patch_size": 16}
    yield _of("DINOv3ConvNextModel", SQUARE, **_STAGES)
    yield _of("DINOv3ViTModel", SQUARE, **small, num_register_tokens=2)
    yield _of("CLIPVisionModel", SQUARE, **small)
    yield _of("SiglipVisionModel", SQUARE, **small)


def _last() -> list[str]:
    return _STAGE_NAMES[-1:]


def _inner(family: str, **options: Any) -> "_Config":
    """Returns the configuration of a network inside another, made where that is built."""
    return _Config(family, options)


class _Config:
    """A configuration that needs the package when it is built, not when it is listed."""

    def __init__(self, family: str, options: dict[str, Any]) -> None:
        self._family, self._options = family, options

    def build(self) -> Any:
        import transformers

        options = {
            key: value.build() if isinstance(value, _Config) else value
            for key, value in self._options.items()
        }
        return getattr(transformers, f"{self._family}Config")(**options)


def _of(
    class_name: str, shape: tuple[int, ...] = WIDE, suffix: str = "", **options: Any
) -> Architecture:
    return Architecture(
        package="transformers",
        name=f"{class_name} {suffix}".strip(),
        build=partial(_build, class_name, options),
        shape=shape,
    )


def _build(class_name: str, options: dict[str, Any]) -> nn.Module:
    import transformers

    family = class_name.rpartition("For")[0] or class_name
    family = family.removesuffix("Model").removesuffix("Backbone")
    config = _Config(family, options).build()
    module: nn.Module = getattr(transformers, class_name)(config)
    return module
