"""Where a text says its answer: box, phrase, line, hash, number, letter. Doesn't know what it means.

Every scan is linear in the text: patterns have no nested repeats, and unbalanced boxes cost one pass.
"""

import re

__all__ = ["boxed", "choice", "hash_not_heading", "hashed", "line", "number", "phrase", "short"]

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BOX_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,20}\{|\\.|[{}]", re.DOTALL)
_BOX_TOKEN = re.compile(r"\s{1,20}([^\s{}$\\]+)")
_PHRASE = re.compile(r"\banswer\s{1,20}(?:is|would\s{1,20}be)\b[ \t]{0,20}:?[ \t]{0,20}", re.IGNORECASE)
_SENTENCE = re.compile(r"\.(?=\s|$)|\n")
_LINE = re.compile(
    r"(\*\*|__|\*)?\b(?:final[ \t]{1,20})?answer[ \t]{0,20}(\*\*|__|\*)?[ \t]{0,20}:([^\n]*)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"[\s#*]{0,9}[^\W\d_]{2,}")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}.,])[-−+]\s?)?(?:[$€£]\s?)?(?P<sign2>(?<=[$€£])-)?"
    r"(?P<number>(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?![\w]))?|\.\d+)"
    r"(?P<over>/\d+(?![\d.]))?"
)
_LETTER = r"[(\[{*\"'$\\ ]{0,8}(?:text(?:bf)?\{|boxed\{|mathrm\{)?[({*\[]{0,3}([A-J])(?![\w'’])"
_STATED = re.compile(
    r"(?i:\b(?:answer|option|choice)(?:\s{1,9}(?:is|would\s{1,9}be))?\s{0,9}:?\s{0,9}(?:(?:option|choice)\s)?)"
    + _LETTER
)
_VERDICT = re.compile(r"(?<![\w])\(?([A-J])\)?\*{0,2}\s{1,9}is\s{1,9}(?:the\s{1,9})?(?:correct|right|best)\b")
_MARKED = re.compile(
    r"\(([A-J])\)|\*\*\(?([A-J])[).]?\*\*|(?<![\w'’(.])([A-J])[).](?![\w)])|\\boxed\{(?:\\text\{)?\(?([A-J])\b"
)
_PROSE = re.compile(r"[).:]{0,2}\s[a-z]")  # "I think", "A better": a word, not a choice
_REASON = re.compile(r"[).:]{0,2}\s(?:because|since|as|for|is|and|but|which|with)\b")


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for match in pattern.finditer(text):
        found = match
    return found


def boxed(text: str) -> str | None:
    r"""What the last balanced `\boxed{...}` or `\fbox{...}` holds, or the token after `\boxed 5`."""
    last = _last(_BOX, text)
    if last is None:
        return None
    token = _BOX_TOKEN.match(text, last.end())
    if token is not None:
        return token.group(1).rstrip(".,;:")
    return _balanced(text, last.start()) or _balanced(text, 0)


def _balanced(text: str, start: int) -> str | None:
    """The box that opens last among those that close; boxes left open cost nothing extra."""
    found: tuple[int, int] | None = None
    opened: list[int] = []  # where the content begins; -1 for braces that are no boxes
    for match in _BOX_BRACE.finditer(text, start):
        mark = match.group()
        if mark == "}":
            begin = opened.pop() if opened else -1
            if begin >= 0 and (found is None or begin > found[0]):
                found = (begin, match.start())
            if not opened and start:
                break  # asked for one box only, and it is closed
        elif mark[-1] == "{" and mark != "\\{":
            opened.append(match.end() if len(mark) > 1 else -1)
    return text[found[0] : found[1]] if found else None


def phrase(text: str) -> str | None:
    """What follows the last "the answer is" up to the end of its sentence or line."""
    last = _last(_PHRASE, text)
    if last is None:
        return None
    end = _SENTENCE.search(text, last.end())
    return text[last.end() : end.start() if end else len(text)]


def line(text: str) -> str | None:
    """What follows the last "Answer:" on its line."""
    last = _last(_LINE, text)
    if last is None:
        return None
    before, inside, rest = last.groups()
    rest = rest.strip()
    mark = before or "**"
    if not inside and rest.count(mark) == 1:  # emphasis that opened before the label
        rest = rest.removeprefix(mark) if rest.startswith(mark) else rest.removesuffix(mark)
    return rest


def hashed(text: str) -> str | None:
    """What follows the last "####" on its line."""
    at = text.rfind("####")
    if at < 0:
        return None
    return text[at + 4 :].partition("\n")[0]


def hash_not_heading(text: str) -> str | None:
    """As `hashed`, but not a heading of four signs: words, with more text below."""
    found = hashed(text)
    if found is None or not _HEADING.match(found):
        return found
    below = text[text.rfind("####") + 4 + len(found) :]
    return None if below.strip() else found


def number(text: str) -> str | None:
    """The last number: sign, decimals, thousands separators and a simple fraction kept."""
    last = None
    glued = None  # a digit inside a word, as in H2O: only where nothing better is found
    for match in _NUMBER.finditer(text):
        begin = match.start("number")
        if begin and (text[begin - 1].isalpha() or text[begin - 1] == "_"):
            glued = match
        else:
            last = match
    last = last or glued
    if last is None:
        return None
    negative = (last["sign"] or "").strip() in ("-", "−") or last["sign2"]
    return ("-" if negative else "") + last["number"] + (last["over"] or "")


def choice(text: str) -> str | None:
    """The letter A to J that is stated last as the answer, else the last one marked as a choice."""
    stripped = text.strip().strip("*_`$\"'().[]{} ")
    if len(stripped) == 1 and "A" <= stripped <= "J":
        return stripped
    found: tuple[int, str] | None = None
    for pattern in (_STATED, _VERDICT):
        for match in pattern.finditer(text):
            letter = match.group(1)
            if letter in "AI" and _PROSE.match(text, match.end()) and not _REASON.match(text, match.end()):
                continue
            if found is None or match.start(1) > found[0]:
                found = (match.start(1), letter)
    if found is not None:
        return found[1]
    last = None
    for match in _MARKED.finditer(text):
        last = next(group for group in match.groups() if group)
    return last


def short(text: str) -> str | None:
    """A reply that is itself the answer: one line of at most four words."""
    stripped = text.strip()
    if "\n" in stripped or len(stripped) > 200 or len(stripped.split()) > 4:
        return None
    return stripped
