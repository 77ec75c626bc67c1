"""Options of an endpoint, which several commands share, and the endpoint that they name. Sends nothing."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.cli.show import message
from adacompute.config import EndpointConfig
from adacompute.endpoint import Client, Endpoint
from adacompute.endpoint.configured import configured, exposed
from adacompute.errors import ConfigError, EndpointError
from adacompute.pool import open_pool

__all__ = [
    "Concurrency",
    "InputPrice",
    "KeyEnv",
    "KeyFile",
    "OutputPrice",
    "RequestRate",
    "RetryTimeouts",
    "Timeout",
    "TokenRate",
    "UpstreamModel",
    "Url",
    "chosen",
    "endpoint_of",
    "model_beforehand",
    "model_of",
]

Url = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="With its path, e.g. http://127.0.0.1:8081/v1."),
]
UpstreamModel = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="[default: the only one that the endpoint lists]"),
]
KeyEnv = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable that holds the key. [default: ADACOMPUTE_KEY]"),
]
KeyFile = Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds the key alone.")]
Concurrency = Annotated[
    int | None,
    typer.Option(min=1, help="Calls at the same time, at most; fewer where it pushes back. [default: 32]"),
]
RequestRate = Annotated[
    float | None, typer.Option("--requests-per-minute", metavar="N", help="At most. [default: no limit]")
]
TokenRate = Annotated[
    float | None,
    typer.Option("--tokens-per-minute", metavar="N", help="Of prompts and responses. [default: no limit]"),
]
Timeout = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Of one attempt, as a whole. [default: 900]")
]
RetryTimeouts = Annotated[
    bool,
    typer.Option("--retry-timeouts", help="Ask again after a timeout, too; it may be paid for twice."),
]
InputPrice = Annotated[
    float | None, typer.Option(min=0, metavar="MONEY", help="Of a million prompt tokens. [default: 0]")
]
OutputPrice = Annotated[
    float | None, typer.Option(min=0, metavar="MONEY", help="Of a million response tokens. [default: 0]")
]


def chosen(
    settings: EndpointConfig,
    *,
    url: str | None,
    model: str | None,
    key_env: str | None,
    key_file: Path | None,
    concurrency: int | None,
    requests_per_minute: float | None,
    tokens_per_minute: float | None,
    timeout: float | None,
    retry_timeouts: bool,
    input_price: float | None,
    output_price: float | None,
) -> EndpointConfig:
    """The settings, with those options that were given in their place."""
    given: dict[str, Any] = {
        "url": url,
        "model": model,
        "key_env": key_env,
        "key_file": None if key_file is None else str(key_file),
        "concurrency": concurrency,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "total_timeout": timeout,
        "retry_timeouts": retry_timeouts or None,
        "input_price": input_price,
        "output_price": output_price,
    }
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def endpoint_of(settings: EndpointConfig, *, remedy: str = "give --endpoint URL") -> Endpoint:
    """The endpoint that the settings name, with its key; says so where the key goes out unencrypted."""
    endpoint = configured(settings, remedy=remedy)
    if (warning := exposed(endpoint)) is not None:
        message(warning)
    return endpoint


def model_beforehand(settings: EndpointConfig, into: Path) -> str:
    """The model that the settings name; else the only one of the pool. The endpoint isn't asked."""
    if settings.model or not into.exists():
        return settings.model or "(not asked for yet)"
    with open_pool(into) as pool:
        names = {name for name, _ in pool.models if name is not None}
    return names.pop() if len(names) == 1 else "(not asked for yet)"


def model_of(settings: EndpointConfig, endpoint: Endpoint) -> str:
    """The model that the settings name; else the only one that the endpoint lists, which costs nothing."""
    if settings.model:
        return settings.model
    try:
        names = asyncio.run(_models(endpoint))
    except EndpointError as exc:
        raise type(exc)(f"{exc} (asked which models there are; --model NAME saves that)") from exc
    if len(names) != 1:
        found = ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"
        raise ConfigError(f"{endpoint.url} lists {len(names)} models: {found}; name one with --model")
    return names[0]


async def _models(endpoint: Endpoint) -> list[str]:
    async with Client(endpoint) as client:
        return await client.models()
