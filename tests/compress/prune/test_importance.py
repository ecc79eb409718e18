"""Channels that do almost nothing are the least important ones, whatever reads them."""

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from compress.prune.adapt import open_network  # noqa: E402
from compress.prune.analysis.families import Channels  # noqa: E402
from compress.prune.api import (  # noqa: E402
    PruneData,
    PruneSettings,
    RatioGoal,
    prune_module,
)
from compress.prune.importance import IMPORTANCES, ImportanceData  # noqa: E402
from compress.prune.importance.gradient import output_distance  # noqa: E402
from compress.prune.select import WidthLimits  # noqa: E402

QUIET = 5


class Correlation(nn.Module):
    """Features of two pictures, whose products no layer takes in channel by channel."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(4, 2, 1)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        a, b = self.features(left), self.features(right)
        shifted = [(a * b.roll(shift, 3)).sum(1) for shift in range(4)]
        return self.last(torch.stack(shifted, 1))


class Attention(nn.Module):
    """Queries and keys of a single head."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(8, 16) for _ in range(3))
        self.last = nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.queries(x) @ self.keys(x).transpose(1, 2) * 0.3
        return self.last(scores.softmax(-1) @ self.values(x))


class Functions(nn.Module):
    """Convolutions that a module of its own calls."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(16, 3, 3, 3))
        self.last = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(F.conv2d(x, self.first)))


class Product(nn.Module):
    """A matrix product with a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Parameter(torch.randn(8, 16)), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(x @ self.first))


class Sequence(nn.Module):
    """Convolutions along one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(4, 16, 3), nn.Conv1d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(F.relu(self.first(x)))


NETWORKS = {
    "correlation": (Correlation, "features.weight", 0, [(1, 3, 8, 8), (1, 3, 8, 8)]),
    "queries": (Attention, "queries.weight", 0, [(1, 9, 8)]),
    "functions": (Functions, "first", 0, [(1, 3, 8, 8)]),
    "product": (Product, "first", 1, [(1, 9, 8)]),
    "sequence": (Sequence, "first.weight", 0, [(1, 4, 20)]),
}


@pytest.mark.parametrize("importance", ["fisher", "taylor", "activation"])
@pytest.mark.parametrize("name", NETWORKS)
def test_a_quiet_channel_is_the_least_important_one(name: str, importance: str) -> None:
    make, weight, axis, shapes = NETWORKS[name]
    torch.manual_seed(0)
    network = make().eval()
    parameters = dict(network.named_parameters())
    with torch.no_grad():
        parameters[weight].select(axis, QUIET).mul_(1e-3)
        for owner in ("features", "queries", "first"):
            if f"{owner}.bias" in parameters:
                parameters[f"{owner}.bias"][QUIET] = 0
    samples = [tuple(torch.randn(*shape) for shape in shapes) for _ in range(8)]
    channels = open_network(network, samples[0]).channels
    data = ImportanceData(batches=samples, losses=output_distance(), images=samples)
    scores = IMPORTANCES[importance](network, channels, data)
    ids = channels.trace.weights[weight][axis]
    found = scores[channels.roots[ids]]
    assert int(np.argmin(found)) == QUIET
    assert np.unique(found).size == found.size


def make_row() -> tuple[nn.Module, list[tuple[Tensor, ...]], Channels]:
    """Three convolutions in a row, the first with a BatchNorm, whose channels differ in size."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 6, 3), nn.ReLU(), nn.Conv2d(6, 2, 1)),
    ).eval()
    with torch.no_grad():
        network[1].weight.normal_()
        network[1].bias.normal_()
        network[3].weight[4] *= 3
    samples = [(torch.randn(2, 3, 9, 9),) for _ in range(3)]
    return network, samples, open_network(network, samples[0]).channels


def channel_scores(channels: Channels, scores: np.ndarray, weight: str) -> np.ndarray:
    return scores[channels.roots[channels.trace.weights[weight][0]]]


def relative(values: Tensor) -> np.ndarray:
    return (values / values.mean()).detach().numpy()


def test_magnitude_adds_up_squared_weights_of_each_layer_relative_to_its_mean() -> None:
    network, _, channels = make_row()
    scores = IMPORTANCES["magnitude"](network, channels, ImportanceData())
    first, second, last = (network[index].weight ** 2 for index in (0, 3, 5))
    others = (0, 2, 3)
    np.testing.assert_allclose(
        channel_scores(channels, scores, "0.weight"),
        relative(first.sum((1, 2, 3))) + relative(second.sum(others)),
        rtol=1e-5,
    )
    np.testing.assert_allclose(
        channel_scores(channels, scores, "3.weight"),
        relative(second.sum((1, 2, 3))) + relative(last.sum(others)),
        rtol=1e-5,
    )


def test_batch_norm_counts_by_its_scales_and_a_layer_without_one_by_its_magnitude() -> None:
    network, _, channels = make_row()
    scores = IMPORTANCES["bn-scale"](network, channels, ImportanceData())
    np.testing.assert_allclose(
        channel_scores(channels, scores, "0.weight"), relative(network[1].weight.abs()), rtol=1e-5
    )
    magnitude = IMPORTANCES["magnitude"](network, channels, ImportanceData())
    np.testing.assert_array_equal(
        channel_scores(channels, scores, "3.weight"),
        channel_scores(channels, magnitude, "3.weight"),
    )


def test_activation_is_the_mean_absolute_output_relative_to_the_layer_s() -> None:
    network, samples, channels = make_row()
    scores = IMPORTANCES["activation"](network, channels, ImportanceData(images=samples))
    with torch.no_grad():
        first = torch.cat([network[0](*images) for images in samples])
        second = torch.cat([network[:4](*images) for images in samples])
    for weight, output in (("0.weight", first), ("3.weight", second)):
        np.testing.assert_allclose(
            channel_scores(channels, scores, weight),
            relative(output.abs().mean((0, 2, 3))),
            rtol=1e-5,
        )


def test_activation_sees_convolutions_that_a_module_calls_itself() -> None:
    torch.manual_seed(0)
    network, samples = Functions().eval(), [(torch.randn(1, 3, 8, 8),) for _ in range(3)]
    channels = open_network(network, samples[0]).channels
    scores = IMPORTANCES["activation"](network, channels, ImportanceData(images=samples))
    output = F.conv2d(torch.cat([images[0] for images in samples]), network.first)
    np.testing.assert_allclose(
        channel_scores(channels, scores, "first"), relative(output.abs().mean((0, 2, 3))), rtol=1e-5
    )


@pytest.mark.parametrize(("importance", "size"), [("taylor", torch.abs), ("fisher", torch.square)])
def test_gradients_count_what_the_readers_of_a_channel_lose_without_it(
    importance: str, size: Callable[[Tensor], Tensor]
) -> None:
    network, samples, channels = make_row()
    losses = {
        "sum": lambda module, inputs: module(*inputs).sum(),
        "squares": lambda module, inputs: 1000 * module(*inputs).square().mean(),
    }
    data = ImportanceData(
        batches=samples,
        losses=lambda module, inputs: {name: find(module, inputs) for name, find in losses.items()},
    )
    wanted = []
    for find in losses.values():
        lost = torch.zeros(14)
        for inputs in samples:
            readers = network[3].weight, network[5].weight
            gradients = torch.autograd.grad(find(network, inputs), readers)
            changes = [
                (gradient * weight).sum((0, 2, 3))
                for gradient, weight in zip(gradients, readers, strict=True)
            ]
            lost += size(torch.cat(changes).detach())
        wanted.append(relative(lost))
    network[0].weight.requires_grad_(False)
    scores = IMPORTANCES[importance](network, channels, data)
    found = [channel_scores(channels, scores, name) for name in ("0.weight", "3.weight")]
    np.testing.assert_allclose(np.concatenate(found), np.maximum(*wanted), rtol=1e-4)
    frozen = [name for name, value in network.named_parameters() if not value.requires_grad]
    assert frozen == ["0.weight"], "what was frozen stays so, and nothing else"
    assert all(value.grad is None for value in network.parameters())


class Classes(nn.Module):
    """Answers classes in bytes beside depth: the head of the former has no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 8, 3)
        self.classes = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))
        self.depth = nn.Conv2d(8, 1, 1)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = torch.relu(self.trunk(x))
        canvas = torch.zeros(1, 6, 6, dtype=torch.uint8)
        canvas[:] = self.classes(features).argmax(1).to(torch.uint8)
        return {"classes": canvas, "depth": self.depth(features), "constant": torch.ones(1)}


def test_an_output_without_a_gradient_counts_by_what_it_was_chosen_from() -> None:
    torch.manual_seed(0)
    network = Classes().eval()
    with torch.no_grad():
        network.classes[0].weight[QUIET] *= 1e-3
        network.classes[0].bias[QUIET] = 0
    samples = [(torch.randn(1, 3, 8, 8),) for _ in range(8)]
    losses = output_distance(samples=samples)(network, samples[0])
    assert list(losses) == ["depth", "classes before argmax"]
    channels = open_network(network, samples[0]).channels
    data = ImportanceData(batches=samples, losses=output_distance(), images=samples)
    scores = IMPORTANCES["fisher"](network, channels, data)
    found = scores[channels.roots[channels.trace.weights["classes.0.weight"][0]]]
    assert int(np.argmin(found)) == QUIET
    assert np.unique(found).size == found.size


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_a_program_that_takes_no_gradients_may_prune(context: type) -> None:
    torch.manual_seed(0)
    samples = [(torch.randn(1, 4, 20),) for _ in range(4)]
    data = ImportanceData(batches=samples, losses=output_distance(), images=samples)
    settings = PruneSettings(importance="fisher", limits=WidthLimits(round_to=1, fewest=2))
    with context():
        network = Sequence().eval()
        result = prune_module(
            network, samples[0], RatioGoal(0.4), settings, PruneData(importance=data)
        )
    assert result.differences[0] < 1e-9
    assert result.module.first.out_channels < 16
    assert not result.module.first.weight.is_inference()
