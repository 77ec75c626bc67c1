"""What is asked of each problem: model, template, sampling. Knows nothing of endpoints, pools or calls."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adacompute.errors import CollectError
from adacompute.problems import Template
from adacompute.records import Problem

__all__ = ["Asking"]

_OURS = ("messages", "model", "n", "stream", "stream_options", "logprobs", "top_logprobs", "template")
_LIMITS = ("max_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How every problem is put to the model. `parameters` is what a pool keeps, and is known by.

    Log-probabilities are asked for beside the samples: they don't change them, so they are no parameter.
    """

    model: str
    template: Template
    sampling: Mapping[str, Any] = field(default_factory=dict)  # temperature and the like, sent as they are
    logprobs: bool = True  # votes are weighed by them
    top_logprobs: int = 0  # alternatives a token, 0 to 20: from 2 up they tell the entropy

    def __post_init__(self) -> None:
        if not self.model or type(self.model) is not str:
            raise CollectError(f"model {self.model!r} is no name; give the endpoint's own")
        if not isinstance(self.template, Template):
            raise CollectError(
                f"template {self.template!r} is none; give Template.named('boxed') or the like"
            )
        if not isinstance(self.sampling, Mapping):
            raise CollectError(f"sampling {self.sampling!r} can't be sent; give e.g. {{'temperature': 0.7}}")
        if taken := sorted(set(self.sampling) & set(_OURS)):
            raise CollectError(f"parameter {taken[0]!r} is set by adacompute itself; leave it out")
        for name, low, high in (("temperature", 0.0, math.inf), ("top_p", 0.0, 1.0)):
            value = self.sampling.get(name)
            if value is not None and not (_number(value) and low <= value <= high):
                raise CollectError(f"{name} {value!r} can't be used; give a number from {low:g} up")
        for name in _LIMITS:
            most = self.sampling.get(name)
            if most is not None and (type(most) is not int or most < 1):
                raise CollectError(f"{name} {most!r} can't be used; give a whole number from 1 up")
        if type(self.top_logprobs) is not int or not 0 <= self.top_logprobs <= 20:
            raise CollectError(f"top_logprobs {self.top_logprobs!r} can't be used; give 0 to 20")

    @property
    def parameters(self) -> dict[str, Any]:
        """What the pool keeps beside the model's name: sampling and the whole template."""
        return {**self.sampling, "template": self.template.to_dict()}

    @property
    def most_tokens(self) -> int | None:
        """The limit of one response; None where there is none."""
        given = [self.sampling[name] for name in _LIMITS if self.sampling.get(name) is not None]
        return max(given, default=None)  # endpoints differ in which of two they heed

    def body(self, problem: Problem) -> dict[str, Any]:
        """The request for one problem, without `n`."""
        body = {"model": self.model, "messages": self.template.messages(problem), **self.sampling}
        if self.logprobs:
            body["logprobs"] = True
            if self.top_logprobs:
                body["top_logprobs"] = self.top_logprobs
        return body


def _number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
