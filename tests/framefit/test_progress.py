"""What long work says of itself."""

import io
import sys

import pytest

from framefit.progress import EACH_S, show_progress


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Returns a clock that stands until it is set."""
    clock = _Clock()
    monkeypatch.setattr("framefit.progress.time.monotonic", clock)
    return clock


def test_a_log_gets_a_line_every_half_a_minute(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress() as update:
        for second in range(95):
            clock.now = 100.0 + second
            update("calibrate", second, 95)

    assert EACH_S == 30
    assert capsys.readouterr() == (
        "",
        "after 30 s: calibrate 30/95\nafter 60 s: calibrate 60/95\nafter 90 s: calibrate 90/95\n",
    )


def test_short_work_says_nothing_in_a_log(
    clock: _Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress() as update:
        clock.now += EACH_S - 1
        update("calibrate", 1, 1)

    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")

    with show_progress() as update:
        update("calibrate", 3, 8)

    assert "calibrate" in terminal.getvalue()
    assert "3/8" in terminal.getvalue()
    assert "after" not in terminal.getvalue()
