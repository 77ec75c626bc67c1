"""What was learned of how an endpoint treats `n`, logprobs and usage. Knows nothing of HTTP."""

import re
import time
from collections.abc import Callable

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
_SHORT = 2  # replies in a row that fell short, until an endpoint that gave more before is believed


class Manners:
    """How one endpoint treats requests, as far as replies have shown it.

    `n` has two limits. One is said: it refused more. One is seen: it gave fewer than asked, and never more
    than that; a single short reply of an endpoint that gave more before (or gives more to a call that is
    still under way) is no limit.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.models = Learned(now)
        self.surplus = 0  # choices that came beyond those asked for: paid and counted, not used
        self.usage_per_choice: bool | None = None  # True: usage counts one choice only where n > 1
        self.characters = 0  # of responses whose tokens are known, to know characters a token
        self.tokens = 0
        self._said: int | None = None
        self._seen: int | None = None
        self._given = 0  # the most that came in one reply
        self._short = 0  # replies in a row that fell short

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
        known = [limit for limit in (self._said, self._seen) if limit is not None]
        return min(known) if known else None

    def portion(self, wanted: int) -> int:
        """How many of the choices wanted to ask for in one call."""
        most = self.most
        return wanted if most is None else min(wanted, most)

    def gave(self, asked: int, came: int) -> None:
        """A reply came with so many choices, usable or not."""
        self.surplus += max(0, came - asked)
        if asked < 2:
            return
        if came >= asked:
            self._short = 0
            if self._seen is not None and came > self._seen:
                self._seen = None  # the short reply was a chance
        else:
            self._short += 1
            if came > self._given or self._short >= _SHORT:
                self._seen = came
        self._given = max(self._given, came)

    def refused(self, asked: int, message: str) -> bool:
        """It refused that many. True: fewer may pass. Where even 1 is refused it was never about `n`."""
        if asked < 2:
            self._said = None
            return False
        limit = named_limit(message)
        fewer = limit if limit is not None and 1 <= limit < asked else max(1, asked // 2)
        self._said = fewer if self._said is None else min(self._said, fewer)
        return True


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
