"""Options that say which recorded samples a command works on and how they are scored, and reading them.

The samples are of a pool, a file, a bundled recording or a folder of shards.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import orjson
import typer

from adacompute.cli.options import NO_ANSWER_HINT, PercentMode, build_tasks, open_source, parse_finite
from adacompute.cli.terminal import format_count, format_path, print_message
from adacompute.config import AnswersConfig
from adacompute.errors import BudgetOutOfRange, ScaleError, TooFewSamples
from adacompute.evaluate import Scoring
from adacompute.pool import Ballots, bundled_names
from adacompute.records import DEFAULT_CURRENCY, TokenPrices
from adacompute.scale.stages import ShardedPool
from adacompute.scale.stages import open_sharded_pool as open_on_ray

__all__ = [
    "Aggregate",
    "AggregateOption",
    "CostOption",
    "CostUnit",
    "CurrencyOption",
    "Estimator",
    "EstimatorOption",
    "ModelOption",
    "ParametersOption",
    "ShrinkFlag",
    "SignalOption",
    "TooFew",
    "TooFewOption",
    "build_cost",
    "build_scoring",
    "limit_budgets",
    "parse_budget",
    "read_ballots",
    "read_shards",
]

ModelOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Which model, where a pool holds several.")
]
ParametersOption = Annotated[
    str | None,
    typer.Option(metavar="JSON", help="Which of its sampling parameters, where there are several."),
]


def read_ballots(
    source: Path,
    *,
    answers: AnswersConfig,
    model: str | None,
    parameters: str | None,
    extract: str | None = None,
    percent: PercentMode | None = None,
) -> Ballots:
    """Read the votes of one model in a pool, file or bundled recording; warn where no answer was found."""
    name, sampling_parameters = format_path(source), parse_parameters(parameters)
    task, default_task = build_tasks(answers, extract, percent)
    with open_source(source, task=task, default_task=default_task) as pool:
        ballots = pool.ballots(model, parameters=sampling_parameters)
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


class SampleCounts(Protocol):
    """Problems with their numbers of samples: ballots, or the heads of shards."""

    @property
    def ids(self) -> Sequence[str]:
        """(problems,)"""

    @property
    def drawn(self) -> npt.NDArray[np.int64]:
        """(problems,) samples."""


def limit_budgets(ballots: SampleCounts, defaults: tuple[int, ...], *, drop: bool) -> tuple[int, ...]:
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


def _explain_refusal(ballots: SampleCounts, defaults: tuple[int, ...]) -> str:
    drawn = ballots.drawn
    row, fewest = int(drawn.argmin()), int(drawn.min())
    listed = ",".join(map(str, _select_budgets(defaults, fewest)))
    return (
        f"problem {ballots.ids[row]!r} has {format_count(fewest, 'sample')}, less than half of what most "
        f"have; give --budgets {listed} or --too-few drop, or collect more"
    )


@contextmanager
def read_shards(
    source: Path,
    *,
    answers: AnswersConfig,
    model: str | None,
    parameters: str | None,
    extract: str | None = None,
    percent: PercentMode | None = None,
    workers: int | None = None,
) -> Iterator[ShardedPool]:
    """Open the votes of one model in a folder of Parquet shards on Ray; warn where no answer was found."""
    name, sampling_parameters = format_path(source), parse_parameters(parameters)
    if name in bundled_names() and not source.exists():
        raise ScaleError(
            f"{name}: is a recording in the package, and engine ray works on a folder of Parquet; write one "
            f"with adacompute export {name} FOLDER --shards 8, or use --engine local"
        )
    _, task = build_tasks(answers, extract, percent)
    with open_on_ray(
        source, task=task, model=model, parameters=sampling_parameters, workers=workers
    ) as shards:
        heads = shards.index
        if not heads.answered.any() and not heads.right.any():
            samples = format_count(int(heads.drawn.sum()), "sample")
            print_message(f"{name}: no answer was found in any of {samples}; {NO_ANSWER_HINT}")
        yield shards


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


def parse_budget(text: str) -> float:
    """Parse an average budget above 0; refused before any sample is read."""
    budget = parse_finite(text)
    if budget <= 0:
        raise BudgetOutOfRange(f"budget {text} can't be spent; give a number above 0, e.g. 2")
    return budget


AggregateOption = Annotated[Aggregate, typer.Option(help="How the samples of a problem become one answer.")]
SignalOption = Annotated[
    ConfidenceSignal | None, typer.Option(help="What weighted and best-of go by. [default: logprob]")
]
EstimatorOption = Annotated[
    Estimator, typer.Option(help="All subsets of the samples, or the paper's disjoint windows.")
]
CostOption = Annotated[CostUnit, typer.Option(help="What --budget counts.")]
CurrencyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Currency, for --cost money. [default: USD]")
]
TooFewOption = Annotated[
    TooFew, typer.Option(help="What to do about problems that can't be scored at every budget.")
]
ShrinkFlag = Annotated[
    bool, typer.Option("--shrink", help="Pull each problem toward those like it before choosing.")
]


def build_scoring(
    aggregate: Aggregate,
    by: ConfidenceSignal | None,
    estimator: Estimator,
    *,
    cost: Literal["samples", "tokens"] | TokenPrices,
) -> Scoring:
    """Build the way of scoring that the options ask for; refuse options that don't go together."""
    uses_signal = aggregate in (Aggregate.weighted, Aggregate.best_of)
    if by is not None and not uses_signal:
        raise typer.BadParameter(
            f"{by.value} is for --aggregate weighted or best-of, not {aggregate.value}", param_hint="--by"
        )
    return Scoring(
        aggregate=aggregate.value,
        estimator=estimator.value,
        by=(by or ConfidenceSignal.logprob).value,
        cost=cost,
    )


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
