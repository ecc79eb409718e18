"""From channel groups that leave to the edits that take them out of a module."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from compress.prune.analysis.channel_sets import Ids
from compress.prune.analysis.families import Channels
from compress.prune.analysis.layer_names import name_in_layer
from compress.prune.analysis.shuffles import Place, Stage
from compress.prune.analysis.trace import Site

Edits = list[dict[str, Any]]
Parts = Mapping[str, nn.Module]
"""The modules of a network by name, under each name that one has."""
Adjustment = tuple[str, str, str, str, int, int]
Adjustments = frozenset[Adjustment]
"""Numbers that follow the size of a channel axis: class and attribute, and the place that uses
them, as the path of the running module below theirs, the operator, the how-manieth of that module
it is, and the axis of its result. Modules of one class may lose channels along unlike axes."""

_OF_TORCH = {
    nn.LayerNorm: ("normalized_shape",),
    nn.RMSNorm: ("normalized_shape",),
    nn.Transformer: ("d_model",),
    nn.Unflatten: ("unflattened_size",),
}
"""Numbers of modules of torch.nn without weights that name the sizes of what they are given."""


class ConflictError(ValueError):
    """One number of a module would need two values."""


def make_edits(
    module: nn.Module, channels: Channels, removed: set[int], adjustments: Adjustments
) -> Edits:
    """Returns the edits that remove channel groups.

    Args:
        module: the network as it is before.
        channels: its structure.
        removed: the groups' roots.
        adjustments: attributes that follow the size of an axis.

    Raises:
        ConflictError: an attribute would need two values.
    """
    leaves = channels.mark_groups(removed)
    stages = list(_narrowed_stages(channels, removed))
    kept: dict[Place, list[int]] = {}
    for name, axes in channels.trace.weights.items():
        for axis, ids in axes.items():
            stays = ~leaves[ids]
            if not stays.all():
                roots = channels.roots[ids]
                kept[name, axis] = _kept_indices((name, axis), roots, stays, stages, removed)
    return edit_places(
        module,
        channels,
        kept,
        lambda ids: staged_size(channels.roots[ids], stages, leaves[ids]),
        adjustments,
    )


def _narrowed_stages(channels: Channels, removed: set[int]) -> Iterable[tuple[Stage, int]]:
    """Yields the stages that lose channels, and how many units each keeps."""
    for family in channels.families:
        if family.stage is None or not removed & set(family.roots):
            continue
        kept = family.stage.units_without(removed)
        if kept is None:
            raise ConflictError(f"the channels of '{family.name}' leave no stage that is known")
        yield family.stage, kept


def _kept_indices(
    place: Place,
    roots: Ids,
    stays: Any,
    stages: Sequence[tuple[Stage, int]],
    removed: set[int],
) -> list[int]:
    """Returns the indices of an axis that stay; those of a shuffled stage in their new order."""
    runs = {
        run.start: (run, order)
        for stage, _ in stages
        for run, order in stage.order(place, roots, removed)
    }
    found: list[int] = []
    index = 0
    while index < roots.size:
        if index in runs:
            run, order = runs[index]
            found += order
            index += run.length
            continue
        if stays[index]:
            found.append(index)
        index += 1
    return found


def staged_size(roots: Ids, stages: Sequence[tuple[Stage, int]], leaves: NDArray[np.bool_]) -> int:
    """Returns how many of an axis's channels are left.

    Args:
        roots: of the channels.
        stages: those that are narrower, with the units that each keeps.
        leaves: whether each of the channels leaves.

    Raises:
        ConflictError: it would be no whole number.
    """
    left = ~leaves
    size = 0
    for stage, kept in stages:
        inside = np.isin(roots, stage.members)
        count, rest = divmod(int(inside.sum()) * kept, stage.units)
        if rest:
            raise ConflictError("a part of a stage would have no whole number of channels")
        size += count
        left &= ~inside
    return size + int(left.sum())


def edit_places(
    module: nn.Module,
    channels: Channels,
    kept: Mapping[Place, list[int]],
    new_size: Callable[[Ids], int],
    adjustments: Adjustments,
) -> Edits:
    """Returns the edits that keep these indices, and give modules the sizes that follow.

    Args:
        module: the network as it is before.
        channels: its structure.
        kept: indices per weight and axis, in their new order; others keep all.
        new_size: how many of an axis's channels are left.
        adjustments: attributes that follow the size of an axis.

    Raises:
        ConflictError: an attribute would need two values.
    """
    edits: Edits = []
    parts = list_parts(module)
    shapes: dict[str, list[int]] = {}
    for (name, axis), indices in kept.items():
        edits.append({"kind": "keep", "tensor": name, "axis": axis, "indices": indices})
        shapes.setdefault(name, list(_tensor(parts, name).shape))[axis] = len(indices)
    shapes |= _computed_shapes(parts, shapes)
    owners = {name.rpartition(".")[0] for name in shapes}
    for owner in sorted(owners):
        values = _new_attributes(parts[owner], owner, shapes, channels)
        for attribute, value in values.items():
            edits.append({"kind": "attribute", "module": owner, "name": attribute, "value": value})
    return edits + _site_edits(parts, channels, new_size, adjustments)


def list_parts(module: nn.Module) -> Parts:
    """Returns the modules of a network by name, itself as ""."""
    return dict(module.named_modules(remove_duplicate=False))


def _tensor(parts: Parts, name: str) -> Any:
    owner, _, leaf = name.rpartition(".")
    return getattr(parts[owner], leaf)


def _computed_shapes(parts: Parts, shapes: dict[str, list[int]]) -> dict[str, list[int]]:
    """Returns the new shapes of weights that their layers compute from others, equally large."""
    found = {}
    for name, shape in shapes.items():
        in_layer = name_in_layer(name)
        if in_layer == name:
            continue
        owner, _, leaf = in_layer.rpartition(".")
        computed = getattr(parts[owner], leaf, None)
        if isinstance(computed, Tensor) and computed.shape == _tensor(parts, name).shape:
            found[in_layer] = shape
    return found


def _new_attributes(
    part: nn.Module, name: str, shapes: dict[str, list[int]], channels: Channels
) -> dict[str, Any]:
    """Returns the numbers that a module of torch.nn keeps about its weights, as they become."""
    prefix = f"{name}." if name else ""
    shape = shapes.get(f"{prefix}weight")
    if isinstance(part, nn.modules.conv._ConvNd):
        return _conv_attributes(part, shape, name in channels.trace.whole_groups)
    if isinstance(part, nn.Linear) and shape:
        return {"in_features": shape[1], "out_features": shape[0]}
    if isinstance(part, nn.modules.batchnorm._NormBase):
        known = shape or shapes.get(f"{prefix}running_mean")
        return {"num_features": known[0]} if known else {}
    if isinstance(part, nn.LayerNorm | nn.RMSNorm) and shape:
        return {"normalized_shape": shape}
    if isinstance(part, nn.GroupNorm) and shape:
        groups = part.num_groups
        if name in channels.trace.whole_groups:
            groups = shape[0] * groups // part.num_channels
        return {"num_channels": shape[0], "num_groups": groups}
    if isinstance(part, nn.PReLU) and shape:
        return {"num_parameters": shape[0]}
    if isinstance(part, nn.RNNBase | nn.RNNCellBase):
        first = shapes.get(f"{prefix}weight_ih_l0") or shapes.get(f"{prefix}weight_ih")
        return {"input_size": first[1]} if first else {}
    if isinstance(part, nn.MultiheadAttention):
        return _attention_attributes(part, prefix, shapes)
    return {}


def _attention_attributes(
    part: nn.MultiheadAttention, prefix: str, shapes: dict[str, list[int]]
) -> dict[str, Any]:
    """Returns the widths of keys and values, and of the queries where whole heads have left."""
    widths = {"kdim": "k_proj_weight", "vdim": "v_proj_weight"}
    found = {key: shapes.get(f"{prefix}{weight}") for key, weight in widths.items()}
    values = {key: known[1] for key, known in found.items() if known}
    packed, own = (shapes.get(f"{prefix}{name}_proj_weight") for name in ("in", "q"))
    rows = packed[0] // 3 if packed else own[0] if own else part.embed_dim
    if rows == part.embed_dim:
        return values
    values |= {"embed_dim": rows, "num_heads": rows // part.head_dim}
    return values | ({"kdim": rows, "vdim": rows} if packed else {})


def _conv_attributes(
    part: nn.modules.conv._ConvNd, shape: list[int] | None, is_whole: bool
) -> dict[str, Any]:
    if shape is None:
        return {}
    groups = part.groups
    if is_whole:
        groups = shape[0] * groups // part.weight.shape[0]
    first, second = shape[0], shape[1] * groups
    if part.transposed:
        return {"in_channels": first, "out_channels": second, "groups": groups}
    return {"in_channels": second, "out_channels": first, "groups": groups}


def _site_edits(
    parts: Parts, channels: Channels, new_size: Callable[[Ids], int], adjustments: Adjustments
) -> Edits:
    """Returns new values of the attributes by which modules name the size of a channel axis."""
    sizes: dict[tuple[str, str], dict[int, int]] = {}
    values: dict[tuple[str, str], Any] = {}
    for site in channels.trace.sites:
        new = new_size(site.ids)
        if new == site.ids.size:
            continue
        for owner, attribute, old in attributes_of(parts, site):
            if name_adjustment(parts, site, owner, attribute) not in adjustments:
                continue
            known = sizes.setdefault((owner, attribute), {})
            if known.setdefault(site.ids.size, new) != new:
                raise ConflictError(f"'{attribute}' of '{owner}' would need two values")
            values[owner, attribute] = _replaced(old, known)
    return [
        {"kind": "attribute", "module": owner, "name": attribute, "value": value}
        for (owner, attribute), value in values.items()
    ]


def name_adjustment(parts: Parts, site: Site, owner: str, attribute: str) -> Adjustment:
    """Returns what identifies an attribute's use, the same for every module of its class."""
    below = site.place[len(owner) :].lstrip(".")
    return (
        type(parts[owner]).__name__,
        attribute,
        below,
        site.operator,
        site.order,
        site.axis,
    )


def attributes_of(parts: Parts, site: Site) -> Iterable[tuple[str, str, Any]]:
    """Yields owner, name and value of the numbers equal to a site's size, innermost first.

    A number in a dictionary of settings is called by its place, `cfg.heads`. Last come the parts of
    the innermost module: it may call a method of theirs that is no forward.
    """
    children = [name for name, _ in parts[site.place].named_children()]
    called = [f"{site.place}.{name}".lstrip(".") for name in children]
    for owner in (*reversed(site.modules), "", *called):
        for name, value in _own_numbers(parts[owner]):
            items = value if isinstance(value, list | tuple) else [value]
            if any(type(item) is int and item == site.ids.size for item in items) and all(
                type(item) is int for item in items
            ):
                yield owner, name, _plain(value)


def _own_numbers(part: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yields what a module may keep about the sizes that its code names, by name.

    What follows the weights of modules of torch.nn is known (see `_new_attributes`); these have
    few others.
    """
    if type(part).__module__.startswith("torch.nn.modules."):
        is_weighted = getattr(part, "weight", None) is not None
        known = () if is_weighted else _OF_TORCH.get(type(part), ())
        yield from ((name, vars(part)[name]) for name in known)
        return
    for name, value in vars(part).items():
        if name.startswith("_") or name == "training":
            continue
        if type(value) in (dict, OrderedDict):
            yield from ((f"{name}.{key}", item) for key, item in value.items() if type(key) is str)
        else:
            yield name, value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _replaced(value: Any, sizes: dict[int, int]) -> Any:
    if isinstance(value, list):
        return [sizes.get(item, item) for item in value]
    return sizes[value]
