"""Structural changes of a module as plain data, so that a pruned network needs no pickle.

An edit is one of

* `{"kind": "keep", "tensor": NAME, "axis": A, "indices": [...]}`: the parameter or buffer keeps
  only these indices along an axis, in this order;
* `{"kind": "attribute", "module": NAME, "name": ATTRIBUTE, "value": NUMBER or [NUMBER, ...]}`: a
  number that the module keeps about its own shape (`out_channels`, `num_heads`, `settings.heads` in
  a dictionary) gets a new value;
* `{"kind": "replace", "module": NAME, "by": "relu" or "identity"}`: a module without state of its
  own takes the place of this one.

Nothing else can be said, so replaying edits of a file runs no code of the file. Torch is imported
only where a module is replaced.
"""

from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from artifacts.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

Edit = Mapping[str, Any]
_LARGEST = 1 << 24


def apply_edits(module: "nn.Module", edits: Iterable[Edit]) -> "nn.Module":
    """Replays structural changes on a freshly built module, in place.

    Args:
        module: what the builder returned; its weights may be the original ones, and are then cut.
        edits: in the order in which they were made.

    Returns:
        `module`.

    Raises:
        InputError: an edit is malformed or does not fit the module.
    """
    actions = {"keep": _keep, "attribute": _set_attribute, "replace": _replace}
    for edit in edits:
        kind = edit.get("kind") if isinstance(edit, Mapping) else None
        if kind not in actions:
            raise InputError(
                f"structural edit of the kind {kind!r}",
                " or ".join(actions),
                "use the version of framefit that wrote it",
            )
        try:
            actions[kind](module, edit)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            shown = {key: value for key, value in edit.items() if key != "indices"}
            raise InputError(
                f"the structural edit {shown} does not fit the network: {error}",
                "edits of this very network",
            ) from error
    return module


def _keep(module: "nn.Module", edit: Edit) -> None:
    owner_name, _, name = edit["tensor"].rpartition(".")
    owner = module.get_submodule(owner_name)
    tensor: Tensor | None = owner._parameters.get(name)
    if tensor is None:
        tensor = owner._buffers[name]
    axis, indices = edit["axis"], edit["indices"]
    if tensor is None or not _is_count(axis) or axis >= tensor.ndim:
        raise ValueError(f"no axis {axis!r}")
    size = tensor.shape[axis]
    if not (
        isinstance(indices, list)
        and indices
        and set(map(type, indices)) == {int}
        and min(indices) >= 0
        and max(indices) < size
        and len(set(indices)) == len(indices)
    ):
        raise ValueError(f"indices must differ and lie below {size}")
    kept = tensor.detach()[(slice(None),) * axis + (np.array(indices),)].contiguous()
    tensor.data = kept
    tensor.grad = None


def _set_attribute(module: "nn.Module", edit: Edit) -> None:
    owner = module.get_submodule(edit["module"])
    name, _, key = edit["name"].partition(".")
    if not key:
        setattr(owner, name, _renew(edit["name"], vars(owner)[name], edit["value"]))
        return
    settings = vars(owner)[name]
    if name.startswith("_") or not isinstance(settings, dict):
        raise ValueError(f"'{name}' is no dictionary of settings")
    again = copy(settings)
    again[key] = _renew(edit["name"], settings[key], edit["value"])
    setattr(owner, name, again)


def _renew(name: str, known: Any, value: Any) -> Any:
    """Returns the new value of a number, or of several, as those that are known are kept."""
    if type(known) is int and _is_count(value) and value:
        return value
    if (
        isinstance(known, list | tuple)
        and isinstance(value, list | tuple)
        and len(known) == len(value)
        and all(type(old) is int and _is_count(new) for old, new in zip(known, value, strict=True))
    ):
        return type(known)(value)
    raise ValueError(f"'{name}' is {known!r} and cannot become {value!r}")


def _replace(module: "nn.Module", edit: Edit) -> None:
    from torch import nn

    makers = {"relu": nn.ReLU, "identity": nn.Identity}
    if edit["by"] not in makers:
        raise ValueError(f"cannot replace by {edit['by']!r}, only by {' or '.join(makers)}")
    owner_name, _, name = edit["module"].rpartition(".")
    owner = module.get_submodule(owner_name)
    if owner._modules[name] is None:
        raise ValueError(f"no module '{edit['module']}'")
    owner._modules[name] = makers[edit["by"]]()


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST
