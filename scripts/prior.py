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

from adacompute.evaluate.charted import BUDGETS, ORDERS, Replays, drawn_chart, told
from adacompute.paths import paths
from adacompute.policies.artefact import write_artefact
from adacompute.policies.chart import Chart, Row, write_chart
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import BUNDLED, bundled_prior, prior_of
from adacompute.pool import Ballots, bundled

FOLDER = Path(__file__).resolve().parent.parent / "src/adacompute/policies/stopping/priors"


def main() -> None:
    """Writes every prior anew, and then the chart of the first."""
    for name in BUNDLED:
        recordings = [_recording(part) for part in name.split("-")]
        prior = prior_of(recordings, longest=16)
        settings = {"problems": prior.problems, "scale": prior.scale}
        write_artefact(FOLDER / name, kind="prior", settings=settings, arrays=prior.arrays())
        sys.stderr.write(f"{name}: {prior.problems} problems\n")
    bundled_prior.cache_clear()
    write_chart(FOLDER / BUNDLED[0], charted())


def charted(budgets: Sequence[float] = BUDGETS) -> Chart:
    """What a policy that isn't fitted costs and gives: the mean over recordings, by priors of the others.

    Each recording has its own price for a budget, as traffic has once the gateway has found it.
    """
    charts = []
    for name in BUNDLED[0].split("-"):
        ballots = _recording(name)
        policy = StoppingPolicy().adapted(ballots)
        drawn = paths(ballots, rng=np.random.default_rng(0), orders=ORDERS, weigh=policy.weigh)
        replays = Replays([(policy, drawn)])
        chart = drawn_chart(replays, replays, budgets=budgets, protocol="")
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


def _mean(rows: Sequence[Row]) -> Row:
    """The mean of rows of one budget, that of prices by their logarithms."""
    means = {field.name: float(np.mean([getattr(row, field.name) for row in rows])) for field in fields(Row)}
    return Row(**means | {"price": told(float(np.exp(np.mean([np.log(row.price) for row in rows]))))})


def _recording(name: str) -> Ballots:
    with bundled(name) as pool:
        return pool.ballots()


if __name__ == "__main__":
    main()
