"""The section on what was foretold and what came. Knows nothing of how either was measured."""

from adacompute.evaluate.beyond.calibration import Calibrated, Calibration, calibration_of
from adacompute.evaluate.entrants import OURS, PLAIN
from adacompute.evaluate.exhibits import Cell, Column, Section, Table
from adacompute.evaluate.figures.calibration import draw_calibration, draw_spent
from adacompute.evaluate.figures.palette import look
from adacompute.evaluate.foretold import AGREEMENT
from adacompute.evaluate.protocols import Played
from adacompute.evaluate.rows import Evaluation

__all__ = ["section"]


def section(found: Played, evaluation: Evaluation) -> Section:
    """Of accuracy where a policy says something, and of cost."""
    calibration = calibration_of(found, evaluation)
    missing = []
    if not calibration.policies:
        missing.append("what policies say of their answers: none that took part says how sure it is")
    elif not any(one.policy == "curve" for one in calibration.policies):
        missing.append(
            "accuracy foretold by a curve: it can't learn without grades; record grades to have it"
        )
    return Section(
        key="calibration",
        title="Calibration",
        words=(*(_said(one, calibration) for one in calibration.policies), _spent(calibration)),
        tables=(*((_bins(calibration),) if calibration.policies else ()), _costs(calibration)),
        pictures=(
            *((draw_calibration(calibration),) if calibration.policies else ()),
            draw_spent(calibration),
        ),
        missing=tuple(missing),
    )


def _said(one: Calibrated, calibration: Calibration) -> str:
    name = look(one.policy).name.capitalize()
    what = "is right" if calibration.basis == "accuracy" else "agrees with the full vote"
    if one.what == AGREEMENT:
        head = (
            f"{name} foretells nothing of its answers; what it tells is how far the votes agree where it "
            "stopped, which the gateway reports as `agreement`"
        )
    else:
        head = f"{name} foretells the accuracy of the vote that it buys"
    bias = one.bias
    if bias.holds_zero:
        tail = "on average that is what comes"
    else:
        way = "above" if bias.mean > 0 else "below"
        tail = f"on average that is {100 * abs(bias.mean):.1f} points {way} the share that {what}"
    return f"{head}: {tail}; the expected calibration error is {one.error:.3f} at B = {one.budget:g}."


def _spent(calibration: Calibration) -> str:
    rows = calibration.budgets_of(OURS)
    if not rows:
        return ""
    worst = max(rows, key=lambda one: abs(one.cost.mean / one.budget - 1))
    text = (
        f"A price set on other problems makes stopping cost {worst.cost.mean:.2f} where {worst.budget:g} was "
        f"asked for, at worst ({worst.cost.mean / worst.budget - 1:+.0%})"
    )
    return f"{text}; live, the pacer moves the price until the average is met."


def _bins(calibration: Calibration) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (look(one.policy).name, one.what, each.said, each.right, each.share)
        for one in calibration.policies
        for each in one.bins
    ]
    return Table(
        key="calibration",
        title="Said against realised",
        protocol="held-out: said of problems that weren't learned from",
        columns=(
            Column(name="policy"),
            Column(name="what is said"),
            Column(name="said", kind="share", about="mean of the bin"),
            Column(name="right", kind="share", about="95% interval over problems"),
            Column(name="of requests", kind="share"),
        ),
        rows=tuple(rows),
        note="Ten bins as equal in size as ties allow.",
    )


def _costs(calibration: Calibration) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in calibration.spent:
        rows.append(
            (look(one.policy).name, one.budget, one.cost, one.cost.mean / one.budget - 1, one.reached)
        )
    return Table(
        key="spent",
        title="Samples spent against samples asked for",
        protocol="held-out: dials set on other problems than those that are paid for here",
        columns=(
            Column(name="policy"),
            Column(name="asked for", kind="number", about="samples on average"),
            Column(name="spent", kind="number", about="95% interval over problems"),
            Column(name="beyond", kind="share", about="spent over asked for"),
            Column(name="within reach", kind="flag", about="some setting of the dial meets it"),
        ),
        rows=tuple(rows),
        note=f"{look(PLAIN).name.capitalize()} is the largest whole number not above what was asked for.",
    )
