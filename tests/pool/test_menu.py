"""Pools joined by problem: one answer is one class whichever mode gave it; a menu says what they cost."""

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pool_lines import line, write

import adacompute as ac
from adacompute.answers import Task, shared_judge
from adacompute.errors import (
    NotRecorded,
    PoolError,
    PoolNotFound,
    PriceInvalid,
    RecordInvalid,
    RecordNotFound,
    SourceAmbiguous,
    TaskError,
)
from adacompute.pool import Ballots, read_modes
from adacompute.pool.modes import _name_modes
from shared import read_votes
from tiers import leave_to_nightly

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a pool file of some lines."""
    numbers = itertools.count()
    return lambda *lines: write(tmp_path / f"pool{next(numbers)}.jsonl", list(lines))


@pytest.fixture(scope="module")
def facts() -> Ballots:
    with ac.join_pools({"smol": "facts", "qwen": "facts-qwen"}) as pool:
        return pool.ballots()


def ungraded(name: str = "p1", answers: tuple[str | None, ...] = ("4", "5"), **more: Any) -> dict[str, Any]:
    """A problem without gold and grades."""
    samples = [{"answer": answer} for answer in answers]
    return {"id": name, "question": f"What is {name}?", "model": "n", "samples": samples} | more


def groups(*rows: np.ndarray) -> set[frozenset[int]]:
    """Which places of some rows, one after the other, share a class."""
    together = np.concatenate(rows).tolist()
    return {frozenset(i for i, c in enumerate(together) if c == number) for number in set(together)}


def test_an_answer_has_one_class_whichever_mode_gave_it(make: Make):
    small = make(line(answers=("5", "4", "6", None)))
    large = make(line(answers=("4", "7", "5.0")))
    ballots = ac.join_pools({"small": small, "large": large}).ballots()
    assert ballots.names == ("small", "large")
    assert ballots["small"].classes.tolist() == [[0, 1, 2, -1]]
    assert ballots["large"].classes.tolist() == [[1, 3, 0]]
    assert ballots.classes.tolist() == [[0, 1, 2, -1, 1, 3, 0]]
    assert ballots.correct.tolist() == [[0, 1, 0, 0, 1, 0, 0]]


def test_recorded_grades_outrank_our_equality(make: Make):
    small = make(line(samples=[{"answer": "4", "correct": 0}]))
    large = make(line(samples=[{"answer": "4", "correct": 1}, {"answer": "4", "correct": 0}]))
    ballots = ac.join_pools({"small": small, "large": large}).ballots()
    assert ballots.classes.tolist() == [[0, 1, 0]]


def test_classes_of_a_mode_are_joined_but_never_parted(make: Make):
    metres = make(line(gold="1", answers=("12 m",)))
    either = make(line(gold="1", answers=("12", "12 cm", "12 m")))
    ballots = ac.join_pools({"metres": metres, "either": either}).ballots()
    assert groups(*ballots["either"].classes) == {frozenset({0, 1}), frozenset({2})}
    assert ballots["metres"].classes[0, 0] == ballots["either"].classes[0, 2]


def test_an_answer_that_only_its_spelling_joins_shares_the_class(make: Make):
    """The second way of writing an answer is known too, so that no formula is compared again."""
    first = make(line(gold="1", answers=("1/2", r"\frac{1}{2}")))
    second = make(line(gold="1", answers=(r"\frac{1}{2}", "0.5")))
    ballots = ac.join_pools({"first": first, "second": second}).ballots()
    assert ballots.classes.tolist() == [[0, 0, 0, 0]]


ANSWERS = st.lists(st.sampled_from(["4", "4.0", "four", "5", "x", "X", "six", None]), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(st.lists(ANSWERS, min_size=2, max_size=3), st.data())
def test_which_answers_share_a_class_does_not_depend_on_the_order_of_pools(
    tmp_path_factory: pytest.TempPathFactory, votes: list[list[str | None]], data: st.DataObject
):
    folder = tmp_path_factory.mktemp("pools")
    paths = {f"m{k}": write(folder / f"{k}.jsonl", [ungraded(answers=tuple(v))]) for k, v in enumerate(votes)}
    names = data.draw(st.permutations(list(paths)))
    one = ac.join_pools(paths).ballots()
    other = ac.join_pools({name: paths[name] for name in names}).ballots()
    assert other.names == tuple(names)
    again = other.select(one.names)
    assert one.classes.tolist() == again.classes.tolist()


@settings(max_examples=40, deadline=None)
@given(ANSWERS, ANSWERS)
def test_classes_across_modes_agree_with_same_answer(
    tmp_path_factory: pytest.TempPathFactory, left: list[str | None], right: list[str | None]
):
    folder = tmp_path_factory.mktemp("pools")
    a, b = (write(folder / f"{k}.jsonl", [ungraded(answers=tuple(v))]) for k, v in enumerate((left, right)))
    ballots = ac.join_pools({"a": a, "b": b}).ballots()
    for (i, x), (j, y) in itertools.product(enumerate(left), enumerate(right)):
        one, other = ballots["a"].classes[0, i], ballots["b"].classes[0, j]
        assert (one == other and one >= 0) == ac.same_answer(x, y)


def test_problems_are_matched_by_id_in_the_order_of_the_first_pool(make: Make):
    one = make(line("p1"), line("p2", answers=("7",)))
    other = make(line("p2", answers=("7", "4")), line("p1", answers=("4",)))
    ballots = ac.join_pools({"a": one, "b": other}).ballots()
    assert ballots.ids == ("p1", "p2")
    assert ballots["b"].classes.tolist() == [[0, -2], [0, 1]]
    assert ballots.only([1]).ids == ("p2",)
    assert ballots.only([1])["b"].classes.tolist() == [[0, 1]]


def test_a_gold_answer_of_one_pool_holds_for_all(make: Make):
    graded = make(line(gold="4", answers=("4", "5"), subject="sums"))
    bare = make(ungraded(answers=("4.0", "5", "8", None)))
    for names in (("graded", "bare"), ("bare", "graded")):
        paths = {"graded": graded, "bare": bare}
        ballots = ac.join_pools({name: paths[name] for name in names}).ballots()
        assert ballots.gold_known.tolist() == [True]
        assert ballots.subjects == ("sums",)
        assert ballots["bare"].correct.tolist() == [[1, 0, 0, 0]]


def test_a_gold_answer_of_another_pool_is_read_by_the_question(make: Make):
    question = "Liegt Paris in Polen?"
    graded = make(line(gold="Nein", question=question, answers=("Nein", "Ja")))
    bare = make(ungraded(answers=("No", "Yes"), question=question))
    ballots = ac.join_pools({"graded": graded, "bare": bare}).ballots()
    assert ballots["bare"].correct.tolist() == [[1, 0]]


def test_without_any_gold_answer_nothing_is_graded(make: Make):
    ballots = ac.join_pools({"a": make(ungraded()), "b": make(ungraded())}).ballots()
    assert not ballots.gold_known.any()
    assert np.isnan(ballots.correct).all()


def test_a_recorded_grade_outranks_the_gold_answer(make: Make):
    graded = make(line(samples=[{"answer": "IV", "correct": 1}]))
    ballots = ac.join_pools({"graded": graded, "bare": make(ungraded(answers=("IV", "V")))}).ballots()
    assert ballots["bare"].correct.tolist() == [[1, 0]]


@pytest.mark.parametrize("missing", ["error", "drop"])
def test_a_problem_that_a_mode_lacks_is_an_error_or_dropped(make: Make, missing: Any):
    pools = {"a": make(line("p1"), line("p2"), line("p3")), "b": make(line("p2"))}
    joined = ac.join_pools(pools, missing=missing)
    if missing == "drop":
        assert joined.ballots().ids == ("p2",)
        return
    with pytest.raises(RecordNotFound, match=r"mode 'b' has no sample of 2 of the 3 problems.*'p1'; .*drop"):
        joined.ballots()


def test_no_problem_in_common_is_an_error_even_where_problems_are_dropped(make: Make):
    joined = ac.join_pools({"a": make(line("p1")), "b": make(line("p2"))}, missing="drop")
    with pytest.raises(RecordNotFound, match="'a', 'b' have no problem in common"):
        joined.ballots()


def test_another_question_or_gold_answer_under_one_id_is_refused(make: Make):
    first = make(line("p1"))
    with pytest.raises(RecordInvalid, match="problem 'p1' has another question in mode 'b'"):
        ac.join_pools({"a": first, "b": make(line("p1", question="Why?"))}).ballots()
    with pytest.raises(RecordInvalid, match="'p1' has the gold answer '5' in mode 'b' and '4' in 'a'"):
        ac.join_pools({"a": first, "b": make(line("p1", gold="5"))}).ballots()
    assert len(ac.join_pools({"a": first, "b": make(line("p1", gold="4.0"))}).ballots()) == 1


def test_pools_that_compare_percents_in_other_ways_are_refused(make: Make):
    with (
        ac.open_pool(make(line()), task=Task(percent="fraction")) as fraction,
        pytest.raises(TaskError, match=r"'a' and 'b' compare .*'unit' and 'fraction'"),
    ):
        ac.join_pools({"a": make(line()), "b": fraction}).ballots()


def test_what_can_not_be_joined_is_refused_in_one_line(make: Make):
    path = make(line())
    several = make(line(), line(model="other"))
    for pools, message in (
        ({"a": path}, "1 pool can't be joined; give at least two"),
        ([path, path], "have no names"),
        ({"a": path, "": path}, "mode '' has no name"),
        ({"a": path, "b": 3}, "mode 'b': 3 isn't a pool"),
    ):
        with pytest.raises(PoolError, match=message):
            ac.join_pools(pools)  # type: ignore[arg-type] # on purpose
    with pytest.raises(PoolNotFound, match="nowhere"):
        ac.join_pools({"a": path, "b": "nowhere.sqlite"})
    with pytest.raises(PoolError, match="missing='skip' is not known"):
        ac.join_pools({"a": path, "b": path}, missing="skip")  # type: ignore[arg-type] # on purpose
    with pytest.raises(SourceAmbiguous, match=r"mode 'b': .* holds 2 sources"):
        ac.join_pools({"a": path, "b": several}).ballots()


def test_only_pools_given_as_paths_are_closed(make: Make):
    with ac.open_pool(make(line())) as mine:
        with ac.join_pools({"mine": mine, "other": make(line())}) as joined:
            assert "'mine': " in repr(joined)
        assert len(mine) == 1
        with pytest.raises(PoolError, match="closed"):
            joined.ballots()


def test_a_pool_with_several_sources_is_a_menu_already(make: Make):
    with ac.open_pool(make(line(answers=("4", "5")), line(model="n", answers=("5", "9")))) as pool:
        ballots = read_modes(pool)
    assert ballots.names == ("m", "n")
    assert ballots.classes.tolist() == [[0, 1, 1, 2]]
    assert read_modes(ballots) is ballots


def test_a_pool_of_one_source_has_one_mode_with_its_own_votes():
    with ac.bundled("facts") as pool:
        ballots, plain = read_modes(pool), pool.ballots()
    assert ballots.names == ("SmolLM2-135M-Instruct-Q4_1",)
    assert (ballots.classes == plain.classes).all()
    assert (ballots.correct == plain.correct).all()
    assert read_modes(plain) is plain
    with pytest.raises(PoolError, match="3 has no modes"):
        read_modes(3)  # type: ignore[arg-type] # on purpose


def test_an_empty_pool_has_no_modes(tmp_path: Path):
    with ac.open_pool(tmp_path / "e.sqlite", create=True) as pool, pytest.raises(PoolError, match="no modes"):
        read_modes(pool)


def test_modes_of_one_model_are_named_by_the_parameters_that_differ():
    same = {"temperature": 0.7}
    assert _name_modes([("m", same), ("n", same)]) == ["m", "n"]
    assert _name_modes([("m", same | {"n": 1}), ("m", same), ("n", same)]) == ["m (n=1)", "m", "n"]
    assert _name_modes([(None, {"effort": "low"}), (None, {"effort": "high"})]) == [
        "model (effort=low)",
        "model (effort=high)",
    ]
    long = [("m", {"system": "x" * 90 + end}) for end in "ab"]
    assert len(set(_name_modes(long))) == 2


@pytest.mark.slow
def test_the_bundled_modes_keep_their_votes_and_agree_on_what_is_right(facts: Ballots):
    alone = read_votes("facts")
    for row in range(len(facts)):
        assert groups(alone.classes[row]) == groups(facts["smol"].classes[row])
        right = facts.classes[row][facts.correct[row] == 1]
        assert len(set(right.tolist())) <= 1
    assert (facts["smol"].correct == alone.correct).all()


@pytest.mark.slow
def test_joining_the_bundled_modes_asks_no_slow_judge():
    before = shared_judge.asked
    with ac.join_pools({"smol": "facts", "qwen": "facts-qwen"}) as pool:
        pool.ballots()
    assert shared_judge.asked == before


def test_selected_modes_are_numbered_by_their_own_order(facts: Ballots):
    turned = facts.select(("qwen", "smol"))
    assert turned.names == ("qwen", "smol")
    assert (turned["qwen"].classes[:, 0] <= 0).all()
    for row in range(0, len(facts), 20):
        assert groups(turned["qwen"].classes[row], turned["smol"].classes[row]) == groups(
            np.concatenate([facts["qwen"].classes[row], facts["smol"].classes[row]])
        )
    with pytest.raises(RecordNotFound, match=r"no mode 'qwem' in the pool; did you mean qwen\?"):
        facts.select(["qwem"])
    with pytest.raises(PoolError, match="no mode is selected"):
        facts.select([])


def test_signals_of_one_mode_leave_a_gap_for_the_other(make: Make):
    signals = make(line(samples=[{"answer": "4", "correct": 1, "signals": {"tail": -0.5}}]))
    joined = ac.join_pools({"a": make(line(answers=("4",))), "b": signals}).ballots()
    assert joined.signals is not None
    assert joined.signals.shape[:2] == (1, 2)
    assert np.isnan(joined.signals[0, 0]).all()
    assert np.nanmax(joined.signals[0, 1]) == -0.5


def test_a_menu_is_in_ascending_cost_and_may_name_a_part_of_the_modes(facts: Ballots):
    menu = ac.Menu.of(facts, costs={"qwen": 1, "smol": 0.1})
    assert menu.names == ("smol", "qwen")
    assert menu.costs.tolist() == [0.1, 1.0]
    assert (menu.unit, menu.currency, len(menu)) == ("cost", "", 2)
    assert ac.Menu.of(facts, costs={"qwen": math.inf}).names == ("qwen",)
    assert menu["qwen"] == ac.Mode(name="qwen", cost=1.0)
    priced = facts.select(menu.modes)
    assert (priced["smol"].sample_costs() == 0.1).all()
    assert (priced["qwen"].sample_costs() == 1.0).all()
    assert priced.sample_costs().shape == priced.classes.shape
    assert (facts.sample_costs() == 1.0).all()


def test_without_costs_a_sample_costs_its_tokens_on_average(facts: Ballots):
    menu = ac.Menu.of(facts)
    assert menu.unit == "tokens"
    assert menu.names == ("qwen", "smol")
    assert menu["smol"].cost == pytest.approx(facts["smol"].tokens.mean())


def test_prices_give_each_sample_the_cost_of_its_own_tokens(facts: Ballots):
    prices = {
        "smol": ac.TokenPrices(input=1.0, output=2.0, prompt_tokens=10, currency="EUR"),
        "qwen": ac.TokenPrices(input=4.0, output=0.0, currency="EUR"),
    }
    menu = ac.Menu.of(facts, prices=prices)
    assert (menu.unit, menu.currency) == ("money", "EUR")
    costs = {votes.names[0]: votes.sample_costs() for votes in facts.select(menu.modes).parts}
    assert costs["smol"][5, 3] == pytest.approx((10 + 2 * facts["smol"].tokens[5, 3]) / 1e6)
    assert costs["qwen"][5] == pytest.approx(len(facts.prompts[5]) / 4 * 4 / 1e6)
    assert menu["smol"].cost == pytest.approx(costs["smol"].mean())


def test_where_there_is_no_sample_there_is_no_cost(make: Make):
    samples = [{"answer": "4", "tokens": 3}]
    pools = {"a": make(line("p1"), line("p2", answers=("4",))), "b": make(line("p1"), line("p2"))}
    ballots = ac.join_pools(pools).ballots()
    priced = ballots.select(ac.Menu.of(ballots, costs={"a": 2, "b": 3}).modes)
    assert np.isnan(priced["a"].sample_costs()).tolist() == [[False] * 3, [False, True, True]]
    short = make(line("p1", samples=samples * 2), line("p2", samples=samples))
    money = ac.join_pools({"a": short, "b": short}).ballots()
    menu = ac.Menu.of(money, prices={"a": ac.TokenPrices(output=1e6)})
    assert menu["a"].cost == 3
    assert np.isnan(money.select(menu.modes).sample_costs()).tolist() == [[False, False], [False, True]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"costs": {"smoll": 1}}, RecordNotFound, r"no mode 'smoll' in the pool; did you mean smol\?"),
        ({"costs": {"smol": -1}}, PriceInvalid, "cost -1 of mode 'smol' is not a cost"),
        ({"costs": {"smol": math.nan}}, PriceInvalid, "cost nan of mode 'smol'"),
        ({"costs": {"smol": "1"}}, PriceInvalid, "cost '1' of mode 'smol'"),
        ({"costs": {"smol": True}}, PriceInvalid, "cost True of mode 'smol'"),
        ({"costs": {}}, PriceInvalid, "no mode has a cost; give one for some of smol, qwen"),
        ({"costs": {"smol": 1}, "prices": {"smol": ac.TokenPrices()}}, PriceInvalid, "not both"),
        ({"prices": {"smol": 3}}, PriceInvalid, "prices 3 of mode 'smol' can't be used; give TokenPrices"),
        (
            {"prices": {"smol": ac.TokenPrices(currency="EUR"), "qwen": ac.TokenPrices()}},
            PriceInvalid,
            "'smol' are in EUR, those of 'qwen' in USD",
        ),
        ({"prices": {"smol": ac.TokenPrices(prompts="once")}}, PriceInvalid, "prompts 'once' of mode 'smol'"),
        ({"prices": {"smol": ac.TokenPrices(prompt_tokens=[1, 2])}}, PriceInvalid, "by problem; give one"),
    ],
)
def test_a_bad_cost_is_named_with_its_mode(facts: Ballots, options: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        ac.Menu.of(facts, **options)


def test_tokens_that_were_not_recorded_can_not_be_paid_for(make: Make):
    ballots = ac.join_pools({"a": make(line()), "b": make(line())}).ballots()
    for prices in (None, {"b": ac.TokenPrices(output=1.0)}):
        with pytest.raises(NotRecorded, match=r"problem 'p1' has samples without .*1 of 1 .*--cost NAME"):
            ac.Menu.of(ballots, prices=prices)


def test_a_menu_that_can_not_be_is_refused():
    small = ac.Mode(name="small", cost=1)
    with pytest.raises(PoolError, match="no mode"):
        ac.Menu(modes=())
    with pytest.raises(PoolError, match="'small' is there twice"):
        ac.Menu(modes=(small, small))
    with pytest.raises(PriceInvalid, match="unit 'hours' is not known"):
        ac.Menu(modes=(small,), unit="hours")  # type: ignore[arg-type] # on purpose
    for unit, currency in (("money", ""), ("cost", "EUR")):
        with pytest.raises(PriceInvalid, match="doesn't fit the unit"):
            ac.Menu(modes=(small,), unit=unit, currency=currency)  # type: ignore[arg-type] # a literal


def test_ballots_of_other_problems_are_no_menu(facts: Ballots):
    smol = facts["smol"]
    with pytest.raises(PoolError, match="'b' have other problems than those of 'a'"):
        Ballots.join({"a": smol, "b": smol.only([0])})
    with pytest.raises(PoolError, match="no mode is selected"):
        Ballots.join({})
    with pytest.raises(SourceAmbiguous, match=r"the modes smol, qwen, .* ballots\['smol'\]"):
        facts.get_mode()


costs = st.floats(0, 1e9) | st.just(math.inf)
prices = st.builds(
    ac.TokenPrices,
    input=st.floats(0, 100),
    output=st.floats(0, 100),
    prompt_tokens=st.none() | st.integers(0, 10_000),
)
modes = st.builds(ac.Mode, name=st.text(min_size=1).filter(str.strip), cost=costs, prices=st.none() | prices)


@given(st.lists(modes, min_size=1, max_size=4, unique_by=lambda mode: mode.name), st.booleans())
def test_a_menu_is_loaded_as_it_was_dumped(modes: list[ac.Mode], money: bool):
    menu = ac.Menu(modes=tuple(modes), unit="money" if money else "cost", currency="EUR" if money else "")
    assert (np.diff([cost for cost in menu.costs if math.isfinite(cost)]) >= 0).all()
    assert ac.Menu.load(json.loads(json.dumps(menu.dump(), allow_nan=False))) == menu


@pytest.mark.parametrize(
    "stored",
    [
        3,
        {},
        {"modes": {}},
        {"modes": [3]},
        {"modes": [{"name": "a"}]},
        {"modes": [], "more": 1},
        {"modes": []},
        {"modes": [{"name": "a", "cost": 1, "prices": {"in": 3}}]},
        {"modes": [{"name": "a", "cost": "x"}]},
    ],
)
def test_a_stored_menu_that_is_none_is_refused(stored: object):
    with pytest.raises((PriceInvalid, PoolError)):
        ac.Menu.load(stored)


def test_a_samples_mode_is_not_stored(tmp_path: Path):
    with ac.open_pool(tmp_path / "p.sqlite", create=True) as pool:
        pool.add_problem(ac.Problem(id="p1", question="Why?"))
        pool.add_samples("p1", [(0, ac.Sample(answer="4", mode="small"))], model="m")
        (recorded,) = pool
    assert recorded.samples == (ac.Sample(answer="4"),)


PAIRS = {
    "facts": ("facts-smollm2-135m", "modes/facts-qwen2.5-coder-1.5b"),
    **{
        name: (f"{name}-qwen2.5-coder-1.5b", f"modes/{name}-qwen2.5-coder-1.5b-direct")
        for name in ("words", "reasoning-gym", "gsm8k", "math")
    },
    "crux": ("modes/crux-output-gpt-3.5-turbo-0613-cot", "modes/crux-output-gpt-4-0613-cot"),
    "crux-direct": ("modes/crux-output-gpt-3.5-turbo-0613", "modes/crux-output-gpt-4-0613"),
}
APART = {"reasoning-gym": {"coin_flip": 11}, "crux-direct": {"CRUXEval-O": 1}}


@pytest.mark.recordings
@pytest.mark.slow
@pytest.mark.parametrize("name", leave_to_nightly(PAIRS))
def test_what_both_modes_got_right_is_one_class(recordings: Path, name: str):
    """Except decimals that the recording rounded to four places, and an expression that Python computes."""
    one, other = (recordings / f"{stem}.jsonl.gz" for stem in PAIRS[name])
    with ac.join_pools({"one": one, "other": other}) as pool:
        ballots = pool.ballots()
    apart: dict[str | None, int] = {}
    for row, subject in enumerate(ballots.subjects):
        right = [set(b.classes[row][(b.correct[row] == 1) & (b.classes[row] >= 0)]) for b in ballots.parts]
        if all(right) and len(right[0] | right[1]) > 1:
            apart[subject] = apart.get(subject, 0) + 1
    assert apart == APART.get(name, {})


@pytest.mark.nightly
@pytest.mark.recordings
def test_read_from_the_texts_again_no_right_answer_stays_apart(recordings: Path, tmp_path: Path):
    for mode, stem in zip(("steps", "direct"), PAIRS["reasoning-gym"], strict=True):
        ac.import_file(recordings / f"{stem}.jsonl.gz", tmp_path / f"{mode}.sqlite", reread=True)
    with ac.join_pools({mode: tmp_path / f"{mode}.sqlite" for mode in ("steps", "direct")}) as pool:
        joined = pool.ballots()
    for row in range(len(joined)):
        assert len(set(joined.classes[row][(joined.correct[row] == 1) & (joined.classes[row] >= 0)])) <= 1
