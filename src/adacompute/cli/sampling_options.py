"""Options and steps that `collect` and `answer` share: the problems, the prompt, the endpoint, the engine."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import typer

from adacompute.answers import Task
from adacompute.cli.options import (
    EngineName,
    PercentMode,
    announce_engine,
    build_option,
    build_tasks,
    check_workers,
    override_section,
    parse_columns,
    parse_total,
)
from adacompute.cli.terminal import print_message
from adacompute.client import Client, Endpoint, Verifier
from adacompute.client.modes import ModeEndpoint, build_mode_endpoint
from adacompute.client.settings import build_endpoint, describe_key_exposure
from adacompute.client.verifier import build_verifier
from adacompute.config import AnswersConfig, CollectConfig, EndpointConfig, VerifierConfig, read_menu_file
from adacompute.errors import ConfigError, EndpointError, EndpointRefused
from adacompute.pool import open_pool
from adacompute.problems import PRESETS, ProblemSet, Template, read_problems, template_names
from adacompute.records import Budget
from adacompute.sampling import ModePlan
from adacompute.sampling.workers import SamplingEngine
from adacompute.scale.collect import RayEngine, count_useful_collectors
from adacompute.scale.vllm import VllmEngine, check_vllm

__all__ = [
    "STOP_SIGNALS",
    "AddSourceFlag",
    "ColumnsOption",
    "DryRunFlag",
    "ExtraParametersOption",
    "LimitOption",
    "LogprobsFlag",
    "MaxCostOption",
    "MaxTokensOption",
    "MenuFileOption",
    "ModelNames",
    "PresetOption",
    "ProblemSeedOption",
    "ProblemsArgument",
    "RegradeFlag",
    "SamplingSeedOption",
    "SplitOption",
    "TemperatureOption",
    "TemplateOption",
    "TopLogprobsOption",
    "TopPOption",
    "VllmEngineOptions",
    "VllmOption",
    "build_sampling",
    "check_engine_options",
    "choose_menu_engines",
    "choose_mode_endpoints",
    "choose_sampler",
    "choose_tasks",
    "choose_template",
    "name_endpoint_options",
    "read_max_cost",
    "read_problem_set",
    "resolve_verifier",
]

_TRIAL_SECONDS = 60.0  # seconds that the trial of a model's name may take
_MAX_NAME = 200  # characters of a model's name in a reply
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)  # the first finishes calls in flight, the second stops at once

TemperatureOption = Annotated[float | None, build_option(CollectConfig, "temperature", min=0)]
TopPOption = Annotated[
    float | None, typer.Option(min=0, max=1, help="Nucleus sampling. [default: the endpoint's]")
]
MaxTokensOption = Annotated[int | None, build_option(CollectConfig, "max_tokens", min=1)]
SamplingSeedOption = Annotated[
    int | None, typer.Option(help="Seed of a problem's first sample; each next one is one higher.")
]
ExtraParametersOption = Annotated[
    list[str] | None,
    typer.Option("--parameter", metavar="NAME=JSON", help="Any other parameter, sent as it is; repeatable."),
]
TopLogprobsOption = Annotated[
    int,
    typer.Option(min=0, max=20, help="Alternatives per token to record: 2 or more give the entropy."),
]
LogprobsFlag = Annotated[bool, typer.Option(help="Ask for log-probabilities: votes are weighted by them.")]
MaxCostOption = Annotated[
    str | None,
    typer.Option(
        metavar="SUM",
        parser=parse_total,
        help="Stop before the calls into this pool could cost more than this, e.g. 5 or 5USD.",
    ),
]
DryRunFlag = Annotated[bool, typer.Option("--dry-run", help="Say what it would take; send nothing.")]
AddSourceFlag = Annotated[
    bool, typer.Option("--another", help="Allow a model or parameters other than the pool's.")
]

RegradeFlag = Annotated[
    bool,
    typer.Option("--regrade", help="Take gold answers other than the pool's, and grade its samples again."),
]


MenuFileOption = Annotated[
    Path | None,
    typer.Option(
        "--menu",
        metavar="FILE",
        help="Modes to ask, in the place of --endpoint and --model: a table each (TOML).",
    ),
]


def choose_mode_endpoints(menu: Path) -> list[tuple[ModeEndpoint, EndpointConfig]]:
    """Return the modes of a menu file, each with its settings; warn where a key is sent unencrypted."""
    modes = []
    for mode in read_menu_file(menu).modes:
        endpoint = build_mode_endpoint(mode)
        if (warning := describe_key_exposure(endpoint.endpoint)) is not None:
            print_message(warning)
        modes.append((endpoint, mode.endpoint))
    return modes


def choose_menu_engines(
    plans: Sequence[ModePlan], engine: EngineName, workers: int | None, *, dry_run: bool
) -> dict[str, SamplingEngine]:
    """Return the engine that draws the samples of each mode; none where this process does."""
    if not dry_run:
        announce_engine(engine)
    if engine is EngineName.local:
        return {}
    return {
        plan.name: RayEngine(endpoint=plan.mode.endpoint, workers=workers, place=place, modes=len(plans))
        for place, plan in enumerate(plans)
    }


def build_sampling(
    settings: CollectConfig,
    temperature: float | None,
    top_p: float | None,
    max_tokens: int | None,
    seed: int | None,
    extra: list[str] | None,
) -> dict[str, Any]:
    """Build the sampling parameters to send, from the options and else from the settings."""
    parameters: dict[str, Any] = {
        "temperature": settings.temperature if temperature is None else temperature,
        "max_tokens": settings.max_tokens if max_tokens is None else max_tokens,
    }
    for name, value in (("top_p", top_p), ("seed", seed)):
        if value is not None:
            parameters[name] = value
    parameters |= parse_named_values(extra, "--parameter", example="min_p=0.05, or stop='[\"END\"]'")
    return {name: value for name, value in parameters.items() if value is not None}


def parse_named_values(items: list[str] | None, option: str, *, example: str) -> dict[str, Any]:
    """Parse the values of a repeatable option of the form NAME=JSON."""
    values: dict[str, Any] = {}
    for item in items or ():
        name, equals, text = item.partition("=")
        try:
            if not equals or not name:
                raise ValueError("no '='")
            values[name] = orjson.loads(text)
        except ValueError as exc:
            reason = f"{item!r} is no NAME=JSON ({exc}); e.g. {example}"
            raise typer.BadParameter(reason, param_hint=option) from exc
    return values


def choose_template(name: str | None, problems: ProblemSet) -> Template:
    """Return the named template, else the problems' own, and check that it shows what the problems need."""
    if name is None:
        # the default template: answers are read wherever they stand, not in a box alone
        template = problems.template or replace(Template.named("boxed"), extract=None)
    else:
        is_file = Path(name).suffix or Path(name).exists()
        template = Template.read(Path(name)) if is_file else Template.named(name)
    problems.check(template)
    return template


def choose_tasks(
    answers: AnswersConfig,
    extract: str | None,
    percent: PercentMode | None,
    *,
    template: Template,
    problems: ProblemSet,
) -> tuple[Task | None, Task]:
    """As `build_tasks`; where neither options nor settings say how answers are read, the template does."""
    task, default_task = build_tasks(answers, extract, percent)
    extraction = template.extract or problems.extract
    if task is None and extraction is not None and answers.extract == "auto":
        _, default_task = build_tasks(answers, extraction, percent)
    return task, default_task


ProblemsArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEMS",
        help="A .jsonl, .csv or .parquet file, a pool, - for stdin, hf:NAME or gym:TASK.",
    ),
]
PresetOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help=f"How a dataset is read and asked: {', '.join(sorted(PRESETS))}."),
]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="NAME|FILE",
        help=f"The prompt: {', '.join(template_names())}, or a file. [default: the preset's, else boxed]",
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Which column holds what, e.g. question=prompt,gold=target."),
]
SplitOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Split of an hf: dataset. [default: test]")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Only the first N problems.")]
ProblemSeedOption = Annotated[
    int, typer.Option(min=0, help="Seed of generated problems and shuffled choices.")
]


def read_problem_set(
    source: str, *, preset: str | None, columns: str | None, split: str | None, limit: int | None, seed: int
) -> ProblemSet:
    """Read the problems that the options name."""
    return read_problems(
        source,
        preset=preset,
        columns=None if columns is None else parse_columns(columns),
        split=split,
        limit=limit,
        seed=seed,
    )


VllmOption = Annotated[
    str | None,
    typer.Option("--vllm", metavar="MODEL", help="With --engine ray: sample by vLLM, without an endpoint."),
]
VllmEngineOptions = Annotated[
    list[str] | None,
    typer.Option("--vllm-option", metavar="NAME=JSON", help="An option of vLLM's engine; repeatable."),
]


def read_max_cost(value: float | str | None, currency: str) -> float | None:
    """Read --max-cost, a sum in the currency of the prices."""
    if not isinstance(value, str):
        return value
    total = Budget.parse(value, unit="money", currency=currency, total=True)
    if total.unit != "money":
        raise typer.BadParameter(
            f"{value!r} is no sum in {currency}; give e.g. 5{currency}", param_hint="--max-cost"
        )
    return total.amount


def check_engine_options(
    engine: EngineName,
    workers: int | None,
    vllm: str | None,
    options: list[str] | None,
    *,
    url: str | None,
    model: str | None,
    max_cost: float | str | None,
) -> None:
    """Refuse options that don't go together; EngineUnavailable where vLLM is asked for and not installed."""
    check_workers(engine, workers)
    if vllm is None:
        if options:
            raise typer.BadParameter("only --vllm has options", param_hint="--vllm-option")
        return
    if engine is not EngineName.ray:
        raise typer.BadParameter("only --engine ray runs it", param_hint="--vllm")
    for name, value in (("--endpoint", url), ("--model", model)):
        if value is not None:
            raise typer.BadParameter("--vllm names the model, and there is no endpoint", param_hint=name)
    if max_cost is not None:
        raise typer.BadParameter("workers of your own have no price; leave it out", param_hint="--max-cost")
    check_vllm()


class ModelNames(NamedTuple):
    """The name that a model's samples are stored under, and the one to ask for it by; "": the same."""

    stored: str
    sent: str = ""


def choose_sampler(
    upstream: EndpointConfig,
    engine: EngineName,
    workers: int | None,
    vllm: str | None,
    options: list[str] | None,
    *,
    pool_path: Path,
    dry_run: bool,
) -> tuple[Endpoint | SamplingEngine, ModelNames]:
    """Return the endpoint or engine that draws samples, and the model's names; a dry run asks no endpoint."""
    if not dry_run:
        announce_engine(engine)
    if vllm is not None:
        engine_options = parse_named_values(options, "--vllm-option", example="tensor_parallel_size=2")
        return VllmEngine(model=vllm, workers=workers, options=engine_options), ModelNames(vllm)
    endpoint = resolve_endpoint(upstream)
    names = (
        ModelNames(guess_model(upstream, pool_path)) if dry_run else find_model(upstream, endpoint, pool_path)
    )
    if engine is EngineName.local:
        return endpoint, names
    max_workers = count_useful_collectors(endpoint.limits)
    if workers is not None and workers > max_workers:
        verb = "draws" if max_workers == 1 else "draw"
        print_message(
            f"--workers {workers}: the endpoint's limits leave work for {max_workers}, so {max_workers} of "
            f"them {verb}; each needs a call at the same time, 60 requests and 60,000 tokens a minute"
        )
    return RayEngine(endpoint=endpoint, workers=workers), names


def name_endpoint_options(endpoint_options: Mapping[str, object]) -> dict[str, object]:
    """Return options of an endpoint, which are called as its settings are, by their names on a command line.

    >>> name_endpoint_options({"url": "http://127.0.0.1", "key_env": None})
    {'--endpoint': 'http://127.0.0.1', '--key-env': None}
    """
    names = {"url": "endpoint", "total_timeout": "timeout", "headers": "header"}
    return {f"--{names.get(name, name).replace('_', '-')}": value for name, value in endpoint_options.items()}


def resolve_endpoint(settings: EndpointConfig, *, remedy: str = "give --endpoint URL") -> Endpoint:
    """Build the endpoint that the settings name, with its key; warn where the key is sent unencrypted."""
    endpoint = build_endpoint(settings, remedy=remedy)
    if (warning := describe_key_exposure(endpoint)) is not None:
        print_message(warning)
    return endpoint


def resolve_verifier(
    settings: VerifierConfig, endpoint: EndpointConfig, *, url: str | None, model: str | None
) -> Verifier | None:
    """Build the verifier that the settings or options name, with its key; None where they name none."""
    verifier = build_verifier(override_section(settings, url=url, model=model), endpoint)
    if verifier is not None and (warning := describe_key_exposure(verifier.client.endpoint)) is not None:
        print_message(warning)
    return verifier


def guess_model(settings: EndpointConfig, pool_path: Path) -> str:
    """Return the model that the settings name, else the pool's only one, without asking the endpoint."""
    if settings.model:
        return settings.model
    names = _read_pool_models(pool_path)
    return names.pop() if len(names) == 1 else "(not asked for yet)"


def find_model(settings: EndpointConfig, endpoint: Endpoint, pool_path: Path) -> ModelNames:
    """Return the model that the settings name, else the only one that the endpoint lists.

    Some endpoints answer to any name, with the model that they have. A name that isn't listed is tried out,
    and what the reply says is stored, unless the pool has samples under the name already.
    """
    if settings.model:
        if settings.model in _read_pool_models(pool_path):
            return ModelNames(settings.model)
        return asyncio.run(_resolve_model(settings.model, endpoint))
    try:
        listed = asyncio.run(_list_models(endpoint))
    except EndpointError as exc:
        if exc.status in (401, 403):
            raise
        raise type(exc)(f"{exc} (asked which models there are; --model NAME saves that)") from exc
    if len(listed) != 1:
        raise ConfigError(
            f"{endpoint.url} lists {len(listed)} models: {_format_names(listed)}; name one with --model"
        )
    return ModelNames(listed[0])


def _read_pool_models(pool_path: Path) -> set[str]:
    if not pool_path.exists():
        return set()
    with open_pool(pool_path) as pool:
        return {name for name, _ in pool.models if name is not None}


def _format_names(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"


async def _list_models(endpoint: Endpoint) -> list[str]:
    async with Client(endpoint) as client:
        return await client.models()


async def _resolve_model(name: str, endpoint: Endpoint) -> ModelNames:
    """Return the name that the endpoint itself gives to the model that it has under this one.

    Where that can't be found out, it is the name itself: the run will say what is wrong.
    """
    listed: list[str] = []
    async with Client(endpoint) as client:
        try:
            listed = await client.models()
            if not listed or name in listed:
                return ModelNames(name)
            reply = await client.call(
                {"model": name, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16},
                optional=frozenset({"max_tokens"}),
                deadline=_TRIAL_SECONDS,
            )
        except EndpointRefused as exc:
            if listed and exc.status == 404:
                raise EndpointRefused(f"{exc}; it lists {_format_names(listed)}", status=404) from exc
            return ModelNames(name)
        except EndpointError:
            return ModelNames(name)
    said = _read_model(reply.body)
    if said in ("", name) and len(listed) == 1:  # it only repeats the name, and has one model
        said = listed[0]
    known = f"--model {name}: {endpoint.url} doesn't list it, but {_format_names(listed)}"
    if said in ("", name):
        print_message(f"{known}; it answers to this name all the same, so it is taken as it is")
        return ModelNames(name)
    print_message(f"{known}; it answers to any name, and samples are stored under {said}")
    return ModelNames(said, name)


def _read_model(body: Mapping[str, Any]) -> str:
    """Return the model's name in a reply; "" where there is none that could be one."""
    name = body.get("model")
    return name if isinstance(name, str) and name.isprintable() and len(name) <= _MAX_NAME else ""
