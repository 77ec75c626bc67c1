"""The policies in service, by name: reloading them, and the live scale of their vote weights.

What serves is never changed in place: reading a folder again gives a new `ServedPolicy`, and requests in
progress keep the one that they began with. A broken folder is refused, and the last good policy stays.

In this order: `SignalScales` and `ModelScales` (weights), `ServedPolicy`, and `PolicyRegistry`, which reads
and swaps them.
"""

import functools
import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from adacompute.answers import Tally, VoteWeights
from adacompute.answers.vote import SignalModel, transform_signal
from adacompute.config import ServeConfig
from adacompute.errors import AdacomputeError, ConfigError, PolicyError
from adacompute.policies import read_policy
from adacompute.policies.base import Policy, check_modes
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.chart import Chart, read_chart
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import load_bundled_chart
from adacompute.records import Budget, Sample
from adacompute.serve.pricing.pacer import SampleCosts
from adacompute.serve.pricing.start import find_bounds, find_menu, guess_start
from adacompute.serve.spending.ledger import Rates

__all__ = [
    "SINGLE",
    "ConfidenceScale",
    "ModelScales",
    "PolicyRegistry",
    "ServedPolicy",
]

MIN_SAMPLES = 20  # with fewer the policy's own scale is used
MEMORY = 2000  # samples that the running mean covers, about
MAX_MODELS = 16  # most recent models with a scale of their own; the others share one
_NAME_LENGTH = 200  # characters of a model's name that are compared
_MIN_MOVE = 0.01  # of the scale: smaller changes are ignored
_MAX_SAMPLE_RATIO = 8.0  # times the policy's own scale: the most that a single sample counts as
_MAX_SCALE_RATIO = 4.0  # the live scale stays within the policy's own times or divided by this
_MIN_SHIFT = 0.05  # spreads: smaller moves of a signal's centre or spread are ignored


class SignalScales:
    """The mean and the spread of each signal of live samples, on which a signal model is settled."""

    def __init__(self, base: SignalModel) -> None:
        self.base = base
        self._means = {name: [0, 0.0, 0.0] for name in base.names}  # count, mean, mean of squares
        self._is_settled = True  # whether the model was settled since the last sample

    def observe(self, sample: Sample) -> None:
        """Takes a sample with an answer into account, if it has signals."""
        values = None if sample.answer is None else self.base.read(sample)
        for name, value in zip(self.base.names, values or (), strict=False):
            if value is not None:
                self._is_settled = False
                means = self._means[name]
                bounded = self.base.bound(name, transform_signal(name, value))
                means[0] += 1
                means[1] += (bounded - means[1]) / min(means[0], MEMORY)
                means[2] += (bounded * bounded - means[2]) / min(means[0], MEMORY)

    def settle(self, previous: SignalModel) -> SignalModel:
        """The model on the live scale; `previous` until a centre or a spread has moved."""
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

    def rebase(self, base: SignalModel | None) -> "SignalScales | None":
        """What was observed so far, for another model: kept for the signals that both read."""
        rebased = None if base is None else SignalScales(base)
        if rebased is not None:
            kept = {name: list(means) for name, means in self._means.items() if name in rebased._means}
            rebased._means.update(
                {name: means for name, means in kept.items() if rebased._is_near(name, means)}
            )
            rebased._is_settled = False
        return rebased

    def _is_near(self, name: str, means: list[float]) -> bool:
        """Whether samples counted as this model counts them could have such a mean."""
        count, mean, _ = means
        return not count or abs(self.base.bound(name, mean) - mean) <= 1e-9 * max(1.0, abs(mean))

    def merge(self, other: "SignalScales") -> None:
        """Adds what other scales of the same model have observed."""
        for name, own in self._means.items():
            count, *theirs = other._means[name]
            own_count, other_count = min(own[0], MEMORY), min(count, MEMORY)
            if other_count:
                self._is_settled = False
                own[0] = own_count + other_count
                for k, value in enumerate(theirs, 1):
                    own[k] += (value - own[k]) * other_count / own[0]

    def state(self) -> dict[str, list[float]]:
        """Plain data, for JSON: of the signals that were seen."""
        return {name: list(means) for name, means in self._means.items() if means[0]}

    def restore(self, state: object) -> bool:
        """Continues from a state; False, and unchanged, if it isn't of this model's signals."""
        if not isinstance(state, Mapping) or not set(state) <= set(self._means):
            return False
        for name, means in state.items():
            if not isinstance(means, list) or len(means) != 3 or type(means[0]) is not int:
                return False
            if any(type(value) not in (int, float) or not math.isfinite(value) for value in means):
                return False
            if not 0 <= means[0] < 2**53 or means[2] < 0:
                return False
            if not self._is_near(name, means):
                return False
        self._means.update({name: list(means) for name, means in state.items()})
        self._is_settled = False
        return True


class ConfidenceScale:
    """How confident live samples are on average: the scale of vote weights.

    A policy learned its scale on other traffic, perhaps of another model. A running mean in constant
    memory follows live samples; votes get a new scale only once it has moved, so that the same votes
    weigh the same. It stays near the policy's own scale, whatever samples come: servers send
    placeholders such as -9999.
    """

    def __init__(self, base: VoteWeights) -> None:
        self.base = base
        self.count = 0  # samples that showed their signal
        self.mean = 0.0
        self._signals = None if base.model is None else SignalScales(base.model)
        self._weigh = base
        self._is_stale = True  # whether more was observed since the weights were computed

    def observe(self, samples: Iterable[Sample]) -> None:
        """Takes samples into account; those without the signal are ignored."""
        self._is_stale = True
        for sample in samples:
            if self._signals is not None:
                self._signals.observe(sample)
            value = sample.mean_logprob if self.base.signal == "logprob" else sample.entropy
            if value is not None and math.isfinite(value):
                ratio = min(max(value / self.base.scale, 0.0), _MAX_SAMPLE_RATIO)
                self.count += 1
                self.mean += (ratio * self.base.scale - self.mean) / min(self.count, MEMORY)

    def weigh(self) -> VoteWeights:
        """The present weights: the same object until the scale, or that of a signal, has moved."""
        if not self._is_stale:
            return self._weigh
        self._is_stale = False
        if self._signals is not None and self._weigh.model is not None:
            model = self._signals.settle(self._weigh.model)
            if model is not self._weigh.model:
                self._weigh = replace(self._weigh, model=model)
        base, previous = self.base.scale, self._weigh.scale
        if self.count < MIN_SAMPLES or not self.mean / base > 0:  # 0 would give votes no weight
            return self._weigh
        scale = base * min(max(self.mean / base, 1 / _MAX_SCALE_RATIO), _MAX_SCALE_RATIO)
        if abs(scale - previous) > _MIN_MOVE * abs(previous):
            self._weigh = replace(self._weigh, scale=scale)
        return self._weigh

    def rebase(self, base: VoteWeights) -> "ConfidenceScale":
        """What was observed so far, for another policy's weights: kept if they use the same signal."""
        rebased = ConfidenceScale(base)
        if base.signal == self.base.signal:
            ratio = min(max(self.mean / base.scale, 0.0), _MAX_SAMPLE_RATIO)
            rebased.count, rebased.mean = self.count, ratio * base.scale
        if self._signals is not None:
            rebased._signals = self._signals.rebase(base.model)
        return rebased

    def merge(self, other: "ConfidenceScale") -> None:
        """Adds what another scale of the same policy has observed."""
        self._is_stale = True
        own_count, other_count = min(self.count, MEMORY), min(other.count, MEMORY)
        if other_count:
            self.count = own_count + other_count
            self.mean += (other.mean - self.mean) * other_count / self.count
        if self._signals is not None and other._signals is not None:
            self._signals.merge(other._signals)

    def state(self) -> list[Any]:
        """Plain data, for JSON."""
        signals = {} if self._signals is None else self._signals.state()
        return [self.count, self.mean, *([signals] if signals else [])]

    def restore(self, state: object) -> bool:
        """Continues from a state; False, and unchanged, if it is invalid for this signal and policy."""
        if not isinstance(state, list) or len(state) not in (2, 3):
            return False
        count, mean, *signals = state  # what was stored before there were signals has none
        if type(count) is not int or not 0 <= count < 2**53 or type(mean) not in (int, float):
            return False
        if not (0 <= mean / self.base.scale <= _MAX_SAMPLE_RATIO * (1 + 1e-9) if count else mean == 0):
            return False
        if signals and (self._signals is None or not self._signals.restore(signals[0])):
            return False
        self.count, self.mean, self._is_stale = count, float(mean), True
        return True


class ModelScales:
    """A scale for each of the most recent models, and one for all others together.

    A model with too few samples uses that of the others.
    """

    def __init__(self, base: VoteWeights) -> None:
        self.base = base
        self._models: dict[str, ConfidenceScale] = {}  # the least recently used first
        self._others = ConfidenceScale(base)

    def observe(self, samples: Iterable[Sample], model: str = "") -> None:
        """Takes samples of a model into account."""
        model = model[:_NAME_LENGTH]
        scale = self._models.pop(model, None) or ConfidenceScale(self.base)
        self._models[model] = scale  # the last
        scale.observe(samples)
        scale.weigh()  # now, so that no request waits for it
        if len(self._models) > MAX_MODELS:
            self._others.merge(self._models.pop(next(iter(self._models))))

    def weigh(self, model: str = "") -> VoteWeights:
        """The present weights of a model's votes."""
        scale = self._models.get(model[:_NAME_LENGTH])
        return (self._others if scale is None or scale.count < MIN_SAMPLES else scale).weigh()

    def rebase(self, base: VoteWeights) -> "ModelScales":
        """What was observed so far, for another policy's weights: kept if they use the same signal."""
        rebased = ModelScales(base)
        rebased._models = {model: scale.rebase(base) for model, scale in self._models.items()}
        rebased._others = self._others.rebase(base)
        return rebased

    def state(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        models = {model: scale.state() for model, scale in self._models.items()}
        return {"signal": self.base.signal, "models": models, "others": self._others.state()}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Continues from a state, whole or not at all; False if it is of another signal."""
        models = state.get("models")
        if set(state) != {"signal", "models", "others"} or state["signal"] != self.base.signal:
            return False
        if not isinstance(models, Mapping) or len(models) > MAX_MODELS:
            return False
        restored = ModelScales(self.base)
        restored._models = {str(model): ConfidenceScale(self.base) for model in models}
        valid = restored._others.restore(state["others"])
        valid = valid and all(scale.restore(models[model]) for model, scale in restored._models.items())
        if valid:
            self._models, self._others = restored._models, restored._others
        return valid


class MenuScales:
    """A scale for each mode of a menu, on which its votes are weighed."""

    def __init__(self, base: VoteWeights) -> None:
        self.base = base
        self._modes = {name: ConfidenceScale(own) for name, own in base.modes if own.reads_tokens}
        self._weigh = base

    def observe(self, samples: Iterable[Sample], mode: str = "") -> None:
        """Takes samples of a mode into account."""
        if (scale := self._modes.get(mode)) is not None:
            scale.observe(samples)

    def weigh(self, _model: str = "") -> VoteWeights:
        """The present weights: the same object until the scale of a mode has moved."""
        modes = tuple(
            (name, self._modes[name].weigh() if name in self._modes else own) for name, own in self.base.modes
        )
        if any(new is not old for (_, new), (_, old) in zip(modes, self._weigh.modes, strict=True)):
            self._weigh = replace(self.base, modes=modes)
        return self._weigh

    def rebase(self, base: VoteWeights) -> "MenuScales":
        """What was observed so far of modes that another policy's weights have too."""
        rebased = MenuScales(base)
        for name, scale in rebased._modes.items():
            if name in self._modes:
                rebased._modes[name] = self._modes[name].rebase(scale.base)
        return rebased

    def state(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"modes": {name: scale.state() for name, scale in self._modes.items()}}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Continues from a state, whole or not at all; False if it is of other modes or signals."""
        modes = state.get("modes")
        if not isinstance(modes, Mapping) or set(modes) != set(self._modes):
            return False
        restored = {name: ConfidenceScale(scale.base) for name, scale in self._modes.items()}
        if not all(scale.restore(modes[name]) for name, scale in restored.items()):
            return False
        self._modes = restored
        return True


SINGLE = "single"  # the name of the policy of one sample and no vote
_SINGLE_POLICY = FixedPolicy(1.0)

_VALID_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_MAX_GUESSES = 256  # starting dials that are kept
_UNSURE_SAMPLES = 2.0  # a request on average, at most, before it is known what one costs
_VERSION_LENGTH = 12  # digits of a version


class ServedPolicy:
    """One policy in service. Policy and chart never change; only the scale of its weights is live."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        chart: Chart | None,
        version: str,
        scales: "ModelScales | MenuScales | None" = None,
    ) -> None:
        self.name = name
        self.policy = policy
        self.chart = chart
        self.version = version  # a short hash of what was read
        self.bounds = find_bounds(policy)  # None: it has no dial
        self.menu = find_menu(policy)  # None: it draws samples of one model
        self._guesses: dict[float, float] = {}  # by budget, the oldest first
        self._scales: ModelScales | MenuScales | None = None
        if (weigh := policy.weigh) is not None:
            kind = MenuScales if weigh.modes else ModelScales
            self._scales = scales.rebase(weigh) if isinstance(scales, kind) else kind(weigh)

    def weigh(self, model: str = "") -> VoteWeights | None:
        """The weights of the policy's votes, on the scale of a model's live samples so far."""
        return None if self._scales is None else self._scales.weigh(model)

    def observe(self, samples: Iterable[Sample], model: str = "") -> None:
        """Learns how confident live samples of a model are; with a menu, of a mode."""
        if self._scales is not None:
            self._scales.observe(samples, model)

    def convert_budget(
        self, average: Budget, costs: SampleCosts, rates: Rates, lengths: tuple[float, float]
    ) -> float:
        """A budget as the policy counts it: in samples, or in the unit of its menu.

        A sample costs as those before it and those that the policy was fitted on; else as `lengths` says,
        a guess of the tokens of a prompt and of a response.
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
        """The starting dial for a budget, the lowest and the highest; None: the policy has no dial.

        The budget is in samples; for a policy over a menu, in the unit of its menu.
        """
        if self.bounds is None:
            return None
        _, low, high = self.bounds
        dial = None if self.chart is None or self.menu is not None else self.chart.price_at(budget)
        if dial is None and (dial := self._guesses.get(budget)) is None:
            dial = self._guesses[budget] = guess_start(self.policy, budget)
            if len(self._guesses) > _MAX_GUESSES:  # clients choose budgets, so their number must be bounded
                del self._guesses[next(iter(self._guesses))]
        return min(high, max(low, dial)), low, high

    def describe_foreign_model(self, models: Sequence[str]) -> str:
        """That it was fitted on another model than those served, in words; "" if not, or not known."""
        fitted = self.policy.source_model
        if not fitted or not models or fitted in models:
            return ""
        return (
            f"policy {self.name} was fitted on samples of {fitted!r:.80}, and {models[0]!r:.80} is served: "
            "record some of its traffic (--record), and fit again"
        )

    def state(self) -> dict[str, Any] | None:
        """The live scales as plain data; None: votes have no weights."""
        return None if self._scales is None else self._scales.state()

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Continues with stored scales; False if they aren't of this policy's signal."""
        return self._scales is not None and self._scales.restore(state)

    def replace_with(self, other: "ServedPolicy") -> "ServedPolicy":
        """`other` in place of this one, with this one's live scales."""
        return ServedPolicy(
            other.name, other.policy, chart=other.chart, version=other.version, scales=self._scales
        )

    def is_same(self, other: "ServedPolicy") -> bool:
        """Whether nothing that was read differs."""
        return (self.version, self.chart) == (other.version, other.chart)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReading:
    """What all folders held at one time."""

    number: int  # of the reading, rising
    policies: Mapping[str, ServedPolicy]
    refused: Mapping[str, AdacomputeError]  # by the policy's name
    remarks: Mapping[str, str]  # e.g. that a chart is not used


class PolicyRegistry:
    """Policies by name. Made by `open`; to reload, `read` in a thread and `swap` in the event loop."""

    def __init__(
        self,
        folders: Mapping[str, str],
        *,
        fixed: float | None = None,
        policy: Policy | None = None,
        modes: Sequence[str] = (),
    ) -> None:
        """`folders` by name, the default policy's first; "" is the prior in the package.

        `fixed` is the dial of all policies, whatever its kind; None: it moves. `policy` stands in the place
        of the default policy's folder. `modes` are those of the gateway's menu; none: it has no menu.
        """
        self._modes = tuple(modes)
        self._folders = dict(folders)
        self._policy = policy
        self._fixed = fixed
        self.default = next(iter(self._folders))
        self.names = (*self._folders, SINGLE)
        self.remarks: tuple[str, ...] = ()  # about the first reading
        self._numbers = itertools.count(1)
        self._number = 0  # of the reading in service
        self._served: dict[str, ServedPolicy] = {}

    @classmethod
    def open(
        cls, settings: ServeConfig, policy: Policy | None = None, *, modes: Sequence[str] = ()
    ) -> "PolicyRegistry":
        """Reads every policy that the settings name; raises the first error.

        `policy` is the default one, if it is in memory and not in a folder. `modes` are those of the menu.
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
        registry = cls(folders, fixed=fixed, policy=policy, modes=modes)
        reading = registry.read()
        for error in reading.refused.values():
            raise error
        single = ServedPolicy(SINGLE, _SINGLE_POLICY, chart=None, version=SINGLE)
        registry._served = {**reading.policies, SINGLE: single}
        registry._number = reading.number
        registry.remarks = tuple(reading.remarks.values())
        return registry

    def get(self, name: str) -> ServedPolicy:
        """The policy of that name as it serves now; PolicyError if there is none."""
        served = self._served.get(name)
        if served is None:
            raise PolicyError(f"there is no policy {name!r:.80} here; there are {', '.join(self.names)}")
        return served

    def read(self) -> PolicyReading:
        """All folders as they are now, for `swap`: slow, and changes nothing."""
        number = next(self._numbers)
        policies, refused, remarks = {}, {}, {}
        for name, folder in self._folders.items():
            try:
                in_memory = self._policy if name == self.default else None
                policies[name], remark = (
                    _read_policy(name, folder) if in_memory is None else (_serve_policy(name, in_memory), "")
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
        """Puts a reading into service, except what was refused; one line for each change and refusal."""
        if reading.number <= self._number:  # a later reading was faster
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

    def replace_default(self, policy: Policy) -> None:
        """Puts a policy that is in memory in the place of the default one, which was in memory as well."""
        new = _serve_policy(self.default, policy)
        self._policy = policy
        self._served = {**self._served, self.default: self._served[self.default].replace_with(new)}

    def state(self) -> dict[str, Any]:
        """The live scales by policy, as plain data."""
        states = {name: served.state() for name, served in self._served.items()}
        return {name: state for name, state in states.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Continues with stored scales; one line for each that can't be used."""
        lines = []
        for name, scale in state.items():
            served = self._served.get(name)
            if served is None or not isinstance(scale, Mapping) or not served.restore(scale):
                lines.append(
                    f"policy {name:.80}: the stored scale of its weights is not used; it is learned again"
                )
        return lines


def _read_folders(settings: ServeConfig) -> dict[str, str]:
    """Folders by name, the default first; ConfigError for an invalid name."""
    first = "stopping"
    if settings.policy:
        # not resolved: a link such as `current` keeps its own name, wherever it points
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


def _read_policy(name: str, folder: str) -> tuple[ServedPolicy, str]:
    """One folder's policy, and a remark on it; PolicyError if it can't serve."""
    if not folder:
        return ServedPolicy(name, StoppingPolicy(), chart=load_bundled_chart(), version="bundled"), ""
    policy, sha256 = read_policy(folder)
    _check_servable(policy, folder)
    chart, remark = None, ""
    try:
        chart = read_chart(folder, policy=sha256)
    except PolicyError as exc:  # it serves without a chart as well
        remark = f"{exc}; until then it serves without a chart"
    if chart is not None and chart.dial != policy.dial:
        chart, remark = None, f"{folder}: its chart is of another dial; fit again, or remove it"
    return ServedPolicy(name, policy, chart=chart, version=sha256[:_VERSION_LENGTH]), remark


def _serve_policy(name: str, policy: Policy) -> ServedPolicy:
    """A policy that is in memory. Its own chart, if it has one, lies in a folder, so its dial is guessed."""
    _check_servable(policy, f"policy {policy.kind}")
    chart = load_bundled_chart() if _is_bundled(policy) else None
    return ServedPolicy(name, policy, chart=chart, version="in memory")


def _is_bundled(policy: Policy) -> bool:
    """Whether it is the prior in the package, as it comes."""
    if not isinstance(policy, StoppingPolicy) or policy.pool_model_ is not None:
        return False
    bundled = StoppingPolicy()
    return policy.settings() == bundled.settings() and policy.prior_ is bundled.prior_


def _check_servable(policy: Policy, place: str) -> None:
    """Asks it once, so that one that can't decide is refused now and not at the first request."""
    if policy.kind == "oracle" or policy.only_compared:
        reason = "is only compared with" if policy.only_compared else "knows the answers of its pool alone"
        raise PolicyError(f"{place}: {policy.kind} {reason}, so it can't serve; fit another policy")
    try:
        _decide(policy, {None: None, "price": 0.02, "threshold": 0.5}[policy.dial])
    except PolicyError as exc:
        raise PolicyError(f"{place}: can't decide: {exc}") from exc


def _check_fixed(served: ServedPolicy, fixed: float | None) -> None:
    """ConfigError if the operator's fixed dial is invalid for the policy."""
    policy = served.policy
    if fixed is None or policy.dial is None:
        return
    try:
        _decide(policy, fixed)
    except PolicyError as exc:
        raise ConfigError(
            f"price {fixed:g} is not a dial of policy {served.name!r}, which turns a {policy.dial}: {exc}"
        ) from exc


def _decide(policy: Policy, dial: float | None) -> None:
    menu = find_menu(policy)
    mode = None if menu is None else menu.names[0]
    samples = [Sample(answer=answer, mode=mode) for answer in ("1", "2")]
    for tally in (Tally(weigh=policy.weigh), Tally.of(samples, weigh=policy.weigh)):
        policy.next("What is 1 + 1?", tally, dial)
