"""The layer x head matrix, against networks in which one layer each is quantized."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, version_converter

from compress.quantize.prepare import prepare_network
from compress.quantize.search import sensitivity
from compress.quantize.search.sensitivity import measure_layers
from compress.quantize.settings import QuantizeSettings
from compress.quantize.streaming import StreamingPass

SETTINGS = QuantizeSettings(target="openvino", symmetric=True)


@pytest.fixture
def open_network(samples):
    def prepare(model):
        prepared = prepare_network(model, samples, SETTINGS)
        return prepared, StreamingPass(prepared, SETTINGS).run(samples)

    return prepare


def relative_noise(prepared, decisions, layer, samples, run_model):
    """Returns [outputs], of a network with one layer quantized and its result's mean corrected."""
    result = prepared.graph.node(layer).output[0]
    candidate = prepared.write_uncorrected(decisions, only=frozenset({layer}))
    models = [prepared.write_float(), candidate]
    for model in models:
        if result not in prepared.graph.outputs:
            model.graph.output.append(onnx.ValueInfoProto(name=result))
    values = [[run_model(model, sample)[result] for model in models] for sample in samples]
    item = next(item for item in prepared.quantized if item.node == layer)
    if item.weight is not None:
        differences = np.stack([wanted - got for wanted, got in values])
        axes = tuple(i for i in range(differences.ndim) if i != item.output_axis + 1)
        shift_output(candidate, result, differences.mean(axis=axes, keepdims=True)[0])
    error, signal = 0.0, 0.0
    for sample in samples:
        wanted, got = (run_model(model, sample) for model in (models[0], candidate))
        names = prepared.graph.outputs
        error += np.array([np.square(got[name] - wanted[name]).sum() for name in names])
        signal += np.array([np.square(wanted[name]).sum() for name in names])
    return error / signal


def shift_output(model, tensor, shift):
    model.graph.initializer.append(numpy_helper.from_array(shift, "mean_shift"))
    maker = next(node for node in model.graph.node if tensor in node.output)
    maker.output[0] = f"{tensor}_before"
    place = list(model.graph.node).index(maker) + 1
    model.graph.node.insert(
        place, helper.make_node("Add", [maker.output[0], "mean_shift"], [tensor])
    )


def assert_rows_agree(model, open_network, samples, run_model):
    prepared, decisions = open_network(model)
    (matrix,) = measure_layers(prepared, decisions, [samples])
    assert len(matrix.layers) > 2
    for layer, row in zip(matrix.layers, matrix.noise, strict=True):
        wanted = relative_noise(prepared, decisions, layer, samples, run_model)
        assert row == pytest.approx(wanted, rel=0.02, abs=1e-9), layer


@pytest.mark.parametrize("branches", [1, 2, 8])
def test_rows_are_those_of_one_network_per_layer(
    residual_model, open_network, samples, run_model, monkeypatch, branches
):
    monkeypatch.setattr(sensitivity, "BRANCHES", branches)
    assert_rows_agree(residual_model, open_network, samples, run_model)


def test_means_are_taken_in_newer_operator_sets(residual_model, open_network, samples, run_model):
    model = version_converter.convert_version(residual_model, 18)
    assert_rows_agree(model, open_network, samples, run_model)


def test_a_branch_goes_through_the_bodies_of_an_if(
    residual_model, open_network, samples, run_model
):
    bodies = [
        helper.make_graph(
            [helper.make_node("ReduceMax", [head], [f"{head}_most"], keepdims=0)],
            head,
            [],
            [helper.make_tensor_value_info(f"{head}_most", TensorProto.FLOAT, ())],
        )
        for head in ("dense", "classes")
    ]
    residual_model.graph.node.extend(
        [
            helper.make_node("ReduceMean", ["x"], ["light"], "light", keepdims=0),
            helper.make_node("Greater", ["light", "zero"], ["is_day"], "is_day"),
            helper.make_node(
                "If", ["is_day"], ["most"], "choose", then_branch=bodies[0], else_branch=bodies[1]
            ),
        ]
    )
    residual_model.graph.initializer.append(
        numpy_helper.from_array(np.zeros((), np.float32), "zero")
    )
    residual_model.graph.output.append(helper.make_tensor_value_info("most", TensorProto.FLOAT, ()))
    assert_rows_agree(residual_model, open_network, samples, run_model)


def test_every_set_of_samples_has_a_matrix_of_its_own(residual_model, open_network, samples):
    prepared, decisions = open_network(residual_model)
    one, other = samples[:2], [{"x": 3 * sample["x"]} for sample in samples[2:]]
    both = measure_layers(prepared, decisions, [one, other])
    for matrix, alone in zip(both, (one, other), strict=True):
        (wanted,) = measure_layers(prepared, decisions, [alone])
        assert matrix.noise == pytest.approx(wanted.noise, rel=1e-6)
    assert not np.allclose(both[0].noise, both[1].noise, rtol=0.1)
