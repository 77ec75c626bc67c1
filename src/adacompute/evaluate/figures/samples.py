"""An axis of samples, doubling from tick to tick, and one of accuracy. Knows nothing of what is drawn."""

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

__all__ = ["accuracy_axis", "samples_axis"]


def samples_axis(axes: Axes, most: float, label: str) -> None:
    """From 1 sample to `most`, 2 at least, on x, each doubling as wide as the one before."""
    most = max(2.0, most)
    axes.set_xscale("log", base=2)
    axes.set_xlim(0.95, most * 1.05)
    axes.xaxis.set_major_locator(FixedLocator([2.0**at for at in range(12) if 2**at <= most]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(label)


def accuracy_axis(axes: Axes, label: str = "accuracy") -> None:
    """Shares as percent, on y; room beyond 0 and 100% is left without numbers."""
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%" if 0 <= value <= 1 + 1e-9 else "")
    axes.set_ylabel(label)
