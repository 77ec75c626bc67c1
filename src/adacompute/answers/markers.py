"""Where a text marks its answer: box, hash, or just its last value. Doesn't know what it means.

Every scan is linear in the text: patterns have no nested repeats, and unbalanced boxes cost one pass.
"""

import re

__all__ = ["boxed", "hash_not_heading", "hashed", "number", "short", "value"]

_PLAIN_BOX = re.compile(r"\\(?:boxed|fbox)\{([^{}\\\s][^{}\\]*)\}")  # most boxes: found at once
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])")
_BOX_BRACE = re.compile(r"\\(?:boxed|fbox)\s{0,20}\{|\\.|[{}]", re.DOTALL)
_BOX_TOKEN = re.compile(r"\s{1,20}([^\s{}$\\]+)")
_SPACE = re.compile(r"\s*")
_HEADING = re.compile(r"[\s#*]{0,9}[^\W\d_]{2,}")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}.,])[-−+]\s?)?(?:[$€£]\s?)?(?P<sign2>(?<=[$€£])-)?"
    r"(?P<number>(?<![\d:.,])\d{1,2}(?::[0-5]\d){1,2}(?:\.\d+)?(?![\d:])"
    r"|(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?![\w]))?|\.\d+)"
    r"(?P<over>/\d+(?![\d.]))?"
)
_FORMULA = 400  # characters either side of a number where the ends of its formula are looked for
_LAST_SENTENCE = re.compile(r"[^.!?。\n]{0,300}[.!?。)\]*_\s]{0,20}\Z")
_PARTS = re.compile(r"\\(?:\\|begin|boxed|fbox)")  # rows of a derivation, or a box left open
_PLAIN = re.compile(r"\\?[$€£]?\s*[-−+]?\s*\\?[$€£]?[\d.,]+(?:\s*/\s*\d+)?\s*")
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_QUOTED = re.compile(r"\\(?:text|mathrm|textbf|operatorname)\s?\{[^{}]*\}|\\[A-Za-z]+")
_EQUALS = re.compile(r"=|≈|\\approx(?![A-Za-z])")
# a short reply that says something about a number, and isn't itself the answer
_SENTENCE = re.compile(
    r"\b(?:is|are|was|were|be|has|have|had|equals?|gives?|makes?|costs?|gets?|got|needs?|takes?|took|earns?"
    r"|earned|ate|left|remains?|totals?|es|est|ist|sind|sont|war)\b"
    r"|^(?:so|thus|therefore|hence|then|it['’]s|that['’]s|there|(?:it|he|she|they|we|i|you|this|that)\s[a-z])\b",
    re.IGNORECASE,
)


def boxed(text: str) -> str | None:
    r"""What the last balanced `\boxed{...}` or `\fbox{...}` holds, empty ones left out; or 5 of `\boxed 5`"""
    at = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if at < 0:
        return None
    plain = _PLAIN_BOX.match(text, at)
    if plain is not None:
        return plain.group(1)
    last = _BOX.match(text, at)
    token = _BOX_TOKEN.match(text, last.end()) if last else None
    if token is not None:
        return token.group(1).rstrip(".,;:")
    return _balanced(text, at) or _balanced(text, 0)


def _balanced(text: str, start: int) -> str | None:
    """The box that opens last among those that close; boxes left open or empty cost nothing extra."""
    found: tuple[int, int] | None = None
    opened: list[int] = []  # where the content begins; -1 for braces that are no boxes
    for match in _BOX_BRACE.finditer(text, start):
        mark = match.group()
        if mark == "}":
            begin = opened.pop() if opened else -1
            if (
                begin >= 0
                and (found is None or begin > found[0])
                and not _is_blank(text, begin, match.start())
            ):
                found = (begin, match.start())
            if not opened and start:
                break  # asked for one box only, and it is closed
        elif mark[-1] == "{" and mark != "\\{":
            opened.append(match.end() if len(mark) > 1 else -1)
    return text[found[0] : found[1]] if found else None


def _is_blank(text: str, begin: int, end: int) -> bool:
    space = _SPACE.match(text, begin, end)
    return space is not None and space.end() == end


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
    """The last number: sign, decimals, thousands separators, a time and a simple fraction kept."""
    last = _last_number(text)
    return _spelled(last) if last is not None else None


def value(text: str) -> str | None:
    r"""The last number, or the formula it stands in: `36\pi` of "the area is $36\pi$."."""
    last = _last_number(text)
    if last is None:
        return None
    return _formula(text, last.start("number"), last.end()) or _spelled(last)


def _last_number(text: str) -> re.Match[str] | None:
    last = None
    glued = None  # a digit inside a word, as in H2O: only where nothing better is found
    for match in _NUMBER.finditer(text):
        begin = match.start("number")
        if begin and (text[begin - 1].isalpha() or text[begin - 1] == "_"):
            glued = match
        else:
            last = match
    return last or glued


def _spelled(match: re.Match[str]) -> str:
    negative = (match["sign"] or "").strip() in ("-", "−") or match["sign2"]
    return ("-" if negative else "") + match["number"] + (match["over"] or "")


def _formula(text: str, begin: int, end: int) -> str | None:
    """The formula around a number, where it ends the text's last sentence and is more than the number."""
    low, high = max(0, begin - _FORMULA), end + _FORMULA
    low = max(low, text.rfind("\n\n", low, begin))
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        at = text.rfind(opening, low, begin)
        close = text.find(closing, end, high)
        if at < 0 or close < 0 or not _is_open(text[low:begin], opening, closing):
            continue
        found = text[at + len(opening) : close].strip()
        is_last = _LAST_SENTENCE.match(text, close + len(closing))
        return _worth(found) if is_last and not _PARTS.search(found) else None
    return None


def _is_open(before: str, opening: str, closing: str) -> bool:
    if opening == "$":
        return (before.count("$") - 2 * before.count("$$") - before.count("\\$")) % 2 == 1
    if opening == "$$":
        return before.count("$$") % 2 == 1
    return before.rfind(opening) > before.rfind(closing)


def _worth(formula: str) -> str | None:
    r"""What of a formula is the answer: all of `x = 3y`, the end of `4 \cdot 9 = 36\pi`; None: its number."""
    if _PROSE.search(_QUOTED.sub(" ", formula)):
        return None  # two prices and the words between, say
    sides = _EQUALS.split(formula)
    if _PLAIN.fullmatch(sides[-1].strip()):
        return None
    if len(sides) == 1 or (len(sides) == 2 and re.search(r"[A-Za-z]", _QUOTED.sub(" ", sides[0]))):
        return formula
    return sides[-1].strip()


def short(text: str) -> str | None:
    """A reply that is itself the answer: one line of at most four words, and no sentence about a number."""
    stripped = text.strip()
    if "\n" in stripped or len(stripped) > 200 or len(stripped.split()) > 4:
        return None
    if any(c.isdigit() for c in stripped) and _SENTENCE.search(stripped):
        return None
    return stripped
