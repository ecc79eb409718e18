"""Opens the processes of a training run: one, or those that torchrun started.

Lightning Fabric places modules and batches, casts to bfloat16 and joins the processes; the loop in
`trainer.py` stays ours, so that it is plain what a step does.
"""

import atexit
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import FrameType

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from artifacts.errors import FramefitError, InputError
from compress.train.placing import choose_device
from compress.train.settings import PRECISIONS, TrainerSettings

WAIT = timedelta(minutes=5)
"""Longest wait for another process; one that hangs would never answer."""
_LOST = ("gloo", "NCCL", "Connection closed", "Connection reset", "peer", "Timed out")


def open_fabric(settings: TrainerSettings) -> Fabric:
    """Joins the training processes.

    Under torchrun (`torchrun --nproc-per-node 2 -m framefit ...`) each process it started becomes
    one; otherwise there is one.

    Raises:
        InputError: the processes do not find each other, or this machine has not enough GPUs.
    """
    choose_device(settings)
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    strategy: Strategy | str = _strategy(settings, processes) if processes > 1 else "auto"
    fabric = Fabric(
        accelerator=settings.device,
        devices=here,
        num_nodes=processes // here,
        strategy=strategy,
        precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
    )
    try:
        fabric.launch()
    except RuntimeError as error:
        raise InputError(
            f"the {processes} training processes do not find each other: {error}",
            "MASTER_ADDR and MASTER_PORT that all of them reach",
            "start them with torchrun",
        ) from error
    if processes > 1:
        atexit.register(_leave_group)
    return fabric


def _leave_group() -> None:
    """Ends the threads that talk to the other processes.

    Lightning does so for NCCL alone. Those of Gloo, still there when the interpreter is gone, now
    and then ended a process that had done its work with signal 6 ("terminate called").
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def watch_other_processes(fabric: Fabric) -> Iterator[None]:
    """Turns the failure to reach another process into one error.

    torchrun stops the others (SIGTERM) as soon as it sees that one died, often before they notice
    it themselves; that is the same failure.

    Raises:
        FramefitError: another process died or hangs.
    """
    listens = fabric.world_size > 1 and threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _raise_stopped) if listens else None
    try:
        yield
    except RuntimeError as error:
        if fabric.world_size == 1 or not _is_lost(error):
            raise
        raise FramefitError(
            f"process {fabric.global_rank} of {fabric.world_size} lost another process of the "
            "training: it died, or did not answer",
            "all processes to reach every step",
            "see what the other one said; the same command goes on from the last saved state",
        ) from error
    finally:
        if listens:
            signal.signal(signal.SIGTERM, before)


class _StoppedError(RuntimeError):
    """Another program, torchrun as a rule, told this process to stop."""


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise _StoppedError(f"stopped by signal {number}")


def is_first_process() -> bool:
    """Returns whether this process is the one that writes and prints."""
    return int(os.environ.get("RANK", "0")) == 0


def _is_lost(error: RuntimeError) -> bool:
    named = isinstance(error, torch.distributed.DistError | _StoppedError)
    return named or any(word in str(error) for word in _LOST)


def _strategy(settings: TrainerSettings, processes: int) -> Strategy:
    if settings.strategy == "ddp":
        return DDPStrategy(timeout=WAIT, find_unused_parameters=True)
    return ModelParallelStrategy(
        parallelize_fn=_shard,
        data_parallel_size=processes,
        tensor_parallel_size=1,
        timeout=WAIT,
    )


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    scalars = [name for name, value in module.named_parameters() if value.ndim == 0]
    if scalars:
        raise InputError(
            f"{len(scalars)} weights are single numbers, which FSDP cannot shard: {scalars[0]} …",
            "weights with at least one axis",
            "train with --strategy ddp",
        )
    fully_shard(module, mesh=mesh["data_parallel"])
    return module
