"""The paper's Pareto frontiers: as the paper scores them, and held-out beside that. Knows no solver."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from adacompute.evaluate.exhibits import Picture
from adacompute.evaluate.figures.canvas import Canvas
from adacompute.evaluate.figures.numbers import plain
from adacompute.evaluate.figures.palette import colour, look
from adacompute.evaluate.figures.samples import accuracy_axis, samples_axis
from adacompute.evaluate.paper.pareto import Curve, Pareto

__all__ = ["draw_pareto"]

_NAMES = {
    "oracle": "oracle",
    "classifier": "the paper's classifier",
    "random": "random",
    "heuristic": "longest prompts",
    "fixed": "fixed-b",
    "uniform": "all alike",
}


def draw_pareto(found: Pareto, *, key: str = "pareto") -> Picture:
    """Two panels with one scale of accuracy: by the budget asked for, and by what was spent."""
    with Canvas(key, columns=2, height=3.7, sharey=True) as canvas:
        left, right = canvas.axes
        _as_paper(canvas, left, found)
        _held_out(canvas, right, found)
        left.set_title("scored as the paper does")
        right.set_title("held-out")
        samples_axis(left, found.modes[-1], "average budget B asked for (samples)")
        samples_axis(right, found.modes[-1], "samples spent on average")
        accuracy_axis(left)
        _legend(canvas, left)
        svg = canvas.svg()
    return Picture(
        key=key,
        title="Accuracy by average budget",
        protocol=_protocol(found),
        svg=svg,
        alt=f"Accuracy against samples for {found.name}: left scored as the paper does, right held-out.",
        caption=_caption(found),
        data=plain({"scored as the paper does": _data(found.paper), "held-out": _data(found.held_out)}),
    )


def _as_paper(canvas: Canvas, ax: Axes, found: Pareto) -> None:
    steps = found.paper["fixed"]
    ax.step(steps.budget, steps.accuracy, where="post", **_style("fixed"))
    _marked(canvas, ax, steps, "fixed", by_budget=True)
    for method in ("random", "heuristic", "oracle", "classifier"):
        curve = found.paper[method]
        ax.plot(curve.budget, curve.accuracy, **_style(method))
        _marked(canvas, ax, curve, method, by_budget=True)


def _held_out(canvas: Canvas, ax: Axes, found: Pareto) -> None:
    high, low = found.held_out["oracle"], found.held_out.get("crossfitted")
    if low is not None:  # drawn where both were asked for the same
        ax.fill_between(high.budget, low.accuracy, high.accuracy, color=colour("green"), alpha=0.18, lw=0)
    ax.plot(high.budget, high.accuracy, **_style("oracle"))
    _marked(canvas, ax, high, "oracle", by_budget=True)
    for method in ("uniform", "random", "heuristic"):
        curve = found.held_out[method]
        ax.plot(curve.cost, curve.accuracy, **_style("fixed" if method == "uniform" else method))
        _marked(canvas, ax, curve, method)
    _learned(canvas, ax, found.held_out["classifier"])


def _learned(canvas: Canvas, ax: Axes, curve: Curve) -> None:
    """The classifier, by what it spends, with the interval of its difference from all alike."""
    order = curve.cost.argsort(kind="stable")
    cost, accuracy = curve.cost[order], curve.accuracy[order]
    gains = [curve.gain[at] for at in order]
    low = [a if g.low is None else a - g.mean + g.low for a, g in zip(accuracy, gains, strict=True)]
    high = [a if g.high is None else a - g.mean + g.high for a, g in zip(accuracy, gains, strict=True)]
    ax.fill_between(cost, low, high, color=colour(look("classifier").colour), alpha=0.18, lw=0)
    ax.plot(cost, accuracy, marker="o", markersize=3.5, markeredgewidth=0, **_style("classifier"))
    _marked(canvas, ax, curve, "classifier")


def _style(method: str) -> dict[str, Any]:
    own = look(method)
    width = 2.2 if method == "classifier" else 1.6
    return {"color": colour(own.colour), "linestyle": own.line, "linewidth": width}


def _marked(canvas: Canvas, ax: Axes, curve: Curve, method: str, *, by_budget: bool = False) -> None:
    for at, (budget, cost, accuracy) in enumerate(zip(curve.budget, curve.cost, curve.accuracy, strict=True)):
        text = f"{_NAMES[method]}, B = {budget:.3g}: {100 * accuracy:.1f}% at {cost:.2f} samples"
        if curve.gain:
            text += f" ({100 * curve.gain[at].mean:+.1f} points over all alike at that cost)"
        canvas.mark(ax, budget if by_budget else cost, accuracy, text)


def _legend(canvas: Canvas, ax: Axes) -> None:
    """One for both panels, above them: the curves meet at both ends, where labels would."""
    names = {"oracle": "oracle", "classifier": "the paper's classifier", "heuristic": "longest prompts"}
    names |= {"random": "random", "fixed": "fixed-b, all alike"}
    lines = [ax.plot([], [], **_style(method))[0] for method in names]
    canvas.figure.legend(lines, list(names.values()), loc="outside upper left", ncols=5, handlelength=2.2)


def _protocol(found: Pareto) -> str:
    return (
        f"{found.problems} problems, {found.folds} folds, one seed. Scored as the paper does: each fold's "
        "classifier on all problems, accuracy by disjoint windows. Held-out: on the problems of its own fold "
        "alone, accuracy over all subsets of the samples."
    )


def _caption(found: Pareto) -> str:
    modes = ", ".join(map(str, found.modes))
    text = (
        "Left: by the average budget asked for, so that fixed-b is a staircase. Right: by what was spent; "
        "the red band is the 95% interval, over problems, of the classifier's difference from all alike at "
        "its cost."
    )
    if "crossfitted" in found.held_out:
        text += " The green band is the oracle's bracket, from cross-fitted up to in-sample."
    return f"{text} All choose among {modes} samples."


def _data(curves: Mapping[str, Curve]) -> dict[str, Any]:
    return {
        name: {"budget": curve.budget, "cost": curve.cost, "accuracy": curve.accuracy}
        | ({"gain": curve.gain} if curve.gain else {})
        for name, curve in curves.items()
    }
