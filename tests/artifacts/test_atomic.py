"""Writing is all or nothing, whatever happens in the middle."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from artifacts.atomic import atomic_path, require_writable, write_bytes, write_json, write_text
from artifacts.errors import InputError

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def fail_half_way(path: Path, error: type[BaseException]) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"half of the ne")
        raise error


def test_content_replaces_the_old_one_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a/b/c.json"
    write_json(path, {"x": [1, 2.5, None]})
    write_json(path, {"x": "ü"})
    assert json.loads(path.read_text(encoding="utf-8")) == {"x": "ü"}
    write_text(path, "text")
    assert path.read_bytes() == b"text"
    assert names(path.parent) == ["c.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, OSError])
def test_failure_keeps_the_old_file_and_no_other(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    with pytest.raises((error, InputError)):
        fail_half_way(path, error)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["file.bin"]


def test_json_without_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert names(tmp_path) == []


def test_reader_sees_old_or_new_only(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_bytes(path, b"a" * 1000)
    with path.open("rb") as old:
        write_bytes(path, b"b" * 1000)
        assert set(old.read()) == set(b"a")
    assert set(path.read_bytes()) == set(b"b")


@pytest.mark.parametrize("name", ["-", "-v", "--out"])
def test_an_option_is_no_file(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="looks like an option"):
        require_writable(Path(name))


@pytest.mark.parametrize("write", [lambda path: write_bytes(path, b"x"), require_writable])
def test_paths_that_cannot_be_written(tmp_path: Path, write) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file/below", Path("/proc/none/x")):
        with pytest.raises(InputError, match="cannot write"):
            write(path)
    assert names(tmp_path) == ["file"]


def test_check_changes_nothing(tmp_path: Path) -> None:
    require_writable(tmp_path / "a/b/c")
    assert names(tmp_path) == []
    path = tmp_path / "old"
    path.write_bytes(b"old")
    require_writable(path)
    assert path.read_bytes() == b"old"


def test_longest_name(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250 + ".onnx")
    write_bytes(path, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o600), (0o027, 0o640), (0o002, 0o664)])
def test_a_new_file_is_as_readable_as_the_umask_has_it(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write_bytes(tmp_path / "weights.pt", b"secret")
    finally:
        os.umask(before)
    assert (tmp_path / "weights.pt").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o644])
def test_a_replaced_file_stays_as_readable_as_it_was(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "weights.pt"
    path.write_bytes(b"old")
    path.chmod(mode)
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == mode


WRITER = """
import sys
from artifacts.atomic import write_bytes
print("ready", flush=True)
while True:
    for letter in b"ab":
        write_bytes(sys.argv[1], bytes([letter]) * 2_000_000)
"""


def test_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "f.bin"
    write_bytes(path, b"a" * 2_000_000)
    for index in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.02 + 0.007 * index)
        process.kill()
        process.communicate()
        content = path.read_bytes()
        assert content in (b"a" * 2_000_000, b"b" * 2_000_000)


def test_open_streams_are_written_to_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "stdout").symlink_to("/proc/self/fd/1")
    code = (
        "from artifacts.atomic import require_writable, write_text\n"
        "for name in ('stdout', '/proc/self/fd/1'):\n"
        f"    write_text(require_writable('{tmp_path}/' + name if name[0] != '/' else name), 'x')\n"
        "print('end')"
    )
    with (tmp_path / "log").open("w") as log:
        subprocess.run([sys.executable, "-c", code], stdout=log, check=True, cwd=ROOT)
    assert (tmp_path / "log").read_text() == "xxend\n"
    assert (tmp_path / "stdout").is_symlink()
    assert names(tmp_path) == ["log", "stdout"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        write_text(pipe, "content")
        assert reader.communicate()[0] == b"content"
    assert pipe.is_fifo()
