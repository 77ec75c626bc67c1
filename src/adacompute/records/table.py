"""The accuracy table: how right each problem is in each mode, and what that costs. Knows no estimator."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import TableInvalid

__all__ = ["AccuracyTable", "Mode"]

Mode = int | float | str  # what a column is called: a number of samples, or any name
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyTable:
    """Accuracy of each problem in each mode, with its cost. Make one with `of`; arrays are read-only.

    A mode is a number of samples, or a model, a reasoning effort, a token limit: a name and a cost.

    >>> table = AccuracyTable.of([[0.5, 0.9], [0.8, 0.8]], costs=[1, 4], modes=["small", "large"])
    >>> len(table), table.modes
    (2, ('small', 'large'))
    """

    accuracy: Floats  # (problems, modes) 0 to 1
    costs: Floats  # (modes,) the same for every problem, or (problems, modes); in `unit`, never negative
    modes: tuple[Mode, ...]  # (modes,) names
    standard_error: Floats | None = None  # (problems, modes) of accuracy; NaN: can't be told; None: not known
    ids: tuple[str, ...] | None = None  # (problems,)
    unit: str = "samples"  # of cost
    ascending: bool = True  # costs never fall from left to right, in any row
    dropped: tuple[str, ...] = ()  # ids of problems that were left out on request
    protocol: str = ""  # how the accuracies were come by, in words

    @classmethod
    def of(
        cls,
        accuracy: npt.ArrayLike,
        *,
        costs: npt.ArrayLike,
        modes: Sequence[Mode] | None = None,
        standard_error: npt.ArrayLike | None = None,
        ids: Sequence[str] | None = None,
        unit: str = "samples",
        order: Literal["ascending", "any"] = "ascending",
        dropped: Sequence[str] = (),
        protocol: str = "",
    ) -> "AccuracyTable":
        """A checked table of your own numbers: (problems, modes), with costs (modes,) or (problems, modes).

        Modes stand in ascending cost, unless `order="any"` (two models whose order differs by problem).
        Without names, modes are called by their cost, or by their place where costs differ by problem.
        """
        if order not in ("ascending", "any"):
            raise TableInvalid(f"order {order!r} is not known; give 'ascending' or 'any'")
        values, spent = _array(accuracy, "accuracy"), _array(costs, "costs")
        _check_shape(values, spent)
        names = tuple(modes) if modes is not None else _names(spent)
        labels = tuple(str(name) for name in ids) if ids is not None else None
        for what, given, wanted in (("modes", names, values.shape[1]), ("ids", labels, len(values))):
            if given is not None and len(given) != wanted:
                raise TableInvalid(f"{len(given)} {what} for a table of shape {values.shape}; give {wanted}")
        if len(set(names)) < len(names):
            raise TableInvalid(f"modes {list(names)} hold a name twice; give each its own")
        _check_accuracy(values, names, labels)
        _check_costs(spent, names, labels, order)
        error = None if standard_error is None else _array(standard_error, "standard_error")
        if error is not None and (error.shape != values.shape or bool((error < 0).any())):
            raise TableInvalid(
                f"standard_error of shape {error.shape} can't be; "
                f"give (problems, modes) = {values.shape}, none negative"
            )
        for array in (values, spent, error):
            if array is not None:
                array.setflags(write=False)
        return cls(
            accuracy=values,
            costs=spent,
            modes=names,
            standard_error=error,
            ids=labels,
            unit=unit,
            ascending=order == "ascending" or not _falls(spent).any(),
            dropped=tuple(dropped),
            protocol=protocol,
        )

    def __len__(self) -> int:
        return len(self.accuracy)

    @property
    def cost_matrix(self) -> Floats:
        """Costs as (problems, modes), whichever way they were given; a view, without copying."""
        return np.broadcast_to(self.costs, self.accuracy.shape)

    @property
    def shared_costs(self) -> bool:
        """Whether every problem has the same costs."""
        return self.costs.ndim == 1

    def problem(self, row: int) -> str:
        """A problem's name for a message: its id, or its row."""
        return _problem(row, self.ids)


def _array(given: npt.ArrayLike, what: str) -> Floats:
    """A private copy: what its owner writes into the original later changes nothing here."""
    try:
        return np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError) as exc:
        raise TableInvalid(
            f"{what} can't be read as an array of numbers ({exc}); give one row a problem"
        ) from exc


def _check_shape(values: Floats, costs: Floats) -> None:
    if values.ndim != 2 or 0 in values.shape:
        raise TableInvalid(
            f"accuracy of shape {values.shape} is no table; give (problems, modes), at least one of each"
        )
    if costs.shape not in (values.shape, values.shape[1:]):
        raise TableInvalid(
            f"costs of shape {costs.shape} don't fit accuracy of shape {values.shape}; "
            f"give {values.shape[1:]} for all problems alike, or {values.shape}"
        )


def _check_accuracy(values: Floats, names: tuple[Mode, ...], ids: tuple[str, ...] | None) -> None:
    if values.min() >= 0 and values.max() <= 1:  # false where there is a NaN
        return
    row, column = (int(i) for i in np.argwhere(~((values >= 0) & (values <= 1)))[0])
    raise TableInvalid(
        f"accuracy of {_problem(row, ids)} in mode {names[column]!r} (row {row}, column {column}) is "
        f"{values[row, column]}; give a number from 0 to 1"
    )


def _check_costs(costs: Floats, names: tuple[Mode, ...], ids: tuple[str, ...] | None, order: str) -> None:
    if not (costs.min() >= 0 and costs.max() < np.inf):
        *row, column = (int(i) for i in np.argwhere(~((costs >= 0) & (costs < np.inf)))[0])
        raise TableInvalid(
            f"cost of mode {names[column]!r}{_at(row, column, ids)} is {costs[*row, column]}; "
            "give a finite number from 0 up"
        )
    if order == "ascending" and (fall := _falls(costs)).any():
        *row, column = (int(i) for i in np.argwhere(fall)[0])
        raise TableInvalid(
            f"cost of mode {names[column + 1]!r}{_at(row, column + 1, ids)} is {costs[*row, column + 1]}, "
            f"below {costs[*row, column]} of the mode before it; "
            "put modes in ascending cost, or say order='any'"
        )


def _falls(costs: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(costs[..., 1:] < costs[..., :-1])


def _at(row: list[int], column: int, ids: tuple[str, ...] | None) -> str:
    if not row:
        return f" (column {column})"
    return f" for {_problem(row[0], ids)} (row {row[0]}, column {column})"


def _problem(row: int, ids: tuple[str, ...] | None) -> str:
    return f"problem {row if ids is None else ids[row]!r}"


def _names(costs: Floats) -> tuple[Mode, ...]:
    if costs.ndim == 2 or len(np.unique(costs)) < len(costs):
        return tuple(range(costs.shape[-1]))
    return tuple(int(cost) if cost.is_integer() else cost for cost in costs.tolist())
