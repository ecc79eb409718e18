"""Lets the vendors' own tools sample the device while frames are timed, and reads them afterwards.

`nvidia-smi` (NVML) and `tegrastats` run as processes of their own and write to a file, so the timed
thread neither waits for them nor shares the interpreter with them. Where a tool is not there,
nothing is started.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from latency_budget.environment import Check
from latency_budget.gpu import QUERY, judge_gpu
from latency_budget.jetson import judge_jetson

INTERVAL_MS = 200
_QUICK_S = 10
_PROCESSES = ("--query-compute-apps=pid,process_name", "--format=csv,noheader,nounits")


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """One tool.

    Attributes:
        program: its name; it is used where it is found on the PATH.
        arguments: its command line.
        judge: makes checks of its lines.
    """

    program: str
    arguments: tuple[str, ...]
    judge: Callable[[list[str]], list[Check]]


SAMPLERS: tuple[Sampler, ...] = (
    Sampler(
        program="nvidia-smi",
        arguments=(
            f"--query-gpu={','.join(QUERY)}",
            "--format=csv,noheader,nounits",
            f"--loop-ms={INTERVAL_MS}",
        ),
        judge=lambda lines: judge_gpu(lines, run_tool("nvidia-smi", *_PROCESSES)),
    ),
    Sampler(
        program="tegrastats",
        arguments=("--interval", str(INTERVAL_MS)),
        judge=lambda lines: judge_jetson(
            lines, run_tool("nvpmodel", "-q"), run_tool("jetson_clocks", "--show")
        ),
    ),
)


class Samplers:
    """Runs the tools that are there during a `with` block; `checks` holds their answers after it.

    Args:
        skip_s: samples of so many seconds from the beginning (the warm-up) are not judged.
        samplers: the tools.
    """

    def __init__(self, *, skip_s: float = 0.0, samplers: tuple[Sampler, ...] = SAMPLERS) -> None:
        self.checks: list[Check] = []
        self._skip = round(1000 * skip_s / INTERVAL_MS)
        self._samplers = tuple(tool for tool in samplers if shutil.which(tool.program))
        self._folder = tempfile.TemporaryDirectory(prefix="framefit-") if self._samplers else None
        self._running: list[tuple[Sampler, subprocess.Popen[bytes], Path]] = []

    def __enter__(self) -> Self:
        for tool in self._samplers:
            target = Path(self._folder.name if self._folder else "") / tool.program
            with target.open("wb") as stream:
                process = subprocess.Popen(
                    [tool.program, *tool.arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.DEVNULL,
                )
            self._running.append((tool, process, target))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for tool, process, target in self._running:
            _end(process)
            lines = target.read_text(encoding="utf-8", errors="replace").splitlines()
            if kind is None:
                self.checks += tool.judge(lines[self._skip :])
        if self._folder is not None:
            self._folder.cleanup()


def run_tool(*command: str) -> str:
    """Returns what a short-lived tool prints; empty where it is missing or fails."""
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_QUICK_S, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=_QUICK_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
