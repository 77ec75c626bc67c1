"""Priced stopping: draw while the next sample is worth its price. Knows nothing of how samples are drawn.

Each state of a request (its tally, how sure the model was, what the prompt hints at) has one critical price.
Going on pays while the dial, the price of a sample, is below it: so cost never rises with the price, on any
path. Unfitted it decides by a prior learned on the recordings in the package; `fit` adds what a pool tells,
with labels or without.

With `max_waves` several samples are drawn on what is known before them, so a path may cost more at a higher
price, and so may the mean where the first wave changes its size; the dial must be held for a request.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from adacompute.answers import Tally, Weigh
from adacompute.errors import NotFitted, NotRecorded, PolicyError, TooFewSamples
from adacompute.paths import Standing, paths
from adacompute.policies.base import Arrays, Dial, Policy, ballots_of
from adacompute.policies.confidence import SHARPNESS, confidence
from adacompute.policies.settings import (
    ascending,
    checked_dial,
    flag,
    number,
    one_of,
    plain_weigh,
    restoring,
    taken,
    weigh_given,
    whole,
)
from adacompute.policies.stopping.apart import apart, known, refused, rest
from adacompute.policies.stopping.decided import Decided, is_plain
from adacompute.policies.stopping.own import Own, own_of
from adacompute.policies.stopping.prints import prints
from adacompute.policies.stopping.prior import (
    Floats,
    Prior,
    bundled_prior,
    prior_of,
)
from adacompute.policies.stopping.states import states
from adacompute.policies.stopping.waves import QUANTILES, Waves
from adacompute.pool import Ballots, Pool
from adacompute.score.grades import graded, grades

__all__ = ["StoppingPolicy"]

_SETTINGS = (
    "longest", "max_waves", "ladder", "weigh", "features", "seed", "unit", "draw_cost",
    "auto", "scaled", "prior", "own",
)  # fmt: skip

_ORDERS = 8  # a problem, to see where its tallies would go on
_UNITS = ("samples", "tokens", "money")


class StoppingPolicy(Policy):
    """Draws while the next sample is worth its price; `dial` is that price, accuracy per `unit` of cost.

    `weigh="auto"` weighs votes by confidence where log-probabilities are recorded. `max_waves` limits round
    trips; `ladder` gives the only numbers of samples to stop at, e.g. (1, 2, 4, 8, 16).

    >>> from adacompute import Tally
    >>> policy = StoppingPolicy()
    >>> [policy.more("2 + 2?", Tally.of(votes), 0.02) for votes in ([], ["4", "5"], ["4", "4", "4"])]
    [1, 1, 0]
    """

    kind: ClassVar[str] = "stopping"
    dial: ClassVar[Dial | None] = "price"
    reads_first: ClassVar[bool] = False  # the first wave depends on the price alone

    def __init__(
        self,
        *,
        prior: "StoppingPolicy | None" = None,
        longest: int = 16,
        max_waves: int | None = None,
        ladder: Sequence[int] | None = None,
        weigh: "Weigh | Literal['auto'] | None" = "auto",
        features: bool = True,
        seed: int = 0,
        unit: str = "samples",
        draw_cost: float | None = None,
    ) -> None:
        """`draw_cost` is what one draw is expected to cost in `unit`, e.g. 300 tokens; None: 1 sample, or the
        mean tokens of the pool that it is fitted on."""
        if prior is not None and not isinstance(prior, StoppingPolicy):
            raise PolicyError(
                f"prior {prior!r} is no stopping policy; give one, or None for the bundled prior"
            )
        self.longest = whole("longest", longest)
        self.max_waves = None if max_waves is None else whole("max_waves", max_waves)
        self.ladder = None if ladder is None else ascending("ladder", ladder, high=self.longest)
        if self.ladder is not None and self.max_waves is not None:
            raise PolicyError(
                f"ladder {self.ladder} and max_waves {max_waves} both limit waves; give one of them"
            )
        self.given_: Prior = bundled_prior() if prior is None else prior.given_
        self._decided: Decided | None = None
        self.prior_ = self.given_  # or, once a pool is known, one that hasn't seen it
        self.own_: Own | None = None
        self.auto = isinstance(weigh, str) and weigh == "auto"
        self.scaled_ = not self.auto  # whether the scale of weights is that of samples seen
        default = Weigh(signal="logprob", scale=self.prior_.scale, sharpness=SHARPNESS)
        self.weigh = default if self.auto else weigh_given(weigh)
        self.features = flag("features", features)
        self.seed = whole("seed", seed, low=0, high=2**31 - 1)
        one_of("unit", unit, _UNITS)
        self.unit = unit
        self.draw_cost = 1.0 if draw_cost is None and unit == "samples" else draw_cost
        if self.draw_cost is not None:
            number("draw_cost", self.draw_cost, low=1e-12, high=1e12)

    @classmethod
    def pooled(
        cls,
        recordings: "Sequence[Pool | Ballots]",
        *,
        without: "Pool | Ballots | None" = None,
        longest: int = 16,
        seed: int = 0,
    ) -> Self:
        """Fitted on several recordings, from nothing: to serve another task as it is, or as its `prior`.

        Problems that `without` has too are left out, so that it can be judged by what comes out.
        """
        if isinstance(recordings, Ballots | Pool):
            raise PolicyError("pooled learns on several recordings; give a list of them, e.g. [pool]")
        judged = None if without is None else ballots_of(without)
        some = [one for one in (rest(ballots_of(each), judged) for each in recordings) if len(one)]
        if not some:
            raise PolicyError("no recording to learn from was given; give one or more pools with samples")
        found = cls(longest=whole("longest", longest, low=2), seed=seed)
        found.given_ = found.prior_ = prior_of(some, longest=longest, seed=seed)
        found.weigh = Weigh(signal="logprob", scale=found.prior_.scale, sharpness=SHARPNESS)
        return found

    def fit(self, pool: "Pool | Ballots", *, labels: bool | None = None) -> Self:
        """Learns from a pool, beside the prior. `labels`: None uses them where they are, False never does.

        Without labels, agreement with the vote of all of a problem's samples stands in for being right.
        """
        ballots = ballots_of(pool)
        if not len(ballots):
            raise TooFewSamples(
                "a pool without samples teaches nothing; collect some, or use the prior as it is"
            )
        told = bool(graded(ballots, grades(ballots)).any())
        if labels is not None and flag("labels", labels) and not told:
            raise PolicyError("labels were asked for, and no problem of this pool has any; give labels=False")
        self.own_ = None
        self.prior_ = apart(self.given_, ballots)
        if self.auto:
            self.weigh, self.scaled_ = confidence(ballots), True
        if self.unit == "tokens" and self.draw_cost is None:
            self.draw_cost = _mean_tokens(ballots)
        if self.longest > 1:  # else there is nothing to decide
            self.own_ = own_of(
                ballots,
                self.prior_,
                weigh=self.weigh,
                longest=self.longest,
                labels=told if labels is None else labels,
                features=self.features,
                seed=self.seed,
            )
            self.prior_ = replace(self.prior_, openings=self.openings_of(ballots))
        return self

    def settle(self, ballots: Ballots) -> Self:
        """Takes what these samples tell without labels, in place: the scale of weights, the size of waves;
        and a prior that wasn't learned on them. What was fitted has done so, and only checks the last."""
        return self.settle_by(ballots, confidence=confidence, openings=self.openings_of)

    def settle_by(
        self,
        ballots: Ballots,
        *,
        confidence: Callable[[Ballots], Weigh | None],
        openings: Callable[[Ballots], Floats],
    ) -> Self:
        """As `settle`, where these two are told elsewhere: of `ballots` only the prompts are looked at."""
        if self.own_ is not None:
            if known(self.prior_, ballots) and not self.fitted_on(ballots):
                raise refused(self.prior_, ballots)
            return self
        self.prior_ = apart(self.given_, ballots)
        if self.auto and not self.scaled_:
            self.weigh, self.scaled_ = confidence(ballots), True
        if self.max_waves is not None and len(ballots):
            self.prior_ = replace(self.prior_, openings=openings(ballots))
        return self

    def adapted(self, ballots: Ballots) -> "StoppingPolicy":
        """A copy, settled on these samples."""
        return copy.copy(self).settle(ballots)

    def fitted_on(self, ballots: Ballots) -> int:
        """How many of these problems it was fitted on: on them a result is in-sample."""
        return 0 if self.own_ is None else int(np.isin(prints(ballots.prompts), self.own_.taught).sum())

    def without(self, ballots: Ballots) -> "StoppingPolicy":
        """A copy whose prior has seen none of these prompts; PolicyError where there is none."""
        found = copy.copy(self)
        found.given_ = found.prior_ = apart(self.given_, ballots)
        return found

    def openings_of(self, ballots: Ballots) -> Floats:
        """Quantiles of critical prices after each draw of these samples, which needs no labels."""
        longest = len(self.prior_.table) + 1
        if int(ballots.drawn.min()) < longest:
            return self.prior_.openings
        rng = np.random.default_rng(self.seed)
        some = paths(ballots, rng=rng, orders=_ORDERS, longest=longest, weigh=self.weigh)
        told = np.repeat(self.read(ballots.prompts), some.orders, axis=0)
        every = np.arange(len(some))
        found = [self.critical(told, some.standing(every, np.full(len(some), t))) for t in range(1, longest)]
        return np.quantile(np.array(found), QUANTILES, axis=1)

    def read(self, prompts: Sequence[str]) -> Floats:
        """What the prompts' words hint at, where it has learned that."""
        if self.own_ is None or self.own_.hints is None:
            return np.zeros((len(prompts), 0))
        return self.own_.hints.of(prompts)

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """As of every policy. What was decided on plain votes is known from then on, unless the prompt hints
        at something."""
        own, told = self.own_, reading is not None and reading.size > 0
        told = told or type(self).decide is not StoppingPolicy.decide  # which may go by anything
        if told or self.max_waves is not None or (own is not None and own.hints) or not is_plain(tally):
            return super().more(prompt, tally, dial, reading=reading)
        price = checked_dial("price", dial)
        made_for = (self.prior_, own, self.draw_cost, self.longest, self.ladder)
        if self._decided is None or not self._decided.fits(made_for):
            self._decided = Decided(made_for)
        return self._decided.more(tally, price, lambda: super(StoppingPolicy, self).more(prompt, tally, dial))

    def decide(self, reading: Floats, standing: Standing, dial: float | None) -> np.ndarray[Any, Any]:
        """One more sample (or wave) while the price is below the state's critical price."""
        if self.draw_cost is None:
            raise NotFitted(f"what a draw costs in {self.unit} is not known; give draw_cost, or fit first")
        price = checked_dial("price", dial) * self.draw_cost
        waves = Waves(longest=self.longest, max_waves=self.max_waves, ladder=self.ladder)
        critical = np.zeros(len(standing))
        some = standing.drawn > 0
        if some.all():
            critical = self.critical(reading, standing)
        elif some.any():
            critical[some] = self.critical(reading[some], standing.only(some))
        return waves.asked(price, standing.drawn, critical, self.prior_.openings)

    def critical(self, reading: Floats, standing: Standing) -> Floats:
        """Logarithms of the critical prices of standings with a draw or more, (requests,)."""
        rows = states(standing)
        found = self.prior_.critical(standing, rows)
        share = 0.0 if self.own_ is None else self.own_.share
        if self.own_ is None or share == 0.0:
            return found
        return share * self.own_.judge.critical(np.hstack([rows, reading])) + (1 - share) * found

    def settings(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        own = self.own_
        learned = own and {"problems": own.problems, "labels": own.labels, "hints": own.hints is not None}
        return {
            "longest": self.longest,
            "max_waves": self.max_waves,
            "ladder": None if self.ladder is None else list(self.ladder),
            "weigh": plain_weigh(self.weigh),
            "features": self.features,
            "seed": self.seed,
            "unit": self.unit,
            "draw_cost": self.draw_cost,
            "auto": self.auto,
            "scaled": self.scaled_,
            "prior": {"problems": self.prior_.problems, "scale": self.prior_.scale},
            "own": learned,
        }

    def arrays(self) -> Arrays:
        """What was learned."""
        return self.prior_.arrays() if self.own_ is None else {**self.prior_.arrays(), **self.own_.arrays()}

    @classmethod
    def restored(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        """The policy that gave these."""
        with restoring(cls.kind):
            given = taken(settings, _SETTINGS)
            auto, scaled, prior, own = (given.pop(name) for name in ("auto", "scaled", "prior", "own"))
            found = cls(**given)
            found.auto, found.scaled_ = flag("auto", auto), flag("scaled", scaled)
            scale = number("prior.scale", _part("prior", prior, "scale"), low=-1e9, high=-1e-12)
            problems = whole("prior.problems", _part("prior", prior, "problems"), low=0, high=2**53)
            found.given_ = found.prior_ = Prior.restored(arrays, problems=problems, scale=scale)
            if own is not None:
                count = whole("own.problems", _part("own", own, "problems"), high=2**53)
                labels = flag("own.labels", _part("own", own, "labels"))
                hinted = flag("own.hints", _part("own", own, "hints"))
                found.own_ = Own.restored(
                    arrays, problems=count, labels=labels, weighed=found.weigh is not None, hinted=hinted
                )
        return found


def _mean_tokens(ballots: Ballots) -> float:
    known_ = ballots.tokens[np.isfinite(ballots.tokens)]
    if not len(known_) or not known_.mean() > 0:
        raise NotRecorded(
            "a price per token needs tokens, and no sample has them; record them, or give draw_cost"
        )
    return float(known_.mean())


def _part(name: str, value: object, key: str) -> object:
    if not isinstance(value, Mapping) or key not in value:
        raise PolicyError(f"setting {name} {value!r} lacks {key!r}")
    return value[key]
