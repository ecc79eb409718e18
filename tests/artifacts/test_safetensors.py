"""safetensors files, the good and the bad."""

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from artifacts.checkpoint import load_state_dict  # noqa: E402
from artifacts.errors import InputError  # noqa: E402


@pytest.fixture
def network() -> nn.Module:
    return nn.Conv2d(3, 4, 3)


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


@pytest.mark.parametrize("length", [0x0280, 0x0580, 0x4B50], ids=["pickle", "pickle 5", "zip"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_a_header_whose_length_reads_like_another_file(tmp_path: Path, length: int, suffix) -> None:
    """The length stands first: 640 is how a pickle begins, and 19280 how a zip does."""
    header = json.dumps({"weight": entry()}).encode().ljust(length)
    path = tmp_path / f"m{suffix}"
    path.write_bytes(safetensors_bytes(header))
    assert load_state_dict(path)["weight"].shape == (2,)


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
