"""A tensor as boxes of other tensors: what slices, axes moved and writes into slices make of it.

A value is a `Box` of a tensor, a `Fill` of one number, or a `Row` of values along an axis. Each
function returns the value that an operator makes of one, without a copy of what it holds.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Box:
    """A part of a tensor, its axes in another order.

    Attributes:
        tensor: whose part it is.
        begins: where the part begins, for each axis of the tensor.
        sizes: how long it is, for each axis of the tensor.
        axes: the tensor's axis that each of the value's axes is; None for one of size 1 that the
            tensor does not have. Axes of the tensor that are missing have size 1.
    """

    tensor: str
    begins: tuple[int, ...]
    sizes: tuple[int, ...]
    axes: tuple[int | None, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        return tuple(1 if axis is None else self.sizes[axis] for axis in self.axes)


@dataclass(frozen=True)
class Fill:
    """The same number everywhere.

    Attributes:
        number: it.
        dtype: name of numpy's type.
        shape: the value's shape.
    """

    number: float
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """Values behind each other along an axis.

    Attributes:
        axis: it, from 0.
        parts: two values or more, of equal shapes but for that axis.
    """

    axis: int
    parts: tuple["Value", ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The value's shape."""
        first = self.parts[0].shape
        length = sum(part.shape[self.axis] for part in self.parts)
        return (*first[: self.axis], length, *first[self.axis + 1 :])


Value = Box | Fill | Row


def whole(tensor: str, shape: Sequence[int]) -> Box:
    """Returns the value that is all of a tensor."""
    return Box(tensor, (0,) * len(shape), tuple(shape), tuple(range(len(shape))))


def count_parts(value: Value) -> int:
    """Returns of how many boxes and fills a value is made."""
    return sum(map(count_parts, value.parts)) if isinstance(value, Row) else 1


def join(axis: int, values: Iterable[Value]) -> Value:
    """Returns values behind each other along `axis`; what goes on in the same tensor is one box."""
    parts: list[Value] = []
    for value in values:
        same = isinstance(value, Row) and value.axis == axis
        for part in value.parts if isinstance(value, Row) and same else (value,):
            joined = _merge(axis, parts[-1], part) if parts else None
            parts[-1:] = [joined] if joined else [*parts[-1:], part]
    return parts[0] if len(parts) == 1 else Row(axis, tuple(parts))


def take(value: Value, axis: int, start: int, stop: int) -> Value:
    """Returns the part of a value from `start` to before `stop`, which is behind it, on `axis`."""
    if (start, stop) == (0, value.shape[axis]):
        return value
    if isinstance(value, Fill):
        return replace(value, shape=_with(value.shape, axis, stop - start))
    if isinstance(value, Box):
        place = value.axes[axis]
        assert place is not None  # of an axis of size 1 there is no other part than all of it
        begins = _with(value.begins, place, value.begins[place] + start)
        return replace(value, begins=begins, sizes=_with(value.sizes, place, stop - start))
    if axis != value.axis:
        return join(value.axis, (take(part, axis, start, stop) for part in value.parts))
    cut, at = [], 0
    for part in value.parts:
        length = part.shape[axis]
        first, last = max(start - at, 0), min(stop - at, length)
        if first < last:
            cut.append(take(part, axis, first, last))
        at += length
    return join(axis, cut)


def write(value: Value, starts: Sequence[int], update: Value, axis: int = 0) -> Value:
    """Returns a value with `update` in the box that begins at `starts`."""
    if axis == len(starts):
        return update
    start, size = starts[axis], value.shape[axis]
    stop = start + update.shape[axis]
    parts = [write(take(value, axis, start, stop), starts, update, axis + 1)]
    if start:
        parts.insert(0, take(value, axis, 0, start))
    if stop < size:
        parts.append(take(value, axis, stop, size))
    return join(axis, parts)


def transpose(value: Value, order: Sequence[int]) -> Value:
    """Returns a value whose axis i is axis `order[i]` of what it was."""
    if isinstance(value, Row):
        turned = (transpose(part, order) for part in value.parts)
        return join(list(order).index(value.axis), turned)
    if isinstance(value, Fill):
        return replace(value, shape=tuple(value.shape[axis] for axis in order))
    return replace(value, axes=tuple(value.axes[axis] for axis in order))


def insert_axis(value: Value, axis: int) -> Value:
    """Returns a value with an axis of size 1 more, which is `axis` afterwards."""
    if isinstance(value, Fill):
        return replace(value, shape=(*value.shape[:axis], 1, *value.shape[axis:]))
    if isinstance(value, Box):
        return replace(value, axes=(*value.axes[:axis], None, *value.axes[axis:]))
    return _along(value, value.axis + (axis <= value.axis), lambda part: insert_axis(part, axis))


def drop_axis(value: Value, axis: int) -> Value:
    """Returns a value without its `axis`, whose size is 1."""
    if isinstance(value, Fill):
        return replace(value, shape=(*value.shape[:axis], *value.shape[axis + 1 :]))
    if isinstance(value, Box):
        return replace(value, axes=(*value.axes[:axis], *value.axes[axis + 1 :]))
    return _along(value, value.axis - (axis < value.axis), lambda part: drop_axis(part, axis))


def fit_ones(value: Value, shape: Sequence[int]) -> Value | None:
    """Returns a value reshaped by axes of size 1 only; None if `shape` differs in others.

    Axes that both have stay: a batch of 1 may be a free one.
    """
    if [size for size in value.shape if size != 1] != [size for size in shape if size != 1]:
        return None
    axis = 0
    while axis < max(len(value.shape), len(shape)):
        own, wanted = (sizes[axis] if axis < len(sizes) else None for sizes in (value.shape, shape))
        if own == wanted:
            axis += 1
        elif own == 1:
            value = drop_axis(value, axis)
        else:
            value = insert_axis(value, axis)
            axis += 1
    return value


def _along(row: Row, axis: int, change: Callable[[Value], Value]) -> Value:
    return join(axis, (change(part) for part in row.parts))


def _with(sizes: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*sizes[:axis], size, *sizes[axis + 1 :])


def _merge(axis: int, first: Value, second: Value) -> Value | None:
    """Returns two neighbours along an axis as one box or fill, if they are one."""
    length = first.shape[axis] + second.shape[axis]
    if isinstance(first, Fill) and isinstance(second, Fill):
        same = (first.number, first.dtype) == (second.number, second.dtype)
        return replace(first, shape=_with(first.shape, axis, length)) if same else None
    if not isinstance(first, Box) or not isinstance(second, Box):
        return None
    place = first.axes[axis]
    if place is None:
        return None
    begins = _with(first.begins, place, first.begins[place] + first.sizes[place])
    if replace(first, begins=begins, sizes=second.sizes) != second:
        return None
    return replace(first, sizes=_with(first.sizes, place, length))
