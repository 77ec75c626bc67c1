"""An evaluation assembled from what was measured: rows, matched costs, imitation, and the verdict."""

from dataclasses import dataclass

import numpy as np

from adacompute.evaluate.comparison import (
    Evaluation,
    EvaluationRow,
    Imitation,
    Match,
    OracleBracket,
    PolicyResult,
    ProtocolName,
    Verdict,
    match_policies,
)
from adacompute.evaluate.measure import ORACLE, PEERS, EvaluationSetup
from adacompute.evaluate.resampling import Bootstrap

__all__ = ["EvaluationInputs", "assemble_evaluation", "format_samples", "make_bootstrap"]

_PROTOCOL_LABELS = {
    "held-out": "held-out",
    "paper": "in-sample (the paper's: fitted on 80%, judged on all problems)",
}


@dataclass(frozen=True, slots=True)
class EvaluationInputs:
    """Everything that was measured, ready to be assembled."""

    setup: EvaluationSetup
    everyone: list[PolicyResult]
    oracle: tuple[OracleBracket, ...]
    protocol: ProtocolName
    parts: int
    dropped: int
    left_out: tuple[str, ...]
    verdict: Verdict
    short: int = 0


def assemble_evaluation(inputs: EvaluationInputs) -> Evaluation:
    """Build the `Evaluation`: rows, matched costs, imitation and verdict."""
    setup = inputs.setup
    boot = make_bootstrap(setup)
    matched = match_policies(inputs.everyone, setup.budgets, boot=boot, oracle=inputs.oracle)
    label = _PROTOCOL_LABELS[inputs.protocol]
    rows = [row for result in inputs.everyone for row in _policy_rows(result, setup.budgets, boot, label)]
    rows += [_peer_row(match, label) for match in matched if match.policy == PEERS]
    rows += [row for bracket in inputs.oracle for row in _oracle_rows(bracket)]
    return Evaluation(
        problems=len(setup.ballots),
        folds=inputs.parts,
        protocol=inputs.protocol,
        votes="weighted" if setup.weighted else "plain",
        basis=setup.basis,
        orders=setup.orders,
        longest=setup.longest,
        dropped=inputs.dropped,
        left_out=inputs.left_out,
        rows=tuple(rows),
        matched=matched,
        oracle=inputs.oracle,
        imitation=_imitation_rows(inputs),
        budgets=setup.budgets,
        verdict=inputs.verdict,
        short=inputs.short,
    )


def make_bootstrap(setup: EvaluationSetup) -> Bootstrap:
    """The bootstrap draws of problems that all intervals of an evaluation share."""
    return Bootstrap.of(len(setup.ballots), rng=np.random.default_rng([setup.seed, 0xB007]))


def _policy_rows(
    result: PolicyResult, budgets: tuple[float, ...], boot: Bootstrap, label: str
) -> list[EvaluationRow]:
    rows = []
    for at, budget in enumerate(budgets):
        interval = boot.interval(result.accuracy[at])
        rows.append(
            EvaluationRow(
                policy=result.name,
                budget=budget,
                cost=float(result.cost[at].mean()),
                accuracy=interval.mean,
                low=interval.low,
                high=interval.high,
                protocol=label,
                waves=_finite_or_none(result.waves[at].mean()),
                tokens=_finite_or_none(result.tokens[at].mean()),
                reached=result.reached[at],
                cost_std=None if result.cost_std is None else float(result.cost_std[at]),
                accuracy_std=None if result.accuracy_std is None else float(result.accuracy_std[at]),
            )
        )
    return rows


def _imitation_rows(inputs: EvaluationInputs) -> tuple[Imitation, ...]:
    """For each classifier: on the test problems, and on the training problems."""
    test_protocol = (
        "held-out" if inputs.protocol == "held-out" else "in-sample (all problems, 80% of them learned from)"
    )
    rows = []
    for result in inputs.everyone:
        if result.imitation is not None:
            for budget, (test, test_common, train, train_common) in zip(
                inputs.setup.budgets, result.imitation, strict=True
            ):
                rows.append(
                    Imitation(budget=budget, accuracy=test, majority=test_common, protocol=test_protocol)
                )
                rows.append(
                    Imitation(
                        budget=budget,
                        accuracy=train,
                        majority=train_common,
                        protocol="in-sample (the problems learned from)",
                    )
                )
    return tuple(rows)


def _peer_row(match: Match, label: str) -> EvaluationRow:
    return EvaluationRow(
        policy=PEERS,
        budget=match.budget,
        cost=match.cost,
        accuracy=match.accuracy,
        low=match.low,
        high=match.high,
        protocol=f"{label}, matched cost: the joint hull of all policies but stopping and the oracle",
    )


def _oracle_rows(bracket: OracleBracket) -> list[EvaluationRow]:
    ends: list[tuple[str, float, float | None, float | None]] = [
        ("in-sample: chosen and judged on the same samples, the answers known", bracket.high, None, None)
    ]
    if bracket.low is not None:
        protocol = (
            "cross-fitted: chosen on half of each problem's samples, judged on the other, the answers known"
        )
        ends.insert(0, (protocol, bracket.low.mean, bracket.low.low, bracket.low.high))
    return [
        EvaluationRow(
            policy=ORACLE,
            budget=bracket.budget,
            cost=bracket.cost,
            accuracy=accuracy,
            low=low,
            high=high,
            protocol=protocol,
        )
        for protocol, accuracy, low, high in ends
    ]


def _finite_or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def format_samples(value: float) -> str:
    """A number of samples, with a tenth where it isn't whole.

    >>> format_samples(7.96), format_samples(3.24)
    ('8', '3.2')
    """
    return f"{value:.1f}".removesuffix(".0")
