"""Networks in which other layers run on some samples."""

import pytest
import torch
from torch import Tensor, nn

from artifacts.errors import InputError
from compress.prune.adapt import open_network
from compress.prune.api import PruneData, PruneResult, PruneSettings, RatioGoal, prune_module
from compress.prune.branches import find_branches
from compress.prune.importance import ImportanceData
from compress.prune.prunable_network import TOLERANCE
from compress.prune.select import WidthLimits

SETTINGS = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=1))
GENERATOR = torch.Generator().manual_seed(0)
DAY, NIGHT = ((torch.rand(1, 3, 8, 8, generator=GENERATOR) - less,) for less in (0.0, 2.0))


class Attention(nn.Module):
    """Says how many heads it has; behind it a LayerNorm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.count = heads
        self.packed, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).mT
        q, k, v = self.packed(tokens).unflatten(-1, (3, self.count, -1)).permute(2, 0, 3, 1, 4)
        y = (q @ k.mT * 0.3).softmax(-1) @ v
        y = self.project(y.transpose(1, 2).flatten(2))
        return self.norm(y).mT.unflatten(2, x.shape[2:])


class Brighter(nn.Module):
    """Multiplies by the number of channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.shape[1]


class DayAndNight(nn.Module):
    """One convolution by day, something else by night."""

    def __init__(self, night: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.day, self.night = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1), night
        self.out = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu()
        return self.out((self.day(y) if x.mean() > 0 else self.night(y)).relu())


def build(kind: str) -> nn.Module:
    torch.manual_seed(1)
    kinds = {
        "convolution": nn.Conv2d(16, 16, 1),
        "attention": Attention(16, 4),
        "nothing": nn.Identity(),
    }
    return DayAndNight(kinds[kind]).eval()


def prune(
    network: nn.Module, first: tuple[Tensor, ...], *others: tuple[Tensor, ...]
) -> PruneResult:
    data = PruneData(importance=ImportanceData(images=[first]), held_out=others)
    return prune_module(network, first, RatioGoal(0.4), SETTINGS, data)


@pytest.mark.parametrize("kind", ["convolution", "attention", "nothing"])
@pytest.mark.parametrize("samples", [(DAY, NIGHT), (NIGHT, DAY)], ids=["day first", "night first"])
def test_all_branches_that_samples_take_are_pruned_alike(kind, samples) -> None:
    network = build(kind)
    result = prune(network, *samples)
    assert sum(width.after for width in result.widths) < sum(w.before for w in result.widths)
    assert not {"first.weight", "day.weight"} & {item.weight for item in result.left_alone}
    for sample in samples:
        assert result.module(*sample).shape == network(*sample).shape
    assert not result.notes


@pytest.mark.parametrize("first", [DAY, NIGHT], ids=["day first", "night first"])
def test_each_branch_is_proven(first) -> None:
    others = [NIGHT if first is DAY else DAY]
    opened = open_network(build("attention"), first, others=others)
    removed = {root for family in opened.channels.families for root in family.roots[::3]}
    assert opened.largest_difference(removed) <= TOLERANCE
    assert "LayerNorm in 'night.norm'" in opened.narrowed_statistics(removed)


def test_channels_that_leave_another_branch_otherwise_stay() -> None:
    network = DayAndNight(Brighter()).eval()
    alone = open_network(network, DAY)
    assert {family.name for family in alone.channels.families} == {"first.weight", "day.weight"}
    both = open_network(network, DAY, others=[NIGHT])
    assert not both.channels.families
    assert any("computes something else" in item.reason for item in both.channels.left_alone)


def test_what_only_a_branch_has_inside_stays() -> None:
    night = nn.Sequential(nn.Conv2d(16, 24, 1), nn.ReLU(), nn.Conv2d(24, 16, 1))
    network = DayAndNight(night).eval()
    result = prune(network, DAY, NIGHT)
    assert result.module.night[0].out_channels == 24
    assert result.module.night[0].in_channels == result.module.first.out_channels < 16
    (alone,) = (item for item in result.left_alone if item.weight == "night.0.weight")
    assert "other samples" in alone.reason
    assert result.module(*NIGHT).shape == (1, 3, 6, 6)


def test_layers_that_no_sample_uses_are_named() -> None:
    result = prune(build("attention"), DAY, DAY)
    (note,) = result.notes
    assert note.startswith("no sample used night.packed, night.project, night.norm:")


def test_only_samples_of_other_branches_are_followed() -> None:
    network = build("convolution")
    assert find_branches(network, DAY, [DAY, NIGHT, DAY, NIGHT]) == [NIGHT]
    assert find_branches(network, NIGHT, [NIGHT, NIGHT]) == []
    plain = nn.Sequential(nn.Conv2d(3, 8, 1), nn.Conv2d(8, 2, 1)).eval()
    assert find_branches(plain, DAY, [DAY, NIGHT]) == []


def test_a_sample_on_which_the_network_fails_is_an_error_of_the_input() -> None:
    wrong = (torch.rand(1, 4, 8, 8),)
    with pytest.raises(InputError, match=r"\[1, 4, 8, 8\]"):
        prune(build("nothing"), DAY, wrong)


class Looking(nn.Module):
    """Decides by a picture whether it runs the second of two layers."""

    def __init__(self, look, note) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 1)
        self.look, self.note = look, note

    def forward(self, x: Tensor) -> Tensor:
        self.note()
        y = self.first(x)
        return self.second(y) if self.look(x) else y


LOOKS = {
    "bool": lambda x: bool(x.mean() > 0),
    "item": lambda x: x.mean().item() > 0,
    "int": lambda x: int(x.mean() * 100) > 0,
    "list": lambda x: x.mean((0, 2, 3)).tolist()[0] > 0,
    "array": lambda x: x.mean().numpy() > 0,
    "nonzero": lambda x: len((x > 0.0).nonzero()) > 0,
    "condition": lambda x: x[x > 0].numel() > 0,
    "select": lambda x: x.masked_select(x > 0).numel() > 0,
    "unique": lambda x: len(torch.unique(x > 0)) > 1 or x.max() > 0,
    "equal": lambda x: not torch.equal(x.abs(), -x),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_however_code_looks_at_a_picture_its_branches_are_found(look) -> None:
    module = Looking(look, lambda: None).eval()
    assert find_branches(module, NIGHT, [NIGHT, DAY]) == [DAY]


def test_code_that_looks_at_no_value_runs_once() -> None:
    runs = []

    def note() -> None:
        runs.append(1)

    module = Looking(lambda x: x.shape[2] > 4, note).eval()
    assert find_branches(module, NIGHT, [NIGHT, DAY, DAY]) == []
    assert len(runs) == 1


class Weighted(nn.Module):
    """A network that keeps the weights of its losses, which its outputs do not need."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 2, 1)
        self.log_sigma = nn.Parameter(torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.first(x).relu())


def test_an_unused_parameter_of_the_network_itself_is_named() -> None:
    (note,) = prune(Weighted().eval(), DAY, DAY).notes
    assert note.startswith("no sample used log_sigma:")
