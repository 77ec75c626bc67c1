"""What was learned of the models behind an endpoint: their habits, and which fields each does better without.

Knows nothing of HTTP, or of who asks. All of it is forgotten after some minutes: a model may be exchanged.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.endpoint.habits import FRESH, Habits

__all__ = ["Learned"]

_MODELS = 256  # that are remembered: clients choose the names
_NAME = 200  # characters of a name that tell it from others
_BARE = 2  # replies in a row without log-probabilities, until they are believed
_BRIEFLY = 60.0  # seconds, for they may all be of one odd request
_FIELDS = ("logprobs", "top_logprobs", "stream_options")  # that a request may do without


@dataclass(slots=True)
class _Model:
    """When it was seen so, by field."""

    habits: Habits
    took: dict[str, float] = field(default_factory=dict)  # a request with it succeeded
    without: dict[str, float] = field(default_factory=dict)  # refused, and the same request without it not
    gives: bool | None = None  # are log-probabilities given where asked for?
    seen: float = 0.0  # when that was
    bare: int = 0  # replies in a row that had none


class Learned:
    """By the name of the model; those that were longest not heard of are forgotten first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._models: OrderedDict[str, _Model] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    @property
    def logprobs(self) -> bool | None:
        """Does any model give log-probabilities, whenever that was? None: none was asked for them."""
        known = [
            model.gives or False for model in self._models.values() if model.bare or model.gives is not None
        ]
        return any(known) if known else None

    def habits(self, name: object) -> Habits:
        """Those of that model; none where it isn't known, and what they learn is lost."""
        model = self._models.get(_key(name))
        return Habits(self._now) if model is None else model.habits

    def remembered(self, name: object) -> Habits:
        """Those of that model, which is remembered from now on."""
        return self._of(name).habits

    def gives_logprobs(self, name: object) -> bool | None:
        """Does that model? None: it isn't known, or no longer."""
        model = self._models.get(_key(name))
        if model is None:
            return None
        if self._holds(model, "logprobs"):
            return False
        return model.gives if self._fresh(model.seen, FRESH if model.gives else _BRIEFLY) else None

    def spared(self, name: object, fields: Collection[str]) -> frozenset[str]:
        """Those of the fields that it is better not asked with now.

        After some minutes one request is to ask with them again, while the others still don't.
        """
        model = self._models.get(_key(name))
        if model is None:
            return frozenset()
        known = [one for one in fields if one in model.without]
        held = frozenset(one for one in known if self._holds(model, one))
        for one in known:
            if one not in held:
                model.without[one] = self._now()
        return held

    def took(self, body: Mapping[str, Any]) -> None:
        """A request succeeded: whatever it had in it was no reason to refuse it."""
        had = [one for one in _FIELDS if body.get(one)]
        if had:
            model = self._of(body.get("model"))
            for one in had:
                model.took[one] = self._now()
                model.without.pop(one, None)

    def did_without(self, name: object, fields: Collection[str]) -> None:
        """A request was refused for these fields, and succeeded without them.

        That is no rule where others like it succeed with them: then it was this request's own matter.
        """
        model = self._of(name)
        for one in fields:
            if one not in model.took or not self._fresh(model.took[one]):
                model.without[one] = self._now()
                if one == "logprobs":
                    model.gives, model.seen = False, self._now()

    def told(self, name: object, *, logprobs: bool) -> None:
        """A reply to a request for log-probabilities had some, or none.

        One without is a chance: a few in a row are believed, where none had some lately.
        """
        model = self._of(name)
        if logprobs:
            model.gives, model.seen, model.bare = True, self._now(), 0
        elif not (model.gives and self._fresh(model.seen)):
            model.bare += 1
            if model.bare >= _BARE:
                model.gives, model.seen = False, self._now()

    def _fresh(self, at: float, seconds: float = FRESH) -> bool:
        return self._now() - at < seconds

    def _holds(self, model: _Model, one: str) -> bool:
        return one in model.without and self._fresh(model.without[one])

    def _of(self, name: object) -> _Model:
        key = _key(name)
        model = self._models.get(key)
        if model is None:
            model = self._models[key] = _Model(Habits(self._now))
            if len(self._models) > _MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        return model


def _key(name: object) -> str:
    return name[:_NAME] if isinstance(name, str) else ""
