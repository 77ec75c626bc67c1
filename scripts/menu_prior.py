"""Makes the prior of menus from recorded pairs of modes: `python scripts/menu_prior.py`, a minute.

It follows simple rules along the recordings beside the checkout (`../shared/recordings`) and writes what each
drew and how often it agreed with the vote of all samples of the dear mode; labels are not used. With
`--validate` nothing is written: every pair is judged by the kept prior without the pairs of its own
questions, against the best fixed mix of that pair at the same cost, with labels.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from menu_evaluation import CRUX, FACTS, name_steps, read_menu_ballots
from recordings import FOLDER as RECORDINGS

from adacompute.answers import VoteWeights
from adacompute.evaluate.menu_peers import (
    JointVotes,
    MenuSettings,
    follow_runs,
    follow_votes,
    join_settings,
    mix_by_cost,
    mix_settings,
)
from adacompute.evaluate.resampling import Bootstrap, Split, kfold
from adacompute.policies.base import Floats, Ints
from adacompute.policies.menu import MenuPolicy
from adacompute.policies.menu.policy import join_weights
from adacompute.policies.menu.prior import (
    CHEAP_FACTOR,
    PRIOR_LONGEST,
    MenuPrior,
    RecordedPair,
    load_menu_prior,
    measure_kind,
    sketch_prompts,
)
from adacompute.policies.menu.rules import CascadeRule, Rule, StoppingRule
from adacompute.policies.menu.votes import MenuPaths, draw_menu_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.critical_price import compute_state_features
from adacompute.pool.menu import Menu, MenuBallots, Mode
from adacompute.replay.menu_replay import MenuRun, run_menu

FILE = Path(__file__).resolve().parent.parent / "src/adacompute/policies/menu/prior.json"
MODES = ("cheap", "dear")
MENU = Menu(modes=(Mode(name="cheap", cost=0.1), Mode(name="dear", cost=1.0)))
ORDERS = 16  # a problem
FIXED = 8  # votes of one mode, at most
PRICES = (0.003, 0.006, 0.012, 0.02, 0.03, 0.045, 0.06, 0.08, 0.1, 0.13, 0.17, 0.22, 0.3)  # of a sample
CASCADES = ((2, 2), (3, 2), (4, 2), (6, 2), (3, 3), (4, 3), (5, 3), (6, 3))  # cheap draws, equal answers
RATIOS = (3, 10, 30, 100)
FOLDS = 5  # that fixed mixes are chosen by
TOLERANCE = 0.1  # points: what is less is equal
BUDGETS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.2, 1.5, 2.0, 3.0)  # in dear samples


def list_pairs() -> dict[str, dict[str, str]]:
    """The files of every recorded pair, the cheap mode's and the dear one's, by its name."""
    pairs = {"facts": FACTS} | {
        name: name_steps(name) for name in ("words", "reasoning-gym", "gsm8k", "math")
    }
    names = list(CRUX)
    for k, cheap in enumerate(names):
        for dear in names[k + 1 :]:
            pairs[f"crux: {cheap}, {dear}"] = {cheap: CRUX[cheap], dear: CRUX[dear]}
    return {name: dict(zip(MODES, files.values(), strict=True)) for name, files in pairs.items()}


def list_rules() -> tuple[Rule, ...]:
    """What the prior may do: fixed votes, each mode's stopping, other tries, cascades to one dear sample."""
    cheap, dear = PRIOR_LONGEST
    fixed = [StoppingRule(mode, 0.0, count) for mode in (0, 1) for count in range(1, FIXED + 1)]
    stopping = [StoppingRule(mode, price, (cheap, dear)[mode]) for mode in (0, 1) for price in PRICES]
    cascades = [CascadeRule((0, 1), (draws, 1), (agree, 1)) for draws, agree in CASCADES]
    return (*fixed, *stopping, CascadeRule((0, 1), (4, 0), (1, 1)), *cascades)


@dataclass(frozen=True, kw_only=True)
class SettledPair:
    """A recorded pair, with stopping policies and weights of votes that are settled on it without labels."""

    ballots: MenuBallots
    stoppers: tuple[StoppingPolicy, ...]
    weigh: VoteWeights

    @classmethod
    def of(cls, ballots: MenuBallots) -> "SettledPair":
        """Stopping policies take a prior that hasn't seen these prompts."""
        stoppers = tuple(StoppingPolicy().copy_for(votes) for votes in ballots.ballots)
        weigh = join_weights(MODES, [stopper.weigh for stopper in stoppers], np.array([CHEAP_FACTOR, 1.0]))
        return cls(ballots=ballots, stoppers=stoppers, weigh=weigh)

    def draw_paths(self) -> MenuPaths:
        """Random orders of its samples."""
        counts = zip(PRIOR_LONGEST, self.ballots.ballots, strict=True)
        longest = [min(most, int(votes.drawn.min())) for most, votes in counts]
        rng = np.random.default_rng(0)
        return draw_menu_paths(self.ballots, MENU, weigh=self.weigh, longest=longest, orders=ORDERS, rng=rng)

    def estimate_prices(self, paths: MenuPaths, mode: int) -> Floats:
        """Critical prices of a mode's samples after 0, 1, ... draws, (draws + 1, paths)."""
        rows, prior = np.arange(len(paths)), self.stoppers[mode].prior_
        prices = np.full((paths.longest[mode] + 1, len(paths)), np.nan)
        for count in range(1, len(prices)):
            drawn = np.zeros((len(paths), 2), dtype=np.int64)
            drawn[:, mode] = count
            state = paths.votes_after(rows, drawn).state_of(mode)
            prices[count] = prior.estimate_critical_prices(state, compute_state_features(state))
        return prices


def measure_pair(name: str, ballots: MenuBallots, rules: Sequence[Rule]) -> RecordedPair:
    """What every rule draws and is worth on a pair."""
    pair = SettledPair.of(ballots)
    paths = pair.draw_paths()
    critical = [pair.estimate_prices(paths, mode) for mode in (0, 1)]
    rows, draws, worth = np.arange(len(paths)), [], []
    for rule in rules:
        drawn = np.stack(find_ends(rule, paths, critical), axis=1)
        leaders = paths.votes_after(rows, drawn).find_leaders()[0]
        draws.append(drawn.mean(axis=0))
        worth.append(paths.worth_of(rows, leaders, by_agreement=True).mean())
    kind = measure_kind(ballots, MENU, pair.weigh)
    assert kind is not None
    return RecordedPair(
        name=name,
        kind=kind,
        sketch=sketch_prompts(ballots.prompts),
        draws=np.array(draws),
        worth=np.array(worth),
    )


def find_ends(rule: Rule, paths: MenuPaths, critical: Sequence[Floats]) -> list[Ints]:
    """How many samples of each mode every path draws by a rule."""
    ends = [np.zeros(len(paths), dtype=np.int64) for _ in MODES]
    if isinstance(rule, StoppingRule):
        most = min(rule.longest, paths.longest[rule.mode])
        log = math.log(rule.price) if rule.price else -math.inf
        goes_on = critical[rule.mode][1:most] > log
        ends[rule.mode] = 1 + np.cumprod(goes_on, axis=0).sum(axis=0)
        return ends
    assert isinstance(rule, CascadeRule)
    most = min(rule.draws[0], paths.longest[0])
    reached = paths.modes[0].counts[1 : most + 1].max(axis=2) >= rule.agree[0]
    agrees = reached.any(axis=0)
    return [
        np.where(agrees, reached.argmax(axis=0) + 1, most),
        np.where(agrees, 0, min(rule.draws[1], 1)),  # cascades of the prior end with one dear sample
    ]


def build_prior() -> MenuPrior:
    """The prior of all recorded pairs."""
    rules = list_rules()
    pairs = []
    for name, files in list_pairs().items():
        pairs.append(measure_pair(name, read_menu_ballots(files), rules))
        print_progress(f"{name}: {pairs[-1].kind}")
    return MenuPrior(rules=rules, pairs=tuple(pairs))


# ---------------------------------------------------------------------- validation


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The prior at one cost on a pair it hasn't seen, beside the pair's best fixed mix."""

    ratio: int
    budget: float
    right: float  # of the prior, in points
    gain: float  # over the best fixed mix at the same cost, in points
    low: float  # of the 95% interval over problems, paired
    high: float


def compare_pair(ballots: MenuBallots, *, settled: bool) -> Iterator[Comparison]:
    """The prior at every ratio and budget; a rule is run once, since what it draws has no price."""
    runs: dict[Rule, MenuRun] = {}
    splits = kfold(ballots.prompts, FOLDS, np.random.default_rng(3))
    boot = Bootstrap.of_groups(ballots.prompts, rng=np.random.default_rng(2))
    for ratio in RATIOS:
        menu = Menu(modes=(Mode(name="cheap", cost=1 / ratio), Mode(name="dear", cost=1.0)))
        policy = make_policy(menu, ballots, settled=settled)
        weighed, plain = (draw_judged_paths(ballots, menu, weigh) for weigh in (policy.weigh, None))
        reading = policy.read(ballots.prompts)
        for rule, price in zip(policy.rules_, policy.prices_, strict=True):
            if rule not in runs:
                runs[rule] = run_menu(policy, weighed, price=float(price), reading=reading)
        priced = [price_run(weighed, runs[rule]) for rule in policy.rules_]
        settings = follow_runs(weighed, priced, lambda run: run.grade)
        fixed = follow_fixed(weighed, plain)
        for budget in (each for each in BUDGETS if each * ratio >= 1):
            mix = mix_by_cost(settings.cost.mean(axis=1), budget)
            cost = float(mix.apply(settings.cost).mean())
            gains = mix.apply(settings.accuracy) - mix_fixed(fixed, splits, cost)
            interval = boot.interval(gains)
            yield Comparison(
                ratio=ratio,
                budget=budget,
                right=100 * float(mix.apply(settings.accuracy).mean()),
                gain=100 * float(gains.mean()),
                low=100 * interval.low,
                high=100 * interval.high,
            )


def draw_judged_paths(ballots: MenuBallots, menu: Menu, weigh: VoteWeights | None) -> MenuPaths:
    """Other orders than those the prior was measured on, up to 16 samples of each mode."""
    longest = [min(16, int(votes.drawn.min())) for votes in ballots.ballots]
    rng = np.random.default_rng(1)
    return draw_menu_paths(ballots, menu, weigh=weigh, longest=longest, orders=ORDERS, rng=rng)


def follow_fixed(weighed: MenuPaths, plain: MenuPaths) -> MenuSettings:
    """Votes of 1, 2, ... samples of either mode for everyone, weighed and plain."""
    votes = [JointVotes(paths, judged=paths.grade, chosen=paths.grade) for paths in (weighed, plain)]
    return join_settings([follow_votes(each, mode) for each in votes for mode in (0, 1)])


def mix_fixed(fixed: MenuSettings, splits: Sequence[Split], cost: float) -> Floats:
    """How right the best fixed mix at a cost is, (problems,): chosen by labels of the other folds."""
    accuracy = np.empty(fixed.accuracy.shape[1])
    for split in splits:
        mix = mix_settings(fixed, split.train, cost)
        accuracy[split.test] = mix.apply(fixed.accuracy)[split.test]
    return accuracy


def make_policy(menu: Menu, ballots: MenuBallots, *, settled: bool) -> MenuPolicy:
    """An unfitted policy whose priors have seen none of these prompts; settled on the samples or not."""
    policy = MenuPolicy(menu)
    if settled:
        return policy.settle(ballots)
    stoppers = []
    for stopper, votes in zip(policy.stoppers_, ballots.ballots, strict=True):
        unseen = stopper.copy_without(votes)
        unseen.longest = min(unseen.longest, int(votes.drawn.min()))
        stoppers.append(unseen)
    policy.take_prior(load_menu_prior().leave_out(ballots.prompts), stoppers)
    return policy


def price_run(paths: MenuPaths, run: MenuRun) -> MenuRun:
    """The run with what its draws cost on these paths."""
    cost = paths.cost_after(np.arange(len(paths)), run.drawn)
    return MenuRun(drawn=run.drawn, cost=cost, grade=run.grade, agrees=run.agrees)


def validate(*, settled: bool, only: Sequence[str] | None) -> None:
    """Prints a table with a row for each pair and ratio."""
    print(f"\n{'settled on the samples' if settled else 'nothing is known of the pair'}\n")
    print("| pair | ratio | " + " | ".join(f"{budget:g}" for budget in BUDGETS) + " | mean |")
    print("| --- | ---: |" + " ---: |" * (len(BUDGETS) + 1))
    below, gains = 0, []
    for name, files in list_pairs().items():
        if only and name not in only:
            continue
        rows: dict[int, dict[float, Comparison]] = {}
        for each in compare_pair(read_menu_ballots(files), settled=settled):
            rows.setdefault(each.ratio, {})[each.budget] = each
        for ratio, row in rows.items():
            cells = [format_cell(row[budget]) if budget in row else "–" for budget in BUDGETS]
            mean = float(np.mean([each.gain for each in row.values()]))
            print(f"| {name} | {ratio} | {' | '.join(cells)} | {mean:+.1f} |", flush=True)
            below += sum(each.high < 0 and each.gain <= -TOLERANCE for each in row.values())
            gains += [each.gain for each in row.values()]
    print(f"\nmean gain {np.mean(gains):+.2f}, least {min(gains):+.1f}")
    print(f"{below} of {len(gains)} are significantly below the best fixed mix, by {TOLERANCE} or more")


def format_cell(each: Comparison) -> str:
    return f"{each.gain:+.1f} ({each.low:+.1f} to {each.high:+.1f})"


def print_progress(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--validate", action="store_true", help="judge the kept prior; write nothing")
    parser.add_argument("--only", nargs="+", help="pairs to judge, by name")
    options = parser.parse_args()
    if not (RECORDINGS / "README.md").is_file():
        sys.exit(f"{RECORDINGS}: the recordings are not there; the prior of menus is made from them")
    if options.validate:
        for settled in (True, False):
            validate(settled=settled, only=options.only)
        return
    FILE.write_text(format_prior(build_prior()), "utf-8")


def format_prior(prior: MenuPrior) -> str:
    """The file: a line for each rule and each pair."""
    stored = prior.dump()
    rules = ",\n".join(json.dumps(rule) for rule in stored["rules"])
    pairs = ",\n".join(json.dumps(pair) for pair in stored["pairs"])
    return f'{{"rules": [\n{rules}\n],\n"pairs": [\n{pairs}\n]}}\n'


if __name__ == "__main__":
    main()
