"""Makes StoppingPolicy's priors from every recording there is: `python scripts/prior.py`, some minutes.

It learns on the recordings beside the checkout (`../shared/recordings`). What is shipped are the numbers
learned, not the recordings. One prior is learned on all of them. For each recording another is learned on the
rest, without any problem whose prompt that recording has: `select_unseen_prior` takes it to judge that
recording. For pools with prompts of several recordings there is one of the package's own recordings alone.
The same priors make the chart of the first one, which says what a policy on it costs and gives.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from recordings import FOLDER as RECORDINGS
from recordings import read_recordings, read_signals

from adacompute.evaluate.chart_builder import (
    BUDGETS,
    ORDERS,
    PolicyReplays,
    assemble_chart,
    find_prices,
    round_price_up,
)
from adacompute.policies.artefact import write_artefact
from adacompute.policies.base import Arrays
from adacompute.policies.chart import Chart, ChartRow, write_chart
from adacompute.policies.paths import draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.prior import (
    BUNDLED_PRIORS,
    FALLBACK_PRIOR,
    exclude_shared,
    fit_prior,
    load_bundled_prior,
)
from adacompute.pool import Ballots

FOLDER = Path(__file__).resolve().parent.parent / "src/adacompute/policies/stopping/priors"
WITHOUT = "without-"  # begins the name of a prior that was learned on all recordings but one
WITH_SIGNALS = ("gsm8k", "math")  # recordings with measured signals of their first samples
LONGEST = 16  # samples a request


def main() -> None:
    """Writes every prior again, and then the chart of the first."""
    judged = read_recordings()
    if missing := sorted(set(_list_left_out()) - set(judged)):
        sys.exit(
            f"{RECORDINGS}: no recording {', '.join(missing)}; the priors are learned on all recordings, and "
            "can't be made again without them (the priors in the package stay as they are)"
        )
    for name in (*BUNDLED_PRIORS, FALLBACK_PRIOR):
        prior = fit_prior(gather_recordings(name, judged), longest=LONGEST)
        arrays = narrow_arrays(prior.arrays())
        write_artefact(FOLDER / name, kind="prior", settings=prior.settings(), arrays=arrays)
        sys.stderr.write(f"{name}: {prior.problems} problems\n")
    load_bundled_prior.cache_clear()
    write_chart(FOLDER / BUNDLED_PRIORS[0], build_prior_chart(judged))


def narrow_arrays(arrays: Arrays) -> Arrays:
    """Arrays that take less space: floats get 32 bits, integers 16 if they fit; not thresholds of trees."""
    narrow = {}
    for name, array in arrays.items():
        kind, most = array.dtype.name, int(array.max(initial=0))
        if kind == "float64" and not name.endswith("threshold"):
            narrow[name] = array.astype(np.float32)
        elif kind == "int32" and most <= np.iinfo(np.int16).max and not name.endswith("threshold"):
            narrow[name] = array.astype(np.int16)
        else:
            narrow[name] = array
    return narrow


def gather_recordings(name: str, judged: Mapping[str, Ballots]) -> list[Ballots]:
    """What the prior of one name is learned on: all recordings, or those without one and its prompts.

    The fallback is learned on the recordings that its name lists.
    """
    if name == FALLBACK_PRIOR:
        return [judged[part] for part in name.split("-")]
    left_out = judged[name.removeprefix(WITHOUT)] if name.startswith(WITHOUT) else None
    signals = [read_signals(each, judged[each]) for each in WITH_SIGNALS]
    recordings = [exclude_shared(ballots, left_out) for ballots in (*judged.values(), *signals)]
    return [ballots for ballots in recordings if len(ballots)]


def build_prior_chart(judged: Mapping[str, Ballots], budgets: Sequence[float] = BUDGETS) -> Chart:
    """What a policy that isn't fitted costs and gives: the mean over recordings, by priors of the others.

    Each recording has its own price for a budget, as traffic has once the gateway has found it. Those
    without log-probabilities are left out, because plain votes have other prices.
    """
    charts, names = [], []
    for name in _list_left_out():
        ballots = judged[name]
        policy = StoppingPolicy().copy_for(ballots)
        if policy.weigh is None:
            continue
        names.append(name)
        drawn = draw_paths(ballots, rng=np.random.default_rng(0), orders=ORDERS, weigh=policy.weigh)
        replays = PolicyReplays([(policy, drawn)])
        chart = assemble_chart(replays, replays, prices=find_prices(replays, budgets), protocol="")
        assert chart is not None
        charts.append(chart)
    problems = sum(chart.problems for chart in charts)
    protocol = (
        f"replay of {len(charts)} recordings ({', '.join(names)}), {problems} problems, {ORDERS} orders, "
        "votes weighted by logprob; held out: each by a prior that was learned on the others, at its own "
        "price, and the mean of these"
    )
    rows = tuple(_mean(rows) for rows in zip(*(chart.rows for chart in charts), strict=True))
    return Chart(dial=charts[0].dial, unit=charts[0].unit, problems=problems, protocol=protocol, rows=rows)


def _list_left_out() -> list[str]:
    """The recordings that have a prior without them."""
    return [name.removeprefix(WITHOUT) for name in BUNDLED_PRIORS if name.startswith(WITHOUT)]


def _mean(rows: Sequence[ChartRow]) -> ChartRow:
    """The mean of rows of one budget, that of prices by their logarithms; lengths differ by model."""
    names = [field.name for field in fields(ChartRow) if field.name not in ("tokens", "above")]
    means = {name: float(np.mean([getattr(row, name) for row in rows])) for name in names}
    return ChartRow(
        **means | {"price": round_price_up(float(np.exp(np.mean([np.log(row.price) for row in rows]))))}
    )


if __name__ == "__main__":
    main()
