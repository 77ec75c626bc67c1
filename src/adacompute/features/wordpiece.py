"""Text -> the numbers of word pieces, as BERT's uncased models were trained. Knows nothing of the model."""

import unicodedata
from collections.abc import Iterator, Mapping

__all__ = ["pieces"]

_LONGEST = 100  # characters of a word: a longer one is unknown
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def pieces(text: str, vocabulary: Mapping[str, int], *, most: int) -> list[int]:
    """At most `most` pieces of a text, the marks at its start and end among them."""
    found = [vocabulary["[CLS]"]]
    for word in _words(text):
        if len(found) >= most - 1:
            break
        found += _split(word, vocabulary)
    return [*found[: most - 1], vocabulary["[SEP]"]]


def _words(text: str) -> Iterator[str]:
    """Words in small letters without accents; punctuation marks and ideographs one by one."""
    spaced = "".join(_clean(character) for character in text)
    plain = unicodedata.normalize("NFD", spaced)
    plain = "".join(c for c in plain if unicodedata.category(c) != "Mn").lower()
    for run in plain.split():
        start = 0
        for place, character in enumerate(run):
            if _is_punctuation(character):
                if start < place:
                    yield run[start:place]
                yield character
                start = place + 1
        if start < len(run):
            yield run[start:]


def _split(word: str, vocabulary: Mapping[str, int]) -> list[int]:
    """The longest pieces that are known, from the left."""
    unknown = [vocabulary["[UNK]"]]
    if len(word) > _LONGEST:
        return unknown
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            number = vocabulary.get(("##" if start else "") + word[start:end])
            if number is not None:
                break
        else:
            return unknown
        found.append(number)
        start = end
    return found


def _clean(character: str) -> str:
    if character in "\t\n\r":
        return " "
    kind = unicodedata.category(character)
    if character in "\x00\ufffd" or kind[0] == "C":
        return ""
    if kind == "Zs":
        return " "
    code = ord(character)
    if code > 0x2E7F and any(low <= code <= high for low, high in _IDEOGRAPHS):
        return f" {character} "
    return character


def _is_punctuation(character: str) -> bool:
    code = ord(character)
    if code < 128:
        return 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return unicodedata.category(character)[0] == "P"
