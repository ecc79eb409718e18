"""Trains a lesson: the one loop behind distillation, QAT and repairs."""

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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
from compress.train.batches import Sample, open_batches, stack_samples
from compress.train.launch import open_fabric, watch_other_processes
from compress.train.lesson import Batch, Lesson, copy_lesson, find_device
from compress.train.placing import full_float32, move_batch
from compress.train.recompute import recompute_activations
from compress.train.run_state import (
    Standing,
    capture_state,
    identify_run,
    load_state,
    restore_state,
)
from compress.train.saved_values import keep_saved_values, overwrites_saved
from compress.train.settings import TrainerSettings
from compress.train.threads import use_threads

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
Probe = Callable[[nn.Module], float]
"""Scores a network in evaluation mode; lower is better."""
_ABOUT_GRADIENTS = ("inplace operation", "does not require grad", "derivative for")
"""What PyTorch says of a loss whose gradient it cannot compute."""
_TRIED = 2
"""Samples on which it is tried whether a lesson overwrites what its gradient needs."""


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


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a run gave.

    Attributes:
        weights: the averaged weights of the student at its best probe.
        steps: steps done.
        resumed_step: steps that an earlier run, which was interrupted, had done.
        best_step: the step of the best probe; 0 is the network as it came.
        scores: (step, score) of each probe, lower is better; empty without a probe.
        is_early: whether it ended because the score got no better.
    """

    weights: dict[str, Tensor]
    steps: int
    best_step: int
    scores: tuple[tuple[int, float], ...]
    is_early: bool
    resumed_step: int = 0


def train(
    lesson: Lesson,
    samples: Sequence[Sample],
    settings: TrainerSettings,
    *,
    probe: Probe | None = None,
    renew: Callable[[nn.Module], float | None] | None = None,
    state_path: Path | None = None,
    identity: str = "",
    progress: Progress | None = None,
    report: Callable[[TrainStep], None] | None = None,
) -> Trained:
    """Trains a lesson, or continues the run whose state is at `state_path`.

    The order of the samples and every random number depend on the seed and the step only, so a run
    that was killed and resumed ends with exactly the weights of one that was not. Without a probe
    the last average is kept. Several processes take part where torchrun started them; each gets
    the same result.

    Args:
        lesson: what learns; its weights change. Where they are sharded a copy learns, and the
            lesson gets the last weights whole.
        samples: arrays by name; with `settings.workers` they are read in other processes.
        settings: how.
        probe: called before the first step, every `probe_every` steps and at the end, in the first
            process, with a copy of the student that has the averaged weights; it is where the
            student was, on the CPU for one that was not moved.
        renew: called with that copy before it is scored; may change its statistics, which are kept
            with the weights. What it returns is taken for the probe's score, unless it is None.
        state_path: where the state is kept to resume from; deleted at the end. None keeps none.
        identity: digest of what the lesson was made of; a state with another one is refused.
        progress: told ("train", steps done, steps in all), in the first process.
        report: told of each step, in the first process.

    Raises:
        InputError: the loss or its gradient is no longer finite, or the state cannot be written or
            is another run's. The last saved state stays as it is.
        FramefitError: another process of the run died.
    """
    fabric = open_fabric(settings)
    identity = identify_run(lesson, settings, len(samples), identity)
    is_sharded = settings.strategy == "fsdp" and fabric.world_size > 1
    overwrites = _overwrites_saved(lesson, samples, settings)
    # Sharding changes a module for good: its weights stay parts, and its forward pass asks others.
    learner = copy_lesson(lesson) if is_sharded else lesson
    run = _Run(learner, fabric, settings, probe, renew, identity)
    run.keep_saved = keep_saved_values if overwrites else nullcontext
    with use_threads(settings.threads), watch_other_processes(fabric), ExitStack() as stack:
        stack.enter_context(full_float32())
        if settings.recomputes_activations:
            stack.enter_context(recompute_activations(learner.student))
        if state_path is not None and state_path.exists():
            content = load_state(state_path, identity)
            run.standing = restore_state(content, learner, run.optimizer, run.average)
        elif probe is not None:
            run.take_probe()
        resumed_step = run.standing.step
        with _naming_state(state_path):
            is_early = _loop(run, samples, state_path, progress, report)
        weights = run.standing.best if probe is not None else run.average.gather()
        weights = fabric.broadcast(weights)
        if is_sharded:
            load_by_name(lesson, gather_weights(run.lesson.state_dict()))
        fabric.barrier()
    if state_path is not None and fabric.is_global_zero:
        state_path.unlink(missing_ok=True)
    return Trained(
        weights=weights,
        steps=run.standing.step,
        best_step=run.standing.best_step if probe is not None else run.standing.step,
        scores=tuple(run.standing.scores),
        is_early=is_early,
        resumed_step=resumed_step,
    )


class _Run:
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
        """Does one step."""
        step, settings = self.standing.step, self.settings
        torch.manual_seed(
            (settings.seed + 1) * 1_000_003
            + step * self.fabric.world_size
            + self.fabric.global_rank
        )
        rate = settings.learning_rate_at(step)
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
        if not math.isfinite(norm) or not all(map(math.isfinite, losses.values())):
            raise InputError(
                f"training diverged at step {step + 1}: losses {losses}, gradient norm {norm}",
                "finite numbers",
                "lower the learning rate; what was saved before is kept",
            )
        self.stepper.step()
        self.standing.step += 1
        self.average.update(self.lesson.student.state_dict(), self.standing.step)
        return TrainStep(
            step=self.standing.step, learning_rate=rate, losses=losses, gradient_norm=norm
        )

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
        """Scores the averaged weights; they are kept if they are the best so far."""
        weights = self.average.gather()
        score = 0.0
        if self.fabric.is_global_zero and self.probed is not None and self.probe is not None:
            load_by_name(self.probed, weights)
            known = None
            if self.renew is not None:
                known = self.renew(self.probed.eval())
                weights = gather_weights(self.probed.state_dict())
            score = self.probe(self.probed.eval()) if known is None else known
        score = float(self.fabric.broadcast(score))
        if not math.isfinite(score):
            raise InputError(
                f"the quality probe after step {self.standing.step} gave {score}",
                "a finite number",
                "lower the learning rate; what was saved before is kept",
            )
        self.standing.note_score(score, weights)
        return score

    def save(self, path: Path) -> None:
        """Writes the state, in the first process."""
        content = capture_state(
            self.lesson, self.optimizer, self.average, self.standing, self.identity
        )
        if self.fabric.is_global_zero:
            write_torch(path, content)


def _overwrites_saved(lesson: Lesson, samples: Sequence[Sample], settings: TrainerSettings) -> bool:
    """Returns whether values that the gradient needs have to be kept from being overwritten.

    Raises:
        InputError: they would be computed again, and be overwritten again.
    """
    few = [samples[index] for index in range(min(len(samples), _TRIED))]
    if settings.is_compiled or not few:
        return False
    if not overwrites_saved(lesson, move_batch(stack_samples(few), find_device(lesson))):
        return False
    if settings.recomputes_activations:
        raise InputError(
            "--recompute was given for a network that writes in place over what its gradient needs",
            "a network without such code",
            "leave --recompute out, or write without operators in place",
        )
    return True


@contextmanager
def _naming_state(path: Path | None) -> Iterator[None]:
    """Says where the state is kept if the run is interrupted."""
    try:
        yield
    except Exception:
        raise
    except BaseException:
        if path is not None and path.exists():
            _log.warning("%s keeps what was trained: the same command goes on from there", path)
        raise


def _loop(
    run: _Run,
    samples: Sequence[Sample],
    state_path: Path | None,
    progress: Progress | None,
    report: Callable[[TrainStep], None] | None,
) -> bool:
    """Trains until the steps are done; returns whether it ended earlier."""
    settings, standing, fabric = run.settings, run.standing, run.fabric
    batches = open_batches(
        samples,
        settings,
        start=standing.step,
        rank=fabric.global_rank,
        processes=fabric.world_size,
        pins_memory=fabric.device.type == "cuda",
    )
    while standing.step < settings.steps:
        if _is_hopeless(standing, settings):
            return True
        done = run.take_step(batches)
        is_last = done.step == settings.steps
        if run.probe is not None and (is_last or done.step % settings.probe_every == 0):
            done = TrainStep(**{**vars(done), "score": run.take_probe()})
        if state_path is not None and done.step % settings.save_every == 0 and not is_last:
            run.save(state_path)
        if fabric.is_global_zero:
            if progress is not None:
                progress("train", done.step, settings.steps)
            if report is not None:
                report(done)
    return False


def _is_hopeless(standing: Standing, settings: TrainerSettings) -> bool:
    return settings.patience > 0 and standing.probes_since_best() >= settings.patience


def _open_optimizer(weights: list[nn.Parameter], settings: TrainerSettings) -> torch.optim.AdamW:
    decayed = [weight for weight in weights if weight.ndim > 1]
    others = [weight for weight in weights if weight.ndim <= 1]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]], lr=settings.learning_rate, fused=True
    )


def _whole(value: Tensor) -> Tensor:
    whole: Tensor = value.full_tensor() if hasattr(value, "full_tensor") else value
    return local_part(whole)
