"""Commands and options that messages and pages name exist."""

import ast
import re
from pathlib import Path

import pytest

from framefit.cli import BUDGET_CHECK, BUDGET_CHECK_OTHERS, COMPRESS, FRAMEFIT
from framefit.commands import engines, export
from framefit.lazy_group import build_command, build_group

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "artifacts",
    "compress",
    "engines",
    "export",
    "framefit",
    "latency_budget",
    "perception",
)
GROUPS = {"compress": set(COMPRESS), "engines": engines.app, "export": export.app}
NAMED = re.compile(r"\bframefit ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?")
GROUP_NAMED = re.compile(r"(?:^|[`;:(] ?)(compress|budget-check) ([a-z][a-z-]*)")
CALLED = re.compile(r"(?:^|\s)(?:python -m )?(framefit|compress|budget-check|export) (.*)")
OPTION = re.compile(r"(?<!\S)--[a-z][a-z0-9-]*")
PROGRAMS = {
    "framefit": build_group("framefit", "", FRAMEFIT),
    "compress": build_group("compress", "", COMPRESS),
    "export": build_command("export", FRAMEFIT["export"]),
    "budget-check": build_command("budget-check", BUDGET_CHECK),
    **{
        f"budget-check {name}": build_command(name, row)
        for name, row in BUDGET_CHECK_OTHERS.items()
    },
}
PROSE = {
    *("beside", "budget-check", "by", "checkpoint", "does", "needs", "network", "openvino", "runs"),
    *("tensorrt", "that"),
}
"""Words behind the program's name that are no commands."""


def names_of(group):
    """Returns the commands of a group of commands, or of a table of them."""
    if isinstance(group, set):
        return group
    return {
        item.name or item.callback.__name__.replace("_", "-") for item in group.registered_commands
    }


def read_texts(path):
    """Yields a page's code, or a module's strings that are not its documentation."""
    if path.suffix == ".md":
        text = path.read_text()
        yield from re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
        return
    tree = ast.parse(path.read_text())
    told = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def find_unknown(text):
    """Returns the commands that a text names and that there are not."""
    unknown = []
    for first, second in NAMED.findall(text):
        if first in PROSE:
            continue
        if first not in FRAMEFIT:
            unknown.append(f"framefit {first}")
        elif first in GROUPS and second and second not in names_of(GROUPS[first]):
            unknown.append(f"framefit {first} {second}")
    for program, command in GROUP_NAMED.findall(text):
        known = set(COMPRESS) if program == "compress" else set(BUDGET_CHECK_OTHERS)
        if command not in known:
            unknown.append(f"{program} {command}")
    return unknown


def list_options(command):
    """Returns the options of a command, those of every command the same."""
    return {"--help"}.union(*(item.opts + item.secondary_opts for item in command.params))


def find_unknown_options(text):
    """Returns the calls of a text's code that give a command an option it does not have."""
    unknown = []
    for line in text.replace("\\\n", " ").splitlines():
        called = CALLED.search(line.strip("`").partition(" #")[0])
        if called is None:
            continue
        program, words = called[1], called[2].split()
        if words and f"{program} {words[0]}" in PROGRAMS:
            program, words = f"{program} {words[0]}", words[1:]
        command = PROGRAMS[program]
        known = list_options(command)
        while words and hasattr(command, "get_command"):
            command, words = command.get_command(None, words[0]), words[1:]
            if command is None:
                break
            known |= list_options(command)
        unknown += [
            f"{called[0].strip()}: {option}"
            for option in OPTION.findall(called[2])
            if command is not None and option not in known
        ]
    return unknown


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]))
def test_every_option_of_a_call_that_a_page_shows_exists(page):
    unknown = [found for text in read_texts(page) for found in find_unknown_options(text)]
    assert not unknown


@pytest.mark.parametrize("package", [*PACKAGES, "docs", "."])
def test_every_command_that_is_named_exists(package):
    pattern = "*.md" if package in ("docs", ".") else "*.py"
    folder = ROOT / package
    paths = folder.glob(pattern) if package == "." else folder.rglob(pattern)
    unknown = {
        str(path.relative_to(ROOT)): found
        for path in paths
        for text in read_texts(path)
        if (found := find_unknown(text))
    }
    assert not unknown


def test_a_command_that_does_not_exist_is_found():
    assert find_unknown("latency not measured; on the target: framefit bench x.onnx")
    assert find_unknown("framefit engines fly")
    assert find_unknown("`compress shrink x.pt`")
    assert not find_unknown("framefit engines bench x.onnx; compress prune x.pt")


def test_an_option_that_does_not_exist_is_found():
    assert find_unknown_options("`compress quantize x.onnx --data d --wings 2`") == [
        "compress quantize x.onnx --data d --wings 2: --wings"
    ]
    assert find_unknown_options("framefit export trt \\\n  --int8 --loud  # aloud")
    assert find_unknown_options("budget-check init b.toml x.onnx --budget b.toml")
    assert not find_unknown_options("budget-check --budget b.toml x.onnx\npython -m export trt")
