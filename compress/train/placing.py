"""Where a training run computes, and with which sums."""

import os
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn

from artifacts.errors import InputError
from compress.train.lesson import Batch, find_device
from compress.train.settings import TrainerSettings


def choose_device(settings: TrainerSettings) -> torch.device:
    """Returns the device on which this process trains: a GPU of its own where there is one.

    Raises:
        InputError: torchrun started more processes on this machine than it has GPUs.
    """
    if settings.device == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    here, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), torch.cuda.device_count()
    if here > gpus:
        raise InputError(
            f"{here} processes were started on this machine, which has {gpus} GPU(s)",
            "a GPU for each process",
            f"start torchrun with --nproc-per-node {gpus}, or hide the GPUs:"
            " CUDA_VISIBLE_DEVICES=''",
        )
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


@contextmanager
def placed(device: torch.device, *modules: nn.Module) -> Iterator[None]:
    """Moves modules to a device for the block, and back to where they were after it."""
    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.to, find_device(module))
            module.to(device)
        yield


def move_batch(batch: Batch, device: torch.device) -> Batch:
    """Returns a batch on a device."""
    return {name: value.to(device) for name, value in batch.items()}


@contextmanager
def full_float32() -> Iterator[None]:
    """Lets float32 convolutions on a GPU compute in float32, always in the same order.

    cuDNN rounds their factors to TF32 (10 bits) unless it is told not to, which is coarser than the
    differences that a quantized network learns from; and it adds in another order each time.
    """
    before = _set_cudnn(False, True)
    try:
        yield
    finally:
        _set_cudnn(*before)


def _set_cudnn(allow_tf32: bool, deterministic: bool) -> tuple[bool, bool]:
    """Sets both and returns what they were.

    torch 2.9 warns whoever uses these names, and fails where its newer ones are mixed with them.
    """
    cudnn = torch.backends.cudnn
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = cudnn.allow_tf32, cudnn.deterministic
        cudnn.allow_tf32, cudnn.deterministic = allow_tf32, deterministic
    return before
