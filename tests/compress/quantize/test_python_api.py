"""The Python API, from files and from objects, and the example that shows it."""

import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest

import compress
from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from artifacts.onnx_inputs import input_tensors
from compress.quantize.api import quantize
from compress.quantize.result import QuantizeResult
from compress.quantize.settings import QuantizeSettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "quantize_network.py"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        cv2.imwrite(str(folder / f"{number}.png"), rng.integers(0, 256, (20, 24, 3), np.uint8))
    return folder


def test_the_package_is_the_function(residual_model):
    rng = np.random.default_rng(1)
    shape = [dim.dim_value for dim in residual_model.graph.input[0].type.tensor_type.shape.dim]
    name = residual_model.graph.input[0].name
    samples = [{name: rng.standard_normal(shape).astype(np.float32)} for _ in range(2)]
    called = compress.quantize(residual_model, samples, QuantizeSettings(target="openvino"))
    assert isinstance(called, QuantizeResult)
    direct = quantize(residual_model, samples, QuantizeSettings(target="openvino"))
    assert called.model.SerializeToString() == direct.model.SerializeToString()


def test_files_are_read_with_the_input_spec(residual_model, pictures, tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save(residual_model, path)
    plain = quantize(path, pictures)
    other = quantize(str(path), str(pictures), input_spec=InputSpec(color="bgr", pixel_scale=1.0))
    assert set(plain.outputs_db) == set(other.outputs_db)
    assert plain.model.SerializeToString() != other.model.SerializeToString()


def test_a_folder_without_pictures_is_refused(residual_model, tmp_path):
    with pytest.raises(InputError):
        quantize(residual_model, tmp_path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda name, x: [{}], "sample 0: input '.*' is missing; expected a numpy array float32"),
        (lambda name, x: [{name: x}, {name: x, "y": x}], "sample 1: input 'y' is not one of"),
        (lambda name, x: [{name: x.astype(np.float64)}], "is float64; expected float32"),
        (lambda name, x: [{name: x[0]}], "has the shape .*; expected"),
        (lambda name, x: [{name: x.tolist()}], "is a list; expected a numpy array"),
        (lambda name, x: [x], "sample 0 is a ndarray; expected a dictionary"),
        (lambda name, x: ({name: x} for _ in range(2)), "the samples are a generator; expected"),
        (lambda name, x: [{name: x * np.float32(np.nan)}], "NaN or infinite"),
    ],
)
def test_samples_that_do_not_fit_are_refused_by_name(spoil, said, residual_model):
    """Before, onnxruntime and Python told what they tripped over."""
    (name, tensor), *_ = input_tensors(residual_model).items()
    with pytest.raises(InputError, match=said):
        quantize(residual_model, spoil(name, np.ones(tensor.shape, np.float32)))


def test_weights_among_the_inputs_take_no_samples(residual_model):
    """Files of the first ONNX versions list them."""
    (name, tensor), *_ = input_tensors(residual_model).items()
    for weight in residual_model.graph.initializer:
        residual_model.graph.input.append(
            onnx.helper.make_tensor_value_info(weight.name, weight.data_type, weight.dims)
        )
    assert list(input_tensors(residual_model)) == [name]
    assert quantize(residual_model, [{name: np.ones(tensor.shape, np.float32)}]).layers


def test_the_example_runs(residual_model, pictures, tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "net.int8.onnx"
    onnx.save(residual_model, path)
    done = subprocess.run(
        [sys.executable, EXAMPLE, path, pictures, out], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert out.exists()
    assert " ms -> " in done.stdout
