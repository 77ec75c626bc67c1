"""Recorded samples as arrays, for counting votes: from one mode (a model with options) or from several."""

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import (
    NotRecorded,
    PoolError,
    PriceInvalid,
    RecordNotFound,
    SourceAmbiguous,
    format_value,
    suggest_name,
)
from adacompute.pool.groups import find_groups, number_alike
from adacompute.pool.rows import read_signals
from adacompute.records import SIGNAL_NAMES, TokenPrices

ABSTAINS = -1
ABSENT = -2
TOKEN_CHARACTERS: Final = 4  # a token of a question is estimated as this many characters
_CHUNK_ROWS = 65536  # rows fetched from SQLite at a time, to limit memory

Floats = npt.NDArray[np.float64]

_SELECT_PROBLEMS = """
    SELECT r.key, p.id, p.question, p.subject, p.level, p.gold IS NOT NULL, count(*), p.extra
    FROM records r JOIN problems p ON p.key = r.problem JOIN samples s ON s.record = r.key
    WHERE r.source = ? GROUP BY p.key ORDER BY p.key
"""
_SELECT_SAMPLES = """
    SELECT s.class, s.correct, s.tokens, s.logprob, s.entropy, instr(s.extra, '"signals":{')
    FROM records r JOIN samples s ON s.record = r.key
    WHERE r.source = ? ORDER BY r.problem, s.idx
"""
_SELECT_SIGNALS = """
    SELECT s.extra FROM records r JOIN samples s ON s.record = r.key
    WHERE r.source = ? AND instr(s.extra, '"signals":{') ORDER BY r.problem, s.idx
"""


def count_calls(samples: npt.ArrayLike, choices: int | None, waves: npt.ArrayLike = 1.0) -> Floats:
    """Counts the calls needed to draw `samples` in `waves` rounds, with up to `choices` samples per call.

    `None` allows any number per call. Fractions are interpolated, because `samples` may be an average.

    >>> float(count_calls(6.0, None)), float(count_calls(6.0, 4)), float(count_calls(6.0, 1, waves=2.0))
    (1.0, 2.0, 6.0)
    """
    wanted = np.asarray(samples, dtype=np.float64)
    below, most = np.floor(wanted), choices or np.inf
    fewer, more = np.ceil(below / most), np.ceil((below + 1) / most)
    return np.asarray(np.maximum(waves, fewer + (wanted - below) * (more - fewer)), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCharge:
    """How prompts are charged: the assumption behind all sums of tokens or money.

    A call pays for its prompt once, however many samples it returns. The default is for pools without
    recorded calls: each sample is its own call, and a prompt has one token per 4 characters of its question.
    """

    tokens: float | None = None  # mean length of the recorded calls' prompts; None if not recorded
    choices: int | None = 1  # most samples per call; None: any number

    @staticmethod
    def merge(charges: "Sequence[tuple[PromptCharge, int]]") -> "PromptCharge":
        """Averages the charges of several files, weighted by their numbers of problems.

        >>> few, many = PromptCharge(tokens=10.0, choices=1), PromptCharge(tokens=40.0, choices=4)
        >>> PromptCharge.merge([(PromptCharge(), 0), (few, 2), (many, 4)])
        PromptCharge(tokens=30.0, choices=4)
        """
        if len({charge for charge, _ in charges}) == 1:
            return charges[0][0]
        known = [(charge.tokens, count) for charge, count in charges if charge.tokens is not None and count]
        if not known:
            return PromptCharge()
        largest = [charge.choices for charge, _ in charges if charge.choices is not None]
        tokens = sum(mean * count for mean, count in known) / sum(count for _, count in known)
        return PromptCharge(tokens=tokens, choices=max(largest, default=None))

    def __str__(self) -> str:
        if self.tokens is None:
            return (
                f"no calls are recorded, so each sample is taken to pay for its prompt, estimated at "
                f"{TOKEN_CHARACTERS} characters of the question a token"
            )
        if self.choices == 1:
            return f"as recorded, each sample pays for its prompt, {self.tokens:,.0f} tokens on average"
        return f"as recorded, each call pays once for its prompt, {self.tokens:,.0f} tokens on average"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A way to draw a sample: a model with its options, and the cost per sample.

    >>> Mode(name="small", cost=0.1)
    Mode(name='small', cost=0.1, prices=None)
    """

    name: str
    # mean cost per sample, in a unit that all modes share; a mode with infinite cost is never used
    cost: float = 1.0
    prices: TokenPrices | None = None  # None: each sample costs `cost`
    # the model and parameters that the recorded samples were drawn with
    model: str | None = field(default=None, repr=False, compare=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    charge: PromptCharge = field(default=PromptCharge(), repr=False, compare=False)

    def __post_init__(self) -> None:
        check_mode_name(self.name)
        object.__setattr__(self, "cost", _check_cost(self.cost, self.name))
        if self.prices is not None:
            _check_prices(self.prices, self.name)

    @classmethod
    def of_source(cls, model: str | None, parameters: Mapping[str, Any], charge: PromptCharge) -> "Mode":
        """Makes a mode, named after the model, from a model and parameters in a pool."""
        name = (model or "").strip() or "model"
        return cls(name=name, model=model, parameters=parameters, charge=charge)


def check_mode_name(name: object) -> None:
    """Raises PoolError if a mode's name isn't a non-empty text."""
    if not isinstance(name, str) or not name.strip():
        raise PoolError(f"mode {format_value(name)} has no name; give a text")


def _check_cost(cost: object, name: str) -> float:
    is_number = isinstance(cost, int | float | np.integer | np.floating) and not isinstance(cost, bool)
    if not (is_number and cost >= 0):  # type: ignore[operator] # it is a number here
        raise PriceInvalid(
            f"cost {format_value(cost)} of mode {name!r} is not a cost; give a number from 0 up, "
            "or inf if the mode may not be drawn"
        )
    return float(cost)  # type: ignore[arg-type] # it is a number here


def _check_prices(prices: object, name: str) -> None:
    if not isinstance(prices, TokenPrices):
        raise PriceInvalid(f"prices {format_value(prices)} of mode {name!r} can't be used; give TokenPrices")
    if prices.prompts == "once":
        raise PriceInvalid(
            f"prompts 'once' of mode {name!r} can't be used: with several modes each sample pays its prompt; "
            "give prompts='each', with prompt_tokens=0 if cached prompts are free"
        )
    if isinstance(prices.prompt_tokens, Sequence):
        raise PriceInvalid(
            f"prompt_tokens of mode {name!r} are given by problem; give one number for all, "
            "or None to estimate them from the question"
        )


def check_distinct(names: Sequence[str]) -> None:
    """Raises PoolError if two modes have the same name."""
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise PoolError(f"mode {repeated[0]!r} is there twice; give each its own name")


def find_mode(name: str, names: Sequence[str], place: str) -> int:
    """Finds the index of a mode by name; raises RecordNotFound, with a similar name, if there is none."""
    if name not in names:
        hint = suggest_name(str(name), names)
        raise RecordNotFound(
            f"there is no mode {format_value(name)} in {place}; {hint}there are {', '.join(names)}"
        )
    return names.index(name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Ballots:
    """Votes on problems: the answers of all recorded samples as read-only arrays.

    Each row is a problem that all modes have samples of. The columns are its samples in drawing order, mode
    by mode, with gaps if a mode has fewer samples of the problem. Equal answers have equal class numbers,
    whichever mode gave them.
    """

    ids: tuple[str, ...]  # id of each problem
    prompts: tuple[str, ...]  # question of each problem
    subjects: tuple[str | None, ...]  # subject of each problem
    levels: tuple[int | float | str | None, ...]  # level of difficulty of each problem
    gold_known: npt.NDArray[np.bool_]  # whether each problem has a gold answer; shape (problems,)
    # number of each sample's answer, equal for equal answers; -1: abstained, -2: absent; (problems, samples)
    classes: npt.NDArray[np.int32]
    correct: npt.NDArray[np.float32]  # grade of each sample, 0 to 1; NaN if unknown; (problems, samples)
    tokens: Floats  # output tokens of each sample; NaN if unknown; (problems, samples)
    logprob: Floats  # sum of each sample's log-probabilities; NaN if unknown; (problems, samples)
    entropy: Floats  # each sample's mean entropy per token, in nats; NaN if unknown; (problems, samples)
    # further signals of each sample, ordered as in SIGNAL_NAMES; NaN if unknown; (problems, samples, signals)
    signals: Floats | None = None
    extras: tuple[str | None, ...] = ()  # each problem's other columns, as JSON; empty if unknown
    grouped: npt.NDArray[np.int64] | None = None  # each problem's group of similar ones, if known
    modes: tuple[Mode, ...] = (Mode(name="model"),)
    # index in `modes` of each column of samples; empty if there is only one mode
    mode: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8), repr=False)

    def __post_init__(self) -> None:
        check_distinct(self.names)
        if len(self.modes) == 1:
            object.__setattr__(self, "mode", np.zeros(self.classes.shape[1], dtype=np.int8))
        for name in ("gold_known", *self.sample_arrays):
            view = getattr(self, name).view()  # the caller's own array stays writable
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @classmethod
    def join(cls, parts: "Mapping[str, Ballots]") -> "Ballots":
        """Joins the votes of several modes by name; all must have the same problems in the same order."""
        if not parts:
            raise PoolError("no mode is selected; give at least one")
        first, *others = parts
        for name in others:
            if parts[name].ids != parts[first].ids:
                raise PoolError(
                    f"the ballots of mode {name!r} have other problems than those of {first!r}; "
                    "join pools with join_pools"
                )
        ballots = list(parts.values())
        if not others and ballots[0].names == (first,):
            return ballots[0]
        modes = tuple(replace(votes.get_mode(), name=name) for name, votes in parts.items())
        if not others:
            return replace(ballots[0], modes=modes)
        names = ["classes", "correct", "tokens", "logprob", "entropy"]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(votes, name) for votes in ballots], axis=1) for name in names
        }
        if any(votes.signals is not None for votes in ballots):
            arrays["signals"] = np.concatenate(list(map(_fill_signals, ballots)), axis=1)
        mode = np.repeat(np.arange(len(modes)), [votes.classes.shape[1] for votes in ballots])
        return replace(ballots[0], modes=modes, mode=mode.astype(np.int8), **{"signals": None, **arrays})

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all modes."""
        return tuple(mode.name for mode in self.modes)

    def get_mode(self) -> Mode:
        """Returns the only mode; raises SourceAmbiguous if there are several."""
        if len(self.modes) > 1:
            raise SourceAmbiguous(
                f"these samples are of the modes {', '.join(self.names)}, and one is needed here; "
                f"give those of one, ballots[{self.names[0]!r}]"
            )
        return self.modes[0]

    @property
    def model(self) -> str | None:
        """The model of the only mode."""
        return self.get_mode().model

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The parameters of the only mode."""
        return self.get_mode().parameters

    @property
    def charge(self) -> PromptCharge:
        """How the only mode's prompts are charged."""
        return self.get_mode().charge

    def __getitem__(self, name: str) -> "Ballots":
        """Returns the samples of the mode with this name; its answers keep their class numbers."""
        place = find_mode(name, self.names, "the pool")
        if len(self.modes) == 1:
            return self
        columns = np.flatnonzero(self.mode == place)
        arrays: dict[str, Any] = {
            name: np.ascontiguousarray(getattr(self, name)[:, columns]) for name in self.sample_arrays
        }
        if "signals" in arrays and np.isnan(arrays["signals"]).all():
            arrays["signals"] = None
        return replace(self, modes=(self.modes[place],), **arrays)

    @property
    def parts(self) -> "tuple[Ballots, ...]":
        """The samples of each mode, as one `Ballots` per mode."""
        return tuple(self[name] for name in self.names)

    def select(self, modes: "Sequence[str | Mode]") -> "Ballots":
        """Selects modes, in the given order. A `Mode` also sets the cost; a name keeps it.

        Answer classes are numbered anew, in this order.
        """
        wanted = [modes] if isinstance(modes, str) else list(modes)
        if not wanted:
            raise PoolError(f"no mode is selected; give some of {', '.join(self.names)}")
        chosen = {}
        for mode in wanted:
            name = mode if isinstance(mode, str) else mode.name
            votes = self[name]
            if isinstance(mode, Mode):
                priced = replace(votes.modes[0], cost=mode.cost, prices=mode.prices)
                votes = replace(votes, modes=(priced,))
            chosen[name] = votes
        return Ballots.join(chosen).number_classes()

    def number_classes(self) -> "Ballots":
        """Returns the same votes, with answer classes numbered by first appearance."""
        classes = self.classes.copy()
        renumber(classes)
        return replace(self, classes=classes)

    def only(self, rows: Sequence[int] | npt.NDArray[np.integer]) -> "Ballots":
        """Returns the votes on the problems in these rows, in this order."""
        names = ("ids", "prompts", "subjects", "levels", *(["extras"] if self.extras else []))
        parts: dict[str, Any] = {name: tuple(getattr(self, name)[row] for row in rows) for name in names}
        arrays = ("gold_known", *self.sample_arrays)
        for name in arrays if self.grouped is None else (*arrays, "grouped"):
            parts[name] = getattr(self, name)[np.asarray(rows, dtype=np.intp)]
        return replace(self, **parts)

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """The number of each problem's group; before `group`, each question is its own group."""
        return number_alike(self.prompts if self.grouped is None else self.grouped.tolist())

    def group(self, by: str | None = None) -> "Ballots":
        """Returns the same votes with problems grouped: groups are never split between training and testing.

        "alike" groups similar problems; "none" makes each question a group; a column's name groups by its
        values. None keeps existing groups, or else means "alike".
        """
        if by is None and self.grouped is not None:
            return self
        if by in (None, "alike"):
            return replace(self, grouped=find_groups(self.ids, self.prompts))
        if by == "none":
            return replace(self, grouped=number_alike(self.prompts))
        others = [json.loads(extra or "{}") for extra in self.extras] or [{} for _ in self.ids]
        columns = zip(others, self.subjects, self.levels, strict=True)
        rows = [{**other, "subject": subject, "level": level} for other, subject, level in columns]
        values = [json.dumps(row.get(by), sort_keys=True) for row in rows]
        if unknown := values.count("null"):
            known = list(dict.fromkeys(key for row in rows for key in row if row[key] is not None))
            raise PoolError(
                f"{unknown} of {len(self)} problems have no {format_value(by)}, so it can't group them; "
                f"{suggest_name(str(by), known)}columns are {', '.join(map(repr, known)) or 'not recorded'}; "
                "without --group, problems with similar questions are grouped"
            )
        return replace(self, grouped=number_alike(values))

    @property
    def sample_arrays(self) -> tuple[str, ...]:
        """The names of the arrays that have a value for each sample."""
        names = ("classes", "correct", "tokens", "logprob", "entropy")
        return names if self.signals is None else (*names, "signals")

    def signal(self, name: Literal["logprob", "entropy"]) -> Floats:
        """Returns each sample's mean log-probability or entropy, (problems, samples); NaN if unknown."""
        if name == "entropy":
            return self.entropy
        values = np.full(self.tokens.shape, np.nan)
        np.divide(self.logprob, self.tokens, out=values, where=self.tokens > 0)
        return values

    def count_prompt_tokens(self, given: float | Sequence[float] | None = None) -> Floats:
        """Returns the number of tokens of each problem's prompt: given, else recorded, else estimated."""
        known = self.charge.tokens if given is None else given
        if known is None:
            return np.array([len(prompt) / TOKEN_CHARACTERS for prompt in self.prompts])
        return np.broadcast_to(np.array(known, dtype=np.float64), (len(self),))

    def read_tokens(self) -> Floats:
        """Returns each sample's output tokens, NaN if absent; raises NotRecorded if some aren't recorded."""
        unknown = np.isnan(self.tokens) & (self.classes != ABSENT)
        if unknown.any():
            row = int(unknown.any(axis=1).argmax())
            raise NotRecorded(
                f"mode {self.get_mode().name!r}: problem {self.ids[row]!r} has samples without a number of "
                f"tokens (the first of {int(unknown.any(axis=1).sum())} of {len(self)} problems); record "
                "them, or give each mode a cost, costs={...} (--cost NAME=NUMBER)"
            )
        return self.tokens

    def sample_costs(self) -> Floats:
        """Returns the cost of each sample, shape (problems, samples); NaN if absent."""
        if len(self.modes) > 1:
            return np.concatenate([votes.sample_costs() for votes in self.parts], axis=1)
        (mode,) = self.modes
        present = self.classes != ABSENT
        if mode.prices is None:
            return np.where(present, mode.cost, np.nan)
        output = np.where(present, 0.0, np.nan)
        if mode.prices.output > 0:
            output = self.read_tokens() * (mode.prices.output / 1e6)
        prompts = self.count_prompt_tokens(mode.prices.prompt_tokens) * (mode.prices.input / 1e6)
        return np.asarray(output + prompts[:, None])

    @property
    def drawn(self) -> npt.NDArray[np.int64]:
        """The number of samples of each problem, shape (problems,)."""
        return np.asarray((self.classes != ABSENT).sum(axis=1))


def _fill_signals(ballots: Ballots) -> Floats:
    if ballots.signals is not None:
        return ballots.signals
    return np.full((*ballots.classes.shape, len(SIGNAL_NAMES)), np.nan)


def read_ballots(
    connection: sqlite3.Connection,
    source: int | None,
    *,
    model: str | None,
    parameters: Mapping[str, Any],
    charge: PromptCharge,
) -> Ballots:
    """Reads the arrays of one model and its parameters; None is an empty pool. Needs an open transaction."""
    heads = connection.execute(_SELECT_PROBLEMS, (source,)).fetchall()
    counts = np.array([head[6] for head in heads], dtype=np.int64)
    shape = (len(heads), int(counts.max(initial=0)))
    places = np.flatnonzero(np.arange(shape[1])[None, :] < counts[:, None])
    classes = np.full(shape, ABSENT, dtype=np.int32)
    correct = np.full(shape, np.nan, dtype=np.float32)
    tokens, logprob, entropy = (np.full(shape, np.nan) for _ in range(3))
    start = 0
    signal_cells: list[npt.NDArray[np.intp]] = []
    cursor = connection.execute(_SELECT_SAMPLES, (source,))
    while rows := cursor.fetchmany(_CHUNK_ROWS):
        cells = places[start : start + len(rows)]
        columns = _check_sample_columns(rows)
        classes.reshape(-1)[cells] = columns[:, 0]
        for column, target in zip(columns.T[1:5], (correct, tokens, logprob, entropy), strict=True):
            target.reshape(-1)[cells] = column
        signal_cells.append(cells[columns[:, 5] > 0])
        start += len(rows)
    renumber(classes)
    return Ballots(
        ids=tuple([head[1] for head in heads]),
        prompts=tuple([head[2] for head in heads]),
        subjects=tuple([head[3] for head in heads]),
        levels=tuple([head[4] for head in heads]),
        extras=tuple([head[7] for head in heads]),
        gold_known=np.array([head[5] for head in heads], dtype=bool),
        classes=classes,
        correct=correct,
        tokens=tokens,
        logprob=logprob,
        entropy=entropy,
        signals=_read_signals(connection, source, signal_cells, shape),
        modes=(Mode.of_source(model, parameters, charge),),
    )


def _read_signals(
    connection: sqlite3.Connection,
    source: int | None,
    cells: Sequence[npt.NDArray[np.intp]],
    shape: tuple[int, int],
) -> Floats | None:
    """Reads the samples' signals. Only rows that seem to have some are parsed, because parsing is slow."""
    if not any(map(len, cells)):
        return None
    signals = np.full((shape[0] * shape[1], len(SIGNAL_NAMES)), np.nan)
    rows = connection.execute(_SELECT_SIGNALS, (source,))
    for cell, (extra,) in zip(np.concatenate(cells).tolist(), rows, strict=True):
        found = read_signals(json.loads(extra))
        if found is not None:
            signals[cell] = [getattr(found, name) for name in SIGNAL_NAMES]  # None becomes NaN
    if np.isnan(signals).all():
        return None
    return signals.reshape(*shape, len(SIGNAL_NAMES))


def _check_sample_columns(rows: list[tuple[Any, ...]]) -> Floats:
    """Converts rows of _SELECT_SAMPLES to an array. Raises ValueError for values that are never written."""
    columns = np.array(rows, dtype=np.float64)  # None becomes NaN
    if not ((columns[:, 0] >= ABSTAINS) & (columns[:, 0] < 2**31)).all():
        raise ValueError("a sample's class is out of range")
    if ((columns[:, 1] < 0) | (columns[:, 1] > 1)).any():
        raise ValueError("a sample's correctness is not within 0 to 1")
    return columns


def renumber(classes: npt.NDArray[np.int32]) -> None:
    """Numbers answer classes by first appearance, in place: samples may be stored in another order."""
    if classes.size == 0:
        return
    highest = np.maximum.accumulate(classes, axis=1)
    before = np.concatenate([np.full((len(classes), 1), -1, dtype=np.int32), highest[:, :-1]], axis=1)
    unordered = np.flatnonzero((classes > np.maximum(before, -1) + 1).any(axis=1))
    for i in unordered:
        names: dict[int, int] = {ABSENT: ABSENT, ABSTAINS: ABSTAINS}
        classes[i] = [names.setdefault(int(number), len(names) - 2) for number in classes[i]]
