"""Integers of weights whose products are added in pairs, in 16 bits (`artifacts.paired_products`).

What two weights of one sign are together has to fit, so only few of them are smaller than their 8
bits allow, where 7 bits for all lose half of the steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.paired_products import PAIR_SUM, LayerProducts, sum_pairs
from compress.quantize.qparams import WEIGHT_GRID, WEIGHT_GRIDS, IntegerGrid, Limit


@dataclass(frozen=True, kw_only=True, eq=False)
class PairedGrid(IntegerGrid):
    """The integers of one layer's weights, [..., in].

    Attributes:
        partners: [orders, in] the weight whose product is added to that of each weight, in the
            order of each runtime; -1 for none.
    """

    partners: NDArray[np.int64]

    def limits(
        self, values: NDArray[np.float64], steps: NDArray[np.float64] | float = 1.0
    ) -> tuple[Limit, Limit]:
        """Returns limits that any two partners keep together, nearest to what they are.

        What one of them leaves of the sum is for the other; what is too much is taken from both
        alike (halves to even, which is up for one and down for the other). Integers that keep the
        sum are within the limits that are made of them.
        """
        exact = values / steps
        return -self._limit(-exact), self._limit(exact)

    def reach(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the scale of each row with which neither a value nor a pair is clipped."""
        largest = [sum_pairs(sign * rows, self.partners).max(axis=(1, 2)) for sign in (1, -1)]
        return np.asarray(np.maximum(super().reach(rows), np.maximum(*largest) / PAIR_SUM))

    def _limit(self, exact: NDArray[np.float64]) -> NDArray[np.float64]:
        own = np.clip(exact, 0, self.highest)
        shared = np.rint(PAIR_SUM / 2 + own[..., None, :] - sum_pairs(own, self.partners) / 2)
        limits = np.where(self.partners < 0, self.highest, np.minimum(shared, self.highest))
        return np.asarray(limits.min(axis=-2))


def grid_of_layer(common: IntegerGrid, *layers: LayerProducts | None) -> IntegerGrid:
    """Returns the integers of a layer of a network with paired ones; others stay as they are.

    Args:
        common: the network's.
        layers: whose weights they are, as each runtime adds their products; None where these are
            not known.

    Returns:
        8 bits without limits where no products are paired, and 7 where that is not known.
    """
    if not common.is_paired:
        return common
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return WEIGHT_GRIDS["int7"]
    orders = [layer.find_partners() for layer in known if layer.has_pairs]
    if not orders:
        return WEIGHT_GRID
    partners = np.unique(np.stack(orders), axis=0)
    return PairedGrid(
        bits=common.bits, is_narrow=common.is_narrow, is_paired=True, partners=partners
    )
