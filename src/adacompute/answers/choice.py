"""The letter of a choice, A to J, that a response states."""

import re
from collections.abc import Iterator

__all__ = ["find_choice", "find_stated_choice", "locate_choice"]

_FIRST_LETTER, _LAST_LETTER = "A", "J"
_LETTER_PATTERN = (
    r"[(\[{<*`\"'“‘«$\\ ]{0,8}(?:text(?:bf)?\{|boxed\{|mathrm\{)?[({*\[]{0,3}"
    r"(?:([A-J])(?![^\W\u3040-\u9fff]|['’]\w|\.\w)|"
    r"([a-j])(?=[)\]}*.,;:`>”’»\"']{0,4}(?:\s*\Z|\n|</|[.,;:)\]]\s)))"
)
_IS_VERB = r"(?:\s{1,9}(?:is|would\s{1,9}be|es|est|ist|lautet)\b|是|为|為|は)"
# "the answer is B" and "B is correct": these count first
_STATED_CHOICE = re.compile(
    r"(?i:(?:\b(?:answer|ответ|antwort|réponse|respuesta|resposta|risposta|option|choice)|答案|答え)"
    rf"(?:{_IS_VERB}\s{{0,9}}[:：]?|[*_\s]{{0,9}}[:：]|(?<=<answer)>)[*_]{{0,2}}\s{{0,9}}(?:(?:option|choice)\s)?)"
    + _LETTER_PATTERN
)
_CHOICE_VERDICT = re.compile(
    r"(?<![\w])\(?([A-J])\)?\*{0,2}\s{1,9}is\s{1,9}(?:the\s{1,9})?(?:correct|right|best|answer)\b"
)
_NAMED_CHOICE = re.compile(r"(?i:\b(?:answer|option|choice)\s{1,9})" + _LETTER_PATTERN)  # mentioned only
_MARKED_CHOICE = re.compile(
    r"\(([A-J])\)|\*\*\(?([A-J])[).]?\*\*|(?<![\w'’(.])([A-J])[).](?![\w)])|\\boxed\{(?:\\text\{)?\(?([A-J])\b"
)
_CHOICE_PATTERNS = ((_STATED_CHOICE, _CHOICE_VERDICT), (_NAMED_CHOICE,), (_MARKED_CHOICE,))
_WORD_AFTER_LETTER = re.compile(r"[).:]{0,2}\s[a-z]")  # "I think", "A better": a word, not a choice
_REASON_AFTER_LETTER = re.compile(r"[).:]{0,2}\s(?:because|since|as|for|is|and|but|which|with)\b")
_VERB_AFTER_LETTER = re.compile(r"[)\]*]{0,4}\s{1,9}(?:is|are|was|can|does|must|fails)\b")


def find_choice(text: str) -> str | None:
    """The letter A to J that is stated last as the answer, else the last one marked as a choice."""
    bare = text.strip().strip("*_`$\"'“”‘’«»<>().[]{} ").upper()
    if len(bare) == 1 and _FIRST_LETTER <= bare <= _LAST_LETTER:
        return bare
    letters = (_find_last_choice(text, patterns) for patterns in _CHOICE_PATTERNS)
    return next((letter for letter in letters if letter), None)


def find_stated_choice(text: str) -> str | None:
    """The letter that is stated last as the answer, or called correct; None: there is none."""
    return _find_last_choice(text, _CHOICE_PATTERNS[0])


def _find_last_choice(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    return max(((end, letter) for end, letter, _ in _list_choices(text, patterns)), default=(0, None))[1]


def _list_choices(
    text: str, patterns: tuple[re.Pattern[str], ...]
) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Each choice in a text: where its statement ends, its letter, and where that stands."""
    for pattern in patterns:
        for match in pattern.finditer(text):
            letter, end = match[match.lastindex or 0], match.end()
            is_word = (
                pattern is not _MARKED_CHOICE
                and letter in "AI"
                and _WORD_AFTER_LETTER.match(text, end)
                and not _REASON_AFTER_LETTER.match(text, end)
            )
            # "option B is too small": it is mentioned, not chosen
            is_mentioned = pattern is _NAMED_CHOICE and _VERB_AFTER_LETTER.match(text, end)
            if not is_word and not is_mentioned:
                yield end, letter.upper(), match.span(match.lastindex or 0)


def locate_choice(text: str, letter: str) -> tuple[int, int] | None:
    """Where a letter is stated as the answer last, else where it is marked as a choice last."""
    for patterns in _CHOICE_PATTERNS:
        spans = [span for _, choice, span in _list_choices(text, patterns) if choice == letter]
        if spans:
            return max(spans)
    return None
