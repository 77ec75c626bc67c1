"""Priced stopping: draws another sample as long as its expected gain in accuracy is worth its price.

A request's votes, the model's confidence and the prompt's words determine a critical price: the highest price
per sample at which drawing pays. So a higher price never leads to more samples, in whatever order the samples
arrive. With `max_waves`, which draws several samples at a time, it may do so in some orders. An unfitted
policy uses a bundled prior, learned from six recordings; `fit` adds a model learned from a pool.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import NotFitted, NotRecorded, PolicyError, TooFewSamples
from adacompute.policies.base import (
    Arrays,
    Criterion,
    Dial,
    Policy,
    check_ascending,
    check_choice,
    check_dials,
    check_flag,
    check_integer,
    check_number,
    get_ballots,
)
from adacompute.policies.paths import draw_paths
from adacompute.policies.stopping.critical_price import (
    WAVE_QUANTILES,
    WavePlan,
    compute_state_features,
    compute_tally_features,
    is_unweighted,
    look_up_price,
)
from adacompute.policies.stopping.pool_model import PoolModel, fit_pool_model
from adacompute.policies.stopping.prior import (
    Prior,
    build_leakage_error,
    count_known,
    exclude_shared,
    fingerprint_prompts,
    fit_prior,
    load_bundled_prior,
    select_unseen_prior,
)
from adacompute.policies.votes import Floats, Ints, VoteState
from adacompute.policies.weights import (
    SHARPNESS,
    check_weights,
    fit_confidence_weights,
    fit_weights,
)
from adacompute.pool import Ballots, Pool
from adacompute.score.grades import grade_samples, mask_graded

_ORDERS = 8  # number of random orders of each problem's samples, from which sizes of waves are learned
_UNITS = ("samples", "tokens", "money")


class StoppingPolicy(Policy):
    """Draws while the next sample is worth its price, which is given as accuracy per `unit` of cost.

    `weigh="auto"` weighs votes by confidence if log-probabilities are recorded. `max_waves` limits the number
    of rounds of model calls. With `ladder`, e.g. (1, 2, 4, 8, 16), a request can stop only at these numbers
    of samples.

    >>> from adacompute import Tally
    >>> policy = StoppingPolicy()
    >>> [policy.more("2 + 2?", Tally.of(votes), 0.02) for votes in ([], ["4", "5"], ["4", "4", "4"])]
    [1, 1, 0]
    """

    kind: ClassVar[str] = "stopping"
    dial: Dial | None = "price"
    reads_first: ClassVar[bool] = False  # the size of the first round depends on the price, not on the prompt
    setting_names = ("longest", "max_waves", "ladder", "weigh", "features", "seed", "unit", "draw_cost")
    learned_names = ("auto", "scaled", "prior", "own")

    def __init__(
        self,
        *,
        prior: "StoppingPolicy | None" = None,
        longest: int = 16,
        max_waves: int | None = None,
        ladder: Sequence[int] | None = None,
        weigh: "VoteWeights | Literal['auto'] | None" = "auto",
        features: bool = True,
        seed: int = 0,
        unit: str = "samples",
        draw_cost: float | None = None,
    ) -> None:
        """`draw_cost` is the expected cost of one sample in `unit`, e.g. 300 tokens.

        The default is 1 if the unit is samples. For tokens, `fit` takes the pool's mean per sample. For
        money, there is no default.
        """
        if prior is not None and not isinstance(prior, StoppingPolicy):
            raise PolicyError(
                f"prior {prior!r} is not a stopping policy; give one, or None for the bundled prior"
            )
        self.longest = check_integer("longest", longest)
        self.max_waves = None if max_waves is None else check_integer("max_waves", max_waves)
        self.ladder = None if ladder is None else check_ascending("ladder", ladder, high=self.longest)
        if self.ladder is not None and self.max_waves is not None:
            raise PolicyError(
                f"ladder {self.ladder} and max_waves {max_waves} both limit waves; give one of them"
            )
        self.base_prior_: Prior = load_bundled_prior() if prior is None else prior.base_prior_
        self.prior_ = self.base_prior_  # `fit` and `settle` replace it if it was learned on their samples
        self.pool_model_: PoolModel | None = None
        self.auto = isinstance(weigh, str) and weigh == "auto"
        self.scaled_ = not self.auto  # False: vote weights are still the prior's, not fitted to samples
        self.weigh = _build_weights(self.prior_) if self.auto else check_weights(weigh)
        self.features = check_flag("features", features)
        self.seed = check_integer("seed", seed, low=0, high=2**31 - 1)
        check_choice("unit", unit, _UNITS)
        self.unit = unit
        self.draw_cost = 1.0 if draw_cost is None and unit == "samples" else draw_cost
        if self.draw_cost is not None:
            check_number("draw_cost", self.draw_cost, low=1e-12, high=1e12)

    @classmethod
    def pooled(
        cls,
        recordings: "Sequence[Pool | Ballots]",
        *,
        without: "Pool | Ballots | None" = None,
        longest: int = 16,
        seed: int = 0,
    ) -> Self:
        """Returns a policy with a prior learned from these recordings; can be given as `prior` to others.

        Problems that are also in `without` are left out, so that the result can be evaluated on `without`.
        """
        given: object = recordings
        if isinstance(given, Ballots | Pool):
            raise PolicyError("pooled learns on several recordings; give a list of them, e.g. [pool]")
        judged = None if without is None else get_ballots(without)
        ballots = [
            ballots
            for ballots in (exclude_shared(get_ballots(each), judged) for each in recordings)
            if len(ballots)
        ]
        if not ballots:
            raise PolicyError("no recording to learn from was given; give one or more pools with samples")
        policy = cls(longest=check_integer("longest", longest, low=2), seed=seed)
        policy.base_prior_ = policy.prior_ = fit_prior(ballots, longest=longest, seed=seed)
        policy.weigh = _build_weights(policy.prior_)
        return policy

    def fit(self, pool: "Pool | Ballots", *, labels: bool | None = None) -> Self:
        """Learns from a pool in addition to the prior. `labels=None` uses labels if there are any.

        Without labels, agreement with the vote over all samples of a problem replaces correctness.
        """
        ballots = get_ballots(pool)
        if not len(ballots):
            raise TooFewSamples(
                "a pool without samples teaches nothing; collect some, or use the prior as it is"
            )
        labels = choose_labels(ballots, labels)
        self.pool_model_, self.source_model = None, ballots.model
        self.prior_ = select_unseen_prior(self.base_prior_, ballots)
        if self.auto:
            self.weigh = fit_weights(ballots, self.prior_.signal_model, labels=labels)
            self.scaled_ = True
        if self.unit == "tokens" and self.draw_cost is None:
            self.draw_cost = _mean_tokens(ballots)
        if self.longest > 1:  # with one sample there is nothing to decide
            self.pool_model_ = fit_pool_model(
                ballots,
                self.prior_,
                weigh=self.weigh,
                longest=self.longest,
                labels=labels,
                features=self.features,
                seed=self.seed,
            )
            self.prior_ = replace(self.prior_, price_quantiles=self.compute_quantiles(ballots))
        return self

    def settle(self, ballots: Ballots) -> Self:
        """Adapts this policy to these samples, without labels, and returns itself.

        An unfitted policy adapts vote weights and, with `max_waves`, the sizes of waves; it replaces a prior
        learned on these samples. A fitted policy doesn't change. Raises PolicyError if the prior was learned
        on these samples and can't be replaced.
        """
        if self.pool_model_ is not None:
            if count_known(self.prior_, ballots) and not self.count_in_sample(ballots):
                raise build_leakage_error(self.prior_, ballots)
            return self
        self._take_prior(select_unseen_prior(self.base_prior_, ballots))
        if self.auto and not self.scaled_:
            self.weigh = fit_confidence_weights(ballots, self.prior_.signal_model)
            self.scaled_ = True
        if self.max_waves is not None and len(ballots):
            self.prior_ = replace(self.prior_, price_quantiles=self.compute_quantiles(ballots))
        return self

    def count_in_sample(self, ballots: Ballots) -> int:
        """Counts the problems in `ballots` that the policy was fitted on; results on those are in-sample."""
        return (
            0
            if self.pool_model_ is None
            else int(np.isin(fingerprint_prompts(ballots.prompts), self.pool_model_.fingerprints).sum())
        )

    def copy_without(self, ballots: Ballots) -> "StoppingPolicy":
        """Returns a copy whose prior wasn't learned on the prompts of `ballots`.

        Raises PolicyError if there is no such prior.
        """
        policy = copy.copy(self)
        policy._take_prior(select_unseen_prior(self.base_prior_, ballots))
        policy.base_prior_ = policy.prior_
        return policy

    def _take_prior(self, prior: Prior) -> None:
        """Uses another prior and its model of vote weights, but keeps each signal's mean and spread."""
        before, self.prior_ = self.prior_.signal_model, prior
        model = None if self.weigh is None else self.weigh.model
        if not self.auto or self.weigh is None or model is None or prior.signal_model == before:
            return
        learned = prior.signal_model
        if learned is not None and learned.names == model.names:
            learned = replace(learned, centre=model.centre, spread=model.spread)
        self.weigh = replace(self.weigh, model=learned)

    def compute_quantiles(self, ballots: Ballots) -> Floats:
        """Computes WAVE_QUANTILES of critical prices (the highest prices at which another sample pays).

        The quantiles are over random orders of these samples after 1, 2, … draws; shape (quantiles, draws).
        Returns the prior's quantiles if a problem has too few samples.
        """
        longest = len(self.prior_.table) + 1
        if int(ballots.drawn.min()) < longest:
            return self.prior_.price_quantiles
        rng = np.random.default_rng(self.seed)
        recorded_paths = draw_paths(ballots, rng=rng, orders=_ORDERS, longest=longest, weigh=self.weigh)
        reading = np.repeat(self.read(ballots.prompts), recorded_paths.orders, axis=0)
        prices = [
            self.estimate_critical_prices(reading, recorded_paths.state_at(t)) for t in range(1, longest)
        ]
        return np.quantile(np.array(prices), WAVE_QUANTILES, axis=1)

    def read(self, prompts: Sequence[str]) -> Floats:
        """Predicts numbers (hints) from prompts' words, e.g. a sample's accuracy; shape (prompts, hints).

        There are 0 hints if the policy wasn't fitted, or if words don't help to predict them.
        """
        if self.pool_model_ is None or self.pool_model_.hints is None:
            return np.zeros((len(prompts), 0))
        return self.pool_model_.hints.predict(prompts)

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """Decides for one request like `decide`, but without arrays, which takes 20 µs rather than 90."""
        if not self._decides_by_price:
            return super().more(prompt, tally, dial, reading=reading)
        own = self.place_price(dial, prompt)
        price, critical, drawn = float(self._read_prices(own)), 0.0, tally.drawn
        if drawn:
            hints = self.read([prompt]) if reading is None else reading
            critical = self.estimate_critical_price(hints, tally)
        return self._plan.count_next(price, drawn, critical, self.prior_.price_quantiles)

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        """Returns how many samples each request draws now; 0 if another sample isn't worth the price."""
        price = self._read_prices(dial)
        critical = np.zeros(len(state))
        started = state.drawn > 0
        if started.all():
            critical = self.estimate_critical_prices(reading, state)
        elif started.any():
            critical[started] = self.estimate_critical_prices(reading[started], state.select(started))
        return self._plan.count_draws(price, state.drawn, critical, self.prior_.price_quantiles)

    def find_criterion(self, tally: Tally, dial: float | None = None, *, reading: Floats) -> Criterion | None:
        if not self._decides_by_price:
            return None
        worth = math.exp(self.estimate_critical_price(reading, tally))
        return Criterion("worth", worth, float(self._read_prices(dial)))

    def find_stopping_rule(self, dial: float | Floats | None) -> tuple[int, float | Floats] | None:
        """Returns how many samples to draw first, and the logarithm of the price per sample.

        After the first samples, one at a time is drawn while the highest price at which it pays is above the
        price per sample. Returns None if several samples are drawn at a time, or if the number of first
        samples differs between requests.
        """
        if not self._decides_by_price or not self._plan.draws_one_by_one:
            return None
        return self._plan.find_stopping_rule(self._read_prices(dial), self.prior_.price_quantiles)

    @property
    def _decides_by_price(self) -> bool:
        """Whether this class decides; False if a subclass overrides one of the methods that decide."""
        own = type(self)
        return own is StoppingPolicy or (
            own.count_draws is StoppingPolicy.count_draws
            and own.estimate_critical_prices is StoppingPolicy.estimate_critical_prices
        )

    def _read_prices(self, dial: float | Floats | None) -> float | Floats:
        """Converts prices per unit of cost to prices per sample."""
        if self.draw_cost is None:
            raise NotFitted(f"what a draw costs in {self.unit} is not known; give draw_cost, or fit first")
        return check_dials("price", dial) * self.draw_cost

    @property
    def _plan(self) -> WavePlan:
        return WavePlan(longest=self.longest, max_waves=self.max_waves, ladder=self.ladder)

    def estimate_critical_prices(self, reading: Floats, state: VoteState) -> Floats:
        """Estimates the logarithm of the highest price at which another sample of each request pays.

        Each request must have at least one sample.
        """
        rows = compute_state_features(state)
        prices = self.prior_.estimate_critical_prices(state, rows)
        share = 0.0 if self.pool_model_ is None else self.pool_model_.share
        if self.pool_model_ is None or share == 0.0:
            return prices
        return share * self.pool_model_.trees.predict(np.hstack([rows, reading])) + (1 - share) * prices

    def estimate_critical_price(self, reading: Floats, tally: Tally) -> float:
        """Estimates the same as `estimate_critical_prices` for one request, from its votes."""
        pool_model = self.pool_model_
        row = None if tally.weigh is None or is_unweighted(tally) else compute_tally_features(tally)
        price = look_up_price(self.prior_.table, tally)
        if row is not None:
            price = self.prior_.add_trees(price, row)
        share = 0.0 if pool_model is None else pool_model.share
        if pool_model is None or share == 0.0:
            return price
        row = compute_tally_features(tally) if row is None else row
        own_price = pool_model.trees.predict_row((*row, *reading[0].tolist()))
        return share * own_price + (1 - share) * price

    def dump_learned(self) -> dict[str, Any]:
        pool_model = self.pool_model_
        own = pool_model and {
            "problems": pool_model.problems,
            "labels": pool_model.labels,
            "hints": pool_model.hints is not None,
        }
        return {"auto": self.auto, "scaled": self.scaled_, "prior": self.prior_.settings(), "own": own}

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
        return (
            self.prior_.arrays()
            if self.pool_model_ is None
            else {**self.prior_.arrays(), **self.pool_model_.arrays()}
        )

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        prior, own = learned["prior"], learned["own"]
        self.auto, self.scaled_ = (check_flag(name, learned[name]) for name in ("auto", "scaled"))
        scale = check_number("prior.scale", _read_part("prior", prior, "scale"), low=-1e9, high=-1e-12)
        problems = check_integer("prior.problems", _read_part("prior", prior, "problems"), low=0, high=2**53)
        signals = prior.get("signals")  # missing in policies saved by older versions
        self.base_prior_ = self.prior_ = Prior.restore(
            arrays, problems=problems, scale=scale, signals=signals
        )
        if own is not None:
            count = check_integer("own.problems", _read_part("own", own, "problems"), high=2**53)
            labels = check_flag("own.labels", _read_part("own", own, "labels"))
            hinted = check_flag("own.hints", _read_part("own", own, "hints"))
            self.pool_model_ = PoolModel.restore(
                arrays, problems=count, labels=labels, weighted=self.weigh is not None, has_hints=hinted
            )


def choose_labels(ballots: Ballots, labels: bool | None) -> bool:
    """Returns whether to learn from labels: `labels` or, if this is None, whether there are any labels."""
    graded = bool(mask_graded(ballots, grade_samples(ballots)).any())
    if labels is None:
        return graded
    if check_flag("labels", labels) and not graded:
        raise PolicyError("labels were asked for, and no problem of this pool has any; give labels=False")
    return labels


def _build_weights(prior: Prior) -> VoteWeights:
    """Makes the vote weights that are used until `fit` or `settle` adapts them to samples."""
    return VoteWeights(signal="logprob", scale=prior.scale, sharpness=SHARPNESS, model=prior.signal_model)


def _mean_tokens(ballots: Ballots) -> float:
    tokens = ballots.tokens[np.isfinite(ballots.tokens)]
    if not len(tokens) or not tokens.mean() > 0:
        raise NotRecorded(
            "a price per token needs tokens, and no sample has them; record them, or give draw_cost"
        )
    return float(tokens.mean())


def _read_part(name: str, value: object, key: str) -> object:
    if not isinstance(value, Mapping) or key not in value:
        raise PolicyError(f"setting {name} {value!r} lacks {key!r}")
    return value[key]
