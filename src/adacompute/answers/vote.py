"""Counts votes one at a time (`Tally`) or all at once (`vote`), unweighted or weighted by confidence."""

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final, Literal, get_args

import msgspec

from adacompute.answers.equal import DEFAULT_TASK, Classes, Task
from adacompute.errors import TaskError, format_value
from adacompute.records import SIGNAL_NAMES, Sample

Signal = Literal["logprob", "entropy"]

# a vote weighs at most e^8 (about 3,000) times as much as an average vote, and at least 1/e^8 as much
EXPONENT_LIMIT = 8.0
WEIGHT_UNIT = 2**36  # weights are whole multiples of 2^-36, so that their sum is exact in any order


MODEL_SIGNALS: Final = ("logprob", *SIGNAL_NAMES)  # names of the signals that a `SignalModel` can use
DEFAULT_SIGNALS: Final = ("logprob", "tail", "answer_sum", "answer_entropy", "confidence")
NEED_ALTERNATIVES: Final = ("answer_entropy", "confidence", "confidence_tail", "confidence_window")
MAX_DEVIATION = 3.0  # a signal's value is clipped at this many standard deviations from the mean
# names of signals that are converted to logarithms, because most of their values are near 0
_LOGARITHMIC = ("answer_sum", "answer_least", "answer_entropy")
_LEAST = 1e-5  # added to a value before its logarithm is taken; smaller values are rounding errors
_FARTHEST = 10.0  # before refitting, values are clipped at this many standard deviations from the mean
_MAX_LOG_ODDS = 30.0  # log-odds are clipped at this value, where the probability is practically 0 or 1
# refitting changes a signal's spread (standard deviation) by at most this factor
_MAX_SPREAD_RATIO = 4.0
MIN_SETTLED = 20  # number of samples needed to refit a signal's centre and spread

Moments = Mapping[str, tuple[float, float, float]]  # signal -> (count, sum, sum of squares) of its values


def transform_signal(name: str, value: float) -> float:
    """Converts a signal to a `SignalModel`'s scale: to a logarithm if its values are mostly near 0."""
    return -math.log(_LEAST + abs(value)) if name in _LOGARITHMIC else value


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalModel:
    """Predicts by logistic regression how likely a sample is right, from the signals of its tokens.

    `log_odds` compares a sample with an average one: it sums (signal - centre) / spread * coefficient. A
    missing signal counts as average. Centre and spread depend on the language model and the traffic, so
    `settle` refits them to unlabelled samples. Coefficients are learned once; `bare` has the coefficients for
    samples without `top_logprobs`.

    >>> model = SignalModel(names=("tail",), centre=(-0.1,), spread=(0.1,), coefficients=(1.0,), bare=(1.0,))
    >>> from adacompute.records import Signals
    >>> model.log_odds(Sample(answer="4", signals=Signals(tail=-0.3))), model.log_odds(Sample(answer="4"))
    (-2.0, None)
    """

    names: tuple[str, ...]  # the signals that the model uses, all from MODEL_SIGNALS
    centre: tuple[float, ...]
    spread: tuple[float, ...]
    coefficients: tuple[float, ...]
    bare: tuple[float, ...]
    sharpness: float = 0.4  # a vote's weight is exp(sharpness * log-odds of being right)
    slope: float = 1.0  # calibrated log-odds are intercept + slope * log-odds
    intercept: float = 0.0

    def __post_init__(self) -> None:
        unknown = [name for name in self.names if name not in MODEL_SIGNALS]
        if unknown or len(set(self.names)) < len(self.names) or not self.names:
            raise TaskError(f"signals {self.names!r} can't be read; give some of {', '.join(MODEL_SIGNALS)}")
        for part in ("centre", "spread", "coefficients", "bare"):
            values = getattr(self, part)
            if len(values) != len(self.names):
                raise TaskError(f"{part} {values!r} of a signal model is not one number for each signal")
            for value in values:
                _check_number(part, value, above=0.0 if part == "spread" else -math.inf)
        _check_number("sharpness", self.sharpness, least=0.0)
        _check_number("slope", self.slope)
        _check_number("intercept", self.intercept)

    @property
    def reads_alternatives(self) -> bool:
        """Whether the model reads signals that need the endpoint's `top_logprobs`."""
        pairs = zip(self.names, self.coefficients, strict=True)
        return any(coefficient and name in NEED_ALTERNATIVES for name, coefficient in pairs)

    def read(self, sample: Sample) -> list[float | None] | None:
        """Returns a sample's signals in the order of `names`; None if it has only a log-probability."""
        if sample.signals is None:
            return None
        values: list[float | None] = []
        is_known = False
        for name in self.names:
            value = sample.mean_logprob if name == "logprob" else getattr(sample.signals, name)
            value = value if value is not None and math.isfinite(value) else None
            is_known = is_known or (value is not None and name != "logprob")
            values.append(value)
        return values if is_known else None

    def log_odds(self, sample: Sample) -> float | None:
        """Returns how much likelier the sample is right than an average one, as log-odds; None if unknown."""
        values = self.read(sample)
        if values is None:
            return None
        known = {name for name, value in zip(self.names, values, strict=True) if value is not None}
        coefficients = self.bare if known.isdisjoint(NEED_ALTERNATIVES) else self.coefficients
        total = 0.0
        for k, (name, value) in enumerate(zip(self.names, values, strict=True)):
            if value is not None:
                deviation = (transform_signal(name, value) - self.centre[k]) / self.spread[k]
                total += coefficients[k] * min(MAX_DEVIATION, max(-MAX_DEVIATION, deviation))
        return total

    def probability(self, sample: Sample) -> float | None:
        """Returns the calibrated probability that the sample is right; None if unknown."""
        odds = self.log_odds(sample)
        if odds is None:
            return None
        exponent = -(self.intercept + self.slope * odds)
        return 1.0 / (1.0 + math.exp(min(_MAX_LOG_ODDS, max(-_MAX_LOG_ODDS, exponent))))

    def find_bounds(self, name: str) -> tuple[float, float]:
        """Returns the (lowest, highest) value of a transformed signal; others are clipped before refitting.

        Otherwise, placeholders such as -9999 would move the centre.
        """
        k = self.names.index(name)
        far = _FARTHEST * self.spread[k]
        return self.centre[k] - far, self.centre[k] + far

    def settle(self, moments: Moments) -> "SignalModel":
        """Returns a model with centre and spread refitted for each signal that enough samples have."""
        centre, spread = self.measure(moments)
        return replace(self, centre=tuple(centre), spread=tuple(spread))

    def measure(self, moments: Moments) -> tuple[list[float], list[float]]:
        """Computes each signal's centre and spread from counts, sums and sums of squares."""
        centre, spread = list(self.centre), list(self.spread)
        for k, name in enumerate(self.names):
            count, total, squares = moments.get(name, (0.0, 0.0, 0.0))
            if count >= MIN_SETTLED:
                mean = total / count
                deviation = math.sqrt(max(0.0, squares / count - mean * mean))
                ratio = deviation / self.spread[k]
                centre[k] = mean
                spread[k] *= min(_MAX_SPREAD_RATIO, max(1 / _MAX_SPREAD_RATIO, ratio))
        return centre, spread

    def dump(self) -> dict[str, Any]:
        """Returns the model as plain JSON data."""
        return dict(msgspec.to_builtins(self))

    @classmethod
    def load(cls, value: object) -> "SignalModel":
        """Restores a model from what `dump` wrote."""
        try:
            return msgspec.convert(value, cls)
        except msgspec.ValidationError as exc:
            raise TaskError(f"{format_value(value)} is not a signal model: {exc}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreWeights:
    """Weighs a vote by a verifier's score: `exp(beta * z)`, where z is (score - centre) / spread.

    `beta` doesn't depend on the scale of the scores. If a vote is also weighted by the signals of its tokens,
    the two weights are multiplied.

    >>> ScoreWeights(beta=0.5, centre=2.0, spread=1.0).exponent(3.0)
    0.5
    """

    beta: float
    centre: float = 0.0  # mean of the scores
    spread: float = 1.0  # standard deviation of the scores

    def __post_init__(self) -> None:
        _check_number("beta", self.beta, least=0.0)
        _check_number("centre", self.centre)
        _check_number("spread", self.spread, above=0.0)

    def exponent(self, score: float) -> float:
        """Returns what a score adds to the logarithm of a vote's weight."""
        deviation = (score - self.centre) / self.spread
        return self.beta * min(MAX_DEVIATION, max(-MAX_DEVIATION, deviation))


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteWeights:
    """Weighs a vote by `exp(sharpness * (1 - m / scale))`, where m is the sample's value of `signal`.

    `scale` is the signal's value in an average sample: a mean log-probability per token (negative) or a mean
    entropy (positive). A sample with this value, or without the signal, weighs exactly 1.

    If there is a `model`, a sample with further signals weighs `exp(model.sharpness * log_odds)` instead. If
    there is a `score`, the weight is multiplied by a weight computed from the verifier's score of the sample.

    >>> weigh = VoteWeights(signal="logprob", scale=-0.25)
    >>> weigh.weight(Sample(answer="42", tokens=10, logprob=-2.5)), weigh.weight(Sample(answer="42"))
    (1.0, 1.0)
    """

    signal: Signal
    scale: float
    sharpness: float = 2.0
    model: SignalModel | None = None
    score: ScoreWeights | None = None
    factor: float = 1.0  # the weight of every vote is multiplied by this
    # (mode, how votes of its samples are weighted); the fields above apply to all other modes
    modes: "tuple[tuple[str, VoteWeights], ...]" = ()

    def __post_init__(self) -> None:
        _check_number("factor", self.factor, above=0.0)
        _check_number("sharpness", self.sharpness, least=0.0)
        _check_number("scale", self.scale)
        for name, value, kind in (("score", self.score, ScoreWeights), ("model", self.model, SignalModel)):
            if value is not None and not isinstance(value, kind):
                raise TaskError(
                    f"{name} {format_value(value)} can't weigh votes; give {kind.__name__}, or None"
                )
        if self.signal not in get_args(Signal):
            raise TaskError(f"signal {self.signal!r} is not known; give 'logprob' or 'entropy'")
        if self.scale >= 0 if self.signal == "logprob" else self.scale <= 0:
            sign = "negative" if self.signal == "logprob" else "positive"
            raise TaskError(
                f"scale {format_value(self.scale)} can't be an average {self.signal}; give a {sign} number"
            )

    def weight(self, sample: Sample) -> float:
        """Returns the weight of the sample's vote, a whole multiple of 2^-36."""
        return self.units(sample) / WEIGHT_UNIT

    @property
    def reads_alternatives(self) -> bool:
        """Whether weights depend on the endpoint's `top_logprobs`."""
        return self.signal == "entropy" or (self.model is not None and self.model.reads_alternatives)

    def units(self, sample: Sample) -> int:
        """Returns the weight of the sample's vote in whole units of 2^-36, so that sums are exact."""
        weights = self.get_mode(sample.mode)
        return scale_units(weights.own_units(sample), weights.factor)

    def get_mode(self, name: str | None) -> "VoteWeights":
        """Returns the weights for samples of one mode."""
        for mode, weights in self.modes:
            if mode == name:
                return weights
        return self

    def own_units(self, sample: Sample) -> int:
        """Returns the same weight as `units`, but not yet multiplied by `factor`."""
        exponent = self._compute_confidence(sample)
        score = None if self.score is None or sample.signals is None else sample.signals.score
        if self.score is not None and score is not None and math.isfinite(score):
            exponent = (0.0 if exponent is None else exponent) + self.score.exponent(score)
        if exponent is None:
            return WEIGHT_UNIT
        return round(math.exp(min(EXPONENT_LIMIT, max(-EXPONENT_LIMIT, exponent))) * WEIGHT_UNIT)

    def _compute_confidence(self, sample: Sample) -> float | None:
        """Computes the logarithm of the weight from the sample's tokens alone; None if unknown."""
        odds = None if self.model is None else self.model.log_odds(sample)
        if odds is not None and self.model is not None:
            return self.model.sharpness * odds
        m = _read_signal(sample, self.signal)
        return None if m is None else self.sharpness * (1.0 - m / self.scale)

    @property
    def reads_tokens(self) -> bool:
        """Whether weights depend on log-probabilities or entropies, rather than only on scores."""
        return self.sharpness > 0 or self.model is not None

    @classmethod
    def by_score(cls, score: ScoreWeights) -> "VoteWeights":
        """Makes weights that depend only on a verifier's score."""
        return cls(signal="logprob", scale=-1.0, sharpness=0.0, score=score)

    @classmethod
    def of(
        cls, samples: Iterable[Sample], signal: Signal = "logprob", *, sharpness: float = 2.0
    ) -> "VoteWeights | None":
        """Fits weights to unlabelled samples; None if no sample has the signal or all its values are 0."""
        if signal not in get_args(Signal):
            raise TaskError(f"signal {signal!r} is not known; give 'logprob' or 'entropy'")
        values = [m for m in (_read_signal(sample, signal) for sample in samples) if m is not None]
        scale = math.fsum(values) / len(values) if values else 0.0
        if not math.isfinite(scale) or (scale >= 0 if signal == "logprob" else scale <= 0):
            return None
        return cls(signal=signal, scale=scale, sharpness=sharpness)


def describe_votes(weigh: VoteWeights | None) -> str:
    """Describes in a few words what votes are weighted by.

    >>> describe_votes(None), describe_votes(VoteWeights(signal="logprob", scale=-0.25))
    ('plain votes', 'votes weighted by logprob')
    """
    if weigh is None:
        return "plain votes"
    each = [weights for _, weights in weigh.modes] or [weigh]
    parts = ["mode"] if weigh.modes else []
    parts += dict.fromkeys(weights.signal for weights in each if weights.reads_tokens)
    parts += ["score"] if any(weights.score is not None for weights in each) else []
    return f"votes weighted by {' and '.join(parts)}" if parts else "plain votes"


def scale_units(units: int, factor: float) -> int:
    """Multiplies a weight, in units of 2^-36, by a factor, and rounds the result."""
    return units if factor == 1.0 else round(units * factor)


def _read_signal(sample: Sample, signal: Signal) -> float | None:
    value = sample.mean_logprob if signal == "logprob" else sample.entropy
    return value if value is not None and math.isfinite(value) else None


def _check_number(
    name: str, value: object, *, above: float = -math.inf, least: float = -sys.float_info.max
) -> None:
    """Raises TaskError unless the number is finite, above `above` and at least `least`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not above < value or not least <= value <= sys.float_info.max:  # type: ignore[operator]
        bound = " above 0" if above == 0 else " from 0 up" if least == 0 else ""
        raise TaskError(f"{name} {format_value(value)} can't be used; give a number{bound}")


Ties = Literal["first", "share", "abstain"]
_TIES = get_args(Ties)
VoteItem = Sample | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """The outcome of a vote. `shares` sums to 1, or is empty if no answer wins."""

    # the winner, in the spelling seen first; None if no sample has an answer, or on a tie with ties="abstain"
    answer: str | None
    # winning answer -> 1.0; on a tie with ties="share", several answers win, and each has an equal share
    shares: dict[str, float]
    agreement: float  # the winner's share of the weight of all answers; 0.0 if there are none
    margin: float  # how far the winner leads the runner-up, in votes of average weight


@dataclass(slots=True)
class ModeVotes:
    """The votes of one mode's samples."""

    # class number of each sample's answer; -1 if it has none
    classes: list[int] = field(default_factory=list)
    # class number -> total weight of its votes, not multiplied by the mode's `factor`
    weights: Counter[int] = field(default_factory=Counter)

    @property
    def drawn(self) -> int:
        """How many samples the mode has, including those without an answer."""
        return len(self.classes)

    @property
    def counts(self) -> Counter[int]:
        """The unweighted number of votes for each class of equal answers."""
        return Counter(number for number in self.classes if number >= 0)


class Tally:
    """Counts the votes on one request: groups equal answers, and updates their counts with each sample.

    `ties` says which answer leads if the top two have the same weight: the one seen first (`"first"` and
    `"share"`), or none (`"abstain"`).

    >>> tally = Tally.of(["4", "5", None, "5.0"])
    >>> tally.leader, tally.first, tally.second, tally.drawn
    ('5', 2, 1, 4)
    """

    def __init__(
        self, *, task: Task = DEFAULT_TASK, weigh: VoteWeights | None = None, ties: Ties = "first"
    ) -> None:
        if ties not in _TIES:
            raise TaskError(f"ties {ties!r} is not known; give 'first', 'share' or 'abstain'")
        if weigh is not None and not isinstance(weigh, VoteWeights):
            raise TaskError(f"weigh {weigh!r} can't weigh votes; give VoteWeights, or None for plain votes")
        self.weigh = weigh  # None if votes are unweighted
        self.drawn = 0  # how many samples were counted, including those without an answer
        self.entropy: float | None = None  # mean entropy per token of the first sample; None if unknown
        self._classes = Classes(task)
        self._ties = ties
        self._spellings: list[str] = []  # the spelling of each group of equal answers, in order of appearance
        self._counts: list[int] = []
        self._weights: list[int] = []  # the total weight of each group of equal answers, in units of 2^-36
        self._ranking: list[int] = []  # group numbers of the leading answer and of the runner-up
        self._silent = 0  # total weight of the samples without an answer
        self._cut_off = 0  # total weight of the samples that were cut off before they gave an answer
        self._placed: list[int] = []  # group number of each sample's answer; -1 if it abstained
        self._modes: dict[str, ModeVotes] = {}  # mode -> votes of its samples

    @classmethod
    def of(
        cls,
        items: Iterable[VoteItem],
        *,
        weigh: VoteWeights | None = None,
        task: Task = DEFAULT_TASK,
        ties: Ties = "first",
    ) -> "Tally":
        """Makes a tally of `Sample` records or answers, counted in order; `None` is an abstention."""
        tally = cls(task=task, weigh=weigh, ties=ties)
        if isinstance(items, str):
            raise TaskError(f"a tally is made of a list of answers, not of the one string {items[:60]!r}")
        for item in items:
            tally.add(item)
        return tally

    def add(self, item: VoteItem) -> None:
        """Counts one more sample or answer. A string is the answer itself; nothing is extracted from it."""
        answer, correct, weight = self._read_item(item)
        self._count_vote(item, answer, self._classes.place(answer, correct), weight)

    async def add_async(self, item: VoteItem) -> None:
        """Counts like `add`, but runs slow comparisons outside the event loop. Calls must not overlap."""
        answer, correct, weight = self._read_item(item)
        self._count_vote(item, answer, await self._classes.place_async(answer, correct), weight)

    def pass_over(self, item: VoteItem) -> None:
        """Counts a sample as an abstention of weight 0: for example, a text when others are tool calls."""
        self._count_vote(item, None, -1, 0)

    @property
    def answered(self) -> int:
        """How many samples gave an answer."""
        return sum(self._counts)

    @property
    def abstained(self) -> int:
        """How many samples have no answer."""
        return self.drawn - self.answered

    @property
    def votes(self) -> dict[str, int]:
        """Maps each answer, in its first spelling, to its number of votes; in order of first appearance."""
        return _sum_by_spelling(self._spellings, self._counts)

    @property
    def weights(self) -> dict[str, float]:
        """Maps each answer, in its first spelling, to its total weight; in order of first appearance."""
        units = _sum_by_spelling(self._spellings, self._weights)
        return {spelling: amount / WEIGHT_UNIT for spelling, amount in units.items()}

    @property
    def drawn_by_mode(self) -> dict[str, int]:
        """Maps each mode to the number of its samples that were counted."""
        return {mode: votes.drawn for mode, votes in self._modes.items()}

    def get_mode_votes(self, mode: str) -> ModeVotes:
        """Returns the votes of one mode's samples."""
        return self._modes.get(mode) or ModeVotes()

    def find_mode_leader(self, mode: str) -> str | None:
        """Returns the leading answer among the samples of one mode; None if none of them has an answer."""
        weights = self.get_mode_votes(mode).weights
        return self._spellings[max(weights, key=lambda number: weights[number])] if weights else None

    @property
    def class_weights(self) -> Sequence[int]:
        """The total weight of each distinct answer, in units of 2^-36, in order of first appearance."""
        return tuple(self._weights)

    @property
    def classes(self) -> Sequence[int]:
        """The class number of each sample's answer, in the order counted; -1 if the sample abstained."""
        return tuple(self._placed)

    @property
    def leader(self) -> str | None:
        """The answer with the highest weight so far; None if none, or on a tie with ties="abstain"."""
        is_tied = self._ties == "abstain" and len(self._ranking) > 1 and self.margin == 0.0
        return None if not self._ranking or is_tied else self._spellings[self._ranking[0]]

    @property
    def winner(self) -> str | None:
        """The leading answer; None if samples without an answer outweigh it.

        >>> Tally.of(["4", None]).winner, Tally.of(["4", None, None]).winner
        ('4', None)
        """
        return None if self.is_outweighed else self.leader

    @property
    def is_outweighed(self) -> bool:
        """Whether samples without an answer outweigh the leading answer.

        Samples that were cut off are left out of the comparison.
        """
        return bool(self._ranking) and self._weights[self._ranking[0]] < self._silent - self._cut_off

    @property
    def winners(self) -> list[str]:
        """All answers that have the highest weight."""
        best = self._get_ranked(0, self._weights)
        return [s for s, weight in zip(self._spellings, self._weights, strict=True) if weight == best]

    @property
    def supporters(self) -> list[int]:
        """The indices of the samples that gave the leading answer, in the order counted."""
        return [place for place, number in enumerate(self._placed) if number in self._ranking[:1]]

    @property
    def first(self) -> int:
        """The unweighted votes for the first answer with the highest weight, even on a tie; 0 if none."""
        return self._get_ranked(0, self._counts)

    @property
    def second(self) -> int:
        """The unweighted votes for the answer with the second-highest weight; 0 if there is none."""
        return self._get_ranked(1, self._counts)

    @property
    def margin(self) -> float:
        """How far the leading answer is ahead of the runner-up, in votes of average weight."""
        return (self._get_ranked(0, self._weights) - self._get_ranked(1, self._weights)) / WEIGHT_UNIT

    @property
    def agreement(self) -> float:
        """The leading answer's share of the weight of all answers, from 0 to 1; 0.0 if there are none."""
        return self._weights[self._ranking[0]] / sum(self._weights) if self._ranking else 0.0

    @property
    def support(self) -> float:
        """The leading answer's share of the weight of all samples, with or without an answer, from 0 to 1.

        >>> Tally.of(["4", "4", "5", None]).support
        0.5
        """
        every = sum(self._weights) + self._silent
        return self._weights[self._ranking[0]] / every if self._ranking else 0.0

    @property
    def kinds(self) -> int:
        """The number of distinct answers so far."""
        return len(self._counts)

    @property
    def lead(self) -> float:
        """The weight of the leading answer, in votes of average weight; 0.0 if there is none."""
        return self._get_ranked(0, self._weights) / WEIGHT_UNIT

    @property
    def runner(self) -> float:
        """The weight of the runner-up, in votes of average weight; 0.0 if there is none."""
        return self._get_ranked(1, self._weights) / WEIGHT_UNIT

    @property
    def total(self) -> float:
        """The total weight of all answers, in votes of average weight."""
        return sum(self._weights) / WEIGHT_UNIT

    @property
    def run(self) -> int:
        """How many samples at the end gave the same answer; 0 if the last sample gave none."""
        last = self._placed[-1] if self._placed else -1
        return sum(1 for _ in takewhile(last.__eq__, reversed(self._placed))) if last >= 0 else 0

    def _get_ranked(self, rank: int, amounts: list[int]) -> int:
        """Returns the item of `amounts` for the leading answer (rank 0) or runner-up (rank 1); 0 if none."""
        return amounts[self._ranking[rank]] if rank < len(self._ranking) else 0

    def _read_item(self, item: VoteItem) -> tuple[str | None, float | None, int]:
        if isinstance(item, Sample):
            return item.answer, item.correct, WEIGHT_UNIT if self.weigh is None else self.weigh.units(item)
        if item is None or isinstance(item, str):
            return item, None, WEIGHT_UNIT
        raise TaskError(
            f"{format_value(item)} is not a vote; give an answer (a string), None to abstain, or a Sample"
        )

    def _count_vote(self, item: VoteItem, answer: str | None, number: int, weight: int) -> None:
        if isinstance(item, Sample):
            self._note_sample(item, number if answer is not None else -1, weight)
        self.drawn += 1
        self._placed.append(number)
        if answer is None:
            self._silent += weight
            return
        if number == len(self._counts):
            self._spellings.append(answer)
            self._counts.append(0)
            self._weights.append(0)
        self._counts[number] += 1
        self._weights[number] += weight
        # weights only grow, so the new top two are among the old top two and the answer just counted
        self._ranking = sorted({*self._ranking, number}, key=lambda each: (-self._weights[each], each))[:2]

    def _note_sample(self, sample: Sample, number: int, weight: int) -> None:
        if not self._placed:
            self.entropy = sample.entropy
        if sample.answer is None and sample.finished is False:
            self._cut_off += weight
        if sample.mode is None:
            return
        votes = self._modes.setdefault(sample.mode, ModeVotes())
        votes.classes.append(number)
        if number >= 0:
            weigh = None if self.weigh is None else self.weigh.get_mode(sample.mode)
            votes.weights[number] += WEIGHT_UNIT if weigh is None else weigh.own_units(sample)


def vote(
    answers: Iterable[VoteItem],
    *,
    ties: Ties = "first",
    weigh: VoteWeights | None = None,
    task: Task = DEFAULT_TASK,
) -> Vote:
    """Takes a vote among `Sample` records or answers; `None` is an abstention.

    >>> vote(["4", "5"], ties="share").shares
    {'4': 0.5, '5': 0.5}
    """
    tally = Tally.of(answers, weigh=weigh, task=task, ties=ties)
    winners = tally.winners if ties == "share" else [tally.leader] if tally.leader is not None else []
    shares = {winner: count / len(winners) for winner, count in Counter(winners).items()}
    return Vote(answer=tally.leader, shares=shares, agreement=tally.agreement, margin=tally.margin)


def _sum_by_spelling(spellings: list[str], amounts: list[int]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for spelling, amount in zip(spellings, amounts, strict=True):
        # two groups may have the same spelling but different grades
        totals[spelling] = totals.get(spelling, 0) + amount
    return totals


def pick_representative(samples: Sequence[Sample], tally: Tally, *, modes: Sequence[str] = ()) -> int | None:
    """Returns the index of the most confident sample that gave the leading answer; None if no answer leads.

    `tally` must have counted these samples in this order. If `modes` are given, cheapest first, only samples
    of the most expensive mode with the leading answer are considered. A sample that was cut off is chosen
    only if there is no other. Without log-probabilities, the first sample is chosen.

    >>> from adacompute.records import Sample
    >>> samples = [Sample(answer="4", tokens=2, logprob=-2.0), Sample(answer="4", tokens=2, logprob=-0.1)]
    >>> pick_representative(samples, Tally.of(samples))
    1
    """
    if tally.leader is None:
        return None
    rank_of_mode = {mode: rank for rank, mode in enumerate(modes)}
    return max(
        tally.supporters,
        key=lambda place: (
            rank_of_mode.get(samples[place].mode or "", -1),
            *_rank_sample(samples[place]),
            -place,
        ),
    )


def _rank_sample(sample: Sample) -> tuple[bool, float]:
    confidence = sample.mean_logprob
    return sample.finished is not False, float("-inf") if confidence is None else confidence
