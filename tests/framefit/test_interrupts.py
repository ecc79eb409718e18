"""Interrupts that libraries swallow, turn into errors of their own, or never come back for."""

import os
import signal
import subprocess
import sys

import pytest

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


@pytest.mark.parametrize("code", [SWALLOWS, TURNS, STAYS])
def test_an_interrupt_ends_the_command_whatever_a_library_makes_of_it(code):
    ended = subprocess.run(
        [sys.executable, "-c", code + RUN],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert ended.returncode == 128 + signal.SIGINT
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("interrupted: what was there before is unchanged")
