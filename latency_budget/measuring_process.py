"""Starts the process that measures, follows what it says, and ends it where it says nothing more.

A stage that never returns would keep a CI job for ever. So the process's `Pulse` is looked at about
once a second: the time without a new mark is limited, and what was killed is told by name.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import sysconfig
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts import errors
from artifacts.errors import FramefitError, InputError
from latency_budget.clock import MonotonicClock
from latency_budget.experiment import Progress
from latency_budget.last_words import LastWords
from latency_budget.pulse import OUTSIDE, Pulse, find_place, make_pulse

COLD_FACTOR = 10
"""How much longer than a warm frame the load and the first frames may take: they compile."""
ENDING_S = 5.0
_HELPERS_LOOKS = 40
_HELPERS_LOOK_NS = 50_000_000
_TELLING_LOOKS = 40
_TELLING_LOOK_NS = 50_000_000
_LOOK_S = 1.0
_CONTROL_FRAMES = 120
"""Frames of a no-op at the camera's rate, between parts, that move no pulse."""
_READY = "stages and frames that are ready to run"
_CRASHES = (
    signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS,
    signal.SIGTRAP,
)  # fmt: skip
_OURS = (str(Path(__file__).parent), "<")
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
_CALL = re.compile(r'^  File "(?P<file>.+)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a measuring process may stand still.

    Attributes:
        frame_s: a stage on one frame; `COLD_FACTOR` times as long for the load and the first ten
            frames.
        period_s: of the camera; nothing moves while a frame is waited for.
    """

    frame_s: float
    period_s: float


def measure_in_child(
    request: dict[str, Any], patience: Patience, progress: Progress | None, label: str
) -> None:
    """Has a fresh process follow a request, and returns when what it measured is written.

    Args:
        request: see `child.main`; the time of the call and the pulse are added.
        patience: how long it may stand still.
        progress: called with (what, done, total) between the parts.
        label: stands before what is done.

    Raises:
        InputError: it was killed since a stage, or what makes the stages, does not return.
        FramefitError: what the process raised, of the same kind; or it died or stands still.
    """
    command = [sys.executable, "-P", "-m", "latency_budget.child"]
    pulse, descriptor = make_pulse()
    request |= {"called_ns": MonotonicClock().now_ns(), "pulse": descriptor}
    with closing(LastWords()) as words, closing(pulse):
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words.fileno(),
                env=_child_environment(),
                start_new_session=True,
                pass_fds=(descriptor,),
            )
        finally:
            os.close(descriptor)
        follower = _Follower(child, pulse, patience, words)
        try:
            is_measured = follower.listen(request, progress, label)
        finally:
            _end(child)
        if not is_measured:
            raise follower.explain_end(child.returncode)


class _Follower:
    """Follows one process to the end of its measurement."""

    def __init__(
        self,
        child: "subprocess.Popen[bytes]",
        pulse: Pulse,
        patience: Patience,
        words: LastWords,
    ) -> None:
        self._child = child
        self._pulse = pulse
        self._patience = patience
        self._words = words
        self._unread = b""
        self._stages: tuple[str, ...] = ()
        self._part = ""
        self._parts_begun = 0

    def listen(self, request: dict[str, Any], progress: Progress | None, label: str) -> bool:
        """Returns whether the process said that its measurement is written.

        It is given some time to end then; a thread that a pipeline left behind would keep it
        forever.
        """
        child = self._child
        if child.stdin is None or child.stdout is None:
            raise FramefitError("the measuring process has no pipes")
        with suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(json.dumps(request).encode())
        is_measured = False
        with child.stdout as stream:
            while not is_measured and (line := self._next_line(stream.fileno())):
                message = json.loads(line)
                if "error" in message:
                    self._let_end()
                    raise _error_of(message)
                is_measured = "measured" in message
                self._stages = tuple(message.get("stages", self._stages))
                if "progress" in message:
                    self._part, done, total = message["progress"]
                    self._parts_begun += 1
                    if progress is not None:
                        progress(f"{label}{self._part}", done, total)
            self._let_end()
        return is_measured

    def describe_place(self) -> str:
        """Returns the stage and the frame in which the process is, empty outside of all stages."""
        place = find_place(self._pulse.cell[0], self._stages)
        if place is None or not place.stage:
            return ""
        return f" in stage '{place.stage}' on frame {place.frame} of '{self._part}'"

    def explain_end(self, code: int) -> FramefitError:
        """Returns why the process ended before it was done.

        A stage that crashes, like one that raises, and what cannot be loaded are not ours to mend.

        Args:
            code: its exit code, below 0 the signal.
        """
        words = [line for line in self._words.read_from().strip().splitlines() if line.strip()]
        last = words[-1] if words else "it said nothing"
        place, is_crash = self.describe_place(), -code in _CRASHES
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        how += f" ({signal.Signals(-code).name})" if is_crash else ""
        what = f"the measuring process ended {how}{place} before it was done: {last}"
        if place and (is_crash or code >= 0):
            return InputError(what, "a stage that returns", "try it on this frame by itself")
        if is_crash and not self._stages:
            return InputError(what, _READY, "load it by itself in Python")
        if code == -signal.SIGKILL:
            return FramefitError(what, fix="the system kills like that where memory runs out")
        return FramefitError(what)

    def _let_end(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(ENDING_S)

    def _next_line(self, descriptor: int) -> bytes:
        """Returns the process's next line, empty at the end.

        Time is counted in looks, so that a machine that slept, or stood still as a whole, is not
        taken for a stage that hangs.

        Raises:
            FramefitError: nothing moved for too long.
        """
        clock, still_s, last = MonotonicClock(), 0.0, self._pulse.cell[0]
        look_s = min(_LOOK_S, self._patience.frame_s / 4)
        while b"\n" not in self._unread:
            begun_ns = clock.now_ns()
            if select.select([descriptor], [], [], look_s)[0]:
                piece = os.read(descriptor, 1 << 16)
                self._unread += piece
                if not piece:
                    return b""
                continue
            self._words.shorten()
            still_s += min((clock.now_ns() - begun_ns) / 1e9, 2 * look_s)
            last, before = self._pulse.cell[0], last
            if last != before:
                still_s = 0.0
            elif still_s > self._limit_s(last):
                raise self._stands_still(last, still_s)
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    @property
    def _is_cold(self) -> bool:
        return self._parts_begun < 2  # The part after the first frames has not begun.

    def _limit_s(self, value: int) -> float:
        limit_s = self._patience.frame_s * (COLD_FACTOR if self._is_cold else 1)
        place = find_place(value, self._stages)
        if not self._parts_begun or (place is not None and place.stage):
            return limit_s
        return limit_s + (2 if place else _CONTROL_FRAMES) * self._patience.period_s

    def _stands_still(self, value: int, still_s: float) -> FramefitError:
        call = self._ask_where()
        place = find_place(value, self._stages)
        took = f"in {still_s:.0f} s{f' (it is in {call})' if call else ''}"
        fix = "or give it more time with --timeout"
        if place is not None and place.stage:
            return InputError(
                f"stage '{place.stage}' has not returned from frame {place.frame} "
                f"of '{self._part}' {took}",
                "a stage that ends",
                f"try it on this frame by itself, {fix}",
            )
        if self._is_cold and value == OUTSIDE:
            what = "give its first frame" if self._stages else "make its stages"
            return InputError(
                f"what is to be measured did not {what} {took}",
                _READY,
                f"load it by itself in Python, {fix}",
            )
        return FramefitError(f"the measuring process has not moved {took}, outside of all stages")

    def _ask_where(self) -> str:
        """Returns where the process's main thread is, in code of its own if there is any.

        The process's fault handler tells, which needs neither Python's lock nor a returning call.
        """
        told_before = self._words.count_bytes()
        with suppress(ProcessLookupError):
            os.kill(self._child.pid, signal.SIGUSR1)
        told = ""
        for _ in range(_TELLING_LOOKS):
            MonotonicClock().rest_ns(_TELLING_LOOK_NS)
            if told == (told := self._words.read_from(told_before)) and told:
                break
        calls = list(_CALL.finditer(told))
        for skipped in ((*_OURS, *_LIBRARIES), _OURS):
            for call in calls:
                if not call["file"].startswith(skipped):
                    return f"{call['name']}, {Path(call['file']).name} line {call['line']}"
        return ""


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kills the process if it has not ended, and what it started and left behind.

    Where it ended by itself, its helpers are given some time to notice.
    """
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # A driver may keep it in the kernel for ever.
            child.wait(ENDING_S)
    with suppress(ProcessLookupError, PermissionError):
        for _ in range(_HELPERS_LOOKS):
            os.killpg(child.pid, 0)
            MonotonicClock().rest_ns(_HELPERS_LOOK_NS)
        os.killpg(child.pid, signal.SIGKILL)


def _child_environment() -> dict[str, str]:
    """The child finds our packages where this process found them, from any folder."""
    home = str(Path(__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in (home, inherited) if part)}


def _error_of(message: dict[str, Any]) -> FramefitError:
    kind = getattr(errors, message["kind"], FramefitError)
    if kind in (
        errors.InputError,
        errors.UnsafeFileError,
        errors.UnavailableError,
        errors.DeviceFaultError,
    ):
        return kind(**message["error"])
    error = FramefitError(**message["error"])
    if isinstance(kind, type) and issubclass(kind, errors.UnavailableError):
        return errors.UnavailableError(**message["error"])
    return error
