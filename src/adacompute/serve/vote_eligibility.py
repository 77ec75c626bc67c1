"""Whether a request can be voted on: by the operator's rule, its prompt, and its first sample.

Prompts are classified by English words. Only the ends of long texts are read, and no pattern here nests
repeats, so that a hostile text takes no longer than another.
"""

import re
from typing import Literal

from adacompute.answers import Tally, Task, extract, extract_answer
from adacompute.answers.extract import is_slow_pattern
from adacompute.client import Response
from adacompute.config import ServeConfig, compile_vote_pattern
from adacompute.errors import ConfigError
from adacompute.records import Sample
from adacompute.serve.request_parser import ChatRequest
from adacompute.serve.stream_gate import StreamGate

__all__ = [
    "STREAMED_REASON",
    "TEXT_REASON",
    "HoldBack",
    "VoteEligibility",
    "classify_purpose",
    "may_be_short_answer",
]

Purpose = Literal["value", "fact", "text", ""]
TEXT_REASON = "the prompt asks for a text, not for an answer"
STREAMED_REASON = "the first sample looks like a text, and was streamed as it came"
HoldBack = Literal["nothing", "beginning", "all"]  # of a first sample that is streamed

_END = 1_000  # characters of either end of a prompt: the task stands at its beginning or its end
_MIN_NUMBERS = 2  # numbers in a prompt that make it a problem to solve, rather than a wish for advice
_MAX_DISTANCE = 12  # words at most between "what" and "area", or "write" and "poem"


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*|\d+|[.?!:;,\n]")
_STOPS = frozenset(".?!:;\n")
# an order's verb begins a sentence, or follows one of these; elsewhere it is a part of a question
_LEADS = _word_set("please kindly you and then to also now briefly let's")
_COMPOSE = _word_set(
    "compose draft rewrite rephrase reword paraphrase summarize summarise translate proofread "
    "brainstorm imagine pretend roleplay role-play act invent outline suggest recommend propose "
    "refactor debug implement"
)
_MAKE = _word_set(
    "write create make generate give tell come design build plan develop prepare produce need want show "
    "list name haiku poem"
)
_THINGS = _word_set(
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
_TELL = _word_set(
    "explain describe discuss compare contrast elaborate introduce analyze analyse review critique "
    "advise fix write create make generate design plan list turn"
)
_SOLVE = _word_set(
    "calculate compute evaluate solve simplify factor determine integrate differentiate round convert "
    "count estimate express expand reduce find classify categorize categorise label"
)
_LOOSE_FIND = _word_set("me out a some ways good something")  # without calculating: "find me a recipe"
_AMOUNTS = _word_set(
    "number value sum product difference quotient remainder area perimeter circumference volume unit "
    "units probability odds percent percentage ratio fraction average mean median mode range variance "
    "total cost price profit interest distance speed velocity length width height weight mass depth age "
    "angle root roots solution solutions derivative integral limit coefficient coefficients degree "
    "measure slope intercept equation expression inverse determinant radius diameter digit digits term "
    "factor multiple divisor gcd lcm maximum minimum largest smallest greatest least next missing "
    "result answer output year date time population temperature square cube logarithm factorial domain "
    "vertex midpoint hypotenuse rate change sequence integer integers salary"
)
_FORMS = _word_set(
    "number answer fraction decimal expression numeral numerals digit digits form notation percent"
)
_ASKING = _word_set(
    "who whose whom when where which what what's is are was were does did can do has name state"
)
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


def classify_purpose(prompt: str) -> Purpose:
    """What a prompt asks for: a value or a choice, a fact in a few words, a text; "" if it is unclear.

    >>> classify_purpose("How many legs do 3 cats have?"), classify_purpose("Write a poem about 3 cats")
    ('value', 'text')
    >>> classify_purpose("Hi there")
    ''
    """
    text = (prompt if len(prompt) <= 2 * _END else prompt[:_END] + "\n" + prompt[-_END:]).lower()
    words = _WORD.findall(text)
    has_numbers = sum(word.isdecimal() for word in words) >= _MIN_NUMBERS
    orders = _find_orders(words)
    if "compose" in orders or _WISH.search(text):
        return "text"
    if _CHOICES.search(text):
        return "value"
    if not has_numbers and _ADVICE.search(text):  # "How much should I save?"
        return "text"
    if "solve" in orders or _asks_amount(words) or _VALUE.search(text):  # "Explain how many …" included
        return "value"
    if "tell" in orders or _REASON.search(text):
        return "text"
    if "?" not in words or _ASKING.isdisjoint(words):
        return ""
    return "value" if has_numbers else "fact"


def _find_orders(words: list[str]) -> set[str]:
    """The orders that it gives: compose a text, solve a problem, tell of something."""
    orders: set[str] = set()
    begins, comma, made_at, wrote_at = True, False, -_MAX_DISTANCE, -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            begins, made_at = True, -_MAX_DISTANCE
            continue
        if at - made_at < _MAX_DISTANCE and word in _THINGS:
            orders.add("compose")
        if at - wrote_at < _MAX_DISTANCE and word in _FORMS:
            orders.add("solve")
        if begins and word in _COMPOSE:
            orders.add("compose")
        if begins and word in _MAKE:
            made_at = at
        if begins and word in _TELL:
            orders.add("tell")
        if (begins or comma) and word in _SOLVE and not (word == "find" and _is_loose_find(words, at)):
            orders.add("solve")
        wrote_at = at if word == "write" else wrote_at
        begins, comma = word in _LEADS, word == ","
    return orders


def _is_loose_find(words: list[str], at: int) -> bool:
    """Whether something is to be found without calculating: "find me a recipe"."""
    return at + 1 < len(words) and words[at + 1] in _LOOSE_FIND


def _asks_amount(words: list[str]) -> bool:
    """Whether it asks what, or which, amount something is."""
    asked_at = -_MAX_DISTANCE
    for at, word in enumerate(words):
        if word in _STOPS:
            asked_at = -_MAX_DISTANCE
        elif word in ("what", "which", "what's", "what’s"):
            asked_at = at
        elif at - asked_at < _MAX_DISTANCE and word in _AMOUNTS:
            return True
    return False


_MAX_PROMPT = 20_000  # characters of a prompt that the operator's pattern is applied to
_MIN_SILENT = 3  # samples without any answer, after which more are useless
_TAIL = 4_000  # characters of a response that are read, from its end
_MAX_TRAILING = 300  # characters that may follow an answer that is stated in words
_MAX_ANSWER_WORDS = 12  # words of an answer that is stated in words
_SHORT_REPLY_WORDS = 4  # words of a reply that is itself an answer
_SENTENCE_WORDS = 20  # words of a reply of one line to a question of fact

# how a sentence continues that has no answer: "the answer is far from clear", "the answer is that …"
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
_MARK = re.compile(r"\\boxed|<answer>|####|\bfinal answer\b", re.IGNORECASE)
_MAX_INSTRUCTIONS = 20  # messages at a request's beginning, and parts of one, that are read for instructions
_LAST_WORD = re.compile(r"\w{1,40}\Z")
_ASKS = re.compile(r"\?[\s*_)\"']{0,9}\Z")  # a reply that ends in a question of its own


class VoteEligibility:
    """The rule of one gateway."""

    def __init__(self, settings: ServeConfig, task: Task) -> None:
        self._vote = settings.vote
        self._task = task
        self._kind = task.extract.partition(":")[0] if isinstance(task.extract, str) else "function"
        self._pattern = _compile_fast_pattern(settings.vote_pattern) if settings.vote_pattern else None

    def check_request(self, request: ChatRequest) -> str:
        """Why a request isn't voted on, whatever is drawn; "": it may be."""
        if self._vote == "never":
            return "the operator votes on nothing"
        if request.no_vote_reason:
            return request.no_vote_reason
        if self._pattern is not None and self._pattern.search(request.prompt[:_MAX_PROMPT]) is None:
            return "the prompt has nothing of what the operator votes on"
        if request.json and self._vote != "always" and self._kind not in ("json", "regex", "function"):
            return "the reply is to be JSON, and the operator names no field of it to vote on"
        return ""

    def is_doubtful(self, request: ChatRequest) -> bool:
        """Whether the prompt seems to have nothing to vote on: then one sample is drawn first."""
        return self._vote == "auto" and self._kind == "auto" and classify_purpose(request.prompt) == "text"

    def plan_stream(self, request: ChatRequest) -> HoldBack:
        """How much of a streamed first sample is held back, because it may still be voted on.

        Nothing where the prompt asks for a text; all of it where its answer is expected at its end; else
        its beginning, until it is longer than an answer.
        """
        if self._vote == "always" or self._kind != "auto" or _asks_for_mark(request):
            return "all"
        purpose = classify_purpose(request.prompt)
        return "nothing" if purpose == "text" else "all" if purpose == "value" else "beginning"

    def make_gate(self, request: ChatRequest) -> StreamGate:
        """What holds back the beginning of a streamed first sample."""
        purpose = classify_purpose(request.prompt)
        return StreamGate(
            lambda beginning: may_be_short_answer(beginning, purpose), holds_thinking=purpose != ""
        )

    def check_first_sample(self, prompt: str, first: Response, sample: Sample | None = None) -> str:
        """Why a request isn't voted on, judging by its first sample; "": it is.

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
            return self._check_extracted(first, sample)
        return _check_text(prompt, first.text, truncated=first.finished is False)

    def check_tally(self, tally: Tally) -> str:
        """Why there is nothing to vote on, judging by several samples; "": there may be."""
        if self._vote == "always" or tally.answered or tally.drawn < _MIN_SILENT:
            return ""
        return f"none of the first {tally.drawn} samples states an answer that can be read"

    def _check_extracted(self, first: Response, sample: Sample | None) -> str:
        if first.finished is False:
            return ""
        if sample is not None:
            answer = sample.answer
        elif self._kind in ("regex", "function"):
            return ""  # it may take forever, so it isn't run here
        else:
            answer = extract_answer(first.text[-_TAIL:], self._task)
        return "" if answer is not None else "the first sample has no answer as the operator has it read"


def _check_text(prompt: str, text: str, *, truncated: bool) -> str:
    ending = extract.strip_thinking(text[-_TAIL:])
    if _has_marked_answer(ending):
        return ""
    wish = classify_purpose(prompt)
    if wish == "text":
        return TEXT_REASON
    if _states_answer(ending, finished=not truncated):
        return ""
    if truncated:
        partial = wish == "fact" and _states_answer(ending, finished=True, longest=len(ending))
        return "" if wish == "value" or partial else "the first sample was cut off before it stated an answer"
    if not ending.strip():
        return "the first sample is empty"
    if _DATA.match(text[:200]):
        return "the first sample is code or data"
    if _is_short_answer(ending, wish) or (wish == "value" and _ends_in_value(ending)):
        return ""
    return "the first sample states no answer"


def _has_marked_answer(ending: str) -> bool:
    """Whether the answer is in a box, a tag, or after #### at the end: prose has none of these."""
    tagged = extract.find_tag_answer(ending)
    if (tagged is not None and tagged.strip()) or extract.find_box(ending) is not None:
        return True
    hashed = extract.find_hash(ending)
    if hashed is None or not hashed.strip():
        return False
    return (
        not ending[ending.rfind("####") + 4 + len(hashed) :].strip()
        and len(hashed.split()) <= _MAX_ANSWER_WORDS
    )


def _states_answer(ending: str, *, finished: bool, longest: int = _MAX_ANSWER_WORDS) -> bool:
    """Whether it states "Answer: …" or "the answer is …" near its end, and something short."""
    end = ending[-_MAX_TRAILING - 200 :]
    for statement in (
        extract.find_answer_line(end, finished=finished),
        extract.find_answer_phrase(end, finished=finished),
    ):
        if statement and len(statement.split()) <= longest and not _HEDGE.match(statement.lstrip("*_ ")):
            return True
    return False


def _is_short_answer(ending: str, wish: Purpose) -> bool:
    """Whether all of it is an answer: a few words, or one sentence to a question of fact."""
    reply = ending.strip()
    words = len(reply[:500].split())
    if "\n" in reply or len(reply) > 300 or _CHAT.search(reply) or _ASKS.search(reply):
        return False
    if words <= _SHORT_REPLY_WORDS:
        return True
    return wish in ("value", "fact") and words <= _SENTENCE_WORDS


def may_be_short_answer(beginning: str, wish: Purpose) -> bool:
    """Whether a reply that begins so may turn out to be a short answer; as long as it may, it isn't streamed.

    >>> may_be_short_answer("The capital of", "fact"), may_be_short_answer("Sure! Here is", "fact")
    (True, False)
    """
    reply = beginning.strip()
    whole_words = _LAST_WORD.sub("", beginning[:300])  # "Hi" may become "Himalaya"
    if _CHAT.search(whole_words) or _DATA.match(reply):
        return False
    if "\n" in reply or len(reply) > 300:  # "Answer: …", and then a reason
        return len(reply) <= _MAX_TRAILING + 100 and _states_answer(reply, finished=True)
    words = len(reply.split())
    return words <= (_SENTENCE_WORDS if wish in ("value", "fact") else _SHORT_REPLY_WORDS)


def _asks_for_mark(request: ChatRequest) -> bool:
    """Whether an instruction wants answers in a box, a tag or after ####, whatever the prompt asks for."""
    return any(
        message.get("role") in ("system", "developer")
        and _MARK.search(_join_content(message.get("content"))[:_MAX_PROMPT]) is not None
        for message in request.body.get("messages", ())[:_MAX_INSTRUCTIONS]
    )


def _join_content(content: object) -> str:
    """A message's text, which may be in parts."""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content[:_MAX_INSTRUCTIONS])
    return content if isinstance(content, str) else ""


def _ends_in_value(ending: str) -> bool:
    """Whether its last line has a value, and is not an item of a list, heading or question."""
    line = ending.rstrip().rpartition("\n")[2][-600:]
    if line.strip() in ("\\]", "$$", "```"):  # a displayed formula ends it
        line = ending[-200:]
    elif _ITEM.match(line) and not _CONCLUDES.search(line):
        return False
    return _NUMBER.search(line) is not None and _ASKS.search(line) is None


def _compile_fast_pattern(pattern: str) -> re.Pattern[str]:
    regex = compile_vote_pattern(pattern)
    if is_slow_pattern(pattern, _MAX_PROMPT):
        raise ConfigError(
            f"vote_pattern {pattern!r} takes too long on long prompts; give one without nested repeats"
        )
    return regex
