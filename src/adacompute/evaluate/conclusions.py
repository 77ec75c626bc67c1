"""Assembles an evaluation's tables from the measurements of all policies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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
from adacompute.evaluate.measure import ORACLE, PEERS, EvaluationSetup, records_confidence, records_scores
from adacompute.evaluate.resampling import ScoreRow, Split
from adacompute.policies.weights import fit_weights
from adacompute.pool.groups import count_groups
from adacompute.replay.matching import Bootstrap
from adacompute.score import score
from adacompute.score.aggregates import read_scores

_SCORED = (2, 4, 8, 16)  # numbers of samples at which votes weighted by a verifier's scores are measured

_PROTOCOL_LABELS = {
    "held-out": "held-out",
    "paper": "in-sample (the paper's: fitted on 80%, judged on all problems)",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluationRuns:
    """Every policy's results on all problems, over all folds or seeds, before policies are compared."""

    setup: EvaluationSetup
    everyone: tuple[PolicyResult, ...]
    parts: int  # number of folds or seeds
    dropped: int = 0  # number of problems left out because they have no grades
    left_out: tuple[str, ...] = ()  # names of policies left out because they can't learn without grades
    protocol: ProtocolName = "held-out"
    splits: tuple[Split, ...] = field(default=(), repr=False)
    # results of other computations, such as the oracle's bounds; maps names to results
    beside: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def get(self, name: str) -> PolicyResult:
        """Finds a policy's result by its name."""
        return next(result for result in self.everyone if result.name == name)


def assemble_evaluation(
    runs: EvaluationRuns, verdict: Verdict, *, oracle: Sequence[OracleBracket] = (), short: int = 0
) -> Evaluation:
    """Builds the `Evaluation` from all policies' results and the verdict."""
    setup = runs.setup
    boot = make_bootstrap(setup)
    matched = match_policies(runs.everyone, setup.budgets, boot=boot, oracle=oracle, mode_set=setup.mode_set)
    label = _PROTOCOL_LABELS[runs.protocol]
    rows = [row for result in runs.everyone for row in _policy_rows(result, setup.budgets, boot, label)]
    rows += [_peer_row(match, label) for match in matched if match.policy == PEERS]
    rows += [row for bracket in oracle for row in _oracle_rows(bracket)]
    return Evaluation(
        problems=len(setup.ballots),
        folds=runs.parts,
        protocol=runs.protocol,
        votes="weighted" if setup.weighted else "plain",
        basis=setup.basis,
        orders=setup.orders,
        longest=setup.longest,
        dropped=runs.dropped,
        left_out=runs.left_out,
        rows=tuple(rows),
        matched=matched,
        oracle=tuple(oracle),
        imitation=_imitation_rows(runs),
        budgets=setup.budgets,
        verdict=verdict,
        short=short,
        groups=count_groups(setup.ballots.groups),
        unit="samples" if setup.mode_set is None else setup.mode_set.unit,
        currency="" if setup.mode_set is None else setup.mode_set.currency,
        mode_set=setup.mode_set,
        weighed_by=_list_weights(setup),
        by_score=compare_by_score(setup, runs.splits) if runs.protocol == "held-out" else (),
    )


def _list_weights(setup: EvaluationSetup) -> tuple[str, ...]:
    """Lists what the weight of a vote depends on; with several modes, it always depends on the mode."""
    recorded = {"confidence": records_confidence, "score": records_scores}
    names = [name for name, records in recorded.items() if any(map(records, setup.ballots.parts))]
    return (*(() if setup.mode_set is None else ("mode",)), *(names if setup.weighted else ()))


def compare_by_score(setup: EvaluationSetup, splits: Sequence[Split]) -> tuple[ScoreRow, ...]:
    """Compares a plain vote, a vote weighted by verifier scores, and the answer of the best-scored sample.

    Returns no rows for several modes, without grades, or if an answer has no score. The weights of a fold's
    votes are fitted on the other folds.
    """
    ballots, boot = setup.ballots, make_bootstrap(setup)
    counts = [count for count in _SCORED if count <= setup.longest]
    if setup.mode_set is not None or setup.basis != "accuracy" or not records_scores(ballots):
        return ()
    plain = score(ballots, counts).accuracy
    best = score(ballots, counts, aggregate="best-of", by=read_scores(ballots)[0]).accuracy
    weighted = plain.copy()
    for split in splits:
        weigh = fit_weights(ballots.only(split.train), labels=True)
        if weigh is not None:
            table = score(ballots.only(split.test), counts, aggregate="weighted", by=weigh)
            weighted[split.test] = table.accuracy
    return tuple(
        ScoreRow(
            samples=count,
            plain=float(plain[:, k].mean()),
            weighted=boot.interval(weighted[:, k]),
            weighted_gain=boot.difference(weighted[:, k], plain[:, k]),
            best=boot.interval(best[:, k]),
            best_gain=boot.difference(best[:, k], plain[:, k]),
        )
        for k, count in enumerate(counts)
    )


def make_bootstrap(setup: EvaluationSetup) -> Bootstrap:
    """Draws the bootstrap samples for all intervals of an evaluation; similar problems are drawn together."""
    return Bootstrap.of_groups(setup.ballots.groups, rng=np.random.default_rng([setup.seed, 0xB007]))


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


def _imitation_rows(runs: EvaluationRuns) -> tuple[Imitation, ...]:
    """Lists how often a classifier chooses the oracle's number of samples, for test and training problems."""
    tested = (
        "held-out" if runs.protocol == "held-out" else "in-sample (all problems, 80% of them learned from)"
    )
    labels = (tested, "in-sample (the problems learned from)")
    return tuple(
        Imitation(budget=budget, accuracy=accuracy, majority=majority, protocol=label)
        for result in runs.everyone
        if result.imitation is not None
        for budget, shares in zip(runs.setup.budgets, result.imitation.reshape(-1, 2, 2), strict=True)
        for label, (accuracy, majority) in zip(labels, shares.tolist(), strict=True)
    )


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
