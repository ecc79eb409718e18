"""The workspace: checked settings, and a journal that finds the newest artifact."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from framefit.budget_job import make_recipe
from framefit.workspace import Workspace


def test_newest_fitting_artifact_is_found(folder: Path) -> None:
    workspace = Workspace()
    for name, kind in (("a.onnx", "int8-onnx"), ("b.onnx", "int8-onnx"), ("c.plan", "plan")):
        Path(name).write_text(name)
        workspace.record_artifact(name, kind, "test")
    assert workspace.find_artifact("int8-onnx") == Path("b.onnx")
    assert workspace.find_artifact("int8-onnx", "plan") == Path("c.plan")
    workspace.record_artifact("a.onnx", "int8-onnx", "test")
    assert workspace.find_artifact("int8-onnx") == Path("a.onnx")
    Path("a.onnx").write_text("changed since")
    assert workspace.find_artifact("int8-onnx") == Path("b.onnx")
    Path("b.onnx").unlink()
    with pytest.raises(InputError, match="no MODEL was given"):
        workspace.find_artifact("int8-onnx")
    with pytest.raises(ValueError, match="kind"):
        workspace.record_artifact("c.plan", "engine", "test")


def test_folder_without_a_journal_has_no_artifacts(folder: Path) -> None:
    assert Workspace().list_artifacts() == []
    assert list(folder.iterdir()) == []


def test_a_write_that_takes_a_part_only_tears_no_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "model.onnx").write_bytes(b"network")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    Workspace(folder).record_artifact(folder / "model.onnx", "float-onnx", "export onnx")
    assert [found.kind for found in Workspace(folder).list_artifacts()] == ["float-onnx"]


def test_torn_line_is_left_out_and_the_next_one_is_whole(folder: Path) -> None:
    workspace = Workspace()
    Path("a.onnx").write_text("a")
    workspace.record_artifact("a.onnx", "float-onnx", "test")
    journal = folder / ".framefit/journal.jsonl"
    whole = journal.read_bytes()
    for length in range(len(whole)):
        journal.write_bytes(whole + whole[:length])
        workspace.record_artifact("a.onnx", "float-onnx", "again")
        assert [item.command for item in workspace.list_artifacts()][-1] == "again"
        assert workspace.find_artifact("float-onnx") == Path("a.onnx")


@given(content=st.binary(max_size=200))
@settings(suppress_health_check=list(HealthCheck), deadline=None)
def test_any_journal_is_readable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".framefit").mkdir(exist_ok=True)
    (tmp_path / ".framefit/journal.jsonl").write_bytes(content)
    Workspace(tmp_path).list_artifacts()


def _record(folder: str, count: int) -> None:
    workspace = Workspace(Path(folder))
    for _ in range(count):
        workspace.record_artifact(Path(folder) / "a.onnx", "float-onnx", "test")


def test_two_processes_lose_no_line(folder: Path) -> None:
    Path("a.onnx").write_text("a")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_record, args=(str(folder), 20)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(Workspace().list_artifacts()) == 40


def test_journal_that_cannot_be_written_does_not_stop_the_work(folder: Path) -> None:
    Path("a.onnx").write_text("a")
    Path(".framefit").write_text("in the way")
    Workspace().record_artifact("a.onnx", "float-onnx", "test")
    assert Workspace().list_artifacts() == []


def test_state_is_kept_where_that_can_be(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert Workspace().find_state("quantize", "abc") == Path(".framefit/quantize/abc")
    assert not Path(".framefit").exists()
    assert not caplog.messages
    Path(".framefit").write_text("in the way")
    assert Workspace().find_state("quantize", "abc") is None
    assert ".framefit cannot be written" in caplog.text


def test_journal_behind_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    Path(".framefit").mkdir()
    Path(".framefit/journal.jsonl").symlink_to(outside)
    Path("a.onnx").write_text("a")
    Workspace().record_artifact("a.onnx", "float-onnx", "test")
    assert outside.read_text() == "precious"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[inputs]\n", "unknown key 'inputs'.*did you mean 'input'"),
        ('[input]\ncolour = "rgb"\n', "'input.colour'.*did you mean 'color'"),
        ("input = 3\n", "a table"),
        ("[input]\nmean = 3\n", "input.mean is 3"),
        ('[input]\nmean = ["a"]\n', "input.mean"),
        ("[input]\nmean = [true]\n", "input.mean"),
        ('[input]\npixel_scale = "x"\n', "pixel_scale"),
        ("[input]\ncolor = 1\n", "color"),
        ("[datasets]\na = 3\n", "datasets.a"),
        ('[datasets]\na = ""\n', "datasets.a"),
        ("[input\n", "cannot read"),
        ("a = 1\na = 2\n", "cannot read"),
        ("\xff", "cannot read"),
        ("x = " + "[" * 100_000, "cannot read"),
    ],
)
def test_bad_settings_are_refused(folder: Path, text: str, message: str) -> None:
    Path("framefit.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=message):
        Workspace().read_settings()


def test_good_settings(folder: Path) -> None:
    text = '[input]\ncolor = "bgr"\nmean = [1, 2.5, 3]\n[datasets]\nroad = "data/road"\n'
    Path("framefit.toml").write_text(text, encoding="utf-8-sig", newline="\r\n")
    found = Workspace().read_settings()
    assert found.input == {"color": "bgr", "mean": [1, 2.5, 3]}
    assert Workspace().find_dataset("road") == Path("data/road")
    assert Workspace().find_dataset("other") == Path("other")
    assert Workspace().find_dataset("n" * 300) == Path("n" * 300)
    entry = {"path": "x", "kind": "plan", "sha256": "0", "command": "c"}
    assert json.loads(json.dumps(entry)) == entry


def test_a_dataset_may_lie_in_the_home_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    Path("framefit.toml").write_text('[datasets]\nroad = "~/road"\nother = "~no such user/road"\n')
    assert Workspace().find_dataset("road") == folder / "home" / "road"
    assert Workspace().find_dataset("~/road") == folder / "home" / "road"
    assert Workspace().find_dataset("other") == Path("~no such user/road")


def test_budget_check_measures_with_a_named_dataset(folder: Path) -> None:
    (folder / "check").mkdir()
    (folder / "framefit.toml").write_bytes(b'[datasets]\r\nafternoon = "check"\r\n')
    engine = {"runtime": None, "threads": None, "input_shape": None}
    for data, wanted in (("afternoon", "check"), ("check", "check"), (None, None)):
        recipe = make_recipe(Path("m.onnx"), None, None, {**engine, "data": data}, folder)
        found = recipe.arguments["data"]
        assert (found and Path(found).resolve()) == (wanted and folder / wanted)
