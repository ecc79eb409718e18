"""Networks that ask whether they are exported, and return something else then."""

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from export.fp16_check import run_model
from export.to_onnx import export_onnx


class Detector(nn.Module):
    """Detections and maps as YOLOv6 returns them: the maps are left out in an export."""

    def __init__(self, is_refusing=False):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)
        self.is_refusing = is_refusing

    def forward(self, x):
        maps = self.layer(x)
        if torch.onnx.is_in_onnx_export() and not self.is_refusing:
            return maps.flatten(2).sigmoid()
        return [maps.flatten(2).sigmoid(), [maps]]


@pytest.mark.parametrize("exporter", ["torch.export", "torchscript"])
def test_the_file_has_the_outputs_of_an_export(exporter, tmp_path):
    module, notes = Detector(), []
    path = tmp_path / "detector.onnx"
    shape = (1, 3, 8, 10)
    export_onnx(module, path, input_shape=shape, exporters=(exporter,), notify=notes.append)
    assert notes == ["the network has other outputs in an export; the file has those"]
    model = onnx.load(path)
    assert len(model.graph.output) == 1
    x = torch.rand(shape)
    (found,) = run_model(model, [{"input": x.numpy()}])
    (values,) = found.values()
    np.testing.assert_allclose(values, module(x)[0].detach().numpy(), rtol=1e-5)
    assert not torch.onnx.is_in_onnx_export()


def test_a_network_that_answers_alike_keeps_its_outputs(tmp_path):
    notes = []
    path = tmp_path / "detector.onnx"
    export_onnx(Detector(True), path, input_shape=(1, 3, 8, 10), notify=notes.append)
    assert len(onnx.load(path).graph.output) == 2
    assert notes == []
