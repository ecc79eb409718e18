"""`framefit train` as users run it: in a process of its own.

It forks processes that load scenes. The process of the tests has run other runtimes' threads
before, and PyTorch cannot fork one that has computed gradients.
"""

import subprocess
import sys

import pytest


@pytest.fixture
def run_train():
    """Returns a function that runs `framefit train` and gives what it printed."""

    def run(*arguments: object) -> str:
        command = [sys.executable, "-X", "faulthandler", "-m", "framefit", "train"]
        ended = subprocess.run(
            [*command, *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run
