"""The samples of a Python program: a DataLoader, a Dataset, arrays or tensors."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.feeds import fits_shape
from artifacts.module_arguments import list_needed
from artifacts.samples import Samples, TensorShape, spread_indices

if TYPE_CHECKING:
    from torch import nn

Array = NDArray[Any]
Sample = dict[str, Array]
SOLE_INPUT = "input"
"""What `export_onnx` calls the input of a module that takes one tensor."""
_WANTED = (
    "items with an array or tensor for each input: a dictionary by name, or a tuple in their order"
)


class _Sized(Protocol):
    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


@dataclass(frozen=True)
class Items:
    """What a program's data are made of.

    Attributes:
        values: a dictionary of arrays by name, a tuple or list that begins with one for each input,
            or an array; per item.
        has_batch: whether arrays have a batch axis in front.
        argument: what the module calls its only input, which is `SOLE_INPUT` in an export; "" where
            that is not known.
    """

    values: _Sized
    has_batch: bool
    argument: str = ""

    def for_module(self, module: "nn.Module") -> "Items":
        """Returns the same items, of which a dictionary may name a module's only argument."""
        names = list_needed(module)
        return replace(self, argument=names[0]) if len(names) == 1 else self

    def read(self, index: int, names: Sequence[str]) -> Sample:
        """Returns the arrays of an item for the inputs called `names`, see `name_arrays`."""
        item = self.values[index]
        if len(names) > 1 or not self.argument or _has_name(item, names[0]):
            return name_arrays(item, names)
        return {names[0]: name_arrays(item, [self.argument])[self.argument]}


class _Rows:
    """Items of arrays whose first axis counts samples.

    Args:
        arrays: an array, or a dictionary of arrays.
    """

    def __init__(self, arrays: Any) -> None:
        columns = arrays.values() if isinstance(arrays, Mapping) else [arrays]
        if any(not column.shape for column in columns if _is_array(column)):
            raise InputError("an array of the data is a single number", _WANTED)
        counts = sorted({len(column) for column in columns})
        if len(counts) != 1:
            raise InputError(f"the arrays have {counts} samples", "arrays of as many samples each")
        self._arrays = arrays
        self._count = counts[0]

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if isinstance(self._arrays, Mapping):
            return {name: array[index] for name, array in self._arrays.items()}
        return self._arrays[index]


class ProgramSamples(Samples):
    """One sample of a network per index, batch axis included; read when it is asked for.

    Items that hold batches are read at once instead.

    Args:
        items: the data.
        inputs: the network's inputs by name; a size of 0 is any.
        limit: use at most this many samples, spread evenly over the items; None for all.

    Raises:
        InputError: there is no item, or the first does not fit.
    """

    def __init__(
        self, items: Items, inputs: Mapping[str, TensorShape], limit: int | None = None
    ) -> None:
        if len(items.values) == 0:
            raise _no_samples()
        self._items, self._inputs = items, inputs
        held = len(self._split(0))
        wanted = limit and -(-limit // held)
        self._chosen = spread_indices(len(items.values), wanted)
        self._read_before: list[Sample] = []
        if held > 1:
            rows = (row for index in self._chosen for row in self._split(index))
            self._read_before = list(islice(rows, limit))
        super().__init__([str(number) for number in range(len(self._read_before or self._chosen))])

    def _read(self, index: int) -> Sample:
        if self._read_before:
            return self._read_before[index]
        rows = self._split(self._chosen[index])
        if len(rows) != 1:
            raise InputError(
                f"item {self._chosen[index]} holds {len(rows)} samples and the first one", "1"
            )
        return rows[0]

    def _split(self, index: int) -> list[Sample]:
        """Returns the samples of an item."""
        named = self._items.read(index, list(self._inputs))
        rows = {
            name: _split_array(name, array, self._inputs[name]) for name, array in named.items()
        }
        counts = {name: len(parts) for name, parts in rows.items()}
        if len(set(counts.values())) != 1:
            raise InputError(f"item {index} has {counts} samples", "as many of each input")
        count = next(iter(counts.values()))
        return [{name: parts[row] for name, parts in rows.items()} for row in range(count)]


def open_items(data: Any, limit: int | None = None) -> Items:
    """Returns what data are made of.

    Args:
        data: an array or a dictionary of arrays, whose first axis counts samples; a sequence or
            `Dataset` of items; or anything that gives items, such as a `DataLoader`: the first
            `limit` of them are kept.
        limit: the most samples that are wanted; None for all.

    Raises:
        InputError: it is none of these, or the arrays have samples of unlike number.
    """
    if isinstance(data, Mapping) or _is_array(data):
        return Items(_Rows(data), has_batch=False)
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        return Items(data, has_batch=isinstance(data, Sequence))
    if not isinstance(data, Iterable):
        raise InputError(f"the data are a {type(data).__name__}", _WANTED)
    return Items(list(islice(data, limit)), has_batch=True)


def read_first(module: "nn.Module", items: Items) -> Sample:
    """Returns the first sample by the names of a module's arguments, with a batch axis of 1.

    Raises:
        InputError: there is none, or it does not fit the arguments.
    """
    if len(items.values) == 0:
        raise _no_samples()
    named = items.for_module(module).read(0, name_arguments(module))
    for name, array in named.items():
        if items.has_batch and not array.ndim:
            raise InputError(
                f"'{name}' of the first item is a single number",
                "arrays with a batch axis in front",
                "as a DataLoader gives them, or pass a Dataset, whose items have none",
            )
    return {name: array[:1] if items.has_batch else array[None] for name, array in named.items()}


def name_arguments(module: "nn.Module") -> tuple[str, ...]:
    """Returns the names of the arguments that a module cannot do without; of one, `SOLE_INPUT`."""
    names = tuple(list_needed(module))
    return names if len(names) > 1 else (SOLE_INPUT,)


def name_arrays(item: Any, names: Sequence[str]) -> Sample:
    """Returns the arrays of an item for the inputs called `names`; labels are left out.

    Raises:
        InputError: it has not one for each.
    """
    if isinstance(item, Mapping):
        if len(names) == len(item) == 1:
            return {names[0]: _as_array(names[0], next(iter(item.values())))}
        if not set(names) <= set(item):
            raise InputError(f"an item has {', '.join(map(str, item))}", ", ".join(names))
        return {name: _as_array(name, item[name]) for name in names}
    if isinstance(item, tuple | list):
        is_joined = bool(item) and len(names) > 1 and isinstance(item[0], tuple | list)
        if is_joined or (item and isinstance(item[0], Mapping)):
            return name_arrays(item[0], names)
        if len(item) < len(names):
            raise InputError(f"an item has {len(item)} values", f"{', '.join(names)} first")
        return {name: _as_array(name, value) for name, value in zip(names, item, strict=False)}
    if len(names) > 1:
        raise InputError(f"an item is a {type(item).__name__}", f"one value for {', '.join(names)}")
    return {names[0]: _as_array(names[0], item)}


def _has_name(item: Any, name: str) -> bool:
    """Returns whether an item is a dictionary with an array of that name, or begins with one."""
    first = item[0] if isinstance(item, tuple | list) and item else item
    return isinstance(first, Mapping) and name in first


def _split_array(name: str, array: Array, tensor: TensorShape) -> list[Array]:
    """Returns the samples that an array holds, each of the input's shape and type."""
    shape = tensor.shape
    if not tensor.takes(array.dtype):
        raise InputError(f"input '{name}' is {array.dtype}", tensor.dtype)
    array = array.astype(tensor.dtype, copy=False)
    if fits_shape(array.shape, shape):
        parts = [array]
    elif fits_shape((1, *array.shape), shape):
        parts = [array[None]]
    elif array.ndim == len(shape) and shape[0] and len(array) and not len(array) % shape[0]:
        parts = np.split(array, len(array) // shape[0])
    else:
        parts = list(array) if array.ndim == len(shape) + 1 else []
    if not parts or not fits_shape(parts[0].shape, shape):
        raise InputError(
            f"input '{name}' has the shape {list(array.shape)}",
            f"{list(shape)}, or more samples along the first axis",
        )
    return [np.ascontiguousarray(part) for part in parts]


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _as_array(name: str, value: Any) -> Array:
    """Returns an array of an array or of a tensor on any device; bfloat16 becomes float32."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    if not isinstance(value, np.ndarray):
        raise InputError(f"input '{name}' is a {type(value).__name__}", "an array or a tensor")
    return value


def _no_samples() -> InputError:
    return InputError("the data have no samples", "at least 1")
