"""Brings the many spellings of an answer in LaTeX, Unicode or words to one spelling.

`clean` gives ASCII digits and operators, `\\frac`, `\\sqrt`, functions and Greek as commands, and one
character each for what LaTeX and Unicode write in many ways: ≤ ≥ ≠ ± ∓ ∪ ∩ ∈ ∅ ∞ °, and ⦃ ⦄ for set
braces. `fold_text` does the same for words, `tighten` for formulas that can't be computed.
"""

import re
import unicodedata

__all__ = [
    "clean",
    "find_relation_signs",
    "fold_text",
    "has_outer_brackets",
    "must_differ",
    "split_outside_brackets",
    "tighten",
    "trim",
]

_WRAPPING_PAIRS = (
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
_WRAPPING_OPENERS = frozenset(opening[0] for opening, _ in _WRAPPING_PAIRS)
_WRAPPING_LIMIT = 12  # layers; deeper wrapping is hostile, and the limit keeps the work linear


def trim(text: str) -> str | None:
    """The answer without its wrapping, one trailing period included; None where nothing is left.

    >>> trim(" **$5$**. "), trim("$5 and $6"), trim("''")
    ('5', '$5 and $6', None)
    """
    text = text.strip()
    may_drop_period = True
    for _ in range(_WRAPPING_LIMIT):
        if may_drop_period and text.endswith(".") and not text.endswith(".."):
            text, may_drop_period = text[:-1].rstrip(), False
        inner = _unwrap(text)
        if inner is None:
            break
        text = inner.strip()
    if may_drop_period and text.endswith(".") and not text.endswith(".."):
        text = text[:-1].rstrip()
    return text or None


def _unwrap(text: str) -> str | None:
    """The text inside an outer pair of marks; None if there is no pair, or it closes before the end."""
    if text[:1] not in _WRAPPING_OPENERS and text[:1] != "\\":
        return None
    for opening, closing in _WRAPPING_PAIRS:
        if text.startswith(opening) and text.endswith(closing) and len(text) >= len(opening) + len(closing):
            inner = text[len(opening) : -len(closing)]
            return inner if opening not in inner and closing not in inner else None
    return None


_FORMULA_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|[^\W\d_]+|\S", re.DOTALL)
_SINGLE_IN_BRACES = re.compile(r"\{ (\S+) \}")
_COMPUTING_COMMANDS = frozenset(
    f"\\{name}" for name in ("sum", "prod", "int", "iint", "iiint", "oint", "lim", "det", "gcd", "max", "min")
)
_COMMUTING_SIGNS = frozenset("+*,;=&")


def tighten(formula: str) -> str:
    r"""The formula's tokens, one space between them; braces around one token alone are left out.

    >>> tighten(r"x\equiv 2 \pmod{5}") == tighten(r"x \equiv 2\pmod 5")
    True
    """
    return _SINGLE_IN_BRACES.sub(r"\1", " ".join(_FORMULA_TOKEN.findall(formula)))


def must_differ(a: str, b: str) -> bool:
    r"""Whether two tightened formulas can't be the same, because numerals or letters in them differ.

    Formulas such as \langle 1 \to 2 \rangle and \langle 1 \to 3 \rangle need no other judge, unless a part
    of them could come to the same value: a sum, an integral, a limit.

    >>> must_differ(tighten(r"2 \to 7"), tighten(r"3 \to 7"))
    True
    >>> must_differ(tighten(r"\sum 2"), tighten(r"\sum 3"))
    False
    """
    left, right = a.split(" "), b.split(" ")
    if (
        len(left) != len(right)
        or not _COMPUTING_COMMANDS.isdisjoint(left)
        or not _COMPUTING_COMMANDS.isdisjoint(right)
    ):
        return False
    pairs = [pair for pair in zip(left, right, strict=True) if pair[0] != pair[1]]
    if not all(_is_leaf(x) and _is_leaf(y) for x, y in pairs):
        return False
    if sorted(x for x, _ in pairs) != sorted(y for _, y in pairs):
        return True
    return bool(pairs) and _COMMUTING_SIGNS.isdisjoint(left)


def _is_leaf(token: str) -> bool:
    return token[0].isdigit() or token.isalpha()


OPENING_BRACKETS = "([{⦃"
CLOSING_BRACKETS = ")]}⦄"


def split_outside_brackets(text: str, separators: str) -> list[str]:
    """The parts between separators that are outside brackets; one part where brackets don't match."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character in OPENING_BRACKETS:
            depth += 1
        elif character in CLOSING_BRACKETS:
            depth -= 1
        elif depth == 0 and character in separators:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    return parts if depth == 0 else [text]


def find_relation_signs(text: str) -> list[str]:
    """The relation signs outside brackets, in order."""
    depth = 0
    relation_signs = []
    for character in text:
        depth += (character in OPENING_BRACKETS) - (character in CLOSING_BRACKETS)
        if depth == 0 and character in "<>≤≥≠":
            relation_signs.append(character)
    return relation_signs


def has_outer_brackets(text: str) -> bool:
    """Whether the first bracket closes with the last character; interval brackets may be mixed."""
    if len(text) < 2 or text[0] not in OPENING_BRACKETS or text[-1] not in CLOSING_BRACKETS:
        return False
    depth = 0
    for at, character in enumerate(text):
        depth += (character in OPENING_BRACKETS) - (character in CLOSING_BRACKETS)
        if depth == 0:
            return at == len(text) - 1
    return False


_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]{1,40}")
_VULGAR_FRACTION = re.compile("[¼-¾⅐-⅞]")
_SYMBOLS = str.maketrans(
    {
        **dict.fromkeys("−–‐‑", "-"),
        **dict.fromkeys("’‘", "'"),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("⁄÷∕", "/"),
        **dict.fromkeys("×·⋅∙∗✕", "*"),
        **dict.fromkeys("≦⩽", "≤"),
        **dict.fromkeys("≧⩾", "≥"),
        **dict.fromkeys("⟨〈", "("),
        **dict.fromkeys("⟩〉", ")"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u2061\u2062", ""),
        "√": "\\sqrt ",
        "∣": "|",
        "：": ":",
        "，": ", ",
        "π": "\\pi ",
        "θ": "\\theta ",
        "α": "\\alpha ",
        "β": "\\beta ",
        "λ": "\\lambda ",
        "φ": "\\phi ",
    }
)
_NUMBER_SPAN = re.compile(r"(?<=\d)(\s?)–(\s?)(?=\d)")  # 1939–1945: a span of years, no subtraction
_TRUE_MINUS = re.compile(r"(?<=[\d)])−(?=[\d(])")  # subtracts; a hyphen may be part of a code
_THIN_SPACE = re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")

# the sign that replaces each group of commands; other commands stay as they are
_COMMAND_SPELLINGS = {
    "": "left right displaystyle textstyle limits rm bf big Big bigl bigr Bigl Bigr bigg Bigg biggl biggr "
    "mathstrut !",
    " ": ", ; : quad qquad space thinspace",
    "*": "cdot times ast",
    "/": "div",
    "<": "lt",
    ">": "gt",
    "≤": "le leq leqslant",
    "≥": "ge geq geqslant",
    "≠": "ne neq",
    "±": "pm",
    "∓": "mp",
    "∪": "cup",
    "∩": "cap",
    "∈": "in",
    "∅": "emptyset varnothing",
    "∞": "infty",
    "°": "degree circ",
    "|": "lvert rvert vert mid lVert rVert",
    "⦃": "{ lbrace",
    "⦄": "} rbrace",
    "(": "langle",
    ")": "rangle",
    "[": "lbrack",
    "]": "rbrack",
    "⌊": "lfloor",
    "⌋": "rfloor",
    "⌈": "lceil",
    "⌉": "rceil",
    "...": "dots ldots cdots",
    "\\frac": "dfrac tfrac cfrac",
    "\\binom": "dbinom tbinom",
    "\\phi": "varphi",
    "\\epsilon": "varepsilon",
    "\\csc": "cosec",
    "\\cot": "ctg",
    "\\tan": "tg",
}
_COMMAND_SIGNS = {name: sign for sign, names in _COMMAND_SPELLINGS.items() for name in names.split()}
_COMMAND_SIGNS |= {" ": " ", "\n": " "} | {sign: sign for sign in "%$#&_-"}
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
# \cdott is \cdot t without its space: no LaTeX command is spelled so, except \pmb
_GLUED_COMMAND = re.compile(
    r"(?!pmb$)(cdot|times|sin(?!h)|cos(?!h)|tan(?!h)|log|ln|sqrt|pi|pm|theta|infty|frac)([A-Za-z])"
)
_SPACE_COMMAND = re.compile(r"\\[hv]space\s{0,9}\*?\s{0,9}\{[^{}]{0,30}\}")
_TILDE_SPACE = re.compile(r"(?<=\S)~")
_TEXT_COMMAND = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathbb|operatorname|mbox|emph|hbox)"
    r"\s{0,9}\{([^{}\\]*)\}"
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,9}\{(.*)\}", re.DOTALL)
_DEGREES = re.compile(r"\^\s{0,9}(?:°|\{\s{0,9}°\s{0,9}\})")
_ORDINAL = re.compile(r"\^\s{0,9}\{\s{0,9}(st|nd|rd|th)\s{0,9}\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,|\{,\}|\\,|,\\!|\\!,?)\d{3}){1,99}(?![\d])(?!,\d)")
_NUMBER_PAIR = re.compile(r"\d{1,3}(?:,[1-9]\d\d)+")
_SEPARATOR = re.compile(r",\\!|\{,\}|\\,|\\!,?|,")


def clean(answer: str) -> str:
    r"""The answer in one alphabet, without wrapping and layout.

    >>> clean(r"$\left(\dfrac{1}{2}, 10{,}000\right)$.")
    '(\\frac{1}{2}, 10000)'
    """
    text = answer if answer.isascii() else _unify_alphabet(answer)
    text = trim(text) or ""
    box = _BOX.fullmatch(text)
    if box is not None:
        text = trim(box.group(1)) or ""
    text = _THOUSANDS.sub(_join_thousands, text)
    if "~" in text:
        text = _TILDE_SPACE.sub(" ", text)
    if "\\" in text:
        text = _SPACE_COMMAND.sub(" ", text)
        text = _TEXT_COMMAND.sub(r" \1 ", _TEXT_COMMAND.sub(r" \1 ", text))
        text = _COMMAND.sub(_replace_command, text)
        text = _DEGREES.sub("°", text)
        text = _ORDINAL.sub(r"\1", text)
    if "<=" in text or ">=" in text or "!=" in text:
        text = text.replace("<=", "≤").replace(">=", "≥").replace("!=", "≠")
    text = " ".join(text.split())
    if text.endswith((",", ";")):
        text = text.rstrip(",; ")
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def _join_thousands(match: re.Match[str]) -> str:
    """A number without its thousands separators; (1,200) may be a pair, (1,000) can't be one."""
    text, number = match.string, match.group()
    in_brackets = text[: match.start()].endswith(("(", "[", "\\{")) or text.startswith(
        (")", "]", "\\}"), match.end()
    )
    return number if in_brackets and _NUMBER_PAIR.fullmatch(number) else _SEPARATOR.sub("", number)


def _unify_alphabet(text: str) -> str:
    text = _VULGAR_FRACTION.sub(lambda match: " " + unicodedata.normalize("NFKC", match.group()), text)
    text = _SUPERSCRIPT_RUN.sub(lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _TRUE_MINUS.sub(" - ", _THIN_SPACE.sub(r"\\,", text))
    spans = _NUMBER_SPAN.split(text)[::3] if "=" not in text else [text]
    return "–".join(
        unicodedata.normalize("NFKC", part.translate(_SYMBOLS)).translate(_SYMBOLS) for part in spans
    )


def _replace_command(match: re.Match[str]) -> str:
    name = match.group(1)
    replacement = _COMMAND_SIGNS.get(name)
    if replacement is None:
        glued = _GLUED_COMMAND.fullmatch(name)
        replacement = (
            match.group() if glued is None else _COMMAND_SIGNS.get(glued[1], "\\" + glued[1]) + " " + glued[2]
        )
    return replacement


_CLEAN_LIMIT = 1000  # characters; longer texts are compared as they are written
_LEADING_ARTICLE = re.compile(
    r"(?:[Tt]he|THE|[Aa]n|AN|a|A(?!\s+(?:minor|major|flat|sharp|natural|positive|negative|plus|minus|level|side)\b))"
    r"\s+(?=\S)"  # A minor and A positive are names
)
_DOTTED_INITIALS = re.compile(r"(?<![\w.])[A-Za-z](?:\.[A-Za-z])+(?!\w)\.?")  # U.S. and p.m.


def fold_text(text: str) -> str:
    """One spelling for texts that differ in case, space, a leading article or periods of initials only.

    >>> fold_text("The  Netherlands."), fold_text("Theodore"), fold_text("U.S.")
    ('netherlands', 'theodore', 'us')
    """
    text = " ".join((text if len(text) > _CLEAN_LIMIT else clean(text)).split())
    if "." in text:
        text = _DOTTED_INITIALS.sub(lambda match: match.group().replace(".", ""), text)
    article = _LEADING_ARTICLE.match(text)
    bare = text[article.end() :].strip("\"' ") if article else text
    return (bare.rstrip(".") or text).casefold()
