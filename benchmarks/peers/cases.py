"""What is quantized: a float network, pictures that calibrate it and pictures that judge it."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from artifacts.input_spec import InputSpec
from artifacts.onnx_file import load_onnx, save_onnx
from artifacts.onnx_inputs import input_tensors
from artifacts.onnx_metadata import INPUT_SPEC_KEY, read_metadata
from benchmarks.package_networks import PackageNetwork, fetched_networks
from benchmarks.real_networks import NETWORKS, REAL, RealNetwork, open_pictures
from export.network_file import export_network_file
from framefit.demo import CALIBRATION_SEED, CHECKPOINT, HELD_OUT_SEED
from perception.scene.dataset import SceneDataset

DEMO_CALIBRATION, DEMO_HELD_OUT = 32, 24

Feeds = dict[str, NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One network with one choice of pictures.

    Attributes:
        name: what the table and the folder are called.
        split: in words, which pictures calibrate and which judge.
        write: makes the files in a folder.
        rounds: inferences per file and process when latencies are taken.
    """

    name: str
    split: str
    write: Callable[["CaseFiles"], None]
    rounds: int = 300

    @contextmanager
    def written(self) -> Iterator["CaseFiles"]:
        """Makes the files in a folder that ends with the block."""
        with TemporaryDirectory() as folder:
            files = CaseFiles(Path(folder))
            self.write(files)
            yield files


@dataclass(frozen=True)
class CaseFiles:
    """The files that every tool is given.

    Attributes:
        folder: where they are, and where the tools' files go.
    """

    folder: Path

    @property
    def model(self) -> Path:
        """The float network: opset 17 or newer, static shapes, shapes inferred."""
        return self.folder / "float.onnx"

    @property
    def calibration(self) -> Path:
        """One array per input; the first axis counts samples."""
        return self.folder / "calib.npz"

    @property
    def held_out(self) -> Path:
        """As `calibration`, of pictures that no tool is given."""
        return self.folder / "held.npz"


def list_cases() -> list[Case]:
    """Returns the demo's network and, where they are there, the trained networks of others.

    Those of packages are there once `benchmarks.package_networks` has fetched them.
    """
    split = f"{DEMO_CALIBRATION} rendered scenes calibrate, {DEMO_HELD_OUT} others judge"
    cases = [Case(name="demo", split=split, write=_write_demo, rounds=60)]
    if not REAL.is_dir():
        return cases
    ultraface, fastestdet = NETWORKS
    swapped = (
        replace(
            fastestdet,
            calibration=fastestdet.held_out,
            held_out=fastestdet.calibration,
            split="its own 5 pictures calibrate, the 13 road pictures judge",
        ),
        replace(
            ultraface,
            calibration=(ultraface.calibration[0], slice(4, None)),
            held_out=(ultraface.calibration[0], slice(0, 4)),
            split="the last 8 of its 12 pictures calibrate, the first 4 judge",
        ),
    )
    named = zip(
        ("FastestDet", "UltraFace", "FastestDet, swapped", "UltraFace, swapped"),
        (fastestdet, ultraface, *swapped),
        strict=True,
    )
    cases += [
        Case(name=name, split=network.split, write=partial(_write_real, network))
        for name, network in named
    ]
    return cases + [
        Case(
            name=network.name,
            split=f"from {network.package}; two of three pictures calibrate, the third judges",
            write=partial(_write_package, network),
            rounds=network.rounds,
        )
        for network in fetched_networks()
    ]


def own_case(folder: Path) -> Case:
    """Returns the case of a user's network: `float.onnx`, `calib.npz`, `held.npz` in a folder."""
    return Case(
        name=folder.resolve().name,
        split="calib.npz calibrates, held.npz judges",
        write=partial(_write_own, CaseFiles(folder)),
        rounds=100,
    )


def read_feeds(path: Path) -> list[Feeds]:
    """Reads an `.npz` as one dictionary of inputs per sample."""
    with np.load(path, allow_pickle=False) as arrays:
        stacked = {name: arrays[name] for name in arrays.files}
    count = len(next(iter(stacked.values())))
    return [
        {name: values[index : index + 1] for name, values in stacked.items()}
        for index in range(count)
    ]


def _write_real(network: RealNetwork, files: CaseFiles) -> None:
    model = load_onnx(REAL / network.model)
    save_onnx(model, files.model, metadata={})
    for path, choice in (
        (files.calibration, network.calibration),
        (files.held_out, network.held_out),
    ):
        _save_feeds(path, open_pictures(network, model, *choice))


def _write_package(network: PackageNetwork, files: CaseFiles) -> None:
    model = network.load()
    save_onnx(model, files.model, metadata={})
    for path, samples in zip(
        (files.calibration, files.held_out), network.samples(model), strict=True
    ):
        _save_feeds(path, samples)


def _write_own(own: CaseFiles, files: CaseFiles) -> None:
    save_onnx(load_onnx(own.model), files.model, metadata={})
    shutil.copyfile(own.calibration, files.calibration)
    shutil.copyfile(own.held_out, files.held_out)


def _write_demo(files: CaseFiles) -> None:
    export_network_file(CHECKPOINT, files.model)
    model = load_onnx(files.model)
    spec = InputSpec.from_json(read_metadata(model)[INPUT_SPEC_KEY])
    (name, tensor), *_ = input_tensors(model).items()
    height, width = tensor.shape[2:]
    for path, count, seed in (
        (files.calibration, DEMO_CALIBRATION, CALIBRATION_SEED),
        (files.held_out, DEMO_HELD_OUT, HELD_OUT_SEED),
    ):
        scenes = SceneDataset(count, seed, height, width)
        pictures = (spec.prepare(scene.image, height, width) for scene in scenes)
        _save_feeds(path, [{name: picture[None]} for picture in pictures])


def _save_feeds(path: Path, feeds: Iterable[Feeds]) -> None:
    samples = list(feeds)
    stacked = {name: np.concatenate([item[name] for item in samples]) for name in samples[0]}
    np.savez(path, **stacked)
