"""A batch answered by a real model on this machine."""

from pathlib import Path

import pytest
from batches import facts

from adacompute.client import Endpoint, RateLimits
from adacompute.policies.stopping import StoppingPolicy
from adacompute.pool import open_pool
from adacompute.problems import Template
from adacompute.sampling import Asking, SourcePlan, answer


@pytest.mark.nightly
def test_a_real_model_answers_a_handful_of_questions_within_the_budget(local_model, tmp_path: Path):
    problems = [one.problem for one in facts(8)]
    asking = Asking(
        model=local_model.name,
        template=Template.named("answer-line"),
        sampling={"temperature": 0.7, "max_tokens": 24},
    )
    with open_pool(tmp_path / "p.sqlite", create=True) as pool:
        where = Endpoint(url=local_model.url, limits=RateLimits(concurrency=4))
        plan = SourcePlan(endpoint=where, asking=asking)
        found = [
            answer(problems, pool, plan, policy=StoppingPolicy(), budget=budget) for budget in (1.5, 2.0)
        ]
    assert [done.spent for done in found] == [12, 16]
    for done in found:
        assert done.failures == {}
        assert done.weigh is not None, "it gives log-probabilities"
        assert min(one.samples for one in done.each) == 1
        assert sum(one.answer is not None for one in done.each) >= 4
        assert done.accuracy is not None
    assert found[-1].account.got == 16
