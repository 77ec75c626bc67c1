"""`answer`: answers a batch of requests within one average budget, by votes over samples.

The price of a sample falls until the budget is spent. `write_answers` writes the result as JSONL, CSV or
Parquet; that file is complete or not there at all.
"""

import asyncio
import copy
import csv
import json
import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from adacompute.answers import Tally, Task, VoteWeights, pick_representative, same_answer
from adacompute.atomic import publish_file
from adacompute.client import Endpoint, Verifier
from adacompute.errors import BudgetOutOfRange, CollectError, NotRecorded, PolicyError
from adacompute.policies.base import Floats, Ints, Policy, check_one_mode
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, Pool
from adacompute.records import Account, Budget, BudgetUnit, Problem, Sample, TokenPrices
from adacompute.replay.per_problem import decide_first_wave
from adacompute.replay.replay import adapt_policy, bootstrap_mean, check_policy
from adacompute.sampling.collect import (
    check_arguments,
    make_engine,
    prepare_pool,
    run_coroutine,
    summarise_run,
)
from adacompute.sampling.plan import (
    Asking,
    SampleRun,
    choose_unit_prices,
    compute_sample_limit,
    estimate_prompt_size,
)
from adacompute.sampling.waves import BatchVotes, Rows, WavePlanner, highest_dial
from adacompute.sampling.workers import (
    CollectProgress,
    CostBudget,
    Sampler,
    SamplingEngine,
    StopReason,
    compute_batch_spent,
)
from adacompute.score import MeanEstimate
from adacompute.score.aggregates import fit_vote_weights

__all__ = [
    "ANSWER_COLUMNS",
    "Answers",
    "RequestAnswer",
    "answer",
    "check_output",
    "compute_limit",
    "fit_to_batch",
    "parse_batch_budget",
    "remove_wave_limit",
    "select_first_samples",
    "write_answers",
]

ANSWER_COLUMNS = ("answer", "response", "votes", "agreement", "samples", "tokens", "error")
_PROBLEM_FIELDS = ("id", "question", "gold", "subject", "level")
_ROW_GROUP = 1000  # rows of Parquet held in memory at a time
OutputRow = dict[str, Any]
RESUMABLE_STOPS: tuple[StopReason, ...] = ("signal", "endpoint")  # the same call should be made again
_MIN_SAMPLES = 20  # with fewer samples their mean is worse than the one the policy has
_SEED = 0  # of the interval
_NOTHING_LEFT = "not asked: the budget was spent on other requests; raise the budget or the cost"
_UNSTORED = "unstorable: a response could not be stored; the pool has the reason among its failures"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """The answer to one request. Its texts stay in the pool: `best` says which of its samples to show."""

    id: str
    answer: str | None  # the vote's leader; None: no sample gave an answer
    votes: Mapping[str, int]  # plain, by answer, in order of first appearance
    agreement: float  # the leader's share of the votes as they are weighed; 0.0 where there are none
    samples: int
    tokens: int | None  # of its responses; None: not known
    best: int | None = None  # the winning answer's most confident sample, by place; None: there is none
    correct: float | None = None  # 1 right, 0 wrong; None: no gold answer is known
    error: str | None = None  # why it has fewer samples than it was to have


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """The result of a batch."""

    # in the order of the requests; none where it was broken off
    each: tuple[RequestAnswer, ...] = field(repr=False)
    requests: int
    policy: str  # its kind
    budget: float  # a request, on average, at most, in `unit`
    limit: float  # in all, at most, in `unit`
    spent: int  # samples in all, with those of earlier runs
    added: int  # samples of this run
    rounds: int  # of this run
    price: float | None  # the dial that the batch came down to; None: the policy has none
    unsettled: int  # requests that the policy would continue at that dial if the budget weren't spent
    weigh: VoteWeights | None  # how votes were weighed; None: plain
    plain: bool  # True: the policy weighs votes, but the samples carry no confidence
    accuracy: MeanEstimate | None  # over requests with a gold answer; None: there are none
    failures: Mapping[str, str]  # request id -> why it lacks samples
    errors: Mapping[str, int]  # attempts of this run that gave nothing, by kind
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    seconds: float
    stopped: StopReason | None = None  # None: it came to its end
    why: str | None = None  # it was stopped
    signal: int | None = None  # its number, where it was one
    unit: BudgetUnit = "samples"  # of the budget
    currency: str = ""  # of money
    used: float = 0.0  # of the limit, with what may have been charged
    excess_tokens: int | None = None  # of a response, where the endpoint sent more than max_tokens
    found: float | None = None  # share of samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known
    verifier: Mapping[str, Any] | None = None  # what a verifier was asked by this run; None: nothing

    @property
    def broken_off(self) -> bool:
        """Whether it was stopped so that the same call should be made again: there are no answers yet."""
        return self.stopped in RESUMABLE_STOPS

    @property
    def average(self) -> float:
        """Samples a request."""
        return self.spent / self.requests

    @property
    def answered(self) -> int:
        """Requests with an answer."""
        return sum(item.answer is not None for item in self.each)

    @property
    def is_over_limit(self) -> bool:
        """Whether more was used than the limit: by earlier runs, or by an endpoint without max_tokens."""
        return self.used > self.limit

    @property
    def left_out(self) -> int:
        """Requests without a sample, because the budget was spent on others."""
        return sum(item.error == _NOTHING_LEFT for item in self.each)

    @property
    def agreement(self) -> float | None:
        """The leader's mean share of the votes, over requests with an answer."""
        shares = [item.agreement for item in self.each if item.answer is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def counts(self) -> dict[int, int]:
        """Samples -> how many requests got so many."""
        return dict(sorted(Counter(item.samples for item in self.each).items()))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON: the totals."""
        accuracy = self.accuracy
        return {
            "requests": self.requests,
            "answered": self.answered,
            "policy": self.policy,
            "budget": self.budget,
            "unit": self.unit,
            "limit": self.limit,
            "used": self.used,
            "exceeded": self.is_over_limit,
            "left_out": self.left_out,
            "samples": self.spent,
            "average": self.average,
            "price": self.price,
            "unsettled": self.unsettled,
            "votes": "plain" if self.weigh is None else "weighted",
            "counts": {str(samples): requests for samples, requests in self.counts.items()},
            "agreement": self.agreement,
            "accuracy": None if accuracy is None else accuracy.mean,
            "low": None if accuracy is None else accuracy.low,
            "high": None if accuracy is None else accuracy.high,
            "added": self.added,
            "rounds": self.rounds,
            "failures": dict(self.failures),
            "errors": dict(self.errors),
            "calls": self.account.calls,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "seconds": self.seconds,
            "answers_found": self.found,
            "finished": self.finished,
            "stopped": self.stopped,
            "why": self.why,
            "verifier": self.verifier,
        }


def answer(
    problems: Sequence[Problem],
    pool: Pool,
    *,
    policy: Policy,
    budget: float | str | Budget,
    endpoint: Endpoint | SamplingEngine,
    asking: Asking,
    prices: TokenPrices | None = None,
    max_cost: float | None = None,
    another: bool = False,
    regrade: bool = False,
    progress: Callable[[CollectProgress], None] | None = None,
    signals: Sequence[signal.Signals] = (),
    verifier: Verifier | None = None,
) -> Answers:
    """Answers every request by a vote, with at most `budget` a request on average: samples, tokens or money.

    Every request gets what the policy asks for at the highest value of its dial; then the dial falls,
    step by step, and the requests that the policy continues get more, until the budget is spent. No
    calibration is needed. A policy without a dial runs as it is, under the same limit. Each sample is
    in the pool before it counts, so whatever ends this, the same call continues with what is stored,
    and buys none of it again. The policy itself is not changed. Raises SourceChanged where the pool's
    samples are of another model, template or parameter, unless `another`. Instead of an endpoint, an
    engine may draw elsewhere.

    A budget in tokens or money is not exceeded either: before a call is sent, the most that it can cost is
    reserved, with `max_tokens` for each sample. So up to that much of the whole may be left over. An endpoint
    that ignores `max_tokens` can exceed it by a few calls, those before the first response was counted. Calls
    for other problems of the pool don't count, nor does what a `verifier` costs, which scores new samples.
    """
    problems = check_arguments(problems, pool, endpoint, asking)
    prices = TokenPrices() if prices is None else prices
    average = parse_batch_budget(budget, prices)
    limit = compute_limit(average, len(problems))
    prepared = remove_wave_limit(check_one_mode(check_policy(policy)))
    reading = prepared.read([problem.question for problem in problems])
    opening = decide_first_wave(prepared, reading, None if prepared.dial is None else highest_dial(prepared))
    counted_prices = prices
    if average.unit != "samples":
        counted_prices = choose_unit_prices(average, prices)
        _check_one_sample(problems, average, limit, asking, counted_prices)
    cost_budget = prepare_pool(
        pool,
        problems,
        asking,
        prices=counted_prices,
        max_cost=max_cost if average.unit == "samples" else _find_cost_limit(average, limit, max_cost),
        another=another,
        regrade=regrade,
    )
    elsewhere = 0.0
    if average.unit != "samples":
        ids = {problem.id for problem in problems}
        elsewhere = cost_budget.spent - compute_batch_spent(
            pool, ids, counted_prices, model=asking.model, parameters=asking.parameters
        )
        cost_budget.limit = _find_cost_limit(average, limit + elsewhere, max_cost)
    batch = _Batch(problems, pool, prepared, reading, average, limit, asking, cost_budget, prices, elsewhere)
    return run_coroutine(batch.run(opening, make_engine(endpoint, verifier), progress, signals))


def parse_batch_budget(budget: float | str | Budget, prices: TokenPrices) -> Budget:
    """A batch's budget; BudgetOutOfRange for a number that can't be samples, BudgetInvalid for a text."""
    if not isinstance(budget, str | Budget):
        compute_sample_limit(budget, 1)
    return Budget.parse(budget, currency=prices.currency)


def compute_limit(budget: Budget, requests: int) -> float:
    """What a batch may take in all, in the unit of its budget."""
    if budget.unit == "samples" or not requests:
        return compute_sample_limit(budget.amount, requests)
    return budget.amount * requests


def _find_cost_limit(budget: Budget, limit: float, max_cost: float | None) -> float:
    """The lower one of a batch's budget and `max_cost`, which is money."""
    if max_cost is None:
        return limit
    if budget.unit == "tokens":
        raise CollectError(
            f"max cost {max_cost:g} is money, and the budget is in tokens; give a budget in money"
        )
    return min(limit, max_cost)


def _check_one_sample(
    problems: Sequence[Problem], budget: Budget, limit: float, asking: Asking, prices: TokenPrices
) -> None:
    """BudgetOutOfRange where not even one sample is certain to fit into the whole budget."""
    prompt = min(estimate_prompt_size(asking.body(problem)["messages"]) for problem in problems)
    worst = prices.cost(prompt, asking.most_tokens or 0)
    if worst > limit:
        unit = budget.currency or budget.unit
        raise BudgetOutOfRange(
            f"budget {budget} is {limit:.6g} {unit} in all, and one sample can cost {worst:.6g} with "
            f"max_tokens {asking.most_tokens}; raise it, lower max_tokens, or answer more requests together"
        )


class _Batch:
    """One batch, from its first samples to its answers."""

    def __init__(
        self,
        problems: Sequence[Problem],
        pool: Pool,
        policy: Policy,
        reading: Floats,
        budget: Budget,
        limit: float,
        asking: Asking,
        cost_budget: CostBudget,
        prices: TokenPrices,
        elsewhere: float,
    ) -> None:
        self._problems = problems
        self._elsewhere = elsewhere  # of what the pool's calls cost, what is not for these problems
        self._pool = pool
        self._policy = policy
        self._budget = budget
        self._limit = limit
        self._prices = prices
        self._asking = asking
        self._cost_budget = cost_budget
        self._votes = self._load_votes()
        self._planner = WavePlanner(policy, self._votes, reading, find_room=self._find_room)
        self._failures: dict[str, str] = {}
        self._initial_weigh = policy.weigh

    async def run(
        self,
        opening: Ints,
        engine: SamplingEngine,
        progress: Callable[[CollectProgress], None] | None,
        signals: Sequence[signal.Signals],
    ) -> Answers:
        start, before = time.monotonic(), self._votes.spent

        def report(workers: Sampler) -> None:
            if progress is not None:
                progress(
                    workers.progress(
                        planned=max(self._votes.spent + self._find_room(), before), before=before
                    )
                )

        async with engine.open_sampler(
            self._pool,
            asking=self._asking,
            cost_budget=self._cost_budget,
            on_progress=report,
            signals=signals,
        ) as workers:
            report(workers)
            await self._draw(workers, *self._planner.plan_first(opening))
            await asyncio.to_thread(self._fit_policy)
            self._record_failures(workers, np.arange(len(self._problems)))
            while workers.stopped is None and (chosen := self._planner.plan_next(engine.width)):
                await self._draw(workers, *chosen)
                await asyncio.to_thread(self._votes.recount, chosen[0])
                self._record_failures(workers, chosen[0])
        return self._build_result(workers, before, time.monotonic() - start)

    def _find_room(self) -> int:
        """Samples that are left to draw: of tokens or money as many as the rest pays for at the mean so far.

        Before anything is known that is one for each request. Whatever the estimate is, the cost budget sends
        nothing that could cost more than is left.
        """
        drawn = self._votes.spent
        if self._budget.unit == "samples":
            return int(self._limit) - drawn
        used = self._batch_cost
        if not drawn or used <= 0:
            return len(self._votes) - drawn
        return int((self._limit - used) / (used / drawn))

    @property
    def _batch_cost(self) -> float:
        """What these problems have cost in the unit of the budget, if it isn't samples."""
        return max(0.0, self._cost_budget.spent - self._elsewhere)

    def _load_votes(self) -> BatchVotes:
        return BatchVotes(
            self._problems, self._pool, model=self._asking.model, parameters=self._asking.parameters
        )

    async def _draw(self, workers: Sampler, rows: Rows, counts: Ints) -> None:
        firsts = self._votes.next_index[rows]
        self._votes.next_index[rows] += counts
        runs = zip(rows.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        await workers.draw(SampleRun(self._problems[row], first, count) for row, first, count in runs)

    def _fit_policy(self) -> None:
        """Fits the policy to the model's first samples, and recounts all votes."""
        ballots = self._pool.ballots_of(self._pool.source_key(self._asking.model, self._asking.parameters))
        first = select_first_samples(ballots, {problem.id for problem in self._problems})
        self._policy = fit_to_batch(self._policy, first)
        self._votes.weigh = self._policy.weigh
        self._votes.recount(np.arange(len(self._votes)))
        self._planner.set_policy(self._policy)

    def _record_failures(self, workers: Sampler, rows: Rows) -> None:
        """Requests whose calls failed keep what they have, and get no more in this run."""
        for row in self._planner.record_wave(rows):
            id_ = self._problems[row].id
            if id_ in workers.failures or workers.stopped is None:
                self._failures[id_] = workers.failures.get(id_, _UNSTORED)

    def _is_spent(self, workers: Sampler) -> bool:
        """Whether it ended because its own budget, in tokens or money, is spent, and not by `max_cost`."""
        if self._budget.unit == "samples" or workers.stopped != "max-cost":
            return False
        return (
            self._cost_budget.limit is not None and self._cost_budget.limit >= self._limit + self._elsewhere
        )

    def _build_result(self, workers: Sampler, before: int, seconds: float) -> Answers:
        broken_off = workers.stopped in RESUMABLE_STOPS
        answers = () if broken_off else tuple(self._build_answer(row) for row in range(len(self._problems)))
        right = np.array([item.correct for item in answers if item.correct is not None])
        totals = self._pool.totals(self._pool.source_key(self._asking.model, self._asking.parameters))
        spent = self._load_votes().spent  # what was abandoned in flight may have been stored nevertheless
        summary = summarise_run(workers, self._pool, self._asking, self._prices)
        if self._is_spent(workers):
            summary |= {"stopped": None, "why": None}
        return Answers(
            each=answers,
            requests=len(self._problems),
            policy=self._policy.kind,
            budget=self._budget.amount,
            unit=self._budget.unit,
            currency=self._budget.currency,
            limit=self._limit,
            used=float(spent) if self._budget.unit == "samples" else self._batch_cost,
            excess_tokens=self._cost_budget.excess_tokens,
            spent=spent,
            added=spent - before,
            rounds=self._planner.number,
            price=None if broken_off else self._planner.price,
            unsettled=0 if broken_off else self._planner.unfinished,
            weigh=self._policy.weigh,
            plain=self._initial_weigh is not None and self._policy.weigh is None,
            accuracy=bootstrap_mean(right, np.random.default_rng(_SEED)) if len(right) else None,
            failures=dict(self._failures) or dict(workers.failures),
            seconds=seconds,
            found=totals.answered,
            finished=totals.finished,
            **summary,
        )

    def _build_answer(self, row: int) -> RequestAnswer:
        problem, samples = self._problems[row], self._votes.samples(row)
        error = self._failures.get(problem.id, None if samples else _NOTHING_LEFT)
        return build_answer(problem, samples, self._votes.tally(samples), task=self._pool.task, error=error)


def build_answer(
    problem: Problem, samples: Sequence[Sample], tally: Tally, *, task: Task, error: str | None
) -> RequestAnswer:
    """The answer that the tally of these samples gives."""
    known_tokens = [sample.tokens for sample in samples if sample.tokens is not None]
    leader = tally.leader
    return RequestAnswer(
        id=problem.id,
        answer=leader,
        votes=tally.votes,
        agreement=tally.agreement,
        samples=len(samples),
        tokens=sum(known_tokens) if known_tokens else None,
        best=pick_representative(samples, tally),
        correct=None if problem.gold is None else float(same_answer(leader, problem.gold, task)),
        error=error,
    )


def remove_wave_limit(policy: Policy) -> Policy:
    """A copy without a limit on waves: in a batch the dial falls meanwhile, and no request is waited for."""
    prepared = copy.copy(policy)
    if isinstance(prepared, StoppingPolicy):
        prepared.max_waves = None
    return prepared


def select_first_samples(ballots: Ballots, ids: Collection[str]) -> Ballots:
    """The first sample of each of these requests that has one: later runs find the same."""
    chosen = ballots.only([row for row, id_ in enumerate(ballots.ids) if id_ in ids])
    return replace(chosen, **{name: getattr(chosen, name)[:, :1] for name in chosen.sample_arrays})


def fit_to_batch(policy: Policy, first: Ballots) -> Policy:
    """A copy whose weights fit these samples; if possible with a prior that was not fitted on these prompts.

    `weigh` is None, so votes are plain, where the samples carry no confidence.
    """
    prepared = copy.copy(policy)
    with suppress(PolicyError):  # no other prior: that is fine, because this answers and doesn't measure
        prepared = copy.copy(adapt_policy(policy, first))
    prepared.weigh = _rescale_weights(policy.weigh, first)
    return prepared


def _rescale_weights(weigh: VoteWeights | None, first: Ballots) -> VoteWeights | None:
    if weigh is None:
        return None
    by_score = None if weigh.score is None else VoteWeights.by_score(weigh.score)
    try:
        weights = fit_vote_weights(first, weigh.signal)
    except NotRecorded:
        return by_score
    known_samples = int(np.isfinite(first.signal(weigh.signal)).sum())
    if weights.sharpness == 0 or not math.isfinite(weights.scale):  # all samples are equally certain
        return by_score
    return weigh if known_samples < _MIN_SAMPLES else replace(weigh, scale=weights.scale)


def check_output(path: Path, *, overwrite: bool) -> None:
    """CollectError where answers couldn't be written to a path; checked before they are paid for."""
    if path.suffix not in _WRITERS:
        raise CollectError(f"{path}: can't tell what kind of file to write; give {', '.join(_WRITERS)}")
    if not path.parent.is_dir():
        raise CollectError(f"{path}: its folder is not there; create {path.parent} first")
    if path.is_dir() or (path.exists() and not overwrite):
        raise CollectError(f"{path}: is there already; name another file, or give --overwrite")


def write_answers(
    path: Path, problems: Sequence[Problem], answers: Sequence[RequestAnswer], pool: Pool, *, asking: Asking
) -> None:
    """Writes one row a request, with all its own fields; texts are read from the pool one by one."""
    names = _name_columns(problems)
    rows = (
        _build_problem_cells(problem, names) | _build_answer_cells(answer, _read_text(pool, answer, asking))
        for problem, answer in zip(problems, answers, strict=True)
    )
    with publish_file(path) as temporary:
        _WRITERS[path.suffix](temporary, [*names.values(), *ANSWER_COLUMNS], rows, problems)


def _name_columns(problems: Iterable[Problem]) -> dict[str, str]:
    """The columns of the requests themselves, and their names beside those of the answers."""
    columns: dict[str, None] = dict.fromkeys(("id", "question"))
    for problem in problems:
        for name in ("gold", "subject", "level"):
            if getattr(problem, name) is not None:
                columns[name] = None
        columns |= dict.fromkeys(problem.extra)
    return {name: f"input_{name}" if name in ANSWER_COLUMNS else name for name in columns}


def _build_problem_cells(problem: Problem, names: Mapping[str, str]) -> OutputRow:
    fields = {name: getattr(problem, name) for name in _PROBLEM_FIELDS}
    values = {**problem.extra, **fields}
    return {column: values.get(name) for name, column in names.items()}


def _build_answer_cells(answer: RequestAnswer, text: str | None) -> OutputRow:
    return {
        "answer": answer.answer,
        "response": text,
        "votes": dict(answer.votes),
        "agreement": answer.agreement,
        "samples": answer.samples,
        "tokens": answer.tokens,
        "error": answer.error,
    }


def _read_text(pool: Pool, answer: RequestAnswer, asking: Asking) -> str | None:
    if answer.best is None:
        return None
    return pool.recorded(answer.id, asking.model, parameters=asking.parameters).samples[answer.best].text


def _write_jsonl(
    path: Path, _columns: Sequence[str], rows: Iterator[OutputRow], _problems: Sequence[Problem]
) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_csv(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], _problems: Sequence[Problem]
) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for row in rows:
            table.writerow([_flatten_cell(row[column]) for column in columns])


def _write_parquet(
    path: Path, columns: Sequence[str], rows: Iterator[OutputRow], problems: Sequence[Problem]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    types = {"agreement": float, "samples": int, "tokens": int} | _infer_types(problems)
    schema = pa.schema([(column, kinds[types.get(column, str)]) for column in columns])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := list(islice(rows, _ROW_GROUP)):
            values = {
                field.name: [_fit_cell(row[field.name], types.get(field.name, str)) for row in group]
                for field in schema
            }
            writer.write_table(pa.table(values, schema=schema))


def _infer_types(problems: Sequence[Problem]) -> dict[str, type]:
    """The type of each column of the requests; text where values differ in type or are nested."""
    names = _name_columns(problems)
    types: dict[str, type] = {}
    for problem in problems:
        for column, value in _build_problem_cells(problem, names).items():
            if value is not None:
                kind = type(value) if _is_plain(value) else str
                types[column] = kind if types.get(column, kind) is kind else str
    return types


def _is_plain(value: object) -> bool:
    return type(value) in (bool, float) or (type(value) is int and -(2**63) <= value < 2**63)


def _fit_cell(value: object, kind: type) -> object:
    return value if value is None or type(value) is kind else _flatten_cell(value)


def _flatten_cell(value: object) -> object:
    """A value that fits into one cell: text and numbers as they are, the rest as JSON."""
    if value is None:
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_WRITERS: dict[str, Callable[[Path, Sequence[str], Iterator[OutputRow], Sequence[Problem]], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}
