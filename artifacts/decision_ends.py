"""Two forms of a network that end before their last decisions.

Nothing learns from a label or from boxes that survived: the ends of networks that are trained are
the tensors about which they decide.
"""

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from artifacts.chosen_outputs import keep_outputs
from artifacts.decided_outputs import find_measured
from artifacts.graph_reading import typed_values


def end_before_decisions(
    model: onnx.ModelProto, twin: onnx.ModelProto
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Returns both without the nodes from their last decisions on, with the same output names.

    A decided output gives way to the float tensors that it depends on. The one that nothing else
    depends on takes the output's name, others keep that of the first form.

    Args:
        model: with inferred shapes; it is not changed.
        twin: another form of it (quantized, say); it is not changed. Where it decides about other
            tensors, or inferred shapes are missing, both come back as they are.
    """
    ours, theirs = find_measured(model), find_measured(twin)
    counts = [{name: len(ends) for name, ends in each.items()} for each in (ours, theirs)]
    are_known = _knows_all(model, ours) and _knows_all(twin, theirs)
    if not ours or counts[0] != counts[1] or not are_known:
        return model, twin
    names = _name_ends(ours, [item.name for item in model.graph.output])
    ends = {name: [names.get(end, end) for end in ours[name]] for name in ours}
    return _end_at(model, ours, ends), _end_at(twin, theirs, ends)


def _knows_all(model: onnx.ModelProto, measured: Mapping[str, Sequence[str]]) -> bool:
    """Returns whether the types of all tensors are known at which a network would end."""
    known = {item.name for item in typed_values(model)}
    return known.issuperset(end for ends in measured.values() for end in ends)


def _name_ends(measured: Mapping[str, Sequence[str]], outputs: Sequence[str]) -> dict[str, str]:
    """Returns new names for tensors: of the output that alone depends on the one."""
    readers: dict[str, list[str]] = {}
    for name in outputs:
        for end in measured.get(name, (name,)):
            readers.setdefault(end, []).append(name)
    return {
        ends[0]: name
        for name, ends in measured.items()
        if len(ends) == 1 and readers[ends[0]] == [name]
    }


def _end_at(
    model: onnx.ModelProto,
    measured: Mapping[str, Sequence[str]],
    names: Mapping[str, Sequence[str]],
) -> onnx.ModelProto:
    """Returns a network that ends at what its outputs are measured at.

    Args:
        model: the whole network.
        measured: the tensors in place of its decided outputs.
        names: what these are called as outputs.
    """
    outputs = [item.name for item in model.graph.output]
    tensors = [tensor for name in outputs for tensor in measured.get(name, (name,))]
    called = [new for name in outputs for new in names.get(name, (name,))]
    ended = onnx.ModelProto()
    ended.CopyFrom(model)
    keep_outputs(ended, list(dict.fromkeys(tensors)))
    known = {item.name: item for item in ended.graph.output}
    del ended.graph.output[:]
    for name, tensor in dict(zip(called, tensors, strict=True)).items():
        ended.graph.output.append(known[tensor])
        ended.graph.output[-1].name = name
        if name != tensor:
            ended.graph.node.append(helper.make_node("Identity", [tensor], [name]))
    return ended
