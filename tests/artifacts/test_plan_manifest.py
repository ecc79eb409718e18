import json
import os

import pytest

from artifacts.digest import sha256_bytes
from artifacts.errors import InputError, UnsafeFileError
from artifacts.plan_manifest import (
    PlanManifest,
    manifest_path,
    read_manifest,
    read_verified_plan,
    write_plan,
)

MANIFEST = PlanManifest(
    onnx_name="model.onnx",
    onnx_sha256="0" * 64,
    flavour="tensorrt-rtx",
    tensorrt_version="1.7.1",
    compute_capabilities=(86, 89),
    settings={"int8": True},
    metadata={"framefit.heads": "{}"},
)


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "model.plan"
    write_plan(path, b"engine bytes", MANIFEST)
    return path


def test_a_plan_is_read_back_with_its_manifest(plan):
    assert read_verified_plan(plan) == b"engine bytes"
    manifest = read_manifest(plan)
    assert manifest.plan_sha256 == sha256_bytes(b"engine bytes")
    assert manifest.plan_bytes == len(b"engine bytes")
    assert manifest.compute_capabilities == (86, 89)
    assert manifest.settings == {"int8": True}
    assert manifest_path(plan).name == "model.plan.json"


@pytest.mark.parametrize("damaged", [b"engine byteS", b"engine byte", b"", b"engine bytes\0"])
def test_a_changed_plan_is_refused(plan, damaged):
    plan.write_bytes(damaged)
    with pytest.raises(UnsafeFileError, match="digest"):
        read_verified_plan(plan)


def test_a_plan_without_its_manifest_is_refused(plan):
    manifest_path(plan).unlink()
    with pytest.raises(UnsafeFileError, match="no manifest"):
        read_verified_plan(plan)
    with pytest.raises(InputError, match="cannot be read"):
        read_verified_plan(plan.with_name("missing.plan"))


def test_a_digest_kept_elsewhere_beats_a_forged_pair(plan):
    known = read_manifest(plan).plan_sha256
    assert read_verified_plan(plan, expected_sha256=known) == b"engine bytes"
    write_plan(plan, b"forged", MANIFEST)
    assert read_verified_plan(plan) == b"forged"
    with pytest.raises(UnsafeFileError):
        read_verified_plan(plan, expected_sha256=known)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "framefit-plan/2"},
        {"flavour": "tensorflow"},
        {"compute_capabilities": []},
        {"compute_capabilities": ["86"]},
        {"surprise": 1},
        {"plan_sha256": "short"},
        {"plan_sha256": 5},
        {"compute_capabilities": 86},
        {"flavour": ["tensorrt"]},
        {"settings": []},
        {"metadata": "heads"},
        {"onnx_name": None, "tensorrt_version": None},
    ],
)
def test_a_manifest_with_other_content_is_refused(plan, change):
    values = json.loads(manifest_path(plan).read_text()) | change
    kept = {key: value for key, value in values.items() if value is not None}
    manifest_path(plan).write_text(json.dumps(kept))
    with pytest.raises(InputError) as caught:
        read_verified_plan(plan)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", "{}", "[" * 100_000])
def test_a_manifest_that_is_no_manifest_is_refused(plan, text):
    manifest_path(plan).write_text(text)
    with pytest.raises(InputError, match="manifest"):
        read_verified_plan(plan)


@pytest.mark.parametrize("is_manifest", [True, False])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_never_ends_is_not_read(plan, kind, is_manifest):
    path = manifest_path(plan) if is_manifest else plan
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        read_verified_plan(plan)


def test_a_manifest_that_is_far_too_large_is_not_read(plan):
    with manifest_path(plan).open("ab") as file:
        file.truncate(1 << 30)
    with pytest.raises(InputError, match="1073741824 bytes"):
        read_manifest(plan)


def test_an_interrupted_write_leaves_the_old_pair(plan, monkeypatch):
    def interrupt(*_args, **_kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("artifacts.plan_manifest.json.dumps", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_plan(plan, b"new", MANIFEST)
    monkeypatch.undo()
    assert read_verified_plan(plan) == b"engine bytes"
    assert sorted(path.name for path in plan.parent.iterdir()) == ["model.plan", "model.plan.json"]
