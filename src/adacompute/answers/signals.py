"""How sure a model was, from the log-probabilities of single tokens, as far as a response gives them.

`summarise_tokens` reads all tokens once: their sum, their mean entropy, and the signals that need no answer.
`add_answer_signals` adds those of the answer's own tokens: `locate_answer` finds where the answer that was
extracted stands in the text, and tokens are matched with the text from its end, because hidden reasoning
comes before the text and marks such as `<|im_end|>` after it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, islice
from operator import attrgetter, itemgetter, mul, sub
from typing import Any, NamedTuple

from adacompute.answers.extract import TEXT_LIMIT, find_answer_starts, find_box, locate_choice, strip_thinking
from adacompute.records import Signals

__all__ = [
    "NO_TOKENS",
    "TokenSummary",
    "add_answer_signals",
    "compute_mean_entropy",
    "locate_answer",
    "sum_logprobs",
    "summarise_tokens",
]

Token = Mapping[str, Any]
Span = tuple[int, int]

TAIL = 64  # tokens at the end of a response
WINDOW = 32  # tokens in a row
MAX_ALTERNATIVES = 20  # of a token that count: the likeliest; some servers list the drawn token besides
_MIN_ALTERNATIVES = 2  # of every token, below which there is no confidence
_LEAST_LOGPROB = -700.0  # below that exp is 0, and it may be a placeholder
_LEAST_REST = 1e-12  # of probability that the alternatives leave, below which it is rounding
_MIN_ARRAY = 16  # tokens from which on arrays pay
_DIGITS = 6  # decimals that are kept, far below what any server's numbers are good for
_CHUNK = 512  # tokens of a long list that are held at a time
_FIRST_LOOK = 16  # tokens at the end among which the answer's are looked for first
_MAX_MARKS = 4  # tokens after the text that aren't part of it
_LETTER_MARKS = "*_`$\"'“”‘’«»<>().[]{}: \n\t"  # around a letter that is all of a reply
_MAX_TRIES = 64  # places where an answer is looked for in one stretch of text


class TokenSummary(NamedTuple):
    """What all tokens of a response tell; None: not known."""

    logprob: float | None  # sum, nats
    entropy: float | None  # mean over the tokens with alternatives, nats
    signals: Signals | None  # without those of the answer


NO_TOKENS = TokenSummary(None, None, None)


def summarise_tokens(tokens: Sequence[Token]) -> TokenSummary:
    """The sum, the mean entropy and the signals of tokens in the shape of a chat completion's.

    >>> summary = summarise_tokens([{"logprob": -0.5}, {"logprob": -1.5}])
    >>> summary.logprob, summary.signals.tail, summary.signals.confidence
    (-2.0, -1.0, None)
    """
    logprobs: list[Any] = []
    entropies: list[float] = []
    confidences: list[float | None] = []
    for chunk in _split_tokens(tokens):
        logprobs += _pick_field("logprob", chunk)
        listed = _pick_field("top_logprobs", chunk)
        if any(listed):
            _read_listed(listed, entropies, confidences)
    entropy = sum(entropies) / len(entropies) if entropies else None
    numbers = _read_numbers(logprobs)
    if numbers is None:
        return TokenSummary(None, entropy, None)
    total, values = numbers
    if not values:
        return TokenSummary(total, entropy, None)
    known = confidences if len(confidences) == len(logprobs) and None not in confidences else []
    return TokenSummary(total, entropy, _build_signals(values, known))  # type: ignore[arg-type]


def _pick_field(name: str, tokens: Iterable[Token]) -> list[Any]:
    """A field of each token; None where one has none. Tokens are objects of JSON, or of a class like them."""
    tokens = tokens if isinstance(tokens, list) else list(tokens)
    is_json = not tokens or isinstance(tokens[0], dict)
    try:
        return list(map(itemgetter(name) if is_json else attrgetter(name), tokens))
    except (KeyError, AttributeError):
        return [token.get(name) for token in tokens]


def _split_tokens(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """All tokens of a plain list at once, else a few hundred at a time: a long list is kept encoded."""
    if isinstance(tokens, list):
        yield tokens
        return
    iterator = iter(tokens)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def sum_logprobs(tokens: Iterable[Token]) -> float | None:
    """The sum over the tokens, in nats; None where one of them has no number, or the sum isn't finite.

    A number that is not finite is skipped; a placeholder such as -9999 counts as it stands. An integer
    beyond the range of floats is not a number.
    """
    numbers = _read_numbers([token.get("logprob") for token in tokens])
    return None if numbers is None else numbers[0]


def compute_mean_entropy(tokens: Iterable[Token]) -> float | None:
    """Mean entropy a token, in nats, over tokens with alternatives; None where none has any.

    The probability that the alternatives don't cover counts as one more outcome, so this is a lower bound.

    >>> round(compute_mean_entropy([{"top_logprobs": [{"logprob": math.log(0.5)}]}]), 4)
    0.6931
    """
    entropies: list[float] = []
    _read_listed([token.get("top_logprobs") for token in tokens], entropies, [])
    return sum(entropies) / len(entropies) if entropies else None


def _read_numbers(logprobs: list[Any]) -> tuple[float, list[float]] | None:
    """The sum of log-probabilities, and those that are finite; None where one is no number."""
    try:
        total = sum(logprobs)  # all floats: the usual case, and quick
        if type(total) is float and math.isfinite(total):
            return total, logprobs
        values = [float(value) for value in logprobs if isinstance(value, float | int)]
    except (TypeError, OverflowError):
        return None
    if len(values) < len(logprobs):
        return None
    finite = [value for value in values if math.isfinite(value)]
    total = 0.0 + sum(finite)
    return (total, finite) if math.isfinite(total) else None


def _read_listed(listed: list[Any], entropies: list[float], confidences: list[float | None]) -> None:
    """Adds the entropy of each token with alternatives, and the confidence of every token."""
    if len(listed) >= _MIN_ARRAY and (numbers := _read_all(listed)) is not None:
        entropies += numbers[0]
        confidences += numbers[1]
        return
    for alternatives in listed:
        if not alternatives or not isinstance(alternatives, list):
            confidences.append(None)
            continue
        entropy, confidence = _read_alternatives(alternatives)
        entropies.append(entropy)
        confidences.append(confidence)


def _read_all(listed: list[Any]) -> tuple[list[float], list[float]] | None:
    """The entropies and the confidences of tokens that have as many plain alternatives each; else None.

    For all tokens at once: of 300 tokens with 5 alternatives this takes a third of the time of one by one.
    """
    if not all(listed) or set(map(type, listed)) != {list}:
        return None
    count = len(listed[0])
    if not _MIN_ALTERNATIVES <= count <= MAX_ALTERNATIVES or set(map(len, listed)) != {count}:
        return None
    try:
        get = itemgetter("logprob") if isinstance(listed[0][0], dict) else attrgetter("logprob")
        numbers = list(map(get, chain.from_iterable(listed)))
    except (KeyError, TypeError, AttributeError):
        return None
    if set(map(type, numbers)) != {float}:
        return None
    import numpy as np  # here, because reading answers alone doesn't need it

    values = np.array(numbers).reshape(-1, count)
    totals = values.sum(axis=1)
    if not (values.max() <= 0.0 and totals.min() > _LEAST_LOGPROB):  # also where there is a NaN
        return None
    probabilities = np.exp(values)
    rest = np.maximum(1.0 - probabilities.sum(axis=1), 0.0)
    entropies = -(probabilities * values).sum(axis=1)
    has_rest = rest > _LEAST_REST
    entropies[has_rest] -= rest[has_rest] * np.log(rest[has_rest])
    return entropies.tolist(), (-totals / count).tolist()


def _read_alternatives(alternatives: list[Any]) -> tuple[float, float | None]:
    """The entropy at a token, and minus the mean log-probability of its alternatives, both in nats."""
    values: list[float] = []
    total, is_plain = 0.0, False
    try:
        values = [alternative["logprob"] for alternative in alternatives]
        total = sum(values)
        is_plain = max(values) <= 0.0 and total > _LEAST_LOGPROB and len(values) <= MAX_ALTERNATIVES
    except (KeyError, TypeError, OverflowError):  # something else is among them
        pass
    if not is_plain:
        values = _select_numbers(alternatives)
        total = sum(values[:MAX_ALTERNATIVES])
    probabilities = list(map(math.exp, values))
    entropy, rest = -sum(map(mul, probabilities, values)), 1.0 - sum(probabilities)
    count = min(len(values), MAX_ALTERNATIVES)
    return (
        entropy - rest * math.log(rest) if rest > _LEAST_REST else entropy,
        -total / count if count >= _MIN_ALTERNATIVES else None,
    )


def _select_numbers(alternatives: list[Any]) -> list[float]:
    """The log-probabilities among alternatives, the likeliest first; what isn't one is left out."""
    values = [item.get("logprob") for item in alternatives if isinstance(item, dict)]
    # rounding may put a sure one just above 0
    numbers = [float(min(v, 0.0)) for v in values if isinstance(v, float | int) and v > _LEAST_LOGPROB]
    return sorted(numbers, reverse=True)


def _build_signals(values: list[float], confidences: list[float]) -> Signals:
    tail, window = _round(_mean(values[-TAIL:])), _round(_find_lowest_mean(values))
    if not confidences:
        return Signals(tail=tail, window=window)
    return Signals(
        tail=tail,
        window=window,
        confidence=_round(_mean(confidences)),
        confidence_tail=_round(_mean(confidences[-TAIL:])),
        confidence_window=_round(_find_lowest_mean(confidences)),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _find_lowest_mean(values: Sequence[float]) -> float:
    """The lowest mean of a window; the mean of all where there is none."""
    if len(values) <= WINDOW:
        return _mean(values)
    changes: Iterator[float] = map(sub, values[WINDOW:], values)
    return min(accumulate(changes, initial=sum(values[:WINDOW]))) / WINDOW


def _round(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # no negative zero


def add_answer_signals(
    signals: Signals | None, tokens: Sequence[Token] | None, text: str, answer: str | None
) -> Signals | None:
    r"""The signals with those of the answer's own tokens, where the answer is found in the text.

    >>> pieces = (("It is ", -1.0), ("4", -0.25), ("2", -0.5), (".", -3.0))
    >>> tokens = [{"token": token, "logprob": logprob} for token, logprob in pieces]
    >>> added = add_answer_signals(Signals(), tokens, "It is 42.", "42")
    >>> added.answer_sum, added.answer_least
    (-0.75, -0.5)
    """
    if signals is None or not tokens or not answer:
        return signals
    span = locate_answer(text, answer)
    chosen = None if span is None else _select_tokens(tokens, text, span)
    numbers = _read_numbers([token.get("logprob") for token in chosen]) if chosen else None
    if not chosen or numbers is None or len(numbers[1]) < len(chosen):
        return signals
    entropies: list[float] = []
    _read_listed([token.get("top_logprobs") for token in chosen], entropies, [])
    return Signals(  # `replace` takes four times as long
        tail=signals.tail,
        window=signals.window,
        answer_sum=_round(numbers[0]),
        answer_least=_round(min(numbers[1])),
        answer_entropy=_round(max(entropies)) if entropies else None,
        confidence=signals.confidence,
        confidence_tail=signals.confidence_tail,
        confidence_window=signals.confidence_window,
        score=signals.score,
    )


def _select_tokens(tokens: Sequence[Token], text: str, span: Span) -> list[Token] | None:
    """The tokens that the span of the text is made of; None where tokens and text don't match."""
    count = _FIRST_LOOK
    while True:
        last = list(tokens[-count:])
        is_all = len(last) >= len(tokens)
        chosen, is_short = _match_tokens(last, text, span)
        if chosen is not None or is_all or not is_short:
            return chosen
        count *= 8


def _match_tokens(last: list[Token], text: str, span: Span) -> tuple[list[Token] | None, bool]:
    """The tokens of the span among the last ones, and whether they were too few to tell."""
    is_short = False
    for pieces, whole, (begin, end) in _spell_pieces(last, text, span):
        for marks in range(min(_MAX_MARKS, len(pieces) - 1) + 1):
            try:
                places, ran_out = _walk_back(pieces, len(pieces) - marks, whole, begin, end)
            except (TypeError, AttributeError):  # a token that isn't text
                break
            if places is not None:
                return last[places[0] : places[1]], False
            is_short |= ran_out
    return None, is_short


def _spell_pieces(last: list[Token], text: str, span: Span) -> Iterator[tuple[list[Any], Any, Span]]:
    """Tokens, text and span as characters, then as bytes: a token may be a part of a character."""
    yield [token.get("token") for token in last], text, span
    if not text.isascii():
        begin, end = (len(_encode(text[:place])) for place in span)
        yield [_read_bytes(token) for token in last], _encode(text), (begin, end)


def _read_bytes(token: Token) -> bytes | None:
    raw, text = token.get("bytes"), token.get("token")
    try:
        if isinstance(raw, list):
            return bytes(raw)
        return _encode(text) if isinstance(text, str) else None
    except (TypeError, ValueError):
        return None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _walk_back(
    pieces: list[Any],
    count: int,
    whole: Any,  # noqa: ANN401 - str or bytes
    begin: int,
    end: int,
) -> tuple[Span | None, bool]:
    """The places of those of the first `count` pieces that overlap [begin, end) of the text.

    They are matched from its end. Also whether all of them match, but are too few.
    """
    at, place, stop = len(whole), count, 0
    while place:
        place -= 1
        piece = pieces[place]
        if at == len(whole) and not whole.endswith(piece):
            piece = piece.rstrip()  # servers may strip what stands at the end
        start = at - len(piece)
        if start < 0 or whole[start:at] != piece:
            return None, False
        if not stop and start < end:
            stop = place + 1
        if start <= begin:
            return ((place, stop) if stop else None), False
        at = start
    return None, True


def locate_answer(text: str, answer: str) -> Span | None:
    r"""Where an extracted answer stands in its text; None where it doesn't, e.g. since it was computed.

    That is in the last box, else after the last mark or phrase that states an answer, else where it is
    written last.

    >>> text = r"24 / 6 = 4, so \boxed{4}. Check: 4 * 6 = 24"
    >>> locate_answer(text, "4") == (text.find("{") + 1, text.find("}"))
    True
    """
    reply = strip_thinking(text[-TEXT_LIMIT:])
    span = _locate_in_reply(reply, answer)
    offset = len(text) - len(reply)
    return None if span is None else (span[0] + offset, span[1] + offset)


def _locate_in_reply(reply: str, answer: str) -> Span | None:
    if (box := find_box(reply)) is not None:
        at = reply.rfind("{" + box + "}") + 1 or reply.rfind(box)
        if span := _find_whole(reply, answer, at, at + len(box)):
            return span
    for start in find_answer_starts(reply):
        if span := _find_whole(reply, answer, start, len(reply)):
            return span
    if len(answer) == 1 and answer.isascii() and answer.isalpha():
        return _locate_letter(reply, answer)
    span = _find_last_whole(reply, answer)
    if span is None and answer[0] == "-" and len(answer) > 1:  # its sign may be written otherwise
        return _find_last_whole(reply, answer[1:])
    return span


def _locate_letter(reply: str, letter: str) -> Span | None:
    """Where a letter stands alone, or is marked as a choice: elsewhere it may be a word such as "A"."""
    if reply.strip(_LETTER_MARKS).upper() == letter.upper():
        at = reply.upper().rfind(letter.upper())
        return at, at + 1
    return locate_choice(reply, letter.upper())


def _find_whole(text: str, answer: str, begin: int, end: int) -> Span | None:
    """The first place between two others where the answer is not a part of a longer word or number."""
    at = text.find(answer, begin, end)
    for _ in range(_MAX_TRIES):
        if at < 0 or _is_whole(text, at, at + len(answer)):
            break
        at = text.find(answer, at + 1, end)
    else:
        return None
    return (at, at + len(answer)) if at >= 0 else None


def _find_last_whole(text: str, answer: str) -> Span | None:
    """The last such place."""
    at = text.rfind(answer)
    for _ in range(_MAX_TRIES):
        if at < 0 or _is_whole(text, at, at + len(answer)):
            break
        at = text.rfind(answer, 0, at + len(answer) - 1)
    else:
        return None
    return (at, at + len(answer)) if at >= 0 else None


def _is_whole(text: str, begin: int, end: int) -> bool:
    before, after = text[max(0, begin - 2) : begin], text[end : end + 2]
    first, last = text[begin], text[end - 1]
    if first.isalnum() and before:
        if before[-1].isalnum() and _are_joined(before[-1], first):
            return False
        if first.isdigit() and len(before) == 2 and before[-1] in ".," and before[0].isdigit():
            return False
    if last.isalnum() and after:
        if after[0].isalnum() and _are_joined(last, after[0]):
            return False
        if last.isdigit() and len(after) == 2 and after[0] in ".," and after[1].isdigit():
            return False
    return True


def _are_joined(left: str, right: str) -> bool:
    """Whether two letters or digits side by side are of one word: scripts without spaces aren't."""
    return left.isdigit() == right.isdigit() and (left.isascii() == right.isascii() or left.isdigit())
