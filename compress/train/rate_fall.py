"""Lowers a learning rate that turns out to be too high, and takes back what it did."""

from dataclasses import replace

from compress.train.run import TrainingRun

FALL = 3.0
"""The rate is divided by this."""


def lower_rate(run: TrainingRun) -> bool:
    """Returns to the best weights, and goes on with a lower rate, where the network got worse.

    It did where the last probe is worse than that of the network as it came; smaller losses come
    back as the rate falls anyway. A rate that the user gave stays. Every process has to call it,
    after a probe.

    Returns:
        whether it did.
    """
    standing, choice = run.standing, run.standing.rate
    is_given = run.settings.learning_rate is not None
    if choice is None or is_given or standing.scores[-1][1] <= standing.scores[0][1]:
        return False
    run.go_back()
    fallen = (standing.step, choice.now / FALL)
    standing.rate = replace(choice, fallen=(*choice.fallen, fallen))
    return True
