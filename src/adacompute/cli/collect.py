"""`adacompute collect`: resumable sampling of a model into a pool, its progress and its result."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.answers import Task
from adacompute.cli.options import (
    ConcurrencyOption,
    EndpointCurrencyOption,
    EndpointModelOption,
    EndpointUrlOption,
    EngineName,
    EngineOption,
    ExtractOption,
    InputPriceOption,
    JsonFlag,
    KeyEnvOption,
    KeyFileOption,
    OutputPriceOption,
    PercentOption,
    RayWorkersOption,
    RequestRateOption,
    RetryTimeoutsFlag,
    TimeoutOption,
    TokenRateOption,
    VerifierModelOption,
    VerifierOption,
    build_option,
    load_settings,
)
from adacompute.cli.progress import open_progress
from adacompute.cli.sampling_options import (
    STOP_SIGNALS,
    AddSourceFlag,
    ColumnsOption,
    DryRunFlag,
    ExtraParametersOption,
    LimitOption,
    LogprobsFlag,
    MaxCostOption,
    MaxTokensOption,
    PresetOption,
    ProblemsArgument,
    ProblemSeedOption,
    RegradeFlag,
    SamplingSeedOption,
    SplitOption,
    TemperatureOption,
    TemplateOption,
    TopLogprobsOption,
    TopPOption,
    VllmEngineOptions,
    VllmOption,
    build_sampling,
    check_engine_options,
    choose_sampler,
    choose_tasks,
    choose_template,
    override_endpoint,
    read_problem_set,
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
)
from adacompute.config import CollectConfig
from adacompute.errors import PoolNotFound, shorten
from adacompute.pool import Pool, open_pool
from adacompute.problems import ProblemSet
from adacompute.records import Account, TokenPrices, format_money
from adacompute.sampling import (
    Asking,
    Collected,
    CollectProgress,
    CostEstimate,
    RemainingSamples,
    check_problems,
    check_source,
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
    for turn in prompt:
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


def print_failures(failures: Mapping[str, str], noun: str) -> None:
    """Print on stderr some of the problems that lack samples, and why."""
    if failures:
        verb = "lacks" if len(failures) == 1 else "lack"
        print_message(f"{format_count(len(failures), noun)} {verb} samples:")
        for id_, reason in list(failures.items())[:_LISTED_FAILURES]:
            print_message(f"  {id_}: {reason}")
        if len(failures) > _LISTED_FAILURES:
            print_message(f"  and {len(failures) - _LISTED_FAILURES:,} more")


def print_remaining(result: Collected) -> None:
    """Print on stderr why a collection isn't complete, which problems failed, and how to go on."""
    if result.why is None or any(result.why not in reason for reason in result.failures.values()):
        print_failures(result.failures, "problem")
    if result.complete:
        return
    missing = format_count(result.planned - result.stored, "sample")
    reason = f" ({result.why})" if result.why else ""
    print_message(
        f"{missing} not drawn: {STOP_REASONS[result.stopped]}{reason}; {NEXT_STEPS[result.stopped]}"
    )


PoolOption = Annotated[
    Path, typer.Option("--pool", metavar="POOL", help="The pool to add to; made if it isn't there.")
]
SamplesOption = Annotated[int | None, build_option(CollectConfig, "samples", min=1)]


def collect(
    context: typer.Context,
    source: ProblemsArgument,
    pool_path: PoolOption,
    url: EndpointUrlOption = None,
    model: EndpointModelOption = None,
    samples: SamplesOption = None,
    preset: PresetOption = None,
    template: TemplateOption = None,
    columns: ColumnsOption = None,
    split: SplitOption = None,
    limit: LimitOption = None,
    problem_seed: ProblemSeedOption = 0,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    max_tokens: MaxTokensOption = None,
    seed: SamplingSeedOption = None,
    parameter: ExtraParametersOption = None,
    logprobs: LogprobsFlag = True,
    top_logprobs: TopLogprobsOption = 0,
    key_env: KeyEnvOption = None,
    key_file: KeyFileOption = None,
    concurrency: ConcurrencyOption = None,
    requests_per_minute: RequestRateOption = None,
    tokens_per_minute: TokenRateOption = None,
    timeout: TimeoutOption = None,
    retry_timeouts: RetryTimeoutsFlag = False,
    retry_failed: Annotated[
        int, typer.Option(min=0, metavar="ROUNDS", help="Times to ask again, at the end, for what failed.")
    ] = 0,
    input_price: InputPriceOption = None,
    output_price: OutputPriceOption = None,
    currency: EndpointCurrencyOption = None,
    max_cost: MaxCostOption = None,
    dry_run: DryRunFlag = False,
    another: AddSourceFlag = False,
    regrade: RegradeFlag = False,
    engine: EngineOption = EngineName.local,
    workers: RayWorkersOption = None,
    vllm: VllmOption = None,
    vllm_option: VllmEngineOptions = None,
    extract: ExtractOption = None,
    percent: PercentOption = None,
    verifier: VerifierOption = None,
    verifier_model: VerifierModelOption = None,
    json: JsonFlag = False,
) -> None:
    """Ask a model each problem many times, into a pool; can be resumed.

    However it was stopped, the same command continues: stored samples are not asked for again. Ctrl-C
    finishes the calls in flight; a second Ctrl-C drops them. Keys come from the environment or a file,
    never from the command line.
    """
    config = load_settings(context)
    check_engine_options(engine, workers, vllm, vllm_option, url=url, model=model, max_cost=max_cost)
    upstream = override_endpoint(
        config.endpoint,
        url=url,
        model=model,
        key_env=key_env,
        key_file=key_file,
        concurrency=concurrency,
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        timeout=timeout,
        retry_timeouts=retry_timeouts,
        input_price=input_price,
        output_price=output_price,
        currency=currency,
    )
    scorer = resolve_verifier(config.verifier, upstream, url=verifier, model=verifier_model)
    problem_set = read_problem_set(
        source, preset=preset, columns=columns, split=split, limit=limit, seed=problem_seed
    )
    prompt_template = choose_template(template, problem_set)
    sampling = build_sampling(config.collect, temperature, top_p, max_tokens, seed, parameter)
    endpoint, names = choose_sampler(
        upstream, engine, workers, vllm, vllm_option, pool_path=pool_path, dry_run=dry_run
    )
    spec = Asking(
        model=names.stored,
        sent_model=names.sent,
        template=prompt_template,
        sampling=sampling,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    wanted_samples = config.collect.samples if samples is None else samples
    prices = TokenPrices(input=upstream.input_price, output=upstream.output_price, currency=upstream.currency)
    tasks = choose_tasks(config.answers, extract, percent, template=prompt_template, problems=problem_set)
    if dry_run:
        count_left = partial(
            find_remaining,
            problem_set.problems,
            samples=wanted_samples,
            model=spec.model,
            parameters=spec.parameters,
        )
        estimation = estimate_remaining(pool_path, problem_set, spec, prices, count_left, another=another)
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
            endpoint=endpoint,
            asking=spec,
            samples=wanted_samples,
            prices=prices,
            max_cost=max_cost,
            retry_rounds=retry_failed,
            another=another,
            regrade=regrade,
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


def _compute_exit_code(result: Collected) -> int:
    """0 where all planned samples are stored; 128 plus the number of a signal; else 1."""
    if result.complete:
        return 0
    return 1 if result.signal is None else 128 + result.signal


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
