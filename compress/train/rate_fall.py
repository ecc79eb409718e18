"""Lowers a learning rate that turns out to be too high, and takes back what it did."""

from dataclasses import replace

from compress.train.run import TrainingRun

FALL = 3.0
"""The rate is divided by this."""
LOST = 0.1
"""Share of the progress to the best probe so far that a probe may be worse by."""


def lower_rate(run: TrainingRun) -> bool:
    """Returns to the best weights and goes on with a lower rate, if the last probe is too bad.

    A rate that the user gave stays. Every process has to call it, after a probe.

    Returns:
        whether it did.
    """
    standing, choice = run.standing, run.standing.rate
    is_given = run.settings.learning_rate is not None
    if choice is None or is_given or standing.best_score is None:
        return False
    first, last, best = standing.scores[0][1], standing.scores[-1][1], standing.best_score
    if last <= best + LOST * (first - best):
        return False
    run.go_back()
    fallen = (standing.step, choice.now / FALL)
    standing.rate = replace(choice, fallen=(*choice.fallen, fallen))
    return True
