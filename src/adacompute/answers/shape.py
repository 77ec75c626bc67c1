r"""Open formulas as they are written: one spelling of spaces, and which must differ. Computes nothing.

Two that differ in a numeral or a letter only, as \langle 1 \to 2 \rangle and \langle 1 \to 3 \rangle, need
no other judge, unless something in them could come to the same value: a sum, an integral, a limit.
"""

import re

__all__ = ["must_differ", "tight"]

_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[^\W\d_]+|\S", re.DOTALL)
_ALONE = re.compile(r"\{ (\S+) \}")
_COMPUTED = frozenset(
    f"\\{name}" for name in ("sum", "prod", "int", "iint", "iiint", "oint", "lim", "det", "gcd", "max", "min")
)
_COMMUTING = frozenset("+*,;=&")


def tight(formula: str) -> str:
    r"""The formula's tokens, one space between them; braces around one token alone are left out.

    >>> tight(r"x\equiv 2 \pmod{5}") == tight(r"x \equiv 2\pmod 5")
    True
    """
    return _ALONE.sub(r"\1", " ".join(_TOKEN.findall(formula)))


def must_differ(a: str, b: str) -> bool:
    r"""Whether two tight formulas of one shape can't be the same, for the numerals or letters in them.

    >>> must_differ(tight(r"2 \to 7"), tight(r"3 \to 7")), must_differ(tight(r"\sum 2"), tight(r"\sum 3"))
    (True, False)
    """
    left, right = a.split(" "), b.split(" ")
    if len(left) != len(right) or not _COMPUTED.isdisjoint(left) or not _COMPUTED.isdisjoint(right):
        return False
    pairs = [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]]
    if not all(_is_leaf(x) and _is_leaf(y) for x, y in pairs):
        return False
    if sorted(x for x, _ in pairs) != sorted(y for _, y in pairs):
        return True
    return bool(pairs) and _COMMUTING.isdisjoint(left)


def _is_leaf(token: str) -> bool:
    return token[0].isdigit() or token.isalpha()
