"""Networks of packages that build them by a name: segmentation, YOLO, EfficientDet and more."""

from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any

from torch import Tensor, nn

from benchmarks.architectures.architecture import SQUARE, Architecture
from compress.prune.analysis.api import output_tensors

CLASSES = 5
_SEGMENTERS = (
    ("Unet", "mit_b0"),
    ("Unet", "tu-convnext_atto"),
    ("Unet", "dpn68"),
    ("Unet", "inceptionv4"),
    ("UnetPlusPlus", "mobilenet_v2"),
    ("MAnet", "efficientnet-b0"),
    ("Linknet", "vgg11_bn"),
    ("FPN", "mobileone_s0"),
    ("FPN", "xception"),
    ("PSPNet", "resnet18"),
    ("PAN", "resnet18"),
    ("DeepLabV3", "mobilenet_v2"),
    ("DeepLabV3Plus", "timm-mobilenetv3_small_minimal_100"),
    ("DeepLabV3Plus", "tu-regnety_002"),
    ("UPerNet", "tu-edgenext_xx_small"),
    ("Segformer", "mit_b0"),
)
_YOLOS = (
    *("yolov3-tiny", "yolov5n", "yolov6n", "yolov8n", "yolov8n-seg", "yolov8n-pose"),
    *("yolov8n-obb", "yolov8n-ghost", "yolov8n-p2", "yolov8n-rtdetr"),
    *("yolov9t", "yolov9c-seg", "yolov10n", "yolo11n", "yolo11n-seg", "yolo12n", "yolo12n-seg"),
    *("yolo26n", "yolo26n-seg", "yolo26n-pose", "yolo26n-obb", "yolo26n-depth", "yolo26n-sem"),
    "rtdetr-l",
)
_YOLO_CLASSES = {
    "-seg": "SegmentationModel",
    "-pose": "PoseModel",
    "-obb": "OBBModel",
    "-sem": "SemanticSegmentationModel",
    "-depth": "DepthModel",
    "rtdetr": "RTDETRDetectionModel",
}
_EFFICIENT_DETECTORS = (
    *("tf_efficientdet_lite0", "efficientdet_d0", "efficientdetv2_dt"),
    *("cspresdet50", "mixdet_m", "resdet50"),
)
_PIXELS = SQUARE[-1]


def list_others() -> Iterator[Architecture]:
    """Returns the networks of all packages but `transformers`."""
    yield from _list_segmenters()
    for name in _YOLOS:
        yield Architecture(
            package="ultralytics", name=name, build=partial(_yolo, name), shape=(1, 3, 160, 224)
        )
    yield from _list_torchvision()
    for name in _EFFICIENT_DETECTORS:
        yield Architecture(
            package="effdet", name=name, build=partial(_efficient_detector, name), shape=SQUARE
        )
    yield from _list_monai()


def _list_segmenters() -> Iterator[Architecture]:
    of = partial(Architecture, package="segmentation_models_pytorch")
    for family, encoder in _SEGMENTERS:
        yield of(name=f"{family} {encoder}", build=partial(_segmenter, family, encoder))
    scse = partial(_segmenter, "Unet", "resnet18", decoder_attention_type="scse")
    yield of(name="Unet resnet18 scse", build=scse)
    auxiliary = {"classes": 4, "pooling": "avg", "dropout": 0.2}
    yield of(
        name="Unet resnet18 with a classifier",
        build=partial(_segmenter, "Unet", "resnet18", aux_params=auxiliary),
    )
    yield of(
        name="DPT vit_tiny",
        build=partial(_segmenter, "DPT", "tu-vit_tiny_patch16_224.augreg_in21k"),
        shape=(1, 3, 224, 224),
    )


def _segmenter(family: str, encoder: str, **options: Any) -> nn.Module:
    build = getattr(import_module("segmentation_models_pytorch"), family)
    module: nn.Module = build(
        encoder_name=encoder, encoder_weights=None, classes=CLASSES, **options
    )
    return module


def _yolo(name: str) -> nn.Module:
    tasks = import_module("ultralytics.nn.tasks")
    kind = next((kind for key, kind in _YOLO_CLASSES.items() if key in name), "DetectionModel")
    module: nn.Module = getattr(tasks, kind)(f"{name}.yaml", verbose=False)
    for part in module.modules():
        if hasattr(part, "export"):
            part.export, part.format = True, "onnx"
    return module


def _list_torchvision() -> Iterator[Architecture]:
    of = partial(Architecture, package="torchvision")
    for name in ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50"):
        yield of(name=name, build=partial(_torchvision, "segmentation", name))
    small = {"min_size": 128, "max_size": 192}
    for name, options in (
        ("ssdlite320_mobilenet_v3_large", {}),
        ("retinanet_resnet50_fpn", small),
        ("fcos_resnet50_fpn", small),
        ("fasterrcnn_mobilenet_v3_large_320_fpn", small),
        ("maskrcnn_resnet50_fpn", small),
        ("keypointrcnn_resnet50_fpn", small),
    ):
        yield of(name=name, build=partial(_detector, name, **options))
    for name in ("ssdlite320_mobilenet_v3_large", "retinanet_resnet50_fpn", "fcos_resnet50_fpn"):
        yield of(name=f"{name}, without its choice of boxes", build=partial(_maps_of, name))
    flow = partial(_torchvision, "optical_flow", "raft_small")
    yield of(name="raft_small", build=flow, shape=(1, 3, 128, 160), inputs=2)
    for name, size in (("swin_v2_t", 128), ("maxvit_t", 224)):
        yield of(name=name, build=partial(_torchvision, "", name), shape=(1, 3, size, size))


def _torchvision(part: str, name: str, **options: Any) -> nn.Module:
    models = import_module(f"torchvision.models.{part}".rstrip("."))
    if part == "segmentation" or part == "detection":
        options["weights_backbone"] = None
    module: nn.Module = getattr(models, name)(weights=None, **options)
    return module


def _detector(name: str, **options: Any) -> nn.Module:
    return _OnePicture(_torchvision("detection", name, **options))


class _OnePicture(nn.Module):
    """A detector that takes a list of pictures, with the tensors that it says of one."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, picture: Tensor) -> tuple[Tensor, ...]:
        return tuple(output_tensors(self.detector([picture[0]])))


def _maps_of(name: str) -> nn.Module:
    return _Maps(_torchvision("detection", name))


class _Maps(nn.Module):
    """The maps about which a detector of one stage decides."""

    def __init__(self, detector: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = detector.backbone, detector.head

    def forward(self, picture: Tensor) -> dict[str, Tensor]:
        maps: dict[str, Tensor] = self.head(list(self.backbone(picture).values()))
        return maps


def _efficient_detector(name: str) -> nn.Module:
    effdet = import_module("effdet")
    config = effdet.get_efficientdet_config(name)
    config.image_size = (_PIXELS, _PIXELS)
    module: nn.Module = effdet.EfficientDet(config, pretrained_backbone=False)
    return module


def _list_monai() -> Iterator[Architecture]:
    of = partial(Architecture, package="monai")
    for name, arguments in (
        ("UNet", (2, 3, 4, (16, 32, 64, 128), (2, 2, 2), 3, 3, 2)),
        ("SegResNet", (2, 16, 3, 4)),
        ("AttentionUnet", (2, 3, 4, (16, 32, 64), (2, 2))),
        ("DynUNet", (2, 3, 4, [3] * 4, [1, 2, 2, 2], [2, 2, 2])),
    ):
        yield of(name=name, build=partial(_monai, name, *arguments))
    transformer = {"in_channels": 3, "out_channels": 4, "feature_size": 12, "spatial_dims": 2}
    yield of(name="SwinUNETR", build=partial(_monai, "SwinUNETR", **transformer))
    small = (1, 3, 64, 96)
    yield of(name="HighResNet", build=partial(_monai, "HighResNet", 2, 3, 4), shape=small)
    narrow = {
        "feature_size": 8,
        "hidden_size": 48,
        "mlp_dim": 96,
        "num_heads": 4,
        "spatial_dims": 2,
    }
    unetr = partial(_monai, "UNETR", 3, 4, small[2:], **narrow)
    yield of(name="UNETR", build=unetr, shape=small)


def _monai(name: str, *arguments: Any, **options: Any) -> nn.Module:
    module: nn.Module = getattr(import_module("monai.networks.nets"), name)(*arguments, **options)
    return module
