"""Commands that messages and pages name exist."""

import ast
import re
from pathlib import Path

import pytest

from framefit.cli import BUDGET_CHECK_OTHERS, COMPRESS, FRAMEFIT
from framefit.commands import engines, export

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
