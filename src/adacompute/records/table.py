"""The accuracy table: how right each problem is in each mode, and what that costs. Knows no estimator."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from adacompute.errors import TableInvalid

__all__ = ["AccuracyTable", "Mode"]

Mode = int | float | str  # what a column is called: a number of samples, or any name
Floats = npt.NDArray[np.float64]

_LARGEST = 1e200  # of a cost, and of 1 / cost: beyond, gains per cost and sums are no numbers any more


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
        names = _names(spent) if modes is None else tuple(_listed(modes, values.shape[1], "modes"))
        labels = None if ids is None else tuple(str(i) for i in _listed(ids, len(values), "ids"))
        _check_accuracy(values, names, labels)
        _check_costs(spent, names, labels, order)
        error = None if standard_error is None else _array(standard_error, "standard_error")
        _check_error(error, values, names, labels)
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
    if isinstance(given, np.ma.MaskedArray):
        given = np.ma.filled(given.astype(np.float64), np.nan)  # what is masked isn't known: refused as such
    try:
        if np.iscomplexobj(given):
            raise TypeError("they are complex")
        return np.array(given, dtype=np.float64, order="F")  # modes are worked on one after the other
    except (TypeError, ValueError) as exc:
        raise TableInvalid(
            f"{what} can't be read as an array of numbers ({exc}); give one row a problem"
        ) from exc


def _listed(given: object, wanted: int, what: str) -> list[Mode]:
    """Names, as many as wanted, each its own."""
    named: list[Mode] = [] if isinstance(given, bytes) or not isinstance(given, Iterable) else list(given)
    plain = [name.item() if isinstance(name, np.generic) else name for name in named]
    if len(plain) != wanted or not all(isinstance(name, int | float | str) for name in plain):
        raise TableInvalid(f"{what} {_cut(given)} don't fit; give {wanted} names, one each")
    if len(set(plain)) < wanted:
        twice = Counter(plain).most_common(1)[0][0]
        raise TableInvalid(f"{what} hold {twice!r} twice; give each its own")
    return plain


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


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


def _check_error(
    error: Floats | None, values: Floats, names: tuple[Mode, ...], ids: tuple[str, ...] | None
) -> None:
    if error is None:
        return
    if error.shape != values.shape:
        raise TableInvalid(
            f"standard_error of shape {error.shape} doesn't fit; give (problems, modes) = {values.shape}"
        )
    if (wrong := (error < 0) | np.isinf(error)).any():
        row, column = (int(i) for i in np.argwhere(wrong)[0])
        raise TableInvalid(
            f"standard_error of {_problem(row, ids)} in mode {names[column]!r} (row {row}, column {column}) "
            f"is {error[row, column]}; give a number from 0 up, or NaN where it can't be told"
        )


def _check_costs(costs: Floats, names: tuple[Mode, ...], ids: tuple[str, ...] | None, order: str) -> None:
    least = float(np.min(costs, where=costs != 0, initial=_LARGEST))
    if not (least >= 1 / _LARGEST and costs.max() <= _LARGEST):
        sound = (costs == 0) | ((costs >= 1 / _LARGEST) & (costs <= _LARGEST))
        *row, column = (int(i) for i in np.argwhere(~sound)[0])
        raise TableInvalid(
            f"cost of mode {names[column]!r}{_at(row, column, ids)} is {costs[*row, column]}; "
            f"give a number from 0 up (0, or {1 / _LARGEST:g} to {_LARGEST:g})"
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
