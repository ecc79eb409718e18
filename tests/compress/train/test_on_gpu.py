"""Training on a real GPU: the same steps as on the CPU, and what comes back lies on the CPU."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from artifacts.onnx_file import load_onnx
from compress.distill.api import distill_module
from compress.qat.api import train_quantized
from compress.quantize.api import quantize_model
from compress.quantize.rounding import Nearest
from compress.quantize.settings import QuantizeSettings
from compress.train.settings import TrainerSettings
from compress.train.trainer import train
from export.to_onnx import export_onnx

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no NVIDIA GPU here"),
]
SETTINGS = {"steps": 12, "batch_size": 4, "threads": 1, "learning_rate": 1e-2}


class StoppedError(Exception):
    """Stands for a kill."""


class TwoHeads(nn.Module):
    """A shared trunk and two heads."""

    def __init__(self, width: int, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.trunk = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.masks = nn.Conv2d(width, 3, 1)
        self.metres = nn.ConvTranspose2d(width, 1, 2, 2)

    def forward(self, x):
        features = self.trunk(x)
        return {"masks": self.masks(features), "metres": self.metres(features)}


def lesson(small):
    return small.Imitation(small.make_network(1), small.make_network(2).eval())


def largest_difference(left, right) -> float:
    return max(float((left[name].float() - right[name].float()).abs().max()) for name in left)


def pictures(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"image": rng.standard_normal((3, 16, 16), np.float32)} for _ in range(count)]


def is_on_cpu(weights) -> bool:
    return all(value.device.type == "cpu" for value in weights.values())


def test_a_gpu_is_taken_and_takes_the_steps_of_a_cpu(small) -> None:
    """Without Dropout, whose random numbers differ, and but for biases that BatchNorm takes away.

    Their gradient is 0 up to rounding, which Adam scales to steps of full length.
    """
    results = []
    for device in ("cpu", "auto"):
        learner = lesson(small)
        learner.student[2].p = 0.0
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.max_memory_allocated()
        settings = TrainerSettings(**SETTINGS, device=device)
        results.append(train(learner, small.make_samples(), settings).weights)
        assert (torch.cuda.max_memory_allocated() > before) == (device == "auto")
    assert is_on_cpu(results[1])
    free = {"0.bias", "3.0.0.bias", "1.running_mean", "3.0.1.running_mean"}
    on_cpu, on_gpu = ({name: one[name] for name in one.keys() - free} for one in results)
    assert 0 < largest_difference(on_cpu, on_gpu) < 1e-4


def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(small, tmp_path: Path) -> None:
    settings = TrainerSettings(**SETTINGS, save_every=3)
    straight = train(lesson(small), small.make_samples(), settings).weights
    state = tmp_path / "run.state"

    def stop(step) -> None:
        if step.step == 7:
            raise StoppedError

    with pytest.raises(StoppedError):
        train(lesson(small), small.make_samples(), settings, state_path=state, report=stop)
    resumed = train(lesson(small), small.make_samples(), settings, state_path=state)
    assert resumed.resumed_step == 6
    assert largest_difference(straight, resumed.weights) == 0


def test_recomputed_activations_change_little(small) -> None:
    results = []
    for is_on in (False, True):
        settings = TrainerSettings(**SETTINGS, recomputes_activations=is_on)
        results.append(train(lesson(small), small.make_samples(), settings).weights)
    assert largest_difference(*results) < 1e-4


@pytest.mark.filterwarnings("default")
def test_a_compiled_network_learns_the_same() -> None:
    losses = []
    for is_compiled in (False, True):
        training = TrainerSettings(**SETTINGS, is_compiled=is_compiled, probe_every=6)
        result = distill_module(
            TwoHeads(6, 1), TwoHeads(12, 2), pictures(16), pictures(4, 1), training=training
        )
        losses.append(result.losses_after)
    assert losses[1] == pytest.approx(losses[0], rel=0.05)
    assert losses[0] != result.losses_before


def test_bfloat16_leaves_the_weights_in_float32(small) -> None:
    exact, coarse = (
        train(lesson(small), small.make_samples(), TrainerSettings(**SETTINGS, precision=name))
        for name in ("float32", "bfloat16")
    )
    assert all(value.dtype != torch.bfloat16 for value in coarse.weights.values())
    assert 0 < largest_difference(exact.weights, coarse.weights) < 0.1


def test_workers_and_pinned_memory_change_nothing(small) -> None:
    results = [
        train(
            lesson(small), small.make_samples(), TrainerSettings(**SETTINGS, workers=workers)
        ).weights
        for workers in (0, 1)
    ]
    assert largest_difference(*results) == 0


def test_a_distilled_student_is_closer_in_each_head_and_lies_on_the_cpu() -> None:
    student, teacher = TwoHeads(6, 1), TwoHeads(12, 2)
    training = TrainerSettings(**SETTINGS | {"steps": 80}, probe_every=20)
    result = distill_module(student, teacher, pictures(32), pictures(8, 1), training=training)
    assert all(
        result.losses_after[head] < result.losses_before[head] for head in result.losses_after
    )
    assert is_on_cpu(result.module.state_dict())
    result.module(torch.zeros(1, 3, 16, 16))


def test_qat_brings_back_what_rounding_took(tmp_path: Path) -> None:
    path = tmp_path / "two.onnx"
    export_onnx(TwoHeads(12, 2).eval(), path, input_shape={"image": (1, 3, 16, 16)})
    network = load_onnx(path)
    feeds = [{"image": picture["image"][None]} for picture in pictures(8)]
    settings = QuantizeSettings(weights="int4", int4_share=1, rounding=Nearest())
    quantized = quantize_model(network, feeds, settings).model
    training = TrainerSettings(
        steps=100,
        batch_size=4,
        learning_rate=3e-3,
        weight_decay=0.0,
        average_decay=0.9,
        probe_every=25,
        threads=1,
    )
    result = train_quantized(
        quantized, network, pictures(32), pictures(8, 1), training=training, inputs=("image",)
    )
    assert result.training.score_after < 0.97
    onnx.checker.check_model(result.model)


def test_trials_of_learning_rates_leave_nothing_behind(small) -> None:
    plain = {**SETTINGS, "steps": 40, "learning_rate": None}
    found = train(
        lesson(small), small.make_samples(), TrainerSettings(**plain), probe=small.make_probe()
    )
    assert len(found.rate.trials) >= 3
    same = TrainerSettings(**plain | {"learning_rate": found.rate.rate})
    given = train(lesson(small), small.make_samples(), same, probe=small.make_probe())
    if not found.rate.fallen:
        assert largest_difference(found.weights, given.weights) == 0
