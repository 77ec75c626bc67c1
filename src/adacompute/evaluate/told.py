"""What was measured, put into records and words. Knows nothing of how a policy was fitted or run."""

from dataclasses import dataclass

import numpy as np

from adacompute.evaluate.bootstrap import Bootstrap
from adacompute.evaluate.compare import matches
from adacompute.evaluate.entrants import ORACLE, PEERS
from adacompute.evaluate.measure import Setup
from adacompute.evaluate.pooled import Pooled
from adacompute.evaluate.rows import Bracket, Evaluation, Imitation, Match, Protocol, Row
from adacompute.evaluate.verdict import overall, verdict_at

__all__ = ["Shown", "boot_of", "told"]

_SAID = {
    "held-out": "held-out",
    "paper": "in-sample (the paper's: fitted on 80%, judged on all problems)",
}
_CAVEAT = {
    "held-out": "",
    "paper": "In-sample, judged on problems that were learned from too: this says little of new ones. ",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """All that was measured."""

    setup: Setup
    everyone: list[Pooled]
    oracle: tuple[Bracket, ...]
    protocol: Protocol
    parts: int
    dropped: int
    left_out: tuple[str, ...]


def told(shown: Shown) -> Evaluation:
    setup = shown.setup
    boot = boot_of(setup)
    matched = matches(shown.everyone, setup.budgets, boot=boot, oracle=shown.oracle)
    label = _SAID[shown.protocol]
    rows = [row for one in shown.everyone for row in _rows(one, setup.budgets, boot, label)]
    rows += [_peer_row(one, label) for one in matched if one.policy == PEERS]
    rows += [row for one in shown.oracle for row in _oracle_rows(one)]
    verdicts = tuple(verdict_at(budget, matched, basis=setup.basis) for budget in setup.budgets)
    return Evaluation(
        problems=len(setup.ballots),
        folds=shown.parts,
        protocol=shown.protocol,
        votes="weighted" if setup.weighted else "plain",
        basis=setup.basis,
        orders=setup.orders,
        longest=setup.longest,
        dropped=shown.dropped,
        left_out=shown.left_out,
        rows=tuple(rows),
        matched=matched,
        oracle=shown.oracle,
        imitation=_imitation(shown),
        verdicts=verdicts,
        verdict=_CAVEAT[shown.protocol] + overall(verdicts, matched, basis=setup.basis),
    )


def boot_of(setup: Setup) -> Bootstrap:
    """The draws of problems that every interval of an evaluation is of."""
    return Bootstrap.of(len(setup.ballots), rng=np.random.default_rng([setup.seed, 0xB007]))


def _rows(one: Pooled, budgets: tuple[float, ...], boot: Bootstrap, label: str) -> list[Row]:
    found = []
    for at, budget in enumerate(budgets):
        right = boot.interval(one.accuracy[at])
        found.append(
            Row(
                policy=one.name,
                budget=budget,
                cost=float(one.cost[at].mean()),
                accuracy=right.mean,
                low=right.low,
                high=right.high,
                protocol=label,
                waves=_known(one.waves[at].mean()),
                tokens=_known(one.tokens[at].mean()),
                reached=one.reached[at],
                cost_std=None if one.cost_std is None else float(one.cost_std[at]),
                accuracy_std=None if one.accuracy_std is None else float(one.accuracy_std[at]),
            )
        )
    return found


def _imitation(shown: Shown) -> tuple[Imitation, ...]:
    """Of each classifier: on the judged problems, and on those it has learned from."""
    judged = (
        "held-out" if shown.protocol == "held-out" else "in-sample (all problems, 80% of them learned from)"
    )
    found = []
    for one in shown.everyone:
        if one.imitation is not None:
            for budget, (test, common, train, usual) in zip(shown.setup.budgets, one.imitation, strict=True):
                found.append(Imitation(budget=budget, accuracy=test, majority=common, protocol=judged))
                found.append(
                    Imitation(
                        budget=budget,
                        accuracy=train,
                        majority=usual,
                        protocol="in-sample (the problems learned from)",
                    )
                )
    return tuple(found)


def _peer_row(one: Match, label: str) -> Row:
    return Row(
        policy=PEERS,
        budget=one.budget,
        cost=one.cost,
        accuracy=one.accuracy,
        low=one.low,
        high=one.high,
        protocol=f"{label}, matched cost: the joint hull of all policies but stopping and the oracle",
    )


def _oracle_rows(one: Bracket) -> list[Row]:
    ends: list[tuple[str, float, float | None, float | None]] = [
        ("in-sample: chosen and judged on the same samples, the answers known", one.high, None, None)
    ]
    if one.low is not None:
        said = (
            "cross-fitted: chosen on half of each problem's samples, judged on the other, the answers known"
        )
        ends.insert(0, (said, one.low.mean, one.low.low, one.low.high))
    return [
        Row(
            policy=ORACLE,
            budget=one.budget,
            cost=one.cost,
            accuracy=accuracy,
            low=low,
            high=high,
            protocol=said,
        )
        for said, accuracy, low, high in ends
    ]


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
