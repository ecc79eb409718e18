"""Operators that sum up or pool: over channels their result depends on how many there are."""

from torch import Tensor, nn

from compress.prune.analysis.tracer import Call, ChannelTracer
from compress.prune.analysis.trial_rules import try_operator

REDUCTIONS = (
    *("mean", "sum", "amax", "amin", "var", "std", "linalg_vector_norm", "norm", "logsumexp"),
    *("max", "min", "var_mean", "prod", "all", "any"),
)
SOFTMAXES = ("_softmax", "_log_softmax", "_safe_softmax", "softmax")
INDEXERS = ("argmax", "argmin")
ORDERED = ("cumsum", "cumprod", "sort", "topk", "argsort", "logcumsumexp")
POOLS = (
    *("avg_pool1d", "avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "adaptive_avg_pool1d"),
    *("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "reflection_pad1d"),
    *("max_pool3d_with_indices", "reflection_pad2d", "replication_pad2d", "grid_sampler_2d"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d"),
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "_upsample_nearest_exact2d"),
    *("upsample_linear1d", "upsample_trilinear3d", "upsample_nearest3d", "max_pool2d"),
)


def reduced_axes(call: Call) -> tuple[int, ...]:
    """Returns the axes of its first argument that an operator computes over."""
    x = call.args[0]
    position = 2 if call.name in ("linalg_vector_norm", "norm") else 1
    dims = call.args[position] if len(call.args) > position else call.kwargs.get("dim")
    if isinstance(dims, Tensor):
        return ()
    if dims is None or dims == []:
        return tuple(range(x.ndim))
    listed = dims if isinstance(dims, list | tuple) else [dims]
    return tuple(sorted(int(dim) % x.ndim for dim in listed))


def reduce(tracer: ChannelTracer, call: Call) -> None:
    """Reduces axes; one of channels is a statistic over them."""
    if len(call.tensors) > 1:
        try_operator(tracer, call)
        return
    x, dims = call.args[0], reduced_axes(call)
    ids = tracer.ids(x)
    over = {axis: ids[axis] for axis in dims if axis in ids}
    if call.name in INDEXERS:
        tracer.freeze(x, f"'{call.name}' in '{tracer.place}' counts channels", dims)
    else:
        tracer.note_statistic(call, over)
        if tracer.is_running(nn.RMSNorm):
            for axis, channels in over.items():
                tracer.note_site(call, channels, axis)
    for out in call.outputs:
        keeps = out.ndim == x.ndim
        axes = {
            axis if keeps else axis - sum(dim < axis for dim in dims): value
            for axis, value in ids.items()
            if axis not in dims
        }
        tracer.set_ids(out, axes)


def soften(tracer: ChannelTracer, call: Call) -> None:
    """A softmax over channels is a statistic over them; its results are told apart as bins."""
    x, axis = call.args[0], call.args[1] % call.args[0].ndim
    axes = dict(tracer.ids(x))
    if axis in axes:
        tracer.note_statistic(call, {axis: axes[axis]})
        bins = tracer.trace.sets.add_ids(axes[axis].size)
        tracer.trace.sets.tie(bins, axes[axis], f"in a softmax of '{tracer.place}'")
        tracer.bins.append(bins)
        axes[axis] = bins
    tracer.set_ids(call.out, axes)


def order(tracer: ChannelTracer, call: Call) -> None:
    """Sorting and running sums depend on the order of an axis."""
    x = call.args[0]
    position = 2 if call.name == "topk" else 1  # how many come before
    named = call.kwargs.get("dim", -1)
    dim = int(call.args[position] if len(call.args) > position else named) % x.ndim
    tracer.freeze(x, f"'{call.name}' in '{tracer.place}' runs across channels", (dim,))
    for other in call.tensors[1:]:
        tracer.freeze(other, f"used by '{call.name}' in '{tracer.place}'")
    for out in call.outputs:
        if out.ndim == x.ndim:
            kept = {axis: ids for axis, ids in tracer.ids(x).items() if axis != dim}
            tracer.set_ids(out, kept)


def pool(tracer: ChannelTracer, call: Call) -> None:
    """Pooling and resizing work on the last axes; the channels before them stay as they are."""
    if any(tracer.ids(other) for other in call.tensors[1:]):
        try_operator(tracer, call)
        return
    x = call.args[0]
    spatial = next((int(letter) for letter in call.name if letter in "123"), 2)
    last = tuple(range(x.ndim - spatial, x.ndim))
    tracer.freeze(x, f"'{call.name}' in '{tracer.place}' works across them", last)
    for out in call.outputs:
        kept = {axis: ids for axis, ids in tracer.ids(x).items() if axis not in last}
        tracer.set_ids(out, kept)


def halve(tracer: ChannelTracer, call: Call) -> None:
    """A gated linear unit multiplies the first half of an axis with the second."""
    x = call.args[0]
    axis = (call.args[1] if len(call.args) > 1 else -1) % x.ndim
    axes = dict(tracer.ids(x))
    if axis in axes:
        first, second = axes[axis].reshape(2, -1)
        tracer.trace.sets.tie(first, second, f"halved in '{tracer.place}'")
        axes[axis] = first
    tracer.set_ids(call.out, axes)


def restride(tracer: ChannelTracer, call: Call) -> None:
    """Sets the strides of a fresh result in place; its axes stay."""
    tensor = call.args[0]
    axes = tracer.ids(tensor)
    if any(axis >= tensor.ndim or tensor.shape[axis] != ids.size for axis, ids in axes.items()):
        reason = f"'{call.name}' in '{tracer.place}' sets strides of other axes"
        tracer.freeze(tensor, reason)


REDUCTION_RULES = {
    **dict.fromkeys((*REDUCTIONS, *INDEXERS), reduce),
    **dict.fromkeys(SOFTMAXES, soften),
    **dict.fromkeys(ORDERED, order),
    **dict.fromkeys(POOLS, pool),
    "glu": halve,
    "as_strided_": restride,
    "unknown": try_operator,
}
