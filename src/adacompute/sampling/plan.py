"""What remains to be drawn (planned minus stored), and what it will cost, before anything is paid for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from adacompute.errors import BudgetOutOfRange, CollectError
from adacompute.policies.setting_checks import format_value, parse_finite
from adacompute.pool import Pool
from adacompute.records import Problem
from adacompute.sampling.cost_budget import Prices, estimate_prompt_size
from adacompute.sampling.sampling_spec import Asking

__all__ = [
    "CostEstimate",
    "RemainingSamples",
    "SampleRun",
    "compute_sample_limit",
    "estimate_cost",
    "find_remaining",
    "find_remaining_within",
]


@dataclass(frozen=True, slots=True)
class SampleRun:
    """Consecutive samples of one problem."""

    problem: Problem
    first: int  # index
    count: int


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
    if not isinstance(stored, set):
        count = stored or 0
        if count < samples:
            yield SampleRun(problem, count, samples - count)
        return
    start = 0
    for index in range(samples + 1):
        if index == samples or index in stored:
            if index > start:
                yield SampleRun(problem, start, index - start)
            start = index + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Calls, tokens and money of the remaining samples. Prompts are estimated by length, slightly too
    high.
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
    remaining: RemainingSamples, asking: Asking, *, prices: Prices, mean_tokens: float | None = None
) -> CostEstimate:
    """Estimates the cost beforehand; `mean_tokens` is that of the responses stored so far, where there
    are any.
    """
    sizes = {
        run.problem.id: estimate_prompt_size(asking.template.messages(run.problem)) for run in remaining.runs
    }
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
        cost=None if expected_tokens is None or not prices else prices.of(most_tokens, expected_tokens),
        cost_most=None if highest_tokens is None or not prices else prices.of(most_tokens, highest_tokens),
    )


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
