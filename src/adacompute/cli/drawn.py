"""Where samples are drawn, and by what: options that two commands share. Knows nothing of what is asked."""

from pathlib import Path
from typing import Annotated

import typer

from adacompute.cli.asking import named_values
from adacompute.cli.engine import EngineName, check_workers, say_engine
from adacompute.cli.show import message
from adacompute.cli.upstream import endpoint_of, model_beforehand, model_of
from adacompute.collect.engine import Engine
from adacompute.config import EndpointConfig
from adacompute.endpoint import Endpoint
from adacompute.scale.batch import VllmEngine, check_vllm
from adacompute.scale.collect import RayEngine
from adacompute.scale.collect.shares import most_of

__all__ = ["Vllm", "VllmOptions", "check_engine", "drawn_by"]

Vllm = Annotated[
    str | None,
    typer.Option("--vllm", metavar="MODEL", help="With --engine ray: by vLLM on its GPUs; no endpoint."),
]
VllmOptions = Annotated[
    list[str] | None,
    typer.Option("--vllm-option", metavar="NAME=JSON", help="Of vLLM's engine; may be repeated."),
]


def check_engine(
    engine: EngineName,
    workers: int | None,
    vllm: str | None,
    options: list[str] | None,
    *,
    url: str | None,
    model: str | None,
    max_cost: float | None,
) -> None:
    """Refuses options that don't go together; EngineUnavailable where vLLM is asked for and isn't there."""
    check_workers(engine, workers)
    if vllm is None:
        if options:
            raise typer.BadParameter("only --vllm has options", param_hint="--vllm-option")
        return
    if engine is not EngineName.ray:
        raise typer.BadParameter("only --engine ray runs it", param_hint="--vllm")
    for name, given in (("--endpoint", url), ("--model", model)):
        if given is not None:
            raise typer.BadParameter("--vllm names the model, and there is no endpoint", param_hint=name)
    if max_cost is not None:
        raise typer.BadParameter("workers of your own have no price; leave it out", param_hint="--max-cost")
    check_vllm()


def drawn_by(
    upstream: EndpointConfig,
    engine: EngineName,
    workers: int | None,
    vllm: str | None,
    options: list[str] | None,
    *,
    into: Path,
    dry_run: bool,
) -> tuple[Endpoint | Engine, str]:
    """What samples are drawn by, and the model's name; nothing is asked beforehand for a dry run."""
    if not dry_run:
        say_engine(engine)
    if vllm is not None:
        own = named_values(options, "--vllm-option", example="tensor_parallel_size=2")
        return VllmEngine(model=vllm, workers=workers, options=own), vllm
    endpoint = endpoint_of(upstream)
    model = model_beforehand(upstream, into) if dry_run else model_of(upstream, endpoint)
    if engine is EngineName.local:
        return endpoint, model
    most = most_of(endpoint.limits)
    if workers is not None and workers > most:
        message(
            f"--workers {workers}: the endpoint's limits leave work for {most}, so {most} of them "
            f"{'draws' if most == 1 else 'draw'}; each needs a call at the same time, 60 requests and 60,000 "
            "tokens a minute"
        )
    return RayEngine(endpoint=endpoint, workers=workers), model
