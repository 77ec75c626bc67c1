"""`adacompute collect`: resumable sampling. Knows the words of the command, not how samples are drawn."""

import signal
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from adacompute.cli.collected import say_what_is_left, show_collected, show_estimate
from adacompute.cli.options import Extract, Json, Percent, settings, tasks_of
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
    endpoint_of,
    model_of,
)
from adacompute.cli.watch import watched
from adacompute.collect import Asking, Collected, Estimate, Prices, check_source, estimate, left_of
from adacompute.collect import collect as collected
from adacompute.config import CollectConfig
from adacompute.errors import PoolNotFound
from adacompute.pool import Pool, open_pool
from adacompute.problems import ProblemSet, Template

__all__ = ["collect", "exit_code", "sampling_of"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

Into = Annotated[
    Path, typer.Option("--pool", metavar="POOL", help="The pool to add to; made if it isn't there.")
]
Samples = Annotated[int | None, typer.Option(min=1, help="Of each problem, in all. [default: 48]")]
Temperature = Annotated[float | None, typer.Option(min=0, help="[default: 0.7]")]
TopP = Annotated[float | None, typer.Option(min=0, max=1, help="[default: the endpoint's]")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Of one response. [default: 1024]")]
Seed = Annotated[
    int | None, typer.Option(help="Sent with the first sample of a problem; then one more each.")
]
More = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME=JSON", help="Any other, sent as it is; may be repeated."),
]
TopLogprobs = Annotated[
    int,
    typer.Option(
        min=0, max=20, help="Alternatives a token: from 2 up they tell the entropy, and cost bytes."
    ),
]


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
    logprobs: Annotated[
        bool, typer.Option(help="Ask for log-probabilities: votes are weighed by them.")
    ] = True,
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
    max_cost: Annotated[
        float | None,
        typer.Option(metavar="MONEY", help="Stop before all calls into this pool could cost more."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would take; send nothing.")] = False,
    another: Annotated[
        bool, typer.Option("--another", help="Add this model or these parameters to a pool that has others.")
    ] = False,
    extract: Extract = None,
    percent: Percent = None,
    json: Json = False,
) -> None:
    """Sample a model on problems, into a pool; stop it in any way, and the same command goes on.

    Nothing that is stored is asked for again. Ctrl-C finishes what is in flight; twice gives it up. Keys
    come from the environment or a file, never from the command line.
    """
    config = settings(context)
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
    frame = _template(template, found)
    sampling = sampling_of(config.collect, temperature, top_p, max_tokens, seed, parameter)
    endpoint = endpoint_of(upstream)
    asking = Asking(
        model=upstream.model if dry_run and upstream.model else model_of(upstream, endpoint),
        template=frame,
        sampling=sampling,
        logprobs=logprobs,
        top_logprobs=top_logprobs,
    )
    wanted = config.collect.samples if samples is None else samples
    prices = Prices(input=upstream.input_price, output=upstream.output_price)
    if dry_run:
        show_estimate(_estimated(found, into, asking, wanted, prices, another=another), prices, json=json)
        return
    how = extract or frame.extract or found.extract
    asked, default = tasks_of(config.answers, extract, percent)
    if asked is None and how is not None and not _set(config.answers.extract):
        _, default = tasks_of(config.answers, how, percent)
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
            progress=told,
            signals=_SIGNALS,
        )
    if json:
        as_json({"pool": path_text(into), "model": asking.model, **done.to_dict()})
    else:
        show_collected(done, into, asking, prices)
    say_what_is_left(done)
    if code := exit_code(done):
        raise typer.Exit(code)


def exit_code(done: Collected) -> int:
    """0 where all that was planned is stored; 128 and its number after a signal; else 1."""
    if done.complete:
        return 0
    return 1 if done.signal is None else 128 + done.signal


def sampling_of(
    settings: CollectConfig,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    seed: int | None,
    more: list[str] | None,
) -> dict[str, Any]:
    """The parameters that are sent: of the options, else of the settings."""
    found: dict[str, Any] = {
        "temperature": settings.temperature if temperature is None else temperature,
        "max_tokens": settings.max_tokens if max_tokens is None else max_tokens,
    }
    for name, value in (("top_p", top_p), ("seed", seed)):
        if value is not None:
            found[name] = value
    for each in more or ():
        name, equals, text = each.partition("=")
        try:
            if not equals or not name:
                raise ValueError("no '='")
            found[name] = orjson.loads(text)
        except ValueError as exc:
            why = f"{each!r} is no NAME=JSON ({exc}); e.g. min_p=0.05, or stop='[\"END\"]'"
            raise typer.BadParameter(why, param_hint="--parameter") from exc
    return {name: value for name, value in found.items() if value is not None}


def _template(name: str | None, found: ProblemSet) -> Template:
    if name is None:
        return found.template or Template.named("boxed")
    return Template.read(Path(name)) if Path(name).suffix or Path(name).exists() else Template.named(name)


def _set(extract: str) -> bool:
    """Whether the settings say how answers are read; then a template's own way doesn't."""
    return extract != "auto"


def _estimated(
    found: ProblemSet, into: Path, asking: Asking, samples: int, prices: Prices, *, another: bool
) -> Estimate:
    try:
        pool: Pool | None = open_pool(into)
    except PoolNotFound:
        pool = None
    mean = None
    try:
        if pool is not None:
            check_source(pool, asking.model, asking.parameters, another=another)
            mean = pool.totals(pool.source_key(asking.model, asking.parameters)).tokens
        left = left_of(
            found.problems, pool, samples=samples, model=asking.model, parameters=asking.parameters
        )
    finally:
        if pool is not None:
            pool.close()
    return estimate(left, asking, prices=prices, mean_tokens=mean)
