"""What `fit` and `replay` do with a menu: several modes, their costs in one unit.

The modes are joined pools or the sources of one pool. A budget is an average cost in the menu's unit; money
is shown for 1,000 requests.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from adacompute.cli.evaluation_tables import describe_modes, show_evaluation
from adacompute.cli.options import get_given, parse_number, split_budgets
from adacompute.cli.pool_options import JoinOptions, MenuOptions
from adacompute.cli.progress import show_progress
from adacompute.cli.terminal import (
    format_count,
    format_interval,
    format_path,
    format_percent,
    print_fact,
    print_json,
    print_line,
    print_message,
    print_paragraph,
    print_table,
)
from adacompute.config import AnswersConfig
from adacompute.errors import BudgetInvalid, BudgetOutOfRange
from adacompute.evaluate import evaluate
from adacompute.policies import MenuPolicy
from adacompute.policies.menu.policy import MIN_PROBLEMS
from adacompute.pool import Ballots, Menu
from adacompute.records import Budget, BudgetUnit
from adacompute.replay import Replayed, calibrate, replay
from adacompute.score.grades import grade_samples, mask_graded

__all__ = [
    "fit_menu",
    "parse_menu_budget",
    "parse_menu_budgets",
    "refuse_beside_menu",
    "replay_menu",
]

_MAX_WORKERS = 4  # processes, at most, where nobody says how many
_ORDERS = 20  # of the samples, to say what a budget buys on what was fitted
_UNSPENT = 0.1  # share of a budget: where more of it is left, the budget was too large
_LISTED_POINTS = 7  # of a fitted policy's settings that are shown


def refuse_beside_menu(*groups: object, **options: object) -> None:
    """Refuse options that a menu has no use for, since they would seem to have had an effect."""
    remedies = {
        "model": "the modes are the sources; choose some with --cost NAME=NUMBER",
        "parameters": "the modes are the sources; choose some with --cost NAME=NUMBER",
        "input_price": "each mode has its own price; give --prices FILE",
        "output_price": "each mode has its own price; give --prices FILE",
        "currency": "the currency is in the file of --prices; leave it out",
    }
    for name, value in [*options.items(), *(pair for group in groups for pair in get_given(group).items())]:
        if value is not None and value is not False:
            remedy = remedies.get(name, "a menu has no use for it; leave it out")
            raise typer.BadParameter(remedy, param_hint=f"--{name.replace('_', '-')}")


def parse_menu_budget(
    text: float | str, menu: Menu, *, unit: BudgetUnit = "samples", option: str = "--budget"
) -> float:
    """An average cost of a request in the menu's unit; a bare number counts in it.

    The unit "samples" is that of other policies, and says nothing here.
    """
    amount = parse_number(str(text))
    if math.isfinite(amount):
        if unit not in ("samples", menu.unit):
            raise typer.BadParameter(
                f"{unit!r} is not the menu's unit: {_name_unit(menu)}", param_hint="--unit"
            )
    else:
        try:
            budget = Budget.parse(text, currency=menu.currency or None)
        except BudgetInvalid as exc:
            raise typer.BadParameter(str(exc), param_hint=option) from None
        if budget.unit != menu.unit:
            raise typer.BadParameter(
                f"{text!r} is in {budget.currency or budget.unit}, and this menu in {_name_unit(menu)}; give "
                "a number, which counts in that",
                param_hint=option,
            )
        amount = budget.amount
    cheapest = menu.modes[0]
    if not amount >= cheapest.cost * (1 - 1e-9):
        raise BudgetOutOfRange(
            f"budget {menu.format_cost(amount)} is below one sample of {cheapest.name!r}, the cheapest mode; "
            f"give {menu.format_least(cheapest.cost)} or more"
        )
    return amount


def parse_menu_budgets(text: str | None, menu: Menu, *, unit: BudgetUnit) -> tuple[float, ...] | None:
    """Average costs such as `0.3,0.5` or `0.5,1 USD per 1000`; what is behind the last holds for all."""
    if text is None:
        return None
    return tuple(parse_menu_budget(part, menu, unit=unit, option="--budgets") for part in split_budgets(text))


def _name_unit(menu: Menu) -> str:
    return menu.currency or ("the numbers of --cost" if menu.unit == "cost" else menu.unit)


# ---------------------------------------------------------------------------------------------- fit


def fit_menu(
    options: MenuOptions,
    *,
    answers: AnswersConfig,
    output: Path,
    budget: str | None,
    unit: BudgetUnit,
    longest: int | None,
    plain_votes: bool,
    labels: bool | None,
    families: bool,
    judge: bool,
    json: bool,
) -> None:
    """Learn a policy over the menu, save it, and say what its price buys on these samples."""
    with show_progress(f"fitting {options.name}") as report_progress:
        ballots, menu = options.read(answers)
        amount = None if budget is None else parse_menu_budget(budget, menu, unit=unit)
        _warn_few(ballots, options.name)
        settings: dict[str, Any] = {} if longest is None else {"longest": longest}
        policy = MenuPolicy(menu, weigh=None if plain_votes else "auto", families=families, **settings)
        steps = 1 if amount is None else 2
        report_progress(0, steps, "samples read")
        policy.fit(ballots, labels=labels)
        report_progress(1, steps, "learned")
        summary = _summarise_fit(policy, ballots, options, output)
        if amount is not None:
            summary["calibrated"] = _calibrate(policy, ballots, amount)
            report_progress(2, steps, "calibrated")
    if amount is not None:
        _warn_unspent(summary["calibrated"]["cost"], amount, menu)
    policy.save(output)
    evaluation = None
    if judge:
        with show_progress(f"evaluating {options.name}") as report_progress:
            evaluation = evaluate(
                ballots,
                menu=menu,
                labels=labels,
                families=families,
                workers=min(_MAX_WORKERS, os.cpu_count() or 1),
                progress=report_progress,
            )
    summary["evaluation"] = None if evaluation is None else evaluation.to_dict()
    if json:
        print_json(summary)
        return
    _show_fit(summary, menu, options)
    if evaluation is not None:
        print_line()
        show_evaluation(evaluation, name=options.name)


def _warn_unspent(cost: float, budget: float, menu: Menu) -> None:
    """Say on stderr where a policy can't spend a budget, e.g. one of 1,000 requests given for one."""
    if cost < (1 - _UNSPENT) * budget:
        print_message(
            f"budget {menu.format_cost(budget)} is more than the menu can spend: {menu.format_cost(cost)} on "
            "average; give that or less"
        )


def _warn_few(ballots: Ballots, name: str) -> None:
    """Say on stderr where there is little to learn from."""
    if len(ballots) < MIN_PROBLEMS:
        problems = format_count(len(ballots), "problem")
        print_message(
            f"{name}: learned from {problems}, which is few, so that cascades and single modes decide; give "
            f"{MIN_PROBLEMS} or more"
        )
    for mode, votes in zip(ballots.names, ballots.parts, strict=True):
        fewest, median = int(votes.drawn.min()), int(np.median(votes.drawn))
        if 2 * fewest < median:
            row = int(votes.drawn.argmin())
            print_message(
                f"mode {mode}: cut to {format_count(fewest, 'sample')} a problem, as {votes.ids[row]!r} has "
                "no more; collect more of it, or leave it out"
            )


def _summarise_fit(
    policy: MenuPolicy, ballots: Ballots, options: MenuOptions, output: Path
) -> dict[str, Any]:
    graded = mask_graded(ballots, grade_samples(ballots))
    points = zip(policy.cost_.tolist(), policy.prices_.tolist(), policy.accuracy_.tolist(), strict=True)
    return {
        **options.describe(),
        "policy": policy.kind,
        "folder": format_path(output),
        "problems": len(ballots),
        "labels": int(graded.sum()) if policy.labels_ else 0,
        "unit": policy.menu.unit,
        "currency": policy.menu.currency or None,
        "modes": [
            {"mode": mode, "cost": policy.menu[mode].cost, "samples": int(votes.drawn.sum())}
            for mode, votes in zip(ballots.names, ballots.parts, strict=True)
        ],
        "settings": [{"cost": cost, "dial": price, "accuracy": accuracy} for cost, price, accuracy in points],
    }


def _calibrate(policy: MenuPolicy, ballots: Ballots, amount: float) -> dict[str, Any]:
    price = calibrate(policy, ballots, amount, orders=_ORDERS)
    result = replay(policy, ballots, price=price, orders=_ORDERS)
    accuracy = result.accuracy.mean if result.accuracy.problems else None
    return {
        "budget": amount,
        "dial": price,
        "cost": result.cost,
        "accuracy": accuracy,
        "agreement": result.agreement,
        "draws": dict(result.draws or {}),
    }


def _show_fit(summary: dict[str, Any], menu: Menu, options: MenuOptions) -> None:
    problems = format_count(summary["problems"], "problem")
    print_line(f"menu: learned from {problems} of {options.name}")
    print_line()
    print_fact("saved in", summary["folder"])
    print_fact("modes", describe_modes(menu))
    labels = f"correctness of {format_count(summary['labels'], 'problem')}"
    print_fact("learned", labels if summary["labels"] else "agreement with the dearest mode: no labels")
    if "calibrated" in summary:
        known = summary["calibrated"]
        print_fact("budget", f"{menu.format_cost(known['budget'])} is a price of {known['dial']:.5g}")
        print_fact("spent", f"{menu.format_cost(known['cost'])}: {_format_draws(known['draws'])}")
    print_line()
    if summary["settings"]:
        _show_points(summary["settings"], menu, labelled=bool(summary["labels"]))
        print_line()
    print_paragraph("What it is worth has to be judged on problems that it has not learned from. Go on with:")
    drawable = [mode.cost for mode in menu.modes if math.isfinite(mode.cost)]
    example = menu.format_cost(min(2 * drawable[0], drawable[-1]) or drawable[-1] / 2, unit=False)
    if menu.unit == "money":
        example = f"'{example} {menu.currency} per 1000'"
    print_line(f"  adacompute evaluate {options.words}{options.cost_words}")
    print_line(f"  adacompute replay {options.words} --policy {summary['folder']} --budget {example}")
    print_line(f"  python: adacompute.load_policy({summary['folder']!r})")


def _show_points(points: Sequence[dict[str, Any]], menu: Menu, *, labelled: bool) -> None:
    """Some of the settings, from the cheapest to the dearest."""
    chosen = np.unique(np.linspace(0, len(points) - 1, _LISTED_POINTS).round().astype(int)).tolist()
    basis = "accuracy" if labelled else "agreement"
    print_table(
        [menu.cost_unit, "price", basis],
        [
            [
                menu.format_cost(points[k]["cost"], unit=False),
                f"{points[k]['dial']:.5g}",
                format_percent(points[k]["accuracy"]),
            ]
            for k in chosen
        ],
    )
    print_paragraph(
        "(estimated on these samples, in part by cross-fitting; on other problems it differs)", indent=2
    )


def _format_draws(draws: dict[str, float]) -> str:
    """`2.1 samples of smol, 0.31 of qwen`."""
    parts = [f"{number:.2f} of {mode}" for mode, number in draws.items()]
    return f"samples a request: {', '.join(parts)}" if parts else "samples by mode not known"


# ------------------------------------------------------------------------------------------- replay


def replay_menu(
    policy: MenuPolicy,
    options: JoinOptions,
    *,
    answers: AnswersConfig,
    budget: float | str | None,
    price: float | None,
    orders: int,
    seed: int,
    too_few: str,
    json: bool,
) -> None:
    """Show what a policy over a menu costs, by mode, and how often it is right."""
    amount = None if budget is None else parse_menu_budget(budget, policy.menu)
    ballots = options.read_modes(answers)
    settings: dict[str, Any] = {"orders": orders, "too_few": too_few}
    if amount is not None:
        price = calibrate(policy, ballots, amount, rng=np.random.default_rng(seed), **settings)
    result = replay(policy, ballots, price=price, rng=np.random.default_rng(seed), **settings)
    if amount is not None:
        _warn_unspent(result.cost, amount, policy.menu)
    if result.in_sample:
        print_message(
            f"in-sample: the policy was fitted on {result.in_sample} of these "
            f"{format_count(result.problems, 'problem')}; give samples of others, or use evaluate"
        )
    if json:
        print_json({**options.describe(), "budget": amount, **result.to_dict()})
    else:
        _show_replay(result, policy.menu, options.name)


def _show_replay(result: Replayed, menu: Menu, name: str) -> None:
    print_line(f"{name}: {format_count(result.problems, 'problem')}, policy menu at {result.dial:.4g}")
    print_line()
    print_fact("cost", f"{menu.format_cost(result.cost)} on average")
    print_fact("modes", _format_draws(dict(result.draws or {})))
    accuracy = result.accuracy
    if not accuracy.problems:
        print_fact("accuracy", "not known: no problem has grades or a gold answer")
    else:
        interval = format_interval(accuracy.low, accuracy.high)
        print_fact("accuracy", f"{format_percent(accuracy.mean)} ({interval} over problems)")
    print_fact("agreement", f"{format_percent(result.agreement)} with the vote of the dearest mode's samples")
    print_line()
    print_paragraph(f"({result.protocol})", indent=2)
