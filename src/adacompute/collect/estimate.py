"""What a collection will take, before anything is paid for. Knows nothing of endpoints."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from adacompute.collect.asking import Asking
from adacompute.collect.left import Left
from adacompute.collect.purse import Prices, prompt_size

__all__ = ["Estimate", "estimate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Calls, tokens and money of what is left. Prompts are counted by length, so a little high."""

    problems: int  # that lack samples
    samples: int  # left to draw
    stored: int  # there already
    calls_least: int  # where the endpoint gives all samples of a problem in one call
    calls_most: int  # where it gives one a call; without any that is tried again
    prompt_tokens_least: int
    prompt_tokens_most: int
    completion_tokens: int | None  # as the samples so far had them; None: there are none yet
    completion_tokens_most: int | None  # None: responses have no limit
    cost: float | None  # money, with responses as so far; at the most calls; None: not known
    cost_most: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def estimate(left: Left, asking: Asking, *, prices: Prices, mean_tokens: float | None = None) -> Estimate:
    """Beforehand: `mean_tokens` is what a response had so far, where some are stored."""
    sizes = {run.problem.id: prompt_size(asking.template.messages(run.problem)) for run in left.runs}
    least = math.ceil(sum(sizes[run.problem.id] for run in left.runs))
    most = math.ceil(sum(sizes[run.problem.id] * run.count for run in left.runs))
    samples, limit = left.samples, asking.most_tokens
    expected = None if mean_tokens is None else math.ceil(mean_tokens * samples)
    highest = None if limit is None else limit * samples
    return Estimate(
        problems=left.problems,
        samples=samples,
        stored=left.stored,
        calls_least=len(left.runs),
        calls_most=samples,
        prompt_tokens_least=least,
        prompt_tokens_most=most,
        completion_tokens=expected,
        completion_tokens_most=highest,
        cost=None if expected is None or not prices else prices.of(most, expected),
        cost_most=None if highest is None or not prices else prices.of(most, highest),
    )
