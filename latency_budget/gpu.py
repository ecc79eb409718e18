"""The state of an NVIDIA GPU while frames were timed, from lines of `nvidia-smi` (NVML).

Reasons for lower clocks are a bit field (nvml.h, nvmlClocksEventReasons): the hardware's slowdowns
and thermal limits make a run invalid, the software's power cap warns.
"""

import os
from dataclasses import dataclass

from latency_budget.environment import Check

QUERY = (
    "index",
    "name",
    "pstate",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "power.draw",
    "clocks_throttle_reasons.active",
)
CLOCK_WARN, CLOCK_INVALID = 2.0, 5.0
_INVALID_REASONS = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
_WARN_REASONS = {0x4: "power cap"}


@dataclass(frozen=True, kw_only=True)
class GpuSample:
    """One line; None where the GPU does not tell.

    Attributes:
        index: the GPU's number.
        sm_mhz: its clock.
        temperature_c: its temperature.
        reasons: why its clock is not higher, as a bit field.
    """

    index: int
    sm_mhz: float | None
    temperature_c: float | None
    reasons: int | None


def parse_samples(lines: list[str]) -> list[GpuSample]:
    """Reads lines of `nvidia-smi --query-gpu=… --format=csv,noheader,nounits`; skips torn ones."""
    samples = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(QUERY) or not cells[0].isdigit():
            continue
        samples.append(
            GpuSample(
                index=int(cells[0]),
                sm_mhz=_number(cells[3]),
                temperature_c=_number(cells[5]),
                reasons=_hexadecimal(cells[7]),
            )
        )
    return samples


def judge_gpu(
    lines: list[str], processes: str, allowed: tuple[int, ...] | None = None
) -> list[Check]:
    """Judges the samples of a timed part.

    Args:
        lines: of `nvidia-smi` with `QUERY`.
        processes: what `nvidia-smi --query-compute-apps=pid,process_name` printed.
        allowed: process ids that may use the GPU; this process and its parent if not given.
    """
    samples = parse_samples(lines)
    return [
        _check_reasons(samples),
        _check_clocks(samples),
        _check_processes(processes, (os.getpid(), os.getppid()) if allowed is None else allowed),
    ]


def _check_reasons(samples: list[GpuSample]) -> Check:
    name = "GPU throttling"
    known = [sample.reasons for sample in samples if sample.reasons is not None]
    if not known:
        return Check(name, "unknown", "nvidia-smi gave no reasons")
    seen = 0
    for reasons in known:
        seen |= reasons
    for verdict, table in (("invalid", _INVALID_REASONS), ("warn", _WARN_REASONS)):
        found = [text for bit, text in table.items() if seen & bit]
        if found:
            return Check(name, verdict, ", ".join(found))
    return Check(name, "ok", f"none in {len(known)} samples")


def _check_clocks(samples: list[GpuSample]) -> Check:
    name = "GPU clock"
    spreads = []
    for index in sorted({sample.index for sample in samples}):
        clocks = [s.sm_mhz for s in samples if s.index == index and s.sm_mhz]
        if clocks:
            spreads.append((100 * (max(clocks) - min(clocks)) / max(clocks), max(clocks)))
    if not spreads:
        return Check(name, "unknown", "nvidia-smi gave no clock")
    spread, highest = max(spreads)
    verdict = "invalid" if spread > CLOCK_INVALID else "warn" if spread > CLOCK_WARN else "ok"
    return Check(
        name, verdict, f"varied by {spread:.1f} % below {highest:g} MHz, limit {CLOCK_INVALID:g} %"
    )


def _check_processes(text: str, allowed: tuple[int, ...]) -> Check:
    name = "other GPU processes"
    foreign = []
    for line in text.splitlines():
        pid, _, program = line.partition(",")
        if pid.strip().isdigit() and int(pid) not in allowed:
            foreign.append(program.strip().rsplit("/", 1)[-1] or pid.strip())
    if foreign:
        return Check(name, "invalid", ", ".join(foreign))
    return Check(name, "ok", "none")


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _hexadecimal(cell: str) -> int | None:
    try:
        return int(cell, 16)
    except ValueError:
        return None
