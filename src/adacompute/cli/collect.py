"""`adacompute collect`: resumable sampling. Knows the words of the command, not how samples are drawn."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

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
from adacompute.cli.collected import say_what_is_left, show_collected, show_estimate
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
from adacompute.collect import (
    Asking,
    Collected,
    Estimate,
    Left,
    Prices,
    check_problems,
    check_source,
    estimate,
    left_of,
)
from adacompute.collect import collect as collected
from adacompute.errors import PoolNotFound
from adacompute.pool import Pool, open_pool
from adacompute.problems import ProblemSet

__all__ = ["collect", "estimated"]

Into = Annotated[
    Path, typer.Option("--pool", metavar="POOL", help="The pool to add to; made if it isn't there.")
]
Samples = Annotated[int | None, typer.Option(min=1, help="Of each problem, in all. [default: 48]")]


def collect(
    context: typer.Context,
    source: Problems,
    into: Into,
    url: Url = None,
    model: UpstreamModel = None,
    samples: Samples = None,
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
    retry_failed: Annotated[
        int, typer.Option(min=0, metavar="ROUNDS", help="Ask again, at the end, for what failed.")
    ] = 0,
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
    """Sample a model on problems, into a pool; stop it in any way, and the same command goes on.

    Nothing that is stored is asked for again. Ctrl-C finishes what is in flight; twice gives it up. Keys
    come from the environment or a file, never from the command line.
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
    found = read(source, preset=preset, columns=columns, split=split, limit=limit, seed=problem_seed)
    frame = template_of(template, found)
    sampling = sampling_of(config.collect, temperature, top_p, max_tokens, seed, parameter)
    endpoint, name = drawn_by(upstream, engine, workers, vllm, vllm_option, into=into, dry_run=dry_run)
    asking = Asking(
        model=name,
        template=frame,
        sampling=sampling,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    wanted = config.collect.samples if samples is None else samples
    prices = Prices(input=upstream.input_price, output=upstream.output_price)
    tasks = reading_of(config.answers, extract, percent, template=frame, found=found)
    if dry_run:
        left = partial(
            left_of, found.problems, samples=wanted, model=asking.model, parameters=asking.parameters
        )
        beforehand = estimated(into, found, asking, prices, left, another=another)
        show_estimate(beforehand, found, asking, tasks[1], prices, json=json)
        return
    asked, default = tasks
    with (
        open_pool(into, create=True, task=asked, default_task=default) as pool,
        watched(path_text(into), priced=bool(prices)) as told,
    ):
        done = collected(
            found.problems,
            pool,
            endpoint=endpoint,
            asking=asking,
            samples=wanted,
            prices=prices,
            max_cost=max_cost,
            retry_rounds=retry_failed,
            another=another,
            regrade=regrade,
            progress=told,
            signals=SIGNALS,
        )
    if json:
        as_json({"pool": path_text(into), "model": asking.model, **done.to_dict()})
    else:
        show_collected(done, into, asking, prices)
    say_what_is_left(done)
    if code := _exit_code(done):
        raise typer.Exit(code)


def _exit_code(done: Collected) -> int:
    """0 where all that was planned is stored; 128 and its number after a signal; else 1."""
    if done.complete:
        return 0
    return 1 if done.signal is None else 128 + done.signal


def estimated(
    into: Path,
    found: ProblemSet,
    asking: Asking,
    prices: Prices,
    left: Callable[[Pool | None], Left],
    *,
    another: bool,
) -> Estimate:
    """What is left, given the pool where there is one, will take; what the run would refuse is refused."""
    try:
        pool = open_pool(into)
    except PoolNotFound:
        check_problems(None, found.problems, asking.template)
        return estimate(left(None), asking, prices=prices)
    with pool:
        check_problems(pool, found.problems, asking.template)
        check_source(pool, asking.model, asking.parameters, another=another)
        mean = pool.totals(pool.source_key(asking.model, asking.parameters)).tokens
        return estimate(left(pool), asking, prices=prices, mean_tokens=mean)
