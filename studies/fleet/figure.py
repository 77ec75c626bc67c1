"""Draws the fleet's figure from its numbers. Computes nothing."""

from typing import Any

from matplotlib.axes import Axes

from adacompute.report.canvas import Canvas, colour, to_standalone_svg

__all__ = ["figure"]

Numbers = dict[str, Any]
_TOLD = {"each": ("orange", "told of each request"), "groups": ("blue", "told of groups")}


def figure(numbers: Numbers) -> str:
    """Four panels, as a file of its own."""
    with Canvas("fleet", rows=2, columns=2, height=5.9) as canvas:
        hunting, drift, upstream, ledger = canvas.axes
        _hunting(canvas, hunting, numbers["held"], numbers["memory"])
        _drift(canvas, drift, numbers["drift"])
        _upstream(canvas, upstream, numbers["saturation"])
        _ledger(canvas, ledger, numbers["ledger"])
        return to_standalone_svg(canvas.svg())


def _hunting(canvas: Canvas, ax: Axes, rows: list[Numbers], memory: list[Numbers]) -> None:
    short = [row for row in memory if row["remembered"] == memory[0]["remembered"]]
    x, y = [row["in_flight"] for row in short], [max(0.0, row["lost_points"]) for row in short]
    name = f"only {short[0]['remembered']:,} dials kept"
    ax.plot(x, y, color=colour("red"), marker="o", markersize=4, label=name)
    for row, at in zip(short, y, strict=True):
        canvas.mark(
            ax, row["in_flight"], at, f"{name}, {row['in_flight']:,.0f} in flight: {at:.2f} points lost"
        )
    for told, (tint, name) in _TOLD.items():
        some = [row for row in rows if (row["told"] == "each") == (told == "each")]
        some.sort(key=lambda row: row["in_flight"])
        x, y = [row["in_flight"] for row in some], [max(0.0, row["lost_points"]) for row in some]
        ax.plot(x, y, color=colour(tint), marker="o", markersize=4, label=name)
        for row, at in zip(some, y, strict=True):
            said = f"{name}, {row['in_flight']:,.0f} in flight: {at:.2f} points lost"
            canvas.mark(ax, row["in_flight"], at, said)
    ax.set_xscale("log")
    ax.set_xticks([1e2, 1e4, 1e6], ["100", "10,000", "1,000,000"])
    ax.minorticks_off()
    ax.set_title("A hunting price costs accuracy")
    ax.set_xlabel("requests in flight, log scale")
    ax.set_ylabel("points lost at equal cost")
    ax.set_ylim(-0.3, 12.5)
    ax.legend(loc="upper left", handlelength=1.4)


def _budget(ax: Axes, last: float) -> None:
    ax.plot([0, last], [3, 3], color=colour("ink"), linewidth=1.0, linestyle="--")
    ax.set_xlabel("seconds")
    ax.set_ylabel("samples a request, last 10 s")


def _drift(canvas: Canvas, ax: Axes, rows: list[Numbers]) -> None:
    for row in rows:
        if row["drift"] == "at once":
            tint, name = _TOLD[row["told"]]
            _line(canvas, ax, row["series"], tint, name)
    _budget(ax, rows[0]["series"]["second"][-1])
    ax.axvline(120, color=colour("grey"), linewidth=1.0, linestyle=":")
    ax.set_title("Traffic turns hard at 120 s")
    ax.legend(loc="upper left", handlelength=1.4)


def _upstream(canvas: Canvas, ax: Axes, ways: Numbers) -> None:
    ax.axvspan(120, 180, color=colour("grid"), zorder=0)
    for name, tint, said in (
        ("told of all", "red", "1 in 4 429s final, pacer told of all"),
        ("gives up", "blue", "the same, as built"),
        ("waits", "green", "every 429 tried again"),
    ):
        _line(canvas, ax, ways[name]["series"], tint, said)
    _budget(ax, ways["waits"]["series"]["second"][-1])
    ax.set_title("Upstream a third short for 60 s")
    ax.legend(loc="upper left", handlelength=1.4)


def _line(canvas: Canvas, ax: Axes, series: Numbers, tint: str, name: str) -> None:
    ax.plot(series["second"], series["average"], color=colour(tint), label=name, linewidth=1.5)
    for second, average in list(zip(series["second"], series["average"], strict=True))[::4]:
        canvas.mark(ax, second, average, f"{name}, {second} s: {average:.2f} samples")
    ax.set_ylim(0.8, 6.8)
    ax.set_xticks([0, 60, 120, 180, 240, 300])
    ax.set_yticks([1, 2, 3, 4, 5, 6])


def _ledger(canvas: Canvas, ax: Axes, found: Numbers) -> None:
    for replicas, tint in ((10, "green"), (100, "blue"), (1000, "purple")):
        some = [row for row in found["curve"] if row["replicas"] == replicas]
        x, y = [row["rate"] for row in some], [1000 * row["late"] for row in some]
        ax.plot(x, y, color=colour(tint), marker="o", markersize=3, label=f"{replicas:,} replicas")
        for rate, late in zip(x, y, strict=True):
            canvas.mark(ax, rate, late, f"{replicas:,} replicas, {rate:,.0f} requests/s: {late:.1f} ms")
    most = found["most"]["batched"]
    ax.axvline(most, color=colour("red"), linewidth=1.2, linestyle="--")
    said = f"Redis is full: {round(most, -3):,.0f}/s   "
    ax.text(
        most, 0.035, said, color=colour("red"), ha="right", va="bottom", fontsize=8.5,
        transform=ax.get_xaxis_transform(),
    )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(80, 25_000)
    ax.set_ylim(0.3, 60_000)
    ax.set_xticks([1e2, 1e3, 1e4], ["100", "1,000", "10,000"])
    ax.set_yticks([1, 10, 100, 1e3], ["1 ms", "10 ms", "0.1 s", "1 s"])
    ax.minorticks_off()
    ax.set_title("What one Redis adds to a wave")
    ax.set_xlabel("requests a second, log scale")
    ax.set_ylabel("slowest 1 in 100, log scale")
    ax.legend(loc="upper left", handlelength=1.4)
