"""The manifest beside a TensorRT plan, and the only way to read a plan.

A plan is executable code, so its bytes are compared with the digest of its manifest before anything
deserializes them. That catches a damaged, mixed-up or half-copied plan. Whoever can replace both
files can still replace the code: where that matters, sign them (`artifacts.release`) and hand the
signed digest to `read_verified_plan`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from artifacts.atomic import atomic_path
from artifacts.digest import sha256_bytes
from artifacts.errors import InputError, UnsafeFileError

FORMAT = "framefit-plan/1"
FLAVOURS: dict[str, str] = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}
"""TensorRT's two flavours, each with the Python module (and extra) that brings it."""

_SHA256_DIGITS = 64
_MAX_MANIFEST_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class PlanManifest:
    """What is known about a plan without running it.

    Attributes:
        onnx_name: file name of the ONNX model that it was built from.
        onnx_sha256: that file's digest.
        flavour: a key of `FLAVOURS`.
        tensorrt_version: the version that built it; only that version is sure to read it.
        compute_capabilities: the GPUs that it runs on, as 86 for 8.6; never empty.
        settings: the build settings.
        metadata: the model's `framefit.*` metadata (input spec, heads …).
        plan_sha256: digest of the plan; `write_plan` fills it in.
        plan_bytes: its size; `write_plan` fills it in.
        format: the manifest's own format.
    """

    onnx_name: str
    onnx_sha256: str
    flavour: str
    tensorrt_version: str
    compute_capabilities: tuple[int, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    plan_sha256: str = ""
    plan_bytes: int = 0
    format: str = FORMAT

    def __post_init__(self) -> None:
        if self.format != FORMAT:
            raise InputError(f"plan manifest has the format '{self.format}'", FORMAT)
        if not isinstance(self.flavour, str) or self.flavour not in FLAVOURS:
            raise InputError(
                f"plan manifest has the flavour '{self.flavour}'", " or ".join(FLAVOURS)
            )
        listed = self.compute_capabilities
        capabilities = tuple(listed) if isinstance(listed, list | tuple) else ()
        if not capabilities or not all(isinstance(value, int) for value in capabilities):
            raise InputError(
                f"plan manifest has the compute capabilities {list(capabilities)}",
                "one or more integers such as 86",
            )
        object.__setattr__(self, "compute_capabilities", capabilities)
        self._check_kinds()

    def _check_kinds(self) -> None:
        kinds: dict[type, tuple[str, ...]] = {
            str: ("onnx_name", "onnx_sha256", "tensorrt_version", "plan_sha256"),
            int: ("plan_bytes",),
            Mapping: ("settings", "metadata"),
        }
        for kind, names in kinds.items():
            for name in names:
                value = getattr(self, name)
                if not isinstance(value, kind):
                    raise InputError(f"plan manifest has {name} = {value!r}", kind.__name__)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Builds a manifest from the text of a `model.plan.json`.

        Raises:
            InputError: it is not JSON, or keys are missing, unknown or of the wrong kind.
        """
        try:
            values = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"plan manifest is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InputError("plan manifest is not a JSON object")
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise InputError(f"plan manifest has the unknown key '{unknown[0]}'")
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"plan manifest is not complete: {error}") from error


def manifest_path(plan: Path | str) -> Path:
    """Returns where the manifest of a plan lies: `model.plan.json` beside `model.plan`."""
    plan = Path(plan)
    return plan.with_name(plan.name + ".json")


def write_plan(path: Path | str, plan_bytes: bytes, manifest: PlanManifest) -> PlanManifest:
    """Writes a plan and its manifest atomically.

    Args:
        path: the `.plan` file.
        plan_bytes: the serialized engine.
        manifest: what is known about it; its digest and size are filled in here.

    Returns:
        the manifest as written.

    Raises:
        InputError: the folder cannot be written.
    """
    path = Path(path)
    complete = replace(manifest, plan_sha256=sha256_bytes(plan_bytes), plan_bytes=len(plan_bytes))
    with atomic_path(path) as plan_file, atomic_path(manifest_path(path)) as manifest_file:
        plan_file.write_bytes(plan_bytes)
        manifest_file.write_text(json.dumps(asdict(complete), indent=1) + "\n", encoding="utf-8")
    return complete


def read_manifest(path: Path | str) -> PlanManifest:
    """Reads the manifest beside a plan.

    Args:
        path: the `.plan` file.

    Raises:
        UnsafeFileError: there is none.
        InputError: it cannot be understood.
    """
    location = manifest_path(path)
    if not location.exists():
        raise UnsafeFileError(
            f"{path} has no manifest {location.name} beside it, so what it holds is unknown",
            fix="build it with: framefit export trt",
        )
    _refuse_endless(location)
    size_bytes = location.stat().st_size
    if size_bytes > _MAX_MANIFEST_BYTES:
        raise InputError(f"{location} has {size_bytes} bytes", "a plan's manifest, a few kB")
    try:
        text = location.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{location} cannot be read: {error}") from error
    try:
        return PlanManifest.from_json(text)
    except InputError as error:
        raise InputError(f"{location}: {error}", fix="build it again") from error


def read_verified_plan(path: Path | str, *, expected_sha256: str | None = None) -> bytes:
    """Reads a plan and verifies its digest before anything else sees it.

    Args:
        path: the `.plan` file.
        expected_sha256: a digest kept elsewhere; None trusts the manifest beside the plan.

    Returns:
        the bytes that were verified; the file is read once.

    Raises:
        InputError: the plan is missing or cannot be read.
        UnsafeFileError: the manifest is missing, or a digest differs.
    """
    path = Path(path)
    _refuse_endless(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror or error}", "a TensorRT plan"
        ) from error
    recorded = read_manifest(path).plan_sha256
    actual = sha256_bytes(content)
    for digest in (recorded, expected_sha256 or recorded):
        if len(digest) != _SHA256_DIGITS or digest.lower() != actual:
            raise UnsafeFileError(
                f"{path} has the digest {actual[:12]}…",
                f"{digest[:12]}…",
                "it was changed or damaged after the build; build it again",
            )
    return content


def _refuse_endless(path: Path) -> None:
    """Refuses a device or a pipe, of which a read may never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is not a regular file")
