"""Writing is all or nothing, whatever happens in the middle."""

import json
import os
import signal
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
    for path in (tmp_path, tmp_path / "file/below", Path("/proc/none/x"), tmp_path / ("n" * 300)):
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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path, bytes]]:
    """What was made durable or renamed, in order: ("fsync" or "replace", path, content)."""
    told: list[tuple[str, Path, bytes]] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        told.append(("fsync", path, path.read_bytes() if path.is_file() else b""))
        fsync(descriptor)

    def note_replace(source: Path, target: Path) -> Path:
        told.append(("replace", source, source.read_bytes()))
        return replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    return told


def contents_after_power_loss(
    steps: list[tuple[str, Path, bytes]], folder: Path, old: bytes
) -> list[set[bytes]]:
    """Returns after each step what a power loss may leave under the name.

    Unsynced content of a file may be lost, and a rename lasts from its folder's fsync on.
    """
    durable: dict[Path, bytes] = {}
    possible, found = {old}, []
    renamed: bytes | None = None
    for what, path, content in steps:
        if what == "replace":
            renamed = durable.get(path, b"")
            possible = possible | {renamed}
        elif path == folder and renamed is not None:
            possible = {renamed}
        else:
            durable[path] = content
        found.append(possible)
    return found


def test_a_power_loss_at_any_step_leaves_the_old_file_or_the_new(
    tmp_path: Path, steps: list[tuple[str, Path, bytes]]
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"old")
    write_bytes(path, b"new")
    states = contents_after_power_loss(steps, tmp_path, b"old")
    assert all(state <= {b"old", b"new"} for state in states)
    assert {b"old", b"new"} in states
    assert states[-1] == {b"new"}
    too_late = [step for step in steps if step[0] == "replace"]  # The control: nothing was synced.
    assert b"" in contents_after_power_loss(too_late, tmp_path, b"old")[-1]


def test_new_folders_survive_a_power_loss(
    tmp_path: Path, steps: list[tuple[str, Path, bytes]]
) -> None:
    write_bytes(tmp_path / "a" / "b" / "file.bin", b"new")
    synced = {path for what, path, _ in steps if what == "fsync"}
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= synced


def test_signals_and_short_writes_tear_nothing(tmp_path: Path) -> None:
    """A slow reader makes writes to a pipe short, and a timer interrupts them."""
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    content = bytes(range(256)) * 20_000
    ticks = []
    before = signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
    reader = (
        "import sys, time\nfrom pathlib import Path\ncopy = b''\n"
        "with open(sys.argv[1], 'rb', buffering=0) as stream:\n"
        "    while part := stream.read(50_000):\n        copy += part\n        time.sleep(0.001)\n"
        "Path(sys.argv[2]).write_bytes(copy)"
    )
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    try:
        with subprocess.Popen([sys.executable, "-c", reader, pipe, copy]) as process:
            write_bytes(pipe, content)
            write_bytes(tmp_path / "file.bin", content)
            assert process.wait(60) == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(ticks) > 10
    assert copy.read_bytes() == (tmp_path / "file.bin").read_bytes() == content
