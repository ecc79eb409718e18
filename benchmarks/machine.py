"""What the figures were measured on."""

import os
import platform
from pathlib import Path
from typing import Self

from artifacts.processor import overflows_on_int8, read_flags

INTEGER_FEATURES = {"avx512_vnni": "AVX-512 VNNI", "amx_int8": "AMX"}
"""What /proc/cpuinfo calls them, and what people do."""
HAS_AMX = "amx_int8" in read_flags()


def describe_machine() -> str:
    """Returns the number of cores, the processor, and whether it has INT8 dot products."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    flags = read_flags()
    has = [name for flag, name in INTEGER_FEATURES.items() if flag in flags]
    features = f" with {' and '.join(has)}" if has else ""
    if overflows_on_int8(flags):
        features = " without VNNI"
    return f"{len(names)} cores, {names[0] if names else platform.machine()}{features}"


def name_section(table: str) -> str:
    """Returns the name of the section for a table that OpenVINO's kernels of this machine make."""
    if HAS_AMX:
        return table
    return f"{table}_without_amx" if overflows_on_int8(read_flags()) else f"{table}_vnni"


class OtherProcesses:
    """Measures what others took of the processors' time; use it as a context manager.

    Attributes:
        share: of all processors' time within the block, 0 to 1, this process and its finished
            children apart.
    """

    share = 0.0

    def __enter__(self) -> Self:
        self._start = _read_seconds()
        return self

    def __exit__(self, *_: object) -> None:
        all_s, busy_s, own_s = (
            after - before for before, after in zip(self._start, _read_seconds(), strict=True)
        )
        self.share = max(0.0, busy_s - own_s) / max(all_s, 1e-9)


def _read_seconds() -> tuple[float, float, float]:
    """Returns the processors' time so far: in all, of it not idle, of it for this process."""
    line = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0]
    ticks = [int(value) for value in line.split()[1:9]]
    idle = ticks[3] + ticks[4]
    per_second = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / per_second, (sum(ticks) - idle) / per_second, sum(os.times()[:4])
