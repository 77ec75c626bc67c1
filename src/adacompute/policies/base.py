"""The one protocol of all policies: from a prompt and its tally, how many more samples now; 0 stops.

Doesn't know how samples are drawn: replay and the gateway ask the same object, and get the same answers,
because `more` is `decide` for one request. What a policy sees of a prompt (`read`) is kept apart from what
it decides (`decide`), so that replay reads each prompt once.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from adacompute.answers import Tally, Weigh
from adacompute.errors import PolicyError
from adacompute.paths.standing import Floats, Ints, Standing
from adacompute.policies.artefact import write_artefact
from adacompute.policies.folder import folder_of
from adacompute.policies.settings import shown
from adacompute.pool import Ballots, Pool

__all__ = ["Arrays", "Dial", "Policy", "ballots_of", "noted"]

Dial = Literal["price", "threshold"]
Arrays = Mapping[str, npt.NDArray[Any]]

LONGEST = 16  # samples a request, at most, where nothing else is said


class Policy(ABC):
    """Decides from the prompt and the tally how many more samples to draw.

    A subclass sets `kind` and `dial`, and writes `read` (where it looks at prompts), `decide`, `fit`,
    `settings`, `arrays` and `restored`. The dial is such that cost never rises with it.
    """

    kind: ClassVar[str]  # its name in commands, tables and artefacts
    dial: ClassVar[Dial | None] = None  # None: made or fitted for one budget
    longest: int = LONGEST  # samples a request, at most
    weigh: Weigh | None = None  # how it weighs votes; None: plain
    draw_cost: float | None = 1.0  # of one sample, in the unit of its price; None: not known yet
    max_waves: int | None = None  # None: as many as there are samples
    beforehand: bool = False  # True: decides on the prompt alone, and never looks at a tally
    reads_entropy: bool = False  # True: the entropy of the first sample has a say, so ask the endpoint for it
    reads_first: ClassVar[bool] = (
        True  # False: what it asks for on an empty tally is the same for every prompt
    )

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """How many more samples to draw now for one request; 0 stops. At least 1 on an empty tally.

        `reading` is what `read([prompt])` gave, where somebody has read it already.
        """
        if reading is None:
            reading = np.zeros((1, 0)) if self.skips(tally) else self.read([prompt])
        return int(self.decide(reading, Standing.of([tally]), dial)[0])

    def priced(self, price: float) -> float:
        """A price of one sample, in the unit of the policy's own prices, such as tokens."""
        return price if self.draw_cost is None else price / self.draw_cost

    def skips(self, tally: Tally) -> bool:
        """Does it decide without looking at the prompt, as things stand?"""
        return not self.reads_first and not tally.drawn

    def more_batch(
        self, prompts: Sequence[str], tallies: Sequence[Tally], dial: float | None = None
    ) -> list[int]:
        """As `more`, for many requests at once."""
        if len(prompts) != len(tallies):
            raise PolicyError(f"{len(prompts)} prompts and {len(tallies)} tallies don't pair up")
        found: list[int] = self.decide(self.read(prompts), Standing.of(tallies), dial).tolist()
        return found

    def read(self, prompts: Sequence[str]) -> Floats:
        """What the policy sees of prompts, (prompts, numbers)."""
        return np.zeros((len(prompts), 0))

    @abstractmethod
    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> Ints:
        """How many more samples each request gets now, (requests,); row i of `reading` is its prompt's."""

    @abstractmethod
    def fit(self, pool: "Pool | Ballots") -> Self:
        """Learns from recorded samples; returns itself. What needs no learning only takes note."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What the constructor takes and what was learned, but for arrays: plain data, for JSON."""

    def arrays(self) -> Arrays:
        """What was learned, as arrays of numbers."""
        return {}

    @classmethod
    @abstractmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """The policy that gave these; PolicyInvalid, naming what is wrong, where no policy could have."""

    def save(self, folder: str | Path) -> None:
        """Writes the policy as JSON and npz, whole or not at all; `load_policy` reads it."""
        write_artefact(folder_of(folder), kind=self.kind, settings=self.settings(), arrays=self.arrays())


def ballots_of(source: "Pool | Ballots") -> Ballots:
    """The votes of a pool with one source, or as given."""
    found = noted(source)
    return found if isinstance(found, Ballots) else found.ballots()


def noted(source: "Pool | Ballots") -> "Pool | Ballots":
    """A pool or its votes, not looked at; PolicyError for anything else."""
    if not isinstance(source, Pool | Ballots):
        raise PolicyError(f"{shown(source)} is no pool; open it with open_pool(...), or give its ballots")
    return source
