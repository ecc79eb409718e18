"""How much memory and disk a quantization will take, before it starts."""

import math
import shutil
import tempfile
from dataclasses import dataclass

from artifacts.errors import InputError
from compress.quantize.prepared import PreparedNetwork
from compress.quantize.settings import QuantizeSettings
from compress.quantize.steps import plan_steps

BYTES_PER_VALUE = 4
RUNTIME_BYTES = 300 << 20
"""The libraries and onnxruntime's own buffers, measured on the demo network."""
WALK_BYTES = 1 << 28
FEWEST_WALKED, MOST_WALKED = 6, 12
"""Samples of the streaming pass, see docs/experiments.md for what more would bring."""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """What the streaming pass will hold at its peak, in bytes.

    Attributes:
        memory_bytes: in memory: activations up to the cap, weights, the libraries.
        disk_bytes: activations beyond the cap, in the temporary folder.
    """

    memory_bytes: int
    disk_bytes: int

    def __str__(self) -> str:
        """Returns the estimate in words."""
        text = f"about {self.memory_bytes / 1e9:.1f} GB of memory"
        return text + (f" and {self.disk_bytes / 1e9:.1f} GB of disk" if self.disk_bytes else "")

    def require_disk(self) -> None:
        """Refuses to start what the disk cannot hold.

        Raises:
            InputError: the temporary folder's disk has less free space than is needed.
        """
        free = shutil.disk_usage(tempfile.gettempdir()).free
        if self.disk_bytes > free:
            raise InputError(
                f"the activations need {self.disk_bytes / 1e9:.1f} GB of disk, "
                f"{free / 1e9:.1f} GB are free",
                fix="use fewer samples, or set TMPDIR to a larger disk",
            )


def count_walked(prepared: PreparedNetwork, settings: QuantizeSettings, samples: int) -> int:
    """Returns how many of the calibration samples the streaming pass walks with.

    As many as WALK_BYTES hold, from FEWEST_WALKED to MOST_WALKED: ranges come from all samples, and
    the means that bias correction restores need few. A rounding that learns from the inputs takes
    all.
    """
    if settings.weight_rounding.needs_inputs:
        return samples
    fitting = samples * WALK_BYTES // max(_held_bytes(prepared, samples), 1)
    return min(samples, max(FEWEST_WALKED, min(MOST_WALKED, fitting)))


def estimate_memory(prepared: PreparedNetwork, samples: int, cap_bytes: int) -> MemoryEstimate:
    """Returns what the streaming pass will take.

    Args:
        prepared: the network; tensors of unknown shape count nothing.
        samples: calibration samples that the pass walks with.
        cap_bytes: activations beyond this sum go to disk.
    """
    held = _held_bytes(prepared, samples)
    weights = sum(weight.nbytes for weight in prepared.graph.weights.values())
    return MemoryEstimate(
        memory_bytes=min(held, cap_bytes) + 3 * weights + RUNTIME_BYTES,
        disk_bytes=max(held - cap_bytes, 0),
    )


def _held_bytes(prepared: PreparedNetwork, samples: int) -> int:
    """Returns the most bytes of activations, float and quantized, that are alive at once.

    A step has one sample in work; of the others it holds what comes in or what goes out.
    """
    graph = prepared.graph
    alive: dict[str, int] = {name: _count_bytes(graph.shapes.get(name)) for name in graph.inputs}
    held = 0
    for step in plan_steps(graph, {item.node: item for item in prepared.quantized}):
        before = sum(alive.values())
        alive |= {name: 2 * _count_bytes(graph.shapes.get(name)) for name in step.outputs}
        in_work = sum(alive.values())
        for name in step.freed:
            alive.pop(name, None)
        held = max(held, in_work + max(before, sum(alive.values())) * (samples - 1))
    return held


def _count_bytes(shape: tuple[int, ...] | None) -> int:
    return BYTES_PER_VALUE * math.prod(shape) if shape is not None else 0
