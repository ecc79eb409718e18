"""The small training run, in this process and as one of its own."""

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).with_name("small_run.py")


@pytest.fixture(scope="session")
def small() -> ModuleType:
    """The module `small_run`."""
    spec = importlib.util.spec_from_file_location("small_run", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `small_run.py OUT key=value ...`; `processes` starts that many through torchrun."""
    root = Path(__file__).parents[3]

    def run(out: Path, *words: str, processes: int = 1) -> subprocess.CompletedProcess[str]:
        command = [sys.executable]
        if processes > 1:
            command += ["-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
            command += ["--standalone"]
        return subprocess.run(
            [*command, str(SCRIPT), str(out), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=250,
            env={"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        )

    return run
