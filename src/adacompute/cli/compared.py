"""An evaluation as a person wants it: the verdict first, then tables. Knows nothing of how it was made."""

from collections.abc import Callable, Sequence

from adacompute.cli.show import counted, line, paragraph, percent, table, within
from adacompute.evaluate import Evaluation, Match

__all__ = ["show_evaluation", "show_tables", "what_was_done"]

_TITLE = {"accuracy": "accuracy", "agreement": "agreement with the vote of all samples"}
_UNKNOWN = (
    "There are no gold answers and no recorded grades, so accuracy can't be told. Shown instead is how often "
    "the answer is that of the vote of all of a problem's samples."
)


_HULL = (
    "At the same cost: on the upper concave hull of a policy's own settings, mixing two of them by lot; "
    "fixed is all problems alike. peers is the joint hull of all policies but stopping and the oracle, "
    "picked with hindsight."
)
_PAIRED = "differences are surer, being of the same problems"
_ORACLE = (
    "oracle: decides beforehand among 1, 2, 4, 8 and 16 samples with the answers known; from chosen and "
    "judged on different samples to the same ones."
)
_FLATTERS = "In-sample: policies are judged on problems that they have learned from, which flatters them."


def show_evaluation(found: Evaluation, *, name: str) -> None:
    """What pays, at which budget, by how much, and how far to believe it."""
    line(f"{name}: {counted(found.problems, 'problem')}, {what_was_done(found)}")
    line()
    if found.basis == "agreement":
        paragraph(_UNKNOWN)
        line()
    paragraph(found.verdict)
    line()
    show_tables(found)
    line()
    for one in found.verdicts:
        paragraph(one.words, hang=2)
    line()
    paragraph(_notes(found))


def show_tables(found: Evaluation) -> None:
    """Accuracy at the same cost, what is sure of the gains, and what a calibrated run would have spent."""
    budgets = [one.budget for one in found.verdicts]
    names = list(dict.fromkeys(row.policy for row in found.rows if row.policy != "oracle"))  # peers are last
    headings = ["", *(f"{budget:g}" for budget in budgets)]
    line(f"{_TITLE[found.basis]} at exactly so many samples on average")
    rows = [[name, *_cells(found, name, budgets, lambda one: percent(one.accuracy))] for name in names]
    if found.oracle:
        ends = [within(one.high if one.low is None else one.low.mean, one.high) for one in found.oracle]
        rows.append(["oracle", *(end.replace("%", "") if "–" in end else end for end in ends)])
    table(headings, rows)
    if any(one.gain for one in found.matched):
        line()
        line("gain over fixed at the same cost, points: 95% interval, paired over problems")
        rest = [name for name in names if name != "fixed"]
        table(headings, [[name, *_cells(found, name, budgets, _gain)] for name in rest])
    line()
    line(_run_title(found))
    played = [name for name in names if name != "peers"]
    table(headings, [[name, *_run(found, name, budgets)] for name in played])
    _show_imitation(found, budgets)


def what_was_done(found: Evaluation) -> str:
    """`held-out (5 folds), votes weighted by confidence, 50 orders of the samples`."""
    parts = f"held-out ({found.folds} folds)"
    if found.protocol == "paper":
        parts = f"in-sample, the paper's way ({found.folds} seeds: fitted on 80%, judged on all)"
    votes = "votes weighted by confidence" if found.votes == "weighted" else "plain votes"
    out = f", {counted(found.dropped, 'problem')} without grades left out" if found.dropped else ""
    return f"{parts}, {votes}, {found.orders} orders of the samples{out}"


def _cells(found: Evaluation, name: str, budgets: Sequence[float], cell: Callable[[Match], str]) -> list[str]:
    at = [found.match(name, budget) for budget in budgets]
    return ["–" if one is None else cell(one) for one in at]


def _gain(match: Match) -> str:
    if match.gain is None or match.gain.low is None or match.gain.high is None:
        return "–"
    low, high = (round(100 * end, 1) + 0.0 for end in (match.gain.low, match.gain.high))
    return f"{low:.1f} to {high:.1f}"


def _run_title(found: Evaluation) -> str:
    if found.protocol == "paper":
        return "as it ran at each budget asked for: accuracy (± over seeds) at its cost"
    return "as it would have run, calibrated beforehand on other problems: accuracy at its cost"


def _run(found: Evaluation, name: str, budgets: Sequence[float]) -> list[str]:
    cells = []
    for budget in budgets:
        row = found.row(name, budget)
        if row is None:
            cells.append("–")
            continue
        spread = "" if row.accuracy_std is None else f"±{100 * row.accuracy_std:.1f}"
        cells.append(f"{100 * row.accuracy:.1f}{spread} at {row.cost:.2f}")
    return cells


def _show_imitation(found: Evaluation, budgets: Sequence[float]) -> None:
    if not found.imitation:
        return
    line()
    line("how often the classifier names the oracle's budget (always naming the commonest)")
    rows = []
    for protocol in dict.fromkeys(one.protocol for one in found.imitation):
        at = {one.budget: one for one in found.imitation if one.protocol == protocol}
        cells = [
            f"{100 * at[b].accuracy:.1f} ({100 * at[b].majority:.1f})" if b in at else "–" for b in budgets
        ]
        rows.append([protocol, *cells])
    table(["", *(f"{budget:g}" for budget in budgets)], rows)


def _notes(found: Evaluation) -> str:
    """What the words in the tables mean, and what they leave open."""
    known = [one for one in found.matched if one.low is not None and one.high is not None]
    half = max((100 * (one.high - one.low) / 2 for one in known if one.high and one.low), default=0.0)
    parts = [
        _HULL,
        f"An accuracy by itself is known to ±{half:.1f} points (95% over problems); {_PAIRED}.",
    ]
    if found.oracle:
        parts.append(_ORACLE)
    elif found.basis == "agreement":
        parts.append("The oracle is not shown: it needs the answers.")
    if found.left_out:
        parts.append(f"Left out, because they learn from grades: {', '.join(found.left_out)}.")
    missed = sorted({row.policy for row in found.rows if not row.reached})
    if missed:
        parts.append(f"Not every budget can be met by {', '.join(missed)}: the cost shows what was.")
    if found.protocol == "paper":
        parts.append(
            "In-sample: policies are judged on problems that they have learned from, which flatters them."
        )
    return " ".join(parts)
