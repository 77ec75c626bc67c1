"""Finds an answer by its mark (####, an option's letter) or as the last number; strips a reply's markup."""

import re
from collections.abc import Iterator

from adacompute.answers.question import Options

_HEADING = re.compile(r"[\s#*]{0,9}(?:\d{1,2}[.)]\s{1,9})?[^\W\d_]{2,}")
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}.,])[-−+]\s?)?(?:[$€£]\s?)?(?P<sign2>(?<=[$€£])-)?"
    r"(?P<number>(?<![\d:.,])\d{1,2}(?::[0-5]\d){1,2}(?:\.\d+)?(?![\d:])"
    r"|(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,4}(?![\w]))?|\.\d+)"
    r"(?P<over>/\d+(?![\d.]))?"
)
_FORMULA_REACH = 400  # how many characters on either side of a number are searched for the ends of a formula
_LAST_SENTENCE = re.compile(r"[^.!?。\n]{0,300}[.!?。)\]*_\s]{0,20}\Z")
# matches TeX code in a formula that has several rows or contains a box
_DERIVATION = re.compile(r"\\(?:\\|begin|boxed|fbox)")
_PLAIN_NUMBER = re.compile(r"\\?[$€£]?\s*[-−+]?\s*\\?[$€£]?[\d.,]+(?:\s*/\s*\d+)?\s*")
_PROSE_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|operatorname)\s?\{[^{}]*\}|\\[A-Za-z]+")
_EQUALS = re.compile(r"=|≈|\\approx(?![A-Za-z])")
# matches words that show that a short reply is a sentence, rather than the bare answer
_SENTENCE = re.compile(
    r"\b(?:is|are|was|were|be|has|have|had|equals?|gives?|makes?|costs?|gets?|got|needs?|takes?|took|earns?"
    r"|earned|ate|left|remains?|totals?|es|est|ist|sind|sont|war)\b"
    r"|^(?:so|thus|therefore|hence|then|it['’]s|that['’]s|there|(?:it|he|she|they|we|i|you|this|that)\s[a-z])\b",
    re.IGNORECASE,
)


def find_hash(text: str) -> str | None:
    """Returns the rest of the line after the last "####"."""
    at = text.rfind("####")
    if at < 0:
        return None
    return text[at + 4 :].partition("\n")[0]


def find_hash_answer(text: str) -> str | None:
    """Works like `find_hash`, but returns None if the line is a Markdown heading: words with text below."""
    rest = find_hash(text)
    if rest is None or not _HEADING.match(rest):
        return rest
    below = text[text.rfind("####") + 4 + len(rest) :]
    return None if below.strip() else rest


def find_number(text: str) -> str | None:
    """Finds the last number, with its sign and decimals; it may also be a time or a simple fraction."""
    last = _find_last_number(text)
    return _spell_number(last) if last is not None else None


def find_value(text: str) -> str | None:
    r"""Finds the last number, or the formula around it: `36\pi` in "the area is $36\pi$."."""
    last = _find_last_number(text)
    if last is None:
        return None
    return _find_formula(text, last.start("number"), last.end()) or _spell_number(last)


_IN_WORD = re.compile("[A-Za-z_]")


def _find_last_number(text: str) -> re.Match[str] | None:
    last = None
    inside_word = None  # the last number inside a word, as in H2O; used only if there is no other number
    for match in _NUMBER.finditer(text):
        begin = match.start("number")
        if _IN_WORD.search(text, begin - 1, begin):
            inside_word = match
        else:
            last = match
    return last or inside_word


def _spell_number(match: re.Match[str]) -> str:
    negative = (match["sign"] or "").strip() in ("-", "−") or match["sign2"]
    return ("-" if negative else "") + match["number"] + (match["over"] or "")


def _find_formula(text: str, begin: int, end: int) -> str | None:
    """Finds the formula around a number; None if the number alone is the answer or more text follows."""
    low, high = max(0, begin - _FORMULA_REACH), end + _FORMULA_REACH
    low = max(low, text.rfind("\n\n", low, begin))
    for opening, closing in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        at = text.rfind(opening, low, begin)
        close = text.find(closing, end, high)
        if at < 0 or close < 0 or not _is_inside(text[low:begin], opening, closing):
            continue
        formula = text[at + len(opening) : close].strip()
        is_last = _LAST_SENTENCE.match(text, close + len(closing))
        return _select_answer_side(formula) if is_last and not _DERIVATION.search(formula) else None
    return None


def _is_inside(text: str, opening: str, closing: str) -> bool:
    if opening == "$":
        return (text.count("$") - 2 * text.count("$$") - text.count("\\$")) % 2 == 1
    if opening == "$$":
        return text.count("$$") % 2 == 1
    return text.rfind(opening) > text.rfind(closing)


def _select_answer_side(formula: str) -> str | None:
    r"""Selects the part of a formula that is the answer: all of `x = 3y`; the end of `4 \cdot 9 = 36\pi`.

    None if the answer is a bare number, or the text isn't a formula.
    """
    if _PROSE_WORD.search(_TEXT_COMMAND.sub(" ", formula)):
        return None  # not a formula but, for example, text between the dollar signs of two prices
    sides = _EQUALS.split(formula)
    if _PLAIN_NUMBER.fullmatch(sides[-1].strip()):
        return None
    if len(sides) == 1 or (len(sides) == 2 and re.search(r"[A-Za-z]", _TEXT_COMMAND.sub(" ", sides[0]))):
        return formula
    return sides[-1].strip()


def find_short_reply(text: str) -> str | None:
    """Returns the whole reply if it has one line, at most four words, and isn't a sentence with a number."""
    stripped = text.strip()
    if "\n" in stripped or len(stripped) > 200 or len(stripped.split()) > 4:
        return None
    if any(c.isdigit() for c in stripped) and _SENTENCE.search(stripped):
        return None
    return stripped


# --- finding the letter that a reply chooses in a multiple-choice question ---

_FIRST_LETTER, _LAST_LETTER = "A", "J"
_LETTER_PATTERN = (
    r"[(\[{<*`\"'“‘«$\\ ]{0,8}(?:text(?:bf)?\{|boxed\{|mathrm\{)?[({*\[]{0,3}"
    r"(?:([A-J])(?![^\W\u3040-\u9fff]|['’]\w|\.\w)|"
    r"([a-j])(?=[)\]}*.,;:`>”’»\"']{0,4}(?:\s*\Z|\n|</|[.,;:)\]]\s)))"
)
_IS_VERB = r"(?:\s{1,9}(?:is|would\s{1,9}be|es|est|ist|lautet)\b|是|为|為|は)"
# matches statements such as "the answer is B" or "option: B"
_STATED_CHOICE = re.compile(
    r"(?i:(?:\b(?:answer|ответ|antwort|réponse|respuesta|resposta|risposta|option|choice)|答案|答え)"
    rf"(?:{_IS_VERB}\s{{0,9}}[:：]?|[*_\s]{{0,9}}[:：]|(?<=<answer)>)[*_]{{0,2}}\s{{0,9}}(?:(?:option|choice)\s)?)"
    + _LETTER_PATTERN
)
_CHOICE_VERDICT = re.compile(
    r"(?<![\w])\(?([A-J])\)?\*{0,2}\s{1,9}is\s{1,9}(?:the\s{1,9})?(?:correct|right|best|answer)\b"
)
# matches a letter after "option" or the like; the reply may mention this option without choosing it
_NAMED_CHOICE = re.compile(r"(?i:\b(?:answer|option|choice)\s{1,9})" + _LETTER_PATTERN)
_MARKED_CHOICE = re.compile(
    r"\(([A-J])\)|\*\*\(?([A-J])[).]?\*\*|(?<![\w'’(.])([A-J])[).](?![\w)])|\\boxed\{(?:\\text\{)?\(?([A-J])\b"
)
_CHOICE_PATTERNS = ((_STATED_CHOICE, _CHOICE_VERDICT), (_NAMED_CHOICE,), (_MARKED_CHOICE,))
# matches what follows a letter that is a word, as in "I think" or "A better", rather than an option
_WORD_AFTER_LETTER = re.compile(r"[).:]{0,2}\s[a-z]")
_REASON_AFTER_LETTER = re.compile(r"[).:]{0,2}\s(?:because|since|as|for|is|and|but|which|with)\b")
_VERB_AFTER_LETTER = re.compile(r"[)\]*]{0,4}\s{1,9}(?:is|are|was|can|does|must|fails)\b")


def find_choice(text: str) -> str | None:
    """Finds the letter from A to J that a reply chooses; None if there is none.

    If the reply is more than a letter, the last letter stated as the answer counts; else the last one named,
    as in "option B"; else the last one marked, as in "(B)".
    """
    bare = text.strip().strip("*_`$\"'“”‘’«»<>().[]{} ").upper()
    if len(bare) == 1 and _FIRST_LETTER <= bare <= _LAST_LETTER:
        return bare
    letters = (_find_last_choice(text, patterns) for patterns in _CHOICE_PATTERNS)
    return next((letter for letter in letters if letter), None)


def find_stated_choice(text: str) -> str | None:
    """Finds the last letter stated as the answer or called correct; None if there is none."""
    return _find_last_choice(text, _CHOICE_PATTERNS[0])


def _find_last_choice(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    return max(((end, letter) for end, letter, _ in _list_choices(text, patterns)), default=(0, None))[1]


def _list_choices(
    text: str, patterns: tuple[re.Pattern[str], ...]
) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Yields (end of the statement, letter, span of the letter) for each choice in a text."""
    for pattern in patterns:
        for match in pattern.finditer(text):
            letter, end = match[match.lastindex or 0], match.end()
            is_word = (
                pattern is not _MARKED_CHOICE
                and letter in "AI"
                and _WORD_AFTER_LETTER.match(text, end)
                and not _REASON_AFTER_LETTER.match(text, end)
            )
            # "option B is too small" mentions B without choosing it
            is_mentioned = pattern is _NAMED_CHOICE and _VERB_AFTER_LETTER.match(text, end)
            if not is_word and not is_mentioned:
                yield end, letter.upper(), match.span(match.lastindex or 0)


def locate_choice(text: str, letter: str) -> tuple[int, int] | None:
    """Finds where a letter is last stated as the answer, else named ("option B"), else marked ("(B)")."""
    for patterns in _CHOICE_PATTERNS:
        spans = [span for _, choice, span in _list_choices(text, patterns) if choice == letter]
        if spans:
            return max(spans)
    return None


def find_option(text: str, options: Options) -> str | None:
    """Finds the option whose words occur in a text, if it is the only one, and returns its letter."""
    words = f" {' '.join(_find_words(text))} "
    own = {letter: f" {' '.join(_find_words(option))} " for letter, option in options}
    named = [letter for letter, option in own.items() if option.strip() and option in words]
    longest = [a for a in named if not any(own[a] != own[b] and own[a] in own[b] for b in named)]
    return longest[0] if len(longest) == 1 else None


_OPTION_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*|[-−+](?=\d)|[/%°]")


def _find_words(text: str) -> list[str]:
    return [word for word in map(str.casefold, _OPTION_WORD.findall(text)) if word not in ("a", "an", "the")]


# --- removing a reply's markup ---

_HEAD, _TAIL = 800, 1_600  # number of characters read at the beginning and at the end of a reply
SHORT_REPLY = 400  # maximum length of a reply that counts as short, in characters
ITEMS, ITEM_WORDS = 12, 4  # maximum number of items in an answer that is a list, and of words per item
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_PLAIN = dict(
    zip("“”«»„’‘ʼ\u00a0\u202f．０１２３４５６７８９", '"""""' + "'''" + "  .0123456789", strict=True)
)
_MARKS = re.compile(f"[*`{''.join(_PLAIN)}]")
_LEADING_MARKS = re.compile(r"^(?:[\s#>•_\"]|-(?!\d)){1,9}")
_THOUGHT = re.compile(r"^\s{0,9}(?:thoughts?|final answer|answer)\s?:\s{0,3}", re.IGNORECASE | re.MULTILINE)
_BULLET = re.compile(r"^\s{0,9}(?:[-*•]|\d{1,2}[.)])\s{1,4}(.{1,80})$", re.MULTILINE)
# matches a line that is a step of a solution rather than an item of a list
_NO_ITEM = re.compile(rf"\d|(?: .*){{{ITEM_WORDS}}}")


def clean_reply(text: str) -> str:
    if len(text) > _HEAD + _TAIL:
        text = text[:_HEAD] + "\n" + text[-_TAIL:]
    fences = _FENCE.findall(text)
    outside = _FENCE.sub("\n", text)
    if len(fences) == 1 and not outside.strip():
        outside = fences[0]
    return _LEADING_MARKS.sub(
        "", _THOUGHT.sub("", _MARKS.sub(lambda mark: _PLAIN.get(mark[0], ""), _join_items(outside)))
    ).strip()


def _join_items(text: str) -> str:
    """Turns a list with one item per line into a single sentence."""
    first = _BULLET.search(text) if "\n" in text else None
    items = [item.strip(" .*,;") for item in _BULLET.findall(text)] if first is not None else []
    if first is None or not 1 < len(items) <= ITEMS or any(map(_NO_ITEM.search, items)):
        return text
    before = text[: first.start()].strip()
    return f"{before} {', '.join(items)}" if len(before) < SHORT_REPLY else text


# matches what mustn't be cut apart: f(x), (x+1)(x-1), x^2, π/3, x > 3, 5e-7, C++, O-, an address
_EXPRESSION = re.compile(
    r"\S*(?:(?<!\w)(?:\w{1,2}\(|[A-Za-z] ?[<>≤≥] ?|[A-Z][A-Za-z]?[+#−-]{1,2}(?!\w))"
    r"|[a-z]\((?!e?[sn]\))|\)\(|[∞√π^]|\d[eE][-−+]?\d|://)\S*"
)


def is_cut(answer: str, text: str) -> bool:
    """Whether an answer stands nowhere in a text but as a part of a formula, code or address.

    >>> is_cut("O", "It is O(n log n)."), is_cut("3", "f(x) = 3"), is_cut("x^2", "x^2")
    (True, False, False)
    """
    rest = _EXPRESSION.sub(lambda run: answer if run[0].strip(".,;:!?") == answer else "", text)
    return any(word in text and word not in rest for word in answer.split())
