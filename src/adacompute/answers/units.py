"""Takes the unit off a number: money, percent, degrees, measures, counted things. Knows no conversions.

A word behind a number is a unit only where it can be nothing else: not a function, a month, an era, a
fraction or a direction. Without a space before it, it must be one of those known here: 2xy is a product.
"""

import re

from adacompute.answers.tokens import FUNCTIONS

__all__ = ["Measured", "split_unit"]

Measured = tuple[str, str, int]  # the number's own text, its unit ("" for none), a factor to multiply by

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
_LETTERS = frozenset("mgshlLAVWNJKCF")  # units of one letter, read so only after a space
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
# what goes on instead of ending, or makes another number of it; then fractions, eras, dates, Greek
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
_VOWELS = frozenset("aeiouy")
_EXPONENTS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}

_CURRENCY = re.compile(
    r"([-+]?)\s?(US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|INR)(?![A-Za-z]))\s?([-+]?)\s?(?=[\d.\\(])"
)
_TAIL = re.compile(
    r"(?P<number>.*?(?:[\d)}.°]|\\pi))(?P<gap>\s*)(?P<unit>[$€£¥₹%¢]|°\s?[CF]?|"
    r"[A-Za-zμΩ][A-Za-zμΩ'./ -]*(?:\^\s?\{?[23]\}?)?"
    r"(?:\s?/\s?[A-Za-z]+(?:\^\s?\{?[23]\}?)?)?)"
)
_OVER = re.compile(
    r"(?<=[\d)}])(\s?)\\frac\s?\{( ?)([A-Za-z]{1,12}) ?\}\s?\{ ?([A-Za-z]{1,12}) ?(\^\{?[23]\}?)?\}"
)
_TRIG = re.compile("sin|cos|tan|cot|sec|csc")
_SUM = re.compile(r"[\w)}](?<!\d[eE])\s*[-+]\s*[\w({\\]")
_LOOSE = re.compile(r"\s*([/^°])\s*")
_PARTS = re.compile("[/-]")


def split_unit(text: str) -> Measured | None:
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
        text = _OVER.sub(_over, text)
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
    return _named(number, unit, apart=bool(found["gap"]))


def _over(match: re.Match[str]) -> str:
    r"""5 \frac{m}{s} is 5 m/s, where a space tells the unit from a product."""
    gap, space, top, bottom, power = match.groups()
    units = _known(top) and _known(bottom) and (gap or space)
    return f" {top}/{bottom}{power or ''}" if units else match.group()


def _named(number: str, unit: str, *, apart: bool) -> Measured | None:
    unit = _LOOSE.sub(r"\1", unit.replace(".", "").replace("{", "").replace("}", "")).replace(" per ", "/")
    words = unit.split()
    factor = 1
    while words and _singular(words[0].lower()) in _FACTORS:
        factor *= _FACTORS[_singular(words.pop(0).lower())]
    if len(words) > 3 or not all(_is_unit(word, apart=apart or at > 0) for at, word in enumerate(words)):
        return None
    suffix = "".join(_EXPONENTS[word.lower()] for word in words if word.lower() in _EXPONENTS)
    names = [_name(word) for word in words if word.lower() not in _EXPONENTS]
    if (suffix and not names) or (factor == 1 and not names):
        return None  # 3 squared is no unit
    return number, " ".join(names).replace("° °", "°") + suffix, factor


def _is_unit(word: str, *, apart: bool) -> bool:
    if word.lower() in _EXPONENTS:
        return True
    for part in _PARTS.split(word.partition("^")[0]):
        low = part.lower()
        if low in _NOT_UNITS or _singular(low) in _NOT_UNITS:
            return False
        word_like = len(low) > 2 and not _VOWELS.isdisjoint(low)
        if not (_known(part, apart=apart) or (apart and word_like)):
            return False
    return True


def _known(part: str, *, apart: bool = True) -> bool:
    low = part.lower()
    if low in _ALIASES or _singular(low) in _ALIASES or part in _ALIASES:
        return True
    # 2ms may be a product as well, 2 ms can't
    return bool(_SYMBOL.fullmatch(part)) and (
        apart or len(part) > 2 or (len(part) > 1 and not part.islower())
    )


def _singular(word: str) -> str:
    if word.endswith(("xes", "ches", "shes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


def _name(word: str) -> str:
    """One spelling for a unit's word: "Metres" is "m", "apples" is "apple"; mW isn't MW."""
    base, caret, exponent = word.partition("^")
    parts = []
    for part in base.split("/"):
        low, exact = part.lower(), _ALIASES.get(part)
        if exact is None and not _SYMBOL.fullmatch(part):
            exact = (
                _ALIASES.get(low) or _ALIASES.get(_singular(low)) or _singular(low if len(low) > 3 else part)
            )
        parts.append(exact or part)
    return "/".join(parts) + caret + exponent.strip()
