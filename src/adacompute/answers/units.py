"""Splits the unit off a number: money, percent, degrees, measures, counted things. Converts only durations.

A word behind a number is a unit only where it can be nothing else: not a function, a month, an era, a
fraction or a direction. Without a space before it, it must be a unit known here: 2xy is a product.
"""

import re
from fractions import Fraction

from adacompute.answers.formula import FUNCTIONS

__all__ = ["count_seconds", "is_measure", "split_unit"]

Measurement = tuple[str, str, int]  # the number's own text, its unit ("" for none), a factor to multiply by

_ALIASES = {
    alias: unit
    for unit, aliases in {
        "$": "$ dollar usd buck",
        "€": "€ euro eur",
        "£": "£ gbp quid",
        "¥": "¥ yen jpy",
        "₹": "₹ rupee inr Rs",
        "cent": "cent ¢",
        "%": "% percent percentage pct",
        "°": "° degree deg",
        "°C": "°C celsius centigrade",
        "°F": "°F fahrenheit",
        "mm": "mm millimeter millimetre",
        "cm": "cm centimeter centimetre",
        "m": "m meter metre",
        "km": "km kilometer kilometre",
        "inch": "inch in",
        "foot": "foot feet ft",
        "yard": "yard yd",
        "mile": "mile mi",
        "mg": "mg milligram",
        "g": "g gram",
        "kg": "kg kilogram kilo",
        "lb": "lb pound",
        "oz": "oz ounce",
        "ml": "ml mL milliliter millilitre",
        "l": "l L liter litre",
        "gal": "gal gallon",
        "s": "s sec second",
        "min": "min minute",
        "h": "h hr hour",
        "day": "day",
        "month": "month",
        "year": "year yr",
        "person": "person people",
        "child": "child children",
        "mile/h": "mph",
        "km/h": "kph kmh kmph",
        "rpm": "rpm",
        "psi": "psi",
        "ppm": "ppm",
        "tbsp": "tbsp tablespoon",
        "tsp": "tsp teaspoon",
        "point": "point pt",
        "th": "th st nd rd",
    }.items()
    for alias in aliases.split()
}
# symbols with a prefix, whose case counts: mW and MW, kb and kB
_SYMBOL = re.compile(
    "[nuμmkMGT]?(?:m|g|s|A|K|mol|Hz|N|Pa|J|W|C|V|F|Ω|S|T|H|L|l|eV|cal|B|b|bit|Wh|bar)|c[mglL]|d[mlLB]|hPa|ha"
)
_LETTER_UNITS = frozenset("mgshlLAVWNJKCF")  # one-letter units, read as such only after a space
_FACTORS = {"dozen": 12} | {
    name: 10**power
    for power, names in {
        2: "hundred",
        3: "thousand",
        5: "lakh lac",
        6: "million mln",
        7: "crore",
        9: "billion bn bln",
        12: "trillion tn trn",
        15: "quadrillion",
        18: "quintillion",
    }.items()
    for name in names.split()
}
# words after a number that are no units: conjunctions and other numbers; then fractions, eras, dates, Greek
_OTHER_WORDS = (
    "is are was and or to than the not no yes of if be with from more less pm am plus minus times by over "
    "under above below before after ago negative positive zero mod modulo choose factorial root double "
    "triple twice true false none score gross north south east west up down "
    "half halve third quarter fourth fifth sixth seventh eighth ninth tenth eleventh twelfth sixteenth "
    "twentieth hundredth thousandth millionth "
    "bc bce ad ce january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec "
    "monday tuesday wednesday thursday friday saturday sunday "
    "pi alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi omega"
)
_NOT_UNITS = frozenset(_OTHER_WORDS.split()) | (FUNCTIONS - {"sec"})
_VOWEL_LETTERS = frozenset("aeiouy")
_EXPONENTS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}

_CURRENCY = re.compile(
    r"([-+]?)\s?(US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|INR)(?![A-Za-z]))\s?([-+]?)\s?(?=[\d.\\(])"
)
_NUMBER_WITH_UNIT = re.compile(
    r"(?P<number>.*?(?:[\d)}.°]|\\pi))(?P<gap>\s*)(?P<unit>[$€£¥₹%¢]|°\s?[CF]?|"
    r"[A-Za-zμΩ][A-Za-zμΩ'./ -]*(?:\^\s?\{?[23]\}?)?"
    r"(?:\s?/\s?[A-Za-z]+(?:\^\s?\{?[23]\}?)?)?)"
)
_FRACTION_UNIT = re.compile(
    r"(?<=[\d)}])(\s?)\\frac\s?\{( ?)([A-Za-z]{1,12}) ?\}\s?\{ ?([A-Za-z]{1,12}) ?(\^\{?[23]\}?)?\}"
)
_TRIG = re.compile("sin|cos|tan|cot|sec|csc")
_SUM = re.compile(r"[\w)}](?<!\d[eE])\s*[-+]\s*[\w({\\]")
_LOOSE_SIGN = re.compile(r"\s*([/^°])\s*")
_UNIT_SEPARATOR = re.compile("[/-]")


def split_unit(text: str) -> Measurement | None:
    """A cleaned answer's number, unit and factor; None where it names no unit.

    >>> split_unit("12 cm^2"), split_unit("$5 million"), split_unit("6c")
    (('12', 'cm^2', 1), ('5', '$', 1000000), None)
    """
    money = _CURRENCY.match(text)
    if money is not None:
        number, sign = (money[1] or money[3]) + text[money.end() :], money[2]
        currency = _ALIASES.get(sign.lower(), "$")
        tail = split_unit(number)
        if tail is not None and tail[1] not in ("", currency):
            return None
        return (tail[0], currency, tail[2]) if tail is not None else (number, currency, 1)
    if "\\frac" in text:
        text = _FRACTION_UNIT.sub(_join_fraction_unit, text)
    match = _NUMBER_WITH_UNIT.fullmatch(text)
    if match is None:
        return None
    number, unit = match["number"], match["unit"].strip()
    if number.endswith("°"):
        number, unit = number[:-1], "°" + unit
    base = unit.partition("^")[0].strip()
    if len(base) == 1 and base.isalpha() and not (match["gap"] and base in _LETTER_UNITS):
        return None  # 6c is a product, 6 m a length
    if _SUM.search(number) or _TRIG.search(number):
        return None  # 100 - 90s^2 is a formula, where a unit looks like a variable
    return _name_unit(number, unit, spaced=bool(match["gap"]))


_COUNTED = frozenset(
    ("person", "people", "child", "children", "point", "pt", "th", "st", "nd", "rd", "in", "quid", "a")
)


def is_measure(word: str) -> bool:
    """Whether a word after a number is a unit of measure, rather than something counted or another word.

    >>> is_measure("kilometres"), is_measure("km/h"), is_measure("apples"), is_measure("in")
    (True, True, False, False)
    """
    parts = _UNIT_SEPARATOR.split(word.partition("^")[0])
    return all(
        _make_singular(part.lower()) not in _COUNTED and part.lower() not in _COUNTED and _is_known_unit(part)
        for part in parts
    )


_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6}) ?d(?:ays?)?,? ?(?:and )?)?"
    r"(?P<hours>\d{1,4}) ?: ?(?P<minutes>[0-5]\d)(?: ?: ?(?P<seconds>[0-5]\d(?:\.\d{1,9})?))?"
)
_PLAIN_SECONDS = re.compile(rf"sec:({_NUMBER})")
_TIME_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds
_TIME_WORD = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b"
_TIME_PART = re.compile(rf"({_NUMBER}) ?({_TIME_WORD})", re.IGNORECASE)
_DURATION = re.compile(
    rf"{_NUMBER} ?{_TIME_WORD}(?:,? ?(?:and )?{_NUMBER} ?{_TIME_WORD}){{0,3}}", re.IGNORECASE
)


def count_seconds(text: str) -> Fraction | None:
    """The seconds of a duration in a cleaned answer: 5:18 is hours and minutes; None for any other text.

    >>> [count_seconds(text) for text in ("5:18", "5 hours and 18 minutes", "5:18 pm")]
    [Fraction(19080, 1), Fraction(19080, 1), None]
    """
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, hours, minutes, seconds = (Fraction(part or 0) for part in clock.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    plain = _PLAIN_SECONDS.fullmatch(text)
    if plain is not None:
        return Fraction(plain[1])
    if _DURATION.fullmatch(text) is None:
        return None
    parts = _TIME_PART.findall(text)
    sizes = [_TIME_UNITS[word[0].lower()] for _, word in parts]
    if sizes != sorted(set(sizes), reverse=True) or (len(parts) == 1 and len(parts[0][1]) == 1):
        return None  # 5 m is a length, 5 m 3 s a duration
    return sum((Fraction(number) * size for (number, _), size in zip(parts, sizes, strict=True)), Fraction(0))


def _join_fraction_unit(match: re.Match[str]) -> str:
    r"""Rewrites 5 \frac{m}{s} as 5 m/s, if a space shows that it is a unit and not a product."""
    gap, space, top, bottom, power = match.groups()
    units = _is_known_unit(top) and _is_known_unit(bottom) and (gap or space)
    return f" {top}/{bottom}{power or ''}" if units else match.group()


def _name_unit(number: str, unit: str, *, spaced: bool) -> Measurement | None:
    unit = _LOOSE_SIGN.sub(r"\1", unit.replace(".", "").replace("{", "").replace("}", "")).replace(
        " per ", "/"
    )
    words = unit.split()
    factor = 1
    while words and _make_singular(words[0].lower()) in _FACTORS:
        factor *= _FACTORS[_make_singular(words.pop(0).lower())]
    if len(words) > 3 or not all(_is_unit(word, spaced=spaced or at > 0) for at, word in enumerate(words)):
        return None
    suffix = "".join(_EXPONENTS[word.lower()] for word in words if word.lower() in _EXPONENTS)
    names = [_spell_unit(word) for word in words if word.lower() not in _EXPONENTS]
    if (suffix and not names) or (factor == 1 and not names):
        return None  # 3 squared is not a unit
    return number, " ".join(names).replace("° °", "°") + suffix, factor


def _is_unit(word: str, *, spaced: bool) -> bool:
    if word.lower() in _EXPONENTS:
        return True
    for part in _UNIT_SEPARATOR.split(word.partition("^")[0]):
        low = part.lower()
        if low in _NOT_UNITS or _make_singular(low) in _NOT_UNITS:
            return False
        word_like = len(low) > 2 and not _VOWEL_LETTERS.isdisjoint(low)
        if not (_is_known_unit(part, spaced=spaced) or (spaced and word_like)):
            return False
    return True


def _is_known_unit(part: str, *, spaced: bool = True) -> bool:
    low = part.lower()
    if low in _ALIASES or _make_singular(low) in _ALIASES or part in _ALIASES:
        return True
    # 2ms may be a product as well, 2 ms can't
    return bool(_SYMBOL.fullmatch(part)) and (
        spaced or len(part) > 2 or (len(part) > 1 and not part.islower())
    )


def _make_singular(word: str) -> str:
    if word.endswith(("xes", "ches", "shes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


def _spell_unit(word: str) -> str:
    """One spelling for a unit's word: "Metres" is "m", "apples" is "apple"; mW isn't MW."""
    base, caret, exponent = word.partition("^")
    parts = []
    for part in base.split("/"):
        low, exact = part.lower(), _ALIASES.get(part)
        if exact is None and not _SYMBOL.fullmatch(part):
            exact = (
                _ALIASES.get(low)
                or _ALIASES.get(_make_singular(low))
                or _make_singular(low if len(low) > 3 else part)
            )
        parts.append(exact or part)
    return "/".join(parts) + caret + exponent.strip()
