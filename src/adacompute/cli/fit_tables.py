"""What `adacompute fit` shows: what was learned, its dial for some budgets, and what to do next."""

import math
from typing import Any

import numpy as np

from adacompute.cli.evaluation_tables import describe_modes, show_evaluation, show_verdict
from adacompute.cli.modes import ModeOptions, format_draws
from adacompute.cli.terminal import (
    format_count,
    format_percent,
    print_fact,
    print_line,
    print_paragraph,
    print_table,
)
from adacompute.evaluate import Evaluation, Verdict
from adacompute.pool import Menu
from adacompute.records import TokenPrices

_PRICE_DIGITS = 5  # significant digits of a price
_LISTED_POINTS = 7  # settings over several modes that are shown


def show_fit(
    summary: dict[str, Any],
    judged: Verdict | Evaluation | None,
    *,
    modes: ModeOptions,
    menu: Menu | None,
    prices: TokenPrices,
) -> None:
    """Show what was learned, where it is, its dial for some budgets, the verdict, and what to do next."""
    problems, samples = (
        format_count(summary["problems"], "problem"),
        format_count(summary["samples"], "sample"),
    )
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
    elif "certificate" not in summary:
        print_paragraph("What it is worth has to be judged on problems that it has not learned from.")
    if "quality" in summary:
        print_fact("quality", summary["quality_text"])
        print_line()
    print_line("Go on with:")
    for command in _list_commands(summary, modes, menu):
        print_line(f"  {command}")
    print_line(f"  python: adacompute.load_policy({summary['folder']!r})")
    if isinstance(judged, Evaluation):
        print_line()
        show_evaluation(judged, name=modes.name)


def _list_commands(summary: dict[str, Any], modes: ModeOptions, menu: Menu | None) -> list[str]:
    """What one may do with the policy, as commands."""
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
            f"adacompute evaluate {modes.words}{modes.cost_words}",
            f"adacompute replay {modes.words} {saved} --budget {example}",
        ]
    budget = f"'{summary['quality']['quality']}'" if "quality" in summary else "2"
    return [
        f"adacompute evaluate {modes.name} --policies fixed,asc,{summary['policy']}",
        f"adacompute answer PROMPTS {saved} --budget {budget} --endpoint URL -o answers.jsonl",
        f"adacompute serve {saved} --budget {budget} --upstream URL",
    ]


def _build_facts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    graded_text = f"correctness of {format_count(summary['labels'], 'problem')}"
    waves = summary["max_waves"]
    facts = [("saved in", summary["folder"])]
    if summary["left_out"]:
        others = format_count(summary["left_out"], "problem")
        facts.append(("left out", f"{others} with fewer than {summary['longest']} samples (see --longest)"))
    if "certificate" in summary:
        known = summary["certificate"]
        cost = f"{known['samples']:.3g} samples on average, {known['longest']} at most"
        share = f"{format_percent(known['share'])} of answers are certified at a delta of {known['delta']:g}"
        return [*facts, ("cost", cost), ("certificate", share)]
    facts += [
        (
            "learned",
            graded_text if summary["labels"] else "agreement with the vote of all samples: no labels",
        ),
        ("votes", summary["votes"]),
        ("asks for", f"at most {summary['longest']} samples" + (f" in {waves} rounds" if waves else "")),
    ]
    if "calibrated" in summary:
        known = summary["calibrated"]
        dial_text = f"a {summary['dial']} of {known['dial']:.{_PRICE_DIGITS}g}"
        facts.append(("budget", f"{known['text']} is {dial_text}, {known['samples']:g} samples on average"))
    if "imitation" in summary:
        counts = ", ".join(f"{n:,} × {budget}" for budget, n in summary["oracle_counts"].items())
        facts.append(("oracle", f"gives {counts} samples"))
        share, majority = format_percent(summary["imitation"]), format_percent(summary["majority"])
        in_sample = f"names the oracle's budget on {share} of these problems, in-sample"
        facts.append(("imitation", f"{in_sample} (always the commonest: {majority})"))
    return facts


def _build_mode_facts(summary: dict[str, Any], menu: Menu) -> list[tuple[str, str]]:
    labels = f"correctness of {format_count(summary['labels'], 'problem')}"
    facts = [
        ("saved in", summary["folder"]),
        ("modes", describe_modes(menu)),
        ("learned", labels if summary["labels"] else "agreement with the dearest mode: no labels"),
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


def _show_points(summary: dict[str, Any], menu: Menu) -> None:
    """Some of the settings of a policy over several modes, from the cheapest to the dearest."""
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
