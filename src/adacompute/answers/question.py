"""Parses questions, and splits texts into sentences, words and numbers.

There are word lists (`words.json`) for fourteen languages, but no grammar. A `Lexicon` combines the lists of
the languages in which a question and its replies are written.

A `Question` has the purpose of a prompt, the form of its answer, its options, words and numbers. The form
follows from question words. The purpose follows from English words, or from verbs such as "write" in other
languages.

Only the beginning and the end of a long prompt are read, and no pattern backtracks for long. So a hostile
text takes no longer than others.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import islice
from typing import Literal, NamedTuple

import msgspec

# languages that write a comma before the decimals
_COMMA_LANGUAGES = frozenset(("de", "fr", "es", "it", "ru", "pt", "nl", "pl", "sv", "tr"))
_CJK = r"\u3005-\u3007\u3040-\u30ff\u3400-\u9fff"
_CJK_RUN = re.compile(f"[{_CJK}]")
_HAN = re.compile(r"[\u3400-\u9fff]")
_KANA = re.compile(r"[\u3040-\u30ff]")


@lru_cache(maxsize=1)
def _load_words() -> dict[str, dict[str, str]]:
    text = files("adacompute.answers").joinpath("words.json").read_text("utf-8")
    return msgspec.json.decode(text, type=dict[str, dict[str, str]])


@lru_cache(maxsize=1)
def _find_speakers() -> dict[str, list[str]]:
    """Maps each common word to the languages that use it."""
    speakers: dict[str, list[str]] = {}
    for language, lists in _load_words().items():
        for word in lists["common"].casefold().split():
            speakers.setdefault(word, []).append(language)
    return speakers


@lru_cache(maxsize=1024)
def detect_languages(text: str, *, least: int = 1) -> frozenset[str]:
    """Returns the languages that a text may be in, judging by its script and at least `least` common words.

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
    """The named word lists of one language, or of several languages combined."""

    def __init__(self, languages: frozenset[str]) -> None:
        self.languages = languages
        self._words: dict[str, frozenset[str]] = {}
        self._patterns: dict[str, re.Pattern[str]] = {}
        self._pairs: dict[str, dict[str, str]] = {}
        self._lists = [_load_words()[language] for language in sorted(languages)]
        self.decimal_comma = not languages.isdisjoint(_COMMA_LANGUAGES)
        self.common = self.gather("common") | self.gather("but") | self.gather("and") | self.gather("or")
        self.yes = self.gather("yes")
        self.no = self.gather("no")
        self.negation = self.gather("negation")
        self.verdicts = self.yes | self.no | self.negation
        self.question_words = self.gather("wh")
        # common words and question words, which carry no content
        self.empty = self.common | self.question_words
        self.links = self.gather("links")  # small words that occur inside names: "of", "de"

    def gather(self, name: str) -> frozenset[str]:
        """Returns the words of the list `name` in all languages of this lexicon."""
        if name not in self._words:
            lists = " ".join(lists.get(name, "") for lists in self._lists)
            self._words[name] = frozenset(lists.casefold().replace("|", " ").split())
        return self._words[name]

    def find(self, name: str) -> re.Pattern[str]:
        """Returns a pattern for the phrases of the list `name`; an empty list matches nothing."""
        phrases = (phrase for lists in self._lists for phrase in lists.get(name, "").split("|") if phrase)
        return self.compile(name, lambda: spell_phrases(phrases))

    def compile(self, name: str, spell: Callable[[], str]) -> re.Pattern[str]:
        """Compiles the pattern that `spell` returns, and caches it by `name`."""
        if name not in self._patterns:
            self._patterns[name] = re.compile(spell(), re.IGNORECASE)
        return self._patterns[name]

    def is_copula(self, word: str) -> bool:
        """Whether a word is a form of "be", including "it's"."""
        return word.casefold().replace("’", "'") in self.gather("copula")

    @cached_property
    def cjk_common(self) -> re.Pattern[str]:
        """A pattern for Chinese and Japanese particles and frequent word parts; longer ones match first."""
        return re.compile(spell_phrases(word for word in self.common if _CJK_RUN.match(word)))

    @cached_property
    def clause_end(self) -> re.Pattern[str]:
        """A pattern for the end of a clause: a comma, colon, dash, "and" or "or"."""
        ends = (_CLAUSE_END.pattern, self.find("and").pattern, self.find("or").pattern)
        return re.compile("|".join(ends), re.IGNORECASE)

    def get_pairs(self, name: str) -> dict[str, str]:
        """Returns the pairs of the list `name` as a mapping: "january" -> "1", or "wrote" -> "write"."""
        if name not in self._pairs:
            pairs = (pair.partition("=") for lists in self._lists for pair in lists.get(name, "").split())
            self._pairs[name] = {word: value for word, _, value in pairs}
        return self._pairs[name]


def spell_phrases(phrases: Iterable[str]) -> str:
    """Builds a pattern for any of these phrases: whole words or, in Chinese and Japanese, substrings."""
    endings: dict[str, list[str]] = {}  # first letter -> the rest of each phrase that begins with it
    for phrase in sorted(phrases, key=len, reverse=True):
        edge = "" if _CJK_RUN.search(phrase) else r"\b"
        endings.setdefault(re.escape(phrase[0].lower()), []).append(re.escape(phrase[1:]) + edge)
    spelled = {first: f"{first}(?:{'|'.join(ends)})" for first, ends in endings.items()}
    words = {first: word for first, word in spelled.items() if not _CJK_RUN.match(first)}
    opened = rf"\b(?=[{''.join(words)}])(?:{'|'.join(words.values())})" if words else "(?!)"
    return "|".join([opened, *(spelled[first] for first in spelled if first not in words)])


@lru_cache(maxsize=64)
def get_lexicon(languages: frozenset[str]) -> Lexicon:
    """Returns the lexicon of these languages, or of all languages if none is given."""
    return Lexicon(languages or frozenset(_load_words()))


class Token(NamedTuple):
    """A word, a number, or a run of Chinese or Japanese characters."""

    kind: str  # "word", "number" or "cjk"
    text: str
    key: str  # the word without case and articles, or the number in digits, for comparison
    begin: int
    end: int
    label: str = ""  # "question" (from the question), "common", "number" or, for all others, "new"

    @property
    def is_name(self) -> bool:
        """Whether the word may be a name: it has a capital letter, or its script has no capitals."""
        return self.kind == "cjk" or not self.text.islower()


_NUMERALS = "零〇一二三四五六七八九十百千万两兩"
_COUNTERS = "个個颗只人本枚匹月日年天岁歳条台册冊つ米度次回倍分种種名瓶箱盒块元円"
_LETTER = rf"[^\W\d_{_CJK}]"
_WORD = re.compile(rf"{_LETTER}+(?:[-'’.]{_LETTER}+)*")
_TOKEN = re.compile(
    rf"(?P<word>{_LETTER}(?:{_LETTER}|\d)*(?:[-'’.]{_LETTER}+)*)"
    # a fraction, date or time counts as one number
    r"|(?P<figure>(?:\d+ )?\d+(?: ?/ ?\d+)+(?![.,]?\d)|\d+(?::\d\d)+(?: ?[AaPp]\.?[Mm]\b)?|\d{4}-\d\d-\d\d)"
    rf"|(?P<number>\d{{1,3}}(?:[ '’\u00a0\u202f\u2009]\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*)"
    rf"|(?P<numeral>[{_NUMERALS}][十百千][{_NUMERALS}]{{1,12}}|[{_NUMERALS}]{{2,12}}(?=[{_COUNTERS}]|[^{_CJK}]|$)|[{_NUMERALS[3:]}](?=[{_COUNTERS}]))"
    rf"|(?P<cjk>[{_CJK}]+?(?=[{_NUMERALS}]{{2}}|[{_NUMERALS[3:]}][{_COUNTERS}]|[^{_CJK}]|$))"
)
_ELISION = re.compile(r"(?:[cdjlmnst]|qu|all|dell|nell|dall|sull|un|jusqu|lorsqu|puisqu)'(?=.{2})")
# matches the pronoun after a French verb, which is removed: "peuvent-ils" becomes "peuvent"
_INVERSION = re.compile(r"-(?:t-)?(?:ils?|elles?|on|vous|nous|tu|je|ce)$")
_TOKEN_LIMIT = 600  # maximum number of words and numbers read per text


@lru_cache(maxsize=4096)
def fold(word: str) -> str:
    """Converts a word for comparison: to lower case, with no elided article (l') and no possessive ('s)."""
    word = word.casefold().replace("’", "'")
    elided = _ELISION.match(word)
    if elided is not None:
        word = word[elided.end() :]
    return _INVERSION.sub("", word.removesuffix("'s").replace(".", "")) or word


@lru_cache(maxsize=1024)  # cached, because the same sentence is often split again
def tokenize(text: str, *, decimal_comma: bool = False) -> tuple[Token, ...]:
    """Splits a text into words and numbers."""
    tokens = []
    for match in islice(_TOKEN.finditer(text), _TOKEN_LIMIT):
        kind, written = str(match.lastgroup), match.group()
        if kind == "number":
            key = parse_number(written, decimal_comma=decimal_comma)
        elif kind == "numeral":
            kind, key = "number", _parse_numeral(written)
        elif kind == "figure":
            kind, key = "number", _FIGURE_GAP.sub("", written).lower()
        else:
            key = fold(written) if kind == "word" else written
        tokens.append(Token(kind, written, key, *match.span()))
    return tuple(tokens)


_FIGURE_GAP = re.compile(r"\.|(?<=\d) (?![\d])|(?<=/) ")
_GROUP_SIGN = re.compile(r"[\s'’\u00a0\u202f\u2009]")
_COMMAS = re.compile(r"\d{1,3}(?:,\d{3})+")
_PERIODS = re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")


def parse_number(text: str, *, decimal_comma: bool = False) -> str:
    """Rewrites a number as digits with a decimal point: both "1.234,5" and "1,234.5" become "1234.5".

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
        return text  # with several periods it is a version, an address or a date, not a number
    if "." in digits:
        digits = digits.rstrip("0").rstrip(".")
    return digits.lstrip("0") if digits.lstrip("0")[:1].isdigit() else "0" + digits.lstrip("0")


_DIGITS = {sign: at for at, sign in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "兩": 2}
_POWERS = {"十": 10, "百": 100, "千": 1_000}


def _parse_numeral(text: str) -> str:
    """Converts a Chinese or Japanese numeral to digits: 27 for 二十七, 2010 for 二〇一〇."""
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
# abbreviations whose period never ends a sentence; "Inc." isn't listed, because its period may end one
_TITLE = re.compile(
    r"(?:Dr|Mr|Mrs|Ms|Prof|St|Mt|Ft|Gen|Lt|Col|Capt|Rev|Gov|Sen|Rep|Fig|Eq|vs|approx|ca|cf|e\.g|i\.e|z|bzw|Nr|Sr|Sra)"
)
_SHORT_MONTH = re.compile(r"(?:Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec)")
_INITIALS = re.compile(r"(?:[A-Z]\.){0,5}[A-Z]")
_WORD_START = re.compile(r"[\s(*\"“]")
_LONGEST_SHORT = 6  # maximum number of letters in an abbreviation that ends in a period
_PIECE_END = re.compile(r"[.!?\n。]")
_SENTENCE_STARTER = re.compile(
    r"(?:An?|And|As|Because|But|For|He|Here|Hence|However|I|If|In|Its?|Let|My|Note|Of|Since|She|So|That"
    r"|The|Then|There|Therefore|These|They|This|Thus|To|We|What|When|Which|Your?)\b"
)
_WORDS_AFTER_INITIAL = 2  # if more words than this follow an initial ("J. Smith"), a new sentence begins
_WORDS_AFTER_INITIALS = 5  # if more words than this follow initials ("U.S. Treasury"), a new sentence begins
_ORDINAL = re.compile(r"\d{1,2}")


def find_sentence_end(text: str, begin: int, stop: int) -> int:
    """Returns where the sentence that begins at `begin` ends; `stop` if it doesn't end before that."""
    for match in _SENTENCE_END.finditer(text, begin, stop):
        if match.group() != "." or not _continues_sentence(text, begin, match.start(), stop):
            return match.start()
    return stop


def _continues_sentence(text: str, begin: int, at: int, stop: int) -> bool:
    """Whether the sentence goes on after the period at `at`, as after a title, initials or an ordinal."""
    before = text[max(begin, at - 24) : at]
    word = _WORD_START.split(before)[-1]
    if len(word) > _LONGEST_SHORT and word.isalpha():
        return False
    after = _PIECE_END.split(text[at + 1 : min(stop, at + 100)], maxsplit=1)[0].split()
    if not after:
        return False
    # the sentence goes on after this period, as in "10 a.m. on Monday"
    if _TITLE.fullmatch(word) or ("." in word and after[0][0].islower()):
        return True
    if _SHORT_MONTH.fullmatch(word):
        return after[0][0].isdigit()
    opens = text[text.rfind("\n", 0, at) + 1 : at].strip() == word
    if _ORDINAL.fullmatch(word) and (opens or fold(after[0]) in get_lexicon(frozenset()).get_pairs("months")):
        return True  # the period belongs to an ordinal ("11. November") or to the number of a list item
    if word == "No":
        # "No. 91" means "number 91", except at the beginning of a line, where "No." is an answer
        return after[0][0].isdigit() and not opens
    if (
        not _INITIALS.fullmatch(word)
        or _SENTENCE_STARTER.match(after[0])
        or before[: -len(word)].rstrip()[-1:].isdigit()
    ):
        return False
    if "." in word:
        return len(after) <= _WORDS_AFTER_INITIALS
    return after[0][0].isupper() and len(after) <= _WORDS_AFTER_INITIAL


_EXCLAIMED = re.compile(r"(?<=[!?])[\"'”)*_]{0,3}\s{1,9}|(?<=[！？])|\n+")


def split_sentences(reply: str) -> list[str]:
    """Splits a short reply into sentences, without final periods."""
    sentences: list[str] = []
    asks = any(sign in reply for sign in "!?！？")
    for line in _EXCLAIMED.split(reply) if asks else reply.split("\n"):
        begin = 0
        while begin < len(line):
            end = find_sentence_end(line, begin, len(line))
            sentence = line[begin:end].strip()
            if sentence:
                sentences.append(sentence)
            begin = end + 1
    return sentences


_CLAUSE_END = re.compile(r"[,，](?!\d)|[;:：；、](?!\d)|\s[–—-]{1,2}\s|——?")


def split_clauses(sentence: str) -> list[tuple[int, int]]:
    """Returns the start and end of each clause of a sentence; commas, colons and dashes separate them."""
    spans = []
    begin = 0
    for match in _CLAUSE_END.finditer(sentence):
        spans.append((begin, match.start()))
        begin = match.end()
    return [*spans, (begin, len(sentence))]


_BRACKETS = re.compile(r"\s?[(\[（【][^()\[\]（）【】]{0,120}[)\]）】]")  # matches a remark in brackets
_DENIALS = ("rather than", "instead of", "as opposed to")
_MOST_DENIALS = 20  # maximum number of negations read per sentence


def mask_denied(sentence: str, lexicon: Lexicon, *, clauses: bool = False) -> str:
    """Replaces what a sentence denies by spaces: only "but 8" is left of "Not 6 but 8".

    With `clauses`, also replaces the text before "not" in its clause, as in "Sydney is not the capital".
    """
    denials = lexicon.compile("denials", lambda: spell_phrases([*lexicon.negation, *_DENIALS]))
    end_of = lexicon.compile("denial end", lambda: r"[,，](?!\d)|[;；]|" + lexicon.find("but").pattern)
    for match in reversed(list(islice(denials.finditer(sentence), _MOST_DENIALS))):
        stop = end_of.search(sentence, match.end())
        begin, end = match.start(), stop.start() if stop is not None else len(sentence)
        if clauses:
            begin = max(span[0] for span in split_clauses(sentence) if span[0] <= begin)
        sentence = sentence[:begin] + " " * (end - begin) + sentence[end:]
    return sentence


def drop_brackets(sentence: str) -> str:
    """Removes remarks in brackets from a sentence, unless nothing would be left."""
    return _BRACKETS.sub("", sentence).strip() or sentence


Purpose = Literal["value", "fact", "text", ""]

_END = 1_000  # number of characters read at each end of a long prompt, because the task is at one end
_MIN_NUMBERS = 2  # a prompt with at least this many numbers asks for a value

_FORMULA = re.compile(r"\d ?[-+*/×÷^=<>] ?[\d?x(]|= ?\?|\bx ?=|\$[^$\n]{1,99}\$|\\(?:frac|sqrt|boxed)")
_NUMBER = re.compile(r"\d+")


def classify_purpose(prompt: str) -> Purpose:
    """Returns what a prompt asks for: a value or choice, a fact in a few words, or a text; "" if unclear.

    >>> classify_purpose("How many legs do 3 cats have?"), classify_purpose("Write a poem about 3 cats")
    ('value', 'text')
    >>> classify_purpose("Hi there")
    ''
    """
    text = shorten_question(prompt).lower()
    has_numbers = len(_NUMBER.findall(text)) >= _MIN_NUMBERS
    english = get_lexicon(frozenset(("en",)))
    if _is_word_to_translate(text, english):
        return "fact"
    if _find_order("compose", english).search(text) or english.find("compose").search(text):
        return "text"
    if find_options(text):
        return "value"
    # "How much should I save?" asks for advice, which is a text
    if not has_numbers and english.find("advice").search(text):
        return "text"
    is_value = any(english.find(name).search(text) for name in ("many", "value")) or _FORMULA.search(text)
    # a prompt such as "Explain how many …" also asks for a value
    if is_value or _find_order("solve", english).search(text):
        return "value"
    if _find_order("tell", english).search(text) or english.find("reason").search(text):
        asking = find_asking_sentence(text)  # the first sentence of "What is …? Explain your reasoning."
        return classify_purpose(asking) if asking.endswith("?") and len(asking) < len(text) else "text"
    if "?" not in text or not english.find("asking").search(text):
        return _classify_foreign(text, has_numbers=has_numbers)
    return "value" if has_numbers else "fact"


def _find_order(name: str, english: Lexicon) -> re.Pattern[str]:
    """Builds a pattern for one kind of command: `name` is "compose" (write), "solve" (compute) or "tell".

    The verb must begin a sentence or follow a word such as "please"; elsewhere it isn't a command.
    """

    def spell() -> str:
        names = ("leads", "composing", "making", "writings", "solving", "amounts", "telling")
        leads, composing, making, writings, solving, amounts, telling = (
            rf"\b(?:{'|'.join(sorted(english.gather(name)))})\b" for name in names
        )
        begins = rf"(?:^|[.?!:;\n]\s{{0,4}}|{leads}\s{{1,4}})"
        return {
            "compose": rf"{begins}(?:{composing}|{making}{_NEAR}{writings})",
            "solve": rf"(?:{begins}|, ){solving}(?! (?:me|a|some)\b)|\b(?:what|which)\b{_NEAR}{amounts}",
            "tell": rf"{begins}{telling}",
        }[name]

    return english.compile(f"order to {name}", spell)


# matches up to 60 characters of one sentence; without a limit, a text with many question words is slow
_NEAR = r"(?:(?! wh| you| please)[^.?!:;\n]){0,60}"


def _classify_foreign(text: str, *, has_numbers: bool) -> Purpose:
    """Classifies the purpose of a prompt in a language other than English; "" if unknown."""
    languages = detect_languages(text) - {"en"}
    if not languages:
        return ""
    lexicon = get_lexicon(languages)
    asking = find_asking_sentence(text)
    if lexicon.find("compose").search(text) and not _is_word_to_translate(text, lexicon):
        return "text"
    if not asking.endswith(_ASKS) and lexicon.find("translate").search(text) is None:
        return ""
    return "value" if has_numbers or lexicon.find("many").search(asking) else "fact"


def _is_word_to_translate(text: str, lexicon: Lexicon) -> bool:
    """Whether the prompt asks how to say something in a language, or to translate a few quoted words."""
    asked = len(text) < _QUOTED_PROMPT and lexicon.find("translate").search(text) is not None
    return lexicon.find("say").search(text) is not None or (asked and _QUOTED.search(text) is not None)


_QUOTED = re.compile(r"[\"'“‘«„「『](?:[^\W\d_]{1,20}[ -]?){1,3}[\"'”’»“」』]")
_QUOTED_PROMPT = 120  # maximum length of a prompt that asks to translate a quoted word, in characters


AnswerForm = Literal["choice", "either", "yes_no", "date", "number", "words"]
Options = tuple[tuple[str, str], ...]  # (letter, text) of each option of a multiple-choice question

_OPTION = re.compile(r"(?:^|\n|[ \t]{2,9}|[?:;,.]\s)[ \t]{0,9}[(\[]?([A-Ja-j])[).:\]][ \t]{1,4}")
_LAST_OPTION_END = re.compile(r"\n\s{0,9}\n|\n(?=[A-Z][a-z]+ )")
_QUESTION_LENGTH = 600  # only the last 600 characters of the sentence with the question are read
_ASKS = ("?", "？", "吗", "ですか", "ますか")
_WORDS_BEFORE_ASKING = 3  # a question word counts only among this many first words of a clause
_REQUEST_LENGTH = 60  # how many characters at a question's beginning are searched for "can you tell me"
_ANY_LETTER = re.compile(r"[^\W\d_]")
_SUM = re.compile(r"^[^=<>≤≥]*\d\)?(?:\s?[+*×÷^]\s?|\s[-−/]\s|%\s\w{1,4}\s)\(?\d[^=<>≤≥]*$")
_ALGEBRA = re.compile(r"\d[^\W\d_]|[^\W\d_]\s?[\^*+]|[\^*+]\s?[^\W\d_]|/\s?[^\W\d_]|\d\s?/\s?\d")


@lru_cache(maxsize=4096)
def shares_stem(word: str, other: str) -> bool:
    """Whether two words begin alike, and so are probably forms of one word: "capital" and "capitals".

    >>> shares_stem("столица", "столицей"), shares_stem("cats", "cat"), shares_stem("austria", "australia")
    (True, True, False)
    """
    unlike = (at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b)
    length = next(unlike, min(len(word), len(other)))
    tails = (len(word) - length, len(other) - length)
    if length == 3:
        return min(tails) == 0 and max(word, other, key=len)[3:] in _ENDINGS
    return length >= 4 and max(tails) <= 3


_ENDINGS = ("", "s", "es", "ed", "ing", "e", "en", "ete", "t", "a", "o", "i", "и", "а", "у", "ы", "ов", "ом")


class Question:
    """A parsed question, which helps to read the answers to it. Make one with `read_question`."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.text = text
        self.asking = find_asking_sentence(text)
        request = lexicon.find("request").search(self.asking[:_REQUEST_LENGTH])
        self.is_request = request is not None and len(self.asking) > request.end() + 2
        if request is not None and self.is_request:
            self.asking = self.asking[: request.start()] + self.asking[request.end() :]
        self.options = find_options(text)
        self.asks_truth, self.is_verdict = self._drop_verdicts()
        tokens = self.tokenize(self.asking)
        self.words = Counter(token.key for token in tokens if token.kind == "word")
        self.content = self._list_content(tokens)  # the question's content words, in order of appearance
        self.numbers = self._list_numbers(text)
        # the words of the whole prompt, not only of the sentence that asks
        self.context = {t.key for t in self.tokenize(text) if t.kind == "word"}
        asks = "".join(word for word in lexicon.question_words if word in self.asking)
        # Chinese characters that carry content, such as 大 ("big") in 哪个更大 ("which is bigger")
        self.characters = frozenset(_HAN.findall(self.asking)) - lexicon.common - {*asks}
        cjk = (part for t in tokens if t.kind == "cjk" for part in lexicon.cjk_common.split(t.text) if part)
        # in クジラは魚ですか ("Is a whale a fish?"), クジラ is the subject and 魚 the predicate
        *self.subjects, predicate = [*cjk] or [""]
        self.predicate = _HAN.findall(predicate) or [predicate] * bool(predicate)
        # the first word is left out, because "Isn't it …?" asks the same as "Is it …?"
        self.negated = any(t.key in lexicon.negation for t in tokens[1:])
        self.alternatives = () if self.options or self.is_verdict else self._find_alternatives()
        self.has_question_word = self._has_question_word(tokens)
        self.form: AnswerForm = self._find_form()
        self.focus = self._find_focus(tokens)
        self.asks_year = lexicon.find("year").search(self.asking) is not None
        self.asks_order = lexicon.find("order").search(self.asking) is not None
        self.purpose = classify_purpose(text)

    def tokenize(self, text: str) -> tuple[Token, ...]:
        """Splits a text into words and numbers, which are read in the format of the question's language."""
        return tokenize(text, decimal_comma=self.lexicon.decimal_comma)

    def find_forms(self, key: str) -> list[str]:
        """Returns the words of the question that are forms of this word, regular or irregular."""
        forms = self.lexicon.get_pairs("forms")
        base = forms.get(key, key)
        return [word for word in self.words if base == forms.get(word, word) or shares_stem(key, word)]

    def asks_about(self, key: str) -> bool:
        """Whether a word, in any of its forms, is one of the question's content words."""
        return any(word in self.content for word in self.find_forms(key))

    def _list_content(self, tokens: Sequence[Token]) -> list[str]:
        words = (t.key for t in tokens if t.kind == "word" and len(t.key) > 1)
        return [word for word in words if word not in self.lexicon.empty]

    def _list_numbers(self, text: str) -> list[str]:
        words = self.lexicon.get_pairs("numbers")
        numbers = [t for t in self.tokenize(text) if t.kind == "number" or words.get(t.key, "1") not in "01"]
        return [words.get(key, key) for t in numbers for key in dict.fromkeys((t.key, *t.key.split("/")))]

    def _drop_verdicts(self) -> tuple[bool, bool]:
        """Removes "true or false" or "yes or no". Returns (was it "true or false", was either there)."""
        verdict = self.lexicon.compile("verdicts", self._spell_verdicts).search(self.text)
        if verdict is None:
            return False, False
        self.asking = self.asking.replace(verdict.group(), " ").strip()
        return verdict[1].lower() in self.lexicon.gather("true"), True

    def _spell_verdicts(self) -> str:
        yes, no = ("|".join(map(re.escape, words)) or "(?!)" for words in (self.lexicon.yes, self.lexicon.no))
        joints = "|".join(self.lexicon.find(name).pattern for name in ("or", "and"))
        return rf"\b({yes})(?:,?\s?(?:{joints}|/)\s?)({no})\b"

    def _find_form(self) -> AnswerForm:
        if self.options:
            return "choice"
        if self.is_verdict:
            return "yes_no"
        many, when = (self.lexicon.find(name).search(self.asking) for name in ("many", "when"))
        if when is not None and (many is None or when.start() < many.start()):
            return "date"
        if many is not None:
            return "number"
        if self.alternatives:
            return "either"
        polar = self.asking.endswith(_ASKS) and not self.is_request and not self.has_question_word
        # a sum has no content words ("What is 6 * 7?"), or only a command ("Compute 6 * 7.")
        commands = 0 if self.has_question_word else 1
        is_sum = _SUM.search(self.asking) is not None and not _ALGEBRA.search(self.asking)
        is_sum = is_sum and not polar and len(self.content) == commands
        # a question without letters, such as "2 + 2?", also asks for a number
        if is_sum or not _ANY_LETTER.search(self.asking):
            return "number"
        return "yes_no" if polar else "words"

    def _has_question_word(self, tokens: Sequence[Token]) -> bool:
        asking = self.lexicon.question_words
        for begin, end in split_clauses(self.asking):
            first = [t for t in tokens if begin <= t.begin < end][:_WORDS_BEFORE_ASKING]
            if any(t.key in asking or t.text.lower().startswith(("qu'est", "qu’est")) for t in first):
                return True
        cjk = [t.text for t in tokens if t.kind == "cjk"]
        return any(word in run for run in cjk for word in asking)

    def _find_focus(self, tokens: Sequence[Token]) -> frozenset[str]:
        """Finds the words for the requested attribute: "capital" in "What is the capital of Peru?"."""
        content = [t for t in tokens if t.key in self.content]
        return frozenset([*(t.key for t in content[:1]), *(t.key for t in content if t.text[0].islower())])

    def is_focus(self, keys: Iterable[str]) -> bool:
        """Whether any of these words names the requested attribute."""
        return any(word in self.focus for key in keys for word in self.find_forms(key))

    def _find_alternatives(self) -> tuple[str, ...]:
        """Finds the alternatives that a question offers, such as "fruit" and "vegetable", or two numbers."""
        text = self.text[max(self.text.rfind(self.asking), 0) :] if self.asking in self.text else self.asking
        for sentence in reversed(split_sentences(text)[-3:]):
            sides = self._split_sides(sentence) or _split_cjk_sides(sentence, self.lexicon)
            if len({side.casefold() for side in sides}) > 1:
                return sides
        return ()

    def _split_sides(self, sentence: str) -> tuple[str, ...]:
        ors = list(self.lexicon.find("or").finditer(sentence))
        if not ors:
            return ()
        right = self._take_side(sentence[ors[-1].end() :], first=True)
        if not right:
            return ()
        clauses = split_clauses(sentence[: ors[-1].start()])
        left = self._take_side(sentence[clauses[-1][0] : clauses[-1][1]], first=False)
        sides = [" ".join(left[-len(right) :] if len(clauses) == 1 else left), " ".join(right)]
        # collect further alternatives, as in "positive, negative or neutral"
        for begin, end in reversed(clauses[:-1]):
            side = self._take_side(sentence[begin:end], first=False)[-len(right) :]
            keys = (t.key for t in self.tokenize(sentence[begin:end]))
            if not side or not self.lexicon.question_words.isdisjoint(keys):
                break
            sides.insert(0, " ".join(side))
        return tuple(sides) if all(sides) else ()

    def _take_side(self, text: str, *, first: bool) -> list[str]:
        """Returns the words of one alternative: the first (or last) words of a text, up to a common word."""
        begin, end = split_clauses(text)[0 if first else -1]
        tokens = [t for t in self.tokenize(text[begin:end]) if t.kind != "cjk"]
        side: list[str] = []
        for token in tokens if first else reversed(tokens):
            is_common = token.key in self.lexicon.common and token.key not in self.lexicon.negation
            if not is_common:
                side.append(token.key if token.kind == "number" else token.text)
            elif side:
                break
        return side if first else side[::-1]


_CJK_EITHER = re.compile(
    r"([^\s，。？、,?]{1,20})[、，,]?(?:还是|還是|或者|それとも)([^\s，。？、,?]{1,20})"
    r"|([^\s，。？、,?]{1,12}?)(?:和|与|跟|と)([^\s，。？、,?]{1,12}?)(?:相比|では|のうち|は|中|，|、)?"
    r"(?:哪个|哪個|哪一个|谁|どちら|どっち)"
)


def _split_cjk_sides(sentence: str, lexicon: Lexicon) -> tuple[str, ...]:
    match = _CJK_EITHER.search(sentence) if _CJK_RUN.search(sentence) else None
    if match is None:
        return ()
    left, right = match[1] or match[3], match[2] or match[4]
    sides = [[part for part in lexicon.cjk_common.split(side) if part] for side in (left, right)]
    return (sides[0][-1], sides[1][0]) if all(sides) else ()


def shorten_question(question: str) -> str:
    """Removes the middle of a long prompt, because only its beginning and end are read."""
    return question if len(question) <= 2 * _END else question[:_END] + "\n" + question[-_END:]


@lru_cache(maxsize=256)
def read_question(question: str, languages: frozenset[str] = frozenset()) -> Question:
    """Parses a prompt with the word lists of its own language and of `languages`.

    Recent results are cached, because every sample of a request needs the same parsed prompt.
    """
    text = shorten_question(question)
    return Question(text, get_lexicon(detect_languages(find_asking_sentence(text)) | languages))


@lru_cache(maxsize=64)
def find_asking_sentence(text: str) -> str:
    """Returns the last sentence that is a question; the end of the text if there is none."""
    asking = [sentence for sentence in split_sentences(text) if sentence.rstrip("\"'”)*_ ").endswith(_ASKS)]
    return asking[-1][-_QUESTION_LENGTH:] if asking else text[-_QUESTION_LENGTH:].strip()


@lru_cache(maxsize=256)
def find_options(text: str) -> Options:
    """Finds the options of a multiple-choice question: at least two, with consecutive letters from A."""
    matches: list[re.Match[str]] = []
    for match in _OPTION.finditer(text):
        matches = [] if match[1] in "Aa" else matches
        if ord(match[1].upper()) == ord("A") + len(matches):
            matches.append(match)
    if len(matches) < 2:
        return ()
    last = _LAST_OPTION_END.search(text, matches[-1].end())
    ends = [*(match.start() for match in matches[1:]), last.start() if last else len(text)]
    texts = (text[match.end() : end].strip(" \t\n,;.?") for match, end in zip(matches, ends, strict=True))
    return tuple(zip((match[1].upper() for match in matches), texts, strict=True))
