"""How good each head of a candidate network is, against one float network."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from artifacts.decided_outputs import find_choices, pair_choices, pin_choices
from compress.model_runner import open_runner
from compress.quantize.graph import Array
from compress.sqnr import to_db


class HeadJudge:
    """Measures the heads' SQNR of networks that shall do the same as one float network.

    What a TopK chooses is the float network's for all of them, see `compress.compare`.

    Args:
        model: the float network.
        samples: to judge on.
        heads: the tensors that each head is measured at; parts of an output
            (`artifacts.ownership.read_parts`) may count as heads too.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        samples: Sequence[dict[str, Array]],
        heads: Mapping[str, Sequence[str]],
    ) -> None:
        self._heads = heads
        self._tensors = tuple(dict.fromkeys(name for names in heads.values() for name in names))
        self._choices = find_choices(model)
        reference = open_runner(model, (*self._tensors, *self._choices))
        self._samples = samples
        self._expected = [reference(samples[index]) for index in range(len(samples))]

    def measure(self, model: onnx.ModelProto) -> dict[str, float]:
        """Returns the SQNR of each head in dB: the mean noise of its outputs, samples pooled."""
        choices = pair_choices(self._choices, model)
        candidate = open_runner(pin_choices(model, tuple(choices.values())), self._tensors)
        signal = dict.fromkeys(self._tensors, 0.0)
        noise = dict.fromkeys(self._tensors, 0.0)
        for index, expected in enumerate(self._expected):
            chosen = {twin: expected[name] for name, twin in choices.items()}
            got = candidate({**self._samples[index], **chosen})
            for name in self._tensors:
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
