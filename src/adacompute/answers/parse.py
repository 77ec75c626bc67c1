"""Reads a cleaned formula into a small tree. Doesn't know its value.

A hand-written recursive descent with caps on length and depth: no eval, and hostile text fails early.
Nodes are tuples: ("num", Fraction), ("var", name), ("neg", x), ("+", x, y), ("±", x, y), ("*", x, y),
("/", x, y), ("^", x, y), ("call", function, x), ("root", x, degree), ("log", x, base), ("binom", x, y),
("apply", name, x): f(x), where f is not known.
"""

from fractions import Fraction
from typing import Any

from adacompute.answers.tokens import FUNCTIONS, FormulaError, Token, tokens

__all__ = ["Node", "parse"]

Node = tuple[Any, ...]

_DEEPEST = 40  # levels of brackets, powers and signs
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega "
    "Gamma Delta Theta Lambda Sigma Phi Psi Omega ell"
)
_GREEK = frozenset(_GREEK_NAMES.split())
_APPLIED = frozenset("fghABCDEFGHIJKLMNOPQRSTUVWXYZ")  # f(x), P(A) and h(2) are no products; h(a+b) may be


def parse(text: str) -> Node:
    """The tree of a cleaned formula; raises FormulaError."""
    reader = _Reader(tokens(text))
    node = reader.sum(0)
    if reader.kind:
        raise FormulaError(f"{reader.token!r} is left over")
    return node


class _Reader:
    """One pass over the tokens; each method reads one level of binding strength."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self.kind, self.token = tokens[0]

    def _next(self) -> str:
        token = self.token
        self._at += 1
        self.kind, self.token = self._tokens[self._at]
        return token

    def _expect(self, token: str) -> None:
        if self.kind != "p" or self.token != token:
            raise FormulaError(f"{token!r} is missing")
        self._next()

    def _is(self, *tokens: str) -> bool:
        return self.kind == "p" and self.token in tokens

    def sum(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise FormulaError("too deep")
        if self._is("±", "∓"):
            node: Node = ("±", ("num", Fraction(0)), self._signed_term(depth))
        else:
            node = self.product(depth)
        while self._is("+", "-", "±", "∓"):
            if self._is("±", "∓"):
                node = ("±", node, self._signed_term(depth))
            elif self._next() == "+":
                node = ("+", node, self.product(depth))
            else:
                node = ("+", node, ("neg", self.product(depth)))
        return node

    def _signed_term(self, depth: int) -> Node:
        return ("neg", self.product(depth)) if self._next() == "∓" else self.product(depth)

    def product(self, depth: int) -> Node:
        node = self.factor(depth)
        while True:
            if self._is("*", "/"):
                node = (self._next(), node, self.factor(depth))
            elif self._starts_atom():
                node = self._beside(node, depth)
            else:
                return node

    def _beside(self, node: Node, depth: int) -> Node:
        """A product without a sign. A number comes first, or after a bracket: H2O, x2 and 3d5 are names."""
        kind, before = self._tokens[self._at - 1]
        if self.kind == "n" and before not in (")", "}"):
            raise FormulaError("a number stands behind a factor")
        if self._is("(") and node[0] == "^" and node[1][0] == "var" and node[1][1] in _APPLIED:
            raise FormulaError("a power of a function")
        mixed = kind == "n" and self._tokens[self._at] == ("c", "frac")
        right = self.power(depth)
        return (_mixed(node, right) if mixed else None) or ("*", node, right)

    def _starts_atom(self) -> bool:
        return self.kind in ("n", "v", "c") or self._is("(", "{", "[", "∞", "⌊", "⌈")

    def factor(self, depth: int) -> Node:
        if self._is("-", "+"):
            if depth > _DEEPEST:
                raise FormulaError("too deep")
            return self.factor(depth + 1) if self._next() == "+" else ("neg", self.factor(depth + 1))
        return self.power(depth)

    def power(self, depth: int) -> Node:
        node = self.atom(depth + 1)
        while self._is("!", "°"):
            node = ("call", self._next(), node)
            if node[1] == "°" and self.kind == "v":
                raise FormulaError("functions one after the other")
        if self._is("^"):
            self._next()
            node = ("^", node, self._exponent(depth + 1))
        while self._is("!", "°", "'"):
            node = ("call", self._next(), node)
        return node

    def _exponent(self, depth: int) -> Node:
        if self._is("-", "+"):
            return ("neg", self._exponent(depth + 1)) if self._next() == "-" else self._exponent(depth + 1)
        if self._is("{"):
            return self._group("}", depth)
        node = self.atom(depth)
        if self._is("^"):
            self._next()
            node = ("^", node, self._exponent(depth + 1))
        return node

    def _group(self, closing: str, depth: int) -> Node:
        self._next()
        node = self.sum(depth + 1)
        self._expect(closing)
        return node

    def atom(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise FormulaError("too deep")
        if self.kind == "n":
            digits = self._next()
            return ("num", Fraction(digits) if "." in digits else Fraction(int(digits)))
        if self.kind == "v":
            return self._variable(depth)
        if self.kind == "c":
            return self._command(depth)
        for opening, closing in ("()", "{}", "[]", "||", "⌊⌋", "⌈⌉"):
            if self._is(opening):
                node = self._group(closing, depth)
                return ("call", opening, node) if opening in "|⌊⌈" else node
        if self._is("∞"):
            self._next()
            return ("num", "∞")
        raise FormulaError(f"{self.token!r} begins nothing")

    def _variable(self, depth: int) -> Node:
        name = self._next()
        if self._is("_"):
            self._next()
            if self._is("{"):
                self._next()
                while self.kind in ("n", "v"):
                    name += "_" + self._next()
                self._expect("}")
            elif self.kind in ("n", "v"):
                name += "_" + self._next()
            else:
                raise FormulaError("an index is missing")
        if name[0] in _APPLIED and self._is("(") and (name[0] in "fg" or not self._sum_follows()):
            return ("apply", name, self._group(")", depth))
        return ("var", name)

    def _sum_follows(self) -> bool:
        """Whether the bracket that opens here holds a sum."""
        level = 0
        for at in range(self._at, len(self._tokens)):
            kind, sign = self._tokens[at]
            if kind == "p":
                level += (sign in "([{") - (sign in ")]}")
                if level == 1 and sign in "+-±∓" and self._tokens[at - 1] != ("p", "("):
                    return True
                if level == 0:
                    break
        return False

    def _argument(self, depth: int) -> Node:
        """What a TeX command takes: a group, one letter or command, or one digit."""
        if depth > _DEEPEST:
            raise FormulaError("too deep")
        if self._is("{"):
            return self._group("}", depth)
        if self._is("("):
            return self._group(")", depth)
        if self.kind == "n" and len(self.token) > 1 and self.token.isdigit():
            digit, rest = self.token[0], self.token[1:]
            self._tokens[self._at] = (self.kind, rest)
            self.token = rest
            return ("num", Fraction(digit))
        return self.atom(depth + 1)

    def _command(self, depth: int) -> Node:
        name = self._next()
        if name == "pi" or name in _GREEK:
            return ("num", "π") if name == "pi" else ("var", "\\" + name)
        if name == "frac":
            top, bottom = self._argument(depth + 1), self._argument(depth + 1)
            if _is_differential(top) and _is_differential(bottom):
                raise FormulaError("a derivative")
            return ("/", top, bottom)
        if name == "binom":
            return ("binom", self._argument(depth + 1), self._argument(depth + 1))
        if name == "sqrt":
            degree: Node = ("num", Fraction(2))
            if self._is("["):
                degree = self._group("]", depth)
            return ("root", self._argument(depth + 1), degree)
        if name in FUNCTIONS:
            return self._function(name, depth)
        raise FormulaError(f"\\{name} is not read here")

    def _function(self, name: str, depth: int) -> Node:
        base: Node | None = None
        power: Node | None = None
        if name == "log" and self._is("_"):
            self._next()
            base = self._argument(depth + 1)
        if self._is("^"):
            self._next()
            power = self._exponent(depth + 1)
        if power == ("neg", ("num", Fraction(1))) and "a" + name in FUNCTIONS:
            name, power = "a" + name, None  # sin^{-1} is the inverse, not the reciprocal
        inner = self.power(depth + 1)
        if self._tokens[self._at - 1][1] not in ")}":  # sin 2x is sin(2x), sin(2)x is sin(2)·x
            while self.kind == "v" or (self.kind == "c" and self.token not in FUNCTIONS):
                inner = ("*", inner, self.power(depth + 1))
        node: Node = ("call", name, inner) if base is None else ("log", inner, base)
        return node if power is None else ("^", node, power)


def _is_differential(node: Node) -> bool:
    """dy, d or d^2y: what stands above and below in a derivative."""
    while node[0] in ("*", "^"):
        node = node[1]
    return node == ("var", "d")


def _mixed(left: Node, right: Node) -> Node | None:
    r"""2\frac{1}{3} is two and a third; 2\frac{x}{3} is a product."""
    if left[0] in ("neg", "*", "/"):
        mixed = _mixed(left[-1], right)
        return (*left[:-1], mixed) if mixed is not None else None
    if left[0] == "num" and right[0] == "/" and right[1][0] == "num" and right[2][0] == "num":
        whole, top, bottom = left[1], right[1][1], right[2][1]
        numbers = all(isinstance(n, Fraction) and n.denominator == 1 for n in (whole, top, bottom))
        if numbers and 0 < top < bottom:
            return ("+", left, right)
    return None
