"""A user's own script is checked against our annotations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.own_packages import OUR_PACKAGES

ROOT = Path(__file__).parents[1]
SCRIPT = """
from pathlib import Path
import compress
from latency_budget import Stage

stage: Stage = Stage("network", lambda frame: frame)
decibels: dict[str, float] = compress.quantize(Path("model.onnx"), Path("pictures")).outputs_db
Stage(7, None)
"""


@pytest.mark.parametrize("package", OUR_PACKAGES)
def test_the_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_a_users_script_is_checked_strictly(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"),
            *("--cache-dir", str(tmp_path / "cache"), str(script)),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
    )
    assert "Found 2 errors in 1 file" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("script.py:8: error: Argument") == 2
