"""Finds the date, or the quantity with its unit, that a sentence states, and spells it in one way.

"11 November 1918" and "Nov. 11, 1918" are "1918-11-11"; "seven" is "7", and "about 300 km (186 miles)" is
"300 km". What the question mentions itself isn't taken for its answer. A reply that states several, and
doesn't say which of them answers, is unclear: a wrong vote is worse than none.
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple

from adacompute.answers.question import Question, find_stem, find_stems
from adacompute.answers.units import is_measure, split_unit

__all__ = ["BRACKETS", "UNCLEAR", "find_date", "find_quantity"]

UNCLEAR = ""  # what is found in a reply that states several dates or quantities, none of them as the answer
BRACKETS = re.compile(r"\s?[(\[][^()\[\]]{0,120}[)\]]")  # a remark
_DENIAL = (
    r"(?:(?:\bnot|n't)(?!\s(?:[a-z]{1,15}\s){0,3}(?:until|till|only|just|exactly)\b)|\bunlike"
    r"|\brather than|\binstead of|\bas opposed to|\bcompared (?:to|with))\s"
)
_DENIED = re.compile(_DENIAL + r"(?:[^,;]|,(?=\d)){1,100}?(?=,(?!\d)|;|\s(?:but|rather)\b|$)", re.IGNORECASE)
_DENIED_DATE = re.compile(  # "not on July 3, 1776, but on July 4"
    _DENIAL + r"(?:[^,;]|,(?=\s?\d)){1,100}?(?=,(?!\s?\d)|;|\s(?:but|rather)\b|$)", re.IGNORECASE
)
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
_NUMERIC_DATE = re.compile(
    r"(?<![\d/.-])(?P<first>\d{1,4})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<last>\d{4}|\d\d?)(?![\d/-]|\.\d)"
)
_DATE_CLAUSE = re.compile(r"[,;:]|\b(?:and|but|then|while|whereas|after|before)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_PERIOD = re.compile(r"\s?(?:-|–|—|to|until|till|through|and)\s?", re.IGNORECASE)
_FIRST_STEMS = frozenset(map(find_stem, ("begin", "start", "commence")))
_LAST_STEMS = frozenset(map(find_stem, ("end", "finish", "conclude", "stop", "cease")))


class _Found(NamedTuple):
    begin: int
    end: int
    answer: str


class _Stated(NamedTuple):
    text: str  # of its sentence
    found: _Found


def find_date(sentences: list[str], question: Question) -> str | None:
    """The only date that the sentences have, or the one said of the question's verb; UNCLEAR if there are "
    "others, None if there is none."""
    asserted = [_DENIED_DATE.sub(" ", sentence) for sentence in sentences]
    texts = [_drop_brackets(text) for text in asserted]
    if not any(_list_dates(text, question) for text in texts):
        texts = asserted
    dates = [_Stated(text, date) for text in texts for date in _list_dates(text, question)]
    if not dates:
        return UNCLEAR if any(_list_dates(sentence, question) for sentence in sentences) else None
    return _choose_date(texts, dates, question)


def _choose_date(texts: list[str], dates: list[_Stated], question: Question) -> str:
    every = [date.found for date in dates]
    if len({date.answer for date in every}) == 1:
        return every[0].answer
    periods = [period for text in texts for period in _list_periods(text, question)]
    fitting = [date.found for date in dates if _tells_verb(*date, question)]
    if any(date in period for date in fitting for period in periods):  # "it was built from 1887 to 1889"
        fitting = []
    bare = [date.found for date in dates if _is_bare_date(*date)]
    for chosen in (fitting, bare, _find_bound(periods, question), every):
        answers = _list_precise(chosen)
        if answers:
            return answers[0] if len(answers) == 1 else UNCLEAR
    return UNCLEAR


def _drop_brackets(sentence: str) -> str:
    return BRACKETS.sub("", sentence).strip() or sentence


def _list_precise(dates: list[_Found]) -> list[str]:
    """The different dates, without a year or month of which a day is there, too."""
    answers = list(dict.fromkeys(found.answer for found in dates))
    return [one for one in answers if not any(other.startswith(f"{one}-") for other in answers)]


def _tells_verb(text: str, date: _Found, question: Question) -> bool:
    """Whether the last word before a date, or that after a date at the beginning, is one of the question's.

    Names don't count: they begin with a capital, and "Titanic" says nothing of what happened.
    """
    begin = max((found.end for found in _list_dates(text, question) if found.end <= date.begin), default=0)
    before = _DATE_CLAUSE.split(text[begin : date.begin])[-1]
    words = [word for word in _WORD.findall(before) if find_stems(word)]
    if not words and text[: date.begin].strip().lower() in ("", "in", "on"):
        after = _DATE_CLAUSE.split(text[date.end :].lstrip(" ,"))[0]
        words = [word for word in _WORD.findall(after) if find_stems(word)]
    lower = [find_stem(word) for word in words if word[0].islower()]
    return bool(lower) and lower[-1] in question.stems


def _is_bare_date(text: str, date: _Found) -> bool:
    """Whether a sentence says nothing but the date: "It was on 11 November 1918"."""
    return not find_stems(text[: date.begin]) and not find_stems(text[date.end :])


def _list_periods(text: str, question: Question) -> list[tuple[_Found, _Found]]:
    """The pairs of dates such as "1939 to 1945"."""
    pairs = pairwise(_list_dates(text, question))
    return [pair for pair in pairs if _PERIOD.fullmatch(text[pair[0].end : pair[1].begin])]


def _find_bound(periods: list[tuple[_Found, _Found]], question: Question) -> list[_Found]:
    """The date that the only period begins or ends with, where that is asked for."""
    asks_first, asks_last = bool(question.stems & _FIRST_STEMS), bool(question.stems & _LAST_STEMS)
    if len(periods) != 1 or asks_first == asks_last:
        return []
    return [periods[0][0] if asks_first else periods[0][1]]


def _list_dates(sentence: str, question: Question) -> list[_Found]:
    dates: list[_Found] = []
    for pattern in (_DATES[0], _NUMERIC_DATE, *_DATES[1:]):
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
    r"(?<![\w.,/^])(?P<sign>[-−](?=[\d$€£¥]))?(?P<money>[$€£¥]\s?)?"
    r"(?P<number>\d{1,3}(?:,\d{3}){1,6}(?!\d)|\d{1,20})"
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
_HAS_SIGN = re.compile(r"(?<!\S)[-−]$")


_REMARK = re.compile(r",\s(?:which|who|whose|where)\s(?:[^,;]|,(?=\d)){1,100}(?=,|;|$)", re.IGNORECASE)
_SIGN_WORD = re.compile(
    r"(?<![\d%]\s)\b(?:minus|negative)\s(?=[\d$€£¥A-Za-z])|(?<!\w)(?<!\d\s)–(?=\d)", re.IGNORECASE
)
_BELOW_ZERO = re.compile(r"\sbelow\s(?:zero|0)(?![\d.,]\d|\w)", re.IGNORECASE)
_ABOVE_ZERO = re.compile(r"\sabove\s(?:zero|0)(?![\d.,]\d|\w)", re.IGNORECASE)
_BELOW_LENGTH = 30  # characters between a number and "below zero": "38 degrees Celsius below zero"
_PART = re.compile(
    r"[\s-](?:pairs?|dozens?|scores?|halves|half|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?"
    r"|ninths?|tenths?|hundredths?|and (?:a|one) (?:half|third|quarter))\b"
    r"|-(?:first|second|fold)\b",
    re.IGNORECASE,
)
_EITHER = re.compile(r"(?:\s\S{1,20}){0,2},?\s(?:or|versus|vs\.?)\s(?:[a-z]{1,15}\s)?", re.IGNORECASE)
_BETWEEN = re.compile(r"\bbetween\s(?:[a-z]{1,15}\s)?$", re.IGNORECASE)
_OPINIONS = re.compile(
    r"\b(?:some|others?|many|most|few)\s(?:[a-z]{1,20}\s)?"
    r"(?:say|says|count|think|believe|consider|claim|argue|list|recogni[sz]e|put|teach|use)\b",
    re.IGNORECASE,
)
_THEREFORE = re.compile(
    r"[,;]\s(?:and\s)?(?:so|therefore|thus|hence|which means|that means|for a total of|totall?ing)\s",
    re.IGNORECASE,
)
_QUANTITY_CLAUSE = re.compile(r"[,;:](?!\d)|\b(?:and|but|while|whereas)\b", re.IGNORECASE)
_UNIT_NAMES = (
    "kilometre kilometer metre meter centimetre centimeter millimetre millimeter mile foot feet inch yard "
    "kilogram gram pound ounce litre liter gallon celsius centigrade fahrenheit percent percentage second "
    "minute hour day month year euro dollar"
)
_UNIT_STEMS = {
    find_stem(name): unit[1] for name in _UNIT_NAMES.split() if (unit := split_unit(f"1 {name}")) is not None
}
_RELATED = {  # words with which an answer repeats the adjective of "how far"
    "far": "distance",
    "long": "length duration last take",
    "tall": "height elevation rise stand",
    "high": "height elevation rise stand",
    "deep": "depth",
    "wide": "width",
    "big": "size area",
    "large": "size area",
    "heavy": "weight mass weigh",
    "old": "age",
    "fast": "speed",
    "hot": "temperature",
    "cold": "temperature",
    "much": "cost price amount",
}
_RELATED_STEMS = {
    find_stem(word): frozenset(map(find_stem, names.split())) for word, names in _RELATED.items()
}
_COMMON_STEMS = frozenset(
    map(
        find_stem,
        ("total", "exactly", "usually", "currently", "nearly", "almost", "only", "over", "each", "every"),
    )
)


def find_quantity(sentences: list[str], question: Question) -> str | None:
    """The only quantity with its unit that the question doesn't mention, or the one that it asks for.

    UNCLEAR if there are others, or none but what is denied; None if there is none, or the end must be read.
    """
    if len(sentences) > 1 and any(map(_CONCLUSION.search, sentences)):
        return None
    if any("\\" in sentence or "=" in sentence for sentence in map(_drop_brackets, sentences)):
        return None
    whole = [_mark_signs(sentence) for sentence in sentences]
    asserted = [_DENIED.sub(" ", text) for text in whole]
    in_unit = _select_unit(_list_stated(asserted, question), question)
    if len({stated.found.answer for stated in in_unit}) == 1:
        return in_unit[0].found.answer
    plain = [_drop_remarks(text, question) for text in asserted]
    choice = _choose_quantity(plain, question)
    if choice is None and any(_list_quantities(text, question) for text in whole):
        return UNCLEAR
    return choice


def _drop_remarks(text: str, question: Question) -> str:
    """The text without brackets, relative clauses, and what a colon explains."""
    text = _REMARK.sub("", _drop_brackets(text))
    before, _, _ = text.partition(": ")
    return before if _list_quantities(before, question) else text


def _mark_signs(sentence: str) -> str:
    return _ABOVE_ZERO.sub("", _SIGN_WORD.sub("-", sentence))


def _list_stated(texts: list[str], question: Question) -> list[_Stated]:
    """What the texts state, less what the question mentions itself, and years beside other numbers."""
    listed = [_Stated(text, found) for text in texts for found in _list_quantities(text, question)]
    if len(listed) <= 1:
        return listed
    return [stated for stated in listed if not _is_mentioned(stated.text, stated.found, question)] or listed


def _select_unit(listed: list[_Stated], question: Question) -> list[_Stated]:
    """Those in a unit that the question names, such as Fahrenheit."""
    asked = {_UNIT_STEMS[stem] for stem in question.stems if stem in _UNIT_STEMS}
    return [stated for stated in listed if asked and _find_unit_name(stated.found) in asked]


def _find_unit_name(found: _Found) -> str:
    unit = split_unit(found.answer)
    return unit[1].removeprefix("° ") if unit is not None else ""


def _choose_quantity(texts: list[str], question: Question) -> str | None:
    converted = [_Stated(text, found) for text in texts for found in _list_conversions(text, question)]
    listed = [
        stated
        for stated in _list_stated(texts, question)
        if not _is_part(stated, question) and stated not in converted
    ]
    if any(_offers_several(text, question) for text in texts):
        return UNCLEAR
    listed = _select_conclusion(listed, question) or listed
    listed = _select_unit(listed, question) or listed
    if len({stated.found.answer for stated in listed}) > 1:
        listed = _select_fitting(listed, question)
    answers = {stated.found.answer for stated in listed}
    return answers.pop() if len(answers) == 1 else UNCLEAR if answers else None


def _is_part(stated: _Stated, question: Question) -> bool:
    """Whether a number counts pairs or thirds, and so isn't the number asked for."""
    part = _PART.match(stated.text, stated.found.end)
    return part is not None and find_stem(part.group().strip(" -")) != question.counted


def _offers_several(text: str, question: Question) -> bool:
    """Whether a text leaves the choice: "6 or 7", "between 5 and 7", "some say six, most say seven"."""
    listed = _list_quantities(text, question)
    if len({found.answer for found in listed}) <= 1:
        return False
    if _OPINIONS.search(text) or any(_BETWEEN.search(text[: found.begin][-30:]) for found in listed):
        return True
    return any(not _is_converted(*pair) for pair in _list_alternatives(text, listed))


def _list_conversions(text: str, question: Question) -> list[_Found]:
    """What is said once more in another unit: 186 miles of "300 km or 186 miles"."""
    listed = _list_quantities(text, question)
    return [pair[1] for pair in _list_alternatives(text, listed) if _is_converted(*pair)]


def _list_alternatives(text: str, listed: list[_Found]) -> list[tuple[_Found, _Found]]:
    return [pair for pair in pairwise(listed) if _EITHER.fullmatch(text[pair[0].end : pair[1].begin])]


def _is_converted(first: _Found, second: _Found) -> bool:
    units = {_find_unit_name(first), _find_unit_name(second)}
    return len(units) == 2 and "" not in units


def _select_conclusion(listed: list[_Stated], question: Question) -> list[_Stated]:
    """The one quantity after "so", unless it counts something else than was asked for."""
    concluded = []
    for stated in listed:
        starts = [match.end() for match in _THEREFORE.finditer(stated.text)]
        if starts and starts[-1] <= stated.found.begin:
            concluded.append(stated)
    if len(concluded) == 1 and not _counts_other(concluded[0], question):
        return concluded
    return []


def _select_fitting(listed: list[_Stated], question: Question) -> list[_Stated]:
    """Those that count what was asked for and are said of it, or do one of both where none does the other."""
    counted = [stated for stated in listed if _counts(stated, question)]
    said = [stated for stated in listed if _is_said_of_question(stated, question)]
    if counted and said:
        return [stated for stated in counted if stated in said] or listed
    return counted or said or listed


def _find_following(stated: _Stated) -> list[str]:
    """The stems of the words that follow a number in its clause, units left out."""
    at = stated.found.end
    end = _QUANTITY_CLAUSE.search(stated.text, at)
    rest = stated.text[at : end.start() if end is not None else len(stated.text)][:60]
    return find_stems(rest)[:3]


def _counts(stated: _Stated, question: Question) -> bool:
    """Whether a quantity is one of what was asked for: 7 of "a day has 24 hours, and a week 7 days"."""
    following = _find_following(stated)
    if question.counted:
        return question.counted in following[:2]
    return any(stem in question.stems for stem in following)


def _counts_other(stated: _Stated, question: Question) -> bool:
    """Whether another noun than the one asked for follows: 12 of "12 months", asked for days."""
    following = _find_following(stated)
    return bool(question.counted and following and question.counted not in following)


def _is_said_of_question(stated: _Stated, question: Question) -> bool:
    """Whether the words before a quantity in its clause are the question's, or "it is": not "Earth has"."""
    if _counts_other(stated, question):
        return False
    known = question.stems.union(_COMMON_STEMS, *(_RELATED_STEMS.get(stem, ()) for stem in question.stems))
    before = _QUANTITY_CLAUSE.split(stated.text[: stated.found.begin])[-1]
    return all(stem in known for stem in find_stems(before))


def _is_mentioned(text: str, quantity: _Found, question: Question) -> bool:
    """Whether a number is one of the question's, or a year."""
    digits = quantity.answer.split()[0].replace(",", "")
    is_year = (
        quantity.answer.isdigit() and len(digits) == 4 and bool(_YEAR_PLACE.search(text[: quantity.begin]))
    )
    return digits in question.numbers or is_year


def _list_quantities(text: str, question: Question) -> list[_Found]:
    """The quantities of a text in their order; what is below zero is negative."""
    below = _BELOW_ZERO.search(text)
    text = text if below is None else text[: below.start()] + "," * len(below.group()) + text[below.end() :]
    listed = sorted([*_list_digits(text), *islice(_list_number_words(text, question), _MOST)])
    if below is None:
        return listed
    return [found._replace(answer=_negate(found, below.start())) for found in listed]


def _negate(found: _Found, below: int) -> str:
    near = found.end <= below <= found.end + _BELOW_LENGTH
    return f"-{found.answer}" if near and not found.answer.startswith("-") else found.answer


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
        yield _Found(match.start(), end, number + _find_unit(text, end))
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
            begin, end = words[at].start(), words[at + count - 1].end()
            sign = "-" if value and _HAS_SIGN.search(text[:begin][-2:]) else ""
            yield _Found(begin, end, f"{sign}{value}" + _find_unit(text, end))
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
