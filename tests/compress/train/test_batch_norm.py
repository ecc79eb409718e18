"""Re-estimated statistics are those of the data."""

import copy

import pytest
import torch
from torch import nn

from compress.train import batch_norm
from compress.train.batch_norm import (
    StatisticsRenewal,
    improve_batch_norm,
)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))


def test_statistics_are_those_of_the_batches() -> None:
    module = network().train()
    batches = [torch.randn(4, 3, 8, 8) * 3 + 1 for _ in range(5)]
    StatisticsRenewal([(batch,) for batch in batches]).renew(module)
    with torch.no_grad():
        values = [module[0](batch) for batch in batches]
    mean = torch.stack([value.mean((0, 2, 3)) for value in values]).mean(0)
    torch.testing.assert_close(module[1].running_mean, mean, rtol=1e-4, atol=1e-5)
    assert module[1].momentum == 0.1
    assert module[3].training


def test_worse_statistics_are_not_kept() -> None:
    module = network().eval()
    before = module[1].running_mean.clone()
    scores = iter([2.0, 1.0, 1.0, 2.0])
    batches = [(torch.randn(2, 3, 4, 4),)]
    assert improve_batch_norm(module, batches, lambda _: next(scores)) == 1.0
    assert torch.equal(module[1].running_mean, before)
    assert improve_batch_norm(module, batches, lambda _: next(scores)) == 1.0
    assert not torch.equal(module[1].running_mean, before)


class Counting(nn.Module):
    """Counts its frames in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = network()
        self.register_buffer("frames", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.frames += 1
        return self.layers(x)


def test_nothing_else_that_the_batches_write_is_kept() -> None:
    module, scores = Counting().eval(), iter([1.0, 2.0])
    batches = [(torch.randn(2, 3, 4, 4),)] * 3
    assert improve_batch_norm(module, batches, lambda _: next(scores)) == 1.0
    assert int(module.layers[1].num_batches_tracked) == 3
    assert int(module.frames) == 0


class Pooled(nn.Module):
    """A BatchNorm behind a mean over the picture, as in ASPP, DAPPM and BiSeNet."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))

    def forward(self, x):
        x = self.trunk(x)
        return x * self.pooled(x)


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 2, 1)], ids=["always", "in the last batch"])
def test_a_norm_of_a_single_value_keeps_its_statistics(sizes: tuple[int, ...]) -> None:
    module = Pooled().eval()
    trunk, pooled = (part.running_mean.clone() for part in (module.trunk[1], module.pooled[2]))
    StatisticsRenewal([(torch.randn(size, 3, 8, 8),) for size in sizes]).renew(module)
    assert torch.equal(module.pooled[2].running_mean, pooled)
    assert not torch.equal(module.trunk[1].running_mean, trunk)
    assert not any(part.training for part in module.modules())


def test_statistics_are_estimated_once_for_each_set_of_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On what a BatchNorm of a single value has stored, others' statistics depend."""
    torch.manual_seed(0)
    module = nn.Sequential(Pooled(), nn.BatchNorm2d(4)).eval()
    batches = [(torch.randn(2, 3, 8, 8),), (torch.randn(1, 3, 8, 8),)]
    renewal, estimate, runs = StatisticsRenewal(batches), batch_norm._reestimate, []

    def improve() -> bool:
        scores = iter([0.0, 1.0])
        runs.clear()
        renewal.improve(module, lambda _: next(scores))
        return bool(runs)

    def count(*given) -> None:
        runs.append(1)
        estimate(*given)

    monkeypatch.setattr(batch_norm, "_reestimate", count)
    for change, is_new in ((0, True), (0, False), (1, True), (0, False)):
        with torch.no_grad():
            module[0].trunk[0].bias.add_(change)
        wanted = copy.deepcopy(module)
        assert improve() == is_new
        StatisticsRenewal(batches).renew(wanted)
        for name, value in wanted.state_dict().items():
            assert torch.equal(value, module.state_dict()[name]), name
    module[0].pooled[2].running_mean.add_(1.0)
    assert improve()
