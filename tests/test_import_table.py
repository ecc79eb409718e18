"""Holds the table of DESIGN section 2: who may import whom, and what stays light."""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "artifacts": set(),
    "perception": {"artifacts"},
    "compress": {"artifacts"},
    "export": {"artifacts"},
    "engines": {"artifacts"},
    "latency_budget": {"artifacts", "engines"},
    "framefit": {"artifacts", "perception", "compress", "export", "engines", "latency_budget"},
}
TORCH = {"torch", "torchvision", "timm"}
MAY_USE_TORCH = (
    "perception/",
    "export/",
    "artifacts/checkpoint.py",
    "artifacts/edits.py",
    "artifacts/exported_program.py",
    "artifacts/module_copy.py",
    "artifacts/module_inputs.py",
    "artifacts/module_outputs.py",
    "artifacts/raw_outputs.py",
    "artifacts/torch_file.py",
    "compress/prune/",
)
MAY_USE_TORCH += ("compress/distill/", "compress/qat/", "compress/train/", "compress/substitute/")
MAY_USE_TORCH += ("framefit/",)
LAZY = {"openvino", "tensorrt", "tensorrt_rtx", "pycuda", "cuda"}
UNSURE = {"tensorrt_rtx", "tensorrt", "cuda", "pycuda"}
"""Of extras too; their distributions have other names, by the version of CUDA."""
COMES_ALONG = {"google", "markupsafe"}
"""Protobuf is onnx's own interface, and markupsafe jinja2's."""
OF_EXTRAS = ("latency_budget/watch/prometheus.py",)
"""Modules that are imported once their extra is known to be there."""


def imported(tree: ast.AST) -> set[str]:
    """Returns the top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def at_run_time(tree: ast.Module) -> ast.Module:
    """Returns the module without its `if TYPE_CHECKING:` blocks."""
    kept = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    return ast.Module(kept, [])


def at_module_level(tree: ast.Module) -> ast.Module:
    """Returns the module's own statements, without what functions import when called."""
    kinds = (ast.Import, ast.ImportFrom)
    return ast.Module([node for node in at_run_time(tree).body if isinstance(node, kinds)], [])


MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for package in MAY_IMPORT
    for path in (ROOT / package).rglob("*.py")
    if path.name != "__main__.py"
)


@pytest.mark.parametrize("name", MODULES)
def test_module_keeps_to_the_table(name: str) -> None:
    tree = ast.parse((ROOT / name).read_text())
    package = name.partition("/")[0]
    used = imported(tree)
    assert (used & MAY_IMPORT.keys()) - {package} <= MAY_IMPORT[package]
    if not name.startswith(MAY_USE_TORCH):
        assert not imported(at_run_time(tree)) & TORCH
    assert not imported(at_module_level(tree)) & LAZY


def test_the_walk_sees_a_forbidden_import() -> None:
    tree = ast.parse("def f():\n    from compress.quantize import api\n    import torch.nn\n")
    assert imported(tree) == {"compress", "torch"}
    assert imported(at_module_level(tree)) == set()


@cache
def declared() -> tuple[set[str], set[str]]:
    """Returns the packages that every user can import, and those of the extras that users add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    owners = packages_distributions()

    def importable(lines: list[str]) -> set[str]:
        named = {re.split(r"[^\w-]", line)[0].replace("-", "_").lower() for line in lines}
        return {
            package
            for package, distributions in owners.items()
            if named & {owner.replace("-", "_").lower() for owner in distributions}
        }

    always = importable(project["dependencies"]) | COMES_ALONG
    added = (importable(lines) for name, lines in extras.items() if name != "dev")
    return always, always.union(*added) | UNSURE


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_imports_is_declared(name: str) -> None:
    """The developers' environment has more than a user's."""
    always, added = declared()
    tree = ast.parse((ROOT / name).read_text())
    own = set(MAY_IMPORT) | sys.stdlib_module_names
    assert imported(at_run_time(tree)) - own <= added
    if not name.startswith((*MAY_USE_TORCH, *OF_EXTRAS)):
        assert imported(at_module_level(tree)) - own <= always


@pytest.mark.parametrize("package", ["engines", "latency_budget", "framefit.cli"])
def test_importing_every_module_imports_no_torch(package: str) -> None:
    """The vehicle installs engines and latency_budget with numpy and a runtime, nothing more."""
    folder = ROOT / package
    names = [package]
    if folder.is_dir():
        files = [path for path in folder.rglob("*.py") if not path.name.startswith("__")]
        names += [path.relative_to(ROOT).with_suffix("").as_posix() for path in files]
    imports = "".join(f"import {name.replace('/', '.')}\n" for name in names)
    code = f"import sys\n{imports}print(*sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(out.stdout.split())
    assert loaded.isdisjoint(TORCH | LAZY | {"onnxruntime"})
    if package == "framefit.cli":
        assert loaded.isdisjoint({"numpy", "onnx", "cv2"})
