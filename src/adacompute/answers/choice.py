"""Which letter, A to J, a text chooses. Doesn't know what the choices say.

Every scan is linear in the text: patterns have no nested repeats.
"""

import re

__all__ = ["choice"]

_FIRST, _LAST = "A", "J"
_LETTER = (
    r"[(\[{<*`\"'“‘«$\\ ]{0,8}(?:text(?:bf)?\{|boxed\{|mathrm\{)?[({*\[]{0,3}"
    r"(?:([A-J])(?![^\W\u3040-\u9fff]|['’]\w|\.\w)|"
    r"([a-j])(?=[)\]}*.,;:`>”’»\"']{0,4}(?:\s*\Z|\n|</|[.,;:)\]]\s)))"
)
_SAYS = r"(?:\s{1,9}(?:is|would\s{1,9}be|es|est|ist|lautet)\b|是|为|為|は)"
# an answer that is said to be the letter, then a letter that is said to be right: these count first
_STATED = re.compile(
    r"(?i:(?:\b(?:answer|ответ|antwort|réponse|respuesta|resposta|risposta|option|choice)|答案|答え)"
    rf"(?:{_SAYS}\s{{0,9}}[:：]?|[*_\s]{{0,9}}[:：]|(?<=<answer)>)[*_]{{0,2}}\s{{0,9}}(?:(?:option|choice)\s)?)"
    + _LETTER
)
_VERDICT = re.compile(
    r"(?<![\w])\(?([A-J])\)?\*{0,2}\s{1,9}is\s{1,9}(?:the\s{1,9})?(?:correct|right|best|answer)\b"
)
_NAMED = re.compile(r"(?i:\b(?:answer|option|choice)\s{1,9})" + _LETTER)  # named, perhaps for another reason
_MARKED = re.compile(
    r"\(([A-J])\)|\*\*\(?([A-J])[).]?\*\*|(?<![\w'’(.])([A-J])[).](?![\w)])|\\boxed\{(?:\\text\{)?\(?([A-J])\b"
)
_PROSE = re.compile(r"[).:]{0,2}\s[a-z]")  # "I think", "A better": a word, not a choice
_REASON = re.compile(r"[).:]{0,2}\s(?:because|since|as|for|is|and|but|which|with)\b")
_DENIED = re.compile(r"[)\]*]{0,4}\s{1,9}(?:is|are|was|can|does|must|fails)\b")


def choice(text: str) -> str | None:
    """The letter A to J that is stated last as the answer, else the last one marked as a choice."""
    alone = text.strip().strip("*_`$\"'“”‘’«»<>().[]{} ").upper()
    if len(alone) == 1 and _FIRST <= alone <= _LAST:
        return alone
    return _last(text, (_STATED, _VERDICT)) or _last(text, (_NAMED,)) or _marked(text)


def _last(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    found = (-1, "")
    for pattern in patterns:
        for match in pattern.finditer(text):
            letter = next(group for group in match.groups() if group)
            end = match.end()
            if letter in "AI" and _PROSE.match(text, end) and not _REASON.match(text, end):
                continue
            if pattern is _NAMED and _DENIED.match(text, end):
                continue  # "option B is too small": what is right of it was looked for before
            found = max(found, (end, letter.upper()))
    return found[1] or None


def _marked(text: str) -> str | None:
    last = None
    for match in _MARKED.finditer(text):
        last = next(group for group in match.groups() if group)
    return last
