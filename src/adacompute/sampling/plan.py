"""The plan of a collection: the request for each problem, the missing samples, and their possible cost.

`CostBudget` reserves money before each call and records the cost afterwards. `check_source` checks that a
pool was collected with the same model, template and parameters before the collection continues.
"""

import asyncio
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from adacompute.client.server_quirks import LIMIT_NAMES
from adacompute.client.settings import add_instruction
from adacompute.errors import (
    BudgetInvalid,
    BudgetOutOfRange,
    CollectError,
    ProblemsInvalid,
    SourceChanged,
    format_value,
    shorten,
)
from adacompute.policies.base import parse_finite
from adacompute.pool import MODE_PARAMETER, Pool, fingerprint
from adacompute.problems import Template
from adacompute.records import Budget, Call, Problem, TokenPrices

_RESERVED = ("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "template")
_SUFFIX_PARAMETER = "system_suffix"
_MAX_CHANGES = 4  # maximum number of differences shown in an error
_MAX_VALUE = 60  # maximum number of characters of a value in an error
# assumed characters per token; low, so that the number of prompt tokens is rather overestimated
_CHARACTERS_A_TOKEN = 3.0
# maximum number of concurrent calls until the first reply shows how many tokens a response really has
_MAX_TRIAL_CALLS = 4
_TURN_TOKENS = 8  # estimated number of tokens that each message needs besides its text


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """The settings for requesting samples of any problem: model, prompt template, sampling parameters.

    A pool tells sources of samples apart by `model` and `parameters`. Requesting log-probabilities doesn't
    change the samples, so it isn't one of the parameters.
    """

    model: str
    template: Template
    # parameters such as temperature, sent unchanged
    sampling: Mapping[str, Any] = field(default_factory=dict)
    logprobs: bool = True  # whether to request log-probabilities, for weighting votes
    top_logprobs: int = 0  # number of alternatives per token to request, 0 to 20; entropy needs at least 2
    sent_model: str = ""  # model name to send, if the endpoint knows the model by another one
    mode: str = ""  # the mode, whose samples are a separate source in the pool; "" if there is only one
    system_suffix: str = ""  # appended to the system message

    def __post_init__(self) -> None:
        if not self.model or type(self.model) is not str:
            raise CollectError(f"model {self.model!r} is not a name; give the endpoint's own")
        if not isinstance(self.template, Template):
            raise CollectError(
                f"template {self.template!r} is not a template; give e.g. Template.named('boxed')"
            )
        if not isinstance(self.sampling, Mapping):
            raise CollectError(f"sampling {self.sampling!r} can't be sent; give e.g. {{'temperature': 0.7}}")
        if reserved := sorted(set(self.sampling) & set(_RESERVED)):
            raise CollectError(f"parameter {reserved[0]!r} is set by adacompute itself; leave it out")
        if self.mode and (reserved := sorted(set(self.sampling) & {MODE_PARAMETER, _SUFFIX_PARAMETER})):
            raise CollectError(
                f"mode {self.mode!r}: option {reserved[0]!r} has a meaning of its own in pools; leave it out"
            )
        for name, most, allowed in (("temperature", math.inf, "from 0 up"), ("top_p", 1.0, "from 0 to 1")):
            value = self.sampling.get(name)
            if value is not None and not (_is_number(value) and 0 <= value <= most):
                raise CollectError(f"{name} {value!r} can't be used; give a number {allowed}")
        for name in LIMIT_NAMES:
            limit = self.sampling.get(name)
            if limit is not None and (type(limit) is not int or limit < 1):
                raise CollectError(f"{name} {limit!r} can't be used; give a whole number from 1 up")
        if type(self.top_logprobs) is not int or not 0 <= self.top_logprobs <= 20:
            raise CollectError(f"top_logprobs {self.top_logprobs!r} can't be used; give 0 to 20")

    @property
    def parameters(self) -> dict[str, Any]:
        """The sampling parameters and the whole template, as a pool stores them.

        The mode's name and the system suffix are included if they aren't empty.
        """
        parameters = {**self.sampling, "template": self.template.to_dict()}
        if self.mode:
            parameters[MODE_PARAMETER] = self.mode
        if self.system_suffix:
            parameters[_SUFFIX_PARAMETER] = self.system_suffix
        return parameters

    @property
    def source(self) -> tuple[str, dict[str, Any]]:
        """The model and parameters under which a pool stores the samples."""
        return self.model, self.parameters

    @property
    def most_tokens(self) -> int | None:
        """The token limit per response; None if there is none."""
        limits = [self.sampling[name] for name in LIMIT_NAMES if self.sampling.get(name) is not None]
        # the limit has two names, and endpoints differ in which one they obey: expect the larger value
        return max(limits, default=None)

    def messages(self, problem: Problem) -> list[dict[str, Any]]:
        """Builds the messages for a problem, as the model sees them."""
        messages: list[dict[str, Any]] = [*self.template.messages(problem)]
        return add_instruction(messages, self.system_suffix) if self.system_suffix else messages

    def body(self, problem: Problem) -> dict[str, Any]:
        """Builds the body of the request for a problem, without the number of samples `n`."""
        body = {
            "model": self.sent_model or self.model,
            "messages": self.messages(problem),
            **self.sampling,
        }
        if self.logprobs:
            body["logprobs"] = True
            if self.top_logprobs:
                body["top_logprobs"] = self.top_logprobs
        return body


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class SampleRange:
    """A range of consecutive samples of one problem."""

    problem: Problem
    first: int  # index of the first sample in the range
    count: int

    def without(self, indexes: Collection[int]) -> "Iterator[SampleRange]":
        """Yields the parts of the range that remain without these indexes."""
        start, end = self.first, self.first + self.count
        for index in range(start, end + 1):
            if index == end or index in indexes:
                if index > start:
                    yield SampleRange(self.problem, start, index - start)
                start = index + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingSamples:
    """The samples that are still missing from a plan."""

    runs: tuple[SampleRange, ...]  # ranges of missing samples, in the order of problems
    planned: int  # number of samples in the whole plan
    stored: int  # number of planned samples that are stored already

    @property
    def samples(self) -> int:
        """How many samples are missing."""
        return sum(run.count for run in self.runs)

    @property
    def problems(self) -> int:
        """How many problems lack samples."""
        return len({run.problem.id for run in self.runs})


def find_remaining(
    problems: Sequence[Problem],
    pool: Pool | None,
    asking: Asking,
    *,
    samples: int,
) -> RemainingSamples:
    """Finds which of the planned samples (0 to `samples` - 1) of each problem are missing in the pool."""
    stored = {} if pool is None else _find_stored(pool, asking)
    runs = tuple(
        run for problem in problems for run in _iterate_missing(problem, stored.get(problem.id), samples)
    )
    planned = samples * len(problems)
    return RemainingSamples(runs=runs, planned=planned, stored=planned - sum(run.count for run in runs))


def _find_stored(pool: Pool, asking: Asking) -> dict[str, int | set[int]]:
    """Returns how many samples of each problem are stored, or the set of their indexes if there are gaps."""
    stored: dict[str, int | set[int]] = {}
    for id_, indexes in pool.indexes(*asking.source):
        gapless = max(indexes) + 1 == len(indexes)
        stored[id_] = len(indexes) if gapless else indexes  # a number needs less memory than a set
    return stored


def _iterate_missing(problem: Problem, stored: int | set[int] | None, samples: int) -> Iterator[SampleRange]:
    if isinstance(stored, set):
        yield from SampleRange(problem, 0, samples).without(stored)
    elif (count := stored or 0) < samples:
        yield SampleRange(problem, count, samples - count)


def compute_sample_limit(budget: object, requests: int) -> int:
    """Computes the total number of samples that an average budget allows for `requests` requests."""
    average = parse_finite(budget)
    if average is None or average < 1:
        raise BudgetOutOfRange(
            f"budget {format_value(budget)} can't be samples a request on average; give 1 or more, e.g. 2"
        )
    if not requests:
        raise CollectError("there is no request to answer; give at least one")
    # 1e-9, because the floating-point product 1.15 * 100 is slightly below 115
    return math.floor(average * requests + 1e-9)


# prices with which the cost of a call is its number of tokens: 1 per token
TOKENS_AS_PRICES = TokenPrices(input=1e6, output=1e6, currency="tokens")


def choose_unit_prices(budget: Budget, prices: TokenPrices) -> TokenPrices:
    """Returns `prices` if the budget is money; if it is tokens, prices at which each token costs 1.

    Raises BudgetInvalid if the budget is money and no price is above 0.
    """
    if budget.unit == "tokens":
        return TOKENS_AS_PRICES
    if not prices:
        raise BudgetInvalid(
            f"budget {budget} needs prices, and input_price and output_price are 0: nothing would ever "
            "count; give them (--input-price, --output-price), or a budget in tokens or samples"
        )
    return prices


def find_remaining_within(
    problems: Sequence[Problem],
    pool: Pool | None,
    asking: Asking,
    *,
    budget: float,
) -> RemainingSamples:
    """Estimates which samples a budget still pays for: one call per sample, spread evenly over problems."""
    limit = compute_sample_limit(budget, len(problems))
    ids = {problem.id for problem in problems}
    stored_indexes = () if pool is None else pool.indexes(*asking.source)
    stored = sum(len(indexes) for id_, indexes in stored_indexes if id_ in ids)
    missing = range(max(0, limit - stored))
    runs = tuple(SampleRange(problems[i % len(problems)], i // len(problems), 1) for i in missing)
    return RemainingSamples(runs=runs, planned=max(limit, stored), stored=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Estimated calls, tokens and money for the remaining samples; prompt tokens are rather overestimated."""

    problems: int  # number of problems that lack samples
    samples: int  # number of samples to draw
    stored: int  # number of planned samples that are stored already
    calls_least: int  # minimum number of calls, in case each returns all samples of a problem
    calls_most: int  # maximum number of calls, in case each returns one sample; without retries
    prompt_tokens_least: int
    prompt_tokens_most: int
    completion_tokens: int | None  # estimate extrapolated from the samples so far; None without samples
    completion_tokens_most: int | None  # upper bound; None if responses have no limit
    cost: float | None  # estimated cost in money if each call returns one sample; None if unknown
    cost_most: float | None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON."""
        return asdict(self)


def estimate_cost(
    remaining: RemainingSamples, asking: Asking, *, prices: TokenPrices, mean_tokens: float | None = None
) -> CostEstimate:
    """Estimates the cost of the remaining samples; `mean_tokens` is the mean length of stored responses."""
    sizes = {run.problem.id: estimate_prompt_size(asking.messages(run.problem)) for run in remaining.runs}
    fewest_tokens = math.ceil(sum(sizes[run.problem.id] for run in remaining.runs))
    most_tokens = math.ceil(sum(sizes[run.problem.id] * run.count for run in remaining.runs))
    samples, limit = remaining.samples, asking.most_tokens
    expected_tokens = None if mean_tokens is None else math.ceil(mean_tokens * samples)
    highest_tokens = None if limit is None else limit * samples
    return CostEstimate(
        problems=remaining.problems,
        samples=samples,
        stored=remaining.stored,
        calls_least=len(remaining.runs),
        calls_most=samples,
        prompt_tokens_least=fewest_tokens,
        prompt_tokens_most=most_tokens,
        completion_tokens=expected_tokens,
        completion_tokens_most=highest_tokens,
        cost=None if expected_tokens is None or not prices else prices.cost(most_tokens, expected_tokens),
        cost_most=None if highest_tokens is None or not prices else prices.cost(most_tokens, highest_tokens),
    )


def estimate_prompt_size(messages: Iterable[Mapping[str, Any]]) -> float:
    """Estimates the number of tokens in a prompt; tends to be too high rather than too low."""
    return sum(len(str(m.get("content", ""))) / _CHARACTERS_A_TOKEN + _TURN_TOKENS for m in messages)


def check_source(pool: Pool, asking: Asking, *, another: bool = False) -> None:
    """Raises SourceChanged and names the differences if the pool's samples were drawn with other settings.

    Samples with different settings have different distributions, so they must not be mixed. With `another`,
    nothing is checked, because the new samples become another source in the pool. A mode is compared with
    samples of the same mode; a new mode may be added to a pool of modes.
    """
    known, (model, parameters) = pool.models, asking.source
    mark = fingerprint(parameters)
    if another or not known or any(name == model and fingerprint(p) == mark for name, p in known):
        return
    mode = parameters.get(MODE_PARAMETER)
    if mode is not None:
        peers = [(name, values) for name, values in known if values.get(MODE_PARAMETER) == mode]
        if not peers and all(MODE_PARAMETER in values for _, values in known):
            return
        known = peers or known
    ours = {"model": model, **parameters}
    changes = min((_summarise_changes({"model": name, **p}, ours) for name, p in known), key=len)
    more = f" and {len(changes) - _MAX_CHANGES} more" if len(changes) > _MAX_CHANGES else ""
    shown = "; ".join(changes[:_MAX_CHANGES])
    subject = "" if mode is None else f"mode {mode!r} "
    raise SourceChanged(
        f"{pool.path}: {subject}was collected with other settings: {shown}{more}. "
        "Ask as before, name another pool, or keep both in this one with --another"
    )


def _summarise_changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Like `differences`, but lists only the first difference between the templates."""
    changes = differences(was, now)
    template = [change for change in changes if change.startswith("template.")]
    rest = [change for change in changes if not change.startswith("template.")]
    return [*rest, f"another template ({template[0].removeprefix('template.')})"] if template else rest


def add_problems(
    pool: Pool, problems: Sequence[Problem], template: Template, *, regrade: bool = False
) -> None:
    """Adds new problems to the pool; updates existing ones if the model still sees the same text."""
    new, changed = check_problems(pool, problems, template)
    pool.add_problems(new)
    pool.amend_problems(changed, regrade=regrade)


def check_problems(
    pool: Pool | None, problems: Sequence[Problem], template: Template
) -> tuple[list[Problem], list[Problem]]:
    """Returns the problems that are new to the pool, and those that changed, e.g. in their gold answer.

    Raises CollectError if the model would see a stored problem differently, or if an id is repeated. Raises
    ProblemsInvalid if a template can't be filled in.
    """
    new: list[Problem] = []
    changed: list[Problem] = []
    ids: set[str] = set()
    for problem in problems:
        if not isinstance(problem, Problem):
            raise CollectError(f"{_show(problem)} is not a problem; give ac.Problem(id=..., question=...)")
        if problem.id in ids:
            raise CollectError(f"the id {problem.id!r} is there twice; give each problem its own")
        ids.add(problem.id)
        messages = template.messages(problem)
        known = None if pool is None else pool.problem(problem.id)
        if known is None:
            new.append(problem)
        elif known != problem:
            if known.question != problem.question or _try_messages(template, known) != messages:
                raise CollectError(
                    f"problem {problem.id!r} is asked differently in the pool: "
                    f"{_describe_change(known, problem)}; give it an id of its own, or use another pool"
                )
            changed.append(problem)
    return new, changed


def _try_messages(template: Template, problem: Problem) -> list[dict[str, str]] | None:
    try:
        return template.messages(problem)
    except ProblemsInvalid:  # the problem in the pool lacks a field that the template needs
        return None


def _describe_change(known: Problem, problem: Problem) -> str:
    if known.question != problem.question:
        return f"{_show(problem.question)}, there {_show(known.question)}"
    changes = differences(dict(known.extra), dict(problem.extra))
    return changes[0] if changes else "by another subject or level"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Describes each change between two settings in a line such as `temperature was 0.7, is 0.8`."""
    before, after = dict(_flatten(was)), dict(_flatten(now))
    return [
        f"{name} was {_show(before.get(name))}, is {_show(after.get(name))}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON data
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flatten(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _flatten(part, f"{name}[{number}]")
    else:
        yield name, value


def _show(value: object) -> str:
    if value is None:
        return "not set"
    return shorten(repr(value), _MAX_VALUE)


class CostCap:
    """A limit on the cost of calls to all models together, and the amounts spent and reserved so far."""

    def __init__(self, *, limit: float | None = None, spent: float = 0.0) -> None:
        if limit is not None and not (_is_number(limit) and limit > 0):
            raise CollectError(f"max cost {limit!r} can't be used; give an amount above 0")
        self.limit = limit
        self.spent = spent  # cost of ended calls, including failed calls that may be charged
        self.reserved = 0.0  # total amount reserved for running calls
        self.owed = 0.0  # cost of failed attempts that may be charged, in calls that are still running
        self.held = 0  # number of reservations not released yet
        self.released = asyncio.Event()

    @property
    def room(self) -> float:
        """The amount that calls may still reserve; infinite without a limit."""
        return math.inf if self.limit is None else self.limit - self.spent - self.reserved - self.owed


class CostBudget:
    """Keeps the cost of calls to one model within the limit of `cap`, which other models may share.

    Before a call, its highest possible cost is reserved: that of a separate call for each sample, with the
    maximum number of tokens. Failed attempts that may be charged count in full, and a retry is sent only if
    the limit also allows its cost. So the limit holds even if all attempts are charged. Prompt tokens are
    estimated, and the estimates are raised if the endpoint counts more. If a response has more tokens than
    requested, later calls reserve as many. Until the tokens of the first response are known, only a few calls
    are sent. Only these can exceed the limit.
    """

    def __init__(
        self,
        *,
        prices: TokenPrices,
        most_tokens: int | None = None,
        cap: CostCap | None = None,  # limit on the cost, which other models may share; None means no limit
    ) -> None:
        self.cap = CostCap() if cap is None else cap
        self.prices = prices
        self._requested_tokens = most_tokens or 0
        self._max_tokens = most_tokens or 0
        self._held = 0  # number of this model's reservations not released yet
        self._measured = False  # whether the tokens of any response have been counted
        self._prompt_ratio = 1.0  # largest ratio so far of counted to estimated prompt tokens
        self.longest_prompt = 0.0  # longest prompt so far, in estimated tokens

    @property
    def excess_tokens(self) -> int | None:
        """The tokens of the longest response if it exceeded max_tokens, otherwise None."""
        return self._max_tokens if self._max_tokens > self._requested_tokens > 0 else None

    def describe_end(self) -> str:
        """Explains to the user why no more calls are sent."""
        return f"the next call could cost more than is left of {self.cap.limit:g} {self.prices.currency}"

    async def reserve(self, wanted: int, prompt: float) -> tuple[int, float]:
        """Reserves money for up to `wanted` samples; `prompt` is the estimated number of prompt tokens.

        Waits until there is money for at least one sample. Returns the number of samples that the money pays
        for, and the amount reserved. Returns 0 samples if there won't be enough even after all running calls.
        """
        self.longest_prompt = max(self.longest_prompt, prompt)
        if self.cap.limit is None:
            return wanted, 0.0
        while True:
            sample_cost = self.prices.cost(prompt * self._prompt_ratio, self._max_tokens)
            room = self.cap.room
            count = min(wanted, int(room / sample_cost * (1 + 1e-12))) if sample_cost > 0 else wanted
            if count > 0 and (self._measured or self._held < _MAX_TRIAL_CALLS):
                self._held += 1
                self.cap.held += 1
                self.cap.reserved += count * sample_cost
                return count, count * sample_cost
            if self.cap.held <= 0:
                return 0, 0.0
            self.cap.released.clear()
            await self.cap.released.wait()

    def release(self, reserved: float) -> None:
        """Releases a reserved amount after its calls were recorded."""
        self._held = max(0, self._held - 1)
        self.cap.held = max(0, self.cap.held - 1)
        self.cap.reserved = max(0.0, self.cap.reserved - reserved)
        if self.cap.reserved < 1e-12:
            self.cap.reserved = 0.0
        self.cap.released.set()

    def record_attempt(self, call: Call) -> bool:
        """Records an attempt as it ends; returns False if its possible cost exceeds the remaining money."""
        if self.cap.limit is None or call.paid != "maybe":
            return True
        self.cap.owed += self._worst_cost(call)
        return self.cap.room >= 0

    def _worst_cost(self, call: Call) -> float:
        return call.asked * self.prices.cost(self.longest_prompt * self._prompt_ratio, self._max_tokens)

    def record_calls(self, calls: Iterable[Call], prompt: float) -> tuple[Call, ...]:
        """Records the costs of ended calls; returns the calls.

        If a failed call may be charged, its unknown tokens are set to the most that it may have used.
        """
        completed = tuple(self._complete_call(call, prompt) for call in calls)
        for call in completed:
            if call.paid == "maybe":
                self.cap.owed = max(0.0, self.cap.owed - self._worst_cost(call))
            if call.paid != "no":
                self.cap.spent += self.prices.cost(call.prompt_tokens or 0, call.completion_tokens or 0)
        return completed

    def _complete_call(self, call: Call, prompt: float) -> Call:
        self._measured = self._measured or call.paid == "yes"
        if call.paid == "yes" and call.prompt_tokens and prompt:
            self._prompt_ratio = max(self._prompt_ratio, call.prompt_tokens / prompt)
        # the response may be longer than the limit that was sent
        if call.paid == "yes" and call.completion_tokens and call.asked:
            self._max_tokens = max(self._max_tokens, math.ceil(call.completion_tokens / call.asked))
        if call.paid != "maybe" or call.completion_tokens is not None:
            return call
        tokens = math.ceil(prompt * self._prompt_ratio)
        return replace(
            call, prompt_tokens=tokens, completion_tokens=call.asked * self._max_tokens, estimated=True
        )


def compute_spent(pool: Pool, prices: Mapping[str, TokenPrices]) -> float:
    """Computes the cost of all calls recorded in a pool, including failed calls that may be charged.

    `prices` maps mode names to prices; calls to other modes count at the highest of these prices.
    """
    highest = TokenPrices(
        input=max(each.input for each in prices.values()),
        output=max(each.output for each in prices.values()),
    )
    return sum(
        pool.account(model, parameters).cost(
            prices.get(str(parameters.get(MODE_PARAMETER, "")), highest), at_most=True
        )
        for model, parameters in pool.models
    )


def compute_batch_spent(pool: Pool, ids: Collection[str], asking: Asking, prices: TokenPrices) -> float:
    """Computes the cost of calls for the problems with these ids, including failed calls that may be charged.

    Pools don't record which problem a call was for. If the pool also has samples of other problems, the cost
    is split: that of responses by the number of tokens, that of prompts and failed calls by the number of
    samples.
    """
    source = pool.source_key(*asking.source)
    if source is None:
        return 0.0
    account, ballots = pool.account(*asking.source), pool.ballots_of(source)
    chosen = np.array([id_ in ids for id_ in ballots.ids], dtype=bool)
    if chosen.all():
        return account.cost(prices, at_most=True)
    tokens = np.nansum(ballots.tokens, axis=1)
    share = float(ballots.drawn[chosen].sum() / ballots.drawn.sum())
    token_share = float(tokens[chosen].sum() / tokens.sum()) if tokens.sum() > 0 else share
    return prices.cost(
        (account.prompt_tokens + account.maybe_prompt_tokens) * share,
        account.completion_tokens * token_share + account.maybe_completion_tokens * share,
    )
