"""What layers' weights are looked at by."""

import numpy as np
import pytest
from onnx import helper

from compress.quantize.layer_weights import WeightLayout, pick_outputs, to_rows
from compress.quantize.rounding.round_layer import LayerInputs, observe_inputs


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


SHAPES = [
    ((6, 8), 0, 4),
    ((8, 6), 1, 2),
    ((4, 8, 3, 3), 0, 2),
    ((4, 8, 1, 1), 0, 4),
    ((8, 4, 3, 2), 1, 4),
]


@pytest.mark.parametrize(("shape", "axis", "group"), SHAPES)
@pytest.mark.parametrize("is_blocked", [True, False])
def test_a_weight_stands_for_what_its_rows_do(shape, axis, group, is_blocked):
    rng = np.random.default_rng(0)
    layout = WeightLayout.of(shape, axis, group if is_blocked else None)
    kernel = int(np.prod(shape[2:]))
    scales = rng.uniform(0.5, 2, (shape[axis], layout.blocks.max() + 1))
    assert scales.shape[1] == (shape[1 - axis] // group * kernel if is_blocked else 1)
    integers = rng.integers(-7, 8, (shape[axis], layout.blocks.size))
    weight = layout.to_weight(integers, scales, 4)
    got = to_rows(weight.dequantize(), axis)
    np.testing.assert_allclose(got, integers * scales[:, layout.blocks], rtol=1e-6)
    # As ONNX has it: neighbouring input channels at one position of the kernel share a scale.
    per_channel = layout.blocks.reshape(shape[1 - axis], kernel)
    share = per_channel[:, None] == per_channel
    neighbours = np.arange(shape[1 - axis]) // group
    wanted = (neighbours[:, None] == neighbours) if is_blocked else True
    assert (share == np.broadcast_to(wanted, share.shape[:2])[:, :, None]).all()
    assert weight.axis == (1 - axis if is_blocked else axis)


@pytest.mark.parametrize(
    ("shape", "group", "block"),
    [
        ((6, 8), 4, 4),
        ((6, 8), 3, None),
        ((6, 8), 16, None),
        ((6, 8), 8, None),
        ((6, 8, 1, 1), 8, None),
        ((6, 8, 3, 3), 8, 8),
    ],
)
def test_blocks_are_had_where_they_divide_the_inputs_into_more_than_one_scale(shape, group, block):
    assert WeightLayout.of(shape, 0, group).block == block
    assert WeightLayout.of(shape, 0, None).block is None


@pytest.mark.parametrize(
    ("operator", "shape", "axis", "groups"),
    [
        ("Conv", (6, 2, 3, 3), 0, 2),
        ("ConvTranspose", (4, 6, 3, 3), 1, 1),
        ("ConvTranspose", (4, 3, 3, 3), 1, 2),
        ("ConvTranspose", (4, 3, 3, 3), 1, 4),
    ],
)
def test_moments_of_a_layer_know_what_rounding_costs_its_output(
    operator, shape, axis, groups, make_model, run_model
):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal(shape).astype(np.float32)
    samples = rng.standard_normal((5, 1, 4, 8, 8)).astype(np.float32)
    node = helper.make_node(operator, ["x", "w"], ["y"], "layer", group=groups)

    def run(values, sample):
        model = make_model([node], {"w": values}, {"x": (1, 4, 8, 8)}, ["y"])
        return run_model(model, {"x": sample})["y"]

    rounded = np.round(weight)
    errors = np.stack([run(weight, x) - run(rounded, x) for x in samples])
    inputs = LayerInputs(
        samples=len(samples),
        read=lambda index: (samples[index], samples[index]),
        output_shape=errors.shape[1:],
        is_centered=False,
    )
    fit, held_out = observe_inputs(node, weight, axis, inputs)
    is_held_out = np.arange(len(samples)) == 1
    rows = to_rows(weight, axis), to_rows(rounded, axis)
    for moments, part in ((fit, errors[~is_held_out]), (held_out, errors[is_held_out])):
        per_channel = np.square(part).mean(axis=(0, 1, 3, 4))
        # The groups of a transposed convolution share their rows.
        wanted = per_channel.reshape(-1, len(rows[0])).sum(axis=0)
        np.testing.assert_allclose(moments.row_errors(*rows), wanted, rtol=1e-3)
