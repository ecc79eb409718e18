"""Samples that a program hands over as arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from artifacts.errors import InputError
from artifacts.feeds import check_array, check_names
from artifacts.samples import Samples, TensorShape


class ArraySamples(Samples):
    """Dictionaries of arrays, each checked against the network's inputs when it is asked for.

    Args:
        given: one dictionary of input arrays (batch axis included) per sample.
        inputs: the network's inputs; a size of 0 is any.

    Raises:
        InputError: `given` is no sequence.
    """

    def __init__(
        self, given: Sequence[Mapping[str, NDArray[Any]]], inputs: Mapping[str, TensorShape]
    ) -> None:
        if not isinstance(given, Sequence):
            raise InputError(
                f"the samples are a {type(given).__name__}",
                "a list of dictionaries, an array per input in each",
            )
        self._given = given
        self._inputs = inputs
        super().__init__([str(index) for index in range(len(given))])

    def _read(self, index: int) -> dict[str, NDArray[Any]]:
        feeds = self._given[index]
        if not isinstance(feeds, Mapping):
            raise InputError(
                f"sample {index} is a {type(feeds).__name__}", "a dictionary, an array per input"
            )
        try:
            check_names(self._inputs, feeds)
            return {
                name: check_array(name, feeds.get(name), tensor.shape, np.dtype(tensor.dtype))
                for name, tensor in self._inputs.items()
            }
        except InputError as error:
            raise InputError(f"sample {index}: {error.what}", error.expected, error.fix) from error
