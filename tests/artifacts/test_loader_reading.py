import os
import signal

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from artifacts.errors import UnavailableError
from artifacts.loader_reading import read_batches


class Numbers(IterableDataset):
    """Eight ones; the process that reads them is killed or fails at a position."""

    def __init__(self, dies_at: int = -1, fails_at: int = -1) -> None:
        self.dies_at = dies_at
        self.fails_at = fails_at

    def __iter__(self):
        for position in range(8):
            if position == self.dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if position == self.fails_at:
                raise RuntimeError("no such picture")
            yield torch.ones(1)


def read(**trouble: int):
    return read_batches(DataLoader(Numbers(**trouble), num_workers=1))


def test_the_own_handler_stays_while_batches_are_read():
    def handler(number, frame):
        pass

    before = signal.signal(signal.SIGCHLD, handler)
    try:
        batches = read()
        next(batches)
        assert signal.getsignal(signal.SIGCHLD) is handler
        assert len(list(batches)) == 7
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize("position", [0, 5])
def test_a_worker_that_died_is_told_in_one_line(position):
    with pytest.raises(UnavailableError, match="loads pictures died"):
        list(read(dies_at=position))


def test_an_error_of_the_samples_is_raised_as_it_is():
    with pytest.raises(RuntimeError, match="no such picture"):
        list(read(fails_at=5))
