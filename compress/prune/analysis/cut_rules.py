"""Cuts across channels: which channels each part has, and which sizes the code names for it."""

import numpy as np

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.trace import Slice
from compress.prune.analysis.tracer import NETWORK, Call, ChannelTracer

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
    if "split" in call.name:
        return _split(tracer, call, ids, _name_cut(call.name, tracer.innermost))
    if call.name != "slice" or (len(call.args) > 4 and call.args[4] != 1):
        picked = f"'{call.name}' in '{tracer.place}' takes channels by numbers written in the code"
        tracer.trace.sets.freeze(ids, picked)
        return []
    return [_slice(tracer, call, ids)]


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


def _slice(tracer: ChannelTracer, call: Call, ids: Ids) -> Ids:
    size = call.out.shape[find_cut(call)]
    start = call.args[2] if len(call.args) > 2 and call.args[2] is not None else 0
    start = max(start + ids.size, 0) if start < 0 else start
    part = ids[start : start + size]
    tracer.slices.append(Slice(tracer.innermost, ids, start, size))
    _note_sizes(tracer, call, [ids[:start], ids[: start + size], part, ids])
    return part


def settle_slices(tracer: ChannelTracer) -> None:
    """Ties what slices make equal parts of, once all slices of the same channels are known.

    A first slice of d channels out of 3 d may be one of three equal parts, or have a part of 2 d
    beside it that loses channels of its own (bins of a depth and the features that are lifted).
    Where the latter does not stand the proof, the split that is noted is turned: all are of three.
    """
    of_source: dict[bytes, list[Slice]] = {}
    for one in tracer.slices:
        of_source.setdefault(one.ids.tobytes(), []).append(one)
    for slices in of_source.values():
        even = [one for one in slices if one.is_even]
        is_equal = len(even) == len(slices) and len({one.size for one in slices}) == 1
        if even and not is_equal:
            is_equal = tracer.note_split(even[0].ids, even[0].place, is_cut=True)
        for one in slices:
            if one.is_even and is_equal:
                _tie_parts(tracer, one.ids.reshape(-1, one.size), one.place)
            else:
                tracer.trace.cuts += [one.ids[: one.start], one.part, one.ids]
        for size in {one.size for one in even}:
            alike = np.array([one.part for one in even if one.size == size])
            _tie_parts(tracer, alike, even[0].place)


def _tie_parts(tracer: ChannelTracer, table: Ids, place: str) -> None:
    """Ties parts of one size, a row each: the same places of every one leave together."""
    tracer.trace.sets.tie(table[1:], table[:1], _name_cut("slice", place), is_count=True)


def _name_cut(operator: str, place: str) -> str:
    return f"'{operator}' in '{place or NETWORK}' cuts channels at places written in the code"


def _note_sizes(tracer: ChannelTracer, call: Call, pieces: list[Ids]) -> None:
    """Notes every size that the code may name, each once."""
    for piece in {piece.size: piece for piece in reversed(pieces) if piece.size}.values():
        tracer.note_site(call, piece)
