"""What is known of the words of each language, and how any text is cut into sentences, words and numbers.

The words are data (`words.json`): a few lists for each of fourteen languages, of which those that a question
and its replies are written in make up a `Lexicon`. Nothing here knows a grammar. Every scan is linear.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

__all__ = [
    "Lexicon",
    "Token",
    "detect_languages",
    "drop_last_sentence",
    "find_sentence_end",
    "get_lexicon",
    "split_clauses",
    "split_sentences",
    "tokenize",
]

_COMMA_LANGUAGES = frozenset(
    ("de", "fr", "es", "it", "ru", "pt", "nl", "pl", "sv", "tr")
)  # 1,5 is a half more
_CJK = r"\u3005\u3040-\u30ff\u3400-\u9fff"
_CJK_RUN = re.compile(f"[{_CJK}]")
_KANA = re.compile(r"[\u3040-\u30ff]")


@lru_cache(maxsize=1)
def _load_words() -> dict[str, dict[str, str]]:
    data: dict[str, dict[str, str]] = json.loads(
        files("adacompute.answers").joinpath("words.json").read_text("utf-8")
    )
    return data


@lru_cache(maxsize=1)
def _find_speakers() -> dict[str, list[str]]:
    """The languages that have each common word."""
    speakers: dict[str, list[str]] = {}
    for language, lists in _load_words().items():
        for word in lists["common"].casefold().split():
            speakers.setdefault(word, []).append(language)
    return speakers


@lru_cache(maxsize=1024)
def detect_languages(text: str, *, least: int = 1) -> frozenset[str]:
    """The languages that a text may be written in, by its script and at least so many common words.

    >>> detect_languages("Was ist die Hauptstadt von Peru?"), detect_languages("秘鲁的首都是哪里？")
    (frozenset({'de'}), frozenset({'zh'}))
    """
    text = text[:1_000]
    if _KANA.search(text):
        return frozenset(("ja",))
    if _CJK_RUN.search(text):
        return frozenset(("zh",))
    speakers = _find_speakers()
    scores = Counter(language for word in _WORD.findall(text) for language in speakers.get(fold(word), ()))
    best = max(scores.values(), default=0)
    return frozenset(language for language, score in scores.items() if score == best >= least)


class Lexicon:
    """The words of some languages together, by what they do."""

    def __init__(self, languages: frozenset[str]) -> None:
        self.languages = languages
        self._words: dict[str, frozenset[str]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._lists = [_load_words()[language] for language in sorted(languages)]
        self.decimal_comma = not languages.isdisjoint(_COMMA_LANGUAGES)
        self.common = self.gather("common") | self.gather("but") | self.gather("and") | self.gather("or")
        self.yes = self.gather("yes")
        self.no = self.gather("no")
        self.negation = self.gather("negation")
        self.question_words = self.gather("wh")
        self.parts = self.gather("parts")  # "pairs", "thirds": numbers before them count something else
        self.links = self.gather("links")  # small words inside names: "of", "de"

    def gather(self, name: str) -> frozenset[str]:
        """The words of a list."""
        if name not in self._words:
            lists = " ".join(lists.get(name, "") for lists in self._lists)
            self._words[name] = frozenset(lists.casefold().replace("|", " ").split())
        return self._words[name]

    def _list_phrases(self, name: str) -> list[str]:
        return [phrase for lists in self._lists for phrase in lists.get(name, "").split("|") if phrase]

    def find(self, name: str) -> re.Pattern[str]:
        """A pattern of the phrases of a list; matches nothing if no language has one."""
        return self._patterns.get(name) or self.compile(name, lambda: spell_phrases(self._list_phrases(name)))

    def compile(self, name: str, spell: Callable[[], str]) -> re.Pattern[str]:
        """A pattern made of these languages' words, kept by its name."""
        if name not in self._patterns:
            self._patterns[name] = re.compile(spell(), re.IGNORECASE)
        return self._patterns[name]

    def ends_in(self, name: str, text: str) -> bool:
        """Whether a text ends in a phrase of a list, and a space."""
        pattern = self.compile(f"{name} at the end", lambda: rf"(?:{self.find(name).pattern})\s?$")
        return pattern.search(text) is not None

    def is_copula(self, word: str) -> bool:
        """Whether a word is a form of "be", or "it's"."""
        return word.casefold().replace("’", "'") in self.gather("copula")

    @cached_property
    def cjk_common(self) -> re.Pattern[str]:
        """Particles and other frequent parts of Chinese and Japanese, longest first."""
        parts = sorted((word for word in self.common if _CJK_RUN.match(word)), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, parts)) or r"(?!)")

    @cached_property
    def clause_end(self) -> re.Pattern[str]:
        """A comma, colon or dash, "and", or "or"."""
        ends = (_CLAUSE_END.pattern, self.find("and").pattern, self.find("or").pattern)
        return re.compile("|".join(ends), re.IGNORECASE)

    @cached_property
    def months(self) -> dict[str, int]:
        """The number of each month's name, in full or short."""
        names: dict[str, int] = {}
        for lists in self._lists:
            for key in ("months", "shortmonths"):
                names |= {name: at for at, name in enumerate(lists.get(key, "").split(), 1)}
        return names

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The value of each number word."""
        values: dict[str, int] = {}
        for lists in self._lists:
            values |= {name: at for at, name in enumerate(lists.get("numbers", "").split())}
        if "en" in self.languages:
            values |= {name: 10 * at for at, name in enumerate(_TENS.split(), 2)}
        return values

    @cached_property
    def scale(self) -> dict[str, int]:
        """What words such as "million" multiply by."""
        return {word: int(value) for word, value in self.list_pairs("scale")} | _CJK_SCALE

    @cached_property
    def units(self) -> dict[str, str]:
        """English for the units of other languages."""
        return dict(self.list_pairs("units"))

    def list_pairs(self, name: str) -> Iterator[tuple[str, str]]:
        """The words of a list of pairs, each with what it stands for."""
        for lists in self._lists:
            for pair in lists.get(name, "").split():
                word, _, value = pair.partition("=")
                yield word, value

    @cached_property
    def forms(self) -> dict[str, str]:
        """The base of each irregular form, e.g. "write" of "wrote"."""
        groups = [group.split() for lists in self._lists for group in lists.get("forms", "").split(",")]
        return {form: group[0] for group in groups for form in group}

    def find_base(self, key: str) -> str:
        """The base of an irregular form; of other words the word itself."""
        return self.forms.get(key, key)


def spell_phrases(phrases: Iterable[str]) -> str:
    """A pattern of whole words and phrases, the longest first; in Chinese and Japanese, of any part."""
    longest = sorted(phrases, key=len, reverse=True)
    spelled = [re.escape(phrase) for phrase in longest]
    return "|".join(p if _CJK_RUN.search(p) else rf"\b{p}\b" for p in spelled) or r"(?!)"


_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_CJK_SCALE = {"万": 10_000, "萬": 10_000, "亿": 10**8, "億": 10**8}


@lru_cache(maxsize=64)
def get_lexicon(languages: frozenset[str]) -> Lexicon:
    """The lexicon of some languages; of all, if none is known."""
    return Lexicon(languages or frozenset(_load_words()))


class Token(NamedTuple):
    """A word, a number, or a run of Chinese or Japanese characters."""

    kind: str  # "word", "number" or "cjk"
    text: str
    key: str  # as it is compared
    begin: int
    end: int


_NUMERALS = "零〇一二三四五六七八九十百千万两兩"
_COUNTERS = "个個颗只人本枚匹月日年天岁歳条台册冊つ米度次回倍分种種名瓶箱盒块元円"
_LETTER = rf"[^\W\d_{_CJK}]"
_WORD = re.compile(rf"{_LETTER}+(?:[-'’.]{_LETTER}+)*")
_TOKEN = re.compile(
    rf"(?P<number>\d{{1,3}}(?:[ '’\u00a0\u202f\u2009]\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*)"
    rf"|(?P<numeral>[{_NUMERALS}][十百千][{_NUMERALS}]{{1,12}}|[{_NUMERALS}]{{2,12}}(?=[{_COUNTERS}]|[^{_CJK}]|$)|[{_NUMERALS[3:]}](?=[{_COUNTERS}]))"
    rf"|(?P<cjk>[{_CJK}]+?(?=[{_NUMERALS}]{{2}}|[{_NUMERALS[3:]}][{_COUNTERS}]|[^{_CJK}]|$))"
    rf"|(?P<word>{_LETTER}+(?:[-'’.]{_LETTER}+)*)"
)
_ELISION = re.compile(r"(?:[cdjlmnst]|qu|all|dell|nell|dall|sull|un|jusqu|lorsqu|puisqu)'(?=.{2})")
_INVERSION = re.compile(
    r"-(?:t-)?(?:ils?|elles?|on|vous|nous|tu|je|ce)$"
)  # "peuvent-ils" asks what "peuvent" says
_TOKEN_LIMIT = 600  # tokens of a sentence that are looked at


@lru_cache(maxsize=4096)
def fold(word: str) -> str:
    """A word as it is compared: in lower case, without an elided article or a possessive."""
    word = word.casefold().replace("’", "'")
    elided = _ELISION.match(word)
    if elided is not None:
        word = word[elided.end() :]
    return _INVERSION.sub("", word.removesuffix("'s").replace(".", "")) or word


@lru_cache(maxsize=1024)  # a sentence is read for several forms of answers, and replies repeat one another
def tokenize(text: str, *, decimal_comma: bool = False) -> tuple[Token, ...]:
    """The words and numbers of a text."""
    tokens = []
    for match in _TOKEN.finditer(text):
        kind, written = str(match.lastgroup), match.group()
        if kind == "number":
            key = parse_number(written, decimal_comma=decimal_comma)
        elif kind == "numeral":
            kind, key = "number", _parse_numeral(written)
        else:
            key = fold(written) if kind == "word" else written
        tokens.append(Token(kind, written, key, match.start(), match.end()))
        if len(tokens) >= _TOKEN_LIMIT:
            break
    return tuple(tokens)


_GROUP_SIGN = re.compile(r"[\s'’\u00a0\u202f\u2009]")
_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+")
_PERIODS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")


def parse_number(text: str, *, decimal_comma: bool = False) -> str:
    """The digits of a number, with a period before decimals: "1234.5" of "1.234,5" and of "1,234.5".

    >>> parse_number("1.234,5"), parse_number("1 234"), parse_number("1.234"), parse_number("0,50")
    ('1234.5', '1234', '1.234', '0.5')
    """
    digits = _GROUP_SIGN.sub("", text)
    if "," in digits and "." in digits:
        decimal = max(",.", key=digits.rfind)
        digits = digits.replace("." if decimal == "," else ",", "").replace(",", ".")
    elif _COMMAS.fullmatch(digits):
        digits = digits.replace(",", "")
    elif _PERIODS.fullmatch(digits) and (decimal_comma or digits.count(".") > 1):
        digits = digits.replace(".", "")
    digits = digits.replace(",", ".")
    if digits.count(".") > 1:
        return text  # a version, an address or a date
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits.lstrip("0") if digits.lstrip("0")[:1].isdigit() else "0" + digits.lstrip("0")


_DIGITS = {sign: at for at, sign in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "兩": 2}
_POWERS = {"十": 10, "百": 100, "千": 1_000}


def _parse_numeral(text: str) -> str:
    """The digits of a Chinese or Japanese numeral: 27 of 二十七, 2010 of 二〇一〇."""
    if all(sign in _DIGITS for sign in text):
        return "".join(str(_DIGITS[sign]) for sign in text).lstrip("0") or "0"
    total = section = digit = 0
    for sign in text:
        if sign in _DIGITS:
            digit = _DIGITS[sign]
        elif sign == "万":
            total, section, digit = total + (section + digit) * 10_000, 0, 0
        else:
            section, digit = section + (digit or 1) * _POWERS[sign], 0
    return str(total + section + digit)


_SENTENCE_END = re.compile(r"\.(?=[*_\"”»]{0,3}(?:\s|$))|[。．｡]")
# a period after these never ends a sentence; those that may end one, like "Inc.", are left out
_TITLE = re.compile(
    r"(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|Ft|Gen|Lt|Col|Capt|Rev|Gov|Sen|Rep|Fig|Eq|vs|approx|ca|cf|e\.g|i\.e|z|bzw|Nr|Sr|Sra)"
)
_SHORT_MONTH = re.compile(r"(?:Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec)")
_INITIALS = re.compile(r"(?:[A-Z]\.){0,5}[A-Z]")
_LAST_WORD = re.compile(r"[^\s(*\"“]{0,12}$")
_NEXT_PIECE = re.compile(r"[^.!?\n。]*")
_SENTENCE_STARTER = re.compile(
    r"(?:An?|And|As|Because|But|For|He|Here|Hence|However|I|If|In|Its?|Let|My|Note|Of|Since|She|So|That"
    r"|The|Then|There|Therefore|These|They|This|Thus|To|We|What|When|Which|Your?)\b"
)
_WORDS_AFTER_INITIAL = 2  # "J. Smith", "C. Cell wall"; more is a sentence of its own
_WORDS_AFTER_INITIALS = 5  # "U.S. Department of the Treasury"
_ORDINAL = re.compile(r"\d{1,2}")


def find_sentence_end(text: str, begin: int, stop: int) -> int:
    """Where the sentence that begins at `begin` ends; `stop` if no period ends it."""
    for match in _SENTENCE_END.finditer(text, begin, stop):
        if match.group() != "." or not _continues_sentence(text, begin, match.start(), stop):
            return match.start()
    return stop


def _continues_sentence(text: str, begin: int, at: int, stop: int) -> bool:
    """Whether the period at `at` doesn't end a sentence: a title, initials, an ordinal, or emphasis open."""
    if (
        text.count("**", max(begin, at - 200), at) % 2
        and text.find("**", at + 1, min(stop, at + 200)) > at + 1
    ):
        return True
    before = text[max(begin, at - 24) : at]
    word_match = _LAST_WORD.search(before)
    word = word_match.group() if word_match else ""
    piece = _NEXT_PIECE.match(text, at + 1, min(stop, at + 100))
    after = piece.group().split() if piece else []
    if not after:
        return False
    if _TITLE.fullmatch(word) or ("." in word and after[0][0].islower()):  # "10 a.m. on Monday"
        return True
    if _SHORT_MONTH.fullmatch(word):
        return after[0][0].isdigit()
    opens = text[text.rfind("\n", 0, at) + 1 : at].strip() == word
    if _ORDINAL.fullmatch(word) and (fold(after[0]) in _find_months() or opens):
        return True  # "11. November", or the mark of a list's item
    if word == "No":
        return after[0][0].isdigit() and not opens  # "No. 91 is 7 times 13." is two sentences
    if (
        not _INITIALS.fullmatch(word)
        or _SENTENCE_STARTER.match(after[0])
        or before[: -len(word)].rstrip()[-1:].isdigit()
    ):
        return False
    if "." in word:
        return len(after) <= _WORDS_AFTER_INITIALS
    return after[0][0].isupper() and len(after) <= _WORDS_AFTER_INITIAL


@lru_cache(maxsize=1)
def _find_months() -> frozenset[str]:
    return frozenset(get_lexicon(frozenset()).months)


_EXCLAIMED = re.compile(r"(?<=[!?])[\"'”)*_]{0,3}\s{1,9}|(?<=[！？])|\n+")


def split_sentences(reply: str) -> list[str]:
    """The sentences of a short reply, without the periods that end them."""
    sentences: list[str] = []
    for line in _EXCLAIMED.split(reply):
        begin = 0
        while begin < len(line):
            end = find_sentence_end(line, begin, len(line))
            sentence = line[begin:end].strip()
            if sentence:
                sentences.append(sentence)
            begin = end + 1
    return sentences


def drop_last_sentence(reply: str) -> str:
    """The whole sentences of a reply that was cut off; "" if it has none."""
    ends = [match.end() for match in _EXCLAIMED.finditer(reply)]
    begin = 0
    while begin < len(reply):
        end = find_sentence_end(reply, begin, len(reply))
        if end < len(reply):
            ends.append(end + 1)
        begin = end + 1
    return reply[: max(ends, default=0)]


_CLAUSE_END = re.compile(r"[,，](?!\d)|[;:：；、](?!\d)|\s[–—-]{1,2}\s|——?")


def split_clauses(sentence: str) -> list[tuple[int, int]]:
    """Where the clauses of a sentence begin and end: commas, colons and dashes between them."""
    spans = []
    begin = 0
    for match in _CLAUSE_END.finditer(sentence):
        spans.append((begin, match.start()))
        begin = match.end()
    return [*spans, (begin, len(sentence))]


_BRACKETS = re.compile(r"\s?[(\[（【][^()\[\]（）【】]{0,120}[)\]）】]")  # a remark
_DENIALS = 20  # denials of a sentence that are looked at


def mask_denied(sentence: str, lexicon: Lexicon, *, clauses: bool = False) -> str:
    """The sentence with blanks for what it denies: "Not 6 but 8" states 8, "nicht Lyon, sondern Paris" Paris.

    `clauses`: what stands before the "not" in its clause is denied, too: "Sydney is not the capital".
    """
    for match in reversed(list(islice(_find_denials(lexicon).finditer(sentence), _DENIALS))):
        stop = _find_denial_end(lexicon).search(sentence, match.end())
        end = stop.start() if stop is not None else len(sentence)
        begin = match.start()
        if clauses:
            begin = max(span[0] for span in split_clauses(sentence) if span[0] <= begin)
        if _NOT_ONLY.match(sentence, match.end()) is None:
            sentence = sentence[:begin] + " " * (end - begin) + sentence[end:]
    return sentence


_NOT_ONLY = re.compile(
    r"\s(?:[a-z]{1,15}\s){0,3}(?:until|till|only|just|exactly|nur|seulement|solo|только)\b", re.IGNORECASE
)


def _find_denials(lexicon: Lexicon) -> re.Pattern[str]:
    return lexicon.compile(
        "denials",
        lambda: spell_phrases(lexicon.negation) + r"|\brather than\b|\binstead of\b|\bas opposed to\b",
    )


def _find_denial_end(lexicon: Lexicon) -> re.Pattern[str]:
    return lexicon.compile("denial end", lambda: r"[,，](?!\d)|[;；]|" + lexicon.find("but").pattern)


def drop_brackets(sentence: str) -> str:
    """The sentence without remarks in brackets; as it is if nothing else is there."""
    return _BRACKETS.sub("", sentence).strip() or sentence
