"""The plan of a collection: what is asked of each problem, which samples the pool lacks, what they will cost.

Also checks that a pool was collected with the same model, template and parameters before it is continued.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from adacompute.client.modes import add_instruction
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
from adacompute.pool import Pool, fingerprint
from adacompute.pool.menu import MODE_PARAMETER
from adacompute.problems import Template
from adacompute.records import Budget, Problem, TokenPrices

__all__ = [
    "Asking",
    "CostEstimate",
    "RemainingSamples",
    "SampleRun",
    "add_problems",
    "check_problems",
    "check_source",
    "choose_unit_prices",
    "compute_sample_limit",
    "estimate_cost",
    "estimate_prompt_size",
    "find_remaining",
    "find_remaining_within",
]

_RESERVED = ("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "template")
_TOKEN_LIMITS = ("max_tokens", "max_completion_tokens")
_SUFFIX_PARAMETER = "system_suffix"
_MAX_CHANGES = 4  # differences that a message names
_MAX_VALUE = 60  # characters of a value that a message shows
_CHARACTERS_A_TOKEN = 3.0  # few, so that prompts are overestimated until some were counted
_TURN_TOKENS = 8  # tokens that each message adds


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How every problem is put to the model. `parameters` is what a pool stores, and identifies its source.

    Log-probabilities are requested besides the samples: they don't change them, so they are no parameter.
    """

    model: str
    template: Template
    sampling: Mapping[str, Any] = field(default_factory=dict)  # temperature and the like, sent as they are
    logprobs: bool = True  # votes are weighted by them
    top_logprobs: int = 0  # alternatives a token, 0 to 20; from 2 up they give the entropy
    sent_model: str = ""  # the name that is sent where the endpoint answers as `model` to it; "": `model`
    mode: str = ""  # of a menu; "": none. Its samples are a source of their own
    system_suffix: str = ""  # what the mode adds to the system message

    def __post_init__(self) -> None:
        if not self.model or type(self.model) is not str:
            raise CollectError(f"model {self.model!r} is not a name; give the endpoint's own")
        if not isinstance(self.template, Template):
            raise CollectError(
                f"template {self.template!r} is none; give Template.named('boxed') or the like"
            )
        if not isinstance(self.sampling, Mapping):
            raise CollectError(f"sampling {self.sampling!r} can't be sent; give e.g. {{'temperature': 0.7}}")
        if reserved := sorted(set(self.sampling) & set(_RESERVED)):
            raise CollectError(f"parameter {reserved[0]!r} is set by adacompute itself; leave it out")
        if self.mode and (reserved := sorted(set(self.sampling) & {MODE_PARAMETER, _SUFFIX_PARAMETER})):
            raise CollectError(
                f"mode {self.mode!r}: option {reserved[0]!r} has a meaning of its own in pools; leave it out"
            )
        for name, low, high in (("temperature", 0.0, math.inf), ("top_p", 0.0, 1.0)):
            value = self.sampling.get(name)
            if value is not None and not (_is_number(value) and low <= value <= high):
                raise CollectError(f"{name} {value!r} can't be used; give a number from {low:g} up")
        for name in _TOKEN_LIMITS:
            limit = self.sampling.get(name)
            if limit is not None and (type(limit) is not int or limit < 1):
                raise CollectError(f"{name} {limit!r} can't be used; give a whole number from 1 up")
        if type(self.top_logprobs) is not int or not 0 <= self.top_logprobs <= 20:
            raise CollectError(f"top_logprobs {self.top_logprobs!r} can't be used; give 0 to 20")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the pool stores beside the model's name: the sampling parameters and the whole template.

        Of a mode, also its name and what it adds to the system message.
        """
        parameters = {**self.sampling, "template": self.template.to_dict()}
        if self.mode:
            parameters[MODE_PARAMETER] = self.mode
        if self.system_suffix:
            parameters[_SUFFIX_PARAMETER] = self.system_suffix
        return parameters

    @property
    def most_tokens(self) -> int | None:
        """The limit of one response; None where there is none."""
        limits = [self.sampling[name] for name in _TOKEN_LIMITS if self.sampling.get(name) is not None]
        return max(limits, default=None)  # endpoints differ in which of the two they obey

    def messages(self, problem: Problem) -> list[dict[str, Any]]:
        """The prompt of one problem, as the model gets it."""
        messages: list[dict[str, Any]] = [*self.template.messages(problem)]
        return add_instruction(messages, self.system_suffix) if self.system_suffix else messages

    def body(self, problem: Problem) -> dict[str, Any]:
        """The request for one problem, without `n`."""
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
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class SampleRun:
    """Consecutive samples of one problem."""

    problem: Problem
    first: int  # index
    count: int

    def without(self, indexes: Collection[int]) -> "Iterator[SampleRun]":
        """The runs that are left of it without these indexes."""
        start, end = self.first, self.first + self.count
        for index in range(start, end + 1):
            if index == end or index in indexes:
                if index > start:
                    yield SampleRun(self.problem, start, index - start)
                start = index + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingSamples:
    """The samples that a plan still lacks."""

    runs: tuple[SampleRun, ...]  # in the order of the problems
    planned: int  # samples of the whole plan
    stored: int  # of them

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
    *,
    samples: int,
    model: str,
    parameters: Mapping[str, Any],
) -> RemainingSamples:
    """The samples 0 to `samples` - 1 of each problem that the pool lacks; all of them without a pool."""
    stored = {} if pool is None else _find_stored(pool, model, parameters)
    runs = tuple(
        run for problem in problems for run in _iterate_missing(problem, stored.get(problem.id), samples)
    )
    planned = samples * len(problems)
    return RemainingSamples(runs=runs, planned=planned, stored=planned - sum(run.count for run in runs))


def _find_stored(pool: Pool, model: str, parameters: Mapping[str, Any]) -> dict[str, int | set[int]]:
    """How many samples each problem has; or which, where they don't begin at 0 without a gap."""
    stored: dict[str, int | set[int]] = {}
    for id_, indexes in pool.indexes(model, parameters):
        gapless = max(indexes) + 1 == len(indexes)
        stored[id_] = len(indexes) if gapless else indexes  # a number: there may be millions
    return stored


def _iterate_missing(problem: Problem, stored: int | set[int] | None, samples: int) -> Iterator[SampleRun]:
    if isinstance(stored, set):
        yield from SampleRun(problem, 0, samples).without(stored)
    elif (count := stored or 0) < samples:
        yield SampleRun(problem, count, samples - count)


def compute_sample_limit(budget: object, requests: int) -> int:
    """The samples in total that an average budget allows for so many requests."""
    average = parse_finite(budget)
    if average is None or average < 1:
        raise BudgetOutOfRange(
            f"budget {format_value(budget)} can't be samples a request on average; give 1 or more, e.g. 2"
        )
    if not requests:
        raise CollectError("there is no request to answer; give at least one")
    return math.floor(average * requests + 1e-9)  # 1.15 times 100 is a little below 115


TOKENS_AS_PRICES = TokenPrices(input=1e6, output=1e6, currency="tokens")  # a million tokens cost as many


def choose_unit_prices(budget: Budget, prices: TokenPrices) -> TokenPrices:
    """The prices at which calls cost what a budget counts: money, or tokens of prompts and responses."""
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
    *,
    budget: float,
    model: str,
    parameters: Mapping[str, Any],
) -> RemainingSamples:
    """The samples that a budget leaves to draw, for an estimate: one call a sample, spread evenly."""
    limit = compute_sample_limit(budget, len(problems))
    ids = {problem.id for problem in problems}
    stored_indexes = () if pool is None else pool.indexes(model, parameters)
    stored = sum(len(indexes) for id_, indexes in stored_indexes if id_ in ids)
    missing = range(max(0, limit - stored))
    runs = tuple(SampleRun(problems[i % len(problems)], i // len(problems), 1) for i in missing)
    return RemainingSamples(runs=runs, planned=max(limit, stored), stored=stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Calls, tokens and money of the remaining samples.

    Prompts are estimated by length, slightly too high.
    """

    problems: int  # that lack samples
    samples: int  # left to draw
    stored: int  # there already
    calls_least: int  # where the endpoint gives all samples of a problem in one call
    calls_most: int  # where it gives one a call; without any that is tried again
    prompt_tokens_least: int
    prompt_tokens_most: int
    completion_tokens: int | None  # as the samples so far had them; None: there are none yet
    completion_tokens_most: int | None  # None: responses have no limit
    cost: float | None  # money, with responses as so far; at the most calls; None: not known
    cost_most: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def estimate_cost(
    remaining: RemainingSamples, asking: Asking, *, prices: TokenPrices, mean_tokens: float | None = None
) -> CostEstimate:
    """Estimates the cost beforehand; `mean_tokens` is that of the responses stored so far, if any."""
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
    """Estimated tokens of a prompt, rather too many than too few."""
    return sum(len(str(m.get("content", ""))) / _CHARACTERS_A_TOKEN + _TURN_TOKENS for m in messages)


def check_source(pool: Pool, model: str, parameters: Mapping[str, Any], *, another: bool = False) -> None:
    """Raises SourceChanged where the pool's samples have other settings than these, saying what differs.

    Samples under different settings have different distributions, so they are never mixed; `another`
    keeps them side by side, each under its own source. A mode of a menu is compared with the samples of the
    same mode; one that a pool of modes doesn't have yet is added to it.
    """
    known = pool.models
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
    """As `differences`, but with those of the template shortened to the first."""
    changes = differences(was, now)
    template = [change for change in changes if change.startswith("template.")]
    rest = [change for change in changes if not change.startswith("template.")]
    return [*rest, f"another template ({template[0].removeprefix('template.')})"] if template else rest


def add_problems(
    pool: Pool, problems: Sequence[Problem], template: Template, *, regrade: bool = False
) -> None:
    """Adds new problems to the pool, and updates those that are there, if the model is asked the same."""
    new, changed = check_problems(pool, problems, template)
    pool.add_problems(new)
    pool.amend_problems(changed, regrade=regrade)


def check_problems(
    pool: Pool | None, problems: Sequence[Problem], template: Template
) -> tuple[list[Problem], list[Problem]]:
    """Which problems are new to the pool, and which are there but differ in something beside their question.

    Raises CollectError where an id is taken by a problem that asks the model something else. A template
    that can't be filled in is reported here too, before anything is paid for.
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
    except ProblemsInvalid:  # the pool's problem lacks a field of the template
        return None


def _describe_change(known: Problem, problem: Problem) -> str:
    if known.question != problem.question:
        return f"{_show(problem.question)}, there {_show(known.question)}"
    changes = differences(dict(known.extra), dict(problem.extra))
    return changes[0] if changes else "by another subject or level"


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What changed, a line each: `temperature was 0.7, is 0.8`."""
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
