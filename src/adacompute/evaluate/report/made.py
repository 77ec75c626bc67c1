"""How a report was made, so that it can be made again. Knows nothing of what it says."""

import hashlib
import platform
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np

from adacompute.evaluate.exhibits import Column, Section, Table
from adacompute.evaluate.rows import Evaluation
from adacompute.pool import Ballots, fingerprint

__all__ = ["digest", "facts_of", "how"]

_PACKAGES = ("numpy", "scipy", "scikit-learn", "matplotlib")
_BOOSTERS = ("xgboost-cpu", "xgboost")


def digest(ballots: Ballots) -> str:
    """A hash of all that a report looks at: questions, votes, grades, tokens, log-probabilities."""
    found = hashlib.sha256()
    for each in zip(ballots.ids, ballots.prompts, ballots.subjects, ballots.levels, strict=True):
        found.update(repr(each).encode("utf-8", "replace"))
    for name in ("gold_known", "classes", "correct", "tokens", "logprob", "entropy"):
        values = np.ascontiguousarray(getattr(ballots, name))
        found.update(f"{name} {values.dtype.str} {values.shape}".encode())
        found.update(values.tobytes())
    return found.hexdigest()


def facts_of(
    ballots: Ballots, evaluation: Evaluation, *, seed: int, quick: bool, command: str
) -> dict[str, Any]:
    """What was given, and who made it; plain data."""
    return {
        "adacompute": version("adacompute"),
        "problems": evaluation.problems,
        "dropped": evaluation.dropped,
        "samples": int(ballots.drawn.sum()),
        "samples_least": int(ballots.drawn.min()),
        "samples_most": int(ballots.drawn.max()),
        "model": ballots.model,
        "parameters": dict(ballots.parameters),
        "parameters_fingerprint": fingerprint(ballots.parameters),
        "basis": evaluation.basis,
        "votes": evaluation.votes,
        "folds": evaluation.folds,
        "orders": evaluation.orders,
        "longest": evaluation.longest,
        "seed": seed,
        "quick": quick,
        "command": command,
        "digest": digest(ballots),
        "versions": {"Python": platform.python_version(), **_versions()},
    }


def how(facts: Mapping[str, Any], *, missing: tuple[str, ...] = ()) -> Section:
    """The last section: what was given and what was used."""
    samples = f"{facts['samples']:,} in all, {facts['samples_least']} to {facts['samples_most']} a problem"
    if facts["samples_least"] == facts["samples_most"]:
        samples = f"{facts['samples']:,} in all, {facts['samples_most']} a problem"
    parameters = ", ".join(f"{name} {value}" for name, value in facts["parameters"].items())
    rows = (
        ("model", facts["model"] or "not named"),
        ("sampling parameters", parameters or "none recorded"),
        ("problems", f"{facts['problems']:,}, and {facts['dropped']:,} left out for want of grades"),
        ("samples", samples),
        (
            "judged by",
            "grades or gold answers" if facts["basis"] == "accuracy" else "agreement with the full vote",
        ),
        ("votes", "weighted by confidence" if facts["votes"] == "weighted" else "plain"),
        ("held-out", f"{facts['folds']} folds over problems, {facts['orders']} random orders of the samples"),
        ("seed", str(facts["seed"])),
        ("command", facts["command"]),
        ("hash of the samples", facts["digest"]),
        ("versions", ", ".join(f"{name} {one}" for name, one in facts["versions"].items())),
    )
    table = Table(
        key="made",
        title="What went in",
        protocol="the same command on the same samples gives the same numbers, with any number of workers.",
        columns=(Column(name="what"), Column(name="value")),
        rows=(("adacompute", facts["adacompute"]), *rows),
    )
    return Section(
        key="made", title="What went in", tables=(table,), words=(_HELD_OUT,), missing=missing
    )


_HELD_OUT = (
    "Held-out: the problems are split into folds; a policy is fitted, and its dial calibrated, on the other "
    "folds, then run on the samples of the problems that it hasn't seen, in many random orders. Uniform "
    "sampling is told over all orders, and the error that it would have on these steadies the others. "
    "Policies are compared at exactly the same average cost, on the upper concave hull of each one's own "
    "settings. Intervals are 95%, by bootstrap over problems, and paired where two policies are compared."
)


def _versions() -> dict[str, str]:
    found = {name: version(name) for name in _PACKAGES}
    for name in _BOOSTERS:
        try:
            return found | {name: version(name)}
        except ModuleNotFoundError:
            continue
    return found
