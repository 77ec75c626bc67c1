"""A verifier beside the upstream: its scores vote, its cost counts, its faults cost nobody a reply."""

import logging
from dataclasses import replace

import numpy as np
import pytest
from running import QUESTION, Process, Running
from sdk_clients import sdk
from wires import connect, post, until

import adacompute as ac
from adacompute.answers import Tally
from adacompute.client.verifier import VERDICT_TOKENS
from adacompute.policies import GuaranteePolicy
from adacompute.policies.stopping import StoppingPolicy
from adacompute.records import SIGNAL_NAMES, Sample, Signals
from synthetic import synthetic
from upstream import Garbage, Reply, Stall, Status, Upstream

SCORED = Reply(body={"score": 0.75})
USAGE = {"prompt_tokens": 90, "completion_tokens": 1, "total_tokens": 91}
VERDICT = {"role": "assistant", "content": "Yes"}
JUDGED = Reply(
    body={
        "object": "chat.completion",
        "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Yes"}}
        ],
        "usage": USAGE,
    }
)


def scorer(script=SCORED) -> Upstream:
    return Upstream(script, path="/score")


def address(up: Upstream) -> str:
    return f"http://127.0.0.1:{up.port}{up.path}"


def test_every_sample_with_an_answer_is_scored_before_it_votes():
    with Upstream() as up, scorer() as verifier:
        with Running(up.url, budget=4.0, verifier={"url": address(verifier)}) as gate:
            answer = gate.ask()
            extra = answer.json["adacompute"]
        assert extra["verifier"] == {"calls": extra["samples"], "failed": 0, "tokens": 0}
        assert verifier.count.requests == extra["samples"] == up.count.choices
        texts = [request.body["response"] for request in verifier.requests]
        assert all(texts)
        assert verifier.requests[0].body["prompt"] == QUESTION["messages"][0]["content"]


def test_the_client_of_a_gateway_with_a_verifier_is_any_openai_client():
    with (
        Upstream() as up,
        scorer() as verifier,
        Process(up.url, "--budget", "3", "--verifier", address(verifier)) as gate,
    ):
        completion = sdk(gate).chat.completions.create(**QUESTION)
        assert completion.choices[0].message.content
        assert completion.model_extra["adacompute"]["verifier"]["failed"] == 0
        assert 'adacompute_verifications_total{result="ok"}' in gate.get("/metrics").raw.decode()
    assert verifier.count.requests == completion.model_extra["adacompute"]["samples"]


@pytest.mark.parametrize(
    "fault",
    [
        Status(code=500),
        Status(code=401),
        Garbage(),
        Garbage(raw=b'{"score": NaN}'),
        Garbage(raw=b'{"score": "' + b"9" * 2_000_000 + b'"}'),
        Reply(body={"grade": "A"}),
        Stall(),
    ],
    ids=["500", "401", "garbage", "nan", "huge", "shape", "slow"],
)
def test_no_fault_of_a_verifier_fails_a_request_and_it_is_logged_once(fault, caplog):
    with (
        Upstream() as up,
        scorer(fault) as verifier,
        caplog.at_level(logging.WARNING, "adacompute.serve"),
        Running(up.url, budget=3.0, verifier={"url": address(verifier), "timeout": 0.3}) as gate,
    ):
        for _ in range(3):
            answer = gate.ask()
            assert answer.status == 200
            extra = answer.json["adacompute"]
            assert extra["answer"] is not None
            assert extra["verifier"]["failed"] == extra["verifier"]["calls"] == extra["samples"]
        metrics = gate.get("/metrics").raw.decode()
    assert 'adacompute_verifications_total{result="failed"}' in metrics
    assert len([record for record in caplog.records if "verifier" in record.getMessage()]) == 1


def test_a_dead_verifier_is_left_alone_and_requests_are_answered():
    settings = {"url": "http://127.0.0.1:9/score", "timeout": 0.5}
    with Upstream() as up, Running(up.url, budget=2.0, verifier=settings) as gate:
        assert all(gate.ask().status == 200 for _ in range(12))


def test_what_a_judging_model_costs_counts_in_tokens_and_money_and_is_no_sample():
    prices = {"input_price": 1.0, "output_price": 2.0}
    with Upstream() as up, Upstream(JUDGED, models=("judge",)) as judge:
        verifier = {"url": judge.url, "model": "judge", "input_price": 10.0, "output_price": 20.0}
        with Running(up.url, budget="3 samples", unit="money", endpoint=prices, verifier=verifier) as gate:
            extra = gate.ask().json["adacompute"]
            spent = gate.gateway.resources.ledger.account().spent
        verified, samples = extra["verifier"], extra["samples"]
        assert verified == {"calls": samples, "failed": 0, "tokens": samples * 91}
        assert spent.samples == samples
        assert spent.tokens == up.count.prompt_tokens + up.count.completion_tokens + samples * 91
        own = (up.count.prompt_tokens * 1.0 + up.count.completion_tokens * 2.0) / 1e6
        assert spent.money == pytest.approx(own + samples * (90 * 10.0 + 1 * 20.0) / 1e6)
        assert extra["cost"] == pytest.approx(spent.money)


def test_a_judge_at_the_upstream_s_own_address_has_its_prices_unless_it_has_others():
    def answer_or_judge(_number, body):
        return JUDGED if body.get("max_tokens") == VERDICT_TOKENS else Reply(texts=["The answer is 42."])

    with Upstream(answer_or_judge) as up:
        for own, price in (({}, 1.0), ({"input_price": 10.0}, 10.0)):
            verifier = {"url": up.url, "model": "scripted", **own}
            with Running(up.url, budget=1.0, endpoint={"input_price": 1.0}, verifier=verifier) as gate:
                gate.ask()
                spent = gate.gateway.resources.ledger.account().spent
            verdict = 90 * price / 1e6
            assert verdict < spent.money < verdict + 60 / 1e6


def test_a_cap_in_samples_does_not_count_verifications():
    with Upstream() as up, Upstream(JUDGED, models=("judge",)) as judge:
        verifier = {"url": judge.url, "model": "judge"}
        with Running(up.url, budget=1.0, cap=3, verifier=verifier) as gate:
            assert [gate.ask().status for _ in range(4)] == [200, 200, 200, 429]
            assert gate.gateway.resources.ledger.account().spent.samples == 3


def test_where_a_cap_leaves_no_room_the_sample_votes_without_a_score():
    with Upstream() as up, Upstream(JUDGED, models=("judge",)) as judge:
        verifier = {"url": judge.url, "model": "judge"}
        body = {**QUESTION, "max_tokens": 16}
        with Running(up.url, budget="1 sample", unit="tokens", cap=200, verifier=verifier) as gate:
            answer = gate.ask(body)
            assert answer.status == 200
            extra = answer.json["adacompute"]
            account = gate.gateway.resources.ledger.account()
        assert extra["verifier"] == {"calls": 0, "failed": 1, "tokens": 0}
        assert any(note.startswith("not verified") for note in extra["notes"])
        assert judge.count.requests == 0
        assert account.reserved.tokens == 0


def test_a_failed_verification_that_may_be_charged_for_counts_against_caps():
    with Upstream() as up, Upstream(Status(code=500), models=("judge",)) as judge:
        verifier = {"url": judge.url, "model": "judge"}
        with Running(up.url, budget="1 sample", unit="tokens", cap=10**6, verifier=verifier) as gate:
            assert gate.ask().status == 200
            account = gate.gateway.resources.ledger.account()
        assert account.maybe.tokens > 0
        assert account.reserved.tokens == 0
        assert account.spent.tokens == up.count.prompt_tokens + up.count.completion_tokens


def test_a_client_that_hangs_up_ends_its_verification_which_counts_at_its_most():
    with Upstream() as up, Upstream(Stall(), models=("judge",)) as judge:
        verifier = {"url": judge.url, "model": "judge"}
        with Running(up.url, budget="1 sample", unit="tokens", cap=10**6, verifier=verifier) as gate:
            ledger = gate.gateway.resources.ledger
            with connect(gate) as line:
                line.sendall(post())
                until(lambda: judge.count.requests)
                assert ledger.account().reserved.tokens > 0
            until(lambda: ledger.account().reserved.tokens == 0)
            account = ledger.account()
        assert account.spent.tokens == up.count.prompt_tokens + up.count.completion_tokens
        assert account.maybe.tokens > 0
        assert judge.count.requests == 1


def test_what_is_not_voted_on_is_not_verified():
    story = "Once upon a time there was a fox. It ran. It slept by the old well until the rain came. " * 9
    with Upstream(Reply(texts=[story])) as up, scorer() as verifier:
        with Running(up.url, budget=3.0, verifier={"url": address(verifier)}) as gate:
            for headers in ({"x-adacompute-mode": "pass"}, {}):
                answer = gate.ask(
                    {**QUESTION, "messages": [{"role": "user", "content": "Write a story about a fox."}]},
                    headers,
                )
                assert "verifier" not in answer.json["adacompute"]
        assert verifier.count.requests == 0


def test_where_only_the_first_sample_of_a_wave_gives_no_answer_the_others_are_scored(tmp_path):
    GuaranteePolicy(0.2, longest=8).save(tmp_path / "policy")
    texts = iter(["I would rather not say.", *["The answer is 42."] * 20])

    def answer(_number, body):
        return Reply(texts=[next(texts) for _ in range(body.get("n", 1))])

    with Upstream(answer) as up, scorer() as verifier:
        settings = {"url": address(verifier)}
        with Running(up.url, policy=str(tmp_path / "policy"), verifier=settings) as gate:
            extra = gate.ask().json["adacompute"]
    assert extra["verifier"]["calls"] == extra["votes"]["42"] > 0


def test_without_a_verifier_replies_are_as_they_were():
    with Upstream() as up, Running(up.url, budget=3.0) as gate:
        assert "verifier" not in gate.ask().json["adacompute"]


def disputed(number, body):
    """An upstream that says 41 and 42 in turns, without log-probabilities."""
    texts = [f"The answer is {41 + (number + place) % 2}." for place in range(body.get("n", 1))]
    return Reply(texts=texts, logprobs=False)


def prefer(answer: str):
    """A scoring endpoint that gives one answer more than the other."""
    return lambda _number, body: Reply(body={"score": 5.0 if body["answer"] == answer else 3.0})


@pytest.mark.parametrize("favourite", ["41", "42"])
def test_once_the_scale_of_scores_is_known_the_vote_is_for_what_the_verifier_prefers(favourite):
    with Upstream(disputed) as up, scorer(prefer(favourite)) as verifier:
        settings = {"url": address(verifier), "beta": 2.0}
        with Running(up.url, price=0.0, verifier=settings, vote="always") as gate:
            for _ in range(3):
                gate.ask()
            last = gate.ask().json["adacompute"]
            assert not any("logprobs" in request.body for request in list(up.requests)[-1:])
    assert last["answer"] == favourite
    assert set(last["votes"]) == {"41", "42"}


def test_the_votes_of_a_guarantee_stay_plain_whatever_a_verifier_prefers(tmp_path):
    GuaranteePolicy(0.2, longest=16).save(tmp_path / "policy")
    with Upstream(disputed) as up, scorer(prefer("42")) as verifier:
        settings = {"url": address(verifier), "beta": 5.0}
        with Running(up.url, policy=str(tmp_path / "policy"), verifier=settings, vote="always") as gate:
            replies = [gate.ask().json["adacompute"] for _ in range(4)]
    assert gate.gateway.resources.scorer.add_weights(None) is not None  # those of another policy would weigh
    assert [reply["agreement"] for reply in replies] == [0.5] * 4
    assert not any(reply["certified"] for reply in replies)


def test_with_beta_0_scores_are_told_and_don_t_weigh():
    with Upstream(disputed) as up, scorer(prefer("42")) as verifier:
        settings = {"url": address(verifier), "beta": 0.0}
        with Running(up.url, price=0.0, verifier=settings, vote="always") as gate:
            for _ in range(4):
                gate.ask()
            assert gate.gateway.resources.scorer.add_weights(None) is None


def test_a_policy_fitted_on_scores_decides_live_as_on_the_recorded_samples(tmp_path):
    ballots = synthetic(60, 16, chance=np.linspace(0.3, 0.9, 60).tolist(), signals=False)
    scores = 2.0 * ballots.correct + np.random.default_rng(3).normal(size=ballots.classes.shape)
    signals = np.full((*ballots.classes.shape, len(SIGNAL_NAMES)), np.nan)
    signals[:, :, SIGNAL_NAMES.index("score")] = scores
    scored = replace(ballots, signals=signals)
    policy = StoppingPolicy(longest=8, features=False).fit(scored)
    policy.save(tmp_path / "policy")
    rows, price = range(2), 0.02  # few: after 20 scores the live scale takes the place of the fitted one
    samples = {
        ballots.prompts[row]: [
            (f"{100 + ballots.classes[row, column]}", float(scores[row, column])) for column in range(16)
        ]
        for row in rows
    }
    given = {}

    def answer(_number, body):
        question, count = body["messages"][-1]["content"], body.get("n", 1)
        first = given.get(question, 0)
        given[question] = first + count
        texts = [f"The answer is {text}." for text, _ in samples[question][first : first + count]]
        return Reply(texts=texts, logprobs=False)

    scored_texts = {}

    def grade(_number, body):
        pairs = samples[body["prompt"]]
        seen = scored_texts.setdefault((body["prompt"], body["answer"]), iter(pairs))
        return Reply(body={"score": next(score for text, score in seen if text == body["answer"])})

    with Upstream(answer) as up, scorer(grade) as verifier:
        settings = {"url": address(verifier)}
        folder = str(tmp_path / "policy")
        with Running(up.url, policy=folder, price=price, verifier=settings, vote="always") as gate:
            for question, pairs in samples.items():
                told = gate.ask({**QUESTION, "messages": [{"role": "user", "content": question}]})
                extra = told.json["adacompute"]
                tally, more = Tally(weigh=policy.weigh), 1
                while more:
                    for text, score in pairs[tally.drawn : tally.drawn + more]:
                        tally.add(Sample(answer=text, signals=Signals(score=score)))
                    more = min(policy.more(question, tally, price), 8 - tally.drawn)
                assert extra["samples"] == tally.drawn
                assert extra["answer"] == tally.leader
                assert extra["agreement"] == pytest.approx(tally.support)


def test_an_asker_has_responses_scored_and_gives_its_key_to_a_judge_at_its_own_address(monkeypatch):
    monkeypatch.delenv("ADACOMPUTE_KEY", raising=False)
    monkeypatch.delenv("ADACOMPUTE_VERIFIER_KEY", raising=False)
    question = QUESTION["messages"][0]["content"]
    with Upstream() as up, scorer() as verifier:
        reply = ac.ask(question, endpoint=up.url, verifier=address(verifier))
    assert reply.answer is not None
    assert verifier.count.requests == reply.samples

    def answer_or_judge(_number, body):
        return JUDGED if body.get("max_tokens") == VERDICT_TOKENS else Reply(texts=["The answer is 42."])

    with Upstream(answer_or_judge, key="sk-mine") as up:
        judge = ac.VerifierConfig(url=up.url, model="scripted")
        with ac.Asker(up.url, model="scripted", key="sk-mine", verifier=judge) as asker:
            reply = asker.ask(question)
        judged = [request for request in up.requests if request.body.get("max_tokens") == VERDICT_TOKENS]
    assert len(judged) == reply.samples
    assert asker.spent.tokens > 91 * reply.samples  # every verdict came, and counts


def test_a_real_model_judges_the_answers_of_a_real_model(local_model):
    """P(True) as it is meant: one small model answers and is asked whether that was right."""
    settings = {"url": local_model.url, "model": local_model.name}
    question = {
        "model": local_model.name,
        "messages": [{"role": "user", "content": "What is the capital of France? One word."}],
        "temperature": 0.7,
        "max_tokens": 12,
    }
    with Running(local_model.url, budget=2.0, verifier=settings, vote="always") as gate:
        extra = gate.ask(question).json["adacompute"]
    assert 1 <= extra["verifier"]["calls"] <= extra["samples"]  # one that states no answer isn't scored
    assert extra["verifier"]["failed"] == 0
    assert extra["verifier"]["tokens"] > 0
