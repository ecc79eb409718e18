"""Exact binomial and gamma tails, with numpy and `math` alone."""

import math

import numpy as np
from numpy.typing import NDArray

_TINY = 1e-300
_PRECISION = 1e-14


def binomial_cdf_table(n: int, p: float, last: int) -> NDArray[np.float64]:
    """Returns P[Bin(n, p) <= k] for k = 0..last.

    The logarithms of neighbouring probabilities differ by log((n-i)/(i+1) * p/(1-p)); their running
    sum is anchored at the mode by `math.lgamma`, so that no term underflows before it matters.

    Args:
        n: trials.
        p: probability of each, strictly between 0 and 1.
        last: the last k, clipped to n.
    """
    i = np.arange(n, dtype=np.float64)
    steps = np.log(n - i) - np.log(i + 1) + math.log(p) - math.log1p(-p)
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    mode = min(n, int((n + 1) * p))
    exact = (
        math.lgamma(n + 1)
        - math.lgamma(mode + 1)
        - math.lgamma(n - mode + 1)
        + mode * math.log(p)
        + (n - mode) * math.log1p(-p)
    )
    table: NDArray[np.float64] = np.cumsum(np.exp(logs - logs[mode] + exact))
    return np.minimum(table[: min(last, n) + 1], 1.0, dtype=np.float64)


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Returns P[Bin(n, p) <= k]."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    return float(binomial_cdf_table(n, p, k)[k])


def binomial_tail(k: int, n: int, p: float) -> float:
    """Returns P[Bin(n, p) >= k], summed from its small end so that it is not 1 minus nearly 1."""
    return binomial_cdf(n - k, n, 1.0 - p)


def binomial_quantile(probability: float, n: int, p: float) -> int:
    """Returns the smallest k with P[Bin(n, p) <= k] >= probability."""
    if n == 0:
        return 0
    table = binomial_cdf_table(n, p, n)
    return min(int(np.searchsorted(table, probability, side="left")), n)


def gamma_quantile(probability: float, shape: float) -> float:
    """Returns x with P(shape, x) = probability, P the regularized lower incomplete gamma function.

    `chi2.ppf(probability, 2 * shape) / 2` is the same number.
    """
    low, high = 0.0, max(1.0, shape)
    while _gamma_cdf(shape, high) < probability:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if high - low <= _PRECISION * high:
            break
        if _gamma_cdf(shape, middle) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _gamma_cdf(shape: float, x: float) -> float:
    """P(shape, x) by its series below the mean and a continued fraction (Lentz) above it."""
    if x <= 0:
        return 0.0
    scale = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    if x < shape + 1:
        term = total = 1.0 / shape
        divisor = shape
        while abs(term) > abs(total) * _PRECISION:
            divisor += 1
            term *= x / divisor
            total += term
        return total * scale
    b = x + 1 - shape
    c = 1 / _TINY
    d = 1 / b
    fraction, step = d, 0.0
    i = 0
    while abs(step - 1) > _PRECISION and i < 100_000:
        i += 1
        a = -i * (i - shape)
        b += 2
        d = 1 / (_nonzero(a * d + b))
        c = _nonzero(b + a / c)
        step = d * c
        fraction *= step
    return 1.0 - scale * fraction


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
