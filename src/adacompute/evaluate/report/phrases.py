"""Numbers put into words, the same way in every section. Knows nothing of what they mean."""

from collections.abc import Iterable, Sequence

from adacompute.evaluate.bootstrap import Interval

__all__ = ["gains", "listed", "points", "shares", "unlike"]


def listed(items: Sequence[str]) -> str:
    """One after the other.

    >>> listed(["1.5", "2", "3"]), listed(["2"])
    ('1.5, 2 and 3', '2')
    """
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


def points(values: Iterable[float]) -> str:
    """Differences of shares, in points.

    >>> points([0.012, -0.003])
    '+1.2 and -0.3 points'
    """
    return f"{listed([f'{100 * value:+.1f}' for value in values])} points"


def gains(values: Iterable[Interval]) -> str:
    """Differences of shares with their intervals, in points."""
    return f"{listed([_gain(value) for value in values])} points"


def shares(values: Iterable[float]) -> str:
    """Shares, as percent.

    >>> shares([0.951, 0.9])
    '95.1% and 90.0%'
    """
    return listed([f"{value:.1%}" for value in values])


def unlike(values: Sequence[Interval]) -> tuple[list[int], list[int]]:
    """Which differences are clearly above zero, and which clearly below: their intervals don't hold it."""
    sure = [at for at, value in enumerate(values) if not value.holds_zero]
    return [at for at in sure if values[at].mean > 0], [at for at in sure if values[at].mean < 0]


def _gain(value: Interval) -> str:
    if value.low is None or value.high is None:
        return f"{100 * value.mean:+.1f}"
    return f"{100 * value.mean:+.1f} ({100 * value.low:+.1f} to {100 * value.high:+.1f})"
