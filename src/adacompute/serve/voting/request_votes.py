"""The vote on one request: whether to hold one, the samples drawn, and the count of their votes.

`VoteEligibility` decides whether to vote, from the operator's settings, the prompt and the first samples. If
the first sample has no answer, there is usually no vote. `RequestVotes` counts the votes on one request.
`VoteSource` and `GatewayResources` are shared by all requests.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from adacompute.answers import Tally, Task, VoteWeights, extract, pick_representative
from adacompute.answers.extract import CHAT, DATA, HEDGE, abstains, check_pattern
from adacompute.answers.question import Purpose, classify_purpose
from adacompute.client import Client, ModeEndpoint, Response
from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.config import ServeConfig, compile_vote_pattern
from adacompute.errors import ConfigError
from adacompute.records import Sample, Signals
from adacompute.serve.messages.request_parser import ChatRequest, Route
from adacompute.serve.messages.stream import StreamGate
from adacompute.serve.pricing.policy_registry import ServedPolicy
from adacompute.serve.spending.ledger import LedgerProtocol, Rates
from adacompute.serve.voting.answer_reader import AnswerReader, FieldMemory, Shape, select_candidates
from adacompute.serve.voting.scorer import Scorer

TEXT_REASON = "the prompt asks for a text, not for an answer"
STREAMED_REASON = "the first sample looks like a text, and was streamed as it came"
HoldBack = Literal["nothing", "beginning", "all"]  # how much of a streamed first sample is held back

# only this number of first characters of a prompt is searched, e.g. for the operator's `vote_pattern`
_MAX_PROMPT = 20_000
_MIN_SILENT = 2  # with fewer samples, the vote continues even if none of them has an answer
_TAIL = 4_000  # number of characters at the end of a response that are searched for an answer
_MAX_TRAILING = 300  # maximum length, in characters, of the text after a stated answer, e.g. a reason
_MAX_ANSWER_WORDS = 12  # maximum number of words of an answer stated as "Answer: …"
# maximum number of words of a short answer, unless the prompt asks for a fact or a value
_SHORT_REPLY_WORDS = 4
_SENTENCE_WORDS = 20  # maximum number of words of a one-line answer to a factual question

_MARK = re.compile(r"\\boxed|<answer>|####|\bfinal answer\b", re.IGNORECASE)
# maximum number of messages, and of parts of each, that are searched for instructions
_MAX_INSTRUCTIONS = 20
_LAST_WORD = re.compile(r"\w{1,40}\Z")


class VoteEligibility:
    """Decides which requests get a vote, by the operator's settings."""

    def __init__(self, settings: ServeConfig, task: Task) -> None:
        self._vote = settings.vote
        self._kind = task.extract.partition(":")[0] if isinstance(task.extract, str) else "function"
        self._pattern = _compile_fast_pattern(settings.vote_pattern) if settings.vote_pattern else None
        self._votes_on_tools = settings.vote_tools
        # whether to vote on JSON replies even if no field is named as the answer
        self.votes_on_json = settings.vote_json
        # whether to vote even if the first samples don't answer the question
        self.reads_everything = settings.vote == "always"

    def check_request(self, request: ChatRequest) -> str:
        """Returns why there can be no vote on a request, or "" if there may be one."""
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
        if request.json and not self.votes_on_json and not self._names_field(request):
            return "the reply is to be JSON, and no field of it is named to vote on"
        return ""

    def _names_field(self, request: ChatRequest) -> bool:
        """Checks whether the operator or the request says which part of a reply is the answer."""
        options = request.options
        return bool(self._kind in ("json", "regex", "function") or options.extract or options.fields)

    def is_doubtful(self, request: ChatRequest) -> bool:
        """Checks whether there may be nothing to vote on, so that a single sample should be drawn first."""
        if self._vote != "auto":
            return False
        # tool calls and JSON may contain free text, which can't be voted on
        if request.tools or (request.json and not self._names_field(request)):
            return True
        return self._kind == "auto" and classify_purpose(request.prompt) != "value"

    def expects_text(self, request: ChatRequest) -> bool:
        """Checks whether the prompt asks for a text, so that a vote is very unlikely."""
        return self.is_doubtful(request) and not request.tools and classify_purpose(request.prompt) == "text"

    def plan_stream(self, request: ChatRequest, *, shape: Shape = "text") -> HoldBack:
        """Decides how much of a streamed first sample is held back, as a vote may choose another sample.

        Nothing is held back if the prompt asks for a text without tools. All of it is held back if the answer
        is expected at the end, in JSON or in sections (`shape`). Otherwise, only the beginning is held back,
        until it is too long for a short answer.
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
        """Makes the gate that holds back the beginning of a streamed first sample."""
        purpose = classify_purpose(request.prompt)
        return StreamGate(
            lambda beginning: may_be_short_answer(beginning, purpose),
            holds_thinking=purpose not in ("", "text"),
            holds_calls=bool(request.tools),
        )

    def check_first_sample(self, prompt: str, first: Response, sample: Sample) -> str:
        """Returns why the first sample rules out a vote, or "" if it doesn't.

        `first` is the response as received; `sample` is the same response with its answer.
        """
        message = first.message
        if message.get("tool_calls") or message.get("function_call"):
            return "" if self._votes_on_tools else "the first sample calls a tool"
        if message.get("refusal") and not message.get("content"):
            return "the first sample is a refusal"
        if self._vote == "always":
            return ""
        truncated = first.finished is False
        if sample.answer is not None:
            return ""
        if self._kind != "auto":
            return "" if truncated else "the first sample has no answer as the operator has it read"
        return _explain_silence(prompt, first.text, truncated=truncated)

    def limit_wave(self, tally: Tally, count: int) -> int:
        """Returns how many of `count` samples to draw next: at most one until a sample has an answer."""
        return count if self._vote == "always" or tally.answered else min(count, 1)

    def check_tally(self, tally: Tally, silent: int) -> str:
        """Returns why the samples so far rule out a vote, or "" if they don't.

        `silent` is the number of samples that finished without a readable answer. If more samples are silent
        than have an answer, there is no vote: a few answers must not win over many abstentions.
        """
        if self._vote == "always" or tally.drawn < _MIN_SILENT:
            return ""
        if not tally.answered:
            return f"none of the first {tally.drawn} samples states an answer that can be read"
        if silent <= max(tally.answered, 1):
            return ""
        return f"{silent} of the first {tally.drawn} samples state no answer that can be read"


def _explain_silence(prompt: str, text: str, *, truncated: bool) -> str:
    """Given that the first sample has no answer, returns a reason to stop sampling, or "" to continue."""
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
        return ""  # this sample says that the model can't answer, but other samples may have an answer
    return "the first sample states no answer"


def _states_answer(ending: str) -> bool:
    """Checks whether a reply ends with a short "Answer: …" or "the answer is …"."""
    end = ending[-_MAX_TRAILING - 200 :]
    return any(
        statement and len(statement.split()) <= _MAX_ANSWER_WORDS and not HEDGE.match(statement.lstrip("*_ "))
        for statement in (extract.find_answer_line(end), extract.find_answer_phrase(end))
    )


def may_be_short_answer(beginning: str, wish: Purpose) -> bool:
    """Checks by a reply's beginning whether it may be a short answer. `wish` is what the prompt asks for.

    >>> may_be_short_answer("The capital of", "fact"), may_be_short_answer("Sure! Here is", "fact")
    (True, False)
    """
    reply = beginning.strip()
    # the last word is ignored, because it may be incomplete: "Hi" may be the beginning of "Himalaya"
    chat = CHAT.search(_LAST_WORD.sub("", beginning[:300]))
    if (chat is not None and (wish == "" or chat.group() != "!")) or DATA.match(reply):
        return False
    # a long reply may still be an answer, such as "Answer: …" with a reason after it
    if "\n" in reply or len(reply) > 300:
        return len(reply) <= _MAX_TRAILING + 100 and _states_answer(reply)
    words = len(reply.split())
    return words <= (_SENTENCE_WORDS if wish in ("value", "fact") else _SHORT_REPLY_WORDS)


def _asks_for_mark(request: ChatRequest) -> bool:
    """Checks whether a system prompt asks for the answer in a LaTeX box, in <answer> tags or after ####."""
    return any(
        message.get("role") in ("system", "developer")
        and _MARK.search(_join_content(message.get("content"))[:_MAX_PROMPT]) is not None
        for message in request.body.get("messages", ())[:_MAX_INSTRUCTIONS]
    )


def _join_content(content: object) -> str:
    """Returns a message's text, which may consist of several parts."""
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


class VoteSource:
    """A model with its options (a mode), and the client that draws samples from it."""

    def __init__(self, *, client: Client, mode: ModeEndpoint) -> None:
        self.client, self.mode = client, mode
        self.name = mode.name  # name of the mode; "" if the gateway has only one upstream
        self.rates = Rates(input=mode.prices.input, cached=mode.cached_price, output=mode.prices.output)
        self.limit = mode.max_tokens  # the mode's own limit on response tokens; None: no limit
        self.added_tokens = mode.added_tokens  # maximum number of tokens that the mode adds to a prompt
        self.is_plain = not mode.model and not mode.all_options  # whether the mode sends requests unchanged

    def build_body(self, request: ChatRequest) -> Mapping[str, Any]:
        """Builds a request's body for this mode; token limits in it are at most those of the request."""
        if self.is_plain:
            return request.body
        body = self.mode.build_body(request.body)
        limits = {name: min(body[name], request.max_tokens) for name in LIMIT_NAMES if body.get(name)}
        return {**body, **limits}

    def bound_tokens(self, request: ChatRequest) -> tuple[int, int]:
        """Returns the maximum numbers of prompt and response tokens that a call for one sample can use."""
        limit = request.max_tokens if self.limit is None else min(self.limit, request.max_tokens)
        return request.prompt_tokens + self.added_tokens, limit


@dataclass(eq=False, kw_only=True)
class GatewayResources:
    """Resources that all requests share: modes, the ledger (spending and caps), and the rules for voting."""

    # name of a mode -> source of its samples, cheapest first; the name is "" if there is only one upstream
    sources: Mapping[str, VoteSource]
    default: str = ""  # name of the mode for requests that can't be voted on
    ledger: LedgerProtocol
    task: Task
    eligibility: VoteEligibility
    scorer: Scorer | None = None  # gets a verifier's scores for samples; None if there is no verifier
    max_rounds: int = 0  # maximum number of rounds of samples per request; 0: no limit
    max_samples: int = 0  # maximum number of samples per request; 0: no limit
    memory: FieldMemory = field(default_factory=FieldMemory)

    def __post_init__(self) -> None:
        default = self.sources[self.default]
        self.client = default.client  # the default mode's client, which also sends calls that draw no samples
        self.rates = default.rates  # token prices of the default mode
        self.has_choice = len(self.sources) > 1  # whether there are several modes
        # names of the modes; empty if there is only one upstream
        self.modes = tuple(name for name in self.sources if name)


# number of alternatives requested per token, with log-probabilities: most endpoints allow at most 5, and 20
# would make replies four times as long
_TOP_LOGPROBS = 5


class RequestVotes:
    """The responses to one request so far, and the votes on them."""

    def __init__(
        self, request: ChatRequest, route: Route, served: ServedPolicy, resources: GatewayResources
    ) -> None:
        self.responses: list[Response] = []
        self.modes: list[str] = []  # mode of each response; "" if there is only one upstream
        self.samples: list[Sample] = []
        self.policy_modes = served.names  # modes that the policy chooses from; empty if it accepts any mode
        # why there is no vote, for the client; "" if there is a vote
        self.no_vote_reason = resources.eligibility.check_request(request) or self._check_modes(route)
        # whether to vote; becomes False if samples show that there is nothing to vote on
        self.has_vote = not self.no_vote_reason and route.mode != "pass"
        self._request = request
        self._served = served
        self._resources = resources
        self._model = str(request.body.get("model", ""))
        self._candidates: list[bool] = []  # for each sample, whether it is voted on
        # (answer, whether it is voted on) of each sample in `tally`, when its votes were last counted
        self._counted: list[tuple[str | None, bool]] = []
        # (slice of `samples`, their mode or model) for samples that the vote weights haven't learned from yet
        self._unobserved: list[tuple[slice, str]] = []
        self.is_refuted = False  # whether the first sample shows that there is nothing to vote on
        self._answered_by_default = False  # whether the default mode gave the reply without a vote
        self.weigh = self._choose_weights() if self.has_vote else None
        self.tally = Tally(task=resources.task, weigh=self.weigh)
        self.reader = AnswerReader(
            request,
            resources.task,
            loose=resources.eligibility.reads_everything,
            finds_json=resources.eligibility.votes_on_json,
            memory=resources.memory,
        )

    def _check_modes(self, route: Route) -> str:
        """Returns why the modes that a request names rule out a vote, or "" if they don't."""
        if not self.policy_modes or not route.modes:
            return ""
        knows = any(name in self.policy_modes for name in route.modes)
        return "" if knows else "the policy knows none of the modes that the request names"

    def _choose_weights(self) -> VoteWeights | None:
        """Chooses the vote weights, adapted to recent samples of the model or of each mode."""
        resources, weigh = self._resources, self._served.weigh(self._model)
        if weigh is not None and not resources.has_choice:
            gives_logprobs = resources.client.quirks.get(self._request.body.get("model")).gives_logprobs
            # if the upstream gives no log-probabilities, only a verifier's scores can be used as weights
            if gives_logprobs is False:
                weigh = None if weigh.score is None else VoteWeights.by_score(weigh.score)
        scorer = resources.scorer
        if scorer is None or self._served.policy.needs_plain_votes:
            return weigh
        if weigh is None or not weigh.modes:
            return scorer.add_weights(weigh)
        scored = [(name, own, scorer.add_weights(own)) for name, own in weigh.modes]
        return replace(weigh, modes=tuple((name, own if new is None else new) for name, own, new in scored))

    @property
    def counted_tally(self) -> Tally | None:
        """The count of the votes so far; None if there are no votes."""
        return self.tally if self.has_vote and self.tally.drawn else None

    @property
    def is_weighted(self) -> bool:
        """Whether votes are weighted by the upstream's log-probabilities."""
        weigh = self.weigh
        if weigh is None:
            return False
        if not weigh.modes:
            return self._resources.client.quirks.get(self._request.body.get("model")).gives_logprobs is True
        sources = self._resources.sources
        return any(
            own.reads_tokens
            and sources[name].client.quirks.get(sources[name].mode.model).gives_logprobs is True
            for name, own in weigh.modes
        )

    def choose_fields(self, mode: str) -> dict[str, Any]:
        """Returns the fields that ask for log-probabilities; empty if neither policy nor vote uses them."""
        policy, weigh = self._served.policy, None if self.weigh is None else self.weigh.get_mode(mode)
        if self.has_vote and (policy.reads_entropy or (weigh is not None and weigh.reads_alternatives)):
            return {"logprobs": True, "top_logprobs": _TOP_LOGPROBS}
        return {"logprobs": True} if weigh is not None and weigh.reads_tokens else {}

    @property
    def representative(self) -> int | None:
        """Index of the response to return: one with the winning answer or, without a winner, the first."""
        if not self.responses:
            return None
        if self._answered_by_default:
            return len(self.responses) - 1
        has_winner = self.has_vote and self.tally.winner is not None
        modes = self.policy_modes or (self._resources.modes if self._resources.has_choice else ())
        index = pick_representative(self.samples, self.tally, modes=modes) if has_winner else None
        if index is not None:
            return index
        # without a winner: the first sample that is voted on, or the first sample if none is
        return self._candidates.index(True) if True in self._candidates else 0

    def list_notes(self) -> list[str]:
        """Lists notes for the client: why there is no vote or no winner, or which fields aren't compared."""
        if self.no_vote_reason:
            return [f"no vote: {self.no_vote_reason}"]
        notes = []
        if self.has_vote:
            if left_out := self.reader.left_out:
                notes.append(f"free text isn't compared: {', '.join(left_out)[:200]}")
            if self.tally.is_outweighed:
                notes.append(_explain_no_winner(self.tally))
        return notes

    def skip(self, reason: str) -> None:
        """Cancels the vote, because a reply that is already streamed can't be replaced."""
        self.no_vote_reason, self.has_vote, self.weigh = reason, False, None

    def add_responses(self, source: VoteSource, responses: Sequence[Response]) -> None:
        """Adds responses from a mode. If there is a vote, call `read` and `count` next."""
        self.responses += responses
        self.modes += [source.name] * len(responses)
        if not self.has_vote and responses and len(self.responses) > self._request.n:
            self._answered_by_default = True

    async def read(self, source: VoteSource, responses: list[Response]) -> list[Sample]:
        """Reads responses as samples. Earlier texts are read again with them, so their answers may change."""
        samples = await self.reader.read(responses)
        for place, (old, new) in enumerate(zip(self.samples, samples, strict=False)):
            if new.answer != old.answer:
                signals = new.signals
                if old.signals is not None and old.signals.score is not None:
                    signals = replace(signals or Signals(), score=old.signals.score)
                self.samples[place] = replace(new, mode=old.mode, signals=signals)
        added = samples[len(self.samples) :]
        return [replace(sample, mode=source.name) for sample in added] if source.name else added

    async def count(self, source: VoteSource, samples: Sequence[Sample]) -> None:
        """Counts the votes of new samples; counts all votes again if answers of earlier samples changed."""
        places = slice(len(self.samples), len(self.samples) + len(samples))
        self.samples += samples
        self._candidates = select_candidates(self.reader.readings)
        votes = [(sample.answer, own) for sample, own in zip(self.samples, self._candidates, strict=True)]
        counted = len(self._counted)
        if votes[:counted] != self._counted:
            self.tally, counted = Tally(task=self._resources.task, weigh=self.weigh), 0
        self._counted = votes
        for sample, is_candidate in list(zip(self.samples, self._candidates, strict=True))[counted:]:
            await self._resources.client.share.take_turn()
            if is_candidate:
                await self.tally.add_async(sample)
            else:
                self.tally.pass_over(sample)
        self._unobserved.append((places, source.name or self._model))

    def teach(self) -> None:
        """Lets the policy's vote weights and the reader learn from the samples, for later requests."""
        unobserved, self._unobserved = self._unobserved, []
        for places, name in unobserved:
            self._served.observe(self.samples[places], name)
        self.reader.teach()

    def check(self, *, is_first: bool) -> bool:
        """Checks whether the samples so far allow a vote; sets `has_vote` and `no_vote_reason`.

        `is_first` says whether all samples so far are from the first round.
        """
        self.no_vote_reason = self._find_no_vote_reason(is_first=is_first)
        self.has_vote = not self.no_vote_reason
        return self.has_vote

    def _find_no_vote_reason(self, *, is_first: bool) -> str:
        eligibility, reader = self._resources.eligibility, self.reader
        if is_first and not self._answered_without_first and (reason := self._check_first(self.samples[0])):
            self.is_refuted = True
            return reason
        silent = [
            sample
            for sample, is_candidate in zip(self.samples, self._candidates, strict=True)
            if is_candidate and sample.answer is None and sample.finished is not False
        ]
        return eligibility.check_tally(self.tally, len(silent)) or (
            "" if eligibility.reads_everything else reader.check_different()
        )

    def _check_first(self, first: Sample) -> str:
        """Returns why the first sample (its JSON, tool calls or text) rules out a vote; "" if it doesn't."""
        eligibility, reader = self._resources.eligibility, self.reader
        reason = None if eligibility.reads_everything else reader.check_first_sample()
        if reason is None:
            text = reader.get_text(self.responses[0])
            reason = eligibility.check_first_sample(reader.question, text, first)
        return reason or ""

    def is_refuted_by(self, wave: Sequence[Sample]) -> bool:
        """Checks whether `wave` is the first round, and its first sample shows that a vote is impossible."""
        if self.samples or not wave:
            return False
        if wave[0].answer is None and any(sample.answer is not None for sample in wave):
            return False  # the first sample has no answer, but another one has, so a vote is possible
        return bool(self._check_first(wave[0]))

    @property
    def _answered_without_first(self) -> bool:
        """Whether the first sample has no answer, but another sample so far has one."""
        return self.samples[0].answer is None and self.tally.answered > 0


def _explain_no_winner(tally: Tally) -> str:
    return (
        f"no winner: {tally.abstained} of {tally.drawn} samples state no answer, which outweighs the "
        f"{tally.first} for the answer that leads; the first sample is returned"
    )
