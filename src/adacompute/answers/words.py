"""Folds an answer in words: case, space, a leading article, a final period. Doesn't know languages."""

import re

from adacompute.answers.clean import clean

__all__ = ["folded"]

_CLEANED = 1000  # characters; longer texts are compared as they are written
_ARTICLE = re.compile(r"(?:the|an?)\s+(?=\S)")
_PRODUCTS = {
    pair[::-1]: pair for pair in ("ab", "bc", "bd", "cd", "kn", "mn", "pq", "rs", "uv", "xy", "xz", "yz")
}


def folded(text: str) -> str:
    """One spelling for texts that differ in case, space, a leading article or a final period only.

    >>> folded("The  Netherlands."), folded("Theodore"), folded("ba")
    ('netherlands', 'theodore', 'ab')
    """
    text = " ".join((text if len(text) > _CLEANED else clean(text)).casefold().split())
    bare = (
        _ARTICLE.sub("", text.rstrip(".").strip("\"' "), count=1)
        if _ARTICLE.match(text)
        else text.rstrip(".")
    )
    return _PRODUCTS.get(bare, bare) or text
