"""A batch as a person wants to see it: what it came to, and what is left. Knows nothing of how it went."""

from adacompute.batch import Answers
from adacompute.cli.collected import GO_ON, REASONS, say_what_failed, show_account, show_answered
from adacompute.cli.show import counted, fact, interval, line, message, percent, table
from adacompute.cli.watch import errors_text
from adacompute.collect import Asking, Prices
from adacompute.policies.registry import POLICIES

__all__ = ["say_how_to_go_on", "show_answers"]

_SHORT = 0.95  # of a budget: spending less is worth a word


def show_answers(done: Answers, file: str, *, policy: str, pool: str, asking: Asking, prices: Prices) -> None:
    """What a batch came to; `policy` as it was named, `pool` where its samples are."""
    spent = f"{done.average:.2f} samples each on average, of a budget of {done.budget:g}"
    line(f"{file}: {done.answered:,} of {counted(done.requests, 'request')} answered, {spent}")
    fact("model", asking.model)
    down = "" if done.price is None else f", down to a {POLICIES[done.policy].dial} of {done.price:.3g}"
    own = "stopping, the prior in the package" if policy == "stopping" else policy
    which = own if policy == done.policy else f"{done.policy}, of {policy}"
    fact("policy", which + down)
    fact("votes", "plain, each counts 1" if done.weigh is None else f"weighed by {done.weigh.signal}")
    if done.plain:
        fact("note", "nothing tells how sure the model was (no log-probabilities): votes are plain")
    if done.agreement is not None:
        fact("agreement", f"{percent(done.agreement)} of a request's votes are the winner's, on average")
    if done.accuracy is not None:
        shown = f"{percent(done.accuracy.mean)} ({interval(done.accuracy.low, done.accuracy.high)})"
        fact("accuracy", f"{shown}, {counted(done.accuracy.problems, 'request')} with a gold answer")
    show_account(done.account, prices, cost=done.cost, at_most=done.at_most)
    if done.errors:
        fact("errors", errors_text(done.errors))
    fact("samples", f"in {pool}")
    show_answered(done.found, done.finished)
    if done.spent > done.limit:
        fact("note", f"earlier runs drew more than {done.limit:,} samples already; nothing was added")
    if done.spent < _SHORT * done.limit and done.stopped is None:
        fact("note", "the policy wants no more samples than that, so some of the budget is left")
    if done.unsettled:
        fact("note", f"{counted(done.unsettled, 'request')} would have gone on; the budget was spent before")
    table(("samples", "requests"), [(str(b), f"{n:,}") for b, n in done.counts.items()])


def say_how_to_go_on(done: Answers) -> None:
    """On stderr: which requests failed, why it was stopped, and how to go on."""
    say_what_failed(done.failures, "request")
    if done.stopped is None:
        return
    why = f" ({done.why})" if done.why else ""
    stored = f"{done.spent:,} of at most {counted(done.limit, 'sample')} are stored"
    if done.broken_off:
        message(f"{stored}: {REASONS[done.stopped]}{why}; {GO_ON[done.stopped]}")
    else:
        message(
            f"{stored}: {REASONS[done.stopped]}{why}; the file has what came of them, and the same command "
            "with a higher --max-cost and --overwrite goes on"
        )
