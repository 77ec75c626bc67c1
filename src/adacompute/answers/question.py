"""What a question asks for: its purpose, the form of its answer, its options, its words and its numbers.

The form is read from the words that ask, in any language of `words.json`; the purpose from English words, and
from verbs such as "write" in the others. Only the ends of long texts are read, and no pattern here nests
repeats, so that a hostile text takes no longer than another.
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
_MAX_DISTANCE = 12  # words at most between "what" and "area", or "write" and "poem"


def make_word_set(text: str) -> frozenset[str]:
    """The words of a text, which spaces separate."""
    return frozenset(text.split())


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[.?!:;,\n]")
_STOPS = frozenset(".?!:;\n")
# an order's verb begins a sentence, or follows one of these; elsewhere it is a part of a question
_LEADS = make_word_set("please kindly you and then to also now briefly let's")
_COMPOSE = make_word_set(
    "compose draft rewrite rephrase reword paraphrase summarize summarise translate proofread "
    "brainstorm imagine pretend roleplay role-play act invent outline suggest recommend propose "
    "refactor debug implement"
)
_MAKE = make_word_set(
    "write create make generate give tell come design build plan develop prepare produce need want show "
    "list name haiku poem"
)
_THINGS = make_word_set(
    "poem poems haiku limerick sonnet verse lyrics song rap ode story stories tale novel chapter scene "
    "dialogue script scripts screenplay monologue essay article blog post tweet tweets caption captions "
    "thread newsletter speech toast email e-mail emails letter memo message invitation "
    "announcement resume cv bio biography review report summary abstract paragraph sentence sentences "
    "slogan slogans tagline title titles headline headlines names ideas tips suggestions advice "
    "joke jokes pun riddle recipe menu plan schedule itinerary agenda outline list lesson quiz "
    "questions flashcards description explanation introduction conclusion proposal pitch strategy "
    "policy guide tutorial documentation readme program python javascript typescript java rust sql bash "
    "html css react regex code class query api app website component snippet prompt persona character "
    "dockerfile makefile"
)
_TELL = make_word_set(
    "explain describe discuss compare contrast elaborate introduce analyze analyse review critique "
    "advise fix write create make generate design plan list turn"
)
_SOLVE = make_word_set(
    "calculate compute evaluate solve simplify factor determine integrate differentiate round convert "
    "count estimate express expand reduce find classify categorize categorise label"
)
_LOOSE_FIND = make_word_set("me out a some ways good something")  # without calculating: "find me a recipe"
_AMOUNTS = make_word_set(
    "number value sum product difference quotient remainder area perimeter circumference volume unit "
    "units probability odds percent percentage ratio fraction average mean median mode range variance "
    "total cost price profit interest distance speed velocity length width height weight mass depth age "
    "angle root roots solution solutions derivative integral limit coefficient coefficients degree "
    "measure slope intercept equation expression inverse determinant radius diameter digit digits term "
    "factor multiple divisor gcd lcm maximum minimum largest smallest greatest least next missing "
    "result answer output year date time population temperature square cube logarithm factorial domain "
    "vertex midpoint hypotenuse rate change sequence integer integers salary"
)
_FORMS = make_word_set(
    "number answer fraction decimal expression numeral numerals digit digits form notation percent"
)
_ASKING = make_word_set(
    "who whose whom when where which what what's is are was were does did can do has name state"
)
_WISH = re.compile(
    r"\btell me (?:a|about|more)\b|\bhelp me (?:write|plan|with)\b|\bcontinue the\b|\ba name for\b"
)
_ADVICE = re.compile(
    r"\b(?:should (?:i|we|you)\b|(?:do|would) you (?:think|like|feel|recommend|believe|prefer|say)"
    r"|your (?:opinion|view|favou?rite|thoughts)\b|pros and cons|best (?:way|practice)"
    r"|(?:some|any) (?:tips|advice|ideas)|difference between (?!the\b))"
)
_REASON = re.compile(
    r"\bhow (?:do|can|could|should|would|does|to|come)\b"
    r"|\bwhy (?:is|are|do|does|did|was|were|would|should|can)\b|\bsome (?:good|ways|of)\b"
)
_VALUE = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|fast|big|large|high|deep|heavy|wide)\b|\bat what\b"
    r"|\b(?:true or false|yes or no|final answer|multiple[- ]choice|sentiment|(?:respond|reply) with only)\b"
    r"|\banswer (?:with|in|as|using|only)\b|\b(?:choose|pick) (?:one|the|from)\b"
    r"|\d ?[-+*/×÷^=<>] ?[\d?x(]|= ?\?|\bx ?=|\$[^$\n]{1,99}\$|\\(?:frac|sqrt|boxed)"
)
_CHOICES = re.compile(r"^[ \t]{0,9}\(?a[).:]\s[^\n]{1,400}\n{1,3}[ \t]{0,9}\(?b[).:]\s", re.MULTILINE)


def classify_purpose(prompt: str) -> Purpose:
    """What a prompt asks for: a value or a choice, a fact in a few words, a text; "" if it is unclear.

    >>> classify_purpose("How many legs do 3 cats have?"), classify_purpose("Write a poem about 3 cats")
    ('value', 'text')
    >>> classify_purpose("Hi there")
    ''
    """
    text = shorten_question(prompt).lower()
    words = _WORD.findall(text)
    has_numbers = sum(word.isdecimal() for word in words) >= _MIN_NUMBERS
    orders = _find_orders(words)
    if "translate" in words and _is_word_to_translate(text, get_lexicon(frozenset(("en",)))):
        return "fact"
    if "compose" in orders or _WISH.search(text):
        return "text"
    if _CHOICES.search(text):
        return "value"
    if not has_numbers and _ADVICE.search(text):  # "How much should I save?"
        return "text"
    if "solve" in orders or _asks_amount(words) or _VALUE.search(text):  # "Explain how many …" included
        return "value"
    if "tell" in orders or _REASON.search(text):
        return "text"
    if "?" not in words or _ASKING.isdisjoint(words):
        return _classify_foreign(text, has_numbers=has_numbers)
    return "value" if has_numbers else "fact"


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
    quoted = _QUOTED.search(text)
    return (
        quoted is not None
        and len(text) < _QUOTED_PROMPT
        and lexicon.find("translate").search(text) is not None
    )


_QUOTED = re.compile(r"[\"'“‘«„「『](?:[^\W\d_]{1,20}[ -]?){1,3}[\"'”’»“」』]")
_QUOTED_PROMPT = 120  # characters of a prompt that has a word translated


def _find_orders(words: list[str]) -> set[str]:
    """The orders that it gives: compose a text, solve a problem, tell of something."""
    orders: set[str] = set()
    begins, comma, made_at, wrote_at = True, False, -_MAX_DISTANCE, -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            begins, made_at = True, -_MAX_DISTANCE
            continue
        if at - made_at < _MAX_DISTANCE and word in _THINGS:
            orders.add("compose")
        if at - wrote_at < _MAX_DISTANCE and word in _FORMS:
            orders.add("solve")
        if begins and word in _COMPOSE:
            orders.add("compose")
        if begins and word in _MAKE:
            made_at = at
        if begins and word in _TELL:
            orders.add("tell")
        if (begins or comma) and word in _SOLVE and not (word == "find" and _is_loose_find(words, at)):
            orders.add("solve")
        wrote_at = at if word == "write" else wrote_at
        begins, comma = word in _LEADS, word == ","
    return orders


def _is_loose_find(words: list[str], at: int) -> bool:
    """Whether something is to be found without calculating: "find me a recipe"."""
    return at + 1 < len(words) and words[at + 1] in _LOOSE_FIND


def _asks_amount(words: list[str]) -> bool:
    """Whether it asks what, or which, amount something is."""
    asked_at = -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            asked_at = -_MAX_DISTANCE
        elif word in ("what", "which", "what's", "what’s"):
            asked_at = at
        elif at - asked_at < _MAX_DISTANCE and word in _AMOUNTS:
            return True
    return False


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
        self.category, self.focus = self._find_focus(tokens)
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

    def _find_focus(self, tokens: Sequence[Token]) -> tuple[str, frozenset[str]]:
        """The noun after the word that asks ("which city"); what is asked, rather than of what.

        That is what isn't written as a name: "capital" of "the capital of Peru".
        """
        words = [t for t in tokens if t.kind == "word"]
        category = ""
        for asked, noun in zip(words, words[1:], strict=False):
            if (
                asked.key in self.lexicon.question_words - self.lexicon.gather("who")
                and noun.key in self.content
            ):
                category = noun.key
                break
        content = [t for t in words if t.key in self.content]
        plain = [t.key for t in content if t.text[0].islower() and t.key != category]
        names = [t.key for t in content if t.key != category]
        return category, frozenset(plain or names[:1])

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
            words = sentence[begin:end].split()
            side = self._take_side(" ".join(words[-2:]), first=False)
            if not side or len(words) > _MAX_ALTERNATIVE + 2 or self._asks(words):
                break
            sides.insert(0, " ".join(side))
        short = all(0 < len(side.split()) <= _MAX_ALTERNATIVE for side in sides)
        return tuple(sides) if short else ()

    def _asks(self, words: list[str]) -> bool:
        return any(t.key in self.lexicon.question_words for t in self.tokenize(" ".join(words)))

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
