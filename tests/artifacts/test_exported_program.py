"""`.pt2` archives: an ordinary one is loaded, one that could run code needs the user's trust."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts.errors import InputError, UnsafeFileError  # noqa: E402
from artifacts.exported_program import load_exported_program  # noqa: E402


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, picture: Any) -> Any:
            return self.conv(picture).relu()

    path = tmp_path_factory.mktemp("program") / "m.pt2"
    torch.manual_seed(0)
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 3, 8, 8),)), path)
    return path


def changed(program: Path, path: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copies an archive, every member through `change`."""
    with zipfile.ZipFile(program) as old, zipfile.ZipFile(path, "w") as new:
        for item in old.infolist():
            content = change(item.filename, old.read(item))
            if content is not None:
                new.writestr(item.filename, content)
    return path


def test_ordinary_program_is_loaded_without_trust(program: Path, tmp_path: Path) -> None:
    module, shapes = load_exported_program(program)
    assert shapes == {"picture": (1, 3, 8, 8)}
    x = torch.randn(1, 3, 8, 8)
    copy = changed(program, tmp_path / "copy.pt2", lambda _, content: content)
    assert torch.equal(module(x), load_exported_program(copy)[0](x))


def test_pickled_sample_inputs_of_a_program_do_not_run(
    program: Path, tmp_path: Path, make_canary
) -> None:
    """`torch.export.load` falls back to full pickle here; the control proves that it does."""
    canary, buffer = tmp_path / "canary", io.BytesIO()
    torch.save(((make_canary(),), {}), buffer)
    path = changed(
        program,
        tmp_path / "evil.pt2",
        lambda name, content: buffer.getvalue() if "sample_inputs" in name else content,
    )
    with pytest.raises(UnsafeFileError, match="sample inputs"):
        load_exported_program(path)
    assert not canary.exists()
    load_exported_program(path, is_trusted=True)
    assert canary.exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"torch.ops.aten.relu.default", b"torch.os.system", "'torch.os.system'"),
        (b"torch.ops.aten.relu.default", b"torch.ops.load_library", "load_library"),
        (b"torch.ops.aten.relu.default", b"#custom:thing", "#custom"),
        (b'"as_int": 8', b'"as_expr": {"expr_str": "1"}', "symbolic shapes"),
        (b'"name": "relu"', b'"name": "__enum__"', "class to import"),
    ],
)
def test_program_that_could_run_code_needs_trust(
    program: Path, tmp_path: Path, old: bytes, new: bytes, message: str
) -> None:
    def change(name: str, content: bytes) -> bytes:
        if not name.endswith("model.json"):
            return content
        assert old in content
        return content.replace(old, new)

    path = changed(program, tmp_path / "m.pt2", change)
    with pytest.raises(UnsafeFileError, match=message):
        load_exported_program(path)


@pytest.mark.parametrize(
    "member",
    [
        "m/data/constants/opaque_obj_0",
        "m/data/constants/custom_obj_0",
        "m/data/weights/model.pt",
        "m/data/aotinductor/model/x.so",
        "m/extra.pkl",
    ],
)
def test_program_with_other_members_needs_trust(program: Path, tmp_path: Path, member: str) -> None:
    path = changed(program, tmp_path / "m.pt2", lambda _, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(member, b"x")
    with pytest.raises(UnsafeFileError, match="could run code"):
        load_exported_program(path)


def test_program_with_pickled_weights_needs_trust(program: Path, tmp_path: Path) -> None:
    path = changed(
        program,
        tmp_path / "m.pt2",
        lambda _, content: content.replace(b'"use_pickle": false', b'"use_pickle": true'),
    )
    with pytest.raises(UnsafeFileError, match="pickled weights"):
        load_exported_program(path)


def test_other_files_called_pt2_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    path.write_text("text")
    with pytest.raises(InputError, match=r"not a \.pt2 archive"):
        load_exported_program(path)
    torch.save(nn.Conv2d(3, 4, 3).state_dict(), path)
    with pytest.raises(UnsafeFileError):
        load_exported_program(path)
