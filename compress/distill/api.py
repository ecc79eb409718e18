"""Distils a module: `distill_module` is what the command line and users call."""

import json
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from artifacts.digest import sha256_bytes
from artifacts.errors import InputError
from artifacts.module_run import evaluation_mode, kept_buffers, run_module
from artifacts.state_dict import load_by_name
from compress.distill.lesson import IMAGE, DistillLesson, LabelLoss
from compress.distill.losses import own_losses
from compress.distill.outputs import OutputMatch, match_outputs, split_heads
from compress.distill.relative_probe import (
    Obstacle,
    RelativeProbe,
    measure_floors,
    measure_losses,
)
from compress.distill.settings import DistillSettings
from compress.distill.taps import Tap, choose_taps
from compress.train.answers import answer, answer_plainly
from compress.train.batch_norm import StatisticsRenewal, name_norms
from compress.train.batches import Sample, stack_samples
from compress.train.lesson import Batch, find_device, require_learning
from compress.train.placing import choose_device, full_float32, move_batch, placed
from compress.train.rate_choice import RateChoice
from compress.train.run import Probe, TrainStep
from compress.train.run_state import digest_values
from compress.train.settings import TrainerSettings
from compress.train.trainer import Progress, train
from compress.train.unit_parts import OutputParts, find_parts

MOST_RISE = 4.0
"""Students that fit their data rise 1.2 to 1.7 times; untrained ones, which have stored nothing,
14; one close to its teacher 32 on pictures unlike those that it was trained on."""
JUDGED_BATCHES = 4

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DistillResult:
    """A distilled network and how it came about.

    Attributes:
        module: the student with its best weights, in evaluation mode.
        match: which outputs were compared.
        taps: which features were compared.
        losses_before: loss per head on the held-out samples, before the first step.
        losses_after: the same with the best weights.
        score_before: the probe's score of the network as it came; lower is better.
        score_after: of the result.
        scores: (step, score) of each probe.
        steps: steps done.
        resumed_step: steps that an earlier run, which was interrupted, had done.
        best_step: the step of the best probe.
        is_early: whether it ended because the score got no better.
        rate: the learning rate and where it comes from.
        obstacle: where the network as it came stayed the best: the loss that stood in the way of
            the others; None where that is not known.
    """

    module: nn.Module
    match: OutputMatch
    taps: tuple[Tap, ...]
    losses_before: dict[str, float]
    losses_after: dict[str, float]
    score_before: float
    score_after: float
    scores: tuple[tuple[int, float], ...]
    steps: int
    best_step: int
    is_early: bool
    rate: RateChoice
    resumed_step: int = 0
    obstacle: Obstacle | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures of the run for JSON, without the network."""
        return {
            "steps": self.steps,
            "resumed_step": self.resumed_step,
            "best_step": self.best_step,
            "learning_rate": self.rate.to_dict(),
            "score": {"before": self.score_before, "after": self.score_after},
            "losses": {
                name: {"before": value, "after": self.losses_after[name]}
                for name, value in self.losses_before.items()
            },
            "obstacle": asdict(self.obstacle) if self.obstacle is not None else None,
        }


@torch.inference_mode(mode=False)
@torch.enable_grad()
def distill_module(
    student: nn.Module,
    teacher: nn.Module,
    samples: Sequence[Sample],
    held_out: Sequence[Sample],
    settings: DistillSettings | None = None,
    training: TrainerSettings | None = None,
    *,
    inputs: Sequence[str] = (IMAGE,),
    heads: Mapping[str, Any] | None = None,
    label_loss: LabelLoss | None = None,
    probe: Probe | None = None,
    state_path: Path | None = None,
    progress: Progress | None = None,
    report: Callable[[TrainStep], None] | None = None,
) -> DistillResult:
    """Lets a student learn to answer as its teacher does; the better of before and after is kept.

    Args:
        student: changed in place.
        teacher: left as it is.
        samples: to learn from; those of `inputs` are arguments, [C, H, W] say, the rest labels.
        held_out: never learned from; the probe looks at them.
        settings: what is copied.
        training: how it is trained.
        inputs: names of the networks' arguments in a sample, in their order.
        heads: the student's heads, see `match_outputs`; None asks its `heads_metadata`.
        label_loss: loss on labels; None learns from the teacher alone.
        probe: scores a network, lower is better; None takes a `RelativeProbe` on `held_out`.
        state_path: see `train`.
        progress: see `train`.
        report: see `train`.

    Raises:
        InputError: no samples or ones without an input, all weights of the student are frozen or
            some that learn are the teacher's too, no common output, a feature that cannot be
            compared, or what `train` raises.
    """
    settings, training = settings or DistillSettings(), training or TrainerSettings()
    if len(samples) == 0 or len(held_out) == 0:
        raise InputError(
            f"{len(samples)} samples to learn from and {len(held_out)} held out", "some of both"
        )
    for sample in (samples[0], held_out[0]):
        require_inputs(sample, inputs)
    require_learning(student)
    _require_apart(student, teacher)
    student.eval()
    # A probe of the caller's gets networks where they were.
    device = choose_device(training) if probe is None else find_device(student)
    with (
        evaluation_mode(teacher),
        kept_buffers(teacher),
        placed(device, student, teacher),
        full_float32(),
    ):
        calibration = _open_calibration(samples, settings, training, inputs, device)
        lesson = _open_lesson(
            student,
            teacher,
            move_batch(stack_samples([held_out[0]]), device),
            calibration,
            settings,
            seed=training.seed,
            inputs=inputs,
            heads=heads,
            label_loss=label_loss,
        )
        batches = _batches(held_out, training.batch_size, device)
        answers = lesson.open_answers()
        before = measure_losses(lesson, batches, answers)
        floors = measure_floors(lesson, batches, answers)
        _require_finite(before, lesson, batches, calibration)
        relative = RelativeProbe(lesson, batches, before, floors, answers)
        probe = probe or relative
        identity = _identify(lesson, batches)
        score_before = probe(student)
        settled = name_norms(student, with_statistics=True)
        statistics = StatisticsRenewal(calibration)
        statistics.improve(student, probe)
        lesson.balance.start(measure_losses(lesson, batches, answers), floors)
        lesson.held = _choose_held(lesson, settled, relative, samples, training.batch_size)
        relative.forget()
        trained = train(
            lesson,
            samples,
            training,
            probe=probe,
            renew=lambda network: statistics.improve(network, probe),
            state_path=state_path,
            identity=identity,
            progress=progress,
            report=report,
        )
        obstacle = relative.find_obstacle() if trained.best_step == 0 else None
        load_by_name(student.to(device), trained.weights)
        student.eval()
        known = statistics.improve(student, probe)
        return DistillResult(
            module=student,
            match=lesson.match,
            taps=lesson.taps,
            losses_before=before,
            losses_after=measure_losses(lesson.to(device), batches, answers),
            score_before=score_before,
            score_after=probe(student) if known is None else known,
            scores=trained.scores,
            steps=trained.steps,
            best_step=trained.best_step,
            is_early=trained.is_early,
            rate=trained.rate,
            resumed_step=trained.resumed_step,
            obstacle=obstacle,
        )


def require_inputs(sample: Sample, inputs: Sequence[str]) -> None:
    """Refuses a sample that lacks an input.

    Raises:
        InputError: it does.
    """
    missing = [name for name in inputs if name not in sample]
    if missing:
        raise InputError(
            f"a sample has {', '.join(sample)}, and not the input '{missing[0]}'",
            f"all inputs: {', '.join(inputs)}",
            "name what of a sample the networks take, in their order, with inputs=...",
        )


def _require_apart(student: nn.Module, teacher: nn.Module) -> None:
    """Refuses a student whose learning would move its teacher.

    Raises:
        InputError: both have a weight in common that learns.
    """
    own = {id(weight) for weight in teacher.parameters()}
    for name, weight in student.named_parameters():
        if weight.requires_grad and id(weight) in own:
            raise InputError(
                f"the student's '{name}' is the teacher's weight itself, and would move both",
                "a student with weights of its own, but for frozen ones",
                "give copy.deepcopy(teacher), or freeze what they share",
            )


def _open_calibration(
    samples: Sequence[Sample],
    settings: DistillSettings,
    training: TrainerSettings,
    inputs: Sequence[str],
    device: torch.device,
) -> list[tuple[Tensor, ...]]:
    """Returns the networks' arguments from the batches that BatchNorms are re-estimated on."""
    few = min(len(samples), settings.batch_norm_batches * training.batch_size)
    seen = _batches([samples[i] for i in range(few)], training.batch_size, device)
    return [tuple(batch[name] for name in inputs) for batch in seen]


def _open_lesson(
    student: nn.Module,
    teacher: nn.Module,
    example: Batch,
    calibration: Sequence[tuple[Tensor, ...]],
    settings: DistillSettings,
    *,
    seed: int,
    inputs: Sequence[str],
    heads: Mapping[str, Any] | None,
    label_loss: LabelLoss | None,
) -> DistillLesson:
    """Finds what is to be compared, and returns the lesson where the example is."""
    given = tuple(example[name] for name in inputs)
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        with kept_buffers(student) as written, kept_buffers(teacher) as of_teacher:
            whole = _match(student, teacher, given, {} if settings.by_output else heads)
            parts = _find_parts(teacher, whole, calibration, own_losses(settings))
            follows = settings.feature_weight > 0
            taps = choose_taps(student, teacher, given, settings.features) if follows else []
        lesson = DistillLesson(
            student,
            teacher,
            split_heads(whole, parts),
            taps,
            settings,
            label_loss,
            inputs,
            parts=parts,
            written=frozenset(written | of_teacher),
        )
    return lesson.to(given[0].device)


def _choose_held(
    lesson: DistillLesson,
    settled: frozenset[str],
    relative: RelativeProbe,
    samples: Sequence[Sample],
    batch_size: int,
) -> frozenset[str]:
    """Returns the names of the student's BatchNorms that hold their statistics while training.

    Args:
        lesson: with the settings.
        settled: names of those that have seen data.
        relative: scores the student.
        samples: to learn from; all are held where the statistics of their first batches put the
            student much farther from its teacher.
        batch_size: of the training.
    """
    norms, choice = name_norms(lesson.student), lesson.settings.batch_norm
    if choice == "train":
        return frozenset()
    if choice == "hold" or norms == settled:
        return norms
    judged = range(min(len(samples), JUDGED_BATCHES * batch_size))
    device = find_device(lesson.student)
    batches = _batches([samples[index] for index in judged], batch_size, device)
    rise = relative.rise_by_batch_statistics(lesson, batches)
    if rise <= MOST_RISE:
        return settled
    _log.warning(
        "BatchNorms hold their statistics while training: those of batches of %d are so unlike "
        "the stored ones that the student would start %.0f times as far from its teacher",
        min(batch_size, len(samples)),
        rise,
    )
    return norms


@torch.no_grad()
def _match(
    student: nn.Module,
    teacher: nn.Module,
    example: tuple[Tensor, ...],
    heads: Mapping[str, Any] | None,
) -> OutputMatch:
    heads = heads if heads is not None else getattr(student, "heads_metadata", None)
    answers = (_answer("student", student, example), _answer("teacher", teacher, example))
    return match_outputs(*answers, heads)


def _answer(whose: str, module: nn.Module, example: tuple[Tensor, ...]) -> dict[str, Tensor]:
    try:
        return answer(module, example, run_module)
    except InputError as error:
        raise InputError(f"the {whose}: {error.what}", error.expected, error.fix) from error


@torch.no_grad()
def _find_parts(
    teacher: nn.Module,
    match: OutputMatch,
    batches: Sequence[tuple[Tensor, ...]],
    known: Collection[str],
) -> OutputParts:
    """Finds the outputs of unlike units among those of heads that are not known."""
    unknown = [name for head, names in match.heads.items() if head not in known for name in names]
    answers = (answer(teacher, batch) for batch in batches)
    return find_parts(answers, unknown)


@torch.no_grad()
def _require_finite(
    losses: Mapping[str, float],
    lesson: DistillLesson,
    batches: Sequence[Batch],
    calibration: Sequence[tuple[Tensor, ...]],
) -> None:
    """Checks the losses before the first step; no learning rate would mend them.

    Raises:
        InputError: one is not finite; the error names the inputs or else the outputs that are not.
    """
    bad = {name: value for name, value in losses.items() if not math.isfinite(value)}
    if not bad:
        return
    for given in (*map(lesson.read_inputs, batches), *calibration):
        for name, value in zip(lesson.inputs, given, strict=True):
            if value.isnan().any():
                raise InputError(
                    f"the loss of '{next(iter(bad))}' is {next(iter(bad.values()))} before the "
                    f"first step, as '{name}' of a sample has values that are no numbers (NaN)",
                    "samples without such",
                )
    networks = {"teacher": lesson.__dict__["teacher"], "student": lesson.student}
    wrong = sorted(
        {
            f"output '{name}' of the {whose}"
            for whose, network in networks.items()
            for batch in batches
            for name, value in answer_plainly(network, lesson.read_inputs(batch)).items()
            if not value.isfinite().all()
        }
    )
    if bad.keys() == {"labels"} and not wrong:
        raise InputError(
            f"the loss on labels is {bad['labels']} before the first step, though all outputs on "
            "held-out samples are numbers",
            "a finite number",
            "look at the labels, and at what the loss divides by or takes a logarithm of",
        )
    raise InputError(
        f"the loss of '{next(iter(bad))}' is {next(iter(bad.values()))} before the first step; "
        f"not finite on held-out samples: {', '.join(wrong) or 'none of the outputs'}",
        "outputs that are numbers",
        "mend that network's weights, or have it answer without them",
    )


def _identify(lesson: DistillLesson, held_out: Sequence[Batch]) -> str:
    """Returns a digest of both networks, of what is compared, and of the samples held out."""
    networks = [lesson.student, lesson.__dict__["teacher"]]
    values = [chain(one.named_parameters(), one.named_buffers()) for one in networks]
    plan = [asdict(lesson.settings), lesson.match.heads, [asdict(tap) for tap in lesson.taps]]
    text = json.dumps([*plan, lesson.label_loss is not None], sort_keys=True)
    samples = [sorted(batch.items()) for batch in held_out]
    return sha256_bytes((digest_values(*values, *samples) + text).encode())


def _batches(samples: Sequence[Sample], size: int, device: torch.device) -> list[Batch]:
    parts = (
        [samples[i] for i in range(first, min(first + size, len(samples)))]
        for first in range(0, len(samples), size)
    )
    return [move_batch(stack_samples(part), device) for part in parts]
