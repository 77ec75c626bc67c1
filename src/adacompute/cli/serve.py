"""`adacompute serve`: the gateway. Knows the words of the command, not how requests are served."""

import os
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from adacompute.cli.checked import check_policy, checked, show_checked
from adacompute.cli.options import Extract, Json, Percent, settings
from adacompute.cli.served import facts_of, show_started
from adacompute.cli.show import as_json
from adacompute.cli.shown_config import show_config
from adacompute.cli.upstream import InputPrice, KeyEnv, KeyFile, OutputPrice
from adacompute.config import Config, EndpointConfig, ServeConfig, load_config, read_key, read_keys

if TYPE_CHECKING:
    from adacompute.serve.gateway import Gateway

__all__ = ["serve"]


def _choice(name: str, text: str) -> Any:  # noqa: ANN401 - typer's own
    """An option of the name of a setting that is one of some words; `text` is its help."""
    words = get_args(get_type_hints(ServeConfig)[name])

    def chosen(word: str) -> str:
        if word not in words:
            raise typer.BadParameter(f"{word!r} is not one of {', '.join(map(repr, words))}")
        return word

    return typer.Option(f"--{name}", parser=chosen, metavar=f"<{'|'.join(words)}>", help=text)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number; give one, e.g. 2") from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no whole number; give one, e.g. 8080") from None


Upstream = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The endpoint behind it, with its path, e.g. http://127.0.0.1:8081/v1."),
]
Model = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="For requests that name none, or default. [default: none]"),
]
Policy = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="A folder of `adacompute fit`. [default: stopping, on its prior]"),
]
Budget = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="B", help="Samples a request, on average. [default: 2]"),
]
Host = Annotated[str | None, typer.Option(help="Beyond loopback only with --keys. [default: 127.0.0.1]")]
Port = Annotated[
    int | None, typer.Option(parser=_whole, metavar="N", help="0: any that is free. [default: 8080]")
]
Keys = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Clients' keys (TOML): a section each. [default: none]")
]
Cap = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="N", help="Of all requests together, never passed. [default: none]"),
]
KeyCap = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="N", help="Of each key that has none of its own. [default: none]"),
]
CapUnit = Annotated[str | None, _choice("unit", "Of caps and costs. [default: samples]")]
CapWindow = Annotated[str | None, _choice("window", "After which caps begin anew. [default: ever]")]
Mode = Annotated[
    str | None,
    _choice("mode", "shadow: one sample each, and what would have been; pass: one each. [default: adaptive]"),
]
Record = Annotated[
    Path | None, typer.Option(metavar="POOL", help="Record traffic, with its texts, to fit policies on.")
]
State = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="What is spent, over restarts. [default: adacompute-gateway.sqlite]"),
]
Redis = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Share caps and price with all gateways there. [default: --state]"),
]
FleetName = Annotated[
    str | None, typer.Option("--fleet", metavar="NAME", help="Of these gateways. [default: adacompute]")
]
Price = Annotated[
    float | None,
    typer.Option(
        parser=_number, metavar="DIAL", help="A fixed dial. [default: it moves, so that the budget is met]"
    ),
]
Calls = Annotated[
    int | None,
    typer.Option(
        "--concurrency", parser=_whole, metavar="N", help="Upstream calls at the same time. [default: 256]"
    ),
]
CachedPrice = Annotated[
    float | None,
    typer.Option(
        parser=_number, metavar="MONEY", help="Of a million cached prompt tokens. [default: as the others]"
    ),
]
MinAgreement = Annotated[
    float | None,
    typer.Option(parser=_number, metavar="SHARE", help="Votes below are weak, 0 to 1. [default: 0]"),
]
WeakWay = Annotated[str | None, _choice("weak", "What is done with weak votes. [default: mark]")]
Log = Annotated[str | None, _choice("log", "What is logged, on stderr. [default: info]")]
TlsCert = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM; with --tls-key: https.")]
TlsKey = Annotated[Path | None, typer.Option(metavar="FILE", help="PEM, without a password.")]
ShowConfig = Annotated[
    bool, typer.Option("--show-config", help="Print all settings in effect as TOML, and exit.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Open everything, ask the upstream for its models, and exit.")
]
File = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="As before the command. [default: adacompute.toml]"),
]


def serve(
    context: typer.Context,
    upstream: Upstream = None,
    policy: Policy = None,
    budget: Budget = None,
    model: Model = None,
    host: Host = None,
    port: Port = None,
    keys: Keys = None,
    cap: Cap = None,
    key_cap: KeyCap = None,
    unit: CapUnit = None,
    window: CapWindow = None,
    mode: Mode = None,
    price: Price = None,
    min_agreement: MinAgreement = None,
    weak: WeakWay = None,
    record: Record = None,
    state: State = None,
    redis: Redis = None,
    fleet: FleetName = None,
    concurrency: Calls = None,
    key_env: KeyEnv = None,
    key_file: KeyFile = None,
    input_price: InputPrice = None,
    output_price: OutputPrice = None,
    cached_price: CachedPrice = None,
    extract: Extract = None,
    percent: Percent = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    log: Log = None,
    file: File = None,
    show: ShowConfig = False,
    check: Check = False,
    json: Json = False,
) -> None:
    """Serve an upstream as a gateway: the same API, B samples a request on average, and the vote's winner.

    Give its URL, with /v1, to an OpenAI client as base_url. SIGTERM or Ctrl-C: requests under way finish,
    exit 0; twice: at once. SIGHUP: policies are read anew. Every setting can stand in adacompute.toml.
    """
    given = settings(context) if file is None else load_config(file)
    config = replace(
        given,
        serve=_serve(
            given.serve,
            policy=policy,
            budget=budget,
            host=host,
            port=port,
            keys_file=keys,
            cap=cap,
            key_cap=key_cap,
            unit=unit,
            window=window,
            mode=mode,
            price=price,
            min_agreement=min_agreement,
            weak=weak,
            record=record,
            state=state,
            redis=redis,
            fleet=fleet,
            concurrency=concurrency,
            cached_price=cached_price,
            tls_cert=tls_cert,
            tls_key=tls_key,
            log=log,
        ),
        endpoint=_endpoint(
            given.endpoint,
            url=upstream,
            model=model,
            key_env=key_env,
            key_file=key_file,
            input_price=input_price,
            output_price=output_price,
        ),
        answers=replace(given.answers, **_given(extract=extract, percent=percent)),
    )
    if show:
        show_config(config, json=json)
    elif check:
        with _logged(config):
            found = checked(config)
        as_json(found) if json else show_checked(found)
    else:
        _run(config, json=json)


def _run(config: Config, *, json: bool) -> None:
    from adacompute.serve import server  # here and below: other commands don't wait for it

    held: list[Gateway] = []

    def told(url: str) -> None:
        facts = facts_of(held[0], url)
        if json:
            told = ("url", "policy", "budget", "dashboard")
            as_json({"pid": os.getpid()} | {name: facts[name] for name in told})
        else:
            show_started(facts)

    check_policy(config.serve.policy)
    with _logged(config):
        server.serve(config, told=told, holds=held.append)


def _logged(config: Config) -> AbstractContextManager[None]:
    """Logs on stderr, with every key that is known here masked wherever it would turn up."""
    from adacompute.serve.logs import logging_to

    upstream, own = config.endpoint, config.serve
    found = [read_key(env=upstream.key_env, file=Path(upstream.key_file) if upstream.key_file else None)]
    if own.redis:
        file = Path(own.redis_key_file) if own.redis_key_file else None
        found.append(read_key(env=own.redis_key_env, file=file))
    secrets = [each.key for each in read_keys(Path(own.keys_file))] if own.keys_file else []
    secrets += [key for key in found if key is not None]
    return logging_to(sys.stderr, level=own.log, secrets=secrets)


def _serve(given: ServeConfig, **options: object) -> ServeConfig:
    return replace(given, **_given(**options))


def _endpoint(given: EndpointConfig, **options: object) -> EndpointConfig:
    return replace(given, **_given(**options))


def _given(**options: object) -> dict[str, Any]:
    """Those options that were given, as settings are written."""
    return {name: _plain(value) for name, value in options.items() if value is not None}


def _plain(value: object) -> object:
    if isinstance(value, StrEnum):
        return value.value
    return str(value) if isinstance(value, Path) else value
