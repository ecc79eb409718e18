"""What layers' weights are looked at by."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.layer_weights import pick_outputs


@pytest.mark.parametrize(
    ("operator", "shape", "axis", "groups"),
    [
        ("Conv", (12, 4, 3, 3), 0, 1),
        ("Conv", (12, 2, 3, 3), 0, 2),
        ("Conv", (4, 1, 3, 3), 0, 4),
        ("ConvTranspose", (4, 12, 3, 3), 1, 1),
        ("ConvTranspose", (4, 6, 3, 3), 1, 2),
    ],
)
@pytest.mark.parametrize("step", [1, 2, 5])
def test_picked_channels_are_the_layers_own(
    operator, shape, axis, groups, step, make_model, run_model
):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32)
    feeds = {"x": rng.standard_normal((1, 4, 8, 8)).astype(np.float32)}

    def run(values):
        node = helper.make_node(operator, ["x", "w"], ["y"], "layer", group=groups)
        return run_model(make_model([node], {"w": values}, {"x": (1, 4, 8, 8)}, ["y"]), feeds)["y"]

    whole, some = run(weight), run(pick_outputs(weight, axis, groups, step))
    apart = whole.reshape(groups, -1, *whole.shape[2:])[:, ::step]
    np.testing.assert_allclose(some[0], apart.reshape(-1, *whole.shape[2:]), rtol=1e-4, atol=1e-4)


def test_picked_columns_of_a_matrix():
    np.testing.assert_array_equal(
        pick_outputs(np.arange(12).reshape(3, 4), 1, 1, 3), [[0, 3], [4, 7], [8, 11]]
    )
