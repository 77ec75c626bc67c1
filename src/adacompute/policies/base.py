"""The policy interface: how many more samples to draw for a request, given its prompt and votes.

`VoteState` holds the votes that a policy may use. It is the same for live requests and for recorded ones, so
replay and the gateway get the same decisions. `more` decides for one request, `decide` for many. `read` is
separate from `decide`, so that replay reads each prompt only once. Settings are checked in the same way
whether a caller gives them (PolicyError) or a stored policy does (PolicyInvalid, with the same message).

Unweighted votes can have only a few different counts, so a policy's average cost jumps at certain prices. To
meet budgets between two such costs, each request's price is shifted by up to 1%. Close to a jump, some
requests then get a price above it, and some a price below it. The shift is set by the request's place, a
number in [0, 1). By default, the place is a hash of the prompt. In replay, the random orders of a problem's
samples get evenly spaced places, and the gateway draws places at random.
"""

import copy
import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import AdacomputeError, PolicyError, PolicyInvalid, format_value
from adacompute.policies.artefact import check_folder, write_artefact
from adacompute.policies.votes import Floats, Ints, VotesByMode, VoteState
from adacompute.policies.weights import dump_weights, load_weights
from adacompute.pool import Ballots, Pool
from adacompute.pool.modes import JoinedPool, ModeSet
from adacompute.records import AccuracyTable, quick_dataclass
from adacompute.score import score

Arrays = Mapping[str, npt.NDArray[Any]]  # name -> array that a policy has learned
Parsers = Mapping[str, Callable[[Any], Any]]  # name of a setting -> function that parses its stored value
Dial = Literal["price", "threshold"]
PoolSource = Pool | JoinedPool | Ballots
_TableKey = tuple[tuple[int, ...], VoteWeights | None]

DEFAULT_LONGEST = 16  # default maximum number of samples per request
# requests' prices are spread over a range of this width, in logarithms (thresholds: in log-odds)
_WIDTH = 0.02
_LAST_TABLES: WeakKeyDictionary[Ballots, tuple[_TableKey, AccuracyTable]] = WeakKeyDictionary()


class OwnPrice(float):
    """The price of one request, already shifted for this request, so that it must not be shifted again."""


def spread_price(price: float, places: float | Floats, *, dial: str = "price") -> Floats:
    """Shifts the price or threshold of each request by up to 1%.

    `places` has a number per request: 0 lowers the price by 1%, 0.5 leaves it as it is, 1 raises it by 1%.

    >>> spread_price(0.05, np.array([0.0, 0.5, 1.0])).round(4).tolist()
    [0.0495, 0.05, 0.0505]
    """
    factor = np.exp(_WIDTH * (places - 0.5))
    return price * factor if dial == "price" else price * factor / (1 + price * (factor - 1))


def place_orders(prompts: Sequence[str], orders: int = 1) -> Floats:
    """Returns the place of each replayed request: a number in [0, 1) that sets how far its price is shifted.

    A prompt has a request for each of `orders` random orders of its samples. Their places are evenly spaced;
    the first is a hash of the prompt.
    """
    places = hash_to_unit(prompts, seed=0)[:, None] + np.arange(orders) / orders
    return np.asarray(places.reshape(-1) % 1)


def hash_to_unit(prompts: Sequence[str], *, seed: int) -> Floats:
    """Hashes the seed and each prompt to a number in [0, 1).

    >>> first, second = hash_to_unit(["What is 2 + 2?", "What is 2 + 3?"], seed=0).tolist()
    >>> first == hash_to_unit(["What is 2 + 2?"], seed=0).item(), first == second
    (True, False)
    """
    return np.array(
        [(hash_prompt(prompt, seed=seed) >> 11) * 2.0**-53 for prompt in prompts], dtype=np.float64
    )


def hash_prompt(prompt: str, *, seed: int = 0) -> int:
    """Hashes the seed and the prompt to 64 bits."""
    # truncated text may end in half of a character (an unpaired surrogate)
    text = prompt.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, salt=seed.to_bytes(8, "big")).digest(), "big")


def score_votes(ballots: Ballots, budgets: Sequence[int], weigh: VoteWeights | None) -> AccuracyTable:
    """Computes the accuracy of each problem at each budget, with unweighted or weighted votes.

    The last result for each pool is cached, because scoring weighted votes takes a second.
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
    """How many samples to draw now, and from which mode (None if the policy has only one)."""

    mode: str | None = None
    count: int = 1


class Criterion(NamedTuple):
    """The number by which a policy decides whether to draw another sample; shown to users.

    For the kind `worth`, it is the accuracy that another sample would gain, and the policy draws while it
    exceeds the sample's price (`limit`). `doubt`: the probability that the leader isn't the most common
    answer; the policy draws while it exceeds `limit`. `agreement`: the number of equal answers from one mode;
    the policy draws until it reaches `limit`.
    """

    kind: Literal["worth", "doubt", "agreement"]
    value: float
    limit: float
    mode: str = ""  # mode whose answers are counted, if `kind` is "agreement"


class Draws(NamedTuple):
    """How many samples to draw now for each of several requests, and from which mode."""

    modes: Ints  # for each request, the index of the mode to draw from
    counts: Ints  # for each request, the number of samples to draw; 0 means stop


class Policy(ABC):
    """Decides, from the prompt and the votes so far (the tally), how many more samples to draw.

    A subclass sets `kind` and `dial`, and implements `count_draws`, `fit` and, if it uses prompts, `read`. To
    be saved, it also sets `setting_names`. If it has learned state, it sets `learned_names` and implements
    `dump_learned`, `arrays` and `load_learned`. Its average cost must never rise with its price or threshold.
    """

    kind: ClassVar[str]  # name of the policy in commands, tables and stored files
    dial: Dial | None = None  # whether a price or a threshold sets the cost; None: the budget is fixed
    longest: int = DEFAULT_LONGEST  # maximum number of samples per request
    weigh: VoteWeights | None = None  # how votes are weighted; None: all votes count equally
    only_compared: ClassVar[bool] = False  # True: exists only for comparison; can't be saved or served
    needs_plain_votes: ClassVar[bool] = False  # True: votes can't be weighted by a verifier's scores
    draw_cost: float | None = 1.0  # mean cost of a sample, e.g. in tokens; None: not known yet
    max_waves: int | None = None  # maximum number of rounds of model calls per request; None: unlimited
    spreads_price: bool = True  # False: all requests use exactly the given price or threshold
    one_shot: bool = False  # True: decides from the prompt alone, without looking at votes
    reads_entropy: bool = False  # True: uses the first sample's entropy, so the endpoint must provide it
    # for a policy that chooses among several rules: one price per rule, in descending order. At its price,
    # all requests follow the rule; between two prices, some follow one rule and some the other.
    prices_: Floats = np.zeros(0)
    source_model: str | None = None  # model whose samples the policy was fitted on; None if unknown
    reads_first: ClassVar[bool] = True  # False: the size of the first round doesn't depend on the prompt
    setting_names: ClassVar[tuple[str, ...]] = ()  # names of the constructor arguments to store
    learned_names: ClassVar[tuple[str, ...]] = ()  # keys of the learned values that `dump_learned` returns
    # name of a setting that a stored policy may lack -> its default value
    optional: ClassVar[Mapping[str, Any]] = {}
    # name of a setting -> function that parses its stored value; not called for None
    parsers: ClassVar[Parsers] = {}

    @property
    def mode_set(self) -> ModeSet | None:
        """The modes to choose from and the unit of cost; None if there is a single mode."""
        return None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the modes that the policy may draw from, cheapest first."""
        return ("",)

    @property
    def longest_by_mode(self) -> tuple[int, ...]:
        """Maximum number of samples per request from each mode, in the order of `names`."""
        return (self.longest,)

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """Returns how many more samples one request draws now; 0 means stop.

        The number is at least 1 if the request has no sample yet. `reading` is the result of
        `read([prompt])`, if the caller has computed it.
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
        """Returns what to draw now, or None to stop. A policy over several modes names the mode.

        `reading` is the result of `read([prompt])`, if known. `modes` are those that may be drawn; None: all.
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
        """Returns the number that decides whether to draw another sample; None if no single number does."""
        return None

    def place_price(self, dial: float | None, prompt: str) -> float | None:
        """Shifts the price or threshold by an amount set by the prompt's hash, unless it is an `OwnPrice`."""
        if dial is None or isinstance(dial, OwnPrice) or not self.spreads_price:
            return dial
        return self.spread_price(dial, float(place_orders([prompt])[0]))

    def spread_price(self, dial: float | None, place: float) -> float | None:
        """Shifts the price or threshold of one request, like `spread_dial`; `place` sets the shift."""
        own = self.spread_dial(dial, place)
        return None if own is None else float(own)

    def spread_dial(self, dial: float | None, places: float | Floats) -> float | Floats | None:
        """Shifts the price or threshold of each request by up to 1%, unless `spreads_price` is false.

        `places` has a number in [0, 1) per request, which sets the shift.
        """
        if self.dial is None or dial is None or not self.spreads_price:
            return dial
        value = check_dial(self.dial, dial, high=1.0 if self.dial == "threshold" else math.inf)
        return spread_price(value, places, dial=self.dial)

    def repeat_reading(self, reading: Floats, orders: int) -> Floats:
        """Repeats each prompt's reading (the result of `read`), once for each random order of its samples."""
        return np.repeat(reading, orders, axis=0)

    def convert_price(self, price: float) -> float:
        """Converts a price per sample to a price per unit of the policy's cost, such as a token."""
        return price if self.draw_cost is None else price / self.draw_cost

    def skips_prompt(self, tally: Tally) -> bool:
        """Whether the policy's decision for these votes doesn't depend on the prompt."""
        return not self.reads_first and not tally.drawn

    def read(self, prompts: Sequence[str]) -> Floats:
        """Extracts from the prompts the numbers that the policy uses; shape (prompts, numbers)."""
        return np.zeros((len(prompts), 0))

    def decide(self, reading: Floats, state: VoteState | VotesByMode, dial: float | Floats | None) -> Draws:
        """Decides what each request draws now. `dial` is one number, or an array with one per request.

        Row i of `reading` is what `read` returned for request i. If the policy has several modes, `state`
        holds votes by mode.
        """
        counts = self.count_draws(reading, cast("VoteState", state), dial)
        return Draws(np.zeros(len(state), dtype=np.int64), counts)

    @abstractmethod
    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        """Decides how many more samples each request draws now; for policies with a single mode."""

    def certifies(self, tally: Tally, dial: float | None = None) -> bool | None:  # noqa: ARG002
        """Whether the leader is guaranteed to be the most common answer; None without a guarantee."""
        return None

    def mask_certified(
        self,
        state: VoteState,  # noqa: ARG002
        dial: float | Floats | None = None,  # noqa: ARG002
    ) -> npt.NDArray[np.bool_] | None:
        """Like `certifies`, but for several requests, of which it marks those with a guaranteed leader."""
        return None

    @abstractmethod
    def fit(self, pool: "Pool | Ballots") -> Self:
        """Learns from recorded samples, and returns itself."""

    def settle(self, ballots: Ballots) -> Self:  # noqa: ARG002
        """Adapts this policy to these samples, e.g. to how confident the model is on average.

        Needs no labels.
        """
        return self

    def copy_for(self, ballots: Ballots) -> Self:
        """Returns a copy that is adapted to these samples by `settle`."""
        return copy.copy(self).settle(ballots)

    def count_in_sample(self, ballots: Ballots) -> int:  # noqa: ARG002
        """Counts the problems in `ballots` that the policy was fitted on; 0 if this isn't known."""
        return 0

    def get_ballots(self, source: PoolSource) -> Ballots:
        """Returns the recorded samples of the modes that the policy uses."""
        return get_ballots(source)

    def settings(self) -> dict[str, Any]:
        """Returns constructor arguments and learned state, but not arrays, as plain data for JSON."""
        settings = {
            name: _dump_setting(getattr(self, name)) for name in self.setting_names
        } | self.dump_learned()
        return {
            name: value
            for name, value in settings.items()
            if name not in self.optional or value != self.optional[name]
        }

    def dump_learned(self) -> dict[str, Any]:
        """Returns learned state other than arrays, as plain data for JSON; its keys are `learned_names`."""
        return {}

    def arrays(self) -> Arrays:
        """Returns the learned arrays of numbers: name -> array."""
        return {}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """Restores a policy from settings and arrays; raises PolicyInvalid, with the reason, on failure."""
        try:
            names = (*cls.setting_names, *cls.learned_names)
            arguments = load_settings({**cls.optional, **settings}, names, cls.parsers)
            learned = {name: arguments.pop(name) for name in cls.learned_names}
            policy = cls(**arguments)
            policy.load_learned(learned, arrays)
        except (AdacomputeError, ArithmeticError, TypeError, ValueError) as exc:
            raise PolicyInvalid(f"these are not the settings of a stored {cls.kind} policy: {exc}") from exc
        return policy

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:  # noqa: B027
        """Sets the learned state from what `dump_learned` and `arrays` returned."""

    def save(self, folder: str | Path) -> None:
        """Writes the policy to a folder, completely or not at all; `load_policy` reads it."""
        write_artefact(
            check_folder(folder),
            kind=self.kind,
            settings=self.settings(),
            arrays=self.arrays(),
            model=self.source_model,
        )


def _dump_setting(value: object) -> object:
    """Converts a constructor argument to plain data for JSON."""
    if isinstance(value, VoteWeights):
        return dump_weights(value)
    if isinstance(value, ModeSet):
        return value.dump()
    return list(value) if isinstance(value, tuple) else value


def get_ballots(source: PoolSource) -> Ballots:
    """Returns a pool's recorded votes, or the given votes; raises PolicyError if they have several modes."""
    checked = source.ballots() if isinstance(source, JoinedPool) else check_source(source)
    ballots = checked if isinstance(checked, Ballots) else checked.ballots()
    if len(ballots.modes) > 1:
        raise PolicyError(
            f"a joined pool has the modes {', '.join(ballots.names)}, and one is needed here; give one "
            f"mode's (ballots[{ballots.names[0]!r}]), or a policy over several modes"
        )
    return ballots


def check_source(source: "Pool | Ballots") -> "Pool | Ballots":
    """Returns the argument if it is a pool or recorded votes; raises PolicyError otherwise."""
    if not isinstance(source, Pool | Ballots):
        raise PolicyError(
            f"{format_value(source)} is not a pool; open it with open_pool(...), or give its ballots"
        )
    return source


def read_array(
    arrays: Arrays, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...]
) -> npt.NDArray[Any]:
    """Returns a stored array; raises PolicyInvalid unless it is finite and has this type and shape.

    A size of None in `shape` allows any size.
    """
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


MAX_SAMPLES = 1024  # maximum number of samples per request; more is probably a mistake


def parse_finite(value: object) -> float | None:
    """Converts a finite number to a float. Returns None for anything else, also for True and NaN."""
    if type(value) is float:  # shortcut for the usual type, ten times as fast
        return value if math.isfinite(value) else None
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) else None


def check_integer(name: str, value: object, *, low: int = 1, high: int = MAX_SAMPLES) -> int:
    """Returns the value if it is an integer from `low` to `high`; raises PolicyError otherwise."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a whole number from {low} to {high}"
        )
    return int(value)


def check_number(name: str, value: object, *, low: float, high: float = math.inf, example: str = "") -> float:
    """Returns the value if it is a finite number from `low` to `high`; raises PolicyError otherwise."""
    parsed = parse_finite(value)
    if parsed is None or not low <= parsed <= high:
        upper = "up" if high == math.inf else f"to {high:g}"
        raise PolicyError(
            f"{name} {format_value(value)} can't be used; give a number from {low:g} {upper}{example}"
        )
    return parsed


def check_dial(name: str, dial: object, *, high: float = math.inf) -> float:
    """Returns the value of a policy's price or threshold (its dial); raises PolicyError if it is invalid."""
    return check_number(name, dial, low=0, high=high, example=", e.g. what calibrate finds")


def check_dials(name: str, dials: object, *, high: float = math.inf) -> float | Floats:
    """Checks one price or threshold like `check_dial`, or an array of them, one per request."""
    if not isinstance(dials, np.ndarray) or dials.ndim != 1:
        return check_dial(name, dials, high=high)
    for value in (dials.min(initial=0.0), dials.max(initial=0.0)):
        check_dial(name, value, high=high)
    return dials


def log_price(price: float | Floats) -> float | Floats:
    """Returns the natural logarithm of one or several prices; minus infinity for 0.

    A single price goes through numpy too, so that a request gets the same decision alone and in a batch.
    """
    if isinstance(price, np.ndarray):
        with np.errstate(divide="ignore"):
            return np.log(price)
    return float(np.log(price)) if price > 0 else -math.inf


def check_flag(name: str, value: object) -> bool:
    """Returns the value if it is True or False; raises PolicyError for anything else, also for 0 and 1."""
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
    """Returns budgets as a tuple. Raises PolicyError unless they are ascending positive integers."""
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
    """Checks that no stored setting is missing or unknown, and parses them."""
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
