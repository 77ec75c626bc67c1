"""`adacompute collect`: samples a model and stores the responses in a pool. Can be resumed."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.answers import Task
from adacompute.cli.modes import ModesFileOption, read_upstreams
from adacompute.cli.options import (
    AnswerOptions,
    EndpointOptions,
    EngineOptions,
    JsonFlag,
    VerifierOptions,
    build_option,
    load_settings,
)
from adacompute.cli.sampling_options import (
    STOP_SIGNALS,
    GenerationOptions,
    ProblemOptions,
    RunOptions,
    choose_tasks,
    plan_sources,
)
from adacompute.cli.terminal import (
    format_count,
    format_path,
    format_percent,
    open_progress,
    print_fact,
    print_json,
    print_line,
    print_message,
    print_table,
)
from adacompute.config import CollectConfig
from adacompute.errors import PoolNotFound, shorten
from adacompute.pool import Pool, open_pool
from adacompute.problems import ProblemSet
from adacompute.records import Account, TokenPrices, format_money
from adacompute.sampling import Collected, CollectProgress, SourcePlan
from adacompute.sampling import collect as run_collect
from adacompute.sampling.plan import (
    CostEstimate,
    RemainingSamples,
    check_problems,
    check_source,
    estimate_cost,
    find_remaining,
)


@contextmanager
def show_collect_progress(
    label: str, *, prices: TokenPrices | None
) -> Iterator[Callable[[CollectProgress], None]]:
    """Yields a function that shows a run's progress, and says so once when the run begins to stop.

    Costs aren't shown if `prices` is None or all prices are 0.
    """
    start, announced = time.monotonic(), False
    with open_progress(label, noun="samples", last_line=True, transient=False) as update:

        def report(progress: CollectProgress) -> None:
            nonlocal announced
            if progress.stopping and progress.in_flight and not announced:
                announced = True
                calls = format_count(progress.in_flight, "call")
                print_message(f"{label}: finishing {calls} in flight; Ctrl-C again gives them up")
            text = _format_progress(progress, time.monotonic() - start, prices)
            update(progress.stored, progress.planned, text)

        yield report


def _format_progress(progress: CollectProgress, seconds: float, prices: TokenPrices | None) -> str:
    rate = progress.added / max(seconds, 1e-9)
    remaining = progress.planned - progress.stored
    modes = progress.modes or {"": progress}
    parts = [
        f"{name} {mode.stored:,} of {mode.planned:,}" for name, mode in modes.items() if name and mode.planned
    ]
    parts += [f"{rate:,.1f} a second", f"{progress.tokens:,} tokens"]
    if prices:
        parts.append(f"cost {format_money(progress.cost)} {prices.currency}")
    if remaining and rate > 0:
        parts.append(f"{timedelta(seconds=round(remaining / rate))} to go")
    for name, mode in modes.items():
        if mode.errors:
            parts.append(f"{name and f'{name}: '}{format_errors(mode.errors)}")
    return ", ".join(parts)


def format_errors(errors: Mapping[str, int]) -> str:
    """Formats errors with their counts, most frequent first: `3 × rate-limit, 1 × timeout`."""
    return ", ".join(f"{n:,} × {kind}" for kind, n in sorted(errors.items(), key=lambda item: -item[1]))


NEXT_STEPS = {
    None: "the same command asks for them again",
    "signal": "the same command goes on from here",
    "max-cost": "the same command with a higher --max-cost goes on from here",
    "endpoint": "once that is fixed, the same command goes on from here",
}
STOP_REASONS = {
    None: "they failed",
    "signal": "it was stopped",
    "max-cost": "--max-cost was reached",
    "endpoint": "the endpoint can't be used",
}
_LISTED_FAILURES = 5  # maximum number of failed problems that are listed
_FEW_ANSWERS = 0.5  # if fewer than this share of samples have an answer, advice is shown


def show_estimate(
    estimates: Mapping[str, CostEstimate],
    problem_set: ProblemSet,
    plans: Sequence[SourcePlan],
    task: Task,
    *,
    json: bool,
) -> None:
    """Shows how many samples and tokens a run would take, what it would cost, and its first prompt."""
    total, prices = _sum_estimates(estimates, plans), find_prices(plans)
    template, prompt = plans[0].asking.template, plans[0].asking.messages(problem_set.problems[0])
    golds = [problem.gold for problem in problem_set.problems if problem.gold is not None]
    if json:
        details = {"template": template.name, "extract": task.extract, "gold_known": len(golds)}
        modes = {
            plan.name: {
                "model": plan.asking.model,
                **estimates[plan.name].to_dict(),
                "first_prompt": plan.asking.messages(problem_set.problems[0]),
            }
            for plan in plans
        }
        by_mode = {} if "" in modes else {"currency": prices.currency, "modes": modes}
        print_json({**total.to_dict(), **details, "first_prompt": prompt, **by_mode})
        return
    part = format_count(total.problems, "problem") if len(plans) == 1 else format_count(len(plans), "mode")
    print_line(f"to draw: {format_count(total.samples, 'sample')} of {part}; nothing was sent")
    if total.stored:
        print_fact("stored", f"{format_count(total.stored, 'sample')} already")
    calls = f"{total.calls_most:,}"
    if total.calls_least < total.calls_most:
        least = f"{total.calls_least:,} where the endpoint gives all of a problem's samples in one call (n)"
        calls = f"{least}, {calls} where it gives one"
    print_fact("calls", calls)
    prompts = _format_range(total.prompt_tokens_least, total.prompt_tokens_most)
    print_fact("prompts", f"{prompts} tokens, estimated from their length")
    so_far = "" if total.completion_tokens is None else f"{total.completion_tokens:,} tokens as so far, "
    longest = total.completion_tokens_most
    print_fact("responses", so_far + ("no limit" if longest is None else f"at most {longest:,} tokens"))
    likely = "" if total.cost is None else f"about {format_money(total.cost)} {prices.currency}, "
    most = "no limit"
    if total.cost_most is not None:
        most = f"at most {format_money(total.cost_most)} {prices.currency}"
    where = "in the tables of the modes" if plans[0].name else "(--input-price, --output-price)"
    unknown = f"not known; give input_price and output_price {where}"
    print_fact("cost", likely + most if prices else unknown)
    print_fact("template", f"{template.name}; answers are read by {task.extract!r}")
    of_all = f"of {format_count(len(problem_set.problems), 'problem')}"
    print_fact(
        "gold", f"{len(golds):,} {of_all}, e.g. {shorten(repr(golds[0]), 40)}" if golds else f"none {of_all}"
    )
    if len(plans) > 1:
        _show_mode_estimates(estimates, plans, prices)
    print_line("The first prompt:" if len(plans) == 1 else f"The first prompt, to {plans[0].name}:")
    _print_prompt(prompt)


def _show_mode_estimates(
    estimates: Mapping[str, CostEstimate], plans: Sequence[SourcePlan], prices: TokenPrices
) -> None:
    """Shows a table with an estimate for each mode."""
    headings = ["mode", "model", "to draw", "stored", "calls", "prompt tokens", "response tokens"]
    headings += [f"cost, {prices.currency}", f"at most, {prices.currency}"] if prices else []
    rows = []
    for plan in plans:
        estimate = estimates[plan.name]
        longest = estimate.completion_tokens_most
        cells = [plan.name, plan.asking.model, f"{estimate.samples:,}", f"{estimate.stored:,}"]
        cells.append(_format_range(estimate.calls_least, estimate.calls_most))
        cells.append(_format_range(estimate.prompt_tokens_least, estimate.prompt_tokens_most))
        cells.append("no limit" if longest is None else f"at most {longest:,}")
        costs = ["–" if cost is None else format_money(cost) for cost in (estimate.cost, estimate.cost_most)]
        rows.append(cells + (costs if prices else []))
    print_table(headings, rows)


def _format_range(least: int, most: int) -> str:
    return f"{least:,} to {most:,}" if least < most else f"{most:,}"


def _sum_estimates(estimates: Mapping[str, CostEstimate], plans: Sequence[SourcePlan]) -> CostEstimate:
    """Adds up the modes' estimates. A total is None if any part is None; modes without prices are free."""
    free = [plan.name for plan in plans if not plan.prices]

    def add(name: str) -> Any:  # noqa: ANN401 - a number or None
        is_money = name in ("cost", "cost_most") and len(plans) - len(free) > 0 and len(plans) > 1
        values = [
            0.0 if is_money and (mode in free or not estimate.samples) else getattr(estimate, name)
            for mode, estimate in estimates.items()
        ]
        return None if any(value is None for value in values) else sum(values)

    return CostEstimate(**{each.name: add(each.name) for each in fields(CostEstimate)})


def find_prices(plans: Sequence[SourcePlan]) -> TokenPrices:
    """Returns the token prices of the first mode that has prices above 0; prices of 0 if none has."""
    return next((plan.prices for plan in plans if plan.prices), plans[0].prices)


def _print_prompt(messages: Sequence[Mapping[str, Any]]) -> None:
    for turn in messages:
        for number, text in enumerate(turn["content"].split("\n")):
            print_line(f"  {turn['role'] if not number else '':<11} {text}")


def show_collect_result(
    result: Collected, pool_path: Path, plans: Sequence[SourcePlan], modes_file: Path | None
) -> None:
    """Shows how many samples a run of `collect` stored, what they cost, and how many have an answer."""
    stored, prices = (
        f"{result.stored:,} of {format_count(result.planned, 'planned sample')}",
        find_prices(plans),
    )
    print_line(f"{format_path(pool_path)}: {stored}, {result.added:,} new")
    show_models(plans)
    show_account(result.account, prices, cost=result.cost, at_most=result.at_most)
    show_answer_rate(result.answered, result.finished)
    show_verifier(result.verifier)
    for plan in plans:
        part, place = result.modes.get(plan.name, result), plan.name or "the endpoint"
        if part.per_call == 1:
            print_fact("note", f"{place} gives one sample a call, so each call pays for the prompt again")
        if part.logprobs is False and plan.asking.logprobs:
            print_fact("note", f"{place} gives no log-probabilities: votes will be plain")
        if part.errors:
            print_fact("errors", f"{plan.name and f'{plan.name}: '}{format_errors(part.errors)}")
    if len(plans) > 1:
        _show_mode_results(result, prices)
    if result.complete:
        step = f"pool {format_path(pool_path)}"
        if modes_file is not None:
            step = (
                f"evaluate {format_path(pool_path)}{f' --prices {format_path(modes_file)}' if prices else ''}"
            )
        print_line(f"Go on with: adacompute {step}")


def _show_mode_results(result: Collected, prices: TokenPrices) -> None:
    """Shows a table with each mode's samples and cost."""
    headings = ["mode", "model", "samples", "new", "calls", "prompt tokens", "response tokens"]
    headings += ["answers", "cut off", *([f"cost, {prices.currency}"] if prices else [])]
    rows = []
    for name, mode in result.modes.items():
        counts = (mode.added, mode.account.calls, mode.account.prompt_tokens, mode.account.completion_tokens)
        cut_off = None if mode.finished is None else 1 - mode.finished
        cells = [name, mode.model or "", f"{mode.stored:,} of {mode.planned:,}"]
        cells += [*(f"{count:,}" for count in counts), format_percent(mode.answered), format_percent(cut_off)]
        rows.append([*cells, *([format_money(mode.cost)] if prices else [])])
    print_table(headings, rows)


def show_models(plans: Sequence[SourcePlan]) -> None:
    """Shows the model, or the models of all modes."""
    models = [plan.asking.model for plan in plans]
    print_fact("model" if len(models) == 1 else "models", ", ".join(models))


def show_answer_rate(answered: float | None, finished: float | None) -> None:
    """Shows the share of samples with an answer, and gives advice if this share is low."""
    if answered is None:
        return
    cut_off = "" if finished is None or finished == 1 else f", {format_percent(1 - finished)} were cut off"
    print_fact("answers", f"found in {format_percent(answered)} of samples{cut_off}")
    if answered < _FEW_ANSWERS:
        longer = " or a higher --max-tokens" if finished is not None and finished < _FEW_ANSWERS else ""
        print_fact(
            "note", f"few answers are found: ask with another --template{longer}; samples that are paid for"
        )
        print_fact("", "can be read otherwise: adacompute import POOL --pool NEW --reread --extract HOW")


def show_verifier(use: Mapping[str, Any] | None) -> None:
    """Shows how many responses the verifier was asked to score, and why some have no score."""
    if use is None:
        return
    tokens = f", {format_count(use['tokens'], 'token')}" if use["tokens"] else ""
    failed = f", {use['failed']:,} without a score" if use["failed"] else ""
    print_fact("verifier", f"asked about {format_count(use['calls'], 'response')}{failed}{tokens}")
    if use["failed"]:
        print_fact("", shorten(f"the first: {use['why']}", 200))


def show_account(account: Account, prices: TokenPrices, *, cost: float, at_most: float) -> None:
    """Shows the number of calls, their tokens and cost, and the most that they can have cost."""
    calls = f"{account.calls:,}"
    if account.maybe:
        calls += f", {account.maybe:,} of which gave nothing and may have been charged"
    print_fact("calls", calls)
    estimated = f" (estimated for {format_count(account.estimated, 'call')})" if account.estimated else ""
    print_fact(
        "tokens",
        f"{account.prompt_tokens:,} of prompts, {account.completion_tokens:,} of responses{estimated}",
    )
    if prices:
        more = f", at most {format_money(at_most)} {prices.currency}" if at_most > cost else ""
        print_fact("cost", f"{format_money(cost)} {prices.currency}{more}")


def print_failures(failures: Mapping[str, str], noun: str, *, place: str = "") -> None:
    """Prints to stderr which problems lack samples, and why; lists at most five."""
    if failures:
        verb = "lacks" if len(failures) == 1 else "lack"
        print_message(f"{place}{format_count(len(failures), noun)} {verb} samples:")
        for id_, reason in list(failures.items())[:_LISTED_FAILURES]:
            print_message(f"  {id_}: {reason}")
        if len(failures) > _LISTED_FAILURES:
            print_message(f"  and {len(failures) - _LISTED_FAILURES:,} more")


def print_remaining(result: Collected, *, mode: str = "") -> None:
    """Prints to stderr why samples are missing, which problems failed, and how to continue."""
    place = f"mode {mode}: " if mode else ""
    if result.why is None or any(result.why not in reason for reason in result.failures.values()):
        print_failures(result.failures, "problem", place=place)
    if result.complete:
        return
    missing = format_count(result.planned - result.stored, "sample")
    reason = f" ({result.why})" if result.why else ""
    print_message(
        f"{place}{missing} not drawn: {STOP_REASONS[result.stopped]}{reason}; {NEXT_STEPS[result.stopped]}"
    )


PoolOption = Annotated[
    Path, typer.Option("--pool", metavar="POOL", help="Pool file to add to; created if missing.")
]


def _parse_samples(text: str) -> dict[str, int]:
    """Parses --samples: `16` gives {"": 16}, and `small=32,large=8` gives a number for each mode."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    numbers = [int(number) if number.strip().isdecimal() else 0 for _, _, number in pairs]
    names = [name.strip() for name, _, _ in pairs]
    if min(numbers) < 1 or (len(pairs) > 1 and not all(names)):
        reason = (
            f"{text!r} can't be used; give a whole number from 1 up, or of several modes small=32,large=8"
        )
        raise typer.BadParameter(reason)
    return dict(zip(names, numbers, strict=True))


def _list_counts(wanted: Mapping[str, int], modes: Sequence[str]) -> list[int]:
    """Returns the number of samples per problem for each mode; a single endpoint is a mode named ""."""
    if "" in wanted:
        return [wanted[""]] * len(modes)
    reason = ""
    if "" in modes:
        reason = "there is one endpoint; give one number"
    elif strange := [name for name in wanted if name not in modes]:
        reason = f"names {strange[0]!r}, which is not a mode; there are {', '.join(modes)}"
    elif missing := [name for name in modes if name not in wanted]:
        reason = f"has no number for mode {missing[0]!r}; give all of them, or one number for all"
    if reason:
        raise typer.BadParameter(reason, param_hint="--samples")
    return [wanted[name] for name in modes]


SamplesOption = Annotated[
    dict[str, int] | None,
    build_option(
        CollectConfig,
        "samples",
        "--samples",
        meaning="samples per problem, in total, or for each mode, e.g. small=32,large=8",
        parser=_parse_samples,
        metavar="N",
    ),
]


def collect(
    context: typer.Context,
    *,
    problems: ProblemOptions,
    pool_path: PoolOption,
    modes_file: ModesFileOption = None,
    wanted: SamplesOption = None,
    endpoint: EndpointOptions,
    sampling: GenerationOptions,
    run: RunOptions,
    engine: EngineOptions,
    reading: AnswerOptions,
    verifier: VerifierOptions,
    json: JsonFlag = False,
) -> None:
    """Ask a model each problem many times, and store the samples.

    If this command is stopped, run it again to continue: stored samples are not asked for again. Ctrl-C
    finishes the calls in flight; a second Ctrl-C drops them. Keys come from the environment or a file,
    never from the command line. With several modes, each of them is asked, and all samples go into one pool.
    """
    config = load_settings(context)
    modes = read_upstreams(modes_file, endpoint, config.endpoint)
    if modes_file is not None and engine.is_ray:
        reason = "several modes are asked from this process; leave this option out"
        raise typer.BadParameter(reason, param_hint="--engine")
    samples = _list_counts(wanted or {"": config.collect.samples}, modes.names)
    max_cost = run.read_max_cost(modes.currency)
    problem_set, template = problems.read()
    task, default_task = choose_tasks(reading, config.answers, template, problem_set)
    plans = plan_sources(
        modes.modes,
        template,
        config,
        sampling=sampling,
        engine=engine,
        verifier=verifier,
        pool_path=pool_path,
        dry_run=run.dry_run,
    )
    plans = [replace(plan, samples=count) for plan, count in zip(plans, samples, strict=True)]
    if run.dry_run:

        def find_left(pool: Pool | None, plan: SourcePlan) -> RemainingSamples:
            return find_remaining(problem_set.problems, pool, plan.asking, samples=plan.samples)

        estimates = estimate_plans(pool_path, problem_set, plans, find_left, another=run.another)
        show_estimate(estimates, problem_set, plans, default_task, json=json)
        return
    with (
        open_pool(pool_path, create=True, task=task, default_task=default_task) as pool,
        show_collect_progress(format_path(pool_path), prices=find_prices(plans)) as report_progress,
    ):
        result = run_collect(
            problem_set.problems,
            pool,
            plans,
            max_cost=max_cost,
            another=run.another,
            regrade=run.regrade,
            progress=report_progress,
            signals=STOP_SIGNALS,
        )
    if json:
        currency = {} if modes_file is None else {"currency": modes.currency}
        print_json({"pool": format_path(pool_path), **currency, **result.to_dict()})
    else:
        show_collect_result(result, pool_path, plans, modes_file)
    for name, part in (result.modes or {"": result}).items():
        print_remaining(part, mode=name)
    if not result.complete:
        raise typer.Exit(1 if result.signal is None else 128 + result.signal)


def estimate_plans(
    pool_path: Path,
    problem_set: ProblemSet,
    plans: Sequence[SourcePlan],
    find_left: Callable[[Pool | None, SourcePlan], RemainingSamples],
    *,
    another: bool,
) -> dict[str, CostEstimate]:
    """Estimates the cost of each mode's remaining samples; raises an error if a run couldn't use the pool."""
    estimates = {}
    with open_known_pool(pool_path) as pool:
        check_problems(pool, problem_set.problems, plans[0].asking.template)
        for plan in plans:
            spec, mean_tokens = plan.asking, None
            if pool is not None:
                check_source(pool, spec, another=another)
                mean_tokens = pool.totals(pool.source_key(*spec.source)).tokens
            left = find_left(pool, plan)
            estimates[plan.name] = estimate_cost(left, spec, prices=plan.prices, mean_tokens=mean_tokens)
    return estimates


@contextmanager
def open_known_pool(path: Path) -> Iterator[Pool | None]:
    """Opens a pool for reading; yields None if the pool doesn't exist yet."""
    try:
        pool = open_pool(path)
    except PoolNotFound:
        yield None
        return
    with pool:
        yield pool
