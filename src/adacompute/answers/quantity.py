"""Finds the date, or the quantity with its unit, that a reply states, and spells it in one way.

"11 November 1918", "11. November 1918" and "1918年11月11日" are "1918-11-11"; "seven" is "7", and "about 300 km
(186 miles)" is "300 km". What the question mentions itself isn't taken for its answer. A reply that states
several, and doesn't say which of them answers, is unclear: a wrong vote is worse than none.
"""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import islice, pairwise
from typing import NamedTuple

from adacompute.answers.question import Question
from adacompute.answers.units import is_measure, split_unit
from adacompute.answers.words import Lexicon, Token, drop_brackets, mask_denied, split_clauses

__all__ = [
    "drop_brackets",
    "find_date",
    "find_quantity",
    "find_solution",
    "has_new_number",
    "is_unit",
    "mask_denied",
]

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
    """The only date that the sentences have, or the one said of the question's verb; None if none is clear."""
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
    """A date like 9/2/1945 as it is written: whether September or February is meant isn't known."""
    first, second, last = match["first"], match["second"], match["last"]
    year = first if len(first) == 4 else last if len(last) == 4 else ""
    if (not year and match["mark"] != "/") or len(first) == 3 or len(first + last) > 6:
        return None
    if year and question.asks_year:
        return year
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
        t for t in question.tokenize(text) if below is None or not below.start() <= t.begin < below.end()
    ]
    found: list[_Quantity] = []
    at = 0
    while at < len(tokens) and len(found) < _MOST:
        value, count = _read_value(text, tokens[at:], question)
        if value is not None:
            quantity = _build_quantity(text, tokens[at], tokens[at + count - 1], value, question)
            gap = text[found[-1].end : quantity.begin] if found else ""
            if found and gap and _RANGE.fullmatch(gap):
                first = found.pop()
                quantity = quantity._replace(begin=first.begin, answer=f"{first.key}-{quantity.answer}")
            found.append(quantity)
        at += count
    return found


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
        return _scale(first.key, text, tokens, lexicon)
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


def _scale(key: str, text: str, tokens: Sequence[Token], lexicon: Lexicon) -> tuple[str, int]:
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
    told = [(text, new) for text, new in stated if new]
    if not told:
        return _repeat_number(sentences, question)
    for is_conclusion in (_concludes, _repeats_question, _computes, lambda _text, _question: True):
        chosen = [(text, new) for text, new in told if is_conclusion(text, question)]
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
    """Those in a unit that the question names, such as Fahrenheit; or the first of a quantity in two units."""
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
    return bool(_select_new(text, question))
