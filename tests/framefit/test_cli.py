"""The command line: help without heavy imports, one-line errors, exit codes, pipes, interrupts."""

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

from artifacts.errors import (
    FramefitError,
    InconclusiveError,
    InputError,
    MissingExtraError,
    UnavailableError,
)
from framefit import cli
from framefit.lazy_group import Row, build_command, build_group
from framefit.shell import name_command, run_command

ROOT = Path(__file__).parents[2]


@pytest.mark.timing
def test_help_takes_less_than_half_a_second() -> None:
    """The best of five, in CPU seconds of the child, so that a busy machine does not matter."""
    best = float("inf")
    for _ in range(5):
        before = os.times()
        subprocess.run(
            [sys.executable, "-m", "framefit", "--help"], check=True, capture_output=True, cwd=ROOT
        )
        after = os.times()
        best = min(
            best,
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system,
        )
    assert best < 0.5


def test_help_of_the_groups_names_every_command(run) -> None:
    result = run("--help")
    assert result.code == 0
    assert all(name in result.out for name in cli.FRAMEFIT)
    assert result.out == run().out
    result = run("compress", "--help")
    assert all(name in result.out for name in cli.COMPRESS)


def walk_commands(command: Any) -> Iterator[Any]:
    yield command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            yield from walk_commands(command.get_command(None, name))


@pytest.mark.parametrize("name", cli.FRAMEFIT)
def test_every_option_has_help(name: str) -> None:
    for command in walk_commands(build_command(name, cli.FRAMEFIT[name])):
        for parameter in command.params:
            assert parameter.name == "help" or parameter.help, (command.name, parameter.name)


@pytest.mark.parametrize("name", cli.FRAMEFIT)
def test_every_command_can_be_imported(run, name: str) -> None:
    result = run(name, "--help")
    assert result.code == 0, result.err
    assert "Usage: framefit " + name in result.out


def test_scripts_are_the_same_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.compress_main(["--help"]) == 0
    assert "quantize" in capsys.readouterr().out
    assert cli.budget_check_main(["--help"]) == 0
    assert "--budget" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["--nonsense"],
        ["compress", "nonsense"],
        ["compress", "quantize"],
        ["compress", "quantize", "m.onnx"],
        ["compress", "quantize", "m.onnx", "--data", "d", "--samples", "0"],
        ["compress", "quantize", "m.onnx", "--data", "d", "--pixel-scale", "x"],
        ["compress", "compare", "m.onnx", "--data", "d"],
        ["budget", "check"],
    ],
)
def test_wrong_use_is_one_line_and_2(run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1
    assert "--help'" in result.err


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


def run_function(function: Callable[[], object], *arguments: str) -> int:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(function)
    return run_command("tool", typer.main.get_command(app), arguments)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (FramefitError("broken"), 5, "error: broken"),
        (InputError("bad", "good", "do this"), 2, "error: bad; expected good; do this"),
        (InconclusiveError("too few"), 3, "error: too few"),
        (UnavailableError("no GPU"), 4, "error: no GPU"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), 4, "framefit[torch]"),
        (ModuleNotFoundError("x", name="tensorrt_rtx"), 4, "framefit[tensorrt-rtx]"),
        (
            OSError(24, "Too many open files"),
            5,
            "no file can be opened: Too many open files; raise",
        ),
        (ModuleNotFoundError("x", name="unheard_of"), 5, "internal: ModuleNotFoundError"),
        (ZeroDivisionError("a\nb\x1b[31m"), 5, "internal: ZeroDivisionError: a b?[31m"),
        (MemoryError(), 5, "internal: MemoryError"),
        (RecursionError("deep"), 5, "internal: RecursionError"),
        (typer.Exit(3), 3, ""),
    ],
)
def test_exit_codes(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, text: str
) -> None:
    assert run_function(raising(error)) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert text in captured.err
    assert captured.err.count("\n") == (1 if text else 0)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ("quantize model.onnx", "there is 'framefit compress quantize'; see"),
        ("prune", "there is 'framefit compress prune'; see"),
        ("budget-check init b.toml", "there is 'framefit budget check'; see"),
        ("export-onnx model.pt", "there is 'framefit export onnx'; see"),
        ("compress-qat", "there is 'framefit compress qat'; see"),
        ("budget-nothing", "No such command 'budget-nothing'; see"),
        ("quantise", "No such command 'quantise'; see 'framefit --help'"),
    ],
)
def test_a_command_of_a_group_is_named_in_full(
    capsys: pytest.CaptureFixture[str], arguments: str, place: str
) -> None:
    assert cli.main(arguments.split()) == 2
    captured = capsys.readouterr()
    assert place in captured.err
    assert captured.err.count("\n") == 1


def test_a_warning_comes_once_where_a_users_module_gives_the_root_logger_a_handler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", list(root.handlers))

    def warn() -> None:
        root.addHandler(logging.StreamHandler(sys.stderr))
        logging.getLogger("framefit.somewhere").warning("look here")

    assert run_function(warn) == 0
    assert capsys.readouterr().err == "warning: look here\n"
    assert logging.getLogger("framefit").propagate


@pytest.mark.parametrize("error", [ModuleNotFoundError("x", name="torch"), None])
def test_a_missing_extra_names_the_command_in_full(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    module = ModuleType("leaf_module")
    module.leaf = raising(error or MissingExtraError("torch", "torch"))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "leaf_module", module)
    inner = {"leaf": Row("Fail.", "leaf_module:leaf"), "torn": Row("Torn.", "no_such_module:x")}
    group = build_group("tool", "help", {"inner": Row("Group.", group=inner)})
    assert run_command("tool", group, ["inner", "leaf"]) == 4
    line = capsys.readouterr().err
    assert line.startswith("error: tool inner leaf: the Python package 'torch' is not installed")


def test_a_command_that_cannot_be_imported_is_named_too() -> None:
    group = build_group("tool", "help", {"torn": Row("Torn.", "no_such_module:x")})
    assert name_command("tool", group, ["--debug", "torn", "torn"]) == "tool torn"
    assert name_command("tool", group, ["unheard", "torn"]) == "tool"


def test_traceback_only_with_debug(capsys: pytest.CaptureFixture[str]) -> None:
    run_function(raising(InputError("bad")), "--debug")
    assert "Traceback" in capsys.readouterr().err
    run_function(raising(ValueError("bad")))
    assert "Traceback" not in capsys.readouterr().err


def test_unknown_command_of_a_lazy_group_imports_nothing() -> None:
    group = build_group("tool", "help", {"broken": Row("Broken.", "no_such_module:x")})
    assert run_command("tool", group, ["--help"]) == 0
    assert run_command("tool", group, ["other"]) == 2
    assert run_command("tool", group, ["broken"]) == 5


def test_closed_pipe_is_quiet() -> None:
    code = "from framefit.cli import main; import sys; sys.exit(main(['train', '--help']))"
    process = subprocess.Popen(
        [sys.executable, "-c", f"import time; time.sleep(0.3)\n{code}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 128 + signal.SIGPIPE


def run_redirected(redirection: str, *arguments: object, **environment: str) -> tuple[int, str]:
    """Runs `framefit ARGUMENTS REDIRECTION` in a shell; returns its exit code and its output."""
    command = shlex.join([sys.executable, "-m", "framefit", *map(str, arguments)])
    done = subprocess.run(
        ["bash", "-c", f"{command} {redirection}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def judged(tmp_path: Path) -> tuple[object, ...]:
    """Arguments of a check that takes no time and fails; its table is drawn by rich."""
    samples, budget = tmp_path / "slow.csv", tmp_path / "budget.toml"
    samples.write_text("latency_ms\n" + "50\n" * 400)
    budget.write_text("[frame]\ndeadline_ms = 33\n")
    return ("budget", "check", "--budget", budget, "--samples", samples)


def test_a_pipe_closed_under_a_table_is_no_verdict(judged) -> None:
    code, out = run_redirected("| (exec true); exit ${PIPESTATUS[0]}", *judged)
    assert (code, out) == (128 + signal.SIGPIPE, "")


def test_standard_output_on_a_full_disk_is_no_verdict_and_no_fault_of_ours(judged) -> None:
    for arguments in (judged, ("--help",)):
        code, out = run_redirected("> /dev/full", *arguments)
        assert code == 2
        assert out.startswith("error: cannot write to standard output")
        assert out.count("\n") == 1


def test_closed_streams_and_a_poor_encoding_keep_the_exit_code(judged, tmp_path: Path) -> None:
    assert run_redirected(">&-", *judged)[0] == 1
    assert run_redirected("2>&-", "budget", "check", "--budget", tmp_path / "none.toml")[0] == 2
    code, out = run_redirected("", *judged, PYTHONIOENCODING="ascii")
    assert code == 1
    assert "\\u2713 pass" in out


@pytest.mark.parametrize(
    "option", [("--json", "-"), ("--json=-",), ("--json", "/dev/stdout"), ("--json", "/dev/fd/1")]
)
def test_json_on_standard_output_stands_alone_there(judged, option, folder: Path) -> None:
    code, out = run_redirected("2> /dev/null", *judged, *option)
    assert code == 1
    assert json.loads(out)["verdict"] == "fail"
    code, text = run_redirected("2>&1 > /dev/null", *judged, *option)
    assert code == 1
    assert "FAIL: slow.csv" in text
    assert not Path("-").exists()
    code, out = run_redirected("| (exec true); exit ${PIPESTATUS[0]}", *judged, *option)
    assert code == 128 + signal.SIGPIPE


def test_watching_a_closed_standard_input_says_so(judged) -> None:
    code, out = run_redirected("<&-", "watch", "--budget", judged[3])
    assert code == 2
    assert out.startswith("error: standard input is closed; expected")
    frame_and_garbage = r"""<<<$'{"latency_ms": 20}\n\xff garbage'"""
    code, out = run_redirected(
        frame_and_garbage, "watch", "--budget", judged[3], PYTHONIOENCODING="utf-8:strict"
    )
    assert code == 0
    assert "1 frame, 0 missed" in out
    assert "1 unreadable line\n" in out


def test_watching_what_holds_no_frame_is_bad_input(judged) -> None:
    """A .csv, say, all of whose lines were counted and passed over."""
    code, out = run_redirected("<<<$'latency_ms\\n20.5'", "watch", "--budget", judged[3])
    assert code == 2
    assert "error: none of 2 lines is a frame; expected a line such as" in out


SLOW_WRITE = """
import time
from pathlib import Path
from artifacts import onnx_file
from artifacts.atomic import atomic_path
def slow(model, path, *, metadata):
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"half")
        Path("started").touch()
        time.sleep(250)
import framefit.quantize_job
framefit.quantize_job.save_onnx = slow
"""


def wait_for_start(process: subprocess.Popen[str], folder: Path) -> None:
    deadline = time.monotonic() + 200
    while not (folder / "started").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kinds", [["SIGINT"], ["SIGTERM"], ["SIGINT", "SIGTERM", "SIGINT"]])
def test_interrupt_leaves_the_old_file_and_nothing_else(
    start, folder: Path, network: Path, pictures: Path, kinds: list[str]
) -> None:
    old = folder / "net.int8.onnx"
    old.write_bytes(b"the old file")
    process = start("compress", "quantize", network, "--data", pictures, code=SLOW_WRITE)
    wait_for_start(process, folder)
    for kind in kinds:
        process.send_signal(getattr(signal, kind))
    out, err = process.communicate(timeout=200)
    assert process.returncode in {128 + getattr(signal, kind) for kind in kinds}
    assert out == ""
    assert err.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in err
    assert old.read_bytes() == b"the old file"
    assert sorted(path.name for path in folder.iterdir() if path.name != ".framefit") == [
        "net.int8.onnx",
        "net.onnx",
        "started",
    ]
    assert list(folder.glob(".framefit/quantize/*/*")), "the next run cannot go on"


FORKED_CHILD = """
import multiprocessing, time
from pathlib import Path
import framefit.quantize_job
def run_child():
    Path("runs").touch()
    time.sleep(250)
def ends_a_child(*args, **kwargs):
    child = multiprocessing.get_context("fork").Process(target=run_child)
    child.start()
    while not Path("runs").exists():
        time.sleep(0.01)
    child.terminate()
    child.join()
    time.sleep(0.5)
    from artifacts.errors import InputError
    raise InputError("the command went on")
framefit.quantize_job.save_onnx = ends_a_child
"""


def test_the_end_of_a_forked_child_does_not_interrupt_the_command(
    start, network: Path, pictures: Path
) -> None:
    process = start("compress", "quantize", network, "--data", pictures, code=FORKED_CHILD)
    _, err = process.communicate(timeout=200)
    assert "the command went on" in err
    assert "Traceback" not in err
    assert process.returncode == 2


def test_late_interrupts_do_not_disturb_the_way_out(
    start, folder: Path, network: Path, pictures: Path
) -> None:
    late = "import atexit, os, signal\natexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
    process = start("compress", "quantize", network, "--data", pictures, code=late + SLOW_WRITE)
    wait_for_start(process, folder)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGINT
    assert err.splitlines()[-1].startswith("interrupted")


WITHOUT_TORCH = "import sys\nfor name in ('torch', 'timm'): sys.modules[name] = None"


def test_onnx_needs_no_torch_and_a_checkpoint_says_that_it_does(
    start, folder: Path, network: Path, pictures: Path
) -> None:
    process = start("compress", "quantize", network, "--data", pictures, code=WITHOUT_TORCH)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "net.int8.onnx" in out
    (folder / "net.pt").write_bytes(b"PK\x03\x04")
    process = start("compress", "quantize", "net.pt", "--data", pictures, code=WITHOUT_TORCH)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 4
    assert "pip install 'framefit[torch]'" in err
    assert err.count("\n") == 1


def test_watching_tells_what_it_saw_when_it_is_interrupted(start, judged, tmp_path: Path) -> None:
    frames, figures = tmp_path / "frames.jsonl", tmp_path / "figures.json"
    frames.write_text('{"latency_ms": 20}\n')
    wait = (
        "from latency_budget.watch.sources import LineSource\n"
        "LineSource._is_renewed = lambda self: print('waiting', flush=True)\n"
    )
    process = start("watch", frames, "--budget", judged[3], "--json", figures, code=wait)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert "1 frame, 0 missed" in out
    assert '"frames": 1' in figures.read_text()
