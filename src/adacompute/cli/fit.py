"""`adacompute fit`: learn a policy from recorded samples, save it, and list its dial for some budgets.

Recorded traffic has one sample of most prompts and many of a few. A policy is learned from the problems
that have as many samples as it may ask for.
"""

import copy
import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from adacompute.answers import VoteWeights
from adacompute.cli.evaluate import (
    MAX_DEFAULT_WORKERS,
    VoteKind,
    VotesOption,
)
from adacompute.cli.evaluation_tables import build_savings, show_verdict
from adacompute.cli.menus import FamiliesFlag, MenuOptions, fit_menu, refuse_beside_menu
from adacompute.cli.options import (
    BudgetUnitOption,
    JsonFlag,
    PriceOptions,
    choose_from,
    load_settings,
    parse_budget,
    warn_counting,
)
from adacompute.cli.pool_options import SourceOptions, read_ballots
from adacompute.cli.terminal import (
    format_count,
    format_path,
    format_percent,
    print_fact,
    print_json,
    print_line,
    print_message,
    print_paragraph,
    print_table,
    show_progress,
)
from adacompute.errors import BudgetInvalid, PolicyError
from adacompute.evaluate.chart_builder import BUDGETS, FoldFit, build_chart
from adacompute.evaluate.comparison import Verdict
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    LONGEST,
    PolicyMaker,
    check_averages,
    make_policy,
    select_problems,
    uses_weighted_votes,
)
from adacompute.evaluate.parallel import Threads, open_threads
from adacompute.evaluate.verdict import KeepFit, PairedResults, judge_pool
from adacompute.policies import POLICIES, GuaranteePolicy
from adacompute.policies.artefact import DOCUMENT, resolve_folder
from adacompute.policies.base import Policy
from adacompute.policies.chart import Chart, write_chart
from adacompute.policies.features import FeatureSet
from adacompute.policies.weights import fit_confidence_weights
from adacompute.pool import Ballots
from adacompute.records import Budget, TokenPrices
from adacompute.replay import calibrate, replay
from adacompute.replay.calibrate import parse_average
from adacompute.score.aggregates import has_signals
from adacompute.score.grades import grade_samples, mask_graded

_PRICE_DIGITS = 5  # significant digits of a price
_UNDERSPENT = 0.9  # share of a budget: spending less is noted


def show_fit(summary: dict[str, Any], verdict: Verdict | None, prices: TokenPrices) -> None:
    """Show what was learned, where it is, its dial for some budgets, the verdict, and what to do next."""
    problems, samples = (
        format_count(summary["problems"], "problem"),
        format_count(summary["samples"], "sample"),
    )
    did = "measured on" if "certificate" in summary else "learned from"
    print_line(f"{summary['policy']}: {did} {problems} and {samples} of {summary['pool']}")
    print_line()
    for label, value in _build_facts(summary):
        print_fact(label, value)
    print_line()
    if summary["settings"]:
        _show_settings(summary)
        print_line()
    if verdict is not None:
        show_verdict(verdict, prices)
        print_line()
    elif "certificate" not in summary:
        print_paragraph("What it is worth has to be judged on problems that it has not learned from.")
    print_line("Go on with:")
    if "certificate" in summary:
        print_line(f"  adacompute serve --policy {summary['folder']} --upstream URL")
        print_line(f"  python: adacompute.load_policy({summary['folder']!r})")
        return
    print_line(f"  adacompute evaluate {summary['pool']} --policies fixed,asc,{summary['policy']}")
    print_line(
        f"  adacompute answer PROMPTS --policy {summary['folder']} --budget 2 --endpoint URL -o answers.jsonl"
    )
    print_line(f"  adacompute serve --policy {summary['folder']} --budget 2 --upstream URL")
    print_line(f"  python: adacompute.load_policy({summary['folder']!r})")


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


def _show_settings(summary: dict[str, Any]) -> None:
    dial = summary["dial"]
    headings = [
        "samples on average",
        *([dial] if dial else []),
        "spent",
        "rounds",
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
                f"{setting['waves']:.1f}",
                format_percent(setting["agreement"]),
            ]
        )
    print_table(headings, rows)
    print_paragraph("(by replay of these very samples, which needs no labels)", indent=2)
    if dial and any(row["cost"] < _UNDERSPENT * row["budget"] for row in summary["settings"]):
        print_paragraph(
            "Many requests have equal votes here, so one price can't meet every budget: where less is spent "
            "than asked for, mix two of these prices by lot.",
            indent=2,
        )


MAX_SAMPLES = LONGEST  # samples a request, by default

_DELTA = 0.05
_ORDERS = 20  # of a problem's samples, to measure a certificate
_FEW_PROBLEMS = 30  # problems; what is learned from fewer is mostly noise


LearnedPolicy = Literal["stopping", "curve", "classifier", "bayes", "guarantee", "menu"]
PolicyOption = Annotated[LearnedPolicy, choose_from(LearnedPolicy, help="What to learn.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="B",
        parser=parse_budget,
        help="Average budget to fit the classifier for, or to list: samples (of a menu: its unit), or e.g. "
        "'500 tokens', '2 USD per 1000'.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to save it in.")
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="PARTS",
        help="What the curve or classifier sees: text+entropy, text or entropy; without entropy it "
        "decides beforehand. [default: text+entropy]",
    ),
]
MaxWavesOption = Annotated[
    int | None, typer.Option(min=1, help="Rounds per request, at most (stopping): fewer take less time.")
]
LongestOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="Samples per request, at most; problems with fewer are left out. [default: as recorded, to 16]",
    ),
]
DeltaOption = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help="Chance that a certified answer isn't the model's commonest (guarantee). [default: 0.05]",
    ),
]
VerdictFlag = Annotated[
    bool | None,
    typer.Option(
        "--verdict/--no-verdict",
        help="Judge whether it pays, on problems that it hasn't learned from: as long again as the rest, and "
        "minutes with a menu. [default: yes; of a menu no]",
    ),
]
LabelsOption = Annotated[
    bool | None,
    typer.Option(
        "--labels/--no-labels",
        help="Learn from gold answers, or from agreement with the full vote. [default: gold, if recorded]",
    ),
]


def fit(
    context: typer.Context,
    *,
    menu: MenuOptions,
    policy: PolicyOption = "stopping",
    budget_text: BudgetOption = None,
    output: OutputOption = Path("policy"),
    families: FamiliesFlag = False,
    features: FeaturesOption = None,
    longest: LongestOption = None,
    max_waves: MaxWavesOption = None,
    delta: DeltaOption = None,
    labels: LabelsOption = None,
    votes: VotesOption = VoteKind.auto,
    unit: BudgetUnitOption = "samples",
    price: PriceOptions,
    which: SourceOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a policy that is there.")] = False,
    verdict: VerdictFlag = None,
    json: JsonFlag = False,
) -> None:
    """Learn a policy from recorded samples, and save it.

    A policy says when to stop sampling. Its dial (price or threshold) for some budgets is printed too; this
    needs no labels, because they don't change what a policy costs. Whether it pays over the same number of
    samples for every request is judged on problems that it hasn't learned from, as `evaluate` does.
    With --policy menu it also says which of several models or efforts to ask: those of --join, or of a pool
    with several, at the costs of --cost or --prices.
    """
    settings = load_settings(context)
    _check_features(policy, features)
    if policy == "menu":
        refuse_beside_menu(which, price, max_waves=max_waves, delta=delta)
        _check_folder(output, overwrite=overwrite)
        fit_menu(
            menu,
            answers=settings.answers,
            output=output,
            budget=budget_text,
            unit=unit,
            longest=longest,
            plain_votes=votes is VoteKind.plain,
            labels=labels,
            families=families,
            judge=bool(verdict),
            json=json,
        )
        return
    if menu.is_given or families:
        menu_only = {
            "--join": menu.join,
            "--cost": menu.costs,
            "--prices": menu.prices,
            "--families": families,
        }
        option = next(name for name, value in menu_only.items() if value)
        raise typer.BadParameter(f"is for --policy menu, not {policy}", param_hint=option)
    source = menu.get_source()
    prices = price.choose_prices(settings.endpoint)
    average = None if budget_text is None else Budget.parse(budget_text, unit=unit, currency=prices.currency)
    budget = _check_budget(policy, average, prices)
    _check_options(policy, budget=budget_text, max_waves=max_waves, delta=delta, labels=labels)
    _check_folder(output, overwrite=overwrite)
    name = format_path(source)
    ballots = read_ballots(source, settings.answers, menu, which)
    if average is not None:
        warn_counting(average, prices, ballots.charge)
    recorded, all_ballots = len(ballots), ballots
    certifying = policy == "guarantee"
    if certifying and longest is None and (fewest := int(ballots.drawn.min(initial=0))) > MAX_SAMPLES:
        longest = min(fewest, GuaranteePolicy().longest)  # a certificate takes more samples than a vote
    ballots, longest_recorded = select_problems(ballots, longest)
    if budget is not None:
        check_averages([budget], longest_recorded)
    arguments: dict[str, Any] = {"longest": longest_recorded}
    arguments["weigh"] = (
        fit_confidence_weights(ballots) if uses_weighted_votes(ballots, votes.value) else None
    )
    if policy == "stopping":
        arguments["max_waves"] = max_waves
        if votes is VoteKind.auto and arguments["weigh"] is not None:
            arguments["weigh"] = "auto"  # the same signal, on the scale of the samples that it learns from
    if certifying:  # of plain votes
        arguments = {"longest": longest_recorded, "delta": _DELTA if delta is None else delta}
    if features is not None:
        arguments["features"] = features
    refit = functools.partial(_fit_policy, policy, arguments=arguments, budget=budget, labels=labels)
    judge: Callable[..., Verdict] = functools.partial(
        _judge_policy,
        all_ballots,
        policy,
        name=name,
        longest=longest,
        settings={"max_waves": max_waves, "features": features},
        labels=labels,
        votes=votes,
    )
    is_judged, judging = verdict is not False and not certifying, None
    fits: list[FoldFit] = []  # of the verdict, with the prompts that they have seen
    results: list[PairedResults] = []  # that the verdict rests on
    judge = functools.partial(judge, keep_results=results.append)
    workers = min(MAX_DEFAULT_WORKERS, os.cpu_count() or 1)
    # stopping is learned by XGBoost, which leaves Python's lock to others: all of its fits share the cores
    with open_threads(workers) if policy == "stopping" else nullcontext() as threads:
        if threads is None:
            fitted_policy = refit(ballots)
        else:
            fitting = threads.submit(refit, ballots)
            if is_judged:
                judging = threads.run_beside(
                    functools.partial(
                        judge,
                        budget=budget,
                        threads=threads,
                        keep_fit=lambda fold, train: fits.append((fold, train.prompts)),
                    )
                )
            fitted_policy = fitting.result()
        calibrated = pool_verdict = None
        if average is not None and average.unit != "samples":
            calibrated = _calibrate(fitted_policy, ballots, average, prices)
            budget = calibrated["samples"]
        fitted_policy.save(output)
        if is_judged and judging is None:
            pool_verdict = judge(budget=budget, workers=workers)
        chart = None
        if not certifying:  # there are no budgets to choose from
            budgets = _choose_budgets(fitted_policy, budget)
            chart = build_chart(
                fitted_policy,
                ballots,
                refit=refit,
                budgets=budgets,
                threads=threads,
                fits=_wait_for_fits(judging, fits),
                judged=lambda: _wait_for_results(judging, results),
            )
        if chart is not None:
            write_chart(output, chart)
        summary = _build_summary(
            fitted_policy, ballots, chart, name=name, folder=format_path(output), labels=labels
        )
        summary["left_out"] = recorded - len(ballots)
        if certifying:
            summary["certificate"] = _measure_certificate(fitted_policy, ballots)
        if calibrated is not None:
            summary["calibrated"] = calibrated
        elif budget is not None and fitted_policy.dial is not None:
            _warn_unreached(summary, budget)
        if len(ballots) < _FEW_PROBLEMS:
            problems = format_count(len(ballots), "problem")
            print_message(f"{name}: learned from {problems}, which is few; give {_FEW_PROBLEMS} or more")
        if judging is not None:
            pool_verdict = judging.result()
    summary["verdict"] = None if pool_verdict is None else pool_verdict.to_dict()
    summary["savings"] = [] if pool_verdict is None else build_savings(pool_verdict, prices)
    print_json(summary) if json else show_fit(summary, pool_verdict, prices)


def _wait_for_fits(judging: "Future[Verdict] | None", fits: list[FoldFit]) -> Iterator[FoldFit]:
    """The policies that a verdict was made with, once it is made; none where it fails."""
    if judging is not None and judging.exception() is None:
        yield from fits


def _wait_for_results(
    judging: "Future[Verdict] | None", results: list[PairedResults]
) -> PairedResults | None:
    """What a verdict rests on, once it is made; None where there is none."""
    if judging is not None:
        judging.exception()
    return results[0] if results else None


def _check_folder(output: Path, *, overwrite: bool) -> None:
    """Raise PolicyError where the policy couldn't be saved; checked before it is learned."""
    resolve_folder(output)
    if not overwrite and (output / DOCUMENT).exists():
        raise PolicyError(f"{format_path(output)}: holds a policy already; give another name, or --overwrite")


def _judge_policy(
    ballots: Ballots,
    policy: LearnedPolicy,
    *,
    name: str,
    budget: float | None,
    longest: int | None,
    settings: dict[str, Any],
    labels: bool | None,
    votes: VoteKind,
    workers: int = 1,
    threads: Threads | None = None,
    keep_fit: KeepFit | None = None,
    keep_results: Callable[[PairedResults], None] | None = None,
) -> Verdict:
    """Judge the policy with the settings that it was fitted with; without any, as all commands do."""
    given = {key: value for key, value in settings.items() if value is not None}
    if longest is not None and longest < LONGEST:
        given["longest"] = longest
    candidate: str | tuple[str, PolicyMaker] = policy
    if given or labels is not None:
        fit_settings = {} if labels is None else {"labels": labels}
        compared = make_policy(policy, ballots, settings=given, fit_settings=fit_settings)
        candidate = (compared.name, compared.maker)
    budgets = AVERAGE_BUDGETS if policy != "classifier" or budget is None else (budget,)
    with show_progress(f"judging {policy} on {name}") as report_progress:
        return judge_pool(
            ballots,
            policy=candidate,
            budgets=budgets,
            votes=votes.value,
            workers=workers,
            threads=threads,
            progress=report_progress,
            keep_fit=keep_fit,
            keep_results=keep_results,
        )


def _check_budget(policy: LearnedPolicy, average: Budget | None, prices: TokenPrices) -> float | None:
    """The budget in samples; None where there is none, or it is in another unit and has to be calibrated."""
    if average is None:
        return None
    if average.unit == "samples":
        return average.amount
    if policy == "classifier":
        raise BudgetInvalid(
            f"the classifier is fitted for a number of samples, and {average} is none; give samples"
        )
    parse_average(average, prices)
    return None


def _calibrate(
    fitted_policy: Policy, ballots: Ballots, average: Budget, prices: TokenPrices
) -> dict[str, Any]:
    """The dial for a budget in tokens or money, by replay of the recorded tokens, and its samples."""
    settled = copy.copy(fitted_policy)  # what is saved is not settled on these samples
    dial = calibrate(settled, ballots, average, prices=prices)
    samples = replay(settled, ballots, price=dial, orders=50).cost
    return {
        "budget": average.amount,
        "unit": average.unit,
        "text": str(average),
        "dial": dial,
        "samples": round(samples, 2),
    }


def _warn_unreached(summary: dict[str, Any], budget: float) -> None:
    reached = [setting["budget"] for setting in summary["settings"]]
    if budget not in reached:
        remedy = (
            f"give one of {', '.join(f'{value:g}' for value in reached)}"
            if reached
            else "collect more samples"
        )
        print_message(f"{summary['policy']}: budget {budget:g} can't be reached on these samples; {remedy}")


def _check_options(
    policy: LearnedPolicy,
    *,
    budget: str | None,
    max_waves: int | None,
    delta: float | None,
    labels: bool | None,
) -> None:
    """Refuse options that the policy has no use for, since they would seem to have had an effect."""
    if policy == "classifier" and budget is None:
        raise typer.BadParameter(
            "the classifier is fitted for one budget; give e.g. --budget 2", param_hint="--budget"
        )
    if policy == "guarantee" and budget is not None:
        raise typer.BadParameter(
            "a guarantee costs what its --delta costs; leave it out", param_hint="--budget"
        )
    for option, value, owner in (
        ("--delta", delta, "guarantee"),
        ("--max-waves", max_waves, "stopping"),
        ("--labels", labels, "stopping"),
    ):
        if value is not None and policy != owner:
            raise typer.BadParameter(f"is for --policy {owner}, not {policy}", param_hint=option)


def _measure_certificate(policy: Policy, ballots: Ballots) -> dict[str, Any]:
    """What a certificate costs on these samples, and how often it is reached."""
    result = replay(policy, ballots, orders=_ORDERS, too_few="drop")
    return {**policy.settings(), "samples": result.cost, "share": result.certified}


def _check_features(policy: LearnedPolicy, features: str | None) -> None:
    if features is None:
        return
    if policy not in ("curve", "classifier"):
        raise typer.BadParameter(
            f"is for --policy curve and classifier, not {policy}",
            param_hint="--features",
        )
    try:
        FeatureSet.parse(features)
    except PolicyError as exc:
        raise typer.BadParameter(str(exc), param_hint="--features") from exc


def _fit_policy(
    policy: LearnedPolicy,
    ballots: Ballots,
    *,
    arguments: dict[str, Any],
    budget: float | None,
    labels: bool | None,
) -> Policy:
    unfitted: Any = POLICIES[policy](**arguments)
    if policy == "classifier":
        fitted_policy: Policy = unfitted.fit(ballots, budget=budget)
    elif policy == "stopping":
        fitted_policy = unfitted.fit(ballots, labels=labels)
    else:
        fitted_policy = unfitted.fit(ballots)
    return fitted_policy


def _build_summary(
    fitted_policy: Policy,
    ballots: Ballots,
    chart: Chart | None,
    *,
    name: str,
    folder: str,
    labels: bool | None,
) -> dict[str, Any]:
    """Build the JSON object: what was learned from, where the policy is, and the dial for some budgets."""
    graded_problems = int(mask_graded(ballots, grade_samples(ballots)).sum())
    uses_labels = fitted_policy.kind != "stopping" or labels is not False
    return {
        "pool": name,
        "policy": fitted_policy.kind,
        "folder": folder,
        "problems": len(ballots),
        "samples": int(ballots.drawn.sum()),
        "labels": graded_problems if uses_labels else 0,
        "votes": _describe_votes(fitted_policy.weigh, ballots),
        "longest": fitted_policy.longest,
        "max_waves": fitted_policy.max_waves,
        "dial": fitted_policy.dial,
        "settings": _build_settings(chart),
        **_describe_classifier(fitted_policy, ballots),
    }


def _describe_votes(weigh: VoteWeights | None, ballots: Ballots) -> str:
    if weigh is None:
        return "plain"
    parts: list[str] = [weigh.signal] if weigh.reads_tokens else []
    parts += ["the answer's own tokens"] if has_signals(ballots, weigh.model) else []
    parts += [] if weigh.score is None else [f"the verifier's score (β {weigh.score.beta:.2f})"]
    return f"weighted by {' and '.join(parts)}"


def _choose_budgets(fitted_policy: Policy, budget: float | None) -> tuple[float, ...]:
    if fitted_policy.dial is None:
        return (1.0 if budget is None else budget,)
    return tuple(sorted({*BUDGETS, *([] if budget is None else [budget])}))


def _build_settings(chart: Chart | None) -> list[dict[str, Any]]:
    """Build the rows of the chart: the dial for each budget, what it costs and what it gives."""
    return [
        {
            "budget": row.budget,
            "dial": row.price,
            "cost": row.cost,
            "agreement": row.stays,
            "accuracy": row.accuracy,
            "uniform": row.uniform,
            "waves": row.waves,
            "share": row.agreement,
            "share_deviation": row.deviation,
            "protocol": chart.protocol,
        }
        for row in (() if chart is None else chart.rows)
        if chart is not None
    ]


def _describe_classifier(fitted_policy: Any, ballots: Ballots) -> dict[str, Any]:  # noqa: ANN401 - attributes that only the classifier has
    if fitted_policy.kind != "classifier":
        return {}
    labels, predicted = (
        fitted_policy.compute_labels(ballots, fitted_policy.budget_),
        fitted_policy.predict_budgets(ballots),
    )
    budgets, counts = np.unique(labels, return_counts=True)
    return {
        "learner": fitted_policy.model,
        "oracle_counts": dict(zip(map(str, budgets.tolist()), counts.tolist(), strict=True)),
        "imitation": float((labels == predicted).mean()),
        "majority": float(counts.max() / counts.sum()),
    }
