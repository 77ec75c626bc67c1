"""Decides how many samples each prompt in a file gets, before any is drawn, in this process or on Ray.

Prompts are processed in blocks, one after the other or as Ray tasks. If a task is lost, it runs again and
writes the same bytes. Predicted accuracies are stored next to the output, 8 bytes for each prompt and
possible budget, because the search for the price reads them several times.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from adacompute.errors import BudgetOutOfRange, NotFitted, PolicyError, ScaleError, format_count
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.classifier import ClassifierPolicy
from adacompute.policies.curve import CurvePolicy, ModeRoute
from adacompute.policies.features import FeaturePolicy
from adacompute.policies.votes import VoteState
from adacompute.scale.cluster import cluster, map_blocks
from adacompute.scale.prompt_files import (
    PromptFile,
    PromptSet,
    check_destination,
    check_source,
    check_text_output,
    find_text_kind,
    iterate_batches,
    list_added,
    map_write_errors,
    open_prompts,
    open_working_folder,
    publish,
    publish_text,
    read_text_prompts,
    read_texts,
    write_file,
)
from adacompute.solve.hull import round_slopes
from adacompute.solve.price_search import Edge, PriceSearch, Quota, choose, count_choices
from adacompute.solve.pricing import Move, check_budget, check_price

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Arrow: TypeAlias = Any  # pyarrow has no type hints
AllocateEngine = Literal["local", "ray"]
# policies that are fitted for a single budget
_FIXED_BUDGET_POLICIES = (FixedPolicy, ClassifierPolicy)
_TOLERANCE = 0.01  # difference in samples up to which an average cost counts as equal to the budget
_CURVE_ROWS = 1 << 14  # number of prompts whose predicted accuracies are read at a time
_BLOCK_ROWS = 100_000  # approximate number of rows per block; their predicted accuracies take about 4 MB
# minimum number of blocks per worker, if possible, so that all workers finish at about the same time
_BLOCKS_A_WORKER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateProgress:
    """How many of the prompts have been read or written so far."""

    doing: str  # what the run is doing: "reading" or "writing"
    done: int
    prompts: int


ProgressListener = Callable[[AllocateProgress], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockTotal:
    """Totals over a block of prompts; totals of several blocks can be added up."""

    counts: Ints  # number of prompts that got each possible budget; shape (budgets,)
    accuracy: float  # sum of the predicted accuracies; 0 if the policy predicts none
    # the first prompt whose larger budget costs more than is left; None if there is none in this block
    edge: Edge | None = None
    edge_row: int = 0

    def __add__(self, other: "BlockTotal") -> "BlockTotal":
        counts, accuracy = self.counts + other.counts, self.accuracy + other.accuracy
        if self.edge is not None or other.edge is None:
            return replace(self, counts=counts, accuracy=accuracy)
        row = int(self.counts.sum()) + other.edge_row
        return BlockTotal(counts=counts, accuracy=accuracy, edge=other.edge, edge_row=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocateResult:
    """The result of an allocation in numbers. The budget of each prompt is in the output files.

    A router is a policy that chooses a mode for each prompt, and how many samples to draw from the mode.
    """

    problems: int
    policy: str  # kind of the policy
    budget: float | None  # requested average cost in `unit`; None if a price was given
    # minimum gain in accuracy, per unit of cost, for a larger budget; None if the policy has no price
    price: float | None
    # the possible budgets of a prompt in samples, ascending; for a router, in the order of their cost
    budgets: tuple[int, ...]
    counts: tuple[int, ...]  # number of prompts that got each possible budget; shape (budgets,)
    cost: float  # average cost per prompt, in `unit`
    accuracy: float | None = None  # average accuracy that the policy predicts; None if it predicts none
    bound: float | None = None  # upper bound on the predicted accuracy of any allocation within the budget
    # one prompt that gets a larger budget with some probability, so that the average cost meets the budget
    mix: Move | None = None
    files: int = 1
    shards: int = 1  # number of blocks of prompts that were processed
    rounds: int = 0  # how many times the search for the price went through all prompts
    summary_bytes: int = 0  # size in bytes of all counts that workers returned for the price search
    seconds: float = 0.0
    notes: tuple[str, ...] = ()  # remarks about the result for the user, one text each
    unit: str = "samples"  # unit of costs
    modes: tuple[str, ...] = ()  # if the policy is a router, the mode of each budget; shape (budgets,)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; includes modes and their unit only for a router."""
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
    """Decides the budgets of prompts by a policy that needs only the prompt."""

    policy: Policy

    @classmethod
    def from_policy(cls, policy: Policy) -> "BudgetRule":
        """Makes a rule that decides by this policy. Raises PolicyError if the policy needs to see samples."""
        if not isinstance(policy, Policy):
            raise PolicyError(f"a {type(policy).__name__} is not a policy; give what load_policy(…) gives")
        kind = policy.kind
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
                "or `adacompute fit POOL --policy curve --features text` (with modes it is a router)"
            )
        return cls(policy=policy)

    @property
    def has_price(self) -> bool:
        """Whether the policy predicts accuracy at every budget, so that any price can be used."""
        return isinstance(self.policy, CurvePolicy)

    @property
    def route(self) -> ModeRoute | None:
        """The choices of a router, each with a mode and a number of samples; None without a router."""
        return self.policy.route if isinstance(self.policy, CurvePolicy) else None

    @property
    def choices(self) -> tuple[int, ...]:
        """The possible budgets of a prompt, ascending; for a router, the indexes 0, 1, … of its choices."""
        if self.route is not None:
            return tuple(range(len(self.route.columns)))
        return tuple(self.policy.choices)  # type: ignore[attr-defined] # all of these have them

    @property
    def draws(self) -> tuple[tuple[str, int], ...] | None:
        """For a router, (name of the mode, number of samples) of each choice; otherwise None."""
        return None if self.route is None else tuple(column.draws[0] for column in self.route.columns)

    @property
    def costs(self) -> Floats:
        """The cost of each possible budget, ascending."""
        return np.array(self.choices, dtype=np.float64) if self.route is None else self.route.costs

    @property
    def unit(self) -> str:
        """The unit of costs."""
        return "samples" if self.route is None else self.route.unit

    @property
    def own_budget(self) -> float | None:
        """The average budget that the policy was fitted for; None if any is possible."""
        policy = self.policy
        if isinstance(policy, ClassifierPolicy):
            return policy.budget_
        return None if self.has_price else float(policy.budget)  # type: ignore[attr-defined]

    def predict_curves(self, prompts: Sequence[str]) -> Floats:
        """Predicts the accuracy at each budget; shape (prompts, budgets)."""
        assert isinstance(self.policy, CurvePolicy)
        return self.policy.predict_curve(prompts)

    def buy_budgets(self, curves: Floats, quota: Quota) -> tuple[Ints, BlockTotal, Quota]:
        """Chooses each prompt's budget from its predicted accuracies.

        `quota` has the price, and how much may be spent on larger budgets whose gain per unit of cost equals
        the price. Returns the budgets (for a router, indexes of choices), their totals, and the quota left
        for later prompts.
        """
        choice = choose(curves, self.costs, quota)
        counts = np.bincount(choice.columns, minlength=len(self.choices))
        edge, row = choice.edge, 0 if choice.edge is None else choice.edge.row
        total = BlockTotal(counts=counts, accuracy=choice.accuracy, edge=edge, edge_row=row)
        return np.array(self.choices, dtype=np.int64)[choice.columns], total, quota.after(choice)

    def decide_budgets(self, prompts: Sequence[str], price: float | None) -> tuple[Ints, BlockTotal]:
        """Decides each prompt's budget, at a price if one is given; returns the budgets and their totals."""
        if price is not None:
            rounded_price = float(round_slopes(np.array([price], dtype=np.float64))[0])
            return self.buy_budgets(self.predict_curves(prompts), Quota(price=rounded_price))[:2]
        budgets = self.policy.count_draws(self.policy.read(prompts), VoteState.empty(len(prompts)), None)
        counts = np.bincount(np.searchsorted(self.choices, budgets), minlength=len(self.choices))
        return budgets, BlockTotal(counts=counts, accuracy=0.0)


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
    progress: ProgressListener | None = None,
) -> AllocateResult:
    """Copies `source` (a JSONL, CSV or Parquet file, or a Parquet folder) to `into`, with a column `budget`.

    The policy decides from the prompt alone. Give either `budget` or `price`. For a `budget`, finds the one
    price at which all prompts together average at most `budget` samples. Both engines give a prompt the same
    budget. For a router (`CurvePolicy` with modes), the argument `budget` is an average cost in the unit of
    the modes, and the output also has a column `mode`.
    """
    start = time.monotonic()
    if engine not in ("local", "ray"):
        raise ScaleError(f"engine {engine!r} is not known; give 'local' or 'ray'")
    rule = BudgetRule.from_policy(policy)
    _check_budget(rule, budget, price)
    check_destination(Path(into), Path(source), overwrite=overwrite)
    check_text_output(Path(into), Path(source))
    check_source(Path(source))
    is_text = bool(find_text_kind(Path(source)))
    added = list_added(rule.draws)
    prompts = None if is_text else open_prompts(Path(source), column=column, added=added)
    # raises an error if the policy isn't fitted
    rule.decide_budgets(["What is 1 + 1?"], 0.0 if rule.has_price else None)
    with open_working_folder(Path(into)) as place:
        # checked again, because another run may have written to this destination in the meantime
        check_destination(Path(into), Path(source), overwrite=overwrite)
        if prompts is None:
            prompts = read_text_prompts(Path(source), place, column=column, added=added)
        with _open_engine(engine, workers) as (run, task_count):
            job = _Job.of(prompts, rule, place, workers=task_count)
            total, search = _write_budgets(job, run, budget=budget, price=price, progress=progress)
        if is_text:
            publish_text(Path(source), prompts, place, Path(into), added=added)
        else:
            publish(prompts, place, Path(into))
    result = _build_result(job, total, search, budget, price)
    return replace(result, notes=_write_notes(result, rule), seconds=time.monotonic() - start)


def _check_budget(rule: BudgetRule, budget: float | None, price: float | None) -> None:
    """Raises BudgetOutOfRange if the policy can't use this average budget or price."""
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
            f"{kind} was made for {format_count(f'{own_budget:g}', 'sample')} on average, not {budget:g}; "
            f"give --budget {own_budget:g}, or fit one for {budget:g}"
        )


def _build_result(
    job: "_Job", total: BlockTotal, search: PriceSearch | None, budget: float | None, price: float | None
) -> AllocateResult:
    rule, problems = job.rule, int(total.counts.sum())
    accuracy, mix, bound = total.accuracy / problems, None, None
    if search is not None:
        edge, bound = total.edge, accuracy
        price = search.price if edge is None else edge.slope
        if edge is not None and edge.probability > 0:
            mix = Move(problem=total.edge_row, mode=edge.mode, probability=edge.probability)
            bound = accuracy + edge.probability * edge.gain / problems
    return AllocateResult(
        problems=problems,
        policy=rule.policy.kind,
        budget=None if budget is None else float(budget),
        price=price,
        budgets=rule.choices if rule.draws is None else tuple(count for _, count in rule.draws),
        modes=() if rule.draws is None else tuple(name for name, _ in rule.draws),
        unit=rule.unit,
        counts=tuple(total.counts.tolist()),
        cost=float((total.counts * rule.costs).sum()) / problems,
        accuracy=min(1.0, accuracy) if rule.has_price else None,
        bound=None if bound is None else min(1.0, bound),
        mix=mix,
        files=len(job.files),
        shards=len(job.blocks),
        rounds=0 if search is None else search.passes,
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


# a function like `map`: calls its first argument with each of the given block numbers, possibly in parallel
BlockRun = Callable[[Callable[[int], Any], Iterable[int]], Iterable[Any]]


@contextmanager
def _open_engine(engine: AllocateEngine, workers: int | None) -> Iterator[tuple[BlockRun, int]]:
    """Yields a function that processes blocks, and the number of parallel tasks (0: in this process)."""
    if engine == "local":
        yield map, 0
        return
    with cluster(workers) as task_count:
        yield partial(map_blocks, workers=task_count), task_count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Consecutive row groups of one Parquet file, which are processed together."""

    file: int
    groups: tuple[int, ...]
    start: int  # index of the block's first row in the file
    rows: int


def _split_files(files: Sequence[PromptFile], workers: int) -> tuple[_Block, ...]:
    """Splits files into blocks of consecutive row groups; the more workers, the smaller the blocks."""
    max_rows = _BLOCK_ROWS
    if workers:
        max_rows = min(max_rows, sum(file.rows for file in files) // (_BLOCKS_A_WORKER * workers) + 1)
    blocks = []
    for number, file in enumerate(files):
        groups: list[int] = []
        start = row = 0
        for group, rows in enumerate(file.groups):
            if groups and row + rows - start > max_rows:
                blocks.append(_Block(file=number, groups=tuple(groups), start=start, rows=row - start))
                groups, start = [], row
            groups.append(group)
            row += rows
        blocks.append(_Block(file=number, groups=tuple(groups), start=start, rows=row - start))
    return tuple(blocks)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    """Processes blocks of prompts, which are identified by number, possibly in other processes."""

    files: tuple[PromptFile, ...]
    column: str
    blocks: tuple[_Block, ...]
    rule: BudgetRule
    place: Path

    @classmethod
    def of(cls, prompts: PromptSet, rule: BudgetRule, place: Path, *, workers: int) -> "_Job":
        files = prompts.files
        if workers:  # absolute paths, because workers may have another current folder
            files = tuple(replace(file, path=str(Path(file.path).absolute())) for file in files)
        return cls(
            files=files, column=prompts.column, blocks=_split_files(files, workers), rule=rule, place=place
        )

    def keep_curves(self, number: int) -> None:
        """Stores the predicted accuracies for a block's prompts."""
        with self._write("curves", number) as out:
            for prompts in self._iterate_prompts(number):
                out.write(self.rule.predict_curves(prompts).tobytes())

    def count_choices(self, prices: Floats, number: int) -> Ints:
        """Counts the block's prompts for which each budget is best at each price; shape (prices, budgets)."""
        counts = np.zeros((len(prices), len(self.rule.choices)), dtype=np.int64)
        for curves in self._iterate_curves(number):
            counts += count_choices(curves, self.rule.costs, prices)
        return counts

    def take_budgets(self, quotas: Sequence[Quota], number: int) -> BlockTotal:
        """Decides and stores a block's budgets by its quota, which holds the price that the search found."""
        total, quota = self._no_prompts, quotas[number]
        with self._write("budgets", number) as out:
            for curves in self._iterate_curves(number):
                budgets, part, quota = self.rule.buy_budgets(curves, quota)
                out.write(budgets.tobytes())
                total += part
        return total

    def decide_budgets(self, price: float | None, number: int) -> BlockTotal:
        """Decides and stores the budgets of a block, at a price if one is given."""
        total = self._no_prompts
        with self._write("budgets", number) as out:
            for prompts in self._iterate_prompts(number):
                budgets, part = self.rule.decide_budgets(prompts, price)
                out.write(budgets.tobytes())
                total += part
        return total

    def write_output(self, file: int) -> None:
        """Writes one output file from its blocks' stored budgets."""
        kept = (
            np.fromfile(self._path("budgets", number), dtype=np.int64)
            for number, block in enumerate(self.blocks)
            if block.file == file
        )
        budgets = chain.from_iterable(kept)

        def next_budgets(batch: Arrow) -> Ints:
            return np.fromiter(islice(budgets, len(batch)), dtype=np.int64, count=len(batch))

        write_file(self.files[file], self.place, next_budgets, draws=self.rule.draws)

    @property
    def _no_prompts(self) -> BlockTotal:
        return BlockTotal(counts=np.zeros(len(self.rule.choices), dtype=np.int64), accuracy=0.0)

    def _iterate_prompts(self, number: int) -> Iterator[list[str]]:
        block = self.blocks[number]
        file, start = self.files[block.file], block.start
        if not Path(file.path).exists():
            raise ScaleError(f"{file.path}: a worker doesn't see it; put it where all see it under this path")
        if not block.groups:
            return
        for batch in iterate_batches(file, columns=[self.column], groups=block.groups):
            yield read_texts(batch, self.column, path=file.path, start=start)
            start += len(batch)

    def _iterate_curves(self, number: int) -> Iterator[Floats]:
        modes = len(self.rule.choices)
        with self._path("curves", number).open("rb") as file:
            while data := file.read(8 * modes * _CURVE_ROWS):
                yield np.frombuffer(data).reshape(-1, modes)

    def _path(self, name: str, number: int) -> Path:
        """Returns the path where a block's data is stored until the output is written."""
        return self.place / f"{name}-{number}"

    @contextmanager
    def _write(self, name: str, number: int) -> Iterator[BinaryIO]:
        """Opens a temporary file for a block's data; gives it its final name once it is complete.

        So two tasks can safely write the same block at the same time.
        """
        path = self._path(name, number)
        if not self.place.exists():
            raise ScaleError(
                f"{self.place}: a worker doesn't see it; write to a folder that all workers share"
            )
        temporary = path.with_name(uuid4().hex)
        with map_write_errors(path):
            with temporary.open("wb") as out:
                yield out
            temporary.replace(path)


def _write_budgets(
    job: _Job, run: BlockRun, *, budget: float | None, price: float | None, progress: ProgressListener | None
) -> tuple[BlockTotal, PriceSearch | None]:
    """Decides the budgets of all prompts and writes the output files to the working folder.

    Uses `price`, or searches for the price that meets the average `budget`. A policy without a price uses its
    own budget. Returns the totals over all prompts, and the price search or None.
    """
    numbers, rows = range(len(job.blocks)), [block.rows for block in job.blocks]

    def run_and_tell(doing: str, work: Callable[[int], Any], rows: Sequence[int]) -> Iterator[Any]:
        done = 0
        for result, more in zip(run(work, range(len(rows))), rows, strict=True):
            done += more
            if progress is not None:
                progress(AllocateProgress(doing=doing, done=done, prompts=sum(rows)))
            yield result

    search = None
    if job.rule.has_price and budget is not None:
        list(run_and_tell("reading", job.keep_curves, rows))
        search = PriceSearch(job.rule.costs, budget=budget, problems=sum(rows))
        while len(search.prices):
            search.narrow(list(run(partial(job.count_choices, search.prices), numbers)))
        totals = list(run(partial(job.take_budgets, search.quotas(len(numbers))), numbers))
    else:
        totals = list(run_and_tell("reading", partial(job.decide_budgets, price), rows))
    list(run_and_tell("writing", job.write_output, [file.rows for file in job.files]))
    return sum(totals[1:], totals[0]), search
