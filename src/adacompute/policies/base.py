"""The policy interface: how many more samples to draw for a request, given its prompt and votes.

`VoteState` holds what a policy may use, as arrays that are equal to the last bit for live tallies and
replayed paths. Replay and the gateway call the same `Policy` with the same results, because `more` is
`decide` for a single request. `read` is separate from `decide`, so that replay reads each prompt once.
Settings are checked in the same way whether given by a caller (PolicyError) or read from an artefact
(PolicyInvalid with the same message).

Unweighted votes have few states, so a policy's cost jumps as its price changes. Therefore each request has a
place in [0, 1), which shifts its price by up to 1%: a budget between the two sides of a jump is met by a mix
of both. The place is a hash of the prompt; in replay, the orders of a problem's samples are spread evenly
from there. The gateway draws each request's place at random.
"""

import copy
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import AdacomputeError, PolicyError, PolicyInvalid, format_value
from adacompute.policies.artefact import check_folder, write_artefact
from adacompute.policies.votes import Floats, Ints, VotesByMode, VoteState, read_tallies
from adacompute.policies.weights import dump_weights, load_weights
from adacompute.pool import Ballots, Pool
from adacompute.pool.modes import JoinedPool, ModeSet
from adacompute.records import AccuracyTable, quick_dataclass
from adacompute.score import score

Arrays = Mapping[str, npt.NDArray[Any]]  # what a policy has learned, by name
Parsers = Mapping[str, Callable[[Any], Any]]  # for stored settings, by name
Dial = Literal["price", "threshold"]
PoolSource = Pool | JoinedPool | Ballots
_TableKey = tuple[tuple[int, ...], VoteWeights | None]

DEFAULT_LONGEST = 16  # default for the most samples per request
_WIDTH = 0.02  # width of the spread, in the logarithm of prices or the log-odds of thresholds
_LAST_TABLES: WeakKeyDictionary[Ballots, tuple[_TableKey, AccuracyTable]] = WeakKeyDictionary()


class OwnPrice(float):
    """A request's individual price, which isn't shifted by its place again."""


def spread_price(price: float, places: float | Floats, *, dial: str = "price") -> Floats:
    """The price or threshold of each request by its place, (requests,); higher places get higher ones.

    >>> spread_price(0.05, np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0495, 0.05, 0.0505]
    """
    factor = np.exp(_WIDTH * (places - 0.5))
    return price * factor if dial == "price" else price * factor / (1 + price * (factor - 1))


def place_orders(prompts: Sequence[str], orders: int = 1) -> Floats:
    """The place of each order of each prompt's samples, (prompts * orders,)."""
    places = hash_to_unit(prompts, seed=0)[:, None] + np.arange(orders) / orders
    return np.asarray(places.reshape(-1) % 1)


def hash_to_unit(prompts: Sequence[str], *, seed: int) -> Floats:
    """A number in [0, 1) for each prompt, (prompts,): a hash of seed and prompt.

    >>> first, second = hash_to_unit(["What is 2 + 2?", "What is 2 + 3?"], seed=0).tolist()
    >>> first == hash_to_unit(["What is 2 + 2?"], seed=0).item(), first == second
    (True, False)
    """
    return np.array(
        [(hash_prompt(prompt, seed=seed) >> 11) * 2.0**-53 for prompt in prompts], dtype=np.float64
    )


def hash_prompt(prompt: str, *, seed: int = 0) -> int:
    """A 64-bit hash of the seed and the prompt."""
    # a truncated conversation may end in an unpaired surrogate
    text = prompt.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(8, "big")).digest(), "big")


def score_votes(ballots: Ballots, budgets: Sequence[int], weigh: VoteWeights | None) -> AccuracyTable:
    """The accuracy at each budget from `score`, with unweighted or weighted votes.

    Scoring weighted votes takes a second and one pool serves many fits, so a pool's last table is cached as
    long as the pool exists.
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
    """A number of samples to draw now from one mode; `mode` is None if it has no name."""

    mode: str | None = None
    count: int = 1


class Criterion(NamedTuple):
    """The criterion for drawing another sample, for display.

    `worth`: the accuracy that another sample gains; draw while above `limit`, its price in accuracy. `doubt`:
    the probability that the leader isn't the most common answer; draw while above `limit`. `agreement`: the
    number of equal answers from one mode; draw until it reaches `limit`.
    """

    kind: Literal["worth", "doubt", "agreement"]
    value: float
    limit: float
    mode: str = ""  # for agreement


class Draws(NamedTuple):
    """What several requests draw now, each (requests,)."""

    modes: Ints  # indexes of their modes
    counts: Ints  # samples; 0 stops


class Policy(ABC):
    """Decides, from the prompt and the tally, how many more samples to draw.

    A subclass sets `kind` and `dial`, and implements `read` (if it uses prompts), `count_draws` and `fit`. To
    be saved it sets `setting_names` and, for learned state, `learned_names` with `dump_learned`, `arrays` and
    `load_learned`. Cost must never rise with the dial.
    """

    kind: ClassVar[str]  # name in commands, tables and artefacts
    dial: Dial | None = None  # None: made or fitted for one budget
    longest: int = DEFAULT_LONGEST  # most samples per request
    weigh: VoteWeights | None = None  # weights of votes; None: unweighted
    only_compared: ClassVar[bool] = False  # True: only for comparison, never saved or served
    needs_plain_votes: ClassVar[bool] = False  # True: a verifier's scores can't weigh its votes
    draw_cost: float | None = 1.0  # cost per sample in the unit of its price; None: not known yet
    max_waves: int | None = None  # None: no limit besides the number of samples
    spreads_price: bool = True  # False: all requests use exactly the given dial
    one_shot: bool = False  # True: decides from the prompt alone, without the tally
    reads_entropy: bool = False  # True: uses the first sample's entropy, so the endpoint must provide it
    prices_: Floats = np.zeros(
        0
    )  # between which it divides requests among rules, descending; empty: it doesn't
    source_model: str | None = None  # whose samples it was fitted on; None if unknown or unfitted
    reads_first: ClassVar[bool] = True  # False: the first draw is the same for every prompt
    setting_names: ClassVar[tuple[str, ...]] = ()  # constructor arguments, stored in the artefact
    learned_names: ClassVar[tuple[str, ...]] = ()  # learned state in the artefact's settings
    optional: ClassVar[Mapping[str, Any]] = {}  # defaults for settings missing from an artefact
    parsers: ClassVar[Parsers] = {}  # for stored settings, unless they are None

    @property
    def mode_set(self) -> ModeSet | None:
        """The modes to choose from and the unit of cost; None if it draws from a single mode."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modes that it may draw from, cheapest first."""
        return ("",)

    @property
    def longest_by_mode(self) -> tuple[int, ...]:
        """Most samples per request from each of these modes."""
        return (self.longest,)

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """How many more samples to draw now for one request; 0 stops. At least 1 for an empty tally.

        `reading` is the result of `read([prompt])`, if the caller has it.
        """
        if reading is None:
            reading = np.zeros((1, 0)) if self.skips_prompt(tally) else self.read([prompt])
        own = self.place_price(dial, prompt)
        return int(self.count_draws(reading, VoteState.from_tallies([tally]), own)[0])

    def next(
        self,
        prompt: str,
        tally: Tally,
        price: float | None = None,
        *,
        reading: Floats | None = None,
        modes: Collection[str] | None = None,
    ) -> Draw | None:
        """What to draw now; None to stop. A policy over several modes names the mode.

        `reading` is the result of `read` for the prompt, if the caller has it. `modes` restricts the modes;
        None: all.
        """
        name = self.names[0]
        if name and modes is not None and name not in modes:
            return None
        count = self.more(prompt, tally, price, reading=reading)
        return Draw(mode=name or None, count=count) if count else None

    def find_criterion(
        self,
        tally: Tally,  # noqa: ARG002
        dial: float | None = None,  # noqa: ARG002
        *,
        reading: Floats,  # noqa: ARG002
    ) -> Criterion | None:
        """The criterion of its next decision at a request's dial, after one or more samples; may be None."""
        return None

    def place_price(self, dial: float | None, prompt: str) -> float | None:
        """The dial for a prompt, by its place; an `OwnPrice` stays unchanged."""
        if dial is None or isinstance(dial, OwnPrice) or not self.spreads_price:
            return dial
        return self.spread_price(dial, float(place_orders([prompt])[0]))

    def spread_price(self, dial: float | None, place: float) -> float | None:
        """Like `spread_dial`, for one request."""
        own = self.spread_dial(dial, place)
        return None if own is None else float(own)

    def spread_dial(self, dial: float | None, places: float | Floats) -> float | Floats | None:
        """The dial of each request, (requests,), by place; unchanged if there is none or it isn't spread."""
        if self.dial is None or dial is None or not self.spreads_price:
            return dial
        value = check_dial(self.dial, dial, high=1.0 if self.dial == "threshold" else math.inf)
        return spread_price(value, places, dial=self.dial)

    def repeat_reading(self, reading: Floats, orders: int) -> Floats:
        """Repeats each prompt's reading for each order of its samples, (prompts * orders, numbers)."""
        return np.repeat(reading, orders, axis=0)

    def convert_price(self, price: float) -> float:
        """Converts a price per sample to the unit of the policy's own prices, such as tokens."""
        return price if self.draw_cost is None else price / self.draw_cost

    def skips_prompt(self, tally: Tally) -> bool:
        """Whether its decision for this tally doesn't depend on the prompt."""
        return not self.reads_first and not tally.drawn

    def more_batch(
        self, prompts: Sequence[str], tallies: Sequence[Tally], dial: float | None = None
    ) -> list[int]:
        """Like `more`, for several requests."""
        if len(prompts) != len(tallies):
            raise PolicyError(f"{len(prompts)} prompts and {len(tallies)} tallies don't pair up")
        counts: list[int] = self.decide(
            self.read(prompts),
            read_tallies(tallies, self.names),
            self.spread_dial(dial, place_orders(prompts)),
        ).counts.tolist()
        return counts

    def read(self, prompts: Sequence[str]) -> Floats:
        """What the policy extracts from prompts, (prompts, numbers)."""
        return np.zeros((len(prompts), 0))

    def decide(self, reading: Floats, state: VoteState | VotesByMode, dial: float | Floats | None) -> Draws:
        """What each request draws now. The dial may be given per request, (requests,).

        Row i of `reading` belongs to request i. With several modes, `state` holds votes by mode.
        """
        counts = self.count_draws(reading, cast("VoteState", state), dial)
        return Draws(np.zeros(len(state), dtype=np.int64), counts)

    @abstractmethod
    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        """How many more samples each request gets now, (requests,), for policies of one mode."""

    def certifies(self, tally: Tally, dial: float | None = None) -> bool | None:  # noqa: ARG002
        """Whether the leader is certified as the model's most common answer; None if it never certifies."""
        return None

    def mask_certified(
        self,
        state: VoteState,  # noqa: ARG002
        dial: float | Floats | None = None,  # noqa: ARG002
    ) -> npt.NDArray[np.bool_] | None:
        """Like `certifies`, for several requests, (requests,)."""
        return None

    @abstractmethod
    def fit(self, pool: "Pool | Ballots") -> Self:
        """Learns from recorded samples and returns itself; without learning, only checks the source."""

    def settle(self, ballots: Ballots) -> Self:  # noqa: ARG002
        """Adapts in place to these samples, e.g. to their scale of confidence, without labels."""
        return self

    def copy_for(self, ballots: Ballots) -> Self:
        """A copy, adapted to these samples by `settle`."""
        return copy.copy(self).settle(ballots)

    def count_in_sample(self, ballots: Ballots) -> int:  # noqa: ARG002
        """How many of these problems it was fitted on, as far as it knows; results on those are in-sample."""
        return 0

    def get_ballots(self, source: PoolSource) -> Ballots:
        """The samples from a source that it can use: those of its modes, at their costs."""
        return get_ballots(source)

    def settings(self) -> dict[str, Any]:
        """Constructor arguments and learned state except arrays, as plain data for JSON."""
        settings = {
            name: _dump_setting(getattr(self, name)) for name in self.setting_names
        } | self.dump_learned()
        return {
            name: value
            for name, value in settings.items()
            if name not in self.optional or value != self.optional[name]
        }

    def dump_learned(self) -> dict[str, Any]:
        """Learned state except arrays, by `learned_names`, as plain data for JSON."""
        return {}

    def arrays(self) -> Arrays:
        """Learned state as arrays of numbers."""
        return {}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Restores a policy from settings and arrays; PolicyInvalid, naming the error, if impossible."""
        with wrap_restore_errors(cls.kind):
            names = (*cls.setting_names, *cls.learned_names)
            arguments = load_settings({**cls.optional, **settings}, names, cls.parsers)
            learned = {name: arguments.pop(name) for name in cls.learned_names}
            policy = cls(**arguments)
            policy.load_learned(learned, arrays)
        return policy

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:  # noqa: B027
        """Sets the learned state from `learned` and `arrays`."""

    def save(self, folder: str | Path) -> None:
        """Writes the policy as JSON and npz, all or nothing; `load_policy` reads it."""
        write_artefact(
            check_folder(folder),
            kind=self.kind,
            settings=self.settings(),
            arrays=self.arrays(),
            model=self.source_model,
        )


def _dump_setting(value: object) -> object:
    """A constructor argument as plain data."""
    if isinstance(value, VoteWeights):
        return dump_weights(value)
    if isinstance(value, ModeSet):
        return value.dump()
    return list(value) if isinstance(value, tuple) else value


def get_ballots(source: PoolSource) -> Ballots:
    """The votes of one mode, from a pool with one source or from ballots."""
    checked = source.ballots() if isinstance(source, JoinedPool) else check_source(source)
    ballots = checked if isinstance(checked, Ballots) else checked.ballots()
    if len(ballots.modes) > 1:
        raise PolicyError(
            f"a joined pool has the modes {', '.join(ballots.names)}, and one is needed here; give one "
            f"mode's (ballots[{ballots.names[0]!r}]), or a policy over several modes"
        )
    return ballots


def check_source(source: "Pool | Ballots") -> "Pool | Ballots":
    """Returns a pool or ballots unread; PolicyError for anything else."""
    if not isinstance(source, Pool | Ballots):
        raise PolicyError(
            f"{format_value(source)} is not a pool; open it with open_pool(...), or give its ballots"
        )
    return source


def read_array(
    arrays: Arrays, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """An array of an artefact with this type and shape (None: any size), all finite; else PolicyInvalid."""
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


MAX_SAMPLES = 1024  # per request: more is probably a mistake


def parse_finite(value: object) -> float | None:
    """A finite number as a float; None for anything else, such as True, NaN, or too large an integer."""
    if type(value) is float:  # the usual case, ten times as fast
        return value if math.isfinite(value) else None
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) else None


def check_integer(name: str, value: object, *, low: int = 1, high: int = MAX_SAMPLES) -> int:
    """Returns an integer within limits; PolicyError for anything else."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a whole number from {low} to {high}"
        )
    return int(value)


def check_number(name: str, value: object, *, low: float, high: float = math.inf, example: str = "") -> float:
    """Returns a finite number within limits; PolicyError for anything else."""
    parsed = parse_finite(value)
    if parsed is None or not low <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a number from {low:g} {upper}{example}"
        )
    return parsed


def check_dial(name: str, dial: object, *, high: float = math.inf) -> float:
    """The value of a policy's dial, e.g. its "price"; live and replay accept the same values."""
    return check_number(name, dial, low=0, high=high, example=", e.g. what calibrate finds")


def check_dials(name: str, dials: object, *, high: float = math.inf) -> float | Floats:
    """One dial as in `check_dial`, or one per request, (requests,)."""
    if not isinstance(dials, np.ndarray) or dials.ndim != 1:
        return check_dial(name, dials, high=high)
    for value in (dials.min(initial=0.0), dials.max(initial=0.0)):
        check_dial(name, value, high=high)
    return dials


def log_price(price: float | Floats) -> float | Floats:
    """The natural logarithm of one or several prices; minus infinity for 0.

    Always computed by numpy, so that a request gets the same decision alone and in a batch.
    """
    if isinstance(price, np.ndarray):
        with np.errstate(divide="ignore"):
            return np.log(price)
    return float(np.log(price)) if price > 0 else -math.inf


def check_flag(name: str, value: object) -> bool:
    """Returns True or False; PolicyError for anything else, such as 0 or 1."""
    if not isinstance(value, bool):
        raise PolicyError(f"{name} {format_value(value)} can't be used; give True or False")
    return value


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raises PolicyError unless the value is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise PolicyError(
            f"{name} {format_value(value)} is not known; give one of {', '.join(map(repr, choices))}"
        )


def check_ascending(name: str, values: object, *, high: int = MAX_SAMPLES) -> tuple[int, ...]:
    """Budgets as a tuple: ascending integers from 1, without duplicates."""
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


def load_settings(settings: Mapping[str, Any], names: Collection[str], parsers: Parsers) -> dict[str, Any]:
    """Validated stored settings, none missing or unknown, parsed."""
    if missing := sorted(set(names) - set(settings)):
        raise PolicyError(f"setting {missing[0]!r} is missing")
    if unknown := sorted(set(map(str, settings)) - set(names)):
        raise PolicyError(f"setting {unknown[0]!r} is not known; the settings are {', '.join(sorted(names))}")
    loaded = dict(settings)
    if loaded.get("weigh") != "auto" and "weigh" in loaded:
        loaded["weigh"] = load_weights(loaded["weigh"])
    for name, parse in parsers.items():
        if loaded[name] is not None:
            loaded[name] = parse(loaded[name])
    return loaded


@contextmanager
def wrap_restore_errors(kind: str) -> Iterator[None]:
    """Turns any error in stored settings into a PolicyInvalid that names the policy's kind."""
    try:
        yield
    except (AdacomputeError, ArithmeticError, TypeError, ValueError) as exc:
        raise PolicyInvalid(f"these are not the settings of a stored {kind} policy: {exc}") from exc
