"""Loosens ties whose tensors differ too much in range, by a second quantizer between them.

A tie through many Concats takes the scale of its widest tensor. Where a Concat joins a tied tensor
of a narrow range with a much wider one, an Identity node is put before that input: it ends the tie,
so that the narrow side keeps its scale for its other readers, and the placement quantizes the
Identity's result to the wide side's scale. Runtimes drop the Identity and rescale the integers.
"""

from collections.abc import Sequence

from onnx import helper

from compress.quantize.graph import Graph
from compress.quantize.observers import Observer
from compress.quantize.placement import Placement, QuantizedNode
from compress.quantize.qparams import qparams_for_range
from compress.quantize.survey import Survey, observe_surveyed
from compress.quantize.tied_scales import TiedScales

WIDEST_RATIO = 1.5
"""A tie may cost its narrower side 20 log10(1.5) = 3.5 dB; twice the scale is a whole bit."""


def requantize(
    graph: Graph,
    quantized: Sequence[QuantizedNode],
    survey: Survey,
    placement: Placement,
    observer: Observer,
) -> list[str]:
    """Puts an Identity before each input of a Concat that is too narrow for the others.

    Args:
        graph: the simplified float graph; its results stay as they are.
        quantized: what would be quantized.
        survey: of the tensors that these nodes read; it learns those of the new Identities.
        placement: tells the integers of activations.
        observer: chooses the range of each tensor.

    Returns:
        one line per Identity.
    """
    moving = [item for item in quantized if item.tied]
    scales: dict[str, float] = {}
    tied = TiedScales(graph, moving)
    spared = placement.find_spared(graph, quantized)
    for tensor in tied.shared_sources():
        seen = observe_surveyed([survey[tensor]])
        chosen = placement.without_zero_points() if spared & tied.group(tensor) else placement
        grid, symmetric = chosen.activation_grid(seen.low), chosen.symmetric
        ends = observer.choose_range(seen, grid, symmetric=symmetric)
        scales[tensor] = float(qparams_for_range(*ends, grid, symmetric=symmetric).scale)
    return _cut(graph, moving, scales, survey)


def requantize_plain(
    graph: Graph, quantized: Sequence[QuantizedNode], survey: Survey, placement: Placement
) -> list[str]:
    """Puts an Identity before inputs without zero points where others read the tensor with one.

    Args:
        graph: the simplified float graph; its results stay as they are.
        quantized: what would be quantized.
        survey: of the tensors that these nodes read; it learns those of the new Identities.
        placement: tells which inputs take no zero points.

    Returns:
        one line per Identity.
    """
    tied = TiedScales(graph, quantized)
    plain, others = dict[str, list[str]](), set[str]()
    for item in quantized:
        node, positions = graph.node(item.node), placement.find_plain_inputs(graph, item)
        for position in () if item.tied else item.activations:
            if position in positions:
                plain.setdefault(node.input[position], []).append(item.node)
            else:
                others.add(node.input[position])
    done = []
    for tensor, readers in plain.items():
        if survey[tensor].low >= 0 or not others & tied.group(tensor):
            continue
        own = _add_identity(graph, readers[0], tensor)
        survey[own] = survey[tensor]
        for name in readers:
            node = graph.node(name)
            node.input[:] = [own if read == tensor else read for read in node.input]
        done.append(f"requantized '{tensor}' before {readers[0]}, which takes no zero point")
        graph.index()
    return done


def _cut(
    graph: Graph, moving: Sequence[QuantizedNode], scales: dict[str, float], survey: Survey
) -> list[str]:
    """Walks the ties from their sources on; `scales` learns the scale of every moved tensor."""
    nodes = {node.name: node for node in graph.nodes}
    moved = {tensor for item in moving for tensor in nodes[item.node].output}
    done = []
    for item in moving:
        node = nodes[item.node]
        inputs = list(node.input) if node.op_type == "Concat" else [node.input[0]]
        known = [scales[name] for name in inputs if name in scales]
        if not known:
            continue
        widest = max(known)
        for position, tensor in enumerate(inputs):
            is_shared = tensor in moved or len(graph.consumers(tensor)) > 1
            if is_shared and scales.get(tensor, widest) * WIDEST_RATIO < widest:
                node.input[position] = _add_identity(graph, node.name, tensor)
                survey[node.input[position]] = survey[tensor]
                done.append(
                    f"requantized '{tensor}' before {node.name}: the scale there is "
                    f"{widest / scales[tensor]:.1f} times its own"
                )
        scales |= dict.fromkeys(node.output, widest)
    graph.index()
    return done


def _add_identity(graph: Graph, reader: str, tensor: str) -> str:
    result = graph.unused_name(f"{tensor}_requantized")
    identity = helper.make_node("Identity", [tensor], [result], result)
    at = next(index for index, node in enumerate(graph.nodes) if node.name == reader)
    graph.insert(at, identity)
    return result
