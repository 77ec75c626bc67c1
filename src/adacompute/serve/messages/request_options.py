"""What a request asks of the gateway itself: in its body's field `adacompute`, and in x-adacompute- headers.

Neither goes upstream. Where an option is given in both places, the header wins, as it wins over a budget in
the model's name. An unknown option is an error, not dropped silently.
"""

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from adacompute.answers.task import EXTRACTORS
from adacompute.config import ServeConfig, parse_serve_budgets
from adacompute.errors import BudgetInvalid, RequestInvalid, format_value
from adacompute.records import Budget, BudgetUnit, quick_dataclass

__all__ = [
    "HEADER_PREFIX",
    "NO_OPTIONS",
    "OPTIONS_FIELD",
    "RequestOptions",
    "add_header_options",
    "find_max_budget",
    "get_header",
    "read_body_options",
]

OPTIONS_FIELD = "adacompute"
HEADER_PREFIX = "x-adacompute-"

StreamMode = Literal["", "wait", "first"]

_MAX_NAMES = 32  # entries of `exclude` and `fields`
_MAX_NAME = 200  # characters of one of them, and of a JSON field
_MAX_PATTERN = 300  # characters of a client's own regular expression
_MAX_POLICY = 200  # characters of a policy's name
_DECIMAL = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@quick_dataclass(frozen=True, slots=True, kw_only=True)
class RequestOptions:
    """What one request asks of the gateway; what is empty is as the operator set it."""

    budget: Budget | None = None  # on average
    policy: str = ""  # its name
    modes: tuple[str, ...] = ()  # of the menu that may be drawn from; (): all
    mode: Literal["", "pass"] = ""
    deadline: float | None = None  # seconds
    extract: str = ""  # as of a Task, or "none": its samples are not voted on
    exclude: tuple[str, ...] = ()  # fields of JSON, and arguments of tools, that don't count in a vote
    fields: tuple[str, ...] = ()  # fields of JSON that alone count
    stream_mode: StreamMode = ""  # wait for the vote, or stream the first sample as it comes


NO_OPTIONS = RequestOptions()  # of most bodies


def read_body_options(value: object, settings: ServeConfig) -> RequestOptions:
    """The options in a body's field; RequestInvalid if one can't be followed. Null counts as absent.

    Messages name the limits of `settings`.
    """
    if value is None:
        return NO_OPTIONS
    if not isinstance(value, dict):
        raise RequestInvalid(
            f"{OPTIONS_FIELD} is {format_value(value)}; give an object with any of {_list_names()}",
            param=OPTIONS_FIELD,
        )
    checked: dict[str, Any] = {}
    for name, option in value.items():
        place = f"{OPTIONS_FIELD}.{name[:60]}"
        if name not in _CHECKS:
            raise RequestInvalid(f"{place} is not known; known are {_list_names()}", param=place)
        if option is not None:
            checked[name] = _CHECKS[name](option, place, settings)
    return _check_together(RequestOptions(**checked))


def add_header_options(
    options: RequestOptions, headers: Mapping[str, str], settings: ServeConfig
) -> RequestOptions:
    """The options with those in headers, which win; RequestInvalid if one can't be followed.

    Names in `headers` are in lower case.
    """
    checked: dict[str, Any] = {}
    for header, text in headers.items():
        if not header.startswith(HEADER_PREFIX):
            continue
        name = _NAMES.get(header)
        if name is None:
            raise RequestInvalid(
                f"the header {header[:60]!r} is not known; known are {', '.join(_NAMES)}", param=header[:60]
            )
        if name in checked:  # some mappings of headers list repeated ones
            raise RequestInvalid(f"the header {header} is given twice; give it once", param=header)
        checked[name] = _CHECKS[name](_parse_header(name, text.strip()), header, settings)
    if not checked:
        return options
    # `replace` takes twice as long as a new record
    merged = RequestOptions(**checked) if options is NO_OPTIONS else replace(options, **checked)
    return _check_together(merged)


def get_header(name: str) -> str:
    """The header of an option."""
    return HEADER_PREFIX + name.replace("_", "-")


def _parse_header(name: str, text: str) -> object:
    """A header's text as the value that a body would have."""
    if name in ("budget", "deadline"):  # `float` would also accept nan, 1_000 and digits of other scripts
        return float(text) if _DECIMAL.fullmatch(text) else text
    if name in ("exclude", "fields", "modes"):
        return [part.strip() for part in text.split(",")]
    return text


def _check_together(options: RequestOptions) -> RequestOptions:
    if options.fields and options.extract.startswith("json:"):
        raise RequestInvalid(
            f"extract is {options.extract[:60]!r}, and fields are given too; give one of them", param="fields"
        )
    return options


def _list_names() -> str:
    return ", ".join(_CHECKS)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]  # a number here


_MAX_BUDGET_TEXT = 60  # characters of a budget
_DEFAULT_MAX_SAMPLES = 16.0  # where max_budget is in another unit
_MAX_FACTOR = 8.0  # of the gateway's own budget, where max_budget is in another unit


def find_max_budget(settings: ServeConfig, unit: BudgetUnit) -> Budget | None:
    """The most that a request may ask for in a unit; None: it may not ask for a budget in that unit.

    That is max_budget if it is in that unit. Else it may ask for 8 times the gateway's own budget, if that is
    in the unit, and for 16 samples.
    """
    own, most = parse_serve_budgets(settings)
    if most.unit == unit:
        return most
    if own.unit == unit:
        return Budget(own.amount * _MAX_FACTOR, unit, own.currency)
    return Budget(_DEFAULT_MAX_SAMPLES) if unit == "samples" else None


def _check_budget(value: Any, place: str, settings: ServeConfig) -> Budget:  # noqa: ANN401 - JSON data
    """A number of samples, or a text with its unit."""
    budget = None
    if _is_number(value) and value >= 1:
        budget = Budget(float(value))
    elif isinstance(value, str) and len(value) <= _MAX_BUDGET_TEXT:
        with contextlib.suppress(BudgetInvalid):
            budget = _parse_own_budget(value, settings)
    if budget is None:
        most = find_max_budget(settings, "samples")
        assert most is not None
        others = [limit for unit in _OTHER_UNITS if (limit := find_max_budget(settings, unit)) is not None]
        texts = "".join(f", or up to '{limit}'" for limit in others)
        remedy = f"give the samples on average, from 1 to {most.amount:g}{texts}"
        raise RequestInvalid(f"{place} is {format_value(value)}; {remedy}", param=place)
    return budget


_BARE_NUMBER = re.compile(r"[0-9.,_eE+ -]*")
_OTHER_UNITS: tuple[BudgetUnit, ...] = ("tokens", "money")


def _parse_own_budget(text: str, settings: ServeConfig) -> Budget | None:
    """A client's budget; None if it is in a unit that this gateway takes none in, or below one sample."""
    if _BARE_NUMBER.fullmatch(text):
        return None  # numbers are samples, and `_parse_header` has read those that are written plainly
    money = find_max_budget(settings, "money")
    budget = Budget.parse(text, currency=None if money is None else money.currency)
    if find_max_budget(settings, budget.unit) is None or (budget.unit == "samples" and budget.amount < 1):
        return None
    return budget


def _check_deadline(value: Any, place: str, settings: ServeConfig) -> float:  # noqa: ANN401 - JSON data
    if not _is_number(value) or value <= 0:
        raise RequestInvalid(
            f"{place} is {format_value(value)}; give seconds above 0, at most {settings.deadline:g}",
            param=place,
        )
    return float(value)


def _check_policy(value: object, place: str, settings: ServeConfig) -> str:  # noqa: ARG001 - one signature
    if not isinstance(value, str) or not value or len(value) > _MAX_POLICY:
        raise RequestInvalid(f"{place} is {format_value(value)}; give the name of a policy", param=place)
    return value


def _check_mode(value: object, place: str, settings: ServeConfig) -> str:  # noqa: ARG001 - one signature
    if value != "pass":  # a client can't raise what the operator has set
        raise RequestInvalid(f"{place} is {format_value(value)}; only pass is allowed", param=place)
    return "pass"


def _check_stream_mode(value: object, place: str, settings: ServeConfig) -> str:  # noqa: ARG001 - one signature
    if not isinstance(value, str) or value not in ("wait", "first"):
        raise RequestInvalid(f"{place} is {format_value(value)}; give wait or first", param=place)
    return value


def _check_extract(value: object, place: str, settings: ServeConfig) -> str:  # noqa: ARG001 - one signature
    """The extractor; a client's own pattern is compiled later, in the sandbox."""
    if isinstance(value, str):
        kind, _, argument = value.partition(":")
        longest = {"json": _MAX_NAME, "regex": _MAX_PATTERN}.get(kind, 0)
        if value == "none" or value in EXTRACTORS or 0 < len(argument) <= longest:
            return value
        if longest and argument:
            raise RequestInvalid(
                f"{place} is {format_value(value)}, of {len(argument)} characters; give at most {longest}",
                param=place,
            )
    known = ", ".join(EXTRACTORS)
    raise RequestInvalid(
        f"{place} is {format_value(value)}; give {known}, json:FIELD, regex:PATTERN or none", param=place
    )


def _check_names(value: object, place: str, settings: ServeConfig) -> tuple[str, ...]:  # noqa: ARG001 - one signature
    if not isinstance(value, list) or len(value) > _MAX_NAMES:
        raise RequestInvalid(
            f"{place} is {format_value(value)}; give a list of at most {_MAX_NAMES} names", param=place
        )
    for name in value:
        if not isinstance(name, str) or not name or len(name) > _MAX_NAME:
            raise RequestInvalid(
                f"{place} has {format_value(name)}; give names of 1 to {_MAX_NAME} characters", param=place
            )
    return tuple(value)


_CHECKS: dict[str, Callable[[Any, str, ServeConfig], Any]] = {
    "budget": _check_budget,
    "policy": _check_policy,
    "mode": _check_mode,
    "deadline": _check_deadline,
    "extract": _check_extract,
    "exclude": _check_names,
    "fields": _check_names,
    "stream_mode": _check_stream_mode,
    "modes": _check_names,
}
_NAMES = {get_header(name): name for name in _CHECKS}  # of options, by header
