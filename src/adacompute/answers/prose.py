"""Reads the answers of several replies to one question by comparing them, in any language.

What a reply repeats of the question is phrasing, and so are a language's common words; what is left over is
its answer. `read_prose` decides by all replies together which form the answers have (one of the question's
alternatives, yes or no, a date, a number, words), reads each reply in that form, and merges the answers in
words that differ in nothing but phrasing. A wrong merge is worse than a wrong split: two answers are one only
if what one says beyond the other carries nothing. A reply that can't be compared abstains.

Every scan is linear in the reply, of which only the ends are read.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from adacompute.answers.quantity import (
    drop_brackets,
    find_date,
    find_quantity,
    find_solution,
    has_new_number,
    is_unit,
    mask_denied,
)
from adacompute.answers.question import Options, Question, shares_stem
from adacompute.answers.words import (
    Lexicon,
    Token,
    WordFrequencies,
    drop_last_sentence,
    split_clauses,
    split_sentences,
)

__all__ = ["Reading", "Reply", "abstains", "find_option", "read_prose"]

HEAD, TAIL = 800, 1_600  # characters of the beginning and the end of a reply that are read
SHORT_REPLY = 400  # characters of a reply that answers in a few sentences; a longer one is prose
_PHRASE_WORDS = 8  # words of an answer
_ITEM_WORDS = 4  # words of a list's item
_LIST_ITEMS = 12
_PROSE_WORDS = 3  # new words beside the answer, in a sentence of a long reply
_BARE_WORDS = 6  # words of a reply that repeats nothing of the question
_UNCLEAR_WORDS = 4  # the same, where it is unclear whether anything was asked
_FIRST_SENTENCES = 4  # sentences in which a reply may say that it can't tell
_SURE = 0.5  # a reading that is less sure than this counts only beside others


class Reading(NamedTuple):
    """The answer of a reply, and how sure it is that the reply means it, from 0 to 1."""

    answer: str | None
    sure: float = 1.0


SILENT = Reading(None)

_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_MARKS = str.maketrans(
    {
        **dict.fromkeys("*`", ""),
        **dict.fromkeys("“”«»„", '"'),
        **dict.fromkeys("’‘ʼ", "'"),
        "\u00a0": " ",
        "\u202f": " ",
    }
    | {chr(0xFF10 + digit): str(digit) for digit in range(10)}
    | {"，": "，", "！": "！", "．": "."}
)
_LEADING_MARKS = re.compile(r"^(?:[\s#>•_\"]|-(?!\d)){1,9}")
_THOUGHT = re.compile(r"^\s{0,9}(?:thoughts?|final answer|answer)\s?:\s{0,3}", re.IGNORECASE | re.MULTILINE)
_BULLET = re.compile(r"^\s{0,9}(?:[-*•]|\d{1,2}[.)])\s{1,4}(.{1,80})$", re.MULTILINE)
_ENDS_ASKING = re.compile(r"[?？][\s*_)\"'”」]{0,9}\Z")
_LETTERS = re.compile(r"[^\W\d_]")


class Reply:
    """A reply without its marks, as sentences that state something."""

    def __init__(self, text: str, question: Question, *, finished: bool = True) -> None:
        self.question = question
        self.text = _clean(text)
        self.is_long = len(self.text) > SHORT_REPLY
        self.finished = finished
        whole = self.text if finished else drop_last_sentence(self.text[:SHORT_REPLY])
        lexicon = question.lexicon
        said = [s for s in split_sentences(whole) if _LETTERS.search(s) or any(map(str.isdigit, s))]
        offer = lexicon.find("offer")
        self.said = [
            s for s in said if not _ENDS_ASKING.search(s) and not (len(said) > 1 and offer.search(s))
        ]
        self.sentences = _select_stating(self.said, question)  # without politeness, and "I'm not sure, but"
        first = self.said[:_FIRST_SENTENCES]
        self.abstains = not self.sentences and any(_cant_tell(s, question) for s in first)
        if not finished and self.is_long:  # it may conclude otherwise
            self.sentences = self.sentences[:1]

    @cached_property
    def asserted(self) -> list["Sentence"]:
        """The sentences with their words."""
        return [Sentence(text, self.question) for text in self.sentences]


def _clean(text: str) -> str:
    if len(text) > HEAD + TAIL:
        text = text[:HEAD] + "\n" + text[-TAIL:]
    outside = _FENCE.sub("\n", text)
    fences = _FENCE.findall(text)
    if not outside.strip() and len(fences) == 1:
        outside = fences[0]
    outside = _THOUGHT.sub("", _join_items(outside).translate(_MARKS))
    return _LEADING_MARKS.sub("", outside).strip()


def _join_items(text: str) -> str:
    """A list with an item on each line as one sentence."""
    items = [item.strip(" .*,;") for item in _BULLET.findall(text)] if "\n" in text else []
    if not 2 <= len(items) <= _LIST_ITEMS or any(len(item.split()) > _ITEM_WORDS for item in items):
        return text
    first = _BULLET.search(text)
    before = text[: first.start()].strip() if first is not None else ""
    return f"{before} {', '.join(items)}" if len(before) < SHORT_REPLY else text


def abstains(reply: str, question: Question) -> bool:
    """Whether a reply says that it can't tell, or won't, and makes no guess."""
    return Reply(reply[:SHORT_REPLY], question).abstains


def _select_stating(sentences: list[str], question: Question) -> list[str]:
    """The sentences that may answer: not those that are polite only, nor those that say they can't tell."""
    lexicon = question.lexicon
    selected: list[str] = []
    silent = False
    for at, sentence in enumerate(sentences):
        if not selected and _is_polite(sentence, question):
            continue
        if at < _FIRST_SENTENCES and _cant_tell(sentence, question):
            if selected:
                break
            _, *guess = lexicon.compile(
                "turn", lambda: rf"[,;，]?\s?(?:{lexicon.find('but').pattern})[,，]?\s?"
            ).split(sentence, maxsplit=1)
            if guess and not _cant_tell(guess[0], question):
                return [guess[0]]
            silent = True
        elif not silent or lexicon.find("guess").match(sentence):
            selected.append(sentence)
        else:
            break
    return selected


def _is_polite(sentence: str, question: Question) -> bool:
    rest = question.lexicon.find("polite").sub(" ", sentence)
    return rest != sentence and not _LETTERS.search(rest) and not any(map(str.isdigit, rest))


def _cant_tell(sentence: str, question: Question) -> bool:
    lexicon = question.lexicon
    if lexicon.find("unsure").search(sentence):
        return True
    rest = lexicon.find("silent").sub("", sentence)
    return rest != sentence and not _LETTERS.search(rest)


class Piece(NamedTuple):
    """A word of a sentence, or a part of a run of Chinese or Japanese."""

    token: Token
    label: str  # "question", "common", "number" or "new"

    @property
    def is_name(self) -> bool:
        """Whether it is written as a name, or in a script without capitals."""
        return self.token.kind == "cjk" or not self.token.text.islower()


Run = list[Piece]


class Clause(NamedTuple):
    """A part of a sentence between commas."""

    begin: int
    text: str
    pieces: list[Piece]


class Sentence:
    """A sentence, its words labelled by what they are to the question."""

    def __init__(self, text: str, question: Question) -> None:
        self.text = drop_brackets(text)
        self.question = question

    @cached_property
    def tokens(self) -> tuple[Token, ...]:
        """Its words and numbers."""
        return self.question.tokenize(self.text)

    @cached_property
    def pieces(self) -> list[Piece]:
        """Its words with their labels. The question's words count once: what is repeated is new."""
        question, left = self.question, Counter(self.question.words)
        exact = set()
        for at, token in enumerate(self.tokens):
            if left[token.key] > 0 and token.kind == "word" and token.key not in question.lexicon.common:
                left[token.key] -= 1
                exact.add(at)
        pieces: list[Piece] = []
        for at, token in enumerate(self.tokens):
            if token.kind == "cjk":
                pieces += _split_cjk(token, question)
            elif token.kind == "number":
                pieces.append(Piece(token, "number"))
            elif at in exact:
                pieces.append(Piece(token, "question"))
            elif 0 < at == len(self.tokens) - 1 and token.text[0].isupper():
                pieces.append(Piece(token, "new" if token.key in question.lexicon.common else _label_word(token, question, left)))
            else:
                pieces.append(Piece(token, _label_word(token, question, left)))
        return pieces

    @cached_property
    def clauses(self) -> list[Clause]:
        """Its parts between commas, colons and dashes."""
        return [
            Clause(begin, self.text[begin:end], [p for p in self.pieces if begin <= p.token.begin < end])
            for begin, end in split_clauses(self.text)
        ]

    @cached_property
    def mentions(self) -> list["_Mention"]:
        """Where it names the question's alternatives."""
        return _find_mentions(self.text, self.question)

    def repeats(self, words: Iterable[str]) -> bool:
        """Whether it has one of some words of the question."""
        hits = [p.token.key for p in self.pieces if p.label == "question"]
        return any(self.question.is_form(hit, word) for hit in hits for word in words)


def _label_word(token: Token, question: Question, left: Counter[str]) -> str:
    lexicon, key = question.lexicon, token.key
    if key in lexicon.common or (key in lexicon.question_words):
        return "common"
    base = lexicon.find_base(key)
    for word, count in left.items():
        if (
            count > 0
            and word not in lexicon.common
            and (base == lexicon.find_base(word) or shares_stem(key, word))
        ):
            left[word] -= 1
            return "question"
    return "new"


def _split_cjk(token: Token, question: Question) -> list[Piece]:
    """The parts of a run of characters: the question's, particles, and the rest."""
    run, asked = token.text, question.asking
    pieces: list[Piece] = []
    at = begin = 0
    while at <= len(run):
        end = at
        while end < len(run) and end - at < 30 and run[at : end + 1] in asked:
            end += 1
        if end - at >= 2 or at == len(run):
            pieces += _split_particles(token, begin, at, question)
            if at == len(run):
                break
            pieces.append(_make_part(token, at, end, "question"))
            at = begin = end
        else:
            at += 1
    return pieces


def _split_particles(token: Token, begin: int, end: int, question: Question) -> list[Piece]:
    pieces = []
    at = begin
    for match in question.lexicon.cjk_common.finditer(token.text, begin, end):
        if match.start() > at:
            pieces.append(_make_part(token, at, match.start(), "new"))
        pieces.append(_make_part(token, match.start(), match.end(), "common"))
        at = match.end()
    if end > at:
        pieces.append(_make_part(token, at, end, "new"))
    return pieces


def _make_part(token: Token, begin: int, end: int, label: str) -> Piece:
    text = token.text[begin:end]
    return Piece(Token("cjk", text, text, token.begin + begin, token.begin + end), label)


# Yes or no


class _Verdict(NamedTuple):
    agrees: bool
    stated: bool  # by a statement about the question, rather than by "yes" or "no"
    strong: bool = True


def read_verdict(reply: Reply, question: Question) -> Reading:
    """Yes or no. What is stated beats the word that opens: "Ja, 51 ist keine Primzahl" is a no, less surely."""
    sentences = reply.asserted
    if not sentences:
        return SILENT
    first = _judge_sentence(sentences[0], question, alone=len(sentences) == 1)
    if first is not None and not first[0].stated and len(sentences) > 1:
        second = _judge_sentence(sentences[1], question, alone=False)
        if second is not None and second[0].stated and second[0].agrees != first[0].agrees:
            first = second[0], 0.4  # "はい。105は素数ではありません。"
    if first is None:
        later = [_judge_sentence(s, question, alone=False) for s in sentences[1:]]
        known = [verdict for verdict in later if verdict is not None and verdict[0].stated]
        first = known[-1] if known else next((verdict for verdict in later if verdict is not None), None)
    if first is None:
        return SILENT
    verdict, sure = first
    words = ("True", "False") if question.asks_truth else ("Yes", "No")
    return Reading(words[0 if verdict.agrees else 1], sure)


def _judge_sentence(sentence: Sentence, question: Question, *, alone: bool) -> tuple[_Verdict, float] | None:
    if question.lexicon.find("idiom").search(sentence.text):
        return None
    verdicts = [
        v for clause in sentence.clauses if (v := _judge_clause(clause, question, alone=alone)) is not None
    ]
    supposes = question.lexicon.find("suppose").search(sentence.text) is not None
    stated = [] if question.negated or supposes else [v for v in verdicts if v.stated]
    opened = [v for v in verdicts if not v.stated and v.strong]
    said = opened or [v for v in verdicts if not v.stated]
    if len({v.agrees for v in opened}) > 1:
        return None  # "No, wait, yes."
    if not stated:
        return (said[-1], 1.0) if said else None
    agrees = stated[0].agrees
    contradicted = any(v.agrees != agrees for v in opened) or len({v.agrees for v in stated}) > 1
    return stated[0], 0.4 if contradicted else 1.0


def _judge_clause(clause: Clause, question: Question, *, alone: bool) -> _Verdict | None:
    lexicon = question.lexicon
    tokens = [p.token for p in clause.pieces]
    cjk = "".join(t.text for t in tokens if t.kind == "cjk")
    keys = [t.key for t in tokens if t.kind == "word"]
    negated_at = [at for at, t in enumerate(tokens) if t.key in lexicon.negation]
    denied = bool(negated_at) or (bool(cjk) and _find_cjk(lexicon.negation, cjk))
    hits = [at for at, p in enumerate(clause.pieces) if _is_asked(p, question)]
    new = [at for at, p in enumerate(clause.pieces) if _is_beyond(p, question)]
    if hits and not _says_other(new, hits, clause, question):
        if cjk:
            return _Verdict(not denied, stated=True)
        first_hits = {clause.pieces[at].token.key: at for at in reversed(hits)}
        return _Verdict(not any(at < max(first_hits.values()) for at in negated_at), stated=True)
    if hits or new or any(t.kind == "number" and t.key not in question.numbers for t in tokens):
        if not (keys and keys[0] in lexicon.no | lexicon.yes and len(keys) == 1):
            return None
    agreeing = [key for key in keys if key in lexicon.yes] or (["cjk"] if _find_cjk(lexicon.yes, cjk) else [])
    refusing = [key for key in keys if key in lexicon.no] or (["cjk"] if _find_cjk(lexicon.no, cjk) else [])
    weak = all(key in lexicon.gather("weak") for key in agreeing)
    if denied or refusing:
        if agreeing and refusing and not weak and cjk == "":
            return None
        return _Verdict(agrees=False, stated=False)
    if agreeing:
        return _Verdict(agrees=True, stated=False, strong=not weak)
    bare = (
        alone
        and bool(keys)
        and all(key in lexicon.common for key in keys)
        and not lexicon.find("polite").fullmatch(clause.text.strip(" .!"))
    )
    return _Verdict(agrees=True, stated=False, strong=False) if bare else None


def _says_other(new: list[int], hits: list[int], clause: Clause, question: Question) -> bool:
    """Whether a clause says something else than is asked: new words before the last one asked, or without it.

    So it does if it compares the question's numbers the other way round.
    """
    numbers = [
        p.token.key for p in clause.pieces if p.token.kind == "number" and p.token.key in question.numbers
    ]
    if len(numbers) > 1 and numbers != [n for n in question.numbers if n in numbers]:
        return True
    complete = not question.content or any(
        _is_last_asked(clause.pieces[at].token.key, question) for at in hits
    )
    return any(at < hits[-1] for at in new) if complete else bool(new)


def _is_last_asked(key: str, question: Question) -> bool:
    """Whether a word is the last one of the question's, in this form or another: what is asked of its subject."""
    return any(question.is_form(key, word) for word in question.content[-1:])


def _is_asked(piece: Piece, question: Question) -> bool:
    if piece.token.kind == "cjk":
        return piece.label == "question" and not question.lexicon.cjk_common.fullmatch(piece.token.text)
    return piece.token.kind == "word" and question.asks_about(piece.token.key)


def _is_beyond(piece: Piece, question: Question) -> bool:
    """Whether a word is neither the question's nor common, nor says yes or no."""
    if piece.label != "new" or piece.token.key in question.lexicon.negation:
        return False
    key = piece.token.key
    if piece.token.kind == "cjk":
        return not _find_cjk(question.lexicon.yes | question.lexicon.no | question.lexicon.negation, key)
    return not (key in question.lexicon.yes or key in question.lexicon.no or question.has(key))


def _find_cjk(words: frozenset[str], text: str) -> bool:
    return any(word in text for word in words if not word[0].isascii()) if text else False


# One of the question's alternatives


def find_option(text: str, options: Options) -> str | None:
    """The letter of the only option whose words a text holds; for alternatives, the position of the only one."""
    words = " " + " ".join(_find_words(text)) + " "
    matches: list[tuple[str, str]] = []
    for at, (letter, option) in enumerate(options):
        option_words = " " + " ".join(_find_words(option)) + " "
        if option_words.strip() and option_words in words:
            matches.append((letter or str(at), option_words))
    longest = [
        letter for letter, own in matches if not any(own != other and own in other for _, other in matches)
    ]
    return longest[0] if len(longest) == 1 else None


_OPTION_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*|[-−+](?=\d)|[/%°]")
_ARTICLES = ("a", "an", "the")


def _find_words(text: str) -> list[str]:
    return [word.casefold() for word in _OPTION_WORD.findall(text) if word.casefold() not in _ARTICLES]


_BOTH_WORDS = 10  # words of a sentence that says "both" or "neither"


class _Mention(NamedTuple):
    option: int
    begin: int
    end: int


def read_alternative(reply: Reply, question: Question) -> Reading:
    """The alternative that a reply chooses: the last sentence that names one, and says nothing against it."""
    chosen: list[str] = []
    unclear = False
    for sentence in reversed(reply.asserted):
        if question.lexicon.find("suppose").match(sentence.text):
            continue
        choice = _choose_alternative(sentence, question)
        unclear = unclear or choice == ""
        if choice:
            chosen.append(choice)
            if reply.is_long:  # it ends in what it concludes
                break
    if not chosen:
        return SILENT
    return Reading(chosen[0], 0.4 if len(set(chosen)) > 1 else 0.6 if unclear else 1.0)


def _choose_alternative(sentence: Sentence, question: Question) -> str | None:
    """The alternative that a sentence chooses; "" if it names some but chooses none, None if it names none."""
    lexicon, mentions = question.lexicon, sentence.mentions
    asked = [p for p in sentence.pieces if _is_asked(p, question) and not _is_in(p, mentions)]
    compares = bool(asked) or _SIGN.search(sentence.text) is not None or _shares_character(sentence, question)
    for name in ("neither", "both"):
        if lexicon.find(name).search(sentence.text) and len(sentence.tokens) <= _BOTH_WORDS and not compares:
            return name
    if not mentions:
        return None
    told = sentence.text if question.negated else mask_denied(sentence.text, lexicon, clauses=True)
    stated = [m for m in mentions if told[m.begin : m.end].strip() and not _is_compared(told, m, lexicon)]
    if not stated or not _fits_alternatives(sentence, asked, question):
        return ""
    deciding = [m for m in stated if _is_alone(m, stated, sentence)] or stated
    options = list(dict.fromkeys(m.option for m in deciding))
    if len(options) > 1 and not compares:
        return ""
    chosen = stated[-1].option if len(options) > 1 and len(stated) > 2 else options[0]
    return question.alternatives[chosen]  # the last of "between A and B, B is larger"


def _find_mentions(text: str, question: Question) -> list[_Mention]:
    """Where the alternatives are named, the longer ones of two at one place."""
    mentions: list[_Mention] = []
    tokens = question.tokenize(text)
    for at, option in enumerate(question.alternatives):
        words = question.tokenize(option)
        if words and words[0].kind == "cjk":
            mentions += [_Mention(at, m.start(), m.end()) for m in re.finditer(re.escape(option), text)]
            continue
        alone = len(words) == 1
        for first, token in enumerate(tokens):
            if not words or not _is_same(token, words[0], alone=alone):
                continue
            own = tokens[first : first + len(words)]
            if [t.key for t in own[1:]] == [word.key for word in words[1:]]:
                mentions.append(_Mention(at, own[0].begin, own[-1].end))
    return sorted(
        (m for m in mentions if not any(o != m and o.begin <= m.begin and m.end <= o.end for o in mentions)),
        key=lambda mention: mention.begin,
    )


def _is_same(token: Token, word: Token, *, alone: bool) -> bool:
    if token.kind != word.kind:
        return False
    return token.key == word.key or (alone and word.kind == "word" and shares_stem(token.key, word.key))


_SIGN = re.compile("[><＞＜]")
_COMPARED_TO = r"\b(?:compared (?:to|with)|unlike|as opposed to)|[<＜]"


def _is_compared(text: str, mention: _Mention, lexicon: Lexicon) -> bool:
    """Whether an alternative is only what the other is compared with: "than the Moon", 「月より」."""
    if text[mention.end : mention.end + 6].lstrip("の方はも ").startswith("より"):
        return True
    links = "|".join(sorted(map(re.escape, lexicon.links))) or "(?!)"
    than = lexicon.compile(
        "than at the end", lambda: rf"(?:{lexicon.find('than').pattern}|{_COMPARED_TO})\s(?:{links})?\s?$"
    )
    return than.search(text[: mention.begin][-25:]) is not None


def _is_alone(mention: _Mention, mentions: list[_Mention], sentence: Sentence) -> bool:
    """Whether a clause that says what is asked names only this one."""
    for clause in sentence.clauses:
        end = clause.begin + len(clause.text)
        if clause.begin <= mention.begin < end:
            asked = any(_is_asked(p, sentence.question) and not _is_in(p, mentions) for p in clause.pieces)
            return asked and sum(clause.begin <= m.begin < end for m in mentions) == 1
    return False


def _is_in(piece: Piece, mentions: Sequence[_Mention]) -> bool:
    return any(m.begin <= piece.token.begin < m.end for m in mentions)


def _shares_character(sentence: Sentence, question: Question) -> bool:
    """Whether a Chinese or Japanese comparison has a character of the question's: 大 of 更大."""
    asked = {c for t in question.tokenize(question.asking) if t.kind == "cjk" for c in t.text}
    asked -= set("の和与と哪个更では、どちらが是还比はがいですか")
    return any(c in asked for p in sentence.pieces if p.token.kind == "cjk" for c in p.token.text)


def _fits_alternatives(sentence: Sentence, asked: list[Piece], question: Question) -> bool:
    """Whether a sentence says what the question asks, or nothing beside the alternatives that it names.

    If it names several, a new word before one of them may say something else of it: "and release oxygen".
    """
    mentions = sentence.mentions
    words = (p for p in sentence.pieces if p.label == "new" and p.token.kind == "word")
    new = [p.token for p in words if not _is_in(p, mentions) and p.token.key not in question.context]
    if len({m.option for m in mentions}) == 1:
        return not new or bool(asked) or not question.focus
    other = any(token.begin < mentions[-1].begin and token.text[0].islower() for token in new)
    return not new or (bool(asked) and len(new) == 1 and not other)


# Words


class Words(NamedTuple):
    """An answer in words, with the keys by which it is compared, and others that its sentence offers."""

    answer: str
    keys: tuple[str, ...]
    sure: float
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()
    others_new: int = 0  # new words of its sentence beside it


def read_words(reply: Reply, question: Question) -> Words | None:
    """The name or phrase that a reply says beyond the question, in the sentence that answers it."""
    denied = False
    best: Words | None = None
    sentences = reply.asserted
    on_point = [s for s in sentences if s.repeats(question.focus | {question.category})]
    for sentence in sentences:
        if sentence not in on_point and on_point and any(p.label == "question" for p in sentence.pieces):
            continue  # it is about the subject, and another says what is asked of it
        if reply.is_long and sentence not in on_point:
            continue
        if sentence not in on_point and _tells_kind(sentence, question):
            return None
        words = _read_sentence(sentence, question, alone=len(sentences) == 1)
        if words is not None and reply.is_long and words.others_new > _PROSE_WORDS:
            continue
        if words is None:
            denied = denied or _denies(sentence.text, question)
            if not denied and sentence is not sentences[0] and not reply.is_long:
                break
            continue
        is_name = words.answer[:1].isupper() or not words.answer[:1].isascii()
        if denied and not is_name:
            return None
        if is_name or len(on_point) < 2:
            return words
        best = best or words
    return best


def _tells_kind(sentence: Sentence, question: Question) -> bool:
    """Whether a sentence only says what kind of thing the question's subject is: "Peru is a country"."""
    kind = question.lexicon.find("kind").search(sentence.text)
    if kind is None:
        return False
    before = [p for p in sentence.pieces if p.token.begin < kind.start()]
    return any(p.label == "question" for p in before) and not any(p.label == "new" for p in before)


def _denies(text: str, question: Question) -> bool:
    return not question.negated and mask_denied(text, question.lexicon) != text


def _read_sentence(sentence: Sentence, question: Question, *, alone: bool) -> Words | None:
    if alone and (title := _read_title(sentence)) is not None:
        return title
    clauses = _select_clauses(sentence, question)
    if not clauses:
        return _read_bare(sentence, question) if alone and not _denies(sentence.text, question) else None
    ranked = sorted(clauses, key=lambda clause: -_rank_clause(clause, question))
    clause = ranked[0]
    runs = _rank_runs(clause, question)
    run = runs[0]
    hits = any(p.label == "question" for p in sentence.pieces)
    listed = _spell_list(run, clause, sentence, question)
    if not question.purpose and not hits and (not alone or len(sentence.tokens) > _UNCLEAR_WORDS):
        return None
    if listed is None and not hits and not _is_bare(clause, runs, question):
        return _read_phrase(clause, sentence, question) if alone else None
    answer, keys = listed or (_spell_run(run, sentence.text, question), _list_keys(run, question))
    if (
        not answer
        or len(answer.split()) > (_PHRASE_WORDS if "," not in answer else 4 * _PHRASE_WORDS)
        or not keys
    ):
        return None
    others = [(_spell_run(other, sentence.text, question), _list_keys(other, question)) for other in runs[1:]]
    for rest in ranked[1:]:
        others += [
            (_spell_run(o, sentence.text, question), _list_keys(o, question))
            for o in _rank_runs(rest, question)
        ]
    sure = 1.0 if len(runs) == 1 and (hits or len(ranked) == 1) else 0.7
    others_new = sum(p.label == "new" for p in sentence.pieces) - len(keys)
    rivals = hits and run[0].is_name and any(_rivals(other, clause, question) for other in runs[1:])
    if rivals or (not hits and not run[0].is_name and not alone) or others_new > _REMARK_WORDS - 2:
        sure = 0.4
    return Words(answer, keys, sure, tuple(o for o in others if o[1]), others_new)


def _is_bare(clause: Clause, runs: list[Run], question: Question) -> bool:
    """Whether a clause that repeats nothing of the question may be the answer itself: "I think it's Hanoi"."""
    if len(runs) > 1 or len(runs[0]) > _BARE_WORDS or len(clause.pieces) > _REMARK_WORDS:
        return False
    end = runs[0][-1].token.end
    after = [p.token.key for p in clause.pieces if p.token.begin >= end]
    return not any(key in question.lexicon.copula for key in after[:-1]) and len(after) <= _BARE_WORDS


def _read_phrase(clause: Clause, sentence: Sentence, question: Question) -> Words | None:
    """All of a reply of a few words: "on the border of Nepal and China"."""
    pieces = clause.pieces
    if len(pieces) > _BARE_WORDS + 2 or any(p.token.key in question.lexicon.copula for p in pieces):
        return None
    new = [p for p in pieces if p.label == "new"]
    answer = sentence.text[new[0].token.begin : new[-1].token.end]
    return Words(answer, tuple(p.token.key for p in new), 0.6) if question.purpose else None


_REMARK_WORDS = 10  # words of a clause that answers without repeating anything of the question
_TITLE_WORDS = 3  # capitals of a reply that is all a title: "No Country for Old Men"


def _read_title(sentence: Sentence) -> Words | None:
    """All of a reply that is written as a title, with a common word at its beginning."""
    pieces = sentence.pieces
    capitals = [p for p in pieces if p.is_name and p.token.kind == "word"]
    plain = [p for p in pieces if p not in capitals and p.token.key not in sentence.question.lexicon.links]
    if len(capitals) < _TITLE_WORDS or plain or len(pieces) > _PHRASE_WORDS or "," in sentence.text:
        return None
    if any(p.label == "question" for p in pieces) or pieces[0].token.key not in sentence.question.lexicon.no:
        return None
    return Words(sentence.text.strip(" .!\"'"), tuple(p.token.key for p in pieces), 0.9)


def _select_clauses(sentence: Sentence, question: Question) -> list[Clause]:
    """The clauses that say something new: without what is denied, or believed by others."""
    lexicon = question.lexicon
    selected = []
    skip_to = 0
    but = lexicon.find("but")
    for clause in sentence.clauses:
        pieces = [p for p in clause.pieces if p.token.begin >= skip_to]
        if lexicon.find("belief").search(clause.text):
            turn = but.search(clause.text)
            if turn is None:
                continue
            pieces = [p for p in pieces if p.token.begin >= clause.begin + turn.end()]
        negation = None if question.negated else _find_negation(pieces, question)
        if negation is not None:
            turn = but.search(sentence.text, negation.end, clause.begin + len(clause.text))
            pieces = [p for p in pieces if p.token.begin >= turn.end()] if turn is not None else []
        if any(p.label == "new" for p in pieces):
            selected.append(Clause(clause.begin, clause.text, pieces))
        elif lexicon.find("now").match(clause.text.strip()):
            selected.clear()
    now = [c for c in selected if lexicon.find("now").match(c.text.strip())]
    return (
        now[-1:]
        if now and len(selected) > 1 and now[-1] is selected[-1] and _ENDED.search(sentence.text)
        else selected
    )


_ENDED = re.compile(r"\b(?:until|was|were|bis|war|jusqu|hasta|fino|до|был)\b", re.IGNORECASE)


def _find_negation(pieces: list[Piece], question: Question) -> Token | None:
    words = question.lexicon.negation
    for at, piece in enumerate(pieces):
        token = piece.token
        if token.kind == "cjk" and piece.label != "question" and _find_cjk(words, token.text):
            return token
        following = pieces[at + 1].token.text if at + 1 < len(pieces) else ""
        if token.key in words and (token.text[0].islower() or following[:1].islower() or token.key == "not"):
            if len(pieces) > 1:
                return token
    return None


def _rank_clause(clause: Clause, question: Question) -> float:
    focus = question.focus | {question.category}
    hits = [p.token.key for p in clause.pieces if p.label == "question"]
    on_point = any(question.is_form(hit, word) for hit in hits for word in focus)
    opens = bool(clause.pieces) and clause.pieces[0].token.key in question.lexicon.copula
    remark = _REMARK.match(clause.text) is not None
    return 2.0 * on_point + 1.0 * opens - 1.5 * remark


_REMARK = re.compile(
    r"\s?(?:which|who|where|with|located|known|because|since|as|but|although|while|beating|making"
    r"|die|der|das|welche|wo|weil|da|aber|qui|où|car|mais|que|donde|porque|pero|che|dove|perché|ma|который|где|но)\b",
    re.IGNORECASE,
)


def _find_runs(clause: Clause, question: Question) -> list[Run]:
    """The runs of new words in a clause, with the small words inside a name: "Rio de Janeiro"."""
    runs: list[Run] = []
    pending: list[Piece] = []
    for piece in clause.pieces:
        if piece.label == "new" or (
            piece.label == "common" and _is_capital_inside(piece, clause, runs, pending)
        ):
            adjacent = runs and _are_joined(runs[-1], pending, piece, question)
            if adjacent:
                runs[-1] += [*pending, piece]
            else:
                runs.append([piece])
            pending = []
        else:
            pending.append(piece)
    runs = [run for run in runs if any(p.label == "new" for p in run)]
    types = question.lexicon.types
    named = [run for run in runs if not all(p.token.key in types and p.token.text.islower() for p in run)]
    return named or runs


def _is_capital_inside(piece: Piece, clause: Clause, runs: list[Run], pending: list[Piece]) -> bool:
    """Whether a common word is a part of a name, by its capital right after another: "Mexico City"."""
    text = piece.token.text
    return (
        bool(runs)
        and not pending
        and len(text) > 1
        and text[0].isupper()
        and runs[-1][-1].token.text[0].isupper()
    )


def _are_joined(run: Run, between: list[Piece], piece: Piece, question: Question) -> bool:
    gap = piece.token.begin - run[-1].token.end
    if piece.token.kind == "cjk" or run[-1].token.kind == "cjk":
        return not between and gap == 0
    if not between:
        return gap <= 2
    if len(between) > 2 or not all(p.token.key in question.lexicon.links for p in between):
        return False
    joints = question.lexicon.gather("and")
    names = run[-1].is_name and piece.is_name
    return all(p.label == "common" for p in between) and (
        names or (run[-1].is_name == piece.is_name and between[0].token.key in joints)
    )


def _rivals(run: Run, clause: Clause, question: Question) -> bool:
    """Whether another run may be the answer as well: a name that is no word of the question."""
    return run[0].is_name and not _is_inside(run, clause) and not all(question.has(p.token.key) for p in run)


def _is_inside(run: Run, clause: Clause) -> bool:
    """Whether a run stands between words of the question."""
    hits = [p.token.begin for p in clause.pieces if p.label == "question"]
    return bool(hits) and hits[0] < run[0].token.begin < hits[-1]


def _rank_runs(clause: Clause, question: Question) -> list[Run]:
    """The runs of a clause, the answer first: outside the question's words, then names, then as they come."""
    runs = [_extend_run(run, clause, question) for run in _find_runs(clause, question)]

    def rank(run: Run) -> tuple[bool, bool]:
        plain = not any(p.is_name for p in run) or all(p.token.key in question.context for p in run)
        return _is_inside(run, clause), plain

    return sorted(runs, key=rank)


def _extend_run(run: Run, clause: Clause, question: Question) -> Run:
    """A run with the question's names beside it: "Mexico City" where only "City" is new."""
    pieces = clause.pieces
    begin, end = pieces.index(run[0]), pieces.index(run[-1])
    while begin > 0 and _belongs(pieces[begin - 1], pieces[begin], question):
        begin -= 1
    while end + 1 < len(pieces) and _belongs(pieces[end + 1], pieces[end], question):
        end += 1
    return pieces[begin : end + 1]


def _belongs(piece: Piece, beside: Piece, question: Question) -> bool:
    if piece.token.kind != "word" or piece.label != "question" or piece.token.text.endswith(("'s", "’s")):
        return False
    gap = max(piece.token.begin - beside.token.end, beside.token.begin - piece.token.end)
    capital = piece.token.text[0].isupper() and beside.token.text[0].isupper()
    focus = question.focus | {question.category}
    return (
        gap == 1
        and capital
        and piece.token.key not in focus
        and not any(shares_stem(piece.token.key, w) for w in focus)
    )


def _strip_types(run: Run, question: Question) -> Run:
    """A run without a leading "city of", and a trailing "river" that the question has."""
    types = question.lexicon.types
    while len(run) > 1 and (run[0].token.key in types or run[0].label == "common"):
        run = run[1:]
    if len(run) > 1 and run[-1].token.key in types and question.has(run[-1].token.key):
        run = run[:-1]
    return run


def _spell_run(run: Run, text: str, question: Question) -> str:
    run = _strip_types(run, question)
    return _ELIDED.sub("", text[run[0].token.begin : run[-1].token.end].strip(" \"'.,;:!()"))


_ELIDED = re.compile(r"^[dlDL]'(?=\w)")


def _list_keys(run: Run, question: Question) -> tuple[str, ...]:
    kept = [p.token.key for p in _strip_types(run, question) if p.label != "common"]
    return tuple(kept)


_LIST_GAP = re.compile(r"\s?[,，、;]\s?")


def _spell_list(
    run: Run, clause: Clause, sentence: Sentence, question: Question
) -> tuple[str, tuple[str, ...]] | None:
    """The items of the list that a run is in, or a name with its qualifier: "Paris, Texas"."""
    every = sentence.pieces
    starts = [own for own in sentence.clauses if own.begin < clause.begin]
    earlier = [first for own in starts for first in _find_runs(own, question)]
    for first in [*earlier, run]:
        items, end = _collect_items(first, sentence, question)
        if any(run[0] in item for item in items):
            break
    joints = _count_joints(every[every.index(items[0][0]) : end], question)
    items = [part for item in items for part in _split_joint(_strip_types(item, question), question)]
    if len(items) < 2 or len(items) > _LIST_ITEMS or any(len(item) > _ITEM_WORDS for item in items):
        return None
    spelled = [_spell_run(item, sentence.text, question) for item in items]
    keys = tuple(key for item in items for key in _list_keys(item, question))
    if len(items) == 2 and not joints:
        names = items[0][0].is_name and items[1][0].is_name
        if names or len(every) > sum(map(len, items)):
            return (f"{spelled[0]} {spelled[1]}", keys) if names and end >= len(every) else None
    answer = ", ".join(spelled)
    return (f"({answer})" if question.asks_order else answer), keys


def _collect_items(run: Run, sentence: Sentence, question: Question) -> tuple[list[Run], int]:
    """The items of the list that begins with a run, and where it ends."""
    every = sentence.pieces
    items = [run]
    at = every.index(run[-1]) + 1
    while at < len(every):
        step = _read_item(every, at, items[-1][-1], sentence.text, question)
        if step is None:
            break
        item, at = step
        items.append(item)
    return items, at


def _read_item(
    pieces: list[Piece], at: int, previous: Piece, text: str, question: Question
) -> tuple[Run, int] | None:
    """The next item of a list, and where it ends."""
    is_and = pieces[at].token.key in question.lexicon.gather("and") and pieces[at].label == "common"
    start = at + 1 if is_and else at
    while (
        start < len(pieces)
        and pieces[start].label == "common"
        and pieces[start].token.key in question.lexicon.links
    ):
        start += 1
    if start >= len(pieces) or pieces[start].label != "new":
        return None
    gap = text[previous.token.end : pieces[start].token.begin]
    if not is_and and not _LIST_GAP.fullmatch(text[previous.token.end : pieces[at].token.begin]):
        return None
    if "." in gap or len(gap) > 12:
        return None
    end = start
    while (
        end < len(pieces)
        and pieces[end].label == "new"
        and (
            end == start
            or pieces[end].token.begin - pieces[end - 1].token.end <= (pieces[end].token.kind == "word")
        )
    ):
        end += 1
    if (
        pieces[start].token.kind == "word"
        and pieces[start].is_name != previous.is_name
        and previous.token.begin > 0
    ):
        return None
    return pieces[start:end], end


def _count_joints(run: Run, question: Question) -> int:
    return sum(p.token.key in question.lexicon.gather("and") for p in run)


def _split_joint(run: Run, question: Question) -> list[Run]:
    parts: list[Run] = [[]]
    for piece in run:
        if piece.token.key in question.lexicon.gather("and") and piece.label == "common":
            parts.append([])
        else:
            parts[-1].append(piece)
    return [part for part in parts if part]


_FEW_WORDS = 3


def _read_bare(sentence: Sentence, question: Question) -> Words | None:
    """All of a reply of a word or two, though the question has it: "German", "Mexico"."""
    lexicon = question.lexicon
    kept = [p for p in sentence.pieces if p.label != "common"] or sentence.pieces
    empty = lexicon.yes | lexicon.no | lexicon.negation
    if not kept or len(sentence.pieces) > _FEW_WORDS or any(p.token.key in empty for p in kept):
        return None
    if all(p.label == "common" for p in kept) and (
        len(kept) > 1 or lexicon.find("polite").search(sentence.text)
    ):
        return None
    answer = sentence.text[kept[0].token.begin : kept[-1].token.end].strip(" \"'.,;:!")
    return Words(answer, tuple(p.token.key for p in kept), 0.8) if answer else None


def merge_words(readings: list[Words | None], common: WordFrequencies | None = None) -> list[Reading]:
    """One spelling for the answers that differ in nothing that counts."""
    readings = [_settle(reading, readings) for reading in readings]
    keys = [frozenset(r.keys) if r is not None else frozenset() for r in readings]
    spelled: dict[frozenset[str], str] = {}
    for reading, own in zip(readings, keys, strict=True):
        if reading is not None and (own not in spelled or len(reading.answer) < len(spelled[own])):
            spelled[own] = reading.answer
    phrasing = _find_phrasing(set(spelled), common)
    cores = {own: frozenset(own - phrasing) or own for own in spelled}
    merged = []
    for reading, own in zip(readings, keys, strict=True):
        if reading is None:
            merged.append(SILENT)
            continue
        core = cores[own]
        same = core if core in spelled else own
        is_list = "," in reading.answer
        answer = reading.answer if is_list else spelled[same]
        merged.append(Reading(answer, reading.sure if same == own else min(reading.sure, 0.8)))
    return merged


def _settle(reading: Words | None, readings: list[Words | None]) -> Words | None:
    """An unsure reading as another answer that its sentence offers, if another reply gives just that one."""
    if reading is None or reading.sure == 1.0 or not reading.others:
        return reading
    given = Counter(
        frozenset(r.keys) for r in readings if r is not None and r is not reading and r.sure >= reading.sure
    )
    if given[frozenset(reading.keys)]:
        return reading
    offered = [other for other in reading.others if given[frozenset(other[1])]]
    if len({frozenset(keys) for _, keys in offered}) != 1:
        return reading
    return Words(offered[0][0], offered[0][1], 0.6)


def _find_phrasing(answers: set[frozenset[str]], common: WordFrequencies | None) -> frozenset[str]:
    """The words that come with different answers, or with answers to other prompts: they say nothing here."""
    cores: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for own in answers:
        for word in own:
            rest = own - {word}
            if rest in answers:
                cores[word].add(rest)
    known: set[str] = set()
    if common is not None:
        known = {word for own in answers for word in own if common.is_common(word)}
    return frozenset({word for word, rests in cores.items() if len(rests) > 1} | known)


# All replies together


def read_prose(
    texts: Sequence[str],
    question: Question,
    *,
    finished: Sequence[bool] | None = None,
    common: WordFrequencies | None = None,
) -> list[Reading]:
    """The answers of the replies, read in the form that most of them have."""
    ends = finished if finished is not None else [True] * len(texts)
    places = list(zip(texts, ends, strict=True))
    known = {place: Reply(place[0], question, finished=place[1]) for place in set(places)}
    replies = [known[place] for place in places]  # samples often repeat one another
    stating = [reply for reply in replies if reply.sentences]
    if not stating:
        return [SILENT] * len(texts)
    form = _choose_form(stating, question)
    if form == "words":
        words = {reply: read_words(reply, question) for reply in set(stating)}
        readings = merge_words([words.get(reply) for reply in replies], common)
    else:
        read = {reply: _READERS[form](reply, question) for reply in set(stating)}
        readings = [read.get(reply, SILENT) for reply in replies]
    if len(texts) == 1:
        return [reading if reading.sure >= _SURE else SILENT for reading in readings]
    readable = sum(reading.answer is not None for reading in readings)
    can_tell = sum(not reply.abstains and reply.finished for reply in replies)
    return readings if 2 * readable >= can_tell else [SILENT] * len(texts)


def _choose_form(replies: list[Reply], question: Question) -> str:
    half = len(replies) / 2
    times = Counter(replies)
    if question.form == "either":
        named = (times[r] for r in times if any(s.mentions for s in r.asserted))
        if sum(named) >= half or any(map(_says_both, replies)):
            return "either"
    if question.form in ("date", "number", "yes_no"):
        return question.form
    if not question.has_question_word and sum(times[r] for r in times if _opens_verdict(r, question)) > half:
        return "yes_no"
    return "number" if sum(times[r] for r in times if _is_numeric(r, question)) > half else "words"


def _says_both(reply: Reply) -> bool:
    lexicon = reply.question.lexicon
    return any(lexicon.find(name).search(reply.text[:60]) for name in ("both", "neither"))


def _opens_verdict(reply: Reply, question: Question) -> bool:
    """Whether a reply opens with yes or no, and says nothing beyond the question."""
    first = reply.asserted[0]
    verdict = _judge_clause(first.clauses[0], question, alone=False)
    return (
        verdict is not None and not verdict.stated and not any(_is_beyond(p, question) for p in first.pieces)
    )


def _is_numeric(reply: Reply, question: Question) -> bool:
    """Whether a reply's numbers, rather than its words, answer."""
    if not any(has_new_number(text, question) for text in reply.sentences):
        return False
    if question.numbers and question.purpose in ("value", ""):
        return True
    new = [
        p
        for s in reply.asserted
        for p in s.pieces
        if p.label == "new" and not is_unit(p.token.text, question)
    ]
    return not any(p.is_name for p in new) and len(new) <= _BARE_WORDS


def read_number(reply: Reply, question: Question) -> Reading:
    """The number at which a solution arrives, or that a fact is told by."""
    if not reply.finished:
        return SILENT
    if question.numbers:
        return Reading(find_solution(reply.sentences, question))
    if reply.is_long:
        return Reading(find_solution(reply.sentences, question), 0.8)
    found = find_quantity(reply.sentences, question)
    if found is None and len(reply.sentences) == 1 and not has_new_number(reply.text, question):
        words = _read_bare(reply.asserted[0], question) or read_words(reply, question)
        return Reading(words.answer) if words is not None and len(words.keys) <= _FEW_WORDS else SILENT
    return Reading(found)


def read_date(reply: Reply, question: Question) -> Reading:
    """The date that a reply states, or what it says instead."""
    date = find_date(reply.sentences, question)
    if date is not None or any(has_new_number(text, question) for text in reply.sentences):
        return Reading(date)
    words = read_words(reply, question)
    return Reading(words.answer, words.sure) if words is not None else SILENT


_READERS = {"either": read_alternative, "yes_no": read_verdict, "date": read_date, "number": read_number}
