"""Interrupts that libraries swallow, turn into errors of their own, or never come back for."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from framefit.first_moments import TOLD, leaving_at_once
from framefit.interrupts import Interrupt

SWALLOWS = """
import os, signal, time
def body():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(250)
    except BaseException:
        pass
    time.sleep(250)
"""
TURNS = """
import os, signal, time
def body():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(250)
    except BaseException as error:
        raise ImportError("numpy failed to import") from error
"""
STAYS = """
import os, signal, time
from framefit import interrupts
interrupts._STUCK_S = 0.3
def body():
    until = time.monotonic() + 250
    os.kill(os.getpid(), signal.SIGINT)
    held = []
    while time.monotonic() < until:  # As a C library that is deaf to signals.
        try:
            time.sleep(250)
        except BaseException as error:
            held.append(error)
"""
RUN = """
import sys
import typer
from framefit.shell import run_command
app = typer.Typer()
@app.command()
def command() -> None:
    body()
    print("done")
sys.argv = ["program"]
sys.exit(run_command("program", typer.main.get_command(app)))
"""


def run_code(code, **options):
    """Runs code in a Python of its own; returns what came of it."""
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, **options
    )


@pytest.mark.parametrize("code", [SWALLOWS, TURNS, STAYS])
def test_an_interrupt_ends_the_command_whatever_a_library_makes_of_it(code):
    ended = run_code(code + RUN, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert ended.returncode == 128 + signal.SIGINT
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("interrupted: what was there before is unchanged")


TAKES_INTERRUPTS = """
import os, runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # A background job ignores them.
"""
IMPORTED = f"""{TAKES_INTERRUPTS}
class Interrupts:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts)
"""
RUNS = 'runpy.run_module("{name}", run_name="__main__")'


@pytest.mark.parametrize(
    "code",
    ["from framefit.cli import main", RUNS.format(name="framefit"), RUNS.format(name="export")],
)
def test_an_interrupt_of_the_imports_is_told_as_a_later_one(code):
    ended = run_code(IMPORTED + code, cwd=Path(__file__).parents[2])
    assert ended.stderr.splitlines() == [TOLD]
    assert ended.returncode == 128 + signal.SIGINT


def test_interrupts_are_python_s_own_again_once_the_command_line_is_imported():
    code = "import framefit.cli; raise SystemExit(signal.getsignal(signal.SIGINT) is not "
    code += "signal.default_int_handler)"
    assert run_code(TAKES_INTERRUPTS + code).returncode == 0


def test_an_interrupt_that_is_ignored_stays_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leaving_at_once():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_one_that_was_never_finished_dies_in_silence(monkeypatch) -> None:
    """The second of two signals may come while the first one's exception is being made."""
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    Interrupt.__new__(Interrupt, signal.SIGINT)
    assert not told
