"""The demo's last part: the gateway in front of the real model, asked as clients ask. Knows no options."""

import json
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from adacompute.answers import same_answer
from adacompute.cli.show import line, paragraph, table
from adacompute.errors import LocalModelError
from adacompute.problems import Template
from adacompute.records import Problem

__all__ = ["GATED", "gated", "show_gated", "votes_words"]

GATED = "the gateway in front of a real model on this machine, asked with the OpenAI SDK"
_BUDGET = 3.0
_STATE, _LOG = "gateway.sqlite", "gateway.log"
_PATIENCE = 120.0  # seconds for one reply, and until it serves
_GRACE = 10.0  # seconds from a polite end to a kill


def gated(
    upstream: str, model: str, folder: Path, *, problems: Sequence[Problem], template: Template
) -> dict[str, Any]:
    """Starts the gateway, asks it, stops it; plain data of what each question took."""
    try:
        from openai import OpenAI, OpenAIError
    except ImportError:
        return {"absent": "the OpenAI SDK isn't here: pip install openai, and say make demo again"}
    try:
        with _gateway(upstream, folder) as said:
            client = OpenAI(base_url=said["url"], api_key="none-is-needed", timeout=_PATIENCE, max_retries=0)
            requests = [_asked(client, model, problem, template) for problem in problems]
    except (OpenAIError, OSError, LookupError, ValueError) as exc:
        log = folder / _LOG
        return {"absent": f"the gateway did not answer: {str(exc) or type(exc).__name__}; {log} may say why"}
    samples = [one["samples"] for one in requests]
    return {
        "url": said["url"],
        "policy": said["policy"],
        "budget": _BUDGET,
        "requests": requests,
        "samples": sum(samples) / len(samples),
    }


def show_gated(found: dict[str, Any], *, model: str) -> None:
    """What each question took of that model."""
    line(GATED)
    if "absent" in found:
        paragraph(found["absent"], indent=2)
        return
    table(
        ["question", "votes, the leader first", "answer given", "right", "samples", "tokens"],
        [
            [
                one["question"],
                votes_words(one["votes"], one["answer"]),
                one["answer"] or "–",
                "yes" if one["right"] else "no",
                str(one["samples"]),
                str(one["tokens"]),
            ]
            for one in found["requests"]
        ],
    )
    paragraph(
        "Votes are weighed by how sure the model was of each, so two may lose to one.",
        indent=2,
        hang=2,
    )
    paragraph(
        f"{model}; {found['samples']:.1f} samples on average of these few, {found['budget']:g} is what it "
        "steers towards. `adacompute serve` is the same, for your own endpoint: clients change base_url.",
        indent=2,
        hang=2,
    )


def _asked(client: Any, model: str, problem: Problem, template: Template) -> dict[str, Any]:  # noqa: ANN401 - the SDK's
    reply = client.chat.completions.create(
        model=model, messages=template.messages(problem), temperature=0.7, max_tokens=24, seed=7
    )
    told = reply.model_extra["adacompute"]
    return {
        "question": problem.question,
        "answer": told["answer"],
        "right": told["answer"] is not None and same_answer(told["answer"], problem.gold or "–"),
        "votes": told["votes"],
        "samples": told["samples"],
        "tokens": reply.usage.total_tokens,
    }


@contextmanager
def _gateway(upstream: str, folder: Path) -> Iterator[dict[str, Any]]:
    """A gateway as a process of its own, as an operator starts it, on any port that is free."""
    folder.mkdir(exist_ok=True)
    state, log = folder / _STATE, folder / _LOG
    for end in ("", "-wal", "-shm", "-journal"):  # of an earlier demo
        state.with_name(_STATE + end).unlink(missing_ok=True)
    words = ["serve", "--json", "--upstream", upstream, "--budget", f"{_BUDGET:g}", "--port", "0"]
    with log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "adacompute", *words, "--state", str(state)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE)
        first = process.stdout.readline() if ready else b""
        if not first:
            raise LocalModelError(f"the gateway did not start; {log} says why")
        yield json.loads(first)
    finally:
        process.terminate()
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def votes_words(votes: Mapping[str, int], leader: str | None = None) -> str:
    """Answers with their votes, the leader first: where votes are weighed it may have fewer than others."""
    ranked = sorted(votes.items(), key=lambda one: (one[0] != leader, -one[1]))
    return ", ".join(answer + (f" × {times}" if times > 1 else "") for answer, times in ranked) or "–"
