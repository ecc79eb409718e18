"""Which layers OpenVINO computes in integers: the graph that it executes says so."""

from collections.abc import Iterable
from typing import Any

_LAYERS = frozenset({"Convolution", "Deconvolution", "FullyConnected", "MatMul"})
"""Kinds of executed nodes that multiply weights or two activations."""


def find_float_layers(compiled: Any, names: Iterable[str]) -> dict[str, str]:
    """Returns the layers whose kernel reads floating-point numbers, with the kernel's name.

    Layers that are not executed under their name, such as folded ones, are left out.

    Args:
        compiled: an `openvino.CompiledModel`.
        names: of layers as the ONNX file calls them.
    """
    wanted = frozenset(names)
    kernels: dict[str, str] = {}
    for node in compiled.get_runtime_model().get_ordered_ops():
        facts = {key: str(value.astype(str)) for key, value in node.get_rt_info().items()}
        if facts.get("layerType") not in _LAYERS:
            continue
        if not node.input(0).get_element_type().is_real():
            continue
        origins = facts.get("originalLayersNames", "").split(",")
        for name in wanted.intersection(part for origin in origins for part in _prefixes(origin)):
            kernels[name] = facts.get("primitiveType", "")
    return kernels


def _prefixes(origin: str) -> list[str]:
    """Returns the names that a layer may have in the file: OpenVINO appends parts with a slash."""
    parts = origin.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
