"""Every policy, made and fitted on a small real recording, for the tests that hold for all of them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from adacompute.answers import Tally, VoteWeights
from adacompute.evaluate.rivals import COMPARED
from adacompute.policies.base import Policy, place_orders
from adacompute.policies.votes import read_tallies
from adacompute.pool import Ballots, Mode
from adacompute.pool.modes import Menu
from shared import read_votes

ONE_MODE = Menu(modes=(Mode(name="large", cost=1.0),))

# each made and fitted; `weigh` says how it weighs votes, where it is to be told
MAKERS: dict[str, Callable[..., Policy]] = {
    "fixed": lambda kind, ballots, **given: kind(3.0, **given).fit(ballots),
    "random": lambda kind, ballots, **given: kind(3.0, **given).fit(ballots),
    "heuristic": lambda kind, ballots, **given: kind(3.0, **given).fit(ballots),
    "shuffled": lambda kind, ballots, **given: kind(3.0, **given).fit(ballots),
    "asc": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "esc": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "doubling": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "bayes": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "pets": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "guarantee": lambda kind, ballots, **given: _make_guarantee(kind, **given).fit(ballots),
    "oracle": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "classifier": lambda kind, ballots, **given: kind(**given).fit(ballots, budget=3.0),
    "curve": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "stopping": lambda kind, ballots, **given: kind(**given).fit(ballots),
    "menu": lambda kind, ballots, **given: kind(ONE_MODE, **given).fit(ballots),
}


def decide_all(
    policy: Policy, prompts: Sequence[str], tallies: Sequence[Tally], dial: float | None = None
) -> list[int]:
    """How many more samples each request gets, by the batch form that replay and batches use."""
    state, own = read_tallies(tallies, policy.names), policy.spread_dial(dial, place_orders(prompts))
    counts: list[int] = policy.decide(policy.read(prompts), state, own).counts.tolist()
    return counts


def _make_guarantee(kind: Callable[..., Policy], *, weigh: object = None, **given: Any) -> Policy:
    """With delta as its dial, and of the other policies' length; it has no weights to take."""
    return kind(**{"delta": None, "longest": 16, **given})


KINDS = list(MAKERS)
SAVED = [kind for kind in KINDS if not COMPARED[kind].only_compared]
WEIGH = VoteWeights(signal="logprob", scale=-0.2)


@functools.cache
def ballots() -> Ballots:
    return read_votes("words").only(range(0, 360, 10))  # 36 problems of all templates


def made(kind: str, weighed: bool = False, **given: Any) -> Policy:
    return _made(kind, weighed, **given)  # so that what is given and what goes without saying are one


@functools.cache
def _made(kind: str, weighed: bool, **given: Any) -> Policy:
    told = {"weigh": WEIGH} if weighed else {}
    return MAKERS[kind](COMPARED[kind], ballots(), **told, **given)


def some(policy: Policy) -> tuple[float | None, ...]:
    """Dials at which it neither stops at once nor never."""
    return {None: (None,), "threshold": (0.05, 0.4), "price": (0.003, 0.03)}[policy.dial]
