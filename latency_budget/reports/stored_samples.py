"""The samples that a report.json holds, and what it tells of how they were measured."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from latency_budget.environment import Check, Environment
from latency_budget.report import SCHEMA


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """How samples were measured; the defaults where their file tells nothing.

    A report that was invalid does not become valid by judging its samples again, nor a network
    alone a whole frame.

    Attributes:
        environment: the machine's state; None where it was not observed.
        session: what `Session.describe()` said.
        rate_hz: the camera's rate that the frames were judged for.
        is_whole_frame: False where only a part of the frame was measured.
        process_frames: frames of each process, in order; empty where that is not known.
        policy: "fifo", "latest" or "closed"; empty where the samples were recorded.
        mode: the driving mode, empty for every head; None where it is not known.
        verdict: of the report; empty where there is none.
    """

    environment: Environment | None = None
    session: Mapping[str, Any] | None = None
    rate_hz: float | None = None
    is_whole_frame: bool = True
    process_frames: tuple[int, ...] = ()
    policy: str = ""
    mode: str | None = None
    verdict: str = ""

    def origins(self, count: int) -> tuple[int, ...]:
        """Returns the number of each process's first frame, where theirs are `count` together."""
        ends = tuple(accumulate(self.process_frames))
        return (0, *ends[:-1]) if ends[-1:] == (count,) else (0,)


def read_columns(content: Any) -> dict[str, list[Any]]:
    """Returns the samples of a report's last variant as columns of recorded latencies.

    Raises:
        ValueError: it is not a report of this schema, or holds no samples.
    """
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise ValueError(f"not a report of schema {SCHEMA}")
    try:
        last = content["samples"][-1]
        frame = [None if value is None else int(value) for value in last["frame_ns"]]
        stages = {f"{name}_ns": list(values) for name, values in last["stages_ns"].items()}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError("it holds no frame samples") from error
    if not frame:
        raise ValueError("it holds no frame samples")
    return {"latency_ns": frame, "dropped": [int(value is None) for value in frame], **stages}


def read_circumstances(content: Mapping[str, Any]) -> Circumstances:
    """Returns how the samples of a report's last variant were measured.

    Raises:
        ValueError: a part is of another kind.
    """
    try:
        observed = content.get("environment", {})
        checks = observed.get("checks")
        details = content.get("variants", [{}])[-1].get("details", {})
        rate_hz = content.get("frame", {}).get("rate_hz")
        mode = details.get("mode", "")
        how = details.get("plan", {}).get("values", {}).get("how", {})
        session = details.get("session")
        if not isinstance(session, Mapping | None):
            raise TypeError(f"its session is a {type(session).__name__}")
        return Circumstances(
            environment=None
            if checks is None
            else Environment(
                tuple(Check(**check) for check in checks), dict(observed.get("machine", {}))
            ),
            session=session,
            rate_hz=None if rate_hz is None else float(rate_hz),
            is_whole_frame=bool(details.get("is_whole_frame", True)),
            process_frames=tuple(int(part["n"]) for part in details.get("processes", ())),
            policy="" if mode == "recorded" else str(mode),
            mode=how["mode"] or "" if "mode" in how else None,
            verdict=str(content.get("verdict", "")),
        )
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"it is not a whole report: {error!r}") from error
