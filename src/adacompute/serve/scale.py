"""How sure live samples are on average: the scale that votes are weighed on. Knows nothing of decisions.

A policy learned its scale on other traffic, perhaps of another model. A running mean for each model, in
constant memory, follows what comes; votes get a new scale only where it has moved, so that the same votes
weigh the same. No sample, and no number of them, moves it out of reach of the policy's own: servers have
placeholders such as -9999 for what they don't know.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from adacompute.answers import Weigh
from adacompute.records import Sample

__all__ = ["Scale", "Scales"]

FEW = 20  # samples: with fewer the policy's own scale stands
MEMORY = 2000  # samples that the mean looks back on, about
MODELS = 16  # that have a scale of their own, those last heard of; the rest share one
_NAME = 200  # characters of a name that tell it from others
_MOVED = 0.01  # of the scale
_FURTHEST = 8.0  # times the policy's own scale: what a single sample counts as, at most
_REACH = 4.0  # times the policy's own, or a part of it: where the live scale ends


class Scale:
    """The running mean of one signal, and the weights that come of it."""

    def __init__(self, own: Weigh) -> None:
        self.own = own
        self.count = 0  # samples that showed their signal
        self.mean = 0.0
        self._weigh = own

    def saw(self, samples: Iterable[Sample]) -> None:
        """Takes note of samples; those without the signal say nothing."""
        for sample in samples:
            value = sample.mean_logprob if self.own.signal == "logprob" else sample.entropy
            if value is not None and math.isfinite(value):
                times = min(max(value / self.own.scale, 0.0), _FURTHEST)
                self.count += 1
                self.mean += (times * self.own.scale - self.mean) / min(self.count, MEMORY)

    def weigh(self) -> Weigh:
        """How votes are weighed now: the same object until the scale has moved by more than 1%."""
        own, before = self.own.scale, self._weigh.scale
        if self.count < FEW or not self.mean / own > 0:  # an average of 0 would weigh nothing
            return self._weigh
        scale = own * min(max(self.mean / own, 1 / _REACH), _REACH)
        if abs(scale - before) > _MOVED * abs(before):
            self._weigh = replace(self.own, scale=scale)
        return self._weigh

    def under(self, own: Weigh) -> "Scale":
        """What was seen so far, for another policy's weights: kept where they go by the same signal."""
        found = Scale(own)
        if own.signal == self.own.signal:
            times = min(max(self.mean / own.scale, 0.0), _FURTHEST)
            found.count, found.mean = self.count, times * own.scale
        return found

    def join(self, other: "Scale") -> None:
        """What another of the same policy saw counts here as well."""
        mine, more = min(self.count, MEMORY), min(other.count, MEMORY)
        if more:
            self.count = mine + more
            self.mean += (other.mean - self.mean) * more / self.count

    def state(self) -> list[float]:
        """Plain data, for JSON."""
        return [self.count, self.mean]

    def restore(self, state: object) -> bool:
        """Goes on from a state; False, and as before, where none of this signal and policy gave it."""
        if not isinstance(state, list) or len(state) != 2:
            return False
        count, mean = state
        if type(count) is not int or not 0 <= count < 2**53 or type(mean) not in (int, float):
            return False
        if not (0 <= mean / self.own.scale <= _FURTHEST * (1 + 1e-9) if count else mean == 0):  # NaN isn't
            return False
        self.count, self.mean = count, float(mean)
        return True


class Scales:
    """A scale for each of the models that samples came of last, and one for all others together.

    A model that has shown too little goes by that of the others.
    """

    def __init__(self, own: Weigh) -> None:
        self.own = own
        self._models: dict[str, Scale] = {}  # the one longest not heard of first
        self._others = Scale(own)

    def saw(self, samples: Iterable[Sample], model: str = "") -> None:
        """Takes note of samples of a model."""
        model = model[:_NAME]
        scale = self._models[model] = self._models.pop(model, Scale(self.own))
        scale.saw(samples)
        if len(self._models) > MODELS:
            self._others.join(self._models.pop(next(iter(self._models))))

    def weigh(self, model: str = "") -> Weigh:
        """How a model's votes are weighed now."""
        scale = self._models.get(model[:_NAME])
        return (self._others if scale is None or scale.count < FEW else scale).weigh()

    def under(self, own: Weigh) -> "Scales":
        """What was seen so far, for another policy's weights: kept where they go by the same signal."""
        found = Scales(own)
        found._models = {model: scale.under(own) for model, scale in self._models.items()}
        found._others = self._others.under(own)
        return found

    def state(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        models = {model: scale.state() for model, scale in self._models.items()}
        return {"signal": self.own.signal, "models": models, "others": self._others.state()}

    def restore(self, state: Mapping[str, Any]) -> bool:
        """Goes on from a state, whole or not at all; False where it is none of this signal."""
        models = state.get("models")
        if set(state) != {"signal", "models", "others"} or state["signal"] != self.own.signal:
            return False
        if not isinstance(models, Mapping) or len(models) > MODELS:
            return False
        found = Scales(self.own)
        found._models = {str(model): Scale(self.own) for model in models}
        fine = found._others.restore(state["others"])
        fine = fine and all(scale.restore(models[model]) for model, scale in found._models.items())
        if fine:
            self._models, self._others = found._models, found._others
        return fine
