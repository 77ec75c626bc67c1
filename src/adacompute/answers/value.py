"""The value of a formula's tree, as a key that equal formulas share. Knows nothing of spelling or units.

Rational values are exact. Others are computed in floating point, those with variables at two fixed
points, and rounded to ten digits: x^2-1 and (x-1)(x+1) share a key, 2π and 6.28 don't.
"""

import cmath
import math
import zlib
from collections.abc import Callable
from fractions import Fraction

from adacompute.answers.parse import Node

__all__ = ["Key", "NoValueError", "value_keys"]

Key = tuple[object, ...]
Number = Fraction | complex

_LONGEST = 20_000  # bits of an exact number
_FACTORIAL = 200
_SMALL_DENOMINATOR = 1000


class NoValueError(Exception):
    """The formula has no value here: too large, undefined, or infinite inside."""


def value_keys(node: Node) -> list[Key]:
    """The keys of the values a formula stands for: two where it holds a ±, else one."""
    if node == ("num", "∞") or node == ("neg", ("num", "∞")):
        return [("∞", -1 if node[0] == "neg" else 1)]
    names: set[str] = set()
    signs = (1, -1) if _collect(node, names) else (1,)
    keys = []
    try:
        for sign in signs:
            if names:
                keys.append(_signature([_evaluate(node, point, sign) for point in (0, 1)]))
            else:
                keys.append(_constant(_evaluate(node, 0, sign)))
    except (ArithmeticError, ValueError, RecursionError) as exc:
        raise NoValueError(str(exc)) from exc
    return list(dict.fromkeys(keys))


def _collect(node: Node, names: set[str]) -> bool:
    """Gathers the variables; says whether there is a ±."""
    if node[0] == "var":
        if node[1] not in ("i", "e"):
            names.add(node[1])
        return False
    found = [_collect(child, names) for child in node[1:] if isinstance(child, tuple)]
    return node[0] == "±" or any(found)


def _point(name: str, point: int) -> float:
    """A fixed value for a variable, positive, as answers mean them: sqrt(x^2) is x."""
    return 0.5 + zlib.crc32(f"{name}/{point}/adacompute".encode("utf-8", "replace")) / 2**31


def _evaluate(node: Node, point: int, sign: int) -> Number:
    kind = node[0]
    if kind == "num":
        return _named(node[1])
    if kind == "var":
        return {"i": 1j, "e": complex(math.e)}.get(node[1]) or complex(_point(node[1], point))
    if kind == "call":
        return _call(node[1], _evaluate(node[2], point, sign), node[2])
    x = _evaluate(node[1], point, sign)
    if kind == "neg":
        return -x
    y = _evaluate(node[2], point, sign)
    return _OPERATIONS[kind](x, y if kind != "±" else y * sign)


def _named(number: object) -> Number:
    if isinstance(number, Fraction):
        return number
    if number == "π":
        return complex(math.pi)
    raise NoValueError("infinity inside a formula")


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


_OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": _add,
    "±": _add,
    "*": _times,
    "/": _over,
    "^": _power,
    "root": _root,
    "log": _log,
    "binom": _binomial,
}

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


def _call(name: str, x: Number, node: Node) -> Number:
    if name == "!":
        return Fraction(math.factorial(_natural(x)))
    if name == "°":
        return complex(x) * math.pi / 180
    if name in ("abs", "|"):
        return abs(x) if isinstance(x, Fraction) else complex(abs(x))
    if name in ("⌊", "⌈"):
        if isinstance(x, complex) and x.imag:
            raise NoValueError("rounding a complex number")
        real = x if isinstance(x, Fraction) else x.real
        return Fraction(math.floor(real) if name == "⌊" else math.ceil(real))
    if name == "sqrt":
        return _root(x, Fraction(2))
    if name == "log":  # of ten where it is a number's, natural in formulas with variables
        return cmath.log10(complex(x)) if not _collect_any(node) else cmath.log(complex(x))
    if name not in _COMPLEX:
        raise NoValueError(f"{name} has no value here")
    return _COMPLEX[name](complex(x))


def _collect_any(node: Node) -> bool:
    names: set[str] = set()
    _collect(node, names)
    return bool(names)


def _constant(value: Number) -> Key:
    if isinstance(value, Fraction):
        return ("number", value)
    real, imaginary = _snap(value.real, abs(value)), _snap(value.imag, abs(value))
    return ("number", real) if imaginary == 0 else ("complex", real, imaginary)


def _signature(values: list[Number]) -> Key:
    """The rounded values at the fixed points; a constant where they are the same number."""
    numbers = [complex(value) for value in values]
    if abs(numbers[0] - numbers[1]) <= 1e-12 * abs(numbers[0]):
        return _constant(values[0])
    return ("formula", *(_round(part, abs(z)) for z in numbers for part in (z.real, z.imag)))


def _round(x: float, size: float) -> str:
    if not math.isfinite(x):
        raise NoValueError("not finite")
    return "0" if abs(x) <= 1e-11 * size else f"{x:.9e}"


def _snap(x: float, size: float) -> Fraction | str:
    """A float that is a simple fraction but for rounding, as that fraction; else its first ten digits."""
    if not math.isfinite(x):
        raise NoValueError("not finite")
    if abs(x) <= 1e-13 * max(1.0, size):
        return Fraction(0)
    if abs(x) < 1e9:
        near = Fraction(x).limit_denominator(_SMALL_DENOMINATOR)
        if near != 0 and abs(float(near) - x) <= 4e-14 * max(abs(x), size):
            return near
    return f"{x:.9e}"
