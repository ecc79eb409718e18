"""How good each head of a candidate network is, against one float network."""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import onnx

from artifacts.decided_outputs import find_choices, pair_choices, pin_choices
from artifacts.output_parts import OutputPart, part_heads, with_parts
from artifacts.ownership import read_heads
from compress.model_runner import open_runner
from compress.quantize.graph import Array
from compress.quantize.known_parts import read_known_parts
from compress.sqnr import to_db


class HeadJudge:
    """Measures the heads' SQNR of networks that shall do the same as one float network.

    Places that are chosen are the float network's for all of them, see `compress.compare`.

    Args:
        model: the float network.
        samples: to judge on.
        heads: the tensors that each head is measured at, or parts of them.
        parts: those parts.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        samples: Sequence[dict[str, Array]],
        heads: Mapping[str, Sequence[str]],
        parts: Sequence[OutputPart] = (),
    ) -> None:
        self._heads = heads
        self._parts = parts
        self._measured = tuple(dict.fromkeys(name for names in heads.values() for name in names))
        taken = {part.name: part.tensor for part in parts}
        self._tensors = tuple(dict.fromkeys(taken.get(name, name) for name in self._measured))
        self._choices = find_choices(model)
        reference = open_runner(model, (*self._tensors, *self._choices))
        self._samples = samples
        self._expected = [
            with_parts(reference(samples[index]), parts) for index in range(len(samples))
        ]

    @classmethod
    def of_outputs(cls, model: onnx.ModelProto, samples: Sequence[dict[str, Array]]) -> Self:
        """Returns what judges by a network's own heads, and by the unlike parts of its outputs."""
        parts = read_known_parts(model)
        heads = read_heads(model) | part_heads(parts)
        return cls(model, samples, heads, parts)

    def measure(self, model: onnx.ModelProto) -> dict[str, float]:
        """Returns the SQNR of each head in dB: the mean noise of its outputs, samples pooled."""
        choices = pair_choices(self._choices, model)
        candidate = open_runner(pin_choices(model, tuple(choices.values())), self._tensors)
        signal = dict.fromkeys(self._measured, 0.0)
        noise = dict.fromkeys(self._measured, 0.0)
        for index, expected in enumerate(self._expected):
            chosen = {twin: expected[name] for name, twin in choices.items()}
            got = with_parts(candidate({**self._samples[index], **chosen}), self._parts)
            for name in self._measured:
                value = expected[name]
                signal[name] += float(np.sum(np.square(value, dtype=np.float64)))
                error = np.subtract(got[name], value, dtype=np.float64)
                noise[name] += float(np.sum(np.square(error)))
        return {
            head: float(
                to_db(
                    np.ones(1),
                    np.mean([[noise[name] / (signal[name] or 1.0)] for name in outputs], axis=0),
                )[0]
            )
            for head, outputs in self._heads.items()
        }
