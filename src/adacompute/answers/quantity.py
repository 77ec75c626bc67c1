"""Finds the date, or the quantity with its unit, that a reply states, and spells it in one way.

"11 November 1918", "11. November 1918" and "1918年11月11日" are "1918-11-11"; "seven" is "7", and
"about 300 km (186 miles)" is "300 km". What the question mentions itself isn't taken for its answer. A reply
that states several, and doesn't say which of them answers, is unclear: a wrong vote is worse than none.

`split_unit` splits the unit off a number: money, percent, degrees, measures, counted things; only durations
are converted. A word behind a number is a unit only if it can be nothing else: not a function, a month, an
era, a fraction or a direction. Without a space before it, it must be a unit known here: 2xy is a product.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from adacompute.answers.formula import FUNCTIONS
from adacompute.answers.question import Question
from adacompute.answers.words import (
    Lexicon,
    Token,
    drop_brackets,
    get_lexicon,
    mask_denied,
    split_clauses,
)

__all__ = [
    "count_seconds",
    "find_date",
    "find_quantity",
    "find_solution",
    "has_new_number",
    "is_measure",
    "is_unit",
    "split_unit",
]

Measurement = tuple[str, str, int]  # the number's own text, its unit ("" for none), a factor to multiply by


@lru_cache(maxsize=1)
def _list_aliases() -> dict[str, str]:
    """The unit that each word or sign names."""
    return dict(get_lexicon(frozenset(("en",))).list_pairs("aliases"))


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
        currency = _list_aliases().get(sign.lower(), "$")
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
    if low in _list_aliases() or _make_singular(low) in _list_aliases() or part in _list_aliases():
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
        low, exact = part.lower(), _list_aliases().get(part)
        if exact is None and not _SYMBOL.fullmatch(part):
            exact = (
                _list_aliases().get(low)
                or _list_aliases().get(_make_singular(low))
                or _make_singular(low if len(low) > 3 else part)
            )
        parts.append(exact or part)
    return "/".join(parts) + caret + exponent.strip()


_MOST = 20  # dates or numbers of one sentence that are looked at


class _Found(NamedTuple):
    begin: int
    end: int
    answer: str


class _Stated(NamedTuple):
    text: str  # of its sentence
    found: _Found


_ISO_DATE = re.compile(r"(?<![\d-])(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])")
_CJK_DATE = re.compile(
    r"(?:(?P<year>\d{1,4})\s?年\s?)(?:(?P<month>\d{1,2})\s?月\s?(?:(?P<day>\d{1,2})\s?日)?)?"
    r"|(?P<month2>\d{1,2})\s?月\s?(?P<day2>\d{1,2})\s?日"
)
_NUMERIC_DATE = re.compile(
    r"(?<![\d/.-])(?P<first>\d{1,4})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<last>\d{4}|\d\d?)(?![\d/-]|\.\d)"
)
_YEAR_ONLY = re.compile(
    r"(?<![\w.,$€£-])(?P<year>\d{3,4})(?![\d年-]|[.,]\d|s\b|\s?(?:%|m\b|km\b|metres?\b|meters?\b|feet\b|ft\b|miles?\b"
    r"|people\b|years\b|days\b))(?P<month>)(?P<day>)"
)
_ERA = re.compile(r"\s?(BCE|BC|B\.C\.|v\. ?Chr\.|av\. J\.-C\.|a\. ?C\.|до н\. ?э\.)(?!\w)", re.IGNORECASE)
_LINK = r"(?:\s(?:of|de|del|di|the)\b)?"
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_PERIOD = re.compile(r"\s?(?:-|–|—|to|until|till|through|and|bis|à|a|al|до|по|至|到)\s?", re.IGNORECASE)


def _list_date_patterns(lexicon: Lexicon) -> list[re.Pattern[str]]:
    names = "|".join(sorted(map(re.escape, lexicon.months), key=len, reverse=True))
    if not names:
        return [_ISO_DATE, _CJK_DATE, _NUMERIC_DATE, _YEAR_ONLY]
    month = rf"(?P<month>{names})(?![^\W\d_])\.?"
    day = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|º|°|-?го)?\.?"
    year = r"(?P<year>\d{3,4})(?![\d-]|[.,]\d)"
    spelled = (
        rf"(?<![\d.,]){day}{_LINK}\s{month}(?:,?{_LINK}\s{year})?",
        rf"(?<!\w){month}\s(?:the\s)?{day}(?!\d)(?:,?\s{year})?",
        rf"(?<!\w){month},?{_LINK}\s{year}(?P<day>)",
    )
    return [
        _ISO_DATE, _CJK_DATE, _NUMERIC_DATE,
        *(lexicon.compile(pattern, lambda p=pattern: p) for pattern in spelled),  # type: ignore[misc]
        _YEAR_ONLY,
    ]  # fmt: skip


def find_date(sentences: list[str], question: Question) -> str | None:
    """The only date that the sentences have, or the one said of the question's verb; None if unclear."""
    asserted = [mask_denied(sentence, question.lexicon) for sentence in sentences]
    texts = [drop_brackets(text) for text in asserted]
    if not any(_list_dates(text, question) for text in texts):
        texts = asserted
    dates = [_Stated(text, date) for text in texts for date in _list_dates(text, question)]
    return _choose_date(texts, dates, question) if dates else None


def _choose_date(texts: list[str], dates: list[_Stated], question: Question) -> str | None:
    every = [date.found for date in dates]
    if len({date.answer for date in every}) == 1:
        return every[0].answer
    periods = [period for text in texts for period in _list_periods(text, question)]
    fitting = [date.found for date in dates if _tells_verb(*date, question)]
    if any(date in period for date in fitting for period in periods):  # "it was built from 1887 to 1889"
        fitting = []
    bare = [date.found for date in dates if _is_bare_date(*date, question)]
    for chosen in (fitting, bare, _find_bound(periods, question), every):
        answers = _list_precise(chosen)
        if answers:
            return answers[0] if len(answers) == 1 else None
    return None


def _list_precise(dates: list[_Found]) -> list[str]:
    """The different dates, without a year or month of which a day is there, too."""
    answers = list(dict.fromkeys(found.answer for found in dates))
    return [one for one in answers if not any(other.startswith(f"{one}-") for other in answers)]


def _list_content(text: str, question: Question) -> list[Token]:
    common = question.lexicon.common
    return [t for t in question.tokenize(text) if t.kind == "word" and t.key not in common]


def _tells_verb(text: str, date: _Found, question: Question) -> bool:
    """Whether the last word before a date, or that after a date at the beginning, is one of the question's.

    Names don't count: they begin with a capital, and "Titanic" says nothing of what happened.
    """
    begin = max((found.end for found in _list_dates(text, question) if found.end <= date.begin), default=0)
    joints = question.lexicon.compile(
        "joints",
        lambda: r"[,;:，]|\b(?:then|while|whereas|after|before)\b|" + question.lexicon.find("and").pattern,
    )
    words = _list_content(joints.split(text[begin : date.begin])[-1], question)
    if not words and len(question.tokenize(text[: date.begin])) <= 1:
        words = _list_content(joints.split(text[date.end :].lstrip(" ,"))[0], question)
    plain = [word.key for word in words if word.text[0].islower()]
    return bool(plain) and question.asks_about(plain[-1])


def _is_bare_date(text: str, date: _Found, question: Question) -> bool:
    """Whether a sentence says nothing but the date: "It was on 11 November 1918"."""
    return not _list_content(text[: date.begin] + " " + text[date.end :], question)


def _list_periods(text: str, question: Question) -> list[tuple[_Found, _Found]]:
    """The pairs of dates such as "1939 to 1945"."""
    pairs = pairwise(_list_dates(text, question))
    return [pair for pair in pairs if _PERIOD.fullmatch(text[pair[0].end : pair[1].begin])]


def _find_bound(periods: list[tuple[_Found, _Found]], question: Question) -> list[_Found]:
    """The date that the only period begins or ends with, where that is asked for."""
    asked = [
        any(question.asks_about(word) for word in question.lexicon.gather(name)) for name in ("first", "last")
    ]
    if len(periods) != 1 or asked[0] == asked[1]:
        return []
    return [periods[0][0] if asked[0] else periods[0][1]]


def _list_dates(sentence: str, question: Question) -> list[_Found]:
    dates: list[_Found] = []
    for pattern in _list_date_patterns(question.lexicon):
        for match in islice(pattern.finditer(sentence), _MOST):
            if any(found.begin < match.end() and match.start() < found.end for found in dates):
                continue
            numeric = pattern is _NUMERIC_DATE
            answer = _spell_numeric(match, question) if numeric else _spell_date(match, question)
            if answer is not None:
                dates.append(_Found(match.start(), match.end(), answer))
    return sorted(dates)


def _spell_numeric(match: re.Match[str], question: Question) -> str | None:
    """A date such as 9.11.1989, day first; as it is written if 9/2/1945 may be September or February."""
    first, second, last = match["first"], match["second"], match["last"]
    year = first if len(first) == 4 else last if len(last) == 4 else ""
    if (not year and match["mark"] != "/") or len(first) == 3 or len(first + last) > 6:
        return None
    if year and question.asks_year:
        return year
    is_day_first = match["mark"] == "." or (question.lexicon.decimal_comma and match["mark"] == "/")
    if year and (year == first or is_day_first):
        month, day = (int(second), int(last if year == first else first))
        return f"{year}-{month:02d}-{day:02d}" if 1 <= month <= 12 and 1 <= day <= 31 else None
    return match["mark"].join(part.lstrip("0") or "0" for part in (first, second, last))


def _spell_date(match: re.Match[str], question: Question) -> str | None:
    parts = match.groupdict()
    year, month = parts["year"], parts["month"] or parts.get("month2")
    day = parts["day"] or parts.get("day2")
    if year and year in question.numbers and not month:
        return None
    number = 0
    if month:
        number = int(month) if month.isdigit() else question.lexicon.months[month.lower()]
    if (month and not 1 <= number <= 12) or (day and not 1 <= int(day) <= 31):
        return None
    before = " BC" if _ERA.match(match.string, match.end()) else ""
    if year and (question.asks_year or not number):
        return f"{int(year)}{before}"
    if not year:
        return f"{int(day)} {_MONTHS[number - 1].capitalize()}" if day and not question.asks_year else None
    return f"{int(year):04d}-{number:02d}" + (f"-{int(day):02d}" if day else "") + before


class _Quantity(NamedTuple):
    begin: int
    end: int
    key: str  # its number as digits
    answer: str  # with its sign and unit


_SIGN = re.compile(r"(?<![\w)\]])[-−–]\s?$")
_MONEY = re.compile(r"([$€£¥])\s?$")
_UNIT_WORD = re.compile(r"\s?(%|°\s?[CF]?|[^\W\d_]{1,20}[²³]?(?:/[A-Za-z]{1,9})?)")
_UNIT_LINKS = ("per", "square", "cubic", "sq", "degrees")
_RANGE = re.compile(r"\s?(?:-|–|~|to|bis|à|до|至|到)\s?", re.IGNORECASE)
_EITHER_GAP = 25  # characters between two numbers of which one answers: "6 or 7", "300 km or 186 miles"


def _list_quantities(text: str, question: Question) -> list[_Quantity]:
    """The quantities of a text, in their order."""
    below = question.lexicon.find("below").search(text)  # "38 °C below zero": this zero is no number
    tokens = [
        token
        for token in question.tokenize(text)
        if below is None or not below.start() <= token.begin < below.end()
    ]
    listed: list[_Quantity] = []
    at = 0
    while at < len(tokens) and len(listed) < _MOST:
        value, count = _read_value(text, tokens[at:], question)
        if value is not None:
            quantity = _build_quantity(text, tokens[at], tokens[at + count - 1], value, question)
            gap = text[listed[-1].end : quantity.begin] if listed else ""
            if listed and gap and _RANGE.fullmatch(gap):
                first = listed.pop()
                quantity = quantity._replace(begin=first.begin, answer=f"{first.key}-{quantity.answer}")
            listed.append(quantity)
        at += count
    return listed


def _read_value(text: str, tokens: Sequence[Token], question: Question) -> tuple[str | None, int]:
    """The digits of the number that the tokens begin with, and how many tokens it has; None for a word."""
    first = tokens[0]
    lexicon = question.lexicon
    if first.kind == "number":
        after = text[first.end : first.end + 1]
        if (
            after.isalpha()
            and after.isascii()
            and _UNIT_WORD.match(text, first.end)
            and not is_measure(
                _UNIT_WORD.match(text, first.end)[1]  # type: ignore[index]
            )
        ):
            return None, 1  # 16th, 3D
        if (
            first.begin
            and (
                text[first.begin - 1] in "_^"
                or (text[first.begin - 1].isalpha() and text[first.begin - 1].isascii())
            )
        ) or _is_list_mark(text, first):
            return None, 1  # H2O, or the number of a list's item
        return _scale(first.key, tokens, lexicon)
    if first.kind != "word":
        return None, 1
    following = tokens[1].key if len(tokens) > 1 else ""
    alone = len(tokens) == 1
    if first.key in lexicon.none and alone:
        return "0", 1
    if first.key in lexicon.negation and following and question.asks_about(following):
        return "0", 1
    value, count = _read_number_words(tokens[:8], lexicon)
    is_article = first.key != "one" and first.key in lexicon.common
    if count == 1 and value == 1 and not alone and (is_article or not question.asks_about(following)):
        return None, 1  # "this one", "one of", "un"
    return (str(value), count) if count else (None, 1)


def _is_list_mark(text: str, token: Token) -> bool:
    return (
        len(token.text) <= 2
        and not text[: token.begin].strip()
        and text[token.end : token.end + 2] in (". ", ") ")
    )


def _scale(key: str, tokens: Sequence[Token], lexicon: Lexicon) -> tuple[str, int]:
    """A number times the "million" after it."""
    following = tokens[1] if len(tokens) > 1 else None
    if following is None or following.begin > tokens[0].end + 1:
        return key, 1
    factor = lexicon.scale.get(
        following.key, lexicon.scale.get(following.key[:1], 0) if following.kind == "cjk" else 0
    )
    if not factor or len(key) > 20 or not key.replace(".", "").isdigit():
        return key, 1
    value = Fraction(key) * factor
    return (str(value.numerator) if value.denominator == 1 else key), (2 if following.kind == "word" else 1)


def _read_number_words(tokens: Sequence[Token], lexicon: Lexicon) -> tuple[int, int]:
    """The value of the number that some tokens begin with, and how many of them it has."""
    total = current = count = 0
    for at, token in enumerate(tokens):
        parts = [token.key] if token.key in lexicon.numbers else token.key.split("-")
        if token.kind == "word" and all(part in lexicon.numbers for part in parts):
            current += sum(lexicon.numbers[part] for part in parts)
        elif token.key in lexicon.scale and count and token.kind == "word":
            factor = lexicon.scale[token.key]
            total, current = (total, current * factor) if factor == 100 else (total + current * factor, 0)
        elif token.key == "and" and count and tokens[at - 1].key in lexicon.scale:
            continue
        else:
            break
        count = at + 1
    return total + current, count


def _build_quantity(text: str, first: Token, last: Token, value: str, question: Question) -> _Quantity:
    before = text[max(0, first.begin - 12) : first.begin]
    money = _MONEY.search(before)
    before = before[: money.start()] if money is not None else before
    negative = _SIGN.search(before) is not None and not re.search(r"\d\s?[-−–]\s?$", before)
    negative = negative or question.lexicon.ends_in("negative", before)
    below = question.lexicon.find("below").search(text, last.end, last.end + 35)
    sign = "-" if (negative or below is not None) and value != "0" else ""
    end, unit = _find_unit(text, last.end, question.lexicon)
    return _Quantity(first.begin, end, value, f"{sign}{money[1] if money else ''}{value}{unit}")


def _find_unit(text: str, at: int, lexicon: Lexicon) -> tuple[int, str]:
    """The end of the unit of measure that follows a number, and its name; "" for things counted."""
    words: list[str] = []
    measured, end = 0, at
    for _ in range(4):
        match = _UNIT_WORD.match(text, at)
        if match is None:
            break
        word = lexicon.units.get(match[1].lower(), match[1])
        if is_measure(word):
            measured, end = len(words) + 1, match.end()
        elif word.lower() not in _UNIT_LINKS:
            break
        words.append(word)
        at = match.end()
    return end, "".join(f" {word}" for word in words[:measured])


_COMPUTES = re.compile(r"[=≈]|\\approx|\\boxed")


def find_solution(sentences: list[str], question: Question) -> str | None:
    """The value at which a solution arrives: the last number that the question doesn't have.

    The sentence counts that says what was counted, or concludes; remarks after it don't.
    """
    stated = [(drop_brackets(text), _select_new(drop_brackets(text), question)) for text in sentences]
    if not any(new for _, new in stated):
        stated = [(text, _select_new(text, question)) for text in sentences]
    numeric = [(text, new) for text, new in stated if new]
    if not numeric:
        return _repeat_number(sentences, question)
    for is_conclusion in (_concludes, _repeats_question, _computes, lambda _text, _question: True):
        chosen = [(text, new) for text, new in numeric if is_conclusion(text, question)]
        if chosen:
            text, new = chosen[-1]
            signs = [match.end() for match in _COMPUTES.finditer(text)]
            after = [number for number in new if signs and number.begin >= signs[-1]]
            return (after[0] if after else new[-1]).answer
    return None


def _concludes(text: str, question: Question) -> bool:
    return question.lexicon.find("conclude").search(text) is not None


def _repeats_question(text: str, question: Question) -> bool:
    """Whether a text says in the question's words what was counted, and computes nothing."""
    if _COMPUTES.search(text):
        return False
    tokens = question.tokenize(text)
    shared = (
        t.text[at : at + 2] in question.asking
        for t in tokens
        if t.kind == "cjk"
        for at in range(len(t.text) - 1)
    )
    return any(shared) or any(t.kind == "word" and question.asks_about(t.key) for t in tokens)


def _computes(text: str, _question: Question) -> bool:
    return _COMPUTES.search(text) is not None


def _select_new(text: str, question: Question) -> list[_Quantity]:
    return [found for found in _list_quantities(text, question) if found.key not in question.numbers]


def _repeat_number(sentences: list[str], question: Question) -> str | None:
    """One of the question's own numbers, if it is the only one that a reply has, or stands after a sign."""
    found = [(text, number) for text in sentences for number in _list_quantities(text, question)]
    if len({number.key for _, number in found}) == 1:
        return found[0][1].answer
    after = [number for text, number in found if "=" in text[: number.begin]]
    return after[-1].answer if after else None


def find_quantity(sentences: list[str], question: Question) -> str | None:
    """The only quantity that a reply has and the question doesn't, or the one that it asks for."""
    if len(sentences) > 1 and any(_computes(text, question) for text in sentences):
        return find_solution(sentences, question)
    texts = [mask_denied(sentence, question.lexicon) for sentence in sentences]
    if not any(_list_quantities(text, question) for text in texts):
        denied = {found.answer for text in sentences for found in _list_quantities(text, question)}
        return "0" if denied == {"0"} else None  # "no moons", "none"
    listed = _list_stated(texts, question)
    in_unit = _select_unit(listed, question)
    if len({stated.found.answer for stated in in_unit}) == 1:
        return in_unit[0].found.answer
    plain = [_drop_remarks(text, question) for text in texts]
    if any(_leaves_open(text, question) for text in plain):
        return None
    listed = [stated for stated in _list_stated(plain, question) if not _is_part(stated, question)]
    for select in (_select_conclusion, _select_unit, _select_fitting):
        if len({stated.found.answer for stated in listed}) > 1:
            listed = select(listed, question) or listed
    answers = list(dict.fromkeys(stated.found.answer for stated in listed))
    return answers[0] if len(answers) == 1 else None


def _list_stated(texts: list[str], question: Question) -> list[_Stated]:
    """What the texts state, less what the question mentions itself, and years beside other numbers."""
    listed = [(text, found) for text in texts for found in _list_quantities(text, question)]
    new = [(text, found) for text, found in listed if not _is_mentioned(text, found, question)]
    return [_Stated(text, _Found(f.begin, f.end, f.answer)) for text, f in (new or listed)]


def _is_mentioned(text: str, found: _Quantity, question: Question) -> bool:
    """Whether a number is one of the question's, or a year."""
    is_year = len(found.answer) == 4 and question.lexicon.ends_in("year_place", text[: found.begin][-16:])
    return found.key in question.numbers or (is_year and found.answer.isdigit())


def _drop_remarks(text: str, question: Question) -> str:
    """The text without brackets, relative clauses, and what a colon explains."""
    text = drop_brackets(text)
    before, _, _ = text.partition(": ")
    text = before if _list_quantities(before, question) else text
    kept = [text[begin:end] for begin, end in split_clauses(text) if not _RELATIVE.match(text[begin:end])]
    return ", ".join(kept) or text


_RELATIVE = re.compile(
    r"\s?(?:which|who|whose|where|while|whereas|unlike|qui|dont|который|которая)\b", re.IGNORECASE
)


def _leaves_open(text: str, question: Question) -> bool:
    """Whether a text leaves the choice: "6 or 7", "between 5 and 7", "some say six, most say seven"."""
    listed = _list_quantities(text, question)
    if len({found.answer for found in listed}) <= 1:
        return False
    if question.lexicon.find("opinions").search(text) or question.lexicon.find("between").search(text):
        return True
    either = question.lexicon.find("or")
    return any(
        either.search(text, one.end, other.begin) is not None
        and other.begin - one.end <= _EITHER_GAP
        and not _is_converted(one, other)
        for one, other in pairwise(listed)
    )


def _is_converted(first: _Quantity, second: _Quantity) -> bool:
    """Whether two quantities have two units, so that the second may say the first once more."""
    units = {_find_unit_name(first.answer), _find_unit_name(second.answer)}
    return len(units) == 2 and "" not in units


def _find_unit_name(answer: str) -> str:
    unit = split_unit(answer)
    return unit[1].removeprefix("° ") if unit is not None else ""


def _is_part(stated: _Stated, question: Question) -> bool:
    """Whether a number counts pairs or thirds, and so isn't the number asked for."""
    following = question.tokenize(stated.text[stated.found.end : stated.found.end + 40])[:1]
    return any(t.key in question.lexicon.parts and not question.asks_about(t.key) for t in following)


def _select_conclusion(listed: list[_Stated], question: Question) -> list[_Stated]:
    """What follows a "so" that comes after another number."""
    concluded = []
    for stated in listed:
        last = 0
        for match in question.lexicon.find("conclude").finditer(stated.text, 0, stated.found.begin):
            last = match.start()
        if last and _list_quantities(stated.text[:last], question):
            concluded.append(stated)
    fitting = [stated for stated in concluded if not _counts_other(stated, question)]
    return fitting if len(fitting) == 1 else []


def _select_unit(listed: list[_Stated], question: Question) -> list[_Stated]:
    """Those in a unit that the question names, such as Fahrenheit."""
    names = (question.lexicon.units.get(word, word) for word in question.content)
    units = (split_unit(f"1 {name}") for name in names if is_measure(name))
    asked = {unit[1] for unit in units if unit is not None}
    return [stated for stated in listed if asked and _find_unit_name(stated.found.answer) in asked]


def _find_following(stated: _Stated, question: Question) -> list[str]:
    """The content words that follow a number in its clause."""
    rest = stated.text[stated.found.end :][:80]
    begin, end = split_clauses(rest)[0]
    joint = question.lexicon.find("and").search(rest, begin, end)
    return [t.key for t in _list_content(rest[begin : joint.start() if joint is not None else end], question)]


def _counts_other(stated: _Stated, question: Question) -> bool:
    """Whether another noun than one of the question's follows: 12 of "12 months", asked for days."""
    following = _find_following(stated, question)
    return bool(following) and not any(map(question.asks_about, following))


def _select_fitting(listed: list[_Stated], question: Question) -> list[_Stated]:
    """Those that count what was asked for and are said of it, or do one of both where none does the other.

    7 of "a day has 24 hours, and a week 7 days"; 8,849 m of "Everest is 8,849 m or 29,032 feet tall".
    """
    counted = [s for s in listed if any(map(question.asks_about, _find_following(s, question)[:2]))]
    said = [stated for stated in listed if _is_said_of_question(stated, question)]
    if said and len(said) == len(listed) and all(_find_unit_name(stated.found.answer) for stated in said):
        return said[:1]
    if counted and said:
        return [stated for stated in counted if stated in said] or listed
    return counted or said or listed


def _is_said_of_question(stated: _Stated, question: Question) -> bool:
    """Whether the words before a quantity in its clause are the question's, or "it is": not "Earth has"."""
    if _counts_other(stated, question):
        return False
    before = stated.text[: stated.found.begin]
    joint = question.lexicon.find("and")
    begin = max([split_clauses(before)[-1][0], *(match.end() for match in joint.finditer(before))])
    return all(question.asks_about(word.key) for word in _list_content(before[begin:], question))


def is_unit(word: str, question: Question) -> bool:
    """Whether a word is the name of a unit."""
    return is_measure(question.lexicon.units.get(word.lower(), word))


def has_new_number(text: str, question: Question) -> bool:
    """Whether a text has a number that the question doesn't have."""
    words = question.lexicon.numbers
    may_have = any(t.kind == "number" or t.key.partition("-")[0] in words for t in question.tokenize(text))
    return may_have and bool(_select_new(text, question))
