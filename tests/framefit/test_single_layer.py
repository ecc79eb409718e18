"""Networks of one layer: the same layer in float and in integers, at any channel counts."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch")

from compress.prune.analysis.api import find_channels  # noqa: E402
from engines.runtimes import open_session  # noqa: E402
from framefit.network_clock import RUNTIMES  # noqa: E402
from framefit.single_layer import make_layer  # noqa: E402

SCALE = 0.01
MODULES = {
    "conv": torch.nn.Conv2d(16, 24, 3, 2, 1, dilation=1),
    "groups": torch.nn.Conv2d(16, 32, 3, 1, 1, groups=4),
    "depthwise": torch.nn.Conv2d(16, 16, 5, 1, 2, groups=16),
    "transposed": torch.nn.ConvTranspose2d(16, 8, 2, 2),
    "linear": torch.nn.Linear(16, 24),
}


def find_layer(module):
    """Returns the one layer of a module."""
    is_linear = isinstance(module, torch.nn.Linear)
    sample = torch.randn(6, 16) if is_linear else torch.randn(1, 16, 9, 12)
    (layer,) = find_channels(torch.nn.Sequential(module), (sample,)).trace.layers
    return layer


def run(model, runtime, values, folder):
    path = folder / "layer.onnx"
    onnx.save(model, path)
    with open_session(path, runtime) as session:
        assert session.inputs[0].dtype == values.dtype
        return next(iter(session.run({"x": values}).values()))


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", MODULES)
def test_integers_compute_what_float_does(name, runtime, tmp_path):
    layer = find_layer(MODULES[name])
    is_whole = name == "depthwise"
    counts = (8, 8) if is_whole else (8, 16)
    in_float, in_int8 = (
        make_layer(layer, *counts, is_whole=is_whole, is_int8=chosen) for chosen in (False, True)
    )
    (weight,) = in_float.graph.initializer
    stored = next(item for item in in_int8.graph.initializer if item.name == "w")
    values = numpy_helper.to_array(stored)
    assert values.dtype == np.int8
    weight.CopyFrom(numpy_helper.from_array((values * SCALE).astype(np.float32), "w"))
    shape = [item.dim_value for item in in_int8.graph.input[0].type.tensor_type.shape.dim]
    pixels = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    wanted = run(in_float, runtime, (pixels * SCALE).astype(np.float32), tmp_path)
    found = run(in_int8, runtime, pixels, tmp_path)
    assert found.dtype == np.uint8
    assert found.max() > 0
    np.testing.assert_allclose(found * SCALE, np.clip(wanted, 0, 2.55), atol=1.01 * SCALE)
