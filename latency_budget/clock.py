"""The only place that reads a clock, so that everything else can be tested without sleeping."""

import time
from itertools import repeat
from typing import Protocol

from artifacts.errors import UnavailableError

SPIN_NS = 1_500_000
_LOOKS = 20_000_000
"""Half a second of looking at a clock at least: long enough to tell one that stands still."""


class Clock(Protocol):
    """A monotonic clock in integer nanoseconds that can also wait."""

    def now_ns(self) -> int:
        """Returns the time in nanoseconds since an arbitrary, fixed moment."""
        ...

    def wait_until_ns(self, moment_ns: int) -> None:
        """Returns at `moment_ns`, or at once where that has passed."""
        ...

    def rest_ns(self, duration_ns: int) -> None:
        """Leaves the processor to others for about `duration_ns`."""
        ...


class MonotonicClock:
    """The machine's monotonic clock (`CLOCK_MONOTONIC`), untouched by changes of the date.

    The functions are those that Python had when this module was imported: a pipeline that replaces
    them, as tests that freeze the time do, changes no measurement.

    Args:
        spin_ns: how long before the moment sleeping ends and spinning begins; a sleep alone wakes
            up to a millisecond late.
    """

    _functions = (time.monotonic_ns, time.sleep)

    def __init__(self, spin_ns: int = SPIN_NS) -> None:
        self._spin_ns = spin_ns
        self.now_ns, self._sleep = self._functions

    def wait_until_ns(self, moment_ns: int) -> None:
        """Sleeps until shortly before `moment_ns`, then spins.

        Raises:
            UnavailableError: the clock stands still.
        """
        now_ns = self.now_ns
        remaining_ns = moment_ns - now_ns() - self._spin_ns
        if remaining_ns > 0:
            self._sleep(remaining_ns / 1e9)
        before_ns = -1
        while before_ns != (before_ns := now_ns()):
            for _ in repeat(None, _LOOKS):
                if now_ns() >= moment_ns:
                    return
        raise UnavailableError(
            "the clock stands still, so nothing can be measured",
            "a monotonic clock that moves",
            "leave the time alone in the pipeline, or measure on another machine",
        )

    def rest_ns(self, duration_ns: int) -> None:
        """Sleeps, without the spinning that would keep the processor."""
        self._sleep(duration_ns / 1e9)


class ManualClock:
    """A clock that moves only when told: for tests, and for trying a verdict on a made-up machine.

    Args:
        start_ns: the time it shows first.
        wakeup_error_ns: how late every wait returns.
    """

    def __init__(self, start_ns: int = 1_000_000_000, wakeup_error_ns: int = 0) -> None:
        self._now_ns = start_ns
        self.wakeup_error_ns = wakeup_error_ns

    def now_ns(self) -> int:
        """Returns the time it was moved to."""
        return self._now_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Moves the clock by `duration_ns`; a negative one is a faulty clock."""
        self._now_ns += duration_ns

    def wait_until_ns(self, moment_ns: int) -> None:
        """Moves the clock to `moment_ns` unless that has passed."""
        if moment_ns > self._now_ns:
            self._now_ns = moment_ns + self.wakeup_error_ns

    def rest_ns(self, duration_ns: int) -> None:
        """Moves the clock by `duration_ns`."""
        self.advance_ns(duration_ns)


def unix_time_s() -> int:
    """Returns the date in seconds since 1970, for labelling a report; never for timing."""
    return int(time.time())
