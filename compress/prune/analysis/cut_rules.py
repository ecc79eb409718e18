"""Cuts across channels: which channels each part has, and which sizes the code names for it."""

import numpy as np

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.tracer import Call, ChannelTracer

CUTS = (
    *("slice", "select", "split", "split_with_sizes", "unbind", "narrow"),
    *("unsafe_split", "unsafe_split_with_sizes"),
)
_IN_STEPS = ("split", "unsafe_split")
"""They cut into parts of one size, of which the last may be smaller; `chunk` calls them too."""


def find_cut(call: Call) -> int:
    """Returns the axis across which an operator of `CUTS` cuts."""
    position = 2 if "split" in call.name else 1
    axis = call.args[position] if len(call.args) > position else 0
    return int(axis) % int(call.args[0].ndim)


def cut_channels(tracer: ChannelTracer, call: Call, ids: Ids) -> list[Ids]:
    """Hands the channels of an axis to the parts that an operator cuts it into.

    Parts of one size stay equal: the same places of every one leave together, whether the code
    names their size or halves what comes. A part of another size loses channels of its own: its
    size has to be one that the code takes from the module, which is tried before it is believed.

    Args:
        tracer: where ties, sizes and parts are noted.
        call: one of `CUTS`.
        ids: the channels along the axis that it cuts.

    Returns:
        the channels of each result; none where single channels or every n-th are picked, which
        keeps all of the axis.
    """
    reason = f"'{call.name}' in '{tracer.place}' cuts channels at places written in the code"
    if "split" in call.name:
        return _split(tracer, call, ids, reason)
    if call.name != "slice" or (len(call.args) > 4 and call.args[4] != 1):
        picked = f"'{call.name}' in '{tracer.place}' takes channels by numbers written in the code"
        tracer.trace.sets.freeze(ids, picked)
        return []
    return [_slice(tracer, call, ids, reason)]


def _split(tracer: ChannelTracer, call: Call, ids: Ids, reason: str) -> list[Ids]:
    axis = find_cut(call)
    ends = np.cumsum([out.shape[axis] for out in call.outputs])[:-1]
    parts: list[Ids] = list(np.split(ids, ends))
    firsts = {part.size: part for part in reversed(parts)}
    for part in parts[1:]:
        first = parts[0][: part.size] if call.name in _IN_STEPS else firsts[part.size]
        tracer.trace.sets.tie(part, first, reason, is_count=True)
    if len(firsts) > 1:
        tracer.trace.cuts += [*parts, ids]
    _note_sizes(tracer, call, [*parts, ids])
    return parts


def _slice(tracer: ChannelTracer, call: Call, ids: Ids, reason: str) -> Ids:
    size = call.out.shape[find_cut(call)]
    start = call.args[2] if len(call.args) > 2 and call.args[2] is not None else 0
    start = max(start + ids.size, 0) if start < 0 else start
    part = ids[start : start + size]
    bounds = [ids[:start], ids[: start + size]]
    if size < 2 or ids.size % size or start % size:
        tracer.trace.cuts += [ids[:start], part, ids]
        _note_sizes(tracer, call, [*bounds, part, ids])
        return part
    table = ids.reshape(-1, size)
    tracer.trace.sets.tie(table[1:], table[:1], reason, is_count=True)
    _note_sizes(tracer, call, [part, ids, *bounds])
    return part


def _note_sizes(tracer: ChannelTracer, call: Call, pieces: list[Ids]) -> None:
    """Notes every size that the code may name, each once."""
    for piece in {piece.size: piece for piece in reversed(pieces) if piece.size}.values():
        tracer.note_site(call, piece)
