"""The text and tables of docs/reference/evaluation.md, from numbers that scripts/evaluation.py measured."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from adacompute.pool.groups import count_in_groups

Found = dict[str, Any]

# Accuracy at 2, 3 and 4 samples of the two sketches in the design, section 7: plain votes, and weighted ones.
SKETCHED = (2.0, 3.0, 4.0)
SKETCHES: dict[str, tuple[tuple[float, ...], tuple[float, ...] | None]] = {
    "words": ((0.737, 0.824, 0.842), (0.781, 0.822, 0.841)),
    "gsm8k": ((0.609, 0.668, 0.694), (0.640, 0.678, 0.699)),
    "math": ((0.442, 0.489, 0.522), (0.445, 0.487, 0.515)),
    "math500": ((0.824, 0.864, 0.882), None),
    "facts": ((0.477, 0.519, 0.556), (0.512, 0.558, 0.573)),
    "reasoning-gym": ((0.364, 0.400, 0.432), (0.374, 0.403, 0.418)),
}
SLACK = 0.003  # the sketches are from 10 to 100 orderings
LABELLED = 0.005  # what labels must add on the mean
KEPT = 0.8  # of the gain over fixed, with three waves

LEAD = {
    2.0: 0.015,
    3.0: 0.019,
    4.0: 0.014,
}  # of the shipped prior over the peers: what transferred had before
SIGNALS = 0.005  # what signals must add on the mean of their recordings at 3 and 4

OURS = (
    ("shipped", "**stopping, shipped prior**"),
    ("earlier", "stopping, prior of facts and words, as shipped before"),
    ("transferred", "**stopping, transferred**"),
    ("calibrated", "**stopping, calibrated with labels**"),
    ("calibrated, no labels", "stopping, calibrated without labels"),
    ("transferred, 3 waves", "stopping, transferred, at most 3 waves"),
)


def list_rows(found: Found) -> list[tuple[str, str]]:
    """The rows of a table of accuracies: each peer, their hull, and ours."""
    peers = [(name, name) for name in found["peers"]]
    return [*peers, ("peers", "**peers**: their joint hull, plain and weighted"), *OURS]


@dataclass(frozen=True)
class Bar:
    """Something that must be reached, what was measured, and where it fell short."""

    what: str
    measured: str
    short: tuple[str, ...]  # where it isn't reached

    @property
    def line(self) -> str:
        verdict = "reached" if not self.short else f"**not reached**: {'; '.join(self.short)}"
        return f"| {self.what} | {self.measured} | {verdict} |"


def page(found: Found) -> str:
    """The whole page."""
    peers = [f"`{name}`" for name in found["peers"]]
    listed = f"{', '.join(peers[:-1])} and {peers[-1]}"
    recorded = ", ".join(
        f"{each['name']} ({count_in_groups(each['problems'], len(set(each['groups'])))})"
        for each in found["recordings"]
    )
    head = _HEAD.format(
        **found | {"recorded": recorded, "peers": listed.replace("`esc`", "`esc` (every window)")}
    )
    parts = [head, _means(found), _bars(found), _signals(found), "## Recording by recording\n"]
    parts += [_recording(one, found) for one in found["recordings"]]
    return "\n".join(parts).rstrip() + "\n"


_HEAD = """# Evaluation: policies on real recordings

Made by `make evaluation` from recordings that are not part of the repository; every number, and every
"reached", is computed. What the words mean:

- **at a cost**: on the upper concave hull of a policy's own settings (a grid of 64 prices, or of
  thresholds; for policies without a dial some fitted budgets), read at exactly that average number of
  samples: choosing randomly between two settings is always allowed. Hulls are computed on the problems they
  are judged on, which favours the policies with most settings: the joint hull of the peers above all.
- **shipped prior**: the policy in the package as it is, unfitted. For each recording here the package has a
  prior that was learned on the others, and takes that one by itself: leave-one-recording-out. What users get
  is the prior of all recordings.
- **transferred**: fitted on the other recordings only. Of the recording that it is judged on it sees
  only the scale of the votes' confidence, which needs no labels and is taken from other folds.
- **groups**: problems that are alike (of one template, say) are held out together, and drawn together for
  intervals. facts has 7 groups, too few for an interval of its own.
- **calibrated**: {folds} folds over groups, fitted on the other folds, starting from the transferred
  policy. The peers `curve` and `classifier` are fitted in the same folds.
- **peers**: {peers}, as one: the joint hull
  of all their settings with plain votes and, where log-probabilities are recorded, with weighted ones.
- Votes are weighted by confidence where log-probabilities are recorded (not for math500), also for the
  peers.
- {orders} random orders of each problem's samples, the same for all; at most 16 samples a request; 95%
  intervals by bootstrap over groups, paired where two are compared. The oracle decides beforehand among
  1, 2, 4, 8 and 16 samples with the answers known; its bracket is from "chosen and judged on different
  samples" to "on the same". A policy that decides as votes come in has information that it lacks, and may
  exceed it.
- These tables compare many policies, each interval alone. Whether deciding pays on one pool is said by
  [the verdict](../policies.md#the-verdict): one policy fixed beforehand, intervals joint over budgets.
- **sketches**: two first, simple stopping rules, plain and weighted, measured on 10 to 100 orders before this
  was built; their accuracies at 2, 3 and 4 samples are the marks in the first two bars.
- The recordings: {recorded}. facts is of SmolLM2-135M, math500 of
  DeepSeek-R1-Distill-Llama-8B (80 samples each), the others are of Qwen2.5-Coder-1.5B; 64 samples each.
"""


def _bars(found: Found) -> str:
    head = "## What had to be reached\n\n| bar | measured | |\n| --- | --- | --- |"
    return "\n".join([head, *(bar.line for bar in bars(found))]) + "\n"


def bars(found: Found) -> list[Bar]:
    """Every bar, computed."""
    return [
        _sketch_bar(found, weighted=True),
        _sketch_bar(found, weighted=False),
        _never_below(found, "lead", "transferred: never significantly below the peers"),
        _ahead(found),
        _shipped(found),
        _never_below(found, "shipped_lead", "shipped prior: never significantly below the peers"),
        _never_below(found, "shipped", "shipped prior: never significantly below transferred"),
        _never_below(found, "renewed", "shipped prior: never significantly below the one it replaces"),
        _signal_bar(found),
        _labelled(found),
        _bracket_bar(found, "plain", "the oracle's bracket (plain votes, as in the design)"),
        _bracket_bar(found, "weighted", "the oracle's bracket with weighted votes"),
        _bare(found),
        _waves(found),
    ]


def _sketch_bar(found: Found, *, weighted: bool) -> Bar:
    short, margins = [], []
    for one in found["recordings"]:
        if one["name"] not in SKETCHES:
            continue
        plain, sure = SKETCHES[one["name"]]
        for place, budget in enumerate(SKETCHED):
            at = one["at"][str(budget)]
            wanted = max(plain[place], sure[place]) if weighted and sure else plain[place]
            had = at["accuracy" if weighted else "plain"]["transferred"]
            margins.append(had - wanted)
            if had < wanted - SLACK:
                short.append(f"{one['name']} at {budget:g}: {had:.3f} for {wanted:.3f}")
    which = (
        "the better of the two sketches, with weights" if weighted else "the plain sketch, weights withheld"
    )
    return Bar(
        f"transferred: at least {which} (± {SLACK})",
        f"margins {min(margins):+.3f} to {max(margins):+.3f}, mean {sum(margins) / len(margins):+.3f}",
        tuple(short),
    )


def _never_below(found: Found, key: str, what: str) -> Bar:
    short, least = [], []
    for one, budget, at in _cells(found):
        gap = at["difference"][key]
        if gap is None or gap["high"] is None:
            continue
        least.append(gap["high"])
        if gap["high"] < 0:
            short.append(f"{one['name']} at {budget:g}: {_points(gap)}")
    return Bar(what, f"the least upper end is {100 * min(least):+.2f} points", tuple(short))


def _ahead(found: Found) -> Bar:
    here = {budget: found["means"][str(budget)]["lead"] for budget in SKETCHED}
    short = [f"at {budget:g}" for budget, gap in here.items() if gap["low"] <= 0]
    return Bar(
        "transferred: ahead of the peers on the mean at 2, 3 and 4, the interval above zero",
        "; ".join(f"{budget:g}: {_points(gap)}" for budget, gap in here.items()),
        tuple(short),
    )


def _shipped(found: Found) -> Bar:
    here = {budget: found["means"][str(budget)]["shipped_lead"] for budget in LEAD}
    short = [f"at {budget:g}" for budget, gap in here.items() if round(gap["mean"], 3) < LEAD[budget]]
    marks = ", ".join(f"{100 * lead:+.1f}" for lead in LEAD.values())
    return Bar(
        f"shipped prior: ahead of the peers on the mean at 2, 3 and 4 by {marks} points or more",
        "; ".join(f"{budget:g}: {_points(gap)}" for budget, gap in here.items()),
        tuple(short),
    )


def _signal_bar(found: Found) -> Bar:
    here = {budget: found["signal_means"][str(budget)]["shipped"] for budget in (3.0, 4.0)}
    short = [f"at {budget:g}" for budget, gap in here.items() if gap["mean"] < SIGNALS]
    names = " and ".join(one["name"] for one in found["signals"])
    return Bar(
        f"signals: {100 * SIGNALS:g} points or more on the mean of {names} at 3 and 4",
        "; ".join(f"{budget:g}: {_points(gap)}" for budget, gap in here.items()),
        tuple(short),
    )


def _labelled(found: Found) -> Bar:
    here = {budget: found["means"][str(budget)]["labels"] for budget in (2.0, 3.0)}
    short = [f"at {budget:g}" for budget, gap in here.items() if gap["mean"] < LABELLED]
    return Bar(
        f"calibrated with labels: {100 * LABELLED:g} points or more above transferred on the mean at 2 and 3",
        "; ".join(f"{budget:g}: {_points(gap)}" for budget, gap in here.items()),
        tuple(short),
    )


def _bracket_bar(found: Found, votes: str, what: str) -> Bar:
    short, margins = [], []
    for one, budget, at in _cells(found):
        if budget < 3 or votes not in at["oracle"]:
            continue
        low, high = at["oracle"][votes]
        had, least = at["accuracy"]["calibrated"], high if low is None else low
        margins.append(had - least)
        if had < least:
            short.append(f"{one['name']} at {budget:g}: {had:.3f} for {least:.3f}–{high:.3f}")
    return Bar(
        f"calibrated with labels: inside or above {what} on every recording from 3 up",
        f"above its lower end by {100 * min(margins):+.1f} to {100 * max(margins):+.1f} points",
        tuple(short),
    )


def _bare(found: Found) -> Bar:
    short = [
        f"{one['name']} at {budget:g}: {_points(at['difference']['bare'])}"
        for one, budget, at in _cells(found)
        if (gap := at["difference"]["bare"]) and gap["high"] is not None and gap["high"] < 0
    ]
    here = {budget: found["means"][str(budget)]["bare"] for budget in found["budgets"]}
    short += [f"on the mean at {budget:g}" for budget, gap in here.items() if gap["high"] < 0]
    return Bar(
        "calibrated without labels: no worse than transferred (no paired interval below zero)",
        "mean " + "; ".join(f"{budget:g}: {_points(gap)}" for budget, gap in here.items()),
        tuple(short),
    )


def _waves(found: Found) -> Bar:
    shares = {}
    for budget in found["budgets"]:
        at = found["means"][str(budget)]
        gain = at["gain"]["mean"]
        shares[budget] = at["kept"]["mean"] / gain if gain > 0 else 1.0  # no gain: nothing to lose
    short = [f"at {budget:g}: {share:.0%}" for budget, share in shares.items() if share < KEPT]
    return Bar(
        f"with at most 3 waves: at least {KEPT:.0%} of the gain over fixed kept, on the mean",
        "; ".join(f"{budget:g}: {share:.0%}" for budget, share in shares.items()),
        tuple(short),
    )


def _means(found: Found) -> str:
    budgets = found["budgets"]
    head = ["## Mean over recordings\n", _row(["accuracy at a cost of", *(f"{b:g}" for b in budgets)])]
    head.append(_rule(len(budgets)))
    for key, label in list_rows(found):
        head.append(_row([label, *(_mean_cell(found, key, budget) for budget in budgets)]))
    head += ["", _row([_DIFFERENCE, *(f"{b:g}" for b in budgets)]), _rule(len(budgets))]
    for key, label in _PAIRS:
        cells = [_points(found["means"][str(b)].get(key)) for b in budgets]
        head.append(_row([label, *cells]))
    return "\n".join(head) + "\n"


_DIFFERENCE = "paired difference, points (95%)"
_PAIRS = (
    ("shipped_gain", "shipped prior − fixed"),
    ("shipped_lead", "shipped prior − peers"),
    ("shipped", "shipped prior − transferred"),
    ("renewed", "shipped prior − the one before"),
    ("gain", "transferred − fixed"),
    ("lead", "transferred − peers"),
    ("labels", "calibrated with labels − transferred"),
    ("labels_lead", "calibrated with labels − peers"),
    ("bare", "calibrated without labels − transferred"),
    ("kept", "at most 3 waves − fixed"),
)


def _mean_cell(found: Found, key: str, budget: float) -> str:
    values = [one["at"][str(budget)]["accuracy"].get(key) for one in found["recordings"]]
    return "–" if any(value is None for value in values) else f"{sum(values) / len(values):.3f}"


def _signals(found: Found) -> str:
    """Signals on and off: the same samples, weighted by what single tokens tell or by their mean alone."""
    budgets = found["budgets"]
    lines = [_SIGNALS_HEAD]
    for one in found["signals"]:
        lines += [f"{one['name']}: {one['problems']} problems, {one['samples']} samples each.\n"]
        lines += [_row(["accuracy at a cost of", *(f"{b:g}" for b in budgets)]), _rule(len(budgets))]
        for policy, label in _SIGNALLED:
            for way in ("off", "on"):
                cells = [_number(one["at"][str(b)]["accuracy"][policy][way]) for b in budgets]
                lines.append(_row([f"{label}, signals {way}", *cells]))
        lines.append("")
    lines += [_row([_DIFFERENCE, *(f"{b:g}" for b in budgets)]), _rule(len(budgets))]
    for policy, label in _SIGNALLED:
        for one in found["signals"]:
            cells = [_points(one["at"][str(b)]["difference"][policy]) for b in budgets]
            lines.append(_row([f"{one['name']}, {label}: on − off", *cells]))
        cells = [_points(found["signal_means"][str(b)][policy]) for b in budgets]
        lines.append(_row([f"mean, {label}: on − off", *cells]))
    return "\n".join(lines) + "\n"


_SIGNALS_HEAD = """## Signals on and off

On the samples whose tokens' log-probabilities were read one by one (by teacher forcing). Off: votes are
weighted by the mean log-probability, as in the tables above. On: by what the answer's own tokens and the
others tell too. Both ways the policy is the shipped prior, leave-one-out, on the same orders.
"""
_SIGNALLED = (("fixed", "fixed"), ("shipped", "stopping, shipped prior"))


def _recording(one: Found, found: Found) -> str:
    budgets = found["budgets"]
    votes = "weighted votes" if "weighted" in one["votes"] else "plain votes: no log-probabilities recorded"
    lines = [f"### {one['name']}\n", f"{one['problems']} problems, {votes}.\n"]
    lines += [_row(["accuracy at a cost of", *(f"{b:g}" for b in budgets)]), _rule(len(budgets))]
    at: Callable[[float], Found] = lambda budget: one["at"][str(budget)]  # noqa: E731
    for key, label in list_rows(found):
        lines.append(_row([label, *(_number(at(b)["accuracy"].get(key)) for b in budgets)]))
    for votes, label in (("weighted", "oracle, weighted votes"), ("plain", "oracle, plain votes")):
        if votes in one["votes"]:
            lines.append(_row([label, *(_ends(at(b)["oracle"][votes]) for b in budgets)]))
    if "weighted" in one["votes"]:
        cells = [_number(at(b)["plain"]["transferred"]) for b in budgets]
        lines.append(_row(["stopping, transferred, weights withheld", *cells]))
    lines += [
        "",
        _row([_DIFFERENCE, *(f"{b:g}" for b in budgets)]),
        _rule(len(budgets)),
    ]
    for key, label in _PAIRS:
        lines.append(_row([label, *(_points(at(b)["difference"][key]) for b in budgets)]))
    return "\n".join(lines) + "\n"


def _cells(found: Found) -> Iterable[tuple[Found, float, Found]]:
    for one in found["recordings"]:
        for budget in found["budgets"]:
            yield one, budget, one["at"][str(budget)]


def _points(gap: Found | None) -> str:
    if gap is None:
        return "–"
    if gap["low"] is None:  # too few groups
        return f"{100 * gap['mean']:+.1f}"
    return f"{100 * gap['mean']:+.1f} ({100 * gap['low']:+.1f} to {100 * gap['high']:+.1f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _ends(ends: list[float | None]) -> str:
    low, high = ends
    return f"{high:.3f} at most" if low is None else f"{low:.3f}–{high:.3f}"


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return _row(["---", *["---:"] * columns])
