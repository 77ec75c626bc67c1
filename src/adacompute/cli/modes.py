"""Options for several modes and their costs: --join, --cost, --prices and --menu.

The modes of recorded samples are several joined pools, or the models in one pool. A menu file lists modes
with their endpoints. A budget is an average cost per request; money is shown per 1,000 requests.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from adacompute.cli.options import (
    AnswerOptions,
    EndpointOptions,
    OptionalPoolPath,
    build_option,
    choose_from,
    get_flags,
    get_given,
    open_source,
    parse_number,
    parse_pair,
    split_budgets,
)
from adacompute.cli.pool_options import NO_SOURCE_OPTIONS, SourceOptions, read_ballots, type_options
from adacompute.cli.terminal import format_path, print_message
from adacompute.client.modes import ModeConfig, ModeConfigs, read_modes_file, read_prices
from adacompute.config import AnswersConfig, EndpointConfig, ServeConfig
from adacompute.errors import BudgetInvalid, BudgetOutOfRange
from adacompute.pool import Ballots, join_pools, read_modes
from adacompute.pool.modes import ModeSet
from adacompute.records import BudgetUnit, TokenPrices
from adacompute.replay.calibrate import check_mode_budget

_UNSPENT = 0.1  # warn if a larger share of the budget can't be spent

MissingProblems = Literal["error", "drop"]


@dataclass(frozen=True, kw_only=True)
class GroupOptions:
    """Options that choose which problems form a group, to be held out and resampled together."""

    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Hold out problems in groups, by this column. [default: similar problems]",
        ),
    ] = None
    no_groups: Annotated[
        bool, typer.Option("--no-groups", help="Hold out each problem alone, even if some are alike.")
    ] = False

    @property
    def words(self) -> str:
        """The options as typed on a command line, with a leading space."""
        return " --no-groups" if self.no_groups else type_options(("--group", self.group))

    def apply(self, ballots: Ballots) -> Ballots:
        """Groups problems by similarity, or as the options say."""
        if self.group is not None and self.no_groups:
            raise typer.BadParameter("contradicts --group; leave one of them out", param_hint="--no-groups")
        return ballots.group("none" if self.no_groups else self.group or "alike")


@dataclass(frozen=True, kw_only=True)
class JoinOptions(AnswerOptions):
    """Options that choose the recorded samples to read: one pool, or several pools with a mode each."""

    source: OptionalPoolPath = None
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=POOL", help="Same problems answered by another model or effort, a mode; repeatable."
        ),
    ] = None
    missing: Annotated[
        MissingProblems,
        choose_from(MissingProblems, help="What to do with problems that lack samples of a mode."),
    ] = "error"

    @property
    def name(self) -> str:
        """The paths of the pools, as shown in messages."""
        if not self.join:
            return "" if self.source is None else format_path(self.source)
        return " and ".join(format_path(path) for path in parse_joins(self.source, self.join).values())

    @property
    def title(self) -> str:
        """Like `name`, but a single pool is shown without its folders."""
        return self.name if self.join or self.source is None else format_path(Path(self.source.name))

    @property
    def words(self) -> str:
        """The POOL argument and the --join options, as typed on a command line."""
        words = [] if self.source is None else [format_path(self.source)]
        for text in self.join or ():
            words += ["--join", text]
        return shlex.join(words)

    def read_modes(self, answers: AnswersConfig) -> Ballots:
        """Reads the votes of each mode, from joined pools or from one pool whose models are the modes.

        With --join, the argument POOL is a mode too, named after its file.
        """
        paths = parse_joins(self.source, self.join)
        tasks = self.build_tasks(answers)
        with ExitStack() as stack:
            pools = {name: stack.enter_context(open_source(path, tasks)) for name, path in paths.items()}
            if self.join:
                return join_pools(pools, missing=self.missing).ballots()
            (pool,) = pools.values()
            return read_modes(pool, missing=self.missing)

    def get_source(self) -> Path:
        """Returns the argument POOL; raises an error if it is missing."""
        if self.source is None:
            raise typer.BadParameter("give a pool, or --join NAME=POOL for each mode", param_hint="POOL")
        return self.source

    def describe(self) -> dict[str, Any]:
        """Returns the pools that the samples come from, for the JSON output."""
        if not self.join:
            return {"pool": self.name}
        paths = parse_joins(self.source, self.join)
        return {"pools": {name: format_path(path) for name, path in paths.items()}}


@dataclass(frozen=True, kw_only=True)
class ModeOptions(JoinOptions):
    """Like `JoinOptions`, with options for each mode's cost per sample."""

    costs: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="NAME=NUMBER",
            help="Cost of one sample of a mode, in any unit; repeatable.",
        ),
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices file (TOML): a table per mode, with input_price and output_price.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether --join, --cost or --prices is given."""
        return bool(self.join or self.costs or self.prices is not None)

    @property
    def cost_words(self) -> str:
        """The --cost and --prices options as typed on a command line, with a leading space."""
        prices = None if self.prices is None else format_path(self.prices)
        return type_options(*(("--cost", text) for text in self.costs or ()), ("--prices", prices))

    def read_costs(self) -> dict[str, Any]:
        """Reads --cost and --prices; returns keyword arguments for `ModeSet.of`."""
        if self.costs and self.prices is not None:
            raise typer.BadParameter(
                "costs are given by --prices already; leave one out", param_hint="--cost"
            )
        return {
            "costs": parse_mode_costs(self.costs),
            "prices": None if self.prices is None else read_prices(self.prices),
        }

    def read(self, answers: AnswersConfig) -> tuple[Ballots, ModeSet]:
        """Reads each mode's votes and cost per sample. Without cost options, cost is in recorded tokens."""
        given = self.read_costs()  # reports wrong options before samples are read
        ballots = self.read_modes(answers)
        _note_prompts(ballots, given["prices"])
        menu = ModeSet.of(ballots, **given)
        unpriced = [name for name in ballots.names if name not in menu.names]
        if self.join and unpriced:
            option = "--prices" if self.prices is not None else "--cost"
            remedy = f"--cost {unpriced[0]}=NUMBER" if self.costs else f"[{unpriced[0]}] in that file"
            raise typer.BadParameter(
                f"mode {unpriced[0]!r} is joined and has no cost; give {remedy}, or leave its --join out",
                param_hint=option,
            )
        if not any(math.isfinite(mode.cost) for mode in menu.modes):
            raise typer.BadParameter(
                "every mode costs infinitely much; give one a finite cost", param_hint="--cost"
            )
        return ballots.select(menu.names), menu


def read_recorded(
    options: ModeOptions,
    answers: AnswersConfig,
    which: SourceOptions,
    *groups: object,
    **refused: object,
) -> tuple[Ballots, ModeSet | None]:
    """Reads the samples of one mode, or of several modes together with their costs.

    There are several modes if --join, --cost or --prices is given, or if the pool has several models or
    parameters. Options in `which`, `groups` or `refused` then raise an error.
    """
    is_several, recorded = options.is_given, None
    if not is_several and options.source is not None and which == NO_SOURCE_OPTIONS:
        with open_source(options.source, options.build_tasks(answers)) as pool:
            sources = len(pool.models)
            recorded = pool.ballots() if sources == 1 else None
        if is_several := sources > 1:
            print_message(
                f"{options.name}: {sources} sources, taken as the modes of a menu; name one of them by "
                "--model and --parameters"
            )
    if is_several:
        refuse_beside_modes(which, *groups, **refused)
        return options.read(answers)
    return read_ballots(options.get_source(), answers, options, which, ballots=recorded), None


def _note_prompts(ballots: Ballots, prices: Mapping[str, TokenPrices] | None) -> None:
    """Says on stderr for which modes the mean prompt length is taken from the recorded calls."""
    charges = {mode.name: mode.charge for mode in ballots.modes}
    taken = [
        f"{charge.tokens:.0f} of {name}"
        for name, price in (prices or {}).items()
        if price.prompt_tokens is None and price.input
        if (charge := charges.get(name)) is not None and charge.tokens is not None
    ]
    if taken:
        print_message(f"tokens of a prompt, as the calls in the pool counted them: {', '.join(taken)}")


def parse_joins(source: Path | None, joins: Sequence[str] | None) -> dict[str, Path]:
    """Returns the paths of the pools by mode name: first the argument POOL, then the --join options."""
    paths = {} if source is None else {_name_pool(source): source}
    for text in joins or ():
        name, path = parse_pair(text, "--join", "NAME=POOL", "smol=facts")
        if name in paths:
            raise typer.BadParameter(f"mode {name!r} is there twice; give each its own", param_hint="--join")
        paths[name] = Path(path)
    if not paths:
        raise typer.BadParameter("give a pool, or --join NAME=POOL for each mode", param_hint="POOL")
    if joins and len(paths) == 1:
        raise typer.BadParameter(
            f"{joins[0]!r} alone is no menu; give --join once more, or a pool beside it", param_hint="--join"
        )
    return paths


def _name_pool(source: Path) -> str:
    name = source.name
    for suffix in (".jsonl.gz", ".jsonl", ".parquet", ".sqlite"):
        name = name.removesuffix(suffix)
    return name or str(source)


def parse_mode_costs(costs: Sequence[str] | None) -> dict[str, float] | None:
    """Parses the --cost options: returns the cost per sample by mode name, or None without such options."""
    parsed: dict[str, float] = {}
    for text in costs or ():
        name, number = parse_pair(text, "--cost", "NAME=NUMBER", "smol=0.1", last=True)
        if name in parsed:
            raise typer.BadParameter(f"mode {name!r} has two costs; give one", param_hint="--cost")
        try:
            parsed[name] = float(number)
        except ValueError as exc:
            raise typer.BadParameter(
                f"{number!r} of mode {name!r} is not a number; give e.g. {name}=0.1", param_hint="--cost"
            ) from exc
    return parsed or None


# name of the policy that chooses among modes, and also of the setting for the menu file
SEVERAL = "menu"
GatewayModesOption = Annotated[Path | None, build_option(ServeConfig, "menu", "--menu", metavar="FILE")]
ModesFileOption = Annotated[
    Path | None,
    typer.Option(
        "--menu",
        metavar="FILE",
        help="Menu (TOML) of several models to ask, instead of --endpoint and --model.",
    ),
]


def choose_modes_file(menu: Path | None, settings: ServeConfig, flags: Mapping[str, object]) -> str:
    """Returns the path of the menu file from the option, or else from the settings; "" if there is none.

    `flags` maps the options of a single endpoint to their values, the endpoint's address first. If the
    address is given, a menu file in the settings is ignored. Any other menu file together with an option in
    `flags` raises an error.
    """
    is_addressed = flags[next(iter(flags))] is not None
    file = str(menu) if menu is not None else "" if is_addressed else settings.menu
    if file:
        _refuse_endpoint_options(flags, "--menu" if menu is not None else "the setting serve.menu")
    return file


def _refuse_endpoint_options(flags: Mapping[str, object], menu: str = "--menu") -> None:
    """Raises an error if options of a single endpoint are given together with a menu file."""
    for option, value in flags.items():
        if value is not None and value != "":
            reason = f"{menu} says this for each mode; leave this option out, or {menu}"
            raise typer.BadParameter(reason, param_hint=option)


def read_upstreams(menu: Path | None, endpoint: EndpointOptions, settings: EndpointConfig) -> ModeConfigs:
    """Reads the modes to ask: those in the file of --menu, or one unnamed mode from the endpoint options."""
    if menu is not None:
        _refuse_endpoint_options(get_flags(endpoint))
        return read_modes_file(menu)
    upstream = endpoint.override(settings)
    return ModeConfigs(modes=(ModeConfig(name="", endpoint=upstream),), currency=upstream.currency)


def refuse_beside_modes(*groups: object, **options: object) -> None:
    """Raises an error for options that don't apply to several modes, instead of ignoring them."""
    remedies = {
        "model": "the modes are the sources; choose some with --cost NAME=NUMBER",
        "parameters": "the modes are the sources; choose some with --cost NAME=NUMBER",
        "input_price": "each mode has its own price; give --prices FILE",
        "output_price": "each mode has its own price; give --prices FILE",
        "currency": "the currency is in the file of --prices; leave it out",
    }
    for name, value in [*options.items(), *(pair for group in groups for pair in get_given(group).items())]:
        if value is not None and value is not False:
            remedy = remedies.get(name, "a menu has no use for it; leave it out")
            raise typer.BadParameter(remedy, param_hint=f"--{name.replace('_', '-')}")


def parse_mode_budget(
    text: float | str, menu: ModeSet, *, unit: BudgetUnit = "samples", option: str = "--budget"
) -> float:
    """Parses an average cost per request; a number without a unit is in the unit of the modes' costs.

    `unit` is the value of --unit; its default, samples, is ignored here.
    """
    amount = parse_number(str(text))
    if not math.isfinite(amount):
        try:
            amount = check_mode_budget(menu, text)
        except BudgetInvalid as exc:
            raise typer.BadParameter(str(exc), param_hint=option) from None
    elif unit not in ("samples", menu.unit):
        raise typer.BadParameter(f"{unit!r} is not the menu's unit: {_name_unit(menu)}", param_hint="--unit")
    cheapest = menu.modes[0]
    if not amount >= cheapest.cost * (1 - 1e-9):
        raise BudgetOutOfRange(
            f"budget {menu.format_cost(amount)} is below one sample of {cheapest.name!r}, the cheapest mode; "
            f"give {menu.format_least(cheapest.cost)} or more"
        )
    return amount


def parse_mode_budgets(text: str | None, menu: ModeSet, *, unit: BudgetUnit) -> tuple[float, ...] | None:
    """Parses costs such as `0.3,0.5` or `0.5,1 USD per 1000`; a unit at the end applies to all numbers."""
    if text is None:
        return None
    return tuple(parse_mode_budget(part, menu, unit=unit, option="--budgets") for part in split_budgets(text))


def _name_unit(menu: ModeSet) -> str:
    return menu.currency or ("the numbers of --cost" if menu.unit == "cost" else menu.unit)


def warn_unspent(cost: float, budget: float, menu: ModeSet) -> None:
    """Warns if a policy can't spend the budget, e.g. because the user gave a budget for 1,000 requests."""
    if cost < (1 - _UNSPENT) * budget:
        print_message(
            f"budget {menu.format_cost(budget)} is more than the menu can spend: {menu.format_cost(cost)} on "
            "average; give that or less"
        )


def format_draws(draws: dict[str, float]) -> str:
    """Formats the mean number of samples per mode: `samples a request: 2.10 of smol, 0.31 of qwen`."""
    parts = [f"{number:.2f} of {mode}" for mode, number in draws.items()]
    return f"samples a request: {', '.join(parts)}" if parts else "samples by mode not known"
