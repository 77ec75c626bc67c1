"""`asc` and `doubling`, decision by decision beside the packages that they are taken from.

`bayes` and `pets` have no package; they are held to their papers' definitions in test_agreement.

Skipped only where a package is absent; both are installed with the development requirements.
"""

import asyncio
import contextlib
import random

import numpy as np
import pytest

from adacompute.answers import Tally
from adacompute.evaluate.rivals import DoublingPolicy
from adacompute.policies.agreement import AdaptiveConsistency
from adacompute.policies.base import OwnPrice

WHY = "is not installed; `make setup` installs it"
beta = pytest.importorskip("adaptive_consistency", reason=f"AdaptiveConsistency {WHY}")
hub = pytest.importorskip("its_hub", reason=f"its_hub {WHY}")

from its_hub.core.orchestrator import LMOrchestrator  # noqa: E402

KNOWN = (0.55, 0.7, 0.75, 0.8, 0.9, 0.95, 0.99, 0.999)
CLOSE = 1e-9  # of a threshold: nearer, its integrals may fall on either side of it


def votes(rng: random.Random, longest: int) -> list[str]:
    """Answers of a problem as easy or hard as it happens to be."""
    weights = [rng.random() ** rng.choice((1, 4)) + 1e-9 for _ in range(rng.randint(1, 6))]
    return rng.choices([f"answer {k}" for k in range(len(weights))], weights, k=rng.randint(1, longest))


def test_asc_stops_where_the_package_stops():
    rng = random.Random(1)
    compared = stopped = 0
    for _ in range(4000):
        answers = votes(rng, 30)
        threshold = rng.choice([*KNOWN, rng.uniform(0.5, 1.0), rng.uniform(0.9, 1.0)])
        theirs = beta.AC(stop_criteria=beta.BetaStoppingCriteria(threshold)).should_stop(
            answers, return_dict=True
        )
        if abs(theirs["prob"] - threshold) < CLOSE:
            continue
        more = AdaptiveConsistency(longest=31).more("?", Tally.of(answers), OwnPrice(1 - threshold))
        assert (more == 0) == theirs["stop"], (answers, threshold, theirs)
        assert more in (0, 1)
        compared, stopped = compared + 1, stopped + (more == 0)
    assert compared > 3800
    assert compared / 5 < stopped < compared * 4 / 5


def test_asc_draws_as_many_as_the_packages_loop():
    rng = random.Random(2)
    policy = AdaptiveConsistency()
    for _ in range(300):
        answers, threshold = _path(rng, 16), rng.uniform(0.6, 0.999)
        rule = beta.AC(max_gens=16, stop_criteria=beta.BetaStoppingCriteria(threshold))
        theirs = next((n for n in range(1, 17) if rule.should_stop(answers[:n])), 16)
        assert sum(_waves(policy, answers, OwnPrice(1 - threshold))) == theirs


def test_asc_is_as_sure_as_its_hubs_form_of_the_rule_to_the_last_bit():
    probability = hub.BetaSelfConsistency.beta_stopping_probability
    policy = AdaptiveConsistency(longest=51)
    for first in range(1, 26):
        for second in range(min(first, 25) + 1):
            tally = Tally.of(["1"] * first + ["2"] * second)
            threshold = probability(first, second)
            assert policy.more("?", tally, OwnPrice(1 - threshold)) == 0
            if threshold < 1:
                assert policy.more("?", tally, OwnPrice(1 - np.nextafter(threshold, 1))) == 1


class Slow(hub.AbstractLanguageModel):
    """A model that answers one call after another, each only when what came before was looked at."""

    def __init__(self, answers):
        self.answers, self.asked, self.answered = answers, 0, 0

    async def agenerate(self, messages, stop=None, **kwargs):
        raise NotImplementedError("the orchestrator asks one by one")

    async def agenerate_single(self, messages, stop=None, **kwargs):
        turn, self.asked = self.asked, self.asked + 1
        while self.answered < turn:
            await asyncio.sleep(0)
        for _ in range(20):  # the rule has its turn before the next answer comes
            await asyncio.sleep(0)
        self.answered += 1
        return {"role": "assistant", "content": self.answers[turn]}


async def _beta(answers, threshold):
    model = Slow(answers)
    rule = hub.BetaSelfConsistency(threshold, orchestrator=LMOrchestrator(max_concurrency=-1))
    result = await rule.ainfer(model, "?", len(answers), return_response_only=False)
    return len(result.responses), model.asked


def test_its_hubs_beta_rule_stops_where_asc_does_with_two_answers_or_more():
    rng = random.Random(4)
    cases = [(_path(rng, 16), rng.choice([0.95, *KNOWN, rng.uniform(0.501, 1.0)])) for _ in range(120)]

    async def theirs():
        return [await _beta(*case) for case in cases]

    compared = 0
    for (answers, threshold), (looked_at, sent) in zip(cases, asyncio.run(theirs()), strict=True):
        assert sent == 16  # all are sent at once, and what isn't needed is cancelled
        policy, stops = AdaptiveConsistency(), range(2, 17)  # never after one answer
        stop = next(
            (n for n in stops if policy.more("?", Tally.of(answers[:n]), OwnPrice(1 - threshold)) == 0), 16
        )
        assert looked_at == stop, (answers, threshold)
        if threshold > 0.75:  # after one answer the Beta rule is 75% sure: below that, asc may stop there
            assert sum(_waves(policy, answers, OwnPrice(1 - threshold))) == stop
            compared += 1
    assert compared > 60


class Recorded(hub.AbstractLanguageModel):
    """A model that gives recorded answers one by one; None is a call of a tool, which is not a vote."""

    def __init__(self, answers):
        self.answers = iter(answers)

    async def agenerate(self, messages, stop=None, **kwargs):
        raise NotImplementedError("the orchestrator asks one by one")

    async def agenerate_single(self, messages, stop=None, **kwargs):
        answer = next(self.answers)
        if answer is None:
            return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look"}}]}
        return {"role": "assistant", "content": answer}


class Counting(LMOrchestrator):
    """Its own orchestrator, noting how many samples each round asks for."""

    def __init__(self):
        super().__init__(max_concurrency=-1)
        self.rounds = []

    async def agenerate(self, lm, messages_lst, **kwargs):
        self.rounds.append(len(messages_lst))
        return await super().agenerate(lm, messages_lst, **kwargs)


async def _rounds(answers, threshold, budget):
    counting = Counting()
    rule = hub.AdaptiveSelfConsistency(threshold=threshold, orchestrator=counting)
    with contextlib.suppress(
        ValueError
    ):  # it has no answer to return where there is none: the rounds were run
        await rule.ainfer(Recorded(answers), "?", budget)
    return counting.rounds


@pytest.mark.parametrize("abstaining", [0.0, 0.3, 1.0])
def test_doubling_asks_in_each_round_what_its_hub_asks(abstaining):
    rng = random.Random(3)
    cases = []
    for _ in range(1000):
        longest = rng.choice((1, 2, 3, 5, 8, 11, 16, 16, 16, 33))
        answers = [None if rng.random() < abstaining else answer for answer in _path(rng, longest)]
        shares = [k / n for n in range(1, 17) for k in range(1, n + 1) if k / n > 0.5]
        cases.append((answers, rng.choice([*KNOWN, rng.choice(shares), rng.uniform(0.501, 1.0)]), longest))

    async def theirs():
        return [await _rounds(*case) for case in cases]

    for (answers, threshold, longest), rounds in zip(cases, asyncio.run(theirs()), strict=True):
        ours = _waves(DoublingPolicy(longest=longest), answers, OwnPrice(1 - threshold))
        assert ours == rounds, (answers, threshold)


def _path(rng, longest):
    """Exactly so many answers."""
    answers = votes(rng, longest)
    while len(answers) < longest:
        answers += votes(rng, longest)[: longest - len(answers)]
    rng.shuffle(answers)
    return answers


def _waves(policy, answers, dial):
    waves = []
    while more := policy.more("?", Tally.of(answers[: sum(waves)]), OwnPrice(dial)):
        waves.append(more)
    return waves
