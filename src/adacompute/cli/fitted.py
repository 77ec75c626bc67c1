"""What `adacompute fit` tells of a policy that it has made. Knows nothing of how it was learned."""

from typing import Any

from adacompute.cli.show import counted, fact, line, paragraph, percent, table

__all__ = ["show_fitted"]

_DIGITS = 5  # of a price
_SHORT = 0.9  # of a budget: spending less is worth a word


def show_fitted(found: dict[str, Any]) -> None:
    """For a person: what it learned from, where it is, its dial for some budgets, what to do next."""
    problems, samples = counted(found["problems"], "problem"), counted(found["samples"], "sample")
    line(f"{found['policy']}: learned from {problems} and {samples} of {found['pool']}")
    line()
    for label, value in _facts(found):
        fact(label, value)
    line()
    if found["settings"]:
        _show_settings(found)
        line()
    paragraph("What it is worth has to be judged on problems that it has not learned from. Go on with:")
    line(f"  adacompute evaluate {found['pool']} --policies fixed,asc,{found['policy']}")
    line(f"  adacompute answer PROMPTS --policy {found['folder']} --budget 2 --endpoint URL -o answers.jsonl")
    line(f"  adacompute serve --policy {found['folder']} --budget 2 --upstream URL")
    line(f"  python: adacompute.load_policy({found['folder']!r})")


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    graded_ = f"correctness of {counted(found['labels'], 'problem')}"
    waves = found["max_waves"]
    facts = [("saved in", found["folder"])]
    if found["left_out"]:
        others = counted(found["left_out"], "problem")
        facts.append(("left out", f"{others} with fewer than {found['longest']} samples (see --longest)"))
    facts += [
        ("learned", graded_ if found["labels"] else "agreement with the vote of all samples: no labels"),
        ("votes", found["votes"]),
        ("asks for", f"at most {found['longest']} samples" + (f" in {waves} rounds" if waves else "")),
    ]
    if "imitation" in found:
        counts = ", ".join(f"{n:,} × {budget}" for budget, n in found["oracle_counts"].items())
        facts.append(("oracle", f"gives {counts} samples"))
        names = f"names the oracle's budget on {percent(found['imitation'])} of these problems, in-sample"
        facts.append(("imitation", f"{names} (always the commonest: {percent(found['majority'])})"))
    return facts


def _show_settings(found: dict[str, Any]) -> None:
    dial, known = found["dial"], any(one["uniform"] is not None for one in found["settings"])
    headings = [
        "samples on average",
        *([dial] if dial else []),
        "spent",
        "rounds",
        "agrees with the full vote",
        *(["as accurate as, for all"] if known else []),
    ]
    rows = []
    for one in found["settings"]:
        own = [f"{one['dial']:.{_DIGITS}g}"] if dial else []
        rows.append(
            [
                f"{one['budget']:g}",
                *own,
                f"{one['cost']:.2f}",
                f"{one['waves']:.1f}",
                percent(one["agreement"]),
                *([f"{one['uniform']:.1f}"] if known else []),
            ]
        )
    table(headings, rows)
    paragraph("(by replay of these very samples, which needs no labels)", indent=2)
    if known:
        held_out = "held out" in found["settings"][0]["protocol"]
        how = "judged on one half, learned on the other" if held_out else "in-sample, so flattering"
        paragraph(f"(as accurate as so many samples for every request alike: {how})", indent=2)
    if dial and any(one["cost"] < _SHORT * one["budget"] for one in found["settings"]):
        paragraph(
            "Many requests stand alike here, so one price can't meet every budget: where less is spent than "
            "asked for, mix two of these prices by lot.",
            indent=2,
        )
