"""Folds an answer in words: case, space, a leading article, a final period. Doesn't know languages."""

import re

from adacompute.answers.clean import clean

__all__ = ["folded"]

_CLEANED = 1000  # characters; longer texts are compared as they are written
_ARTICLE = re.compile(
    r"(?:[Tt]he|THE|[Aa]n|AN|a|A(?!\s+(?:minor|major|flat|sharp|natural|positive|negative|plus|minus|level|side)\b))"
    r"\s+(?=\S)"  # A minor and A positive are names
)
_INITIALS = re.compile(r"(?<![\w.])[A-Za-z](?:\.[A-Za-z])+(?!\w)\.?")  # U.S. and p.m.


def folded(text: str) -> str:
    """One spelling for texts that differ in case, space, a leading article or periods of initials only.

    >>> folded("The  Netherlands."), folded("Theodore"), folded("U.S.")
    ('netherlands', 'theodore', 'us')
    """
    text = " ".join((text if len(text) > _CLEANED else clean(text)).split())
    if "." in text:
        text = _INITIALS.sub(lambda match: match.group().replace(".", ""), text)
    article = _ARTICLE.match(text)
    bare = text[article.end() :].strip("\"' ") if article else text
    return (bare.rstrip(".") or text).casefold()
