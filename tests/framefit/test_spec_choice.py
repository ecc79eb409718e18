"""The input spec is said once; whatever contradicts it is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InputError
from artifacts.input_spec import InputSpec
from framefit.spec_choice import choose_spec, parse_numbers

STORED = InputSpec(color="bgr", mean=(0.5, 0.5, 0.5), pixel_scale=0.25)


def test_nothing_said_is_the_default_with_a_warning() -> None:
    spec, warning = choose_spec(None, {}, {"color": None, "mean": None})
    assert spec == InputSpec()
    assert "RGB, 1/255, stretch" in warning
    grey, _ = choose_spec(None, {}, {}, channels=1)
    assert grey.mean == (0.0,)


def test_stored_spec_wins_without_a_warning() -> None:
    assert choose_spec(STORED, {}, {}) == (STORED, "")
    assert choose_spec(STORED, {"color": "bgr"}, {"pixel_scale": 0.25}) == (STORED, "")


def test_options_complete_the_settings() -> None:
    spec, warning = choose_spec(None, {"color": "bgr"}, {"mean": (1.0, 2.0, 3.0)})
    assert spec == InputSpec(color="bgr", mean=(1.0, 2.0, 3.0))
    assert warning == ""


@pytest.mark.parametrize(
    ("stored", "configured", "given_values"),
    [
        (STORED, {}, {"color": "rgb"}),
        (STORED, {"color": "rgb"}, {}),
        (STORED, {}, {"mean": (0.5,)}),
        (STORED, {}, {"mean": (0.5, 0.5, 0.4)}),
        (STORED, {}, {"resize": "letterbox"}),
        (None, {"color": "bgr"}, {"color": "rgb"}),
        (None, {"mean": [1, 2, 3]}, {"mean": (1.0, 2.0, 4.0)}),
    ],
)
def test_contradictions_are_refused(stored, configured, given_values) -> None:
    with pytest.raises(InputError, match="leave --"):
        choose_spec(stored, configured, given_values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4))
def test_numbers_as_typed(values: list[float]) -> None:
    assert parse_numbers(",".join(repr(value) for value in values), "--mean") == tuple(values)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1;2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="--mean"):
        parse_numbers(text, "--mean")
