"""Keeps the policies in service by name, reloads them, and scales their vote weights to live traffic.

A vote weight compares a sample's confidence with a *scale*, the confidence of an average sample. In a policy
in service, only these scales change. Reloading a folder makes a new `ServedPolicy`; requests in flight keep
the old one. If a folder is broken, its last good policy stays in service.
"""

import copy
import functools
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import SignalModel, transform_signal
from adacompute.client.modes import read_modes_file
from adacompute.config import Config, ServeConfig
from adacompute.errors import AdacomputeError, BudgetInvalid, ConfigError, PolicyError
from adacompute.policies import read_policy
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.chart import Chart, find_quality_cost, read_chart
from adacompute.policies.modes import check_modes
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.policies.quality import QualityCost
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.critical_price import WAVE_QUANTILES
from adacompute.policies.stopping.prior import load_bundled_chart
from adacompute.policies.votes import Floats
from adacompute.pool import Mode
from adacompute.pool.modes import ModeSet
from adacompute.records import Budget, Sample, names_quality
from adacompute.serve.pricing.pacer import Bounds, MeanCosts
from adacompute.serve.spending.ledger import Rates

MIN_SAMPLES = 20  # with fewer live samples, confidence is compared with its mean in the training data
MEMORY = 2000  # running means of samples' confidence cover about this number of recent samples
MAX_MODELS = 16  # maximum number of models whose mean confidence is kept
_NAME_LENGTH = 200  # models whose names have the same first 200 characters share a mean confidence
_MIN_MOVE = 0.01  # vote weights only change if the mean confidence moves by more than this share
_MAX_SAMPLE_RATIO = 8.0  # a sample's confidence is limited to this multiple of the mean in the training data
# live mean confidence counts as at most this multiple of the training data's mean, and at least the inverse
_MAX_SCALE_RATIO = 4.0
# a signal counts as changed if its mean or spread moves by more than this share of its spread
_MIN_SHIFT = 0.05


class SignalScales:
    """Adapts a `SignalModel` (vote weights from confidence signals) to each signal's live mean and spread."""

    def __init__(self, base: SignalModel) -> None:
        self.base = base
        # signal's name -> [number of samples, mean, mean of squares]
        self._means = {name: [0, 0.0, 0.0] for name in base.names}
        self._bounds = {name: base.find_bounds(name) for name in base.names}
        self._is_settled = True  # False if samples were added since the signal model was last refitted

    def observe(self, sample: Sample) -> None:
        """Adds the signals of a sample with an answer; ignores other samples."""
        values = None if sample.answer is None else self.base.read(sample)
        for (name, means), value in zip(self._means.items(), values or (), strict=False):
            if value is not None:
                self._is_settled = False
                low, high = self._bounds[name]
                bounded = min(high, max(low, transform_signal(name, value)))
                means[0] += 1
                means[1] += (bounded - means[1]) / min(means[0], MEMORY)
                means[2] += (bounded * bounded - means[2]) / min(means[0], MEMORY)

    def settle(self, previous: SignalModel) -> SignalModel:
        """Returns the model refitted to live samples, or `previous` if no signal has clearly moved."""
        if self._is_settled:
            return previous
        self._is_settled = True
        moments = {
            name: (count, count * mean, count * square) for name, (count, mean, square) in self._means.items()
        }
        moves = zip(*self.base.measure(moments), previous.centre, previous.spread, strict=True)
        for centre, spread, old, old_spread in moves:
            if max(abs(centre - old), abs(spread - old_spread)) > _MIN_SHIFT * old_spread:
                return self.base.settle(moments)
        return previous

    def _is_near(self, name: str, means: list[float]) -> bool:
        """Checks that the stored mean of a signal lies within the limits to which live values are clipped."""
        (count, mean, _), (low, high) = means, self.base.find_bounds(name)
        # because of rounding, a mean of values at a limit may be slightly beyond it
        tolerance = 1e-9 * max(1.0, abs(mean))
        return not count or low - tolerance <= mean <= high + tolerance

    def state(self) -> dict[str, list[float]]:
        """Returns the means of all observed signals as plain data for JSON."""
        return {name: list(means) for name, means in self._means.items() if means[0]}

    def restore(self, state: object) -> None:
        """Continues from stored means; skips invalid ones, and signals that the policy doesn't use."""
        for name, means in state.items() if isinstance(state, Mapping) else ():
            numbers = [number for number in means if _is_finite(number)] if isinstance(means, list) else []
            if name not in self._means or len(numbers) != 3 or type(numbers[0]) is not int:
                continue
            if 0 <= numbers[0] < 2**53 and numbers[2] >= 0 and self._is_near(name, numbers):
                self._means[name], self._is_settled = numbers, False


def _is_finite(number: object) -> bool:
    return type(number) in (int, float) and math.isfinite(number)  # type: ignore[arg-type]


class ConfidenceScale:
    """Adapts the scale of vote weights to the running mean of the live samples' confidence.

    A policy's own scale is the mean confidence in its training data, which may be from another model. The
    scale changes only if the running mean has clearly moved, so samples of equal confidence usually weigh the
    same. It stays within a factor of 4 of the policy's own: servers may send placeholders such as -9999.
    """

    def __init__(self, base: VoteWeights) -> None:
        self.base = base
        self.count = 0  # number of samples with the confidence signal
        self.mean = 0.0
        self.weights = base  # current vote weights; a new object replaces them only if the scale changes
        self._signals = None if base.model is None else SignalScales(base.model)

    def observe(self, samples: Iterable[Sample]) -> None:
        """Adds samples; ignores those without the confidence signal."""
        for sample in samples:
            if self._signals is not None:
                self._signals.observe(sample)
            value = sample.mean_logprob if self.base.signal == "logprob" else sample.entropy
            if value is not None and math.isfinite(value):
                ratio = min(max(value / self.base.scale, 0.0), _MAX_SAMPLE_RATIO)
                self.count += 1
                self.mean += (ratio * self.base.scale - self.mean) / min(self.count, MEMORY)
        self._settle()

    def _settle(self) -> None:
        """Updates the vote weights if the confidence of live samples has clearly changed."""
        if self._signals is not None and self.weights.model is not None:
            model = self._signals.settle(self.weights.model)
            if model is not self.weights.model:
                self.weights = replace(self.weights, model=model)
        base, previous = self.base.scale, self.weights.scale
        # a scale of 0 isn't usable: votes would have no weight
        if self.count < MIN_SAMPLES or not self.mean / base > 0:
            return
        scale = base * min(max(self.mean / base, 1 / _MAX_SCALE_RATIO), _MAX_SCALE_RATIO)
        if abs(scale - previous) > _MIN_MOVE * abs(previous):
            self.weights = replace(self.weights, scale=scale)

    def state(self) -> list[Any]:
        """Returns the means behind the scale as plain data for JSON."""
        return [self.count, self.mean, {} if self._signals is None else self._signals.state()]

    def restore(self, state: object) -> bool:
        """Continues from a stored state; returns False, and changes nothing, if it is invalid."""
        if not isinstance(state, list) or len(state) != 3:
            return False
        count, mean, signals = state
        if type(count) is not int or not 0 <= count < 2**53 or not _is_finite(mean):
            return False
        if not (0 <= mean / self.base.scale <= _MAX_SAMPLE_RATIO * (1 + 1e-9) if count else mean == 0):
            return False
        if self._signals is not None:
            self._signals.restore(signals)
        self.count, self.mean = count, float(mean)
        self._settle()
        return True


class LiveScales:
    """Keeps a scale of vote weights for each mode, or for each recently used model if there are no modes."""

    def __init__(self, base: VoteWeights) -> None:
        self.base = base
        self._scales: dict[str, ConfidenceScale] = {}  # mode or model -> its scale, least recently used first
        self._weigh = base

    def observe(self, samples: Iterable[Sample], name: str = "") -> None:
        """Adds samples of the model or mode `name`."""
        name = name[:_NAME_LENGTH]
        if (scale := self._scales.pop(name, None) or self._make_scale(name)) is not None:
            self._scales[name] = scale  # adding it again makes it the most recently used
            scale.observe(samples)
        if len(self._scales) > MAX_MODELS and not self.base.modes:
            del self._scales[next(iter(self._scales))]

    def _make_scale(self, name: str) -> ConfidenceScale | None:
        """Returns a new scale; None for a mode whose vote weights don't use token probabilities."""
        if not self.base.modes:
            return ConfidenceScale(self.base)
        own = dict(self.base.modes).get(name)
        return ConfidenceScale(own) if own is not None and own.reads_tokens else None

    def weigh(self, model: str = "") -> VoteWeights:
        """Returns the current vote weights, as the same object until one of the scales changes."""
        if not self.base.modes:
            scale = self._scales.get(model[:_NAME_LENGTH])
            return self.base if scale is None or scale.count < MIN_SAMPLES else scale.weights
        scales = self._scales
        modes = tuple(
            (name, scales[name].weights if name in scales else own) for name, own in self.base.modes
        )
        if any(new is not old for (_, new), (_, old) in zip(modes, self._weigh.modes, strict=True)):
            self._weigh = replace(self.base, modes=modes)
        return self._weigh

    def state(self) -> dict[str, Any]:
        """Returns the scales by name, as plain data for JSON."""
        return {name: scale.state() for name, scale in self._scales.items()}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Restores stored scales, skips invalid ones; returns whether all were restored."""
        restored = {}
        for name, values in list(state.items())[-MAX_MODELS:]:
            scale = self._make_scale(name)
            if scale is not None and scale.restore(values):
                restored[name] = scale
        self._scales |= restored
        return len(restored) == len(state)


SINGLE = "single"  # name of the built-in policy with one sample and no vote
_SINGLE_POLICY = FixedPolicy(1.0)

_VALID_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_MAX_GUESSES = 256  # maximum number of budgets whose initial price or threshold is cached
_UNSURE_SAMPLES = 2.0  # maximum budget after conversion to samples, while the cost per sample is only guessed
_VERSION_LENGTH = 12  # number of hexadecimal digits in a policy's version
EXPLORED_SAMPLES = 8  # number of samples of each mode in a request that is picked at random to learn from
_START_THRESHOLD = 0.5
_START_PRICE = 0.02  # initial price: a sample is only drawn if it is expected to add this much accuracy
_BISECTIONS = 50
# an unfitted policy over several modes is rebuilt if a mode's cost has changed by this factor
_COST_RATIO = 1.5
_MIN_SPREAD = 0.1  # minimum divisor in `_share_above`, because the difference of two quantiles may be 0
_MIN_SAMPLE_PRICE, _MAX_SAMPLE_PRICE = 1e-6, 1.0  # beyond these, a price changes no decision
# lowest and highest price of compute for an unfitted policy, per sample of the most expensive mode
_CASCADE_PRICES = (1e-6, 1e4)


class ServedPolicy:
    """A policy in service. Its policy and chart don't change; only the scale of its vote weights does."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        chart: Chart | None,
        version: str,
        scales: LiveScales | None = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.chart = chart
        self.version = version  # a short hash of the policy's files, or e.g. "bundled"
        self.bounds = find_bounds(policy)  # (kind of dial, lowest, highest); None without a dial
        self.menu = find_modes(policy)  # modes to choose from; None if there is a single model
        self.names = () if self.menu is None else self.menu.names  # modes, cheapest first
        # the size of the cache is limited, because clients can name any budget
        self._guess_start = functools.lru_cache(_MAX_GUESSES)(functools.partial(guess_start, policy))
        self._scales = None if policy.weigh is None else LiveScales(policy.weigh)
        if self._scales is not None and scales is not None:
            self._scales.restore(scales.state())

    def weigh(self, model: str = "") -> VoteWeights | None:
        """Returns the policy's vote weights, scaled to a model's live samples so far."""
        return None if self._scales is None else self._scales.weigh(model)

    def observe(self, samples: Iterable[Sample], model: str = "") -> None:
        """Updates the scale of vote weights with live samples of a model or mode."""
        if self._scales is not None:
            self._scales.observe(samples, model)

    def convert_budget(
        self, average: Budget, costs: MeanCosts, rates: Rates, lengths: tuple[float, float]
    ) -> float:
        """Converts a budget to the policy's unit: samples, or the unit of its modes.

        The cost per sample is estimated from live samples and the policy's training data. If there are
        neither, it follows from `lengths`, a guess of (prompt tokens, response tokens) per sample.
        """
        target, unit, menu = average.amount, average.unit, self.menu
        if menu is not None and menu.unit == unit and (unit != "money" or menu.currency == average.currency):
            return target
        price = functools.partial(rates.price, unit=unit)
        recorded = None if self.chart is None or menu is not None else self.chart.sample_cost(target, price)
        cost = costs.estimate(unit, recorded)
        budget = target / (cost or price(*lengths) or 1.0)
        if menu is not None:
            return budget * (menu.modes[-1].cost or 1.0)
        return max(1.0, round(budget if cost else min(budget, _UNSURE_SAMPLES), 2))

    def find_start(self, budget: float) -> tuple[float, float, float] | None:
        """Returns the dial's (initial, lowest, highest) value for a budget; None if the policy has no dial.

        The budget is in samples, or with several modes in the unit of the modes' costs.
        """
        if self.bounds is None:
            return None
        _, low, high = self.bounds
        dial = None if self.chart is None or self.menu is not None else self.chart.price_at(budget)
        dial = self._guess_start(budget) if dial is None else dial
        return min(high, max(low, dial)), low, high

    def describe_foreign_model(self, models: Sequence[str]) -> str:
        """Returns a warning if the policy was fitted on a model that isn't served here; otherwise ""."""
        fitted = self.policy.source_model
        if not fitted or not models or fitted in models:
            return ""
        return (
            f"policy {self.name} was fitted on samples of {fitted!r:.80}, and {models[0]!r:.80} is served: "
            "record some of its traffic (--record), and fit again"
        )

    def state(self) -> dict[str, Any] | None:
        """Returns the scales of vote weights as plain data; None if votes aren't weighted."""
        return None if self._scales is None else self._scales.state()

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Restores stored scales of vote weights; returns whether this policy could use all of them."""
        return self._scales is not None and self._scales.restore(state)

    def replace_with(self, other: "ServedPolicy") -> "ServedPolicy":
        """Returns `other` to serve in place of this policy, with this policy's scales of vote weights."""
        return ServedPolicy(
            other.name, other.policy, chart=other.chart, version=other.version, scales=self._scales
        )

    def is_same(self, other: "ServedPolicy") -> bool:
        """Checks whether the other policy was loaded from files with the same content."""
        return (self.version, self.chart) == (other.version, other.chart)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReading:
    """The policies, errors and remarks from one reading of all policy folders."""

    number: int  # number of this reading; it increases each time the folders are read
    policies: Mapping[str, ServedPolicy]
    refused: Mapping[str, AdacomputeError]  # name of a refused policy -> why it was refused
    remarks: Mapping[str, str]  # policy's name -> remark about it for the log


class PolicyRegistry:
    """Keeps policies by name. To reload them, call `read` in a thread, then `swap` in the event loop."""

    def __init__(
        self,
        folders: Mapping[str, str],
        *,
        fixed: float | None = None,
        policy: Policy | None = None,
        modes: Sequence[str] = (),
        max_rounds: int = 0,
    ) -> None:
        """`folders` maps policy names to folders, the default policy first. "" means the built-in policy.

        `fixed` is the operator's fixed price or threshold for all policies; None if pacers adjust it.
        `policy`, if given, is the default policy, and isn't read from a folder. `modes` are the names of the
        gateway's modes; empty with a single upstream. `max_rounds` is the most rounds that stopping policies
        plan per request; 0: no limit.
        """
        self._max_rounds = max_rounds
        self._modes = tuple(modes)
        self._folders = dict(folders)
        self._policy = policy
        self._fixed = fixed
        self.default = next(iter(self._folders))
        self.names = (*self._folders, SINGLE)
        self._numbers = itertools.count(1)
        self._number = 0  # which reading of the folders the policies in service come from; 0: none yet
        self._served: dict[str, ServedPolicy] = {}

    @classmethod
    def open(
        cls, settings: ServeConfig, policy: Policy | None = None, *, modes: Sequence[str] = ()
    ) -> "PolicyRegistry":
        """Loads all policies in the settings; raises the first error.

        `policy`, if given, is the default policy, and isn't read from a folder.
        """
        fixed = settings.price if settings.price >= 0 else None
        folders = _read_folders(settings)
        if policy is not None:
            others = dict(list(folders.items())[1:])
            if policy.kind in others:
                raise ConfigError(
                    f"policies: {policy.kind!r} is the name of the default policy; give another name"
                )
            folders = {policy.kind: "", **others}
        registry = cls(folders, fixed=fixed, policy=policy, modes=modes, max_rounds=settings.max_rounds)
        reading = registry.read()
        for error in reading.refused.values():
            raise error
        single = ServedPolicy(SINGLE, _SINGLE_POLICY, chart=None, version=SINGLE)
        registry._served = {**reading.policies, SINGLE: single}
        registry._number = reading.number
        return registry

    def get(self, name: str) -> ServedPolicy:
        """Returns the policy now in service under this name; PolicyError if there is none."""
        served = self._served.get(name)
        if served is None:
            raise PolicyError(f"there is no policy {name!r:.80} here; there are {', '.join(self.names)}")
        return served

    def read(self) -> PolicyReading:
        """Loads all policy folders for `swap`. This is slow, and changes nothing."""
        number = next(self._numbers)
        policies, refused, remarks = {}, {}, {}
        for name, folder in self._folders.items():
            try:
                in_memory = self._policy if name == self.default else None
                policies[name], remark = (
                    _read_policy(name, folder, self._max_rounds)
                    if in_memory is None
                    else (_serve_policy(name, in_memory, self._max_rounds), "")
                )
                check_modes(policies[name].policy, self._modes, folder or f"policy {name}")
                _check_fixed(policies[name], self._fixed)
            except AdacomputeError as exc:
                refused[name] = exc
                policies.pop(name, None)
                continue
            if remark:
                remarks[name] = remark
        return PolicyReading(number=number, policies=policies, refused=refused, remarks=remarks)

    def swap(self, reading: PolicyReading) -> list[str]:
        """Puts newly read policies into service; returns one line per change or refused policy."""
        if reading.number <= self._number:  # policies from a later reading are already in service
            return []
        served, lines = dict(self._served), []
        for name, new in reading.policies.items():
            old = served[name]
            if not old.is_same(new):
                served[name] = old.replace_with(new)
                lines.append(f"policy {name}: {new.version} serves now, in place of {old.version}")
                if name in reading.remarks:
                    lines.append(f"policy {name}: {reading.remarks[name]}")
        for name, error in reading.refused.items():
            lines.append(f"policy {name}: {served[name].version} keeps serving: {error}")
        self._served, self._number = served, reading.number
        return lines

    def update_cascades(self, costs: Mapping[str, float]) -> bool:
        """Rebuilds an unfitted policy over several modes if their costs changed; returns whether they did."""
        old = self._served[self.default]
        if old.menu is None or not _are_far(costs, old.menu):
            return False
        self._policy = make_cascades(costs)
        new = _serve_policy(self.default, self._policy, self._max_rounds)
        self._served = {**self._served, self.default: old.replace_with(new)}
        return True

    def state(self) -> dict[str, Any]:
        """Returns each policy's scales of vote weights as plain data, by the policy's name."""
        states = {name: served.state() for name, served in self._served.items()}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Restores the scales of vote weights; returns a line for each policy with one that can't be used."""
        lines = []
        for name, scale in state.items():
            served = self._served.get(name)
            if served is None or not isinstance(scale, Mapping) or not served.restore(scale):
                lines.append(
                    f"policy {name:.80}: the stored scale of its weights is not used; it is learned again"
                )
        return lines


def settle_quality(config: Config) -> tuple[Config, QualityCost | None]:
    """Replaces a budget given as a quality by what this quality costs; BudgetInvalid if that is unknown."""
    settings = config.serve
    if not names_quality(settings.budget):
        return config, None
    found = find_quality_cost(str(settings.budget), settings.policy, margin=settings.margin / 100)
    if found.unit == "money" and settings.menu:
        _check_measured_prices(settings)
    return replace(config, serve=replace(settings, budget=found.budget)), found


def _check_measured_prices(settings: ServeConfig) -> None:
    """Raises BudgetInvalid if a mode's token prices have changed since the policy was measured."""
    listed = {mode.name: mode.endpoint.prices for mode in read_modes_file(Path(settings.menu)).modes}
    measured = read_policy(settings.policy)[0].mode_set
    for mode in () if measured is None else measured.modes:
        then, now = mode.prices, listed.get(mode.name)
        if then and now and (then.input, then.output) != (now.input, now.output):
            raise BudgetInvalid(
                f"budget '{settings.budget}' was measured at other prices of {mode.name!r} than those of "
                f"{settings.menu}; fit the policy again with --prices {settings.menu}"
            )


def _read_folders(settings: ServeConfig) -> dict[str, str]:
    """Returns policy folders by name, the default policy first; ConfigError for an invalid name."""
    first = "stopping"
    if settings.policy:
        # links aren't resolved: a link such as `current` keeps its own name
        first = _INVALID_CHARACTERS.sub("-", Path(os.path.abspath(settings.policy)).name)[:64] or "policy"  # noqa: PTH100
    folders = {_check_name(first, settings.policy): settings.policy}
    for text in settings.policies:
        name, mark, folder = (part.strip() for part in text.partition("="))
        if not mark or not folder or not _VALID_NAME.fullmatch(name):
            raise ConfigError(
                f"policies: {text!r:.200} is not NAME=FOLDER; give a name of up to 64 letters, digits, '_', "
                "'-' and '.', e.g. careful=policies/careful"
            )
        if name in folders:
            raise ConfigError(f"policies: {name!r} is given twice; give each policy a name of its own")
        folders[_check_name(name, text)] = folder
    return folders


def _check_name(name: str, setting: str) -> str:
    if name == SINGLE:
        raise ConfigError(
            f"policies: {setting!r:.200} would be named {SINGLE!r}, which is one sample without a vote; "
            "give another name"
        )
    return name


def _limit_rounds(policy: Policy, most: int) -> Policy:
    """Returns the policy, or a copy limited to `most` rounds; 0 means no limit."""
    if not most or not isinstance(policy, StoppingPolicy) or policy.ladder is not None:
        return policy
    limited = copy.copy(policy)
    limited.max_waves = min(most, policy.max_waves or most)
    return limited


def _read_policy(name: str, folder: str, most: int) -> tuple[ServedPolicy, str]:
    """Reads a policy from a folder, with a remark for the log; PolicyError if it can't be served."""
    if not folder:
        bundled = _limit_rounds(StoppingPolicy(), most)
        return ServedPolicy(name, bundled, chart=load_bundled_chart(), version="bundled"), ""
    policy, sha256 = read_policy(folder)
    _check_servable(policy, folder)
    chart, remark = None, ""
    try:
        chart = read_chart(folder, policy=sha256)
    except PolicyError as exc:  # a policy can be served without its chart (measured prices by budget)
        remark = f"{exc}; until then it serves without a chart"
    if chart is not None and not chart.rows:  # without measured prices by budget, a chart isn't used
        chart = None
    if chart is not None and chart.dial != policy.dial:
        chart, remark = None, f"{folder}: its chart is of another dial; fit again, or remove it"
    version = sha256[:_VERSION_LENGTH]
    return ServedPolicy(name, _limit_rounds(policy, most), chart=chart, version=version), remark


def _serve_policy(name: str, policy: Policy, most: int) -> ServedPolicy:
    """Prepares a policy without a folder. Only the unchanged built-in one has a chart (prices by budget)."""
    _check_servable(policy, f"policy {policy.kind}")
    chart = load_bundled_chart() if _is_bundled(policy) else None
    return ServedPolicy(name, _limit_rounds(policy, most), chart=chart, version="in memory")


def _is_bundled(policy: Policy) -> bool:
    """Checks whether the policy is the built-in one, unchanged."""
    if not isinstance(policy, StoppingPolicy) or policy.pool_model_ is not None:
        return False
    bundled = StoppingPolicy()
    return policy.settings() == bundled.settings() and policy.prior_ is bundled.prior_


def _check_servable(policy: Policy, place: str) -> None:
    """Calls the policy once, so that a broken one is refused now instead of at the first request."""
    if policy.kind == "oracle" or policy.only_compared:
        reason = "is only compared with" if policy.only_compared else "knows the answers of its pool alone"
        raise PolicyError(f"{place}: {policy.kind} {reason}, so it can't serve; fit another policy")
    try:
        _decide(policy, {None: None, "price": 0.02, "threshold": 0.5}[policy.dial])
    except PolicyError as exc:
        raise PolicyError(f"{place}: can't decide: {exc}") from exc


def _check_fixed(served: ServedPolicy, fixed: float | None) -> None:
    """Raises ConfigError if the operator's fixed price or threshold is invalid for the policy."""
    policy = served.policy
    if fixed is None or policy.dial is None:
        return
    try:
        _decide(policy, fixed)
    except PolicyError as exc:
        raise ConfigError(
            f"price {fixed:g} can't be used for policy {served.name!r}, which takes a {policy.dial}: {exc}"
        ) from exc


def _decide(policy: Policy, dial: float | None) -> None:
    menu = find_modes(policy)
    mode = None if menu is None else menu.names[0]
    samples = [Sample(answer=answer, mode=mode) for answer in ("1", "2")]
    for tally in (Tally(weigh=policy.weigh), Tally.of(samples, weigh=policy.weigh)):
        policy.next("What is 1 + 1?", tally, dial)


def find_bounds(policy: Policy) -> Bounds | None:
    """Returns the bounds of a policy's price or threshold; None if the policy has neither."""
    if policy.dial != "price":
        return None if policy.dial is None else (policy.dial, 0.0, 1.0)
    menu = find_modes(policy)
    if isinstance(policy, MenuPolicy) and policy.origin_ != "fitted" and menu is not None:
        # the modes' costs are only known once they are measured while serving, so the range of prices is wide
        return policy.dial, *_CASCADE_PRICES
    if menu is not None:
        costs = [cost for cost in menu.costs.tolist() if 0 < cost < math.inf] or [1.0]
        return policy.dial, _MIN_SAMPLE_PRICE / max(costs), _MAX_SAMPLE_PRICE / min(costs)
    return policy.dial, policy.convert_price(_MIN_SAMPLE_PRICE), policy.convert_price(_MAX_SAMPLE_PRICE)


def guess_start(policy: Policy, budget: float) -> float:
    """Guesses the initial price or threshold for a budget at which the policy hasn't been measured."""
    if policy.dial == "threshold":
        return _START_THRESHOLD
    menu = find_modes(policy)
    if menu is not None:
        return _guess_menu_price(policy, menu, budget)
    if not isinstance(policy, StoppingPolicy):
        return policy.convert_price(_START_PRICE)
    openings = policy.prior_.price_quantiles[:, : policy.longest - 1]
    low, high = math.log(_MIN_SAMPLE_PRICE), math.log(_MAX_SAMPLE_PRICE)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _estimate_cost(middle, openings) > budget else (low, middle)
    return policy.convert_price(math.exp(high))


def find_modes(policy: Policy) -> ModeSet | None:
    """Returns the modes that a policy chooses from; None if it samples from a single model."""
    menu = getattr(policy, "menu", None)
    return menu if isinstance(menu, ModeSet) and len(menu) > 1 else None


def make_cascades(costs: Mapping[str, float]) -> MenuPolicy:
    """Makes an unfitted policy over several modes, given the relative costs of their samples."""
    dearest = max(costs.values()) or 1.0
    order = sorted(costs, key=costs.__getitem__)  # modes of equal cost keep their order
    return MenuPolicy(ModeSet(modes=tuple(Mode(name=name, cost=costs[name] / dearest) for name in order)))


def _are_far(costs: Mapping[str, float], menu: ModeSet) -> bool:
    """Checks whether a mode's relative cost differs from the one in `menu` by a factor of 1.5 or more."""
    dearest = max(costs.values()) or 1.0
    pairs = [(costs[mode.name] / dearest, mode.cost) for mode in menu.modes]
    return any(
        new != old and not (old > 0 and 1 / _COST_RATIO < new / old < _COST_RATIO) for new, old in pairs
    )


def _guess_menu_price(policy: Policy, menu: ModeSet, budget: float) -> float:
    """Returns the price at which a policy over several modes met the budget on its training data."""
    if isinstance(policy, MenuPolicy) and len(policy.cost_) > 1:
        position = np.interp(budget, policy.cost_, -np.log(policy.prices_))
        return float(np.exp(-position))
    return _START_PRICE / max(float(np.min(menu.costs[menu.costs > 0], initial=math.inf)), 1e-12)


def _estimate_cost(log_price: float, openings: Floats) -> float:
    """Estimates the mean number of samples per request at a price.

    It is the sum of the shares of requests that draw a first sample, a second, etc. Each request has a
    highest price at which another sample pays. Column i of `openings` has quantiles of this price's logarithm
    after i + 1 samples. No share exceeds the one before it, because stopping is final.
    """
    share = 1.0
    total = 1.0
    for quantiles in openings.T:
        share = min(share, _share_above(log_price, quantiles))
        total += share
    return total


def _share_above(log_price: float, quantiles: Floats) -> float:
    """Returns the share of requests for which another sample pays at a price.

    Each request has a highest price at which another sample pays; `quantiles` are those of its logarithm.
    Beyond the last quantile, the share is extrapolated.
    """
    if log_price <= quantiles[-1]:
        return 1.0 - float(np.interp(log_price, quantiles, WAVE_QUANTILES, left=0.0))
    spread = max(_MIN_SPREAD, float(quantiles[-1] - quantiles[-2]))
    return (1 - WAVE_QUANTILES[-1]) * math.exp(-0.5 * float(log_price - quantiles[-1]) / spread)
