"""Folds a Pad with zeros into the Convs that read it: each of them pads its own input.

    x - Pad - Conv (pads 0)        becomes        x - Conv (pads as many)

Keras pads before a stride of 2 (`ZeroPadding2D`), and so do networks that keep its unlike pads
("same" puts the odd row behind). onnxruntime and OpenVINO do this in float; in integers, with a
Q/DQ pair between the two, onnxruntime copies the picture.
"""

import onnx

from artifacts.node_attributes import set_attributes
from compress.quantize.graph import Graph, attribute
from compress.quantize.pad_amounts import read_pad_amounts
from compress.quantize.placement.movement import moved_inputs


def fold_pads(graph: Graph) -> list[str]:
    """Folds each Pad with zeros that only Convs read; returns a line for each.

    Where one would pad more than its kernel reaches, the Pad stays: nobody tunes kernels to that.
    """
    done = []
    for pad in [node for node in graph.nodes if node.op_type == "Pad"]:
        pads = read_pad_amounts(graph, pad) if moved_inputs(graph, pad) else None
        readers = graph.consumers(pad.output[0])
        if pads is None or not readers or pad.output[0] in graph.outputs:
            continue
        rank = len(graph.shapes[pad.input[0]])
        found = (_sum_pads(graph, reader, pads, rank) for reader in readers)
        sums = [total for total in found if total is not None]
        if len(sums) < len(readers):
            continue
        for reader, total in zip(readers, sums, strict=True):
            set_attributes(reader, pads=total, auto_pad="NOTSET")
        graph.rewire(pad.output[0], pad.input[0])
        graph.remove([pad.name])
        graph.index()
        done.append(f"folded {pad.name}")
    return done


def _sum_pads(
    graph: Graph, conv: onnx.NodeProto, pads: dict[int, tuple[int, int]], rank: int
) -> list[int] | None:
    """Returns the pads of a Conv with those before it, first ends first; None if they are no pads.

    Args:
        graph: the Conv's.
        conv: a node that reads the padded tensor.
        pads: what is put before and behind each padded axis.
        rank: of the tensor.
    """
    weight = graph.weights.get(conv.input[1]) if conv.op_type == "Conv" else None
    mode = attribute(conv, "auto_pad", b"NOTSET")
    if weight is None or mode not in (b"NOTSET", b"VALID") or any(axis < 2 for axis in pads):
        return None
    none = [0] * 2 * (rank - 2)
    own = none if mode == b"VALID" else list(attribute(conv, "pads", none))
    dilations = attribute(conv, "dilations", [1] * (rank - 2))
    for axis, ends in pads.items():
        reach = (weight.shape[axis] - 1) * dilations[axis - 2]
        for place, end in zip((axis - 2, axis - 2 + rank - 2), ends, strict=True):
            own[place] += end
            if end < 0 or own[place] > reach:
                return None
    return own
