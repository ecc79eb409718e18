"""What changes while a training run goes on, and one method per thing that a step does."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.module_copy import copy_module
from artifacts.module_run import explain_gradient
from artifacts.state_dict import load_by_name
from artifacts.torch_file import write_torch
from compress.train.average import MovingAverage, gather_weights, local_part
from compress.train.lesson import Batch, Lesson
from compress.train.run_state import Standing, capture_state
from compress.train.settings import WEIGHT_DECAY, TrainerSettings

Probe = Callable[[nn.Module], float]
"""Scores a network in evaluation mode; lower is better."""
REWARM = 8
"""Steps in which the rate rises again after going back, with an optimizer that knows nothing."""
_ABOUT_GRADIENTS = ("inplace operation", "does not require grad", "derivative for")
"""What PyTorch says of a loss whose gradient it cannot compute."""


@dataclass(frozen=True, kw_only=True)
class TrainStep:
    """What happened in one step.

    Attributes:
        step: counted from 1.
        learning_rate: of this step.
        losses: each term of the loss, of this process's last part of the batch.
        gradient_norm: before it was limited.
        score: of the probe after this step; None where there was none.
    """

    step: int
    learning_rate: float
    losses: dict[str, float]
    gradient_norm: float
    score: float | None = None


class TrainingRun:
    """The things that change while a run goes on, and one method per thing a step does."""

    def __init__(
        self,
        lesson: Lesson,
        fabric: Fabric,
        settings: TrainerSettings,
        probe: Probe | None,
        renew: Callable[[nn.Module], float | None] | None,
        identity: str,
    ) -> None:
        self.lesson = lesson
        self.fabric = fabric
        self.settings = settings
        self.identity = identity
        self.probe, self.renew = probe, renew
        self.probed = copy_module(lesson.student) if probe is not None else None
        if settings.is_compiled:
            lesson.compile()
        self.module = fabric.setup_module(lesson)
        self.weights = [weight for weight in lesson.parameters() if weight.requires_grad]
        self.optimizer = _open_optimizer(self.weights, settings)
        self.stepper = fabric.setup_optimizers(self.optimizer)
        self.average = MovingAverage(lesson.student.state_dict(), settings.average_decay)
        self.standing = Standing()
        self.keep_saved: Callable[[], AbstractContextManager[None]] = nullcontext

    def take_step(self, batches: Iterator[Batch]) -> TrainStep:
        """Does one step.

        Raises:
            InputError: the loss or its gradient is not finite.
        """
        step, choice = self.standing.step, self.standing.rate
        if choice is None:
            raise AssertionError("a step was to be taken before a learning rate was chosen")
        rate = choice.now * self.settings.rate_share_at(step)
        if choice.fallen:
            rate *= min(1.0, (step + 1 - choice.fallen[-1][0]) / REWARM)
        losses, norm = self.descend(batches, step, rate)
        if not math.isfinite(norm) or not all(map(math.isfinite, losses.values())):
            raise InputError(
                f"training diverged at step {step + 1}: losses {losses}, gradient norm {norm}",
                "finite numbers",
                "lower the learning rate; what was saved before is kept",
            )
        self.standing.step += 1
        return TrainStep(
            step=self.standing.step, learning_rate=rate, losses=losses, gradient_norm=norm
        )

    def descend(
        self, batches: Iterator[Batch], step: int, rate: float
    ) -> tuple[dict[str, float], float]:
        """Moves the weights and their average, unless the gradient is not finite.

        Args:
            batches: the next parts of batches of this process.
            step: counted from 0; every random number follows from it.
            rate: the learning rate.

        Returns:
            the losses of this process's last part, and the gradient's norm before it was limited,
            the same in all processes.
        """
        settings = self.settings
        torch.manual_seed(
            (settings.seed + 1) * 1_000_003
            + step * self.fabric.world_size
            + self.fabric.global_rank
        )
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.lesson.train()
        self.stepper.zero_grad(set_to_none=True)
        losses: dict[str, float] = {}
        for part in range(settings.accumulate):
            losses = self._add_gradients(next(batches), part + 1 < settings.accumulate)
        norm = float(
            _whole(nn.utils.clip_grad_norm_(self.weights, settings.gradient_norm, foreach=None))
        )
        if math.isfinite(norm):
            self.stepper.step()
            self.average.update(self.lesson.student.state_dict(), step + 1)
        return losses, norm

    def _add_gradients(self, batch: Batch, is_more_to_come: bool) -> dict[str, float]:
        batch = self.fabric.to_device(batch)
        with (
            self.fabric.no_backward_sync(self.module)
            if is_more_to_come and self.fabric.world_size > 1
            else nullcontext()
        ):
            terms = self._find_losses(batch)
            total = torch.stack(list(terms.values())).sum() / self.settings.accumulate
            try:
                self.fabric.backward(total)
            except RuntimeError as error:
                if not any(word in str(error) for word in _ABOUT_GRADIENTS):
                    raise
                raise explain_gradient(error) from error
        return {name: float(term.detach()) for name, term in terms.items()}

    def _find_losses(self, batch: Batch) -> dict[str, Tensor]:
        try:
            with self.keep_saved():
                terms: dict[str, Tensor] = self.module(batch)
        except ValueError as error:
            if "more than 1 value per channel" not in str(error):
                raise
            raise InputError(
                f"a BatchNorm sees one value per channel of each part of a batch: {error}",
                "two samples in each part, where a mean over the picture goes before a BatchNorm",
                "raise --batch-size, or lower --accumulate",
            ) from error
        return terms

    def take_probe(self) -> float:
        """Scores the averaged weights; they are kept if they are the best so far.

        Raises:
            InputError: the score is not finite.
        """
        score, weights = self.score_average()
        if not math.isfinite(score):
            raise InputError(
                f"the quality probe after step {self.standing.step} gave {score}",
                "a finite number",
                "lower the learning rate; what was saved before is kept",
            )
        self.standing.note_score(score, weights)
        return score

    def score_average(self) -> tuple[float, dict[str, Tensor]]:
        """Returns the probe's score of the averaged weights, the same in all processes, and them.

        The weights are whole, with renewed statistics in the first process.
        """
        weights = self.average.gather()
        score = 0.0
        if self.fabric.is_global_zero and self.probed is not None and self.probe is not None:
            load_by_name(self.probed, weights)
            known = None
            if self.renew is not None:
                known = self.renew(self.probed.eval())
                weights = gather_weights(self.probed.state_dict())
            score = self.probe(self.probed.eval()) if known is None else known
        return float(self.fabric.broadcast(score)), weights

    def copy_start(self) -> dict[str, Tensor]:
        """Returns this process's part of everything that learns, to return to."""
        values = self.lesson.state_dict()
        return {name: local_part(value).detach().clone() for name, value in values.items()}

    @torch.no_grad()
    def return_to(self, start: Mapping[str, Tensor]) -> None:
        """Takes over what `copy_start` returned; the optimizer and the average begin anew."""
        for name, value in self.lesson.state_dict().items():
            local_part(value).copy_(start[name])
        self.optimizer.state.clear()
        self.average = MovingAverage(self.lesson.student.state_dict(), self.average.decay)

    @torch.no_grad()
    def go_back(self) -> None:
        """Returns to the student of the best probe; the optimizer begins anew there.

        What learns beside the student (adapters of features) stays. Every process has to call it.
        """
        self.average.restore(self.fabric.broadcast(self.standing.best))
        for name, value in self.lesson.student.state_dict().items():
            local_part(value).copy_(local_part(self.average.values[name]))
        self.optimizer.state.clear()

    def save(self, path: Path) -> None:
        """Writes the state, in the first process."""
        content = capture_state(
            self.lesson, self.optimizer, self.average, self.standing, self.identity
        )
        if self.fabric.is_global_zero:
            write_torch(path, content)


def _open_optimizer(weights: list[nn.Parameter], settings: TrainerSettings) -> torch.optim.AdamW:
    decayed = [weight for weight in weights if weight.ndim > 1]
    others = [weight for weight in weights if weight.ndim <= 1]
    decay = WEIGHT_DECAY if settings.weight_decay is None else settings.weight_decay
    groups = [
        {"params": decayed, "weight_decay": decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], fused=True)


def _whole(value: Tensor) -> Tensor:
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return local_part(whole)
