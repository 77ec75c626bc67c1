"""A text that is never shown. Doesn't know what it opens, nor where it came from."""

__all__ = ["Secret"]

_MASK = "***"


class Secret:
    """A key. Printed, logged, compared in a message or put into a record it is `***`; `reveal()` gives it.

    >>> key = Secret("sk-123456")
    >>> key, f"{key}", key.hidden("the server said: bad key sk-123456")
    (Secret('***'), '***', 'the server said: bad key ***')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself, for the one place that sends it."""
        return self._text

    def hidden(self, text: str) -> str:
        """`text` with every occurrence of the secret masked: endpoints do quote keys."""
        return text.replace(self._text, _MASK) if self._text in text else text

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
