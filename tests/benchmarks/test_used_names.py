"""Benchmarks use names and arguments of the packages that there are, without running them."""

import ast
import importlib
import importlib.util
import inspect
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PATHS = sorted([*ROOT.glob("benchmarks/**/*.py"), *ROOT.glob("examples/*.py")])
PACKAGES = (
    *("artifacts", "benchmarks", "compress", "engines", "export", "framefit"),
    *("latency_budget", "perception"),
)
MISSING = object()


def read_imports(tree):
    """Returns what a file imports of ours, by the name that it has there."""
    found = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module.split(".")[0] not in PACKAGES:
            continue
        try:
            module = importlib.import_module(node.module)
        except ModuleNotFoundError as error:
            if error.name.split(".")[0] in PACKAGES:
                raise
            continue  # of another tool's environment
        for item in node.names:
            name = f"{node.module}.{item.name}"
            value = getattr(module, item.name, MISSING)
            is_package = value is MISSING and hasattr(module, "__path__")
            if is_package and importlib.util.find_spec(name) is not None:
                value = importlib.import_module(name)
            found[item.asname or item.name] = (name, value)
    return found


def find_faults(source):
    """Returns what a file uses that there is not, and calls that leave out what is needed."""
    tree = ast.parse(source)
    imports = read_imports(tree)
    faults = [name for name, value in imports.values() if value is MISSING]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name, value = imports.get(node.value.id, ("", None))
            if isinstance(value, ModuleType) and not hasattr(value, node.attr):
                faults.append(f"{name}.{node.attr}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name, value = imports.get(node.func.id, ("", None))
            if callable(value) and (reason := find_refusal(value, node)):
                faults.append(f"{name}(): {reason}")
    return faults


def find_refusal(function, call):
    """Returns why a function does not take the arguments of a call; empty if it does."""
    names = [word.arg for word in call.keywords]
    if None in names or any(isinstance(value, ast.Starred) for value in call.args):
        return ""
    try:
        inspect.signature(function).bind(*call.args, **dict.fromkeys(names))
    except TypeError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_benchmark_uses_exists(path):
    assert not find_faults(path.read_text())


def test_what_does_not_exist_is_found():
    lines = [
        "from compress.quantize import prepare",
        "from compress.quantize.settings import QuantizeSettings, Wings",
        "from artifacts.digest import sha256_file",
        "prepare.WINGS, prepare.prepare_network, QuantizeSettings(wings=2), sha256_file()",
        "sha256_file(*paths), sha256_file('x'), QuantizeSettings(target='openvino')",
    ]
    assert sorted(find_faults("\n".join(lines))) == [
        "artifacts.digest.sha256_file(): missing a required argument: 'path'",
        "compress.quantize.prepare.WINGS",
        "compress.quantize.settings.QuantizeSettings(): got an unexpected keyword argument 'wings'",
        "compress.quantize.settings.Wings",
    ]
