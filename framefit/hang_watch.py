"""Ends a command whose runtime never answers: with one line, and as on a machine that lacks it.

Runtimes give Python's lock back while they compile and run networks (onnxruntime and OpenVINO do),
so that a thread can look at them; a call that keeps the lock is not noticed.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from artifacts.errors import UnavailableError
from framefit.interrupts import leave

if TYPE_CHECKING:
    from engines.session import Session, SessionSettings
    from latency_budget.pulse import Pulse

TIMEOUT_S = 60.0
COLD_FACTOR = 10
"""How much longer than an inference the opening of a network and its first inference may take."""
_LOOK_S = 1.0
_LOOKS = 4


@dataclass(eq=False)
class _Call:
    """A call into a runtime.

    Attributes:
        what: the runtime has not done, if this is the last that is seen of it.
        limit_s: how long it may take; of many inferences, each.
        pulse: changes with each inference; None for a single call.
    """

    what: str
    limit_s: float
    pulse: "Pulse | None" = None


class HangWatch:
    """Looks about once a second at the call into a runtime that is under way.

    Time is counted in looks, so that a machine that slept is not taken for a runtime that hangs.

    Args:
        timeout_s: the longest that one inference may take.
        fix: what the user can do about a runtime that hangs.
    """

    def __init__(
        self, timeout_s: float = TIMEOUT_S, fix: str = "update the runtime, or try another"
    ) -> None:
        self.timeout_s = timeout_s
        self._fix = fix
        self._call: _Call | None = None
        self._pulse: Pulse | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()
        if self._pulse is not None:
            self._pulse.close()

    @contextmanager
    def during(
        self, what: str, *, is_cold: bool = False, pulse: "Pulse | None" = None
    ) -> Iterator[None]:
        """Limits the time of a call.

        Args:
            what: the runtime has not done, such as "openvino has not opened net.onnx".
            is_cold: it compiles.
            pulse: of many inferences, see `latency_budget.measure.MeasureSettings`.
        """
        limit_s = self.timeout_s * (COLD_FACTOR if is_cold else 1)
        self._call = _Call(what, limit_s, pulse)
        try:
            yield
        finally:
            self._call = None

    @contextmanager
    def during_many(self, what: str, *, is_cold: bool = False) -> "Iterator[Pulse]":
        """Limits the time of each of many inferences; yields the pulse that they change.

        Args:
            what: see `during`.
            is_cold: see `during`.
        """
        from latency_budget.pulse import make_pulse

        if self._pulse is None:
            self._pulse, descriptor = make_pulse()
            os.close(descriptor)
        with self.during(what, is_cold=is_cold, pulse=self._pulse):
            yield self._pulse

    def open(self, path: Path, runtime: str | None, settings: "SessionSettings") -> "Session":
        """Opens a network within the time; see `network_check.open_checked_session`."""
        from engines.runtimes import default_runtime
        from framefit.network_check import open_checked_session

        with self.during(f"{runtime or default_runtime(path)} has not opened {path}", is_cold=True):
            return open_checked_session(path, runtime, settings)

    def limit(self, session: "Session", name: str) -> Callable[[Any], Any]:
        """Returns the session's `run`, each call within the time.

        Args:
            session: an opened network.
            name: of the network, for the error.
        """
        has_run = False

        def run(feeds: Any) -> Any:
            nonlocal has_run
            what = f"{session.runtime} has not returned from running {name}"
            with self.during(what, is_cold=not has_run):
                outputs = session.run(feeds)
            has_run = True
            return outputs

        return run

    def _look(self) -> None:
        look_s = min(_LOOK_S, self.timeout_s / _LOOKS)
        seen, still_s = None, 0.0
        while not self._is_over.wait(look_s):
            call = self._call
            now = (call, call.pulse.cell[0] if call and call.pulse else 0)
            still_s = still_s + look_s if now == seen else 0.0
            seen = now
            if call is not None and still_s > call.limit_s:
                self._end(call, still_s)

    def _end(self, call: _Call, still_s: float) -> None:
        took = f"{call.what} in {still_s:.0f} s"
        error = UnavailableError(took, "a runtime that answers", self._fix)
        sys.stdout.flush()
        leave(f"error: {error}", error.exit_code)
