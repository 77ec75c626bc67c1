"""Reads the answers of several replies to one question by comparing them, in any language.

`read_prose` decides by all replies together which form the answers have (one of the question's alternatives,
yes or no, a date, a number, words), reads each reply in that form, and merges the answers in words that
differ in nothing but phrasing. A wrong merge is worse than a wrong split: two answers are one only if what
one says beyond the other carries nothing. A reply that can't be compared abstains.

Of yes and no, what is stated beats the word that opens: "Ja, 51 ist keine Primzahl" is a no, less surely. Of
alternatives the one counts that isn't denied, nor what the other is compared with ("than the Moon").
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import NamedTuple

from adacompute.answers.quantity import Choice, find_date, find_quantity, find_solution, has_new_number, is_unit
from adacompute.answers.question import (
    Clause,
    Options,
    Piece,
    Question,
    ReplyText,
    Sentence,
    holds_cjk,
    shares_stem,
)
from adacompute.answers.words import Lexicon, Token, WordFrequencies, mask_denied

__all__ = ["SILENT", "ReadAnswer", "find_option", "read_prose"]

_PHRASE_WORDS = 8  # words of an answer
_ITEM_WORDS = 4  # words of a list's item
_LIST_ITEMS = 12
_LIST_GAP_LENGTH = 12  # characters between two items
_PROSE_WORDS = 3  # new words beside the answer, in a sentence of a long reply
_CLAUSE_WORDS = 10  # words of a clause that answers without repeating anything of the question
_BARE_WORDS = 6  # words of an answer that does so
_UNCLEAR_WORDS = 4  # the same, where it is unclear whether anything was asked
_FEW_WORDS = 3  # the same, where all of its words are common or the question's
_SURE = 0.5  # a reading that is less sure than this counts only beside others


class ReadAnswer(NamedTuple):
    """The answer of a reply, and how sure it is that the reply means it, from 0 to 1."""

    answer: str | None
    sure: float = 1.0


SILENT = ReadAnswer(None)
Run = list[Piece]


class Words(NamedTuple):
    """An answer in words, the keys by which it is compared, and others that its sentence offers."""

    answer: str
    keys: tuple[str, ...]
    sure: float = 1.0
    others: tuple[tuple[str, tuple[str, ...]], ...] = ()
    beside: int = 0  # new words of its sentence beside it


def read_words(reply: ReplyText) -> Words | None:
    """The name or phrase that a reply says beyond the question, in the sentence that answers it."""
    sentences, question = reply.asserted, reply.question
    focus = question.focus | {question.category}
    on_point = [sentence for sentence in sentences if sentence.repeats(focus)]
    best: Words | None = None
    denied = False
    for sentence in sentences:
        if sentence not in on_point:
            if reply.is_long or (on_point and sentence.hits):
                continue  # it is about the subject, and another says what is asked of it
        words = _read_sentence(sentence, alone=len(sentences) == 1)
        if words is None or (reply.is_long and words.beside > _PROSE_WORDS):
            denied = denied or _denies(sentence)
            if not denied and sentence is not sentences[0] and not reply.is_long:
                break
            continue
        is_name = words.answer[:1].isupper() or not words.answer[:1].isascii()
        is_off = bool(sentence.hits) and sentence not in on_point  # "Peru is a country in South America"
        if denied and not is_name:
            return None
        if is_off and words.beside > 0:
            words = words._replace(sure=_DOUBTFUL)
        if is_name or len(on_point) < 2:
            return words
        best = best or words
    return best


def _denies(sentence: Sentence) -> bool:
    question = sentence.question
    return not question.negated and mask_denied(sentence.text, question.lexicon) != sentence.text


def _read_sentence(sentence: Sentence, *, alone: bool) -> Words | None:
    question = sentence.question
    clauses = sorted(_select_clauses(sentence), key=lambda clause: -_rank_clause(clause, question))
    if not clauses or (alone and sentence.pieces[0].key in question.lexicon.no and _is_title(sentence)):
        return _read_bare(sentence) if alone else None
    ranked = [run for clause in clauses for run in _rank_runs(clause, question)]
    clause, run = clauses[0], ranked[0]
    runs = _rank_runs(clause, question)
    if not sentence.hits and not question.purpose and (not alone or len(sentence.pieces) > _UNCLEAR_WORDS):
        return None
    listed = _spell_list(run, sentence)
    if listed is None and not sentence.hits and not _is_bare(clause, runs, question):
        return _read_phrase(clause, sentence) if alone else None
    answer, keys = listed or _spell_run(run, sentence)
    if not keys or len(keys) > _PHRASE_WORDS * (4 if "," in answer else 1):
        return None
    beside = sum(p.label == "new" for p in sentence.pieces) - len(keys)
    clear = not sentence.hits or not run[0].is_name or _follows_copula(run, clause, question)
    rivals = not clear and any(_rivals(other, clause, question) for other in runs[1:])
    plain = not sentence.hits and not run[0].is_name and not alone
    sure = 1.0 if len(runs) == 1 and (sentence.hits or len(clauses) == 1) else 0.7
    others = tuple(_spell_run(other, sentence) for other in ranked[1:])
    return Words(answer, keys, 0.4 if rivals or plain or beside > _BARE_WORDS + 2 else sure, others, beside)


def _is_title(sentence: Sentence) -> bool:
    """Whether all words are written as in a title: "No Country for Old Men"."""
    words = [p for p in sentence.pieces if p.key not in sentence.question.lexicon.links]
    return len(words) > 2 and all(p.text[0].isupper() for p in words) and not sentence.hits


def _is_bare(clause: Clause, runs: list[Run], question: Question) -> bool:
    """Whether a clause that repeats nothing of the question may be the answer: "I think it's Hanoi"."""
    after = [p.key for p in clause.pieces if p.begin >= runs[0][-1].end]
    short = (
        len(runs) == 1
        and max(len(runs[0]), len(after)) <= _BARE_WORDS
        and len(clause.pieces) <= _CLAUSE_WORDS
    )
    return short and question.lexicon.copula.isdisjoint(after[:-1])


def _read_phrase(clause: Clause, sentence: Sentence) -> Words | None:
    """All of a reply of a few words: "on the border of Nepal and China"."""
    verbs = any(p.key in sentence.question.lexicon.copula for p in clause.pieces)
    if len(clause.pieces) > _BARE_WORDS + 2 or verbs or not sentence.question.purpose:
        return None
    new = [p for p in clause.pieces if p.label == "new"]
    return Words(sentence.text[new[0].begin : new[-1].end], tuple(p.key for p in new), 0.6)


def _read_bare(sentence: Sentence) -> Words | None:
    """All of a reply of a word or two though the question has it ("German"), or of a title."""
    lexicon, pieces = sentence.question.lexicon, sentence.pieces
    kept = [p for p in pieces if p.label != "common"] or pieces
    if _is_title(sentence):
        return Words(sentence.text.strip(" .!\"'"), tuple(p.key for p in pieces), 0.9)
    verdict = any(p.key in lexicon.yes | lexicon.no | lexicon.negation for p in kept)
    if not kept or len(pieces) > _FEW_WORDS or verdict or _denies(sentence):
        return None
    if kept is pieces and (len(kept) > 1 or lexicon.find("polite").search(sentence.text)):
        return None
    return Words(sentence.text[kept[0].begin : kept[-1].end], tuple(p.key for p in kept), 0.8)


def _select_clauses(sentence: Sentence) -> list[Clause]:
    """The clauses that say something new: without what is denied, or believed by others."""
    question, lexicon = sentence.question, sentence.question.lexicon
    selected = []
    for clause in sentence.clauses:
        begin, negation = clause.begin, None if question.negated else _find_negation(clause.pieces, question)
        if negation is not None or lexicon.find("belief").search(clause.text):
            turn = lexicon.find("but").search(sentence.text, negation.end if negation else begin, clause.end)
            begin = turn.end() if turn is not None else clause.end
        pieces = [p for p in clause.pieces if p.begin >= begin]
        if any(p.label == "new" for p in pieces):
            selected.append(clause._replace(pieces=pieces))
    last = selected[-1:]
    is_now = len(selected) > 1 and lexicon.find("now").match(last[0].text.strip())
    return last if is_now and lexicon.find("then").search(sentence.text) else selected


def _find_negation(pieces: list[Piece], question: Question) -> Piece | None:
    """The first word that denies something; a "No" before another capital is a part of a name."""
    words = question.lexicon.negation
    for piece, following in zip(pieces, [*pieces[1:], None], strict=False):
        if piece.kind == "cjk" and piece.label != "question" and holds_cjk(words, piece.text):
            return piece
        plain = piece.text[0].islower() or piece.key == "not" or (following and following.text[0].islower())
        if piece.key in words and plain and len(pieces) > 1:
            return piece
    return None


def _rank_clause(clause: Clause, question: Question) -> float:
    """Clauses that say what is asked come first, then those that begin with "is"; remarks come last."""
    hits = [p.key for p in clause.pieces if p.label == "question"]
    on_point = any(question.is_form(hit, w) for hit in hits for w in question.focus | {question.category})
    opens = bool(clause.pieces) and clause.pieces[0].key in question.lexicon.copula
    return 2.0 * on_point + opens - 1.5 * bool(question.lexicon.find("remark").match(clause.text.strip()))


def _find_runs(clause: Clause, question: Question) -> list[Run]:
    """The runs of new words in a clause, with the small words inside a name: "Rio de Janeiro"."""
    runs: list[Run] = []
    between: list[Piece] = []
    for piece in clause.pieces:
        capital = bool(runs) and not between and len(piece.text) > 1 and piece.text[0].isupper()
        if piece.label == "new" or (piece.label == "common" and capital and runs[-1][-1].text[0].isupper()):
            if runs and _are_joined(runs[-1], between, piece, question):
                runs[-1] += [*between, piece]
            else:
                runs.append([piece])
            between = []
        else:
            between.append(piece)
    types = question.lexicon.types
    named = [run for run in runs if not all(p.key in types and p.text.islower() for p in run)]
    return named or runs


def _are_joined(run: Run, between: list[Piece], piece: Piece, question: Question) -> bool:
    gap = piece.begin - run[-1].end
    if "cjk" in (piece.kind, run[-1].kind) or not between:
        return not between and gap <= (2 if piece.kind == run[-1].kind == "word" else 0)
    keys = [p.key for p in between]
    alike = run[-1].is_name == piece.is_name and (piece.is_name or keys[0] in question.lexicon.gather("and"))
    return len(between) <= 2 and question.lexicon.links.issuperset(keys) and alike


def _rivals(run: Run, clause: Clause, question: Question) -> bool:
    """Whether another run may be the answer as well: a name that is no word of the question."""
    return run[0].is_name and not _is_inside(run, clause) and not all(question.has(p.key) for p in run)


def _follows_copula(run: Run, clause: Clause, question: Question) -> bool:
    """Whether a run ends a clause, right after "is", which tells it from names before: "the word is Hund"."""
    before = clause.pieces[: clause.pieces.index(run[0])][-2:]
    return run[-1] is clause.pieces[-1] and any(p.key in question.lexicon.copula for p in before)


def _is_inside(run: Run, clause: Clause) -> bool:
    """Whether a run stands between words of the question."""
    hits = [p.begin for p in clause.pieces if p.label == "question"]
    return bool(hits) and hits[0] < run[0].begin < hits[-1]


def _rank_runs(clause: Clause, question: Question) -> list[Run]:
    """The runs of a clause, the answer first: outside the question's words, then names, then as they come."""
    runs = [_extend_run(run, clause, question) for run in _find_runs(clause, question)]

    def rank(run: Run) -> tuple[bool, bool, bool]:
        plain = not any(p.is_name for p in run) or all(p.key in question.context for p in run)
        return _is_inside(run, clause), plain, not _follows_copula(run, clause, question)

    return sorted(runs, key=rank)


def _extend_run(run: Run, clause: Clause, question: Question) -> Run:
    """A run with a name of the question's right before or after it: "Mexico City"."""
    pieces = clause.pieces
    begin, end = pieces.index(run[0]), pieces.index(run[-1]) + 1
    while begin > 0 and _belongs(pieces[begin - 1], pieces[begin], question):
        begin -= 1
    while end < len(pieces) and _belongs(pieces[end], pieces[end - 1], question):
        end += 1
    return pieces[begin:end]


def _belongs(piece: Piece, beside: Piece, question: Question) -> bool:
    gap = max(piece.begin - beside.end, beside.begin - piece.end)
    capital = piece.text[0].isupper() and beside.text[0].isupper() and not piece.text.endswith(("'s", "’s"))
    asked = any(question.is_form(piece.key, word) for word in question.focus | {question.category})
    return piece.kind == "word" and piece.label == "question" and gap == 1 and capital and not asked


def _strip_types(run: Run, question: Question) -> Run:
    """A run without a leading "city of", and a trailing "river" that the question has."""
    types = question.lexicon.types
    while len(run) > 1 and (run[0].key in types or run[0].label == "common"):
        run = run[1:]
    return run[:-1] if len(run) > 1 and run[-1].key in types and question.has(run[-1].key) else run


_ELIDED = re.compile(r"^[dlDL]'(?=\w)")


def _spell_run(run: Run, sentence: Sentence) -> tuple[str, tuple[str, ...]]:
    """A run as an answer, and the keys by which it is compared."""
    run = _strip_types(run, sentence.question)
    answer = sentence.text[run[0].begin : run[-1].end].strip(" \"'.,;:!()")
    return _ELIDED.sub("", answer), tuple(p.key for p in run if p.label != "common")


def _spell_list(run: Run, sentence: Sentence) -> tuple[str, tuple[str, ...]] | None:
    """The items of the list that a run is in, or a name with its qualifier: "Paris, Texas"."""
    question, every = sentence.question, sentence.pieces
    earlier = [first for c in sentence.clauses if c.end <= run[0].begin for first in _find_runs(c, question)]
    lists = [_collect_items(first, sentence) for first in [*earlier, run]]
    items, end = next(found for found in lists if any(run[0] in item for item in found[0]))
    joints = question.lexicon.gather("and")
    joined = any(p.key in joints for p in every[every.index(items[0][0]) : end])
    items = [part for item in items for part in _split_items(_strip_types(item, question), joints)]
    if not 1 < len(items) <= _LIST_ITEMS or any(len(item) > _ITEM_WORDS for item in items):
        return None
    spelled = [_spell_run(item, sentence) for item in items]
    keys = tuple(key for _, own in spelled for key in own)
    if len(items) == 2 and not joined:
        names = items[0][0].is_name and items[1][0].is_name
        if names or len(every) > sum(map(len, items)):
            return (f"{spelled[0][0]} {spelled[1][0]}", keys) if names and end >= len(every) else None
    answer = ", ".join(text for text, _ in spelled)
    return (f"({answer})" if question.asks_order else answer), keys


def _collect_items(run: Run, sentence: Sentence) -> tuple[list[Run], int]:
    """The items of the list that begins with a run, and where it ends."""
    items, every = [run], sentence.pieces
    at = every.index(run[-1]) + 1
    while at < len(every) and (item := _read_item(at, items[-1][-1], sentence)):
        items.append(item)
        at = every.index(item[-1]) + 1
    return items, at


_LIST_GAP = re.compile(r"\s?[,，、;]\s?")


def _read_item(at: int, previous: Piece, sentence: Sentence) -> Run:
    """The next item of a list; empty if the list ends."""
    pieces, lexicon = sentence.pieces, sentence.question.lexicon
    joined = pieces[at].key in lexicon.gather("and") and pieces[at].label == "common"
    if not joined and not _LIST_GAP.fullmatch(sentence.text[previous.end : pieces[at].begin]):
        return []
    rest = list(
        dropwhile(
            lambda p: p.label == "common" and p.key in lexicon.links | lexicon.gather("and"), pieces[at:]
        )
    )
    item: Run = []
    for piece in rest:
        if piece.label != "new" or (item and piece.begin - item[-1].end > (piece.kind == "word")):
            break
        item.append(piece)
    if not item or item[0].begin - previous.end > _LIST_GAP_LENGTH:
        return []
    alike = item[0].kind == "cjk" or item[0].is_name == previous.is_name or previous.begin == 0
    return item if alike else []


def _split_items(run: Run, joints: frozenset[str]) -> list[Run]:
    parts: list[Run] = [[]]
    for piece in run:
        if piece.label == "common" and piece.key in joints:
            parts.append([])
        else:
            parts[-1].append(piece)
    return [part for part in parts if part]


_DOUBTFUL = 0.4  # how sure a reply is that contradicts itself


class _Verdict(NamedTuple):
    agrees: bool
    stated: bool  # by a statement about the question, rather than by "yes" or "no"
    sure: float = 1.0


def read_verdict(reply: ReplyText) -> tuple[str | None, float]:
    """Yes or no, and how sure that is."""
    question = reply.question
    first, *others = reply.asserted
    verdict = _judge_sentence(first, alone=not others)
    if verdict is None:
        later = [v for sentence in others if (v := _judge_sentence(sentence)) is not None]
        verdict = next((v for v in reversed(later) if v.stated), later[0] if later else None)
    elif others and not verdict.stated:
        second = _judge_sentence(others[0])
        if second is not None and second.stated and second.agrees != verdict.agrees:
            verdict = second._replace(sure=_DOUBTFUL)  # "はい。105は素数ではありません。"
    if verdict is None:
        return None, 1.0
    words = ("False", "True") if question.asks_truth else ("No", "Yes")
    return words[verdict.agrees], verdict.sure


def _judge_sentence(sentence: Sentence, *, alone: bool = False) -> _Verdict | None:
    question, lexicon = sentence.question, sentence.question.lexicon
    if lexicon.find("idiom").search(sentence.text):
        return None
    verdicts = [v for clause in sentence.clauses if (v := _judge_clause(clause, question, alone=alone))]
    opened = {v.agrees for v in verdicts if not v.stated and v.sure == 1.0}
    if len(opened) > 1:
        return None  # "No, wait, yes."
    said = [v for v in verdicts if not v.stated and (v.sure == 1.0 or not opened)]
    stated = [v for v in verdicts if v.stated and not question.negated]
    if not stated or lexicon.find("suppose").search(sentence.text):
        return said[-1]._replace(sure=1.0) if said else None
    contradicted = len(opened | {v.agrees for v in stated}) > 1
    return stated[0]._replace(sure=_DOUBTFUL) if contradicted else stated[0]


def _judge_clause(clause: Clause, question: Question, *, alone: bool) -> _Verdict | None:
    """What a clause says by a statement, or by words that agree or refuse."""
    lexicon, pieces = question.lexicon, clause.pieces
    cjk = "".join(p.text for p in pieces if p.kind == "cjk")
    keys = [p.key for p in pieces if p.kind == "word"]
    negated = [at for at, p in enumerate(pieces) if p.key in lexicon.negation]
    denied = bool(negated) or holds_cjk(lexicon.negation, cjk)
    hits = {p.key: at for at, p in reversed(list(enumerate(pieces))) if is_asked(p, question)}
    beyond = [at for at, p in enumerate(pieces) if _is_beyond(p, question)]
    if hits and not _says_other(pieces, hits, beyond, question):
        return _Verdict(not (denied if cjk else any(at < max(hits.values()) for at in negated)), stated=True)
    counts = any(p.kind == "number" and p.key not in question.numbers for p in pieces)
    if (hits or beyond or counts) and not (len(keys) == 1 and keys[0] in lexicon.no | lexicon.yes):
        return None
    agreeing = [key for key in keys if key in lexicon.yes] or ["cjk"] * holds_cjk(lexicon.yes, cjk)
    refusing = not lexicon.no.isdisjoint(keys) or holds_cjk(lexicon.no, cjk)
    weak = lexicon.gather("weak").issuperset(agreeing)
    if denied or refusing:
        unclear = agreeing and refusing and not weak and not cjk
        return None if unclear else _Verdict(agrees=False, stated=False)
    if agreeing:
        return _Verdict(agrees=True, stated=False, sure=0.9 if weak else 1.0)
    bare = alone and bool(keys) and lexicon.common.issuperset(keys)  # "It is."
    polite = bare and lexicon.find("polite").fullmatch(clause.text.strip(" .!"))
    return _Verdict(agrees=True, stated=False, sure=0.9) if bare and not polite else None


def _says_other(pieces: list[Piece], hits: dict[str, int], beyond: list[int], question: Question) -> bool:
    """Whether a clause says something else than is asked: new words before the last one asked, or without it.

    So it does if it compares the question's numbers the other way round.
    """
    numbers = [p.key for p in pieces if p.kind == "number" and p.key in question.numbers]
    if len(numbers) > 1 and numbers != [number for number in question.numbers if number in numbers]:
        return True
    last = question.content[-1:]
    complete = not last or any(question.is_form(key, last[0]) for key in hits)
    return any(at < max(hits.values()) for at in beyond) if complete else bool(beyond)


def is_asked(piece: Piece, question: Question) -> bool:
    """Whether a word is one of those that the question asks about."""
    if piece.kind == "cjk":
        return piece.label == "question" and not question.lexicon.cjk_common.fullmatch(piece.text)
    return piece.kind == "word" and question.asks_about(piece.key)


def _is_beyond(piece: Piece, question: Question) -> bool:
    """Whether a word is neither the question's nor common, nor says yes or no."""
    lexicon = question.lexicon
    if piece.label != "new":
        return False
    words = lexicon.yes | lexicon.no | lexicon.negation
    return not (
        holds_cjk(words, piece.key) if piece.kind == "cjk" else piece.key in words or question.has(piece.key)
    )


def opens_verdict(reply: ReplyText) -> bool:
    """Whether a reply opens with yes or no, and says nothing beyond the question."""
    first, question = reply.asserted[0], reply.question
    verdict = _judge_clause(first.clauses[0], question, alone=False)
    return (
        verdict is not None and not verdict.stated and not any(_is_beyond(p, question) for p in first.pieces)
    )


def find_option(text: str, options: Options) -> str | None:
    """The letter of the only option whose words a text holds."""
    words = f" {' '.join(_find_words(text))} "
    own = {letter: f" {' '.join(_find_words(option))} " for letter, option in options}
    named = [letter for letter, option in own.items() if option.strip() and option in words]
    longest = [a for a in named if not any(own[a] != own[b] and own[a] in own[b] for b in named)]
    return longest[0] if len(longest) == 1 else None


_OPTION_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*|[-−+](?=\d)|[/%°]")


def _find_words(text: str) -> list[str]:
    return [word for word in map(str.casefold, _OPTION_WORD.findall(text)) if word not in ("a", "an", "the")]


class _Mention(NamedTuple):
    option: int
    begin: int
    end: int


_BOTH_WORDS = 10  # words of a sentence that says "both" or "neither"


def read_alternative(reply: ReplyText) -> tuple[str | None, float]:
    """The alternative that the last sentence that names one chooses, and how sure that is."""
    chosen: list[str] = []
    unclear = False
    for sentence in reversed(reply.asserted):
        if reply.question.lexicon.find("suppose").match(sentence.text):
            continue
        choice = _choose_alternative(sentence)
        unclear = unclear or choice == ""
        if choice:
            chosen.append(choice)
            if reply.is_long:  # it ends in what it concludes
                break
    if not chosen:
        return None, 1.0
    return chosen[0], _DOUBTFUL if len(set(chosen)) > 1 else 0.6 if unclear else 1.0


def _choose_alternative(sentence: Sentence) -> str | None:
    """The alternative that a sentence chooses; "" if it names some but chooses none, None without any."""
    question, text = sentence.question, sentence.text
    lexicon, mentions = question.lexicon, find_mentions(text, question)
    asked = [p for p in sentence.pieces if is_asked(p, question) and not _is_in(p, mentions)]
    compares = bool(asked) or _SIGN.search(text) is not None or _shares_character(sentence)
    for name in ("neither", "both"):
        short = len(sentence.pieces) <= _BOTH_WORDS and not (mentions and compares)
        if short and lexicon.find(name).search(text):
            return name
    if not mentions:
        return None
    told = text if question.negated else mask_denied(text, lexicon, clauses=True)
    stated = [m for m in mentions if told[m.begin : m.end].strip() and not _is_compared(told, m, lexicon)]
    if not stated or not _fits_alternatives(sentence, mentions, bool(asked)):
        return ""
    deciding = [m for m in stated if _is_alone(m, stated, sentence)] or stated
    options = list(dict.fromkeys(m.option for m in deciding))
    if len(options) > 1 and not compares:
        return ""
    last = len(options) > 1 and len(stated) > 2  # "between A and B, B is larger"
    return question.alternatives[stated[-1].option if last else options[0]]


def find_mentions(text: str, question: Question) -> list[_Mention]:
    """Where the question's alternatives are named, the longer ones of two at one place."""
    mentions: list[_Mention] = []
    tokens = question.tokenize(text)
    for at, option in enumerate(question.alternatives):
        words = question.tokenize(option)
        if words[:1] and words[0].kind == "cjk":
            mentions += [_Mention(at, *match.span()) for match in re.finditer(re.escape(option), text)]
            continue
        for first, token in enumerate(tokens):
            own = tokens[first : first + len(words)]
            if words and _is_same(token, words) and [t.key for t in own[1:]] == [w.key for w in words[1:]]:
                mentions.append(_Mention(at, token.begin, own[-1].end))
    longest = [
        m for m in mentions if not any(o != m and o.begin <= m.begin and m.end <= o.end for o in mentions)
    ]
    return sorted(longest, key=lambda mention: mention.begin)


def _is_same(token: Token, words: Sequence[Token]) -> bool:
    first, is_word = words[0], len(words) == 1 and words[0].kind == token.kind == "word"
    return token.key == first.key or (is_word and shares_stem(token.key, first.key))


_SIGN = re.compile("[><＞＜]")


def _is_compared(text: str, mention: _Mention, lexicon: Lexicon) -> bool:
    """Whether an alternative is only what the other is compared with: "than the Moon", 「月より」."""
    if text[mention.end : mention.end + 6].lstrip("の方はも ").startswith("より"):
        return True
    return (
        lexicon.compile("compared", lambda: _spell_comparison(lexicon)).search(text[: mention.begin][-25:])
        is not None
    )


def _spell_comparison(lexicon: Lexicon) -> str:
    links = "|".join(sorted(map(re.escape, lexicon.links))) or "(?!)"
    return rf"(?:{lexicon.find('than').pattern}|\bcompared (?:to|with)|\bunlike|[<＜])\s(?:{links})?\s?$"


def _is_alone(mention: _Mention, mentions: list[_Mention], sentence: Sentence) -> bool:
    """Whether a clause that says what is asked names only this one."""
    clause = next(clause for clause in sentence.clauses if mention.begin < clause.end)
    asked = any(is_asked(p, sentence.question) and not _is_in(p, mentions) for p in clause.pieces)
    return asked and sum(clause.begin <= m.begin < clause.end for m in mentions) == 1


def _is_in(piece: Piece, mentions: Sequence[_Mention]) -> bool:
    return any(m.begin <= piece.begin < m.end for m in mentions)


def _shares_character(sentence: Sentence) -> bool:
    """Whether a Chinese or Japanese comparison has a character of the question's: 大 of 更大."""
    asked = {
        c for t in sentence.question.tokenize(sentence.question.asking) if t.kind == "cjk" for c in t.text
    }
    asked -= set("の和与と哪个更では、どちらが是还比はがいですか")
    return any(c in asked for p in sentence.pieces if p.kind == "cjk" for c in p.text)


def _fits_alternatives(sentence: Sentence, mentions: list[_Mention], asks: bool) -> bool:
    """Whether a sentence says what the question asks, or nothing beside the alternatives that it names.

    If it names several, a new word before one of them may say something else of it: "and release oxygen".
    """
    question = sentence.question
    words = (p for p in sentence.pieces if p.label == "new" and p.kind == "word")
    new = [p for p in words if not _is_in(p, mentions) and p.key not in question.context]
    if not new or len({m.option for m in mentions}) == 1:
        return not new or asks or not question.focus
    return asks and len(new) == 1 and (new[0].begin > mentions[-1].begin or new[0].is_name)


def merge_words(readings: list[Words | None], common: WordFrequencies | None = None) -> list[ReadAnswer]:
    """One spelling for the answers that differ in nothing that counts."""
    settled = [_settle(reading, readings) for reading in readings]
    spelled: dict[frozenset[str], str] = {}
    for reading in filter(None, settled):
        own = frozenset(reading.keys)
        spelled[own] = min(spelled.get(own, reading.answer), reading.answer, key=len)
    phrasing = _find_phrasing(set(spelled), common)
    merged = []
    for words in settled:
        if words is None:
            merged.append(SILENT)
            continue
        own = frozenset(words.keys)
        core = own - phrasing
        is_merged = core in spelled and core != own
        answer = words.answer if "," in words.answer else spelled[core if is_merged else own]
        merged.append(ReadAnswer(answer, min(words.sure, 0.8) if is_merged else words.sure))
    return merged


def _settle(reading: Words | None, readings: list[Words | None]) -> Words | None:
    """An unsure reading as another answer that its sentence offers, if another reply gives just that one."""
    if reading is None or reading.sure == 1.0:
        return reading
    given = {
        frozenset(r.keys) for r in readings if r is not None and r is not reading and r.sure >= reading.sure
    }
    offered = {frozenset(keys): (answer, keys) for answer, keys in reading.others if frozenset(keys) in given}
    if frozenset(reading.keys) in given or len(offered) != 1:
        return reading
    return Words(*next(iter(offered.values())), 0.6)


def _find_phrasing(answers: set[frozenset[str]], common: WordFrequencies | None) -> frozenset[str]:
    """The words that come with different answers, or with answers to other prompts: they say nothing here."""
    words = {word for own in answers for word in own}
    cores = {word: {own - {word} for own in answers if word in own} & answers for word in words}
    frequent = (word for word in words if common is not None and common.is_common(word))
    return frozenset([*(word for word in words if len(cores[word]) > 1), *frequent])


def read_prose(
    texts: Sequence[str], question: Question, finished: Sequence[bool], common: WordFrequencies | None = None
) -> list[ReadAnswer]:
    """The answers of the replies, read in the form that most of them have."""
    places = list(zip(texts, finished, strict=True))
    known = {place: ReplyText(place[0], question, finished=place[1]) for place in set(places)}
    replies = [known[place] for place in places]  # samples often repeat one another
    stating = [reply for reply in replies if reply.sentences]
    if not stating:
        return [SILENT] * len(texts)
    form = _choose_form(stating, question)
    if form == "words":
        words = {reply: read_words(reply) for reply in set(stating)}
        readings = merge_words([words.get(reply) for reply in replies], common)
    else:
        read = {reply: Choice(*_READERS[form](reply)) for reply in set(stating)}
        given = {choice.answer for choice in read.values() if choice.sure >= _SURE}
        readings = [_settle_choice(read.get(reply), given) for reply in replies]
    sure = {reading.answer for reading in readings if reading.sure >= _SURE}
    readings = [reading if reading.answer in sure else SILENT for reading in readings]
    readable = sum(reading.answer is not None for reading in readings)
    can_tell = sum(not reply.abstains and reply.finished for reply in replies)
    return readings if 2 * readable >= can_tell else [SILENT] * len(texts)


def _settle_choice(choice: Choice | None, given: set[str | None]) -> ReadAnswer:
    """The answer of a reply; if it may be one of several, the only one that another reply gives."""
    if choice is None or choice.sure >= _SURE or not choice.others:
        return ReadAnswer(*choice[:2]) if choice is not None else SILENT
    offered = [answer for answer in (choice.answer, *choice.others) if answer in given]
    return ReadAnswer(offered[0], 0.6) if len(offered) == 1 else SILENT


def _choose_form(replies: list[ReplyText], question: Question) -> str:
    """The form that the question asks for, unless most replies have another."""
    times = Counter(replies)

    def count(test: Callable[[ReplyText], bool]) -> float:
        return sum(times[reply] for reply in times if test(reply)) / len(replies)

    if question.form == "either" and count(_names_alternative) >= 0.5:
        return "either"
    if question.form in ("date", "number"):
        return question.form
    if question.form == "yes_no" and count(_is_name) <= 0.5:
        return "yes_no"
    if not question.has_question_word and count(opens_verdict) > 0.5:
        return "yes_no"
    return "number" if count(_is_numeric) > 0.5 else "words"


def _is_name(reply: ReplyText) -> bool:
    """Whether a reply gives a name, and no verdict: "Paris" answers "Capital of France?"."""
    first = reply.asserted[0]
    new = [p for p in first.pieces if p.label == "new"]
    if not new or not _is_beyond(new[0], first.question):
        return False
    bare = len(reply.sentences) == 1 and len(first.pieces) == len(new) <= _FEW_WORDS
    last = first.clauses[-1]
    return bare or (new[-1].is_name and last.pieces[-1:] == new and _follows_copula(new, last, first.question))


def _names_alternative(reply: ReplyText) -> bool:
    lexicon, text = reply.question.lexicon, reply.text
    both = any(lexicon.find(name).search(text[:60]) for name in ("both", "neither"))
    return both or any(find_mentions(sentence, reply.question) for sentence in reply.sentences)


def _is_numeric(reply: ReplyText) -> bool:
    """Whether a reply's numbers, rather than its words, answer."""
    question = reply.question
    if not any(has_new_number(text, question) for text in reply.sentences):
        return False
    if question.numbers and question.purpose in ("value", ""):
        return True
    new = [p for s in reply.asserted for p in s.pieces if p.label == "new" and not is_unit(p.text, question)]
    return not any(p.is_name for p in new) and len(new) <= _BARE_WORDS


def _read_number(reply: ReplyText) -> Choice:
    """The number at which a solution arrives, or that a fact is told by; a few words instead of one."""
    if not reply.finished:
        return Choice(None)
    if reply.question.numbers or reply.is_long:
        return find_solution(reply.sentences, reply.question)
    found = find_quantity(reply.sentences, reply.question)
    if found.answer or len(reply.sentences) > 1 or has_new_number(reply.text, reply.question):
        return found
    words = _read_bare(reply.asserted[0]) or read_words(reply)
    return Choice(words.answer if words is not None and len(words.keys) <= _FEW_WORDS else None)


def _read_date(reply: ReplyText) -> Choice:
    """The date that a reply states, or what it says instead; none if it may conclude otherwise."""
    if reply.is_long and not reply.finished:
        return Choice(None)
    date = find_date(reply.sentences, reply.question)
    if date.answer or any(has_new_number(text, reply.question) for text in reply.sentences):
        return date
    words = read_words(reply)
    return Choice(words.answer, words.sure) if words is not None else Choice(None)


_READERS = {"either": read_alternative, "yes_no": read_verdict, "date": _read_date, "number": _read_number}
