"""The policy interface: how many more samples to draw for a request, from its prompt and its votes.

`VoteState` holds what a policy may look at, as arrays: the same numbers, to the last bit, from live
tallies and from replayed paths. Replay and the gateway call the same `Policy` and get the same answers,
because `more` is `decide` for one request. `read` is separate from `decide`, so that replay reads a
prompt once. The checks of settings are the same when a caller gives them (PolicyError) and when they
are read from an artefact (PolicyInvalid with the same message).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import (
    DEFAULT_SIGNALS,
    MAX_DEVIATION,
    NEED_ALTERNATIVES,
    ScoreWeights,
    SignalModel,
)
from adacompute.errors import (
    AdacomputeError,
    NotRecorded,
    PolicyError,
    PolicyInvalid,
    format_value,
)
from adacompute.policies.artefact import check_folder, write_artefact
from adacompute.pool import Ballots, Pool
from adacompute.pool.menu import JoinedPool
from adacompute.records import AccuracyTable, quick_dataclass
from adacompute.score import score
from adacompute.score.aggregates import compute_log_odds, fit_vote_weights, read_model_signals, sum_moments
from adacompute.score.grades import grade_samples, mask_graded

__all__ = [
    "SHARPNESS",
    "Arrays",
    "Dial",
    "Draw",
    "Floats",
    "Ints",
    "Policy",
    "VoteRow",
    "VoteState",
    "calibrate_signal_model",
    "check_ascending",
    "check_choice",
    "check_dial",
    "check_flag",
    "check_integer",
    "check_modes",
    "check_number",
    "check_one_mode",
    "check_price",
    "check_source",
    "check_weights",
    "dump_weights",
    "fit_confidence_weights",
    "fit_score_weights",
    "fit_signal_model",
    "get_ballots",
    "load_settings",
    "load_weights",
    "log_price",
    "parse_finite",
    "read_array",
    "score_votes",
    "wrap_restore_errors",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]  # what a policy has learned, by name
Dial = Literal["price", "threshold"]
_TableKey = tuple[tuple[int, ...], VoteWeights | None]

DEFAULT_LONGEST = 16  # samples a request, at most, by default
SHARPNESS = 1.0  # of vote weights: see docs/findings.md
_RIDGE = 1.0  # penalty on the squares of a signal model's coefficients
_SCORE_FIELDS = {field.name for field in fields(ScoreWeights)}
_MAX_PAIRED = 32  # right samples of a problem, and wrong ones, of which pairs are made
_HUGE = 1e100  # larger numbers count as this large: their squares are finite
_OUTLIER_MARGIN = 4.0  # ranges of the middle nine tenths, as far as which values count beyond them
_NEWTON_STEPS = 12  # to fit them: the last ones change nothing
_LAST_TABLES: WeakKeyDictionary[Ballots, tuple[_TableKey, AccuracyTable]] = WeakKeyDictionary()


class VoteRow(NamedTuple):
    """The vote state of one request as plain numbers, named as a tally names them."""

    drawn: int
    answered: int
    first: int
    second: int
    kinds: int
    lead: float
    runner: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VoteState:
    """The tallies of several requests, field by field, each (requests,).

    >>> state = VoteState.from_tallies([Tally.of(["4", "5", None, "5"]), Tally()])
    >>> state.drawn.tolist(), state.first.tolist(), state.second.tolist(), state.kinds.tolist()
    ([4, 0], [2, 0], [1, 0], [2, 0])
    """

    drawn: Ints  # samples counted, with and without an answer
    answered: Ints  # samples that gave an answer
    first: Ints  # plain votes of the answer that leads
    second: Ints  # plain votes of the runner-up, the second by weight
    kinds: Ints  # different answers
    run: Ints  # length of the run of equal answers that the last samples gave
    lead: Floats  # weight of the answer that leads, in votes of average weight
    runner: Floats  # weight of the runner-up
    total: Floats  # weight of all answers
    entropy: Floats  # of the first sample, mean, nats; NaN: not known, or none drawn

    def __len__(self) -> int:
        return len(self.drawn)

    @classmethod
    def from_tallies(cls, tallies: Sequence[Tally]) -> "VoteState":
        """The state of live tallies, in order.

        Weights are whole multiples of 2^-36, so that their sums don't depend on their order.
        """
        counts, weights = [], []
        for tally in tallies:
            counts.append((tally.drawn, tally.answered, tally.first, tally.second, tally.kinds, tally.run))
            weights.append((tally.lead, tally.runner, tally.total, _nan_if_none(tally.entropy)))
        # two arrays, not ten: for one request, ten would take longer to build than the decision
        drawn, answered, first, second, kinds, run = np.array(counts, dtype=np.int64).reshape(-1, 6).T
        lead, runner, total, entropy = np.array(weights, dtype=np.float64).reshape(-1, 4).T
        return cls(
            drawn=drawn,
            answered=answered,
            first=first,
            second=second,
            kinds=kinds,
            run=run,
            lead=lead,
            runner=runner,
            total=total,
            entropy=entropy,
        )

    @classmethod
    def empty(cls, requests: int) -> "VoteState":
        """The state of requests that nothing was drawn for yet."""
        zeros = np.zeros(requests, dtype=np.int64)
        no_weight = np.zeros(requests)
        return cls(
            drawn=zeros,
            answered=zeros,
            first=zeros,
            second=zeros,
            kinds=zeros,
            run=zeros,
            lead=no_weight,
            runner=no_weight,
            total=no_weight,
            entropy=np.full(requests, np.nan),
        )

    def to_row(self) -> VoteRow:
        """The first request."""
        return VoteRow(*(getattr(self, name)[0].item() for name in VoteRow._fields))

    def select(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> "VoteState":
        """Some of the requests."""
        return VoteState(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def _nan_if_none(value: float | None) -> float:
    return np.nan if value is None else value


def fit_confidence_weights(ballots: Ballots, model: SignalModel | None = None) -> VoteWeights | None:
    """Vote weights by confidence, on the scale of these samples; None where no confidence is recorded.

    `model` weighs samples with further signals; its centres and spreads are settled on these samples.
    """
    try:
        weights = fit_vote_weights(ballots, "logprob")
    except NotRecorded:
        return None
    if not weights.sharpness:  # all samples are equally certain
        return None
    if model is not None:
        model = model.settle(sum_moments(ballots, model))
    return replace(weights, sharpness=SHARPNESS, model=model)


def fit_score_weights(ballots: Ballots, *, labels: bool) -> ScoreWeights | None:
    """How much a verifier's score weighs beside the other signals; None where no sample has one.

    Learned from pairs of a right and a wrong sample of one problem, with labels or by agreement. Where the
    score tells wrong samples from right ones no better than chance, beta is 0.
    """
    model = fit_signal_model([ballots], labels=labels, names=(*DEFAULT_SIGNALS, "score"), required="score")
    if model is None:
        return None
    return ScoreWeights(
        beta=max(0.0, model.sharpness * model.coefficients[-1]),
        centre=model.centre[-1],
        spread=model.spread[-1],
    )


def fit_signal_model(
    recordings: Sequence[Ballots],
    *,
    labels: bool = True,
    names: Sequence[str] = DEFAULT_SIGNALS,
    required: str = "",
) -> SignalModel | None:
    """Learns from pairs of samples of one problem, a right and a wrong one, which signals tell them apart.

    Comparing within problems leaves out what only tells easy problems from hard ones: that decides no
    vote. Without labels, agreement with the vote of a problem's other samples stands in for being right.
    None where no recording has signals, or no problem has a pair. Samples without the signal `required`
    are left out; without it, those that have nothing but their mean log-probability.
    """
    parts = []
    for ballots in recordings:
        values = read_model_signals(ballots, names)
        wanted = [name == required if required else name != "logprob" for name in names]
        further = np.isfinite(values[:, :, wanted]).any(axis=2)
        rows = further & (ballots.classes >= 0)
        if rows.any():
            parts.append((ballots, values, rows, *_measure_spread(values[rows])))
    if not parts:
        return None
    differences, weights = [], []
    for ballots, values, rows, centre, spread in parts:
        deviations = np.clip((values - centre) / spread, -MAX_DEVIATION, MAX_DEVIATION)
        right = _mark_right(ballots, labels=labels)
        for problem, own in enumerate(np.nan_to_num(deviations)):
            answered = rows[problem] & np.isfinite(right[problem])
            right_ones = own[answered & (right[problem] >= 0.5)][:_MAX_PAIRED]
            wrong_ones = own[answered & (right[problem] < 0.5)][:_MAX_PAIRED]
            pairs = (right_ones[:, None] - wrong_ones[None]).reshape(-1, len(names))
            if len(pairs):
                differences.append(pairs)
                weights.append(np.full(len(pairs), len(pairs) ** -0.5))
    if not differences:
        return None
    pairs, counts = np.concatenate(differences), np.concatenate(weights)
    is_bare = np.array([name not in NEED_ALTERNATIVES for name in names])
    bare = np.zeros(len(names))
    bare[is_bare] = _fit_odds(pairs[:, is_bare], counts)
    model = SignalModel(
        names=tuple(names),
        centre=tuple(np.mean([centre for *_, centre, _ in parts], axis=0).tolist()),
        spread=tuple(np.mean([spread for *_, spread in parts], axis=0).tolist()),
        coefficients=tuple(_fit_odds(pairs, counts).tolist()),
        bare=tuple(bare.tolist()),
    )
    return calibrate_signal_model(model, recordings, labels=labels)


def calibrate_signal_model(
    model: SignalModel, recordings: Sequence[Ballots], *, labels: bool = True
) -> SignalModel:
    """The model whose `probability` is right on these samples: with their slope and intercept.

    Votes don't depend on it: within a problem, samples are compared by their log-odds. Without labels
    the probability is that of agreeing with the vote of the problem's other samples.
    """
    rows, outcomes, weights = [], [], []
    for ballots in recordings:
        odds, known = compute_log_odds(ballots, model.settle(sum_moments(ballots, model)))
        right = _mark_right(ballots, labels=labels)
        known = known & (ballots.classes >= 0) & np.isfinite(right)
        rows.append(np.stack([odds[known], np.ones(int(known.sum()))], axis=1))
        outcomes.append(right[known])
        weights.append((known / np.maximum(known.sum(axis=1, keepdims=True), 1))[known])  # a problem: 1
    joined = np.concatenate(rows)
    if not len(joined):
        return model
    slope, intercept = _fit_logistic(joined, np.concatenate(outcomes), np.concatenate(weights))
    return replace(model, slope=float(slope), intercept=float(intercept))


def _measure_spread(values: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each column, (columns,) each; 0 and 1 where nothing is known.

    A value far from the others, such as a server's placeholder -9999, counts as one at the far end.
    """
    centre, spread = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for k, column in enumerate(values.T):
        known = np.clip(column[np.isfinite(column)], -_HUGE, _HUGE)
        if not len(known):
            continue
        low, high = np.quantile(known, [0.05, 0.95])
        if high > low:
            margin = _OUTLIER_MARGIN * (high - low)
            known = np.clip(known, low - margin, high + margin)
        centre[k], deviation = known.mean(), known.std()
        spread[k] = deviation if deviation > 0 else 1.0
    return centre, spread


def _mark_right(ballots: Ballots, *, labels: bool) -> Floats:
    """How right each sample is, (problems, samples): by its grade, or by the vote of the others."""
    if labels:
        grades = grade_samples(ballots)
        return np.where(mask_graded(ballots, grades)[:, None], grades, _mark_agreement(ballots.classes))
    return _mark_agreement(ballots.classes)


def _mark_agreement(classes: npt.NDArray[np.int32]) -> Floats:
    """1 where a sample gave the answer that most of the other samples gave, shared in a tie; 0 elsewhere."""
    agrees = np.zeros(classes.shape)
    for problem, row in enumerate(classes):
        answered = np.flatnonzero(row >= 0)
        if len(answered) < 2:
            agrees[problem] = np.nan
            continue
        others = (
            np.bincount(row[answered])[None, :] - np.eye(int(row.max()) + 1, dtype=np.int64)[row[answered]]
        )
        wins = others == others.max(axis=1, keepdims=True)
        agrees[problem, answered] = wins[np.arange(len(answered)), row[answered]] / wins.sum(axis=1)
    return agrees


def _fit_odds(pairs: Floats, weights: Floats) -> Floats:
    """Coefficients that give the right one of each pair the higher log-odds, (columns,)."""
    return _fit_logistic(pairs, np.ones(len(pairs)), weights)


def _fit_logistic(rows: Floats, outcomes: Floats, weights: Floats) -> Floats:
    """Coefficients of a logistic regression, (columns,), by Newton's method; outcomes are 0 to 1."""
    coefficients = np.zeros(rows.shape[1])
    for _ in range(_NEWTON_STEPS):
        expected = 1.0 / (1.0 + np.exp(-(rows @ coefficients)))
        gradient = rows.T @ (weights * (outcomes - expected)) - _RIDGE * coefficients
        curvature = (rows * (weights * expected * (1 - expected))[:, None]).T @ rows
        coefficients = coefficients + np.linalg.solve(
            curvature + _RIDGE * np.eye(len(coefficients)), gradient
        )
    return coefficients


def score_votes(ballots: Ballots, budgets: Sequence[int], weigh: VoteWeights | None) -> AccuracyTable:
    """The accuracy at each budget as `score` gives it, with plain votes or weighted ones.

    Weighted votes take a second to score and one pool serves many fits, so the last table of a pool is
    kept for as long as the pool is.
    """
    key = (tuple(budgets), weigh)
    cached = _LAST_TABLES.get(ballots)
    if cached is not None and cached[0] == key:
        return cached[1]
    if weigh is None:
        table = score(ballots, budgets)
    else:
        table = score(ballots, budgets, aggregate="weighted", by=weigh)
    _LAST_TABLES[ballots] = key, table
    return table


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """So many samples to draw now, of one mode of a menu; `mode` is None where there is only one."""

    mode: str | None = None
    count: int = 1


class Policy(ABC):
    """Decides from the prompt and the tally how many more samples to draw.

    A subclass sets `kind` and `dial`, and writes `read` (where it looks at prompts), `decide`, `fit`,
    `settings`, `arrays` and `restore`. Cost never rises with the dial.
    """

    kind: ClassVar[str]  # its name in commands, tables and artefacts
    dial: Dial | None = None  # None: made or fitted for one budget
    longest: int = DEFAULT_LONGEST  # samples a request, at most
    weigh: VoteWeights | None = None  # how it weighs votes; None: plain
    only_compared: ClassVar[bool] = False  # True: a yardstick that is never saved or served
    needs_plain_votes: ClassVar[bool] = False  # True: no verifier's scores may weigh them
    draw_cost: float | None = 1.0  # of one sample, in the unit of its price; None: not known yet
    max_waves: int | None = None  # None: as many as there are samples
    one_shot: bool = False  # True: decides from the prompt alone, and never looks at a tally
    reads_entropy: bool = False  # True: uses the first sample's entropy, so ask the endpoint for it
    source_model: str | None = None  # whose samples it was fitted on; None: not known, or none
    reads_first: ClassVar[bool] = True  # False: what it draws on an empty tally is the same for every prompt

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """How many more samples to draw now for one request; 0 stops. At least 1 on an empty tally.

        `reading` is what `read([prompt])` gave, where the caller has it already.
        """
        if reading is None:
            reading = np.zeros((1, 0)) if self.skips_prompt(tally) else self.read([prompt])
        return int(self.decide(reading, VoteState.from_tallies([tally]), dial)[0])

    def next(
        self,
        prompt: str,
        tally: Tally,
        price: float | None = None,
        *,
        reading: Floats | None = None,
        modes: Collection[str] | None = None,  # noqa: ARG002 - for policies over a menu
    ) -> Draw | None:
        """What to draw now, or None: stop. A policy over a menu names the mode.

        `reading` is what `read` gave for the prompt, if that was called already. `modes` are those that may
        be drawn from; None: all.
        """
        count = self.more(prompt, tally, price, reading=reading)
        return Draw(count=count) if count else None

    def convert_price(self, price: float) -> float:
        """A price of one sample in the unit of the policy's own prices, such as tokens."""
        return price if self.draw_cost is None else price / self.draw_cost

    def skips_prompt(self, tally: Tally) -> bool:
        """Whether it decides on this tally without looking at the prompt."""
        return not self.reads_first and not tally.drawn

    def more_batch(
        self, prompts: Sequence[str], tallies: Sequence[Tally], dial: float | None = None
    ) -> list[int]:
        """As `more`, for many requests at once."""
        if len(prompts) != len(tallies):
            raise PolicyError(f"{len(prompts)} prompts and {len(tallies)} tallies don't pair up")
        counts: list[int] = self.decide(self.read(prompts), VoteState.from_tallies(tallies), dial).tolist()
        return counts

    def read(self, prompts: Sequence[str]) -> Floats:
        """What the policy sees of prompts, (prompts, numbers)."""
        return np.zeros((len(prompts), 0))

    def make_empty_state(self, requests: int) -> Any:  # noqa: ANN401 - what its `decide` looks at
        """The state of requests that nothing was drawn for yet."""
        return VoteState.empty(requests)

    @abstractmethod
    def decide(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        """How many more samples each request gets now, (requests,); of several modes (requests, modes).

        Row i of `reading` is what was read of its prompt. A price may be given for each request, (requests,).
        """

    def certifies(self, tally: Tally, dial: float | None = None) -> bool | None:  # noqa: ARG002
        """Whether the leader is certified to be the model's commonest answer; None: it certifies nothing."""
        return None

    def mask_certified(
        self,
        state: VoteState,  # noqa: ARG002
        dial: float | None = None,  # noqa: ARG002
    ) -> npt.NDArray[np.bool_] | None:
        """As `certifies`, for many requests at once, (requests,)."""
        return None

    @abstractmethod
    def fit(self, pool: "Pool | Ballots") -> Self:
        """Learns from recorded samples and returns itself; what learns nothing only checks the source."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments and what was learned, except arrays: plain data, for JSON."""

    def arrays(self) -> Arrays:
        """What was learned, as arrays of numbers."""
        return {}

    @classmethod
    @abstractmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """The policy that gave these; PolicyInvalid, naming the fault, where no policy could have."""

    def save(self, folder: str | Path) -> None:
        """Writes the policy as JSON and npz, completely or not at all; `load_policy` reads it."""
        write_artefact(
            check_folder(folder),
            kind=self.kind,
            settings=self.settings(),
            arrays=self.arrays(),
            model=self.source_model,
        )


def check_one_mode(policy: Policy, place: str = "") -> Policy:
    """The policy; PolicyError where it decides among several modes, and samples of one model are drawn."""
    menu = getattr(policy, "menu", None)
    if menu is None or len(menu) == 1:
        return policy
    raise PolicyError(
        f"{place and f'{place}: '}a {policy.kind} policy over {', '.join(menu.names)} chooses among several "
        "modes, and samples of one model are drawn here; give its menu (--menu of serve, answer and ask), or "
        "a policy of one mode, e.g. of `adacompute fit POOL`"
    )


def check_modes(policy: Policy, modes: Sequence[str], place: str) -> Policy:
    """The policy; PolicyError where it doesn't fit the modes that samples are drawn from, of a menu.

    A policy over a menu needs all its modes there; others may be there too, and are never drawn. A policy of
    one mode needs a menu of one, or none.
    """
    menu = getattr(policy, "menu", None)
    names = () if menu is None else menu.names
    if len(modes) < 2 and len(names) < 2:
        return policy
    if len(names) < 2 and policy.kind != "fixed":
        raise PolicyError(
            f"{place}: a {policy.kind} policy draws samples of one mode, and the menu has "
            f"{', '.join(modes)}; fit one with `adacompute fit --policy menu`, or give a menu of one mode"
        )
    if not modes:
        raise PolicyError(
            f"{place}: a {policy.kind} policy over {', '.join(names)} chooses among several modes, and "
            "samples of one model are drawn here; give their menu (--menu menu.toml)"
        )
    lacking = [name for name in names if name not in modes]
    if lacking:
        raise PolicyError(
            f"{place}: a {policy.kind} policy over {', '.join(names)} needs the mode {lacking[0]!r}, and the "
            f"menu has {', '.join(modes)}; name its table so, or fit again"
        )
    return policy


def get_ballots(source: "Pool | JoinedPool | Ballots") -> Ballots:
    """The votes of one mode: of a pool with one source, or ballots as they are."""
    checked = source.ballots() if isinstance(source, JoinedPool) else check_source(source)
    ballots = checked if isinstance(checked, Ballots) else checked.ballots()
    if len(ballots.modes) > 1:
        raise PolicyError(
            f"a joined pool has the modes {', '.join(ballots.names)}, and one is needed here; give one "
            "mode's ballots, or use MenuPolicy"
        )
    return ballots


def check_source(source: "Pool | Ballots") -> "Pool | Ballots":
    """Returns a pool or ballots without reading them; PolicyError for anything else."""
    if not isinstance(source, Pool | Ballots):
        raise PolicyError(
            f"{format_value(source)} is not a pool; open it with open_pool(...), or give its ballots"
        )
    return source


def read_array(
    arrays: Arrays, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """An array of an artefact of this type and shape (None: any size), all finite; else PolicyInvalid."""
    if name not in arrays:
        raise PolicyInvalid(f"array {name!r} is not there; save the policy again")
    array = np.asarray(arrays[name])
    fits = array.ndim == len(shape) and all(
        size is None or size == actual for size, actual in zip(shape, array.shape, strict=True)
    )
    if not fits or array.dtype != np.dtype(dtype):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise PolicyInvalid(
            f"array {name!r} is {array.dtype} of shape {array.shape}, not {np.dtype(dtype)} of ({wanted})"
        )
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise PolicyInvalid(f"array {name!r} holds a number that is not finite")
    return array


MAX_SAMPLES = 1024  # samples a request: more is taken for a mistake


def parse_finite(value: object) -> float | None:
    """A finite number as a float; None for anything else, such as True, NaN, or an integer beyond floats."""
    if type(value) is float:  # nearly always, and ten times as fast
        return value if math.isfinite(value) else None
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) else None


def check_integer(name: str, value: object, *, low: int = 1, high: int = MAX_SAMPLES) -> int:
    """Returns an integer within bounds; PolicyError for anything else."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a whole number from {low} to {high}"
        )
    return int(value)


def check_number(name: str, value: object, *, low: float, high: float = math.inf) -> float:
    """Returns a finite number within bounds; PolicyError for anything else."""
    parsed = parse_finite(value)
    if parsed is None or not low <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(f"{name} {format_value(value)} can't be used; give a number from {low:g} {upper}")
    return parsed


def check_dial(name: str, dial: object, *, high: float = math.inf) -> float:
    """The value of a policy's dial, e.g. its "price"; the same values are accepted live and in replay."""
    parsed = parse_finite(dial)
    if parsed is None or not 0 <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(
            f"{name} {format_value(dial)} can't be used; give a number from 0 {upper}, "
            "e.g. what calibrate finds"
        )
    return parsed


def check_price(price: object) -> float | Floats:
    """A price as `check_dial` takes it, or one for each request, (requests,)."""
    if not isinstance(price, np.ndarray) or price.ndim != 1:
        return check_dial("price", price)
    for value in (price.min(initial=0.0), price.max(initial=0.0)):
        check_dial("price", value)
    return price


def log_price(price: float | Floats) -> float | Floats:
    """The natural logarithm of a price, or of each; of 0 minus infinity.

    It is libm's either way, so that a request is decided alike alone and among others.
    """
    if isinstance(price, np.ndarray):
        return np.array([log_price(value) for value in price.tolist()])
    return math.log(price) if price > 0 else -math.inf


def check_flag(name: str, value: object) -> bool:
    """Returns True or False; PolicyError for anything else, such as 0 or 1."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name} {format_value(value)} can't be used; give True or False")
    return value


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """PolicyError unless the value is one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise PolicyError(
            f"{name} {format_value(value)} is not known; give one of {', '.join(map(repr, choices))}"
        )


def check_ascending(name: str, values: object, *, high: int = MAX_SAMPLES) -> tuple[int, ...]:
    """Budgets as a tuple: integers from 1, ascending, each once."""
    items: list[Any] = []
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        items = list(values)
    valid = all(isinstance(b, int | np.integer) and not isinstance(b, bool) and 1 <= b <= high for b in items)
    if not items or not valid or any(a >= b for a, b in pairwise(items)):
        raise PolicyError(
            f"{name} {format_value(values)} can't be used; give whole numbers from 1 to {high}, ascending, "
            "e.g. (1, 2, 4)"
        )
    return tuple(int(b) for b in items)


def check_weights(value: object) -> VoteWeights | None:
    """Vote weights as a constructor takes them."""
    if value is not None and not isinstance(value, VoteWeights):
        raise PolicyError(
            f"weigh {format_value(value)} can't weigh votes; give VoteWeights, or None for plain votes"
        )
    return value


def dump_weights(weigh: VoteWeights | None) -> dict[str, Any] | None:
    """Vote weights as plain data, for JSON."""
    if weigh is None:
        return None
    settings: dict[str, Any] = {"signal": weigh.signal, "scale": weigh.scale, "sharpness": weigh.sharpness}
    if weigh.model is not None:
        settings["model"] = weigh.model.dump()
    if weigh.score is not None:
        settings["score"] = asdict(weigh.score)
    return settings


def load_weights(value: object) -> VoteWeights | None:
    """The vote weights that `dump_weights` wrote."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or set(value) - {"model", "score"} != {"signal", "scale", "sharpness"}:
        raise PolicyError(
            f"weigh {format_value(value)} doesn't say how votes are weighed; it has signal, scale, sharpness"
        )
    # a policy that was saved before there were signal models has none
    model = SignalModel.load(value["model"]) if value.get("model") is not None else None
    scores = value.get("score")  # nor weights of scores
    if scores is not None and (not isinstance(scores, Mapping) or set(scores) != _SCORE_FIELDS):
        raise PolicyError(f"weigh.score {format_value(scores)} can't be read; it has beta, centre, spread")
    score_weights = None if scores is None else ScoreWeights(**scores)
    return VoteWeights(**{**value, "model": model, "score": score_weights})


def load_settings(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Stored settings, none missing and none unknown, with the vote weights parsed."""
    if missing := sorted(set(names) - set(settings)):
        raise PolicyError(f"setting {missing[0]!r} is missing")
    if unknown := sorted(set(map(str, settings)) - set(names)):
        raise PolicyError(f"setting {unknown[0]!r} is not known; the settings are {', '.join(sorted(names))}")
    loaded = dict(settings)
    if "weigh" in loaded:
        loaded["weigh"] = load_weights(loaded["weigh"])
    return loaded


@contextmanager
def wrap_restore_errors(kind: str) -> Iterator[None]:
    """Turns any fault of stored settings into a PolicyInvalid that names the policy's kind."""
    try:
        yield
    except (AdacomputeError, ArithmeticError, TypeError, ValueError) as exc:
        raise PolicyInvalid(f"these are not the settings of a stored {kind} policy: {exc}") from exc
