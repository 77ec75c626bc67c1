"""What a prompt is after: a value, a fact, or a text. Knows nothing of responses, or of votes.

The words are English, and only the ends of a long prompt are read, word by word: no pattern here repeats what
repeats, so that a hostile prompt takes no longer than another.
"""

import re
from typing import Literal

__all__ = ["Purpose", "purpose"]

Purpose = Literal["value", "fact", "text", ""]

_END = 1_000  # characters of either end of a prompt: the task stands at its beginning or its end
_GIVEN = 2  # numbers in a prompt from which on it is a problem to solve, rather than a wish for advice
_NEAR = 12  # words between "what" and "area", or "write" and "poem"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[.?!:;,\n]")
_STOPS = frozenset(".?!:;\n")
# an order's verb begins a sentence, or follows one of these; elsewhere it is a part of a question
_LEADS = _words("please kindly you and then to also now briefly let's")
_COMPOSE = _words(
    "compose draft rewrite rephrase reword paraphrase summarize summarise translate proofread "
    "brainstorm imagine pretend roleplay role-play act invent outline suggest recommend propose "
    "refactor debug implement"
)
_MAKE = _words(
    "write create make generate give tell come design build plan develop prepare produce need want show "
    "list name haiku poem"
)
_THINGS = _words(
    "poem poems haiku limerick sonnet verse lyrics song rap ode story stories tale novel chapter scene "
    "dialogue script scripts screenplay monologue essay article blog post tweet tweets caption captions "
    "thread newsletter speech toast email e-mail emails letter memo message invitation "
    "announcement resume cv bio biography review report summary abstract paragraph sentence sentences "
    "slogan slogans tagline title titles headline headlines names ideas tips suggestions advice "
    "joke jokes pun riddle recipe menu plan schedule itinerary agenda outline list lesson quiz "
    "questions flashcards description explanation introduction conclusion proposal pitch strategy "
    "policy guide tutorial documentation readme program python javascript typescript java rust sql bash "
    "html css react regex code class query api app website component snippet prompt persona character "
    "dockerfile makefile"
)
_TELL = _words(
    "explain describe discuss compare contrast elaborate introduce analyze analyse review critique "
    "advise fix write create make generate design plan list turn"
)
_SOLVE = _words(
    "calculate compute evaluate solve simplify factor determine integrate differentiate round convert "
    "count estimate express expand reduce find classify categorize categorise label"
)
_FOUND = _words("me out a some ways good something")  # without calculating: "find me a recipe"
_AMOUNTS = _words(
    "number value sum product difference quotient remainder area perimeter circumference volume unit "
    "units probability odds percent percentage ratio fraction average mean median mode range variance "
    "total cost price profit interest distance speed velocity length width height weight mass depth age "
    "angle root roots solution solutions derivative integral limit coefficient coefficients degree "
    "measure slope intercept equation expression inverse determinant radius diameter digit digits term "
    "factor multiple divisor gcd lcm maximum minimum largest smallest greatest least next missing "
    "result answer output year date time population temperature square cube logarithm factorial domain "
    "vertex midpoint hypotenuse rate change sequence integer integers salary"
)
_FORMS = _words(
    "number answer fraction decimal expression numeral numerals digit digits form notation percent"
)
_ASKING = _words("who whose whom when where which what what's is are was were does did can do has name state")
_WISH = re.compile(
    r"\btell me (?:a|about|more)\b|\bhelp me (?:write|plan|with)\b|\bcontinue the\b|\ba name for\b"
)
_ADVICE = re.compile(
    r"\b(?:should (?:i|we|you)\b|(?:do|would) you (?:think|like|feel|recommend|believe|prefer|say)"
    r"|your (?:opinion|view|favou?rite|thoughts)\b|pros and cons|best (?:way|practice)"
    r"|(?:some|any) (?:tips|advice|ideas)|difference between (?!the\b))"
)
_REASON = re.compile(
    r"\bhow (?:do|can|could|should|would|does|to|come)\b"
    r"|\bwhy (?:is|are|do|does|did|was|were|would|should|can)\b|\bsome (?:good|ways|of)\b"
)
_VALUE = re.compile(
    r"\bhow (?:many|much|old|long|far|tall|fast|big|large|high|deep|heavy|wide)\b|\bat what\b"
    r"|\b(?:true or false|yes or no|final answer|multiple[- ]choice|sentiment|(?:respond|reply) with only)\b"
    r"|\banswer (?:with|in|as|using|only)\b|\b(?:choose|pick) (?:one|the|from)\b"
    r"|\d ?[-+*/×÷^=<>] ?[\d?x(]|= ?\?|\bx ?=|\$[^$\n]{1,99}\$|\\(?:frac|sqrt|boxed)"
)
_CHOICES = re.compile(r"^[ \t]{0,9}\(?a[).:]\s[^\n]{1,400}\n{1,3}[ \t]{0,9}\(?b[).:]\s", re.MULTILINE)


def purpose(prompt: str) -> Purpose:
    """What it asks for: a value or a choice, a fact in a few words, a text; "" where it doesn't show.

    >>> purpose("How many legs do 3 cats have?"), purpose("Write a poem about 3 cats"), purpose("Hi there")
    ('value', 'text', '')
    """
    read = (prompt if len(prompt) <= 2 * _END else prompt[:_END] + "\n" + prompt[-_END:]).lower()
    words = _WORD.findall(read)
    many = sum(word.isdecimal() for word in words) >= _GIVEN
    orders = _orders(words)
    if "compose" in orders or _WISH.search(read):
        return "text"
    if _CHOICES.search(read):
        return "value"
    if not many and _ADVICE.search(read):  # "How much should I save?"
        return "text"
    if "solve" in orders or _names_amount(words) or _VALUE.search(read):  # "Explain how many …" included
        return "value"
    if "tell" in orders or _REASON.search(read):
        return "text"
    if "?" not in words or _ASKING.isdisjoint(words):
        return ""
    return "value" if many else "fact"


def _orders(words: list[str]) -> set[str]:
    """What it gives orders to do: compose a text, solve a problem, tell of something."""
    found: set[str] = set()
    begins, comma, made, wrote = True, False, -_NEAR, -_NEAR
    for at, word in enumerate(words):
        if word in _STOPS:
            begins, made = True, -_NEAR
            continue
        if at - made < _NEAR and word in _THINGS:
            found.add("compose")
        if at - wrote < _NEAR and word in _FORMS:
            found.add("solve")
        if begins and word in _COMPOSE:
            found.add("compose")
        if begins and word in _MAKE:
            made = at
        if begins and word in _TELL:
            found.add("tell")
        if (begins or comma) and word in _SOLVE and not (word == "find" and _loosely(words, at)):
            found.add("solve")
        wrote = at if word == "write" else wrote
        begins, comma = word in _LEADS, word == ","
    return found


def _loosely(words: list[str], at: int) -> bool:
    """Whether something is to be found without calculating: "find me a recipe"."""
    return at + 1 < len(words) and words[at + 1] in _FOUND


def _names_amount(words: list[str]) -> bool:
    """Whether it asks what, or which, amount something is."""
    asked = -_NEAR
    for at, word in enumerate(words):
        if word in _STOPS:
            asked = -_NEAR
        elif word in ("what", "which", "what's", "what’s"):
            asked = at
        elif at - asked < _NEAR and word in _AMOUNTS:
            return True
    return False
