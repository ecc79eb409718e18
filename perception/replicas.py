"""Training in several processes of one thread each, which share their gradients.

On a busy machine two threads of one process wait for each other in every layer; two processes
wait for each other once per step.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier

import torch
from torch import Tensor, nn

from artifacts.errors import FramefitError

PARENT_CHECK_S = 1.0
WAIT_S = 300.0
"""Longest wait for another replica; one that died would never come."""
END_S = 10.0
"""Longest wait for another replica's own end after the last step."""


@dataclass(frozen=True)
class Replica:
    """One of the processes of a training run.

    Attributes:
        rank: 0 for the process that reports and saves.
        count: number of replicas.
        gradients: [count, number of weights], shared.
        decision: [1] float64, shared; written by rank 0.
        barrier: where all replicas meet; None with a single one.
    """

    rank: int
    count: int
    gradients: Tensor
    decision: Tensor
    barrier: Barrier | None

    def agree(self, value: float) -> float:
        """Returns the value that rank 0 passed."""
        if self.barrier is None:
            return value
        if self.rank == 0:
            self.decision[0] = value
        self.barrier.wait(WAIT_S)
        return float(self.decision[0])

    @torch.no_grad()
    def average_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replaces each gradient by its mean over the replicas.

        Weights that no loss depends on (a backbone's unused last layer) have no gradient.
        """
        if self.barrier is None:
            return
        gradients = [p.grad for p in parameters if p.grad is not None]
        sizes = [gradient.numel() for gradient in gradients]
        used = self.gradients[:, : sum(sizes)]
        torch.cat([gradient.reshape(-1) for gradient in gradients], out=used[self.rank])
        self.barrier.wait(WAIT_S)
        mean = used.mean(0)
        self.barrier.wait(WAIT_S)
        parts = mean.split(sizes)
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


@contextmanager
def open_replicas(count: int, weights: int, body: Callable[[Replica], None]) -> Iterator[Replica]:
    """Starts the replicas after the first, and stops them at the end of the block.

    Args:
        count: number of replicas, this process included.
        weights: number of weights that have gradients.
        body: run in each other process, which is a fork of this one.

    Yields:
        this process's replica.

    Raises:
        FramefitError: another replica died. PyTorch cannot fork a process that has computed
            gradients before.
    """
    gradients = torch.zeros(count, weights if count > 1 else 0).share_memory_()
    decision = torch.zeros(1, dtype=torch.float64).share_memory_()
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count) if count > 1 else None
    replicas = [Replica(rank, count, gradients, decision, barrier) for rank in range(count)]
    parent = os.getpid()

    def follow(replica: Replica) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
        try:
            body(replica)
        except BaseException:
            if barrier is not None:
                barrier.abort()
            raise

    others = [context.Process(target=follow, args=(replica,)) for replica in replicas[1:]]
    for process in others:
        process.start()
    try:
        yield replicas[0]
        for process in others:
            process.join(END_S)
    except threading.BrokenBarrierError as error:
        raise FramefitError(
            "a replica of the training died; what it said is above",
            fix="train with one replica, or in a process that has not trained before",
        ) from error
    finally:
        for process in others:
            process.terminate()
            process.join()


def _leave_with(parent: int) -> None:
    """Ends this process when its parent was killed, which runs no clean-up there."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os._exit(1)
