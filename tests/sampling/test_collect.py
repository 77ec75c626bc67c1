"""Exactly what was planned, once, whatever the endpoint's manners; and a true account of what it took."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from collecting import asking, plan, planned, problems, run, stored

from adacompute.client import BreakerSettings, Retries, Timeouts
from adacompute.errors import CollectError, RecordInvalid, SourceChanged
from adacompute.pool import Pool, open_pool
from adacompute.problems import Template
from adacompute.records import Problem, Sample, TokenPrices
from adacompute.sampling import CollectProgress, collect
from upstream import Drop, Garbage, Honest, Reply, Status, Upstream, dead_endpoint

MANNERS = {
    "honoured": Honest(),
    "ignored": Honest(n="ignore"),
    "refused": Honest(n="refuse", most=1),
    "refused above 3": Honest(n="refuse", most=3),
    "short": Honest(n="short", most=2),
    "usage of one choice": Honest(usage="one"),
    "no logprobs": Honest(logprobs="refuse"),
    "max_completion_tokens": Honest(limit="max_completion_tokens"),
}


@pytest.fixture
def pool(tmp_path: Path):
    with open_pool(tmp_path / "pool.sqlite", create=True) as opened:
        yield opened


@pytest.mark.parametrize("name", MANNERS)
def test_the_planned_samples_are_stored_once_and_calls_and_tokens_are_the_servers_own(pool: Pool, name: str):
    with Upstream(MANNERS[name]) as up:
        done = run(pool, up.url, count=4, samples=7)
    found = stored(pool)
    assert set(found) == planned(4, 7)
    assert len(set(found.values())) == 28, "a response was stored twice"
    assert done.complete
    assert done.added == 28
    assert done.account.calls == up.count.requests
    assert done.account.completion_tokens == up.count.completion_tokens
    assert done.account.prompt_tokens == up.count.prompt_tokens
    assert pool.verify().ok


def test_one_call_a_problem_where_n_is_honoured(pool: Pool):
    with Upstream() as up:
        run(pool, up.url, count=4, samples=7)
    assert up.count.requests == 4


def test_the_same_again_asks_for_nothing_and_more_samples_ask_for_the_difference(pool: Pool):
    with Upstream(Honest(n="ignore")) as up:
        run(pool, up.url, samples=4)
        before = up.count.requests
        again = run(pool, up.url, samples=4)
        assert (up.count.requests, again.added, again.complete) == (before, 0, True)
        more = run(pool, up.url, samples=6)
        assert (more.added, up.count.requests - before) == (6, 6)
        fewer = run(pool, up.url, samples=2)
        assert (fewer.added, fewer.complete) == (0, True)
    assert set(stored(pool)) == planned(3, 6)


def test_gaps_are_filled_wherever_they_are(pool: Pool, tmp_path: Path):
    with Upstream() as up:
        run(pool, up.url, samples=6)
        pool.close()
        connection = sqlite3.connect(tmp_path / "pool.sqlite")
        connection.execute("DELETE FROM samples WHERE idx IN (0, 2, 3)")
        connection.commit()
        connection.close()
        with open_pool(tmp_path / "pool.sqlite", write=True) as again:
            assert run(again, up.url, samples=6).added == 9
            assert set(stored(again)) == planned(3, 6)


def test_samples_are_read_graded_and_have_their_signals(pool: Pool):
    texts = ["so the answer is 2.", "The answer is 7."]
    with Upstream(Reply(texts=texts)) as up:
        run(pool, up.url, count=2, samples=2, asking=asking(top_logprobs=3))
    first, second = list(pool)
    assert [(s.answer, s.correct) for s in first.samples] == [("2", 0.0), ("7", 0.0)]
    assert [(s.answer, s.correct) for s in second.samples] == [("2", 1.0), ("7", 0.0)]
    for sample in first.samples:
        assert sample.tokens == 12
        assert sample.logprob is not None
        assert -12 < sample.logprob < 0
        assert sample.entropy is not None
        assert 0 < sample.entropy < 2
        assert sample.finished


def test_parameters_reach_the_server_as_they_are_and_seeds_never_repeat(pool: Pool):
    sampling = {"temperature": 0.3, "top_p": 0.9, "max_tokens": 9, "seed": 100, "min_p": 0.05, "stop": ["X"]}
    with Upstream(Honest(n="ignore")) as up:
        run(pool, up.url, count=1, samples=5, asking=asking(sampling=sampling))
    bodies = [request.body for request in up.requests]
    for body in bodies:
        assert {k: body[k] for k in sampling if k != "seed"} == {
            k: sampling[k] for k in sampling if k != "seed"
        }
        assert body["messages"] == [{"role": "user", "content": "What is 0 + 0?"}]
        assert body["model"] == "scripted"
    assert sorted(body["seed"] for body in bodies) == [100, 101, 102, 103, 104]


def test_half_a_surrogate_pair_is_kept_as_the_replacement_character(pool: Pool):
    body = b'{"choices": [{"message": {"content": "The answer is \\ud800 5."}, "finish_reason": "stop"}]}'
    with Upstream(Garbage(raw=body)) as up:
        done = run(pool, up.url, count=1, samples=1)
    assert done.complete
    assert stored(pool) == {("p0", 0): "The answer is � 5."}
    assert done.account.estimated == 1


def test_a_failure_is_data_and_is_asked_for_again_on_request(pool: Pool):
    def script(number: int, body):
        bad = "1 + 1" in body["messages"][-1]["content"]
        return Status(code=400, message="too long for me") if bad and number < 20 else Reply()

    with Upstream(script) as up:
        done = run(pool, up.url, count=3, samples=2)
        assert not done.complete
        assert list(done.failures) == ["p1"]
        assert "too long for me" in done.failures["p1"]
        assert (done.stored, done.planned, done.stopped) == (4, 6, None)
        assert [f.kind for r in pool for f in r.failures] == ["refused"] * 2
        assert done.account.calls == up.count.requests
        while up.count.requests < 19:
            run(pool, up.url, count=3, samples=2)
        assert run(pool, up.url, count=3, samples=2).complete


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_stops_it_at_once(pool: Pool, status: int):
    with Upstream(Status(code=status, message="no")) as up:
        done = run(pool, up.url, count=50, concurrency=2)
    assert done.stopped == "endpoint"
    assert up.count.requests <= 4
    assert done.account.calls == up.count.requests


def test_an_endpoint_that_refuses_everything_is_given_up(pool: Pool):
    with Upstream(Status(code=422, message="never")) as up:
        done = run(pool, up.url, count=200, concurrency=2)
    assert done.stopped == "endpoint"
    assert up.count.requests < 40


@pytest.mark.parametrize(("answers", "cause"), [(True, "Connection refused"), (False, "to connect")])
def test_an_endpoint_that_was_never_reached_is_given_up_with_the_cause_and_binds_no_pool(
    pool: Pool, answers: bool, cause: str
):
    patient = Retries(attempts=1000, deadline=20.0, first=0.01, longest=0.02)
    breaker = BreakerSettings(failures=1000, first_contact=0.2)
    with dead_endpoint(answers=answers) as url:
        done = run(pool, url, retries=patient, breaker=breaker, timeouts=Timeouts(connect=0.1))
    assert done.stopped == "endpoint"
    assert cause in str(done.why)
    assert done.account.paid == done.account.maybe == 0
    other = replace(asking(), model="other", template=Template.named("boxed"))
    with Upstream() as up:
        assert run(pool, up.url, asking=other).complete
    assert [model for model, _ in pool.models] == ["other"]
    assert pool.ballots().drawn.sum() == 15


def test_max_cost_is_not_exceeded_by_the_servers_own_count(pool: Pool):
    prices = TokenPrices(input=1.0, output=10.0)
    with Upstream(Honest(n="ignore", tokens=20)) as up:
        done = run(pool, up.url, count=20, samples=8, prices=prices, max_cost=0.02)
        spent = prices.cost(up.count.prompt_tokens, up.count.completion_tokens)
        assert done.stopped == "max-cost"
        assert 0.01 < spent <= 0.02
        assert done.cost == pytest.approx(spent)
        again = run(pool, up.url, count=20, samples=8, prices=prices, max_cost=0.02)
        assert (again.added, again.stopped) == (0, "max-cost"), "what earlier runs spent counts"
        more = run(pool, up.url, count=20, samples=8, prices=prices, max_cost=1.0)
        assert more.complete


def test_max_cost_counts_what_may_have_been_charged(pool: Pool):
    prices = TokenPrices(input=0.0, output=100.0)
    with Upstream(lambda number, _: Drop() if number % 2 else Reply()) as up:
        done = run(pool, up.url, count=20, samples=1, prices=prices, max_cost=0.02, concurrency=1)
    assert done.stopped == "max-cost"
    assert done.account.maybe > 0
    assert done.cost < done.at_most <= 0.02
    assert done.account.calls == up.count.requests


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_cost": 1.0}, "needs prices"),
        ({"max_cost": -1.0, "prices": TokenPrices(output=1.0)}, "above 0"),
        (
            {"max_cost": 1.0, "prices": TokenPrices(output=1.0), "asking": asking(sampling={})},
            "needs a limit of tokens",
        ),
        ({"samples": 0}, "samples 0"),
    ],
)
def test_what_cant_be_asked_is_refused_before_anything_is_sent(pool: Pool, fields, message: str):
    with Upstream() as up, pytest.raises(CollectError, match=message):
        run(pool, up.url, **fields)
    assert up.count.requests == 0


@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"n": 3}, "'n' is set by adacompute"),
        ({"stream": True}, "'stream' is set by adacompute"),
        ({"temperature": -1}, "temperature -1 .* from 0 up"),
        ({"temperature": float("nan")}, "temperature nan"),
        ({"max_tokens": 0}, "max_tokens 0"),
        ({"top_p": 2}, "top_p 2 .* from 0 to 1"),
    ],
)
def test_bad_parameters_are_named(sampling, message: str):
    with pytest.raises(CollectError, match=message):
        asking(sampling=sampling)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "other"}, "model was 'scripted', is 'other'"),
        ({"sampling": {"temperature": 0.8, "max_tokens": 32}}, "temperature was 0.7, is 0.8"),
        ({"sampling": {"temperature": 0.7, "max_tokens": 32, "top_p": 0.5}}, "top_p was not set, is 0.5"),
        (
            {"template": Template.named("boxed")},
            r"another template \(messages\[0\]",
        ),
    ],
)
def test_c31_a_changed_model_template_or_parameter_is_refused_with_what_changed(
    pool: Pool, changed, message: str
):
    with Upstream() as up:
        run(pool, up.url)
        before = up.count.requests
        with pytest.raises(SourceChanged, match=message):
            run(pool, up.url, asking=replace(asking(), **changed))
        assert up.count.requests == before
        beside = run(pool, up.url, asking=replace(asking(), **changed), another=True)
        assert beside.complete
        assert len(pool.models) == 2
        assert run(pool, up.url).added == 0, "the first of two sources goes on without being asked"


def test_c31_another_problem_under_the_same_id_is_refused(pool: Pool):
    with Upstream() as up:
        run(pool, up.url)
        before = up.count.requests
        changed = [Problem(id="p1", question="What is 1 + 2?", gold="3")]
        with pytest.raises(
            CollectError, match=r"problem 'p1' is asked differently in the pool: 'What is 1 \+ 2"
        ):
            collect(changed, pool, plan(up.url, samples=5))
        assert up.count.requests == before


def test_what_was_not_known_of_a_problem_is_filled_in_and_its_samples_are_graded(pool: Pool):
    bare = [Problem(id="p1", question="1 + 1?", extra={"notes": "easy"})]
    told = [Problem(id="p1", question="1 + 1?", gold="2", level=3, extra={"source": "me"})]
    with Upstream(Reply(texts=["The answer is 2.", "The answer is 3."])) as up:
        collect(bare, pool, plan(up.url, samples=2))
        assert [s.correct for r in pool for s in r.samples] == [None, None]
        again = collect(told, pool, plan(up.url, samples=2))
        assert (again.added, up.count.requests) == (0, 1)
        (found,) = pool
        assert (found.problem.gold, found.problem.level) == ("2", 3)
        assert found.problem.extra == {"notes": "easy", "source": "me"}
        assert [s.correct for s in found.samples] == [1.0, 0.0]
        other = [replace(told[0], gold="3")]
        with pytest.raises(RecordInvalid, match=r"gold is '3', and in the pool '2'; .* --regrade"):
            collect(other, pool, plan(up.url, samples=2))
        collect(other, pool, plan(up.url, samples=2), regrade=True)
        assert [s.correct for r in pool for s in r.samples] == [0.0, 1.0]
        more = collect(other, pool, plan(up.url, samples=4))
        assert more.added == 2
    assert pool.verify().ok
    assert [s.correct for r in pool for s in r.samples] == [0.0, 1.0, 0.0, 1.0]
    assert next(iter(pool)).classes == (0, 1, 0, 1)


def test_what_a_template_shows_of_a_problem_may_not_change(pool: Pool, tmp_path: Path):
    (tmp_path / "hinted.txt").write_text("[user]\n{question} Hint: {hint}\n")
    hinted = asking(template=Template.read(tmp_path / "hinted.txt"))
    first = [Problem(id="p1", question="1 + 1?", extra={"hint": "small", "notes": "a"})]
    with Upstream() as up:
        collect(first, pool, plan(up.url, asking=hinted, samples=1))
        notes = [replace(first[0], extra={"hint": "small", "notes": "b"})]
        assert collect(notes, pool, plan(up.url, asking=hinted, samples=1)).complete
        other = [replace(first[0], extra={"hint": "large", "notes": "a"})]
        with pytest.raises(CollectError, match="hint was 'small', is 'large'"):
            collect(other, pool, plan(up.url, asking=hinted, samples=1))


def test_grades_that_were_given_are_not_made_again(pool: Pool):
    pool.add_problem(Problem(id="p1", question="?", gold="2"))
    given = [
        (0, Sample(answer="2", correct=0.0)),
        (1, Sample(answer="2")),
        (2, Sample(answer="5", correct=0.5)),
    ]
    pool.add_samples("p1", given, model="m")
    assert pool.amend_problems([Problem(id="p1", question="?", gold="5")], regrade=True) == 1
    assert [s.correct for r in pool for s in r.samples] == [0.0, 0.0, 0.5]
    assert pool.amend_problems([Problem(id="p1", question="?", gold="5.0")]) == 0, (
        "an equal answer is not a change"
    )
    assert pool.verify().ok


def test_log_probabilities_are_no_parameter_of_the_samples(pool: Pool):
    with Upstream() as up:
        run(pool, up.url, samples=2)
        assert run(pool, up.url, samples=4, asking=asking(logprobs=False)).complete
    assert len(pool.models) == 1


def test_a_collection_goes_on_with_what_was_imported_under_the_same_settings(pool: Pool):
    pool.add_problems(problems(3))
    for i in range(3):
        pool.add_samples(f"p{i}", [(0, Sample(text="x"))], model="scripted", parameters=asking().parameters)
    with Upstream() as up:
        assert run(pool, up.url, samples=3).added == 6


def test_progress_is_told_and_rises_to_the_plan(pool: Pool):
    seen: list[CollectProgress] = []
    with Upstream(Honest(n="ignore")) as up:
        run(pool, up.url, progress=seen.append, prices=TokenPrices(output=1.0))
    assert [p.stored for p in seen] == sorted(p.stored for p in seen)
    assert (seen[-1].stored, seen[-1].planned, seen[-1].added) == (15, 15, 15)
    assert seen[-1].tokens == 15 * 12
    assert seen[-1].cost > 0


def test_c32_accounted_calls_equal_the_servers_count_through_every_fault(pool: Pool):
    faults = [
        Status(code=429, retry_after=0.01),
        Status(code=500),
        Drop(),
        Drop(after=60, reset=True),
        Garbage(),
        Garbage(content_type="text/html", raw=b"<html>"),
        Reply(choices=1),
        Reply(choices=9),
    ]

    def script(number: int, _):
        return faults[number // 2 % len(faults)] if number % 2 else Reply()

    with Upstream(script) as up:
        done = run(pool, up.url, count=12, samples=6, concurrency=3)
        while not done.complete:
            done = run(pool, up.url, count=12, samples=6, concurrency=3)
    assert done.account.calls == up.count.requests
    assert done.account.paid == up.count.completions
    assert done.account.maybe > 0
    assert set(stored(pool)) == planned(12, 6)
    assert len(set(stored(pool).values())) == 72


@pytest.mark.parametrize("fields", [{"prompts": "once"}, {"prompt_tokens": 100}])
def test_prices_that_only_score_can_use_are_refused(tmp_path: Path, fields: dict):
    prices = TokenPrices(input=1.0, output=2.0, **fields)
    with open_pool(tmp_path / "pool.db", create=True) as pool:
        with pytest.raises(CollectError, match="are for score"):
            collect(problems(1), pool, plan("http://127.0.0.1:9/v1", prices=prices))
        assert len(pool) == 0
