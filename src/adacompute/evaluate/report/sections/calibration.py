"""The section on what was foretold and what came. Knows nothing of how either was measured."""

from adacompute.evaluate.beyond.calibration import Calibrated, Calibration, calibration_of
from adacompute.evaluate.entrants import OURS
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
        tail = f"on average that is what comes{_cancels(one)}"
    else:
        way = "above" if bias.mean > 0 else "below"
        tail = f"on average that is {100 * abs(bias.mean):.1f} points {way} the share that {what}"
    return f"{head}: {tail}; the expected calibration error is {one.error:.3f} at B = {one.budget:g}."


def _cancels(one: Calibrated) -> str:
    """Where it is wrong; that too high and too low make up for each other, where they do."""
    over = [each for each in one.wrong if each.said > each.right.mean]
    under = [each for each in one.wrong if each.said < each.right.mean]
    some = [
        f"where it says {each[0].said:.0%}, {each[0].right.mean:.0%} come" for each in (under, over) if each
    ]
    why = "errors cancel" if over and under else "not everywhere"
    return f", but {why}: {' and '.join(some)}" if some else ""


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
    """A row a policy, a column a budget."""
    budgets = tuple(dict.fromkeys(one.budget for one in calibration.spent))
    rows: list[tuple[Cell, ...]] = []
    names = dict.fromkeys(one.policy for one in calibration.spent)
    for name in sorted(names, key=lambda one: one != OURS):  # ours on top
        own = {one.budget: one for one in calibration.budgets_of(name)}
        beyond = max((one.cost.mean / one.budget - 1 for one in own.values()), key=abs)
        never = ", ".join(f"{one.budget:g}" for one in own.values() if not one.reached)
        costs = (own[budget].cost if budget in own else None for budget in budgets)
        rows.append((look(name).name, *costs, beyond, never or None))
    return Table(
        key="spent",
        title="Samples spent against samples asked for",
        protocol="held-out: dials set on other problems than those that are paid for here",
        columns=(
            Column(name="policy"),
            *(
                Column(
                    name=f"for {budget:g}",
                    kind="number",
                    about="samples spent on average where so many were asked for, 95% interval over problems",
                )
                for budget in budgets
            ),
            Column(name="farthest off", kind="share", about="spent over asked for, less one"),
            Column(name="out of reach", about="asked for, and no setting of the dial meets it"),
        ),
        rows=tuple(rows),
        note="Uniform has no dial to set, and is left out.",
        bold=tuple(at for at, row in enumerate(rows) if row[0] == look(OURS).name),
    )
