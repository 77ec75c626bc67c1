"""Which sections there are, in which part of the page, and what each is made of. Knows no HTML."""

from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.report.given import Given, Job
from adacompute.evaluate.report.sections import (
    calibration,
    frontier,
    growth,
    levels,
    recovered,
    tokens,
    verdict,
    worth,
)

__all__ = ["JOBS", "PARTS"]

PARTS = (  # key, title, what is there, whether its sections are folded at first
    ("verdict", "Verdict", "", False),
    ("pool", "What is in the pool", "How hard its problems are, and what more samples do for them.", False),
    ("held-out", "Every policy, held-out", "Fitted on other problems than it is judged on.", False),
)


def _verdict(given: Given) -> Section:
    return verdict.section(given.played, given.evaluation, money=given.money, oracle=given.oracle)


def _frontier(given: Given) -> Section:
    return frontier.section(given.played, given.evaluation, oracle=given.oracle)


def _recovered(given: Given) -> Section:
    return recovered.section(given.played, oracle=given.oracle)


def _worth(given: Given) -> Section:
    return worth.section(given.played, given.evaluation)


def _calibration(given: Given) -> Section:
    return calibration.section(given.played, given.evaluation)


def _tokens(given: Given) -> Section:
    return tokens.section(given.played)


def _levels(given: Given) -> Section:
    return levels.section(given.known)


def _growth(given: Given) -> Section:
    return growth.section(given.known, quick=given.quick, seed=given.seed)


JOBS = (  # in the order of the page
    Job(key="verdict", title="Verdict", part="verdict", make=_verdict, graded=False),
    Job(key="levels", title="Levels", part="pool", make=_levels),
    Job(key="worth", title="When it is worth it", part="held-out", make=_worth, graded=False),
    Job(key="frontier", title="Frontier", part="held-out", make=_frontier, graded=False, effort=3),
    Job(key="recovered", title="The oracle's gain", part="held-out", make=_recovered),
    Job(key="calibration", title="Calibration", part="held-out", make=_calibration, graded=False),
    Job(key="tokens", title="Tokens", part="held-out", make=_tokens, graded=False),
    Job(key="growth", title="What must be recorded", part="held-out", make=_growth, slow=True, effort=25),
)
