"""What one model was seen to do with `n` and with usage. Knows nothing of requests, nor of other models.

All of it is believed for some minutes only: a model may be exchanged.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FRESH", "Habits"]

FRESH = 600.0  # seconds that something learned is believed
_SHORT = 2  # replies in a row that fell short, until a model that gave more before is believed
_ENOUGH = 64  # tokens seen until characters a token count as learned
_MEMORY = 2**20  # tokens that characters a token look back on, about


@dataclass(slots=True)
class _Noted:
    value: int
    at: float


class Habits:
    """`n` has two limits. One is said: it refused more. One is seen: it gave fewer than asked, and never more
    than that; a single short reply of a model that gave more before (or gives more to a call that is still
    under way) is no limit.
    """

    __slots__ = ("_characters", "_given", "_now", "_per_choice", "_said", "_seen", "_short", "_tokens")

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._said: _Noted | None = None
        self._seen: _Noted | None = None
        self._given: _Noted | None = None  # the most that came in one reply
        self._short = 0  # replies in a row that fell short
        self._per_choice: _Noted | None = None
        self._characters = 0  # of responses whose tokens are known
        self._tokens = _Noted(0, now())

    @property
    def most(self) -> int | None:
        """Choices that one call gives at most, whenever that was seen; None: no limit is known."""
        known = [limit.value for limit in (self._said, self._seen) if limit is not None]
        return min(known) if known else None

    def portion(self, wanted: int) -> int:
        """How many of the choices wanted to ask for in one call.

        After some minutes one call is to ask for more than a limit again, while the others still don't.
        """
        limits = [limit for limit in (self._said, self._seen) if limit is not None]
        size = min([wanted, *(limit.value for limit in limits if self._fresh(limit))])
        for limit in limits:
            if limit.value < size:
                limit.at = self._now()
        return size

    def gave(self, asked: int, came: int) -> None:
        """A reply came with so many choices, usable or not."""
        if asked < 2:
            return
        if self._said is not None and came > self._said.value:
            self._said = None
        if came >= asked:
            self._short = 0
            if self._seen is not None and came > self._seen.value:
                self._seen = None  # the short reply was a chance
        else:
            self._short += 1
            if came > self._lately() or self._short >= _SHORT:
                self._seen = _Noted(came, self._now())
        if came >= self._lately():
            self._given = _Noted(came, self._now())

    def refused(self, asked: int, limit: int | None, *, own: bool = False) -> int | None:
        """It refused that many, and named that limit: how many to ask for instead.

        None where even 1 is refused: it was never about `n`. Nothing is learned where it is that request's
        `own` matter: others got more than that lately.
        """
        if asked < 2:
            self._said = None
            return None
        named = limit is not None and 1 <= limit < asked
        fewer = limit if limit is not None and named else max(1, asked // 2)
        lately = self._lately()
        if not own and lately < asked and not (named and lately > fewer):
            known = [self._said.value] if self._said is not None and self._fresh(self._said) else []
            self._said = _Noted(min([max(fewer, lately), *known]), self._now())
        return fewer

    @property
    def per_choice(self) -> bool | None:
        """Does usage count one choice only where n > 1? As far as the last minutes have shown."""
        noted = self._per_choice
        return bool(noted.value) if noted is not None and self._fresh(noted) else None

    @per_choice.setter
    def per_choice(self, value: bool) -> None:
        self._per_choice = _Noted(value, self._now())

    @property
    def ever_per_choice(self) -> bool | None:
        """The same, whenever that was seen."""
        return None if self._per_choice is None else bool(self._per_choice.value)

    @property
    def characters_a_token(self) -> float | None:
        """As single responses of the last minutes have shown; None: too few of them."""
        known = self._tokens.value >= _ENOUGH and self._fresh(self._tokens)
        return self._characters / self._tokens.value if known else None

    def wrote(self, characters: int, tokens: int) -> None:
        """A response of that length was of so many tokens."""
        before = self._tokens.value if self._fresh(self._tokens) else 0
        if before == 0:
            self._characters = 0
        elif before > _MEMORY:
            before, self._characters = before // 2, self._characters // 2
        self._characters += characters
        self._tokens = _Noted(before + tokens, self._now())

    def _lately(self) -> int:
        """The most that came in one reply in the last minutes."""
        return self._given.value if self._given is not None and self._fresh(self._given) else 0

    def _fresh(self, noted: _Noted) -> bool:
        return self._now() - noted.at < FRESH
