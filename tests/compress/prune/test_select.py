"""Which channels leave, against all the choices that there are."""

import itertools
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.errors import InputError
from compress.prune.analysis.families import Channels, Family
from compress.prune.cost import ChannelCount
from compress.prune.select import WidthLimits, find_floor, rank_scores, select_groups

ANY = WidthLimits(round_to=1, fewest=1)


def make_channels(*counts, width=1, rest=0, kinds=()):
    """Families of so many groups, each of one weight, of a convolution unless said."""
    places = [(f"layer{index}", 0) for index in range(len(counts))]
    ends = np.cumsum([0, *counts])
    families = tuple(
        Family(
            name=place[0],
            source=place,
            roots=tuple(range(*ends[index : index + 2])),
            places=((place, width),),
            rest=rest,
        )
        for index, place in enumerate(places)
    )
    layers = [
        SimpleNamespace(weight=name, kind=kind)
        for (name, _), kind in itertools.zip_longest(places, kinds, fillvalue="conv")
    ]
    return Channels(
        trace=SimpleNamespace(layers=layers),
        roots=np.arange(ends[-1]),
        families=families,
        left_alone=(),
    )


@dataclass(frozen=True)
class Chain:
    """What convolutions in a row cost: each the product of its widths, in whole blocks of lanes."""

    channels: Channels
    lanes: int = 1

    def total(self, kept):
        blocks = [math.ceil(kept[one.name] / self.lanes) for one in self.channels.families]
        return float(sum(a * b for a, b in itertools.pairwise([3, *blocks, 5])))

    def saved(self, kept, family, fewer):
        return self.total(kept) - self.total({**kept, family.name: fewer})

    def neighbours(self, family):
        return {one.name for one in self.channels.families}


COSTS = {
    "channels": ChannelCount,
    "multiplications": Chain,
    "lanes": lambda channels: Chain(channels, lanes=3),
}


def find_least(channels, scores, cost, goal, limits):
    """Returns the least importance that any choice of widths that keeps the goal loses."""
    widths = [limits.widths(family) for family in channels.families]
    names = [family.name for family in channels.families]
    lost = [
        np.concatenate([[0], np.cumsum(np.sort(scores[list(family.roots)]))])
        for family in channels.families
    ]
    return min(
        sum(float(lost[i][family.count - kept[i]]) for i, family in enumerate(channels.families))
        for kept in itertools.product(*widths)
        if cost.total(dict(zip(names, kept, strict=True))) <= goal
    )


@pytest.mark.parametrize("name", COSTS)
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    share=st.floats(0.3, 0.95),
    limits=st.sampled_from([ANY, WidthLimits(round_to=2, fewest=4)]),
)
def test_the_goal_is_reached_and_little_more_importance_lost_than_must_be(
    name, seed, share, limits
):
    rng = np.random.default_rng(seed)
    channels = make_channels(*rng.integers(6, 13, 3).tolist())
    scores, cost = rng.lognormal(0, 1, len(channels.roots)), COSTS[name](channels)
    whole = cost.total({family.name: family.count for family in channels.families})
    floor = find_floor(channels, cost, limits)
    goal = floor.cost + share * (whole - floor.cost)
    found = select_groups(channels, scores, cost, goal, limits)
    assert found.cost == cost.total(found.kept) <= goal
    for family in channels.families:
        leaving = sorted(family.roots, key=scores.__getitem__)[
            : family.count - found.kept[family.name]
        ]
        assert found.removed.intersection(family.roots) == set(leaving)
        assert found.kept[family.name] in limits.widths(family)
        wider = [w for w in limits.widths(family) if w > found.kept[family.name]]
        assert all(cost.total({**found.kept, family.name: w}) > goal for w in wider[-6:])
    lost = float(scores[sorted(found.removed)].sum())
    assert lost <= 1.2 * find_least(channels, scores, cost, goal, limits) + 1e-9


@pytest.mark.parametrize("name", COSTS)
def test_on_average_hardly_more_is_lost_than_must_be(name):
    shares = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        channels = make_channels(*rng.integers(6, 13, 3).tolist())
        scores, cost = rng.lognormal(0, 1, len(channels.roots)), COSTS[name](channels)
        goal = 0.6 * cost.total({family.name: family.count for family in channels.families})
        found = select_groups(channels, scores, cost, goal, ANY)
        lost = float(scores[sorted(found.removed)].sum())
        shares.append(lost / find_least(channels, scores, cost, goal, ANY))
    assert np.mean(shares) < 1.01


def test_a_goal_that_holds_takes_nothing_and_one_out_of_reach_all_that_may_leave():
    channels = make_channels(8, 6)
    scores, cost = np.arange(14.0), ChannelCount(channels)
    assert select_groups(channels, scores, cost, 14, ANY).removed == set()
    nearest = select_groups(channels, scores, cost, 1, replace(ANY, fewest=3))
    assert nearest.kept == find_floor(channels, cost, replace(ANY, fewest=3)).kept
    assert nearest.kept == {"layer0": 3, "layer1": 3}
    assert nearest.cost == 6


@pytest.mark.parametrize(
    ("count", "width", "rest", "limits", "widths"),
    [
        (32, 1, 0, (8, 8), [32, 24, 16, 8]),
        (12, 1, 0, (8, 8), [12, 8]),
        (12, 1, 0, (8, 12), [12]),
        (12, 1, 4, (8, 8), [12, 4]),
        (6, 4, 0, (8, 8), [6, 4, 2]),
        (5, 1, 0, (1, 2), [5, 4, 3, 2]),
        (5, 1, 0, (1, 9), [5]),
        (7, 1, 3, (8, 8), [7, 5]),
        (9, 2, 1, (8, 4), [9, 8, 4]),
        (128, 1, 0, (1, 100), [128, 124, 120, 116, 112, 108, 104, 100]),
    ],
)
def test_widths_are_multiples_and_none_is_too_narrow(count, width, rest, limits, widths):
    family = make_channels(count, width=width, rest=rest).families[0]
    assert WidthLimits(round_to=limits[0], fewest=limits[1]).widths(family) == widths


@pytest.mark.parametrize("values", [{"round_to": 0}, {"fewest": 0}])
def test_limits_that_make_no_sense_are_refused(values):
    with pytest.raises(InputError, match="--round-to"):
        WidthLimits(**values)


def test_isomorphic_scores_are_ranks_among_feature_maps_alike():
    channels = make_channels(3, 2, 3, kinds=("conv", "linear", "conv"))
    scores = np.array([5.0, 1.0, 9.0, 700.0, 300.0, 2.0, 8.0, 3.0])
    assert rank_scores(channels, scores, "global") is scores
    np.testing.assert_allclose(
        rank_scores(channels, scores, "isomorphic"),
        [4 / 6, 1 / 6, 6 / 6, 2 / 2, 1 / 2, 2 / 6, 5 / 6, 3 / 6],
    )
    with pytest.raises(InputError, match="--ranking"):
        rank_scores(channels, scores, "local")
