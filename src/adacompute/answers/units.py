"""Takes the unit off a number: money, percent, degrees, measures, counted things. Knows no conversions."""

import re

__all__ = ["Measured", "split_unit"]

Measured = tuple[
    str, str, int
]  # the number's own text, its unit ("" for none), a power of ten to multiply by

_ALIASES = {
    alias: unit
    for unit, aliases in {
        "$": "$ dollar usd buck",
        "€": "€ euro eur",
        "£": "£ gbp quid",
        "¥": "¥ yen jpy",
        "₹": "₹ rupee rs inr",
        "cent": "cent ¢",
        "%": "% percent percentage pct",
        "°": "° degree deg",
        "mm": "mm millimeter millimetre",
        "cm": "cm centimeter centimetre",
        "m": "m meter metre",
        "km": "km kilometer kilometre",
        "inch": "inch inche in",
        "foot": "foot feet ft",
        "yard": "yard yd",
        "mile": "mile mi",
        "mg": "mg milligram",
        "g": "g gram",
        "kg": "kg kilogram kilo",
        "lb": "lb pound",
        "oz": "oz ounce",
        "ml": "ml milliliter millilitre",
        "l": "l liter litre",
        "gal": "gal gallon",
        "s": "s sec second",
        "min": "min minute",
        "h": "h hr hour",
        "day": "day",
        "month": "month",
        "year": "year yr",
        "person": "person people",
        "child": "child children",
        "mph": "mph",
        "th": "th st nd rd",
    }.items()
    for alias in aliases.split()
}
_LETTERS = frozenset("mgshlLAVWNJKCF")  # units of one letter, read so only after a space
_POWERS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NOT_UNIT_WORDS = "is are was and or to than the not of if be with from more less pm am"
_NOT_UNITS = frozenset(_NOT_UNIT_WORDS.split())
_FOLDED = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}

_CURRENCY = re.compile(r"([-+]?)\s?([$€£¥₹])\s?([-+]?)\s?(?=[\d.\\(])")
_TAIL = re.compile(
    r"(?P<number>.*?[\d)}.°])(?P<gap>\s*)(?P<unit>[$€£¥₹%¢]|°\s?[CF]?|"
    r"[A-Za-z][A-Za-z'./ -]*(?:\^\s?\{?[23]\}?)?"
    r"(?:\s?/\s?[A-Za-z]+(?:\^\s?\{?[23]\}?)?)?)"
)
_TRIG = re.compile("sin|cos|tan|cot|sec|csc")
_SUM = re.compile(r"[\w)}](?<!\d[eE])\s*[-+]\s*[\w({\\]")
_LOOSE = re.compile(r"\s*([/^°])\s*")


def split_unit(text: str) -> Measured | None:
    """A cleaned answer's number, unit and power of ten; None where it names no unit.

    >>> split_unit("12 cm^2"), split_unit("$5"), split_unit("6c")
    (('12', 'cm^2', 0), ('5', '$', 0), None)
    """
    money = _CURRENCY.match(text)
    if money is not None:
        number = (money.group(1) or money.group(3)) + text[money.end() :]
        tail = split_unit(number)
        if tail is not None and tail[1] not in ("", money.group(2)):
            return None
        return (tail[0], money.group(2), tail[2]) if tail is not None else (number, money.group(2), 0)
    found = _TAIL.fullmatch(text)
    if found is None:
        return None
    number, unit = found["number"], found["unit"].strip()
    if number.endswith("°"):
        number, unit = number[:-1], "°" + unit
    base = unit.partition("^")[0].strip()
    if len(base) == 1 and base.isalpha() and not (found["gap"] and base in _LETTERS):
        return None  # 6c is a product, 6 m a length
    if _SUM.search(number) or _TRIG.search(number):
        return None  # 100 - 90s^2 is a formula, and no unit can be told in one
    return _named(number, unit)


def _named(number: str, unit: str) -> Measured | None:
    unit = _LOOSE.sub(r"\1", unit.replace(".", "").replace("{", "").replace("}", "")).replace(" per ", "/")
    words = unit.split()
    power = _POWERS.get(words[0].lower(), 0) if words else 0
    words = words[1:] if power else words
    if len(words) > 3 or any(word.lower() in _NOT_UNITS for word in words):
        return None
    suffix = "".join(_FOLDED[word.lower()] for word in words if word.lower() in _FOLDED)
    names = [_name(word) for word in words if word.lower() not in _FOLDED]
    return number, " ".join(names) + suffix, power


def _name(word: str) -> str:
    """One spelling for a unit's word: "Metres" is "m", "apples" is "apple"."""
    base, caret, exponent = word.partition("^")
    parts = []
    for part in base.split("/"):
        low = part.lower()
        single = low[:-1] if low.endswith("s") and len(low) > 2 else low
        parts.append(_ALIASES.get(low) or _ALIASES.get(single) or single)
    return "/".join(parts) + caret + exponent.strip()
