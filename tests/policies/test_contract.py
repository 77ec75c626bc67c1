"""One contract for every policy: what replay measures is what runs live, and the dial does what it says."""

from pathlib import Path

import numpy as np
import pytest
from every_policy import KINDS, MAKERS, SAVED, ballots, decide_all, made, some

from adacompute.answers import Tally
from adacompute.errors import NotFitted, PolicyError
from adacompute.evaluate.rivals import COMPARED
from adacompute.policies import POLICIES, load_policy
from adacompute.policies.base import Policy, place_orders
from adacompute.policies.votes import VoteState
from adacompute.records import Sample
from adacompute.replay import build_paths, draw_paths, replay, run_policy
from adacompute.replay.per_problem import count_places, place_requests
from adacompute.score.grades import grade_samples, measure_classes

UNFITTED = {
    "heuristic": (3.0,),
    "shuffled": (3.0,),
    "bayes": (),
    "pets": (),
    "oracle": (),
    "classifier": (),
    "curve": (),
}
DIALS: dict[str | None, tuple[float | None, ...]] = {
    None: (None,),
    "threshold": (0.0, 0.01, 0.05, 0.1, 0.25, 0.4, 0.5, 1.0),
    "price": (0.0, 1e-5, 1e-3, 0.003, 0.01, 0.03, 0.1, 1.0, 100.0),
}
ODD = (
    "",
    " ",
    "x" * 100_000,
    "½ of 🎲🎲?\u202e",
    "\x00\x1b[2J\r\n\t",
    "\ud800",
    "9" * 5000,
    "1e999 -inf NaN %",
)
LETTERS = [f"{a}{b}{a}q" for a in "bcdfghjklm" for b in "aeiou"]

every = pytest.mark.parametrize("weighed", [False, True], ids=["plain", "weighed"])
kinds = pytest.mark.parametrize("kind", KINDS)


def saved(kind: str, weighed: bool, folder: Path) -> Policy:
    """As it is loaded; a rival, which can't be saved, as it is."""
    if kind not in SAVED:
        return made(kind, weighed)
    made(kind, weighed).save(folder)
    return load_policy(folder)


def items(problem: int, order: np.ndarray) -> list[Sample]:
    """A problem's samples as they would come, equal answers written alike."""
    b = ballots()
    return [
        Sample(
            answer=LETTERS[b.classes[problem, j]] if b.classes[problem, j] >= 0 else None,
            tokens=int(b.tokens[problem, j]),
            logprob=float(b.logprob[problem, j]),
            entropy=float(b.entropy[problem, j]),
        )
        for j in order.tolist()
    ]


def test_every_policy_is_under_contract():
    assert set(COMPARED) == set(MAKERS)
    assert all(kind == policy.kind for kind, policy in COMPARED.items())
    assert set(POLICIES) == set(SAVED)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(SAVED)))
def test_what_is_only_compared_is_never_saved_or_loaded(kind, tmp_path):
    with pytest.raises(PolicyError, match=f"{kind} is only for comparison"):
        made(kind).save(tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
    with pytest.raises(PolicyError, match=f"{kind} is only for comparison"):
        COMPARED[kind].restore({}, {})


@pytest.mark.parametrize("kind", SAVED)
@every
def test_a_stored_policy_comes_back_as_it_was(kind, weighed, tmp_path):
    policy, again = made(kind, weighed), saved(kind, weighed, tmp_path / "policy")
    assert type(again) is type(policy)
    assert again.settings() == policy.settings()
    assert list(again.arrays()) == list(policy.arrays())
    for name, array in policy.arrays().items():
        assert again.arrays()[name].dtype == array.dtype
        assert np.array_equal(again.arrays()[name], array, equal_nan=array.dtype.kind == "f")
    for name in ("dial", "longest", "weigh", "max_waves", "one_shot"):
        assert getattr(again, name) == getattr(policy, name)


@kinds
@every
def test_one_by_one_in_batch_after_loading_and_in_replay_it_decides_the_same(kind, weighed, tmp_path):
    policy, again = made(kind, weighed), saved(kind, weighed, tmp_path / "policy")
    b, longest = ballots(), policy.longest
    rng = np.random.default_rng(7)
    order = np.array([[rng.permutation(n)[:longest]] for n in b.drawn])
    worth = measure_classes(b.classes, grade_samples(b))[1]
    ways = build_paths(b, order, weigh=policy.weigh)
    for dial in some(policy):
        samples = [items(i, order[i, 0]) for i in range(len(b))]
        tallies = [Tally(weigh=policy.weigh) for _ in samples]
        waves = np.zeros(len(b), dtype=int)
        while any(more := decide_all(policy, b.prompts, tallies, dial)):
            assert more == decide_all(again, b.prompts, tallies, dial)
            assert more == [policy.more(p, t, dial) for p, t in zip(b.prompts, tallies, strict=True)]
            waves += np.array(more) > 0
            for tally, drawn, count in zip(tallies, samples, more, strict=True):
                for item in drawn[tally.drawn : tally.drawn + count]:
                    tally.add(item)
        own = policy.spread_dial(dial, place_orders(b.prompts))
        found = run_policy(policy, ways, dial=own)
        assert found.drawn.tolist() == [tally.drawn for tally in tallies]
        assert found.waves.tolist() == waves.tolist()
        leads = [worth[i, LETTERS.index(t.leader)] if t.leader else 0.0 for i, t in enumerate(tallies)]
        assert found.grade.tolist() == leads
        assert run_policy(again, ways, dial=own).drawn.tolist() == found.drawn.tolist()


DIALED: list[tuple[str, dict[str, object]]] = [
    *((kind, {}) for kind in KINDS if COMPARED[kind].dial is not None),
    ("asc", {"wave": 4}),
    ("stopping", {"max_waves": 3}),
    ("stopping", {"ladder": (1, 2, 4, 8)}),
]


@pytest.mark.parametrize(("kind", "options"), DIALED, ids=str)
def test_requests_with_dials_of_their_own_are_decided_as_at_one_dial(kind, options):
    policy = made(kind, **options)
    dials = np.array(DIALS[policy.dial])
    ways = draw_paths(ballots(), rng=np.random.default_rng(1), orders=8, weigh=policy.weigh)
    own = np.resize(dials, len(ways))
    mixed = run_policy(policy, ways, dial=own)
    for dial in dials.tolist():
        alone = run_policy(policy, ways, dial=dial)
        assert (mixed.drawn[own == dial] == alone.drawn[own == dial]).all()
        assert (mixed.waves[own == dial] == alone.waves[own == dial]).all()
    for wrong in (-1.0, np.nan):
        with pytest.raises(PolicyError, match=rf"{policy.dial} .* can't be used"):
            run_policy(policy, ways, dial=np.where(own == 0, wrong, own))


@kinds
@every
def test_cost_never_rises_with_the_dial(kind, weighed):
    policy = made(kind, weighed)
    ways = draw_paths(ballots(), rng=np.random.default_rng(1), orders=32, weigh=policy.weigh)
    cost = [run_policy(policy, ways, dial=dial).drawn.mean() for dial in DIALS[policy.dial]]
    assert (np.diff(cost) <= 0).all()
    assert policy.dial is None or cost[0] > cost[-1]


@kinds
def test_an_empty_tally_gets_at_least_one_and_a_full_one_nothing(kind):
    policy, prompts = made(kind), ballots().prompts[:20]
    full = [Tally.of(["a", "b"] * (policy.longest // 2 + 1))] * 20  # as many as may be, or one more
    for dial in DIALS[policy.dial]:
        assert min(decide_all(policy, prompts, [Tally(weigh=policy.weigh)] * 20, dial)) >= 1
        assert decide_all(policy, prompts, full, dial) == [0] * 20


@kinds
@every
def test_it_never_asks_beyond_the_longest_wherever_a_request_stands(kind, weighed):
    policy = made(kind, weighed)
    rng = np.random.default_rng(3)
    tallies = []
    for drawn in rng.integers(0, policy.longest + 3, 300).tolist():
        answers = [LETTERS[c] if c >= 0 else None for c in rng.integers(-1, 4, drawn).tolist()]
        logprobs = (-rng.exponential(20.0, drawn)).tolist()
        known = [Sample(answer=a, tokens=50, logprob=x) for a, x in zip(answers, logprobs, strict=True)]
        tallies.append(Tally.of(known, weigh=policy.weigh))
    prompts = [ballots().prompts[i % 36] for i in range(300)]
    drawn = np.array([tally.drawn for tally in tallies])
    for dial in DIALS[policy.dial]:
        more = np.array(decide_all(policy, prompts, tallies, dial))
        assert (more >= 0).all()
        assert (more <= np.maximum(policy.longest - drawn, 0)).all()


@kinds
def test_another_longest_is_kept_to(kind):
    policy = made(kind, longest=5)
    assert policy.longest == 5
    ways = draw_paths(ballots(), rng=np.random.default_rng(1), orders=4, longest=5, weigh=policy.weigh)
    for dial in DIALS[policy.dial]:
        found = run_policy(policy, ways, dial=dial)
        assert 1 <= found.drawn.min() <= found.drawn.max() <= 5


@kinds
@every
def test_it_draws_in_no_more_waves_than_it_says(kind, weighed):
    policy = made(kind, weighed)
    ways = draw_paths(ballots(), rng=np.random.default_rng(1), orders=8, weigh=policy.weigh)
    most = policy.longest if policy.max_waves is None else policy.max_waves
    assert max(run_policy(policy, ways, dial=dial).waves.max() for dial in DIALS[policy.dial]) <= most


@pytest.mark.parametrize(
    ("kind", "given"),
    [(kind, {}) for kind in KINDS] + [(kind, {"features": "text"}) for kind in ("classifier", "curve")],
)
def test_what_decides_beforehand_never_looks_at_a_tally(kind, given):
    policy, b = made(kind, **given), ballots()
    assert policy.one_shot or not given  # without the first sample's entropy there is nothing to wait for
    if not policy.one_shot:  # then it isn't scored as if it did
        assert not replay(policy, b, price=some(policy)[0], orders=4).exact
        return
    for dial in some(policy):
        places = count_places(policy, len(b))
        reading, own = place_requests(policy, dial, b.prompts, policy.read(b.prompts), places)
        budgets = policy.count_draws(reading, VoteState.empty(len(reading)), own)
        assert replay(policy, b, price=dial).cost == pytest.approx(budgets.mean(), rel=1e-12)
        budgets = budgets[::places]  # each prompt at its own place
        for votes in (["a"], ["a", "b", None], ["a"] * 9):
            left = decide_all(policy, b.prompts, [Tally.of(votes)] * len(b), dial)
            assert left == np.maximum(budgets - len(votes), 0).tolist()


@kinds
def test_odd_prompts_are_prompts_too(kind):
    policy = made(kind)
    for dial in some(policy):
        tallies = [Tally.of(["a"] if i % 2 else []) for i in range(len(ODD))]
        more = decide_all(policy, ODD, tallies, dial)
        assert all(0 <= count <= policy.longest for count in more)
        assert more == [policy.more(p, t, dial) for p, t in zip(ODD, tallies, strict=True)]


@pytest.mark.parametrize("kind", list(UNFITTED))
def test_asked_before_it_has_learned_it_says_what_to_do(kind):
    with pytest.raises(NotFitted, match="fit") as error:
        COMPARED[kind](*UNFITTED[kind]).more("What is 2 + 2?", Tally(), some(COMPARED[kind])[0])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", SAVED)
def test_fitting_returns_the_policy_and_the_same_twice(kind):
    one, other = made(kind), MAKERS[kind](POLICIES[kind], ballots())
    assert isinstance(one, POLICIES[kind])
    assert one.settings() == other.settings()
    for name, array in one.arrays().items():
        assert np.array_equal(other.arrays()[name], array, equal_nan=array.dtype.kind == "f")


@kinds
def test_what_is_no_pool_is_refused_in_one_line(kind):
    policy = made(kind)
    for given in ("pool.jsonl", None, [1, 2], Path("pool.jsonl")):
        with pytest.raises(PolicyError, match=r"is not a pool; open it with open_pool\(") as error:
            replay(policy, given, price=some(policy)[0])
        assert repr(given) in str(error.value)
    budget = {"budget": 2.0} if kind == "classifier" else {}
    with pytest.raises(PolicyError, match=r"'pool\.jsonl' is not a pool"):
        policy.fit("pool.jsonl", **budget)


@kinds
def test_a_first_decision_is_the_same_whether_or_not_the_prompt_is_read_for_it(kind):
    policy = made(kind)
    for dial in some(policy):
        one_by_one = [policy.more(prompt, Tally(), dial) for prompt in ballots().prompts[:20]]
        assert one_by_one == decide_all(policy, ballots().prompts[:20], [Tally()] * 20, dial)


@pytest.mark.parametrize("reads", [True, False])
def test_a_prompt_that_says_nothing_of_the_first_wave_is_not_read_for_it(reads):
    seen = []

    class Late(POLICIES["asc"]):
        reads_first = reads

        def read(self, prompts):
            seen.extend(prompts)
            return np.ones((len(prompts), 3))

        def count_draws(self, reading, state, dial):
            assert reading.shape == (len(state), 3 if reads or state.drawn.any() else 0)
            return super().count_draws(reading, state, dial)

    policy = Late()
    assert policy.more("a", Tally(), 0.1) == 1
    assert seen == (["a"] if reads else [])
    assert policy.more("b", Tally.of(["4"]), 0.1) == 1
    assert seen[-1] == "b"
