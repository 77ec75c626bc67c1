"""`adacompute ask`: answers one prompt by a vote over as many samples as are worth their cost."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.cli.modes import SEVERAL, GatewayModesOption, choose_modes_file
from adacompute.cli.options import (
    ConnectionOptions,
    ExtractOption,
    JsonFlag,
    VerifierOptions,
    build_option,
    get_flags,
    load_settings,
    override_section,
)
from adacompute.cli.terminal import format_count, format_fixed, print_json, print_line, print_message
from adacompute.client.modes import build_mode_endpoints, read_modes_file
from adacompute.client.settings import build_endpoint, describe_key_exposure
from adacompute.config import Config, ServeConfig
from adacompute.records import Budget, BudgetUnit, names_quality
from adacompute.serve.ask.asker import Asker, write_budget
from adacompute.serve.ask.prompt_engine import Reply

_STDIN = "-"
# names of the gateway's settings that `adacompute ask` uses too
_SETTINGS = (
    *("policy", "price", "cached_price", "deadline", "max_rounds", "max_samples", "margin", "min_agreement"),
    *("weak", "vote", "vote_tools", "vote_json", "vote_pattern"),
)

PromptArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROMPT", help="The prompt, or - for stdin. Put -- before a prompt that begins with -."
    ),
]
BudgetOption = Annotated[
    str | None,
    build_option(
        ServeConfig,
        "budget",
        meaning="average cost per prompt: samples, or e.g. '500 tokens', '2 USD per 1000'",
        metavar="B",
    ),
]
UnitOption = Annotated[
    BudgetUnit | None,
    build_option(ServeConfig, "unit", "--unit", meaning="unit of --budget if it is a bare number"),
]
PolicyOption = Annotated[str | None, build_option(ServeConfig, "policy", metavar="DIR")]
DeadlineOption = Annotated[
    float | None, build_option(ServeConfig, "deadline", meaning="time limit in seconds", metavar="SECONDS")
]
SystemOption = Annotated[str | None, typer.Option(metavar="TEXT", help="A system message before the prompt.")]
MaxTokensOption = Annotated[
    int | None, typer.Option(min=1, help="Most tokens per response. [default: the endpoint's]")
]
TemperatureOption = Annotated[
    float | None, typer.Option(min=0, max=2, help="Sampling temperature. [default: the endpoint's]")
]


def ask(
    context: typer.Context,
    *,
    prompt: PromptArgument,
    endpoint: ConnectionOptions,
    modes_file: GatewayModesOption = None,
    budget: BudgetOption = None,
    unit: UnitOption = None,
    policy: PolicyOption = None,
    system: SystemOption = None,
    max_tokens: MaxTokensOption = None,
    temperature: TemperatureOption = None,
    extract: ExtractOption = None,
    deadline: DeadlineOption = None,
    verifier: VerifierOptions,
    json: JsonFlag = False,
) -> None:
    """Answer one prompt by a vote over several samples.

    Prints the text that won, then a line with the votes and the cost. Stops sampling once another sample
    isn't worth its cost. A prompt without an answer to vote on, such as for a story, gets one sample.
    """
    text, settings = _read_prompt(prompt), load_settings(context)
    upstream = endpoint.override(settings.endpoint)
    file = choose_modes_file(modes_file, settings.serve, get_flags(endpoint))
    modes = read_modes_file(Path(file)) if file else None
    if modes is not None:
        upstream = replace(upstream, currency=modes.currency)
        upstreams = [mode.endpoint for mode in build_mode_endpoints(modes)]
    else:
        upstreams = [build_endpoint(upstream)]
    for warning in dict.fromkeys(map(describe_key_exposure, upstreams)):
        if warning is not None:
            print_message(warning)
    wanted = settings.serve.budget if budget is None else budget
    if modes is not None and modes.budget and wanted == ServeConfig().budget:
        wanted = modes.budget
    average, most = str(wanted), settings.serve.max_budget
    if not names_quality(wanted):
        parsed = Budget.parse(wanted, unit=unit or settings.serve.unit, currency=upstream.currency)
        average = most = write_budget(parsed)
    kept: dict[str, Any] = {name: getattr(settings.serve, name) for name in _SETTINGS}
    serve = ServeConfig(**(kept | {SEVERAL: file}), budget=average, max_budget=most)
    serve = override_section(serve, policy=policy, deadline=deadline)
    config = Config(
        answers=settings.answers,
        endpoint=upstream,
        serve=serve,
        verifier=verifier.override(settings.verifier),
    )
    with Asker.from_config(config, endpoint=None if file else upstreams[0]) as asker:
        reply = asker.ask(
            text, system=system, max_tokens=max_tokens, temperature=temperature, extract=extract
        )
    if not file and upstream.model and reply.model != upstream.model:
        print_message(f"the endpoint answered as {reply.model}, not as {upstream.model}; see --model")
    if json:
        print_json(reply.to_dict())
    else:
        _show_reply(reply, upstream.currency)


def _read_prompt(prompt: str) -> str:
    if prompt != _STDIN:
        return prompt
    text = "" if sys.stdin is None else sys.stdin.read().strip()
    if not text:
        raise typer.BadParameter("stdin has no prompt; pipe one in, or write it here", param_hint="PROMPT")
    return text


def _show_reply(reply: Reply, currency: str) -> None:
    for line in (reply.text or "").splitlines():
        print_line(line)
    print_line()
    print_line(_describe_reply(reply, currency))


def _describe_reply(reply: Reply, currency: str) -> str:
    """Describes the vote and its cost in one line.

    >>> reply = Reply(text="It is 4.", answer="4", votes={"5": 1, "4": 2}, samples=3, tokens=60)
    >>> _describe_reply(reply, "USD")
    '4: 2 of 3 votes (5: 1), 3 samples, 60 tokens'
    """
    parts = [format_count(reply.samples, "sample"), format_count(reply.tokens, "token")]
    if reply.modes:
        parts[0] += f" ({', '.join(f'{mode}: {count}' for mode, count in reply.modes.items())})"
    if reply.cost is not None:
        parts.append(f"{format_fixed(reply.cost)} {currency}")
    if reply.answer is not None:
        votes = dict(reply.votes)
        cast, won = sum(votes.values()), votes.pop(reply.answer, 0)
        others = f" ({', '.join(f'{answer}: {count}' for answer, count in votes.items())})" if votes else ""
        parts.insert(0, f"{reply.answer}: {won} of {format_count(cast, 'vote')}{others}")
    return "; ".join([", ".join(parts), *reply.notes])
