"""Writes a training run's figures for TensorBoard."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.errors import InputError
from compress.train.launch import is_first_process
from compress.train.run import TrainStep

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@contextmanager
def log_losses(folder: Path | None) -> Iterator[Callable[[TrainStep], None] | None]:
    """Opens a TensorBoard log, and gives what `train` takes as its report.

    Args:
        folder: of the event files; a resumed run adds to it. None writes none, and neither does
            any process of a training but the first: then the report is None.

    Raises:
        InputError: the folder cannot be made or written.
    """
    if folder is None or not is_first_process():
        yield None
        return
    from torch.utils.tensorboard import SummaryWriter

    try:
        writer = SummaryWriter(str(folder))
    except OSError as error:
        raise InputError(
            f"cannot write the log {folder}: {error.strerror or error}",
            "a folder that can be made or written",
            "choose another --log",
        ) from error
    with writer:
        yield lambda step: _write(writer, step)


def _write(writer: "SummaryWriter", step: TrainStep) -> None:
    for name, value in step.losses.items():
        writer.add_scalar(f"loss/{name}", value, step.step)
    writer.add_scalar("learning_rate", step.learning_rate, step.step)
    writer.add_scalar("gradient_norm", step.gradient_norm, step.step)
    if step.score is not None:
        writer.add_scalar("score", step.score, step.step)
