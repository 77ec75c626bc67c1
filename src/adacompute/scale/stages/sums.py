"""Sums of floating-point numbers that are exact, so that parts add up to the whole. Knows no samples."""

from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["exact_sum"]

_BITS = 53  # of a mantissa
_HALF = 26


def exact_sum(values: npt.NDArray[np.float64]) -> Fraction:
    """The sum of finite numbers, not rounded: `float` of it is `math.fsum` of them all.

    >>> float(exact_sum(np.array([0.1] * 10)))
    1.0
    """
    mantissas, exponents = np.frexp(values)
    whole = np.ldexp(mantissas, _BITS).astype(np.int64)
    total = Fraction(0)
    for exponent in np.unique(exponents).tolist():
        some = whole[exponents == exponent]
        # in two parts, for 2^10 mantissas together would be too many bits
        mine = (int((some >> _HALF).sum()) << _HALF) + int((some & ((1 << _HALF) - 1)).sum())
        total += Fraction(mine) * Fraction(2) ** (exponent - _BITS)
    return total
