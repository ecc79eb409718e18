"""The state of a Jetson while frames were timed: tegrastats, nvpmodel, jetson_clocks.

`nvidia-smi` cannot lock or read an integrated GPU's clocks; these tools take its place.
"""

import re
from dataclasses import dataclass

from latency_budget.environment import Check

HOT_C, TOO_HOT_C = 85.0, 95.0
CLOCK_WARN, CLOCK_INVALID = 2.0, 5.0
_GPU = re.compile(r"GR3D_FREQ (\d+)%(?:@\[?(\d+))?")
_TEMPERATURE = re.compile(r"(\w+)@(-?[\d.]+)C")
_SWAP = re.compile(r"SWAP (\d+)/")
_MODE = re.compile(r"NV Power Mode: *(\S+)")


@dataclass(frozen=True, kw_only=True)
class TegraSample:
    """One line of tegrastats; None where it does not tell.

    Attributes:
        gpu_load: percent.
        gpu_mhz: clock of the GPU.
        hottest_c: the hottest sensor.
        swap_mb: swap in use.
    """

    gpu_load: int | None
    gpu_mhz: int | None
    hottest_c: float | None
    swap_mb: int | None


def parse_tegrastats(lines: list[str]) -> list[TegraSample]:
    """Reads lines of tegrastats of JetPack 5 and 6; skips lines that are none."""
    samples = []
    for line in lines:
        if "RAM " not in line:
            continue
        gpu, swap = _GPU.search(line), _SWAP.search(line)
        # Sensors that are off show -256 or -127 degrees.
        degrees = [float(value) for _, value in _TEMPERATURE.findall(line) if float(value) > -50]
        samples.append(
            TegraSample(
                gpu_load=int(gpu[1]) if gpu else None,
                gpu_mhz=int(gpu[2]) if gpu and gpu[2] else None,
                hottest_c=max(degrees, default=None),
                swap_mb=int(swap[1]) if swap else None,
            )
        )
    return samples


def judge_jetson(lines: list[str], power_mode: str, clocks: str) -> list[Check]:
    """Judges the samples of a timed part.

    Args:
        lines: of `tegrastats`.
        power_mode: what `nvpmodel -q` printed.
        clocks: what `jetson_clocks --show` printed.
    """
    samples = parse_tegrastats(lines)
    return [
        _check_temperature(samples),
        _check_clock(samples),
        _check_swap(samples),
        _check_mode(power_mode),
        _check_locked(clocks),
    ]


def _check_temperature(samples: list[TegraSample]) -> Check:
    hottest = max((s.hottest_c for s in samples if s.hottest_c is not None), default=None)
    if hottest is None:
        return Check("Jetson temperature", "unknown", "tegrastats gave none")
    verdict = "invalid" if hottest >= TOO_HOT_C else "warn" if hottest >= HOT_C else "ok"
    return Check("Jetson temperature", verdict, f"{hottest:g} °C, throttles from {TOO_HOT_C:g} °C")


def _check_clock(samples: list[TegraSample]) -> Check:
    clocks = [sample.gpu_mhz for sample in samples if sample.gpu_mhz]
    if not clocks:
        return Check("Jetson GPU clock", "unknown", "tegrastats gave none")
    spread = 100 * (max(clocks) - min(clocks)) / max(clocks)
    verdict = "invalid" if spread > CLOCK_INVALID else "warn" if spread > CLOCK_WARN else "ok"
    return Check("Jetson GPU clock", verdict, f"varied by {spread:.1f} % below {max(clocks)} MHz")


def _check_swap(samples: list[TegraSample]) -> Check:
    used = [sample.swap_mb for sample in samples if sample.swap_mb is not None]
    if not used:
        return Check("Jetson swap", "unknown", "tegrastats gave none")
    grown = max(used) - used[0]
    return Check("Jetson swap", "invalid" if grown > 0 else "ok", f"grew by {grown} MB")


def _check_mode(text: str) -> Check:
    found = _MODE.search(text)
    if found is None:
        return Check("Jetson power mode", "unknown", "nvpmodel gave none")
    return Check("Jetson power mode", "ok" if "MAXN" in found[1] else "warn", found[1])


def _check_locked(text: str) -> Check:
    gpu = re.search(r"GPU MinFreq=(\d+) MaxFreq=(\d+)", text)
    if gpu is None:
        return Check("jetson_clocks", "unknown", "not told (it needs root)")
    locked = gpu[1] == gpu[2]
    return Check(
        "jetson_clocks",
        "ok" if locked else "warn",
        "clocks are locked" if locked else "clocks may vary; run `jetson_clocks`",
    )
