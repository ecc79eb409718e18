"""Where a run computes, told without a GPU."""

import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from compress.train.placing import choose_device, full_float32, placed
from compress.train.settings import TrainerSettings


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


def test_each_process_has_a_gpu_of_its_own(two_gpus, monkeypatch) -> None:
    assert choose_device(TrainerSettings()) == torch.device("cuda", 0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert choose_device(TrainerSettings()) == torch.device("cuda", 1)
    assert choose_device(TrainerSettings(device="cpu")) == torch.device("cpu")


def test_more_processes_than_gpus_are_refused(two_gpus, monkeypatch) -> None:
    """NCCL takes one process for each GPU."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    with pytest.raises(InputError, match=r"3 processes .* 2 GPU.*--nproc-per-node 2"):
        choose_device(TrainerSettings())
    assert choose_device(TrainerSettings(device="cpu")) == torch.device("cpu")


def test_modules_come_back_also_from_a_failure(monkeypatch) -> None:
    module, places = nn.Linear(2, 2), []
    monkeypatch.setattr(module, "to", places.append)
    with pytest.raises(InputError), placed(torch.device("cuda", 0), module):
        raise InputError("it failed")
    assert places == [torch.device("cuda", 0), torch.device("cpu")]


def test_settings_of_sums_come_back() -> None:
    before = torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic
    with full_float32():
        assert not torch.backends.cudnn.allow_tf32
        assert torch.backends.cudnn.deterministic
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic) == before
