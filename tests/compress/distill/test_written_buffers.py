"""Networks that write buffers as they answer: what one sample leaves is not met by the next."""

import pytest
import torch
from torch import Tensor, nn

from compress.distill.api import distill_module
from compress.train.settings import TrainerSettings


class Writing(nn.Module):
    """Keeps the last features, or a mean of all that it has seen, and counts its answers."""

    def __init__(self, channels: int, kind: str) -> None:
        super().__init__()
        torch.manual_seed(channels)
        self.kind = kind
        self.first, self.norm = nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels)
        self.output = nn.Conv2d(channels, 2, 1)
        self.register_buffer("state", torch.ones(1, channels, 1, 1))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.norm(self.first(x)).relu()
        self.count += 1
        if self.kind == "mean":
            with torch.no_grad():
                self.state.lerp_(y.mean((0, 2, 3), keepdim=True), 0.1)
            return {"map": self.output(y * self.state)}
        before = self.state if self.state.shape == y.shape else torch.zeros_like(y)
        self.state = y.detach()
        return {"map": self.output(y + before)}


@pytest.mark.parametrize("kind", ["mean", "last"])
def test_what_answers_write_is_forgotten(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    samples = [{"image": torch.rand(3, 8, 8, generator=generator)} for _ in range(24)]
    student, teacher = Writing(4, kind).eval(), Writing(6, kind).eval()
    training = TrainerSettings(steps=6, batch_size=8, probe_every=3, learning_rate=1e-2)
    result = distill_module(student, teacher, samples[:18], samples[18:], training=training)
    assert result.score_before == pytest.approx(1.0)
    assert result.score_after < 1
    for network, channels in ((student, 4), (teacher, 6)):
        assert torch.equal(network.state, torch.ones(1, channels, 1, 1))
        assert int(network.count) == 0
