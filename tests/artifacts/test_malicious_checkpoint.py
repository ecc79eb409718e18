"""Checkpoints that would run code, or hide what they hold, are refused; a canary proves it."""

import pickle
import shlex
import subprocess
import sys
import types
import zipfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts.checkpoint import (  # noqa: E402
    Checkpoint,
    load_checkpoint,
    load_checkpoint_or_weights,
    load_run_state,
    load_state_dict,
    save_checkpoint,
)
from artifacts.dropped_objects import DICTIONARIES, NAMES, STAND_INS, Dropped  # noqa: E402
from artifacts.errors import InputError, UnsafeFileError  # noqa: E402
from artifacts.input_spec import InputSpec  # noqa: E402
from artifacts.torch_file import load_torch  # noqa: E402


@pytest.fixture
def good(tmp_path: Path) -> Path:
    """A checkpoint that is fine."""
    weights = nn.Conv2d(3, 4, 3).state_dict()
    stored = Checkpoint(
        builder="perception.network:build",
        config={"channels": 4},
        input_spec=InputSpec(),
        state_dict=weights,
    )
    return save_checkpoint(tmp_path / "good.pt", stored)


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
    tmp_path: Path, make_canary, kind: str, suffix: str
) -> None:
    canary, path = tmp_path / "canary", tmp_path / f"m{suffix}"
    if kind == "plain pickle":
        path.write_bytes(pickle.dumps(make_canary()))
    elif kind == "nested":
        torch.save({"a": Nested(pickle.dumps(make_canary()))}, path)
    else:
        torch.save({"a": make_canary()}, path, _use_new_zipfile_serialization=kind == "zip")
    for load in (load_checkpoint, load_state_dict, load_checkpoint_or_weights):
        with pytest.raises(UnsafeFileError):
            load(path)
    assert not canary.exists()


def test_the_file_is_really_malicious_where_it_is_unpickled(tmp_path: Path, make_canary) -> None:
    """The one unsafe load, on purpose: without it the tests above would pass on a harmless file."""
    torch.save({"a": make_canary()}, tmp_path / "m.pt")
    torch.load(tmp_path / "m.pt", weights_only=False)
    assert (tmp_path / "canary").exists()


def test_torch_load_is_called_once_and_safely(
    tmp_path: Path, make_canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save({"a": make_canary()}, tmp_path / "m.pt")
    calls = []
    original = torch.load

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch, "load", spy)
    with pytest.raises(UnsafeFileError):
        load_checkpoint(tmp_path / "m.pt")
    assert [call["weights_only"] for call in calls] == [True]


def test_truncated_checkpoint_is_refused_at_every_length(tmp_path: Path, good: Path) -> None:
    path, content = tmp_path / "cut.pt", good.read_bytes()
    for length in range(0, len(content), len(content) // 64):
        path.write_bytes(content[:length])
        with pytest.raises(InputError):
            load_checkpoint(path)


def test_archive_tricks_are_refused(tmp_path: Path, good: Path) -> None:
    content, path = good.read_bytes(), tmp_path / "bad.pt"
    with zipfile.ZipFile(good) as archive:
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
    path.write_bytes(b"prefix" + content)
    refused("ambiguous|not a complete")
    middle = pickled.header_offset + 40
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    refused("damaged|differ")
    local, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")
    for position in (local + 6, central + 8):
        flipped = bytearray(content)
        flipped[position] |= 1
        path.write_bytes(flipped)
        refused("encrypted|differ")


@pytest.mark.parametrize(
    ("member", "message"),
    [("code/__torch__.py", "TorchScript"), ("models/model.json", r"suffix \.pt2")],
)
def test_archive_of_another_kind_is_refused_with_a_hint(
    tmp_path: Path, member: str, message: str
) -> None:
    path = torch_zip(tmp_path / "m.pt", pickle.dumps({}, 2), (member, b"{}"))
    with pytest.raises(InputError, match=message):
        load_checkpoint(path)


def test_what_trainings_write_beside_weights_is_dropped_unread(tmp_path: Path) -> None:
    path = tmp_path / "last.pt"
    weights = nn.Conv2d(3, 4, 3).state_dict()
    beside = {
        "best": np.float64(0.5),
        "curve": np.arange(3.0),
        "args": Namespace(lr=0.1, out=Path("runs"), seen=[np.float32(1)]),
        "date": datetime(2026, 1, 1, tzinfo=UTC),
    }
    torch.save({"epoch": 3, "model": weights, **beside}, path)
    found = load_state_dict(path)
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    with pytest.raises(InputError, match="holds Python objects"):
        load_run_state(path)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_dropped_object_runs(tmp_path: Path, make_canary, name: str) -> None:
    """Its arguments and its state are objects like any other, and the global itself is not got."""
    module, _, attribute = name.rpartition(".")
    weight = pickle.dumps({"w": 1}, 2)[2:-1]
    called = globals_pickle(module, attribute, "x")[2:-1]
    built = called + b"(X\x01\x00\x00\x00aX\x01\x00\x00\x00btb"
    path = torch_zip(tmp_path / "m.pt", b"\x80\x02(" + built + weight + b"t.")
    with pytest.raises(InputError, match="another format"):
        load_checkpoint_or_weights(path)
    content = load_torch(path, STAND_INS)
    assert type(content[0]) is Dropped
    assert not vars(content[0])
    gadget = pickle.dumps(make_canary(), 2)[2:-1]
    hidden = b"c" + f"{module}\n{attribute}\n".encode() + gadget + b"\x85R"
    torch_zip(path, b"\x80\x02" + hidden + b".")
    with pytest.raises(UnsafeFileError):
        load_checkpoint_or_weights(path)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("name", DICTIONARIES)
def test_dictionaries_of_a_kind_of_their_own_are_read_as_plain_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    module, _, attribute = name.rpartition(".")
    kind = type(attribute, (dict,), {"__module__": module})
    stand_in = types.ModuleType(module)
    setattr(stand_in, attribute, kind)
    for end in range(1, module.count(".") + 2):
        monkeypatch.setitem(sys.modules, ".".join(module.split(".")[:end]), stand_in)
    options = kind({"lr": 0.1, "nested": kind()})
    options.extra = 1
    weights = nn.Conv2d(3, 4, 3).state_dict()
    torch.save(kind({"state_dict": weights, "hyper_parameters": options}), tmp_path / "m.ckpt")
    monkeypatch.delitem(sys.modules, module)
    assert load_state_dict(tmp_path / "m.ckpt").keys() == weights.keys()


def test_options_that_name_types_are_dropped(tmp_path: Path) -> None:
    """As of Hydra and Lightning: `hparams_type`, and optimizers to be called later."""
    weights = nn.Conv2d(3, 4, 3).state_dict()
    later = partial(torch.optim.AdamW, lr=0.1)
    options = {"type": dict, "optimizer": later, "counts": defaultdict(int)}
    torch.save({"state_dict": weights, "hyper_parameters": options}, tmp_path / "m.ckpt")
    assert load_state_dict(tmp_path / "m.ckpt").keys() == weights.keys()


@pytest.mark.parametrize("value", [np.float64(4), dict], ids=["object", "type"])
def test_a_checkpoint_of_ours_holds_no_dropped_object(
    tmp_path: Path, good: Path, value: object
) -> None:
    content = torch.load(good, weights_only=True)
    torch.save(content | {"config": {"channels": value}}, good)
    with pytest.raises(UnsafeFileError, match="beside its weights"):
        load_checkpoint(good)


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_who_trusts_a_model_is_told_the_command_that_saves_its_weights(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "it's $(mine).pt"
    model = nn.Conv2d(3, 4, 3)
    torch.save({"model": model, "ema": None}, path, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(UnsafeFileError) as refused:
        load_state_dict(path)
    command = shlex.split(refused.value.fix.partition("python ")[2])
    subprocess.run([sys.executable, *command], check=True, cwd=tmp_path)
    found = load_state_dict(tmp_path / command[-1])
    assert torch.equal(found["weight"], model.weight)
