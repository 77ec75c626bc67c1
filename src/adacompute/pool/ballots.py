"""Recorded samples as arrays for counting votes, from one or more modes (a mode is a model with options)."""

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
TOKEN_CHARACTERS: Final = 4  # estimated number of characters per prompt token
_CHUNK_ROWS = 65536  # number of rows fetched from SQLite at once, to limit memory use

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

    `choices=None` means no limit. `samples` may be an average: results for fractions are interpolated.

    >>> float(count_calls(6.0, None)), float(count_calls(6.0, 4)), float(count_calls(6.0, 1, waves=2.0))
    (1.0, 2.0, 6.0)
    """
    wanted = np.asarray(samples, dtype=np.float64)
    below, most = np.floor(wanted), choices or np.inf
    fewer, more = np.ceil(below / most), np.ceil((below + 1) / most)
    return np.asarray(np.maximum(waves, fewer + (wanted - below) * (more - fewer)), dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCharge:
    """How prompts are charged: once per call, however many samples the call returns.

    The default is for pools without recorded calls: each sample is its own call, and a prompt has one token
    per 4 characters of its question.
    """

    tokens: float | None = None  # mean prompt length of the recorded calls, in tokens; None if unknown
    choices: int | None = 1  # maximum number of samples that one call returns; None if there is no limit

    @staticmethod
    def merge(charges: "Sequence[tuple[PromptCharge, int]]") -> "PromptCharge":
        """Combines (charge, number of problems) pairs: mean `tokens` over all problems, maximum `choices`.

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
    """A model with its options, and the cost per sample.

    >>> Mode(name="small", cost=0.1)
    Mode(name='small', cost=0.1, prices=None)
    """

    name: str
    # mean cost per sample, in a unit that all modes share; a mode with infinite cost is never used
    cost: float = 1.0
    prices: TokenPrices | None = None  # price per input and output token; None: each sample costs `cost`
    # the model and parameters that generated the recorded samples
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
        """Builds the mode for a model and its parameters in a pool, named after the model."""
        name = (model or "").strip() or "model"
        return cls(name=name, model=model, parameters=parameters, charge=charge)


def check_mode_name(name: object) -> None:
    """Raises PoolError if a mode's name is blank or isn't a string."""
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
    """Finds the index of `name` in `names`; raises RecordNotFound, which suggests a similar name."""
    if name not in names:
        hint = suggest_name(str(name), names)
        raise RecordNotFound(
            f"there is no mode {format_value(name)} in {place}; {hint}there are {', '.join(names)}"
        )
    return names.index(name)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Ballots:
    """The answers of all recorded samples, with their grades and signals, as read-only arrays.

    Each row is a problem for which every mode has samples. The columns are its samples, one mode after
    another, in the order they were drawn. Cells without a sample are marked as absent. Equal answers to a
    problem have the same class number, even if different modes gave them.
    """

    ids: tuple[str, ...]
    prompts: tuple[str, ...]  # question of each problem
    subjects: tuple[str | None, ...]
    levels: tuple[int | float | str | None, ...]  # level of difficulty of each problem
    gold_known: npt.NDArray[np.bool_]  # whether each problem has a gold answer; shape (problems,)
    # class number of each sample's answer (-1: abstained, -2: no sample), shape (problems, samples)
    classes: npt.NDArray[np.int32]
    correct: npt.NDArray[np.float32]  # grade of each sample (NaN if unknown), shape (problems, samples)
    tokens: Floats  # output tokens of each sample (NaN if unknown), shape (problems, samples)
    logprob: Floats  # total log-probability of each sample (NaN if unknown), shape (problems, samples)
    entropy: Floats  # mean entropy per token in nats (NaN if unknown), shape (problems, samples)
    # other confidence signals (NaN if unknown), shape (problems, samples, signals); SIGNAL_NAMES names the
    # last axis
    signals: Floats | None = None
    # JSON of each problem's fields that no other attribute holds; an empty tuple if unknown
    extras: tuple[str | None, ...] = ()
    grouped: npt.NDArray[np.int64] | None = None  # group number of each problem, set by `group()`
    modes: tuple[Mode, ...] = (Mode(name="model"),)
    # index in `modes` for each column of samples; set automatically if there is only one mode
    mode: npt.NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, dtype=np.int8), repr=False)

    def __post_init__(self) -> None:
        check_distinct(self.names)
        if len(self.modes) == 1:
            object.__setattr__(self, "mode", np.zeros(self.classes.shape[1], dtype=np.int8))
        for name in ("gold_known", *self.sample_arrays):
            view = getattr(self, name).view()  # only the view becomes read-only, not the caller's own array
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    @classmethod
    def join(cls, parts: "Mapping[str, Ballots]") -> "Ballots":
        """Joins one `Ballots` per mode name; all must have the same problems in the same order."""
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
        """Returns the one mode that all samples are from; raises SourceAmbiguous if there are several."""
        if len(self.modes) > 1:
            raise SourceAmbiguous(
                f"these samples are of the modes {', '.join(self.names)}, and one is needed here; "
                f"give those of one, ballots[{self.names[0]!r}]"
            )
        return self.modes[0]

    @property
    def model(self) -> str | None:
        """The only mode's model; raises SourceAmbiguous if there are several modes."""
        return self.get_mode().model

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The only mode's parameters; raises SourceAmbiguous if there are several modes."""
        return self.get_mode().parameters

    @property
    def charge(self) -> PromptCharge:
        """How the only mode's prompts are charged; raises SourceAmbiguous if there are several modes."""
        return self.get_mode().charge

    def __getitem__(self, name: str) -> "Ballots":
        """Returns only the samples of the mode with this name; answers keep their class numbers."""
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
        """Returns only the votes of these modes, in the given order.

        The cost and prices of a given `Mode` replace those of the recorded mode with its name. Answer classes
        are renumbered by first appearance.
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
        """Returns the votes on the problems with these row numbers, in the given order."""
        names = ("ids", "prompts", "subjects", "levels", *(["extras"] if self.extras else []))
        parts: dict[str, Any] = {name: tuple(getattr(self, name)[row] for row in rows) for name in names}
        arrays = ("gold_known", *self.sample_arrays)
        for name in arrays if self.grouped is None else (*arrays, "grouped"):
            parts[name] = getattr(self, name)[np.asarray(rows, dtype=np.intp)]
        return replace(self, **parts)

    @property
    def groups(self) -> npt.NDArray[np.int64]:
        """The group number of each problem. Before `group()`, each distinct question is its own group."""
        return number_alike(self.prompts if self.grouped is None else self.grouped.tolist())

    def group(self, by: str | None = None) -> "Ballots":
        """Returns the same votes with problems grouped; a group is never split between training and testing.

        `by` is "alike" (similar problems), "none" (each distinct question by itself) or a column's name
        (problems with equal values). If `by` is None, keeps existing groups; without any, "alike" applies.
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
        """Returns each sample's mean log-probability or entropy per token, shape (problems, samples)."""
        if name == "entropy":
            return self.entropy
        values = np.full(self.tokens.shape, np.nan)
        np.divide(self.logprob, self.tokens, out=values, where=self.tokens > 0)
        return values

    def count_prompt_tokens(self, given: float | Sequence[float] | None = None) -> Floats:
        """Returns each prompt's tokens: `given`, or else the mean in recorded calls, or else an estimate."""
        known = self.charge.tokens if given is None else given
        if known is None:
            return np.array([len(prompt) / TOKEN_CHARACTERS for prompt in self.prompts])
        return np.broadcast_to(np.array(known, dtype=np.float64), (len(self),))

    def read_tokens(self) -> Floats:
        """Returns each sample's output tokens (NaN for absent samples); raises NotRecorded if unknown."""
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
        """Returns the cost of each sample, shape (problems, samples); NaN for absent samples."""
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
        """The number of recorded samples of each problem, shape (problems,)."""
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
    """Reads the votes of one source (a model with its parameters) as arrays; needs an open transaction.

    `source` is its key in the pool; None gives empty arrays.
    """
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
    """Reads confidence signals.

    Parsing JSON is slow, so samples whose JSON doesn't contain the text "signals" are skipped.
    """
    if not any(map(len, cells)):
        return None
    signals = np.full((shape[0] * shape[1], len(SIGNAL_NAMES)), np.nan)
    rows = connection.execute(_SELECT_SIGNALS, (source,))
    for cell, (extra,) in zip(np.concatenate(cells).tolist(), rows, strict=True):
        found = read_signals(json.loads(extra))
        if found is not None:
            # numpy converts None to NaN
            signals[cell] = [getattr(found, name) for name in SIGNAL_NAMES]
    if np.isnan(signals).all():
        return None
    return signals.reshape(*shape, len(SIGNAL_NAMES))


def _check_sample_columns(rows: list[tuple[Any, ...]]) -> Floats:
    """Converts the result of _SELECT_SAMPLES to an array; raises ValueError if a value is impossible."""
    columns = np.array(rows, dtype=np.float64)  # numpy converts None to NaN
    if not ((columns[:, 0] >= ABSTAINS) & (columns[:, 0] < 2**31)).all():
        raise ValueError("a sample's class is out of range")
    if ((columns[:, 1] < 0) | (columns[:, 1] > 1)).any():
        raise ValueError("a sample's correctness is not within 0 to 1")
    return columns


def renumber(classes: npt.NDArray[np.int32]) -> None:
    """Renumbers the answer classes of each row by first appearance, in place."""
    if classes.size == 0:
        return
    highest = np.maximum.accumulate(classes, axis=1)
    before = np.concatenate([np.full((len(classes), 1), -1, dtype=np.int32), highest[:, :-1]], axis=1)
    unordered = np.flatnonzero((classes > np.maximum(before, -1) + 1).any(axis=1))
    for i in unordered:
        names: dict[int, int] = {ABSENT: ABSENT, ABSTAINS: ABSTAINS}
        classes[i] = [names.setdefault(int(number), len(names) - 2) for number in classes[i]]
