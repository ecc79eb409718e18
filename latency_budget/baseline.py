"""A stored run that a check compares with; one that was measured otherwise proves nothing."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifacts.errors import InputError
from latency_budget.environment import Environment
from latency_budget.reports.read_report import read_content
from latency_budget.reports.stored_samples import Circumstances, read_circumstances, read_columns
from latency_budget.run import DROPPED_NS, Nanoseconds

_WHAT = "a report.json of framefit"
_MACHINE = ("processor", "processors")


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a check must not be slower than.

    Attributes:
        path: its report.json.
        latency_ns: [n] its frames, `DROPPED_NS` for dropped ones.
        circumstances: how it was measured.
    """

    path: Path
    latency_ns: Nanoseconds
    circumstances: Circumstances

    def require_like(self, now: Circumstances, *, environment_mode: str) -> None:
        """Refuses a baseline that was invalid, or that holds something else than what is checked.

        Args:
            now: how the frames are measured that are compared with it.
            environment_mode: `Budget.environment`; "report" takes a disturbed machine's too.

        Raises:
            InputError: with what differs.
        """
        was = self.circumstances
        if was.verdict == "invalid":
            raise InputError(
                f"the baseline {self.path} was judged invalid",
                "samples of a quiet machine",
                "measure the baseline again",
            )
        is_disturbed = was.environment is not None and was.environment.verdict == "invalid"
        if is_disturbed and environment_mode != "report":
            raise InputError(
                f"the baseline {self.path} was measured on a disturbed machine",
                "samples of a quiet machine",
                "measure the baseline again",
            )
        pairs = {
            "at the rate": (_rate(was.rate_hz), _rate(now.rate_hz)),
            "as": (_extent(was.is_whole_frame), _extent(now.is_whole_frame)),
            "with the policy": (was.policy, now.policy),
            "with": (_heads(was.mode), _heads(now.mode)),
        }
        for name, (before, after) in pairs.items():
            if before and after and before != after:
                raise InputError(
                    f"the baseline {self.path} was measured {name} {before}",
                    f"{after}, as the frames that are compared with it",
                    "measure the baseline again in this way",
                )

    def describe_other_machine(self, environment: Environment | None) -> str:
        """Returns how the baseline's machine differs; empty where it does not, or is not known."""
        before = _describe_machine(self.circumstances.environment)
        after = _describe_machine(environment)
        if not before or not after or before == after:
            return ""
        return f"the baseline was measured on another machine ({before}; here {after})"


def read_baseline(path: Path | str) -> Baseline:
    """Reads the last variant of a report.json.

    Raises:
        InputError: the file is missing, is not such a report, or holds no samples.
    """
    path = Path(path)
    content = read_content(path)
    try:
        columns, circumstances = read_columns(content), read_circumstances(content)
    except ValueError as error:
        raise InputError(f"{path}: {error}", _WHAT) from error
    times = [DROPPED_NS if value is None else value for value in columns["latency_ns"]]
    impossible = sum(not 0 < value <= DROPPED_NS for value in times)
    if impossible:
        raise InputError(f"{path} holds {impossible} impossible times", _WHAT)
    return Baseline(path=path, latency_ns=np.asarray(times, np.int64), circumstances=circumstances)


def _rate(rate_hz: float | None) -> str:
    return f"{rate_hz:g} Hz" if rate_hz else ""


def _extent(is_whole_frame: bool) -> str:
    return "a whole frame" if is_whole_frame else "a part of the frame"


def _heads(mode: str | None) -> str:
    return "" if mode is None else f"the heads of '{mode}'" if mode else "every head"


def _describe_machine(environment: Environment | None) -> str:
    machine = environment.machine if environment else {}
    if not all(machine.get(key) for key in _MACHINE):
        return ""
    return f"{machine['processor']}, {machine['processors']} processors"
