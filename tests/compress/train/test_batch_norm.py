"""Re-estimated statistics are those of the data."""

import torch
from torch import nn

from compress.train.batch_norm import improve_batch_norm, reestimate_batch_norm


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))


def test_statistics_are_those_of_the_batches() -> None:
    module = network().train()
    batches = [torch.randn(4, 3, 8, 8) * 3 + 1 for _ in range(5)]
    reestimate_batch_norm(module, [(batch,) for batch in batches])
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
