"""Makes StoppingPolicy's priors from the bundled recordings: `python scripts/prior.py`.

Doesn't know any other recording. A prior is made of all of them, and of each alone, so that a bundled
recording can be judged by a prior that hasn't seen it: so is made the chart of the first one, which says what
a policy on it costs and gives.
"""

import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from adacompute.evaluate.chart_builder import BUDGETS, ORDERS, PolicyReplays, assemble_chart, round_price_up
from adacompute.policies.artefact import write_artefact
from adacompute.policies.chart import Chart, ChartRow, write_chart
from adacompute.policies.paths import draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import BUNDLED_PRIORS, fit_prior, load_bundled_prior
from adacompute.pool import Ballots, bundled

FOLDER = Path(__file__).resolve().parent.parent / "src/adacompute/policies/stopping/priors"


def main() -> None:
    """Writes every prior again, and then the chart of the first."""
    for name in BUNDLED_PRIORS:
        recordings = [_recording(part) for part in name.split("-")]
        prior = fit_prior(recordings, longest=16)
        settings = {"problems": prior.problems, "scale": prior.scale}
        write_artefact(FOLDER / name, kind="prior", settings=settings, arrays=prior.arrays())
        sys.stderr.write(f"{name}: {prior.problems} problems\n")
    load_bundled_prior.cache_clear()
    write_chart(FOLDER / BUNDLED_PRIORS[0], charted())


def charted(budgets: Sequence[float] = BUDGETS) -> Chart:
    """What a policy that isn't fitted costs and gives: the mean over recordings, by priors of the others.

    Each recording has its own price for a budget, as traffic has once the gateway has found it.
    """
    charts = []
    for name in BUNDLED_PRIORS[0].split("-"):
        ballots = _recording(name)
        policy = StoppingPolicy().copy_for(ballots)
        drawn = draw_paths(ballots, rng=np.random.default_rng(0), orders=ORDERS, weigh=policy.weigh)
        replays = PolicyReplays([(policy, drawn)])
        chart = assemble_chart(replays, replays, budgets=budgets, protocol="")
        assert chart is not None
        charts.append(chart)
    problems = sum(chart.problems for chart in charts)
    protocol = (
        f"replay of the {len(charts)} recordings in the package, {problems} problems, {ORDERS} orders, votes "
        "weighted by logprob; held out: each by a prior that was learned on the others, at its own price, "
        "and the mean of these"
    )
    rows = tuple(_mean(rows) for rows in zip(*(chart.rows for chart in charts), strict=True))
    return replace(charts[0], problems=problems, protocol=protocol, rows=rows)


def _mean(rows: Sequence[ChartRow]) -> ChartRow:
    """The mean of rows of one budget, that of prices by their logarithms."""
    means = {
        field.name: float(np.mean([getattr(row, field.name) for row in rows])) for field in fields(ChartRow)
    }
    return ChartRow(
        **means | {"price": round_price_up(float(np.exp(np.mean([np.log(row.price) for row in rows]))))}
    )


def _recording(name: str) -> Ballots:
    with bundled(name) as pool:
        return pool.ballots()


if __name__ == "__main__":
    main()
