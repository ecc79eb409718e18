"""What changed networks keep of each output."""

import numpy as np
import pytest
import torch
from torch import nn

from compress.sqnr import EXACT_DB
from framefit.output_quality import measure_outputs


class Doubled(nn.Module):
    """Two outputs from two inputs, one of them off by a share; it answers from one memory."""

    def __init__(self, off: float) -> None:
        super().__init__()
        self.off = off
        self.memory = torch.zeros(1, 1, 4, 4)

    def forward(self, left, right):
        self.memory.copy_(2 * left)
        return {"near": self.memory, "far": right * (1 + self.off)}


def test_each_output_is_compared_by_itself() -> None:
    rng = np.random.default_rng(0)
    names = ("left", "right", "label")
    samples = [{name: rng.normal(size=(1, 4, 4)).astype("f4") for name in names} for _ in range(6)]
    changed = {"same": Doubled(0.0), "off": Doubled(0.1)}
    found = measure_outputs(Doubled(0.0), changed, samples, names[:2])
    assert found["near"] == {"same": EXACT_DB, "off": EXACT_DB}
    assert found["far"] == {"same": EXACT_DB, "off": pytest.approx(20.0, abs=1e-3)}
