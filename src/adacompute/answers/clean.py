"""Brings the many spellings of one formula to one alphabet. Doesn't know what formulas mean.

What comes out: ASCII digits and operators, `\\frac`, `\\sqrt`, functions and Greek as commands, and one
character each for what LaTeX and Unicode write in many ways: ≤ ≥ ≠ ± ∓ ∪ ∩ ∈ ∅ ∞ °, and ⦃ ⦄ for set braces.
"""

import re
import unicodedata

from adacompute.answers.trim import trim

__all__ = ["clean"]

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_SUPERSCRIPT_RUN = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]{1,40}")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
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
_SPAN = re.compile(r"(?<=\d)(\s?)–(\s?)(?=\d)")  # 1939–1945: a span of years, no subtraction
_MINUS = re.compile(r"(?<=[\d)])−(?=[\d(])")  # the true minus sign subtracts, a hyphen may join a code
_THIN = re.compile("(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))")

# what stands for each group of commands; a command that is missing here stays as it is
_SPELLINGS = {
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
_COMMANDS = {name: sign for sign, names in _SPELLINGS.items() for name in names.split()}
_COMMANDS |= {" ": " ", "\n": " "} | {sign: sign for sign in "%$#&_-"}
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
# \cdott is \cdot t whose space was lost: no command of LaTeX reads so, but for \pmb
_GLUED = re.compile(
    r"(?!pmb$)(cdot|times|sin(?!h)|cos(?!h)|tan(?!h)|log|ln|sqrt|pi|pm|theta|infty|frac)([A-Za-z])"
)
_LENGTH = re.compile(r"\\[hv]space\s{0,9}\*?\s{0,9}\{[^{}]{0,30}\}")
_TIE = re.compile(r"(?<=\S)~")
_WORDS = re.compile(
    r"\\(?:text|textbf|textit|textrm|textsf|texttt|mathrm|mathbf|mathit|mathsf|mathbb|operatorname|mbox|emph|hbox)"
    r"\s{0,9}\{([^{}\\]*)\}"
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,9}\{(.*)\}", re.DOTALL)
_DEGREES = re.compile(r"\^\s{0,9}(?:°|\{\s{0,9}°\s{0,9}\})")
_ORDINAL = re.compile(r"\^\s{0,9}\{\s{0,9}(st|nd|rd|th)\s{0,9}\}")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:(?:,|\{,\}|\\,|,\\!|\\!,?)\d{3}){1,99}(?![\d])(?!,\d)")
_PAIR = re.compile(r"\d{1,3}(?:,[1-9]\d\d)+")
_SEPARATOR = re.compile(r",\\!|\{,\}|\\,|\\!,?|,")


def clean(answer: str) -> str:
    r"""The answer in one alphabet, without wrapping and layout.

    >>> clean(r"$\left(\dfrac{1}{2}, 10{,}000\right)$.")
    '(\\frac{1}{2}, 10000)'
    """
    text = answer if answer.isascii() else _one_alphabet(answer)
    text = trim(text) or ""
    box = _BOX.fullmatch(text)
    if box is not None:
        text = trim(box.group(1)) or ""
    text = _THOUSANDS.sub(_whole, text)
    if "~" in text:
        text = _TIE.sub(" ", text)
    if "\\" in text:
        text = _LENGTH.sub(" ", text)
        text = _WORDS.sub(r" \1 ", _WORDS.sub(r" \1 ", text))
        text = _COMMAND.sub(_command, text)
        text = _DEGREES.sub("°", text)
        text = _ORDINAL.sub(r"\1", text)
    if "<=" in text or ">=" in text or "!=" in text:
        text = text.replace("<=", "≤").replace(">=", "≥").replace("!=", "≠")
    text = " ".join(text.split())
    if text.endswith((",", ";")):
        text = text.rstrip(",; ")
    return text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text


def _whole(match: re.Match[str]) -> str:
    """A number without its thousands separators; (1,200) is a pair, (1,000) can be none."""
    text, number = match.string, match.group()
    enclosed = text[: match.start()].endswith(("(", "[", "\\{")) or text.startswith(
        (")", "]", "\\}"), match.end()
    )
    return number if enclosed and _PAIR.fullmatch(number) else _SEPARATOR.sub("", number)


def _one_alphabet(text: str) -> str:
    text = _VULGAR.sub(lambda match: " " + unicodedata.normalize("NFKC", match.group()), text)
    text = _SUPERSCRIPT_RUN.sub(lambda match: "^{" + match.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _MINUS.sub(" - ", _THIN.sub(r"\\,", text))
    spans = _SPAN.split(text)[::3] if "=" not in text else [text]
    return "–".join(
        unicodedata.normalize("NFKC", part.translate(_SYMBOLS)).translate(_SYMBOLS) for part in spans
    )


def _command(match: re.Match[str]) -> str:
    name = match.group(1)
    found = _COMMANDS.get(name)
    if found is None:
        glued = _GLUED.fullmatch(name)
        found = match.group() if glued is None else _COMMANDS.get(glued[1], "\\" + glued[1]) + " " + glued[2]
    return found
