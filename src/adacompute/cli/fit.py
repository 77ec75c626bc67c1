"""`adacompute fit`: learns a policy from recorded samples, saves it, and shows its cost and accuracy.

In recorded traffic, most prompts have one sample and a few have many. A policy learns only from problems
that have at least as many samples as the policy's maximum per request.
"""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
import typer

from adacompute.answers import VoteWeights
from adacompute.cli.evaluate import VotesOption
from adacompute.cli.evaluation_tables import build_savings, show_fit
from adacompute.cli.modes import (
    GroupOptions,
    ModeOptions,
    parse_mode_budget,
    refuse_beside_modes,
    warn_unspent,
)
from adacompute.cli.options import (
    BudgetUnitOption,
    JsonFlag,
    PriceOptions,
    choose_from,
    choose_process_count,
    load_settings,
    parse_budget,
    warn_counting,
)
from adacompute.cli.pool_options import SourceOptions, read_ballots
from adacompute.cli.terminal import format_count, format_path, print_json, print_message, show_progress
from adacompute.errors import BudgetInvalid, PolicyError
from adacompute.evaluate import Evaluation, Verdict, evaluate
from adacompute.evaluate.chart_builder import BUDGETS, FoldFit, build_chart, build_mode_chart
from adacompute.evaluate.measure import (
    AVERAGE_BUDGETS,
    LONGEST,
    PolicyMaker,
    Votes,
    check_averages,
    make_policy,
    select_graded,
    select_problems,
    uses_weighted_votes,
)
from adacompute.evaluate.parallel import Threads, open_threads
from adacompute.evaluate.protocols import evaluate_scores
from adacompute.evaluate.verdict import FEWEST_PROBLEMS, KeepFit, PairedResults, judge_pool
from adacompute.policies import POLICIES, GuaranteePolicy
from adacompute.policies.artefact import DOCUMENT, resolve_folder
from adacompute.policies.base import Policy
from adacompute.policies.chart import Chart, write_chart
from adacompute.policies.features import FeatureSet
from adacompute.policies.modes.policy import MIN_PROBLEMS, MenuPolicy
from adacompute.policies.quality import MARGIN, Quality, check_mode
from adacompute.policies.stopping.policy import choose_labels
from adacompute.policies.weights import fit_weights
from adacompute.pool import Ballots
from adacompute.pool.groups import ADVICE, are_enough, count_groups, count_in_groups, resemble
from adacompute.pool.modes import ModeSet
from adacompute.records import Budget, TokenPrices, names_quality
from adacompute.replay import calibrate, replay
from adacompute.replay.calibrate import parse_average
from adacompute.score.aggregates import has_signals
from adacompute.score.grades import grade_samples, mask_graded, mask_votable

MAX_SAMPLES = LONGEST  # default maximum number of samples per request

# option -> the policies that it applies to; options that aren't listed apply only to --policy menu
_OWNERS = {
    "--features": ("curve", "classifier"),
    "--delta": ("guarantee",),
    "--max-waves": ("stopping",),
    "--labels": ("stopping",),
}
_DELTA = 0.05
_ORDERS = 20  # number of random orders in which each problem's samples are replayed to measure costs
_FEW_PROBLEMS = 30  # with fewer problems, a policy would learn mostly noise, so the user is warned


LearnedPolicy = Literal["stopping", "curve", "classifier", "bayes", "guarantee", "menu"]
PolicyOption = Annotated[LearnedPolicy, choose_from(LearnedPolicy, help="Kind of policy to learn.")]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="B",
        parser=parse_budget,
        help="Average budget: samples (for a menu: its unit), or e.g. '500 tokens', '2 USD per 1000'; or a "
        "quality to find the lowest cost of: 'as good as 8', for a menu 'as good as large x 4'. The "
        "classifier needs one.",
    ),
]
MarginOption = Annotated[
    float,
    typer.Option(
        "--margin",
        min=0.0,
        max=100.0,
        help="If --budget is a quality: points that the lower end of the 95% interval may fall short.",
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to save the policy in.")
]
FeaturesOption = Annotated[
    str | None,
    typer.Option(
        metavar="PARTS",
        help="Inputs of the curve or classifier: text+entropy, text or entropy; with text alone it "
        "decides before sampling. [default: text+entropy]",
    ),
]
MaxWavesOption = Annotated[
    int | None, typer.Option(min=1, help="Most rounds per request (stopping); fewer take less time.")
]
LongestOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=256,
        help="Most samples per request; problems with fewer are left out. [default: as recorded, up to 16]",
    ),
]
DeltaOption = Annotated[
    float | None,
    typer.Option(
        metavar="D",
        help="Chance that a certified answer isn't the model's most common (guarantee). [default: 0.05]",
    ),
]
VerdictFlag = Annotated[
    bool | None,
    typer.Option(
        "--verdict/--no-verdict",
        help="Judge on held-out problems whether the policy pays; takes as long as learning, and minutes "
        "with a menu. [default: yes; for a menu no]",
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
    modes: ModeOptions,
    grouping: GroupOptions,
    policy: PolicyOption = "stopping",
    budget_text: BudgetOption = None,
    margin: MarginOption = 100 * MARGIN,
    output: OutputOption = Path("policy"),
    features: FeaturesOption = None,
    longest: LongestOption = None,
    max_waves: MaxWavesOption = None,
    delta: DeltaOption = None,
    labels: LabelsOption = None,
    votes: VotesOption = "auto",
    unit: BudgetUnitOption = "samples",
    price: PriceOptions,
    which: SourceOptions,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the policy if it exists.")] = False,
    verdict: VerdictFlag = None,
    json: JsonFlag = False,
) -> None:
    """Learn a policy from recorded samples, and save it.

    A policy decides when to stop sampling. Also shows its price or threshold for some budgets, which needs no
    gold answers. Whether the policy is better than the same number of samples for every request is judged on
    problems that it hasn't learned from, as `evaluate` does. With --policy menu, the policy also decides
    which of several models or efforts to ask: those of --join, or those in one pool. Their costs come from
    --cost or --prices.
    """
    settings, several, certifying = load_settings(context), policy == "menu", policy == "guarantee"
    options: dict[str, Any] = {
        "--features": features,
        "--max-waves": max_waves,
        "--delta": delta,
        "--labels": labels,
        "--join": modes.join,
        "--cost": modes.costs,
        "--prices": modes.prices,
    }
    quality = Quality.parse(budget_text) if budget_text is not None and names_quality(budget_text) else None
    if quality is not None:
        if certifying or verdict is False:
            reason = f"{quality} is told by a verdict, and there is none; give an amount, or no budget"
            raise typer.BadParameter(reason, param_hint="--budget")
        budget_text = None
    _check_options(policy, options, budget=budget_text)
    prices = price.choose_prices(settings.endpoint)
    average = None
    if several:
        refuse_beside_modes(which, price)
    elif budget_text is not None:
        average = Budget.parse(budget_text, unit=unit, currency=prices.currency)
    budget = _check_budget(policy, average, prices)
    _check_folder(output, overwrite=overwrite)
    menu, arguments = None, dict[str, Any]()
    if several:
        recorded, menu = modes.read(settings.answers)
        ballots = recorded = _leave_out_unvotable(grouping.apply(recorded))
        budget = None if budget_text is None else parse_mode_budget(budget_text, menu, unit=unit)
        _warn_short(ballots)
        arguments = {"menu": menu, "weigh": None if votes == "plain" else "auto"}
        arguments["families"] = resemble(ballots.groups)
        arguments |= {} if longest is None else {"longest": longest}
    else:
        recorded = read_ballots(modes.get_source(), settings.answers, modes, which)
        recorded = _leave_out_unvotable(grouping.apply(recorded))
        if average is not None:
            warn_counting(average, prices, recorded.charge)
        if certifying and longest is None and (fewest := int(recorded.drawn.min(initial=0))) > MAX_SAMPLES:
            # the policy "guarantee" needs more samples than others, so its default maximum is higher
            longest = min(fewest, GuaranteePolicy().longest)
        ballots, longest_recorded = select_problems(recorded, longest)
        if budget is not None:
            check_averages([budget], longest_recorded)
        own = {"max_waves": max_waves, "delta": delta, "features": features}
        arguments = _choose_arguments(policy, ballots, longest_recorded, votes, own)
    if quality is not None:
        _check_quality(quality, recorded, menu, LONGEST if menu is None or longest is None else longest)
    refit = functools.partial(
        _fit_policy, policy, name=modes.name, arguments=arguments, budget=budget, labels=labels
    )
    fits: list[FoldFit] = []  # each policy fitted for the verdict, with the prompts that it was fitted on
    results: list[PairedResults] = []  # receives the results from which the verdict was computed
    judge: Callable[..., Verdict | Evaluation] = functools.partial(
        _judge_policy,
        recorded,
        policy,
        name=modes.name,
        longest=longest,
        settings={"max_waves": max_waves, "features": features},
        labels=labels,
        votes=votes,
        keep_results=results.append,
    )
    if menu is not None:
        judge = functools.partial(_judge_modes, recorded, menu, modes.name, labels=labels)
    is_judged = bool(verdict) if several else verdict is not False and not certifying
    workers, judging = choose_process_count(4), None
    # XGBoost, which the stopping policy is fitted with, releases the GIL, so threads can use all cores.
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
        calibrated = judged = chart = None
        if menu is not None and budget is not None:
            calibrated = _calibrate_modes(fitted_policy, ballots, menu, budget)
        elif average is not None and average.unit != "samples":
            calibrated = _calibrate(fitted_policy, ballots, average, prices)
            budget = calibrated["samples"]
        fitted_policy.save(output)
        if is_judged and judging is None:
            judged = judge(budget=budget, workers=workers)
        # build the table of budgets for a policy over a single mode, except for "guarantee"
        if menu is None and not certifying:
            chart = build_chart(
                fitted_policy,
                ballots,
                refit=refit,
                budgets=_choose_budgets(fitted_policy, budget),
                threads=threads,
                fits=_wait_for_fits(judging, fits),
                judged=lambda: _wait_for_results(judging, results),
            )
        elif menu is not None and (quality is not None or verdict):
            with show_progress(f"measuring {modes.name}") as report_progress:
                report_progress(0, 1, "qualities, on problems held out")
                chart = build_mode_chart(cast("MenuPolicy", fitted_policy), ballots, refit=refit)
                report_progress(1, 1, "measured")
        if chart is not None:
            chart = replace(chart, measured=date.today().isoformat())  # noqa: DTZ011 - the user's own day
            write_chart(output, chart)
        summary = {**modes.describe(), "policy": policy, "folder": format_path(output)}
        if menu is not None:
            summary |= _summarise_modes(fitted_policy, ballots, menu)
        else:
            summary |= _summarise(fitted_policy, ballots, chart, labels=labels)
            summary["left_out"] = len(recorded) - len(ballots)
        if certifying:
            summary["certificate"] = _measure_certificate(fitted_policy, ballots)
        if calibrated is not None:
            summary["calibrated"] = calibrated
        elif budget is not None and fitted_policy.dial is not None:
            _warn_unreached(summary, budget)
        fewest = _FEW_PROBLEMS if menu is None else MIN_PROBLEMS
        if len(ballots) < fewest:
            few = f"learned from {format_count(len(ballots), 'problem')}, which is few"
            effect = "" if menu is None else ", so that cascades and single modes decide"
            print_message(f"{modes.name}: {few}{effect}; give {fewest} or more")
        if judging is not None:
            judged = judging.result()
    summary["evaluation" if several else "verdict"] = None if judged is None else judged.to_dict()
    scores = evaluate_scores(recorded) if isinstance(judged, Verdict) and judged.rows else ()
    if not several:
        summary["by_score"] = [asdict(row) for row in scores]
        summary["savings"] = build_savings(judged, prices) if isinstance(judged, Verdict) else []
    if quality is not None:
        if chart is None:
            raise BudgetInvalid(
                f"budget '{quality}': {policy} reaches no average number of samples; give none"
            )
        try:
            quality_cost = chart.find_quality(quality, margin / 100)
        except BudgetInvalid as exc:
            again = f"ask again without fitting: adacompute serve --policy {summary['folder']} --budget …"
            raise BudgetInvalid(f"{exc}. What was measured is kept with the policy, so {again}") from exc
        summary["quality"], summary["quality_text"] = quality_cost.to_dict(), str(quality_cost)
    if json:
        print_json(summary)
    else:
        words = which.words + grouping.words
        show_fit(summary, judged, modes=modes, words=words, menu=menu, prices=prices, scores=scores)


def _check_quality(quality: Quality, recorded: Ballots, menu: ModeSet | None, longest: int) -> None:
    """Raises BudgetInvalid if these samples can't show whether a policy is as accurate as `quality` asks."""
    if menu is not None:
        recorded = recorded.select([mode for mode in menu.modes if math.isfinite(mode.cost)])
        if len(recorded.names) < 2:
            raise BudgetInvalid(f"budget '{quality}' needs two modes with a finite cost; give another --cost")
    check_mode(quality, [] if menu is None else recorded.names)
    judged, _ = select_graded(recorded)
    if menu is None:
        judged, _ = select_problems(judged)
    refusal = f"budget '{quality}' can't be measured on "
    if (questions := len(set(judged.prompts))) < FEWEST_PROBLEMS:
        counted = format_count(questions, "different problem")
        raise BudgetInvalid(f"{refusal}{counted}; record {FEWEST_PROBLEMS} or more, or give an amount")
    if not are_enough(judged.groups):
        counted = count_in_groups(len(judged), count_groups(judged.groups))
        raise BudgetInvalid(f"{refusal}{counted}. {ADVICE}")
    votes = judged if quality.mode is None else judged[quality.mode]
    most = min(longest, int(votes.drawn.min()))
    if quality.samples > most or (menu is None and most < 2):
        counted = format_count(most, "sample")
        remedy = f"record more samples, or give '{replace(quality, samples=most)}'"
        if menu is None and most < 2:
            remedy = "record two or more of each problem"
        raise BudgetInvalid(f"{refusal}{counted} a problem; {remedy}")


def _choose_arguments(
    policy: LearnedPolicy, ballots: Ballots, longest: int, votes: Votes, own: dict[str, Any]
) -> dict[str, Any]:
    """Returns the policy's constructor arguments. `own` holds the options that only some policies take."""
    if policy == "guarantee":  # the statistical guarantee holds for unweighted votes only
        return {"longest": longest, "delta": _DELTA if own["delta"] is None else own["delta"]}
    arguments: dict[str, Any] = {"longest": longest, "weigh": None}
    if uses_weighted_votes(ballots, votes):
        arguments["weigh"] = fit_weights(ballots, labels=choose_labels(ballots, None))
        if policy == "stopping" and votes == "auto":
            arguments["weigh"] = "auto"  # the stopping policy fits the weights of votes itself
    if policy == "stopping":
        arguments["max_waves"] = own["max_waves"]
    if own["features"] is not None:
        arguments["features"] = own["features"]
    return arguments


def _warn_short(ballots: Ballots) -> None:
    """Warns if a mode is cut to few samples for all problems, because one problem has no more."""
    for mode, votes in zip(ballots.names, ballots.parts, strict=True):
        fewest, median = int(votes.drawn.min()), int(np.median(votes.drawn))
        if 2 * fewest < median:
            row = int(votes.drawn.argmin())
            print_message(
                f"mode {mode}: cut to {format_count(fewest, 'sample')} a problem, as {votes.ids[row]!r} has "
                "no more; collect more of it, or leave it out"
            )


def _leave_out_unvotable(ballots: Ballots) -> Ballots:
    """Returns the problems that have recorded answers; says on stderr how many were left out."""
    votable = mask_votable(ballots)
    if votable.all() or not votable.any():
        return ballots
    print_message(f"left out: {format_count(int((~votable).sum()), 'problem')} with no answer recorded")
    return ballots.only(np.flatnonzero(votable))


def _wait_for_fits(judging: "Future[Any] | None", fits: list[FoldFit]) -> Iterator[FoldFit]:
    """Waits until the verdict is computed; yields the policies that were fitted for it, none if it failed."""
    if judging is not None and judging.exception() is None:
        yield from fits


def _wait_for_results(judging: "Future[Any] | None", results: list[PairedResults]) -> PairedResults | None:
    """Waits until the verdict is computed; returns the results it is based on, None if there are none."""
    if judging is not None:
        judging.exception()
    return results[0] if results else None


def _check_folder(output: Path, *, overwrite: bool) -> None:
    """Raises PolicyError if the policy can't be saved in this folder; called before fitting starts."""
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
    votes: Votes,
    workers: int = 1,
    threads: Threads | None = None,
    keep_fit: KeepFit | None = None,
    keep_results: Callable[[PairedResults], None] | None = None,
) -> Verdict:
    """Judges a kind of policy on held-out problems, with the options that `fit` was given."""
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
            votes=votes,
            workers=workers,
            threads=threads,
            progress=report_progress,
            keep_fit=keep_fit,
            keep_results=keep_results,
        )


def _judge_modes(
    ballots: Ballots,
    menu: ModeSet,
    name: str,
    *,
    labels: bool | None,
    workers: int,
    **_budget: object,
) -> Evaluation:
    """Compares a policy over several modes with each single mode and with fixed mixes of them."""
    with show_progress(f"evaluating {name}") as report_progress:
        return evaluate(ballots, modes=menu, labels=labels, workers=workers, progress=report_progress)


def _check_budget(policy: LearnedPolicy, average: Budget | None, prices: TokenPrices) -> float | None:
    """Returns the budget if it is in samples, else None; raises an error if the policy can't use it."""
    if average is None:
        return None
    if average.unit == "samples":
        return average.amount
    if policy == "classifier":
        raise BudgetInvalid(
            f"the classifier is fitted for a number of samples, not for {average}; give samples"
        )
    parse_average(average, prices)
    return None


def _calibrate(
    fitted_policy: Policy, ballots: Ballots, average: Budget, prices: TokenPrices
) -> dict[str, Any]:
    """Finds the price or threshold for a budget in tokens or money by replaying the recorded samples."""
    settled = copy.copy(fitted_policy)  # calibration mustn't change the policy that is saved
    dial = calibrate(settled, ballots, average, prices=prices)
    samples = replay(settled, ballots, price=dial, orders=50).cost
    return {
        "budget": average.amount,
        "unit": average.unit,
        "text": str(average),
        "dial": dial,
        "samples": round(samples, 2),
    }


def _calibrate_modes(fitted_policy: Policy, ballots: Ballots, menu: ModeSet, budget: float) -> dict[str, Any]:
    """Finds the price at which a policy over several modes meets a budget, and its results at this price."""
    price = calibrate(fitted_policy, ballots, budget, orders=_ORDERS)
    result = replay(fitted_policy, ballots, price=price, orders=_ORDERS)
    warn_unspent(result.cost, budget, menu)
    return {
        "budget": budget,
        "dial": price,
        "cost": result.cost,
        "accuracy": result.accuracy.mean if result.accuracy.problems else None,
        "agreement": result.agreement,
        "draws": dict(result.draws),
    }


def _warn_unreached(summary: dict[str, Any], budget: float) -> None:
    reached = [setting["budget"] for setting in summary["settings"]]
    if budget not in reached:
        listed = ", ".join(f"{value:g}" for value in reached)
        remedy = f"give one of {listed}" if reached else "collect more samples"
        print_message(f"{summary['policy']}: budget {budget:g} can't be reached on these samples; {remedy}")


def _check_options(policy: LearnedPolicy, options: dict[str, Any], *, budget: str | None) -> None:
    """Raises an error for an option that this policy doesn't use, instead of ignoring it."""
    if policy == "classifier" and budget is None:
        raise typer.BadParameter(
            "the classifier is fitted for one budget; give e.g. --budget 2", param_hint="--budget"
        )
    if policy == "guarantee" and budget is not None:
        raise typer.BadParameter(
            "the cost of a guarantee follows from --delta; leave it out", param_hint="--budget"
        )
    for option, value in options.items():
        owners = _OWNERS.get(option, ("menu",))
        if option == "--labels" and policy == "menu":
            continue
        if value not in (None, [], ()) and policy not in owners:
            raise typer.BadParameter(
                f"is for --policy {' and '.join(owners)}, not {policy}", param_hint=option
            )
    if options["--features"] is not None:
        try:
            FeatureSet.parse(options["--features"])
        except PolicyError as exc:
            raise typer.BadParameter(str(exc), param_hint="--features") from exc


def _measure_certificate(policy: Policy, ballots: Ballots) -> dict[str, Any]:
    """Measures the average number of samples, and how often the policy can guarantee its answer."""
    result = replay(policy, ballots, orders=_ORDERS, too_few="drop")
    return {**policy.settings(), "samples": result.cost, "share": result.certified}


def _fit_policy(
    policy: LearnedPolicy,
    ballots: Ballots,
    *,
    name: str,
    arguments: dict[str, Any],
    budget: float | None,
    labels: bool | None,
) -> Policy:
    unfitted: Any = POLICIES[policy](**arguments)
    if policy == "classifier":
        fitted_policy: Policy = unfitted.fit(ballots, budget=budget)
    elif policy == "stopping":
        fitted_policy = unfitted.fit(ballots, labels=labels)
    elif policy == "menu":
        with show_progress(f"fitting {name}") as report_progress:
            report_progress(0, 1, "samples read")
            fitted_policy = unfitted.fit(ballots, labels=labels)
            report_progress(1, 1, "learned")
    else:
        fitted_policy = unfitted.fit(ballots)
    return fitted_policy


def _summarise(
    fitted_policy: Policy, ballots: Ballots, chart: Chart | None, *, labels: bool | None
) -> dict[str, Any]:
    """Builds the part of the JSON output about the training data and the policy's price at each budget."""
    graded_problems = int(mask_graded(ballots, grade_samples(ballots)).sum())
    uses_labels = fitted_policy.kind != "stopping" or labels is not False
    return {
        "problems": len(ballots),
        "samples": int(ballots.drawn.sum()),
        "labels": graded_problems if uses_labels else 0,
        "votes": _describe_votes(fitted_policy.weigh, ballots),
        "longest": fitted_policy.longest,
        "max_waves": fitted_policy.max_waves,
        "dial": fitted_policy.dial,
        "settings": [] if chart is None else _build_settings(chart),
        **_describe_classifier(fitted_policy, ballots),
    }


def _summarise_modes(policy: Any, ballots: Ballots, menu: ModeSet) -> dict[str, Any]:  # noqa: ANN401 - attributes that only a policy over modes has
    """Like `_summarise`, but for a policy over several modes."""
    graded = mask_graded(ballots, grade_samples(ballots))
    points = zip(policy.cost_.tolist(), policy.prices_.tolist(), policy.accuracy_.tolist(), strict=True)
    samples = {mode: int(votes.drawn.sum()) for mode, votes in zip(ballots.names, ballots.parts, strict=True)}
    return {
        "problems": len(ballots),
        "samples": sum(samples.values()),
        "labels": int(graded.sum()) if policy.labels_ else 0,
        "unit": menu.unit,
        "currency": menu.currency or None,
        "modes": [{"mode": mode, "cost": menu[mode].cost, "samples": n} for mode, n in samples.items()],
        "settings": [{"cost": cost, "dial": price, "accuracy": accuracy} for cost, price, accuracy in points],
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


def _build_settings(chart: Chart) -> list[dict[str, Any]]:
    """Returns the chart's rows for the JSON output: the price, cost and results at each budget."""
    return [
        {
            "budget": row.budget,
            "dial": row.price,
            "cost": row.cost,
            "agreement": row.stays,
            "accuracy": row.accuracy,
            "uniform": row.uniform,
            "waves": row.waves,
            "rounds_p95": row.rounds_p95,
            "samples_p95": row.find_most(0.95),
            "samples_p99": row.find_most(0.99),
            "above": row.above,
            "share": row.agreement,
            "share_deviation": row.deviation,
            "protocol": chart.protocol,
        }
        for row in chart.rows
    ]


def _describe_classifier(fitted_policy: Any, ballots: Ballots) -> dict[str, Any]:  # noqa: ANN401 - attributes that only the classifier has
    if fitted_policy.kind != "classifier":
        return {}
    labels = fitted_policy.compute_labels(ballots, fitted_policy.budget_)
    predicted = fitted_policy.predict_budgets(ballots)
    budgets, counts = np.unique(labels, return_counts=True)
    return {
        "learner": fitted_policy.model,
        "oracle_counts": dict(zip(map(str, budgets.tolist()), counts.tolist(), strict=True)),
        "imitation": float((labels == predicted).mean()),
        "majority": float(counts.max() / counts.sum()),
    }
