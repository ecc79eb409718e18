import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from artifacts.tensor_boxes import (
    Box,
    Fill,
    Row,
    drop_axis,
    fit_ones,
    insert_axis,
    join,
    take,
    transpose,
    whole,
    write,
)

STEPS = st.lists(st.sampled_from(("take", "write", "transpose", "insert", "drop")), max_size=8)


def hold(value, tensors):
    """Returns the array that a value stands for."""
    if isinstance(value, Fill):
        return np.full(value.shape, value.number, value.dtype)
    if isinstance(value, Row):
        return np.concatenate([hold(part, tensors) for part in value.parts], value.axis)
    assert isinstance(value, Box)
    bounds = zip(value.begins, value.sizes, strict=True)
    part = tensors[value.tensor][tuple(slice(begin, begin + size) for begin, size in bounds)]
    held = [axis for axis in value.axes if axis is not None]
    missing = [axis for axis in range(part.ndim) if axis not in held]
    return part.transpose(missing + held).reshape(value.shape)


def draw_box(draw, shape):
    starts = [draw(st.integers(0, size - 1)) for size in shape]
    stops = [draw(st.integers(start + 1, size)) for start, size in zip(starts, shape, strict=True)]
    return starts, stops


@given(st.data(), STEPS)
def test_values_are_what_numpy_makes(data, steps):
    tensors = {"x": np.arange(24.0).reshape(2, 3, 4)}
    value, array = whole("x", (2, 3, 4)), tensors["x"]
    for number, step in enumerate(steps):
        axis = data.draw(st.integers(0, array.ndim - 1))
        if step == "take":
            starts, stops = draw_box(data.draw, array.shape)
            value = take(value, axis, starts[axis], stops[axis])
            array = array.take(range(starts[axis], stops[axis]), axis)
        elif step == "write":
            starts, stops = draw_box(data.draw, array.shape)
            shape = tuple(np.subtract(stops, starts))
            name = f"u{number}"
            tensors[name] = -np.arange(np.prod(shape, dtype=int)).reshape(shape) - 100.0 * number
            zeros = data.draw(st.booleans())
            update = Fill(0.0, "float64", shape) if zeros else whole(name, shape)
            value = write(value, starts, update)
            array = array.copy()
            array[tuple(map(slice, starts, stops))] = 0 if zeros else tensors[name]
        elif step == "transpose":
            order = data.draw(st.permutations(range(array.ndim)))
            value, array = transpose(value, order), array.transpose(order)
        elif step == "insert":
            value, array = insert_axis(value, axis), np.expand_dims(array, axis)
        elif array.shape[axis] == 1 and array.ndim > 1:
            value, array = drop_axis(value, axis), array.squeeze(axis)
        assert value.shape == array.shape
        np.testing.assert_array_equal(hold(value, tensors), array)


def test_neighbours_in_one_tensor_are_one_box_again():
    tensor = whole("x", (4, 6))
    assert join(1, [take(tensor, 1, 0, 2), take(tensor, 1, 2, 6)]) == tensor
    assert join(0, [take(tensor, 0, 2, 4), take(tensor, 0, 0, 2)]) != tensor


def test_only_axes_of_size_one_come_and_go():
    tensor = whole("x", (1, 4, 6))
    fitted = fit_ones(tensor, (4, 1, 6))
    assert fitted is not None
    assert fitted.shape == (4, 1, 6)
    assert fit_ones(tensor, (6, 4)) is None
