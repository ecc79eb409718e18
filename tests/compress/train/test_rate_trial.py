"""The learning rate is found: what trials take, what they leave behind, and when there are none."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from compress.train.rate_choice import RateChoice
from compress.train.rate_trial import FIRST, RATES, USUAL_RATE, _choose, _climb
from compress.train.settings import TrainerSettings
from compress.train.trainer import train

SETTINGS = TrainerSettings(steps=40, batch_size=4, threads=1, device="cpu", probe_every=10)


def lesson(small, nan_at: int = 0):
    return small.Imitation(small.make_network(1), small.make_network(2).eval(), nan_at)


def run(small, settings: TrainerSettings, nan_at: int = 0, **options):
    probe = small.make_probe()
    return train(lesson(small, nan_at), small.make_samples(), settings, probe=probe, **options)


@pytest.mark.parametrize("best", range(len(RATES)))
def test_the_best_rate_is_found_wherever_it_is_and_its_neighbours_are_tried(best: int) -> None:
    scores = _climb(lambda rate: abs(math.log(rate / RATES[best])))
    assert min(scores, key=scores.__getitem__) == RATES[best]
    assert {RATES[at] for at in (best - 1, best + 1) if 0 <= at < len(RATES)} <= set(scores)
    assert len(scores) <= 2 + abs(best - FIRST) + (best <= FIRST)


def test_a_higher_rate_is_taken_where_it_gets_nearly_as_far() -> None:
    scores = {1e-4: 0.5, 3e-4: 0.30, 1e-3: 0.35, 3e-3: 0.6}
    assert _choose(scores, before=1.0) == 1e-3
    assert _choose(scores | {1e-3: 0.53}, before=1.0) == 3e-4
    assert _choose({1e-5: 1.2, 3e-5: 2.0, 1e-4: math.inf}, before=1.0) == 1e-5
    assert _choose(dict.fromkeys(RATES, math.inf), before=1.0) == RATES[0]


def test_trials_leave_nothing_behind(small) -> None:
    found = run(small, SETTINGS)
    assert len(found.rate.trials) >= 3
    assert found.rate.rate in dict(found.rate.trials)
    given = run(small, replace(SETTINGS, learning_rate=found.rate.rate))
    assert given.rate == RateChoice(rate=found.rate.rate, reason="fixed")
    assert found.scores == given.scores
    assert all(torch.equal(value, given.weights[name]) for name, value in found.weights.items())


def test_a_run_that_goes_on_has_the_rate_that_was_found(small, tmp_path: Path) -> None:
    settings, state = replace(SETTINGS, save_every=5), tmp_path / "run.state"
    whole = run(small, settings)
    steps_of_trials = 4 * len(whole.rate.trials)
    with pytest.raises(InputError, match="diverged at step 13"):
        run(small, settings, nan_at=steps_of_trials + 13, state_path=state)
    resumed = run(small, settings, state_path=state)
    assert resumed.resumed_step == 10
    assert resumed.rate == whole.rate
    assert all(torch.equal(value, whole.weights[name]) for name, value in resumed.weights.items())


def test_a_rate_that_diverges_is_not_taken(small) -> None:
    """The loss of the first trial, that of the rate `FIRST`, turns into NaN."""
    found = run(small, SETTINGS, nan_at=3)
    assert dict(found.rate.trials)[RATES[FIRST]] == math.inf
    assert found.rate.rate != RATES[FIRST]
    scores = [trial["score"] for trial in found.rate.to_dict()["trials"]]
    assert None in scores
    assert found.scores[-1][1] < found.scores[0][1]


def test_without_a_probe_or_in_a_few_steps_nothing_is_tried(small) -> None:
    few = run(small, replace(SETTINGS, steps=39))
    assert few.rate.rate == USUAL_RATE
    assert "trials need 40 steps or more" in few.rate.reason
    unscored = train(lesson(small), small.make_samples(), SETTINGS)
    assert unscored.rate.rate == USUAL_RATE
    assert "trials need a probe" in unscored.rate.reason
    assert not few.rate.trials + unscored.rate.trials


def test_trials_take_the_parts_of_accumulated_batches(small) -> None:
    """Without BatchNorm and Dropout, whose result depends on the part's size."""
    found = []
    for accumulate in (1, 4):
        torch.manual_seed(0)
        student, teacher = (nn.Conv2d(3, 2, 3, padding=1) for _ in range(2))
        batch = torch.from_numpy(np.stack([one["image"] for one in small.make_samples()]))

        def score(network: nn.Module, teacher=teacher, batch=batch) -> float:
            with torch.no_grad():
                return float((network(batch) - teacher(batch)).square().mean())

        settings = replace(SETTINGS, accumulate=accumulate)
        learns = small.Imitation(student, teacher)
        found.append(train(learns, small.make_samples(), settings, probe=score).rate)
    assert found[0].rate == found[1].rate
    for one, other in zip(found[0].trials, found[1].trials, strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def probe_of(scores: list[float]):
    """Scores that were made up: those of the probes of a training, in their order."""
    given = iter(scores)
    return lambda network: next(given)


def test_a_rate_that_turns_out_too_high_is_lowered_from_the_best_weights(small) -> None:
    """Nothing is tried in 30 steps; the probe after 10 is good, the one after 20 is not at all."""
    settings = replace(SETTINGS, steps=30)
    seen: dict[int, float] = {}

    def run_scored(scores: list[float], settings: TrainerSettings):
        return train(
            lesson(small),
            small.make_samples(),
            settings,
            probe=probe_of(scores),
            report=lambda step: seen.update({step.step: step.learning_rate}),
        )

    worse = run_scored([1.0, 0.2, 1.5, 0.1], settings)
    assert worse.rate.fallen == ((20, pytest.approx(USUAL_RATE / 3)),)
    fallen = dict(seen)
    little = run_scored([1.0, 0.2, 0.9, 0.1], settings)
    assert little.rate.fallen == ()
    assert fallen[20] == seen[20]
    assert fallen[21] == pytest.approx(seen[21] / 3 / 8)
    assert fallen[28] == pytest.approx(seen[28] / 3)
    given = run_scored([1.0, 0.2, 1.5, 0.1], replace(settings, learning_rate=1e-3))
    assert given.rate.fallen == ()


def test_a_run_goes_on_after_its_rate_was_lowered(small, tmp_path: Path) -> None:
    """The state was saved as the run went back: the optimizer has nothing to save there."""
    settings = replace(SETTINGS, steps=30, save_every=10)
    state = tmp_path / "run.state"

    def run_scored(scores: list[float], nan_at: int = 0):
        return train(
            lesson(small, nan_at),
            small.make_samples(),
            settings,
            probe=probe_of(scores),
            state_path=state,
        )

    whole = run_scored([1.0, 0.2, 1.5, 0.1])
    with pytest.raises(InputError, match="diverged at step 25"):
        run_scored([1.0, 0.2, 1.5], nan_at=25)
    resumed = run_scored([0.1])
    assert resumed.resumed_step == 20
    assert resumed.rate == whole.rate
    assert resumed.rate.fallen
    assert all(torch.equal(value, whole.weights[name]) for name, value in resumed.weights.items())


def test_going_back_takes_the_best_weights_and_not_the_last(small) -> None:
    """What follows is taught with a low rate, and ends near the weights that it went back to."""
    settings = replace(SETTINGS, steps=30, average_decay=0.0)
    kept: list[dict[str, torch.Tensor]] = []

    def probe(network: nn.Module) -> float:
        kept.append({name: value.clone() for name, value in network.state_dict().items()})
        return [1.0, 0.2, 1.5, 0.8][len(kept) - 1]

    learns = lesson(small)
    train(learns, small.make_samples(), settings, probe=probe)
    moved = [distance(kept[other], kept[3]) for other in (1, 2)]
    assert moved[0] < moved[1]


def distance(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> float:
    names = [name for name, value in left.items() if name.endswith("weight")]
    return sum(float((left[name] - right[name]).square().sum()) for name in names)
