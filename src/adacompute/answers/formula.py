"""Parses a cleaned formula (`parse_formula`) and computes keys that equal formulas share (`compute_keys`).

The hand-written parser never calls eval. It limits length and depth, because texts may be hostile.
Nodes are tuples: ("num", Fraction), ("var", name), ("neg", x), ("+", x, y), ("±", x, y), ("*", x, y),
("/", x, y), ("^", x, y), ("call", function, x), ("root", x, degree), ("log", x, base), ("binom", x, y),
and ("apply", name, x) for f(x) with an unknown function f.

A formula with variables is evaluated at three fixed points. Rational values are exact, other values are
floats rounded to ten digits: x^2-1 and (x-1)(x+1) share a key, 2π and 6.28 don't.
If rounding hides the effect of a variable, as in 10^{12}+\\sqrt{x}, the formula has no key.
"""

import cmath
import math
import operator
import re
import zlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

# (kind, text); kinds: "n" number, "c" command, "v" variable, "p" punctuation, "" end
Token = tuple[str, str]

FORMULA_LIMIT = 400  # maximum length of a formula that is parsed, in characters
_VOWELS = frozenset("aeiouAEIOU")
_ARC_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan"}
_FUNCTION_NAMES = "sin cos tan cot sec csc asin acos atan sinh cosh tanh exp ln log lg sqrt abs"
_SHORT_WORDS = (
    "no on of in is it to so or if up us we he me my am pm an as at be by do go hi ok ox yo ah id ex oh ad "
    "mr dr"
)
FUNCTIONS = frozenset(_FUNCTION_NAMES.split()) | frozenset(_ARC_NAMES)
_ENGLISH_WORDS = frozenset(_SHORT_WORDS.split())

_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?|\.\d+|\d+\.(?!\d))|\\([A-Za-z]+)|([A-Za-z]+)|(\S))")
_DECIMAL_EXPONENT = re.compile(r"(?<=[\d.])[eE]([-+]?\d{1,4})(?![\w.])")
_MIXED_NUMBER = re.compile(
    r"(?<![\w.^/}])(\d{1,30})"
    r"(?: (\d{1,30})/(\d{1,30})|\s?\\frac\s?(\d|\{\d{1,30}\})\s?(\d|\{\d{1,30}\}))(?![\d.])"
)
_REPEATING_DECIMAL = re.compile(r"(\d{0,40})\.(\d{0,40})\\(?:overline|bar|dot)\s?\{(\d{1,40})\}")
# a capital letter followed only by these is a product, as in Ax + By; with other small letters, it is a word
_COORDINATE_LETTERS = frozenset("xyzt")
_TIMES_LETTER = re.compile(r"(?<=[\d)}])\s[xX]\s(?=[\d(])|(?<=\d)[xX](?=10\^)")


class FormulaError(Exception):
    """The text isn't a formula that this parser can read."""


def tokenise(text: str) -> list[Token]:
    """Splits a cleaned formula into tokens, followed by an end mark; raises FormulaError if it can't.

    Words are refused, because "blue" is not a product of four variables.
    """
    if len(text) > FORMULA_LIMIT:
        raise FormulaError("too long")
    text = _MIXED_NUMBER.sub(_expand_mixed_number, text)
    text = _TIMES_LETTER.sub("*", text)
    text = _DECIMAL_EXPONENT.sub(r"*10^{\1}", text)
    text = _REPEATING_DECIMAL.sub(_expand_repeating, text)
    result: list[Token] = []
    for match in _TOKEN.finditer(text):
        number, command, letters, other = match.groups()
        if number is not None:
            result.append(("n", number))
        elif command is not None:
            result.append(("c", _ARC_NAMES.get(command, command)))
        elif letters is not None:
            result += _split_letters(letters)
        else:
            result.append(("p", other))
    result.append(("", ""))
    return result


def _expand_mixed_number(match: re.Match[str]) -> str:
    whole, top, bottom = (part.strip("{}") for part in match.groups() if part is not None)
    return f"({whole}+{top}/{bottom})" if 0 < int(top) < int(bottom) else match.group()


def _expand_repeating(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
    nines = "9" * len(period) + "0" * len(fixed)
    return f"(({int(whole + fixed + period or 0)}-{int(whole + fixed or 0)})/{nines})"


def _split_letters(letters: str) -> list[Token]:
    if len(letters) == 1:
        return [("v", letters)]
    if letters in FUNCTIONS or letters == "pi":
        return [("c", _ARC_NAMES.get(letters, letters))]
    if _is_product(letters):
        return [("v", letter) for letter in letters]
    raise FormulaError(f"{letters!r} is a word")


def _is_product(letters: str) -> bool:
    if letters[:1].isupper() and letters[1:].islower() and not _COORDINATE_LETTERS.issuperset(letters[1:]):
        return False
    if len(letters) == 2:
        return letters.lower() not in _ENGLISH_WORDS
    return len(letters) <= 4 and not _VOWELS & set(letters)


Number = Fraction | complex

_BIT_LIMIT = 20_000  # maximum size of an exact number, in bits
_LARGEST_FACTORIAL = 200
# arbitrary base of log in formulas with variables: books mean 10 or e, so log x equals neither lg x nor ln x
_LOG_BASE = 7.3


class NoValueError(Exception):
    """The formula can't be evaluated: its value is too large or undefined, or a part of it is infinite."""


def _raise_power(x: Number, y: Number) -> Number:
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        if y.denominator == 1:
            size = max(x.numerator.bit_length(), x.denominator.bit_length())
            if abs(y.numerator) * size > _BIT_LIMIT:
                if abs(x) == 1 or x == 0:
                    return x ** (y.numerator % 2 or 2)
                raise NoValueError("a number too large to write")
            return x**y.numerator
        root = _find_exact_root(x, y.denominator)
        if root is not None and abs(y.numerator) < _LARGEST_FACTORIAL:
            return _raise_power(root, Fraction(y.numerator))
        if x < 0 and y.denominator % 2:  # for an odd root of a negative number, take the real root
            return -(complex(-x) ** complex(y)) if y.numerator % 2 else complex(-x) ** complex(y)
    if isinstance(y, Fraction) and y.denominator == 1 and abs(y.numerator) <= 64:
        return complex(x) ** int(y)
    return complex(x) ** complex(y)


def _find_exact_root(x: Fraction, degree: int) -> Fraction | None:
    if x < 0 or degree > 64 or x.numerator.bit_length() + x.denominator.bit_length() > 1000:
        return None
    top, bottom = (_find_whole_root(n, degree) for n in (x.numerator, x.denominator))
    return Fraction(top, bottom) if top is not None and bottom is not None else None


def _find_whole_root(n: int, degree: int) -> int | None:
    guess = math.isqrt(n) if degree == 2 else round(float(n) ** (1 / degree))
    return guess if guess**degree == n else None


def _take_root(x: Number, degree: Number) -> Number:
    if not isinstance(degree, Fraction) or degree == 0:
        raise NoValueError("a root of no degree")
    return _raise_power(x, 1 / degree)


def _take_log(x: Number, base: Number) -> Number:
    return cmath.log(complex(x)) / cmath.log(complex(base))


def _choose(x: Number, y: Number) -> Number:
    n, k = _check_natural(x), _check_natural(y)
    return Fraction(math.comb(n, k))


def _check_natural(x: Number) -> int:
    if not isinstance(x, Fraction) or x.denominator != 1 or not 0 <= x <= _LARGEST_FACTORIAL:
        raise NoValueError("not a small whole number")
    return x.numerator


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": operator.add,
    "±": operator.add,
    "*": operator.mul,
    "/": operator.truediv,
    "^": _raise_power,
    "root": _take_root,
    "log": _take_log,
    "binom": _choose,
}

_COMPLEX_FUNCTIONS: dict[str, Callable[[complex], complex]] = {
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


def apply_function(name: str, x: Number, *, varies: bool) -> Number:
    """Applies a named function to a number; `varies` says whether the formula contains variables."""
    if name == "!":
        return Fraction(math.factorial(_check_natural(x)))
    if name == "°":
        return complex(x) * math.pi / 180
    if name == "sqrt":
        return _take_root(x, Fraction(2))
    if name == "log":
        return cmath.log(complex(x)) / math.log(_LOG_BASE if varies else 10)
    if name not in _COMPLEX_FUNCTIONS:
        raise NoValueError(f"{name} has no value here")
    return _COMPLEX_FUNCTIONS[name](complex(x))


Node = tuple[Any, ...]

_DEPTH_LIMIT = 40  # maximum number of nested brackets, powers and signs
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Sigma Phi Psi Omega ell"
)
_GREEK_LETTERS = frozenset(_GREEK_NAMES.split())
# letters that name a function before a bracket: f and g always, the others unless the bracket has a sum;
# P(A) is a function call, but h(a+b) is a product
_FUNCTION_LETTERS = frozenset("fghABCDEFGHIJKLMNOPQRSTUVWXYZ")


def parse_formula(text: str) -> Node:
    """Parses a cleaned formula into a tree; raises FormulaError if it can't."""
    parser = _FormulaParser(tokenise(text))
    node = parser.parse_sum(0)
    if parser.kind:
        raise FormulaError(f"{parser.token!r} is left over")
    return node


class _FormulaParser:
    """A recursive descent parser with one method per level of precedence."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self.kind, self.token = tokens[0]

    def _advance(self) -> str:
        token = self.token
        self._position += 1
        self.kind, self.token = self._tokens[self._position]
        return token

    def _expect(self, token: str) -> None:
        if self.kind != "p" or self.token != token:
            raise FormulaError(f"{token!r} is missing")
        self._advance()

    def _is_at(self, *tokens: str) -> bool:
        return self.kind == "p" and self.token in tokens

    def parse_sum(self, depth: int) -> Node:
        if depth > _DEPTH_LIMIT:
            raise FormulaError("too deep")
        node: Node = ("num", Fraction(0)) if self._is_at("±") else self.parse_product(depth)
        while self._is_at("+", "-", "±"):
            sign, term = self._advance(), self.parse_product(depth)
            node = ("+", node, ("neg", term)) if sign == "-" else (sign, node, term)
        return node

    def parse_product(self, depth: int) -> Node:
        node = self.parse_factor(depth)
        while True:
            if self._is_at("*", "/"):
                node = (self._advance(), node, self.parse_factor(depth))
            elif self._starts_atom():
                node = self._parse_implicit_product(node, depth)
            else:
                return node

    def _parse_implicit_product(self, node: Node, depth: int) -> Node:
        """Parses a product without a multiplication sign, such as 2xy; H2O, x2 and 3d5 aren't products."""
        previous = self._tokens[self._position - 1][1]
        if self.kind == "n" and previous not in (")", "}"):
            raise FormulaError("a number stands behind a factor")
        if self._is_at("(") and node[0] == "^" and node[1][0] == "var" and node[1][1] in _FUNCTION_LETTERS:
            raise FormulaError("a power of a function")
        return ("*", node, self.parse_power(depth))

    def _starts_atom(self) -> bool:
        return self.kind in ("n", "v", "c") or self._is_at("(", "{", "[", "∞")

    def parse_factor(self, depth: int) -> Node:
        if self._is_at("-", "+"):
            if depth > _DEPTH_LIMIT:
                raise FormulaError("too deep")
            sign, factor = self._advance(), self.parse_factor(depth + 1)
            return ("neg", factor) if sign == "-" else factor
        return self.parse_power(depth)

    def parse_power(self, depth: int) -> Node:
        node = self.parse_atom(depth + 1)
        while self._is_at("!", "°"):
            node = ("call", self._advance(), node)
            if node[1] == "°" and self.kind == "v":
                raise FormulaError("functions one after the other")
        if self._is_at("^"):
            self._advance()
            node = ("^", node, self._parse_exponent(depth + 1))
        while self._is_at("!", "°", "'"):
            node = ("call", self._advance(), node)
        return node

    def _parse_exponent(self, depth: int) -> Node:
        if self._is_at("-", "+"):
            sign, exponent = self._advance(), self._parse_exponent(depth + 1)
            return ("neg", exponent) if sign == "-" else exponent
        if self._is_at("{"):
            return self._parse_group("}", depth)
        node = self.parse_atom(depth)
        if self._is_at("^"):
            self._advance()
            node = ("^", node, self._parse_exponent(depth + 1))
        return node

    def _parse_group(self, closing: str, depth: int) -> Node:
        self._advance()
        node = self.parse_sum(depth + 1)
        self._expect(closing)
        return node

    def parse_atom(self, depth: int) -> Node:
        if depth > _DEPTH_LIMIT:
            raise FormulaError("too deep")
        if self.kind == "n":
            digits = self._advance()
            return ("num", Fraction(digits) if "." in digits else Fraction(int(digits)))
        if self.kind == "v":
            return self._parse_variable(depth)
        if self.kind == "c":
            return self._parse_command(depth)
        for opening, closing in ("()", "{}", "[]", "||"):
            if self._is_at(opening):
                node = self._parse_group(closing, depth)
                return ("call", "abs", node) if opening == "|" else node
        if self._is_at("∞"):
            self._advance()
            return ("num", "∞")
        raise FormulaError(f"{self.token!r} begins nothing")

    def _parse_variable(self, depth: int) -> Node:
        name = self._advance()
        if self._is_at("_"):
            self._advance()
            in_braces, index = self._is_at("{") and self._advance(), ""
            while self.kind in ("n", "v") and (in_braces or not index):
                index += "_" + self._advance()
            if not index:
                raise FormulaError("an index is missing")
            if in_braces:
                self._expect("}")
            name += index
        if name[0] in _FUNCTION_LETTERS and self._is_at("(") and (name[0] in "fg" or not self._holds_sum()):
            return ("apply", name, self._parse_group(")", depth))
        return ("var", name)

    def _holds_sum(self) -> bool:
        """Whether the bracket that opens at the current position contains a sum."""
        level = 0
        for at in range(self._position, len(self._tokens)):
            kind, sign = self._tokens[at]
            if kind == "p":
                level += (sign in "([{") - (sign in ")]}")
                if level == 1 and sign in "+-±" and self._tokens[at - 1] != ("p", "("):
                    return True
                if level == 0:
                    break
        return False

    def _parse_argument(self, depth: int) -> Node:
        """Parses the argument of a TeX command: a bracketed group, a letter, a command or a single digit."""
        if self._is_at("{"):
            return self._parse_group("}", depth)
        if self._is_at("("):
            return self._parse_group(")", depth)
        if self.kind == "n" and len(self.token) > 1 and self.token.isdigit():
            digit, rest = self.token[0], self.token[1:]
            self._tokens[self._position] = (self.kind, rest)
            self.token = rest
            return ("num", Fraction(digit))
        return self.parse_atom(depth + 1)

    def _parse_command(self, depth: int) -> Node:
        name = self._advance()
        if name == "pi" or name in _GREEK_LETTERS:
            return ("num", complex(math.pi)) if name == "pi" else ("var", "\\" + name)
        if name == "frac":
            top, bottom = self._parse_argument(depth + 1), self._parse_argument(depth + 1)
            if _is_differential(top) and _is_differential(bottom):
                raise FormulaError("a derivative")
            return ("/", top, bottom)
        if name == "binom":
            return ("binom", self._parse_argument(depth + 1), self._parse_argument(depth + 1))
        if name == "sqrt":
            degree: Node = ("num", Fraction(2))
            if self._is_at("["):
                degree = self._parse_group("]", depth)
            return ("root", self._parse_argument(depth + 1), degree)
        if name in FUNCTIONS:
            return self._parse_function(name, depth)
        raise FormulaError(f"\\{name} is not read here")

    def _parse_function(self, name: str, depth: int) -> Node:
        base: Node | None = None
        power: Node | None = None
        if name == "log" and self._is_at("_"):
            self._advance()
            base = self._parse_argument(depth + 1)
        if self._is_at("^"):
            self._advance()
            power = self._parse_exponent(depth + 1)
        if power == ("neg", ("num", Fraction(1))) and "a" + name in FUNCTIONS:
            name, power = "a" + name, None  # sin^{-1} is the inverse function, not the reciprocal
        # sin(x)^2 is the square of sin(x)
        inner = self._parse_group(")", depth) if self._is_at("(") else self.parse_power(depth + 1)
        if self._tokens[self._position - 1][1] not in ")}":  # sin 2x is sin(2x), sin(2)x is sin(2)·x
            while self.kind == "v" or (self.kind == "c" and self.token not in FUNCTIONS):
                inner = ("*", inner, self.parse_power(depth + 1))
        node: Node = ("call", name, inner) if base is None else ("log", inner, base)
        return node if power is None else ("^", node, power)


def _is_differential(node: Node) -> bool:
    """Whether the node is the numerator or denominator of a derivative, such as d, dy or d^2y."""
    while node[0] in ("*", "^"):
        node = node[1]
    return node == ("var", "d")


Key = tuple[object, ...]

_SMALL_DENOMINATOR = 1000
_CONSTANTS = {"i": 1j, "e": complex(math.e)}
# |…| is treated as an unknown function; this is its `seed` for `_apply_unknown`
_ABSOLUTE_SEED = 0.37
_POINT_NUMBERS = range(3)
_VISIBLE_CHANGE = 1e-7  # relative changes below this may be rounding errors


def compute_keys(node: Node) -> list[Key]:
    """Computes the keys of a formula: two if it contains ±, else one. Equal formulas have a key in common."""
    if node == ("num", "∞") or node == ("neg", ("num", "∞")):
        return [("∞", -1 if node[0] == "neg" else 1)]
    names: set[str] = set()
    count = _collect_names(node, names)
    if count > 1:
        raise FormulaError("signs that may or may not go together")
    try:
        keys = [
            _compute_signature(node, names, sign)
            if names
            else _make_constant_key(_evaluate(node, {}, sign), _cancels(node))
            for sign in ((1, -1) if count else (1,))
        ]
    except (ArithmeticError, ValueError, RecursionError) as exc:
        raise NoValueError(str(exc)) from exc
    return list(dict.fromkeys(keys))


def _collect_names(node: Node, names: set[str]) -> int:
    """Adds the names of variables and unknown functions to `names`; returns the number of ± signs."""
    if node[0] == "var":
        if node[1] not in ("i", "e"):
            names.add(node[1])
        return 0
    if node[0] == "apply":
        names.add(node[1] + "()")
    inside = sum(_collect_names(child, names) for child in node[1:] if isinstance(child, tuple))
    return inside + 1 if node[0] == "±" else inside


def _choose_point(name: str, point: int) -> Fraction:
    """Returns a variable's value at one of the fixed points: always positive, so that sqrt(x^2) equals x."""
    if len(name) == 1:
        # different letters get different remainders, because 97 is prime
        number, scale = ord(name) * (5, 31, 62)[point] % 97, 1
    else:
        number, scale = zlib.crc32(f"{name}/{point}".encode("utf-8", "replace")) % 9973, 100
    # the value is below 1 at the first point, about 1 to 10 at the second, and above 11 at the third
    low, step = ((1, 101), (12, 11), (34, 3))[point]
    return Fraction(number + low * scale, step * scale + (scale > 1))


def _compute_signature(node: Node, names: set[str], sign: int) -> Key:
    """Returns a key made of a formula's values at the fixed points; a single value if all are the same."""
    points = [{name: _choose_point(name, point) for name in names} for point in _POINT_NUMBERS]
    values = [_try_evaluate(node, point, sign) for point in points]
    if all(isinstance(value, Fraction) for value in values):
        exact = dict.fromkeys(values)
        return ("number", values[0]) if len(exact) == 1 else ("formula", *(("number", v) for v in values))
    if values.count(None) > 1:
        raise NoValueError("too large nearly everywhere")
    for name in names:
        shifted = [
            _try_evaluate(node, points[a] | {name: points[b][name]}, sign) for a, b in ((0, 1), (1, 0))
        ]
        if not any(_differ(x, y) for x, y in zip(shifted, values, strict=False)):
            raise FormulaError(f"what {name} does is lost in rounding")
    return ("formula", *(_make_constant_key(value) for value in values))


def _try_evaluate(node: Node, point: dict[str, Fraction], sign: int) -> Number | None:
    try:
        return _evaluate(node, point, sign)
    except OverflowError:
        return None


def _differ(x: Number | None, y: Number | None) -> bool:
    if x is None or y is None:
        return x is not y
    return abs(complex(x) - complex(y)) > _VISIBLE_CHANGE * abs(complex(y))


def _evaluate(node: Node, point: dict[str, Fraction], sign: int) -> Number:
    kind = node[0]
    if kind == "num":
        if node[1] == "∞":
            raise NoValueError("infinity inside a formula")
        return node[1]  # type: ignore[no-any-return]
    if kind == "var":
        return _CONSTANTS.get(node[1]) or point[node[1]]
    if kind == "call":
        inner = _evaluate(node[2], point, sign)
        if node[1] != "abs":
            return apply_function(node[1], inner, varies=bool(point))
        size = abs(inner) if isinstance(inner, Fraction) else complex(abs(inner))
        # a few points can't distinguish |x-50| from 50-x, so treat |…| as an unknown function
        return _apply_unknown(_ABSOLUTE_SEED, size) if _has_names(node[2]) else size
    if kind == "apply":
        return _apply_unknown(float(point[node[1] + "()"]), _evaluate(node[2], point, sign))
    x = _evaluate(node[1], point, sign)
    if kind == "neg":
        return -x
    y = _evaluate(node[2], point, sign)
    return OPERATIONS[kind](x, y if kind != "±" else y * sign)


def _cancels(node: Node) -> bool:
    """Whether a tiny value may be only a rounding error: true for sin(π), false for 10^{-20}π."""
    return node[0] in ("+", "±", "call") or any(
        _cancels(child) for child in node[1:] if isinstance(child, tuple)
    )


def _has_names(node: Node) -> bool:
    names: set[str] = set()
    _collect_names(node, names)
    return bool(names)


def _apply_unknown(seed: float, x: Number) -> complex:
    """Applies a function chosen by `seed` in place of an unknown f: f(x) equals f(y) only if x equals y."""
    return cmath.sin(seed * complex(x) + seed) + 0.3 * complex(x) + seed


def _make_constant_key(value: Number | None, cancels: bool = True) -> Key:
    if value is None:
        return ("number", "∞")
    if isinstance(value, Fraction):
        return ("number", value)
    size = abs(value)
    real, imaginary = (_snap(part, size, 1e-15 if cancels else 0.0) for part in (value.real, value.imag))
    return ("number", real) if imaginary == 0 else ("complex", real, imaginary)


def _snap(x: float, size: float, zero: float) -> Fraction | str:
    """Rounds a float to a simple fraction if they differ only by a rounding error, else to ten digits.

    `size` is the absolute value of the complex number that `x` is a part of. An absolute value up to `zero`,
    or up to 1e-13 times `size`, becomes 0. Raises NoValueError if `x` isn't finite.
    """
    if not math.isfinite(x):
        raise NoValueError("not finite")
    if abs(x) <= max(zero, 1e-13 * size):
        return Fraction(0)
    if abs(x) < 1e9:
        near = Fraction(x).limit_denominator(_SMALL_DENOMINATOR)
        if near != 0 and abs(float(near) - x) <= 4e-14 * max(abs(x), size):
            return near
    return f"{x:.9e}"
