"""Reads yes or no, and which of a question's alternatives a reply chooses.

What is stated beats the word that opens: "Ja, 51 ist keine Primzahl" is a no, less surely. Of alternatives the
one counts that isn't denied, nor what the other is compared with ("than the Moon").
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from adacompute.answers.question import Options, Question, shares_stem
from adacompute.answers.sentence import Clause, Piece, ReplyText, Sentence, holds_cjk
from adacompute.answers.words import Lexicon, Token, mask_denied

__all__ = ["find_mentions", "find_option", "opens_verdict", "read_alternative", "read_verdict"]

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
    """What a clause says by a statement, or by words that agree or refuse; those such as "sure" less surely."""
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
    """The alternative that a sentence chooses; "" if it names some but chooses none, None if it names none."""
    question, text = sentence.question, sentence.text
    lexicon, mentions = question.lexicon, find_mentions(text, question)
    asked = [p for p in sentence.pieces if is_asked(p, question) and not _is_in(p, mentions)]
    compares = bool(asked) or _SIGN.search(text) is not None or _shares_character(sentence)
    for name in ("neither", "both"):
        if lexicon.find(name).search(text) and len(sentence.pieces) <= _BOTH_WORDS and not compares:
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
