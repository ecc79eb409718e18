"""The command line: `framefit`, and its groups that are installed as commands of their own."""

from collections.abc import Sequence

from framefit.lazy_group import Row, build_command, build_group
from framefit.shell import run_command

COMPRESS = {
    "quantize": Row(
        "Turn a float network into an INT8 one.", "framefit.commands.quantize:quantize"
    ),
    "compare": Row(
        "Compare two networks' outputs: SQNR, largest error, agreement.",
        "framefit.commands.compare:compare",
    ),
}
BUDGET_CHECK = Row("Judge a frame against its latency budget.", "framefit.commands.budget:check")
COMPRESS_HELP = "Make a network smaller and faster."
FRAMEFIT = {
    "demo": Row("The main job on the shipped network, end to end.", "framefit.commands.demo:demo"),
    "train": Row(
        "Train a multi-head network on rendered road scenes.", "framefit.commands.train:train"
    ),
    "compress": Row(COMPRESS_HELP, group=COMPRESS),
    "export": Row("Export to ONNX and TensorRT.", "framefit.commands.export:app"),
    "engines": Row("List and run the installed runtimes.", "framefit.commands.engines:app"),
    "budget": Row("Check that a frame keeps its latency budget.", "framefit.commands.budget:app"),
}
FRAMEFIT_HELP = "Fit a perception network into its camera's frame."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `framefit` and returns its exit code."""
    group = build_group("framefit", FRAMEFIT_HELP, FRAMEFIT)
    return run_command("framefit", group, arguments)


def compress_main(arguments: Sequence[str] | None = None) -> int:
    """Runs `compress` (= `framefit compress`) and returns its exit code."""
    group = build_group("compress", COMPRESS_HELP, COMPRESS)
    return run_command("compress", group, arguments)


def budget_check_main(arguments: Sequence[str] | None = None) -> int:
    """Runs `budget-check` (= `framefit budget check`) and returns its exit code."""
    command = build_command("budget-check", BUDGET_CHECK)
    return run_command("budget-check", command, arguments)
