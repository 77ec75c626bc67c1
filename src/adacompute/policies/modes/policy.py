"""A policy over several modes: it stops, asks the same mode again, or asks another.

From recorded samples, `fit` learns rules: decisions for every state by backward induction (`lattice`),
cascades of two modes, and when to stop asking a single mode. A router chooses among the best rules by the
prompt. Each rule's mean cost and accuracy are measured (for lattice and router on held-out problems), and
the rules on the upper hull of both are kept. At a price between those of two rules, a hash of the prompt
decides which rule a request follows. So cost never rises with price, and any budget in between can be met.
With few problems, there is no lattice and no router. An unfitted policy uses fixed cascades.
"""

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import PolicyError, PolicyInvalid, TooFewSamples
from adacompute.policies.base import (
    Arrays,
    Criterion,
    Dial,
    Draw,
    Draws,
    Policy,
    PoolSource,
    check_choice,
    check_dial,
    check_dials,
    check_flag,
    check_integer,
    check_source,
    hash_to_unit,
    log_price,
    read_array,
)
from adacompute.policies.modes.lattice import (
    FEATURES_PER_MODE,
    JOINT_FEATURES,
    STOP,
    Lattice,
    LatticeModel,
    average_paths,
    choose_caps,
    fit_lattice,
)
from adacompute.policies.modes.router import RuleRouter, fit_router
from adacompute.policies.modes.rules import (
    LatticeRule,
    RoutedRule,
    Rule,
    RulePoint,
    StateInputs,
    StoppingRule,
    compute_corner_prices,
    doubt_by_error,
    dump_rule,
    find_corners,
    list_cascade_points,
    list_confidence_points,
    list_honest_points,
    list_plain_cascades,
    load_rule,
)
from adacompute.policies.paths import ModePaths, draw_paths_by_mode
from adacompute.policies.stopping.critical_price import compute_state_features
from adacompute.policies.stopping.policy import StoppingPolicy, choose_labels
from adacompute.policies.stopping.pool_model import HINT_COUNT
from adacompute.policies.votes import NEVER_SEEN, Floats, Ints, VotesByMode, VoteState
from adacompute.policies.weights import (
    check_weights,
    dump_mode_weights,
    dump_weights,
    join_weights,
    load_mode_weights,
)
from adacompute.pool import Ballots, Pool
from adacompute.pool.modes import JoinedPool, ModeSet, read_modes

_LONGEST = 16  # default maximum number of samples per request and mode
_UNFITTED_LONGEST = 8  # maximum number of samples per request and mode in an unfitted policy
_UNFITTED_FACTOR = 0.25  # weight of a vote in an unfitted policy, relative to the next more expensive mode's
_UNFITTED_ORDERS = 8  # number of random orders of each problem's samples, to measure how often answers agree
_UNFITTED_GAIN = 0.05  # gain in accuracy that an unfitted policy assumes if the cost grows by a factor of e
_PATHS = 5000  # approximate number of random orders, over all problems, from which decisions are learned
_ORDERS = (4, 24)  # minimum and maximum number of random orders (paths) per problem
MIN_PROBLEMS = 80  # with fewer problems, no decisions by state (`LatticeRule`) and no router are learned
# weights to try for a mode's votes, relative to votes of the most expensive mode
_FACTORS = (0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5)
_FACTOR_CELLS = 24  # number of random combinations (samples of each mode) on which vote weights are tested
_PRICES = 22  # number of prices at which decisions are computed initially
_REFINEMENTS = 14  # number of prices added one by one, each between the two prices whose costs differ most
_BELIEVED = 0.5  # share of a rule's measured gain over the prior that is expected on other problems
_MIN_GROUPS = 3  # minimum number of groups of similar problems: one per cross-fitting fold
# where a policy's rules come from: built in, built in and adapted to samples, or learned by `fit`
Origin = Literal["cascades", "settled", "fitted"]


class MenuPolicy(Policy):
    """Draws from the mode whose next sample is worth most, minus its price; stops if none is worth its price.

    `dial` is a price: accuracy per unit of the modes' cost. With one mode, it decides like `StoppingPolicy`.
    An unfitted policy uses fixed cascades from each mode to the next more expensive one; `calibrate` and
    `replay` adapt these cascades to their samples. A mode with infinite cost is never drawn. `weigh=None`
    only counts votes; "auto" also weighs them by confidence if log-probabilities are recorded.
    `families=True` is for requests unlike the recorded ones: similar problems (`Ballots.group`) are held out
    together, and simple rules are preferred.
    """

    kind: ClassVar[str] = "menu"
    dial: Dial | None = "price"
    setting_names = ("menu", "longest", "weigh", "features", "families", "seed")
    learned_names = ("stoppers", "rules", "points", "router", "caps", "votes", "labels", "origin")
    optional: ClassVar[Mapping[str, Any]] = {"origin": "fitted", "router": None}
    parsers: ClassVar[Mapping[str, Any]] = {"menu": ModeSet.load}

    def __init__(
        self,
        menu: ModeSet,
        *,
        longest: int = _LONGEST,
        weigh: "VoteWeights | Literal['auto'] | None" = "auto",
        features: bool = True,
        families: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(menu, ModeSet):
            raise PolicyError(f"menu {menu!r} is not a menu; give one, e.g. Menu.of(pool, costs={{...}})")
        self.menu = menu
        self.modes = tuple(mode for mode in menu.modes if math.isfinite(mode.cost))  # modes that can be asked
        if not self.modes:
            raise PolicyError("every mode of the menu costs infinitely much; give one a finite cost")
        most = (NEVER_SEEN - 1) // len(self.modes)
        self.mode_longest = min(_LONGEST, most) if longest == _LONGEST else check_integer("longest", longest)
        self.longest = self.mode_longest * len(self.modes)
        if self.longest >= NEVER_SEEN:
            raise PolicyError(
                f"longest {self.mode_longest} of {len(self.modes)} modes is more than {NEVER_SEEN - 1} "
                f"samples of a request; give {most} or less"
            )
        self._weigh = weigh if isinstance(weigh, str) and weigh == "auto" else check_weights(weigh)
        self.features = check_flag("features", features)
        self.families = check_flag("families", families)
        self.seed = check_integer("seed", seed, low=0, high=2**31 - 1)
        self.stoppers_: tuple[StoppingPolicy, ...] = ()
        self.rules_: tuple[Rule, ...] = ()
        self.router_: RuleRouter | None = None
        self.cost_: Floats = np.zeros(0)  # mean cost per request of each rule on the pool, ascending
        self.accuracy_: Floats = np.zeros(0)  # mean accuracy of each rule on the pool
        self.prices_: Floats = np.zeros(0)  # for each rule, the price at which all requests follow it
        self.model_: LatticeModel | None = None
        self.labels_ = False
        self.origin_: Origin = "cascades"
        if len(self.modes) == 1:
            self._take_stopper(self._make_stopper(self.mode_longest, cost=self.modes[0].cost))
        else:
            self.spreads_price = False  # prices aren't shifted; a hash of the prompt selects one of two rules
            longest = min(self.mode_longest, _UNFITTED_LONGEST)
            stoppers = [self._make_stopper(longest) for _ in self.modes]
            self._take_cascades(stoppers)

    @property
    def mode_set(self) -> ModeSet:
        return self.menu

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(mode.name for mode in self.modes)

    @property
    def longest_by_mode(self) -> tuple[int, ...]:
        return tuple(stopper.longest for stopper in self.stoppers_)

    @property
    def costs(self) -> Floats:
        """The cost per sample of each mode."""
        return np.array([mode.cost for mode in self.modes])

    def _make_stopper(self, longest: int, *, cost: float | None = None) -> StoppingPolicy:
        options: dict[str, Any] = {} if cost is None else {"unit": "money", "draw_cost": max(cost, 1e-12)}
        return StoppingPolicy(
            longest=longest, weigh=self._weigh, features=self.features, seed=self.seed, **options
        )

    # --- cascades that need no fitting ---

    def _take_cascades(self, stoppers: Sequence[StoppingPolicy], ballots: Ballots | None = None) -> None:
        """Uses cascades that need no fitting as rules; measures their costs, or guesses without `ballots`.

        Accuracy is unknown. It is assumed to rise with the logarithm of cost; this gives each rule a price.
        """
        self.stoppers_ = tuple(stoppers)
        factors = np.array([_UNFITTED_FACTOR**dearer for dearer in reversed(range(len(self.modes)))])
        self.weigh = join_weights(self.names, [stopper.weigh for stopper in stoppers], factors)
        longest, firsts = [stopper.longest for stopper in stoppers], None
        if ballots is not None:
            paths = draw_paths_by_mode(
                ballots,
                weigh=None,
                longest=longest,
                orders=_UNFITTED_ORDERS,
                rng=np.random.default_rng(self.seed),
            )
            firsts = [mode.counts.max(axis=2) for mode in paths.modes]
        self.rules_, self.cost_ = list_plain_cascades(self.costs, longest, firsts)
        known = np.maximum(self.cost_, 1e-300)
        self.accuracy_ = _UNFITTED_GAIN * np.log(known / known[0])
        self.prices_ = compute_corner_prices(self.cost_, self.accuracy_)

    def _settle_cascades(self, ballots: Ballots) -> None:
        """Measures the cascades' costs on these samples, and adapts each mode's vote weights to them."""
        stoppers = []
        for stopper, votes in zip(self.stoppers_, ballots.parts, strict=True):
            settled = stopper.copy_for(votes)
            settled.longest = max(1, min(settled.longest, int(np.median(votes.drawn))))
            stoppers.append(settled)
        self._take_cascades(stoppers, ballots)
        self.origin_ = "settled"

    # --- learning ---

    def fit(self, pool: PoolSource, *, labels: bool | None = None) -> Self:
        """Learns from recorded samples of every mode. `labels=None` uses labels if they exist.

        Without labels, agreement with the vote of all samples of the most expensive mode replaces
        correctness.
        """
        ballots = self.get_ballots(pool)
        if len(self.modes) == 1:
            self.labels_ = choose_labels(ballots, labels)
            longest = min(self.mode_longest, int(ballots.drawn.min(initial=self.mode_longest)))
            stopper = self._make_stopper(max(1, longest), cost=self.modes[0].cost)
            self._take_stopper(stopper.fit(ballots, labels=labels))
            return self
        if not len(ballots):
            raise TooFewSamples("a pool without samples teaches nothing; collect some first")
        self.labels_ = choose_labels(ballots, labels)
        recorded = [min(self.mode_longest, int(votes.drawn.min())) for votes in ballots.parts]
        with ThreadPoolExecutor() as executor:  # training releases the GIL, so threads run in parallel
            self.stoppers_ = tuple(executor.map(self._fit_stopper, ballots.parts, recorded))
        self.weigh = self._fit_factors(ballots, recorded)
        self._fit_rules(ballots, recorded)
        self.origin_ = "fitted"
        return self

    def _fit_stopper(self, ballots: Ballots, longest: int) -> StoppingPolicy:
        return self._make_stopper(longest).fit(ballots, labels=None if self.labels_ else False)

    def _fit_factors(self, ballots: Ballots, recorded: Sequence[int]) -> VoteWeights:
        """Finds how much each mode's votes must weigh for the leading answer to be right most often."""
        weigh = join_weights(
            self.names, [stopper.weigh for stopper in self.stoppers_], np.ones(len(self.modes))
        )
        counts = [min(8, count) for count in recorded]
        rng = np.random.default_rng(self.seed)
        paths = draw_paths_by_mode(ballots, weigh=weigh, longest=counts, orders=4, rng=rng)
        cells = rng.integers(1, np.array(counts) + 1, (_FACTOR_CELLS, len(counts)))
        rows = np.arange(len(paths))
        # for each combination of numbers of draws, an array of vote weights; shape (modes, paths, answers)
        weights = [np.stack([mode.weights[cell[k]] for k, mode in enumerate(paths.modes)]) for cell in cells]
        worth = self._get_worth(paths)
        factors = np.full(len(self.modes), 1.0)
        for _ in range(2 if len(factors) > 2 else 1):
            for mode in range(len(factors) - 1):
                scores = []
                for factor in _FACTORS:
                    factors[mode] = factor
                    leaders = [np.tensordot(factors, each, axes=1).argmax(axis=1) for each in weights]
                    scores.append(np.mean([worth[rows, leader].mean() for leader in leaders]))
                factors[mode] = _FACTORS[int(np.argmax(scores))]
        return join_weights(self.names, [stopper.weigh for stopper in self.stoppers_], factors)

    def _get_worth(self, paths: ModePaths) -> Floats:
        """Returns each answer's grade, or agreement with the most expensive mode without grades."""
        if not self.labels_:
            return paths.agrees
        return np.where(np.isnan(paths.grade), paths.agrees, paths.grade)

    def _fit_rules(self, ballots: Ballots, recorded: Sequence[int]) -> None:
        orders = int(np.clip(_PATHS // len(ballots), *_ORDERS))
        paths = draw_paths_by_mode(
            ballots,
            weigh=self.weigh,
            longest=recorded,
            orders=orders,
            rng=np.random.default_rng(self.seed + 1),
        )
        readings = [np.repeat(stopper.read(ballots.prompts), orders, axis=0) for stopper in self.stoppers_]
        critical, prior_critical, worth = self._follow_modes(paths, readings)
        # index of each problem's group, which is held out as a whole: similar problems, or one problem alone
        groups = ballots.group().groups if self.families else np.arange(len(ballots))
        lattice = Lattice.of(
            paths,
            caps=choose_caps(recorded),
            critical=prior_critical,
            hints=np.hstack(readings),
            by_agreement=not self.labels_,
        )
        cascades, stopping = list_cascade_points(lattice, self.costs), list[RulePoint]()
        for mode, cost in enumerate(self.costs):
            stopping += list_honest_points(
                mode,
                critical[mode],
                prior_critical[mode],
                worth[mode],
                cost,
                problems=len(ballots),
                believed=0.0 if self.families else _BELIEVED,
            )
        if self.families:  # requests may differ from the recorded ones, so simple cascades are preferred
            stopping = doubt_by_error(stopping, cascades, groups)
        first = [mode.weights[1].sum(axis=1) for mode in paths.modes]
        points = [*cascades, *stopping, *list_confidence_points(lattice, first, self.costs)]
        self.model_ = None
        if len(ballots) >= MIN_PROBLEMS and groups.max() + 1 >= _MIN_GROUPS:
            self.model_, solver = fit_lattice(lattice, self.costs, groups=groups, seed=self.seed)
            lattice_points = [solver.solve(float(price)) for price in self._list_prices()]
            for _ in range(_REFINEMENTS):
                lattice_points.sort(key=lambda point: point.price)
                gaps = [abs(a.cost.mean() - b.cost.mean()) for a, b in pairwise(lattice_points)]
                widest = int(np.argmax(gaps))
                lattice_points.append(
                    solver.solve(math.sqrt(lattice_points[widest].price * lattice_points[widest + 1].price))
                )
            points += doubt_by_error(
                [
                    RulePoint(
                        rule=LatticeRule(point.actions),
                        cost=point.cost,
                        worth=point.worth,
                        full_cost=point.full_cost,
                    )
                    for point in lattice_points
                    if point.is_stable
                ],
                points,
                groups,
            )
        once = [average_paths(own[1], len(ballots)) for own in worth]
        self._keep_hull([*points, *self._fit_router(points, once, ballots)])

    def _fit_router(
        self, points: Sequence[RulePoint], once: Sequence[Floats], ballots: Ballots
    ) -> list[RulePoint]:
        """Learns to choose one of the best rules, or a single sample of a mode, by the prompt.

        `once` has, for each mode, a single sample's mean value on each problem.
        """
        self.router_ = None
        if len(ballots) < MIN_PROBLEMS:
            return []
        alone = [
            RulePoint(rule=StoppingRule(mode, 1.0, 1), cost=np.full(len(ballots), cost), worth=once[mode])
            for mode, cost in enumerate(self.costs)
        ]
        candidates = sorted([*find_corners(points), *alone], key=lambda point: point.mean_cost)
        groups = ballots.group().groups
        self.router_, routed = fit_router(candidates, ballots.prompts, groups, seed=self.seed)
        return doubt_by_error(routed, points, groups)

    def _list_prices(self) -> Floats:
        costs = self.costs[self.costs > 0]
        if not len(costs):
            return np.geomspace(0.001, 1.0, _PRICES)
        return np.geomspace(0.002 / costs.max(), 0.6 / costs.min(), _PRICES)

    def _follow_modes(
        self, paths: ModePaths, readings: Sequence[Floats]
    ) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """Computes three arrays per mode; rows are for 0, 1, … draws, columns for random orders of samples.

        The first has logarithms of the highest price at which another sample pays, the second has the
        prior's estimates of these, and the third has the leading answer's values.
        """
        rows, known = np.arange(len(paths)), self._get_worth(paths)
        critical, prior_critical, worth = [], [], []
        for mode, stopper in enumerate(self.stoppers_):
            shape = (paths.longest[mode] + 1, len(paths))
            prices, prior_prices, values = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape)
            drawn = np.zeros((len(paths), len(self.modes)), dtype=np.int64)
            for count in range(1, len(values)):
                drawn[:, mode] = count
                votes = paths.votes_after(rows, drawn)
                state = votes.state_of(mode)
                prices[count] = stopper.estimate_critical_prices(readings[mode], state)
                prior_prices[count] = stopper.prior_.estimate_critical_prices(
                    state, compute_state_features(state)
                )
                leader = votes.find_leaders()[0]
                values[count] = np.where(leader >= 0, known[rows, np.maximum(leader, 0)], 0.0)
            critical.append(prices)
            prior_critical.append(prior_prices)
            worth.append(values)
        return critical, prior_critical, worth

    def _keep_hull(self, points: Sequence[RulePoint]) -> None:
        """Keeps the rules on the upper hull of cost and value; computes each one's price (`prices_`)."""
        corners = find_corners(points)
        self.rules_ = tuple(point.rule for point in corners)
        if not any(isinstance(rule, RoutedRule) for rule in self.rules_):
            self.router_ = None
        self.cost_ = np.array([point.mean_cost for point in corners])
        self.accuracy_ = np.array([point.likely_worth for point in corners])
        self.prices_ = compute_corner_prices(self.cost_, self.accuracy_)

    # --- deciding what to draw ---

    def read(self, prompts: Sequence[str]) -> Floats:
        """Returns what stopping policies and router predict from each prompt, and last the prompt's hash."""
        if len(self.modes) == 1:
            return self.stoppers_[0].read(prompts)
        hints = [stopper.read(prompts) for stopper in self.stoppers_]
        if self.router_ is not None:
            hints.append(self.router_.read(prompts))
        return np.hstack([*hints, hash_to_unit(prompts, seed=self.seed)[:, None]])

    def repeat_reading(self, reading: Floats, orders: int) -> Floats:
        repeated = super().repeat_reading(reading, orders)
        if len(self.modes) > 1:
            repeated[:, -1] = (repeated[:, -1] + np.resize(np.arange(orders) / orders, len(repeated))) % 1
        return repeated

    def next(
        self,
        prompt: str,
        tally: Tally,
        price: float | None = None,
        *,
        reading: Floats | None = None,
        modes: Collection[str] | None = None,
    ) -> Draw | None:
        """Returns the mode and number of samples to draw, or None to stop. `tally` must know samples' modes.

        If the chosen mode isn't in `modes`, draws from the most expensive mode in `modes` instead, as long as
        its next sample is worth its price.
        """
        if len(self.modes) == 1:
            return super().next(prompt, tally, price, reading=reading, modes=modes)
        self._check_tally(tally)
        reading = self.read([prompt]) if reading is None else reading
        votes = VotesByMode.from_tallies([tally], self.names)
        choice = int(self.choose(reading, votes, price)[0])
        if modes is not None and choice != STOP and self.names[choice] not in modes:
            choice = self._choose_among(modes, reading, votes, price)
        return None if choice == STOP else Draw(mode=self.names[choice], count=1)

    def find_criterion(self, tally: Tally, dial: float | None = None, *, reading: Floats) -> Criterion | None:
        if len(self.modes) == 1:
            return self.stoppers_[0].find_criterion(tally, dial, reading=reading)
        votes = VotesByMode.from_tallies([tally], self.names)
        rule = self.rules_[int(self._pick_rules(reading[:, -1], dial)[0])]
        return rule.find_criterion(self._prepare(reading, votes, [rule]), self.names)

    def _check_tally(self, tally: Tally) -> None:
        unknown = set(tally.drawn_by_mode) - set(self.menu.names)
        if unknown or sum(tally.drawn_by_mode.values()) < tally.drawn:
            raise PolicyError(
                f"a sample of mode {next(iter(unknown), None)!r} is in the tally, and the menu has "
                f"{', '.join(self.menu.names)}; give every Sample its mode"
            )
        if _list_factors(tally.weigh) != _list_factors(self.weigh):
            raise PolicyError(
                "votes of the tally aren't weighed as this policy weighs them; make it with "
                "Tally(weigh=policy.weigh)"
            )

    def _choose_among(
        self, modes: Collection[str], reading: Floats, votes: VotesByMode, price: float | None
    ) -> int:
        """Returns the index of the most expensive of `modes`; -1 if empty, or if its sample doesn't pay."""
        allowed = [k for k, name in enumerate(self.names) if name in modes]
        if not allowed:
            return STOP
        mode = allowed[-1]
        rule = StoppingRule(
            mode, check_dial("price", price) * float(self.costs[mode]), self.stoppers_[mode].longest
        )
        inputs = StateInputs(votes=votes, critical=self.estimate_critical_prices(reading, votes), leaf=None)
        return int(rule.decide(inputs)[0])

    def skips_prompt(self, tally: Tally) -> bool:
        """Whether the decision for these votes doesn't depend on the prompt; False with several modes."""
        return len(self.modes) == 1 and self.stoppers_[0].skips_prompt(tally)

    def decide(self, reading: Floats, state: VoteState | VotesByMode, dial: float | Floats | None) -> Draws:
        if isinstance(state, VoteState):
            return super().decide(reading, state, dial)
        chosen = self.choose(reading, state, dial)
        return Draws(np.maximum(chosen, 0), (chosen != STOP).astype(np.int64))

    def count_draws(self, reading: Floats, state: VoteState, dial: float | Floats | None) -> Ints:
        self._check_single()
        return self.stoppers_[0].count_draws(reading, state, dial)

    def choose(self, reading: Floats, votes: VotesByMode, price: float | Floats | None) -> Ints:
        """Returns the index of the mode that each request draws from now; -1 means stop."""
        rules, chosen = self._pick_rules(reading[:, -1], price), np.full(len(votes), STOP, dtype=np.int64)
        inputs = self._prepare(reading, votes, [self.rules_[k] for k in np.unique(rules)])
        for number in np.unique(rules):
            rows = rules == number
            own = inputs if rows.all() else inputs.select(rows)
            chosen[rows] = self.rules_[number].decide(own)
        full = votes.drawn[np.arange(len(votes)), np.maximum(chosen, 0)] >= self.mode_longest
        return np.where((chosen != STOP) & full, STOP, chosen)

    def _pick_rules(self, hashes: Floats, price: float | Floats | None) -> Ints:
        """Returns the index of the rule that each request follows, given its price and its prompt's hash."""
        log = log_price(np.maximum(check_dials("price", price), 1e-300))
        logs = -np.log(self.prices_)  # ascending, because prices descend
        last = len(logs) - 1
        above = np.searchsorted(logs, -log, side="right")
        low, high = np.clip(above - 1, 0, last), np.minimum(above, last)
        width = np.where(low < high, logs[high] - logs[low], 1.0)
        return np.where(hashes < (-log - logs[low]) / width, high, low)

    def find_costs(self, prices: Floats) -> Floats:
        """Returns the mean cost per request at each price, as measured on the training data."""
        logs = -np.log(np.maximum(prices, 1e-300))
        return np.asarray(np.interp(logs, -np.log(self.prices_), self.cost_))

    def find_price(self, cost: float) -> float:
        """Returns the lowest price with a mean cost of at most `cost`, or the highest price if none has."""
        if cost <= self.cost_[0]:
            return float(self.prices_[0])
        return float(np.exp(-np.interp(cost, self.cost_, -np.log(self.prices_))))

    def _prepare(self, reading: Floats, votes: VotesByMode, rules: Sequence[Rule]) -> StateInputs:
        width = sum(map(_hint_width, self.stoppers_))
        by_router = any(isinstance(rule, RoutedRule) for rule in rules)
        if by_router and self.router_ is not None:
            rules = [*rules, *self.router_.rules]
        by_lattice = any(isinstance(rule, LatticeRule) for rule in rules)
        by_stopping = any(isinstance(rule, StoppingRule) for rule in rules)
        nothing = np.full((len(votes), len(self.modes)), np.nan)
        critical = self.estimate_critical_prices(reading, votes) if by_stopping else nothing
        leaf = None
        if self.model_ is not None and by_lattice:
            prior = self.estimate_critical_prices(reading, votes, by_prior=True)
            leaf = self.model_.find_leaves(votes, prior, reading[:, :width])
        forecast = reading[:, width:-1] if by_router else None
        return StateInputs(votes=votes, critical=critical, leaf=leaf, forecast=forecast)

    def estimate_critical_prices(
        self, reading: Floats, votes: VotesByMode, *, by_prior: bool = False
    ) -> Floats:
        """Estimates the logarithm of the highest price at which each mode's next sample pays, per request.

        It is NaN before a mode's first sample. With `by_prior`, only the prior estimates, which hasn't seen
        the training problems; lattice rules are learned from its estimates.
        """
        critical, start = np.full((len(votes), len(self.modes)), np.nan), 0
        for mode, stopper in enumerate(self.stoppers_):
            end = start + _hint_width(stopper)
            rows = np.flatnonzero(votes.drawn[:, mode] > 0)
            if len(rows):
                state, hints = votes.select(rows).state_of(mode), reading[rows, start:end]
                critical[rows, mode] = (
                    stopper.prior_.estimate_critical_prices(state, compute_state_features(state))
                    if by_prior
                    else stopper.estimate_critical_prices(hints, state)
                )
            start = end
        return critical

    def more(
        self, prompt: str, tally: Tally, dial: float | None = None, *, reading: Floats | None = None
    ) -> int:
        """Returns how many more samples to draw from the only mode; with several modes, use `next`."""
        self._check_single()
        return self.stoppers_[0].more(prompt, tally, dial, reading=reading)

    def settle(self, ballots: Ballots) -> Self:
        """Adapts this policy to these samples, without labels, and returns itself.

        With one mode, its stopping policy is adapted. With several modes, only the first call on an unfitted
        policy changes anything: it adapts vote weights and cascades.
        """
        if len(self.modes) == 1:
            self._take_stopper(self.stoppers_[0].copy_for(ballots))
        elif self.origin_ == "cascades" and len(ballots):
            self._settle_cascades(ballots.select(self.modes))
        return self

    def _take_stopper(self, stopper: StoppingPolicy) -> None:
        """Sets the stopping policy of the only mode."""
        self.stoppers_, self.weigh, self.draw_cost = (stopper,), stopper.weigh, stopper.draw_cost
        self.longest = stopper.longest

    def get_ballots(self, source: PoolSource) -> Ballots:
        """Returns the recorded samples of the policy's modes; a single mode may have any name."""
        if not isinstance(source, JoinedPool):
            check_source(source)
        if len(self.modes) > 1:
            return read_modes(source).select(self.modes)
        if isinstance(source, Pool) and len(source.models) == 1:
            return source.ballots()
        ballots = read_modes(source)
        return ballots if len(ballots.modes) == 1 else ballots.select(self.modes)

    def count_in_sample(self, ballots: Ballots) -> int:
        """Counts the problems in `ballots` that the policy was fitted on."""
        return self.stoppers_[-1].count_in_sample(ballots) if self.stoppers_ else 0

    def _check_single(self) -> None:
        if len(self.modes) > 1:
            raise PolicyError(
                f"a menu of {', '.join(self.names)} decides by mode; call next(prompt, tally, price)"
            )

    # --- saving and loading ---

    def settings(self) -> dict[str, Any]:
        weigh = self._weigh if isinstance(self._weigh, str) else dump_weights(self._weigh)
        return super().settings() | {"longest": self.mode_longest, "weigh": weigh}

    def dump_learned(self) -> dict[str, Any]:
        return {
            "stoppers": [stopper.settings() for stopper in self.stoppers_],
            "rules": [dump_rule(rule) for rule in self.rules_],
            "points": np.stack([self.cost_, self.accuracy_], axis=1).tolist(),
            "router": None if self.router_ is None else [dump_rule(rule) for rule in self.router_.rules],
            "caps": None if self.model_ is None else list(self.model_.caps),
            "votes": None if len(self.modes) == 1 else dump_mode_weights(self.weigh),
            "labels": self.labels_,
            "origin": self.origin_ if len(self.modes) > 1 else "fitted",
        }

    def arrays(self) -> Arrays:
        """Returns the learned state as arrays, by name."""
        arrays = {
            f"mode{k}.{name}": array
            for k, stopper in enumerate(self.stoppers_)
            for name, array in stopper.arrays().items()
        }
        rules = [*(self.router_.rules if self.router_ else ()), *self.rules_]
        actions = [rule.actions for rule in rules if isinstance(rule, LatticeRule)]
        if self.router_ is not None:
            arrays |= self.router_.arrays()
        if self.model_ is not None:
            arrays |= self.model_.arrays(self.kind)
            arrays["actions"] = np.array(actions, dtype=np.int8).reshape(-1, self.model_.leaves)
        return arrays

    def load_learned(self, learned: Mapping[str, Any], arrays: Arrays) -> None:
        check_choice("origin", learned["origin"], get_args(Origin))
        self.labels_ = check_flag("labels", learned["labels"])
        stoppers = learned["stoppers"]
        if not isinstance(stoppers, list) or len(stoppers) != len(self.modes):
            raise PolicyError(f"there are {len(self.modes)} modes, and not one stopping policy for each")
        self.stoppers_ = tuple(
            StoppingPolicy.restore(each, _strip_prefix(arrays, f"mode{k}."))
            for k, each in enumerate(stoppers)
        )
        if len(self.modes) == 1:
            self._take_stopper(self.stoppers_[0])
            return
        self.weigh = load_mode_weights(learned["votes"], self.names)
        actions = iter(())
        if learned["caps"] is not None:
            caps = tuple(check_integer("cap", cap) for cap in learned["caps"])
            hints = sum(_hint_width(stopper) for stopper in self.stoppers_)
            features = JOINT_FEATURES + FEATURES_PER_MODE * len(self.modes) + hints
            self.model_ = LatticeModel.restore(arrays, self.kind, caps=caps, features=features)
            table = read_array(arrays, "actions", np.int8, (None, self.model_.leaves))
            if ((table < STOP) | (table >= len(self.modes))).any():
                raise PolicyInvalid("array 'actions' names a mode that isn't there")
            actions = iter(table)
        load = functools.partial(load_rule, modes=len(self.modes), actions=actions)
        routed = tuple(map(load, learned["router"] or ()))
        self.router_ = RuleRouter.restore(arrays, routed) if routed else None
        self.rules_ = tuple(load(each, routed=routed) for each in learned["rules"])
        points = np.array(learned["points"], dtype=np.float64)
        if points.shape != (len(self.rules_), 2) or not np.isfinite(points).all():
            raise PolicyError(f"points {learned['points']!r} are not a cost and an accuracy for each rule")
        self.cost_, self.accuracy_ = points[:, 0], points[:, 1]
        self.prices_ = compute_corner_prices(self.cost_, self.accuracy_)
        self.origin_ = learned["origin"]


def _list_factors(weigh: VoteWeights | None) -> list[tuple[str, float]]:
    """Lists each mode's name and the relative weight of its votes."""
    return [] if weigh is None else [(name, own.factor) for name, own in weigh.modes]


def _hint_width(stopper: StoppingPolicy) -> int:
    """Returns how many numbers (hints) a stopping policy predicts from a prompt."""
    model = stopper.pool_model_
    return 0 if model is None or model.hints is None else HINT_COUNT


def _strip_prefix(arrays: Arrays, prefix: str) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
