"""Code that scales by the root of a channel count: a weight makes up for what changes."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.api import PruneSettings, RatioGoal, prune_module  # noqa: E402
from compress.prune.prunable_network import PrunableNetwork  # noqa: E402
from compress.prune.select import WidthLimits  # noqa: E402

IMAGE = (torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)),)


class NonLocal(nn.Module):
    """One head, with a scale from the width of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 16, 1)
        self.query, self.key, self.value = (nn.Conv2d(16, 12, 1) for _ in range(3))
        self.output = nn.Conv2d(12, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).relu()
        q, k, v = (part(x).flatten(2) for part in (self.query, self.key, self.value))
        weights = (q.transpose(1, 2) @ k / q.shape[1] ** 0.5).softmax(-1)
        return self.output((v @ weights.transpose(1, 2)).unflatten(2, x.shape[2:]))


class Packed(nn.Module):
    """PyTorch's own scale, and keys, queries and values from one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.packed, self.output = nn.Linear(3, 16), nn.Linear(16, 36), nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.packed(self.embed(x.flatten(2).transpose(1, 2)).relu()).chunk(3, 2)
        return self.output(F.scaled_dot_product_attention(q, k, v))


class Correlation(nn.Module):
    """Both factors of a product come from the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.features = nn.Conv2d(3, 16, 1), nn.Conv2d(16, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        both = torch.cat([x, x.flip(3)])
        first, second = self.features(self.embed(both).relu()).flatten(2).chunk(2)
        return first.transpose(1, 2) @ second / torch.tensor(first.shape[1]).sqrt()


class Displaced(Correlation):
    """Correlates at several places, and scales each time."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(self.embed(x).relu())
        scale = features.shape[1] ** 0.5
        moved = (features.roll(step, 3) for step in range(3))
        return torch.cat([(features * other).sum(1, keepdim=True) / scale for other in moved], 1)


class Repeated(nn.Module):
    """Attention over one set of weights again and again."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times, self.embed = times, nn.Conv2d(3, 16, 1)
        self.query, self.key, self.value = (nn.Conv2d(16, 16, 1) for _ in range(3))
        self.output = nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for _ in range(self.times):
            q, k, v = (part(x).flatten(2) for part in (self.query, self.key, self.value))
            weights = (q.mT @ k / q.shape[1] ** 0.5).softmax(-1)
            x = (x + (v @ weights.mT).unflatten(2, x.shape[2:])).tanh()
        return self.output(x)


class Activated(nn.Module):
    """The scale comes behind an activation that what makes up for it would change."""

    def __init__(self, last: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.last, self.output = nn.Conv2d(3, 16, 1), last(), nn.Conv2d(16, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.first(x))
        return self.output(self.last(x / x.shape[1] ** 0.5))


class Reduced(nn.Module):
    """Attention to a smaller map; the width of a head is computed from that of the input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.both = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.reduce, self.output = nn.Conv2d(width, width, 2, 2), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        q = self.query(x.flatten(2).transpose(1, 2)).view(n, h * w, self.heads, -1).transpose(1, 2)
        both = self.both(self.reduce(x).flatten(2).transpose(1, 2))
        k, v = both.view(n, -1, 2, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, h * w, c)
        return x + self.output(y).transpose(1, 2).reshape(x.shape)


class Reducing(nn.Module):
    """Two stages; without its number of heads following, each head would become narrower."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 12, 1), nn.Sequential(Reduced(12, 1))
        self.down, self.second = nn.Conv2d(12, 32, 1), nn.Sequential(Reduced(32, 4), Reduced(32, 4))
        self.output = nn.Conv2d(32, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.second(self.down(self.first(self.stem(x)))))


def seed(module: nn.Module) -> nn.Module:
    """Gives weights so large that a scale in front of a softmax matters."""
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def open_seeded(module: nn.Module) -> PrunableNetwork:
    return open_network(seed(module), IMAGE)


@pytest.mark.parametrize(
    ("build", "family", "width"),
    [
        (NonLocal, "query.weight", 12),
        (Packed, "packed.weight", 12),
        (Correlation, "features.weight", 12),
        (Displaced, "features.weight", 12),
        (lambda: Repeated(2), "query.weight", 16),
        (lambda: Repeated(3), "query.weight", 16),
        (lambda: Activated(nn.ReLU), "first.weight", 16),
    ],
)
def test_channels_leave_and_the_result_is_as_if_zeroed(build, family: str, width: int) -> None:
    network = open_seeded(build())
    found = {one.name: len(one.roots) for one in network.channels.families}
    assert found.get(family) == width, network.channels.left_alone
    (scaled,) = {rescaling.family for rescaling in network.rescalings}
    assert scaled == family
    for start, step in ((0, 2), (1, 1), (0, 3)):
        removed = {root for one in network.channels.families for root in one.roots[start::step]}
        assert network.largest_difference(removed) < 1e-9
    unscaled = PrunableNetwork(
        network.module, network.inputs, network.channels, network.adjustments
    )
    assert unscaled.largest_difference(removed) > 1e-6


def count_trials(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    trials: list[int] = []
    run = PrunableNetwork.largest_difference

    def counted(network: PrunableNetwork, removed: set[int]) -> float:
        trials.append(len(removed))
        return run(network, removed)

    monkeypatch.setattr(PrunableNetwork, "largest_difference", counted)
    return trials


def test_heads_leave_whole_before_a_scale_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    trials = count_trials(monkeypatch)
    network = open_seeded(Reducing())
    assert len(trials) < 40
    families = {one.name: one for one in network.channels.families}
    assert len(families["stem.weight"].roots) == 12
    heads = families["down.weight"]
    assert len(heads.roots) == 4
    assert {one.family for one in network.rescalings} == {"stem.weight"}
    narrow = network.narrow(set(heads.roots[:3]))
    assert [part.heads for part in narrow.second] == [1, 1]
    for step in (1, 2):
        removed = {root for one in families.values() for root in one.roots[1::step]}
        assert network.largest_difference(removed) < 1e-9


def test_what_is_not_tried_any_more_stays_whole_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("compress.prune.adapt._MOST_TRIALS", 1)
    network = open_seeded(Reducing())
    names = {one.name for one in network.channels.families}
    assert not names & {"stem.weight", "down.weight"}
    reasons = {one.weight: one.reason for one in network.channels.left_alone}
    assert "nothing more was tried" in reasons["down.weight"]
    for one in network.channels.families:
        assert network.largest_difference(set(one.roots[1:])) < 1e-9


def test_where_no_weight_makes_up_for_it_the_scale_is_named() -> None:
    network = open_seeded(Activated(nn.SiLU))
    assert not network.channels.families
    reasons = {one.reason for one in network.channels.left_alone}
    (reason,) = {reason for reason in reasons if not reason.startswith("output")}
    assert "its code computes a scale from their number: 'div' by 4, then 3.87298" in reason


def test_the_written_network_has_the_weights_that_were_proven() -> None:
    module = seed(NonLocal())
    settings = PruneSettings(importance="magnitude", limits=WidthLimits(round_to=1, fewest=2))
    result = prune_module(module, IMAGE, RatioGoal(0.5), settings)
    kept = next(
        edit["indices"]
        for edit in result.edits
        if edit["kind"] == "keep" and edit["tensor"] == "query.bias"
    )
    makes_up_for = (len(kept) / 12) ** 0.5
    torch.testing.assert_close(result.module.query.bias, module.query.bias[kept] * makes_up_for)
    torch.testing.assert_close(result.module.key.bias, module.key.bias[kept])
