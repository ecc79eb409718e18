"""Writes a training run's figures for TensorBoard."""

from pathlib import Path
from types import TracebackType
from typing import Self

from compress.train.trainer import TrainStep


class LossLog:
    """A TensorBoard log; use it as a context manager, and its `write` as `train`'s report.

    Args:
        folder: of the event files; a resumed run adds to it.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder))

    def write(self, step: TrainStep) -> None:
        """Adds one step: terms of the loss, learning rate, gradient's norm, score."""
        for name, value in step.losses.items():
            self._writer.add_scalar(f"loss/{name}", value, step.step)
        self._writer.add_scalar("learning_rate", step.learning_rate, step.step)
        self._writer.add_scalar("gradient_norm", step.gradient_norm, step.step)
        if step.score is not None:
            self._writer.add_scalar("score", step.score, step.step)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._writer.close()
