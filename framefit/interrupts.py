"""SIGINT and SIGTERM end a command from wherever it is, and leave nothing half done."""

import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from framefit.first_moments import TOLD

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_S = 0.05
_STUCK_S = 20.0
_SWALLOWED = 0
_SHOW_CURSOR = "\x1b[K\x1b[?25h"
"""Clears the line and shows the cursor, which a progress bar may have hidden."""


class Interrupt(BaseException):
    """SIGINT or SIGTERM arrived; not an Exception, so that nothing swallows it.

    C libraries do all the same: an import that is interrupted goes on, or fails for another reason.

    Args:
        number: of the signal.
        on_death: called when nothing holds the exception any more.
    """

    _on_death: Callable[[], None] = staticmethod(lambda: None)
    """Of one that the next signal kept from being made."""

    def __init__(self, number: int, on_death: Callable[[], None]) -> None:
        super().__init__(number)
        self.signal = number
        self._on_death = on_death

    def __del__(self) -> None:
        self._on_death()


@contextmanager
def interruptible(ends_process: bool) -> Iterator[None]:
    """Lets the first SIGINT or SIGTERM unwind the stack; later ones do not disturb that.

    One that a library swallowed is raised again, and where the library raises an error of its own
    instead ("cannot import"), that is told as the interrupt it was. A library that does not return
    at all for 20 s is left by ending the process.

    Args:
        ends_process: the process ends with the command, and nothing disturbs it on its way out.

    Raises:
        Interrupt: one arrived.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch()
    before = {one: signal.signal(one, watch.interrupt) for one in INTERRUPTS}
    try:
        with watch.wake_main_thread():
            yield
    except Interrupt:
        raise
    except Exception as error:
        if watch.arrived:
            raise Interrupt(watch.arrived[0], lambda: None) from error
        raise
    finally:
        if not (watch.arrived and ends_process):
            for one, handler in before.items():
                signal.signal(one, handler)


class _Watch:
    """Raises an interrupt until it has ended the command.

    Attributes:
        arrived: the signals, in order.
    """

    def __init__(self) -> None:
        self.arrived: list[int] = []
        self._is_leaving = False
        self._in_flight: weakref.ref[Interrupt] | None = None
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def interrupt(self, number: int, _frame: object) -> None:
        """Is the handler of the signals."""
        self.arrived.append(number)
        if self._is_leaving or (self._in_flight is not None and self._in_flight() is not None):
            return
        raised = Interrupt(number, self._note_death)
        self._in_flight = weakref.ref(raised)
        try:
            raise raised
        finally:
            del raised  # The traceback holds this frame, and would so hold the interrupt for ever.

    def _note_death(self) -> None:
        if not self._is_leaving:
            os.write(self._writer, bytes([_SWALLOWED]))

    @contextmanager
    def wake_main_thread(self) -> Iterator[None]:
        """Passes an interrupt on to the main thread.

        The kernel may give signals that come close together to a thread of a runtime; Python notes
        them, but the main thread sleeps on and would act only when its system call ends.
        """
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        main = threading.get_ident()
        thread = threading.Thread(target=self._pass_on, args=(main,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_leaving = True
            signal.set_wakeup_fd(before)
            os.close(self._writer)
            thread.join()
            os.close(self._reader)

    def _pass_on(self, main: int) -> None:
        first = 0
        while True:
            ready = select.select([self._reader], [], [], _STUCK_S if first else None)[0]
            if not ready:
                leave(f"{TOLD}; a library did not return and was left", 128 + first)
            numbers = os.read(self._reader, 1)
            if not numbers:
                return
            if numbers[0] in INTERRUPTS and not first:
                first = numbers[0]
                signal.pthread_kill(main, first)
            elif numbers[0] == _SWALLOWED:
                threading.Event().wait(_AGAIN_S)
                if not self._is_leaving:
                    signal.pthread_kill(main, first)


def leave(text: str, code: int) -> NoReturn:
    """Ends the process at once, from any thread, with a line on standard error."""
    shown = f"\r{_SHOW_CURSOR}{text}" if sys.stderr.isatty() else text
    sys.stderr.write(f"{shown}\n")
    sys.stderr.flush()
    os._exit(code)


def _forget_interrupts() -> None:
    """In a forked child: its signals are its own.

    A library forks children and ends them with SIGTERM. The pipe that wakes the main thread is
    shared with the parent, whose command each of these signals would interrupt.
    """
    handlers = (signal.getsignal(one) for one in INTERRUPTS)
    if any(isinstance(getattr(handler, "__self__", None), _Watch) for handler in handlers):
        signal.set_wakeup_fd(-1)
        for one in INTERRUPTS:
            signal.signal(one, signal.SIG_DFL)


os.register_at_fork(after_in_child=_forget_interrupts)
