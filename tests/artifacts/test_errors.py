"""Errors say it in one line and carry their exit code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from artifacts import errors


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FramefitError, 5),
        (errors.InputError, 2),
        (errors.UnsafeFileError, 2),
        (errors.InconclusiveError, 3),
        (errors.UnavailableError, 4),
    ],
)
def test_exit_codes(kind: type[errors.FramefitError], code: int) -> None:
    assert kind("what").exit_code == code
    assert issubclass(kind, ValueError) == (code == 2)


@given(st.text(), st.text(), st.text())
def test_message_is_one_line(what: str, expected: str, fix: str) -> None:
    assert len(str(errors.InputError(what, expected, fix)).splitlines()) <= 1


def test_missing_extra_says_what_needs_it_and_what_to_install() -> None:
    message = str(errors.MissingExtraError("tensorrt", "tensorrt", "running a TensorRT plan"))
    assert message.startswith("running a TensorRT plan needs the Python package 'tensorrt'")
    assert "pip install 'framefit[tensorrt]'" in message
    assert str(errors.MissingExtraError("torch", "torch")).startswith("the Python package 'torch'")
    assert str(errors.MissingExtraError("openvino", "")).endswith("pip install openvino")
