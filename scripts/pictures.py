"""Draws the pictures of the docs and README.md into docs/figures, from the numbers stored there.

`python scripts/pictures.py`. The numbers come from scripts/picture_numbers.py, and the frontier's from
scripts/picture_frontier.py, and so does the table in README.md. Those of menus come from
scripts/menu_evaluation.py. Equal numbers give equal files.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from adacompute.report.canvas import colour, to_standalone_svg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).parent))
from picture_frontier import draw_kept_frontier

from studies.canvas import LabelledCanvas

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "figures"
NUMBERS = FOLDER / "numbers.json"
FRONTIER = FOLDER / "frontier.json"
RATIOS = FOLDER / "menu-ratios.json"
TABLE = re.compile(r"(<!-- drawn from: docs/figures/frontier\.json -->\n).*?(<!-- end -->)", re.DOTALL)
SAMPLES = [1, 2, 4, 8, 16]
WIDTH = 5.7  # inches: the text stays readable on a phone
Numbers = dict[str, Any]


def draw_votes(numbers: Numbers) -> str:
    """Accuracy by how many vote."""
    measured = numbers["votes"]
    with LabelledCanvas("votes", width=WIDTH, height=2.9) as canvas:
        ax = canvas.axes[0]
        ends = []
        for name, tint in (("words", colour("blue")), ("facts", colour("orange"))):
            values = [100 * value for value in measured["accuracy"][name]]
            ax.plot(measured["budgets"], values, color=tint, marker="o", markersize=4)
            for budget, value in zip(measured["budgets"], values, strict=True):
                canvas.mark(ax, budget, value, f"{name}, {budget} samples: {value:.1f}%")
            ends.append((16, values[-1], name, tint))
        _log_samples(ax)
        ax.set_xlabel("samples that vote, the same number for every problem")
        ax.set_ylabel("right, %")
        canvas.label_ends(ax, ends)
        return canvas.svg()


def draw_requests(numbers: Numbers) -> str:
    """Some requests: the samples drawn for each, and where it stopped."""
    rows = sorted(numbers["requests"], key=lambda row: len(row["drawn"]))
    with LabelledCanvas("requests", width=WIDTH, height=0.42 * len(rows) + 0.75) as canvas:
        ax = canvas.axes[0]
        ax.grid(visible=False)
        for side in ("left", "bottom"):
            ax.spines[side].set_visible(False)
        for place, row in enumerate(rows):
            y = -place
            ax.text(-0.12, y, row["question"], ha="right", va="center", fontsize=8)
            for at, draw in enumerate(row["drawn"]):
                tint = "blue" if draw["right"] else "grey" if draw["answer"] is None else "orange"
                edge = {"edgecolor": colour(tint), "linewidth": 1.2, "facecolor": "none"}
                ax.add_patch(_box(at, y, **edge))
                said = "(none)" if draw["answer"] is None else _short(draw["answer"])
                ax.text(at + 0.45, y, said, ha="center", va="center", fontsize=6.5, color=colour(tint))
                canvas.mark(ax, at + 0.45, y, f"sample {at + 1}: {draw['answer'] or 'no answer found'}")
            right = any(draw["right"] and draw["answer"] == row["answer"] for draw in row["drawn"])
            verdict = f"stop: {row['answer']}, {'right' if right else 'wrong'}"
            ax.text(
                len(row["drawn"]) + 0.1, y, verdict, ha="left", va="center", fontsize=8, color=colour("dim")
            )
        most = max(len(row["drawn"]) for row in rows)
        ax.set_xlim(-4.6, most + 2.5)
        ax.set_ylim(-len(rows) + 0.4, 0.6)
        ax.set_xticks([at + 0.45 for at in range(most)], [str(at + 1) for at in range(most)])
        ax.set_yticks([])
        ax.tick_params(length=0)
        ax.set_xlabel("sample", x=(4.6 + most / 2) / (most + 7.1))
        return canvas.svg()


def draw_dials(numbers: Numbers) -> str:
    """Average cost at each price."""
    measured = numbers["dials"]
    with LabelledCanvas("dials", width=WIDTH, height=2.9) as canvas:
        ax = canvas.axes[0]
        prices = [100 * price for price in measured["price"]]
        ax.plot(prices, measured["cost"], color=colour("blue"), marker="o", markersize=3)
        for price, cost, right in zip(prices, measured["cost"], measured["accuracy"], strict=True):
            canvas.mark(ax, price, cost, f"{price:.3g} points: {cost:.1f} samples, {100 * right:.1f}% right")
        ax.set_xscale("log")
        ax.set_xlim(0.003, 60)
        ax.set_yscale("log", base=2)
        ax.set_yticks(SAMPLES, [str(number) for number in SAMPLES])
        ax.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        ax.minorticks_off()
        ax.set_xlabel("price: points of accuracy that a sample must buy, log scale")
        ax.set_ylabel("samples on average")
        return canvas.svg()


def draw_pacer(numbers: Numbers) -> str:
    """The running average with and without a pacer, and the price that it moves."""
    simulated = numbers["paced"]
    number = simulated["request"]
    with LabelledCanvas(
        "pacer", width=WIDTH, rows=2, height=4.0, sharex=True, height_ratios=[3, 2]
    ) as canvas:
        top, low = canvas.axes
        top.plot([0, number[-1]], [3, 3], color=colour("ink"), linewidth=1.0, linestyle="--")
        for key, tint in (("unpaced", colour("orange")), ("average", colour("blue"))):
            top.plot(number, simulated[key], color=tint)
        for at in range(0, len(number), 4):
            label = f"request {number[at]:,}: {simulated['average'][at]:.2f} samples so far"
            canvas.mark(top, number[at], simulated["average"][at], label)
        top.set_ylabel("samples a request,\naverage so far")
        top.set_ylim(1.8, 3.4)
        canvas.label_ends(
            top,
            [
                (number[-1], simulated["unpaced"][-1], "price fixed", colour("orange")),
                (number[-1], simulated["average"][-1], "paced to 3", colour("blue")),
            ],
        )
        low.plot(number, [100 * price for price in simulated["price"]], color=colour("blue"), linewidth=1.2)
        low.set_yscale("log")
        low.set_yticks([1, 3, 10], ["1", "3", "10"])
        low.minorticks_off()
        low.set_ylabel("price, points")
        low.set_xlabel("requests: the easier half of the questions first, then the harder half")
        for ax in (top, low):
            ax.axvline(1000, color=colour("line"), linewidth=1.0)
        return canvas.svg()


def draw_ratios(numbers: Numbers) -> str:
    """What a menu of two modes gains, by the ratio of their costs."""
    tints = ("blue", "grey", "orange", "yellow", "green", "red", "purple")
    with LabelledCanvas("menu-ratios", width=WIDTH, height=3.4) as canvas:
        ax = canvas.axes[0]
        ends = []
        for (name, pair), tint in zip(numbers.items(), tints, strict=False):
            ratios = sorted(int(ratio) for ratio in pair["gain"])
            gains = [pair["gain"][str(ratio)] for ratio in ratios]
            means = [100 * gain["mean"] for gain in gains]
            bounds = [[100 * gain[end] for gain in gains] for end in ("low", "high")]
            ax.fill_between(ratios, *bounds, color=colour(tint), alpha=0.1, linewidth=0)
            ax.plot(ratios, means, color=colour(tint), marker="o", markersize=4)
            for ratio, mean, low, high in zip(ratios, means, *bounds, strict=True):
                canvas.mark(
                    ax, ratio, mean, f"{name}, {ratio} times: {mean:+.1f} ({low:+.1f} to {high:+.1f})"
                )
            ends.append((ratios[-1], means[-1], name, colour(tint)))
        ax.axhline(0, color=colour("ink"), linewidth=1.0)
        ax.set_xscale("log")
        ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
        ax.minorticks_off()
        ax.set_xlabel("cost of the expensive model's samples, relative to the cheap one's")
        ax.set_ylabel("gain, points")
        canvas.label_ends(ax, ends)
        return canvas.svg()


def _box(at: float, y: float, **look: Any) -> FancyBboxPatch:  # noqa: ANN401
    return FancyBboxPatch((at, y - 0.3), 0.9, 0.6, boxstyle="round,pad=0,rounding_size=0.08", **look)


def _short(answer: str) -> str:
    return answer if len(answer) <= 8 else answer[:7] + "…"


def _log_samples(ax: Axes) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(SAMPLES, [str(number) for number in SAMPLES])
    ax.minorticks_off()


PICTURES: dict[str, Callable[[Numbers], str]] = {
    "votes": draw_votes,
    "requests": draw_requests,
    "dials": draw_dials,
    "pacer": draw_pacer,
}


def draw_files() -> dict[str, str]:
    """Each picture as a file, by its name."""
    numbers = json.loads(NUMBERS.read_text("utf-8"))
    pictures = {f"{name}.svg": draw(numbers) for name, draw in PICTURES.items()}
    pictures["frontier.svg"] = draw_kept_frontier(read_frontier())
    if RATIOS.is_file():  # once they are measured
        pictures["menu-ratios.svg"] = draw_ratios(json.loads(RATIOS.read_text("utf-8")))
    return {name: to_standalone_svg(svg) for name, svg in pictures.items()}


def read_frontier() -> dict[str, Any]:
    """The kept numbers of the frontier."""
    kept: dict[str, Any] = json.loads(FRONTIER.read_text("utf-8"))
    return kept


def build_table(kept: dict[str, Any]) -> str:
    """The table of README.md: what each average budget buys."""
    heads = ["samples on average", "right", "uniform needs", "saved"]
    lines = [f"| {' | '.join(heads)} |", f"|{' ---: |' * len(heads)}"]
    for row in kept["budgets"]:
        worth = row["worth"]["mean"]
        cells = [f"{row['budget']:g}", f"{100 * row['accuracy']:.1f}%"]
        cells += [f"{worth:.1f}", f"{100 * (1 - row['budget'] / worth):.0f}%"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replace_table(text: str, kept: dict[str, Any]) -> str:
    """A page with the table in its place."""
    return TABLE.sub(lambda part: f"{part[1]}\n{build_table(kept)}\n{part[2]}", text)


if __name__ == "__main__":
    for name, text in draw_files().items():
        (FOLDER / name).write_text(text, "utf-8")
        sys.stderr.write(f"drawn {name}\n")
    readme = ROOT / "README.md"
    readme.write_text(replace_table(readme.read_text("utf-8"), read_frontier()), "utf-8")
