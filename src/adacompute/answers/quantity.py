"""Finds the date, or the quantity with its unit, that a sentence states, and spells it in one way.

"11 November 1918" and "Nov. 11, 1918" are "1918-11-11"; "seven" is "7", and "about 300 km (186 miles)" is
"300 km". What the question mentions itself isn't taken for its answer.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from adacompute.answers.question import Question, find_stem, find_stems
from adacompute.answers.units import is_measure

__all__ = ["find_date", "find_quantity"]

_BRACKETS = re.compile(r"\s?[(\[][^()\[\]]{0,120}[)\]]")
_MOST = 20  # dates or numbers of one sentence that are looked at
_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = _MONTH_NAMES.split()
_MONTH = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_FULL_YEAR = (
    r"(?P<year>\d{3,4})(?![\d-]|,\d|\.\d|\s?(?:m|km|metres?|meters?|feet|ft|miles?|people|years|days)\b)"
)
_DATES = (
    re.compile(r"(?<![\d-])(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)(?![\d-])"),
    re.compile(
        rf"(?<![\d.,]){_DAY}\s(?:of\s|day of\s)?{_MONTH}(?:,?\s(?:of\s)?{_FULL_YEAR})?", re.IGNORECASE
    ),
    re.compile(rf"\b{_MONTH}\s(?:the\s)?{_DAY}(?!\d)(?:,?\s{_FULL_YEAR})?", re.IGNORECASE),
    re.compile(rf"\b{_MONTH},?\s(?:of\s)?{_FULL_YEAR}(?P<day>)", re.IGNORECASE),
    re.compile(rf"(?<![\w.,$€£-]){_FULL_YEAR}(?!s\b|\s?%)(?P<month>)(?P<day>)"),
)
_ERA = re.compile(r"\s?(BCE|BC|B\.C\.|CE|AD|A\.D\.)(?!\w)", re.IGNORECASE)
_NEAR = 4  # words before a date in which the question's verb is looked for


class _Found(NamedTuple):
    begin: int
    answer: str


def find_date(sentences: list[str], question: Question) -> str | None:
    """The date of the first sentence that has one: that which follows a word of the question, or the "
    "first."""
    for sentence in sentences:
        dates = list(_list_dates(sentence, question))
        if not dates:
            continue
        for date in dates:
            before = find_stems(sentence[: date.begin])[-_NEAR:]
            if len(dates) > 1 and any(stem in question.stems for stem in before):
                return date.answer
        return dates[0].answer
    return None


def _list_dates(sentence: str, question: Question) -> Iterator[_Found]:
    taken: list[tuple[int, int]] = []
    dates: list[_Found] = []
    for pattern in _DATES:
        for match in islice(pattern.finditer(sentence), _MOST):
            if any(begin < match.end() and match.start() < end for begin, end in taken):
                continue
            answer = _spell_date(match, question)
            if answer is not None:
                taken.append(match.span())
                dates.append(_Found(match.start(), answer))
    return iter(sorted(dates))


def _spell_date(match: re.Match[str], question: Question) -> str | None:
    year, month, day = match["year"], match["month"], match["day"]
    if year and year in question.numbers and not month:
        return None
    number = 0
    if month:
        number = int(month) if month.isdigit() else _read_month(month)
    if (month and not 1 <= number <= 12) or (day and not 1 <= int(day) <= 31):
        return None
    era = _ERA.match(match.string, match.end())
    before = bool(era and era[1][0] in "bB")
    if year and (question.asks_year or not number):
        return f"{int(year)} BC" if before else year.lstrip("0") or None
    if not year:
        return f"{int(day)} {_MONTHS[number - 1].capitalize()}" if day and not question.asks_year else None
    spelled = f"{int(year):04d}-{number:02d}" + (f"-{int(day):02d}" if day else "")
    return f"{spelled} BC" if before else spelled


def _read_month(name: str) -> int:
    return next(at for at, month in enumerate(_MONTHS, 1) if month.startswith(name[:3].lower()))


_QUANTITY = re.compile(
    r"(?<![\w.,/^])(?P<sign>[-−]\s?)?(?P<money>[$€£¥]\s?)?(?P<number>\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,20})"
    r"(?P<decimals>\.\d{1,20})?(?![\w:^]|[.,/-]\d)"
)
_SCALE = re.compile(r"\s(?:hundred|thousand|million|billion|trillion)\b", re.IGNORECASE)
_RANGE = re.compile(r"\s?(?:-|–|to|and)\s?$", re.IGNORECASE)
_UNIT_WORD = re.compile(r"\s?(%|°\s?[CF]?|[A-Za-zμΩ][A-Za-zμΩ²³/^0-9]{0,20})")
_UNIT_LINKS = ("per", "square", "cubic", "sq", "degrees")
_YEAR_PLACE = re.compile(r"\b(?:in|since|by|of|until|from|year|around)\s(?:the year\s)?$", re.IGNORECASE)
_CONCLUSION = re.compile(
    r"=|^(?:so|therefore|thus|hence|this means|that means|in total|altogether)\b", re.IGNORECASE
)
_SMALL_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_NUMBER_WORDS = {word: value for value, word in enumerate(_SMALL_NUMBERS.split())}
_NUMBER_WORDS |= {word: 10 * tens for tens, word in enumerate(_TENS.split(), 2)}
_SCALE_WORDS = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_LETTERS = re.compile(r"[A-Za-z]+")


def find_quantity(sentences: list[str], question: Question) -> str | None:
    """The first quantity with its unit that the question doesn't mention; None where the end must be read."""
    if len(sentences) > 1 and any(map(_CONCLUSION.search, sentences)):
        return None
    for sentence in sentences:
        text = _BRACKETS.sub("", sentence) or sentence
        if "\\" in text or "=" in text:
            return None
        quantities = sorted([*_list_digits(text), *islice(_list_number_words(text, question), _MOST)])
        new = [quantity for quantity in quantities if not _is_mentioned(text, quantity, question, quantities)]
        if new:
            return next((quantity for quantity in new if _counts(text, quantity, question)), new[0]).answer
    return None


def _counts(text: str, quantity: _Found, question: Question) -> bool:
    """Whether a quantity is one of what was asked for: 7 of "a day has 24 hours, and a week 7 days"."""
    if not question.counted:
        return False
    return question.counted in [find_stem(word) for word in _LETTERS.findall(text[quantity.begin :][:60])[:2]]


def _is_mentioned(text: str, quantity: _Found, question: Question, others: list[_Found]) -> bool:
    """Whether a number is one of the question's, or a year beside another number."""
    digits = quantity.answer.split()[0].replace(",", "")
    if len(others) == 1:
        return False
    is_year = (
        quantity.answer.isdigit() and len(digits) == 4 and bool(_YEAR_PLACE.search(text[: quantity.begin]))
    )
    return digits in question.numbers or is_year


def _list_digits(text: str) -> Iterator[_Found]:
    previous: re.Match[str] | None = None
    for match in islice(_QUANTITY.finditer(text), _MOST):
        gap = text[previous.end() : match.start()] if previous is not None else ""
        if previous is not None and gap and _RANGE.fullmatch(gap) and gap.strip() != "and":
            continue
        span = _find_range(text, match)
        last = span or match
        scale = _SCALE.match(text, last.end())
        end = scale.end() if scale else last.end()
        number = text[match.start() : end].replace("−", "-").strip()
        if span is not None:
            number = f"{match.group().strip()}-{text[span.start() : end].strip()}"
        yield _Found(match.start(), number + _find_unit(text, end))
        previous = match


def _find_range(text: str, match: re.Match[str]) -> re.Match[str] | None:
    """The end of a range that begins with this number: 10 of "5 to 10 km"."""
    following = _QUANTITY.search(text, match.end(), match.end() + 30)
    if following is None or text[match.end() : following.start()].strip() not in ("-", "–", "to"):
        return None
    return following


def _find_unit(text: str, at: int) -> str:
    """The unit of measure that follows a number, with a space before it; "" for none, or for things "
    "counted."""
    words: list[str] = []
    measured = 0
    for _ in range(4):
        match = _UNIT_WORD.match(text, at)
        if match is None:
            break
        word = match[1]
        if is_measure(word):
            measured = len(words) + 1
        elif word.lower() not in _UNIT_LINKS:
            break
        words.append(word)
        at = match.end()
    return "".join(f" {word}" for word in words[:measured])


def _list_number_words(text: str, question: Question) -> Iterator[_Found]:
    words = list(_LETTERS.finditer(text))
    at = 0
    while at < len(words):
        value, count = _read_number_words([word.group().lower() for word in words[at : at + 8]])
        if count == 0 and words[at].group().lower() == "no" and at + 1 < len(words):
            counted = find_stem(words[at + 1].group()) in question.stems
            value, count = 0, int(counted)
        if count and not (words[at].group().lower() == "one" and count == 1 and _is_pronoun(text, words[at])):
            yield _Found(words[at].start(), str(value) + _find_unit(text, words[at + count - 1].end()))
        at += max(1, count)


_BEFORE_PRONOUN = re.compile(r"\b(?:the|this|that|only|no|which|each|every|another)\s$", re.IGNORECASE)


def _is_pronoun(text: str, word: re.Match[str]) -> bool:
    """Whether "one" stands for something, as in "this one" or "one of"."""
    return bool(_BEFORE_PRONOUN.search(text[: word.start()])) or text[word.end() : word.end() + 4] == " of "


def _read_number_words(words: list[str]) -> tuple[int, int]:
    """The value of the number that a list of words begins with, and how many words it has."""
    if words[:1] == ["none"]:
        return 0, 1
    total = current = count = 0
    for at, word in enumerate(words):
        if word in _NUMBER_WORDS:
            current += _NUMBER_WORDS[word]
        elif word == "hundred" and count:
            current *= 100
        elif word in _SCALE_WORDS and count:
            total, current = total + current * _SCALE_WORDS[word], 0
        elif (
            word == "and"
            and count
            and at + 1 < len(words)
            and words[at - 1] in _SCALE_WORDS
            and words[at + 1] in _NUMBER_WORDS
        ):
            continue
        else:
            break
        count = at + 1
    return total + current, count
