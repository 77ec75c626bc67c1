"""How sure a model was of a response, from its token log-probabilities. Knows nothing of texts."""

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["entropy_of", "logprob_of", "tokens_of"]


def tokens_of(logprobs: object) -> list[dict[str, Any]] | None:
    """The tokens in the `logprobs` of a choice; None where it has none that can be read."""
    if not isinstance(logprobs, dict):
        return None
    content = logprobs.get("content")
    if not isinstance(content, list) or not content:
        return None
    return content if set(map(type, content)) == {dict} else None


def logprob_of(tokens: Sequence[dict[str, Any]]) -> float | None:
    """The sum over the tokens, in nats; None where one of them has no number, or the sum is none.

    A number that is not finite is left out; a placeholder such as -9999 counts as it stands. A whole number
    beyond all floats is no number.
    """
    try:
        plain = sum([token["logprob"] for token in tokens])  # all floats: the usual case, and quick
        if type(plain) is float and math.isfinite(plain):
            return plain
    except (KeyError, TypeError, OverflowError):
        pass
    total = 0.0
    for token in tokens:
        value = token.get("logprob")
        if not isinstance(value, float):
            value = _float(value)
            if value is None:
                return None
        if math.isfinite(value):
            total += value
    return total if math.isfinite(total) else None


def _float(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, int) else None
    except OverflowError:
        return None


def entropy_of(tokens: Sequence[dict[str, Any]]) -> float | None:
    """Mean entropy a token, in nats, over tokens with alternatives; None where none has any.

    What the alternatives leave of the probability counts as one more outcome, so this is a lower bound.

    >>> round(entropy_of([{"top_logprobs": [{"logprob": math.log(0.5)}]}]), 4)
    0.6931
    """
    given = [some for token in tokens if (some := token.get("top_logprobs"))]
    each = [_entropy(alternatives) for alternatives in given if isinstance(alternatives, list)]
    return sum(each) / len(each) if each else None


def _entropy(alternatives: list[Any]) -> float:
    rest, entropy = 1.0, 0.0
    for alternative in alternatives:
        value = alternative.get("logprob") if isinstance(alternative, dict) else None
        if isinstance(value, float | int) and value > -700.0:  # below that exp is 0
            logarithm = float(min(value, 0.0))  # rounding may put a sure one just above
            probability = math.exp(logarithm)
            entropy -= probability * logarithm
            rest -= probability
    return entropy - rest * math.log(rest) if rest > 1e-12 else entropy
