"""How many tokens a reply took, in truth: some servers report usage of one choice only. Knows no prices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adacompute.endpoint.habits import Habits

__all__ = ["CHARACTERS_A_TOKEN", "Choice", "Counted", "cached_of", "count", "whole"]

CHARACTERS_A_TOKEN = 4.0  # of English, about; used where nothing better is known
_IMPLAUSIBLE = 7.0  # characters a token that no text has on average
_MOST = 2**40  # of anything in one reply; the sum of millions of these can still be stored


@dataclass(frozen=True, slots=True)
class Choice:
    """One usable choice of a reply, before its tokens are counted."""

    text: str
    finish_reason: str | None
    message: Mapping[str, Any]
    logprobs: Mapping[str, Any] | None
    tokens: list[dict[str, Any]] | None  # of its logprobs

    @property
    def length(self) -> int:
        """Characters that were written, also those that are not shown as text; at least 1."""
        hidden = 0
        for name in ("reasoning_content", "reasoning"):
            value = self.message.get(name)
            hidden += len(value) if isinstance(value, str) else 0
        calls = self.message.get("tool_calls")
        return max(1, len(self.text) + hidden + (len(str(calls)) if calls else 0))

    def known(self, cap: int | None) -> int | None:
        """Its tokens, where they can be counted: by its logprobs, or cut off at the cap."""
        if self.tokens is not None:
            return len(self.tokens)
        cut = self.finish_reason == "length" and self.length >= (cap or 0)  # else by something sooner
        return cap if cut else None


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens of a reply: those of each choice (and whether that is a guess), and in all."""

    each: tuple[tuple[int, bool], ...]
    total: int
    estimated: bool  # the total is not what the server said


def whole(value: object) -> int | None:
    """A count as servers give it; None for what is none, or more than can be true."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST else None


def cached_of(usage: object, prompt: int | None) -> int | None:
    """The tokens of a prompt that the server had cached, by its own account; None where that can't be.

    >>> cached_of({"prompt_tokens_details": {"cached_tokens": 64}}, 100)
    64
    """
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = whole(details.get("cached_tokens")) if isinstance(details, dict) else None
    return cached if cached is not None and prompt is not None and cached <= prompt else None


def count(choices: Sequence[Choice], said: int | None, *, cap: int | None, habits: Habits) -> Counted:
    """The tokens of choices, where the server said so many in all, or for one of them, or nothing.

    `cap` is the request's limit on the tokens of one response. Learns from what it sees. llama.cpp lists
    the end token in logprobs that its usage leaves out: a difference of one a choice is agreement.
    """
    if said == 0 and any(choice.text for choice in choices):
        said = None
    if len(choices) == 1:
        return _one(choices[0], said, cap, habits)
    counts = [choice.known(cap) for choice in choices]
    if said is None:
        return _guessed(choices, counts, CHARACTERS_A_TOKEN)
    exact = [tokens for tokens in counts if tokens is not None]
    if len(exact) == len(choices):
        return _checked(exact, said, habits)
    if _one_only(choices, sum(exact), said, habits):
        learned = habits.characters_a_token
        if said < sum(exact) or (learned is not None and habits.per_choice is None):
            habits.per_choice = True  # else it may be one odd text, and no habit, or it was known
        characters = sum(choice.length for choice in choices)
        return _guessed(choices, counts, learned or characters / (said * len(choices)))
    return _split(choices, counts, said)


def _one(choice: Choice, said: int | None, cap: int | None, habits: Habits) -> Counted:
    known = choice.known(cap)
    if said is None:
        tokens = known or _by_length(choice, CHARACTERS_A_TOKEN)
        return Counted(((tokens, known is None),), tokens, True)
    if choice.tokens is not None and len(choice.tokens) > said + 1:
        return Counted(((len(choice.tokens), False),), len(choice.tokens), True)
    habits.wrote(choice.length, said)
    return Counted(((said, False),), said, False)


def _checked(exact: list[int], said: int, habits: Habits) -> Counted:
    """Every choice can be counted: so can the sum, and what was said is checked against it."""
    counted, choices = sum(exact), len(exact)
    if counted - choices <= said <= counted + choices:
        if counted - choices > max(exact) + 1:  # else one choice can't be told from all
            habits.per_choice = False
        ends = 1 if said == counted - choices else 0
        return Counted(tuple((tokens - ends, False) for tokens in exact), said, False)
    if said > counted:  # tokens that are not shown, e.g. of reasoning
        shares = _shares(said, exact)
        return Counted(tuple((tokens, True) for tokens in shares), said, False)
    if any(abs(said - tokens) <= 1 for tokens in exact):
        habits.per_choice = True
    return Counted(tuple((tokens, False) for tokens in exact), counted, True)


def _one_only(choices: Sequence[Choice], exact: int, said: int, habits: Habits) -> bool:
    """Is what was said the usage of one choice? By what is certain, else by characters a token."""
    if said < exact:
        return True
    if habits.per_choice is not None:
        return habits.per_choice
    ratio = sum(choice.length for choice in choices) / said
    learned = habits.characters_a_token
    apart = math.sqrt(len(choices))  # half way, as ratios go, between one choice and all
    if learned is None:
        return ratio > max(CHARACTERS_A_TOKEN * apart, _IMPLAUSIBLE)
    return ratio > learned * apart


def _guessed(choices: Sequence[Choice], counts: Sequence[int | None], ratio: float) -> Counted:
    each = tuple(
        (_by_length(choice, ratio), True) if tokens is None else (tokens, False)
        for choice, tokens in zip(choices, counts, strict=True)
    )
    return Counted(each, sum(tokens for tokens, _ in each), True)


def _split(choices: Sequence[Choice], counts: Sequence[int | None], said: int) -> Counted:
    """A total, over the choices that can't be counted, by length."""
    rest = said - sum(tokens or 0 for tokens in counts)
    open_ = [choice.length for choice, tokens in zip(choices, counts, strict=True) if tokens is None]
    shares = iter(_shares(rest, open_))
    each = tuple((next(shares), True) if tokens is None else (tokens, False) for tokens in counts)
    return Counted(each, said, False)


def _shares(total: int, weights: Sequence[int]) -> list[int]:
    """Whole shares of a total in proportion to weights; they sum to it."""
    shares, left, weight = [], total, sum(weights)
    for one in weights:
        share = round(left * one / weight) if weight else 0
        shares.append(share)
        left -= share
        weight -= one
    return shares


def _by_length(choice: Choice, ratio: float) -> int:
    return max(1, math.ceil(choice.length / ratio))
