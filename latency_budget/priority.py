"""Processors and priority of the measuring process: asked for, got, and why not."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.errors import InputError

PRIORITIES = ("normal", "high", "realtime")  # from low to high
_NICE_HIGH = -10
_REALTIME_LEVEL = 10
_AUTOGROUP = Path("/proc/self/autogroup")


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """Where and how urgently the measured threads run.

    Attributes:
        cpus: processors to stay on; empty for all.
        priority: "normal", "high" (nice -10) or "realtime" (SCHED_FIFO 10: other work on these
            processors waits).
    """

    cpus: tuple[int, ...] = ()
    priority: str = "normal"

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise InputError(f"priority is '{self.priority}'", " or ".join(PRIORITIES))
        if any(cpu < 0 for cpu in self.cpus):
            raise InputError(f"cpus are {list(self.cpus)}", "numbers of 0 or more")

    def apply(self) -> dict[str, Any]:
        """Asks the system for it, for this process and the threads that it starts from now on.

        Returns:
            {"cpus": {"asked", "got"}, "priority": {"asked", "got"}}. A right that is missing is
            told, never an error: the environment check shows it.
        """
        return {"cpus": self._pin(), "priority": self._raise_priority()}

    def _pin(self) -> dict[str, Any]:
        if not hasattr(os, "sched_setaffinity"):
            return {"asked": list(self.cpus) or None, "got": "this system has no affinity"}
        if self.cpus:
            try:
                os.sched_setaffinity(0, self.cpus)
            except OSError as error:
                return {"asked": list(self.cpus), "got": f"refused: {error.strerror}"}
        got = sorted(os.sched_getaffinity(0))
        return {"asked": sorted(self.cpus) or None, "got": got}

    def _raise_priority(self) -> dict[str, Any]:
        """What is refused falls back to the next lower one."""
        refusals = []
        for name in PRIORITIES[PRIORITIES.index(self.priority) : 0 : -1]:
            try:
                _CHANGES[name]()
            except (OSError, AttributeError) as error:
                refusals.append(f"{name}: {getattr(error, 'strerror', None) or 'not here'}")
                continue
            return {"asked": self.priority, "got": name, "refused": refusals}
        return {"asked": self.priority, "got": "normal", "refused": refusals}


def is_realtime() -> bool:
    """Returns whether this thread may keep its processor as long as it likes (SCHED_FIFO, RR)."""
    if not hasattr(os, "sched_getscheduler"):
        return False
    return os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)


def _become_urgent() -> None:
    """Nice counts only within an automatic task group, so the group of this session rises too."""
    os.setpriority(os.PRIO_PROCESS, 0, _NICE_HIGH)
    if hasattr(os, "getsid") and os.getsid(0) == os.getpid() and _AUTOGROUP.exists():
        _AUTOGROUP.write_text(str(_NICE_HIGH), encoding="ascii")


def _become_realtime() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_REALTIME_LEVEL))


_CHANGES: dict[str, Callable[[], None]] = {"high": _become_urgent, "realtime": _become_realtime}
