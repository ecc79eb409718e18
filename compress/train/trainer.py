"""Trains a lesson: the one loop behind distillation, QAT and repairs."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from artifacts.errors import InputError
from artifacts.state_dict import load_by_name
from compress.train.average import gather_weights
from compress.train.batches import Sample, open_batches, stack_samples
from compress.train.launch import open_fabric, watch_other_processes
from compress.train.lesson import Lesson, copy_lesson, find_device
from compress.train.placing import full_float32, move_batch
from compress.train.rate_choice import RateChoice
from compress.train.rate_fall import lower_rate
from compress.train.rate_trial import choose_rate
from compress.train.recompute import recompute_activations
from compress.train.run import Probe, TrainingRun, TrainStep
from compress.train.run_state import (
    Standing,
    identify_run,
    load_state,
    restore_state,
)
from compress.train.saved_values import keep_saved_values, overwrites_saved
from compress.train.settings import TrainerSettings
from compress.train.threads import use_threads

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]
_TRIED = 2
"""Samples on which it is tried whether a lesson overwrites what its gradient needs."""


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
        rate: the learning rate and where it comes from.
    """

    weights: dict[str, Tensor]
    steps: int
    best_step: int
    scores: tuple[tuple[int, float], ...]
    is_early: bool
    rate: RateChoice
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
        progress: told (what, done, in all), in the first process; "train" counts steps.
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
    run = TrainingRun(learner, fabric, settings, probe, renew, identity)
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
        if run.standing.rate is None:
            run.standing.rate = choose_rate(run, samples, progress)
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
        rate=run.standing.rate,
        resumed_step=resumed_step,
    )


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
    run: TrainingRun,
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
            done = replace(done, score=run.take_probe())
            if not is_last:
                lower_rate(run)
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
