"""What the tests of batches over a menu share: two upstreams with recorded samples, a policy over them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from batches import Recording, task
from collecting import endpoint

import adacompute as ac
from adacompute.answers import Tally
from adacompute.client.settings import ModeEndpoint
from adacompute.policies.modes.policy import MenuPolicy
from adacompute.pool import open_pool
from adacompute.problems import Template
from adacompute.records import Recorded, Sample, Signals, TokenPrices
from adacompute.sampling import Answers, SourcePlan, answer, build_plan
from shared import read_recorded, share
from upstream import Upstream

PROMPT = 20  # tokens that the upstreams count for each prompt
PRICES = {"small": TokenPrices(input=100.0, output=400.0), "large": TokenPrices(input=2000.0, output=8000.0)}
MAX_TOKENS = 24


@share
def recordings() -> dict[str, list[Recorded]]:
    """The samples of both modes, of the same problems in the same order."""
    small, large = read_recorded("facts"), read_recorded("facts-qwen")
    by_id = {recorded.problem.id: recorded for recorded in large}
    return {"small": small, "large": [by_id[recorded.problem.id] for recorded in small]}


@share
def menu_policy() -> MenuPolicy:
    """Fitted on a sixth of the problems, which takes seconds; batches are of the others."""
    with ac.join_pools({"small": "facts", "large": "facts-qwen"}) as pool:
        ballots = pool.ballots().only(range(0, 353, 6))
    prices = {name: replace(each, prompt_tokens=PROMPT) for name, each in PRICES.items()}
    return MenuPolicy(ac.Menu.of(ballots, prices=prices)).fit(ballots)


def unseen(count: int) -> dict[str, list[Recorded]]:
    """The samples of both modes of some problems that the policy was not fitted on."""
    rows = [row for row in range(353) if row % 6][:count]
    return {name: [recorded[row] for row in rows] for name, recorded in recordings().items()}


@contextmanager
def two_upstreams(recorded: dict[str, list[Recorded]], **scripts: Any) -> Iterator[dict[str, Upstream]]:
    """An upstream for each mode, with its recorded samples in their order, or with a script of its own."""
    with (
        Upstream(scripts.get("small") or Recording(recorded["small"])) as small,
        Upstream(scripts.get("large") or Recording(recorded["large"])) as large,
    ):
        yield {"small": small, "large": large}


def mode_plans(ups: dict[str, Upstream], *, concurrency: int = 8, **sampling: Any) -> list[SourcePlan]:
    return [
        build_plan(
            ModeEndpoint(
                name=name,
                endpoint=endpoint(up.url, concurrency=concurrency),
                model=f"{name}-model",
                prices=PRICES[name],
            ),
            template=Template.named("plain"),
            sampling={"max_tokens": MAX_TOKENS, **sampling},
        )
        for name, up in ups.items()
    ]


def ask_menu(
    recorded: dict[str, list[Recorded]],
    path: Path,
    ups: dict[str, Upstream],
    *,
    budget: str,
    policy: Any = None,
    plans: Any = None,
    **options: Any,
) -> Answers:
    """Answers the recorded problems from two upstreams into a pool at `path`."""
    with open_pool(path, create=True, default_task=task()) as pool:
        return answer(
            [each.problem for each in recorded["small"]],
            pool,
            mode_plans(ups) if plans is None else plans,
            policy=menu_policy() if policy is None else policy,
            budget=budget,
            **options,
        )


def draw_by_policy(policy: MenuPolicy, recorded: dict[str, Recorded], price: float) -> list[str]:
    """The modes that the policy asks for, one after the other, on samples in their recorded order."""
    tally, drawn = Tally(weigh=policy.weigh, task=task()), list[str]()
    while (draw := policy.next(recorded["small"].problem.question, tally, price)) is not None:
        assert draw.mode is not None
        sample = recorded[draw.mode].samples[drawn.count(draw.mode)]
        drawn.append(draw.mode)
        tally.add(live_sample(sample, draw.mode))
    return drawn


def live_sample(sample: Sample, mode: str) -> Sample:
    """A recorded sample as the upstream gives it: all its tokens have the same log-probability."""
    mean = sample.mean_logprob
    signals = None if mean is None else Signals(tail=round(mean, 6), window=round(mean, 6))
    return replace(sample, correct=None, mode=mode, signals=signals)


def drawn_modes(path: Path, plans: Sequence[SourcePlan], id_: str) -> list[str]:
    """The modes of a request's stored samples, in the order drawn."""
    with open_pool(path) as pool:
        indexes = {
            index: plan.name
            for plan in plans
            for key, index in pool.keys(plan.asking.model, plan.asking.parameters)
            if key == id_
        }
    return [indexes[index] for index in sorted(indexes)]
