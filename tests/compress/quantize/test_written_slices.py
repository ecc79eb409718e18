import numpy as np
import torch
from torch import nn

from compress.quantize.graph import Graph
from compress.quantize.simplify import simplify
from export.exporters import export_with
from export.fp16_check import run_model


class Correlation(nn.Module):
    """Fills a volume of correlations in place: as traced, a place for every value is computed."""

    def forward(self, left, right):
        width = left.shape[3]
        volume = left.new_zeros(left.shape[0], 3, *left.shape[2:])
        for shift in range(3):
            products = left[..., shift:] * right[..., : width - shift]
            volume[:, shift, :, shift:] = products.mean(1)
        return (volume,)


def test_slices_written_in_a_traced_network_are_joined():
    pair = [torch.rand(1, 4, 6, 10), torch.rand(1, 4, 6, 10)]
    model = export_with("torchscript", Correlation(), pair, ["left", "right"], ["output"])
    assert any(node.op_type == "ScatterND" for node in model.graph.node)
    graph = Graph(model)
    done = simplify(graph)
    assert sum("writes a slice" in line for line in done) == 3
    kinds = {node.op_type for node in graph.nodes}
    assert not kinds & {"Expand", "ScatterND"}
    feeds = {name: item.numpy() for name, item in zip(("left", "right"), pair, strict=True)}
    (wanted,), (got,) = (run_model(item, [feeds]) for item in (model, graph.to_model()))
    np.testing.assert_allclose(got["output"], wanted["output"], atol=1e-6)
