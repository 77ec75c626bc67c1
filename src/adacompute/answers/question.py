"""What a question asks for, and the words of replies by what they are to it.

`Question`: the purpose of a prompt, the form of its answer, its options, its words and its numbers. The form
is read from the words that ask, in any language of `words.json`; the purpose from English words, and from
verbs such as "write" in the others.

`ReplyText` and `Sentence`: a reply as sentences that state something. What it repeats of the question is
phrasing, and so are a language's common words; what is left over, its new words, is where the answer stands.

Only the ends of long texts are read, and no pattern here nests repeats, so that a hostile text takes no
longer than another.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from adacompute.answers.words import (
    Lexicon,
    Token,
    detect_languages,
    get_lexicon,
    split_clauses,
    split_sentences,
    tokenize,
)

__all__ = [
    "Options",
    "Purpose",
    "Question",
    "classify_purpose",
    "find_options",
    "read_question",
    "shares_stem",
    "shorten_question",
]

Purpose = Literal["value", "fact", "text", ""]

_END = 1_000  # characters of either end of a prompt: the task stands at its beginning or its end
_MIN_NUMBERS = 2  # numbers in a prompt that make it a problem to solve, rather than a wish for advice

_WISH = re.compile(
    r"\btell me (?:a|about|more)\b|\bhelp me (?:write|plan|with)\b|\bcontinue the\b|\ba name for\b"
)
_ADVICE = re.compile(
    r"\b(?:should (?:i|we|you)\b|(?<!how )(?:do|would) you (?:think|like|feel|recommend|believe|prefer|say)"
    r"|your (?:opinion|view|favou?rite|thoughts)\b|pros and cons|best (?:way|practice)"
    r"|(?:some|any) (?:tips|advice|ideas)|difference between (?!the\b))"
)
_REASON = re.compile(
    r"\bhow (?:do|can|could|should|would|does|to|come)\b(?! (?:you |i |one )?(?:say|spell|pronounce)\b)"
    r"|\bwhy (?:is|are|do|does|did|was|were|would|should|can)\b|\bsome (?:good|ways|of)\b"
)
_VALUE = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|fast|big|large|high|deep|heavy|wide)\b|\bat what\b"
    r"|\b(?:true or false|yes or no|final answer|multiple[- ]choice|sentiment|(?:respond|reply) with only)\b"
    r"|\banswer (?:with|in|as|using|only)\b|\b(?:choose|pick) (?:one|the|from)\b"
    r"|\d ?[-+*/×÷^=<>] ?[\d?x(]|= ?\?|\bx ?=|\$[^$\n]{1,99}\$|\\(?:frac|sqrt|boxed)"
)
_DIGITS = re.compile(r"\d+")


def classify_purpose(prompt: str) -> Purpose:
    """What a prompt asks for: a value or a choice, a fact in a few words, a text; "" if it is unclear.

    >>> classify_purpose("How many legs do 3 cats have?"), classify_purpose("Write a poem about 3 cats")
    ('value', 'text')
    >>> classify_purpose("Hi there")
    ''
    """
    text = shorten_question(prompt).lower()
    has_numbers = len(_DIGITS.findall(text)) >= _MIN_NUMBERS
    english = get_lexicon(frozenset(("en",)))
    if _is_word_to_translate(text, english):
        return "fact"
    if _find_order("compose", english).search(text) or _WISH.search(text):
        return "text"
    if find_options(text):
        return "value"
    if not has_numbers and _ADVICE.search(text):  # "How much should I save?"
        return "text"
    if _find_order("solve", english).search(text) or _VALUE.search(text):  # "Explain how many …" included
        return "value"
    if _find_order("tell", english).search(text) or _REASON.search(text):
        asking = find_asking_sentence(text)  # "What is …? Explain your reasoning."
        return classify_purpose(asking) if asking.endswith("?") and len(asking) < len(text) else "text"
    if "?" not in text or not english.find("asking").search(text):
        return _classify_foreign(text, has_numbers=has_numbers)
    return "value" if has_numbers else "fact"


def _find_order(name: str, english: Lexicon) -> re.Pattern[str]:
    """A pattern of orders: to compose a text, to solve a problem, to tell of something.

    An order's verb begins a sentence, or follows a word such as "please"; elsewhere it is part of a question.
    """

    def spell() -> str:
        names = ("leads", "composing", "making", "writings", "solving", "amounts", "telling")
        leads, composing, making, writings, solving, amounts, telling = (
            rf"\b(?:{'|'.join(sorted(english.gather(name)))})\b" for name in names
        )
        begins = rf"(?:^|[.?!:;\n]\s*|{leads}\s+)"
        return {
            "compose": rf"{begins}(?:{composing}|{making}{_NEAR}{writings})",
            "solve": rf"(?:{begins}|, ){solving}(?! (?:me|a|some)\b)|\b(?:what|which|what['’]s)\b{_NEAR}{amounts}",
            "tell": rf"{begins}{telling}",
        }[name]

    return english.compile(f"order to {name}", spell)


_NEAR = r"(?:(?! wh| you| please)[^.?!:;\n]){0,60}"  # within a sentence; short, also after many a "what"


def _classify_foreign(text: str, *, has_numbers: bool) -> Purpose:
    """The purpose of a prompt in another language than English; "" if it is none that is known."""
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
    """Whether a word or two in quotes are to be translated."""
    asked = len(text) < _QUOTED_PROMPT and lexicon.find("translate").search(text) is not None
    return asked and _QUOTED.search(text) is not None


_QUOTED = re.compile(r"[\"'“‘«„「『](?:[^\W\d_]{1,20}[ -]?){1,3}[\"'”’»“」』]")
_QUOTED_PROMPT = 120  # characters of a prompt that has a word translated


AnswerForm = Literal["choice", "either", "yes_no", "date", "number", "words"]
Options = tuple[tuple[str, str], ...]  # letter and text of each

_OPTION = re.compile(r"(?:^|\n|[ \t]{2,9}|[?:;,.]\s)[ \t]{0,9}[(\[]?([A-Ja-j])[).:\]][ \t]{1,4}")
_LAST_OPTION_END = re.compile(r"\n\s{0,9}\n|\n(?=[A-Z][a-z]+ )")
_QUESTION_LENGTH = 600  # characters of the sentence that asks
_ASKS = ("?", "？", "吗", "ですか", "ますか")
_QUOTATION = re.compile(
    r":\s{1,3}(?:\"[^\"?]{1,999}\"|“[^”?]{1,999}”|'(?:[^'?]|(?<=\w)'(?=\w)){1,999}'(?!\w))"
)
_WORDS_BEFORE_ASKING = 3  # words at most before the one that asks: "in which", "up to what"
_REQUEST_LENGTH = 60  # characters at the beginning of a question, in which "can you tell me" may stand
_MAX_ALTERNATIVE = 4  # words of one side of "a fruit or a vegetable"
_LETTER = re.compile(r"[^\W\d_]")
_DOT_DECIMAL = re.compile(r"\d\.\d{1,2}(?!\d)")


@lru_cache(maxsize=4096)
def shares_stem(word: str, other: str) -> bool:
    """Whether two words are forms of one, by a long common beginning: "capital" and "capitals".

    >>> shares_stem("столица", "столицей"), shares_stem("cats", "cat"), shares_stem("austria", "australia")
    (True, True, False)
    """
    length = 0
    for a, b in zip(word, other, strict=False):
        if a != b:
            break
        length += 1
    tails = (len(word) - length, len(other) - length)
    if length == 3:
        return min(tails) == 0 and max(word, other, key=len)[3:] in _ENDINGS
    return length >= 4 and max(tails) <= 3


_ENDINGS = ("", "s", "es", "ed", "ing", "e", "en", "ete", "t", "a", "o", "i", "и", "а", "у", "ы", "ов", "ом")


class Question:
    """What is known of a question, for reading its answers. Read it with `read_question`."""

    def __init__(self, text: str, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.text = text
        self.asking = find_asking_sentence(text)
        self.decimal_comma = lexicon.decimal_comma and _DOT_DECIMAL.search(text) is None
        request = lexicon.find("request").search(self.asking[:_REQUEST_LENGTH])
        self.is_request = request is not None and len(self.asking) > request.end() + 2
        if request is not None and self.is_request:
            self.asking = self.asking[: request.start()] + self.asking[request.end() :]
        self.options = find_options(text)
        self.asks_truth, self.is_verdict = self._drop_verdicts()
        tokens = self.tokenize(self.asking)
        self.words = Counter(token.key for token in tokens if token.kind == "word")
        self.content = self._list_content(tokens)  # in their order
        self.numbers = self._list_numbers(text)
        self.context = frozenset(
            t.key for t in self.tokenize(text) if t.kind == "word"
        )  # of all of the prompt
        self.negated = self._is_negated(tokens)
        self.alternatives = () if self.options or self.is_verdict else self._find_alternatives()
        self.has_question_word = self._has_question_word(tokens)
        self.form: AnswerForm = self._find_form()
        self.focus = self._find_focus(tokens)
        self.asks_year = lexicon.find("year").search(self.asking) is not None
        self.asks_order = lexicon.find("order").search(self.asking) is not None
        self.purpose = classify_purpose(text)

    def tokenize(self, text: str) -> tuple[Token, ...]:
        """The words and numbers of a text, numbers written as in the question's language."""
        return tokenize(text, decimal_comma=self.decimal_comma)

    def has(self, key: str) -> bool:
        """Whether the question has a word, in this form or another."""
        return key in self.words or self._has_form(key, self.words)

    def asks_about(self, key: str) -> bool:
        """Whether a word is one of the question's content words, in this form or another."""
        return key in self.content or self._has_form(key, self.content)

    def is_form(self, key: str, word: str) -> bool:
        """Whether two words are forms of one: by a long common beginning, or by a list of irregular ones."""
        base = self.lexicon.find_base
        return key == word or base(key) == base(word) or shares_stem(key, word)

    def _has_form(self, key: str, words: Iterable[str]) -> bool:
        return any(self.is_form(key, word) for word in words)

    def _list_content(self, tokens: Sequence[Token]) -> list[str]:
        common = self.lexicon.common | self.lexicon.question_words
        return [t.key for t in tokens if t.kind == "word" and t.key not in common and len(t.key) > 1]

    def _list_numbers(self, text: str) -> list[str]:
        words = self.lexicon.numbers
        return [
            token.key if token.kind == "number" else str(words[token.key])
            for token in self.tokenize(text)
            if token.kind == "number" or words.get(token.key, 0) > 1
        ]

    def _drop_verdicts(self) -> tuple[bool, bool]:
        """Whether it asks for true or false; whether it asks for that, or for yes or no, in so many words."""
        verdict = self.lexicon.compile("verdicts", self._spell_verdicts).search(self.text)
        if verdict is None:
            return False, False
        self.asking = self.asking.replace(verdict.group(), " ").strip()
        return verdict[1].lower() in self.lexicon.gather("true"), True

    def _spell_verdicts(self) -> str:
        yes, no = ("|".join(map(re.escape, words)) or "(?!)" for words in (self.lexicon.yes, self.lexicon.no))
        joints = "|".join(self.lexicon.find(name).pattern for name in ("or", "and"))
        return rf"\b({yes})(?:,?\s?(?:{joints}|/)\s?)({no})\b"

    def _is_negated(self, tokens: Sequence[Token]) -> bool:
        """Whether the question has a "not"; "Isn't it ...?" asks the same as "Is it ...?"."""
        said = tokens[1:] if not self.asks_truth else self.tokenize(self.text)
        verdicts = self.lexicon.no if self.is_verdict else frozenset()
        return any(t.key in self.lexicon.negation and t.key not in verdicts for t in said)

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
        if not _LETTER.search(self.asking):  # "2 + 2?"
            return "number"
        polar = self.asking.endswith(_ASKS) and not self.is_request and not self.has_question_word
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
        """What is asked, rather than of what: "capital" of "the capital of Peru", which isn't written as a name."""
        content = [t for t in tokens if t.key in self.content]
        return frozenset([*(t.key for t in content[:1]), *(t.key for t in content if t.text[0].islower())])

    def is_focus(self, keys: Iterable[str]) -> bool:
        """Whether one of some words says what is asked."""
        return any(self.is_form(key, word) for key in keys for word in self.focus)

    def _find_alternatives(self) -> tuple[str, ...]:
        """The sides of "a fruit or a vegetable", or two numbers that are compared."""
        text = _QUOTATION.sub(" ", self.text)
        text = text[text.rfind(self.asking) :] if self.asking in text else self.asking
        for sentence in reversed(split_sentences(text)[-3:]):
            sides = self._split_sides(sentence) or _split_cjk_sides(sentence, self.lexicon)
            if len({side.casefold() for side in sides}) > 1:
                return sides
        numbers = list(dict.fromkeys(t.key for t in self.tokenize(self.asking) if t.kind == "number"))
        compared = _CJK_WHICH.search(self.asking) is not None
        return tuple(numbers) if compared and len(numbers) == 2 else ()

    def _split_sides(self, sentence: str) -> tuple[str, ...]:
        ors = list(self.lexicon.find("or").finditer(sentence))
        if not ors or _CJK_WHICH.search(sentence):
            return ()
        right = self._take_side(sentence[ors[-1].end() :], first=True)
        if not right or right[0].lower() in self.lexicon.negation:
            return ()
        clauses = split_clauses(sentence[: ors[-1].start()])
        left = self._take_side(sentence[clauses[-1][0] : clauses[-1][1]], first=False)
        if len(clauses) == 1:
            left = left[-len(right) :]
        sides = [" ".join(left), " ".join(right)]
        for begin, end in reversed(clauses[:-1]):  # "positive, negative or neutral"
            side = self._take_side(sentence[begin:end], first=False)[-len(right) :]
            if not side or self._asks(sentence[begin:end]):
                break
            sides.insert(0, " ".join(side))
        short = all(0 < len(side.split()) <= _MAX_ALTERNATIVE for side in sides)
        return tuple(sides) if short else ()

    def _asks(self, text: str) -> bool:
        return any(t.key in self.lexicon.question_words for t in self.tokenize(text))

    def _take_side(self, text: str, *, first: bool) -> list[str]:
        """The first or last words of a text that aren't common, up to one that is."""
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


_CJK_WHICH = re.compile("哪个|哪個|哪一个|哪一個|どちら|どっち|谁更|谁比较")
_CJK_EITHER = re.compile(
    r"([^\s，。？、,?]{1,20})[、，,]?(?:还是|還是|或者|それとも)([^\s，。？、,?]{1,20})"
    r"|([^\s，。？、,?]{1,12}?)(?:和|与|跟|と)([^\s，。？、,?]{1,12}?)(?:相比|では|のうち|は|中|，|、)?"
    r"(?:哪个|哪個|哪一个|谁|どちら|どっち)"
)


def _split_cjk_sides(sentence: str, lexicon: Lexicon) -> tuple[str, ...]:
    match = _CJK_EITHER.search(sentence)
    if match is None:
        return ()
    left, right = match[1] or match[3], match[2] or match[4]
    sides = [[part for part in lexicon.cjk_common.split(side) if part] for side in (left, right)]
    return (sides[0][-1], sides[1][0]) if all(sides) else ()


def shorten_question(question: str) -> str:
    """The ends of a prompt, which are all that is read of it."""
    return question if len(question) <= 2 * _END else question[:_END] + "\n" + question[-_END:]


@lru_cache(maxsize=256)
def read_question(question: str, languages: frozenset[str] = frozenset()) -> Question:
    """What a prompt asks for, in its own language and others that its replies are written in.

    The last results are kept, since every sample of a request needs them.
    """
    text = shorten_question(question)
    return Question(text, get_lexicon(detect_languages(find_asking_sentence(text)) | languages))


def find_asking_sentence(text: str) -> str:
    """The last sentence that asks; the text's end if there is none.

    A quotation after a colon is what is asked about, no part of the sentence.
    """
    text = _QUOTATION.sub(" ", text)
    asking = [sentence for sentence in split_sentences(text) if sentence.rstrip("\"'”)*_ ").endswith(_ASKS)]
    return asking[-1][-_QUESTION_LENGTH:] if asking else text[-_QUESTION_LENGTH:].strip()


@lru_cache(maxsize=256)
def find_options(text: str) -> Options:
    """The lettered options of a question: consecutive letters from A on, at least two."""
    options: list[tuple[str, str]] = []
    begin = 0
    for match in _OPTION.finditer(text):
        letter = match[1].upper()
        if letter == "A":
            options = []
        elif not options or ord(letter) != ord(options[-1][0]) + 1:
            continue
        else:
            options[-1] = (options[-1][0], text[begin : match.start()].strip(" \t\n,;."))
        options.append((letter, ""))
        begin = match.end()
    if len(options) < 2:
        return ()
    end = _LAST_OPTION_END.search(text, begin)
    options[-1] = (options[-1][0], text[begin : end.start() if end else len(text)].strip(" \t\n,;.?"))
    return tuple(options)
