"""The value of a formula's tree, as a key that equal formulas share. Knows nothing of spelling or units.

Formulas with variables are computed at three fixed points, one below 1 and one above 10. Rational values
are exact; others are floating point rounded to ten digits: x^2-1 and (x-1)(x+1) share a key, 2π and 6.28
don't. Where rounding hides what a variable does, as in 10^{12}+\\sqrt{x}, there is no key.
"""

import cmath
import math
import zlib
from fractions import Fraction
from functools import lru_cache

from adacompute.answers.operations import OPERATIONS, NoValueError, Number, call
from adacompute.answers.parse import Node
from adacompute.answers.tokens import FormulaError

__all__ = ["Key", "value_keys"]

Key = tuple[object, ...]

_SMALL_DENOMINATOR = 1000
_UNITS = {"i": 1j, "e": complex(math.e)}
_STEPS = {"abs": 0.37, "|": 0.37, "⌊": 0.61, "⌈": 0.83}  # seeds, see _unknown
_POINTS = range(3)
_SEEN = 1e-7  # relative change that a variable must make to be seen through rounding


def value_keys(node: Node) -> list[Key]:
    """The keys of the values a formula stands for: two where it holds a ±, else one."""
    if node == ("num", "∞") or node == ("neg", ("num", "∞")):
        return [("∞", -1 if node[0] == "neg" else 1)]
    names: set[str] = set()
    count = _collect(node, names)
    if count > 1:
        raise FormulaError("signs that may or may not go together")
    try:
        keys = [
            _signature(node, names, sign) if names else _constant(_evaluate(node, {}, sign), _cancels(node))
            for sign in ((1, -1) if count else (1,))
        ]
    except (ArithmeticError, ValueError, RecursionError) as exc:
        raise NoValueError(str(exc)) from exc
    return list(dict.fromkeys(keys))


def _collect(node: Node, names: set[str]) -> int:
    """Gathers the variables and unknown functions; counts the ±."""
    if node[0] == "var":
        if node[1] not in ("i", "e"):
            names.add(node[1])
        return 0
    if node[0] == "apply":
        names.add(node[1] + "()")
    inside = sum(_collect(child, names) for child in node[1:] if isinstance(child, tuple))
    return inside + 1 if node[0] == "±" else inside


@lru_cache(maxsize=4096)
def _point(name: str, point: int) -> Fraction:
    """A fixed value for a variable, positive, as answers mean them: sqrt(x^2) is x. Letters share none."""
    if len(name) == 1:
        number, scale = ord(name) * (5, 31, 62)[point] % 97, 1  # a prime: letters stay apart
    else:
        number, scale = zlib.crc32(f"{name}/{point}".encode("utf-8", "replace")) % 9973, 100
    low, step = ((1, 101), (12, 11), (34, 3))[point]  # below 1, from 1 to 10, above 11
    return Fraction(number + low * scale, step * scale + (scale > 1))


def _signature(node: Node, names: set[str], sign: int) -> Key:
    """The values at the fixed points; a constant where they are exactly the same."""
    points = [{name: _point(name, point) for name in names} for point in _POINTS]
    values = [_value(node, point, sign) for point in points]
    if all(isinstance(value, Fraction) for value in values):
        exact = dict.fromkeys(values)
        return ("number", values[0]) if len(exact) == 1 else ("formula", *(("number", v) for v in values))
    if values.count(None) > 1:
        raise NoValueError("too large nearly everywhere")
    for name in names:
        moved = [_value(node, points[a] | {name: points[b][name]}, sign) for a, b in ((0, 1), (1, 0))]
        if not any(_differ(x, y) for x, y in zip(moved, values, strict=False)):
            raise FormulaError(f"what {name} does is lost in rounding")
    return ("formula", *(_constant(value) for value in values))


def _value(node: Node, point: dict[str, Fraction], sign: int) -> Number | None:
    try:
        return _evaluate(node, point, sign)
    except OverflowError:
        return None


def _differ(x: Number | None, y: Number | None) -> bool:
    if x is None or y is None:
        return x is not y
    return abs(complex(x) - complex(y)) > _SEEN * abs(complex(y))


def _evaluate(node: Node, point: dict[str, Fraction], sign: int) -> Number:
    kind = node[0]
    if kind == "num":
        return _named(node[1])
    if kind == "var":
        return _UNITS.get(node[1]) or point[node[1]]
    if kind == "call":
        inner = _evaluate(node[2], point, sign)
        if node[1] in _STEPS and point and _varies(node[2]):
            # a few points can't tell |x-50| from 50-x: it equals the same of the same only
            return _unknown(_STEPS[node[1]], abs(complex(inner)) if node[1] in ("abs", "|") else inner)
        return call(node[1], inner, varies=bool(point))
    if kind == "apply":
        return _unknown(float(point[node[1] + "()"]), _evaluate(node[2], point, sign))
    x = _evaluate(node[1], point, sign)
    if kind == "neg":
        return -x
    y = _evaluate(node[2], point, sign)
    return OPERATIONS[kind](x, y if kind != "±" else y * sign)


def _named(number: object) -> Number:
    if isinstance(number, Fraction):
        return number
    if number == "π":
        return complex(math.pi)
    raise NoValueError("infinity inside a formula")


def _cancels(node: Node) -> bool:
    """Whether a tiny value may be a zero but for rounding, as that of sin(π), unlike that of 10^{-20}π."""
    return node[0] in ("+", "±", "call") or any(
        _cancels(child) for child in node[1:] if isinstance(child, tuple)
    )


def _varies(node: Node) -> bool:
    names: set[str] = set()
    _collect(node, names)
    return bool(names)


def _unknown(seed: float, x: Number) -> complex:
    """Some function of which nothing is known, so that f(x) equals f of the same only."""
    return cmath.sin(seed * complex(x) + seed) + 0.3 * complex(x) + seed


def _constant(value: Number | None, cancels: bool = True) -> Key:
    if value is None:
        return ("number", "∞")
    if isinstance(value, Fraction):
        return ("number", value)
    size = abs(value)
    real, imaginary = (_snap(part, size, 1e-15 if cancels else 0.0) for part in (value.real, value.imag))
    return ("number", real) if imaginary == 0 else ("complex", real, imaginary)


def _snap(x: float, size: float, zero: float) -> Fraction | str:
    """A float that is a simple fraction but for rounding, as that fraction; else its first ten digits."""
    if not math.isfinite(x):
        raise NoValueError("not finite")
    if abs(x) <= max(zero, 1e-13 * size):
        return Fraction(0)
    if abs(x) < 1e9:
        near = Fraction(x).limit_denominator(_SMALL_DENOMINATOR)
        if near != 0 and abs(float(near) - x) <= 4e-14 * max(abs(x), size):
            return near
    return f"{x:.9e}"
