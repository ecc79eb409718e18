"""How near changed networks stay to the original one, output by output."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from framefit.training_samples import Sample

if TYPE_CHECKING:
    from torch import Tensor, nn

FEW = 4
"""Samples that tell which outputs join unlike tensors."""


def measure_outputs(
    original: "nn.Module",
    changed: Mapping[str, "nn.Module"],
    samples: Sequence[Sample],
    inputs: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Returns the SQNR of each output, or part of one, by its name, for each changed network.

    One sample is computed after the other, so that memory holds the answers to one.

    Args:
        original: what is right by definition; in evaluation mode, on the CPU as the others are.
        changed: the networks to judge.
        samples: held out, without a batch axis.
        inputs: names of the networks' arguments in a sample, in their order.

    Returns:
        by output, and in that by network, dB.
    """
    import torch

    from compress.sqnr import SignalToNoise
    from compress.train.batches import stack_samples
    from compress.train.unit_parts import find_parts

    def read(index: int) -> "tuple[Tensor, ...]":
        batch = stack_samples([samples[index]])
        return tuple(batch[name] for name in inputs)

    with torch.inference_mode():
        parts = find_parts([_answer(original, read(i)) for i in range(min(len(samples), FEW))])
        found: dict[str, dict[str, SignalToNoise]] = {}
        for index in range(len(samples)):
            given = read(index)
            wanted = parts.split(_answer(original, given))
            for label, module in changed.items():
                got = parts.split(_answer(module, given))
                for name, reference in wanted.items():
                    meter = found.setdefault(name, {}).setdefault(label, SignalToNoise())
                    meter.update(reference.numpy(), got[name].numpy())
    return {
        name: {label: meter.sqnr_db for label, meter in meters.items()}
        for name, meters in found.items()
    }


def _answer(module: "nn.Module", inputs: "tuple[Tensor, ...]") -> "dict[str, Tensor]":
    from compress.train.answers import answer, comparable

    return {name: value.clone() for name, value in comparable(answer(module, inputs)).items()}
