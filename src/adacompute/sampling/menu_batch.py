"""A batch over the modes of a menu: one sampler for all of them, one vote a request, and who is asked next.

A batch without a menu has one mode, whose name is "". Over several modes the price falls as it does over one,
and all modes are paid from one cap. A sample's index is its place among all samples of its request, whichever
mode gave it, so that a batch that was killed continues with its votes in the order in which they were drawn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import PolicyError
from adacompute.policies.base import Floats, Ints, Policy
from adacompute.policies.menu.lattice import STOP
from adacompute.policies.menu.policy import MenuPolicy
from adacompute.policies.menu.votes import NEVER_SEEN, MenuVotes
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Pool
from adacompute.records import Account, Problem, Sample, TokenPrices
from adacompute.sampling.collect import LocalEngine, handle_signals
from adacompute.sampling.menu_collection import ModePlan
from adacompute.sampling.plan import Asking, SampleRun
from adacompute.sampling.waves import Bools, DialSearch, Rows, Wave, WavePlanner, highest_dial, read_together
from adacompute.sampling.workers import (
    CollectProgress,
    CostBudget,
    Sampler,
    SamplingEngine,
    StopReason,
    compute_max_cost,
)

__all__ = [
    "BatchMode",
    "BatchSampler",
    "MenuBatchVotes",
    "MenuPlanner",
    "ModeChoices",
    "ModeDraws",
    "add_accounts",
    "choose_modes",
    "measure_mode",
    "open_samplers",
]

_TRIAL_REQUESTS = 16  # that the first wave has, which shows what samples cost
_WAVES = 12  # in which requests are begun, at least
_PACED_SHARE = 0.98  # of what is left: what the price is meant to cost


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMode:
    """A mode of a batch: where its samples are drawn, how it is asked, and what its calls cost."""

    name: str  # "": an endpoint without a menu
    engine: SamplingEngine
    asking: Asking
    prices: TokenPrices  # in money
    cost_budget: CostBudget  # in the unit of the batch's budget


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeDraws:
    """What a batch drew from a mode, and what the mode's calls into the pool have cost."""

    name: str
    samples: int  # of this batch
    account: Account  # of all calls into this pool for this source
    cost: float  # money, of all of them
    at_most: float  # money, with what may have been charged
    answered: float | None = None  # share of its samples in which an answer was found
    finished: float | None = None  # share that was not cut off, of those where it is known

    @property
    def mean_cost(self) -> float | None:
        """Money for one sample; None where there is none."""
        return self.at_most / self.account.got if self.account.got else None

    def cost_samples(self, samples: Iterable[Sample], prices: TokenPrices) -> float:
        """Money for some of its samples; what prompts cost is divided among all of them alike."""
        prompt = self.account.prompt_tokens / self.account.got if self.account.got else 0.0
        return sum(prices.cost(prompt, sample.tokens or 0) for sample in samples)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "samples": self.samples,
            "calls": self.account.calls,
            "prompt_tokens": self.account.prompt_tokens,
            "completion_tokens": self.account.completion_tokens,
            "cost": self.cost,
            "cost_at_most": self.at_most,
            "cost_per_sample": self.mean_cost,
        }


def measure_mode(pool: Pool, mode: BatchMode, *, samples: int = 0, shares: bool = False) -> ModeDraws:
    """What a mode's calls have cost; with `shares`, also how many of its samples have an answer."""
    account = pool.account(mode.asking.model, mode.asking.parameters)
    use = ModeDraws(
        name=mode.name,
        samples=samples,
        account=account,
        cost=account.cost(mode.prices),
        at_most=compute_max_cost(account, mode.prices),
    )
    if not shares:
        return use
    totals = pool.totals(pool.source_key(mode.asking.model, mode.asking.parameters))
    return replace(use, answered=totals.answered, finished=totals.finished)


def add_accounts(accounts: Iterable[Account]) -> Account:
    """The sum of several accounts."""
    rows = [asdict(account) for account in accounts]
    return Account(**{name: sum(row[name] for row in rows) for name in rows[0]})


def choose_modes(policy: Policy, menu: Sequence[ModePlan]) -> tuple[ModePlan, ...]:
    """The modes of a menu that a policy may draw from, in its order; PolicyError where they don't fit."""
    names = tuple(plan.name for plan in menu)
    if not isinstance(policy, MenuPolicy):
        if len(menu) > 1:
            raise PolicyError(
                f"a {policy.kind} policy decides for one mode, and the menu has {', '.join(names)}; fit one "
                "over them with `adacompute fit --policy menu`, or give a menu of one mode"
            )
        return tuple(menu)
    if lacking := [name for name in policy.names if name not in names]:
        raise PolicyError(
            f"the policy draws from {', '.join(policy.names)}, and the menu has {', '.join(names)}; "
            f"add {', '.join(lacking)} to the menu, or fit a policy over its modes"
        )
    by_name = {plan.name: plan for plan in menu}
    return tuple(by_name[name] for name in policy.names)


class BatchSampler:
    """The samplers of all modes of a batch, as one. It is stopped where all of them are, or by a signal."""

    def __init__(self, samplers: Sequence[Sampler], cost_budget: CostBudget, *, in_turn: bool) -> None:
        self.samplers = tuple(samplers)
        self._cost_budget = cost_budget
        self._in_turn = in_turn
        self._why: str | None = None

    @property
    def added(self) -> int:
        """Samples of this run."""
        return sum(sampler.added for sampler in self.samplers)

    @property
    def errors(self) -> Counter[str]:
        """Attempts that gave nothing, by kind."""
        return sum((sampler.errors for sampler in self.samplers), Counter())

    @property
    def failures(self) -> dict[str, str]:
        """Problem id -> the last reason."""
        return {id_: why for sampler in self.samplers for id_, why in sampler.failures.items()}

    @property
    def stopped(self) -> StopReason | None:
        """What stopped it; None while a mode can be drawn from."""
        reasons = [sampler.stopped for sampler in self.samplers]
        if "signal" in reasons:
            return "signal"
        if None in reasons:
            return None
        return "max-cost" if "max-cost" in reasons else "endpoint"

    @property
    def why(self) -> str | None:
        """It was stopped."""
        stopped = self.stopped
        reasons = [sampler.why for sampler in self.samplers if sampler.stopped == stopped is not None]
        return self._why or next((why for why in reasons if why is not None), None)

    @why.setter
    def why(self, why: str | None) -> None:
        self._why = why

    @property
    def signal(self) -> int | None:
        """The number of the signal that stopped it, where one did."""
        return next((each.signal for each in self.samplers if each.signal is not None), None)

    def stop(self, how: StopReason, why: str | None = None, *, number: int | None = None) -> None:
        """Starts nothing more, and finishes what is running."""
        for sampler in self.samplers:
            sampler.stop(how, why, number=number)

    async def draw(self, runs: Sequence[Sequence[SampleRun]]) -> None:
        """Draws the runs of each mode, in the order of the modes; fewer where it is stopped."""
        chosen = [(sampler, part) for sampler, part in zip(self.samplers, runs, strict=True) if part]
        if self._in_turn or len(chosen) == 1:
            for sampler, part in chosen:
                await sampler.draw(iter(part))
            return
        tasks = [asyncio.create_task(sampler.draw(iter(part))) for sampler, part in chosen]
        try:
            await asyncio.gather(*tasks)
        except BaseException:  # the others must be over before their samplers are closed
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def progress(self, *, planned: int, before: int) -> CollectProgress:
        """The progress, of so many planned samples, so many of which were stored before."""
        if len(self.samplers) == 1:
            return self.samplers[0].progress(planned=planned, before=before)
        parts = [sampler.progress(planned=0, before=0) for sampler in self.samplers]
        spent = self._cost_budget.spent  # of all modes; a part adds what its workers haven't reported yet
        return CollectProgress(
            planned=planned,
            stored=before + self.added,
            added=self.added,
            failed=sum(part.failed for part in parts),
            tokens=sum(part.tokens for part in parts),
            cost=spent + sum(part.cost - spent for part in parts),
            errors=self.errors,
            calls=sum(part.calls for part in parts),
            concurrency=sum(part.concurrency for part in parts),
            in_flight=sum(part.in_flight for part in parts),
            stopping=self.stopped is not None,
        )


@asynccontextmanager
async def open_samplers(
    modes: Sequence[BatchMode],
    pool: Pool,
    *,
    on_progress: Callable[[BatchSampler], None],
    signals: Sequence[Any] = (),
) -> AsyncIterator[BatchSampler]:
    """Samplers of all modes into a pool; on leaving, everything that came is stored.

    The first of `signals` stops them in good order; the second leaves the block at once.
    """
    opened: list[BatchSampler] = []
    shared = len(modes) > 1  # then signals are handled here, for all samplers together

    def report(_sampler: Sampler) -> None:
        if opened:
            on_progress(opened[0])

    async with AsyncExitStack() as stack:
        samplers = [
            await stack.enter_async_context(
                mode.engine.open_sampler(
                    pool,
                    asking=mode.asking,
                    cost_budget=mode.cost_budget,
                    on_progress=report,
                    signals=() if shared else signals,
                )
            )
            for mode in modes
        ]
        # Collectors on a cluster get all the money that is left, so their modes are drawn in turn.
        in_turn = not all(isinstance(mode.engine, LocalEngine) for mode in modes)
        sampler = BatchSampler(samplers, modes[0].cost_budget, in_turn=in_turn)
        opened.append(sampler)
        if not shared:
            yield sampler
            return
        async with handle_signals(signals, sampler, on_progress=lambda: on_progress(sampler)):
            yield sampler
        closing = stack.pop_all()
        async with handle_signals(signals, sampler, on_progress=lambda: None):  # it may take seconds, too
            await closing.aclose()


class MenuBatchVotes:
    """The votes of several modes on each request, by its place in the batch, as one vote.

    As `BatchVotes`, with the state of `MenuPolicy`. Gold answers play no part in it.
    """

    def __init__(self, problems: Sequence[Problem], pool: Pool, askings: Mapping[str, Asking]) -> None:
        self.weigh: VoteWeights | None = None  # how votes are weighted; set it before counting
        self._problems = problems
        self._pool = pool
        self._askings = dict(askings)
        self._names = tuple(askings)
        self._rows = {problem.id: row for row, problem in enumerate(problems)}
        self._indexes: tuple[dict[int, list[int]], ...] = tuple({} for _ in askings)  # by mode and request
        self._sources: set[int] = set()  # modes that the pool has anything of
        self._pending: dict[tuple[int, int], int] = {}  # (request, mode) -> the index that was asked for
        empty = MenuVotes.empty(len(problems), len(askings))
        self._arrays = {name: getattr(empty, name).copy() for name in MenuVotes.__slots__}
        self.next_index = np.zeros(len(problems), dtype=np.int64)  # the index of each request's next sample
        for mode in range(len(askings)):
            self._load_indexes(mode)

    def __len__(self) -> int:
        return len(self._problems)

    @property
    def drawn(self) -> Ints:
        """Samples of each request, (requests,)."""
        return np.asarray(self.drawn_by_mode.sum(axis=1))

    @property
    def drawn_by_mode(self) -> Ints:
        """Samples of each request and mode, (requests, modes)."""
        counts: Ints = self._arrays["drawn"]
        return counts

    @property
    def spent(self) -> int:
        """Samples of all requests."""
        return int(self.drawn_by_mode.sum())

    def state(self, rows: Rows) -> MenuVotes:
        """The votes on some requests."""
        return MenuVotes(**{name: values[rows] for name, values in self._arrays.items()})

    def take_indexes(self, wave: Wave) -> Ints:
        """The index of the next sample of each request of a wave, (rows,), each with one sample."""
        firsts = self.next_index[wave.rows]
        self.next_index[wave.rows] += 1
        for row, mode, first in zip(wave.rows.tolist(), wave.modes.tolist(), firsts.tolist(), strict=True):
            self._pending[row, mode] = first
        return firsts

    def recount(self, rows: Rows) -> None:
        """Counts the votes on some requests again, because they have new samples."""
        votes = MenuVotes.from_tallies(
            [self.tally(self.samples(row)) for row in rows.tolist()], tuple(self._names)
        )
        kinds = votes.joint.shape[1]
        missing = kinds - self._arrays["joint"].shape[1]
        if missing > 0:
            for name in ("counts", "weights", "joint", "seen"):
                self._arrays[name] = _widen(self._arrays[name], missing, name)
        for name, values in self._arrays.items():
            if name == "drawn":
                values[rows] = votes.drawn
            else:
                values[rows] = NEVER_SEEN if name == "seen" else 0
                values[rows, ..., :kinds] = getattr(votes, name)

    def samples(self, row: int) -> list[Sample]:
        """A request's samples in the order drawn, with their modes, without grades: a vote must not know."""
        placed = [
            (index, replace(sample, mode=name))
            for mode, name in enumerate(self._names)
            for index, sample in self._read_mode(row, mode)
        ]
        samples = [sample for _, sample in sorted(placed, key=lambda pair: pair[0])]
        return read_together(samples, self._problems[row].question, self._pool.task)

    def tally(self, samples: Sequence[Sample]) -> Tally:
        """The tally of these samples."""
        return Tally.of(samples, weigh=self.weigh, task=self._pool.task)

    def _read_mode(self, row: int, mode: int) -> list[tuple[int, Sample]]:
        """A request's samples of one mode, with their indexes."""
        pending = self._pending.pop((row, mode), None)
        if pending is None and row not in self._indexes[mode]:
            return []
        asking = self._askings[self._names[mode]]
        if mode not in self._sources:
            if self._pool.source_key(asking.model, asking.parameters) is None:
                return []
            self._sources.add(mode)
        recorded = self._pool.recorded(
            self._problems[row].id, asking.model, parameters=asking.parameters
        ).samples
        indexes = self._indexes[mode].setdefault(row, [])
        if pending is not None and len(recorded) == len(indexes) + 1:
            indexes.append(pending)
        if len(recorded) != len(indexes):  # somebody else has added some
            self._load_indexes(mode)
        return list(zip(self._indexes[mode].get(row, ()), recorded, strict=True))

    def _load_indexes(self, mode: int) -> None:
        asking = self._askings[self._names[mode]]
        for id_, indexes in self._pool.indexes(asking.model, asking.parameters):
            if (row := self._rows.get(id_)) is not None:
                self._indexes[mode][row] = sorted(indexes)
                self._arrays["drawn"][row, mode] = len(indexes)
                self.next_index[row] = max(self.next_index[row], max(indexes) + 1)


def _widen(values: Ints, missing: int, name: str) -> Ints:
    """An array of votes with room for more classes, its last axis."""
    padding = [(0, 0)] * (values.ndim - 1) + [(0, missing)]
    return np.pad(values, padding, constant_values=NEVER_SEEN if name == "seen" else 0)


class ModeChoices:
    """What a menu policy wants for each request of a batch, of the modes that can still be drawn."""

    def __init__(self, policy: MenuPolicy, prompts: Sequence[str]) -> None:
        self.policy = policy
        self._reading = policy.read(prompts)
        self._stoppers = policy.stoppers_ or tuple(
            StoppingPolicy(longest=policy.mode_longest) for _ in policy.names
        )
        self._hints = [stopper.read(prompts) for stopper in self._stoppers]
        self.failed: Bools = np.zeros((len(prompts), len(policy.names)), dtype=np.bool_)
        self.unpaid: Bools = np.zeros(len(policy.names), dtype=np.bool_)  # what is left can't pay a sample

    def choose(self, rows: Rows, votes: MenuVotes, price: float, *, paid: bool = True) -> Ints:
        """The mode that each request draws from now, (rows,); -1 stops. Without `paid`, whatever it costs."""
        wanted = self.policy.choose(self._reading[rows], votes, price)
        usable = ~self.failed[rows]
        if paid:
            usable &= ~self.unpaid
        blocked = np.flatnonzero((wanted != STOP) & ~usable[np.arange(len(rows)), np.maximum(wanted, 0)])
        for place in blocked.tolist():
            row, mode = int(rows[place]), int(wanted[place])
            has_votes = bool(votes.counts[place].any())
            if has_votes and not self.failed[row, mode]:
                wanted[place] = STOP  # only what is left is too little
            else:
                own = votes.select(np.array([place]))
                wanted[place] = self._find_substitute(row, own, mode, usable[place], price)
        return wanted

    def _find_substitute(self, row: int, votes: MenuVotes, wanted: int, usable: Bools, price: float) -> int:
        """Another mode for a request whose mode can't be drawn: a cheaper one, for as long as that pays.

        A dearer one only where the request has no answer yet: that it would pay isn't known.
        """
        # votes of a cheaper mode aren't to outvote those of a dearer one because that one can't be asked
        voted = np.flatnonzero(votes.counts[0].any(axis=1)).max(initial=0)
        cheaper = [mode for mode in range(wanted - 1, voted - 1, -1) if usable[mode]]
        dearer = [mode for mode in range(wanted + 1, len(usable)) if usable[mode]]
        candidates = cheaper[:1] or ([] if votes.counts.any() else dearer[:1])
        for mode in candidates:
            drawn = int(votes.drawn[0, mode])
            if drawn == 0:
                return mode
            if drawn >= self.policy.mode_longest:
                continue
            critical = self._stoppers[mode].estimate_critical_prices(
                self._hints[mode][[row]], votes.state_of(mode)
            )
            sample_price = price * float(self.policy.costs[mode])
            if np.exp(np.nan_to_num(critical[0])) > sample_price:
                return mode
        return STOP


class PolicyCosts:
    """What requests cost at a price by what a menu policy learned, and the other way round."""

    def __init__(self, policy: MenuPolicy) -> None:
        self._costs, self._logs = policy.cost_, -np.log(policy.prices_)  # both ascending
        self.highest = float(policy.prices_[0]) if len(policy.prices_) else highest_dial(policy)

    def cost_at(self, prices: Floats) -> Floats:
        """The mean cost of a request at each price, in the unit of the policy's menu."""
        if not len(self._costs):
            return np.ones(len(prices))
        return np.asarray(np.interp(-np.log(np.maximum(prices, 1e-300)), self._logs, self._costs))

    def price_for(self, cost: float) -> float:
        """The lowest price at which a request costs no more than that; the highest, where none is."""
        if not len(self._costs) or cost <= self._costs[0]:
            return self.highest
        return float(np.exp(-np.interp(cost, self._costs, self._logs)))


class MenuPlanner(WavePlanner):
    """Plans the waves of a batch over several modes.

    Requests are begun some at a time. Each is decided to its end at the price that what is left buys for
    those to come, by what samples cost here so far: so hardly any request is decided at two prices, by two
    rules, the second of which wouldn't have drawn what the first did. Then the price falls until what is left
    is spent. A wave has one sample of each of its requests.
    """

    def __init__(
        self,
        choices: ModeChoices,
        votes: MenuBatchVotes,
        *,
        budget: float,
        find_money: Callable[[], float],
        find_costs: Callable[[], Floats],
    ) -> None:
        """`budget` is that of a request; `find_costs` says what a sample of each mode costs, (modes,)."""
        self._choices = choices
        self._menu_votes = votes
        self._budget = budget
        self._find_money = find_money
        self._find_costs = find_costs
        super().__init__(choices.policy, votes, np.zeros((len(votes), 0)), find_room=self._count_room)  # type: ignore[arg-type]
        self.dial = None  # the price falls from here, once all requests have come to their end
        self._policy_costs = PolicyCosts(choices.policy)
        self.prices = np.full(len(votes), np.nan)  # of each request; NaN: not begun
        self._granted: Wave | None = None
        self._before: Ints = votes.drawn_by_mode.copy()

    @property
    def price(self) -> float | None:
        """The price that the batch came down to."""
        if self.dial is not None or np.isnan(self.prices).all():
            return self.dial
        return float(np.nanmin(self.prices))

    @property
    def unfinished(self) -> int:
        """How many requests the policy would continue at that price, if there were money."""
        rows = np.flatnonzero(~self._choices.failed.all(axis=1) & ~np.isnan(self.prices))
        return int((self._choose(rows, paid=False) != STOP).sum()) if len(rows) else 0

    def resume(self) -> None:
        """Takes up the requests that have samples of an earlier run; votes were recounted."""
        stored = np.flatnonzero(self._menu_votes.drawn > 0)
        self.prices[stored] = self._policy_costs.price_for(self._budget / self._find_scale())

    def plan_next(self, width: int) -> Wave | None:
        """The next wave; None: the money is spent, or no request continues at any price."""
        if self._find_money() <= 0 or self._choices.unpaid.all():
            return None
        rows, modes = self._list_continuing()
        granted = self._grant_money(rows, modes)
        if np.isnan(self.prices).any():
            self._begin_requests(max(2 * width, len(self.prices) // _WAVES) - len(granted))
            rows, modes = self._list_continuing()
            granted = self._grant_money(rows, modes)
        if not len(rows):
            rows, modes = self._lower_price(width)
            granted = self._grant_money(rows, modes)
        if not len(rows):
            return None
        if not len(granted):  # whether one more can be paid is for the cost budget to say
            granted = np.zeros(1, dtype=np.intp)
        wave = Wave(rows[granted], np.ones(len(granted), dtype=np.int64), modes[granted])
        self.number += 1
        self._granted, self._before = wave, self._menu_votes.drawn_by_mode.copy()
        return wave

    def mark_unpaid(self, mode: int) -> None:
        """Records that what is left can't pay for a sample of this mode."""
        if not self._choices.unpaid[mode]:
            self._choices.unpaid[mode] = True
            active, self._dial_search = self._dial_search.active, self._make_search()
            self._dial_search.active = active

    def record_modes(self) -> list[tuple[int, int]]:
        """Records that votes were recounted; returns the (request, mode) pairs that got no sample."""
        wave = self._granted
        if wave is None:
            return []
        self._dial_search.forget(wave.rows)
        grew = self._menu_votes.drawn_by_mode[wave.rows, wave.modes] > self._before[wave.rows, wave.modes]
        return list(zip(wave.rows[~grew].tolist(), wave.modes[~grew].tolist(), strict=True))

    def leave_out(self, row: int, mode: int) -> None:
        """Records that a mode failed for a request: it isn't asked for it again in this run."""
        self._choices.failed[row, mode] = True
        self._dial_search.active[row] = not self._choices.failed[row].all()

    def _list_continuing(self) -> tuple[Rows, Ints]:
        """The requests that continue at their prices, and the mode of each."""
        rows = np.flatnonzero(self._dial_search.active & ~np.isnan(self.prices))
        modes = self._choose(rows)
        return rows[modes != STOP], modes[modes != STOP]

    def _choose(self, rows: Rows, *, paid: bool = True) -> Ints:
        """The mode of each request at its own price, (rows,); -1 stops."""
        chosen = np.full(len(rows), STOP, dtype=np.int64)
        prices = self.prices[rows] if self.dial is None else np.minimum(self.prices[rows], self.dial)
        for price in np.unique(prices).tolist():
            same = prices == price
            state = self._menu_votes.state(rows[same])
            chosen[same] = self._choices.choose(rows[same], state, price, paid=paid)
        return chosen

    def _begin_requests(self, count: int) -> None:
        """Begins so many requests, at the price that what is left buys for all that are to come.

        The first ones are few, because they show what samples cost.
        """
        waiting = np.flatnonzero(np.isnan(self.prices))
        begun = np.flatnonzero(~np.isnan(self.prices))
        if not self._menu_votes.spent:
            count = min(count, _TRIAL_REQUESTS)
        if count <= 0:
            return
        expected = self._find_scale() * self._policy_costs.cost_at(self.prices[begun])
        paid = self._menu_votes.drawn_by_mode[begun] @ self._find_costs()
        is_open = self._choose(begun) != STOP
        to_come = np.where(is_open, np.maximum(expected - paid, 0.0), 0.0)
        trial = _TRIAL_REQUESTS * self._budget  # requests so far count for more, the more they are
        hardness = (float((paid + to_come).sum()) + trial) / (float(expected.sum()) + trial)
        each = (_PACED_SHARE * self._find_money() - float(to_come.sum())) / len(waiting)
        price = self._policy_costs.price_for(each / (hardness * self._find_scale()))
        self.prices[waiting[:count]] = price

    def _find_scale(self) -> float:
        """What a sample costs here, as a multiple of what the policy learned: the mean over modes."""
        costs, learned = self._find_costs(), self._choices.policy.costs
        known = (learned > 0) & (costs > 0)
        if (measured := known & (self._menu_votes.drawn_by_mode.sum(axis=0) > 0)).any():
            known = measured
        return float(np.exp(np.log(costs[known] / learned[known]).mean())) if known.any() else 1.0

    def _lower_price(self, width: int) -> tuple[Rows, Ints]:
        """Lowers the price until some requests continue; returns them and their modes.

        It isn't lowered any more where a mode can't be paid: only what the others give would be left to buy.
        """
        while not self._choices.unpaid.any():
            ceiling = float(self.prices.max()) if self.dial is None else self.dial
            lower = self._dial_search.find_highest(ceiling, self._count_least(width))
            if lower is None:
                break
            self.dial = lower
            rows, modes = self._list_continuing()
            if len(rows):
                return rows, modes
            # a rule may stop a request that another one, of a higher price, continues
            self._dial_search.mark_stopped(np.flatnonzero(self._dial_search.find_continuing(lower)), lower)
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)

    def _grant_money(self, rows: Rows, modes: Ints) -> Rows:
        """The places of the requests that what is left is likely to pay for.

        What those to come have a right to is kept for them, so that the last ones are not left out.
        """
        costs, waiting = self._find_costs(), int(np.isnan(self.prices).sum())
        left = self._find_money() - waiting * self._budget
        empty = self._menu_votes.drawn[rows] == 0
        granted = []
        for place in np.lexsort((rows, ~empty)).tolist():  # those without a sample first
            if (cost := float(costs[modes[place]])) <= left:
                granted.append(place)
                left -= cost
        return np.array(granted, dtype=np.intp)

    def _ask_policy(self, rows: Rows, dial: float | None) -> Ints:
        """1 for each request that continues at a price, or at its own where that is lower, (rows,)."""
        assert dial is not None
        last, self.dial = self.dial, dial
        wanted = self._choose(rows)
        self.dial = last
        return np.asarray((wanted != STOP).astype(np.int64))

    def _count_room(self) -> int:
        """Samples that what is left pays for, at the mean cost of those drawn so far."""
        costs, drawn = self._find_costs(), self._menu_votes.drawn_by_mode.sum(axis=0)
        shares = drawn / drawn.sum() if drawn.sum() else np.eye(len(costs))[0]
        mean = float(costs @ shares)
        money = max(0.0, self._find_money())
        return int(money / mean) if mean > 0 else len(self._menu_votes)

    def _make_search(self) -> DialSearch:
        return DialSearch(len(self._menu_votes), self._ask_policy)
