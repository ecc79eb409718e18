"""A measured table: time of each layer against its channel counts, on the target runtime."""

import json
import logging
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from artifacts.atomic import write_json
from framefit.network_session import open_in_memory
from framefit.single_layer import make_layer
from latency_budget.clock import MonotonicClock

if TYPE_CHECKING:
    from compress.prune.analysis.trace import LayerUse

Progress = Callable[[str, int, int], None]
SHARES = (1.0, 0.75, 0.5, 0.25, 0.125)
STEP = 8
RUNS, WARM_UP = 12, 3
_log = logging.getLogger(__name__)

Table = dict[str, float]


@dataclass
class LayerTimes:
    """Times single layers on a runtime; between measured channel counts it interpolates.

    Attributes:
        runtime: a name of `engines.runtimes.BACKENDS`.
        folder: where the table is kept, by the digest of everything it depends on; None keeps none.
        is_int8: whether the layers compute in integers, see `make_layer`.
        times: per layer, ms by "inputs,outputs".
    """

    runtime: str
    folder: Path | None = None
    is_int8: bool = False
    times: dict[str, Table] = field(default_factory=dict)

    def build(
        self,
        layers: Sequence["LayerUse"],
        progress: Progress | None = None,
    ) -> None:
        """Measures every layer at some channel counts, or reads what was measured before.

        The table is written after each layer, so that a run that is killed loses one at most.
        """
        wanted = {
            describe_layer(layer, whole_groups=layer.loses_whole_groups): layer for layer in layers
        }
        path = None if self.folder is None else self.folder / f"layers-{self._digest(wanted)}.json"
        if path is not None and path.is_file():
            self.times = _read_table(path, wanted)
        missing = [key for key in wanted if key not in self.times]
        for index, key in enumerate(missing):
            if progress is not None:
                progress("time layers", index, len(missing))
            self.times[key] = self._measure(wanted[key], json.loads(key)["whole"])
            if path is not None:
                write_json(path, self.times)

    def __call__(
        self, layer: "LayerUse", inputs: int, outputs: int, *, whole_groups: bool
    ) -> float:
        """Returns the time in ms of a layer at some channel counts, by bilinear interpolation."""
        table = self.times[describe_layer(layer, whole_groups=whole_groups)]
        points = [tuple(map(int, key.split(","))) for key in table]
        if whole_groups:
            counts = sorted(point[1] for point in points)
            by_output = {point[1]: table[f"{point[0]},{point[1]}"] for point in points}
            low, high, share = _bracket(counts, outputs)
            return by_output[low] * (1 - share) + by_output[high] * share
        rows, columns = (sorted({point[side] for point in points}) for side in (0, 1))
        low_in, high_in, share_in = _bracket(rows, inputs)
        low_out, high_out, share_out = _bracket(columns, outputs)
        corners = [
            (1 - share_in) * (1 - share_out) * table[f"{low_in},{low_out}"],
            (1 - share_in) * share_out * table[f"{low_in},{high_out}"],
            share_in * (1 - share_out) * table[f"{high_in},{low_out}"],
            share_in * share_out * table[f"{high_in},{high_out}"],
        ]
        return sum(corners)

    def _digest(self, keys: Sequence[str] | dict[str, Any]) -> str:
        from engines.runtimes import BACKENDS
        from latency_budget.sensors import describe_machine

        status = BACKENDS[self.runtime].probe()
        machine = describe_machine()["processor"]
        facts = [self.runtime, status.version, machine, SHARES, STEP, RUNS, sorted(keys)]
        facts += ["int8"] if self.is_int8 else []
        return sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def _measure(self, layer: "LayerUse", is_whole: bool) -> Table:
        step = layer.settings.get("groups", 1)
        step = step if step > 1 else STEP
        counts_in, counts_out = (
            _counts(size, step) for size in (layer.inputs.size, layer.outputs.size)
        )
        pairs = list(product(counts_in, counts_out))
        if is_whole:
            pairs = list(zip(*_group_counts(layer), strict=True))
        return {
            f"{a},{b}": self._time(make_layer(layer, a, b, is_whole=is_whole, is_int8=self.is_int8))
            for a, b in pairs
        }

    def _time(self, model: onnx.ModelProto) -> float:
        """Returns the shortest of some inferences, ms: what the layer takes undisturbed."""
        clock = MonotonicClock()
        with open_in_memory(model, self.runtime) as session:
            feeds = {item.name: np.ones(item.shape, item.dtype) for item in session.inputs}
            times = []
            for run in range(WARM_UP + RUNS):
                start = clock.now_ns()
                session.run_borrowed(feeds)
                if run >= WARM_UP:
                    times.append(clock.now_ns() - start)
        return min(times) / 1e6


def describe_layer(layer: "LayerUse", *, whole_groups: bool) -> str:
    """Returns what a layer's time depends on, apart from how many channels are kept."""
    return json.dumps(
        {
            "kind": layer.kind,
            "input": layer.input_shape,
            "output": layer.output_shape,
            "weight": layer.weight_shape,
            "settings": {name: value for name, value in sorted(layer.settings.items())},
            "whole": whole_groups,
        },
        default=list,
    )


def _read_table(path: Path, wanted: dict[str, Any]) -> dict[str, Table]:
    try:
        content = json.loads(path.read_text())
        return {
            key: {name: float(value) for name, value in content[key].items()}
            for key in wanted
            if content.get(key)
        }
    except (OSError, ValueError, TypeError, AttributeError) as error:
        _log.debug("table %s is not used: %s", path, error)
        return {}


def _counts(full: int, step: int) -> list[int]:
    """Returns the channel counts to measure: shares of all, in steps."""
    rounded = {math.ceil(full * share / step) * step for share in SHARES[1:]}
    return sorted({min(count, full) for count in rounded} | {full, min(step, full)})


def _group_counts(layer: "LayerUse") -> tuple[list[int], list[int]]:
    """Returns input and output channels of a layer that loses whole groups."""
    groups = layer.settings["groups"]
    kept = sorted({max(1, round(groups * share)) for share in SHARES})
    per_in, per_out = layer.inputs.size // groups, layer.outputs.size // groups
    return [count * per_in for count in kept], [count * per_out for count in kept]


def _bracket(counts: Sequence[int], value: int) -> tuple[int, int, float]:
    """Returns the neighbours of a value and its place between them, 0 to 1."""
    if value <= counts[0]:
        return counts[0], counts[0], 0.0
    if value >= counts[-1]:
        return counts[-1], counts[-1], 0.0
    index = bisect_right(counts, value)
    low, high = counts[index - 1], counts[index]
    return low, high, (value - low) / (high - low)
