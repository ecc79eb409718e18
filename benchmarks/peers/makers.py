"""The tools and their settings, and how one of them is run and its cost taken."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.cases import CaseFiles

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
OURS = "framefit"
LIMIT_S = 1800
_OURS = {
    "": ("--no-timing",),
    " timed": (),
    " quality": ("--prefer", "quality"),
    " balanced": ("--prefer", "balanced"),
    " speed": ("--prefer", "speed"),
}
"""The settings of framefit for a runtime that it times on, and their options."""


@dataclass(frozen=True, kw_only=True)
class Maker:
    """A tool with one setting.

    Attributes:
        tool: what the table calls it; `OURS` for framefit.
        setting: what the table calls the setting.
        script: the child, in this folder.
        options: what the child gets behind the three files.
        suffix: of the file it writes.
        is_costed: its cost is compared: the tool's own defaults, framefit's also without timing
            the result on the target, which no other tool does.
    """

    tool: str
    setting: str
    script: str
    options: tuple[str, ...]
    suffix: str = ".onnx"
    is_costed: bool = False

    @property
    def name(self) -> str:
        """Tool and setting in one."""
        return f"{self.tool} {self.setting}"

    @property
    def is_ours(self) -> bool:
        """Whether framefit is the tool."""
        return self.tool == OURS

    def out(self, files: CaseFiles) -> Path:
        """The file it writes."""
        return files.folder / (self.name.lower().replace(" ", "-") + self.suffix)


def list_peers() -> list[Maker]:
    """Returns the peers' settings: what a user would take, and the better ones."""
    return [
        *(
            Maker(
                tool="onnxruntime",
                setting=setting.replace("-", " "),
                script="child_ort.py",
                options=(setting,),
                is_costed=setting == "asymmetric-minmax",
            )
            for setting in (
                "symmetric-minmax",
                "asymmetric-minmax",
                "asymmetric-percentile",
                "asymmetric-entropy",
            )
        ),
        *(
            Maker(
                tool="Model Optimizer",
                setting=setting,
                script="child_modelopt.py",
                options=(setting,),
                is_costed=setting == "default",
            )
            for setting in ("default", "max", "entropy")
        ),
        *(
            Maker(
                tool="NNCF",
                setting=setting + (" IR" if suffix == ".xml" else ""),
                script="child_nncf.py",
                options=(setting,),
                suffix=suffix,
                is_costed=setting == "default" and suffix == ".onnx",
            )
            for setting, suffix in (
                ("default", ".onnx"),
                ("mixed", ".onnx"),
                ("accurate", ".onnx"),
                ("default", ".xml"),
                ("accurate", ".xml"),
            )
        ),
    ]


def list_ours(runtime: str = "openvino") -> list[Maker]:
    """Returns framefit's settings: one for TensorRT, the others for the runtime."""
    settings = {"tensorrt": ("--target", "tensorrt")} | {
        runtime + name: ("--target", runtime, *options) for name, options in _OURS.items()
    }
    return [
        Maker(
            tool=OURS,
            setting=setting,
            script="child_framefit",
            options=options,
            is_costed=setting in (runtime, f"{runtime} timed"),
        )
        for setting, options in settings.items()
    ]


def make(maker: Maker, files: CaseFiles, samples: int) -> dict[str, Any]:
    """Lets a tool quantize in a process of its own.

    Args:
        maker: the tool.
        files: the float network and the calibration pictures.
        samples: how many pictures those are.

    Returns:
        {"seconds", "import_s", "cpu_s", "peak_mib"}, or {"failure"}: the last line of
        its complaint.
    """
    out = maker.out(files)
    out.unlink(missing_ok=True)
    inputs = [str(path.resolve()) for path in (files.model, files.calibration, out)]
    if maker.is_ours:
        command = [sys.executable, "-m", f"benchmarks.peers.{maker.script}", *inputs]
        command += [*maker.options, "--samples", str(samples)]
    else:
        command = [str(PEERS_PYTHON), str(HERE / maker.script), *inputs, *maker.options]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            cwd=files.folder,
            env=os.environ | {"PYTHONPATH": str(ROOT) if maker.is_ours else ""},
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"no result within {LIMIT_S} s"}
    if done.returncode != 0 or not out.exists():
        return {"failure": _last_line(done.stderr or done.stdout)}
    figures: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "ended without a word"
