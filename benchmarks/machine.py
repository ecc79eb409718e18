"""What the figures were measured on."""

import platform
from pathlib import Path


def describe_machine() -> str:
    """Returns the number of cores, the processor, and whether it has INT8 dot products."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    has_vnni = any("avx512_vnni" in line for line in lines)
    features = " with AVX-512 VNNI" if has_vnni else ""
    return f"{len(names)} cores, {names[0] if names else platform.machine()}{features}"
