"""A reply as sentences that state something, and their words by what they are to the question.

What a reply repeats of the question is phrasing, and so are a language's common words; what is left over, its
new words, is where the answer stands. Only the ends of a reply are read, and every scan is linear.
"""

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

from adacompute.answers.question import Question
from adacompute.answers.words import Token, drop_brackets, drop_last_sentence, split_clauses, split_sentences

__all__ = ["SHORT_REPLY", "Clause", "Piece", "ReplyText", "Sentence", "holds_cjk"]

SHORT_REPLY = 400  # characters of a reply that answers in a few sentences; a longer one is prose
_HEAD, _TAIL = 800, 1_600  # characters of the beginning and the end of a reply that are read
_FIRST_SENTENCES = 4  # sentences in which a reply may say that it can't tell
_ITEMS, _ITEM_WORDS = 12, 4  # of a list with an item on each line

_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_MARKS = str.maketrans("“”«»„’‘ʼ\u00a0\u202f．０１２３４５６７８９", '"""""' + "'''" + "  .0123456789", "*`")
_LEADING_MARKS = re.compile(r"^(?:[\s#>•_\"]|-(?!\d)){1,9}")
_THOUGHT = re.compile(r"^\s{0,9}(?:thoughts?|final answer|answer)\s?:\s{0,3}", re.IGNORECASE | re.MULTILINE)
_BULLET = re.compile(r"^\s{0,9}(?:[-*•]|\d{1,2}[.)])\s{1,4}(.{1,80})$", re.MULTILINE)
_ENDS_ASKING = re.compile(r"[?？][\s*_)\"'”」]{0,9}\Z")
_LETTER = re.compile(r"[^\W_]")


class ReplyText:
    """A reply without its marks, as sentences that state something: no offers, politeness or excuses."""

    def __init__(self, text: str, question: Question, *, finished: bool = True) -> None:
        self.question, self.finished = question, finished
        self.text = _clean(text)
        self.is_long = len(self.text) > SHORT_REPLY
        whole = self.text if finished else drop_last_sentence(self.text[:SHORT_REPLY])
        said = [s for s in split_sentences(whole) if _LETTER.search(s)]
        offer = question.lexicon.find("offer")
        stated = [s for s in said if not _ENDS_ASKING.search(s) and not (len(said) > 1 and offer.search(s))]
        self.sentences = _select_stating(stated, question)
        self.abstains = not self.sentences and any(_cant_tell(s, question) for s in stated[:_FIRST_SENTENCES])
        if not finished and self.is_long:  # it may conclude otherwise
            self.sentences = self.sentences[:1]

    @cached_property
    def asserted(self) -> list["Sentence"]:
        """The sentences with their words."""
        return [Sentence(text, self.question) for text in self.sentences]


def _clean(text: str) -> str:
    if len(text) > _HEAD + _TAIL:
        text = text[:_HEAD] + "\n" + text[-_TAIL:]
    fences = _FENCE.findall(text)
    outside = _FENCE.sub("\n", text)
    if len(fences) == 1 and not outside.strip():
        outside = fences[0]
    return _LEADING_MARKS.sub("", _THOUGHT.sub("", _join_items(outside).translate(_MARKS))).strip()


def _join_items(text: str) -> str:
    """A list with an item on each line as one sentence."""
    first = _BULLET.search(text) if "\n" in text else None
    items = [item.strip(" .*,;") for item in _BULLET.findall(text)] if first is not None else []
    if first is None or not 1 < len(items) <= _ITEMS or any(item.count(" ") >= _ITEM_WORDS for item in items):
        return text
    before = text[: first.start()].strip()
    return f"{before} {', '.join(items)}" if len(before) < SHORT_REPLY else text


def _select_stating(sentences: list[str], question: Question) -> list[str]:
    """The sentences that may answer: not those that are polite only, nor those that say they can't tell."""
    lexicon = question.lexicon
    selected: list[str] = []
    silent = False
    for at, sentence in enumerate(sentences):
        if not selected and _says_only("polite", sentence, question):
            continue
        if at < _FIRST_SENTENCES and _cant_tell(sentence, question):
            if selected:
                break
            _, *guess = lexicon.find("but").split(sentence, maxsplit=1)
            if guess and not _cant_tell(guess[0], question):
                return [guess[0].lstrip(" ,，")]
            silent = True
        elif not silent or lexicon.find("guess").match(sentence):
            selected.append(sentence)
        else:
            break
    return selected


def _cant_tell(sentence: str, question: Question) -> bool:
    unsure = question.lexicon.find("unsure").search(sentence) is not None
    return unsure or _says_only("silent", sentence, question)


def _says_only(name: str, sentence: str, question: Question) -> bool:
    """Whether a sentence consists of phrases of a list."""
    rest = question.lexicon.find(name).sub(" ", sentence)
    return rest != sentence and _LETTER.search(rest) is None


class Piece(NamedTuple):
    """A word of a sentence, or a part of a run of Chinese or Japanese."""

    kind: str  # as a token's, and so on
    text: str
    key: str
    begin: int
    end: int
    label: str  # what it is to the question: "question", "common", "number" or "new"

    @property
    def is_name(self) -> bool:
        """Whether it is written as a name, or in a script without capitals."""
        return self.kind == "cjk" or not self.text.islower()


class Clause(NamedTuple):
    """A part of a sentence between commas."""

    begin: int
    end: int
    text: str
    pieces: list[Piece]


class Sentence:
    """A sentence, its words labelled by what they are to the question."""

    def __init__(self, text: str, question: Question) -> None:
        self.text = drop_brackets(text)
        self.question = question

    @cached_property
    def pieces(self) -> list[Piece]:
        """Its words with their labels. The question's words count once: what is repeated is new."""
        question, left = self.question, Counter(self.question.words)
        tokens, common = question.tokenize(self.text), question.lexicon.common
        exact = set()
        for at, token in enumerate(tokens):
            if token.kind == "word" and left[token.key] > 0 and token.key not in common:
                left[token.key] -= 1
                exact.add(at)
        pieces: list[Piece] = []
        for at, token in enumerate(tokens):
            if token.kind == "cjk":
                pieces += _split_cjk(token, question)
                continue
            label = "number" if token.kind == "number" else "question" if at in exact else ""
            if 0 < at == len(tokens) - 1 and token.key in common and token.text[0].isupper():
                label = "new"  # the symbol of iodine is "I"
            pieces.append(Piece(*token, label or _label_word(token.key, question, left)))
        return pieces

    @cached_property
    def clauses(self) -> list[Clause]:
        """Its parts between commas, colons and dashes."""
        return [
            Clause(begin, end, self.text[begin:end], [p for p in self.pieces if begin <= p.begin < end])
            for begin, end in split_clauses(self.text)
        ]

    @cached_property
    def hits(self) -> list[str]:
        """The words of the question that it repeats."""
        return [p.key for p in self.pieces if p.label == "question"]

    def repeats(self, words: Iterable[str]) -> bool:
        """Whether it has one of some words of the question."""
        return any(self.question.is_form(hit, word) for hit in self.hits for word in words)


def _label_word(key: str, question: Question, left: Counter[str]) -> str:
    common = question.lexicon.common
    if key in common or key in question.lexicon.question_words:
        return "common"
    for word, count in left.items():
        if count > 0 and word not in common and question.is_form(key, word):
            left[word] -= 1
            return "question"
    return "new"


def _split_cjk(token: Token, question: Question) -> list[Piece]:
    """The parts of a run of characters: two or more of the question's, particles, and the rest."""
    run, pieces, at, begin = token.text, list[Piece](), 0, 0
    particles = question.lexicon.cjk_common
    while at <= len(run):
        end = at
        while end < len(run) and end - at < 30 and run[at : end + 1] in question.asking:
            end += 1
        if end - at < 2 and at < len(run):
            at += 1
            continue
        for match in particles.finditer(run, begin, at):
            pieces += [_cut(token, begin, match.start(), "new"), _cut(token, *match.span(), "common")]
            begin = match.end()
        pieces += [_cut(token, begin, at, "new"), _cut(token, at, end, "question")]
        if at == len(run):
            break
        at = begin = end
    return [piece for piece in pieces if piece.text]


def _cut(token: Token, begin: int, end: int, label: str) -> Piece:
    text = token.text[begin:end]
    return Piece("cjk", text, text, token.begin + begin, token.begin + end, label)


def holds_cjk(words: frozenset[str], text: str) -> bool:
    """Whether a Chinese or Japanese text holds one of some words."""
    return bool(text) and any(word in text for word in words if not word[0].isascii())
