"""Live and in replay a policy decides alike: the gateway, on recorded samples, against replay's arrays."""

import copy
import json
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from behaviours import Reply
from running import Running

from adacompute.client.response_parser import build_responses, parse_choices
from adacompute.client.server_quirks import ModelQuirks
from adacompute.policies.agreement import AdaptiveConsistency, BayesPolicy
from adacompute.policies.base import Policy
from adacompute.policies.curve import CurvePolicy
from adacompute.policies.paths import build_paths
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import Ballots, bundled
from adacompute.records import SIGNAL_NAMES, Recorded, Sample
from adacompute.replay import run_policy
from tiers import leave_to_nightly
from upstream import Upstream

ASKED = 60  # requests


class Recording:
    """Gives each question's samples one after the other, as they were recorded."""

    def __init__(self, samples: dict[str, tuple[Sample, ...]]) -> None:
        self.samples = samples
        self.given: Counter[str] = Counter()

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply:
        question, count = body["messages"][-1]["content"], body.get("n", 1)
        first = self.given[question]
        self.given[question] += count
        samples = self.samples[question][first : first + count]
        usage = {"prompt_tokens": 20, "completion_tokens": sum(sample.tokens or 0 for sample in samples)}
        return Reply(body={"choices": [self._choice(*one) for one in enumerate(samples)], "usage": usage})

    def _choice(self, index: int, sample: Sample) -> dict[str, Any]:
        said = "I don't know what to say about this." if sample.answer is None else f"Answer: {sample.answer}"
        each = (sample.logprob or 0.0) / (sample.tokens or 1)
        return {
            "index": index,
            "message": {"role": "assistant", "content": said},
            "finish_reason": "length" if sample.finished is False else "stop",
            "logprobs": {"content": [{"token": "t", "logprob": each}] * (sample.tokens or 1)},
        }


class RecordingWithTokens(Recording):
    """The same answers, each of its tokens with a log-probability and five alternatives of its own."""

    def __call__(self, number: int, body: dict[str, Any]) -> Reply:
        reply = super().__call__(number, body)
        choices = json.loads(json.dumps(reply.body["choices"]))
        tokens = sum(len(choice["logprobs"]["content"]) for choice in choices)
        return Reply(body={"choices": choices, "usage": {"prompt_tokens": 20, "completion_tokens": tokens}})

    def _choice(self, index: int, sample: Sample) -> dict[str, Any]:
        choice = super()._choice(index, sample)
        said = choice["message"]["content"]
        rng = np.random.default_rng([len(said), abs(round(1e6 * (sample.logprob or 0.0)))])
        tokens = []
        for start in range(0, len(said), 3):
            top = np.log(np.sort(rng.dirichlet([0.3] * 8))[::-1][:5] + 1e-9).tolist()
            alternatives = [{"token": f"{k}", "logprob": value} for k, value in enumerate(top)]
            tokens.append({"token": said[start : start + 3], "logprob": top[0], "top_logprobs": alternatives})
        return choice | {"logprobs": {"content": tokens}}

    def add_signals(self, ballots: Ballots, recorded: Sequence[Recorded]) -> Ballots:
        """The ballots with what the client computes of these replies."""
        names = ("tokens", "logprob", "entropy")
        arrays = {name: np.full(ballots.classes[: len(recorded)].shape, np.nan) for name in names}
        signals = np.full((*arrays["tokens"].shape, len(SIGNAL_NAMES)), np.nan)
        for row, one in enumerate(recorded):
            for column, sample in enumerate(one.samples):
                body = {"choices": [self._choice(0, sample)]}
                choices, _ = parse_choices(body)
                (response,), _ = build_responses(
                    choices, None, requested=1, cap=None, quirks=ModelQuirks(time.monotonic)
                )
                live = response.to_sample(answer=sample.answer)
                for name in names:
                    arrays[name][row, column] = getattr(live, name)
                assert live.signals is not None
                values = [getattr(live.signals, name) for name in SIGNAL_NAMES]
                signals[row, column] = [np.nan if value is None else value for value in values]
        return replace(ballots.only(range(len(recorded))), **arrays, signals=signals)


def _fitted(policy: Policy) -> Policy:
    with bundled("words") as pool:
        return policy.fit(pool)


def _told(raw: bytes) -> dict[str, Any]:
    """What the gateway says of its vote, in a completion or in the last chunk of a stream."""
    chunk = next(line for line in raw.splitlines() if b'"adacompute"' in line)
    return json.loads(chunk.removeprefix(b"data: "))["adacompute"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "dial", "stream", "recording"),
    leave_to_nightly(
        [
            (lambda: StoppingPolicy(), 0.01, False, "facts"),
            (lambda: StoppingPolicy(), 0.01, False, "words"),
            (lambda: StoppingPolicy(max_waves=2), 0.005, False, "facts"),
            (lambda: AdaptiveConsistency(), 0.3, False, "facts"),
            (lambda: _fitted(BayesPolicy()), 0.2, False, "facts"),
            (lambda: _fitted(CurvePolicy(features="text")), 0.02, False, "facts"),
            (lambda: StoppingPolicy(), 0.01, True, "facts"),
            (lambda: StoppingPolicy(max_waves=2), 0.005, True, "facts"),
        ],
        but=2,
    ),
    ids=[
        "stopping",
        "stopping, answers read by the default rule",
        "two waves",
        "asc",
        "bayes",
        "curve",
        "stopping, first sample streamed",
        "two waves, likewise",
    ],
)
def test_the_gateway_draws_as_many_samples_of_each_request_as_replay_does(
    make, dial, stream: bool, recording: str, tmp_path: Path
):
    policy = make()
    if policy.weigh is not None:  # these recordings have no signals of tokens, which live replies have
        policy.weigh = replace(policy.weigh, model=None)
    policy.save(tmp_path / "policy")
    with bundled(recording) as pool:
        recorded, ballots = list(pool)[:ASKED], pool.ballots()
    script = Recording({one.problem.question: one.samples for one in recorded})
    live = compare_decisions(policy, ballots, recorded, script, dial, stream, recording, tmp_path)
    assert len(set(live)) > 1  # it did decide


@pytest.mark.slow
def test_the_gateway_weighs_signals_of_tokens_as_replay_does(tmp_path: Path):
    policy = StoppingPolicy()
    assert policy.weigh.model is not None
    policy.save(tmp_path / "policy")
    with bundled("facts") as pool:
        recorded, ballots = list(pool)[:ASKED], pool.ballots()
    script = RecordingWithTokens({one.problem.question: one.samples for one in recorded})
    ballots = script.add_signals(ballots, recorded)
    live = compare_decisions(policy, ballots, recorded, script, 0.01, False, "facts", tmp_path)
    off = replace(ballots, signals=None)
    without = [
        int(
            run_policy(
                policy, build_paths(off.only([row]), make_order(policy), weigh=policy.weigh), dial=0.01
            ).drawn[0]
        )
        for row in range(ASKED)
    ]
    assert live != without  # signals do matter


class Places(random.Random):
    """Remembers the place that the last request drew."""

    last = 0.5

    def random(self) -> float:
        self.last = super().random()
        return self.last


def make_order(policy: Policy) -> np.ndarray:
    return np.arange(policy.longest).reshape(1, 1, policy.longest)


def compare_decisions(
    policy: Policy,
    ballots: Ballots,
    recorded: Sequence[Recorded],
    script: Recording,
    dial: float,
    stream: bool,
    recording: str,
    tmp_path: Path,
) -> list[int]:
    """How many samples the gateway drew of each request; replay draws as many."""
    order = make_order(policy)
    live, replayed, answers = [], [], []
    with (
        Upstream(script) as up,
        Running(
            up.url,
            policy=str(tmp_path / "policy"),
            price=dial,
            vote="always",
            stream_mode="first",
            # of facts the default rule reads more than was recorded: there, answers are taken as they are
            answers={"extract": "line" if recording == "facts" else "auto"},
        ) as gate,
    ):
        place = gate.gateway.rng = Places()
        for row, one in enumerate(recorded):
            assert one.problem.id == ballots.ids[row]
            served = gate.gateway.policy_registry.get("policy")  # it has learned from the last request
            weigh = served.weigh("m")  # live, its scale follows what was seen; the request will use this
            message = {"role": "user", "content": one.problem.question}
            body = {"model": "m", "messages": [message], "temperature": 0.7, "stream": stream}
            told = _told(gate.ask(body).raw)
            own = policy.spread_price(dial, place.last)
            live.append(told["samples"])
            answers.append(told["answer"])
            paths = build_paths(ballots.only([row]), order, weigh=weigh)
            same = copy.copy(served.policy)
            same.weigh = weigh
            replayed.append(int(run_policy(same, paths, dial=own).drawn[0]))
    assert live == replayed
    assert sum(live) == sum(script.given.values())
    assert sum(answer is not None for answer in answers) > ASKED / 2
    return live
