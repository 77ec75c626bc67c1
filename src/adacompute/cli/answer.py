"""`adacompute answer`: a batch answered by votes. Knows the words of the command, not who gets samples."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.answers import Task
from adacompute.batch import Answers, check_output, left_within, samples_of, write_answers
from adacompute.batch import answer as answered
from adacompute.cli.answered import say_how_to_go_on, show_answers
from adacompute.cli.asking import (
    SIGNALS,
    Another,
    DryRun,
    Logprobs,
    MaxCost,
    MaxTokens,
    More,
    Regrade,
    Seed,
    Temperature,
    TopLogprobs,
    TopP,
    reading_of,
    sampling_of,
    template_of,
)
from adacompute.cli.collect import estimated
from adacompute.cli.collected import show_estimate
from adacompute.cli.drawn import Vllm, VllmOptions, check_engine, drawn_by
from adacompute.cli.engine import Engine, EngineName, Workers
from adacompute.cli.options import Extract, Json, Percent, settings
from adacompute.cli.reading import Columns, Limit, Preset, Problems, ProblemSeed, Split, TemplateName, read
from adacompute.cli.show import as_json, path_text
from adacompute.cli.upstream import (
    Concurrency,
    InputPrice,
    KeyEnv,
    KeyFile,
    OutputPrice,
    RequestRate,
    RetryTimeouts,
    Timeout,
    TokenRate,
    UpstreamModel,
    Url,
    chosen,
)
from adacompute.cli.watch import watched
from adacompute.collect import Asking, Prices
from adacompute.errors import PolicyInvalid
from adacompute.policies.base import Policy
from adacompute.policies.oneshot import FixedPolicy
from adacompute.policies.registry import POLICIES, load_policy
from adacompute.pool import open_pool
from adacompute.records import Problem

__all__ = ["answer"]

_READY = ("stopping", "asc", "esc", "doubling")  # policies that need no fitting
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="What to write: .jsonl, .csv or .parquet.")
]
Which = Annotated[
    str,
    typer.Option(
        "--policy", metavar="DIR", help=f"A folder of `adacompute fit`; or {', '.join(_READY)}, fixed."
    ),
]
Budget = Annotated[float, typer.Option(metavar="B", help="Samples a request, on average over the batch.")]
State = Annotated[
    Path | None,
    typer.Option("--pool", metavar="POOL", help="Where samples are kept. [default: FILE as .pool.sqlite]"),
]


def answer(
    context: typer.Context,
    source: Problems,
    output: Output,
    which: Which = "stopping",
    budget: Budget = 2.0,
    url: Url = None,
    model: UpstreamModel = None,
    state: State = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it is there.")] = False,
    preset: Preset = None,
    template: TemplateName = None,
    columns: Columns = None,
    split: Split = None,
    limit: Limit = None,
    problem_seed: ProblemSeed = 0,
    temperature: Temperature = None,
    top_p: TopP = None,
    max_tokens: MaxTokens = None,
    seed: Seed = None,
    parameter: More = None,
    logprobs: Logprobs = True,
    top_logprobs: TopLogprobs = 0,
    key_env: KeyEnv = None,
    key_file: KeyFile = None,
    concurrency: Concurrency = None,
    requests_per_minute: RequestRate = None,
    tokens_per_minute: TokenRate = None,
    timeout: Timeout = None,
    retry_timeouts: RetryTimeouts = False,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    max_cost: MaxCost = None,
    dry_run: DryRun = False,
    another: Another = False,
    regrade: Regrade = False,
    engine: Engine = EngineName.local,
    workers: Workers = None,
    vllm: Vllm = None,
    vllm_option: VllmOptions = None,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Answer a batch by votes, with B samples a request on average, spent where the policy says they pay.

    Stop it in any way, and the same command goes on: nothing that is stored is asked for again, and the
    budget stays what it is. The file is written whole, at the end.
    """
    config = settings(context)
    check_engine(engine, workers, vllm, vllm_option, url=url, model=model, max_cost=max_cost)
    upstream = chosen(
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
    )
    check_output(output, overwrite=overwrite)
    found = read(source, preset=preset, columns=columns, split=split, limit=limit, seed=problem_seed)
    samples_of(budget, len(found))
    policy = _policy(which, budget)
    frame = template_of(template, found)
    sampling = sampling_of(config.collect, temperature, top_p, max_tokens, seed, parameter)
    into = output.with_suffix(".pool.sqlite") if state is None else state
    tasks = reading_of(config.answers, extract, percent, template=frame, found=found)
    endpoint, name = drawn_by(upstream, engine, workers, vllm, vllm_option, into=into, dry_run=dry_run)
    asking = Asking(
        model=name,
        template=frame,
        sampling=sampling,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    prices = Prices(input=upstream.input_price, output=upstream.output_price)
    if dry_run:
        left = partial(
            left_within, found.problems, budget=budget, model=asking.model, parameters=asking.parameters
        )
        beforehand = estimated(into, found, asking, prices, left, another=another)
        show_estimate(beforehand, found, asking, tasks[1], prices, json=json)
        return
    how = {"policy": policy, "budget": budget, "endpoint": endpoint, "max_cost": max_cost}
    how |= {"another": another, "regrade": regrade}
    done = _written(output, into, found.problems, tasks, asking, prices, how)
    file = None if done.broken_off else path_text(output)
    if json:
        as_json({"file": file, "pool": path_text(into), "model": asking.model, **done.to_dict()})
    elif file is not None:
        show_answers(done, file, policy=which, pool=path_text(into), asking=asking, prices=prices)
    say_how_to_go_on(done)
    if done.stopped or done.failures:
        raise typer.Exit(1 if done.signal is None else 128 + done.signal)


def _written(
    output: Path,
    into: Path,
    problems: Sequence[Problem],
    tasks: tuple[Task | None, Task],
    asking: Asking,
    prices: Prices,
    how: Mapping[str, Any],
) -> Answers:
    """Answers problems by way of a pool; the file is written unless it was broken off."""
    with open_pool(into, create=True, task=tasks[0], default_task=tasks[1]) as pool:
        with watched(path_text(output), priced=bool(prices)) as told:
            done = answered(
                problems, pool, asking=asking, prices=prices, progress=told, signals=SIGNALS, **how
            )
        if not done.broken_off:
            write_answers(output, problems, done.each, pool, asking=asking)
    return done


def _policy(name: str, budget: float) -> Policy:
    """The policy in a folder; where there is no folder of that name, one that needs no fitting."""
    if Path(name).exists():
        return load_policy(name)
    if name == FixedPolicy.kind:
        return FixedPolicy(budget)
    if name in _READY:
        return POLICIES[name]()
    raise PolicyInvalid(
        f"{name}: there is no such folder; give one that `adacompute fit` wrote, or "
        f"{', '.join(_READY)} or {FixedPolicy.kind}"
    )
