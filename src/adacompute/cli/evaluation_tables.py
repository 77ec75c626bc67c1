"""Prints an evaluation, first its verdict and then its tables; also prints the summary of a fit."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from adacompute.cli.modes import ModeOptions, format_draws
from adacompute.cli.terminal import (
    format_count,
    format_ends,
    format_percent,
    format_range,
    print_fact,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.evaluate import Evaluation, Match, Verdict, VerdictRow
from adacompute.evaluate.comparison import OTHER_HALF, Saving
from adacompute.evaluate.mode_rivals import ALL_MODES
from adacompute.evaluate.mode_verdict import SPENT_TOLERANCE
from adacompute.evaluate.resampling import ScoreRow
from adacompute.pool.groups import count_in_groups
from adacompute.pool.modes import ModeSet
from adacompute.records import TokenPrices, format_money, format_points

_VERDICT_NOTE = (
    "(gain in points over uniform at the same cost; the joint intervals hold for all rows at once, and the "
    "verdict rests on them; as good as: so many samples for every request; rounds a request: mean, and in "
    "brackets what 95% of requests don't exceed; uniform has 1, as its samples are all asked for at once)"
)
_MODES_VERDICT_NOTE = (
    "(gain in points over the best of the modes, alone or mixed, at the same cost; as good as: what those "
    "cost for the same; rounds a request: mean, and in brackets what 95% of requests don't exceed)"
)
_SCORES_NOTE = (
    "(gain over plain votes in points, 95%, paired over problems; how much a score weighs is learned on the "
    "other folds, best of n learns nothing)"
)
_HULL_NOTE = (
    "At the same cost: on the upper concave hull of a policy's own settings, mixing two of them at random; "
    "fixed is the same for every problem. peers is the joint hull of all policies but stopping and the "
    "oracle, picked with hindsight."
)
_MODES_NOTE = (
    "All were chosen on other problems than they are judged on, and cost the same on average where they can "
    "spend it, by a mix of two of their settings. uniform: so many samples of one mode for everyone; best "
    "fixed mix: of all of these; joint fixed vote: so many samples of every mode for everyone. Intervals are "
    "95%, paired."
)
_PAIRED_NOTE = "differences are surer, being of the same problems"
_ORACLE_NOTE = (
    "oracle: decides beforehand among 1, 2, 4, 8 and 16 samples with the answers known; from chosen and "
    "judged on different samples to the same ones."
)
_IN_SAMPLE_NOTE = (
    "In-sample: policies are judged on problems that they have learned from, which flatters them."
)


def show_evaluation(
    evaluation: Evaluation, *, name: str, prices: TokenPrices | None = None, tables: bool = True
) -> None:
    """Shows at which budgets a policy improves accuracy; if `tables`, also shows tables of all policies."""
    problems = count_in_groups(evaluation.problems, evaluation.groups)
    print_line(f"{name}: {problems}, {describe_evaluation_protocol(evaluation)}")
    if evaluation.mode_set is not None:
        print_fact("modes", describe_modes(evaluation.mode_set))
    print_line()
    if evaluation.basis == "agreement":
        print_paragraph(
            "There are no gold answers and no recorded grades, so accuracy can't be known. Shown instead is "
            f"{_describe_basis(evaluation)}, which no policy draws."
        )
        print_line()
    if evaluation.least is None:
        show_verdict(evaluation.verdict, prices, menu=evaluation.mode_set)
        print_line()
        if evaluation.by_score:
            _show_scores(evaluation.by_score, problems)
            print_line()
        if not tables and evaluation.verdict.rows:
            print_line("Every policy beside the others: --tables")
            return
    _show_tables(evaluation)
    print_line()
    print_paragraph(_compose_notes(evaluation))


def _show_scores(rows: Sequence[ScoreRow], problems: str) -> None:
    """Shows how much a verifier's scores improve votes, with the same number of samples for every request."""
    print_line("what the verifier's scores are worth, with as many samples for every request")
    headings = ["samples", "plain votes", "weighted by score", "gain", "best of n by score", "gain"]
    table = [
        [
            *(f"{row.samples}", format_percent(row.plain)),
            *(format_percent(row.weighted.mean), format_ends(row.weighted_gain)),
            *(format_percent(row.best.mean), format_ends(row.best_gain)),
        ]
        for row in rows
    ]
    print_table(headings, table)
    unsure = [f"{row.samples}" for row in rows if row.weighted_gain.holds_zero and row.best_gain.holds_zero]
    if unsure:
        print_paragraph(f"Whether they help with {' or '.join(unsure)} samples, {problems} can't tell.")
    print_paragraph(_SCORES_NOTE, indent=2)


def show_verdict(verdict: Verdict, prices: TokenPrices | None = None, *, menu: ModeSet | None = None) -> None:
    """Shows the verdict and a table with a row per budget; if there are prices, also how much is saved."""
    print_paragraph(verdict.sentence)
    if verdict.support:
        print_paragraph(verdict.support)
    if not verdict.rows:
        return
    print_line()
    if menu is None:
        headings = [
            "samples",
            "uniform",
            verdict.policy or "",
            "gain",
            "95% interval",
            "joint 95%",
            "as good as",
            "rounds",
        ]
        print_table(headings, [_format_verdict_row(row) for row in verdict.rows])
    else:
        headings = [menu.cost_unit, "without a menu", "menu", "gain", "95% interval", "as good as", "rounds"]
        print_table(headings, [_format_mode_verdict_row(row, menu) for row in verdict.rows])
    print_paragraph(_VERDICT_NOTE if menu is None else _MODES_VERDICT_NOTE, indent=2)
    if prices and (savings := verdict.compute_savings(prices)):
        print_line()
        unit = f"{prices.currency}, 1,000 requests"
        print_table(["samples", unit, "uniform, as accurate", "saved"], list(map(_format_saving, savings)))
        print_paragraph(f"({verdict.charge})", indent=2)


def _format_verdict_row(row: VerdictRow) -> list[str]:
    worth = row.worth.mean
    return [
        f"{row.budget:g}",
        format_percent(row.uniform),
        format_percent(row.accuracy),
        format_points(row.gain.mean),
        format_ends(row.gain),
        format_ends(row.joint),
        f"{worth:.1f}" if math.isfinite(worth) else "more",
        _format_rounds(row),
    ]


def _format_mode_verdict_row(row: VerdictRow, menu: ModeSet) -> list[str]:
    cells = _format_verdict_row(row)
    worth = row.worth.mean
    needed = menu.format_cost(worth, unit=False) if math.isfinite(worth) else "never as good"
    return [menu.format_cost(row.budget, unit=False), *cells[1:5], needed, cells[-1]]


def _format_saving(saving: Saving) -> list[str]:
    more = "> " if saving.is_bound else ""
    share = "–" if saving.share is None else f"{more}{saving.share:.0%}"
    return [
        f"{saving.budget:g}",
        format_money(1000 * saving.cost),
        more + format_money(1000 * saving.same_cost),
        share,
    ]


def build_savings(verdict: Verdict, prices: TokenPrices) -> list[dict[str, float | None]]:
    """Returns each budget's cost and saving for the JSON output; empty without prices or recorded tokens."""
    savings = verdict.compute_savings(prices) if prices else ()
    return [{**asdict(saving), "saved": saving.share} for saving in savings]


def describe_modes(menu: ModeSet) -> str:
    """Describes the modes' costs: `a sample of smol costs 0.1, one of qwen 1`."""
    costs = [
        f"{mode.name} {menu.format_cost(mode.cost, unit=False)}"
        if math.isfinite(mode.cost)
        else f"{mode.name} may not be drawn"
        for mode in menu.modes
    ]
    unit = {"money": f"{menu.currency} for 1,000 samples", "tokens": "tokens a sample", "cost": "a sample"}
    return f"{', '.join(costs)} ({unit[menu.unit]})"


def _show_tables(evaluation: Evaluation) -> None:
    """Shows tables that compare all policies, e.g. by accuracy, gains and rounds at the same cost."""
    menu = evaluation.mode_set
    # all policies except the oracle, which gets its own row below because its accuracy is a range
    ran = dict.fromkeys(row.policy for row in evaluation.rows if row.policy != "oracle")
    names = list(ran) or evaluation.policies
    headings = ["", *_format_budgets(evaluation)]
    print_line(f"{_describe_basis(evaluation)} at exactly {_describe_unit(evaluation)}")
    rows = [_format_row(evaluation, name, _format_accuracy) for name in names]
    if evaluation.oracle:
        ends = [
            format_range(end.high if end.low is None else end.low.mean, end.high) for end in evaluation.oracle
        ]
        rows.append(["oracle", *(text.replace("%", "") if "–" in text else text for text in ends)])
    print_table(headings, rows)
    if any("*" in cell for row in rows for cell in row):
        print_paragraph("(* costs less: it can't spend as much)", indent=2)
    if any(match.gain for match in evaluation.matched):
        print_line()
        title, base = "gain over fixed at the same cost, points: 95% interval of each alone", "fixed"
        if menu is not None:
            title, base = "gain of the menu over each at the same cost, points: 95% interval", ALL_MODES
        print_line(f"{title}, paired over problems")
        others = [name for name in names if name != base]
        print_table(headings, [_format_row(evaluation, name, _format_gain(menu)) for name in others])
    if any(match.rounds is not None for match in evaluation.matched):
        print_line()
        print_line("rounds a request at the same cost: mean, and what 95% of requests don't exceed")
        print_table(headings, [_format_row(evaluation, name, _format_rounds) for name in names])
    if menu is not None:
        print_line()
        print_line("what the menu draws: samples a request")
        print_table(headings, [_format_draws(evaluation, mode) for mode in menu.names])
    elif evaluation.rows:
        print_line()
        print_line(_choose_run_title(evaluation))
        print_table(headings, [[name, *_format_run(evaluation, name)] for name in names if name != "peers"])


def _format_budgets(evaluation: Evaluation) -> list[str]:
    if evaluation.mode_set is not None:
        return [evaluation.mode_set.format_cost(budget, unit=False) for budget in evaluation.budgets]
    scale = 1000 if evaluation.unit == "money" else 1
    return [f"{scale * budget:g}" for budget in evaluation.budgets]


def _describe_basis(evaluation: Evaluation) -> str:
    dearest = "" if evaluation.mode_set is None else " of the most expensive mode"
    return "accuracy" if evaluation.basis == "accuracy" else f"agreement with {OTHER_HALF}{dearest}"


def _describe_unit(evaluation: Evaluation) -> str:
    if evaluation.unit == "samples":
        return "so many samples on average"
    return f"so much on average: {_name_unit(evaluation)}"


def _name_unit(evaluation: Evaluation) -> str:
    if evaluation.mode_set is not None:
        return evaluation.mode_set.cost_unit
    money = f"{evaluation.currency} per 1,000 requests"
    return money if evaluation.unit == "money" else "tokens of prompts and responses"


def describe_evaluation_protocol(evaluation: Evaluation) -> str:
    """Describes how policies were judged: `held-out (5 folds), plain votes, 50 orders of the samples`."""
    protocol = f"held-out ({evaluation.folds} folds)"
    if evaluation.protocol == "paper":
        protocol = f"in-sample, the paper's way ({evaluation.folds} seeds: fitted on 80%, judged on all)"
    votes = "plain votes"
    if evaluation.weighed_by:
        votes = f"votes weighted by {' and '.join(evaluation.weighed_by)}"
    dropped = ""
    if evaluation.dropped:
        dropped += f", {format_count(evaluation.dropped, 'problem')} without grades or answers left out"
    if evaluation.short:
        dropped += f", {format_count(evaluation.short, 'problem')} with fewer samples left out"
    return f"{protocol}, {votes}, {evaluation.orders} orders of the samples{dropped}"


def _format_row(evaluation: Evaluation, name: str, cell: Callable[[Match], str]) -> list[str]:
    matches = [evaluation.match(name, budget) for budget in evaluation.budgets]
    return [name, *("–" if match is None else cell(match) for match in matches)]


def _format_accuracy(match: Match) -> str:
    """Formats an accuracy as `81.2%`, with a star if a policy over several modes can't spend the budget."""
    is_unspent = match.draws and match.cost < (1 - SPENT_TOLERANCE) * match.budget
    return format_percent(match.accuracy) + ("*" if is_unspent else "")


def _format_gain(menu: ModeSet | None) -> Callable[[Match], str]:
    def format_gain(match: Match) -> str:
        gain = match.gain if menu is None else match.lead
        return "–" if gain is None else format_ends(gain)

    return format_gain


def _format_rounds(match: Match | VerdictRow) -> str:
    """Formats the rounds per request as `2.1 (5)`: the mean and the 95th percentile."""
    return "–" if match.rounds is None else f"{match.rounds:.1f} ({match.rounds_p95})"


def _format_draws(evaluation: Evaluation, mode: str) -> list[str]:
    return [mode, *_format_row(evaluation, ALL_MODES, lambda match: f"{match.draws[mode]:.2f}")[1:]]


def _choose_run_title(evaluation: Evaluation) -> str:
    if evaluation.protocol == "paper":
        return "as it ran at each budget asked for: accuracy (± over seeds) at its cost"
    return "as it would have run, calibrated beforehand on other problems: accuracy at its cost"


def _format_run(evaluation: Evaluation, name: str) -> list[str]:
    cells = []
    for budget in evaluation.budgets:
        row = evaluation.row(name, budget)
        if row is None:
            cells.append("–")
            continue
        spread = "" if row.accuracy_std is None else f"±{100 * row.accuracy_std:.1f}"
        cells.append(f"{100 * row.accuracy:.1f}{spread} at {row.cost:.2f}")
    return cells


def _compose_notes(evaluation: Evaluation) -> str:
    """Returns the text below the tables, which explains their terms and limitations."""
    if evaluation.mode_set is not None:
        return f"{_MODES_NOTE} ({evaluation.verdict.protocol})"
    if evaluation.least is not None:
        scale, unit = 1000 if evaluation.unit == "money" else 1, _name_unit(evaluation)
        one_sample = f"One sample costs {scale * evaluation.least:.3g} {unit} on average."
        return f"{one_sample} {_HULL_NOTE} Without --unit: in samples, with the oracle and a verdict."
    widths = [
        100 * (match.high - match.low) / 2
        for match in evaluation.matched
        if match.low is not None and match.high is not None
    ]
    known = "Too few groups to say how well an accuracy is known."
    if widths:
        known = (
            f"An accuracy by itself is known to ±{max(widths):.1f} points (95% over groups); {_PAIRED_NOTE}."
        )
    parts = [_HULL_NOTE, known]
    if evaluation.oracle:
        parts.append(_ORACLE_NOTE)
    elif evaluation.basis == "agreement":
        parts.append("The oracle is not shown: it needs the answers.")
    if evaluation.left_out:
        parts.append(f"Left out, because they learn from grades: {', '.join(evaluation.left_out)}.")
    missed = sorted({row.policy for row in evaluation.rows if not row.reached})
    if missed:
        parts.append(f"Not every budget can be met by {', '.join(missed)}: the cost shows what was.")
    if evaluation.protocol == "paper":
        parts.append(_IN_SAMPLE_NOTE)
    return " ".join(parts)


_PRICE_DIGITS = 5  # number of significant digits shown of a policy's price or threshold
_LISTED_POINTS = 7  # maximum number of prices listed for a policy over several modes


def show_fit(
    summary: dict[str, Any],
    judged: Verdict | Evaluation | None,
    *,
    modes: ModeOptions,
    words: str,
    menu: ModeSet | None,
    prices: TokenPrices,
    scores: Sequence[ScoreRow],
) -> None:
    """Shows what a policy learned, its price or threshold at some budgets, the verdict, and next commands.

    `words` are the options that chose a source and groups of problems, as typed on a command line.
    """
    problems = format_count(summary["problems"], "problem")
    samples = format_count(summary["samples"], "sample")
    did = "measured on" if "certificate" in summary else "learned from"
    print_line(f"{summary['policy']}: {did} {problems} and {samples} of {modes.name}")
    print_line()
    for label, value in _build_facts(summary) if menu is None else _build_mode_facts(summary, menu):
        print_fact(label, value)
    print_line()
    if summary["settings"]:
        _show_settings(summary) if menu is None else _show_points(summary, menu)
        print_line()
    if isinstance(judged, Verdict):
        show_verdict(judged, prices)
        print_line()
        if scores:
            _show_scores(scores, count_in_groups(judged.problems, judged.groups))
            print_line()
    elif "certificate" not in summary:
        print_paragraph("What it is worth has to be judged on problems that it has not learned from.")
    if "quality" in summary:
        print_fact("quality", summary["quality_text"])
        print_line()
    print_line("Go on with:")
    for command in _list_commands(summary, modes, words, menu):
        print_line(f"  {command}")
    print_line(f"  python: adacompute.load_policy({summary['folder']!r})")
    if isinstance(judged, Evaluation):
        print_line()
        show_evaluation(judged, name=modes.name)


def _list_commands(
    summary: dict[str, Any], modes: ModeOptions, words: str, menu: ModeSet | None
) -> list[str]:
    """Returns example commands that use the policy."""
    saved = f"--policy {summary['folder']}"
    if "certificate" in summary:
        return [f"adacompute serve {saved} --upstream URL"]
    if menu is not None:
        drawable = [mode.cost for mode in menu.modes if math.isfinite(mode.cost)]
        example = menu.format_cost(min(2 * drawable[0], drawable[-1]) or drawable[-1] / 2, unit=False)
        if menu.unit == "money":
            example = f"'{example} {menu.currency} per 1000'"
        if "quality" in summary:
            wanted = f"{saved} --budget '{summary['quality']['quality']}'"
            return [
                f"adacompute {command} {wanted} --menu menu.toml" for command in ("serve", "answer PROMPTS")
            ]
        return [
            f"adacompute evaluate {modes.words}{modes.cost_words}{words}",
            f"adacompute replay {modes.words} {saved} --budget {example}",
        ]
    budget = f"'{summary['quality']['quality']}'" if "quality" in summary else f"{min(2, summary['longest'])}"
    return [
        f"adacompute evaluate {modes.words} --policies fixed,asc,{summary['policy']}{words}",
        f"adacompute answer PROMPTS {saved} --budget {budget} --endpoint URL -o answers.jsonl",
        f"adacompute serve {saved} --budget {budget} --upstream URL",
    ]


def _build_facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    graded_text = f"correctness of {format_count(summary['labels'], 'problem')}"
    waves, longest = summary["max_waves"], format_count(summary["longest"], "sample")
    facts = [("saved in", summary["folder"])]
    if summary["left_out"]:
        others = format_count(summary["left_out"], "problem")
        facts.append(("left out", f"{others} with fewer than {longest} (see --longest)"))
    if "certificate" in summary:
        known = summary["certificate"]
        average = format_count(f"{known['samples']:.3g}", "sample")
        cost = f"{average} on average, {known['longest']} at most"
        share = f"{format_percent(known['share'])} of answers are certified at a delta of {known['delta']:g}"
        return [*facts, ("cost", cost), ("certificate", share)]
    if not summary["labels"]:
        graded_text = "agreement with the vote of all samples: no labels"
    facts += [
        ("learned", graded_text),
        ("votes", summary["votes"]),
        ("asks for", f"at most {longest}" + (f" in {waves} rounds" if waves else "")),
    ]
    if "calibrated" in summary:
        known = summary["calibrated"]
        dial_text = f"a {summary['dial']} of {known['dial']:.{_PRICE_DIGITS}g}"
        average = format_count(f"{known['samples']:g}", "sample")
        facts.append(("budget", f"{known['text']} is {dial_text}, {average} on average"))
    if "imitation" in summary:
        counts = ", ".join(f"{n:,} × {budget}" for budget, n in summary["oracle_counts"].items())
        facts.append(("oracle", f"gives {counts} samples"))
        share, majority = format_percent(summary["imitation"]), format_percent(summary["majority"])
        in_sample = f"names the oracle's budget on {share} of these problems, in-sample"
        facts.append(("imitation", f"{in_sample} (always the commonest: {majority})"))
    return facts


def _build_mode_facts(summary: dict[str, Any], menu: ModeSet) -> list[tuple[str, str]]:
    labels = f"correctness of {format_count(summary['labels'], 'problem')}"
    facts = [
        ("saved in", summary["folder"]),
        ("modes", describe_modes(menu)),
        ("learned", labels if summary["labels"] else "agreement with the most expensive mode: no labels"),
    ]
    if "calibrated" in summary:
        known = summary["calibrated"]
        dial_text = f"a price of {known['dial']:.{_PRICE_DIGITS}g}"
        facts.append(("budget", f"{menu.format_cost(known['budget'])} is {dial_text}"))
        facts.append(("spent", f"{menu.format_cost(known['cost'])}: {format_draws(known['draws'])}"))
    return facts


def _show_settings(summary: dict[str, Any]) -> None:
    dial = summary["dial"]
    headings = [
        "samples on average",
        *([dial] if dial else []),
        "spent",
        "95%, 99% take at most",
        "rounds (95%)",
        "agrees with the full vote",
    ]
    rows = []
    for setting in summary["settings"]:
        dial_cells = [f"{setting['dial']:.{_PRICE_DIGITS}g}"] if dial else []
        rows.append(
            [
                f"{setting['budget']:g}",
                *dial_cells,
                f"{setting['cost']:.2f}",
                f"{setting['samples_p95']}, {setting['samples_p99']}",
                f"{setting['waves']:.1f} ({setting['rounds_p95']:g})",
                format_percent(setting["agreement"]),
            ]
        )
    print_table(headings, rows)
    print_paragraph("(by replay of these very samples, which needs no labels)", indent=2)


def _show_points(summary: dict[str, Any], menu: ModeSet) -> None:
    """Shows the cost and accuracy of a policy over several modes at some prices, the lowest cost first."""
    points = summary["settings"]
    chosen = np.unique(np.linspace(0, len(points) - 1, _LISTED_POINTS).round().astype(int)).tolist()
    print_table(
        [menu.cost_unit, "price", "accuracy" if summary["labels"] else "agreement"],
        [
            [
                menu.format_cost(points[k]["cost"], unit=False),
                f"{points[k]['dial']:.{_PRICE_DIGITS}g}",
                format_percent(points[k]["accuracy"]),
            ]
            for k in chosen
        ],
    )
    print_paragraph(
        "(estimated on these samples, in part by cross-fitting; on other problems it differs)", indent=2
    )
