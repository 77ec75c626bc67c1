"""Joins recordings of the same questions by several modes (models with options), and gives modes a cost.

Equal answers get the same class number, even if different modes gave them.
"""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, get_args

import msgspec
import numpy as np
import numpy.typing as npt

from adacompute.answers import Classes, Task, grade_answer, same_answer
from adacompute.answers.normalise import normalise
from adacompute.errors import (
    PoolError,
    PriceInvalid,
    RecordInvalid,
    RecordNotFound,
    SourceAmbiguous,
    TaskError,
    format_value,
    shorten,
)
from adacompute.pool.ballots import (
    ABSENT,
    ABSTAINS,
    Ballots,
    Mode,
    check_distinct,
    check_mode_name,
    find_mode,
)
from adacompute.pool.pool import Pool
from adacompute.pool.pool_files import bundled, bundled_names, open_pool
from adacompute.pool.sqlite import to_canonical_json
from adacompute.records import TokenPrices

Floats = npt.NDArray[np.float64]
ModeUnit = Literal["money", "tokens", "cost"]
Missing = Literal["error", "drop"]

MODE_PARAMETER: Final = "mode"  # name of the stored parameter whose value is the name of a sample's mode
_SHOWN_REQUESTS = 1000  # amounts of money are displayed for this number of requests
_NAME_LENGTH = 40  # maximum length of a parameter's value in a mode's name, in characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSet:
    """The modes that a policy may use, cheapest first, and the unit of their costs.

    >>> menu = Menu(modes=(Mode(name="large", cost=1.0), Mode(name="small", cost=0.1)))
    >>> menu.names, menu.costs.tolist(), len(menu)
    (('small', 'large'), [0.1, 1.0], 2)
    """

    modes: tuple[Mode, ...]
    unit: ModeUnit = "cost"  # unit of the costs; "cost" means plain numbers without a unit
    currency: str = ""  # currency of the costs; empty unless the unit is money

    def __post_init__(self) -> None:
        if not self.modes:
            raise PoolError("a menu has no mode; give at least one")
        object.__setattr__(self, "modes", tuple(sorted(self.modes, key=lambda mode: mode.cost)))
        check_distinct(self.names)
        if self.unit not in get_args(ModeUnit):
            raise PriceInvalid(
                f"unit {format_value(self.unit)} is not known; give {', '.join(get_args(ModeUnit))}"
            )
        if (self.unit == "money") != bool(self.currency):
            raise PriceInvalid(
                f"currency {self.currency!r} doesn't fit the unit {self.unit!r}; "
                "give a currency if the unit is money, and only then"
            )

    @classmethod
    def of(
        cls,
        pool: "Pool | JoinedPool | Ballots",
        *,
        costs: Mapping[str, float] | None = None,
        prices: Mapping[str, TokenPrices] | None = None,
    ) -> "ModeSet":
        """Builds a set of a pool's modes from their costs per sample or their token prices.

        Includes only the modes in `costs` or `prices`. If neither is given, includes every mode, and a mode's
        cost is its mean number of output tokens per sample.
        """
        if costs is not None and prices is not None:
            raise PriceInvalid("a menu has costs or prices, not both; leave one of them out")
        source = read_modes(pool)
        names = source.names if costs is None and prices is None else tuple(costs or prices or ())
        if not names:
            raise PriceInvalid(f"no mode has a cost; give one for some of {', '.join(source.names)}")
        recorded = source.select(names)
        if costs is not None:
            return cls(modes=tuple(replace(m, cost=costs[m.name], prices=None) for m in recorded.modes))
        if prices is None:
            tokens = {votes.names[0]: _compute_mean(votes.read_tokens()) for votes in recorded.parts}
            return cls(
                modes=tuple(replace(m, cost=tokens[m.name], prices=None) for m in recorded.modes),
                unit="tokens",
            )
        priced = recorded.select([replace(m, prices=prices[m.name]) for m in recorded.modes])
        modes = [
            replace(votes.get_mode(), cost=_compute_mean(votes.sample_costs())) for votes in priced.parts
        ]
        return cls(modes=tuple(modes), unit="money", currency=_find_currency(prices))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all modes, cheapest first."""
        return tuple(mode.name for mode in self.modes)

    @property
    def costs(self) -> Floats:
        """The cost per sample of each mode, in ascending order; shape (modes,)."""
        return np.array([mode.cost for mode in self.modes])

    @property
    def cost_unit(self) -> str:
        """The unit of the costs that `format_cost` shows, for table headings."""
        return f"{self.currency} per 1,000 requests" if self.unit == "money" else f"{self.unit} a request"

    @property
    def shown_requests(self) -> int:
        """The number of requests that a displayed cost covers: 1,000 for money, otherwise 1."""
        return _SHOWN_REQUESTS if self.unit == "money" else 1

    def format_cost(self, cost: float, *, unit: bool = True) -> str:
        """Formats a request's cost for display: money per 1,000 requests, other units per request.

        >>> menu = Menu(modes=(Mode(name="small", cost=0.00012),), unit="money", currency="USD")
        >>> menu.format_cost(0.00012), menu.format_cost(0.002, unit=False)
        ('0.12 USD per 1,000 requests', '2')
        """
        number = f"{float(f'{cost * self.shown_requests:.3g}'):,.10g}"
        suffix = {"money": f" {self.cost_unit}", "tokens": " tokens", "cost": ""}[self.unit]
        return number + suffix if unit else number

    def format_least(self, cost: float) -> str:
        """Formats a minimum cost like `format_cost`, but rounds up so that the shown amount is enough.

        >>> Menu(modes=(Mode(name="small", cost=1.23401),)).format_least(1.23401)
        '1.24'
        """
        step = 10.0 ** (math.floor(math.log10(cost)) - 2) if cost > 0 else 1.0
        return self.format_cost(math.ceil(cost / step * (1 - 1e-12)) * step)

    def __len__(self) -> int:
        return len(self.modes)

    def __getitem__(self, name: str) -> Mode:
        """Returns the mode with this name."""
        return self.modes[find_mode(name, self.names, "the menu")]

    def dump(self) -> dict[str, Any]:
        """Converts the modes to plain JSON data; an infinite cost becomes the string "inf"."""
        return {
            "modes": [_dump_mode(mode) for mode in self.modes],
            "unit": self.unit,
            "currency": self.currency,
        }

    @classmethod
    def load(cls, stored: object) -> "ModeSet":
        """Restores the modes from the JSON data that `dump` returned."""
        try:
            menu = msgspec.convert(stored, _StoredMenu)
            prices = [None if mode.prices is None else TokenPrices(**mode.prices) for mode in menu.modes]
        except (msgspec.ValidationError, TypeError) as exc:
            raise PriceInvalid(
                f"a stored menu {format_value(stored)} can't be read ({exc}); write it with Menu.dump"
            ) from exc
        modes = tuple(
            Mode(name=mode.name, cost=float(mode.cost), prices=price)
            for mode, price in zip(menu.modes, prices, strict=True)
        )
        return cls(modes=modes, unit=menu.unit, currency=menu.currency)


Menu = ModeSet  # the public name of `ModeSet`


class _StoredMode(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    cost: float | Literal["inf"]
    prices: dict[str, Any] | None = None


class _StoredMenu(msgspec.Struct, forbid_unknown_fields=True):
    modes: list[_StoredMode]
    unit: ModeUnit = "cost"
    currency: str = ""


def _dump_mode(mode: Mode) -> dict[str, Any]:
    stored: dict[str, Any] = {"name": mode.name, "cost": "inf" if math.isinf(mode.cost) else mode.cost}
    if mode.prices is not None:
        names = ("input", "output", "prompt_tokens", "currency")
        stored["prices"] = {name: getattr(mode.prices, name) for name in names}
    return stored


def _find_currency(prices: Mapping[str, TokenPrices]) -> str:
    by_currency = {value.currency.casefold(): (name, value.currency) for name, value in prices.items()}
    if len(by_currency) > 1:
        (first, one), (second, other) = list(by_currency.values())[:2]
        raise PriceInvalid(
            f"prices of mode {first!r} are in {one}, those of {second!r} in {other}; "
            "give all in one currency, as nothing is converted"
        )
    return next(iter(prices.values())).currency


def _compute_mean(costs: Floats) -> float:
    """Averages costs within each problem, then over problems; `costs` is NaN for absent samples."""
    known = costs[~np.isnan(costs).all(axis=1)] if costs.size else costs
    return float(np.nanmean(known, axis=1).mean()) if len(known) else 0.0


class _Spelling(NamedTuple):
    """One spelling of a recorded answer."""

    class_number: int  # equal answers of this mode to the same problem have the same class number
    answer: str
    correct: float | None


class _RecordedMode(NamedTuple):
    """What was recorded from one mode: its votes, the spellings of its answers, and the gold answers."""

    name: str
    ballots: Ballots
    spellings: dict[str, list[_Spelling]]  # maps problem ids to spellings, in the order they were drawn
    golds: dict[str, str]  # maps problem ids to gold answers, if known
    task: Task


class JoinedPool:
    """Several pools of the same problems, read as one: each pool is a mode. Create it with `join_pools`."""

    def __init__(self, pools: Mapping[str, Pool], *, missing: Missing, opened: ExitStack) -> None:
        self.modes = tuple(pools)
        self._pools = dict(pools)
        self._missing: Missing = missing
        self._opened = opened
        self._ballots: Ballots | None = None

    def ballots(self) -> Ballots:
        """Returns the votes of every mode, read at the first call and then cached."""
        if self._ballots is None:
            self._ballots = _join_votes(
                [_read_mode(name, pool) for name, pool in self._pools.items()], self._missing
            )
        return self._ballots

    def close(self) -> None:
        """Closes the pools that `join_pools` opened; pools that were already open stay open."""
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        paths = ", ".join(f"{name!r}: {pool.path!r}" for name, pool in self._pools.items())
        return f"JoinedPool({{{paths}}})"


def join_pools(
    pools: Mapping[str, Pool | str | os.PathLike[str]], *, missing: Missing = "error"
) -> JoinedPool:
    """Joins pools of the same problems, matched by id. Each pool becomes a mode, named by its key in `pools`.

    A pool is an open pool, a path, or the name of a bundled recording. If a mode has no samples of a problem,
    `missing` says whether to raise an error or to drop the problem. Answers with different recorded grades
    are never treated as equal.

    >>> pool = join_pools({"smol": "facts", "qwen": "facts-qwen"})
    >>> pool.modes, len(pool.ballots())
    (('smol', 'qwen'), 353)
    """
    _check_missing(missing)
    if not isinstance(pools, Mapping):
        raise PoolError(f"pools {format_value(pools)} have no names; give them by mode, {{NAME: POOL, ...}}")
    if len(pools) < 2:
        raise PoolError(
            f"{len(pools)} pool{'' if len(pools) == 1 else 's'} can't be joined; give at least two, by mode"
        )
    with ExitStack() as stack:
        opened = {name: _open_mode(name, pool, stack) for name, pool in pools.items()}
        return JoinedPool(opened, missing=missing, opened=stack.pop_all())


def read_modes(source: "Pool | JoinedPool | Ballots", *, missing: Missing = "error") -> Ballots:
    """Reads the votes of every mode. In a single pool, each model with its parameters is a mode.

    A mode is named by its stored name or its model, and by the parameters that differ if modes share a name.
    A gateway stops early on easy problems, so its pool has fewer samples of them. If it explored some
    requests (drew the maximum number of samples), only these are read.
    """
    _check_missing(missing)
    if isinstance(source, Ballots):
        return source
    if isinstance(source, JoinedPool):
        return source.ballots()
    if not isinstance(source, Pool):
        raise PoolError(
            f"{format_value(source)} has no modes; give a pool, or several joined with join_pools"
        )
    with source.snapshot():
        sources = source.models
        if not sources:
            raise PoolError(
                f"{source.path}: has no samples, so it has no modes; collect or import some first"
            )
        explored = [each for each in sources if MODE_PARAMETER in each[1] and each[1].get("explored")]
        sources = explored or sources
        names = _name_modes(sources)
        return _join_votes(
            [
                _read_mode(name, source, key)
                for name, key in zip(names, [source.source_key(*one) for one in sources], strict=True)
            ],
            missing,
        )


def _check_missing(missing: object) -> None:
    if missing not in get_args(Missing):
        raise PoolError(f'missing={format_value(missing)} is not known; give "error" or "drop"')


def _open_mode(name: object, pool: object, stack: ExitStack) -> Pool:
    check_mode_name(name)
    if isinstance(pool, Pool):
        return pool
    if not isinstance(pool, str | os.PathLike):
        raise PoolError(f"mode {name!r}: {format_value(pool)} isn't a pool; give an open one, or its path")
    is_bundled = str(pool) in bundled_names() and not Path(pool).exists()
    return stack.enter_context(bundled(str(pool)) if is_bundled else open_pool(pool))


def _name_modes(sources: Sequence[tuple[str | None, Mapping[str, Any]]]) -> list[str]:
    """Names each mode by its stored name, or else by its model.

    Modes with equal names also get the parameters that differ, or else a number.
    """
    models = [str(parameters.get(MODE_PARAMETER) or model or "model") for model, parameters in sources]
    names = []
    for model, (_, parameters) in zip(models, sources, strict=True):
        peers = [values for other, (_, values) in zip(models, sources, strict=True) if other == model]
        keys = sorted({key for values in peers for key in values} - {MODE_PARAMETER})
        differing = [key for key in keys if len({_format_parameter(values, key) for values in peers}) > 1]
        parts = [
            f"{key}={shorten(_format_parameter(parameters, key), _NAME_LENGTH)}"
            for key in differing
            if key in parameters
        ]
        names.append(f"{model} ({', '.join(parts)})" if parts else model)
    repeated = {name for name, count in Counter(names).items() if count > 1}
    return [f"{name} #{k}" if name in repeated else name for k, name in enumerate(names, start=1)]


def _format_parameter(parameters: Mapping[str, Any], key: str) -> str:
    if key not in parameters:
        return ""
    value = parameters[key]
    return value if isinstance(value, str) else to_canonical_json(value)


def _read_mode(name: str, pool: Pool, source: int | None = None) -> _RecordedMode:
    with pool.snapshot():
        if source is None:
            sources = pool.models
            if len(sources) > 1:
                raise SourceAmbiguous(
                    f"mode {name!r}: {pool.path} holds {len(sources)} sources, not one; export one "
                    "of them to a pool of its own, or use that pool alone: its sources are modes already"
                )
            source = pool.source_key(*sources[0]) if sources else None
        ballots = pool.ballots_of(source)
        spellings = pool.spellings_of(source)
        golds = {problem.id: problem.gold for problem in pool.problems() if problem.gold is not None}
    by_problem: dict[str, list[_Spelling]] = {}
    numbers: dict[tuple[str, int], int] = {}
    for id_, stored, answer, correct in spellings:
        known = by_problem.setdefault(id_, [])
        number = numbers.get((id_, stored))
        if number is None:
            number = numbers[id_, stored] = len({one.class_number for one in known})
        known.append(_Spelling(number, answer, correct))
    return _RecordedMode(name, ballots, by_problem, golds, pool.task)


def _join_votes(modes: Sequence[_RecordedMode], missing: Missing) -> Ballots:
    """Joins the votes of all modes on the problems that all modes have, in the first mode's order."""
    check_distinct([mode.name for mode in modes])
    _check_tasks(modes)
    modes = _select_common(modes, missing)
    _check_questions(modes)
    golds = _merge_golds(modes)
    shared = _share_classes(modes, golds)
    joined = Ballots.join(
        {
            mode.name: replace(mode.ballots, classes=votes.classes, correct=votes.correct)
            for mode, votes in zip(modes, shared, strict=True)
        }
    )
    return replace(
        joined.number_classes(),
        subjects=_fill_in([mode.ballots.subjects for mode in modes]),
        levels=_fill_in([mode.ballots.levels for mode in modes]),
        extras=_fill_in([mode.ballots.extras or (None,) * len(joined) for mode in modes]),
        gold_known=np.array([id_ in golds for id_ in modes[0].ballots.ids], dtype=bool),
    )


def _fill_in(values: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Returns each problem's first value that isn't None.

    `values` has one row per mode, with one value per problem.
    """
    return tuple(next((one for one in row if one is not None), None) for row in zip(*values, strict=True))


def _check_tasks(modes: Sequence[_RecordedMode]) -> None:
    first = modes[0]
    for mode in modes[1:]:
        if mode.task.percent != first.task.percent:
            raise TaskError(
                f"modes {first.name!r} and {mode.name!r} compare answers differently "
                f"(percent {first.task.percent!r} and {mode.task.percent!r}); "
                "import one of them again with the other's --percent"
            )


def _select_common(modes: Sequence[_RecordedMode], missing: Missing) -> list[_RecordedMode]:
    """Restricts each mode to the problems that all modes have, in the first mode's order."""
    everywhere = set(modes[0].ballots.ids).intersection(*(mode.ballots.ids for mode in modes))
    if missing == "error":
        _check_none_missing(modes, everywhere)
    if not everywhere:
        names = ", ".join(repr(mode.name) for mode in modes)
        raise RecordNotFound(f"modes {names} have no problem in common; join pools of the same problem ids")
    ids = [id_ for id_ in modes[0].ballots.ids if id_ in everywhere]
    chosen = []
    for mode in modes:
        places = {id_: row for row, id_ in enumerate(mode.ballots.ids)}
        chosen.append(mode._replace(ballots=mode.ballots.only([places[id_] for id_ in ids])))
    return chosen


def _check_none_missing(modes: Sequence[_RecordedMode], everywhere: set[str]) -> None:
    for mode in modes:
        id_ = next((id_ for id_ in mode.ballots.ids if id_ not in everywhere), None)
        if id_ is None:
            continue
        lacking = next(other for other in modes if id_ not in other.ballots.ids)
        count = len(set(mode.ballots.ids).difference(lacking.ballots.ids))
        raise RecordNotFound(
            f"mode {lacking.name!r} has no sample of {count} of the {len(mode.ballots)} problems of mode "
            f"{mode.name!r}, e.g. {id_!r}; collect them, or give missing='drop' (--missing drop)"
        )


def _check_questions(modes: Sequence[_RecordedMode]) -> None:
    first = modes[0]
    for mode in modes[1:]:
        for id_, prompt, other in zip(
            first.ballots.ids, first.ballots.prompts, mode.ballots.prompts, strict=True
        ):
            if prompt != other:
                raise RecordInvalid(
                    f"problem {id_!r} has another question in mode {mode.name!r} "
                    f"({format_value(other)}) than in {first.name!r} ({format_value(prompt)}); "
                    "join pools of the same questions"
                )


def _merge_golds(modes: Sequence[_RecordedMode]) -> dict[str, str]:
    """Collects the gold answers of all modes by problem id; raises RecordInvalid if modes disagree."""
    golds: dict[str, tuple[str, str]] = {}
    for mode in modes:
        for id_ in mode.ballots.ids:
            gold = mode.golds.get(id_)
            if gold is None:
                continue
            known, owner = golds.setdefault(id_, (gold, mode.name))
            if gold != known and not same_answer(gold, known, mode.task):
                raise RecordInvalid(
                    f"problem {id_!r} has the gold answer {format_value(gold)} in mode {mode.name!r} and "
                    f"{format_value(known)} in {owner!r}; correct one of them (import with --regrade)"
                )
    return {id_: gold for id_, (gold, _) in golds.items()}


class _SharedClasses(NamedTuple):
    # class number of each sample's answer; equal answers have the same number, even if their modes differ
    classes: npt.NDArray[np.int32]
    correct: npt.NDArray[np.float32]  # grade of each sample, 0 to 1; NaN if unknown


def _share_classes(modes: Sequence[_RecordedMode], golds: Mapping[str, str]) -> list[_SharedClasses]:
    """Gives equal answers of all modes the same class number, and grades the samples without a grade.

    Processes modes in alphabetical order, so that the order of the pools has no effect.
    """
    ranked = sorted(modes, key=lambda mode: mode.name)
    shared = {
        mode.name: _SharedClasses(mode.ballots.classes.copy(), mode.ballots.correct.copy()) for mode in modes
    }
    first = modes[0].ballots
    for row, (id_, prompt) in enumerate(zip(first.ids, first.prompts, strict=True)):
        answers = _SharedAnswers(modes[0].task, prompt)
        for mode in ranked:
            classes = shared[mode.name].classes[row]
            numbers = answers.place_all(mode.spellings.get(id_, ()))
            voted = classes >= 0
            classes[voted] = numbers[classes[voted]]
        for mode in ranked:
            _fill_grades(shared[mode.name], row, answers, golds.get(id_))
    return [shared[mode.name] for mode in modes]


def _fill_grades(shared: _SharedClasses, row: int, answers: "_SharedAnswers", gold: str | None) -> None:
    """Grades a mode's ungraded samples of one problem, if the problem's gold answer is known."""
    classes, correct = shared.classes[row], shared.correct[row]
    unknown = np.isnan(correct) & (classes != ABSENT)
    if gold is None or not unknown.any():
        return
    correct[unknown & (classes == ABSTAINS)] = 0.0
    for number in np.unique(classes[unknown & (classes >= 0)]).tolist():
        correct[unknown & (classes == number)] = answers.grade(number, gold)


class _SharedAnswers:
    """Numbers the answers of all modes to one problem; equal answers get the same class number.

    Answers with the same class number in one mode's recording also share one here.
    """

    def __init__(self, task: Task, question: str) -> None:
        self._classes = Classes(task)
        self._question = question
        self._spelled: dict[tuple[str, float | None], int] = {}
        self._representatives: dict[int, str] = {}
        self._labels: dict[int, float] = {}

    def place_all(self, spellings: Sequence[_Spelling]) -> npt.NDArray[np.int32]:
        """Returns an array that maps class numbers in one mode's recording to the numbers for all modes."""
        by_class: dict[int, list[_Spelling]] = {}
        for spelling in spellings:
            by_class.setdefault(spelling.class_number, []).append(spelling)
        placed: dict[int, int] = {}
        # numbers already given to classes of this mode; no two of its classes may get the same number
        own: set[int] = set()
        for number, members in by_class.items():
            placed[number] = self._place(members, own)
            own.add(placed[number])
        for number, members in by_class.items():
            label = _find_label(members)
            for member in members:
                self._spelled.setdefault((member.answer, label), placed[number])
        return np.array([placed[number] for number in range(len(placed))], dtype=np.int32)

    def grade(self, number: int, gold: str) -> float:
        """Returns the recorded grade of the answers with this class number, or else grades them by `gold`."""
        recorded = self._labels.get(number)
        if recorded is not None:
            return recorded
        return grade_answer(self._representatives[number], gold, self._question, self._classes.task)

    def _place(self, members: Sequence[_Spelling], unlike: set[int]) -> int:
        label = _find_label(members)
        representative = self._find_representative(members)
        answers = (representative, *(one.answer for one in members))
        known = (self._spelled.get((answer, label)) for answer in answers)
        number = next((number for number in known if number is not None), None)
        if number is None:
            number = self._classes.place(representative, label, unlike=unlike)
        self._representatives.setdefault(number, representative)
        if label is not None:
            self._labels.setdefault(number, label)
        return number

    def _find_representative(self, members: Sequence[_Spelling]) -> str:
        """Returns the first spelling that has a unit (such as "km"), or else the first spelling."""
        if len(members) > 1:
            for member in members:
                if normalise(member.answer, self._classes.task.percent).unit:
                    return member.answer
        return members[0].answer


def _find_label(members: Sequence[_Spelling]) -> float | None:
    return next((member.correct for member in members if member.correct is not None), None)
