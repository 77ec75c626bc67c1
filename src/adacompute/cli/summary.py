"""A pool's summary as a person wants to see it. Knows how to lay numbers out, not how they were made."""

from collections.abc import Mapping

from adacompute.cli.options import NO_ANSWER
from adacompute.cli.show import counted, fact, interval, line, percent, table
from adacompute.pool import Verification
from adacompute.records import Account
from adacompute.score import SourceSummary, Summary

__all__ = ["damage", "show_summary"]

_LABELS = 14  # columns
_NAMED = 3  # damaged rows that a one-line error names


def show_summary(summary: Summary, *, name: str) -> None:
    """What is in a pool: a few lines, then a table of votes for each model."""
    samples = counted(summary.samples, "sample")
    line(f"{name}: {counted(summary.problems, 'problem')}, {samples}")
    if summary.gold_known:
        known = percent(summary.gold_known / summary.problems)
        fact("gold answers", f"{known} of problems", column=_LABELS)
    for label, kinds in (("subjects", summary.subjects), ("levels", summary.levels)):
        if kinds:
            fact(label, _most(kinds), column=_LABELS)
    for source in summary.sources:
        _show_source(source)
    if any(source.votes for source in summary.sources):
        line(f"  ({summary.protocol})")


def _show_source(source: SourceSummary) -> None:
    low, high = source.samples_min, source.samples_max
    facts = [("model", source.model or "(not named)")]
    if source.parameters:
        facts.append(("parameters", ", ".join(f"{k} {_said(k, v)}" for k, v in source.parameters.items())))
    facts.append(("samples", f"{low if low == high else f'{low} to {high}'} a problem"))
    facts.append(("answer found", f"{percent(source.answered)} of samples{_cut_off(source)}"))
    if not source.answered and not source.unvotable:
        facts.append(("hint", NO_ANSWER))
    if source.classes_mean is not None:
        most = f"{source.classes_mean:.1f} different ones a problem, at most {source.classes_max}"
        facts.append(("answers", most))
    if source.agreement is not None and source.answered:
        leader = f"{percent(source.agreement)} of {source.agreement_budget} votes go to the leading answer"
        some = source.agreement_problems < source.problems
        facts.append(("agreement", leader + (f" ({source.agreement_problems:,} problems)" if some else "")))
    if source.mean_tokens is not None:
        facts.append(("tokens", f"{source.mean_tokens:,.0f} a sample"))
    if source.account is not None:
        facts.append(("calls", _calls(source.account)))
    facts += [("failed", f"{number:,} × {kind}") for kind, number in source.failures.items()]
    if source.accuracy is None:
        facts.append(("accuracy", "not known: there are no gold answers and no recorded grades"))
    elif not source.votes:
        why = "no answers were recorded" if source.unvotable else "too few samples"
        facts.append(("accuracy", f"{percent(source.accuracy.mean)} of one sample; no votes: {why}"))
    elif source.unvotable:
        facts.append(
            ("left out", f"{counted(source.unvotable, 'problem')} without recorded answers: no vote")
        )
    for label, value in facts:
        fact(label, value, column=_LABELS)
    if source.votes:
        _show_votes(source)


def _show_votes(source: SourceSummary) -> None:
    tokens = source.mean_tokens
    table(
        ["samples voting", "accuracy", "95% interval", "problems", *(["tokens"] if tokens else [])],
        [
            [
                f"{budget}",
                percent(vote.mean),
                interval(vote.low, vote.high),
                f"{vote.problems:,}",
                *([f"{tokens * budget:,.0f}"] if tokens else []),
            ]
            for budget, vote in source.votes.items()
        ],
    )


def _cut_off(source: SourceSummary) -> str:
    if source.finished is None or source.finished == 1:
        return ""
    return f" ({percent(1 - source.finished)} were cut off)"


def _calls(account: Account) -> str:
    maybe = f" ({account.maybe:,} gave nothing and may have been charged)" if account.maybe else ""
    tokens = f"{account.prompt_tokens:,} tokens of prompts, {account.completion_tokens:,} of responses"
    return f"{account.calls:,}{maybe}, {tokens}"


def _said(name: str, value: object) -> str:
    """A parameter as it reads: of a template, how it begins."""
    if name == "template" and isinstance(value, Mapping) and value.get("messages"):
        turns = value["messages"]
        return f"of {counted(len(turns), 'turn')} ({_short(turns[0].get('content', ''))})"
    return _short(value)


def _short(value: object, *, longest: int = 40) -> str:
    text = str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _most(kinds: Mapping[str, int], *, shown: int = 6) -> str:
    """`capital (123), past (45), and 4 more`: the largest first."""
    by_size = sorted(kinds.items(), key=lambda item: -item[1])
    names = ", ".join(f"{kind} ({number})" for kind, number in by_size[:shown])
    return names + (f", and {len(kinds) - shown} more" if len(kinds) > shown else "")


def damage(checked: Verification, *, name: str) -> str:
    """One line that names what is damaged and what to do."""
    found = [*checked.mismatches, *checked.integrity, *checked.foreign_keys]
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return (
        f"{name}: {'; '.join(found[:_NAMED])}{more} not as written; "
        "restore the pool from a copy, or import its source anew"
    )
