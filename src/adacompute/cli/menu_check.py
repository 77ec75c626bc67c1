"""`adacompute menu check`: asks each mode a short question, and shows its tokens and cost."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import typer

from adacompute.answers import Task, extract_answer
from adacompute.cli.options import JsonFlag, load_settings
from adacompute.cli.sampling_options import GenerationOptions, warn_exposure
from adacompute.cli.terminal import (
    format_fixed,
    format_path,
    print_json,
    print_line,
    print_message,
    print_table,
)
from adacompute.client import LIMIT_NAME, LOGPROBS, Client
from adacompute.client.modes import ModeConfigs, build_mode_endpoint, read_modes_file
from adacompute.client.settings import ModeEndpoint
from adacompute.errors import ConfigError, EndpointError, shorten
from adacompute.problems import Template
from adacompute.records import Call, Problem, TokenPrices, format_money
from adacompute.sampling import Asking, build_plan
from adacompute.sampling.collect import run_coroutine

_PROBLEM = Problem(id="check", question="What is 2 + 3? Answer with the number only.")
_PUZZLE = Problem(
    id="effort",
    question="How many three-digit numbers have digits that add up to 9? Answer with the number only.",
)
_EFFORTS = (  # request options that set how much a model reasons
    *("reasoning_effort", "reasoning", "thinking", "enable_thinking", "thinking_budget", "extra_body"),
    *("thinking_token_budget", "chat_template_kwargs", "custom_params"),
)
_ALIKE = 1.5  # two token counts that differ by at most this factor count as equal
_SHOWN_TEXT = 24  # maximum number of characters shown of an answer
# keys that lead to the number of reasoning tokens in a reply's usage
_REASONING = ("completion_tokens_details", "reasoning_tokens")
_ATTEMPTS = 2  # maximum number of attempts to get a reply


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeCheck:
    """The result of asking a mode one question."""

    name: str
    model: str
    host: str  # host and port of the upstream
    error: str | None = None  # why the mode can't be used; None if it answered
    text: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # cached tokens in the prompt; None if not reported
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None  # reasoning tokens in the response; None if not reported
    logprobs: bool | None = None  # whether the reply had log-probabilities; None without a reply
    seconds: float = 0.0
    cost: float = 0.0  # cost of all calls, in the currency of the menu file
    finished: bool | None = None  # False if the response was cut off at max_tokens; None if unknown

    @property
    def ok(self) -> bool:
        """Whether the mode can be used."""
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffortCheck:
    """The effect of a mode's reasoning options, seen in one answer with and one answer without them."""

    mode: str
    options: tuple[str, ...]
    tokens: int | None  # number of tokens in the answer with reasoning options; None if there is no answer
    tokens_without: int | None
    # whether the token counts above are of reasoning tokens only, not of all output tokens
    counts_thought: bool
    is_cut: bool  # whether both answers were cut off at max_tokens
    cost: float  # cost of both answers, in the currency of the menu file

    @property
    def makes_difference(self) -> bool | None:
        """Whether the reasoning options changed the amount of reasoning; None if unknown."""
        if self.tokens is None or self.tokens_without is None or self.is_cut:
            return None
        least, most = sorted((self.tokens, self.tokens_without))
        return most > _ALIKE * least

    def __str__(self) -> str:
        given, bare = (
            "no" if count is None else f"{count:,}" for count in (self.tokens, self.tokens_without)
        )
        what = "of thought" if self.counts_thought else "out"
        unknown = ": what they change can't be told" + ("; give more max_tokens" if self.is_cut else "")
        end = {True: "", False: ": they change nothing", None: unknown}[self.makes_difference]
        return f"mode {self.mode}: {given} tokens {what} with {', '.join(self.options)}, {bare} without{end}"


ActionArgument = Annotated[
    Literal["check"],
    typer.Argument(metavar="check", help="Ask each mode one short question.", show_default=False),
]
MenuArgument = Annotated[
    Path, typer.Argument(metavar="MENU", help="Menu file (TOML): a table for each mode.", show_default=False)
]
SecondsOption = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="Time limit for each mode."),
]


def menu(
    context: typer.Context,
    action: ActionArgument,  # noqa: ARG001 - the only one there is
    path: MenuArgument,
    seconds: SecondsOption = 60.0,
    json: JsonFlag = False,
) -> None:
    """Check a menu: ask each mode one question, and show what it cost.

    Modes are asked as by `collect --menu`, with their keys, options and limits, which costs real money.
    Exits with 1 if a mode can't be used. A mode with reasoning options is also asked a harder question, once
    with these options and once without.
    """
    config = load_settings(context)
    modes = read_modes_file(path)
    sampling = GenerationOptions().build_parameters(config.collect)
    asked, checks = _plan_checks(modes, sampling)
    for check in check_modes(asked, _PROBLEM, seconds=seconds):
        checks[check.name] = check
    ordered = [checks[name] for name in modes.names]
    efforts = check_efforts([mode for mode, _ in asked if checks[mode.name].ok], sampling, seconds=seconds)
    if json:
        print_json(_build_object(path, modes, ordered, efforts))
    else:
        _show_checks(modes, ordered, efforts)
    if not all(check.ok for check in ordered):
        raise typer.Exit(1)


def _plan_checks(
    menu: ModeConfigs, sampling: Mapping[str, Any]
) -> tuple[list[tuple[ModeEndpoint, Asking]], dict[str, ModeCheck]]:
    """Builds each mode's request, or a failed check if the mode can't be asked, e.g. without a key."""
    modes, failed = [], {}
    for mode in menu.modes:
        try:
            asked = build_mode_endpoint(mode)
        except ConfigError as exc:
            reason = str(exc).removeprefix(f"mode {mode.name!r}: ")
            model = mode.endpoint.model
            failed[mode.name] = ModeCheck(name=mode.name, model=model, host="–", error=reason)
            continue
        warn_exposure(asked.endpoint)
        modes.append((asked, _plan_asking(asked, sampling)))
    return modes, failed


def _plan_asking(mode: ModeEndpoint, sampling: Mapping[str, Any]) -> Asking:
    return build_plan(mode, template=Template.named("plain"), sampling=sampling, limit_is_default=True).asking


def _show_checks(menu: ModeConfigs, checks: list[ModeCheck], efforts: Sequence[EffortCheck]) -> None:
    """Shows a table of the modes, the effect of their reasoning options, and why modes failed."""
    money = [f"cost, {menu.currency}", "ratio"] if menu.has_prices else []
    headings = ["mode", "model", "upstream", "status", "answer", "tokens in", "tokens out", "log-probs"]
    print_table([*headings, "seconds", *money], [_build_row(menu, check, checks) for check in checks])
    if menu.has_prices:
        total = format_money(_sum_costs(checks, efforts))
        print_line(f"Together {total} {menu.currency}; ratio: to the cheapest of these answers.")
    else:
        print_line("The menu has no prices; give input_price and output_price in its tables.")
    for effort in efforts:
        print_line(str(effort))
    for check in checks:
        if not check.ok:
            print_message(f"mode {check.name}: {check.error}")


def _build_row(menu: ModeConfigs, check: ModeCheck, checks: list[ModeCheck]) -> list[str]:
    cells = [check.name, check.model, check.host, "ok" if check.ok else "failed", _find_answer(check) or "–"]
    cells.append(_format_tokens(check.prompt_tokens, check.cached_tokens, "cached"))
    cells.append(_format_tokens(check.completion_tokens, check.reasoning_tokens, "reasoning"))
    cells.append({True: "yes", False: "no", None: "–"}[check.logprobs])
    cells.append(f"{check.seconds:.1f}")
    if menu.has_prices:
        ratio = _compute_ratio(check, checks)
        cells += [format_money(check.cost), "–" if ratio is None else format_fixed(ratio, digits=3)]
    return cells


def _find_answer(check: ModeCheck) -> str | None:
    """Extracts the answer from the response; if there is none, returns the beginning of the text."""
    if not check.text:
        return None
    return shorten(extract_answer(check.text, Task()) or " ".join(check.text.split()), _SHOWN_TEXT)


def _format_tokens(tokens: int | None, part: int | None, noun: str) -> str:
    if tokens is None:
        return "–"
    return f"{tokens:,} ({part:,} {noun})" if part else f"{tokens:,}"


def _compute_ratio(check: ModeCheck, checks: list[ModeCheck]) -> float | None:
    """Returns how many times as much a mode's answer cost as the cheapest mode's answer; None if unknown."""
    cheapest = min((each.cost for each in checks if each.ok and each.cost > 0), default=0.0)
    return check.cost / cheapest if check.ok and check.cost > 0 and cheapest > 0 else None


def _sum_costs(checks: Sequence[ModeCheck], efforts: Sequence[EffortCheck]) -> float:
    return sum(check.cost for check in checks) + sum(effort.cost for effort in efforts)


def _build_object(
    path: Path, menu: ModeConfigs, checks: list[ModeCheck], efforts: Sequence[EffortCheck]
) -> dict[str, Any]:
    return {
        "menu": format_path(path),
        "currency": menu.currency,
        "ok": all(check.ok for check in checks),
        "cost": _sum_costs(checks, efforts),
        "efforts": [{**asdict(effort), "changed": effort.makes_difference} for effort in efforts],
        "modes": {
            check.name: {
                **asdict(check),
                "ok": check.ok,
                "answer": _find_answer(check),
                "ratio": _compute_ratio(check, checks),
            }
            for check in checks
        },
    }


def check_modes(
    modes: Sequence[tuple[ModeEndpoint, Asking]], problem: Problem, *, seconds: float
) -> tuple[ModeCheck, ...]:
    """Asks all modes the same question in parallel, as `collect` would."""

    async def check_all() -> tuple[ModeCheck, ...]:
        return tuple(
            await asyncio.gather(*(_check_mode(mode, asking, problem, seconds) for mode, asking in modes))
        )

    return run_coroutine(check_all())


def check_efforts(
    modes: Sequence[ModeEndpoint], sampling: Mapping[str, Any], *, seconds: float
) -> tuple[EffortCheck, ...]:
    """Asks modes with reasoning options a harder question, once with these options and once without."""
    pairs = []
    for mode in modes:
        others = {name: value for name, value in mode.options.items() if name not in _EFFORTS}
        if len(others) < len(mode.options):
            pairs += [(each, _plan_asking(each, sampling)) for each in (mode, replace(mode, options=others))]
    checks = check_modes(pairs, _PUZZLE, seconds=seconds)
    return tuple(
        _compare_efforts(mode, *answers)
        for (mode, _), *answers in zip(pairs[::2], checks[::2], checks[1::2], strict=True)
    )


def _compare_efforts(mode: ModeEndpoint, *answers: ModeCheck) -> EffortCheck:
    """Compares the tokens of an answer with reasoning options to those of an answer without."""
    counts_thought = any(answer.reasoning_tokens for answer in answers)
    counts = [
        answer.reasoning_tokens or 0
        if counts_thought and answer.completion_tokens is not None
        else answer.completion_tokens
        for answer in answers
    ]
    return EffortCheck(
        mode=mode.name,
        options=tuple(name for name in mode.options if name in _EFFORTS),
        tokens=counts[0],
        tokens_without=counts[1],
        counts_thought=counts_thought,
        is_cut=all(answer.finished is False for answer in answers),
        cost=sum(answer.cost for answer in answers),
    )


async def _check_mode(mode: ModeEndpoint, asking: Asking, problem: Problem, seconds: float) -> ModeCheck:
    retries, start = mode.endpoint.retries, time.monotonic()
    endpoint = replace(mode.endpoint, retries=replace(retries, attempts=min(retries.attempts, _ATTEMPTS)))
    blank = ModeCheck(name=mode.name, model=mode.model, host=urlsplit(mode.endpoint.url).netloc)
    async with Client(endpoint) as client:
        try:
            reply = await client.call(asking.body(problem), optional=LOGPROBS | LIMIT_NAME, deadline=seconds)
        except EndpointError as exc:
            cost = sum(_compute_call_cost(mode, call) for call in exc.calls)
            return replace(blank, error=str(exc), seconds=time.monotonic() - start, cost=cost)
    response, calls = reply.responses[0], [call for call in reply.calls if call.paid == "yes"]
    return replace(
        blank,
        error=None if response.text.strip() else _explain_no_text(response.finished, response.tokens),
        text=response.text.strip(),
        prompt_tokens=_sum_known([call.prompt_tokens for call in calls]),
        cached_tokens=_sum_known([call.cached_tokens for call in calls]),
        completion_tokens=_sum_known([call.completion_tokens for call in calls]),
        reasoning_tokens=_sum_known([_read_reasoning(call) for call in calls]),
        logprobs=response.logprob is not None,
        finished=response.finished,
        seconds=time.monotonic() - start,
        cost=sum(_compute_call_cost(mode, call) for call in calls),
    )


def _explain_no_text(finished: bool | None, tokens: int | None) -> str:
    if finished is False:
        return f"no text after {tokens or 0:,} tokens, the limit; raise max_tokens in its options"
    return "no text in its response; check its model and options"


def _read_reasoning(call: Call) -> int | None:
    tokens = call.usage_details.get(_REASONING)
    return None if tokens is None else int(tokens)


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _compute_call_cost(mode: ModeEndpoint, call: Call) -> float:
    """Computes the cost of one call; cached prompt tokens have their own price."""
    if call.paid == "no":
        return 0.0
    prompt, cached = call.prompt_tokens or 0, min(call.cached_tokens or 0, call.prompt_tokens or 0)
    full = mode.prices.cost(prompt - cached, call.completion_tokens or 0)
    cached_price = mode.prices.input if mode.cached_price is None else mode.cached_price
    return full + TokenPrices(input=cached_price).cost(cached, 0)
