"""Was the machine fit for measuring? Sensors, thresholds, and a no-op control at the same rate.

The verdict on the machine is apart from the verdict on the latency: a disturbed run says nothing,
neither pass nor fail. What cannot be read is `unknown` and shown as such.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from latency_budget.binomial import binomial_tail
from latency_budget.run import Nanoseconds, Run
from latency_budget.sensors import Snapshot, describe_machine, read_text_or_empty
from latency_budget.statistics import percentile_ns

WAKEUP_INVALID_NS, WAKEUP_WARN_NS = 660_000, 200_000
SWITCHES_INVALID, SWITCHES_WARN = 0.2, 0.02
WAIT_INVALID, WAIT_WARN = 2.0, 0.6
HELPERS_INVALID, HELPERS_WARN = 30.0, 10.0
FOREIGN_INVALID, FOREIGN_WARN = 25.0, 5.0
STEAL_INVALID, STEAL_WARN = 1.0, 0.1
PRESSURE_INVALID, PRESSURE_WARN = 20.0, 5.0
STEADY_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock")
_WAKEUP_QUANTILE = 0.999
_NONE_ALLOWED = (
    ("major_faults", "major page faults", "{:.0f} in the timed part"),
    ("swapped_pages", "swapping", "{:.0f} pages in the timed part"),
    ("throttle_count", "thermal throttling", "{:.0f} events"),
)


@dataclass(frozen=True)
class Check:
    """One question to the machine.

    Attributes:
        name: what was looked at.
        verdict: "ok", "warn", "invalid" or "unknown".
        detail: the value beside its limit, in one line.
    """

    name: str
    verdict: str
    detail: str


@dataclass(frozen=True)
class Environment:
    """The state of the machine during a run.

    Attributes:
        checks: every question, also those that could not be answered.
        machine: processor, kernel and versions, for the report.
    """

    checks: tuple[Check, ...]
    machine: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """The worst check: "invalid", "warn" or "ok"; unknown sensors count as ok."""
        found = {check.verdict for check in self.checks}
        return "invalid" if "invalid" in found else "warn" if "warn" in found else "ok"


def judge_environment(
    run: Run,
    controls: list[Nanoseconds] | None = None,
    *,
    extra: Sequence[Check] = (),
    root: Path = Path("/"),
) -> Environment:
    """Judges the machine during a run.

    Args:
        run: the paced run, with its snapshots.
        controls: wake-up errors in ns of a no-op at the same rate, one array per control.
        extra: checks of further sensors (`latency_budget.gpu`, `latency_budget.jetson`).
        root: where `proc` and `sys` are.
    """
    checks = [_check_wakeups("no-op control, wake-up error", controls or [])]
    if run.mode in ("fifo", "latest"):
        period_ns = round(1e9 / run.rate_hz) if run.rate_hz else None
        checks.append(
            _check_wakeups("idle frames, wake-up error", [run.wakeup_errors_ns()], period_ns)
        )
    if run.snapshots is not None:
        checks += _check_counters(*run.snapshots, run)
    checks += list(extra)
    stopped = "invalid" if run.stops else "ok"
    checks.append(Check("stopped by a signal", stopped, f"{run.stops} times, limit 0"))
    collected = run.gc_collections
    checks.append(
        Check(
            "garbage collections",
            "warn" if collected else "ok",
            f"{collected} in the timed part, limit 0",
        )
    )
    checks += [_check_governor(root), _check_clock(root)]
    return Environment(tuple(checks), describe_machine(root))


def _check_wakeups(name: str, parts: list[Nanoseconds], stop_ns: int | None = None) -> Check:
    """P99.9 above its limit at 95 % confidence; one single late wake-up is no proof of that.

    A wake-up later than a whole period (`stop_ns`) is: the process did not run at all.
    """
    parts = [part for part in parts if len(part)]
    if not parts:
        return Check(name, "unknown", "not measured")
    errors = np.sort(np.concatenate(parts))
    late = int((errors > WAKEUP_INVALID_NS).sum())
    chance = binomial_tail(late, len(errors), 1 - _WAKEUP_QUANTILE) if late else 1.0
    worst = percentile_ns(errors, _WAKEUP_QUANTILE)
    shown = int(errors[-1]) if worst is None else worst
    label = "worst" if worst is None else "P99.9"
    detail = (
        f"{label} {shown / 1e6:.3f} ms, {late} of {len(errors)} above {WAKEUP_INVALID_NS / 1e6} ms"
    )
    if chance <= 0.05:
        return Check(name, "invalid", detail)
    if stop_ns is not None and errors[-1] > stop_ns:
        return Check(name, "invalid", f"the process stood still for {errors[-1] / 1e6:.1f} ms")
    return Check(name, "warn" if shown > WAKEUP_WARN_NS else "ok", detail)


def _check_counters(before: Snapshot, after: Snapshot, run: Run) -> list[Check]:
    steal = _difference(before.steal_ticks, after.steal_ticks)
    total = _difference(before.total_ticks, after.total_ticks)
    waits = _check_waits(before, after, run)
    neighbours = [
        _check_limit(
            "other processes",
            _share(_foreign_ticks(before, after), total),
            (FOREIGN_WARN, FOREIGN_INVALID),
            "{:.1f} % of the processors' time",
        ),
        *(_check_pressure(name, value) for name, value in after.pressure.items()),
    ]
    if all(check.verdict == "ok" for check in waits[:2]):
        neighbours = [_excuse(check) for check in neighbours]
    checks = [
        *waits,
        _check_limit(
            "steal",
            _share(steal, total),
            (STEAL_WARN, STEAL_INVALID),
            "{:.2f} % of the processors' time",
        ),
        *neighbours,
    ]
    for counter, name, form in _NONE_ALLOWED:
        grown = _difference(getattr(before, counter), getattr(after, counter))
        checks.append(_check_limit(name, grown, (0, 0), form))
    return checks


def _check_pressure(name: str, value: float | None) -> Check:
    limits = (PRESSURE_WARN, PRESSURE_INVALID)
    return _check_limit(f"pressure, {name}", value, limits, "{:.1f} % of the last 10 s")


def _excuse(check: Check) -> Check:
    """A busy neighbour that never made the measured threads wait only warns (realtime priority)."""
    if check.verdict != "invalid" or check.name not in ("other processes", "pressure, cpu"):
        return check
    return Check(check.name, "warn", f"{check.detail}; the measured threads did not wait")


def _check_waits(before: Snapshot, after: Snapshot, run: Run) -> list[Check]:
    """How long the timed thread stood in line for a processor, and how often it was put there.

    The wait decides where it can be read. The count alone misleads: a runtime's thread that spins
    calls `sched_yield`, which counts as an involuntary switch though nobody else wanted to run.
    """
    waited = _difference(before.wait_ns, after.wait_ns)
    lasted = int(run.done_ns.max() - run.start_ns.min()) if run.count else 0
    wait = _check_limit(
        "waiting for a processor",
        _share(waited, max(1, lasted)),
        (WAIT_WARN, WAIT_INVALID),
        "{:.2f} % of the time",
    )
    helpers = _check_limit(
        "runtime threads waiting",
        _share(_difference(before.helpers_wait_ns, after.helpers_wait_ns), max(1, lasted)),
        (HELPERS_WARN, HELPERS_INVALID),
        "{:.1f} % of the time",
    )
    switches = _difference(before.involuntary_switches, after.involuntary_switches)
    counted = _check_limit(
        "involuntary switches",
        None if switches is None else switches / max(1, run.count),
        (SWITCHES_WARN, SWITCHES_INVALID),
        "{:.3f} per frame",
    )
    if wait.verdict != "unknown" and counted.verdict == "invalid":
        detail = f"{counted.detail}; judged by the wait for a processor"
        counted = Check(counted.name, "warn" if wait.verdict != "ok" else "ok", detail)
    return [wait, helpers, counted]


def _foreign_ticks(before: Snapshot, after: Snapshot) -> int | None:
    busy = _difference(before.busy_ticks, after.busy_ticks)
    own = _difference(before.own_ticks, after.own_ticks)
    return None if busy is None or own is None else max(0, busy - own)


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or whole is None else 100 * part / max(1, whole)


def _check_limit(name: str, value: float | None, limits: tuple[float, float], form: str) -> Check:
    if value is None:
        return Check(name, "unknown", "this machine does not tell")
    warn, invalid = limits
    verdict = "invalid" if value > invalid else "warn" if value > warn else "ok"
    return Check(name, verdict, f"{form.format(value)}, limit {invalid:g}")


def _check_governor(root: Path) -> Check:
    folder = root / "sys/devices/system/cpu"
    found = sorted(
        {read_text_or_empty(path).strip() for path in folder.glob("cpu*/cpufreq/scaling_governor")}
    )
    if not found:
        return Check("frequency governor", "unknown", "this machine does not tell")
    fixed = found == ["performance"]
    return Check(
        "frequency governor",
        "ok" if fixed else "warn",
        ", ".join(found) + ("" if fixed else "; 'performance' measures more evenly"),
    )


def _check_clock(root: Path) -> Check:
    source = read_text_or_empty(
        root / "sys/devices/system/clocksource/clocksource0/current_clocksource"
    ).strip()
    if not source:
        return Check("clock source", "unknown", "this machine does not tell")
    return Check("clock source", "ok" if source in STEADY_CLOCKS else "warn", source)


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def join_environments(parts: Sequence[Environment]) -> Environment:
    """Returns one state of the machine for several processes: of each check the worst answer."""
    order = ("ok", "unknown", "warn", "invalid")
    worst: dict[str, tuple[int, Check]] = {}
    for number, part in enumerate(parts, 1):
        for check in part.checks:
            held = worst.get(check.name)
            if held is None or order.index(check.verdict) > order.index(held[1].verdict):
                worst[check.name] = (number, check)
    several = len(parts) > 1
    checks = [
        replace(check, detail=f"{check.detail} (process {number})")
        if several and check.verdict in ("warn", "invalid")
        else check
        for number, check in worst.values()
    ]
    return Environment(tuple(checks), parts[0].machine if parts else {})
