"""What was learned of how an endpoint treats `n`, logprobs and usage. Knows nothing of HTTP."""

import re
import time
from collections.abc import Callable

from adacompute.endpoint.habits import Habits
from adacompute.endpoint.learned import Learned

__all__ = ["Manners", "about_n", "named_limit"]

_N = re.compile(
    r"(?<![\w.\\-])['\"`]?n(?:_cmpl)?['\"`]?(?!\w|[.-]\w)(?!')|\bn_parallel\b|"
    r"number of (?:choices|completions)|completion choice|multiple (?:choices|completions|candidates)|"
    r"num_return_sequences|\bbest_of\b"
)
_LIMITS = (
    re.compile(r"<=\s*(?:value|n)\s*<=\s*(\d{1,9})"),  # llama.cpp: between 1 <= value <= 8
    re.compile(r"between\s+\d+\s+(?:and|to)\s+(\d{1,9})"),
    re.compile(
        r"(?:at most|up to|maximum(?: \w+){0,3}|max(?: \w+)?|no more than|exceeds?(?: the)? \w+(?: of)?)"
        r"(?: is| of|:|=)?\s*(\d{1,9})"
    ),
    re.compile(r"(?:less than or equal to|smaller than or equal to|<=|≤)\s*(\d{1,9})"),
    re.compile(r"must be\s*=?=?\s*(1)\b|only\s*['\"`]?n['\"`]?\s*={1,2}\s*(1)\b|only (?:one|1|a single)"),
)
_BELOW = re.compile(r"(?:less than|smaller than|below|<)\s*(\d{1,9})")
_OWN = re.compile(r"greedy|temperature|\bbeam")  # what a refusal of `n` may lie in: the request's own matter


class Manners:
    """How one endpoint treats requests, as far as replies have shown it: by model, for some minutes each.

    What is told without naming a model is of the one last heard of: for who asks one only.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.models = Learned(now)
        self.surplus = 0  # choices that came beyond those asked for: paid and counted, not used
        self._last: object = None  # the model last heard of

    @property
    def logprobs(self) -> bool | None:
        """Are log-probabilities given where asked for? For who asks one model; None: not known."""
        return self.models.logprobs

    def gives_logprobs(self, model: object) -> bool | None:
        """Does the model of that name give them, as far as the last minutes have shown?"""
        return self.models.gives_logprobs(model)

    @property
    def most(self) -> int | None:
        """Choices that one call gives at most: 1 where `n` is ignored or refused; None: no limit is known."""
        return self.models.habits(self._last).most

    @property
    def usage_per_choice(self) -> bool | None:
        """True: usage counts one choice only where n > 1; None: not known."""
        return self.models.habits(self._last).ever_per_choice

    def portion(self, wanted: int, model: object = None) -> int:
        """How many of the choices wanted to ask that model for in one call."""
        return self.models.habits(model).portion(wanted)

    def gave(self, asked: int, came: int, model: object = None) -> None:
        """A reply came with so many choices, usable or not."""
        self.surplus += max(0, came - asked)
        self._heard_of(model).gave(asked, came)

    def refused(self, asked: int, message: str, model: object = None) -> int | None:
        """It refused that many: how many to ask for instead. None: it was never about `n`."""
        own = _OWN.search(message.lower()) is not None
        return self._heard_of(model).refused(asked, named_limit(message), own=own)

    def _heard_of(self, model: object) -> Habits:
        self._last = model
        return self.models.remembered(model)


def about_n(message: str, param: object = None) -> bool:
    """Is a refusal about the number of choices?"""
    return param == "n" or (param is None and _N.search(message) is not None)


def named_limit(message: str) -> int | None:
    """The most choices a call that a refusal names, where it does.

    >>> named_limit("Field 'n': Value must be between 1 <= value <= 8, but got 9")
    8
    >>> named_limit("n must be less than 5"), named_limit("n is too large")
    (4, None)
    """
    lower = message.lower()
    for pattern in _LIMITS:
        if found := pattern.search(lower):
            return int(next((group for group in found.groups() if group), "1"))
    if found := _BELOW.search(lower):
        return int(found[1]) - 1
    return 1 if re.search(r"not supported|unsupported|not permitted|unknown|unrecognized", lower) else None
