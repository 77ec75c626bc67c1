"""`adacompute menu check`: one short question to every mode of a menu, and what it took."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from adacompute.answers import Task, extract_answer
from adacompute.cli.options import JsonFlag, load_settings
from adacompute.cli.sampling_options import SamplingOptions, warn_exposure
from adacompute.cli.terminal import (
    format_fixed,
    format_path,
    print_json,
    print_line,
    print_message,
    print_table,
)
from adacompute.client.modes import ModeEndpoint, build_mode_endpoint
from adacompute.config import CollectConfig, MenuConfig, ModeConfig, read_menu_file
from adacompute.errors import ConfigError, shorten
from adacompute.problems import Template
from adacompute.records import Problem, format_money
from adacompute.sampling import Asking, build_plan
from adacompute.sampling.mode_check import ModeCheck, check_modes

__all__ = ["menu"]

_PROBLEM = Problem(id="check", question="What is 2 + 3? Answer with the number only.")
_SHOWN_TEXT = 24  # characters of an answer


class MenuAction(StrEnum):
    check = "check"


ActionArgument = Annotated[
    MenuAction, typer.Argument(metavar="check", help="Ask each mode one short question.", show_default=False)
]
MenuArgument = Annotated[
    Path, typer.Argument(metavar="MENU", help="The modes, a table each (TOML).", show_default=False)
]
SecondsOption = Annotated[
    float,
    typer.Option("--timeout", min=0.1, max=3600, metavar="SECONDS", help="Time for a mode, at most."),
]


def menu(
    context: typer.Context,
    action: ActionArgument,  # noqa: ARG001 - the only one there is
    path: MenuArgument,
    seconds: SecondsOption = 60.0,
    json: JsonFlag = False,
) -> None:
    """Ask each mode of a menu one question, and show what it cost.

    The modes are asked as `collect --menu` asks them, with their keys, options and limits. Exits with 1
    where one of them can't be used. What it cost is real: it is a few tokens of each mode.
    """
    config = load_settings(context)
    modes = read_menu_file(path)
    asked, checks = _plan_checks(modes, config.collect)
    for check in check_modes(asked, _PROBLEM, seconds=seconds):
        checks[check.name] = check
    ordered = [checks[name] for name in modes.names]
    if json:
        print_json(_build_object(path, modes, ordered))
    else:
        _show_checks(modes, ordered)
    if not all(check.ok for check in ordered):
        raise typer.Exit(1)


def _plan_checks(
    menu: MenuConfig, settings: CollectConfig
) -> tuple[list[tuple[ModeEndpoint, Asking]], dict[str, ModeCheck]]:
    """How each mode is asked; a mode that can't be asked, such as one without its key, has failed already."""
    sampling = SamplingOptions().build_parameters(settings)
    modes, failed = [], {}
    for mode in menu.modes:
        try:
            asked = build_mode_endpoint(mode)
        except ConfigError as exc:
            reason = str(exc).removeprefix(f"mode {mode.name!r}: ")
            failed[mode.name] = _build_failed_check(mode, reason)
            continue
        warn_exposure(asked.endpoint)
        template = Template.named("plain")
        plan = build_plan(asked, template=template, sampling=sampling, limit_is_default=True)
        modes.append((asked, plan.asking))
    return modes, failed


def _build_failed_check(mode: ModeConfig, reason: str) -> ModeCheck:
    return ModeCheck(name=mode.name, model=mode.endpoint.model, host="–", error=reason)


def _show_checks(menu: MenuConfig, checks: list[ModeCheck]) -> None:
    """Show a row for each mode, then what failed and why."""
    money = [f"cost, {menu.currency}", "ratio"] if menu.has_prices else []
    headings = ["mode", "model", "upstream", "status", "answer", "tokens in", "tokens out", "log-probs"]
    print_table([*headings, "seconds", *money], [_build_row(menu, check, checks) for check in checks])
    if menu.has_prices:
        total = format_money(sum(check.cost for check in checks))
        print_line(f"Together {total} {menu.currency}; ratio: to the cheapest of these answers.")
    else:
        print_line("The menu has no prices; give input_price and output_price in its tables.")
    for check in checks:
        if not check.ok:
            print_message(f"mode {check.name}: {check.error}")


def _build_row(menu: MenuConfig, check: ModeCheck, checks: list[ModeCheck]) -> list[str]:
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
    """The answer that the text states, else its beginning."""
    if not check.text:
        return None
    return shorten(extract_answer(check.text, Task()) or " ".join(check.text.split()), _SHOWN_TEXT)


def _format_tokens(tokens: int | None, part: int | None, noun: str) -> str:
    if tokens is None:
        return "–"
    return f"{tokens:,} ({part:,} {noun})" if part else f"{tokens:,}"


def _compute_ratio(check: ModeCheck, checks: list[ModeCheck]) -> float | None:
    """What a mode's answer cost, as a multiple of the cheapest one's; None where that isn't known."""
    cheapest = min((each.cost for each in checks if each.ok and each.cost > 0), default=0.0)
    return check.cost / cheapest if check.ok and check.cost > 0 and cheapest > 0 else None


def _build_object(path: Path, menu: MenuConfig, checks: list[ModeCheck]) -> dict[str, Any]:
    names = [
        *("model", "host", "ok", "error", "text", "logprobs", "seconds", "cost"),
        *("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens"),
    ]
    return {
        "menu": format_path(path),
        "currency": menu.currency,
        "ok": all(check.ok for check in checks),
        "cost": sum(check.cost for check in checks),
        "modes": {
            check.name: {
                **{name: getattr(check, name) for name in names},
                "answer": _find_answer(check),
                "ratio": _compute_ratio(check, checks),
            }
            for check in checks
        },
    }
