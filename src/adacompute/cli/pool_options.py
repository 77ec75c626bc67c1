"""Options that choose which samples to read and how to score them. Also reads the samples.

The samples are in a pool, a file, a bundled recording, or a folder of shards.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import orjson
import typer

from adacompute.cli.options import (
    NO_ANSWER_HINT,
    AnswerOptions,
    BudgetsOption,
    EngineOptions,
    InputPriceOption,
    OutputPriceOption,
    choose_from,
    open_source,
    parse_budgets,
)
from adacompute.cli.terminal import format_count, format_path, print_message
from adacompute.config import AnswersConfig, ScoreConfig
from adacompute.errors import ScaleError, TooFewSamples
from adacompute.pool import Ballots, bundled_names
from adacompute.records import DEFAULT_CURRENCY, BudgetUnit, TokenPrices
from adacompute.score.grades import BlockMap

if TYPE_CHECKING:
    from adacompute.evaluate import Scoring


def type_options(*options: tuple[str, str | None]) -> str:
    """Returns the given options (those with a value) as typed, each with a leading space."""
    return "".join(f" {name} {shlex.quote(text)}" for name, text in options if text is not None)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Options that choose one of the models in a pool."""

    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which model, if the pool has several.")
    ] = None
    parameters: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Which sampling parameters, if the model has several."),
    ] = None

    @property
    def words(self) -> str:
        """The options as typed on a command line, with a leading space."""
        return type_options(("--model", self.model), ("--parameters", self.parameters))


NO_ANSWER_OPTIONS, NO_SOURCE_OPTIONS = AnswerOptions(), SourceOptions()


def read_ballots(
    source: Path,
    answers: AnswersConfig,
    reading: AnswerOptions = NO_ANSWER_OPTIONS,
    which: SourceOptions = NO_SOURCE_OPTIONS,
    *,
    ballots: Ballots | None = None,
) -> Ballots:
    """Reads the votes of one model from a pool, file or recording; warns if no sample has an answer.

    If the caller has already read the votes, it passes them as `ballots`.
    """
    name, parameters = format_path(source), parse_parameters(which.parameters)
    if ballots is None:
        with open_source(source, reading.build_tasks(answers)) as pool:
            ballots = pool.ballots(which.model, parameters=parameters)
    if not len(ballots):
        raise TooFewSamples(f"{name}: no problem has a sample; collect or import some first")
    if not (ballots.classes >= 0).any() and not (ballots.correct > 0).any():
        samples = format_count(int(ballots.drawn.sum()), "sample")
        print_message(f"{name}: no answer was found in any of {samples}; {NO_ANSWER_HINT}")
    return ballots


def parse_parameters(text: str | None) -> dict[str, Any] | None:
    """Parses sampling parameters given as JSON."""
    if text is None:
        return None
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        raise typer.BadParameter(f"{text!r} is not JSON ({exc})", param_hint="--parameters") from exc
    if not isinstance(parsed, dict):
        raise typer.BadParameter(
            f'{text!r} is not an object, e.g. {{"temperature": 0.7}}', param_hint="--parameters"
        )
    return parsed


def limit_budgets(ballots: Ballots, defaults: tuple[int, ...], *, drop: bool) -> tuple[int, ...]:
    """Returns the default budgets that need no more samples than are recorded; says if some are left out.

    A problem with less than half of the median number of samples doesn't limit the budgets. It is ignored if
    `drop`; otherwise, if it has too few for the default budgets, raises TooFewSamples.
    """
    drawn = ballots.drawn
    has_few = 2 * drawn < np.median(drawn)  # which problems have few samples; shape (problems,)
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
    """Yields the votes of one model, and a `map` for blocks of problems, which runs on Ray if asked to."""
    if not engine.is_ray:
        yield read_ballots(source, answers, reading, which), map
        return
    name, parameters = format_path(source), parse_parameters(which.parameters)
    if name in bundled_names() and not source.exists():
        raise ScaleError(
            f"{name}: is a recording in the package, and engine ray works on a folder of Parquet; write one "
            f"with adacompute export {name} FOLDER --shards 8, or use --engine local"
        )
    from adacompute.scale.stages import open_shards  # imported here, so that `serve` starts without it

    _, task = reading.build_tasks(answers)
    shards = open_shards(source, task=task, model=which.model, parameters=parameters, workers=engine.workers)
    with shards as (ballots, map_blocks):
        yield read_ballots(source, answers, reading, which, ballots=ballots), map_blocks


Aggregate = Literal["vote", "weighted", "best-of", "any-correct"]
ConfidenceSignal = Literal["logprob", "entropy"]
TooFew = Literal["error", "drop"]
TooFewOption = Annotated[
    TooFew, choose_from(TooFew, help="What to do with problems that can't be scored at every budget.")
]


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """Options for budgets, for scoring samples, and for token prices."""

    budgets: BudgetsOption = None
    aggregate: Annotated[
        Aggregate, choose_from(Aggregate, help="How the samples of a problem become one answer.")
    ] = "vote"
    by: Annotated[
        ConfidenceSignal | None,
        choose_from(ConfidenceSignal, help="Signal for weighted and best-of. [default: logprob]"),
    ] = None
    input_price: InputPriceOption = None
    output_price: OutputPriceOption = None
    currency: Annotated[
        str | None, typer.Option(metavar="NAME", help="Currency, for --cost money. [default: USD]")
    ] = None
    too_few: TooFewOption = "error"

    def build_scoring(self, cost: BudgetUnit, currency: str | None) -> "Scoring":
        """Builds the object that scores samples; raises an error for options that contradict each other."""
        from adacompute.evaluate import Scoring  # imported here, so that `serve` starts without it

        if self.by is not None and self.aggregate not in ("weighted", "best-of"):
            raise typer.BadParameter(
                f"{self.by} is for --aggregate weighted or best-of, not {self.aggregate}", param_hint="--by"
            )
        return Scoring(
            aggregate=self.aggregate, by=self.by or "logprob", cost=self._choose_cost(cost, currency)
        )

    def _choose_cost(
        self, cost: BudgetUnit, currency: str | None
    ) -> Literal["samples", "tokens"] | TokenPrices:
        """Returns how cost is counted: samples, tokens, or token prices if it is counted in money."""
        if cost != "money":
            if self.input_price is not None or self.output_price is not None:
                raise typer.BadParameter(
                    "prices are for --cost money", param_hint="--input-price, --output-price"
                )
            if currency is not None:
                raise typer.BadParameter("a currency is for --cost money", param_hint="--currency")
            return cost
        if self.input_price is None or self.output_price is None:
            raise typer.BadParameter("money needs --input-price and --output-price", param_hint="--cost")
        currency = DEFAULT_CURRENCY if currency is None else currency.strip()
        if currency in ("", "samples", "tokens"):
            raise typer.BadParameter(
                f"{currency!r} is not a currency; give e.g. EUR", param_hint="--currency"
            )
        return TokenPrices(input=self.input_price, output=self.output_price, currency=currency)

    def choose_budgets(self, ballots: Ballots, settings: ScoreConfig) -> tuple[int, ...]:
        """Returns the budgets from --budgets or the settings, else the defaults that have enough samples."""
        budgets = parse_budgets(settings, self.budgets)
        if self.budgets is None and settings == ScoreConfig():
            return limit_budgets(ballots, budgets, drop=self.too_few == "drop")
        return budgets
