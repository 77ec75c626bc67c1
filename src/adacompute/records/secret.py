"""A text that is never shown. Doesn't know what it opens, nor where it came from."""

import re

__all__ = ["Secret"]

_MASK = "***"
_KEY = 8  # characters; what is shorter is a dummy, and may be a word of any text
_WORD = 4  # characters; in a message a dummy is masked from here on, as a word of its own


class Secret:
    """A key. Printed, logged, compared in a message or put into a record it is `***`; `reveal()` gives it.

    One of fewer than 8 characters (servers without keys are given `EMPTY`, `none` or `x`) is not treated as
    a secret in texts, where it would be masked out of answers; in messages it still is, from 4 characters
    on, as a word of its own.

    >>> key = Secret("sk-123456")
    >>> key, f"{key}", key.hidden("the server said: bad key sk-123456")
    (Secret('***'), '***', 'the server said: bad key ***')
    >>> dummy = Secret("none")
    >>> dummy.hidden("none of these"), dummy.unsaid("wrong key: none")
    ('none of these', 'wrong key: ***')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @property
    def guarded(self) -> bool:
        """Is it long enough to be masked in texts?"""
        return len(self._text) >= _KEY

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def hidden(self, text: str) -> str:
        """A text with every occurrence of the secret masked: endpoints do quote keys."""
        return text.replace(self._text, _MASK) if self.guarded else text

    def unsaid(self, message: str) -> str:
        """A message with the secret masked, also a short one."""
        if self.guarded or len(self._text) < _WORD or self._text not in message:
            return self.hidden(message)
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
        raise TypeError("a secret is not written anywhere; read it anew where it is needed")
