"""An export that orders near ties otherwise is compared where both choose the same places."""

import numpy as np
import pytest
import torch
from torch import nn

from artifacts.errors import InputError
from export import to_onnx
from export.exporters import export_with
from export.same_choices import record_choices, run_at_choices
from export.to_onnx import verify_export

TOKENS, WIDTH, CHOSEN = 12, 6, 4


class Queries(nn.Module):
    """Decodes the tokens of the highest scores, as RT-DETR does."""

    def __init__(self, offsets: dict[int, float], gain: float = 1.0, *, by_sort: bool = False):
        super().__init__()
        self.score = nn.Parameter(torch.zeros(TOKENS))
        self.by_sort = by_sort
        self.gain = gain
        with torch.no_grad():
            for at, offset in {2: 1.0, 5: 1.0, 7: 0.5, 9: 0.5, 10: 0.5, **offsets}.items():
                self.score[at] = offset

    def forward(self, x):
        scores = x.mean(-1) * 0 + self.score
        if self.by_sort:
            places = scores.sort(dim=1, descending=True).indices[:, :CHOSEN]
        else:
            places = scores.topk(CHOSEN, dim=1).indices
        rows = x.gather(1, places[..., None].expand(-1, -1, WIDTH))
        return torch.cat([rows * self.gain, rows.mean(1, keepdim=True)], dim=1)


def judge(module: nn.Module, other: nn.Module, exporter: str = "torchscript") -> dict[str, float]:
    """Verifies the export of `other` as if it were that of `module`."""
    x = torch.randn(1, TOKENS, WIDTH, generator=torch.Generator().manual_seed(1))
    model = export_with(exporter, other.eval(), [x], ["x"], ["y"])
    with torch.no_grad():
        wanted = [{"y": module.eval()(x).numpy()}]
    with pytest.raises(InputError, match="'y' is off by"):
        verify_export(model, [{"x": x}], wanted)
    return verify_export(
        model, [{"x": x}], wanted, choose=lambda sample: record_choices(module, sample)
    )


@pytest.mark.parametrize(
    ("exporter", "by_sort"),
    [("torchscript", False), ("torchscript", True), ("torch.export", False)],
)
def test_near_ties_in_another_order_are_no_fault_of_an_export(exporter, by_sort):
    module = Queries({2: 1 + 1e-6, 9: 0.5 + 2e-6, 7: 0.5 + 1e-6}, by_sort=by_sort)
    other = Queries({5: 1 + 1e-6, 10: 0.5 + 2e-6, 7: 0.5 + 1e-6}, by_sort=by_sort)
    assert judge(module, other, exporter)["y"] < 1e-6


def test_export_onnx_takes_it(tmp_path, monkeypatch):
    other = Queries({5: 1 + 1e-6}).eval()
    monkeypatch.setattr(
        to_onnx, "export_with", lambda exporter, _, *rest: export_with("torchscript", other, *rest)
    )
    path = tmp_path / "queries.onnx"
    to_onnx.export_onnx(Queries({2: 1 + 1e-6}), path, input_shape=(1, TOKENS, WIDTH))
    assert path.exists()


def test_an_export_that_scores_or_decodes_otherwise_is_refused():
    module = Queries({2: 1 + 1e-6})
    with pytest.raises(InputError, match="'values that a TopK chose' is off by"):
        judge(module, Queries({0: 0.6}))
    with pytest.raises(InputError, match="'y' is off by"):
        judge(module, Queries({5: 1 + 1e-6}, gain=1.01))


def test_other_choices_than_the_modules_are_not_compared():
    x = torch.randn(1, TOKENS, WIDTH)
    model = export_with("torchscript", Queries({}).eval(), [x], ["x"], ["y"])
    feeds = {"x": x.numpy()}
    assert run_at_choices(model, feeds, []) is None
    values, places = record_choices(Queries({}), {"x": x})[0]
    assert run_at_choices(model, feeds, [(values, places[:, :2])]) is None
    outputs, chosen = run_at_choices(model, feeds, [(values, places)])
    np.testing.assert_array_equal(chosen[0], values)
    assert list(outputs) == ["y"]
