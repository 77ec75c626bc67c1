"""Cuts a cleaned formula at what stands outside its brackets. Doesn't know what the pieces mean."""

__all__ = ["encloses", "signs", "split"]

OPENING = "([{⦃"
CLOSING = ")]}⦄"


def split(text: str, separators: str) -> list[str]:
    """Cuts at separators outside brackets; the whole in one piece where brackets don't match."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif depth == 0 and character in separators:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts if depth == 0 else [text]


def signs(text: str) -> list[str]:
    """The relation signs outside brackets, in order."""
    depth = 0
    found = []
    for character in text:
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0 and character in "<>≤≥≠":
            found.append(character)
    return found


def encloses(text: str) -> bool:
    """Whether the first bracket closes with the last character; interval brackets may be mixed."""
    if len(text) < 2 or text[0] not in OPENING or text[-1] not in CLOSING:
        return False
    depth = 0
    for at, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if depth == 0:
            return at == len(text) - 1
    return False
