"""The activations of a walk through a graph: of the float network, and of its quantized prefix."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Self

import onnx

from compress.quantize.activation_store import ActivationStore
from compress.quantize.executor import Subgraph
from compress.quantize.graph import Array, Graph
from compress.quantize.shared_memory import give_back_memory
from compress.quantize.side_by_side import threads_each
from compress.quantize.steps import Step


class Prefix:
    """Holds each tensor twice, and opens steps to run on either; use it as a context manager.

    Args:
        graph: the float network.
        samples: how many there are.
        memory_cap_bytes: of all activations; what is beyond it is written to a temporary folder.
    """

    def __init__(self, graph: Graph, samples: int, memory_cap_bytes: int) -> None:
        self._graph = graph
        self._float = ActivationStore(samples, memory_cap_bytes // 2)
        self._noisy = ActivationStore(samples, memory_cap_bytes // 2)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(self._float)
        self._stack.enter_context(self._noisy)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        give_back_memory()

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self._float.samples

    def put_float(self, tensor: str, sample: int, value: Array) -> None:
        """Keeps what the float network has."""
        self._float.put(tensor, sample, value)

    def put_noisy(self, tensor: str, sample: int, value: Array) -> None:
        """Keeps what the quantized prefix has."""
        self._noisy.put(tensor, sample, value)

    def free(self, step: Step, sample: int) -> None:
        """Forgets what no later step reads of a sample."""
        for name in step.freed:
            self._float.free(name, sample)
            self._noisy.free(name, sample)

    def is_clean(self, step: Step) -> bool:
        """Whether nothing that a step reads comes from behind a quantizer."""
        return not any(name in self._noisy for name in step.inputs)

    def is_quantized(self, tensor: str) -> bool:
        """Whether a tensor comes from behind a quantizer."""
        return tensor in self._noisy

    def float_value(self, tensor: str, sample: int) -> Array:
        """Returns the float network's value."""
        return self._float.get(tensor, sample)

    def noisy_value(self, tensor: str, sample: int) -> Array:
        """Returns the quantized prefix's value, the float one where nothing before is quantized."""
        store = self._noisy if tensor in self._noisy else self._float
        return store.get(tensor, sample)

    def float_feeds(self, step: Step, sample: int) -> dict[str, Array]:
        """Returns what a step reads in the float network."""
        return {name: self._float.get(name, sample) for name in step.inputs}

    def quantized_feeds(
        self, step: Step, quantizers: Mapping[str, Subgraph], sample: int
    ) -> dict[str, Array]:
        """Returns what a step reads in the quantized network.

        Args:
            step: the reader.
            quantizers: the Q/DQ pairs right before it, by the tensor that they read.
            sample: which one.
        """
        feeds = {}
        for name in step.inputs:
            value = self.noisy_value(name, sample)
            if name in quantizers:
                value = next(iter(quantizers[name].run({name: value}).values()))
            feeds[name] = value
        return feeds

    def open(self, step: Step, weights: Mapping[str, Array]) -> Subgraph:
        """Returns a step's nodes ready to run with the given constants."""
        return self.open_nodes(step.nodes, weights, self.float_feeds(step, 0), step.outputs)

    def open_nodes(
        self,
        nodes: Sequence[onnx.NodeProto],
        weights: Mapping[str, Array],
        example: Mapping[str, Array],
        outputs: Sequence[str],
        *,
        is_exact: bool = False,
    ) -> Subgraph:
        """Returns a `Subgraph` with its share of the processors."""
        return Subgraph(
            self._graph,
            nodes,
            weights,
            example,
            outputs,
            is_exact=is_exact,
            threads=threads_each(self.samples),
            is_step=True,
        )
