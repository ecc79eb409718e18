"""The command line: `framefit`, and its groups that are installed as commands of their own."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from framefit.first_moments import leaving_at_once

with leaving_at_once():
    from framefit.lazy_group import Row, build_command, build_group
    from framefit.shell import run_command

COMPRESS = {
    "quantize": Row(
        "Turn a float network into an INT8 one.", "framefit.commands.quantize:quantize"
    ),
    "prune": Row("Take whole channels out of a network.", "framefit.commands.prune:prune"),
    "distill": Row(
        "Let a student learn to answer as its teacher does.", "framefit.commands.distill:distill"
    ),
    "qat": Row("Train a quantized network towards its float one.", "framefit.commands.qat:qat"),
    "substitute": Row(
        "Replace expensive operators where it pays.", "framefit.commands.substitute:substitute"
    ),
    "compare": Row(
        "Compare two networks' outputs: SQNR, largest error, agreement.",
        "framefit.commands.compare:compare",
    ),
    "diagnose": Row(
        "Find what costs a quantized network its quality, and what helps.",
        "framefit.commands.diagnose:diagnose",
    ),
}
BUDGET_CHECK = Row("Judge a frame against its latency budget.", "framefit.commands.budget:check")
BUDGET_CHECK_OTHERS = {
    "init": Row("Write a budget file from a measurement.", "framefit.commands.budget:init"),
    "selftest": Row(
        "Inject faults; the gate must catch each.", "framefit.commands.budget:selftest"
    ),
    "report": Row("Make the reports of a report.json again.", "framefit.commands.report:report"),
    "verify": Row("Refuse every artifact but the measured one.", "framefit.commands.report:verify"),
}
COMPRESS_HELP = "Make a network smaller and faster."
FRAMEFIT = {
    "demo": Row("The main job on the shipped network, end to end.", "framefit.commands.demo:demo"),
    "fit": Row("Find the network that keeps a budget, losing least.", "framefit.commands.fit:fit"),
    "train": Row(
        "Train a multi-head network on rendered road scenes.", "framefit.commands.train:train"
    ),
    "compress": Row(COMPRESS_HELP, group=COMPRESS),
    "export": Row("Export to ONNX and TensorRT.", "framefit.commands.export:app"),
    "engines": Row("List and run the installed runtimes.", "framefit.commands.engines:app"),
    "budget": Row("Check that a frame keeps its latency budget.", "framefit.commands.budget:app"),
    "sign": Row("Sign a file that is to ship.", "framefit.commands.sign:sign"),
    "verify": Row(
        "Refuse a file that is not signed, changed or too old.", "framefit.commands.sign:verify"
    ),
    "watch": Row("Watch the latency of a running pipeline.", "framefit.commands.watch:watch"),
}
FRAMEFIT_HELP = "Fit a perception network into its camera's frame."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `framefit` and returns its exit code."""
    return _run("framefit", partial(build_group, text=FRAMEFIT_HELP, rows=FRAMEFIT), arguments)


def compress_main(arguments: Sequence[str] | None = None) -> int:
    """Runs `compress` (= `framefit compress`) and returns its exit code."""
    return _run("compress", partial(build_group, text=COMPRESS_HELP, rows=COMPRESS), arguments)


def budget_check_main(arguments: Sequence[str] | None = None) -> int:
    """Runs `budget-check` and returns its exit code.

    It is `framefit budget check`, unless its first word is one of `BUDGET_CHECK_OTHERS`; the word
    `check` may stand first, as there.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["check"]:
        arguments = given[1:]
    if given and given[0] in BUDGET_CHECK_OTHERS:
        other = partial(build_command, row=BUDGET_CHECK_OTHERS[given[0]])
        return _run(f"budget-check {given[0]}", other, given[1:])
    return _run("budget-check", partial(build_command, row=BUDGET_CHECK), arguments)


def _run(program: str, build: Callable[[str], object], arguments: Sequence[str] | None) -> int:
    with leaving_at_once():
        command = build(program)
    return run_command(program, command, arguments)
