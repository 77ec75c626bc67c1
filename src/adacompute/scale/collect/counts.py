"""What collectors have done so far, added up: the part of a drawer that others ask. Knows nothing of Ray."""

from collections import Counter
from collections.abc import Iterable

from adacompute.collect import Progress
from adacompute.collect.outcome import Stop
from adacompute.collect.purse import Purse
from adacompute.scale.collect.collector import Drew

__all__ = ["Counts"]


class Counts:
    """Sums over all that is done; `now` is what is under way."""

    def __init__(self, purse: Purse) -> None:
        self._purse = purse
        self._failing: set[str] = set()  # problems that failed since a sample came
        self._calls = 0
        self._tokens = 0
        self._lacking = 0  # samples that did not come
        self.now: list[Progress] = []
        self.added = 0
        self.failures: dict[str, str] = {}  # problem id -> the last reason
        self.errors: Counter[str] = Counter()
        self.per_call: int | None = None
        self.logprobs: bool | None = None
        self.stopped: Stop | None = None
        self.why: str | None = None
        self.signal: int | None = None

    def stop(self, how: Stop, why: str | None = None, *, number: int | None = None) -> None:
        """Takes note that nothing more is to begin. `number` is a signal's."""
        if self.stopped is None:
            self.stopped, self.why = how, why
        self.signal = self.signal or number

    def again(self) -> None:
        """Forgets what failed: it is asked for once more."""
        self.failures.clear()
        self._failing.clear()
        self._lacking = 0

    def progress(self, *, planned: int, before: int) -> Progress:
        """How far all of them together are."""
        added = self.added + _sum(one.added for one in self.now)
        return Progress(
            planned=planned,
            stored=before + added,
            added=added,
            failed=self._lacking + _sum(one.failed for one in self.now),
            tokens=self._tokens + _sum(one.tokens for one in self.now),
            cost=self._purse.spent + sum(one.cost for one in self.now),
            errors=sum((Counter(one.errors) for one in self.now), self.errors.copy()),
            calls=self._calls + _sum(one.calls for one in self.now),
            concurrency=_sum(one.concurrency for one in self.now),
            in_flight=_sum(one.in_flight for one in self.now),
            stopping=self.stopped is not None,
        )

    def count(self, drew: Drew) -> int:
        """Takes in what came of a shard, but for its samples; how many problems in a row have failed."""
        done = drew.progress
        self._purse.spent += done.cost
        self.errors.update(done.errors)
        self._calls += done.calls
        self._tokens += done.tokens
        self._lacking += done.failed
        self.failures.update(drew.failures)
        self.per_call = self.per_call if drew.per_call is None else drew.per_call
        self.logprobs = self.logprobs if drew.logprobs is None else drew.logprobs
        if done.added:
            self._failing.clear()
        else:
            self._failing.update(drew.failures)
        return len(self._failing)


def _sum(numbers: Iterable[int]) -> int:
    return sum(numbers)
