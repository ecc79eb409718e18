"""Samples for the tests of repairs."""

import pytest

from compress.quantize.repairs.equalization import ENOUGH_SAMPLES


@pytest.fixture
def many(samples):
    """As many samples as make ranges known."""
    return ([*samples] * ENOUGH_SAMPLES)[:ENOUGH_SAMPLES]
