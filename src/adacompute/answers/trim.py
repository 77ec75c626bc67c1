"""Takes an answer out of its wrapping: space, dollars, emphasis, quotes. Doesn't know what it means."""

__all__ = ["trim"]

_PAIRS = (
    ("$$", "$$"),
    ("$", "$"),
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("**", "**"),
    ("__", "__"),
    ("*", "*"),
    ("_", "_"),
    ("`", "`"),
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("‘", "’"),
    ("«", "»"),
)
_OPENERS = frozenset(opening[0] for opening, _ in _PAIRS)
_LAYERS = 12  # nobody wraps deeper; keeps hostile text linear


def trim(text: str) -> str | None:
    """The answer without its wrapping, one trailing period included; None where nothing is left.

    >>> trim(" **$5$**. "), trim("$5 and $6"), trim("''")
    ('5', '$5 and $6', None)
    """
    text = text.strip()
    period = True
    for _ in range(_LAYERS):
        if period and text.endswith(".") and not text.endswith(".."):
            text, period = text[:-1].rstrip(), False
        inner = _unwrap(text)
        if inner is None:
            break
        text = inner.strip()
    if period and text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text or None


def _unwrap(text: str) -> str | None:
    """What an outer pair encloses; None where there is none, or where it closes before the end."""
    if text[:1] not in _OPENERS and text[:1] != "\\":
        return None
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            inner = text[len(opening) : -len(closing)]
            return inner if opening not in inner and closing not in inner else None
    return None
