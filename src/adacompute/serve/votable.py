"""Whether a request can be voted on: by the operator's rule, and by what the first sample shows.

Knows nothing of policies, or of how votes are counted. Only the ends of long texts are read.
"""

import re

from adacompute.answers import Tally, Task, extract_answer, markers, statements
from adacompute.answers.apart import takes_long
from adacompute.config import ServeConfig
from adacompute.endpoint import Response
from adacompute.errors import ConfigError
from adacompute.records import Sample
from adacompute.serve.asked import Ask
from adacompute.serve.purpose import Purpose, purpose

__all__ = ["Votable"]

_SEARCHED = 20_000  # characters of a prompt in which the operator's pattern is looked for
_SILENT = 3  # samples without any answer, after which more are of no use
_TAIL = 4_000  # characters of a response that are read, from its end
_FOLLOWS = 300  # characters that may follow an answer that is stated in words
_LONGEST = 12  # words of an answer that is stated in words
_FEW = 4  # words of a reply that is itself an answer
_SENTENCE = 20  # words of a reply of one line to a question of fact

# how a sentence goes on that has no answer: "the answer is far from clear", "the answer is that …"
_HEDGE = re.compile(
    r"(?:not|far|simple|complex|complicated|more|less|that|it|this|both|often|usually|somewhere|unclear|nuanced"
    r"|a (?:bit|little|matter|resounding|mix)|likely to|to \w+|in the|up to|always|never)\b",
    re.IGNORECASE,
)
_CHAT = re.compile(
    r"\b(?:hi|hello|hey|thanks|thank you|welcome|sure|sorry|of course|certainly|glad|happy to|goodbye|bye"
    r"|good (?:morning|night)|got it|no problem|how can i)\b|[!😀-🙏]",
    re.IGNORECASE,
)
_DATA = re.compile(r"\s{0,99}(?:```|[{\[]\s{0,9}[\"{\[]|<(?!think|answer)\w)")
_NUMBER = re.compile(r"\d|\\(?:frac|sqrt|pi|infty)|π|∞")
_ITEM = re.compile(r"\s{0,9}(?:[-*•]\s|\*\*\w|#{1,6}\s|\d{1,2}[.)]\s|\|)")
_CONCLUDES = re.compile(r"=|\b(?:conclusion|therefore|thus|hence|so|total|final|result|is)\b", re.IGNORECASE)
_ASKS = re.compile(r"\?[\s*_)\"']{0,9}\Z")  # a reply that ends in a question of its own


class Votable:
    """One rule for all requests of a gateway."""

    def __init__(self, settings: ServeConfig, task: Task) -> None:
        self._vote = settings.vote
        self._task = task
        self._kind = task.extract.partition(":")[0] if isinstance(task.extract, str) else "function"
        self._pattern = _compiled(settings.vote_pattern) if settings.vote_pattern else None

    def before(self, ask: Ask) -> str:
        """Why a request isn't voted on, whatever is drawn; "": it may be."""
        if self._vote == "never":
            return "the operator votes on nothing"
        if ask.alone:
            return ask.alone
        if self._pattern is not None and self._pattern.search(ask.prompt[:_SEARCHED]) is None:
            return "the prompt has nothing of what the operator votes on"
        if ask.json and self._vote != "always" and self._kind not in ("json", "regex", "function"):
            return "the reply is to be JSON, and the operator names no field of it to vote on"
        return ""

    def doubtful(self, ask: Ask) -> bool:
        """Does the prompt look as if there were nothing to vote on? Then one sample is to show it first."""
        return self._vote == "auto" and self._kind == "auto" and purpose(ask.prompt) == "text"

    def after(self, prompt: str, first: Response, sample: Sample | None = None) -> str:
        """Why a request isn't voted on, as its first sample shows; "": it is.

        `sample` is the response as it was read: an operator's own pattern isn't run here.
        """
        message = first.message
        if message.get("tool_calls") or message.get("function_call"):
            return "the first sample calls a tool"
        if message.get("refusal") and not message.get("content"):
            return "the first sample is a refusal"
        if self._vote == "always":
            return ""
        if self._kind != "auto":
            return self._read(first, sample)
        return _auto(prompt, first.text, cut=first.finished is False)

    def silent(self, tally: Tally) -> str:
        """Why there is nothing to vote on, as several samples show; "": there may be."""
        if self._vote == "always" or tally.answered or tally.drawn < _SILENT:
            return ""
        return f"none of the first {tally.drawn} samples states an answer that can be read"

    def _read(self, first: Response, sample: Sample | None) -> str:
        if first.finished is False:
            return ""
        if sample is not None:
            found = sample.answer
        elif self._kind in ("regex", "function"):
            return ""  # it may take for ever, and isn't run here
        else:
            found = extract_answer(first.text[-_TAIL:], self._task)
        return "" if found is not None else "the first sample has no answer as the operator has it read"


def _auto(prompt: str, text: str, *, cut: bool) -> str:
    said = statements.said_last(text[-_TAIL:])
    if _marked(said):
        return ""
    wanted = purpose(prompt)
    if wanted == "text":
        return "the prompt asks for a text, not for an answer"
    if _worded(said, finished=not cut):
        return ""
    if cut:
        begun = wanted == "fact" and _worded(said, finished=True, longest=len(said))
        return "" if wanted == "value" or begun else "the first sample was cut off before it stated an answer"
    if not said.strip():
        return "the first sample is empty"
    if _DATA.match(text[:200]):
        return "the first sample is code or data"
    if _replies(said, wanted) or (wanted == "value" and _ends_in_value(said)):
        return ""
    return "the first sample states no answer"


def _marked(said: str) -> bool:
    """Whether the answer is in a box, a tag, or after #### at the end: nobody writes these in prose."""
    tagged = statements.tagged(said)
    if (tagged is not None and tagged.strip()) or markers.boxed(said) is not None:
        return True
    hashed = markers.hashed(said)
    if hashed is None or not hashed.strip():
        return False
    return not said[said.rfind("####") + 4 + len(hashed) :].strip() and len(hashed.split()) <= _LONGEST


def _worded(said: str, *, finished: bool, longest: int = _LONGEST) -> bool:
    """Whether it says "Answer: …" or "the answer is …" near its end, and something short."""
    end = said[-_FOLLOWS - 200 :]
    for found in (statements.line(end, finished=finished), statements.phrase(end, finished=finished)):
        if found and len(found.split()) <= longest and not _HEDGE.match(found.lstrip("*_ ")):
            return True
    return False


def _replies(said: str, wanted: Purpose) -> bool:
    """Whether the whole of it is an answer: a few words, or one sentence to a question of fact."""
    reply = said.strip()
    words = len(reply[:500].split())
    if "\n" in reply or len(reply) > 300 or _CHAT.search(reply) or _ASKS.search(reply):
        return False
    if words <= _FEW:
        return True
    return wanted in ("value", "fact") and words <= _SENTENCE


def _ends_in_value(said: str) -> bool:
    """Whether its last line has a value, and is no item of a list, heading or question."""
    line = said.rstrip().rpartition("\n")[2][-600:]
    if line.strip() in ("\\]", "$$", "```"):  # a displayed formula ends it
        line = said[-200:]
    elif _ITEM.match(line) and not _CONCLUDES.search(line):
        return False
    return _NUMBER.search(line) is not None and _ASKS.search(line) is None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as exc:
        raise ConfigError(
            f"vote_pattern {pattern!r} is not a regular expression ({exc}); mend it, or leave it out"
        ) from exc
    if takes_long(pattern, _SEARCHED):
        raise ConfigError(
            f"vote_pattern {pattern!r} takes too long on long prompts; give one without nested repeats"
        )
    return compiled
