"""Arithmetic of formulas: exact on fractions, else complex floating point. Knows no trees, no variables."""

import cmath
import math
from collections.abc import Callable
from fractions import Fraction

__all__ = ["OPERATIONS", "NoValueError", "Number", "call"]

Number = Fraction | complex

_LONGEST = 20_000  # bits of an exact number
_FACTORIAL = 200
_LOG_BASE = 7.3  # of log beside variables: books disagree whether it is ten or e, so it is neither


class NoValueError(Exception):
    """The formula has no value here: too large, undefined, or infinite inside."""


def _exact(x: Number, y: Number) -> bool:
    return isinstance(x, Fraction) and isinstance(y, Fraction)


def _add(x: Number, y: Number) -> Number:
    return x + y if _exact(x, y) else complex(x) + complex(y)


def _times(x: Number, y: Number) -> Number:
    return x * y if _exact(x, y) else complex(x) * complex(y)


def _over(x: Number, y: Number) -> Number:
    return x / y if _exact(x, y) else complex(x) / complex(y)


def _power(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        if y.denominator == 1:
            size = max(x.numerator.bit_length(), x.denominator.bit_length())
            if abs(y.numerator) * size > _LONGEST:
                if abs(x) == 1 or x == 0:
                    return x ** (y.numerator % 2 or 2)
                raise NoValueError("a number too large to write")
            return x**y.numerator
        root = _exact_root(x, y.denominator)
        if root is not None and abs(y.numerator) < _FACTORIAL:
            return _power(root, Fraction(y.numerator))
        if x < 0 and y.denominator % 2:  # the real root, as answers mean it
            return -(complex(-x) ** complex(y)) if y.numerator % 2 else complex(-x) ** complex(y)
    if isinstance(y, Fraction) and y.denominator == 1 and abs(y.numerator) <= 64:
        return complex(x) ** int(y)
    return complex(x) ** complex(y)


def _exact_root(x: Fraction, degree: int) -> Fraction | None:
    if x < 0 or degree > 64 or x.numerator.bit_length() + x.denominator.bit_length() > 1000:
        return None
    top, bottom = (_whole_root(n, degree) for n in (x.numerator, x.denominator))
    return Fraction(top, bottom) if top is not None and bottom is not None else None


def _whole_root(n: int, degree: int) -> int | None:
    guess = math.isqrt(n) if degree == 2 else round(float(n) ** (1 / degree))
    return guess if guess**degree == n else None


def _root(x: Number, degree: Number) -> Number:
    if not isinstance(degree, Fraction) or degree == 0:
        raise NoValueError("a root of no degree")
    return _power(x, 1 / degree)


def _log(x: Number, base: Number) -> Number:
    return cmath.log(complex(x)) / cmath.log(complex(base))


def _binomial(x: Number, y: Number) -> Number:
    n, k = _natural(x), _natural(y)
    return Fraction(math.comb(n, k))


def _natural(x: Number) -> int:
    if not isinstance(x, Fraction) or x.denominator != 1 or not 0 <= x <= _FACTORIAL:
        raise NoValueError("not a small whole number")
    return x.numerator


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": _add,
    "±": _add,
    "*": _times,
    "/": _over,
    "^": _power,
    "root": _root,
    "log": _log,
    "binom": _binomial,
}

_ROUNDING = ("abs", "|", "⌊", "⌈")
_COMPLEX: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z),
    "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z),
    "asin": cmath.asin,
    "acos": cmath.acos,
    "atan": cmath.atan,
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "exp": cmath.exp,
    "ln": cmath.log,
    "lg": cmath.log10,
    "sqrt": cmath.sqrt,
}


def call(name: str, x: Number, *, varies: bool) -> Number:
    """A function of one number; `varies`: beside variables."""
    if name == "!":
        return Fraction(math.factorial(_natural(x)))
    if name == "°":
        return complex(x) * math.pi / 180
    if name in _ROUNDING:
        return _step(name, x)
    if name == "sqrt":
        return _root(x, Fraction(2))
    if name == "log":
        return cmath.log(complex(x)) / math.log(_LOG_BASE if varies else 10)
    if name not in _COMPLEX:
        raise NoValueError(f"{name} has no value here")
    return _COMPLEX[name](complex(x))


def _step(name: str, x: Number) -> Number:
    if name in ("abs", "|"):
        return abs(x) if isinstance(x, Fraction) else complex(abs(x))
    if isinstance(x, complex) and x.imag:
        raise NoValueError("rounding a complex number")
    real = x if isinstance(x, Fraction) else x.real
    return Fraction(math.floor(real) if name == "⌊" else math.ceil(real))
