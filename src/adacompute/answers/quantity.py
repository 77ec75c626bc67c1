"""Finds the date or quantity that a reply states, and gives it one spelling.

"11 November 1918", "11. November 1918" and "1918年11月11日" become "1918-11-11"; "seven" becomes "7", and
"about 300 km (186 miles)" becomes "300 km". A reply with several candidate values is unclear, because a
wrong vote is worse than none.

`split_unit` separates a number from its unit: money, percent, degrees, measures, counted things. Only
durations are converted (to seconds). A word after a number isn't a unit if it may be something else, such as
a function, a month or a direction. A unit without a space before it must be in the lists of units, because
2xy is a product.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from adacompute.answers.formula import FUNCTIONS
from adacompute.answers.question import Lexicon, Question, Token, drop_brackets, get_lexicon, mask_denied

# (text of the number, unit or "", factor that the number is multiplied by)
Measurement = tuple[str, str, int]


_ENGLISH = get_lexicon(frozenset(("en",)))
_ALIASES = _ENGLISH.get_pairs("aliases")  # word or sign -> unit: "metre" -> "m"
_FACTORS = _ENGLISH.get_pairs("factors")  # word -> factor, such as "million" -> 1,000,000
_EXPONENTS = _ENGLISH.get_pairs("exponents")  # word -> exponent of a unit, such as "square" -> "^2"
# words after a number that aren't its unit: conjunctions, numbers, fractions, eras, dates, Greek letters
_NOT_UNITS = _ENGLISH.gather("not_units") | (FUNCTIONS - {"sec"})
_VOWEL_LETTERS = frozenset("aeiouy")
# matches a unit symbol with an optional prefix; case matters, because mW isn't MW and kb isn't kB
_SYMBOL = re.compile(
    "[nuμmkMGT]?(?:m|g|s|A|K|mol|Hz|N|Pa|J|W|C|V|F|Ω|S|T|H|L|l|eV|cal|B|b|bit|Wh|bar)|c[mglL]|d[mlLB]|hPa|ha"
)
_LETTER_UNITS = frozenset("mgshlLAVWNJKCF")  # units of one letter; recognised only after a space
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
    """Splits a cleaned answer into its number, unit and factor; None if it has no unit.

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
        return None  # without a space, as in 6c, the letter is a factor; "6 m" is a length
    if _SUM.search(number) or _TRIG.search(number):
        return None  # in the formula 100 - 90s^2, s is a variable, not seconds
    return _name_unit(number, unit, spaced=bool(match["gap"]))


@lru_cache(maxsize=1024)
def is_measure(word: str) -> bool:
    """Whether a word after a number is a unit of measure, rather than a counted thing or any other word.

    >>> is_measure("kilometres"), is_measure("km/h"), is_measure("apples"), is_measure("in")
    (True, True, False, False)
    """
    parts = _UNIT_SEPARATOR.split(word.partition("^")[0])
    return all(
        _ENGLISH.gather("counted").isdisjoint((part.lower(), _make_singular(part.lower())))
        and _is_known_unit(part)
        for part in parts
    )


_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_CLOCK = re.compile(
    r"(?:(?P<days>\d{1,6}) ?d(?:ays?)?,? ?(?:and )?)?"
    r"(?P<hours>\d{1,4}) ?: ?(?P<minutes>[0-5]\d)(?: ?: ?(?P<seconds>[0-5]\d(?:\.\d{1,9})?))?"
)
_PLAIN_SECONDS = re.compile(rf"sec:({_NUMBER})")
_TIME_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}  # seconds per unit of time
_TIME_WORD = r"(?:d(?:ays?)?|h(?:ours?|rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)\b"
_TIME_PART = re.compile(rf"({_NUMBER}) ?({_TIME_WORD})", re.IGNORECASE)
_DURATION = re.compile(
    rf"{_NUMBER} ?{_TIME_WORD}(?:,? ?(?:and )?{_NUMBER} ?{_TIME_WORD}){{0,3}}", re.IGNORECASE
)


def count_seconds(text: str) -> Fraction | None:
    """Converts a duration to seconds, and reads 5:18 as hours and minutes; None for other texts.

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
        return None  # "5 m" alone is a length, whereas "5 m 3 s" is a duration
    return sum((Fraction(number) * size for (number, _), size in zip(parts, sizes, strict=True)), Fraction(0))


def _join_fraction_unit(match: re.Match[str]) -> str:
    r"""Rewrites 5 \frac{m}{s} as 5 m/s, if a space shows that the fraction is a unit and not a factor."""
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
        factor *= int(_FACTORS[_make_singular(words.pop(0).lower())])
    if len(words) > 3 or not all(_is_unit(word, spaced=spaced or at > 0) for at, word in enumerate(words)):
        return None
    suffix = "".join(_EXPONENTS[word.lower()] for word in words if word.lower() in _EXPONENTS)
    names = [_spell_unit(word) for word in words if word.lower() not in _EXPONENTS]
    if (suffix and not names) or (factor == 1 and not names):
        return None  # "3 squared" has no unit
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
    # without a space, one letter or two small letters may be variables, as in 2ms
    return bool(_SYMBOL.fullmatch(part)) and (
        spaced or len(part) > 2 or (len(part) > 1 and not part.islower())
    )


def _make_singular(word: str) -> str:
    if word.endswith(("xes", "ches", "shes", "sses")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word


def _spell_unit(word: str) -> str:
    """Gives a unit one spelling: "Metres" becomes "m", "apples" becomes "apple"; mW and MW stay distinct."""
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


_MOST = 20  # maximum number of dates, and also of quantities, that are read per sentence


class Stated(NamedTuple):
    """A date or quantity found in a text."""

    begin: int
    end: int
    key: str  # the digits of a number; "" for a date
    answer: str


class Meaning(NamedTuple):
    """The answer that a reply states, the confidence in it, and the other candidates if it is unclear."""

    answer: str | None
    sure: float = 1.0
    others: tuple[str, ...] = ()


_UNSURE = 0.4
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
_MONTHS = [name.capitalize() for name in list(_ENGLISH.get_pairs("months"))[:12]]
_ERA = re.compile(r"\s?(BCE|BC|B\.C\.|v\. ?Chr\.|av\. J\.-C\.|a\. ?C\.|до н\. ?э\.)(?!\w)", re.IGNORECASE)
_LINK = r"(?:\s(?:of|de|del|di|the)\b)?"
_RANGE = "-|–|—|~|to|until|till|through|bis|à|al|до|по|至|到"


@lru_cache(maxsize=64)
def _list_date_patterns(lexicon: Lexicon) -> list[re.Pattern[str]]:
    names = "|".join(sorted(map(re.escape, lexicon.get_pairs("months")), key=len, reverse=True)) or "(?!)"
    month = rf"(?P<month>{names})(?![^\W\d_])\.?"
    day = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th|er|º|°|-?го)?\.?"
    year = r"(?P<year>\d{3,4})(?![\d-]|[.,]\d)"
    spelled = (
        rf"(?<![\d.,]){day}{_LINK}\s{month}(?:,?{_LINK}\s{year})?",
        rf"(?<!\w){month}\s(?:the\s)?{day}(?!\d)(?:,?\s{year})?",
        rf"(?<!\w){month},?{_LINK}\s{year}(?P<day>)",
    )
    named = [re.compile(pattern, re.IGNORECASE) for pattern in spelled]
    return [_ISO_DATE, _CJK_DATE, _NUMERIC_DATE, *named, _YEAR_ONLY]


def find_date(sentences: list[str], question: Question) -> Meaning:
    """Finds the date that the sentences give for the event in the question, or else the only date."""
    texts = [drop_brackets(mask_denied(sentence, question.lexicon)) for sentence in sentences]
    stated = [(text, date) for text in texts for date in _list_dates(text, question)]
    fitting = [date for text, date in stated if _tells_verb(text, date, question)]
    every = [date for _, date in stated]
    precise = [date for date in every if not any(o.answer.startswith(f"{date.answer}-") for o in every)]
    return _choose(fitting, precise)


def _choose(fitting: list[Stated], stated: list[Stated]) -> Meaning:
    """Returns the only value in `fitting` or, if that is empty, in `stated`; else the answer is unclear."""
    fit, every = (list(dict.fromkeys(found.answer for found in group)) for group in (fitting, stated))
    if len(fit or every) == 1:
        return Meaning((fit or every)[0])
    return Meaning(None) if fit or not every else Meaning(every[0], _UNSURE, tuple(every[1:]))


def _cut_clause(text: str, stated: Stated, question: Question) -> tuple[str, str]:
    """Returns the rest of a clause before and after a date or quantity; "and" and "or" also end a clause."""
    ends = question.lexicon.clause_end
    before, after = text[: stated.begin], text[stated.end :]
    return ends.split(before)[-1], ends.split(after.lstrip(" ,") if not stated.begin else after)[0]


def _list_content(text: str, question: Question) -> list[Token]:
    common = question.lexicon.common
    return [t for t in question.tokenize(text) if t.kind == "word" and t.key not in common]


def _tells_verb(text: str, date: Stated, question: Question) -> bool:
    """Whether a date belongs to the question's event, because a word of the question stands next to it.

    A capitalised name isn't enough: "Titanic" next to a date doesn't say what happened then.
    """
    before, after = _cut_clause(text, date, question)
    words = _list_content(before, question)
    if not words and len(question.tokenize(text[: date.begin])) <= 1:
        words = _list_content(after, question)
    plain = [word.key for word in words if word.text[0].islower()]
    return bool(plain) and question.asks_about(plain[-1])


def _list_dates(sentence: str, question: Question) -> list[Stated]:
    """Lists the dates in a sentence, in order; a span such as "1939 to 1945" counts as one date."""
    dates: list[Stated] = []
    for pattern in _list_date_patterns(question.lexicon):
        for match in islice(pattern.finditer(sentence), _MOST):
            if any(found.begin < match.end() and match.start() < found.end for found in dates):
                continue
            spell = _spell_numeric if pattern is _NUMERIC_DATE else _spell_date
            answer = spell(match, question)
            if answer is not None:
                dates.append(Stated(match.start(), match.end(), "", answer))
    return _join_ranges(sorted(dates), sentence, question.lexicon)


def _join_ranges(listed: list[Stated], text: str, lexicon: Lexicon) -> list[Stated]:
    """Joins the two values of a range or alternative, such as "1939 to 1945" or "6 or 7", into one."""
    # "and" joins two values only after "between", as in "between 5 and 7"; otherwise "or" does
    name = "and" if lexicon.find("between").search(text) else "or"
    gaps = lexicon.compile(f"range with {name}", lambda: rf"\s?(?:{_RANGE}|{lexicon.find(name).pattern})\s?")
    joined: list[Stated] = []
    for item in listed:
        first = joined[-1] if joined else item
        if first.answer == (first.key or first.answer) and gaps.fullmatch(text[first.end : item.begin]):
            item = item._replace(begin=first.begin, answer=f"{first.key or first.answer}–{item.answer}")
            joined.pop()
        joined.append(item)
    return joined


def _spell_numeric(match: re.Match[str], question: Question) -> str | None:
    """Rewrites a date such as 9.11.1989 in ISO format; leaves an ambiguous one such as 9/2/1945 as it is."""
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
    number = 0
    if month:
        number = int(month) if month.isdigit() else int(question.lexicon.get_pairs("months")[month.lower()])
    if (month and not 1 <= number <= 12) or (day and not 1 <= int(day) <= 31):
        return None
    before = " BC" if _ERA.match(match.string, match.end()) else ""
    if year and (question.asks_year or not number):
        return f"{int(year)}{before}"
    if not year:
        return f"{int(day)} {_MONTHS[number - 1]}" if day and not question.asks_year else None
    return f"{int(year):04d}-{number:02d}" + (f"-{int(day):02d}" if day else "") + before


_SIGN = r"(?<![\w)\]])[-−–]$"
_MONEY = re.compile(r"([$€£¥])\s?$")
_UNIT_WORD = re.compile(r"\s?(%|°\s?[CF]?|[^\W\d_]{1,20}[²³]?(?:/[A-Za-z]{1,9})?)")
_UNIT_LINKS = ("per", "square", "cubic", "sq", "degrees")


@lru_cache(maxsize=256)  # cached, because the same sentence is often read again
def _list_quantities(text: str, question: Question) -> list[Stated]:
    """Lists the quantities in a text, in order; a range counts as one quantity."""
    tokens = question.tokenize(text)
    listed: list[Stated] = []
    at = 0
    while at < len(tokens) and len(listed) < _MOST:
        value, count = _read_value(text, tokens[at:], question)
        if value is not None:
            listed.append(_build_quantity(text, tokens[at], tokens[at + count - 1], value, question))
        at += count
    return _join_ranges(listed, text, question.lexicon)


def _read_value(text: str, tokens: Sequence[Token], question: Question) -> tuple[str | None, int]:
    """Reads the number at the beginning of the tokens; returns (its digits or None, its number of tokens)."""
    first, lexicon = tokens[0], question.lexicon
    if first.kind == "number":
        return (None, 1) if _is_in_word(text, first) else _scale(first.key, tokens, lexicon)
    if first.kind != "word":
        return None, 1
    following = tokens[1].key if len(tokens) > 1 else ""
    if first.key in lexicon.negation and following and question.asks_about(following):
        return "0", 1
    value, count = _read_number_words(tokens[:8], lexicon)
    is_article = first.key != "one" and first.key in lexicon.common
    if count == value == 1 < len(tokens) and (is_article or not question.asks_about(following)):
        return None, 1  # this "one" isn't a number: "this one", "one of", the French article "un"
    return (str(value), count) if count else (None, 1)


def _is_in_word(text: str, number: Token) -> bool:
    """Whether a number is part of a word (16th, 3D), an index or an exponent."""
    after = _LETTERS.match(text, number.end)
    return text[: number.begin].endswith(("_", "^")) or (after is not None and not is_measure(after[0]))


_LETTERS = re.compile("[A-Za-z]{1,20}(?:/[A-Za-z]{1,9})?")


def _scale(key: str, tokens: Sequence[Token], lexicon: Lexicon) -> tuple[str, int]:
    """Multiplies a number by a following "million" or the like; returns (digits, number of tokens read)."""
    following = tokens[1] if len(tokens) > 1 else None
    if following is None or following.begin > tokens[0].end + 1:
        return key, 1
    factor = int(
        lexicon.get_pairs("scale").get(following.key[:1] if following.kind == "cjk" else following.key, 0)
    )
    if not factor or len(key) > 20 or not key.replace(".", "").isdigit():
        return key, 1
    value = Fraction(key) * factor
    return (str(value.numerator) if value.denominator == 1 else key), (2 if following.kind == "word" else 1)


def _read_number_words(tokens: Sequence[Token], lexicon: Lexicon) -> tuple[int, int]:
    """Reads the number words at the beginning of the tokens; returns (their value, how many there are)."""
    numbers, scale = lexicon.get_pairs("numbers"), lexicon.get_pairs("scale")
    total = current = count = 0
    for at, token in enumerate(tokens):
        parts = [token.key] if token.key in numbers else token.key.split("-")
        if token.kind == "word" and all(part in numbers for part in parts):
            current += sum(int(numbers[part]) for part in parts)
        elif token.key in scale and count and token.kind == "word":
            factor = int(scale[token.key])
            total, current = (total, current * factor) if factor == 100 else (total + current * factor, 0)
        elif token.key == "and" and count and tokens[at - 1].key in scale:
            continue
        else:
            break
        count = at + 1
    return total + current, count


def _build_quantity(text: str, first: Token, last: Token, value: str, question: Question) -> Stated:
    before = text[max(0, first.begin - 12) : first.begin]
    money = _MONEY.search(before)
    before = before[: money.start()] if money is not None else before
    words = question.lexicon.find("negative").pattern
    negative = question.lexicon.compile("minus", lambda: rf"{_SIGN}|(?:{words})\s?$").search(before)
    end, unit = _find_unit(text, last.end, question.lexicon)
    sign = "-" if negative and value != "0" else ""
    return Stated(first.begin, end, value, f"{sign}{money[1] if money else ''}{value}{unit}")


def _find_unit(text: str, at: int, lexicon: Lexicon) -> tuple[int, str]:
    """Finds where the unit after a number ends, and its name ("" for counted things such as apples)."""
    end, unit, words = at, "", list[str]()
    while len(words) < 4 and (match := _UNIT_WORD.match(text, at)):
        words.append(lexicon.get_pairs("units").get(match[1].lower(), match[1]))
        at = match.end()
        if is_measure(words[-1]):
            end, unit = at, "".join(f" {word}" for word in words)
        elif words[-1].lower() not in _UNIT_LINKS:
            break
    return end, unit


_ANSWER_FIRST = re.compile(r"\D{0,2}\d[\d.,/ ]*(?: ?[^\W\d_]{1,20}){0,2}(?:\.\s|$)")
_NEXT_ITEM = re.compile(r"\d{1,2}[.)]\s")


def find_leading(sentences: list[str], question: Question) -> str | None:
    """Finds a number that begins a reply and is then explained, as in "30. The farmer had 36 trees."."""
    first = _ANSWER_FIRST.match(sentences[0])
    if first is None or any(_NEXT_ITEM.match(text) or _COMPUTES.search(text) for text in sentences[1:]):
        return None
    new = _select_new(first.group(), question)
    return new[0].answer if len(new) == 1 else None


_COMPUTES = re.compile(r"[=≈]|\\approx|\\boxed")


def find_solution(sentences: list[str], question: Question) -> Meaning:
    """Finds the result of a solution: the last number that isn't in the question.

    Sentences that repeat words of the question come first, then sentences that compute something. If all
    numbers are in the question, a reply's only number is the result.
    """
    stated = [(text, _select_new(text, question)) for text in map(drop_brackets, sentences)]
    numeric = [(text, new) for text, new in stated if new]
    if not numeric:
        return _choose([], [found for text in sentences for found in _list_quantities(text, question)])
    computed = [new for text, new in numeric if _COMPUTES.search(text)]
    told = [new for text, new in numeric if not _COMPUTES.search(text) and _repeats(text, question)]
    return Meaning((told or computed or [numeric[-1][1]])[-1][-1].answer)


def _repeats(text: str, question: Question) -> bool:
    """Whether a text repeats words of the question and isn't only an introduction that ends in a colon."""
    words = (question.asks_about(word.key) for word in _list_content(text, question))
    return not text.endswith((":", "：")) and (any(words) or not question.characters.isdisjoint(text))


def _select_new(text: str, question: Question) -> list[Stated]:
    """Selects the numbers in a text that aren't in the question.

    If 3 and 4 are in the question, 3/4 is selected only if no other number is new.
    """
    new = [found for found in _list_quantities(text, question) if found.key not in question.numbers]
    return [found for found in new if not {*question.numbers}.issuperset(found.key.split("/"))] or new


def find_quantity(sentences: list[str], question: Question) -> Meaning:
    """Finds the only quantity that a reply states, or the only one about the question's subject."""
    denied = [mask_denied(sentence, question.lexicon) for sentence in sentences]
    listed = [(text, q) for text in map(drop_brackets, denied) for q in _list_quantities(text, question)]
    if not listed:
        every = {item.answer for text in sentences for item in _list_quantities(text, question)}
        return Meaning("0" if every == {"0"} else None)  # a reply such as "no moons" means 0
    in_unit = [(text, item) for text in denied for item in _select_unit(text, question)]
    stated = in_unit or [pair for pair in listed if not _is_part(*pair, question)]
    fitting = [item for text, item in stated if _fits(text, item, question)]
    return _choose(fitting, [item for _, item in stated])


def _select_unit(text: str, question: Question) -> list[Stated]:
    """Selects the quantities whose unit the question names, such as Fahrenheit."""
    names = [question.lexicon.get_pairs("units").get(word, word) for word in question.content]
    asked = [split_unit(f"1 {name}") for name in names if is_measure(name)]
    units = {unit[1] for unit in asked if unit is not None}
    listed = (
        [(found, split_unit(found.answer)) for found in _list_quantities(text, question)] if units else []
    )
    return [found for found, unit in listed if unit is not None and unit[1].removeprefix("° ") in units]


def _fits(text: str, stated: Stated, question: Question) -> bool:
    """Whether a quantity is about the question's subject: "a spider has 8", but not "insects have 6"."""
    before, after = _cut_clause(text, stated, question)
    following = _list_content(after, question)[:1]
    if not following and _YEAR.fullmatch(stated.answer):
        return False  # "2023" in "in 2023" is a year, not a quantity
    return all(question.asks_about(word.key) for word in [*_list_content(before, question), *following])


_YEAR = re.compile(r"(?:1\d|20)\d\d")


def _is_part(text: str, stated: Stated, question: Question) -> bool:
    """Whether a number counts parts or groups, such as thirds or pairs, that the question doesn't name."""
    following = question.tokenize(text[stated.end : stated.end + 40])[:1]
    return any(
        t.key in question.lexicon.gather("parts") and not question.asks_about(t.key) for t in following
    )


def is_unit(word: str, question: Question) -> bool:
    """Whether a word is a unit of measure in a language of the question."""
    return is_measure(question.lexicon.get_pairs("units").get(word.lower(), word))


def has_new_number(text: str, question: Question) -> bool:
    """Whether a text contains a number that isn't in the question."""
    words = question.lexicon.get_pairs("numbers")
    may_have = any(t.kind == "number" or t.key.partition("-")[0] in words for t in question.tokenize(text))
    return may_have and bool(_select_new(text, question))
