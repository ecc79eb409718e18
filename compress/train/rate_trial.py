"""Finds a learning rate by short trials from the same start.

What a rate does to a network shows in a few steps. Rates that are too high put a student that is
nearly its teacher far from it at once, and rates that are too low hardly move one that was cut
hard. Each trial takes the first batches of the training, and the probe judges the average of its
weights. The trials go from `FIRST` towards better scores. Of those that come close to the best the
highest is taken: the training is longer, and ends with a low rate that calms what a high one stirs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from compress.train.batches import Sample, open_batches
from compress.train.lesson import Batch
from compress.train.rate_choice import RateChoice
from compress.train.run import TrainingRun

Progress = Callable[[str, int, int], None]

RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2)
FIRST = RATES.index(3e-4)
USUAL_RATE = 1e-3
"""Taken where nothing can be tried."""
LEAST_STEPS = 40
"""Of a training; in a shorter one the trials would take more steps than they save."""
TRIAL_SHARE, SHORTEST_TRIAL = 1 / 40, 4
"""Steps of a trial beside those of the training, and the fewest."""
WARM_UP = 4
"""Steps in which a trial's rate rises."""
CLOSE = 0.7
"""Of the best trial's progress; a higher rate that makes as much is taken instead."""


def choose_rate(
    run: TrainingRun, samples: Sequence[Sample], progress: Progress | None = None
) -> RateChoice:
    """Returns the learning rate of a run that is at its start, where it is afterwards too.

    Every process has to call it, and each gets the same. It depends on the seed only.

    Args:
        run: with the score of its start.
        samples: of the training.
        progress: told ("try learning rates", tried, in all) in the first process.
    """
    settings = run.settings
    if settings.learning_rate is not None:
        return RateChoice(rate=settings.learning_rate, reason="fixed")
    before = run.standing.best_score
    if before is None or settings.steps < LEAST_STEPS:
        missing = "a probe" if before is None else f"{LEAST_STEPS} steps or more"
        return RateChoice(rate=USUAL_RATE, reason=f"the usual one: trials need {missing}")
    steps = max(round(settings.steps * TRIAL_SHARE), SHORTEST_TRIAL)
    batches = list(
        open_batches(
            samples,
            replace(settings, steps=steps),
            start=0,
            rank=run.fabric.global_rank,
            processes=run.fabric.world_size,
        )
    )
    start, done = run.copy_start(), 0

    def score(rate: float) -> float:
        nonlocal done
        found, done = _try_rate(run, batches, rate, start), done + 1
        tell(done)
        return found

    def tell(tried: int) -> None:
        if progress is not None and run.fabric.is_global_zero:
            progress("try learning rates", tried, len(RATES))

    trials = _climb(score)
    tell(len(RATES))
    run.return_to(start)
    return RateChoice(
        rate=_choose(trials, before),
        reason=f"found by trials of {steps} steps",
        trials=tuple(sorted(trials.items())),
    )


def _climb(score: Callable[[float], float]) -> dict[float, float]:
    """Returns the scores of rates, from `FIRST` on towards lower ones until they rise."""
    scores = {RATES[FIRST]: score(RATES[FIRST])}
    for side in (1, -1):
        at = FIRST + side
        while 0 <= at < len(RATES):
            scores[RATES[at]] = score(RATES[at])
            if not scores[RATES[at]] < scores[RATES[at - side]]:
                break
            at += side
        if at > FIRST + 1:
            break
    return scores


def _choose(scores: Mapping[float, float], before: float) -> float:
    """Returns the highest rate whose progress is close to the best one's; the best without any.

    Args:
        scores: by rate.
        before: score at the start.
    """
    progress = {rate: before - score for rate, score in scores.items()}
    best = max(progress, key=lambda rate: (progress[rate], -rate))
    if progress[best] <= 0:
        return best
    return max(rate for rate, made in progress.items() if made >= CLOSE * progress[best])


def _try_rate(
    run: TrainingRun, batches: Sequence[Batch], rate: float, start: Mapping[str, Tensor]
) -> float:
    """Returns the probe's score after a few steps with a rate; infinite where it diverges."""
    run.return_to(start)
    given = iter(batches)
    for step in range(len(batches) // run.settings.accumulate):
        _, norm = run.descend(given, step, rate * min(1.0, (step + 1) / WARM_UP))
        if not math.isfinite(norm):
            return math.inf
    score, _ = run.score_average()
    return score if math.isfinite(score) else math.inf
