"""`adacompute collect`: resumable sampling of a model into a pool, its progress and its result."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.answers import Task
from adacompute.cli.options import (
    AnswerOptions,
    EndpointOptions,
    JsonFlag,
    VerifierOptions,
    build_option,
    get_flags,
    load_settings,
    refuse_endpoint_options,
)
from adacompute.cli.progress import open_progress
from adacompute.cli.sampling_options import (
    STOP_SIGNALS,
    MenuFileOption,
    ProblemOptions,
    RunOptions,
    SamplerOptions,
    SamplingOptions,
    choose_mode_endpoints,
    choose_tasks,
    resolve_verifier,
)
from adacompute.cli.terminal import (
    format_count,
    format_path,
    format_percent,
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
from adacompute.sampling import (
    Asking,
    Collected,
    CollectedMenu,
    CollectProgress,
    CostEstimate,
    ModePlan,
    RemainingSamples,
    check_problems,
    check_source,
    collect_menu,
    estimate_cost,
    find_remaining,
)
from adacompute.sampling import collect as run_collect

__all__ = [
    "NEXT_STEPS",
    "STOP_REASONS",
    "collect",
    "estimate_remaining",
    "format_errors",
    "print_failures",
    "show_account",
    "show_answer_rate",
    "show_collect_progress",
    "show_estimate",
    "show_verifier",
]


@contextmanager
def show_collect_progress(
    label: str, *, prices: TokenPrices | None
) -> Iterator[Callable[[CollectProgress], None]]:
    """Yield a function that shows the progress of sampling, and says once that it finishes its calls.

    `prices`: None, or all 0, where the cost isn't shown.
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


@contextmanager
def show_menu_progress(
    label: str, plans: Sequence[ModePlan]
) -> Iterator[Callable[[str, CollectProgress], None]]:
    """Yield a function of a mode and its progress, which shows that of all modes."""
    start, announced = time.monotonic(), False
    latest: dict[str, CollectProgress] = {}
    currency = plans[0].prices.currency if any(plan.prices for plan in plans) else ""
    with open_progress(label, noun="samples", last_line=True, transient=False) as update:

        def report(mode: str, progress: CollectProgress) -> None:
            nonlocal announced
            latest[mode] = progress
            if len(latest) < len(plans):  # the others begin in a moment
                return
            states = list(latest.values())
            in_flight = sum(state.in_flight for state in states)
            if all(state.stopping for state in states) and in_flight and not announced:
                announced = True
                calls = format_count(in_flight, "call")
                print_message(f"{label}: finishing {calls} in flight; Ctrl-C again gives them up")
            text = _format_menu_progress(latest, time.monotonic() - start, currency)
            update(sum(state.stored for state in states), sum(state.planned for state in states), text)

        yield report


def _format_menu_progress(latest: Mapping[str, CollectProgress], seconds: float, currency: str) -> str:
    states = latest.values()
    parts = [f"{name} {state.stored:,} of {state.planned:,}" for name, state in latest.items()]
    parts.append(f"{sum(state.added for state in states) / max(seconds, 1e-9):,.1f} a second")
    if currency:  # what was spent is counted over all modes
        parts.append(f"cost {format_money(max(state.cost for state in states))} {currency}")
    for name, state in latest.items():
        if state.errors:
            parts.append(f"{name}: {format_errors(state.errors)}")
    return ", ".join(parts)


def _format_progress(progress: CollectProgress, seconds: float, prices: TokenPrices | None) -> str:
    rate = progress.added / max(seconds, 1e-9)
    remaining = progress.planned - progress.stored
    parts = [f"{rate:,.1f} a second", f"{progress.tokens:,} tokens"]
    if prices:
        parts.append(f"cost {format_money(progress.cost)} {prices.currency}")
    if remaining and rate > 0:
        parts.append(f"{timedelta(seconds=round(remaining / rate))} to go")
    if progress.errors:
        parts.append(format_errors(progress.errors))
    return ", ".join(parts)


def format_errors(errors: Mapping[str, int]) -> str:
    """`3 × rate-limit, 1 × timeout`: the commonest first."""
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
_LISTED_FAILURES = 5  # failed problems that are listed
_FEW_ANSWERS = 0.5  # share of samples with an answer, or that were not cut off


def show_estimate(
    estimation: CostEstimate,
    problem_set: ProblemSet,
    spec: Asking,
    task: Task,
    prices: TokenPrices,
    *,
    json: bool,
) -> None:
    """Show what a run would take, and the first prompt as the model would get it."""
    prompt = spec.template.messages(problem_set.problems[0])
    golds = [problem.gold for problem in problem_set.problems if problem.gold is not None]
    if json:
        details = {"template": spec.template.name, "extract": task.extract, "gold_known": len(golds)}
        print_json({**estimation.to_dict(), **details, "first_prompt": prompt})
        return
    samples, problems = (
        format_count(estimation.samples, "sample"),
        format_count(estimation.problems, "problem"),
    )
    print_line(f"to draw: {samples} of {problems}; nothing was sent")
    if estimation.stored:
        print_fact("stored", f"{format_count(estimation.stored, 'sample')} already")
    calls = f"{estimation.calls_most:,}"
    if estimation.calls_least < estimation.calls_most:
        least = (
            f"{estimation.calls_least:,} where the endpoint gives all of a problem's samples in one call (n)"
        )
        calls = f"{least}, {calls} where it gives one"
    print_fact("calls", calls)
    prompts = f"{estimation.prompt_tokens_most:,}"
    if estimation.prompt_tokens_least < estimation.prompt_tokens_most:
        prompts = f"{estimation.prompt_tokens_least:,} to {prompts}"
    print_fact("prompts", f"{prompts} tokens, estimated from their length")
    most = (
        "no limit"
        if estimation.completion_tokens_most is None
        else f"at most {estimation.completion_tokens_most:,} tokens"
    )
    so_far = (
        "" if estimation.completion_tokens is None else f"{estimation.completion_tokens:,} tokens as so far, "
    )
    print_fact("responses", so_far + most)
    likely = "" if estimation.cost is None else f"about {format_money(estimation.cost)} {prices.currency}, "
    most = (
        "no limit"
        if estimation.cost_most is None
        else f"at most {format_money(estimation.cost_most)} {prices.currency}"
    )
    print_fact("cost", likely + most if prices else "not known; give --input-price and --output-price")
    print_fact("template", f"{spec.template.name}; answers are read by {task.extract!r}")
    of_all = f"of {format_count(len(problem_set.problems), 'problem')}"
    print_fact(
        "gold", f"{len(golds):,} {of_all}, e.g. {shorten(repr(golds[0]), 40)}" if golds else f"none {of_all}"
    )
    print_line("The first prompt:")
    _print_prompt(prompt)


def _print_prompt(messages: Sequence[Mapping[str, Any]]) -> None:
    for turn in messages:
        for number, text in enumerate(turn["content"].split("\n")):
            print_line(f"  {turn['role'] if not number else '':<11} {text}")


def show_collect_result(result: Collected, pool_path: Path, spec: Asking, prices: TokenPrices) -> None:
    """Show what a collection has stored, spent and found."""
    stored = f"{result.stored:,} of {format_count(result.planned, 'planned sample')}"
    print_line(f"{format_path(pool_path)}: {stored}, {result.added:,} new")
    print_fact("model", spec.model)
    show_account(result.account, prices, cost=result.cost, at_most=result.at_most)
    show_answer_rate(result.answered, result.finished)
    show_verifier(result.verifier)
    if result.per_call == 1:
        print_fact("note", "the endpoint gives one sample a call, so each call pays for the prompt again")
    if result.logprobs is False and spec.logprobs:
        print_fact("note", "the endpoint gives no log-probabilities: votes will be plain")
    if result.errors:
        print_fact("errors", format_errors(result.errors))
    if result.complete:
        print_line(f"Go on with: adacompute pool {format_path(pool_path)}")


def show_menu_estimate(
    estimates: Mapping[str, CostEstimate],
    problem_set: ProblemSet,
    plans: Sequence[ModePlan],
    task: Task,
    *,
    json: bool,
) -> None:
    """Show what a run would take, mode by mode and in total, and the first prompt of the first mode."""
    currency, has_prices = plans[0].prices.currency, any(plan.prices for plan in plans)
    total = _sum_estimates(estimates, plans)
    first_prompts = {plan.name: plan.asking.messages(problem_set.problems[0]) for plan in plans}
    if json:
        modes = {
            plan.name: {
                "model": plan.asking.model,
                **estimates[plan.name].to_dict(),
                "first_prompt": first_prompts[plan.name],
            }
            for plan in plans
        }
        details = {"template": plans[0].asking.template.name, "extract": task.extract, "currency": currency}
        print_json({**total.to_dict(), **details, "modes": modes})
        return
    samples = format_count(total.samples, "sample")
    print_line(f"to draw: {samples} of {format_count(len(plans), 'mode')}; nothing was sent")
    headings = ["mode", "model", "to draw", "stored", "calls", "prompt tokens", "response tokens"]
    headings += [f"cost, {currency}", f"at most, {currency}"] if has_prices else []
    models = {plan.name: plan.asking.model for plan in plans}
    rows = [
        [name, models.get(name, ""), *_format_estimate(estimate, has_prices=has_prices)]
        for name, estimate in [*estimates.items(), ("total", total)]
    ]
    print_table(headings, rows)
    print_line()
    if not has_prices:
        print_fact("cost", "not known; give input_price and output_price in the menu's tables")
    print_fact("template", f"{plans[0].asking.template.name}; answers are read by {task.extract!r}")
    print_line(f"The first prompt, to {plans[0].name}:")
    _print_prompt(first_prompts[plans[0].name])


def _sum_estimates(estimates: Mapping[str, CostEstimate], plans: Sequence[ModePlan]) -> CostEstimate:
    """All modes together; what isn't known of one isn't known of all, but a mode without prices is free."""
    free = [plan.name for plan in plans if not plan.prices]

    def add(name: str) -> Any:  # noqa: ANN401 - a number or None
        is_money = name in ("cost", "cost_most") and len(free) < len(plans)
        values = [
            0.0 if is_money and (mode in free or not estimate.samples) else getattr(estimate, name)
            for mode, estimate in estimates.items()
        ]
        return None if any(value is None for value in values) else sum(values)

    return CostEstimate(**{each.name: add(each.name) for each in fields(CostEstimate)})


def _format_estimate(estimate: CostEstimate, *, has_prices: bool) -> list[str]:
    def show_range(least: int, most: int) -> str:
        return f"{least:,} to {most:,}" if least < most else f"{most:,}"

    def show_money(cost: float | None) -> str:
        return "–" if cost is None else format_money(cost)

    most = estimate.completion_tokens_most
    cells = [
        f"{estimate.samples:,}",
        f"{estimate.stored:,}",
        show_range(estimate.calls_least, estimate.calls_most),
        show_range(estimate.prompt_tokens_least, estimate.prompt_tokens_most),
        "no limit" if most is None else f"at most {most:,}",
    ]
    return cells + ([show_money(estimate.cost), show_money(estimate.cost_most)] if has_prices else [])


def show_menu_result(result: CollectedMenu, pool_path: Path, menu: Path, plans: Sequence[ModePlan]) -> None:
    """Show what a collection from a menu has stored and spent, mode by mode and in total."""
    stored = f"{result.stored:,} of {format_count(result.planned, 'planned sample')}"
    print_line(f"{format_path(pool_path)}: {stored}, {result.added:,} new")
    currency, has_prices = plans[0].prices.currency, any(plan.prices for plan in plans)
    headings = ["mode", "model", "samples", "new", "calls", "prompt tokens", "response tokens"]
    headings += ["answers", "cut off", *([f"cost, {currency}"] if has_prices else [])]
    rows = []
    for plan in plans:
        mode = result.modes[plan.name]
        cut_off = None if mode.finished is None else 1 - mode.finished
        tokens = (mode.account.prompt_tokens, mode.account.completion_tokens)
        cells = [f"{mode.stored:,} of {mode.planned:,}", f"{mode.added:,}", f"{mode.account.calls:,}"]
        cells += [*(f"{count:,}" for count in tokens), format_percent(mode.answered), format_percent(cut_off)]
        rows.append(
            [plan.name, plan.asking.model, *cells, *([format_money(mode.cost)] if has_prices else [])]
        )
    accounts = [mode.account for mode in result.modes.values()]
    sums = [sum(each.calls for each in accounts), sum(each.prompt_tokens for each in accounts)]
    sums.append(sum(each.completion_tokens for each in accounts))
    total = ["total", "", f"{result.stored:,} of {result.planned:,}", f"{result.added:,}"]
    total += [*(f"{count:,}" for count in sums), "", ""]
    print_table(headings, [*rows, [*total, *([format_money(result.cost)] if has_prices else [])]])
    if result.at_most > result.cost:
        text = (
            f"at most {format_money(result.at_most)} {currency}: some calls that gave nothing may be charged"
        )
        print_fact("cost", text)
    for plan in plans:
        mode = result.modes[plan.name]
        if mode.logprobs is False and plan.asking.logprobs:
            print_fact("note", f"{plan.name} gives no log-probabilities: its votes will be plain")
        if mode.errors:
            print_fact("errors", f"{plan.name}: {format_errors(mode.errors)}")
        show_verifier(mode.verifier)
    if result.complete:
        prices = f" --prices {format_path(menu)}" if has_prices else ""
        print_line(f"Go on with: adacompute evaluate {format_path(pool_path)}{prices}")


def show_answer_rate(answered: float | None, finished: float | None) -> None:
    """Show the share of samples with an answer; where it is low, what to do about it."""
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
    """Show what a verifier was asked, if one was, and why it gave fewer scores than that."""
    if use is None:
        return
    tokens = f", {format_count(use['tokens'], 'token')}" if use["tokens"] else ""
    failed = f", {use['failed']:,} without a score" if use["failed"] else ""
    print_fact("verifier", f"asked about {format_count(use['calls'], 'response')}{failed}{tokens}")
    if use["failed"]:
        print_fact("", shorten(f"the first: {use['why']}", 200))


def show_account(account: Account, prices: TokenPrices, *, cost: float, at_most: float) -> None:
    """Show the number of calls, their tokens and their cost."""
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
    """Print on stderr some of the problems that lack samples, and why."""
    if failures:
        verb = "lacks" if len(failures) == 1 else "lack"
        print_message(f"{place}{format_count(len(failures), noun)} {verb} samples:")
        for id_, reason in list(failures.items())[:_LISTED_FAILURES]:
            print_message(f"  {id_}: {reason}")
        if len(failures) > _LISTED_FAILURES:
            print_message(f"  and {len(failures) - _LISTED_FAILURES:,} more")


def print_remaining(result: Collected, *, mode: str = "") -> None:
    """Print on stderr why a collection isn't complete, which problems failed, and how to go on."""
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
    Path, typer.Option("--pool", metavar="POOL", help="The pool to add to; made if it isn't there.")
]


@dataclass(frozen=True, slots=True)
class WantedSamples:
    """How many samples are wanted of each problem: the same of every mode, or by mode."""

    count: int | None = None
    by_mode: Mapping[str, int] = field(default_factory=dict)

    def get_count(self, mode: str) -> int:
        """Of one mode of a menu."""
        if self.count is not None:
            return self.count
        if mode not in self.by_mode:
            reason = f"has no number for mode {mode!r}; give all of them, or one number for all"
            raise typer.BadParameter(reason, param_hint="--samples")
        return self.by_mode[mode]


def _parse_samples(text: str) -> WantedSamples:
    """`16`, or with a menu `small=32,large=8`."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    numbers = [int(number) if number.strip().isdecimal() else 0 for _, _, number in pairs]
    if min(numbers) < 1 or (len(pairs) > 1 and not all(name.strip() for name, _, _ in pairs)):
        reason = f"{text!r} can't be used; give a whole number from 1 up, or with --menu small=32,large=8"
        raise typer.BadParameter(reason)
    if not pairs[0][0].strip():
        return WantedSamples(numbers[0])
    names = [name.strip() for name, _, _ in pairs]
    return WantedSamples(None, dict(zip(names, numbers, strict=True)))


SamplesOption = Annotated[
    WantedSamples | None,
    build_option(
        CollectConfig,
        "samples",
        "--samples",
        meaning="samples of each problem, in total; with --menu also by mode, e.g. small=32,large=8",
        parser=_parse_samples,
        metavar="N",
    ),
]


def collect(
    context: typer.Context,
    *,
    problems: ProblemOptions,
    pool_path: PoolOption,
    menu: MenuFileOption = None,
    wanted: SamplesOption = None,
    retry_failed: Annotated[
        int, typer.Option(min=0, metavar="ROUNDS", help="Times to ask again, at the end, for what failed.")
    ] = 0,
    endpoint: EndpointOptions,
    sampling: SamplingOptions,
    run: RunOptions,
    sampler: SamplerOptions,
    reading: AnswerOptions,
    verifier: VerifierOptions,
    json: JsonFlag = False,
) -> None:
    """Ask a model each problem many times, into a pool; can be resumed.

    However it was stopped, the same command continues: stored samples are not asked for again. Ctrl-C
    finishes the calls in flight; a second Ctrl-C drops them. Keys come from the environment or a file,
    never from the command line. With --menu, every mode of a menu is asked, into one pool.
    """
    config = load_settings(context)
    sampler.check(endpoint, run.max_cost)
    if menu is not None:
        refuse_endpoint_options(get_flags(endpoint))
        if sampler.is_ray:
            reason = "the modes of --menu are asked from this process; leave this option out"
            raise typer.BadParameter(reason, param_hint="--engine")
    elif wanted is not None and wanted.count is None:
        raise typer.BadParameter("only --menu has modes; give one number", param_hint="--samples")
    problem_set, template = problems.read()
    tasks = choose_tasks(reading, config.answers, template, problem_set)
    counts = WantedSamples(config.collect.samples) if wanted is None else wanted
    scoring = verifier.override(config.verifier)
    if menu is not None:
        modes = choose_mode_endpoints(menu)
        _check_mode_names(counts, [mode.name for mode, _ in modes])
        plans = [
            sampling.plan_mode(
                mode,
                template,
                config.collect,
                samples=counts.get_count(mode.name),
                verifier=resolve_verifier(scoring, settings),
            )
            for mode, settings in modes
        ]
        _run_menu_collection(
            problem_set, pool_path, menu, plans, tasks, run=run, retry_failed=retry_failed, json=json
        )
        return
    upstream = endpoint.override(config.endpoint)
    scorer = resolve_verifier(scoring, upstream)
    source, names = sampler.choose_sampler(upstream, pool_path=pool_path, dry_run=run.dry_run)
    spec = sampling.build_asking(names, template, config.collect)
    wanted_samples = counts.get_count("")
    prices = upstream.prices
    if run.dry_run:
        count_left = partial(
            find_remaining,
            problem_set.problems,
            samples=wanted_samples,
            model=spec.model,
            parameters=spec.parameters,
        )
        estimation = estimate_remaining(pool_path, problem_set, spec, prices, count_left, another=run.another)
        show_estimate(estimation, problem_set, spec, tasks[1], prices, json=json)
        return
    task, default_task = tasks
    with (
        open_pool(pool_path, create=True, task=task, default_task=default_task) as pool,
        show_collect_progress(format_path(pool_path), prices=prices) as report_progress,
    ):
        result = run_collect(
            problem_set.problems,
            pool,
            endpoint=source,
            asking=spec,
            samples=wanted_samples,
            prices=prices,
            max_cost=run.read_max_cost(prices.currency),
            retry_rounds=retry_failed,
            another=run.another,
            regrade=run.regrade,
            progress=report_progress,
            signals=STOP_SIGNALS,
            verifier=scorer,
        )
    if json:
        print_json({"pool": format_path(pool_path), "model": spec.model, **result.to_dict()})
    else:
        show_collect_result(result, pool_path, spec, prices)
    print_remaining(result)
    if code := _compute_exit_code(result):
        raise typer.Exit(code)


def _check_mode_names(counts: WantedSamples, names: Sequence[str]) -> None:
    for name in counts.by_mode:
        if name not in names:
            reason = f"names {name!r}, which is no mode of --menu; there are {', '.join(names)}"
            raise typer.BadParameter(reason, param_hint="--samples")


def _run_menu_collection(
    problem_set: ProblemSet,
    pool_path: Path,
    menu: Path,
    plans: Sequence[ModePlan],
    tasks: tuple[Task | None, Task],
    *,
    run: RunOptions,
    retry_failed: int,
    json: bool,
) -> None:
    """Collect from every mode of a menu into one pool, or say what that would take."""
    task, default_task = tasks
    max_cost = run.read_max_cost(plans[0].prices.currency)
    if run.dry_run:
        estimates = _estimate_modes(pool_path, problem_set, plans, another=run.another)
        show_menu_estimate(estimates, problem_set, plans, default_task, json=json)
        return
    with (
        open_pool(pool_path, create=True, task=task, default_task=default_task) as pool,
        show_menu_progress(format_path(pool_path), plans) as report_progress,
    ):
        result = collect_menu(
            problem_set.problems,
            pool,
            plans=plans,
            max_cost=max_cost,
            retry_rounds=retry_failed,
            another=run.another,
            regrade=run.regrade,
            progress=report_progress,
            signals=STOP_SIGNALS,
        )
    if json:
        fields = result.to_dict()
        for plan in plans:
            fields["modes"][plan.name] = {"model": plan.asking.model, **fields["modes"][plan.name]}
        print_json({"pool": format_path(pool_path), "currency": plans[0].prices.currency, **fields})
    else:
        show_menu_result(result, pool_path, menu, plans)
    for name, collected in result.modes.items():
        print_remaining(collected, mode=name)
    if code := _compute_exit_code(result):
        raise typer.Exit(code)


def _compute_exit_code(result: Collected | CollectedMenu) -> int:
    """0 where all planned samples are stored; 128 plus the number of a signal; else 1."""
    if result.complete:
        return 0
    return 1 if result.signal is None else 128 + result.signal


def _estimate_modes(
    pool_path: Path, problem_set: ProblemSet, plans: Sequence[ModePlan], *, another: bool
) -> dict[str, CostEstimate]:
    estimates = {}
    for plan in plans:
        count_left = partial(
            find_remaining,
            problem_set.problems,
            samples=plan.samples,
            model=plan.asking.model,
            parameters=plan.asking.parameters,
        )
        estimates[plan.name] = estimate_remaining(
            pool_path, problem_set, plan.asking, plan.prices, count_left, another=another
        )
    return estimates


def estimate_remaining(
    pool_path: Path,
    problem_set: ProblemSet,
    spec: Asking,
    prices: TokenPrices,
    count_left: Callable[[Pool | None], RemainingSamples],
    *,
    another: bool,
) -> CostEstimate:
    """Estimate what the remaining samples take; refuse what the run itself would refuse."""
    try:
        pool = open_pool(pool_path)
    except PoolNotFound:
        check_problems(None, problem_set.problems, spec.template)
        return estimate_cost(count_left(None), spec, prices=prices)
    with pool:
        check_problems(pool, problem_set.problems, spec.template)
        check_source(pool, spec.model, spec.parameters, another=another)
        mean_tokens = pool.totals(pool.source_key(spec.model, spec.parameters)).tokens
        return estimate_cost(count_left(pool), spec, prices=prices, mean_tokens=mean_tokens)
