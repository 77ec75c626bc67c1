"""`adacompute answer`: answers a batch of requests by votes, within an average budget."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from adacompute.answers import Task
from adacompute.cli.collect import (
    NEXT_STEPS,
    STOP_REASONS,
    estimate_plans,
    find_prices,
    format_errors,
    open_known_pool,
    print_failures,
    show_account,
    show_answer_rate,
    show_collect_progress,
    show_estimate,
    show_models,
    show_verifier,
)
from adacompute.cli.modes import SEVERAL, ModesFileOption, read_upstreams
from adacompute.cli.options import (
    AnswerOptions,
    BudgetUnitOption,
    EndpointOptions,
    EngineOptions,
    JsonFlag,
    VerifierOptions,
    load_settings,
    parse_budget,
    warn_counting,
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
    format_interval,
    format_path,
    format_percent,
    print_fact,
    print_json,
    print_line,
    print_message,
    print_table,
)
from adacompute.errors import BudgetInvalid, PolicyInvalid
from adacompute.policies import POLICIES, load_policy
from adacompute.policies.base import Policy
from adacompute.policies.baselines import FixedPolicy
from adacompute.policies.chart import find_quality_cost
from adacompute.pool import Pool, open_pool
from adacompute.problems import ProblemSet
from adacompute.records import Budget, format_money, names_quality
from adacompute.sampling import Answers, Asking, SourcePlan, check_output, write_answers
from adacompute.sampling import answer as run_answer
from adacompute.sampling.answer import (
    choose_modes,
    compute_limit,
    count_prices,
    estimate_plan_modes,
    parse_batch_budget,
)
from adacompute.sampling.plan import (
    RemainingSamples,
    check_problems,
    check_source,
    choose_unit_prices,
    compute_batch_spent,
    find_remaining_within,
)

_UNDERSPENT = 0.95  # if a run spends less than this share of its budget, the output says why


def show_answers(result: Answers, file: str, *, policy: str, pool: str, plans: Sequence[SourcePlan]) -> None:
    """Shows the result of a batch. `policy` is the option --policy as typed; `pool` is the pool's path."""
    spent = f"{result.average:.2f} samples each on average, of a budget of {result.budget:g}"
    if result.unit != "samples":
        budget = Budget(result.budget, result.unit, result.currency)
        used = Budget(result.used / result.requests, result.unit, result.currency) if result.used else 0
        spent = f"{used} on average, of a budget of {budget}; {result.average:.2f} samples each"
    print_line(f"{file}: {result.answered:,} of {format_count(result.requests, 'request')} answered, {spent}")
    show_models(plans)
    dial = "" if result.price is None else f", down to a {POLICIES[result.policy].dial} of {result.price:.3g}"
    description = "stopping, the prior in the package" if policy == "stopping" else policy
    policy_text = description if policy == result.policy else f"{result.policy}, of {policy}"
    print_fact("policy", policy_text + dial)
    print_fact(
        "votes", "plain, each counts 1" if result.weigh is None else f"weighed by {result.weigh.signal}"
    )
    if result.plain:
        print_fact("note", "nothing tells how sure the model was (no log-probabilities): votes are plain")
    if result.agreement is not None:
        print_fact(
            "agreement",
            f"{format_percent(result.agreement)} of a request's votes are the winner's, on average",
        )
    if result.accuracy is not None:
        accuracy = result.accuracy
        shown = f"{format_percent(accuracy.mean)} ({format_interval(accuracy.low, accuracy.high)})"
        print_fact("accuracy", f"{shown}, {format_count(accuracy.problems, 'request')} with a gold answer")
    show_account(result.account, find_prices(plans), cost=result.cost, at_most=result.at_most)
    if result.errors:
        print_fact("errors", format_errors(result.errors))
    print_fact("samples", f"in {pool}")
    show_answer_rate(result.found, result.finished)
    show_verifier(result.verifier)
    if result.is_over_limit:
        print_fact("note", _describe_excess(result, [plan.asking for plan in plans]))
    if result.left_out:
        print_fact(
            "note",
            f"{format_count(result.left_out, 'request')} got no sample: the budget was spent on others; "
            "raise --budget",
        )
    if result.used < _UNDERSPENT * result.limit and result.stopped is None and not result.unsettled:
        print_fact("note", "the policy wants no more samples than that, so some of the budget is left")
    if result.unsettled:
        print_fact(
            "note",
            f"{format_count(result.unsettled, 'request')} would have gone on; the budget was spent before",
        )
    if len(result.modes) > 1:
        _show_modes(result)
    print_table(("samples", "requests"), [(str(b), f"{n:,}") for b, n in result.counts.items()])


def _show_modes(result: Answers) -> None:
    """Shows each mode's samples and cost, and what one sample per request from a single mode would cost."""
    asked = {use.name: sum(use.name in item.modes for item in result.each) for use in result.modes}
    means = {use.name: use.mean_cost for use in result.modes if use.mean_cost is not None}
    rows = [
        (
            use.name,
            f"{use.samples:,}",
            f"{asked[use.name]:,}",
            format_money(use.cost),
            "–" if use.mean_cost is None else format_money(1000 * use.mean_cost),
        )
        for use in result.modes
    ]
    currency = result.currency
    print_table(
        ("mode", "samples", "requests", f"cost, {currency}", f"1,000 samples, {currency}"),
        [*rows, ("total", f"{result.spent:,}", f"{result.requests:,}", format_money(result.cost), "")],
    )
    print_line()
    ranked = sorted(means, key=lambda name: means[name])
    for name in dict.fromkeys((ranked[:1] + ranked[-1:]) if len(ranked) > 1 else ranked):
        total = means[name] * result.requests
        text = f"would have cost {format_money(total)} {currency}, at its mean here"
        print_fact(f"all {name} once", text)
    for use in result.modes:
        if use.name not in means:
            print_fact(f"all {use.name} once", "not known: none was drawn")


def _describe_excess(result: Answers, askings: Sequence[Asking]) -> str:
    """Explains why more was spent than the budget allows."""
    unit = result.currency or result.unit
    limit = f"{result.limit:,.6g} {unit}"
    if not result.added:
        return f"earlier runs used more than {limit} already; nothing was added"
    used = f"{result.used:,.6g} {unit} were used, more than the {limit} of the budget"
    if result.excess_tokens is not None:
        subject = f"{askings[0].model} ignored max_tokens {askings[0].most_tokens}"
        if len(askings) > 1:
            subject = "a mode ignored max_tokens"
        return f"{used}: {subject}, and gave {result.excess_tokens:,} tokens for a response"
    return f"{used}: the first prompts took more tokens than estimated"


def print_next_step(result: Answers) -> None:
    """Prints to stderr which requests failed, why the run stopped early, and how to continue it."""
    print_failures(result.failures, "request")
    if result.stopped is None:
        return
    reason = f" ({result.why})" if result.why else ""
    stored = format_count(result.spent, "sample") + " are stored"
    if result.unit == "samples":
        stored = f"{result.spent:,} of at most {format_count(int(result.limit), 'sample')} are stored"
    if result.broken_off:
        print_message(f"{stored}: {STOP_REASONS[result.stopped]}{reason}; {NEXT_STEPS[result.stopped]}")
    else:
        print_message(
            f"{stored}: {STOP_REASONS[result.stopped]}{reason}; the file has what came of them, and the same "
            "command with a higher --max-cost and --overwrite goes on"
        )


_UNFITTED_POLICIES = ("stopping", "asc", "esc")  # policies that need no fitting
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Output file: .jsonl, .csv or .parquet.")
]
PolicyOption = Annotated[
    str,
    typer.Option(
        "--policy",
        metavar="DIR",
        help=f"Folder from `adacompute fit`; or {', '.join(_UNFITTED_POLICIES)}, fixed.",
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        "--budget",
        metavar="B",
        parser=parse_budget,
        help="Average cost per request: samples, or e.g. '500 tokens', '2 USD per 1000'; or "
        "'as good as 8': the least cost measured to be as accurate as 8 samples.",
    ),
]
SamplePoolOption = Annotated[
    Path | None,
    typer.Option("--pool", metavar="POOL", help="Pool for the samples. [default: FILE with .pool.sqlite]"),
]


def answer(
    context: typer.Context,
    *,
    problems: ProblemOptions,
    output: OutputOption,
    policy_name: PolicyOption = "stopping",
    budget_text: BudgetOption = "2 samples",
    unit: BudgetUnitOption = "samples",
    modes_file: ModesFileOption = None,
    pool_option: SamplePoolOption = None,
    max_samples: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Most samples per request, whatever the policy wants."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    endpoint: EndpointOptions,
    sampling: GenerationOptions,
    run: RunOptions,
    engine: EngineOptions,
    reading: AnswerOptions,
    verifier: VerifierOptions,
    json: JsonFlag = False,
) -> None:
    """Answer a file of prompts by votes, within an average budget.

    The policy decides how many samples each request gets, B on average. If this command is stopped, run it
    again to continue: stored samples are not asked for again, and count towards the budget. The file is
    written whole, at the end. With several modes, the policy also decides which mode to ask next.
    """
    config = load_settings(context)
    upstreams = read_upstreams(modes_file, endpoint, config.endpoint)
    modes, currency = upstreams.modes, upstreams.currency
    given = context.get_parameter_source("budget_text")
    if upstreams.budget and (given is None or given.name == "DEFAULT"):
        budget_text = upstreams.budget
    if names_quality(budget_text):
        found = find_quality_cost(budget_text, "" if policy_name in _UNFITTED_POLICIES else policy_name)
        budget_text = found.budget
        print_message(str(found))
    budget = Budget.parse(budget_text, unit=unit, currency=currency)
    max_cost = run.read_max_cost(currency)
    if len(modes) == 1:
        if budget.unit != "samples":
            choose_unit_prices(budget, modes[0].endpoint.prices)
        warn_counting(budget, modes[0].endpoint.prices)
    check_output(output, overwrite=overwrite)
    problem_set, template = problems.read()
    compute_limit(budget, len(problem_set))
    named = context.get_parameter_source("policy_name")
    policy: Policy | None = None
    if len(modes) == 1 or named is None or named.name != "DEFAULT":
        policy = _load_policy(policy_name, budget)
        modes = choose_modes(policy, modes, policy_name)
    pool_path = output.with_suffix(".pool.sqlite") if pool_option is None else pool_option
    tasks = choose_tasks(reading, config.answers, template, problem_set)
    plans: Sequence[SourcePlan] = plan_sources(
        modes,
        template,
        config,
        sampling=sampling,
        engine=engine,
        verifier=verifier,
        pool_path=pool_path,
        dry_run=run.dry_run,
    )
    parse_batch_budget(budget, plans)
    if policy is None:
        unfitted: Any = POLICIES[SEVERAL]
        policy = cast("Policy", unfitted(estimate_plan_modes(plans, problem_set.problems)))
        policy_name, plans = policy.kind, choose_modes(policy, plans)
    if run.dry_run:
        _show_dry_run(pool_path, problem_set, plans, budget, tasks[1], another=run.another, json=json)
        return
    # the progress line leaves out the cost in money if the budget is in tokens
    shown_prices = None if budget.unit == "tokens" else find_prices(plans)
    with open_pool(pool_path, create=True, task=tasks[0], default_task=tasks[1]) as samples:
        with show_collect_progress(format_path(output), prices=shown_prices) as report_progress:
            result = run_answer(
                problem_set.problems,
                samples,
                plans,
                policy=policy,
                budget=budget,
                max_cost=max_cost,
                max_samples=max_samples or 0,
                another=run.another,
                regrade=run.regrade,
                progress=report_progress,
                signals=STOP_SIGNALS,
            )
        if not result.broken_off:
            write_answers(output, problem_set.problems, result.each, samples, plans)
    file = None if result.broken_off else format_path(output)
    pool = format_path(pool_path)
    if json:
        models = {plan.name: plan.asking.model for plan in plans}
        asked = {"model": models[""]} if modes_file is None else {"models": models}
        print_json({"file": file, "pool": pool, **asked, **result.to_dict()})
    elif file is not None:
        show_answers(result, file, policy=policy_name, pool=pool, plans=plans)
    print_next_step(result)
    if result.stopped or result.failures:
        raise typer.Exit(1 if result.signal is None else 128 + result.signal)


def _show_dry_run(
    pool_path: Path,
    problem_set: ProblemSet,
    plans: Sequence[SourcePlan],
    budget: Budget,
    task: Task,
    *,
    another: bool,
    json: bool,
) -> None:
    """Shows what a batch would spend, without sending requests.

    For a budget in samples, shows an estimate. For a budget in tokens or money, shows the most that may be
    spent, and how much of that earlier runs have spent.
    """

    def find_left(pool: Pool | None, plan: SourcePlan) -> RemainingSamples:
        return find_remaining_within(problem_set.problems, pool, plan.asking, budget=budget.amount)

    if budget.unit == "samples":
        estimates = estimate_plans(pool_path, problem_set, plans, find_left, another=another)
        show_estimate(estimates, problem_set, plans, task, json=json)
        return
    problems, prices, spent = problem_set.problems, count_prices(budget, plans), 0.0
    with open_known_pool(pool_path) as pool:
        check_problems(pool, problems, plans[0].asking.template)
        for plan in plans:
            if pool is None:
                break
            check_source(pool, plan.asking, another=another)
            ids = {problem.id for problem in problems}
            spent += compute_batch_spent(pool, ids, plan.asking, prices[plan.name])
    limit, unit = compute_limit(budget, len(problems)), budget.currency or budget.unit
    if json:
        amounts = {"budget": budget.amount, "unit": budget.unit, "currency": budget.currency}
        print_json({"requests": len(problems), **amounts, "limit": limit, "used": spent})
        return
    print_line(
        f"at most {limit:,.6g} {unit} for {format_count(len(problems), 'request')}, at a budget of {budget}"
    )
    print_fact("spent", f"{spent:,.6g} {unit} of it already, by earlier runs")
    print_fact("left", f"{max(0.0, limit - spent):,.6g} {unit}")


def _load_policy(name: str, budget: Budget) -> Policy:
    """Loads the policy saved in the folder `name`, or if there is none, creates the policy of that name."""
    if Path(name).exists():
        return load_policy(name)
    if name == FixedPolicy.kind and budget.unit != "samples":
        raise BudgetInvalid(f"policy {name} draws a fixed number of samples; give --budget in samples")
    if name == FixedPolicy.kind:
        return FixedPolicy(budget.amount)
    if name in _UNFITTED_POLICIES:
        return POLICIES[name]()
    raise PolicyInvalid(
        f"{name}: there is no such folder; give one that `adacompute fit` wrote, or "
        f"{', '.join(_UNFITTED_POLICIES)} or {FixedPolicy.kind}"
    )
