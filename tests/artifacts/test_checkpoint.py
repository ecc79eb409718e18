"""Checkpoints: round trips, and files that would run code and must not."""

import io
import json
import pickle
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts import checkpoint  # noqa: E402
from artifacts.checkpoint import (  # noqa: E402
    Checkpoint,
    build_from_factory,
    build_module,
    load_checkpoint,
    load_checkpoint_or_weights,
    load_exported_program,
    load_state_dict,
    save_checkpoint,
)
from artifacts.errors import InputError, UnavailableError, UnsafeFileError  # noqa: E402
from artifacts.input_spec import InputSpec  # noqa: E402

FACTORY = """
import torch
def make():
    return torch.nn.Conv2d(3, 4, 3)
def make_from(config):
    return torch.nn.Conv2d(3, config["channels"], 3)
def fail():
    raise KeyError("no such thing")
def text():
    return "no module"
"""


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, 3)


@pytest.fixture
def my_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the current folder, which is not on Python's path."""
    (tmp_path / "my_networks.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    yield "my_networks"
    sys.modules.pop("my_networks", None)


def make(network: nn.Module, **changes: Any) -> Checkpoint:
    values: dict[str, Any] = {
        "builder": "my_networks:make_from",
        "config": {"channels": 4, "names": ["a"], "nested": {"x": (1, 2.5)}},
        "input_spec": InputSpec(color="bgr", mean=(1.0, 2.0, 3.0)),
        "state_dict": network.state_dict(),
    }
    return Checkpoint(**{**values, **changes})


def test_round_trip_gives_the_same_network(tmp_path: Path, network, my_module: str) -> None:
    path = save_checkpoint(tmp_path / "m.pt", make(network))
    loaded = load_checkpoint(path)
    assert loaded.config == make(network).config
    assert loaded.input_spec == InputSpec(color="bgr", mean=(1.0, 2.0, 3.0))
    built = build_module(loaded, factory="my_networks:make_from")
    x = torch.randn(1, 3, 5, 5)
    assert torch.equal(built(x), network(x))
    assert not built.training
    again = save_checkpoint(tmp_path / "again.pt", loaded)
    assert again.read_bytes() == path.read_bytes()


def test_builder_of_the_file_is_not_run_unless_the_user_names_it(
    tmp_path: Path, network, my_module: str
) -> None:
    stored = make(network)
    for factory in (None, "other:make"):
        with pytest.raises(UnsafeFileError, match="'my_networks:make_from'"):
            build_module(stored, factory=factory)
    assert "my_networks" not in sys.modules


@pytest.mark.parametrize(
    "builder",
    [
        "os:system",
        "perception:build",
        "perception.network:torch",
        "perception.network:DEFAULT_CONFIG",
        "perception.network:build.__globals__",
        "perception.network.sys:exit",
        "perception.train:train",
        "perceptionx.network:build",
        "perception..network:build",
        "perception.network:build\n",
    ],
)
def test_only_build_functions_of_perception_are_allowed(network, builder: str) -> None:
    with pytest.raises(UnsafeFileError):
        build_module(make(network, builder=builder))


def test_imported_name_in_a_perception_module_is_not_a_builder(
    network, monkeypatch: pytest.MonkeyPatch
) -> None:
    import perception.network

    monkeypatch.setattr(perception.network, "build_evil", print, raising=False)
    with pytest.raises(UnsafeFileError, match="not defined in that module"):
        build_module(make(network, builder="perception.network:build_evil"))


def test_checkpoint_of_our_network_is_built(tmp_path: Path) -> None:
    from perception.network import build

    config = {"height": 64, "width": 64, "neck_channels": 8, "heads": {"depth": {}}}
    own = build(config)
    stored = make(own, builder="perception.network:build", config=config)
    loaded = load_checkpoint(save_checkpoint(tmp_path / "m.pt", stored))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(build_module(loaded)(x)["depth"], own.eval()(x)["depth"])


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return exec, (f"open({str(self.path)!r}, 'w').close()",)


class Nested:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return pickle.loads, (self.content,)


def globals_pickle(module: str, name: str, argument: str) -> bytes:
    """A hand-made pickle that calls `module.name(argument)`."""
    return (
        b"\x80\x02c"
        + f"{module}\n{name}\n".encode()
        + b"X"
        + len(argument).to_bytes(4, "little")
        + argument.encode()
        + b"\x85R."
    )


GADGETS = {
    "os.system": ("os", "system"),
    "posix.system": ("posix", "system"),
    "builtins.eval": ("builtins", "eval"),
    "builtins.getattr": ("builtins", "getattr"),
    "runpy": ("runpy", "run_path"),
    "cProfile": ("cProfile", "run"),
    "pty": ("pty", "spawn"),
    "timeit": ("timeit", "timeit"),
    "pip": ("pip", "main"),
    "asyncio": ("asyncio.unix_events", "_UnixSubprocessTransport._start"),
    "subprocess": ("_posixsubprocess", "fork_exec"),
    "site": ("site", "execsitecustomize"),
    "atexit": ("atexit", "_run_exitfuncs"),
    "f2py": ("numpy.f2py.crackfortran", "myeval"),
    "torch.load": ("torch", "load"),
    "torch.hub": ("torch.hub", "load"),
}


def torch_zip(path: Path, pickled: bytes, *more: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (("data.pkl", pickled), ("version", b"3\n"), *more):
            archive.writestr(f"archive/{name}", content)
    return path


@pytest.mark.parametrize("name", GADGETS)
def test_gadget_is_refused_and_does_not_run(tmp_path: Path, name: str) -> None:
    canary = tmp_path / "canary"
    argument = f"touch {canary}" if "system" in name else f"open({str(canary)!r}, 'w')"
    path = torch_zip(tmp_path / "m.pt", globals_pickle(*GADGETS[name], argument))
    with pytest.raises(UnsafeFileError, match="could run code"):
        load_checkpoint(path)
    assert not canary.exists()


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".bin", ".safetensors"])
@pytest.mark.parametrize("kind", ["zip", "legacy", "plain pickle", "nested"])
def test_malicious_pickle_is_refused_whatever_its_name(
    tmp_path: Path, kind: str, suffix: str
) -> None:
    canary, path = tmp_path / "canary", tmp_path / f"m{suffix}"
    if kind == "plain pickle":
        path.write_bytes(pickle.dumps(Canary(canary)))
    elif kind == "nested":
        torch.save({"a": Nested(pickle.dumps(Canary(canary)))}, path)
    else:
        torch.save({"a": Canary(canary)}, path, _use_new_zipfile_serialization=kind == "zip")
    for load in (load_checkpoint, load_state_dict, load_checkpoint_or_weights):
        with pytest.raises(UnsafeFileError):
            load(path)
    assert not canary.exists()


def test_the_canary_sings_when_it_is_unpickled(tmp_path: Path) -> None:
    torch.save({"a": Canary(tmp_path / "canary")}, tmp_path / "m.pt")
    torch.load(tmp_path / "m.pt", weights_only=False)
    assert (tmp_path / "canary").exists()


def test_torch_load_is_called_once_and_safely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": Canary(tmp_path / "canary")}, tmp_path / "m.pt")
    calls = []
    original = torch.load

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(checkpoint.torch, "load", spy)
    with pytest.raises(UnsafeFileError):
        load_checkpoint(tmp_path / "m.pt")
    assert [call["weights_only"] for call in calls] == [True]


def test_truncated_checkpoint_is_refused_at_every_length(tmp_path: Path, network) -> None:
    path = save_checkpoint(tmp_path / "m.pt", make(network))
    content = path.read_bytes()
    for length in range(0, len(content), len(content) // 64):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            load_checkpoint(path)


def test_archive_tricks_are_refused(tmp_path: Path, network) -> None:
    good = save_checkpoint(tmp_path / "m.pt", make(network)).read_bytes()
    path = tmp_path / "bad.pt"
    with zipfile.ZipFile(tmp_path / "m.pt") as archive:
        members = {item.filename: archive.read(item) for item in archive.infolist()}
        pickled = archive.getinfo("archive/data.pkl")

    def rebuild(changes: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, content in {**members, **changes}.items():
                archive.writestr(name, content)

    def refused(message: str) -> None:
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)

    rebuild({})
    assert load_checkpoint(path).config["channels"] == 4
    for name in ("archive/../../x", "/x", "archive/..\\x"):
        rebuild({name: b"x"})
        refused("outside the archive|not one that PyTorch")
    rebuild({"second/data.pkl": b"x"})
    refused("not one that PyTorch wrote")
    rebuild({"archive/data/0": b"\0" * 10_000_000}, zipfile.ZIP_DEFLATED)
    refused("compressed member")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", members["archive/data.pkl"])
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("archive/data.pkl", b"other")
    refused("twice")
    path.write_bytes(b"prefix" + good)
    refused("ambiguous|not a complete")
    middle = pickled.header_offset + 40
    path.write_bytes(good[:middle] + bytes([good[middle] ^ 1]) + good[middle + 1 :])
    refused("damaged|differ")
    local, central = good.index(b"PK\x03\x04"), good.index(b"PK\x01\x02")
    for position in (local + 6, central + 8):
        flipped = bytearray(good)
        flipped[position] |= 1
        path.write_bytes(flipped)
        refused("encrypted|differ")


def test_torchscript_other_formats_and_files_are_refused(tmp_path: Path, network) -> None:
    path = tmp_path / "m.pt"
    for members, message in (
        ((("code/__torch__.py", b"x"),), "TorchScript"),
        ((("models/model.json", b"{}"),), "suffix .pt2"),
    ):
        torch_zip(path, pickle.dumps({}, 2), *members)
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)
    for content, message in (
        ({"format": "framefit/99"}, "framefit/99"),
        ({"format": "framefit/1", "builder": "x:y"}, "no 'config'"),
        ({"format": "other", "state_dict": network.state_dict()}, "'other'"),
        ({"epoch": 3}, "of another format"),
        ([1, 2], "of another format"),
        (network.state_dict(), "plain state dict.*--factory"),
        ({"state_dict": network.state_dict()}, "plain state dict"),
    ):
        torch.save(content, path)
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)
    path.write_text("text")
    with pytest.raises(InputError, match="text file"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="No such file"):
        load_checkpoint(tmp_path / "none.pt")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor([1.0, float("nan")]),
        torch.tensor([float("inf"), 1.0]).half(),
        torch.tensor([[1.0, 0.0]]).to_sparse(),
        torch.ones(1).expand(2**40),
    ],
    ids=["nan", "inf", "sparse", "expanded"],
)
def test_odd_weights_are_refused_by_name(tmp_path: Path, tensor) -> None:
    torch.save({"good": torch.ones(2), "bad.weight": tensor}, tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"'bad\.weight'|could run code"):
        load_state_dict(tmp_path / "m.pt")


def test_wrappers_and_prefixes_are_taken_off(tmp_path: Path, network) -> None:
    weights = network.state_dict()
    for content in (
        weights,
        {"state_dict": weights, "epoch": 1},
        {"model": {f"module.{name}": value for name, value in weights.items()}},
    ):
        torch.save(content, tmp_path / "m.pt")
        assert load_state_dict(tmp_path / "m.pt").keys() == weights.keys()


def test_factory_of_the_current_folder(tmp_path: Path, network, my_module: str) -> None:
    built = build_from_factory("my_networks:make", network.state_dict())
    assert torch.equal(built.weight, network.weight)
    assert str(tmp_path) not in sys.path
    for factory, message in (
        ("my_networks:none", "no function 'none'"),
        ("my_networks:fail", "KeyError"),
        ("my_networks:text", "returned str"),
        ("no_such_module:make", "cannot import"),
        ("my_networks", "package.module:function"),
        ("my_networks:make()", "package.module:function"),
    ):
        with pytest.raises(InputError, match=message):
            build_from_factory(factory, network.state_dict())


def test_weights_that_do_not_fit_are_refused_with_the_first_five(my_module: str) -> None:
    names = {f"extra{index}": torch.ones(1) for index in range(9)}
    with pytest.raises(InputError) as caught:
        build_from_factory("my_networks:make", {"weight": torch.ones(2, 2), **names})
    message = str(caught.value)
    assert "1 missing: bias" in message
    assert "9 not in the network: extra0, extra1, extra2, extra3, extra4 …" in message
    assert "weight [2, 2] instead of [4, 3, 3, 3]" in message


def safetensors_bytes(header: Any, data: bytes = b"\0" * 8) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_safetensors_round_trip(tmp_path: Path, network) -> None:
    from safetensors.torch import save_file

    save_file(network.state_dict(), tmp_path / "m.safetensors")
    (tmp_path / "m.safetensors").rename(tmp_path / "other.pt")
    loaded = load_state_dict(tmp_path / "other.pt")
    assert all(torch.equal(loaded[name], value) for name, value in network.state_dict().items())
    (tmp_path / "other.pt").unlink()
    assert loaded["weight"].sum() == network.weight.sum()


BAD_SAFETENSORS = {
    "7 bytes": b"1234567",
    "header 2^63": (2**63).to_bytes(8, "little") + b"{}",
    "header past the end": (100).to_bytes(8, "little") + b"{}",
    "not UTF-8": safetensors_bytes(b'{"\xff": 1}'),
    "not JSON": safetensors_bytes(b"{oops}"),
    "a list": safetensors_bytes([1]),
    "deep": safetensors_bytes(b"[" * 100_000),
    "doubled key": safetensors_bytes(
        b'{"a": ' + json.dumps(entry()).encode() + b', "a": ' + json.dumps(entry()).encode() + b"}"
    ),
    "overlap": safetensors_bytes({"a": entry(), "b": entry(offsets=(4, 12))}, b"\0" * 12),
    "gap": safetensors_bytes({"a": entry(offsets=(8, 16))}, b"\0" * 16),
    "trailing": safetensors_bytes({"a": entry()}, b"\0" * 9),
    "short": safetensors_bytes({"a": entry()}, b"\0" * 7),
    "overflow": safetensors_bytes({"a": entry(shape=(2**40, 2**40))}),
    "negative": safetensors_bytes({"a": entry(shape=(-2,))}),
    "type": safetensors_bytes({"a": entry(dtype="F13")}),
    "boolean offset": safetensors_bytes({"a": entry(offsets=(False, 8))}),
    "no dtype": safetensors_bytes({"a": {"shape": [2], "data_offsets": [0, 8]}}),
    "nan": safetensors_bytes({"a": entry()}, b"\0\0\xc0\x7f" * 2),
}


@pytest.mark.parametrize("name", BAD_SAFETENSORS)
def test_bad_safetensors_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(BAD_SAFETENSORS[name])
    with pytest.raises(InputError) as caught:
        load_state_dict(path)
    assert "\n" not in str(caught.value)


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


def test_pickled_sample_inputs_of_a_program_do_not_run(program: Path, tmp_path: Path) -> None:
    """`torch.export.load` falls back to full pickle here; the control proves that it does."""
    canary, buffer = tmp_path / "canary", io.BytesIO()
    torch.save(((Canary(canary),), {}), buffer)
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


def test_other_files_called_pt2_are_refused(tmp_path: Path, network) -> None:
    path = tmp_path / "m.pt2"
    path.write_text("text")
    with pytest.raises(InputError, match=r"not a \.pt2 archive"):
        load_exported_program(path)
    save_checkpoint(path, make(network))
    with pytest.raises(UnsafeFileError):
        load_exported_program(path)


def test_old_torch_that_is_not_safe_is_refused(
    tmp_path: Path, network, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_checkpoint(tmp_path / "m.pt", make(network))
    monkeypatch.setattr(checkpoint.torch, "__version__", "2.5.1+cu124")
    with pytest.raises(UnavailableError, match=r"torch 2\.5\.1.*2\.6 or newer"):
        load_checkpoint(path)
