"""Options that say which recorded samples a command works on and how they are scored, and reading them.

The samples are of a pool, a file, a bundled recording or a folder of shards; or of several joined pools, each
a mode of a menu, whose costs options say.
"""

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import orjson
import typer

from adacompute.cli.options import (
    NO_ANSWER_HINT,
    AnswerOptions,
    BudgetsOption,
    EngineOptions,
    InputPriceOption,
    OptionalPoolPath,
    OutputPriceOption,
    open_source,
    parse_budgets,
)
from adacompute.cli.terminal import format_count, format_path, print_message
from adacompute.config import MODE_KEYS, AnswersConfig, ScoreConfig, read_toml
from adacompute.errors import (
    ConfigError,
    PriceInvalid,
    ScaleError,
    TooFewSamples,
    format_value,
    suggest_name,
)
from adacompute.evaluate import Scoring
from adacompute.pool import Ballots, Menu, bundled_names, join_pools, read_modes
from adacompute.records import DEFAULT_CURRENCY, TokenPrices
from adacompute.scale.stages import open_shards
from adacompute.score.grades import BlockMap

__all__ = [
    "Aggregate",
    "CostUnit",
    "FamiliesFlag",
    "JoinOptions",
    "MenuOptions",
    "MissingProblems",
    "ScoringOptions",
    "SourceOptions",
    "TooFew",
    "TooFewOption",
    "build_menu",
    "open_ballots",
    "parse_mode_costs",
    "read_ballots",
    "read_prices",
]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Which of the models in a pool."""

    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which model, where a pool holds several.")
    ] = None
    parameters: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Which of its sampling parameters, where there are several."),
    ] = None


NO_ANSWER_OPTIONS, NO_SOURCE_OPTIONS = AnswerOptions(), SourceOptions()


def read_ballots(
    source: Path,
    answers: AnswersConfig,
    reading: AnswerOptions = NO_ANSWER_OPTIONS,
    which: SourceOptions = NO_SOURCE_OPTIONS,
    *,
    ballots: Ballots | None = None,
) -> Ballots:
    """Read the votes of one model in a pool, file or bundled recording; warn where no answer was found.

    `ballots` are these votes, where they were read before.
    """
    name, parameters = format_path(source), parse_parameters(which.parameters)
    task, default_task = reading.build_tasks(answers)
    if ballots is None:
        with open_source(source, task=task, default_task=default_task) as pool:
            ballots = pool.ballots(which.model, parameters=parameters)
    if not len(ballots):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    if not (ballots.classes >= 0).any() and not (ballots.correct > 0).any():
        samples = format_count(int(ballots.drawn.sum()), "sample")
        print_message(f"{name}: no answer was found in any of {samples}; {NO_ANSWER_HINT}")
    return ballots


def parse_parameters(text: str | None) -> dict[str, Any] | None:
    """Parse the sampling parameters that an option gives as JSON."""
    if text is None:
        return None
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise typer.BadParameter(f"{text!r} is no JSON ({exc})", param_hint="--parameters") from exc
    if not isinstance(parsed, dict):
        raise typer.BadParameter(
            f'{text!r} is not an object, e.g. {{"temperature": 0.7}}', param_hint="--parameters"
        )
    return parsed


def limit_budgets(ballots: Ballots, defaults: tuple[int, ...], *, drop: bool) -> tuple[int, ...]:
    """Return those default budgets that the samples allow; say so on stderr where some are left out.

    Problems with less than half of the median number of samples don't decide for the others: they are
    an error, or are ignored where problems are to be dropped.
    """
    drawn = ballots.drawn
    has_few = 2 * drawn < np.median(drawn)  # (problems,)
    if drawn.min() >= defaults[-1]:
        return defaults
    if has_few.any() and not drop:
        raise TooFewSamples(_explain_refusal(ballots, defaults))
    fewest = int(drawn[~has_few].min())
    budgets = _select_budgets(defaults, fewest)
    if budgets != defaults:
        listed = ", ".join(map(str, budgets))
        kept = " of those kept" if has_few.any() else ""
        reason = f"the problem with fewest samples{kept} has {fewest}"
        print_message(f"scored at {listed}: {reason}; --budgets chooses others")
    return budgets


def _select_budgets(budgets: tuple[int, ...], largest: int) -> tuple[int, ...]:
    return tuple(budget for budget in budgets if budget <= largest)


def _explain_refusal(ballots: Ballots, defaults: tuple[int, ...]) -> str:
    drawn = ballots.drawn
    row, fewest = int(drawn.argmin()), int(drawn.min())
    listed = ",".join(map(str, _select_budgets(defaults, fewest)))
    return (
        f"problem {ballots.ids[row]!r} has {format_count(fewest, 'sample')}, less than half of what most "
        f"have; give --budgets {listed} or --too-few drop, or collect more"
    )


@contextmanager
def open_ballots(
    source: Path,
    answers: AnswersConfig,
    reading: AnswerOptions,
    which: SourceOptions,
    *,
    engine: EngineOptions,
) -> Iterator[tuple[Ballots, BlockMap]]:
    """Read the votes of one model by an engine; yield them, and what maps blocks of work over it."""
    if not engine.is_ray:
        yield read_ballots(source, answers, reading, which), map
        return
    name, parameters = format_path(source), parse_parameters(which.parameters)
    if name in bundled_names() and not source.exists():
        raise ScaleError(
            f"{name}: is a recording in the package, and engine ray works on a folder of Parquet; write one "
            f"with adacompute export {name} FOLDER --shards 8, or use --engine local"
        )
    _, task = reading.build_tasks(answers)
    shards = open_shards(source, task=task, model=which.model, parameters=parameters, workers=engine.workers)
    with shards as (ballots, map_blocks):
        yield read_ballots(source, answers, reading, which, ballots=ballots), map_blocks


class Aggregate(StrEnum):
    vote = "vote"
    weighted = "weighted"
    best_of = "best-of"
    any_correct = "any-correct"


class ConfidenceSignal(StrEnum):
    logprob = "logprob"
    entropy = "entropy"


class Estimator(StrEnum):
    exact = "exact"
    windows = "windows"


class CostUnit(StrEnum):
    samples = "samples"
    tokens = "tokens"
    money = "money"


class TooFew(StrEnum):
    error = "error"
    drop = "drop"


TooFewOption = Annotated[
    TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")
]


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """At which budgets samples are scored, how, and what their tokens cost."""

    budgets: BudgetsOption = None
    aggregate: Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")] = (
        Aggregate.vote
    )
    by: Annotated[
        ConfidenceSignal | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")
    ] = None
    estimator: Annotated[
        Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
    ] = Estimator.exact
    input_price: InputPriceOption = None
    output_price: OutputPriceOption = None
    currency: Annotated[
        str | None, typer.Option(metavar="NAME", help="Currency, for --cost money. [default: USD]")
    ] = None
    too_few: TooFewOption = TooFew.error

    def build_scoring(self, cost: CostUnit, currency: str | None) -> Scoring:
        """Build the way of scoring; refuse options that don't go together."""
        uses_signal = self.aggregate in (Aggregate.weighted, Aggregate.best_of)
        if self.by is not None and not uses_signal:
            raise typer.BadParameter(
                f"{self.by.value} is for --aggregate weighted or best-of, not {self.aggregate.value}",
                param_hint="--by",
            )
        return Scoring(
            aggregate=self.aggregate.value,
            estimator=self.estimator.value,
            by=(self.by or ConfidenceSignal.logprob).value,
            cost=build_cost(cost, self.input_price, self.output_price, currency),
        )

    def choose_budgets(self, ballots: Ballots, settings: ScoreConfig) -> tuple[int, ...]:
        """The budgets of the option or the settings; where nobody chose them, those that samples allow."""
        budgets = parse_budgets(settings, self.budgets)
        if self.budgets is None and settings == ScoreConfig():
            return limit_budgets(ballots, budgets, drop=self.too_few is TooFew.drop)
        return budgets


def build_cost(
    cost: CostUnit, input_price: float | None, output_price: float | None, currency: str | None
) -> Literal["samples", "tokens"] | TokenPrices:
    """Build the unit of cost that the options ask for: samples, tokens, or money with its prices."""
    if cost is not CostUnit.money:
        if input_price is not None or output_price is not None:
            raise typer.BadParameter(
                "prices are for --cost money", param_hint="--input-price, --output-price"
            )
        if currency is not None:
            raise typer.BadParameter("a currency is for --cost money", param_hint="--currency")
        return "tokens" if cost is CostUnit.tokens else "samples"
    if input_price is None or output_price is None:
        raise typer.BadParameter("money needs --input-price and --output-price", param_hint="--cost")
    if currency is not None and (not currency.strip() or currency in ("samples", "tokens")):
        raise typer.BadParameter(f"{currency!r} is not a currency; give e.g. EUR", param_hint="--currency")
    return TokenPrices(
        input=input_price,
        output=output_price,
        currency=(currency or DEFAULT_CURRENCY).strip(),
    )


class MissingProblems(StrEnum):
    error = "error"
    drop = "drop"


FamiliesFlag = Annotated[
    bool,
    typer.Option(
        "--families", help="Learn for new families, of a menu: hold out whole subjects, not single problems."
    ),
]

_PRICE_KEYS = ("input_price", "output_price", "prompt_tokens", "currency")


@dataclass(frozen=True, kw_only=True)
class JoinOptions(AnswerOptions):
    """Which recorded samples are read: a pool, or several as the modes of a menu."""

    source: OptionalPoolPath = None
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=POOL", help="A pool of the same problems, as one mode of a menu; once for each."
        ),
    ] = None
    missing: Annotated[
        MissingProblems, typer.Option(help="What to do about problems that a mode has no samples of.")
    ] = MissingProblems.error

    @property
    def name(self) -> str:
        """What is worked on, for people."""
        if not self.join:
            return "" if self.source is None else format_path(self.source)
        return " and ".join(format_path(path) for path in parse_joins(self.source, self.join).values())

    @property
    def words(self) -> str:
        """The options of the modes, as one would type them again."""
        words = [] if self.source is None else [format_path(self.source)]
        for text in self.join or ():
            words += ["--join", text]
        return shlex.join(words)

    def read_modes(self, answers: AnswersConfig) -> Ballots:
        """Read the votes of each mode: of joined pools, or of one pool, whose sources are its modes.

        With --join the pool itself is a mode as well, called by its name.
        """
        paths = parse_joins(self.source, self.join)
        task, default_task = self.build_tasks(answers)
        with ExitStack() as stack:
            pools = {
                name: stack.enter_context(open_source(path, task=task, default_task=default_task))
                for name, path in paths.items()
            }
            if self.join:
                return join_pools(pools, missing=self.missing.value).ballots()
            (pool,) = pools.values()
            return read_modes(pool, missing=self.missing.value)

    def describe(self) -> dict[str, Any]:
        """Where the modes are from, for JSON."""
        if not self.join:
            return {"pool": self.name}
        paths = parse_joins(self.source, self.join)
        return {"pools": {name: format_path(path) for name, path in paths.items()}}


@dataclass(frozen=True, kw_only=True)
class MenuOptions(JoinOptions):
    """As `JoinOptions`, and what a sample of each mode costs."""

    costs: Annotated[
        list[str] | None,
        typer.Option(
            "--cost",
            metavar="NAME=NUMBER",
            help="What a sample of a mode costs, in any unit; once for each mode.",
        ),
    ] = None
    prices: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prices of the modes (TOML): a table for each, with input_price and output_price.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether an option speaks of modes."""
        return bool(self.join or self.costs or self.prices is not None)

    @property
    def cost_words(self) -> str:
        """The options of the costs, as one would type them again, with a blank before them."""
        words: list[str] = []
        for text in self.costs or ():
            words += ["--cost", text]
        words += [] if self.prices is None else ["--prices", format_path(self.prices)]
        return f" {shlex.join(words)}" if words else ""

    def detect_menu(self, answers: AnswersConfig, which: SourceOptions) -> tuple[bool, Ballots | None]:
        """Whether there are several modes: by an option, or as sources of a pool of which none is named.

        Where no option says so, it is said on stderr. Where the pool was read to tell, and has one source,
        its votes come too, so that it isn't read twice.
        """
        if self.is_given or self.source is None or which != NO_SOURCE_OPTIONS:
            return self.is_given, None
        task, default_task = self.build_tasks(answers)
        with open_source(self.source, task=task, default_task=default_task) as pool:
            sources = len(pool.models)
            ballots = pool.ballots() if sources == 1 else None
        if sources > 1:
            print_message(
                f"{self.name}: {sources} sources, taken as the modes of a menu; name one of them by --model "
                "and --parameters"
            )
        return sources > 1, ballots

    def read(self, answers: AnswersConfig) -> tuple[Ballots, Menu]:
        """Read the votes of each mode, and what a sample of each costs: by options, else its tokens."""
        given = parse_mode_costs(self.costs)  # refused before any sample is read
        price_table = read_prices(self.prices)
        ballots = self.read_modes(answers)
        _note_prompts(ballots, price_table)
        menu = build_menu(ballots, given, price_table)
        unpriced = [name for name in ballots.names if name not in menu.names]
        if self.join and unpriced:
            option = "--prices" if given is None else "--cost"
            remedy = f"[{unpriced[0]}] in that file" if given is None else f"--cost {unpriced[0]}=NUMBER"
            raise typer.BadParameter(
                f"mode {unpriced[0]!r} is joined and has no cost; give {remedy}, or leave its --join out",
                param_hint=option,
            )
        if not any(math.isfinite(mode.cost) for mode in menu.modes):
            raise typer.BadParameter(
                "every mode costs infinitely much; give one a finite cost", param_hint="--cost"
            )
        return ballots.select(menu.names), menu


def _note_prompts(ballots: Ballots, prices: Mapping[str, TokenPrices] | None) -> None:
    """Say on stderr which prompts count as the pools' calls recorded them."""
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
    """The pools of the modes by name, that of the argument first."""
    paths = {} if source is None else {_name_pool(source): source}
    for text in joins or ():
        name, path = _split_pair(text, "--join", "POOL", "smol=facts")
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


def _split_pair(text: str, option: str, what: str, example: str, *, last: bool = False) -> tuple[str, str]:
    """The parts before and after the first =, or the last: a mode may be called `M (temperature=0.2)`."""
    name, sign, value = text.rpartition("=") if last else text.partition("=")
    if not (sign and name.strip() and value.strip()):
        raise typer.BadParameter(f"{text!r} is not NAME={what}; give e.g. {example}", param_hint=option)
    return name.strip(), value.strip()


def parse_mode_costs(costs: Sequence[str] | None) -> dict[str, float] | None:
    """What a sample of each mode costs, by its name; None where no option says so."""
    parsed: dict[str, float] = {}
    for text in costs or ():
        name, number = _split_pair(text, "--cost", "NUMBER", "smol=0.1", last=True)
        if name in parsed:
            raise typer.BadParameter(f"mode {name!r} has two costs; give one", param_hint="--cost")
        try:
            parsed[name] = float(number)
        except ValueError as exc:
            raise typer.BadParameter(
                f"{number!r} of mode {name!r} is no number; give e.g. {name}=0.1", param_hint="--cost"
            ) from exc
    return parsed or None


def read_prices(path: Path | None) -> dict[str, TokenPrices] | None:
    """The prices of each mode in a TOML file, by its name; None where no file is given."""
    if path is None:
        return None
    tables = read_toml(path, "the prices file")
    if not tables:
        raise ConfigError(f"{format_path(path)}: has no mode; give a table for each, e.g. [small]")
    return {
        name: _read_mode_prices(table, f"{format_path(path)}: mode {name!r}")
        for name, table in tables.items()
    }


def _read_mode_prices(table: object, place: str) -> TokenPrices:
    if not isinstance(table, Mapping):
        raise ConfigError(
            f"{place}: {format_value(table)} is no table; give input_price and output_price in one"
        )
    for key in table:
        if key not in (*_PRICE_KEYS, *MODE_KEYS):
            hint = suggest_name(key, _PRICE_KEYS)
            raise ConfigError(f"{place}: has no field {key!r}; {hint}give {', '.join(_PRICE_KEYS)}")
    for key in ("input_price", "output_price"):
        if key not in table:
            raise ConfigError(f"{place}: has no {key}; give the money for a million tokens, 0 where free")
    currency = table.get("currency", DEFAULT_CURRENCY)
    if not isinstance(currency, str):
        raise ConfigError(f"{place}: currency {format_value(currency)} is no name; give one, e.g. 'EUR'")
    try:
        return TokenPrices(
            input=table["input_price"],
            output=table["output_price"],
            prompt_tokens=table.get("prompt_tokens"),
            currency=currency,
        )
    except PriceInvalid as exc:
        raise PriceInvalid(f"{place}: {exc}") from exc


def build_menu(
    ballots: Ballots, costs: Mapping[str, float] | None, prices: Mapping[str, TokenPrices] | None
) -> Menu:
    """Build the menu that the options ask for; refuse costs and prices together."""
    if costs is not None and prices is not None:
        raise typer.BadParameter("costs are given by --prices already; leave one out", param_hint="--cost")
    for name in costs or prices or ():
        if name not in ballots.names:
            hint = suggest_name(name, ballots.names)
            raise typer.BadParameter(
                f"there is no mode {name!r} in the pool; {hint}there are {', '.join(ballots.names)}",
                param_hint="--prices" if costs is None else "--cost",
            )
    return Menu.of(ballots, costs=costs, prices=prices)
