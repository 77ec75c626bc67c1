"""Options that several commands share, many of which override a setting.

Also loads the settings, and formats the command line as typed, for reports.
"""

import difflib
import math
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from adacompute.answers import Task
from adacompute.cli.terminal import format_path, print_message
from adacompute.config import (
    AnswersConfig,
    Config,
    EndpointConfig,
    ScoreConfig,
    ServeConfig,
    VerifierConfig,
    load_config,
    read_ray_address,
)
from adacompute.errors import BudgetInvalid, ConfigError, PoolNotFound, TaskError
from adacompute.policies.quality import Quality
from adacompute.pool import Pool, bundled, bundled_names, open_pool
from adacompute.pool.ballots import PromptCharge
from adacompute.records import Budget, BudgetUnit, TokenPrices, names_quality

NO_ANSWER_HINT = (
    # a hint that is printed if no answer is found
    "answers are read from the key `text`, where --extract says; or give `answer`"
)


def _describe_default(default: object) -> str:
    if isinstance(default, bool) or default == "":
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def build_option(section: type, name: str, *declarations: str, meaning: str = "", **options: Any) -> Any:  # noqa: ANN401 - typer's own
    """Builds an option that overrides a setting; its help, default and type come from the setting.

    `meaning` replaces the setting's help text, for commands in which the setting means something else.
    `options` are passed to typer.
    """
    (item,) = (item for item in fields(section) if item.name == name)
    hint, default = get_type_hints(section)[name], item.metadata["default_text"]
    text = meaning or item.metadata["meaning"]
    if text.partition(" ")[0].isalpha():  # leaves a URL or a value such as `shadow: …` as it is
        text = text[:1].upper() + text[1:]
    help_text = f"{text}." if text else ""
    default = default or _describe_default(item.default)
    if default and options.pop("show_default", True):
        help_text = f"{help_text} [default: {default}]".strip()
    if get_origin(hint) is Literal:
        return choose_from(hint, *declarations, help=help_text, **options)
    if hint in _PARSERS and not {"min", "max", "is_flag", "parser"} & options.keys():
        options["parser"] = _PARSERS[hint]
    return typer.Option(*declarations, help=help_text, **options)


def choose_from(kind: Any, *declarations: str, **options: Any) -> Any:  # noqa: ANN401 - a Literal, and typer's own
    """Builds an option that accepts the values of a Literal; `options` are passed to typer."""
    words = get_args(kind)
    parser, metavar = partial(_parse_choice, words), f"<{'|'.join(words)}>"
    return typer.Option(*declarations, parser=parser, metavar=metavar, **options)


def get_given(options: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of options
    """Returns a map of the options in a group that were given on the command line: name -> value.

    None, False and empty lists count as not given. If the default is None, False counts as given.
    """
    values = {item.name: (getattr(options, item.name), item.default) for item in fields(options)}
    return {
        name: value
        for name, (value, default) in values.items()
        if value not in (None, [], ()) and (value is not False or default is None)
    }


def get_flags(options: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of options
    """Returns a map from each option of a group, such as --model, to its value; None if it wasn't given."""
    given = get_given(options)
    flags = {}
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        flag = get_args(hint)[-1].default
        flags[flag if isinstance(flag, str) else f"--{name.replace('_', '-')}"] = given.get(name)
    return flags


def _parse_choice(words: Sequence[str], word: str) -> str:
    if word not in words:
        raise typer.BadParameter(f"{word!r} is not one of {', '.join(map(repr, words))}")
    return word


# matches a comma between budgets, but not the comma in `per 1,000 requests`
_BETWEEN_BUDGETS = re.compile(r"(?<!per [0-9]),|,(?![0-9]{3}\b)")
_LAST_BUDGET = re.compile(r"\s*[$€£¥]?\s*[0-9.]+(?:[eE][-+]?[0-9]+)?(?P<unit>.*)", re.DOTALL)


def split_budgets(text: str) -> list[str]:
    """Splits a list of budgets; a unit at the end applies to all numbers.

    >>> split_budgets("1,2 USD per 1,000 requests")
    ['1 USD per 1,000 requests', '2 USD per 1,000 requests']
    """
    *first, last = _BETWEEN_BUDGETS.split(text)
    match = _LAST_BUDGET.fullmatch(last)
    suffix = "" if match is None else match["unit"]
    return [*(part + suffix for part in first), last]


def parse_number(text: str) -> float:
    """Parses a number; NaN if the text isn't one."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_finite(text: str) -> float:
    """Parses a number; raises an error for NaN and infinity."""
    value = parse_number(text)
    if not math.isfinite(value):
        raise typer.BadParameter(f"{text!r} is not a number; give e.g. 2")
    return value


def parse_price(text: str) -> float:
    """Parses a non-negative price."""
    price = parse_finite(text)
    if price < 0:
        raise typer.BadParameter(f"{text} is not a price; give a number from 0 up")
    return price


def _parse_whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number; give one, e.g. 8080") from None


def parse_budget(text: str) -> float | str:
    """Parses a budget: returns a number, or the text if it has a unit such as `500 tokens`."""
    try:
        if names_quality(text):
            Quality.parse(text)
            return text
        # the unit and currency are checked later, because they depend on the settings
        Budget.parse(text, currency=None)
    except BudgetInvalid as exc:
        raise typer.BadParameter(str(exc)) from None
    value = parse_number(text)
    return value if math.isfinite(value) else text


def parse_total(text: str) -> float | str:
    """Like `parse_budget`, but for a total over all requests, e.g. a spending cap of `5000` or `5USD`."""
    value = parse_number(text)
    if math.isfinite(value):
        return value
    try:
        Budget.parse(text, currency=None, total=True)
    except BudgetInvalid as exc:
        raise typer.BadParameter(str(exc)) from None
    return text


_PARSERS: dict[Any, Callable[[str], Any]] = {
    float: parse_finite,
    int: _parse_whole,
    float | str: parse_budget,
}


_POOL_HELP = "A pool, a .jsonl, .jsonl.gz or .parquet file or folder, or the bundled facts or words."
PoolPath = Annotated[Path, typer.Argument(metavar="POOL", help=_POOL_HELP)]
OptionalPoolPath = Annotated[Path | None, typer.Argument(metavar="POOL", help=_POOL_HELP, show_default=False)]
JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON object on stdout instead of text.")]
BudgetsOption = Annotated[str | None, build_option(ScoreConfig, "budgets", metavar="LIST")]

InputPriceOption = Annotated[
    float | None,
    build_option(EndpointConfig, "input_price", parser=parse_price, metavar="MONEY", show_default=False),
]
OutputPriceOption = Annotated[
    float | None,
    build_option(EndpointConfig, "output_price", parser=parse_price, metavar="MONEY", show_default=False),
]
BudgetUnitOption = Annotated[
    BudgetUnit, choose_from(BudgetUnit, "--unit", help="Unit of budgets that are bare numbers.")
]
ExtractOption = Annotated[
    str | None, build_option(AnswersConfig, "extract", metavar="HOW", show_default=False)
]
EndpointCurrencyOption = Annotated[
    str | None, build_option(EndpointConfig, "currency", "--currency", metavar="NAME")
]


@dataclass(frozen=True, kw_only=True)
class AnswerOptions:
    """Options that set how answers are read and compared."""

    extract: ExtractOption = None
    percent: Annotated[
        Literal["unit", "fraction"] | None, build_option(AnswersConfig, "percent", show_default=False)
    ] = None

    def build_tasks(self, answers: AnswersConfig, *, extract: str | None = None) -> tuple[Task | None, Task]:
        """Returns the task that the options set (None if they set none), and the task for data without one.

        A pool keeps its own task, whatever the settings say; options that contradict that task are an error.
        `extract` replaces the setting of that name.
        """
        task = Task(
            extract=self.extract or extract or answers.extract, percent=self.percent or answers.percent
        )
        return (task if self.extract or self.percent else None), task


@dataclass(frozen=True, kw_only=True)
class VerifierOptions:
    """Options for the verifier, which scores responses."""

    verifier: Annotated[str | None, build_option(VerifierConfig, "url", "--verifier", metavar="URL")] = None
    verifier_model: Annotated[
        str | None, build_option(VerifierConfig, "model", "--verifier-model", metavar="NAME")
    ] = None

    def override(self, settings: VerifierConfig) -> VerifierConfig:
        """Returns the settings, overridden by the options."""
        return override_section(settings, url=self.verifier, model=self.verifier_model)


@dataclass(frozen=True, kw_only=True)
class PriceOptions:
    """Options for the prices of tokens."""

    input_price: InputPriceOption = None
    output_price: OutputPriceOption = None
    currency: EndpointCurrencyOption = None

    def choose_prices(self, endpoint: EndpointConfig) -> TokenPrices:
        """Returns the prices from options, or else from the settings."""
        return override_section(endpoint, **get_given(self)).prices


@dataclass(frozen=True, kw_only=True)
class ConnectionOptions:
    """Options for an endpoint, its key and prices. Fields are named like the settings in [endpoint]."""

    url: Annotated[str | None, build_option(EndpointConfig, "url", "--endpoint", metavar="URL")] = None
    model: Annotated[str | None, build_option(EndpointConfig, "model", "--model", metavar="NAME")] = None
    key_env: Annotated[str | None, build_option(EndpointConfig, "key_env", metavar="NAME")] = None
    key_file: Annotated[Path | None, build_option(EndpointConfig, "key_file", metavar="FILE")] = None
    key_header: Annotated[str | None, build_option(EndpointConfig, "key_header", metavar="NAME")] = None
    ca_file: Annotated[Path | None, build_option(EndpointConfig, "ca_file", metavar="FILE")] = None
    headers: Annotated[
        list[str] | None,
        build_option(
            EndpointConfig,
            "headers",
            "--header",
            metavar="'NAME: VALUE'",
            meaning="header to add to every request; repeatable",
        ),
    ] = None
    query: Annotated[
        list[str] | None,
        build_option(
            EndpointConfig,
            "query",
            metavar="NAME=VALUE",
            meaning="query parameter to add to every request; repeatable",
        ),
    ] = None
    input_price: InputPriceOption = None
    output_price: OutputPriceOption = None
    currency: EndpointCurrencyOption = None

    def override(self, settings: EndpointConfig) -> EndpointConfig:
        """Returns the settings, overridden by the options."""
        return override_section(settings, **get_given(self))


@dataclass(frozen=True, kw_only=True)
class EndpointOptions(ConnectionOptions):
    """Like `ConnectionOptions`, with options for rate limits and timeouts."""

    concurrency: Annotated[int | None, build_option(EndpointConfig, "concurrency", min=1)] = None
    requests_per_minute: Annotated[
        float | None, build_option(EndpointConfig, "requests_per_minute", metavar="N")
    ] = None
    tokens_per_minute: Annotated[
        float | None, build_option(EndpointConfig, "tokens_per_minute", metavar="N")
    ] = None
    total_timeout: Annotated[
        float | None, build_option(EndpointConfig, "total_timeout", "--timeout", metavar="SECONDS")
    ] = None
    retry_timeouts: Annotated[bool, build_option(EndpointConfig, "retry_timeouts", "--retry-timeouts")] = (
        False
    )


def warn_counting(budget: Budget, prices: TokenPrices, charge: PromptCharge | None = None) -> None:
    """Says on stderr how prompts and responses count towards a budget in tokens or money."""
    if budget.unit == "money" and prices.input > 0 and not prices.output:
        print_message("output_price is 0: responses count as free; give --output-price if they are not")
    if charge is not None and budget.unit != "samples":
        print_message(f"prompts: {charge}")


_Section = TypeVar("_Section", ServeConfig, EndpointConfig, AnswersConfig, VerifierConfig)


def override_section(section: _Section, **options: object) -> _Section:
    """Returns a section of the settings, overridden by the options that aren't None."""
    values: dict[str, Any] = {name: _to_plain(value) for name, value in options.items() if value is not None}
    return replace(section, **values)


def _to_plain(value: object) -> object:
    if isinstance(value, list):
        return tuple(value)
    return str(value) if isinstance(value, Path) else value


def load_settings(context: typer.Context) -> Config:
    """Loads the settings from the file given as `adacompute --config` and from the environment."""
    return load_config(context.obj)


def open_source(source: Path, tasks: tuple[Task | None, Task | None] = (None, None)) -> Pool:
    """Opens a pool or file; if it doesn't exist, opens the bundled recording of that name.

    `tasks` is the result of `AnswerOptions.build_tasks`.
    """
    name, (task, default_task) = format_path(source), tasks
    if name not in bundled_names() or source.exists():
        matches = difflib.get_close_matches(name, bundled_names(), n=1)
        if matches and not source.exists():
            raise PoolNotFound(f"{name}: there is no such pool; did you mean the recording {matches[0]!r}?")
        return open_pool(source, task=task, default_task=default_task)
    pool = bundled(name)
    if task is not None and task != pool.task:
        pool.close()
        raise TaskError(
            f"the recording {name!r} in the package keeps its answers as they are; "
            "leave --extract and --percent out"
        )
    return pool


def parse_pair(text: str, option: str, form: str, example: str, *, last: bool = False) -> tuple[str, str]:
    """Splits text such as `NAME=VALUE` at the first `=`, or at the last one if `last` is true.

    A mode's name may contain `=`, as in `M (temperature=0.2)=0.5`; then `last` is needed.
    """
    name, sign, value = text.rpartition("=") if last else text.partition("=")
    if not (sign and name.strip() and value.strip()):
        raise typer.BadParameter(f"{text!r} is not {form}; give e.g. {example}", param_hint=option)
    return name.strip(), value.strip()


def parse_columns(text: str) -> dict[str, str]:
    """Parses `FIELD=COLUMN,…` for --columns."""
    example = "question=prompt,gold=target"
    return dict(parse_pair(part, "--columns", "FIELD=COLUMN", example) for part in text.split(","))


def parse_budgets(score: ScoreConfig, budgets: str | None) -> tuple[int, ...]:
    """Parses the option --budgets; if it isn't given, returns the budgets in the settings."""
    if budgets is None:
        return score.budgets
    try:
        return ScoreConfig(budgets=tuple(int(part) for part in budgets.split(","))).budgets
    except ValueError as exc:
        reason = f"{budgets!r} is not a list of whole numbers; give e.g. 1,2,4,8,16"
        raise typer.BadParameter(reason, param_hint="--budgets") from exc
    except ConfigError as exc:
        raise typer.BadParameter(str(exc), param_hint="--budgets") from exc


_MAX_DEFAULT_PROCESSES = 2  # each process copies the pool, and a report must fit in 1 GB of memory
_LARGEST_SEED = 2**32 - 1  # the largest seed that every library for fitting accepts
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")  # control and invalid characters

SeedOption = Annotated[
    int, typer.Option(min=0, max=_LARGEST_SEED, help="Seed for folds, orders, splits and intervals.")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"Processes; the result doesn't change. [default: the cores, at most {_MAX_DEFAULT_PROCESSES}]",
    ),
]


def choose_process_count(most: int = _MAX_DEFAULT_PROCESSES) -> int:
    """Returns the default number of processes: one per core, but at most `most`."""
    return min(most, os.cpu_count() or 1)


def check_finite(value: float | None) -> float | None:
    """Raises an error for infinity and NaN."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not an amount; give a number from 0 up")
    return value


def clean_text(text: str | None) -> str | None:
    """Replaces characters that a report can't contain."""
    return None if text is None else _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def format_command(program: str = "adacompute") -> str:
    """Formats the command line as typed, but without the folders of paths."""
    words = [clean_text(_drop_folders(word)) or "" for word in sys.argv[1:]]
    return shlex.join([*program.split(), *words])


def _drop_folders(word: str) -> str:
    """Removes the folders of a path, also in `--output=PATH`. A pattern or name with a slash isn't a path."""
    option, sign, value = word.rpartition("=")
    folder, _, name = value.rstrip("/").rpartition("/")
    # `Path.is_dir` would raise an error for a text that is too long for a file's name
    is_path = value[:1] in ("/", "~") or os.path.isdir(folder)  # noqa: PTH112
    return f"{option}{sign}{name}" if is_path else word


EngineName = Literal["local", "ray"]


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options that choose where the work runs: in this process or on Ray."""

    engine: Annotated[
        EngineName,
        choose_from(
            EngineName,
            "--engine",
            help="Run in this process, or on Ray: at RAY_ADDRESS, else started here.",
        ),
    ] = "local"
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --engine ray: tasks at the same time. [default: all processors]"),
    ] = None

    @property
    def is_ray(self) -> bool:
        """Whether the work runs on Ray."""
        return self.engine == "ray"

    def __post_init__(self) -> None:
        if self.workers is not None and not self.is_ray:
            raise typer.BadParameter("only --engine ray has workers", param_hint="--workers")

    def announce(self) -> None:
        """If Ray must be started on this machine, says on stderr that this takes a while."""
        if self.is_ray and read_ray_address() is None:
            print_message("RAY_ADDRESS names no cluster: Ray is started on this machine, in 10 to 30 seconds")
