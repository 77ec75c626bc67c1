"""A key that is never printed."""

import re
from collections.abc import Sequence

__all__ = ["Secret"]

_MASK = "***"
_SHORTEST_KEY = 8  # characters; a shorter one is a dummy, which may be a word in any text
_SHORTEST_DUMMY = 4  # characters; from here on a dummy is masked in messages, as a whole word


class Secret:
    """A key. Printed, logged, compared in a message or put into a record it is `***`; `reveal()` gives it.

    One of fewer than 8 characters (servers without keys are given `EMPTY`, `none` or `x`) is not treated as
    a secret in texts, where it would be masked out of answers; in messages it still is, from 4 characters
    on, as a whole word.

    >>> key = Secret("sk-123456")
    >>> key, f"{key}", key.mask("the server said: bad key sk-123456")
    (Secret('***'), '***', 'the server said: bad key ***')
    >>> dummy = Secret("none")
    >>> dummy.mask("none of these"), dummy.mask_message("wrong key: none")
    ('none of these', 'wrong key: ***')
    """

    __slots__ = ("_text", "masked", "source")

    def __init__(self, text: str, *, source: str = "", others: Sequence[str] = ()) -> None:
        """`others` are masked beside it, and never revealed."""
        self._text = text
        self.masked = tuple([each for each in (text, *others) if len(each) >= _SHORTEST_KEY])  # in texts
        self.source = source  # where it came from, in words; "": from a caller

    @property
    def is_maskable(self) -> bool:
        """Whether anything of it is long enough to be masked in texts."""
        return bool(self.masked)

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def mask(self, text: str) -> str:
        """The text with every occurrence of the secret masked: endpoints do quote keys."""
        for each in self.masked:
            text = text.replace(each, _MASK)
        return text

    def mask_message(self, message: str) -> str:
        """The message with the secret masked, even a short one."""
        message = self.mask(message)
        if len(self._text) < _SHORTEST_DUMMY or self._text not in message:
            return message
        return re.sub(rf"(?<!\w){re.escape(self._text)}(?!\w)", _MASK, message)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __repr__(self) -> str:
        return f"Secret({_MASK!r})"

    def __str__(self) -> str:
        return _MASK

    def __reduce__(self) -> str:
        raise TypeError("a secret is never written; read it again where it is needed")
