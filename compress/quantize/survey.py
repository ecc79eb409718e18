"""What a float network's tensors hold on all calibration samples: one forward pass, little memory.

Ranges are chosen from a survey of every sample, so that the streaming pass, which keeps activations
of all its samples, can do with a few of them.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

import numpy as np

from compress.errors import CalibrationError
from compress.progress import Progress
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.observers import ObservedTensor
from compress.quantize.placement import QuantizedNode
from compress.quantize.side_by_side import map_ahead, threads_each
from compress.quantize.spread_values import spread_places

VALUES_IN_ALL = 1 << 24
FEWEST_VALUES = 1 << 16
MOST_BYTES = 1 << 28
"""Of the tensors of one sample that are looked at, up to which two are computed side by side."""

Seen = TypeVar("Seen")


@dataclass
class SurveyedTensor:
    """What was seen of one tensor.

    Attributes:
        values: one flat array per sample, some of its values, spread evenly (`spread_values`).
        low: the smallest value of all samples.
        high: the largest.
    """

    values: list[Array] = field(default_factory=list)
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, array: Array, count: int) -> Self:
        """Looks at one sample and keeps at most `count` of its values."""
        flat = array.reshape(-1)
        kept = flat[spread_places(flat.size, count)].copy()
        low, high = flat.min(initial=np.inf), flat.max(initial=-np.inf)
        return cls([kept], float(low), float(high))

    @property
    def is_finite(self) -> bool:
        """Whether no value is NaN or infinite."""
        return self.is_empty or bool(np.isfinite([self.low, self.high]).all())

    @property
    def is_empty(self) -> bool:
        """Whether there were no values: no sample had a region of interest."""
        return self.low > self.high

    def extend(self, other: "SurveyedTensor") -> None:
        """Takes over what was seen of the tensor on other samples."""
        self.values += other.values
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    def move(self, change: float) -> None:
        """Adds a constant to all that was seen."""
        self.values = [array + np.float32(change) for array in self.values]
        self.low, self.high = self.low + change, self.high + change


Survey = dict[str, SurveyedTensor]


def measure_growth(survey: Survey, other: Survey) -> dict[str, float]:
    """Returns how many times as wide other samples make the range of each tensor, 0 included."""
    growths = {}
    for name, more in other.items():
        seen = survey[name]
        low, high = min(seen.low, 0.0), max(seen.high, 0.0)
        wider = max(high, more.high) - min(low, more.low)
        growths[name] = wider / (high - low) if high > low else 1.0
    return growths


def observe_surveyed(tensors: Sequence[SurveyedTensor]) -> ObservedTensor:
    """Returns what an observer needs to know of tensors that share their range."""
    values = [array for item in tensors for array in item.values]
    low, high = min(item.low for item in tensors), max(item.high for item in tensors)
    return ObservedTensor.of(values, (low, high))


def list_ranged(graph: Graph, quantized: Sequence[QuantizedNode]) -> list[str]:
    """Returns the tensors that get a range: what quantized nodes read, and what some move."""
    ranged: dict[str, None] = {}
    for item in quantized:
        node = graph.node(item.node)
        ranged |= dict.fromkeys(node.input[position] for position in item.activations)
        ranged |= dict.fromkeys(node.output if item.tied else ())
    return list(ranged)


def values_of_each(tensors: int, samples: int) -> int:
    """Returns how many values of a tensor are kept of a sample."""
    return max(FEWEST_VALUES, VALUES_IN_ALL // tensors) // samples + 1


def survey_tensors(
    graph: Graph,
    tensors: Sequence[str],
    samples: Sequence[Mapping[str, Array]],
    progress: Progress | None = None,
    what: str = "survey",
) -> Survey:
    """Looks at tensors of the float network on every sample; `progress` is told `what` it is.

    At most VALUES_IN_ALL values are kept (or FEWEST_VALUES of each tensor), evenly spread.

    Raises:
        CalibrationError: a tensor is NaN or infinite; the message names the first node that
            computes such a value, and the sample.
    """
    survey: Survey = {name: SurveyedTensor() for name in tensors}
    if not survey or len(samples) == 0:
        return survey
    each = values_of_each(len(survey), len(samples))

    def look(values: Mapping[str, Array]) -> dict[str, SurveyedTensor]:
        return {name: SurveyedTensor.of(values[name], each) for name in survey}

    found = look_at_samples(graph, list(survey), samples, look, progress, what)
    for index, seen in enumerate(found):
        if not all(item.is_finite for item in seen.values()):
            raise _name_culprit(graph, samples[index], index)
        for name, item in seen.items():
            survey[name].extend(item)
    return survey


def look_at_samples(
    graph: Graph,
    tensors: Sequence[str],
    samples: Sequence[Mapping[str, Array]],
    look: Callable[[Mapping[str, Array]], Seen],
    progress: Progress | None = None,
    what: str = "survey",
) -> Iterator[Seen]:
    """Computes tensors of the float network, and yields what `look` makes of them, by sample.

    Two samples are computed side by side, unless what is looked at takes much memory.
    """
    computed = [name for name in tensors if name not in graph.inputs]
    at_once = 1 if are_large(graph, tensors) else len(samples)
    threads = threads_each(at_once)
    run: Callable[[Mapping[str, Array]], dict[str, Array]] = dict
    if computed:
        run = Subgraph(graph, graph.nodes, graph.weights, samples[0], computed, threads=threads).run

    def compute(sample: Mapping[str, Array]) -> Seen:
        return look(dict(sample) | run(sample))

    opened = (samples[index] for index in range(len(samples)))
    results = map(compute, opened) if at_once == 1 else map_ahead(compute, opened)
    for done, result in enumerate(results):
        if progress is not None:
            progress(what, done, len(samples))
        yield result
    if progress is not None:
        progress(what, len(samples), len(samples))


def are_large(graph: Graph, tensors: Sequence[str]) -> bool:
    """Whether what is looked at of one sample is so large that no second is computed beside it."""
    computed = (name for name in tensors if name not in graph.inputs)
    return sum(4 * math.prod(graph.shapes.get(name, ())) for name in computed) > MOST_BYTES


def _name_culprit(graph: Graph, sample: Mapping[str, Array], index: int) -> CalibrationError:
    """Returns an error that names the first node whose result is NaN or infinite."""
    writers = {name: node for node in graph.nodes for name in node.output if name}
    network = Subgraph(graph, graph.nodes, graph.weights, sample, list(writers))
    for name, value in network.run(sample).items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return not_finite(f"'{name}', the output of node '{writers[name].name}',", index)
    return not_finite(f"'{next(iter(sample))}', an input of the network,", index)


def not_finite(what: str, sample: int) -> CalibrationError:
    """Returns the error for a tensor that is NaN or infinite for a calibration sample."""
    return CalibrationError(
        f"tensor {what} is NaN or infinite for calibration sample {sample}",
        "finite activations",
        "check that sample and the input spec",
    )
