"""Whether a request can be voted on: by the operator's rule, its prompt, and its first sample.

Whether a first sample has an answer is for the extractor to say (`answers/extract.py`): what it can't read
is not voted on. This module only says why.
"""

import re
from typing import Literal

from adacompute.answers import Tally, Task, extract, extract_answer
from adacompute.answers.extract import CHAT, DATA, HEDGE, abstains, check_pattern
from adacompute.answers.question import Purpose, classify_purpose
from adacompute.client import Response
from adacompute.config import ServeConfig, compile_vote_pattern
from adacompute.errors import ConfigError
from adacompute.records import Sample
from adacompute.serve.messages.request_parser import ChatRequest
from adacompute.serve.messages.stream import StreamGate
from adacompute.serve.voting.answer_reader import Shape

TEXT_REASON = "the prompt asks for a text, not for an answer"
STREAMED_REASON = "the first sample looks like a text, and was streamed as it came"
HoldBack = Literal["nothing", "beginning", "all"]  # of a first sample that is streamed

_MAX_PROMPT = 20_000  # characters of a prompt that the operator's pattern is applied to
_MIN_SILENT = 2  # samples without any answer, after which more are useless
_TAIL = 4_000  # characters of a response that are read, from its end
_MAX_TRAILING = 300  # characters that may follow an answer that is stated in words
_MAX_ANSWER_WORDS = 12  # words of an answer that is stated in words
_SHORT_REPLY_WORDS = 4  # words of a reply that is itself an answer
_SENTENCE_WORDS = 20  # words of a reply of one line to a question of fact

_MARK = re.compile(r"\\boxed|<answer>|####|\bfinal answer\b", re.IGNORECASE)
_MAX_INSTRUCTIONS = 20  # messages at a request's beginning, and parts of one, that are read for instructions
_LAST_WORD = re.compile(r"\w{1,40}\Z")


class VoteEligibility:
    """The rule of one gateway."""

    def __init__(self, settings: ServeConfig, task: Task) -> None:
        self._vote = settings.vote
        self._task = task
        self._kind = task.extract.partition(":")[0] if isinstance(task.extract, str) else "function"
        self._pattern = _compile_fast_pattern(settings.vote_pattern) if settings.vote_pattern else None
        self._votes_on_tools = settings.vote_tools
        self._votes_on_json = settings.vote_json

    @property
    def reads_everything(self) -> bool:
        """Whether a response that doesn't answer the question is still read for any answer it may have."""
        return self._vote == "always"

    @property
    def votes_on_json(self) -> bool:
        """Whether JSON is voted on where no field of it is named."""
        return self._votes_on_json

    def check_request(self, request: ChatRequest) -> str:
        """Why a request isn't voted on, whatever is drawn; "": it may be."""
        if self._vote == "never":
            return "the operator votes on nothing"
        if request.options.extract == "none":
            return "the request asks for none"
        if request.no_vote_reason:
            return request.no_vote_reason
        if request.tools and not self._votes_on_tools:
            return "tools: calls of tools aren't voted on"
        if self._pattern is not None and self._pattern.search(request.prompt[:_MAX_PROMPT]) is None:
            return "the prompt has nothing of what the operator votes on"
        if request.json and not self._votes_on_json and not self._names_field(request):
            return "the reply is to be JSON, and no field of it is named to vote on"
        return ""

    def _names_field(self, request: ChatRequest) -> bool:
        """Whether the operator or the request says what the answer in a reply is."""
        options = request.options
        return bool(self._kind in ("json", "regex", "function") or options.extract or options.fields)

    def is_doubtful(self, request: ChatRequest) -> bool:
        """Whether there may be nothing to vote on: then one sample is drawn first."""
        if self._vote != "auto":
            return False
        if request.tools or (request.json and not self._names_field(request)):  # it may hold free text
            return True
        return self._kind == "auto" and classify_purpose(request.prompt) != "value"

    def expects_text(self, request: ChatRequest) -> bool:
        """Whether the prompt asks for a text, so that a vote is very unlikely."""
        return self.is_doubtful(request) and not request.tools and classify_purpose(request.prompt) == "text"

    def plan_stream(self, request: ChatRequest, *, shape: Shape = "text") -> HoldBack:
        """How much of a streamed first sample is held back, because it may still be voted on.

        Nothing where the prompt asks for a text; all of it where its answer is expected at its end, or is
        JSON or in sections (`shape`); else its beginning, until it is longer than an answer. A call of a tool
        may come after any prompt.
        """
        if self._vote == "always" or self._kind != "auto" or _asks_for_mark(request):
            return "all"
        if shape != "text" or request.options.extract or request.tools == "must":
            return "all"
        purpose = classify_purpose(request.prompt)
        if purpose == "text":
            return "beginning" if request.tools else "nothing"
        return "all" if purpose == "value" else "beginning"

    def make_gate(self, request: ChatRequest) -> StreamGate:
        """What holds back the beginning of a streamed first sample."""
        purpose = classify_purpose(request.prompt)
        return StreamGate(
            lambda beginning: may_be_short_answer(beginning, purpose),
            holds_thinking=purpose not in ("", "text"),
            holds_calls=bool(request.tools),
        )

    def check_first_sample(self, prompt: str, first: Response, sample: Sample | None = None) -> str:
        """Why a request isn't voted on, judging by its first sample; "": it is.

        `sample` is the response as it was read: an operator's own pattern isn't run here.
        """
        message = first.message
        if message.get("tool_calls") or message.get("function_call"):
            return "" if self._votes_on_tools else "the first sample calls a tool"
        if message.get("refusal") and not message.get("content"):
            return "the first sample is a refusal"
        if self._vote == "always":
            return ""
        if self._kind != "auto":
            return self._check_extracted(first, sample)
        truncated = first.finished is False
        if sample is not None:
            answer = sample.answer
        else:
            answer = extract_answer(first.text[-_TAIL:], self._task, finished=not truncated, question=prompt)
        return "" if answer is not None else _explain_silence(prompt, first.text, truncated=truncated)

    def limit_wave(self, tally: Tally, count: int) -> int:
        """How many of the samples that a policy wants are drawn next: one, until one states an answer."""
        return count if self._vote == "always" or tally.answered else min(count, 1)

    def check_tally(self, tally: Tally, silent: int) -> str:
        """Why there is nothing to vote on, judging by several samples; "": there may be.

        `silent` of them came to their end without an answer that can be read: where they are the majority,
        the others' form must not win.
        """
        if self._vote == "always" or tally.drawn < _MIN_SILENT:
            return ""
        if not tally.answered:
            return f"none of the first {tally.drawn} samples states an answer that can be read"
        if silent <= max(tally.answered, 1):
            return ""
        return f"{silent} of the first {tally.drawn} samples state no answer that can be read"

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


def _explain_silence(prompt: str, text: str, *, truncated: bool) -> str:
    """Why a first sample without an answer is the last one; "": a second may have one."""
    purpose = classify_purpose(prompt)
    if purpose == "text":
        return TEXT_REASON
    if truncated:
        return "" if purpose == "value" else "the first sample was cut off before it stated an answer"
    ending = extract.strip_thinking(text[-_TAIL:])
    if not ending.strip():
        return "the first sample is empty"
    if DATA.match(text[:200]):
        return "the first sample is code or data"
    if purpose and abstains(ending):
        return ""  # it can't tell, which counts as an abstention
    return "the first sample states no answer"


def _states_answer(ending: str, *, finished: bool, longest: int = _MAX_ANSWER_WORDS) -> bool:
    """Whether it states "Answer: …" or "the answer is …" near its end, and something short."""
    end = ending[-_MAX_TRAILING - 200 :]
    for statement in (
        extract.find_answer_line(end, finished=finished),
        extract.find_answer_phrase(end, finished=finished),
    ):
        if statement and len(statement.split()) <= longest and not HEDGE.match(statement.lstrip("*_ ")):
            return True
    return False


def may_be_short_answer(beginning: str, wish: Purpose) -> bool:
    """Whether a reply that begins so may turn out to be a short answer; as long as it may, it isn't streamed.

    >>> may_be_short_answer("The capital of", "fact"), may_be_short_answer("Sure! Here is", "fact")
    (True, False)
    """
    reply = beginning.strip()
    chat = CHAT.search(_LAST_WORD.sub("", beginning[:300]))  # "Hi" may become "Himalaya"
    if (chat is not None and (wish == "" or chat.group() != "!")) or DATA.match(reply):
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


def _compile_fast_pattern(pattern: str) -> re.Pattern[str]:
    regex = compile_vote_pattern(pattern)
    if check_pattern(pattern, _MAX_PROMPT):
        raise ConfigError(
            f"vote_pattern {pattern!r} takes too long on long prompts; give one without nested repeats"
        )
    return regex
