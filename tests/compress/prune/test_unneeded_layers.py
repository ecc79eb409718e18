"""Layers whose results no output needs, or no input changes, are named, and count for nothing."""

import pytest
import torch
from torch import Tensor, nn

from compress.prune.analysis.api import find_channels
from compress.prune.analysis.families import CONSTANT, NOT_NEEDED
from compress.prune.api import MacsGoal, PruneResult, PruneSettings, RatioGoal, prune_module

IMAGE = (torch.randn(1, 3, 8, 8),)
BY_WEIGHTS = PruneSettings(importance="magnitude")


class Unread(nn.Module):
    """A backbone that computes one stage more than its head reads, as feature extractors do.

    Args:
        stages: it computes.
    """

    def __init__(self, stages: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Conv2d(32, 2, 1)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, 32, 3, padding=1), nn.ReLU())
            for width in (3, 32, 32, 32)[:stages]
        )

    def forward(self, x: Tensor) -> Tensor:
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return self.head(features[1])


class WrittenInPlace(nn.Module):
    """A layer whose result reaches the output by a write into a part of a constant alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        made = torch.zeros(1, 8, 8, 8)
        made[:, :4].copy_(self.second(self.first(x)))
        return made


class ReadByCode(nn.Module):
    """A layer whose result is read as a number of Python."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.head = nn.Linear(3, 1), nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(x)
        return head * float(self.gate(x.mean((2, 3))).detach())


class BiasedByPositions(nn.Module):
    """Two layers whose results a network of its own shifts, place by place, as in SwinV2.

    Args:
        of: what that network reads: "positions", the "input", or positions that "code" scales by a
            number it reads off the input.
    """

    def __init__(self, of: str = "positions") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 2, 3, padding=1)
        self.bias = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("positions", torch.randn(8, 8, 2))
        self.of = of

    def forward(self, x: Tensor) -> Tensor:
        read = self.positions.to(x.dtype)
        if self.of == "input":
            read = x[0, :2].permute(1, 2, 0)
        elif self.of == "code":
            read = read * float(x.mean())
        out: Tensor = self.second(self.first(x).relu() + self.bias(read)[..., 0])
        return out


class Template(nn.Module):
    """A picture beside a fixed one that the same layer looks at, as trackers have it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 2, 3, padding=1)
        self.register_buffer("target", torch.randn(1, 3, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        target = self.first(self.target.to(x.dtype)).sigmoid()
        out: Tensor = self.second(self.first(x) * target)
        return out


def widths(result: PruneResult) -> dict[str, tuple[int, int]]:
    return {width.weight: (width.before, width.after) for width in result.widths}


@pytest.mark.parametrize("goal", [RatioGoal(0.25), MacsGoal(0.7)])
def test_a_stage_that_no_head_reads_takes_no_part_in_the_goal(goal) -> None:
    read, unread = (prune_module(Unread(stages), IMAGE, goal, BY_WEIGHTS) for stages in (2, 4))
    assert widths(unread) == widths(read)
    assert unread.macs == read.macs
    assert {item.weight for item in unread.left_alone if item.reason == NOT_NEEDED} == {
        "stages.2.0.weight",
        "stages.3.0.weight",
    }


def test_layers_that_run_for_nothing_are_named() -> None:
    goal = RatioGoal(0.25)
    (note,) = prune_module(Unread(4), IMAGE, goal, BY_WEIGHTS).notes
    assert "2 layers run whose results no output needs: stages.2.0, stages.3.0;" in note
    (note,) = prune_module(Unread(3), IMAGE, goal, BY_WEIGHTS).notes
    assert note.startswith("1 layer runs whose result no output needs: stages.2.0;")
    assert prune_module(Unread(2), IMAGE, goal, BY_WEIGHTS).notes == ()


@pytest.mark.parametrize("network", [WrittenInPlace, ReadByCode])
def test_what_reaches_an_output_by_other_ways_is_needed(network) -> None:
    assert not find_channels(network().eval(), IMAGE).trace.unneeded


def test_layers_that_no_input_changes_are_left_alone_and_named() -> None:
    pruned = prune_module(BiasedByPositions(), IMAGE, RatioGoal(0.25), BY_WEIGHTS)
    assert widths(pruned) == {"first.weight": (32, 24)}
    alone = {item.weight: item for item in pruned.left_alone}
    assert (alone["bias.0.weight"].channels, alone["bias.0.weight"].reason) == (64, CONSTANT)
    assert pruned.macs == (8 * 8 * 9 * 32 * (3 + 2), 8 * 8 * 9 * 24 * (3 + 2))
    (note,) = pruned.notes
    assert "2 layers compute the same for every input: bias.0, bias.2;" in note


@pytest.mark.parametrize("of", ["input", "code"])
def test_layers_that_an_input_may_change_are_pruned(of) -> None:
    pruned = prune_module(BiasedByPositions(of), IMAGE, MacsGoal(0.5), BY_WEIGHTS)
    assert "bias.0.weight" in widths(pruned)
    assert pruned.notes == ()


def test_a_weight_that_also_runs_on_the_input_is_pruned() -> None:
    pruned = prune_module(Template(), IMAGE, RatioGoal(0.25), BY_WEIGHTS)
    assert widths(pruned) == {"first.weight": (32, 24)}
    assert pruned.macs[0] == 8 * 8 * 9 * 32 * (3 + 2)
    assert pruned.notes == ()


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_a_first_state_is_no_layer_that_computes_the_same(kind: type[nn.RNNBase]) -> None:
    class Recurrent(nn.Module):
        """A sequence that begins with a state of zeros."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.first, self.rnn, self.last = nn.Linear(4, 16), kind(16, 6), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.rnn(self.first(x).relu())[0])
            return out

    sequence = (torch.randn(5, 1, 4),)
    pruned = prune_module(Recurrent(), sequence, RatioGoal(0.4), BY_WEIGHTS)
    assert widths(pruned)["first.weight"][0] == 16
    assert pruned.notes == ()
