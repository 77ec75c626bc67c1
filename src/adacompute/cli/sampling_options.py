"""Options that `collect` and `answer` share, on problems, prompts and sampling. Also finds the model."""

import asyncio
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import orjson
import typer

from adacompute.answers import Task
from adacompute.cli.options import (
    AnswerOptions,
    EngineOptions,
    VerifierOptions,
    build_option,
    parse_columns,
    parse_pair,
    parse_total,
)
from adacompute.cli.terminal import print_message
from adacompute.client import Client, Endpoint
from adacompute.client.modes import ModeConfig, build_mode_endpoint
from adacompute.client.settings import ModeEndpoint, build_endpoint, describe_key_exposure
from adacompute.client.verifier import build_verifier
from adacompute.config import AnswersConfig, CollectConfig, Config, EndpointConfig
from adacompute.errors import ConfigError, EndpointError, EndpointRefused
from adacompute.pool import open_pool
from adacompute.problems import PRESETS, ProblemSet, Template, read_problems, template_names
from adacompute.records import Budget
from adacompute.sampling import SourcePlan, build_plan
from adacompute.sampling.workers import WorkerEngine
from adacompute.scale.collect import RayEngine, count_useful_collectors

_TRIAL_SECONDS = 60.0  # time limit for the call that tests whether a model name works
_PARAMETER_EXAMPLE = "min_p=0.05, or stop='[\"END\"]'"
_MAX_NAME = 200  # maximum length of a model's name; a longer text in a reply isn't taken as one
# After the first of these signals, a run only finishes the calls in flight; a second one stops it at once.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, kw_only=True)
class GenerationOptions:
    """Options that set how samples are drawn."""

    temperature: Annotated[float | None, build_option(CollectConfig, "temperature", min=0)] = None
    top_p: Annotated[
        float | None, typer.Option(min=0, max=1, help="Nucleus sampling. [default: the endpoint's]")
    ] = None
    max_tokens: Annotated[int | None, build_option(CollectConfig, "max_tokens", min=1)] = None
    seed: Annotated[
        int | None, typer.Option(help="Seed of each problem's first sample; later ones count up.")
    ] = None
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=JSON", help="Any other request parameter; repeatable."),
    ] = None
    logprobs: Annotated[bool, typer.Option(help="Ask for log-probabilities, which weigh the votes.")] = True
    top_logprobs: Annotated[
        int,
        typer.Option(min=0, max=20, help="Alternatives to record per token; 2 or more give the entropy."),
    ] = 0

    def build_parameters(self, settings: CollectConfig) -> dict[str, Any]:
        """Returns the sampling parameters to send, from options or else from the settings."""
        parameters: dict[str, Any] = {
            "temperature": settings.temperature if self.temperature is None else self.temperature,
            "max_tokens": settings.max_tokens if self.max_tokens is None else self.max_tokens,
            "top_p": self.top_p,
            "seed": self.seed,
            **_parse_parameters(self.parameter),
        }
        return {name: value for name, value in parameters.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options that limit what a run may cost, and what it may change in a pool."""

    max_cost: Annotated[
        str | None,
        typer.Option(
            metavar="SUM",
            parser=parse_total,
            help="Stop before all calls for this pool could cost more than this, e.g. 5 or 5USD.",
        ),
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only estimate the cost; send nothing.")] = False
    another: Annotated[
        bool, typer.Option("--another", help="Allow a model or parameters other than the pool's.")
    ] = False
    regrade: Annotated[
        bool,
        typer.Option("--regrade", help="Replace the pool's gold answers, and grade its samples again."),
    ] = False

    def read_max_cost(self, currency: str) -> float | None:
        """Returns the amount of --max-cost; raises an error if it isn't in the currency of the prices."""
        value: float | str | None = self.max_cost
        if not isinstance(value, str):
            return value
        total = Budget.parse(value, unit="money", currency=currency, total=True)
        if total.unit != "money":
            raise typer.BadParameter(
                f"{value!r} is not an amount in {currency}; give e.g. 5{currency}", param_hint="--max-cost"
            )
        return total.amount


def plan_sources(
    modes: Sequence[ModeConfig],
    template: Template,
    config: Config,
    *,
    sampling: GenerationOptions,
    engine: EngineOptions,
    verifier: VerifierOptions,
    pool_path: Path,
    dry_run: bool,
) -> list[SourcePlan]:
    """Plans the requests for each mode. A dry run doesn't ask endpoints which models they have."""
    if not dry_run:
        engine.announce()
    parameters, scoring = sampling.build_parameters(config.collect), verifier.override(config.verifier)
    plans = []
    for place, mode in enumerate(modes):
        scorer = build_verifier(scoring, mode.endpoint)
        if scorer is not None:
            warn_exposure(scorer.client.endpoint)
        names = ModelNames(mode.endpoint.model)
        if mode.name:
            asked = build_mode_endpoint(mode)
            warn_exposure(asked.endpoint)
        else:
            endpoint = build_endpoint(mode.endpoint, remedy="give --endpoint URL")
            warn_exposure(endpoint)
            names = (
                ModelNames(guess_model(mode.endpoint, pool_path))
                if dry_run
                else find_model(mode.endpoint, endpoint, pool_path)
            )
            asked = ModeEndpoint(name="", endpoint=endpoint, model=names.stored, prices=mode.endpoint.prices)
        plans.append(
            build_plan(
                asked,
                template=template,
                limit_is_default=sampling.max_tokens is None,
                sent_model=names.sent,
                endpoint=choose_engine(engine, asked.endpoint, place=place, modes=len(modes)),
                verifier=scorer,
                sampling=parameters,
                logprobs=sampling.logprobs,
                top_logprobs=sampling.top_logprobs,
            )
        )
    return plans


def _parse_parameters(items: list[str] | None) -> dict[str, Any]:
    """Parses the options --parameter NAME=JSON."""
    values: dict[str, Any] = {}
    for item in items or ():
        name, text = parse_pair(item, "--parameter", "NAME=JSON", _PARAMETER_EXAMPLE)
        try:
            values[name] = orjson.loads(text)
        except ValueError as exc:
            reason = f"{item!r} is not NAME=JSON ({exc}); e.g. {_PARAMETER_EXAMPLE}"
            raise typer.BadParameter(reason, param_hint="--parameter") from exc
    return values


ProblemsArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEMS",
        help="A .jsonl, .csv or .parquet file, a pool, - (stdin), hf:DATASET or gym:TASK.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ProblemOptions:
    """Options that choose the problems to ask and the prompt template."""

    source: ProblemsArgument
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Columns and prompt of a dataset: {', '.join(sorted(PRESETS))}."),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help=f"Prompt: {', '.join(template_names())}, or a file. [default: the preset's, else boxed]",
        ),
    ] = None
    columns: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Which column holds what, e.g. question=prompt,gold=target."),
    ] = None
    split: Annotated[
        str | None, typer.Option(metavar="NAME", help="Split of an hf: dataset. [default: test]")
    ] = None
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N problems.")] = None
    problem_seed: Annotated[
        int, typer.Option(min=0, help="Seed of generated problems and shuffled choices.")
    ] = 0

    def read(self) -> tuple[ProblemSet, Template]:
        """Reads the problems and the prompt template: the one in the options, or else the preset's."""
        problems = read_problems(
            self.source,
            preset=self.preset,
            columns=None if self.columns is None else parse_columns(self.columns),
            split=self.split,
            limit=self.limit,
            seed=self.problem_seed,
        )
        if self.template is None:
            # the default prompt asks for a boxed answer, but answers without a box are accepted too
            template = problems.template or replace(Template.named("boxed"), extract=None)
        else:
            is_file = Path(self.template).suffix or Path(self.template).exists()
            template = Template.read(Path(self.template)) if is_file else Template.named(self.template)
        problems.check(template)
        return problems, template


def choose_tasks(
    options: AnswerOptions, answers: AnswersConfig, template: Template, problems: ProblemSet
) -> tuple[Task | None, Task]:
    """Like `AnswerOptions.build_tasks`, but by default answers are read as the template says."""
    is_unsaid = answers.extract == "auto" and options.percent is None
    return options.build_tasks(answers, extract=(template.extract or problems.extract) if is_unsaid else None)


def choose_engine(
    options: EngineOptions, endpoint: Endpoint, *, place: int, modes: int
) -> Endpoint | WorkerEngine:
    """Returns the object that sends a mode's requests: the endpoint itself, or an engine on Ray."""
    if not options.is_ray:
        return endpoint
    max_workers = count_useful_collectors(endpoint.limits)
    if options.workers is not None and options.workers > max_workers:
        verb = "draws" if max_workers == 1 else "draw"
        print_message(
            f"--workers {options.workers}: the endpoint's limits leave work for {max_workers}, so "
            f"{max_workers} of them {verb}; each needs a call at the same time, 60 requests and 60,000 "
            "tokens a minute"
        )
    return RayEngine(endpoint=endpoint, workers=options.workers, place=place, modes=modes)


class ModelNames(NamedTuple):
    """A model's name in the pool, and its name in requests ("" if that is the same)."""

    stored: str
    sent: str = ""


def warn_exposure(endpoint: Endpoint) -> None:
    """Warns if a key is sent unencrypted."""
    if (warning := describe_key_exposure(endpoint)) is not None:
        print_message(warning)


def guess_model(settings: EndpointConfig, pool_path: Path) -> str:
    """Returns the model in the settings, or else the pool's only model. Doesn't ask the endpoint."""
    if settings.model:
        return settings.model
    names = _read_pool_models(pool_path)
    return names.pop() if len(names) == 1 else "(not asked for yet)"


def find_model(settings: EndpointConfig, endpoint: Endpoint, pool_path: Path) -> ModelNames:
    """Returns the name of the model in the settings, or else of the only model that the endpoint lists.

    Some endpoints accept any name and reply with the model that they have. So a name that the endpoint
    doesn't list is tried with one call, and samples are stored under the model's name in the reply. A name
    that already has samples in the pool isn't tried.
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
    """Finds the endpoint's own name for the model that answers requests for `name`.

    If it can't be found, returns `name`. On HTTP status 404, raises EndpointRefused with the listed models.
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
    if said in ("", name) and len(listed) == 1:  # the endpoint has no other model that could have answered
        said = listed[0]
    known = f"--model {name}: {endpoint.url} doesn't list it, but {_format_names(listed)}"
    if said in ("", name):
        print_message(f"{known}; it answers to this name all the same, so it is taken as it is")
        return ModelNames(name)
    print_message(f"{known}; it answers to any name, and samples are stored under {said}")
    return ModelNames(said, name)


def _read_model(body: Mapping[str, Any]) -> str:
    """Returns the model's name from a reply, or "" if there is no plausible name."""
    name = body.get("model")
    return name if isinstance(name, str) and name.isprintable() and len(name) <= _MAX_NAME else ""
