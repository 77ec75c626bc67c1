"""Priced stopping: one critical price a state, from a prior, from a pool, and in waves."""

import functools
import itertools
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacompute.answers import Tally, VoteWeights
from adacompute.errors import NotFitted, NotRecorded, PolicyError, TooFewSamples
from adacompute.policies import load_policy
from adacompute.policies.base import OwnPrice
from adacompute.policies.paths import Paths, draw_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.policies.stopping.critical_price import (
    WavePlan,
    build_price_table,
    compute_state_features,
    compute_tally_features,
    find_crossing,
    look_up_prices,
)
from adacompute.policies.stopping.pool_model import HINT_COUNT, fit_hints
from adacompute.policies.stopping.prior import (
    BUNDLED_PRIORS,
    FALLBACK_PRIOR,
    Prior,
    fingerprint_prompts,
    fit_prior,
    load_bundled_prior,
    select_unseen_prior,
    widen_arrays,
)
from adacompute.policies.votes import VoteState
from adacompute.pool import Ballots, bundled
from adacompute.records import Sample
from adacompute.replay import calibrate, replay, run_policy
from harness import import_script
from kept import assert_same_array
from shared import read_votes, share
from synthetic import make_ballots

PRICES = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.3)


@functools.cache
def recording(name: str) -> Ballots:
    return read_votes(name)


@functools.cache
def some_paths(weighed: bool) -> tuple[StoppingPolicy, Paths]:
    ballots = recording("words").only(range(0, 441, 7))
    policy = StoppingPolicy(weigh="auto" if weighed else None).copy_for(ballots)
    return policy, draw_paths(ballots, rng=np.random.default_rng(5), orders=16, weigh=policy.weigh)


@share
def fitted(labels: bool = True) -> StoppingPolicy:
    return StoppingPolicy().fit(recording("words").only(range(0, 441, 3)), labels=labels)


def make_state(**fields: int | float) -> VoteState:
    base = VoteState.empty(1)
    made = {name: np.array([value], dtype=getattr(base, name).dtype) for name, value in fields.items()}
    return replace(base, **made)


@pytest.mark.parametrize("weighed", [False, True])
def test_on_every_path_cost_never_rises_with_the_price(weighed):
    policy, some = some_paths(weighed)
    drawn = [run_policy(policy, some, dial=price).drawn for price in PRICES]
    assert all((one >= other).all() for one, other in itertools.pairwise(drawn))
    assert (drawn[0] == policy.longest).all()  # what is free is taken
    assert drawn[-1].mean() < drawn[2].mean() < drawn[0].mean()


@pytest.mark.slow
@given(
    drawn=st.integers(2, 15),
    first=st.integers(1, 15),
    second=st.integers(0, 7),
    weight=st.floats(0.05, 20.0),
    move=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_more_margin_never_means_more_sampling(drawn, first, second, weight, move):
    second = min(second, first, drawn - first) if first < drawn else 0
    first = min(first, drawn)
    if second < 0 or first + second > drawn - (0 if move and second else 1) or first >= drawn:
        return
    policy = fitted()
    kinds, answered = 3 if second else 2, drawn
    told = policy.read(["How many apples?"])

    def critical(one: int, two: int, weight: float) -> float:
        at = make_state(
            drawn=drawn, answered=answered, first=one, second=two, kinds=kinds,
            lead=one * weight, runner=two * weight, total=answered * weight,
        )  # fmt: skip
        return float(policy.estimate_critical_prices(told, at)[0])

    for each in (1.0, weight):  # counted, and weighed
        wider = critical(first + 1, second - 1 if move and second else second, each)
        assert wider <= critical(first, second, each) + 1e-12


@pytest.mark.slow
def test_the_table_of_plain_tallies_is_as_good_as_exact_dynamic_programming():
    """Two answers, the right one with a known spread of chances: the best stopping rule can be computed."""
    rng = np.random.default_rng(0)
    longest, problems = 10, 20000
    chances = rng.beta(3.0, 2.0, problems)
    answers = (rng.random((problems, longest)) >= chances[:, None]).astype(np.int32)  # 0 is right
    ballots = _of_answers(answers)
    some = draw_paths(ballots, rng=rng, orders=1, longest=longest)
    table = build_price_table([some], [some.grade])
    for price in (0.004, 0.012, 0.03):
        steps = range(longest - 1)
        critical = [
            look_up_prices(table, np.full(len(some), t + 1), some.first[t], some.second[t]) for t in steps
        ]
        goes = np.stack(critical) > np.log(price)
        extra = np.minimum.accumulate(goes, axis=0).sum(axis=0)
        value = float((some.grade[extra, np.arange(len(some))] - price * (extra + 1)).mean())
        assert value == pytest.approx(_best_value(3.0, 2.0, longest, price), abs=0.006)
        assert value > max(float(some.grade[t].mean()) - price * (t + 1) for t in range(longest)) - 0.004


@pytest.mark.slow
def test_without_labels_a_fit_never_looks_at_them():
    ballots = recording("words").only(range(0, 441, 3))
    blind = replace(
        ballots, correct=np.full_like(ballots.correct, np.nan), gold_known=np.zeros(len(ballots), dtype=bool)
    )
    one, other = fitted(labels=False), StoppingPolicy().fit(blind)
    assert other.pool_model_ is not None
    assert not other.pool_model_.labels
    assert all(np.array_equal(one.arrays()[name], array) for name, array in other.arrays().items())
    with pytest.raises(PolicyError, match="labels=False"):
        StoppingPolicy().fit(blind, labels=True)


@pytest.mark.slow
def test_a_fit_learns_something_and_is_the_same_twice():
    ballots = recording("words").only(range(0, 441, 3))
    again = StoppingPolicy().fit(ballots)
    assert all(np.array_equal(array, again.arrays()[name]) for name, array in fitted().arrays().items())
    assert fitted().pool_model_ is not None
    assert fitted().pool_model_.hints is not None  # words has templates: its prompts tell
    at = make_state(drawn=2, answered=2, first=1, second=1, kinds=2, lead=1.0, runner=0.9, total=1.9)
    told = fitted().read(ballots.prompts)
    prices = [float(fitted().estimate_critical_prices(row[None], at)[0]) for row in told]
    assert max(prices) - min(prices) > 0.2  # as logarithms: who is promising gets more


@pytest.mark.slow
@pytest.mark.parametrize("name", ["facts", "words"])
def test_a_bundled_recording_is_never_judged_by_a_prior_that_has_seen_it(name):
    ballots = recording(name)
    for policy in (StoppingPolicy().copy_for(ballots), StoppingPolicy().copy_without(ballots)):
        assert not np.isin(fingerprint_prompts(ballots.prompts), policy.prior_.fingerprints).any()
        assert len(policy.prior_.fingerprints)
    whole = load_bundled_prior(BUNDLED_PRIORS[0])
    assert np.isin(fingerprint_prompts(ballots.prompts), whole.fingerprints).all()


def test_a_prior_that_has_seen_the_pool_is_refused():
    ballots = recording("words").only(range(40))
    policy = StoppingPolicy.pooled([ballots], longest=4)
    with pytest.raises(PolicyError, match="learned on 40 of these 40 prompts"):
        policy.fit(ballots)
    with pytest.raises(PolicyError, match="so that it is judged on new prompts"):
        policy.copy_for(ballots)
    with pytest.raises(PolicyError, match="no recording to learn from"):
        StoppingPolicy.pooled([ballots], without=ballots)
    apart = StoppingPolicy.pooled([recording("words").only(range(30, 80))], without=ballots, longest=4)
    assert len(apart.prior_.fingerprints) == 40
    assert apart.copy_for(ballots).prior_ is apart.prior_


@pytest.mark.nightly
def test_the_priors_in_the_package_are_learned_on_every_recording(recordings, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).resolve().parents[2] / "scripts"), *sys.path])
    from prior import gather_recordings
    from recordings import read_recordings

    judged = read_recordings(recordings)
    assert set(BUNDLED_PRIORS) == {"all", *(f"without-{name}" for name in judged)}
    for name in (*BUNDLED_PRIORS, FALLBACK_PRIOR):
        prompts = [prompt for ballots in gather_recordings(name, judged) for prompt in ballots.prompts]
        kept = set(load_bundled_prior(name).fingerprints.tolist())
        assert kept == set(fingerprint_prompts(prompts).tolist()), "run scripts/prior.py"
        left_out = judged.get(name.removeprefix("without-"))
        if left_out is not None:
            assert kept.isdisjoint(fingerprint_prompts(left_out.prompts).tolist())
            assert select_unseen_prior(load_bundled_prior(), left_out) is load_bundled_prior(name)
    rng = np.random.default_rng(0)
    learned = [ballots for ballots in gather_recordings("without-facts", judged) if ballots.signals is None]
    some = [draw_paths(ballots, rng=rng, orders=64) for ballots in learned]
    fresh = build_price_table(some, [paths.agrees for paths in some])
    assert_same_array(fresh, load_bundled_prior("without-facts").table, "run scripts/prior.py")


@pytest.mark.nightly
def test_a_pool_of_prompts_from_several_recordings_is_judged_by_a_prior_that_has_seen_none(
    recordings, monkeypatch
):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).resolve().parents[2] / "scripts"), *sys.path])
    from recordings import read_recordings

    judged = read_recordings(recordings)
    ballots = _of_answers(np.zeros((40, 16), dtype=np.int32))
    prompts = (*judged["gsm8k"].prompts[:20], *judged["math"].prompts[:20])
    policy = StoppingPolicy().fit(replace(ballots, prompts=prompts))
    assert np.array_equal(policy.prior_.fingerprints, load_bundled_prior(FALLBACK_PRIOR).fingerprints)


def test_a_policy_saved_with_the_prior_of_an_earlier_version_is_judged_by_one_that_has_not_seen_the_pool():
    kept = load_bundled_prior(FALLBACK_PRIOR)
    earlier = replace(kept, table=kept.table * (1 + 3e-8))  # it was written with 64 bits
    assert select_unseen_prior(earlier, recording("facts")) is load_bundled_prior("without-facts")
    learned_elsewhere = replace(kept, table=kept.table + 0.01)
    with pytest.raises(PolicyError, match="so that it is judged on new prompts"):
        select_unseen_prior(learned_elsewhere, recording("facts"))


def test_every_other_prior_in_the_package_knows_a_part_of_what_the_first_knows():
    whole = set(load_bundled_prior().fingerprints.tolist())
    rest = [set(load_bundled_prior(name).fingerprints.tolist()) for name in BUNDLED_PRIORS[1:]]
    assert all(part < whole for part in rest)
    assert set.intersection(*rest) == set()  # whichever prompt it is, one prior hasn't seen it


@pytest.mark.nightly
def test_a_prior_in_the_package_is_small_and_decides_as_it_did_before_it_was_written():
    prior = fit_prior([recording("words").only(range(0, 441, 3))], longest=16)
    kept = import_script("prior").narrow_arrays(prior.arrays())
    assert sum(array.nbytes for array in kept.values()) < 0.65 * sum(
        array.nbytes for array in prior.arrays().values()
    )
    again = Prior.restore(widen_arrays(kept), problems=prior.problems, scale=prior.scale)
    _, some = some_paths(True)
    at = some.state_after(np.arange(len(some)), np.full(len(some), 3))
    rows = compute_state_features(at)
    assert_same_array(again.estimate_critical_prices(at, rows), prior.estimate_critical_prices(at, rows))


@pytest.mark.parametrize("count", [1, 2, 40])
def test_a_fit_works_from_few_problems(count):
    policy = StoppingPolicy().fit(recording("facts").only(range(count)))
    assert policy.pool_model_ is not None
    assert policy.pool_model_.share <= 0.26
    some = draw_paths(
        recording("facts").only(range(40, 80)), rng=np.random.default_rng(1), orders=4, weigh=policy.weigh
    )
    assert 1.0 <= run_policy(policy, some, dial=0.02).drawn.mean() <= 16.0


def test_a_pool_of_nothing_is_refused_and_one_of_abstentions_is_not():
    with pytest.raises(TooFewSamples, match="teaches nothing"):
        StoppingPolicy().fit(recording("facts").only([]))
    silent = _of_answers(np.full((40, 16), -1, dtype=np.int32))
    policy = StoppingPolicy().fit(silent)
    assert policy.weigh is None
    some = draw_paths(silent, rng=np.random.default_rng(0), orders=1)
    assert run_policy(policy, some, dial=0.05).drawn.max() <= 16


@pytest.mark.slow
def test_votes_are_plain_where_no_log_probabilities_were_recorded():
    ballots = recording("words").only(range(0, 441, 7))
    bare = replace(ballots, logprob=np.full_like(ballots.logprob, np.nan))
    assert StoppingPolicy().copy_for(bare).weigh is None
    assert StoppingPolicy().copy_for(ballots).weigh is not None
    weigh = VoteWeights(signal="logprob", scale=-0.3)
    assert StoppingPolicy(weigh=weigh).fit(ballots).weigh == weigh  # what was given is kept


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_waves_are_never_more_than_allowed(most):
    policy, some = some_paths(True)
    limited = StoppingPolicy(max_waves=most).copy_for(some.ballots)
    costs = []
    for price in PRICES:
        done = run_policy(limited, some, dial=price)
        assert done.waves.max() <= most
        costs.append(float(done.drawn.mean()))
    assert all(one >= other for one, other in itertools.pairwise(costs)), costs
    assert costs[0] == policy.longest


def test_a_ladder_is_climbed_rung_by_rung():
    _, some = some_paths(True)
    ladder = (1, 2, 4, 8, 16)
    climbing = StoppingPolicy(ladder=ladder).copy_for(some.ballots)
    done = [run_policy(climbing, some, dial=price) for price in PRICES]
    assert set(np.concatenate([one.drawn for one in done]).tolist()) <= set(ladder)
    assert all((one.drawn >= other.drawn).all() for one, other in itertools.pairwise(done))
    assert max(int(one.waves.max()) for one in done) == len(ladder)
    with pytest.raises(PolicyError, match="both limit waves"):
        StoppingPolicy(ladder=ladder, max_waves=3)


@given(
    price=st.floats(0.0001, 0.5),
    drawn=st.integers(0, 16),
    log=st.floats(-12.0, 1.0),
    most=st.one_of(st.none(), st.integers(1, 8)),
)
@settings(deadline=None)
def test_a_wave_ends_between_one_sample_and_the_longest(price, drawn, log, most):
    openings = np.sort(np.linspace(-8, -3, 45).reshape(3, 15), axis=1)[:, ::-1]
    waves = WavePlan(longest=16, max_waves=most)
    more = int(waves.count_draws(price, np.array([drawn]), np.array([log]), openings)[0])
    assert 0 <= more <= 16 - drawn
    assert more >= 1 or drawn > 0


def test_hints_tell_families_apart_and_keep_silent_where_words_tell_nothing():
    rng = np.random.default_rng(0)
    prompts = [f"Which {'river' if i % 2 else 'prime'} number {i} comes next?" for i in range(80)]
    family = np.array([0.9 if i % 2 else 0.1 for i in range(80)])
    hints = fit_hints(prompts, np.repeat(family[:, None], HINT_COUNT, axis=1), seed=0)
    assert hints is not None
    left_out = hints.predict(prompts)
    assert left_out[1::2].min() > left_out[::2].max()
    assert (
        hints.predict(["Which river is it?"])[0, 0]
        > 0.55
        > 0.45
        > hints.predict(["Which prime is it?"])[0, 0]
    )
    together = hints.predict(prompts)
    assert all(np.array_equal(together[i], hints.predict([prompt])[0]) for i, prompt in enumerate(prompts))
    noise = rng.random((80, HINT_COUNT))
    random = [f"{rng.random()}" for _ in range(80)]
    assert fit_hints(random, noise, seed=0) is None
    assert fit_hints(random * 2, np.concatenate([noise, noise]), seed=0) is None  # a copy is not evidence


def test_a_critical_price_lies_where_the_advantage_turns():
    prices = np.array([0.01, 0.02, 0.04])
    rows = np.array(
        [[1.0, 0.5, -0.5], [1.0, -1.0, -2.0], [-0.01, -0.1, -0.2], [3.0, 2.0, 1.0], [1.0, -1.0, 5.0]]
    )
    low, high = np.exp(find_crossing(prices, rows)), np.exp(find_crossing(prices, rows + 1e-3))
    assert prices[1] < low[0] < prices[2]
    assert prices[0] < low[1] < prices[1]
    assert low[2] < prices[0]
    assert low[3] > prices[2]
    assert low[4] == pytest.approx(low[1])  # once it turned, it has turned
    assert (high >= low).all()


@pytest.mark.slow
def test_what_is_calibrated_is_what_runs_live():
    """The documented way: calibrate, then ask the same object about live tallies."""
    with bundled("words") as pool:
        policy = StoppingPolicy()
        price = calibrate(policy, pool, budget=2.5)
        drawn = []
        for number, record in enumerate(itertools.islice(pool, 150)):
            order = np.random.default_rng(number).permutation(len(record.samples))
            tally = Tally(task=pool.task, weigh=policy.weigh)
            while more := policy.more(record.problem.question, tally, price):
                for at in order[tally.drawn : tally.drawn + more]:
                    tally.add(record.samples[at])
            drawn.append(tally.drawn)
    assert np.mean(drawn) == pytest.approx(2.5, abs=4 * np.std(drawn) / len(drawn) ** 0.5)


@pytest.mark.slow
def test_a_result_on_problems_it_was_fitted_on_says_so():
    ballots = recording("words").only(range(0, 441, 3))
    inside = replay(fitted(), ballots, price=0.02, orders=4)
    outside = replay(fitted(), recording("words").only(range(1, 441, 3)), price=0.02, orders=4)
    assert inside.in_sample == len(ballots)
    assert "in-sample" in inside.protocol
    assert outside.in_sample == 0
    assert "in-sample" not in outside.protocol


def test_a_fitted_policy_is_not_judged_on_what_its_prior_has_seen():
    policy = StoppingPolicy().fit(_of_answers(np.zeros((40, 16), dtype=np.int32)))
    with pytest.raises(PolicyError, match="so that it is judged on new prompts"):
        replay(policy, recording("words").only(range(30)), price=0.02, orders=4)


def test_a_few_prompts_in_common_with_every_prior_do_no_harm():
    shared = {one: recording(one).prompts[0] for one in ("facts", "words")}
    ballots = _of_answers(np.zeros((60, 16), dtype=np.int32))
    mixed = replace(ballots, prompts=(*shared.values(), *ballots.prompts[2:]))
    assert StoppingPolicy().fit(mixed).pool_model_ is not None
    assert calibrate(StoppingPolicy(), mixed, budget=2.0, orders=4) is not None


@pytest.mark.nightly
def test_a_fit_begins_again_whatever_was_fitted_before(tmp_path):
    words, facts = recording("words").only(range(0, 441, 7)), recording("facts").only(range(0, 353, 7))
    policy = StoppingPolicy().fit(words)
    policy.save(tmp_path / "p")
    want = StoppingPolicy().fit(facts)
    for again in (policy, load_policy(tmp_path / "p")):
        assert again.fit(facts).weigh == want.weigh
    assert all(np.array_equal(array, policy.arrays()[name]) for name, array in want.arrays().items())


@pytest.mark.slow
def test_hints_are_learned_on_labelled_problems_only():
    """A hopeless family stays one, however few of its problems are labelled."""
    rng = np.random.default_rng(0)
    answers = np.where(np.arange(120)[:, None] % 2 == 0, 1, (rng.random((120, 16)) > 0.7)).astype(np.int32)
    ballots = _of_answers(answers)
    prompts = tuple(f"{'hopeless river' if i % 2 == 0 else 'easy prime'} {i}" for i in range(120))
    dark = np.arange(120) % 6 == 0
    correct = ballots.correct.copy()
    correct[dark] = np.nan
    policy = StoppingPolicy().fit(
        replace(ballots, prompts=prompts, correct=correct, gold_known=~dark), labels=True
    )
    told = policy.read(["a hopeless river", "an easy prime"])
    assert told[0, 1] < 0.35 < 0.6 < told[1, 1]


def test_one_sample_a_request_leaves_nothing_to_learn():
    ballots = recording("facts").only(range(40))
    policy = StoppingPolicy(longest=1).fit(ballots)
    assert policy.pool_model_ is None
    some = draw_paths(ballots, rng=np.random.default_rng(0), longest=1, weigh=policy.weigh)
    assert (run_policy(policy, some, dial=0.0).drawn == 1).all()
    with pytest.raises(PolicyError, match="longest 1"):
        StoppingPolicy.pooled([ballots], longest=1)
    with pytest.raises(PolicyError, match="list"):
        StoppingPolicy.pooled(ballots)


def test_waves_without_need_of_a_limit_are_as_without_one():
    policy, some = some_paths(True)
    free = StoppingPolicy(max_waves=16).copy_for(some.ballots)
    for price in PRICES[1:]:
        few, one = run_policy(free, some, dial=price), run_policy(policy, some, dial=price)
        assert few.drawn.mean() == pytest.approx(one.drawn.mean(), abs=0.05)


@pytest.mark.slow
def test_a_price_per_token_knows_what_a_draw_costs():
    ballots = recording("words").only(range(0, 441, 7))
    with pytest.raises(NotFitted, match="draw_cost"):
        StoppingPolicy(unit="tokens").more("?", Tally(), 0.0001)
    assert StoppingPolicy(unit="tokens").fit(ballots).draw_cost == pytest.approx(np.nanmean(ballots.tokens))
    with pytest.raises(NotRecorded, match="tokens"):
        StoppingPolicy(unit="tokens").fit(replace(ballots, tokens=np.full_like(ballots.tokens, np.nan)))


def test_a_price_may_be_per_token():
    policy = StoppingPolicy(unit="tokens", draw_cost=300.0)
    at = make_state(drawn=2, answered=2, first=1, second=1, kinds=2, lead=1.0, runner=1.0, total=2.0)
    one = np.zeros((1, 0))
    for price in PRICES:
        assert policy.count_draws(one, at, price / 300) == StoppingPolicy().count_draws(one, at, price)


def _of_answers(answers: np.ndarray) -> Ballots:
    """Ballots of answers by number, 0 being right, -1 none."""
    classes = np.empty_like(answers)
    for row in range(len(answers)):
        names: dict[int, int] = {-1: -1}
        classes[row] = [names.setdefault(int(a), len(names) - 1) for a in answers[row]]
    return make_ballots(classes, answers == 0)


def _random_tally(rng: np.random.Generator, weigh: VoteWeights) -> Tally:
    """Of up to 17 samples; a third of tallies have no weights, and some samples no answer."""
    samples = [
        Sample(
            answer=None if rng.random() < 0.15 else str(int(rng.geometric(0.55))),
            tokens=20,
            logprob=float(20 * weigh.scale * rng.gamma(2.0, 0.5)),
        )
        for _ in range(int(rng.integers(0, 18)))
    ]
    return Tally.of(samples, weigh=None if rng.random() < 0.3 else weigh)


@functools.cache
def some_tallies() -> tuple[list[Tally], VoteState]:
    rng = np.random.default_rng(8)
    tallies = [_random_tally(rng, StoppingPolicy().weigh) for _ in range(600)]
    return tallies, VoteState.from_tallies(tallies)


def test_features_of_one_tally_are_those_of_arrays_to_the_last_bit():
    tallies, state = some_tallies()
    assert [list(compute_tally_features(tally)) for tally in tallies] == compute_state_features(
        state
    ).tolist()


@pytest.mark.parametrize(
    "make",
    [
        StoppingPolicy,
        lambda: StoppingPolicy(ladder=(1, 2, 5, 9)),
        lambda: StoppingPolicy(max_waves=3),
        lambda: StoppingPolicy(longest=6, max_waves=9),
        fitted,
        lambda: StoppingPolicy(features=False).fit(recording("words").only(range(0, 441, 3))),
    ],
    ids=["prior", "ladder", "waves", "short", "fitted, with hints", "fitted, without"],
)
def test_one_request_is_decided_as_in_a_batch_whatever_its_votes(make):
    policy = make()
    tallies, state = some_tallies()
    started = state.drawn > 0
    prompts = [f"{'What is' if row % 2 else 'Spell'} {row}?" for row in range(len(tallies))]
    reading = policy.read(prompts)
    critical = policy.estimate_critical_prices(reading[started], state.select(started))
    alone = [
        policy.estimate_critical_price(row, tally)
        for row, tally in zip(reading[:, None], tallies, strict=True)
        if tally.drawn
    ]
    assert alone == critical.tolist()
    for price in (0.0, 0.005, 0.04, *np.exp(critical[:3])):
        together = policy.count_draws(reading, state, float(price)).tolist()
        one_by_one = [
            policy.more(prompt, tally, OwnPrice(price), reading=row)
            for prompt, tally, row in zip(prompts, tallies, reading[:, None], strict=True)
        ]
        assert one_by_one == together


def test_a_subclass_that_decides_otherwise_is_asked_every_time():
    class Fickle(StoppingPolicy):
        times = 0

        def count_draws(self, reading, state, dial):
            self.times += 1
            return np.full(len(state), self.times)

    policy, tally = Fickle(), Tally.of(["4", "4"])
    assert [policy.more("q", tally, 0.01) for _ in range(3)] == [1, 2, 3]


def _best_value(a: float, b: float, longest: int, price: float) -> float:
    """The value of the best rule that sees (first, second): the right answer's chance is Beta(a, b)."""
    chances = (np.arange(4000) + 0.5) / 4000
    weight = chances ** (a - 1) * (1 - chances) ** (b - 1)
    weight /= weight.sum()

    def seen(right: int, wrong: int) -> float:  # chance of one order with so many of each
        return float((weight * chances**right * (1 - chances) ** wrong).sum())

    @functools.cache
    def value(first: int, second: int) -> float:
        ours, theirs = seen(first, second), seen(second, first)  # the leader is right, or wrong
        stop = ours / (ours + theirs)
        if first + second == longest:
            return stop
        again = (seen(first + 1, second) + seen(second, first + 1)) / (ours + theirs)
        up, down = value(first + 1, second), value(max(first, second + 1), min(first, second + 1))
        return max(stop, again * up + (1 - again) * down - price)

    return value(1, 0) - price
