"""Accuracy tables for hypothesis: random ones and the degenerate shapes. Knows nothing of what is tested."""

from hypothesis import strategies as st

from adacompute.records import AccuracyTable

KINDS = ("fine", "parts", "flat", "falling", "zeros", "copies", "wild")


def _cells(kind: str) -> st.SearchStrategy[float]:
    if kind == "wild":  # any double, down to the least there is
        return st.floats(0, 1)
    if kind == "fine":
        return st.integers(0, 10**6).map(lambda n: n / 10**6)
    return st.integers(0, 48).map(lambda n: n / 48)


def _row(kind: str, modes: int) -> st.SearchStrategy[list[float]]:
    if kind == "flat":
        return _cells(kind).map(lambda value: [value] * modes)
    if kind == "zeros":
        return st.just([0.0] * modes)
    row = st.lists(_cells(kind), min_size=modes, max_size=modes)
    return row.map(lambda cells: sorted(cells, reverse=True)) if kind == "falling" else row


def _costs(modes: int, *, wild: bool) -> st.SearchStrategy[list[float]]:
    """Ascending, some equal now and then; samples, fractions of them, or nearly any doubles."""
    cell = st.one_of(st.integers(0, 16).map(float), st.integers(0, 4000).map(lambda n: n / 125))
    if wild:
        cell = st.one_of(cell, st.floats(0, 1e6).map(lambda cost: round(cost, 9)))
    free = st.lists(cell, min_size=modes, max_size=modes).map(sorted)
    return st.one_of(st.just([float(2**k) for k in range(modes)]), free)


@st.composite
def tables(
    draw: st.DrawFn,
    *,
    most_problems: int = 8,
    most_modes: int = 5,
    kinds: tuple[str, ...] = KINDS,
    shared: bool | None = None,
    order: str = "ascending",
) -> AccuracyTable:
    """A table of any kind: parts of 48, ties, falling, flat, zero or repeated rows, one problem or mode.

    `shared` says whether all problems cost alike (None: either); `order="any"` shuffles each row's modes.
    Leave "wild" out of `kinds` where the other side of a comparison works to a tolerance of its own.
    """
    problems, modes = draw(st.integers(1, most_problems)), draw(st.integers(1, most_modes))
    kind = draw(st.sampled_from(kinds))
    rows = draw(st.lists(_row(kind, modes), min_size=problems, max_size=problems))
    if kind == "copies":
        rows = [rows[0]] * problems
    alike = draw(st.booleans()) if shared is None else shared
    wild = kind == "wild"
    if alike:
        costs: object = draw(_costs(modes, wild=wild))
    else:
        costs = [draw(_costs(modes, wild=wild)) for _ in range(problems)]
    if order == "any":
        shuffle = st.permutations(range(modes))
        if alike:
            places = draw(shuffle)
            costs = [costs[k] for k in places]  # type: ignore[index]
        else:
            costs = [[row[k] for k in draw(shuffle)] for row in costs]  # type: ignore[attr-defined]
    return AccuracyTable.of(rows, costs=costs, order=order)


def spread(table: AccuracyTable) -> tuple[float, float]:
    """The cheapest and the dearest average cost of any allocation."""
    costs = table.cost_matrix
    return float(costs.min(axis=1).mean()), float(costs.max(axis=1).mean())


@st.composite
def budgeted(draw: st.DrawFn, **kinds: object) -> tuple[AccuracyTable, float]:
    """A table with a budget that some allocation meets: its ends, the costs of the modes, and between."""
    table = draw(tables(**kinds))  # type: ignore[arg-type]
    low, high = spread(table)
    share = draw(
        st.one_of(st.sampled_from((0.0, 0.5, 1.0, 1.5)), st.integers(0, 1000).map(lambda n: n / 1000))
    )
    return table, low + share * (high - low)


@st.composite
def chosen(draw: st.DrawFn, **kinds: object) -> tuple[AccuracyTable, list[int]]:
    """A table with any choice of a mode for each problem."""
    table = draw(tables(**kinds))  # type: ignore[arg-type]
    mode = st.integers(0, len(table.modes) - 1)
    return table, draw(st.lists(mode, min_size=len(table), max_size=len(table)))


def prices() -> st.SearchStrategy[float]:
    """0, round prices that meet ties of 1/48, and any others."""
    tied = st.builds(lambda gain, cost: gain / 48 / cost, st.integers(0, 48), st.integers(1, 15))
    return st.one_of(st.just(0.0), tied, st.floats(0, 5), st.floats(0, 1e6))
