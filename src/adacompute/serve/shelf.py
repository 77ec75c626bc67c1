"""The policies in service, by their names, and reading them anew. Knows nothing of requests or of pacing.

What serves is never changed in place: a folder that is read anew gives a new `Served`, and requests under way
keep the one that they began with. A broken folder is refused, and the last good policy keeps serving.
"""

import itertools
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adacompute.answers import Tally, Weigh
from adacompute.config import ServeConfig
from adacompute.errors import AdacomputeError, ConfigError, PolicyError
from adacompute.policies.base import Policy
from adacompute.policies.chart import Chart, read_chart
from adacompute.policies.oneshot import FixedPolicy
from adacompute.policies.registry import read_policy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import bundled_chart
from adacompute.records import Sample
from adacompute.serve.scale import Scales
from adacompute.serve.starts import bounds_of, guessed

__all__ = ["SINGLE", "Reading", "Served", "Shelf"]

SINGLE = "single"  # the name of the policy of one sample and no vote

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)
_ODD = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)
_SHORT = 12  # digits of a version
_SHUT = ("oracle", "shuffled")  # kinds that know the answers of a pool, and nothing of a new prompt


class Served:
    """One policy in service. The policy and its chart stay as they are; only its scale of weights is live."""

    def __init__(
        self, name: str, policy: Policy, *, chart: Chart | None, version: str, scales: Scales | None = None
    ) -> None:
        self.name = name
        self.policy = policy
        self.chart = chart
        self.version = version  # of what was read, short
        self.bounds = bounds_of(policy)  # of its dial; None: it has none
        self._guesses: dict[float, float] = {}  # by budget, of which there are few
        self._scales = None
        if policy.weigh is not None:
            self._scales = Scales(policy.weigh) if scales is None else scales.under(policy.weigh)

    def weigh(self, model: str = "") -> Weigh | None:
        """How the policy's votes are weighed, on the scale that a model's live samples have shown so far."""
        return None if self._scales is None else self._scales.weigh(model)

    def saw(self, samples: Iterable[Sample], model: str = "") -> None:
        """Takes note of how sure live samples of a model were."""
        if self._scales is not None:
            self._scales.saw(samples, model)

    def start(self, budget: float) -> tuple[float, float, float] | None:
        """The dial to start at for a budget, the lowest and the highest; None: the policy has no dial."""
        if self.bounds is None:
            return None
        _, low, high = self.bounds
        found = None if self.chart is None else self.chart.price(budget)
        if found is None and (found := self._guesses.get(budget)) is None:
            found = self._guesses[budget] = guessed(self.policy, budget)
        return min(high, max(low, found)), low, high

    def state(self) -> dict[str, Any] | None:
        """The live scales as plain data; None: votes are plain."""
        return None if self._scales is None else self._scales.state()

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Goes on with live scales; False where they are none of this policy's signal."""
        return self._scales is not None and self._scales.restore(state)

    def renewed(self, other: "Served") -> "Served":
        """`other` in this one's place, with the live scales that this one has by now."""
        return Served(other.name, other.policy, chart=other.chart, version=other.version, scales=self._scales)

    def same(self, other: "Served") -> bool:
        """Whether nothing that was read differs."""
        return (self.version, self.chart) == (other.version, other.chart)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What all folders held at one time."""

    number: int  # of the reading, rising
    found: Mapping[str, Served]
    refused: Mapping[str, AdacomputeError]  # why, by the name of the policy
    remarks: Mapping[str, str]  # e.g. that a chart is not used


class Shelf:
    """Policies by name. Made by `open`; `reload` may run in a thread, or `read` there and `swap` here."""

    def __init__(self, folders: Mapping[str, str], *, fixed: float | None = None) -> None:
        """`folders` by name, the default policy's first; "" is the prior in the package.

        `fixed` is the dial that all are to be asked at, whatever it is that they turn; None: it moves.
        """
        self._folders = dict(folders)
        self._fixed = fixed
        self.default = next(iter(self._folders))
        self.names = (*self._folders, SINGLE)
        self.remarks: tuple[str, ...] = ()  # on what was read at the start
        self._numbers = itertools.count(1)
        self._number = 0  # of the reading in service
        self._served: dict[str, Served] = {}

    @classmethod
    def open(cls, settings: ServeConfig) -> "Shelf":
        """Reads every policy that the settings name; the first that can't be read is an error."""
        shelf = cls(_folders(settings), fixed=settings.price if settings.price >= 0 else None)
        reading = shelf.read()
        for why in reading.refused.values():
            raise why
        single = Served(SINGLE, FixedPolicy(1.0), chart=None, version=SINGLE)
        shelf._served = {**reading.found, SINGLE: single}
        shelf._number = reading.number
        shelf.remarks = tuple(reading.remarks.values())
        return shelf

    def of(self, name: str) -> Served:
        """The policy of that name, as it serves now."""
        found = self._served.get(name)
        if found is None:
            raise PolicyError(f"there is no policy {name!r:.80} here; there are {', '.join(self.names)}")
        return found

    def reload(self) -> list[str]:
        """Reads all folders anew; one line for each change and each refusal."""
        return self.swap(self.read())

    def read(self) -> Reading:
        """All folders as they are now, for `swap`: slow, and changes nothing."""
        number = next(self._numbers)
        found, refused, remarks = {}, {}, {}
        for name, folder in self._folders.items():
            try:
                found[name], remark = _read(name, folder)
                _check_fixed(found[name], self._fixed)
            except AdacomputeError as exc:
                refused[name] = exc
                found.pop(name, None)
                continue
            if remark:
                remarks[name] = remark
        return Reading(number=number, found=found, refused=refused, remarks=remarks)

    def swap(self, reading: Reading) -> list[str]:
        """Puts what was read into service, but for what was refused; one line for each change and refusal."""
        if reading.number <= self._number:  # a later one was quicker
            return []
        served, lines = dict(self._served), []
        for name, new in reading.found.items():
            old = served[name]
            if not old.same(new):
                served[name] = old.renewed(new)
                lines.append(f"policy {name}: {new.version} serves now, in place of {old.version}")
                if name in reading.remarks:
                    lines.append(f"policy {name}: {reading.remarks[name]}")
        for name, why in reading.refused.items():
            lines.append(f"policy {name}: {served[name].version} keeps serving: {why}")
        self._served, self._number = served, reading.number
        return lines

    def state(self) -> dict[str, Any]:
        """The live scales by policy, as plain data."""
        found = {name: served.state() for name, served in self._served.items()}
        return {name: state for name, state in found.items() if state is not None}

    def restore(self, state: Mapping[str, Any]) -> list[str]:
        """Goes on with the scales of before; one line for each that can't be."""
        lines = []
        for name, scale in state.items():
            served = self._served.get(name)
            if served is None or not isinstance(scale, Mapping) or not served.restore(scale):
                lines.append(
                    f"policy {name:.80}: the stored scale of its weights is not used; it is learned anew"
                )
        return lines


def _folders(settings: ServeConfig) -> dict[str, str]:
    """Folders by name, the default first; ConfigError where a name can't be."""
    first = "stopping"
    if settings.policy:
        # not resolved: a link such as `current` gives its own name, wherever it leads
        first = _ODD.sub("-", Path(os.path.abspath(settings.policy)).name)[:64] or "policy"  # noqa: PTH100
    found = {_allowed(first, settings.policy): settings.policy}
    for text in settings.policies:
        name, mark, folder = (part.strip() for part in text.partition("="))
        if not mark or not folder or not _NAME.fullmatch(name):
            raise ConfigError(
                f"policies: {text!r:.200} is no NAME=FOLDER; give a name of up to 64 letters, digits, '_', "
                "'-' and '.', e.g. careful=policies/careful"
            )
        if name in found:
            raise ConfigError(f"policies: {name!r} is there twice; give each policy a name of its own")
        found[_allowed(name, text)] = folder
    return found


def _allowed(name: str, given: str) -> str:
    if name == SINGLE:
        raise ConfigError(
            f"policies: {given!r:.200} would be named {SINGLE!r}, which is one sample without a vote; "
            "give another name"
        )
    return name


def _read(name: str, folder: str) -> tuple[Served, str]:
    """One folder's policy, and a remark on it; what can't serve is refused."""
    if not folder:
        return Served(name, StoppingPolicy(), chart=bundled_chart(), version="bundled"), ""
    policy, sha256 = read_policy(folder)
    if policy.kind in _SHUT:
        raise PolicyError(
            f"{folder}: {policy.kind} knows the answers of its pool and nothing of a new prompt, so it can't "
            "serve; fit another policy"
        )
    _tried(policy, folder)
    chart, remark = None, ""
    try:
        chart = read_chart(folder, policy=sha256)
    except PolicyError as exc:  # it serves as well without
        remark = f"{exc}; until then it serves without a chart"
    if chart is not None and chart.dial != policy.dial:
        chart, remark = None, f"{folder}: its chart is of another dial; fit again, or remove it"
    return Served(name, policy, chart=chart, version=sha256[:_SHORT]), remark


def _tried(policy: Policy, folder: str) -> None:
    """Asks it once, so that one that can't decide is refused now and not at the first request."""
    try:
        _decide(policy, {None: None, "price": 0.02, "threshold": 0.5}[policy.dial])
    except PolicyError as exc:
        raise PolicyError(f"{folder}: can't decide: {exc}") from exc


def _check_fixed(served: Served, fixed: float | None) -> None:
    """ConfigError where the operator's fixed dial is none that the policy can be asked at."""
    policy = served.policy
    if fixed is None or policy.dial is None:
        return
    try:
        _decide(policy, fixed)
    except PolicyError as exc:
        raise ConfigError(
            f"price {fixed:g} is no dial of policy {served.name!r}, which turns a {policy.dial}: {exc}"
        ) from exc


def _decide(policy: Policy, dial: float | None) -> None:
    samples: Sequence[str] = ("1", "2")
    for tally in (Tally(weigh=policy.weigh), Tally.of(samples, weigh=policy.weigh)):
        policy.more("What is 1 + 1?", tally, dial)
