"""What follows channels is looked for with smaller pictures, and proven with the given ones."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from compress.prune.adapt import open_network
from compress.prune.api import PruneSettings, RatioGoal, prune_module
from compress.prune.proof_inputs import enliven_inputs, shrink_inputs, stretch_inputs
from compress.prune.prunable_network import TOLERANCE

LARGE = (1, 3, 256, 384)
SMALL = (1, 3, 128, 160)


class Viewing(nn.Module):
    """Two maps that the code views by the number of one: both have to lose as many channels.

    Args:
        literal_from: from this width on, the code names a number that cannot follow.
        note: is told the width of each picture.
    """

    def __init__(
        self, literal_from: int = 10_000, note: Callable[[int], None] = lambda width: None
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.width, self.literal_from, self.note = 32, literal_from, note
        self.trunk, self.second = nn.Conv2d(3, 32, 3, padding=1), nn.Conv2d(32, 32, 1)
        self.out = nn.Conv2d(32, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        self.note(x.shape[-1])
        width = 32 if x.shape[-1] >= self.literal_from else self.width
        first = self.trunk(x).relu().view(1, width, -1, x.shape[-1])
        return self.out(self.second(first).view(1, width, -1, x.shape[-1]))


class Placed(nn.Module):
    """A network with a position for each pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(1, 3, *LARGE[2:]))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.places


def test_pictures_shrink_by_one_factor_and_other_inputs_stay():
    class Two(nn.Module):
        def forward(self, picture, depth, pose):
            return picture, depth.mean() + pose

    given = (torch.randn(LARGE), torch.randn(1, 1, 64, 96), torch.randn(1, 6))
    picture, depth, pose = shrink_inputs(Two(), given)
    assert picture.shape == SMALL
    assert torch.equal(picture, given[0][..., :128, :160])
    assert depth.shape == (1, 1, 32, 64)
    assert pose is given[2]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv2d(3, 4, 1), (1, 3, 128, 128)),
        (nn.Conv2d(3, 4, 1), (1, 3, 32, 512)),
        (nn.Linear(512, 4), (1, 512)),
        (Placed(), LARGE),
        (nn.Conv2d(3, 4, 200), LARGE),
    ],
)
def test_small_inputs_and_those_of_networks_with_a_size_of_their_own_stay(module, shape):
    assert shrink_inputs(module, (torch.randn(shape),)) is None


def test_most_trials_have_small_pictures_and_the_last_word_the_given_ones():
    sizes = Counter()

    def note(width: int) -> None:
        sizes[width] += 1

    network = open_network(Viewing(note=note), (torch.randn(LARGE),))
    assert sizes[SMALL[-1]] > sizes[LARGE[-1]]
    removed = {network.channels.families[0].roots[1]}
    assert network.inputs[0].shape == LARGE
    assert network.largest_difference(removed) <= TOLERANCE


def test_what_cannot_follow_in_large_pictures_only_is_found_with_these():
    network = open_network(Viewing(literal_from=300), (torch.randn(LARGE),))
    assert network.channels.families == ()
    reasons = {item.reason for item in network.channels.left_alone}
    assert any("names a size that cannot follow" in reason for reason in reasons)


def test_what_cannot_follow_in_larger_pictures_is_found_with_small_ones():
    families = open_network(Viewing(literal_from=10), (torch.randn(1, 3, 8, 8),)).channels.families
    assert families == ()
    families = open_network(Viewing(literal_from=20), (torch.randn(1, 3, 8, 8),)).channels.families
    assert len(families) == 1


class Scaling(nn.Module):
    """Attention that is scaled by channels and positions together: no weight makes up for both."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value = (nn.Conv2d(3, 16, 1) for _ in range(3))
        self.out = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (one(x).flatten(2) for one in (self.query, self.key, self.value))
        weights = query.transpose(1, 2) @ key * 20 / (query.shape[1] + query.shape[2])
        y = value @ weights.softmax(-1).transpose(1, 2)
        return self.out(y.view(1, value.shape[1], *x.shape[2:]))


def test_what_makes_up_for_a_scale_in_pictures_of_one_size_only_is_left_alone():
    network = open_network(Scaling(), (torch.randn(1, 3, 4, 4),))
    assert [family.count for family in network.channels.families] == [16]
    removed = set(network.channels.families[0].roots[:8])
    for size in ((4, 4), (16, 16)):
        other = network.with_inputs((torch.randn(1, 3, *size, dtype=torch.float64),))
        assert other.largest_difference(removed) <= TOLERANCE


def test_pictures_stretch_and_other_inputs_stay():
    class Posed(nn.Module):
        def forward(self, picture, pose):
            return picture + pose.mean()

    picture, pose = torch.randn(1, 3, 4, 6), torch.randn(1, 6)
    wide, same = stretch_inputs(Posed(), (picture, pose))
    assert same is pose
    assert wide.shape == (1, 3, 4, 12)
    assert torch.equal(wide[..., :6], picture)
    assert torch.equal(wide[..., 6:], picture.flip(-1))
    assert stretch_inputs(Placed(), (torch.randn(LARGE),)) is None


def test_inputs_that_are_one_number_are_enlivened():
    picture, black, index = (
        torch.randn(1, 3, 4, 4),
        torch.zeros(1, 3, 4, 4),
        torch.zeros(1, 2).long(),
    )
    kept, lively, same = enliven_inputs((picture, black, index))
    assert kept is picture
    assert same is index
    assert lively.std() > 0.5


@pytest.mark.parametrize("level", [0.0, 0.3])
def test_a_proof_with_a_plain_picture_sees_what_is_wrong(level):
    families = open_network(Scaling(), (torch.full((1, 3, 4, 4), level),)).channels.families
    assert [family.count for family in families] == [16]


def test_a_network_of_large_pictures_is_pruned():
    module, given = Viewing(), (torch.randn(LARGE),)
    settings = PruneSettings(importance="magnitude")
    result = prune_module(module, given, RatioGoal(0.5), settings)
    assert result.macs[1] < result.macs[0]
    assert max(result.differences) <= TOLERANCE
    assert result.module(*given).shape == module(*given).shape


class Bytes(nn.Module):
    """Turns bytes into floats itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns maps."""
        return self.layers(pixels.float() / 255)


def test_a_network_whose_only_input_is_bytes_is_proven_in_float64() -> None:
    pixels = torch.randint(0, 256, (1, 3, 16, 24), dtype=torch.uint8)
    settings = PruneSettings(importance="magnitude")
    result = prune_module(Bytes().eval(), (pixels,), RatioGoal(0.5), settings)
    assert result.macs[1] < 0.6 * result.macs[0]
    assert result.differences[0] < TOLERANCE
    assert result.module(pixels).shape == (1, 4, 14, 22)
