"""Who draws what, and how fast: runs in shards, limits in shares. Knows nothing of Ray or pools."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from adacompute.collect.left import Run
from adacompute.endpoint import Limits

__all__ = ["cut", "most_of", "rest_of", "share"]

_EACH = 4  # shards a worker: whoever is done early takes another
_SMALL = 32  # samples: smaller shards are not worth a file of their own, unless workers would be idle
_LARGE = 4096  # samples: larger ones would make long transactions
_REQUESTS, _TOKENS = (
    60.0,
    60_000.0,
)  # a minute: a collector's share is no less, or their first calls would add up


def cut(runs: Sequence[Run], workers: int) -> list[tuple[Run, ...]]:
    """Runs in shards of about as many samples each, in their order; the same for the same runs."""
    samples = sum(run.count for run in runs)
    count = max(min(_EACH * workers, samples // _SMALL), workers, -(-samples // _LARGE))
    shards: list[list[Run]] = [[] for _ in range(count)]
    before = 0
    for run in runs:
        shards[before * count // samples].append(run)
        before += run.count
    return [tuple(shard) for shard in shards if shard]


def most_of(limits: Limits) -> int:
    """How many collectors there is something to do for, within the limits."""
    rates = ((limits.requests_per_minute, _REQUESTS), (limits.tokens_per_minute, _TOKENS))
    fit = [int(rate // least) for rate, least in rates if rate is not None]
    return max(1, min([limits.concurrency, *fit]))


def share(limits: Limits, worker: int, workers: int) -> Limits:
    """What one of several workers may ask of the endpoint: all of them together what one may."""
    whole, more = divmod(limits.concurrency, workers)
    requests, tokens = limits.requests_per_minute, limits.tokens_per_minute
    return replace(
        limits,
        concurrency=whole + (worker < more),
        requests_per_minute=None if requests is None else requests / workers,
        tokens_per_minute=None if tokens is None else tokens / workers,
    )


def rest_of(
    runs: Sequence[Run], there: Mapping[str, Collection[int]], failed: Collection[str] = ()
) -> tuple[Run, ...]:
    """The runs without the samples that are there, and without the problems that failed."""
    return tuple(
        part
        for run in runs
        if run.problem.id not in failed
        for part in _pieces(run, there.get(run.problem.id, ()))
    )


def _pieces(run: Run, there: Collection[int]) -> Iterator[Run]:
    start = run.first
    for index in range(run.first, run.first + run.count + 1):
        if index == run.first + run.count or index in there:
            if index > start:
                yield Run(run.problem, start, index - start)
            start = index + 1
