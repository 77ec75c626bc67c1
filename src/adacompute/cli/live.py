"""The demo's live part: a few samples of the real model on this machine, into a pool. Knows no options."""

import contextlib
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from adacompute.answers import Task, same_answer
from adacompute.cli.gated import gated, show_gated, votes_words
from adacompute.cli.show import counted, line, paragraph, path_text, table
from adacompute.collect import Asking, Collected, collect
from adacompute.endpoint import Endpoint, Limits
from adacompute.endpoint.local import local_model
from adacompute.errors import LocalModelError
from adacompute.pool import Pool, bundled, open_pool
from adacompute.problems import Template
from adacompute.records import Problem, Recorded

__all__ = ["HEADING", "live", "show_live"]

HEADING = "a real model on this machine, live"
_FOLDER = Path("adacompute-demo")  # made anew by each demo
_ASKED = ("facts-000", "facts-009", "facts-027", "facts-117", "facts-216", "facts-270")  # some easy, some not
_ASKED_AGAIN = ("facts-003", "facts-027", "facts-120", "facts-200", "facts-216", "facts-280")
_SAMPLES = 5
_TEMPLATE = "answer-line"
_SAMPLING = {"temperature": 0.7, "max_tokens": 24, "seed": 7}


def live() -> dict[str, Any]:
    """Starts the model, asks it, also through the gateway, stops it; plain data of what it said.

    Without it: why it isn't there.
    """
    try:
        with local_model() as model, _fresh() as pool:
            done = _collected(pool, model.url, model.name)
            return {
                "pool": path_text(Path(pool.path)),
                "model": model.name,
                "requests": [_request(recorded) for recorded in pool],
                **done.to_dict(),
                "gateway": gated(
                    model.url,
                    model.name,
                    _FOLDER,
                    problems=_problems(_ASKED_AGAIN),
                    template=Template.named(_TEMPLATE),
                ),
            }
    except LocalModelError as exc:
        return {"absent": str(exc)}


def show_live(found: dict[str, Any]) -> None:
    """What the model said, question by question, and what it took."""
    line(HEADING)
    if "absent" in found:
        paragraph(found["absent"], indent=2)
        return
    table(
        ["question", f"{_SAMPLES} votes, the leader first", "gold answer", "right"],
        [
            [one["question"], votes_words(one["votes"]), one["gold"], "yes" if one["right"] else "no"]
            for one in found["requests"]
        ],
    )
    tokens = f"{found['prompt_tokens']:,} tokens of prompts, {found['completion_tokens']:,} of responses"
    calls = f"{counted(found['calls'], 'call')}, {tokens}"
    paragraph(f"{found['model']}: {found['stored']} samples in {found['pool']}; {calls}", indent=2, hang=2)
    line()
    show_gated(found["gateway"])


@contextlib.contextmanager
def _fresh() -> Iterator[Pool]:
    """An empty pool in the demo's own folder."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(exist_ok=True)
    with open_pool(_FOLDER / "pool.sqlite", create=True, task=Task()) as pool:
        yield pool


def _collected(pool: Pool, url: str, name: str) -> Collected:
    asking = Asking(model=name, template=Template.named(_TEMPLATE), sampling=_SAMPLING)
    endpoint = Endpoint(url=url, limits=Limits(concurrency=2))
    return collect(_problems(_ASKED), pool, endpoint=endpoint, asking=asking, samples=_SAMPLES)


def _problems(ids: Sequence[str]) -> list[Problem]:
    with bundled("facts") as facts:
        known = {problem.id: problem for problem in facts.problems()}
    return [known[id_] for id_ in ids]


def _request(recorded: Recorded) -> dict[str, Any]:
    """The question and the votes: each answer, in its first spelling, with its number, the leader first."""
    spelling: dict[int, str] = {}
    for number, sample in zip(recorded.classes, recorded.samples, strict=True):
        spelling.setdefault(number, sample.answer or "–")
    votes = {spelling[number]: times for number, times in Counter(recorded.classes).most_common()}
    gold, leader = recorded.problem.gold or "–", next(iter(votes))
    right = same_answer(leader, gold)
    return {"question": recorded.problem.question, "votes": votes, "gold": gold, "right": right}
