"""Numbers that a page cites from another are the ones that stand there."""

import json
import re
from pathlib import Path

import adacompute

ROOT = Path(__file__).resolve().parent.parent.parent
EVALUATION = (ROOT / "docs" / "reference" / "evaluation.md").read_text("utf-8")
RECORDINGS = ("words", "facts", "gsm8k", "math", "math500", "reasoning-gym")
BUDGETS = ("1.5", "2", "3", "4", "6")


def page(name: str) -> str:
    """A page's text, on one line."""
    return " ".join((ROOT / "docs" / name).read_text("utf-8").split())


def cells(recording: str, row: str) -> list[str]:
    """A row of the evaluation, of a recording or of the mean over them."""
    start = EVALUATION.index(f"\n### {recording}\n" if recording else "\n## Mean over recordings\n")
    found = re.search(
        rf"^\| \**{re.escape(row)}\**(?:[:,] [^|]*)? \|(.*)\|$", EVALUATION[start:], re.MULTILINE
    )
    assert found is not None, row
    return [cell.strip() for cell in found[1].split("|")]


def percent(recording: str, row: str) -> list[str]:
    return [f"{100 * float(cell):.1f}" for cell in cells(recording, row)]


def gain(recording: str, row: str, budget: str) -> str:
    """The mean of a paired difference, without its interval: +1.5."""
    return cells(recording, row)[BUDGETS.index(budget)].split(" ")[0]


def test_the_menu_of_the_readme_is_what_was_measured_with_alike_problems_held_out():
    text = (ROOT / "docs" / "reference" / "menus-held-out.md").read_text("utf-8")
    rows = text[text.index("\n| crux<br>400 problems") :].partition("\n| words<br>")[0].strip().splitlines()
    readme = page("../README.md")
    for row in rows:
        _, budget, alone, cascade, _, menu, gain, _ = (cell.strip() for cell in row.strip("|").split("|"))
        menu = menu.strip("*")
        assert f"| {budget} | {alone}% | {cascade}% | {menu}% |" in readme
        if budget == "0.5":
            assert f"the menu differs by {gain} points" in readme
    assert len(rows) == 4


def test_the_table_for_choosing_is_the_evaluation():
    table = (ROOT / "docs" / "policies.md").read_text("utf-8")
    added = re.findall(r"^\| gain over the column before, per sample \| \|(.*)\|$", table, re.MULTILINE)
    for name, last in zip(("words", "facts"), added, strict=True):
        stopping = percent(name, "stopping, transferred")
        assert f"| `{name}`, uniform | {' | '.join(percent(name, 'fixed'))} |" in table
        assert f"| `{name}`, stopping | {' | '.join(stopping)} |" in table
        steps = [
            (float(b) - float(a)) / (float(at) - float(before))
            for a, b, before, at in zip(stopping, stopping[1:], BUDGETS, BUDGETS[1:], strict=False)
        ]
        assert [cell.strip() for cell in last.split("|")] == [f"{step:.1f}" for step in steps]


def test_what_signals_gain_is_the_evaluation():
    section = EVALUATION[EVALUATION.index("## Signals on and off") :]
    table = (ROOT / "docs" / "policies.md").read_text("utf-8")
    rows = {"stopping, samples on average": "stopping, shipped prior", "fixed number of votes": "fixed"}
    for ours, theirs in rows.items():
        found = re.search(rf"^\| mean, {theirs}: on − off \|(.*)\|$", section, re.MULTILINE)
        assert found is not None
        assert f"| {ours} |{found[1]}|" in table


def test_what_three_waves_keep_is_the_evaluation():
    at = BUDGETS.index("3")
    rows = ("stopping, transferred, at most 3 waves", "stopping, transferred", "fixed")
    few, many, uniform = (percent("", row)[at] for row in rows)
    assert f"the mean is {few}% right instead of {many}%, and uniform {uniform}%" in page("policies.md")
    kept = re.search(r"with at most 3 waves: [^|]*\|([^|]*)\|", EVALUATION)
    assert kept is not None
    shares = sorted(int(share) for share in re.findall(r"(\d+)%", kept[1]))
    assert f"keeps {shares[0]}% to {shares[-1]}% of" in page("policies.md")


def test_what_questions_are_answered_with_is_the_evaluation():
    policies = page("policies.md")
    ahead = [gain("", "shipped prior − peers", budget).lstrip("+") for budget in ("2", "3", "4")]
    assert f"by {ahead[0]}, {ahead[1]} and {ahead[2]} points at 2, 3 and 4 samples" in policies
    readme = " ".join((ROOT / "README.md").read_text("utf-8").split())
    assert (
        f"and {ahead[0]}, {ahead[1]} and {ahead[2]} over the best mix of published stopping rules" in readme
    )
    won = [gain("", "shipped prior − fixed", budget).lstrip("+") for budget in ("2", "3", "4")]
    gains = f"it gains {won[0]}, {won[1]} and {won[2]} points over uniform sampling"
    assert f"at 2, 3 and 4 samples, {gains}" in readme
    least = min(RECORDINGS, key=lambda name: float(gain(name, "shipped prior − fixed", "3")))
    assert f"It gains least on `{least}`: {gain(least, 'shipped prior − fixed', '3')} points at 3" in readme
    labels, none = (gain("", f"calibrated {way} labels − transferred", "2") for way in ("with", "without"))
    assert (
        f"{none} points over a policy learned elsewhere at 2 samples on the mean, where labels get {labels}"
        in policies
    )
    assert f"{labels} points at 2 samples on the mean over what was learned elsewhere" in policies
    assert f"to {gain('words', 'calibrated with labels − transferred', '2')} on `words`" in policies
    at = BUDGETS.index("3")
    ours, uniform = (percent("math500", row)[at] for row in ("stopping, transferred", "fixed"))
    assert f"at 3 samples {ours}% are right, {uniform}% with uniform sampling" in policies


def test_what_weights_are_worth_is_the_evaluation():
    at = BUDGETS.index("2")
    rows = ("stopping, transferred, weights withheld", "stopping, transferred")
    plain, sure = (percent("facts", row)[at] for row in rows)
    assert f"{float(sure) - float(plain):.1f} points on `facts` ({plain}% to {sure}%" in page("concepts.md")


def test_how_many_uniform_samples_are_as_good_is_what_was_measured():
    kept = json.loads((ROOT / "docs" / "figures" / "frontier.json").read_text("utf-8"))
    at = BUDGETS.index("3")
    words = kept["budgets"][at]["worth"]["mean"]
    policies = page("policies.md")
    assert f"are right as often as {words:.1f} for everybody" in policies
    assert f"That is {100 - 300 / words:.0f}% less" in policies
    assert f"On `words` 3 are as good as {words:.1f}" in page("policies.md")
    assert f'"As good as {words:.1f} uniform samples"' in page("concepts.md")


def test_every_public_name_is_on_the_page_of_the_python_api():
    named = set(re.findall(r"\bac\.(\w+)", (ROOT / "docs" / "python.md").read_text("utf-8")))
    assert set(adacompute.__all__) - named == set()
