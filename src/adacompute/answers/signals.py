"""Measures a model's confidence from token log-probabilities, if a response has them.

`summarise_tokens` computes the sum of all log-probabilities, the mean entropy and the signals that don't
depend on the answer. `add_answer_signals` adds the signals of the answer's own tokens. It matches tokens with
the text from the end, because there may be tokens of hidden reasoning before the text.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import mul
from typing import Any, NamedTuple

from adacompute.answers.extract import TEXT_LIMIT, find_answer_starts, find_box, strip_thinking
from adacompute.answers.marks import locate_choice
from adacompute.records import Signals

Token = Mapping[str, Any]
Span = tuple[int, int]

TAIL = 64  # the signals "tail" and "confidence_tail" are means over this many tokens at the end of a response
WINDOW = 32  # number of consecutive tokens in a window; the signal "window" is the lowest mean of any window
# a token's confidence is computed from at most this many of its likeliest alternatives
MAX_ALTERNATIVES = 20
_MIN_ALTERNATIVES = 2  # a token with fewer alternatives than this has no confidence value
_LEAST_LOGPROB = -700.0  # a lower log-probability counts as probability 0, because it may be a placeholder
# if the total probability of a token's listed alternatives is this close to 1, the rest is a rounding error
_LEAST_REST = 1e-12
_DIGITS = 6  # number of decimals to which signals are rounded; servers send more
# the answer is first searched for in this many tokens at the end, and then in all tokens
_FIRST_LOOK = 16
_MAX_MARKS = 4  # maximum number of end marks, such as `<|im_end|>`, after the tokens of the text
_LETTER_MARKS = "*_`$\"'“”‘’«»<>().[]{}: \n\t"  # characters that may surround a reply of one letter
_MAX_TRIES = 64  # maximum number of occurrences of the answer that one search checks
_NUMBER = (float, int)


class TokenSummary(NamedTuple):
    """Statistics over all tokens of a response; a statistic that is unknown is None."""

    logprob: float | None  # sum of the log-probabilities of all tokens, in nats
    entropy: float | None  # mean over the tokens that list alternatives, in nats
    signals: Signals | None  # doesn't include the signals of the answer's own tokens


NO_TOKENS = TokenSummary(None, None, None)


def summarise_tokens(tokens: Iterable[Token]) -> TokenSummary:
    """Computes statistics over the tokens of a response, in the format of a chat completion's `logprobs`.

    >>> summary = summarise_tokens([{"logprob": -0.5}, {"logprob": -1.5}])
    >>> summary.logprob, summary.signals.tail, summary.signals.confidence
    (-2.0, -1.0, None)
    """
    tokens = list(tokens)
    logprobs = [token.get("logprob") for token in tokens]
    listed = [alternatives for token in tokens if (alternatives := token.get("top_logprobs"))]
    read = [_read_alternatives(alternatives) for alternatives in listed]
    entropies = [entropy for entropy, _ in read if entropy is not None]
    confidences = [confidence for _, confidence in read if confidence is not None]
    entropy = _mean(entropies) if entropies else None
    total, values = _read_numbers(logprobs) or (None, [])
    if not values:
        return TokenSummary(total, entropy, None)
    known = confidences if len(confidences) == len(logprobs) else []
    return TokenSummary(total, entropy, _build_signals(values, known))


def _read_numbers(logprobs: list[Any]) -> tuple[float, list[float]] | None:
    """Returns the sum and the list of the finite values; None if any log-probability isn't a number.

    A placeholder such as -9999 is a number. An integer that is too large for a float isn't.
    """
    kinds = set(map(type, logprobs))
    if not all(issubclass(kind, _NUMBER) for kind in kinds):
        return None
    try:
        values = logprobs if kinds == {float} else list(map(float, logprobs))
    except OverflowError:
        return None
    total = sum(values, 0.0)
    if not math.isfinite(total):
        values = [value for value in values if math.isfinite(value)]
        total = sum(values, 0.0)
    return (total, values) if math.isfinite(total) else None


def _read_alternatives(alternatives: object) -> tuple[float | None, float | None]:
    """Returns a token's entropy, and minus the mean log-probability of its alternatives: in nats, or None.

    All tokens that aren't listed count as one further outcome, so the entropy is a lower bound.
    """
    items = alternatives if isinstance(alternatives, list) else []
    try:
        listed = [item["logprob"] for item in items]
    except (KeyError, TypeError):  # some items of the list aren't alternatives
        listed = [item["logprob"] for item in items if isinstance(item, dict) and "logprob" in item]
    numbers = [number for number in listed if isinstance(number, _NUMBER) and number > _LEAST_LOGPROB]
    if not numbers:
        return None, None
    # an invalid, positive log-probability counts as 0
    values = sorted([float(number) if number < 0 else 0.0 for number in numbers], reverse=True)
    probabilities = list(map(math.exp, values))
    entropy, rest = -sum(map(mul, probabilities, values)), 1.0 - sum(probabilities)
    likeliest = values[:MAX_ALTERNATIVES]
    return (
        entropy - rest * math.log(rest) if rest > _LEAST_REST else entropy,
        -_mean(likeliest) if len(likeliest) >= _MIN_ALTERNATIVES else None,
    )


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
    """Returns the lowest mean of any 32 consecutive values; the mean of all values if there are fewer."""
    if len(values) <= WINDOW:
        return _mean(values)
    lowest = total = sum(values[:WINDOW])
    for new, old in zip(values[WINDOW:], values, strict=False):
        total += new - old
        if total < lowest:
            lowest = total
    return lowest / WINDOW


def _round(value: float) -> float:
    return round(value, _DIGITS) + 0.0  # adding 0.0 turns -0.0 into 0.0


def add_answer_signals(
    signals: Signals | None, tokens: Sequence[Token] | None, text: str, answer: str | None
) -> Signals | None:
    r"""Adds the signals of the answer's own tokens, if the answer is found in the text.

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
    entropies = [_read_alternatives(token.get("top_logprobs"))[0] for token in chosen]
    return replace(
        signals,
        answer_sum=_round(numbers[0]),
        answer_least=_round(min(numbers[1])),
        answer_entropy=max((_round(entropy) for entropy in entropies if entropy is not None), default=None),
    )


def _select_tokens(tokens: Sequence[Token], text: str, span: Span) -> list[Token] | None:
    """Selects the tokens that cover a span of the text; None if tokens and text don't match."""
    for count in sorted({min(_FIRST_LOOK, len(tokens)), len(tokens)}):
        last = list(tokens[-count:])
        for pieces, whole, (begin, end) in _spell_pieces(last, text, span):
            for marks in range(min(_MAX_MARKS, len(pieces) - 1) + 1):
                try:
                    places = _walk_back(pieces, len(pieces) - marks, whole, begin, end)
                except (TypeError, AttributeError):  # the server sent a token whose text isn't a string
                    break
                if places is not None:
                    return last[slice(*places)]
    return None


def _spell_pieces(last: list[Token], text: str, span: Span) -> Iterator[tuple[list[Any], Any, Span]]:
    """Yields (tokens, text, span) as strings, then as bytes, because a token may be part of a character."""
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
) -> Span | None:
    """Finds which of the first `count` pieces (texts of tokens) overlap [begin, end) of the `whole` text.

    Matches the pieces with the text from its end. None if they don't match or don't reach back to `begin`.
    """
    at, place, stop = len(whole), count, 0
    while place:
        place -= 1
        piece = pieces[place]
        if at == len(whole) and not whole.endswith(piece):
            piece = piece.rstrip()  # servers may strip spaces from the end of a text
        start = at - len(piece)
        if start < 0 or whole[start:at] != piece:
            return None
        if not stop and start < end:
            stop = place + 1
        if start <= begin:
            return (place, stop) if stop else None
        at = start
    return None


def locate_answer(text: str, answer: str) -> Span | None:
    r"""Returns the span of an extracted answer in its text; None if the text doesn't contain it.

    Searches the last box, then the text after a mark such as "the answer is", then the whole text.

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
    span = _find_whole(reply, answer, 0, len(reply), last=True)
    if span is None and answer[0] == "-" and len(answer) > 1:  # the text may contain a different minus sign
        return _find_whole(reply, answer[1:], 0, len(reply), last=True)
    return span


def _locate_letter(reply: str, letter: str) -> Span | None:
    """Finds a letter that is the whole reply or is marked as a choice; elsewhere "A" may be a word."""
    if reply.strip(_LETTER_MARKS).upper() == letter.upper():
        at = reply.upper().rfind(letter.upper())
        return at, at + 1
    return locate_choice(reply, letter.upper())


def _find_whole(text: str, answer: str, begin: int, end: int, *, last: bool = False) -> Span | None:
    """Finds the first or last occurrence of the answer that isn't part of a longer word or number."""
    for _ in range(_MAX_TRIES):
        at = text.rfind(answer, begin, end) if last else text.find(answer, begin, end)
        if at < 0:
            return None
        if _is_whole(text, at, at + len(answer)):
            return at, at + len(answer)
        begin, end = (begin, at + len(answer) - 1) if last else (at + 1, end)
    return None


def _is_whole(text: str, begin: int, end: int) -> bool:
    before, after = text[max(0, begin - 2) : begin][::-1], text[end : end + 2]
    return not _continues(before, text[begin]) and not _continues(after, text[end - 1])


def _continues(outside: str, edge: str) -> bool:
    """Whether `outside` continues a word or number whose first or last character is `edge`.

    `outside` has the two characters beyond `edge`, nearest first. A letter of another script doesn't continue
    a word, because some scripts have no spaces.
    """
    if not outside or not edge.isalnum():
        return False
    near = outside[0]
    if near.isalnum():
        return near.isdigit() == edge.isdigit() and (near.isascii() == edge.isascii() or near.isdigit())
    return edge.isdigit() and near in ".," and outside[1:].isdigit()
