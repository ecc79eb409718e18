"""Comparing outputs: figures against hand-computed ones, and what is refused."""

import numpy as np
import pytest

from artifacts.errors import InputError
from compress.compare import OutputComparison, compare_outputs
from compress.constant_outputs import format_sqnr
from compress.sqnr import EXACT_DB, SignalToNoise


def outputs_of(*arrays):
    """Returns a network that gives the arrays one after the other."""
    rest = iter(arrays)
    return lambda feeds: {"y": next(rest)}


def compare(reference, candidate):
    samples = [{}] * len(reference)
    return compare_outputs(outputs_of(*reference), outputs_of(*candidate), samples)["outputs"]["y"]


def test_the_figures_are_those_computed_by_hand():
    reference = [np.asarray([[3.0, 4.0]]), np.asarray([[1.0, 0.0]])]
    candidate = [np.asarray([[3.0, 4.5]]), np.asarray([[0.0, 1.0]])]
    result = compare(reference, candidate)
    assert result["sqnr_db"] == pytest.approx(10 * np.log10(26 / 2.25))
    each = [10 * np.log10(25 / 0.25), 10 * np.log10(1 / 2)]
    assert result["sqnr_mean_db"] == pytest.approx(np.mean(each))
    assert (result["worst_sample"], result["sqnr_worst_db"]) == (1, pytest.approx(each[1]))
    assert result["max_abs"] == 1.0
    assert result["agreement"] == 0.5


def test_equal_outputs_are_exact_and_infinities_count_as_equal():
    values = [np.asarray([[1.0, -np.inf]])]
    assert compare(values, values)["sqnr_db"] == EXACT_DB
    assert compare(values, values)["agreement"] == 1.0


def test_a_nan_is_the_worst_there_is():
    meter = SignalToNoise()
    meter.update(np.ones(3), np.asarray([1.0, np.nan, 1.0]))
    assert meter.sqnr_db == -EXACT_DB


@pytest.mark.parametrize("is_swapped", [False, True])
def test_classes_are_on_the_shorter_axis_of_three(is_swapped):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((1, 100, 3))
    changed = scores.copy()
    changed[0, :25] = -changed[0, :25]
    if is_swapped:
        scores, changed = scores.transpose(0, 2, 1), changed.transpose(0, 2, 1)
    comparison = OutputComparison()
    comparison.update(scores, changed)
    assert comparison.result()["agreement"] == 0.75


@pytest.mark.parametrize(("height", "width"), [(6, 10), (12, 20), (3, 5)])
def test_a_map_without_channels_has_no_classes(height, width):
    """Its argmax over rows would change wherever two rows are nearly alike."""
    rng = np.random.default_rng(0)
    depth = rng.standard_normal((1, height, width))
    changed = depth.copy()
    changed[0, 0] = 2 * depth.mean() - depth[0, 0]
    assert _beside_a_picture(depth, changed)["agreement"] == pytest.approx(1 - 1 / height)


@pytest.mark.parametrize("shape", [(1, 12, 20, 3), (1, 2, 3, 12, 20), (3, 12, 20), (1, 1, 12, 20)])
def test_a_map_is_known_beside_pictures_of_any_layout(shape):
    depth = np.random.default_rng(0).standard_normal((1, 6, 10))
    changed = depth.copy()
    changed[0, 0] = 2 * depth.mean() - depth[0, 0]
    samples = [{"image": np.zeros(shape, np.float32)}]
    runs = (lambda feeds, value=value: {"y": value} for value in (depth, changed))
    figures = compare_outputs(*runs, samples)["outputs"]["y"]
    assert figures["agreement"] == pytest.approx(1 - 1 / 6)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(4,), (1, 6, 10), (1, 5, 6, 10), (50, 3)])
def test_integers_agree_where_they_are_equal(shape, dtype):
    labels = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    changed = labels.copy()
    changed.flat[0] = 1 - changed.flat[0]
    assert _beside_a_picture(labels, changed)["agreement"] == pytest.approx(1 - 1 / labels.size)


@pytest.mark.parametrize(("height", "width"), [(12, 20), (6, 10), (4, 7)])
@pytest.mark.parametrize("is_last", [False, True])
def test_classes_of_a_map_are_last_where_channels_are(height, width, is_last):
    """The last map is a third of the picture, rounded up."""
    scores = np.random.default_rng(0).standard_normal((1, 4, height, width))
    changed = scores.copy()
    changed[:, :, 0] = -changed[:, :, 0]
    if is_last:
        scores, changed = (np.moveaxis(values, 1, -1) for values in (scores, changed))
    figures = _beside_a_picture(scores, changed)
    assert figures["agreement"] == pytest.approx(1 - 1 / height)


@pytest.mark.parametrize("is_last", [False, True])
def test_a_map_of_a_single_channel_has_no_classes(is_last):
    depth = np.random.default_rng(0).standard_normal((1, 1, 6, 10))
    changed = depth.copy()
    changed[0, 0, 0] = 2 * depth.mean() - depth[0, 0, 0]
    if is_last:
        depth, changed = (np.moveaxis(values, 1, -1) for values in (depth, changed))
    assert _beside_a_picture(depth, changed)["agreement"] == pytest.approx(1 - 1 / 6)


def test_queries_and_classes_beside_a_picture_stay_classes():
    scores = np.random.default_rng(0).standard_normal((1, 100, 3))
    assert _beside_a_picture(scores, scores + 5)["agreement"] == 1.0


def _beside_a_picture(reference, candidate):
    samples = [{"image": np.zeros((1, 3, 12, 20), np.float32)}]
    runs = (lambda feeds, value=value: {"y": value} for value in (reference, candidate))
    return compare_outputs(*runs, samples)["outputs"]["y"]


@pytest.mark.parametrize(
    ("candidate", "message"),
    [({}, "no output 'y'"), ({"y": np.ones((1, 3))}, r"shape \(1, 3\)")],
)
def test_outputs_that_do_not_fit_are_refused(candidate, message):
    with pytest.raises(InputError, match=message):
        compare_outputs(lambda _: {"y": np.ones((1, 2))}, lambda _: candidate, [{}])


def test_no_samples_are_refused():
    with pytest.raises(InputError, match="at least 1"):
        compare_outputs(lambda _: {}, lambda _: {}, [])


def test_an_output_that_no_sample_changes_is_called_constant_and_not_exact():
    still, moving = np.zeros((1, 4)), [np.zeros((1, 4)), np.ones((1, 4))]
    assert format_sqnr(compare([still, still], [still, still])) == "constant"
    assert format_sqnr(compare([still, still], [still, still + 1])) == f"{-EXACT_DB:.1f}"
    assert format_sqnr(compare(moving, moving)) == "exact"
    assert "is_constant" not in compare(moving, moving)
