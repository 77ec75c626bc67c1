"""What an evaluation has found, as records and as plain data. Knows nothing of how it was measured."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from adacompute.evaluate.bootstrap import Interval
from adacompute.evaluate.measure import Basis

__all__ = ["Bracket", "Evaluation", "Imitation", "Match", "Protocol", "Row", "Verdict"]

Protocol = Literal["held-out", "paper"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy at one budget, as it would have run: calibrated beforehand, its cost as it came out."""

    policy: str
    budget: float  # samples on average, asked for
    cost: float  # samples on average, spent
    accuracy: float
    low: float | None  # 95% interval over problems
    high: float | None
    protocol: str  # what may be believed of it, in words
    waves: float | None = None  # rounds of sampling a request, on average
    tokens: float | None = None  # output tokens a request, on average; None: not recorded
    reached: bool = True  # False: no setting of its dial meets the budget
    cost_std: float | None = None  # over seeds, in the paper's protocol
    accuracy_std: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One policy at exactly one average cost, on the hull of its own settings."""

    policy: str
    budget: float
    cost: float  # the budget, or less where even its best setting costs less
    accuracy: float
    low: float | None
    high: float | None
    gain: Interval | None  # over `fixed` at the same cost, paired; None: that took no part, or it is that
    lead: Interval | None  # over the joint hull of the peers
    recovered: tuple[float | None, float | None]  # share of the oracle's gain, of its low and high end
    worth: Interval | None  # uniform samples that are as accurate; infinite: more than there are


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """The oracle over some budgets, which knows the answers: chosen and judged on different samples, and the
    same."""

    budget: float
    cost: float  # the budget, or less where it has no use for all of it
    low: Interval | None  # cross-fitted; None: too few samples to tell
    high: float  # in-sample
    why: str = ""  # there is no low end


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitation:
    """How often a classifier names the oracle's budget, beside how often the commonest one is right."""

    budget: float
    accuracy: float
    majority: float  # of always naming the commonest budget of the training problems
    protocol: str  # held-out or in-sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What may be said at one budget, in words."""

    budget: float
    policy: str | None  # the best learned one there; None: none took part
    better: bool | None  # than all alike, beyond doubt; None: can't be told
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Policies at the same average costs, on recorded samples."""

    problems: int
    folds: int  # or seeds, in the paper's protocol
    protocol: Protocol
    votes: Literal["plain", "weighted"]
    basis: Basis  # agreement with the full vote where there are no grades
    orders: int  # of each problem's samples
    longest: int  # samples a request, at most
    dropped: int  # problems without grades, left out
    left_out: tuple[str, ...]  # policies that can't learn without grades
    rows: tuple[Row, ...]
    matched: tuple[Match, ...]
    oracle: tuple[Bracket, ...]
    imitation: tuple[Imitation, ...]
    verdicts: tuple[Verdict, ...]
    verdict: str  # over all budgets

    def match(self, policy: str, budget: float) -> Match | None:
        """A policy at one of the budgets; None where it can't cost so little, or took no part."""
        return next((one for one in self.matched if (one.policy, one.budget) == (policy, budget)), None)

    def row(self, policy: str, budget: float) -> Row | None:
        """The first row of a policy at one of the budgets."""
        return next((one for one in self.rows if (one.policy, one.budget) == (policy, budget)), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON; null for what can't be told."""
        return asdict(self)
