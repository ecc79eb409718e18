"""Processors and priority of the measuring process: asked for, got, and why not."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.errors import InputError

PRIORITIES = ("normal", "high", "realtime")
_NICE_HIGH = -10
_REALTIME_LEVEL = 10


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
        try:
            if self.priority == "high":
                os.setpriority(os.PRIO_PROCESS, 0, _NICE_HIGH)
            elif self.priority == "realtime":
                level = os.sched_param(_REALTIME_LEVEL)
                os.sched_setscheduler(0, os.SCHED_FIFO, level)
        except (OSError, AttributeError) as error:
            reason = getattr(error, "strerror", None) or "not on this system"
            return {"asked": self.priority, "got": f"normal ({reason})"}
        return {"asked": self.priority, "got": self.priority}


def find_unmet(described: Mapping[str, Any]) -> list[str]:
    """Returns in words what `Scheduling.apply` asked for and did not get."""
    return [
        f"{name}: asked for {value['asked']}, got {value['got']}"
        for name, value in described.items()
        if value["asked"] not in (None, value["got"])
    ]
