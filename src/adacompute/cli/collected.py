"""A collection as a person wants to see it: before, after, and what is left. Knows nothing of how it went."""

from collections.abc import Mapping
from pathlib import Path

from adacompute.answers import Task
from adacompute.cli.show import as_json, counted, fact, line, message, path_text, percent
from adacompute.cli.watch import errors_text, money
from adacompute.collect import Asking, Collected, Estimate, Prices
from adacompute.problems import ProblemSet
from adacompute.records import Account

__all__ = [
    "GO_ON",
    "REASONS",
    "say_what_failed",
    "say_what_is_left",
    "show_account",
    "show_answered",
    "show_collected",
    "show_estimate",
]

GO_ON = {
    None: "the same command asks for them again",
    "signal": "the same command goes on from here",
    "max-cost": "the same command with a higher --max-cost goes on from here",
    "endpoint": "once that is mended, the same command goes on from here",
}
REASONS = {
    None: "they failed",
    "signal": "it was stopped",
    "max-cost": "--max-cost was reached",
    "endpoint": "the endpoint can't be used",
}
_NAMED = 5  # failed problems that are listed
_FEW = 0.5  # of samples with an answer, or that came to their end


def show_estimate(
    found: Estimate, asked: ProblemSet, asking: Asking, task: Task, prices: Prices, *, json: bool
) -> None:
    """What it would take, and what would be asked: the first prompt, as the model would get it."""
    prompt = asking.template.messages(asked.problems[0])
    golds = [problem.gold for problem in asked.problems if problem.gold is not None]
    if json:
        how = {"template": asking.template.name, "extract": task.extract, "gold_known": len(golds)}
        as_json({**found.to_dict(), **how, "first_prompt": prompt})
        return
    samples, problems = counted(found.samples, "sample"), counted(found.problems, "problem")
    line(f"to draw: {samples} of {problems}; nothing was sent")
    if found.stored:
        fact("stored", f"{counted(found.stored, 'sample')} already")
    calls = f"{found.calls_most:,}"
    if found.calls_least < found.calls_most:
        least = f"{found.calls_least:,} where the endpoint gives all of a problem's samples in one call (n)"
        calls = f"{least}, {calls} where it gives one"
    fact("calls", calls)
    prompts = f"{found.prompt_tokens_most:,}"
    if found.prompt_tokens_least < found.prompt_tokens_most:
        prompts = f"{found.prompt_tokens_least:,} to {prompts}"
    fact("prompts", f"{prompts} tokens, by their length")
    most = (
        "no limit"
        if found.completion_tokens_most is None
        else f"at most {found.completion_tokens_most:,} tokens"
    )
    so_far = "" if found.completion_tokens is None else f"{found.completion_tokens:,} tokens as so far, "
    fact("responses", so_far + most)
    likely = "" if found.cost is None else f"about {money(found.cost)}, "
    most = "no limit" if found.cost_most is None else f"at most {money(found.cost_most)}"
    fact("cost", likely + most if prices else "not known; give --input-price and --output-price")
    fact("template", f"{asking.template.name}; answers are read by {task.extract!r}")
    of = f"of {counted(len(asked.problems), 'problem')}"
    fact("gold", f"{len(golds):,} {of}, e.g. {_short(golds[0])}" if golds else f"none {of}")
    line("The first prompt:")
    for turn in prompt:
        for number, text in enumerate(turn["content"].split("\n")):
            line(f"  {turn['role'] if not number else '':<11} {text}")


def _short(text: str, *, longest: int = 40) -> str:
    shown = repr(text)
    return shown if len(shown) <= longest else f"{shown[:longest]}…"


def show_collected(done: Collected, into: Path, asking: Asking, prices: Prices) -> None:
    line(
        f"{path_text(into)}: {done.stored:,} of {counted(done.planned, 'planned sample')}, {done.added:,} new"
    )
    fact("model", asking.model)
    show_account(done.account, prices, cost=done.cost, at_most=done.at_most)
    show_answered(done.answered, done.finished)
    if done.per_call == 1:
        fact("note", "the endpoint gives one sample a call, so each call pays for the prompt again")
    if done.logprobs is False and asking.logprobs:
        fact("note", "the endpoint gives no log-probabilities: votes will be plain")
    if done.errors:
        fact("errors", errors_text(done.errors))
    if done.complete:
        line(f"Go on with: adacompute pool {path_text(into)}")


def show_answered(answered: float | None, finished: float | None) -> None:
    """In how many samples an answer was found; where that is few, what to do about it."""
    if answered is None:
        return
    cut = "" if finished is None or finished == 1 else f", {percent(1 - finished)} were cut off"
    fact("answers", f"found in {percent(answered)} of samples{cut}")
    if answered < _FEW:
        longer = " or a higher --max-tokens" if finished is not None and finished < _FEW else ""
        fact("note", f"few answers are found: ask with another --template{longer}; samples that are paid for")
        fact("", "can be read otherwise: adacompute import POOL --pool NEW --reread --extract HOW")


def show_account(account: Account, prices: Prices, *, cost: float, at_most: float) -> None:
    """What calls came to: how many, their tokens, their money."""
    calls = f"{account.calls:,}"
    if account.maybe:
        calls += f", {account.maybe:,} of which gave nothing and may have been charged"
    fact("calls", calls)
    estimated = f" (of {counted(account.estimated, 'call')} reckoned by us)" if account.estimated else ""
    fact(
        "tokens",
        f"{account.prompt_tokens:,} of prompts, {account.completion_tokens:,} of responses{estimated}",
    )
    if prices:
        more = f", at most {money(at_most)}" if at_most > cost else ""
        fact("cost", f"{money(cost)}{more}")


def say_what_failed(failures: Mapping[str, str], noun: str) -> None:
    """On stderr: some of those that lack samples, and why."""
    if failures:
        verb = "lacks" if len(failures) == 1 else "lack"
        message(f"{counted(len(failures), noun)} {verb} samples:")
        for id_, why in list(failures.items())[:_NAMED]:
            message(f"  {id_}: {why}")
        if len(failures) > _NAMED:
            message(f"  and {len(failures) - _NAMED:,} more")


def say_what_is_left(done: Collected) -> None:
    """On stderr: why it isn't complete, which problems failed, and how to go on."""
    say_what_failed(done.failures, "problem")
    if done.complete:
        return
    left = counted(done.planned - done.stored, "sample")
    why = f" ({done.why})" if done.why else ""
    message(f"{left} not drawn: {REASONS[done.stopped]}{why}; {GO_ON[done.stopped]}")
