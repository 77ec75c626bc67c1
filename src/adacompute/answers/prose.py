"""Reads the answers of several replies to one question by comparing them, in any language.

`read_prose` decides by all replies together which form the answers have (one of the question's alternatives,
yes or no, a date, a number, words), reads each reply in that form, and merges the answers in words that
differ in nothing but phrasing. A wrong merge is worse than a wrong split: two answers are one only if what one
says beyond the other carries nothing. A reply that can't be compared abstains.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import dropwhile
from typing import NamedTuple

from adacompute.answers.quantity import find_date, find_quantity, find_solution, has_new_number, is_unit
from adacompute.answers.question import Question
from adacompute.answers.sentence import Clause, Piece, ReplyText, Sentence, holds_cjk
from adacompute.answers.verdict import find_mentions, opens_verdict, read_alternative, read_verdict
from adacompute.answers.words import WordFrequencies, mask_denied

__all__ = ["SILENT", "ReadAnswer", "read_prose"]

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
    """An answer in words, the keys by which it is compared, and the keys and spellings its sentence offers, too."""

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
            if _tells_kind(sentence):
                return None
        words = _read_sentence(sentence, alone=len(sentences) == 1)
        if words is None or (reply.is_long and words.beside > _PROSE_WORDS):
            denied = denied or _denies(sentence)
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


def _tells_kind(sentence: Sentence) -> bool:
    """Whether a sentence only says what kind of thing the question's subject is: "Peru is a country"."""
    kind = sentence.question.lexicon.find("kind").search(sentence.text)
    labels = {p.label for p in sentence.pieces if kind is not None and p.begin < kind.start()}
    return "question" in labels and "new" not in labels


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
    rivals = sentence.hits and run[0].is_name and any(_rivals(other, clause, question) for other in runs[1:])
    plain = not sentence.hits and not run[0].is_name and not alone
    sure = 1.0 if len(runs) == 1 and (sentence.hits or len(clauses) == 1) else 0.7
    others = tuple(_spell_run(other, sentence) for other in ranked[1:])
    return Words(answer, keys, 0.4 if rivals or plain or beside > _BARE_WORDS + 2 else sure, others, beside)


def _is_title(sentence: Sentence) -> bool:
    """Whether all words are written as in a title: "No Country for Old Men"."""
    words = [p for p in sentence.pieces if p.key not in sentence.question.lexicon.links]
    return len(words) > 2 and all(p.text[0].isupper() for p in words) and not sentence.hits


def _is_bare(clause: Clause, runs: list[Run], question: Question) -> bool:
    """Whether a clause that repeats nothing of the question may itself be the answer: "I think it's Hanoi"."""
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
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
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


def _is_inside(run: Run, clause: Clause) -> bool:
    """Whether a run stands between words of the question."""
    hits = [p.begin for p in clause.pieces if p.label == "question"]
    return bool(hits) and hits[0] < run[0].begin < hits[-1]


def _rank_runs(clause: Clause, question: Question) -> list[Run]:
    """The runs of a clause, the answer first: outside the question's words, then names, then as they come."""
    runs = [_extend_run(run, clause, question) for run in _find_runs(clause, question)]

    def rank(run: Run) -> tuple[bool, bool]:
        plain = not any(p.is_name for p in run) or all(p.key in question.context for p in run)
        return _is_inside(run, clause), plain

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


def merge_words(readings: list[Words | None], common: WordFrequencies | None = None) -> list[ReadAnswer]:
    """One spelling for the answers that differ in nothing that counts."""
    settled = [_settle(reading, readings) for reading in readings]
    spelled: dict[frozenset[str], str] = {}
    for words in filter(None, settled):
        own = frozenset(words.keys)
        spelled[own] = min(spelled.get(own, words.answer), words.answer, key=len)
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
        read = {reply: ReadAnswer(*_READERS[form](reply)) for reply in set(stating)}
        readings = [read.get(reply, SILENT) for reply in replies]
    if len(texts) == 1:
        return [reading if reading.sure >= _SURE else SILENT for reading in readings]
    readable = sum(reading.answer is not None for reading in readings)
    can_tell = sum(not reply.abstains and reply.finished for reply in replies)
    return readings if 2 * readable >= can_tell else [SILENT] * len(texts)


def _choose_form(replies: list[ReplyText], question: Question) -> str:
    """The form that the question asks for, unless most replies have another."""
    times = Counter(replies)

    def count(test: Callable[[ReplyText], bool]) -> float:
        return sum(times[reply] for reply in times if test(reply)) / len(replies)

    if question.form == "either" and count(_names_alternative) >= 0.5:
        return "either"
    if question.form in ("date", "number", "yes_no"):
        return question.form
    if not question.has_question_word and count(opens_verdict) > 0.5:
        return "yes_no"
    return "number" if count(_is_numeric) > 0.5 else "words"


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


def _read_number(reply: ReplyText) -> tuple[str | None, float]:
    """The number at which a solution arrives, or that a fact is told by; a few words instead of one."""
    if not reply.finished:
        return SILENT
    if reply.question.numbers or reply.is_long:
        return find_solution(reply.sentences, reply.question), 1.0
    found = find_quantity(reply.sentences, reply.question)
    if found is not None or len(reply.sentences) > 1 or has_new_number(reply.text, reply.question):
        return found, 1.0
    words = _read_bare(reply.asserted[0]) or read_words(reply)
    return (words.answer, 1.0) if words is not None and len(words.keys) <= _FEW_WORDS else SILENT


def _read_date(reply: ReplyText) -> tuple[str | None, float]:
    """The date that a reply states, or what it says instead."""
    date = find_date(reply.sentences, reply.question)
    if date is not None or any(has_new_number(text, reply.question) for text in reply.sentences):
        return date, 1.0
    words = read_words(reply)
    return (words.answer, words.sure) if words is not None else SILENT


_READERS = {"either": read_alternative, "yes_no": read_verdict, "date": _read_date, "number": _read_number}
