"""Reads the answers of several replies to one question, in any language, by comparing the replies.

`read_prose` first uses all replies to decide the form of the answer: one of the question's alternatives, yes
or no, a date, a number or words. Then it reads each reply in that form. Common words, and words that repeat
the question, are ignored; the answer is among the remaining words, called new.

Merging different answers is worse than splitting equal ones. If a reply has several candidate answers, the
one that another reply states as its only candidate is preferred. An answer read with a confidence below
`_SURE` counts only if another reply gives it with at least that confidence.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from adacompute.answers import quantity
from adacompute.answers.marks import ITEM_WORDS, ITEMS, SHORT_REPLY, clean_reply, is_cut
from adacompute.answers.quantity import Meaning
from adacompute.answers.question import (
    Question,
    Token,
    drop_brackets,
    mask_denied,
    shares_stem,
    split_clauses,
    split_sentences,
)

_PHRASE_WORDS = 8  # maximum number of words in an answer
# maximum number of words beside the answer in a sentence of a long reply that is read; common words and words
# of the question don't count
_BESIDE_WORDS = 3
_CLAUSE_WORDS = 10  # maximum number of words in a clause that answers without repeating words of the question
_FEW_WORDS = 3  # maximum number of words in a reply that consists only of the answer
_SURE, _DOUBTFUL, _SETTLED = 0.5, 0.4, 0.6


class ReadAnswer(NamedTuple):
    """A reply's answer, and the confidence from 0 to 1 that it was read correctly."""

    answer: str | None
    sure: float = 1.0


SILENT = ReadAnswer(None)
_SILENCE = Meaning(None)

_ENDS_ASKING = re.compile(r"[?？][\s*_)\"'”」]{0,9}\Z")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")


class ReplyText:
    """The sentences of a reply that state something, without markup, questions, politeness and apologies."""

    def __init__(self, text: str, question: Question, *, finished: bool = True) -> None:
        self.question, self.finished = question, finished
        self.text = clean_reply(text)
        self.is_long = len(self.text) > SHORT_REPLY
        whole = split_sentences(self.text) if finished else split_sentences(self.text[:SHORT_REPLY])[:-1]
        said = [s for s in whole if _LETTER_OR_DIGIT.search(s) and not _ENDS_ASKING.search(s)]
        self.sentences = _select_stating(said, question)
        self.abstains = not self.sentences and any(_cant_tell(s, question) for s in said)
        # keep only the first sentence, because the missing rest may reach another conclusion
        if not finished and self.is_long:
            self.sentences = self.sentences[:1]

    @cached_property
    def assertions(self) -> list["Sentence"]:
        """The reply's sentences, split into words."""
        return [Sentence(text, self.question) for text in self.sentences]


def _select_stating(sentences: list[str], question: Question) -> list[str]:
    """Drops polite sentences at the beginning, and a sentence such as "I can't tell" with all that follow it.

    If no sentence is left, returns the guess, if there is one, as in "I can't tell, but it may be Rome".
    """
    selected: list[str] = []
    for sentence in sentences:
        if not selected and _says_only("polite", sentence, question):
            continue
        if _cant_tell(sentence, question):
            _, *guess = question.lexicon.find("but").split(sentence, maxsplit=1)
            is_guess = guess and not selected and not _cant_tell(guess[0], question)
            return [guess[0].lstrip(" ,，")] if is_guess else selected
        selected.append(sentence)
    return selected


def _cant_tell(sentence: str, question: Question) -> bool:
    unsure = question.lexicon.find("unsure").search(sentence) is not None
    return unsure or _says_only("silent", sentence, question)


def _says_only(name: str, sentence: str, question: Question) -> bool:
    """Whether a sentence consists only of phrases from the word list `name`, such as "polite"."""
    phrases, first = question.lexicon.find(name), _LETTER_OR_DIGIT.search(sentence)
    is_begun = first is not None and phrases.match(sentence, first.start()) is not None
    return is_begun and not _LETTER_OR_DIGIT.search(phrases.sub(" ", sentence))


class Clause(NamedTuple):
    """A part of a sentence between two commas, colons or dashes."""

    begin: int
    end: int
    pieces: list[Token]


class Sentence:
    """A sentence whose words are labelled as "question", "common", "number" or, for all others, "new"."""

    def __init__(self, text: str, question: Question) -> None:
        self.text = drop_brackets(text)
        self.question = question

    @cached_property
    def pieces(self) -> list[Token]:
        """The words with their labels. A word gets the label "question" as often as it is in the question."""
        question, empty = self.question, self.question.lexicon.empty
        tokens = question.tokenize(self.text)
        left = {word: count for word, count in question.words.items() if word not in empty}
        asked = set()
        words = [token for token in tokens if token.kind == "word" and token.key not in empty]
        # first match words spelled as in the question, then other forms of the question's words
        for find_words in (lambda key: [key], question.find_forms):
            for token in words:
                word = next((word for word in find_words(token.key) if left.get(word)), "")
                if word and token.begin not in asked:
                    left[word] -= 1
                    asked.add(token.begin)
        pieces: list[Token] = []
        for token in tokens:
            label = "question" if token.begin in asked else "common" if token.key in empty else "new"
            if token is tokens[-1] is not tokens[0] and token.text[0].isupper() and label == "common":
                label = "new"  # a capitalised last word may be the answer: "the symbol of iodine is I"
            follows = bool(pieces) and pieces[-1].label == "number"
            if token.kind == "number" or (follows and quantity.is_unit(token.text, question)):
                label = "number"
            pieces += _split_cjk(token, question) if token.kind == "cjk" else [Token(*token[:5], label)]
        return pieces

    @cached_property
    def clauses(self) -> list[Clause]:
        """The parts of the sentence between commas, colons and dashes."""
        return [
            Clause(begin, end, [p for p in self.pieces if begin <= p.begin < end])
            for begin, end in split_clauses(self.text)
        ]

    @cached_property
    def hits(self) -> list[str]:
        """The words of the question that the sentence repeats."""
        return [p.key for p in self.pieces if p.label == "question"]

    @cached_property
    def mentions(self) -> list["_Mention"]:
        """The places where the sentence names the question's alternatives."""
        return _find_mentions(self)

    @property
    def denies(self) -> bool:
        """Whether the sentence contains a negation although the question doesn't."""
        return not self.question.negated and mask_denied(self.text, self.question.lexicon) != self.text


def _split_cjk(token: Token, question: Question) -> list[Token]:
    """Splits Chinese or Japanese text into parts that repeat the question, particles, and new parts."""
    run, pieces, at, begin = token.text, list[Token](), 0, 0
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


def _cut(token: Token, begin: int, end: int, label: str) -> Token:
    text = token.text[begin:end]
    return Token("cjk", text, text, token.begin + begin, token.begin + end, label)


def _holds_cjk(words: frozenset[str], text: str) -> bool:
    """Whether a Chinese or Japanese text contains any of these words."""
    return bool(text) and any(word in text for word in words if not word[0].isascii())


# --- answers that are names or phrases ---


class _Run(NamedTuple):
    """Consecutive words that may be the answer; a name may include small words: "Rio de Janeiro"."""

    pieces: list[Token]
    clause: Clause

    @property
    def is_name(self) -> bool:
        return any(p.is_name for p in self.pieces)


def read_words(reply: ReplyText) -> Meaning:
    """Reads an answer of words; prefers sentences that repeat the requested attribute, such as "capital"."""
    sentences = reply.assertions
    on_point = [sentence for sentence in sentences if sentence.question.is_focus(sentence.hits)]
    best = _SILENCE
    for sentence in sentences:
        # "Peru is a country in South America" doesn't answer "What is the capital of Peru?"
        is_off = bool(sentence.hits) and sentence not in on_point
        if (reply.is_long and sentence not in on_point) or (on_point and is_off):
            continue  # this sentence only describes the subject; another one may answer
        words, beside = _read_sentence(sentence, alone=len(sentences) == 1)
        if words.answer is None or (reply.is_long and beside > _BESIDE_WORDS):
            continue
        is_name = words.answer[0].isupper() or not words.answer[0].isascii()
        if (is_off and beside > 0) or (not is_name and any(s.denies for s in sentences)):
            words = words._replace(sure=_DOUBTFUL)
        if len(on_point) < 2 or is_name:
            return words
        best = best if best.answer else words
    return best


def _read_sentence(sentence: Sentence, *, alone: bool) -> tuple[Meaning, int]:
    """Returns the answer in a sentence, and how many other words are neither common nor in the question."""
    runs = _rank_runs(sentence)
    if not runs:
        return (_read_bare(sentence) if alone else _SILENCE), 0
    items = _collect_list(runs[0], runs, sentence)
    is_clear = len(items) > 1 or bool(sentence.hits) or _is_bare(runs[0], runs)
    answer = _spell_items(items, sentence)
    count = len(answer.split())
    if not answer or count > _PHRASE_WORDS * len(items) or not (is_clear or alone):
        return _SILENCE, 0
    others = [run for run in runs if run not in items]
    beside = sum(p.label == "new" for p in sentence.pieces) - count
    sure = _rate_run(runs[0], others, sentence) if is_clear and beside <= _PHRASE_WORDS else _DOUBTFUL
    return Meaning(answer, sure, tuple(_spell(other.pieces, sentence) for other in others)), beside


def _rate_run(run: _Run, others: list[_Run], sentence: Sentence) -> float:
    """Returns the confidence that these words are the answer; lower if another name may be the answer."""
    question, end = sentence.question, run.pieces[-1].end
    new = [r for r in others if r.is_name and not all(question.find_forms(p.key) for p in r.pieces)]
    beside = [r for r in new if r.clause is run.clause]
    later = [r for r in new if r.pieces[0].begin > end and _follows_copula(r, question)]
    if later or (sentence.hits and run.is_name and beside and not _follows_copula(run, question)):
        return _DOUBTFUL  # another name may be the answer, as in "Many think it's Sydney, but it's Canberra"
    return 1.0


def _is_bare(run: _Run, runs: list[_Run]) -> bool:
    """Whether words may be the answer if their sentence doesn't repeat the question: "I think it's Hanoi"."""
    is_only = sum(other.clause is run.clause for other in runs) == 1
    return is_only and len(run.clause.pieces) <= _CLAUSE_WORDS


def _read_bare(sentence: Sentence) -> Meaning:
    """Returns a reply of a few words as the answer, even if the question contains these words."""
    common = sentence.pieces if len(sentence.pieces) == 1 else []  # "It is" isn't an answer
    kept = [p for p in sentence.pieces if p.label != "common"] or common
    if not kept or len(sentence.pieces) > _FEW_WORDS or sentence.denies:
        return _SILENCE
    return Meaning(sentence.text[kept[0].begin : kept[-1].end], 0.8)


def _rank_runs(sentence: Sentence) -> list[_Run]:
    """Sorts possible answers: first any in a clause with the requested attribute ("capital"), then names."""
    question = sentence.question

    def rank(run: _Run) -> tuple[bool, bool, bool]:
        on_point = question.is_focus(p.key for p in run.clause.pieces if p.label == "question")
        return not on_point, not run.is_name, not _follows_copula(run, question)

    runs = (run for clause in _select_clauses(sentence) for run in _find_runs(clause, question))
    return sorted(runs, key=rank)


def _select_clauses(sentence: Sentence) -> list[Clause]:
    """Returns a sentence's clauses; of a clause with a negation, only the words after "but" are kept."""
    question, selected = sentence.question, list[Clause]()
    for clause in sentence.clauses:
        denied = [] if question.negated else [p for p in clause.pieces if p.key in question.lexicon.negation]
        begin = clause.begin
        if denied:
            turn = question.lexicon.find("but").search(sentence.text, denied[0].end, clause.end)
            begin = turn.end() if turn is not None else clause.end
        selected.append(clause._replace(pieces=[p for p in clause.pieces if p.begin >= begin]))
    return selected


def _find_runs(clause: Clause, question: Question) -> list[_Run]:
    runs: list[list[Token]] = []
    between: list[Token] = []
    for piece in clause.pieces:
        if piece.label == "new":
            if runs and _are_joined(runs[-1][-1], between, piece, question):
                runs[-1] += [*between, piece]
            else:
                runs.append([piece])
            between = []
        else:
            between.append(piece)
    return [_Run(_extend_run(run, clause, question), clause) for run in runs]


def _are_joined(last: Token, between: list[Token], piece: Token, question: Question) -> bool:
    gap = piece.begin - last.end
    if "cjk" in (piece.kind, last.kind) or not between:
        return not between and gap <= (2 if piece.kind == last.kind == "word" else 0)
    links = question.lexicon.links - question.lexicon.gather("and")
    return len(between) <= 2 and links.issuperset(p.key for p in between) and last.is_name and piece.is_name


def _follows_copula(run: _Run, question: Question) -> bool:
    """Whether words stand between "is" and the end of a clause, as in "the word is Hund"."""
    pieces = run.clause.pieces
    before = pieces[: pieces.index(run.pieces[0])][-2:]
    return run.pieces[-1] is pieces[-1] and any(question.lexicon.is_copula(p.text) for p in before)


def _extend_run(run: list[Token], clause: Clause, question: Question) -> list[Token]:
    """If the word before the run is a name from the question, adds it: "City" becomes "Mexico City"."""
    pieces, begin = clause.pieces, clause.pieces.index(run[0])
    while begin > 0 and _belongs(pieces[begin - 1], pieces[begin], question):
        begin -= 1
    return [*pieces[begin : pieces.index(run[0])], *run]


def _belongs(piece: Token, beside: Token, question: Question) -> bool:
    is_name = piece.label == "question" and piece.text[0].isupper() and beside.text[0].isupper()
    return is_name and beside.begin == piece.end + 1 and not question.is_focus([piece.key])


_ELIDED = re.compile(r"^[dlDL]'(?=\w)")


def _spell(pieces: list[Token], sentence: Sentence) -> str:
    return _ELIDED.sub("", sentence.text[pieces[0].begin : pieces[-1].end].strip(" \"'.,;:!()"))


def _collect_list(best: _Run, runs: list[_Run], sentence: Sentence) -> list[_Run]:
    """Returns all items of the list that contains `best`; only `best` if there is no list."""
    items: list[_Run] = []
    for run in sorted(runs, key=lambda run: run.pieces[0].begin):
        if items and not _is_next(items[-1], run, sentence):
            if best in items:
                break
            items = []
        items.append(run)
    is_list = len(items) <= ITEMS and all(len(item.pieces) <= ITEM_WORDS for item in items)
    return items if is_list else [best]


def _spell_items(items: list[_Run], sentence: Sentence) -> str:
    answer = ", ".join(_spell(item.pieces, sentence) for item in items)
    return f"({answer})" if len(items) > 1 and sentence.question.asks_order else answer


_LIST_GAP_LENGTH = 12  # maximum number of characters between two items of a list
_LIST_SIGN = re.compile(r"[,，、;]")


def _is_next(item: _Run, run: _Run, sentence: Sentence) -> bool:
    """Whether two possible answers are neighbours in a list, with only a comma or "and" between them."""
    lexicon = sentence.question.lexicon
    gap = lexicon.find("and").sub(",", sentence.text[item.pieces[-1].end : run.pieces[0].begin])
    words = _LIST_SIGN.sub(" ", gap).casefold().split()
    alike = run.pieces[0].kind == "cjk" or item.is_name == run.is_name or item.pieces[0].begin == 0
    is_joined = len(gap) <= _LIST_GAP_LENGTH and _LIST_SIGN.search(gap) is not None
    return alike and is_joined and lexicon.links.issuperset(words)


# --- yes and no: a statement overrides a "yes" before it: "Ja, 51 ist keine Primzahl" means no ---


class _Verdict(NamedTuple):
    agrees: bool
    stated: bool  # whether the verdict is from a statement ("51 is prime"), not only from "yes" or "no"
    sure: float = 1.0


def read_verdict(reply: ReplyText) -> Meaning:
    """Reads whether a reply says yes or no."""
    first, *others = reply.assertions
    verdict = _judge_sentence(first, alone=not others)
    if verdict is None:
        later = [v for sentence in others if (v := _judge_sentence(sentence)) is not None]
        verdict = next((v for v in reversed(later) if v.stated), later[0] if later else None)
    elif others and not verdict.stated:
        second = _judge_sentence(others[0])
        if second is not None and second.stated and second.agrees != verdict.agrees:
            verdict = second._replace(sure=_DOUBTFUL)  # the next sentence contradicts the "yes" or "no"
    if verdict is None:
        return _SILENCE
    words = ("False", "True") if reply.question.asks_truth else ("No", "Yes")
    return Meaning(words[verdict.agrees], verdict.sure)


def _judge_sentence(sentence: Sentence, *, alone: bool = False) -> _Verdict | None:
    question, lexicon = sentence.question, sentence.question.lexicon
    verdicts = [v for clause in sentence.clauses if (v := _judge_clause(clause, question, alone=alone))]
    opened = {v.agrees for v in verdicts if not v.stated and v.sure == 1.0}
    if len(opened) > 1:
        return None  # the sentence contradicts itself, as in "No, wait, yes."
    said = [v for v in verdicts if not v.stated and (v.sure == 1.0 or not opened)]
    stated = [v for v in verdicts if v.stated and not question.negated]
    if not stated or lexicon.find("suppose").search(sentence.text):
        return said[-1]._replace(sure=1.0) if said else None
    contradicted = len(opened | {v.agrees for v in stated}) > 1
    return stated[0]._replace(sure=_DOUBTFUL) if contradicted else stated[0]


def _judge_clause(clause: Clause, question: Question, *, alone: bool) -> _Verdict | None:
    """Reads yes or no from a clause: from what it states, or from words such as "yes" or "no"."""
    lexicon, pieces = question.lexicon, clause.pieces
    cjk = "".join(p.text for p in pieces if p.kind == "cjk")
    keys = [p.key for p in pieces if p.kind == "word"]
    negated = [at for at, p in enumerate(pieces) if p.key in lexicon.negation]
    denied = bool(negated) or _holds_cjk(lexicon.negation, cjk)
    hits = {p.key: at for at, p in reversed(list(enumerate(pieces))) if _is_asked(p, question)}
    beyond = [at for at, p in enumerate(pieces) if _is_beyond(p, question)]
    if hits and not _says_other(pieces, hits, beyond, question):
        return _Verdict(not (denied if cjk else any(at < max(hits.values()) for at in negated)), stated=True)
    if hits or beyond:
        return None
    agrees = not lexicon.yes.isdisjoint(keys) or _holds_cjk(lexicon.yes, cjk)
    refuses = not lexicon.no.isdisjoint(keys) or _holds_cjk(lexicon.no, cjk)
    if denied or refuses:
        return None if agrees and refuses and not cjk else _Verdict(agrees=False, stated=False)
    if agrees:
        return _Verdict(agrees=True, stated=False)
    # a whole reply of common words, such as "It is.", means yes
    bare = alone and lexicon.common.issuperset(keys) and {p.kind for p in pieces} == {"word"}
    return _Verdict(agrees=True, stated=False, sure=0.9) if bare else None


def _says_other(pieces: list[Token], hits: dict[str, int], beyond: list[int], question: Question) -> bool:
    """Whether a clause says something other than what the question asks.

    `hits` has the positions of words from the question; `beyond` has those of new words, which are neither
    common nor from the question. True if a new word comes before the last word from the question, or anywhere
    if the question's last content word is missing. Also true if numbers are in another order.
    """
    numbers = [p.key for p in pieces if p.kind == "number" and p.key in question.numbers]
    if len(numbers) > 1 and numbers != [number for number in question.numbers if number in numbers]:
        return True
    last = question.content[-1:]
    complete = not last or any(last[0] in question.find_forms(key) for key in hits)
    if question.predicate:
        told = "".join(p.text for p in pieces)
        for subject in question.subjects:
            told = told.replace(subject, "")
        complete = all(part in told for part in question.predicate)
    return any(at < max(hits.values()) for at in beyond) if complete else bool(beyond)


def _is_asked(piece: Token, question: Question) -> bool:
    """Whether a word is one of the question's content words."""
    if piece.kind == "cjk":
        return piece.label == "question" and not question.lexicon.cjk_common.fullmatch(piece.text)
    return piece.kind == "word" and question.asks_about(piece.key)


def _is_beyond(piece: Token, question: Question) -> bool:
    """Whether a word is new: not in the question, not common, and not a word such as "yes" or "no"."""
    words = question.lexicon.verdicts
    if piece.kind == "cjk":
        return piece.label == "new" and not _holds_cjk(words, piece.key)
    return piece.label == "new" and piece.key not in words and not question.find_forms(piece.key)


# --- alternatives: a reply doesn't choose those that it denies or mentions only for comparison ---


class _Mention(NamedTuple):
    option: int
    begin: int
    end: int


def read_alternative(reply: ReplyText) -> Meaning:
    """Reads which of the question's alternatives a reply chooses; if sentences disagree, the last counts."""
    suppose = reply.question.lexicon.find("suppose")
    told = [sentence for sentence in reversed(reply.assertions) if not suppose.match(sentence.text)]
    chosen = [choice for sentence in told if (choice := _choose_alternative(sentence))]
    return Meaning(chosen[0], 1.0 if len(set(chosen)) == 1 else _DOUBTFUL) if chosen else _SILENCE


def _choose_alternative(sentence: Sentence) -> str:
    """Returns the alternative that a sentence chooses; "" if it chooses none."""
    question, text, mentions = sentence.question, sentence.text, sentence.mentions
    if not mentions:
        return ""
    words = [p for p in sentence.pieces if not _is_in(p, mentions)]
    asks = any(_is_asked(p, question) or not question.characters.isdisjoint(p.text) for p in words)
    told = text if question.negated else mask_denied(text, question.lexicon, clauses=True)
    stated = [m for m in mentions if told[m.begin : m.end].strip() and not _is_compared(told, m, question)]
    ends = question.lexicon.clause_end
    pairs = [pair for pair in pairwise(mentions) if ends.fullmatch(text[pair[0].end : pair[1].begin].strip())]
    # skip alternatives that are only listed: "of A and B, B" chooses B
    stated = [m for m in stated if not any(m in pair for pair in pairs)] or stated
    is_choice = asks or _SIGN.search(text) or len({m.option for m in stated}) == 1
    if not stated or not is_choice or not _fits_alternatives(sentence, mentions, asks):
        return ""
    return question.alternatives[stated[0].option]


def _find_mentions(sentence: Sentence) -> list[_Mention]:
    """Finds where a sentence names the question's alternatives."""
    question, text = sentence.question, sentence.text
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
    return sorted(mentions, key=lambda mention: mention.begin)


def _is_same(token: Token, words: Sequence[Token]) -> bool:
    first, is_word = words[0], len(words) == 1 and words[0].kind == token.kind == "word"
    return token.key == first.key or (is_word and shares_stem(token.key, first.key))


_SIGN = re.compile("[><＞＜]")


def _is_compared(text: str, mention: _Mention, question: Question) -> bool:
    """Whether an alternative is only mentioned for comparison, as in "than the Moon" or 「月より」."""
    if text[mention.end : mention.end + 6].lstrip("の方はも ").startswith("より"):
        return True
    lexicon = question.lexicon
    than, links = lexicon.find("than").pattern, lexicon.links
    compared = lexicon.compile(
        "compared", lambda: rf"(?:(?:{than})\s(?:(?:{'|'.join(map(re.escape, links))})\s)?|[<＜]\s?)$"
    )
    return compared.search(text[: mention.begin][-25:]) is not None


def _is_in(piece: Token, mentions: Sequence[_Mention]) -> bool:
    return any(m.begin <= piece.begin < m.end for m in mentions)


def _fits_alternatives(sentence: Sentence, mentions: list[_Mention], asks: bool) -> bool:
    """Whether a sentence that names alternatives chooses one, rather than saying something else about them.

    If it names several, it may have only one word that isn't in the prompt: a name, or a word after them all.
    """
    question = sentence.question
    words = (p for p in sentence.pieces if p.label == "new" and p.kind == "word")
    new = [p for p in words if not _is_in(p, mentions) and p.key not in question.context]
    if not new or len({m.option for m in mentions}) == 1:
        return not new or asks or not question.focus
    return asks and len(new) == 1 and (new[0].begin > mentions[-1].begin or new[0].is_name)


# --- reading all replies together ---


def read_prose(texts: Sequence[str], question: Question, finished: Sequence[bool]) -> list[ReadAnswer]:
    """Reads the answers of all replies to one question, all in the same form, such as a date."""
    places = list(zip(texts, finished, strict=True))
    known = {place: ReplyText(place[0], question, finished=place[1]) for place in set(places)}
    replies = [known[place] for place in places]  # each distinct reply is read only once
    stating = [reply for reply in replies if reply.sentences]
    if not stating:
        return [SILENT] * len(texts)
    form = _choose_form(stating, question)
    read = {reply: _READERS[form](reply) for reply in set(stating)}
    if form in ("words", "number"):
        read = {r: m for r, m in read.items() if r.is_long or not is_cut(m.answer or "", r.text)}
    meanings = [read.get(reply, _SILENCE) for reply in replies]
    readings = _spell_alike(meanings, question) if form == "words" else _settle(meanings, str)
    sure = {reading.answer for reading in readings if reading.sure >= _SURE}
    readings = [reading if reading.answer in sure else SILENT for reading in readings]
    readable = sum(reading.answer is not None for reading in readings)
    can_tell = sum(not reply.abstains and reply.finished for reply in replies)
    return readings if 2 * readable >= can_tell else [SILENT] * len(texts)


def _settle(meanings: list[Meaning], make_key: Callable[[str], object]) -> list[ReadAnswer]:
    """Chooses each reply's answer; of several candidates, the one that is another reply's only candidate."""
    plain = {make_key(m.answer) for m in meanings if m.answer and m.sure >= _SURE and not m.others}
    return [_settle_meaning(meaning, plain, make_key) for meaning in meanings]


def _settle_meaning(meaning: Meaning, plain: set[object], make_key: Callable[[str], object]) -> ReadAnswer:
    own = ReadAnswer(meaning.answer, meaning.sure)
    given = [answer for answer in (meaning.answer, *meaning.others) if answer and make_key(answer) in plain]
    if not meaning.others or (meaning.sure >= _SURE and meaning.answer in given):
        return own
    if len(given) == 1:
        return ReadAnswer(given[0], _SETTLED)
    return own if meaning.sure >= _SURE else SILENT


def _spell_alike(meanings: list[Meaning], question: Question) -> list[ReadAnswer]:
    """Gives answers that consist of the same words one spelling: the shortest."""

    def make_key(answer: str) -> object:
        words = (t.key for t in question.tokenize(answer))
        return frozenset(word for word in words if word not in question.lexicon.common) or answer

    readings = _settle(meanings, make_key)
    shortest: dict[object, str] = {}
    for answer in sorted(r.answer for r in readings if r.answer and "," not in r.answer):
        shortest[make_key(answer)] = min(shortest.get(make_key(answer), answer), answer, key=len)
    return [r._replace(answer=r.answer and shortest.get(make_key(r.answer), r.answer)) for r in readings]


def _choose_form(replies: list[ReplyText], question: Question) -> str:
    """Chooses the answer's form: the one that the question asks for, unless most replies have another."""
    times = Counter(replies)

    def count(test: Callable[[ReplyText], bool]) -> float:
        return sum(times[reply] for reply in times if test(reply)) / len(replies)

    if question.form == "either" and count(lambda reply: any(s.mentions for s in reply.assertions)) >= 0.5:
        return "either"
    if question.form in ("date", "number"):
        return question.form
    if question.form == "yes_no" and count(_is_name) <= 0.5:
        return "yes_no"
    return "number" if count(_is_numeric) > 0.5 else "words"


def _is_name(reply: ReplyText) -> bool:
    """Whether a reply gives a name rather than yes or no, as "Paris" does for "Capital of France?"."""
    first = reply.assertions[0]
    new = [p for p in first.pieces if p.label == "new"]
    # the first clause may say yes or no, as in "No, a whale is a mammal"
    says = _judge_clause(first.clauses[0], first.question, alone=False)
    if not new or not _is_beyond(new[0], first.question) or (says is not None and not says.stated):
        return False
    bare = len(reply.sentences) == 1 and len(first.pieces) == len(new) <= _FEW_WORDS
    last = first.clauses[-1]
    is_last = new[-1].is_name and last.pieces[-1:] == new
    return bare or (is_last and _follows_copula(_Run(new, last), first.question))


def _is_numeric(reply: ReplyText) -> bool:
    """Whether a reply answers with a number rather than with words."""
    question = reply.question
    if not any(quantity.has_new_number(text, question) for text in reply.sentences):
        return False
    if question.numbers and question.purpose in ("value", ""):
        return True
    new = [p for sentence in reply.assertions for p in sentence.pieces if p.label == "new"]
    new = [p for p in new if not quantity.is_unit(p.text, question)]
    return not any(p.is_name for p in new) and len(new) <= _PHRASE_WORDS


def _read_number(reply: ReplyText) -> Meaning:
    """Reads the number that a reply computes, or that it states as a fact."""
    if not reply.finished:
        return _SILENCE
    if leading := quantity.find_leading(reply.sentences, reply.question):
        return Meaning(leading)
    if reply.question.numbers or reply.is_long:
        return quantity.find_solution(reply.sentences, reply.question)
    return quantity.find_quantity(reply.sentences, reply.question)


def _read_date(reply: ReplyText) -> Meaning:
    """Reads a reply's date, or its words if it has no number. A long reply that was cut off has no answer."""
    if reply.is_long and not reply.finished:
        return _SILENCE
    date = quantity.find_date(reply.sentences, reply.question)
    if date.answer or any(quantity.has_new_number(text, reply.question) for text in reply.sentences):
        return date
    return read_words(reply)


_READERS: dict[str, Callable[[ReplyText], Meaning]] = {
    "either": read_alternative,
    "yes_no": read_verdict,
    "date": _read_date,
    "number": _read_number,
    "words": read_words,
}
