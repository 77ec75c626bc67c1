"""`adacompute serve`: starts the gateway, checks whether it could start, or prints its settings."""

import asyncio
import contextlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import Field, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import typer

from adacompute.cli.modes import SEVERAL, GatewayModesOption, choose_modes_file
from adacompute.cli.options import (
    AnswerOptions,
    ConnectionOptions,
    JsonFlag,
    VerifierOptions,
    build_option,
    get_flags,
    get_given,
    load_settings,
    override_section,
    parse_total,
)
from adacompute.cli.terminal import format_count, format_curl, print_fact, print_json, print_line
from adacompute.client.modes import read_modes_file
from adacompute.config import (
    EVERY_MODE,
    Config,
    EndpointConfig,
    ServeConfig,
    VerifierConfig,
    forget_metrics_folder,
    load_config,
    read_keys,
)
from adacompute.errors import EndpointError, PolicyError, shorten
from adacompute.policies import POLICIES
from adacompute.policies.artefact import DOCUMENT

if TYPE_CHECKING:
    from adacompute.client import Endpoint, Verifier
    from adacompute.serve.routes.gateway import Gateway

_MODE_TEXTS = {
    "adaptive": "",
    "shadow": "shadow: one sample each; what the policy would do is only noted",
    "pass": "pass: one sample each, no votes",
}
_OTHER_PURPOSE = re.compile(r"embed|rerank|whisper|tts|transcri|image|dall-e|sora|moderation", re.IGNORECASE)


def gather_facts(gateway: "Gateway", url: str) -> dict[str, Any]:
    """Collects the facts to print about a gateway, by name. `url` is its address without a path."""
    settings = gateway.settings
    policy_entry = gateway.policy_registry.get(gateway.policy_registry.default)
    return {
        "url": f"{url}/v1",
        "dashboard": f"{url}/dashboard",
        "playground": f"{url}/" if settings.playground else None,
        "upstream": urlsplit(gateway.config.endpoint.url).netloc.rpartition("@")[2],
        "model": gateway.config.endpoint.model or None,
        "modes": _describe_modes(gateway),
        "only": gateway.model or None,  # the model for requests that don't name one
        "listed": list(gateway.model_list.known),
        "policy": policy_entry.name,
        "kind": policy_entry.policy.kind,
        "version": policy_entry.version,
        "foreign": gateway.find_foreign_model() or None,
        "policies": list(gateway.policy_registry.names),
        "budget": gateway.budget.amount,
        "budget_unit": gateway.budget.unit,
        "budget_text": str(gateway.budget),
        "quality": None if gateway.quality is None else gateway.quality.to_dict(),
        "quality_text": str(gateway.quality or ""),
        "patched": bool(gateway.patched_budget),
        "shortfall": gateway.find_shortfall() or None,
        "average": gateway.average,
        "mode": settings.mode,
        "caps": _describe_caps(settings, gateway.config.endpoint.currency),
        "spent": _describe_spending(gateway),
        "keys": len(gateway.keys),
        "state": describe_state(settings),
        "record": settings.record or None,
        "explore": gateway.explore,
        "verifier": _describe_verifier(gateway.config.verifier),
    }


def _describe_modes(gateway: "Gateway") -> dict[str, dict[str, Any]]:
    """Returns each mode's model, upstream and prices, by name; empty with a single upstream."""
    modes = {name: source.mode for name, source in gateway.resources.sources.items() if name}
    return {
        name: {
            "model": mode.model,
            "upstream": urlsplit(mode.endpoint.url).netloc.rpartition("@")[2],
            "input_price": mode.prices.input,
            "output_price": mode.prices.output,
            "default": name == gateway.resources.default,
        }
        for name, mode in modes.items()
    }


def _describe_verifier(settings: VerifierConfig) -> str | None:
    if not settings.url:
        return None
    host = urlsplit(settings.url).netloc.rpartition("@")[2]
    return f"{host}, model {settings.model}" if settings.model else f"{host}, a scoring endpoint"


def show_started(facts: dict[str, Any]) -> None:
    """Prints the message when the gateway has started: address, settings and an example call."""
    print_line(f"gateway at {facts['url']}: give that to an OpenAI client as its base_url")
    print_line()
    show_facts(facts)
    print_line()
    model = facts["model"] or facts["only"] or _pick_model(facts["listed"])
    print_line(f"  {format_curl(facts['url'], with_key=bool(facts['keys']), model=model or 'MODEL')}")
    print_line()
    if not model:
        print_line(
            "MODEL: the upstream lists none, or can't be reached; `serve --check` says which. Put a model's "
            "name there, or start with --model NAME"
        )
    print_line("Ctrl-C stops it, once requests under way are done")


def _pick_model(models: Sequence[str]) -> str:
    """Picks a model for the example call: the first whose name doesn't suggest e.g. an embedding model."""
    return next((model for model in models if not _OTHER_PURPOSE.search(model)), "".join(models[:1]))


def show_facts(facts: dict[str, Any]) -> None:
    """Prints the gateway's upstream, policy, budget, caps and so on, one line each."""
    if not facts["modes"]:
        print_fact("upstream", facts["upstream"] + (f", model {facts['model']}" if facts["model"] else ""))
    for name, mode in facts["modes"].items():
        prices = f"{mode['input_price']:g} and {mode['output_price']:g} a million tokens in and out"
        note = "; answers what can't be voted on" if mode["default"] and len(facts["modes"]) > 1 else ""
        print_fact(f"mode {name}", f"{mode['model']} at {mode['upstream']}, {prices}{note}")
    print_fact("policy", f"{facts['policy']} ({facts['kind']}, version {facts['version']})")
    if facts["foreign"]:
        print_fact("note", facts["foreign"])
    which = " that can be voted on" if facts["average"] == "voted" else ""
    source = ", as PATCH /admin/budget set it for the fleet" if facts["patched"] else ""
    print_fact("budget", f"{facts['budget_text']}{which}, on average{source}")
    if facts["quality_text"]:
        print_fact("quality", facts["quality_text"])
    if facts["shortfall"]:
        print_fact("warning", f"{facts['shortfall']}: every request gets one sample")
    if mode_text := _MODE_TEXTS[facts["mode"]]:
        print_fact("mode", mode_text)
    print_fact("caps", facts["caps"] or "none")
    for text in facts["spent"]:
        print_fact("spent", text)
    print_fact(
        "keys",
        format_count(facts["keys"], "key") if facts["keys"] else "none: open to everybody on this machine",
    )
    print_fact("state", facts["state"])
    if facts["record"]:
        share = f"; {facts['explore']:.2g} of requests are drawn to the end" if facts["explore"] > 0 else ""
        print_fact("record", f"{facts['record']}{share}")
    if facts["modes"] and facts["version"] == "in memory":
        pool = facts["record"]
        remedy = (
            f"`adacompute fit {pool} --policy {SEVERAL}` learns one" if pool else "record traffic (--record)"
        )
        print_fact("note", f"no policy was fitted, so plain cascades decide; {remedy}")
    for name in ("verifier", "dashboard", "playground"):
        if facts[name]:
            print_fact(name, facts[name])


def describe_state(settings: ServeConfig) -> str:
    """Returns where the gateway stores how much was spent: a Redis address or a file."""
    return f"{settings.redis}, fleet {settings.fleet}" if settings.redis else settings.state


def _describe_caps(settings: ServeConfig, currency: str) -> str | None:
    """Describes the caps in the settings; None if there are none."""
    from adacompute.serve.spending.ledger import (
        parse_cap,  # imported here, because other commands don't need the gateway
    )

    given = (("cap", settings.cap, "in all"), ("key_cap", settings.key_cap, "a key"))
    caps = [(parse_cap(place, value, settings.unit, currency), of) for place, value, of in given]
    parts = [f"{cap.amount:,g} {cap.currency or cap.unit} {of}" for cap, of in caps if cap is not None]
    if not parts:
        return None
    return ", ".join(parts) + ("" if settings.window == "ever" else f", each {settings.window}")


def _describe_spending(gateway: "Gateway") -> list[str]:
    """Describes what was spent so far: in total, and by each client key that has reached its cap."""
    ledger = gateway.resources.ledger
    caps, balance, lines = ledger.caps, ledger.account(), []
    for key, part in {"": balance, **balance.keys}.items():
        cap, amount = caps.for_key(key), part.total.amount_in(caps.unit)
        is_used_up = cap is not None and amount >= cap
        if cap is not None and amount and (is_used_up or not key):
            owner, end = f"key {key}: " if key else "", "; the cap is used up" if is_used_up else ""
            lines.append(f"{owner}{amount:,g} of {cap:,g} {caps.unit_name} spent{end}")
    return lines


_NO_ROUTE = (404, 405, 501)  # status codes from an upstream that has no such route
_CONFIG_SECTIONS = ("serve", "endpoint", "answers", "verifier")  # settings that the gateway uses


def show_config(config: Config, *, json: bool) -> None:
    """Prints the gateway's settings as TOML that can be loaded, or as JSON."""
    config = replace(
        config,
        endpoint=replace(
            config.endpoint,
            url=_mask_secrets(config.endpoint.url),
            headers=tuple(map(_mask_value, config.endpoint.headers)),
            query=tuple(map(_mask_value, config.endpoint.query)),
        ),
        verifier=replace(config.verifier, url=_mask_secrets(config.verifier.url)),
    )
    if json:
        print_json({name: asdict(getattr(config, name)) for name in _CONFIG_SECTIONS})
        return
    for text in format_toml(config).splitlines():
        print_line(text)


def format_toml(config: Config, sections: tuple[str, ...] = _CONFIG_SECTIONS) -> str:
    """Formats sections of the settings as TOML; loading the text gives the same settings."""
    lines: list[str] = []
    for name in sections:
        section = getattr(config, name)
        lines += ["", f"[{name}]"] if lines else [f"[{name}]"]
        hints = get_type_hints(type(section))
        for item in fields(section):
            value = getattr(section, item.name)
            meaning = _describe_setting(item, hints[item.name])
            lines.append(f"{item.name} = {_format_toml_value(value)}{meaning and f'  # {meaning}'}")
    return "\n".join(lines) + "\n"


def _mask_secrets(url: str) -> str:
    """Masks the parts of a URL that may be secret; the gateway refuses such URLs anyway.

    >>> _mask_secrets("http://me:sk-1@host/v1?key=sk-2")
    'http://***@host/v1?***'
    """
    return re.sub(r"\?.*", "?***", re.sub(r"//.*@", "//***@", url))


def _mask_value(pair: str) -> str:
    """Masks the value of a header or a parameter, which may be secret.

    >>> _mask_value("X-Token: sk-1"), _mask_value("key=sk-2")
    ('X-Token: ***', 'key=***')
    """
    return re.sub(r"([:=]\s*).*", r"\1***", pair, count=1)


def _describe_setting(item: Field[Any], hint: object) -> str:
    meaning: str = item.metadata["meaning"]
    # text that says what a default such as 0 means, e.g. "no limit"
    if special := item.metadata["default_text"]:
        value = "below 0" if item.default == -1 else _format_toml_value(item.default).removesuffix(".0")
        meaning = f"{meaning}; {value}: {special}"
    if get_origin(hint) is not Literal:
        return meaning
    choices = ", ".join(map(str, get_args(hint)))
    return f"{choices}; {meaning}" if meaning else choices


def _format_toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def check_gateway(config: Config) -> dict[str, Any]:
    """Opens the gateway as `serve` would, and closes it. Returns the facts to print, or raises an error."""
    from adacompute.serve.http import server  # imported here, because other commands don't need the gateway

    with asyncio.Runner(loop_factory=server.loop_factory()) as runner:
        # checked first, because everything else needs a working upstream
        models, error = runner.run(_list_models(config))
        check_policy_folder(config.serve.policy)
        return runner.run(_open_and_check(config)) | {"models": models, "models_error": error}


def check_policy_folder(folder: str) -> None:
    """Raises an error if the folder has no policy, e.g. because the user gave a name such as `stopping`."""
    if not folder or (Path(folder) / DOCUMENT).exists():
        return
    if folder == "stopping" and not Path(folder).exists():
        raise PolicyError(
            "policy 'stopping' is not a folder; leave --policy out for the one in the package, or give a "
            "folder that `adacompute fit` wrote"
        )
    named = f" ({folder} is a kind of policy)" if folder in POLICIES and not Path(folder).exists() else ""
    raise PolicyError(
        f"policy {folder!r} is not a policy's folder{named}; give one that `adacompute fit` wrote"
    )


def show_check(facts: dict[str, Any]) -> None:
    """Prints the result of --check for a gateway that can start."""
    is_used_up = any(text.endswith("used up") for text in facts["spent"])
    remark = "a cap is used up, and requests would be refused; otherwise " if is_used_up else ""
    print_line(f"{remark}ready to be served at {facts['url'] or 'any free port'}")
    print_line()
    show_facts(facts)
    models: list[str] = facts["models"]
    more = ", …" if len(models) > 8 else ""
    listed = f"{', '.join(models[:8])}{more}"
    print_fact("models", f"{len(models)}: {listed}" if models else "none listed")
    if facts["models_error"]:
        reason = shorten(facts["models_error"], 200)
        print_fact("note", f"the upstream doesn't list its models ({reason}): requests have to name one")
    elif facts["model"] and facts["model"] not in models:
        listing = f"lists {listed}; not" if models else "doesn't list"
        print_fact(
            "warning", f"the upstream {listing} {facts['model']}: requests may fail with 404; see --model"
        )
    if facts["verifier_error"]:
        print_fact("warning", f"the verifier gives no score ({shorten(facts['verifier_error'], 200)})")


async def _list_models(config: Config) -> tuple[list[str], str | None]:
    """Returns the upstream's models, and if it lists none, why. Raises EndpointError if it can't be used."""
    from adacompute.client.modes import build_mode_endpoints
    from adacompute.client.settings import build_endpoint

    if config.serve.menu:
        modes_file = read_modes_file(Path(config.serve.menu))
        for mode in build_mode_endpoints(modes_file):
            await _ask_for_models(mode.endpoint)
        return [EVERY_MODE, *modes_file.names] if len(modes_file.modes) > 1 else [
            modes_file.modes[0].endpoint.model
        ], None
    return await _ask_for_models(build_endpoint(config.endpoint, remedy="give --upstream URL"))


async def _ask_for_models(endpoint: "Endpoint") -> tuple[list[str], str | None]:
    from adacompute.client import Client
    from adacompute.client.forward import ForwardRequest

    async with Client(endpoint) as client:
        try:
            return await client.models(), None
        except EndpointError as exc:
            if exc.status not in _NO_ROUTE:
                raise
            empty = ForwardRequest(method="POST", path="/chat/completions", body=b"{}")
            async with client.forward(empty) as reply:  # an empty request is refused, so it costs nothing
                if reply.status in _NO_ROUTE:
                    raise
            return [], str(exc)


async def _open_and_check(config: Config) -> dict[str, Any]:
    from adacompute.serve.http import server, workers
    from adacompute.serve.routes.lifespan import open_gateway

    workers.check_redis(config)
    url = server.check_address(config)
    with _use_trial_files(config) as trial:
        async with open_gateway(trial) as gateway:
            facts = gather_facts(gateway, url)
            scorer = gateway.resources.scorer
            error = None if scorer is None else await _try_verifier(scorer.verifier)
    settings = config.serve
    facts |= {"state": describe_state(settings), "record": settings.record or None, "verifier_error": error}
    return facts if settings.port else facts | {"url": None, "dashboard": None, "playground": None}


async def _try_verifier(verifier: "Verifier") -> str | None:
    """Asks the verifier for a score; returns why this failed, or None if it worked."""
    question = "What is 1 + 1?"
    reply = await verifier.score(
        [{"role": "user", "content": question}], "The answer is 2.", "2", prompt=question
    )
    return None if reply.error is None else str(reply.error)


@contextlib.contextmanager
def _use_trial_files(config: Config) -> Iterator[Config]:
    """Yields settings that replace missing files with temporary ones, so that a check leaves no files."""
    with contextlib.ExitStack() as stack:
        trial = config.serve
        for name in ("record",) if trial.redis else ("state", "record"):
            path = Path(getattr(trial, name) or ".")
            if path.exists():
                continue
            with contextlib.suppress(OSError):  # if this fails, opening the file later reports the error
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(dir=path.parent, prefix=".adacompute-check-")
                )
                replacement: dict[str, Any] = {name: str(Path(folder) / path.name)}
                trial = replace(trial, **replacement)
        yield replace(config, serve=trial)


@dataclass(frozen=True, kw_only=True)
class UpstreamOptions(ConnectionOptions):
    """Options for the endpoint behind the gateway."""

    url: Annotated[
        str | None, build_option(EndpointConfig, "url", "--upstream", "--endpoint", metavar="URL")
    ] = None
    model: Annotated[
        str | None,
        build_option(
            EndpointConfig,
            "model",
            metavar="NAME",
            meaning="model for requests that name none, or name `default`",
            show_default=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Options that override the gateway's settings of the same names."""

    policy: Annotated[str | None, build_option(ServeConfig, "policy", metavar="DIR")] = None
    budget: Annotated[str | None, build_option(ServeConfig, "budget", metavar="B")] = None
    average: Annotated[str | None, build_option(ServeConfig, "average")] = None
    host: Annotated[str | None, build_option(ServeConfig, "host")] = None
    port: Annotated[int | None, build_option(ServeConfig, "port", metavar="N")] = None
    workers: Annotated[int | None, build_option(ServeConfig, "workers", metavar="N")] = None
    keys_file: Annotated[Path | None, build_option(ServeConfig, "keys_file", "--keys", metavar="FILE")] = None
    cap: Annotated[str | None, build_option(ServeConfig, "cap", metavar="N", parser=parse_total)] = None
    key_cap: Annotated[str | None, build_option(ServeConfig, "key_cap", metavar="N", parser=parse_total)] = (
        None
    )
    unit: Annotated[str | None, build_option(ServeConfig, "unit")] = None
    window: Annotated[str | None, build_option(ServeConfig, "window")] = None
    margin: Annotated[float | None, build_option(ServeConfig, "margin", metavar="POINTS")] = None
    mode: Annotated[str | None, build_option(ServeConfig, "mode")] = None
    price: Annotated[float | None, build_option(ServeConfig, "price", metavar="DIAL")] = None
    max_rounds: Annotated[int | None, build_option(ServeConfig, "max_rounds", metavar="N")] = None
    max_samples: Annotated[int | None, build_option(ServeConfig, "max_samples", metavar="N")] = None
    min_agreement: Annotated[float | None, build_option(ServeConfig, "min_agreement", metavar="SHARE")] = None
    weak: Annotated[str | None, build_option(ServeConfig, "weak")] = None
    stream_mode: Annotated[str | None, build_option(ServeConfig, "stream_mode")] = None
    record: Annotated[Path | None, build_option(ServeConfig, "record", metavar="POOL")] = None
    explore: Annotated[float | None, build_option(ServeConfig, "explore", metavar="SHARE")] = None
    state: Annotated[Path | None, build_option(ServeConfig, "state", metavar="FILE")] = None
    redis: Annotated[str | None, build_option(ServeConfig, "redis", metavar="URL")] = None
    fleet: Annotated[str | None, build_option(ServeConfig, "fleet", metavar="NAME")] = None
    concurrency: Annotated[int | None, build_option(ServeConfig, "concurrency", metavar="N")] = None
    cached_price: Annotated[float | None, build_option(ServeConfig, "cached_price", metavar="MONEY")] = None
    tls_cert: Annotated[Path | None, build_option(ServeConfig, "tls_cert", metavar="FILE")] = None
    tls_key: Annotated[Path | None, build_option(ServeConfig, "tls_key", metavar="FILE")] = None
    log: Annotated[str | None, build_option(ServeConfig, "log")] = None
    cors: Annotated[list[str] | None, build_option(ServeConfig, "cors", metavar="ORIGIN")] = None
    otel: Annotated[str | None, build_option(ServeConfig, "otel", metavar="URL")] = None
    playground: Annotated[
        bool | None, build_option(ServeConfig, "playground", "--playground/--no-playground")
    ] = None


ShowConfigFlag = Annotated[
    bool, typer.Option("--show-config", help="Print all settings in effect as TOML, and exit.")
]
CheckFlag = Annotated[
    bool, typer.Option("--check", help="Check that the gateway can start and reach the endpoint, and exit.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings file (TOML). [default: adacompute.toml]"),
]


def serve(
    context: typer.Context,
    *,
    upstream: UpstreamOptions,
    modes_file: GatewayModesOption = None,
    gateway: ServeOptions,
    verifier: VerifierOptions,
    reading: AnswerOptions,
    file: ConfigOption = None,
    show: ShowConfigFlag = False,
    check: CheckFlag = False,
    json: JsonFlag = False,
) -> None:
    """Serve an OpenAI-compatible gateway that answers by vote.

    Give its URL, with /v1, to an OpenAI client as base_url. It asks the endpoint for as many
    samples per request as --budget says, on average. SIGTERM or Ctrl-C finishes open requests and exits with
    0; a second one stops at once. SIGHUP reloads the policies and the budget. Options can also be set in
    adacompute.toml.
    """

    def read_settings() -> Config:
        base = load_settings(context) if file is None else load_config(file)
        flags = {**get_flags(upstream), "--cached-price": gateway.cached_price}
        chosen = choose_modes_file(modes_file, base.serve, flags)
        return replace(
            base,
            serve=override_section(base.serve, **{SEVERAL: chosen}, **get_given(gateway)),
            endpoint=upstream.override(base.endpoint),
            answers=override_section(base.answers, **get_given(reading)),
            verifier=verifier.override(base.verifier),
        )

    forget_metrics_folder()
    config = read_settings()
    if show:
        show_config(config, json=json)
    elif check:
        with _configure_logging(config):
            facts = check_gateway(config)
        print_json(facts) if json else show_check(facts)
    else:
        _run_gateway(config, read_settings, json=json)


def _run_gateway(config: Config, reread: Callable[[], Config], *, json: bool) -> None:
    from adacompute.serve.http import (  # imported here, because other commands don't need the gateway
        server,
        workers,
    )

    gateways: list[Gateway] = []

    def announce(url: str) -> None:
        facts = gather_facts(gateways[0], url)
        if json:
            keys = ("url", "policy", "budget", "budget_unit", "dashboard")
            print_json({"pid": os.getpid()} | {name: facts[name] for name in keys})
        else:
            show_started(facts)

    check_policy_folder(config.serve.policy)
    with _configure_logging(config):
        serve = workers.serve if config.serve.workers > 1 else server.serve
        serve(config, on_listening=announce, on_open=gateways.append, reread=reread)


def _configure_logging(config: Config) -> AbstractContextManager[None]:
    """Returns a context in which logs go to stderr, with all known keys masked."""
    from adacompute.serve.watching.logs import collect_secrets, log_to

    settings = config.serve
    keys = read_keys(Path(settings.keys_file)) if settings.keys_file else ()
    secrets = collect_secrets(config, keys)
    return log_to(sys.stderr, level=settings.log, secrets=secrets, shared=settings.workers > 1)
