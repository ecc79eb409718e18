"""An export is judged by how exact the module itself is."""

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from export.own_rounding import MAX_SHARE, measure_own_rounding
from export.to_onnx import export_onnx, verify_export


class Cancelling(nn.Module):
    """Loses most digits by subtracting large sums from one another, as unstable networks do."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, bias=False)

    def forward(self, x):
        y = self.conv(x) * 1e3
        return (y.sum(dim=1) + 1e4) - y.flip(1).sum(dim=1) - 1e4 + 0.01 * x[:, 0, 1:-1, 1:-1]


class Fixed(nn.Module):
    """Computes with a float32 constant of its own making."""

    def forward(self, x):
        return torch.nn.functional.linear(x, torch.ones(2, 3))


def run(module, x):
    with torch.no_grad():
        return {"output": module(x).numpy()}


def test_a_stable_module_is_exact_and_an_unstable_one_is_not():
    torch.manual_seed(0)
    x = torch.randn(1, 3, 12, 12)
    shares = []
    for module in (nn.Conv2d(3, 8, 3), Cancelling()):
        wanted = run(module, x)
        (error,) = measure_own_rounding(module, [{"x": x}], [wanted], ()).values()
        shares.append(error / np.abs(wanted["output"]).max())
    assert shares[0] < 1e-5
    assert 1e-3 < shares[1] <= MAX_SHARE


def test_a_module_that_float64_does_not_fit_gives_nothing():
    x = torch.randn(1, 3)
    assert measure_own_rounding(Fixed(), [{"x": x}], [run(Fixed(), x)], ()) == {}


def test_the_module_itself_stays_float32(tmp_path):
    torch.manual_seed(0)
    module = nn.Conv2d(3, 4, 3)
    export_onnx(module, tmp_path / "m.onnx", input_shape=(1, 3, 8, 8))
    assert module.weight.dtype == torch.float32


def test_an_allowance_does_not_let_a_changed_weight_pass(tmp_path):
    import onnx

    torch.manual_seed(0)
    module = nn.Conv2d(3, 4, 3).eval()
    path = export_onnx(module, tmp_path / "m.onnx", input_shape=(1, 3, 8, 8))
    with torch.no_grad():
        module.weight[0, 0, 0, 0] += 0.05
        x = torch.randn(1, 3, 8, 8)
        wanted = [run(module, x)]
        allowed = measure_own_rounding(module, [{"input": x}], wanted, ())
    with pytest.raises(InputError, match="off by"):
        verify_export(onnx.load(path), [{"input": x}], wanted, lambda: allowed)
