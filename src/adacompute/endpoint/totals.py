"""What was spent: totals over all attempts of a client. Knows nothing of prices."""

from collections import Counter
from dataclasses import dataclass, field

from adacompute.records import Call

__all__ = ["Totals"]


@dataclass(slots=True)
class Totals:
    """Running totals; every attempt is in exactly one kind."""

    calls: int = 0  # attempts, also failed and cancelled ones
    kinds: Counter[str] = field(default_factory=Counter)  # "ok", or the kind of the error
    paid: int = 0  # calls that were paid for
    maybe: int = 0  # calls that may have been
    responses: int = 0  # choices that could be used
    prompt_tokens: int = 0
    completion_tokens: int = 0
    in_flight: int = 0  # now

    def add(self, call: Call) -> None:
        """Counts one attempt."""
        self.calls += 1
        self.kinds[call.kind] += 1
        self.paid += call.paid == "yes"
        self.maybe += call.paid == "maybe"
        self.responses += call.got
        self.prompt_tokens += call.prompt_tokens or 0
        self.completion_tokens += call.completion_tokens or 0
