"""External data is read from beside the model, whole and through no link; 18 ways to fail."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.errors import InputError, UnsafeFileError
from artifacts.onnx_file import load_onnx, save_onnx

BYTES = 4 * 3 * 3 * 3 * 4


@pytest.fixture
def folder(tmp_path: Path, make_model) -> Path:
    """A model whose weights are in `data.bin`; the secret lies outside its folder."""
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(
        make_model(),
        folder / "m.onnx",
        save_as_external_data=True,
        location="data.bin",
        size_threshold=0,
    )
    (tmp_path / "secret").write_bytes(b"s" * BYTES)
    return folder


def rewrite(folder: Path, **entries: str) -> Path:
    """Changes the entries of the model's external data; an empty value removes one."""
    path = folder / "m.onnx"
    model = onnx.load(path, load_external_data=False)
    tensor = model.graph.initializer[0]
    values = {entry.key: entry.value for entry in tensor.external_data} | entries
    del tensor.external_data[:]
    for key, value in values.items():
        if value:
            tensor.external_data.add(key=key, value=value)
    path.write_bytes(model.SerializeToString())
    return path


def test_good_data_is_loaded_and_saved_self_contained(folder: Path, tmp_path: Path) -> None:
    model = load_onnx(folder / "m.onnx")
    alone = save_onnx(model, tmp_path / "alone.onnx", metadata={})
    shutil.rmtree(folder)
    values = [onnx.numpy_helper.to_array(m.graph.initializer[0]) for m in (model, load_onnx(alone))]
    np.testing.assert_array_equal(*values)
    assert values[0].std() > 0


def test_data_in_a_folder_below_and_its_checksum(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "data.bin").rename(folder / "sub/w.bin")
    digest = hashlib.sha1((folder / "sub/w.bin").read_bytes()).hexdigest()
    assert load_onnx(rewrite(folder, location="sub/w.bin", checksum=digest)).graph.node
    with pytest.raises(InputError, match="SHA-1"):
        load_onnx(rewrite(folder, checksum="0" * 40))


@pytest.mark.parametrize(
    "location", ["../secret", "sub/../../secret", "/etc/hostname", "", "..", "a\\..\\b", "C:x"]
)
def test_location_outside_is_refused(folder: Path, location: str) -> None:
    with pytest.raises(UnsafeFileError, match="relative path below"):
        load_onnx(rewrite(folder, location=location))


@pytest.mark.parametrize(
    "kind", ["symlink", "symlinked folder", "hard link", "device", "fifo", "folder", "missing"]
)
def test_anything_but_a_plain_file_is_refused(folder: Path, tmp_path: Path, kind: str) -> None:
    data, location = folder / "data.bin", "data.bin"
    data.unlink()
    if kind == "symlink":
        data.symlink_to(tmp_path / "secret")
    elif kind == "symlinked folder":
        (folder / "sub").symlink_to(tmp_path)
        location = "sub/secret"
    elif kind == "hard link":
        os.link(tmp_path / "secret", data)
    elif kind == "device":
        data.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(data)
    elif kind == "folder":
        data.mkdir()
    with pytest.raises(UnsafeFileError, match="external data"):
        load_onnx(rewrite(folder, location=location))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"offset": "-4"}, "offset is '-4'"),
        ({"offset": "4"}, "ends at 436"),
        ({"offset": str(2**62)}, "ends at"),
        ({"offset": "9" * 40}, "offset is"),
        ({"offset": "abc"}, "offset is 'abc'"),
        ({"length": str(2**60)}, f"{BYTES} bytes"),
        ({"length": "4"}, f"{BYTES} bytes"),
        ({"length": "-1"}, "length is '-1'"),
        ({"__class__": "x"}, "unknown key '__class__'"),
    ],
)
def test_bad_entry_is_refused(folder: Path, entries: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_onnx(rewrite(folder, **entries))


@pytest.mark.parametrize("size", [0, 1, BYTES - 1])
def test_truncated_data_is_refused(folder: Path, size: int) -> None:
    content = (folder / "data.bin").read_bytes()
    (folder / "data.bin").write_bytes(content[:size])
    with pytest.raises(InputError, match="the complete file"):
        load_onnx(folder / "m.onnx")


def test_overlapping_tensors_are_refused_and_shared_ones_are_not(folder: Path) -> None:
    path = folder / "m.onnx"
    (folder / "data.bin").write_bytes(b"\0" * BYTES * 2)
    for offset, is_fine in (("0", True), ("4", False)):
        model = onnx.load(path, load_external_data=False)
        second = model.graph.initializer.add()
        second.CopyFrom(model.graph.initializer[0])
        second.name = "second"
        del second.external_data[:]
        second.external_data.add(key="location", value="data.bin")
        second.external_data.add(key="offset", value=offset)
        changed = folder / "changed.onnx"
        changed.write_bytes(model.SerializeToString())
        if is_fine:
            assert load_onnx(changed).graph.node
        else:
            with pytest.raises(InputError, match="overlaps"):
                load_onnx(changed)


def test_swapping_the_file_for_a_link_never_reads_the_secret(folder: Path, tmp_path: Path) -> None:
    """What is read is what was checked: a swap at any moment gives the data or an error."""
    import threading

    data, good = folder / "data.bin", (folder / "data.bin").read_bytes()
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for make in (
                lambda path: path.symlink_to(tmp_path / "secret"),
                lambda path: path.write_bytes(good),
            ):
                beside = folder / "beside"
                beside.unlink(missing_ok=True)
                make(beside)
                beside.replace(data)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(200):
            try:
                model = load_onnx(folder / "m.onnx")
            except InputError:
                continue
            assert model.graph.initializer[0].raw_data == good
    finally:
        stop.set()
        thread.join()
