"""Random graphs, run by torch, give what onnxruntime gives; before and after quantization."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch

from artifacts.errors import InputError
from benchmarks.random_graphs.check import GRAPHS, draw_samples
from benchmarks.random_graphs.options import SETTINGS
from compress.model_runner import open_runner
from compress.qat.onnx_module import OnnxModule
from compress.qat.quantized_module import QuantizedModule
from compress.quantize.api import quantize_model
from compress.sqnr import SignalToNoise


def least_db(wanted: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> float:
    """Returns the least SQNR of the outputs; samples of a batch are stacked by torch."""
    sums = [SignalToNoise() for _ in wanted]
    for one, (name, values) in zip(sums, wanted.items(), strict=True):
        one.update(values, got[name].reshape(values.shape))
    return min(one.sqnr_db for one in sums)


def run(module: OnnxModule, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with torch.no_grad():
        results = module(*map(torch.from_numpy, sample.values()))
    return {name: value.numpy() for name, value in results.items()}


def check(kind: str, seed: int) -> bool:
    """Compares a graph, and what is quantized of it; returns whether anything was."""
    model, (sample, *_) = GRAPHS[kind](seed).to_model(), draw_samples(seed)
    wanted = open_runner(model)(sample)
    assert least_db(wanted, run(OnnxModule(model), sample)) > 80
    target = ("openvino", "tensorrt", "onnxruntime")[seed % 3]
    (settings,) = SETTINGS["any"](seed, target, "int8")
    try:
        quantized = quantize_model(model, draw_samples(seed), settings).model
    except InputError as error:
        if "nothing to quantize" not in str(error):
            raise
        return False
    said = open_runner(quantized)(sample)
    module = QuantizedModule(quantized)
    trained = run(module, sample)
    least = min(45.0, least_db(wanted, said) + 7)
    assert least_db(said, trained) > least
    assert least_db(trained, open_runner(module.write_model())(sample)) > least
    return True


def count(kind: str, seeds: Iterable[int]) -> int:
    return sum(check(kind, seed) for seed in seeds)


@pytest.mark.parametrize("kind", GRAPHS)
def test_random_graphs_are_run_as_written(kind):
    assert count(kind, range(6)) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", GRAPHS)
def test_many_random_graphs_are_run_as_written(kind):
    assert count(kind, range(6, 60)) > 40
