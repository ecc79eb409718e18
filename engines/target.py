"""Target devices: the facts that decide what to build for one, and what it could reach."""

import tomllib
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any

from artifacts.errors import InputError

_FOLDER = "targets"
_SUFFIX = ".toml"


@dataclass(frozen=True)
class Software:
    """What one software release of a target brings.

    Attributes:
        release: the release, such as "JetPack 6.x".
        tensorrt: the TensorRT versions it runs.
        dla: the deep-learning accelerator's state under it; empty where there is none.
    """

    release: str
    tensorrt: str
    dla: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A device that networks run on. What is not known is None, never a guess.

    Attributes:
        name: the file's name, as typed after `--target`.
        title: the device's name as sold.
        kind: "gpu", "cpu" or "npu".
        runtime: the runtime that fits it, a name of `engines.runtimes.BACKENDS`; None for none.
        compute_capability: as 86 for 8.6; None where it is no NVIDIA GPU.
        tensorrt_rtx: whether TensorRT-RTX builds for that compute capability.
        memory_gb: memory that a network can use.
        memory_is_shared: whether the processor shares it.
        bandwidth_tb_s: memory bandwidth in TB/s.
        bf16_tflops: peak of dense bfloat16.
        fp32_tflops: peak that a float32 network gets (TF32 tensor cores where there are any).
        int8_tops: peak in int8, as published.
        int8_dense_tops: of the GPU alone without sparsity, where `int8_tops` counts more than that.
        power_w: the power at which the peaks hold.
        software: releases and their TensorRT.
        notes: what a user of this target has to know.
        sources: where the figures were read, one line each.
    """

    name: str
    title: str
    kind: str
    runtime: str | None = None
    compute_capability: int | None = None
    tensorrt_rtx: bool = False
    memory_gb: tuple[float, ...] = ()
    memory_is_shared: bool = False
    bandwidth_tb_s: float | None = None
    bf16_tflops: float | None = None
    fp32_tflops: float | None = None
    int8_tops: float | None = None
    int8_dense_tops: float | None = None
    power_w: float | None = None
    software: tuple[Software, ...] = ()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


def list_targets() -> list[str]:
    """Returns the names of the targets that come with framefit."""
    folder = files("engines") / _FOLDER
    return sorted(
        item.name.removesuffix(_SUFFIX) for item in folder.iterdir() if item.name.endswith(_SUFFIX)
    )


def load_target(name: str) -> Target:
    """Loads a target by name.

    Raises:
        InputError: there is no such target, or its file has an unknown or missing key.
    """
    known = list_targets()
    if name not in known:
        raise InputError(f"target is '{name}'", ", ".join(known))
    text = (files("engines") / _FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    return parse_target(name, text)


def parse_target(name: str, text: str) -> Target:
    """Builds a target from the text of its file.

    Raises:
        InputError: the text is not TOML, or a key is unknown, missing or of the wrong kind.
    """
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"target '{name}' is not TOML: {error}") from error
    unknown = sorted(set(values) - {item.name for item in fields(Target)} | {"name"} & set(values))
    if unknown:
        raise InputError(f"target '{name}' has the unknown key '{unknown[0]}'")
    try:
        software = tuple(Software(**release) for release in values.pop("software", []))
        memory_gb = tuple(float(size) for size in values.pop("memory_gb", []))
        notes = tuple(str(note) for note in values.pop("notes", []))
        sources = tuple(str(line) for line in values.pop("sources", []))
        return Target(
            name=name,
            software=software,
            memory_gb=memory_gb,
            notes=notes,
            sources=sources,
            **values,
        )
    except TypeError as error:
        raise InputError(f"target '{name}' is not valid: {error}") from error
