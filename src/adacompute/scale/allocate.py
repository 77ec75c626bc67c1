"""Sample budgets for prompts in files, decided before sampling, at one price: here or on Ray.

Locally, the predicted curves are kept in a file beside the output, 8 bytes a budget, because the search
for the price needs them three times. On Ray, shards are read and written by tasks; a task that is lost is
run again and writes the same bytes.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, NotFitted, PolicyError, ScaleError
from adacompute.policies.base import Policy, VoteState
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy, MenuRoute
from adacompute.policies.features import FeaturePolicy
from adacompute.policies.menu import MenuPolicy
from adacompute.records import Move
from adacompute.scale.cluster import cluster
from adacompute.scale.prompt_files import (
    PromptFile,
    PromptSet,
    check_destination,
    iterate_batches,
    list_added,
    map_write_errors,
    open_prompts,
    open_working_folder,
    publish,
    read_texts,
    write_file,
)
from adacompute.scale.shard_passes import (
    PackedPolicy,
    ShardDataset,
    ShardRecord,
    pack_policy,
    parse_histogram,
    parse_total,
    raise_failures,
    report_histogram,
    report_total,
    start_pass,
    unpack_policy,
)
from adacompute.scale.text_prompts import (
    check_text_output,
    find_text_kind,
    publish_text,
    read_text_prompts,
)
from adacompute.solve.hull import round_slopes
from adacompute.solve.pricing import check_budget, check_price
from adacompute.solve.shard_search import (
    ALL_SLOPES,
    ChoiceTotal,
    Edge,
    PriceSearch,
    ShardedAllocation,
    ShardQuota,
    SlopeBracket,
    SlopeHistogram,
    TableShard,
    build_sharded_allocation,
    merge_histograms,
)

__all__ = ["AllocateProgress", "AllocateResult", "allocate"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Arrow: TypeAlias = Any  # pyarrow ships no types
AllocateEngine = Literal["local", "ray"]
# made or fitted for one budget
_FIXED_BUDGET_POLICIES = (FixedPolicy, ClassifierPolicy)
_TOLERANCE = 0.01  # samples on average: nearer than that counts as met
_CURVE_ROWS = 1 << 14  # of the kept curves, at a time
_SHARD_ROWS = 100_000  # of a shard, about, at the most: 4 MB of curves
_SHARDS_A_WORKER = 4  # at least, where there are row groups enough, so that all end together


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProgress:
    """The progress: prompts read, or written, of all."""

    doing: str  # "reading" or "writing"
    done: int
    prompts: int


ProgressListener = Callable[[AllocateProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateOutcome:
    """What an engine reports, once the budgets are written."""

    total: ChoiceTotal
    plan: ShardedAllocation | None = None  # where a price was looked for
    search: PriceSearch | None = None
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResult:
    """The result of an allocation, as numbers; the budgets themselves are in the files."""

    problems: int
    policy: str  # its kind
    budget: float | None  # cost on average that was asked for, in `unit`; None: a price was
    price: float | None  # accuracy a unit of cost that one more must buy; None: the policy has no price
    budgets: tuple[int, ...]  # rising; with modes, by cost
    counts: tuple[int, ...]  # (budgets,) prompts that were given each
    cost: float  # on average, in `unit`
    accuracy: float | None = None  # on average, as the policy predicts it; None: it predicts none
    bound: float | None = None  # no allocation within the budget is predicted to be more accurate
    mix: Move | None = None  # the one prompt that is mixed, its row over all files, so that all is spent
    files: int = 1
    shards: int = 1  # that reported summaries
    rounds: int = 0  # of summaries
    summary_bytes: int = 0  # of all summaries
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # what a reader of the numbers should know, a line each
    unit: str = "samples"  # of cost; with modes, that of the menu
    modes: tuple[str, ...] = ()  # (budgets,) of a router: the mode that each budget is drawn from

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; modes and their unit are there for a router only."""
        data = asdict(self)
        if self.mix is not None:
            data["mix"] = {
                "problem": self.mix.problem,
                "budget": self.budgets[self.mix.mode],
                "probability": self.mix.probability,
            }
            if self.modes:
                data["mix"]["mode"] = self.modes[self.mix.mode]
        if not self.modes:
            del data["modes"], data["unit"]
        return data


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BudgetRule:
    """A policy that can decide on the prompt alone."""

    policy: Policy

    @classmethod
    def from_policy(cls, policy: Policy) -> "BudgetRule":
        """The rule of a policy; refuses a policy that has to see samples first."""
        if not isinstance(policy, Policy):
            raise PolicyError(f"a {type(policy).__name__} is not a policy; give what load_policy(…) gives")
        kind = policy.kind
        if isinstance(policy, MenuPolicy):
            raise PolicyError(
                f"a menu policy over {', '.join(policy.menu.names)} decides as votes come in, not before; "
                "use `adacompute replay` or `evaluate`, or a router: CurvePolicy(menu=…)"
            )
        if isinstance(policy, FeaturePolicy) and not hasattr(policy, "feature_set_"):
            raise NotFitted(f"{kind} has learned nothing yet; fit it first")
        if isinstance(policy, FeaturePolicy) and not policy.one_shot:
            raise PolicyError(
                f"{kind} was fitted to see a first sample's entropy, so it can't decide beforehand; fit one "
                f"with `adacompute fit POOL --policy {kind} --features text`, or use `adacompute answer`"
            )
        if not isinstance(policy, (CurvePolicy, *_FIXED_BUDGET_POLICIES)):
            raise PolicyError(
                f"{kind} decides as votes come in, not beforehand; use `adacompute answer`, "
                "or `adacompute fit POOL --policy curve --features text`"
            )
        return cls(policy=policy)

    @classmethod
    def unpack(cls, packed_policy: PackedPolicy) -> "BudgetRule":
        """The rule of a packed policy, in another process."""
        return cls(policy=unpack_policy(packed_policy))

    @property
    def packed_policy(self) -> PackedPolicy:
        """The policy as plain data, so that nothing that is sent is code."""
        return pack_policy(self.policy)

    @property
    def has_price(self) -> bool:
        """Whether it predicts curves, from which budgets are bought at any price."""
        return isinstance(self.policy, CurvePolicy)

    @property
    def route(self) -> MenuRoute | None:
        """The columns of a router; None: it gives numbers of samples."""
        return self.policy.route if isinstance(self.policy, CurvePolicy) else None

    @property
    def modes(self) -> tuple[int, ...]:
        """The budgets it may give, rising; of a router, the numbers of its columns."""
        if self.route is not None:
            return tuple(range(len(self.route.columns)))
        modes: tuple[int, ...] = self.policy.modes  # type: ignore[attr-defined] # all of these have them
        return modes

    @property
    def draws(self) -> tuple[tuple[str, int], ...] | None:
        """Of a router, the mode and the number of samples of each of its columns; None: it has no modes."""
        return None if self.route is None else tuple(column.draws[0] for column in self.route.columns)

    @property
    def costs(self) -> Floats:
        """What each of `modes` costs, rising."""
        return np.array(self.modes, dtype=np.float64) if self.route is None else self.route.costs

    @property
    def unit(self) -> str:
        """Of cost."""
        return "samples" if self.route is None else self.route.menu.currency or self.route.menu.unit

    @property
    def own_budget(self) -> float | None:
        """The average it was made or fitted for; None: any."""
        policy = self.policy
        if isinstance(policy, ClassifierPolicy):
            return policy.budget_
        return None if self.has_price else float(policy.budget)  # type: ignore[attr-defined]

    def predict_curves(self, prompts: Sequence[str]) -> Floats:
        """Accuracy predicted at each budget, (prompts, budgets)."""
        assert isinstance(self.policy, CurvePolicy)
        return self.policy.predict_curve(prompts)

    def build_shard(self, curves: Floats) -> TableShard:
        """Prompts with what they may buy, from their curves."""
        return TableShard.of(curves, costs=self.costs)

    def decide_budgets(self, prompts: Sequence[str], price: float | None) -> tuple[Ints, ChoiceTotal]:
        """The budget of each prompt, (prompts,), at a price, or without one, and what they come to.

        Of a router, the number of its column.
        """
        modes = np.array(self.modes, dtype=np.int64)
        if price is not None:
            rounded_price = float(round_slopes(np.array([price], dtype=np.float64))[0])
            taken = self.build_shard(self.predict_curves(prompts)).take(
                ShardQuota(price=rounded_price, room=-np.inf)
            )
            return modes[taken.choice], taken.total
        budgets = self.policy.decide(self.policy.read(prompts), VoteState.empty(len(prompts)), None)
        counts = np.bincount(np.searchsorted(modes, budgets), minlength=len(modes))
        return budgets, ChoiceTotal(
            problems=len(budgets),
            counts=tuple(counts.tolist()),
            cost=float(budgets.sum()),
            accuracy=0.0,
        )


def allocate(
    source: str | os.PathLike[str],
    policy: Policy,
    *,
    into: str | os.PathLike[str],
    budget: float | None = None,
    price: float | None = None,
    column: str | None = None,
    engine: AllocateEngine = "local",
    workers: int | None = None,
    overwrite: bool = False,
    progress: Callable[[AllocateProgress], None] | None = None,
) -> AllocateResult:
    """Writes `source`, a JSONL, CSV or Parquet file or a folder of Parquet, to `into` with a column `budget`.

    The policy decides on the prompt alone. With `budget`, a curve's one price over all prompts is
    searched, so that they get at most that many samples on average; with `price`, that is the price.
    Both engines give every prompt the same budget. A router (`CurvePolicy` with a menu) writes a column
    `mode` too, and its `budget` is an average cost in the menu's unit.
    """
    start = time.monotonic()
    if engine not in ("local", "ray"):
        raise ScaleError(f"engine {engine!r} is not known; give 'local' or 'ray'")
    rule = BudgetRule.from_policy(policy)
    _check_budget(rule, budget, price)
    check_destination(Path(into), Path(source), overwrite=overwrite)
    check_text_output(Path(into), Path(source))
    is_text = bool(find_text_kind(Path(source)))
    added = list_added(rule.draws)
    prompts = None if is_text else open_prompts(Path(source), column=column, added=added)
    # a policy that isn't fitted raises here
    rule.decide_budgets(["What is 1 + 1?"], 0.0 if rule.has_price else None)
    tell = progress or _ignore_progress
    with open_working_folder(Path(into)) as place:
        # again: another run may just have ended
        check_destination(Path(into), Path(source), overwrite=overwrite)
        if prompts is None:
            prompts = read_text_prompts(Path(source), place, column=column, added=added)
        if engine == "ray":
            outcome = allocate_on_ray(
                prompts, rule, place, budget=budget, price=price, workers=workers, tell=tell
            )
        elif rule.has_price and budget is not None:
            outcome = allocate_by_price(prompts, rule, place, budget=budget, tell=tell)
        else:
            outcome = allocate_directly(prompts, rule, place, price=price, tell=tell)
        if is_text:
            publish_text(Path(source), prompts, place, Path(into), added=added)
        else:
            publish(prompts, place, Path(into))
    result = _build_result(prompts, rule, outcome, budget, price)
    return replace(result, notes=_write_notes(result, rule), seconds=time.monotonic() - start)


def _ignore_progress(progress: AllocateProgress) -> None:
    """The default progress callback."""


def _check_budget(rule: BudgetRule, budget: float | None, price: float | None) -> None:
    """Refuses an average, or a price, that the policy has no budgets for."""
    kind, own_budget = rule.policy.kind, rule.own_budget
    if (budget is None) == (price is None):
        raise BudgetOutOfRange("give a budget, or a price instead: one of the two")
    if price is not None:
        if own_budget is not None:
            raise BudgetOutOfRange(f"{kind} has no price; give the budget it was made for, {own_budget:g}")
        check_price(price)
        return
    check_budget(budget, cheapest=float(rule.costs[0]), dearest=float(rule.costs[-1]), unit=rule.unit)
    if own_budget is not None and budget is not None and not math.isclose(own_budget, budget):
        raise BudgetOutOfRange(
            f"{kind} was made for {own_budget:g} samples on average, not {budget:g}; "
            f"give --budget {own_budget:g}, or fit one for {budget:g}"
        )


def _build_result(
    prompts: PromptSet, rule: BudgetRule, outcome: AllocateOutcome, budget: float | None, price: float | None
) -> AllocateResult:
    total, plan, search = outcome.total, outcome.plan, outcome.search
    return AllocateResult(
        problems=total.problems,
        policy=rule.policy.kind,
        budget=None if budget is None else float(budget),
        price=price if plan is None else plan.price,
        budgets=rule.modes if rule.draws is None else tuple(count for _, count in rule.draws),
        modes=() if rule.draws is None else tuple(name for name, _ in rule.draws),
        unit=rule.unit,
        counts=total.counts,
        cost=total.cost / total.problems,
        accuracy=min(1.0, total.accuracy / total.problems) if rule.has_price else None,
        bound=None if plan is None else min(1.0, plan.bound),
        mix=None if plan is None else plan.mix,
        files=len(prompts.files),
        shards=outcome.shards,
        rounds=0 if search is None else search.rounds,
        summary_bytes=0 if search is None else search.nbytes,
    )


def _write_notes(result: AllocateResult, rule: BudgetRule) -> tuple[str, ...]:
    notes = []
    if isinstance(rule.policy, CurvePolicy) and not rule.policy.uses_features:
        notes.append(
            "this policy predicts the same of every prompt: its features didn't help on problems it "
            "hadn't seen, so which prompts get more depends on their rows alone"
        )
    if (
        result.budget is not None
        and result.accuracy is None
        and abs(result.cost - result.budget) > _TOLERANCE
    ):
        side = "above" if result.cost > result.budget else "below"
        notes.append(
            f"{result.policy} gives {result.cost:.2f} samples on average, {side} the {result.budget:g} asked "
            "for: it has no price that could be moved"
        )
    margin = _TOLERANCE * (1.0 if result.unit == "samples" else result.budget or 0.0)
    if result.budget is not None and result.price == 0 and result.cost < result.budget - margin:
        notes.append(
            f"no more than {_format_cost(result)} on average are predicted to help; the rest is unspent"
        )
    return tuple(notes)


def _format_cost(result: AllocateResult) -> str:
    return f"{result.cost:.2f} samples" if result.unit == "samples" else f"{result.cost:.4g} {result.unit}"


@dataclass(slots=True)
class _ProgressCounter:
    """Counts prompts, and reports the progress."""

    doing: str
    prompts: int
    tell: ProgressListener
    done: int = 0

    def __call__(self, rows: int) -> None:
        self.done += rows
        self.tell(AllocateProgress(doing=self.doing, done=self.done, prompts=self.prompts))


def allocate_directly(
    prompts: PromptSet, rule: BudgetRule, place: Path, *, price: float | None, tell: ProgressListener
) -> AllocateOutcome:
    """Budgets without a search, in one pass: at a price, or by a policy that has none."""
    totals, counter = [], _ProgressCounter("writing", len(prompts), tell)
    for file in prompts.files:
        start = 0

        def budgets(batch: Arrow, path: str = file.path) -> Ints:
            nonlocal start
            texts = read_texts(batch, prompts.column, path=path, start=start)
            start += len(texts)
            chosen, total = rule.decide_budgets(texts, price)
            totals.append(total)
            return chosen

        write_file(file, place, budgets, draws=rule.draws, on_rows=counter)
    return AllocateOutcome(total=reduce(add, totals))


def allocate_by_price(
    prompts: PromptSet, rule: BudgetRule, place: Path, *, budget: float, tell: ProgressListener
) -> AllocateOutcome:
    """Budgets at the price that meets an average."""
    curve_file = place / "curves"
    search = PriceSearch(budget=budget, unit=rule.unit)
    with map_write_errors(curve_file), curve_file.open("wb") as out:
        search.narrow([_predict_curves(prompts, rule, out, _ProgressCounter("reading", len(prompts), tell))])
    while (bracket := search.bracket) is not None:
        search.narrow([_summarise_curves(curve_file, rule, bracket)])
    with curve_file.open("rb") as curves:
        taker = _BudgetTaker(rule=rule, curves=curves, share=search.total_quota)
        counter = _ProgressCounter("writing", len(prompts), tell)
        for file in prompts.files:
            write_file(file, place, taker, draws=rule.draws, on_rows=counter)
    assert taker.total is not None  # there is a prompt
    plan = build_sharded_allocation(
        taker.total, taker.edge, budget=budget, price=search.price, start=taker.start
    )
    return AllocateOutcome(total=taker.total, plan=plan, search=search)


def _predict_curves(
    prompts: PromptSet, rule: BudgetRule, out: BinaryIO, counter: _ProgressCounter
) -> SlopeHistogram:
    """Stores the predicted curves of all prompts, and sums them up."""

    def summaries() -> Iterator[SlopeHistogram]:
        for file in prompts.files:
            start = 0
            for batch in iterate_batches(file, columns=[prompts.column]):
                curves = rule.predict_curves(read_texts(batch, prompts.column, path=file.path, start=start))
                out.write(curves.tobytes())
                start += len(curves)
                counter(len(curves))
                yield rule.build_shard(curves).histogram()

    return merge_histograms(summaries(), bracket=ALL_SLOPES)


def _summarise_curves(curve_file: Path, rule: BudgetRule, bracket: SlopeBracket) -> SlopeHistogram:
    with curve_file.open("rb") as curves:
        return merge_histograms(
            (shard.histogram(bracket) for shard in _iterate_shards(curves, rule)), bracket=bracket
        )


def _iterate_shards(curves: BinaryIO, rule: BudgetRule) -> Iterator[TableShard]:
    while len(rows := _read_curves(curves, rule, _CURVE_ROWS)):
        yield rule.build_shard(rows)


def _read_curves(curves: BinaryIO, rule: BudgetRule, rows: int) -> Floats:
    modes = len(rule.modes)
    return np.frombuffer(curves.read(8 * rows * modes)).reshape(-1, modes)


@dataclass(slots=True, kw_only=True)
class _BudgetTaker:
    """Decides the budgets of rows in order; the room for ties is handed on from batch to batch."""

    rule: BudgetRule
    curves: BinaryIO
    share: ShardQuota
    total: ChoiceTotal | None = None
    edge: Edge | None = None
    start: int = 0  # of the batch that has the edge
    _done: int = 0

    def __call__(self, batch: Arrow) -> Ints:
        taken = self.rule.build_shard(_read_curves(self.curves, self.rule, len(batch))).take(self.share)
        self.share = self.share.after(taken)
        self.total = taken.total if self.total is None else self.total + taken.total
        if taken.edge is not None:
            self.edge, self.start = taken.edge, self._done
        self._done += len(batch)
        return np.array(self.rule.modes, dtype=np.int64)[taken.choice]


@dataclass(frozen=True, slots=True, kw_only=True)
class _FilePart:
    """A shard: consecutive row groups of one file."""

    file: int
    groups: tuple[int, ...]
    start: int  # its first row in the file


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RayJob:
    """What every task has to know."""

    files: tuple[PromptFile, ...]
    column: str
    parts: tuple[_FilePart, ...]
    packed: PackedPolicy
    place: str

    def budgets_path(self, shard: int) -> Path:
        """Where the budgets of a shard are kept until its file is written."""
        return Path(self.place, f"budgets-{shard}")


def allocate_on_ray(
    prompts: PromptSet,
    rule: BudgetRule,
    place: Path,
    *,
    budget: float | None,
    price: float | None,
    workers: int | None,
    tell: Callable[[AllocateProgress], None],
) -> AllocateOutcome:
    """Writes budgets to the working folder: at the price of an average, at a given price, or without one."""
    search = None
    with cluster(workers) as task_count:
        parts = _split_files(prompts.files, task_count)
        job = _RayJob(
            files=tuple(replace(file, path=str(Path(file.path).absolute())) for file in prompts.files),
            column=prompts.column,
            parts=parts,
            packed=rule.packed_policy,
            place=str(place),
        )
        numbers = list(range(len(parts)))
        if rule.has_price and budget is not None:
            curves = start_pass(partial(_keep_curves, job), numbers, workers=task_count)
            raise_failures(curves.reports)
            tell(AllocateProgress(doing="reading", done=len(prompts), prompts=len(prompts)))
            search = _search_price(curves, rule, budget)
            shares = [(number, search.quota(number)) for number in numbers]
            reports = curves.ask(partial(_take_budgets, job), shares)
        else:
            reports = raise_failures(
                start_pass(partial(_decide_budgets, job, price), numbers, workers=task_count).reports
            )
        raise_failures(
            start_pass(
                partial(_write_output, job), list(range(len(prompts.files))), workers=task_count
            ).reports
        )
        tell(AllocateProgress(doing="writing", done=len(prompts), prompts=len(prompts)))
    totals = [parse_total(report) for report in reports]
    plan = None if search is None else search.build_allocation(totals)
    return AllocateOutcome(
        total=reduce(add, (total for total, _ in totals)), plan=plan, search=search, shards=len(parts)
    )


def _split_files(files: Sequence[PromptFile], workers: int) -> tuple[_FilePart, ...]:
    """Consecutive row groups, never of two files."""
    max_rows = min(_SHARD_ROWS, sum(file.rows for file in files) // (_SHARDS_A_WORKER * workers) + 1)
    parts = []
    for number, file in enumerate(files):
        groups: list[int] = []
        start = row = 0
        for group, rows in enumerate(file.groups):
            if groups and row + rows - start > max_rows:
                parts.append(_FilePart(file=number, groups=tuple(groups), start=start))
                groups, start = [], row
            groups.append(group)
            row += rows
        parts.append(_FilePart(file=number, groups=tuple(groups), start=start))
    return tuple(parts)


def _search_price(curves: ShardDataset, rule: BudgetRule, budget: float) -> PriceSearch:
    search = PriceSearch(budget=budget, unit=rule.unit)
    while (bracket := search.bracket) is not None:
        reports = curves.ask(partial(_summarise_shard, rule.costs), [bracket] * len(curves))
        search.narrow(parse_histogram(report, bracket) for report in reports)
    return search


def _iterate_prompts(job: _RayJob, shard: int) -> Iterator[list[str]]:
    part = job.parts[shard]
    file, start = job.files[part.file], part.start
    if not Path(file.path).exists():
        raise ScaleError(f"{file.path}: a worker doesn't see it; put it where all see it under this path")
    if not part.groups:
        return
    for batch in iterate_batches(file, columns=[job.column], groups=part.groups):
        yield read_texts(batch, job.column, path=file.path, start=start)
        start += len(batch)


def _keep_curves(job: _RayJob, _: ShardRecord, shard: int) -> tuple[ShardRecord, ShardRecord]:
    """Keeps what the policy predicts for a shard's prompts."""
    rule = BudgetRule.unpack(job.packed)
    curves = [
        np.zeros((0, len(rule.modes))),
        *(rule.predict_curves(prompts) for prompts in _iterate_prompts(job, shard)),
    ]
    return {"curves": np.concatenate(curves)}, {}


def _load_shard(kept: ShardRecord, costs: Floats) -> TableShard:
    return TableShard.of(kept["curves"], costs=costs)


def _summarise_shard(costs: Floats, kept: ShardRecord, bracket: SlopeBracket) -> tuple[None, ShardRecord]:
    return None, report_histogram(_load_shard(kept, costs).histogram(bracket))


def _take_budgets(
    job: _RayJob, kept: ShardRecord, argument: tuple[int, ShardQuota]
) -> tuple[None, ShardRecord]:
    """A shard's budgets at the price, kept in a file."""
    shard, share = argument
    rule = BudgetRule.unpack(job.packed)
    taken = _load_shard(kept, rule.costs).take(share)
    _write_budgets(job, shard, np.array(rule.modes, dtype=np.int64)[taken.choice])
    return None, report_total(taken.total, taken.edge)


def _decide_budgets(
    job: _RayJob, price: float | None, _: ShardRecord, shard: int
) -> tuple[None, ShardRecord]:
    """A shard's budgets without a search."""
    rule = BudgetRule.unpack(job.packed)
    none = ChoiceTotal(problems=0, counts=(0,) * len(rule.modes), cost=0.0, accuracy=0.0)
    decided = [
        (np.zeros(0, dtype=np.int64), none),
        *(rule.decide_budgets(prompts, price) for prompts in _iterate_prompts(job, shard)),
    ]
    _write_budgets(job, shard, np.concatenate([budgets for budgets, _ in decided]))
    return None, report_total(reduce(add, (total for _, total in decided)), None)


def _write_budgets(job: _RayJob, shard: int, budgets: Ints) -> None:
    path = job.budgets_path(shard)
    if not path.parent.exists():
        raise ScaleError(f"{path.parent}: a worker doesn't see it; write to a folder that all workers share")
    with map_write_errors(path):
        temporary = path.with_name(uuid4().hex)
        budgets.tofile(temporary)
        temporary.replace(path)


def _write_output(job: _RayJob, _: ShardRecord, number: int) -> tuple[None, ShardRecord]:
    """Writes one file, whose budgets are in its shards' files."""
    shards = [shard for shard, part in enumerate(job.parts) if part.file == number]
    budgets = np.concatenate([np.fromfile(job.budgets_path(shard), dtype=np.int64) for shard in shards])
    done = 0

    def next_budgets(batch: Arrow) -> Ints:
        nonlocal done
        done += len(batch)
        return budgets[done - len(batch) : done]

    draws = BudgetRule.unpack(job.packed).draws
    write_file(job.files[number], Path(job.place), next_budgets, draws=draws)
    return None, {}
