"""Files of PyTorch are written whole or not at all, and the error says why."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from artifacts.checkpoint import Checkpoint, save_checkpoint
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.torch_file import write_torch

WEIGHTS = {"weight": torch.arange(40_000.0)}


@pytest.fixture
def small_files() -> Iterator[None]:
    """No file may be longer than 16 kB, as if the disk were full behind that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    write_torch(tmp_path / "a.pt", WEIGHTS)
    write_torch(tmp_path / "b.pt", WEIGHTS)
    assert torch.equal(
        torch.load(tmp_path / "a.pt", weights_only=True)["weight"], WEIGHTS["weight"]
    )
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


@pytest.mark.usefixtures("small_files")
def test_weights_that_the_disk_does_not_take_leave_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot write .*a.pt: File too large"):
        write_torch(tmp_path / "a.pt", WEIGHTS)
    checkpoint = Checkpoint(
        builder="", config={}, input_spec=InputSpec(), state_dict=WEIGHTS, edits=[]
    )
    with pytest.raises(InputError, match=r"cannot write .*b.pt: File too large"):
        save_checkpoint(tmp_path / "b.pt", checkpoint)
    assert not list(tmp_path.iterdir())
