"""Features that are divided by a value of their channel are pruned with it."""

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.prunable_network import TOLERANCE  # noqa: E402

IMAGE = (torch.rand(1, 3, 6, 6, generator=torch.Generator().manual_seed(0)),)
WAYS = {
    "quotient": lambda x, scale: x / scale,
    "in place": lambda x, scale: x.clone().div_(scale),
    "reciprocal": lambda x, scale: x * scale.reciprocal(),
    "root": lambda x, scale: x * scale.rsqrt(),
}


class Standardized(nn.Module):
    """A map that is standardized by constants of its channels, as statistics of a data set are."""

    def __init__(self, divide, *, is_learned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.divide = divide
        self.first, self.second = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 6, 1)
        self.out = nn.Conv2d(6, 2, 1)
        self.register_buffer("mean", torch.randn(8))
        deviation = torch.rand(8) + 0.5
        if is_learned:
            self.deviation = nn.Parameter(deviation)
        else:
            self.register_buffer("deviation", deviation)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x) - self.mean.view(1, -1, 1, 1)
        x = self.divide(x, self.deviation[None, :, None, None])
        return self.out(self.second(x).relu())


@pytest.mark.parametrize("is_learned", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_channels_leave_with_what_divides_them(way: str, *, is_learned: bool) -> None:
    network = open_network(Standardized(WAYS[way], is_learned=is_learned).eval(), IMAGE)
    families = {family.name: family for family in network.channels.families}
    assert {name for (name, _), _ in families["first.weight"].places} >= {"mean", "deviation"}
    removed = set(families["first.weight"].roots[::3])
    assert network.largest_difference(removed) <= TOLERANCE
    narrow = network.narrow(removed)
    assert narrow.deviation.shape == (5,)
    assert bool(torch.isfinite(narrow(*IMAGE)).all())


@torch.library.custom_op("framefit_tests::scale_by", mutates_args=())
def scale_by(x: Tensor, factors: Tensor) -> Tensor:
    if factors.isnan().any():
        raise ValueError("NaN where an operator of another package reads memory")
    return x * factors


class Foreign(Standardized):
    """What is divided goes into an operator of another package."""

    def forward(self, x: Tensor) -> Tensor:
        x = self.divide(self.first(x), self.deviation[None, :, None, None])
        y = self.second(x)
        return self.out(scale_by(y, y.sigmoid()))


def test_operators_of_other_packages_are_given_no_zero_quotients() -> None:
    module = Foreign(WAYS["quotient"], is_learned=False).eval()
    network = open_network(module, IMAGE)
    (family,) = (one for one in network.channels.families if one.name == "first.weight")
    assert network.largest_difference(set(family.roots[::3])) <= TOLERANCE


def test_a_network_that_divides_by_zero_itself_proves_nothing() -> None:
    module = Standardized(WAYS["quotient"], is_learned=False).eval()
    module.deviation[3] = 0
    network = open_network(module, IMAGE)
    assert "first.weight" not in {family.name for family in network.channels.families}
