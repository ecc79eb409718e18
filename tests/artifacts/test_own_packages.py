"""Modules of a user's that are called like framefit's packages."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from torch import nn

from artifacts.builder import call_builder, find_builder
from artifacts.errors import InputError
from artifacts.own_packages import OUR_PACKAGES, modules_of

ROOT = Path(__file__).parents[2]
NETWORK = "from torch import nn\n\ndef make():\n    return nn.Conv2d(3, 4, 3)\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = dict(sys.modules)
    yield tmp_path
    for name in sys.modules.keys() - before.keys():
        if name.startswith(("perception", "export", "mine")):
            del sys.modules[name]


@pytest.mark.parametrize("name", [name for name in OUR_PACKAGES if name != "framefit"])
def test_a_users_file_on_the_path_does_not_hide_a_package(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("raise SystemExit('a script of the user')\n")
    code = f"import framefit.cli, {name}; print({name}.__file__)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()) == ROOT / name / "__init__.py"


def test_a_users_package_called_like_ours_builds_its_network(folder: Path) -> None:
    import perception

    (folder / "perception").mkdir()
    (folder / "perception" / "__init__.py").write_text("")
    (folder / "perception" / "mine.py").write_text("from export import CHANNELS\n" + NETWORK)
    (folder / "export.py").write_text("CHANNELS = 4\n")
    name = "perception.mine:make"
    assert isinstance(find_builder(name, name)(), nn.Conv2d)
    assert sys.modules["perception"] is perception
    import export.network_file  # noqa: F401


def test_a_folder_without_such_names_changes_no_module(folder: Path) -> None:
    import perception

    (folder / "mine.py").write_text("import perception\n")
    with modules_of(folder):
        import mine
    assert mine.perception is perception
    assert str(folder) not in sys.path


def test_a_builder_may_import_its_neighbours_when_it_is_called(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import perception

    (folder / "mine_parts.py").write_text(NETWORK)
    (folder / "perception.py").write_text("CHANNELS = 4\n")
    (folder / "mine.py").write_text(
        "def make():\n    import mine_parts, perception\n"
        "    assert perception.CHANNELS == 4\n    return mine_parts.make()\n"
    )
    build = find_builder("mine:make", "mine:make")
    monkeypatch.chdir(folder.parent)
    assert isinstance(build(), nn.Conv2d)
    assert sys.modules["perception"] is perception
    assert str(folder) not in sys.path


@pytest.mark.parametrize(
    ("source", "is_told"),
    [
        ("def make(width):\n    pass\n", True),
        (
            "def make(width=4):\n    raise TypeError('missing 1 argument')\n",
            False,
        ),
    ],
)
def test_a_builder_that_needs_arguments_is_told_what_to_do(
    folder: Path, source: str, is_told: bool
) -> None:
    (folder / "mine_with_arguments.py").write_text(source)
    name = "mine_with_arguments:make"
    with pytest.raises(InputError) as caught:
        call_builder(find_builder(name, name), name)
    assert ("called without arguments" in str(caught.value)) is is_told
