"""Options of an endpoint, and the endpoint and model that they name."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.cli.terminal import print_message
from adacompute.client import Client, Endpoint
from adacompute.client.settings import build_endpoint, describe_key_exposure
from adacompute.config import EndpointConfig
from adacompute.errors import ConfigError, EndpointError
from adacompute.pool import open_pool

__all__ = [
    "ConcurrencyOption",
    "EndpointModelOption",
    "EndpointUrlOption",
    "InputTokenPriceOption",
    "KeyEnvOption",
    "KeyFileOption",
    "OutputTokenPriceOption",
    "RequestRateOption",
    "RetryTimeoutsFlag",
    "TimeoutOption",
    "TokenRateOption",
    "find_model",
    "guess_model",
    "override_endpoint",
    "resolve_endpoint",
]

EndpointUrlOption = Annotated[
    str | None,
    typer.Option("--endpoint", metavar="URL", help="With its path, e.g. http://127.0.0.1:8081/v1."),
]
EndpointModelOption = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="[default: the only one that the endpoint lists]"),
]
KeyEnvOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Environment variable that holds the key. [default: ADACOMPUTE_KEY]"),
]
KeyFileOption = Annotated[Path | None, typer.Option(metavar="FILE", help="A file that holds the key alone.")]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(min=1, help="Calls at the same time, at most; fewer where it pushes back. [default: 32]"),
]
RequestRateOption = Annotated[
    float | None,
    typer.Option(
        "--requests-per-minute", metavar="N", help="Requests a minute, at most. [default: no limit]"
    ),
]
TokenRateOption = Annotated[
    float | None,
    typer.Option(
        "--tokens-per-minute",
        metavar="N",
        help="Tokens of prompts and responses, at most. [default: no limit]",
    ),
]
TimeoutOption = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="For one attempt as a whole. [default: 900]")
]
RetryTimeoutsFlag = Annotated[
    bool,
    typer.Option("--retry-timeouts", help="Also retry after a timeout; such a call may be paid for twice."),
]
InputTokenPriceOption = Annotated[
    float | None, typer.Option(min=0, metavar="MONEY", help="Price of a million prompt tokens. [default: 0]")
]
OutputTokenPriceOption = Annotated[
    float | None,
    typer.Option(min=0, metavar="MONEY", help="Price of a million response tokens. [default: 0]"),
]


def override_endpoint(
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
    """Return the settings of the endpoint, overridden by the options that were given."""
    options: dict[str, Any] = {
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
    return replace(settings, **{name: value for name, value in options.items() if value is not None})


def resolve_endpoint(settings: EndpointConfig, *, remedy: str = "give --endpoint URL") -> Endpoint:
    """Build the endpoint that the settings name, with its key; warn where the key is sent unencrypted."""
    endpoint = build_endpoint(settings, remedy=remedy)
    if (warning := describe_key_exposure(endpoint)) is not None:
        print_message(warning)
    return endpoint


def guess_model(settings: EndpointConfig, pool_path: Path) -> str:
    """Return the model that the settings name, else the pool's only one, without asking the endpoint."""
    if settings.model or not pool_path.exists():
        return settings.model or "(not asked for yet)"
    with open_pool(pool_path) as pool:
        names = {name for name, _ in pool.models if name is not None}
    return names.pop() if len(names) == 1 else "(not asked for yet)"


def find_model(settings: EndpointConfig, endpoint: Endpoint) -> str:
    """Return the model that the settings name, else the only one that the endpoint lists."""
    if settings.model:
        return settings.model
    try:
        names = asyncio.run(_list_models(endpoint))
    except EndpointError as exc:
        raise type(exc)(f"{exc} (asked which models there are; --model NAME saves that)") from exc
    if len(names) != 1:
        listed = ", ".join(names[:8]) + (", …" if len(names) > 8 else "") if names else "none"
        raise ConfigError(f"{endpoint.url} lists {len(names)} models: {listed}; name one with --model")
    return names[0]


async def _list_models(endpoint: Endpoint) -> list[str]:
    async with Client(endpoint) as client:
        return await client.models()
