"""The section that says how it works: the paper's pipeline, and ours. Knows nothing of any pool."""

from adacompute.evaluate.exhibits import Section
from adacompute.evaluate.figures.pipeline import draw_pipeline

__all__ = ["section"]

_WORDS = (
    "The paper solves for the best budget of every recorded problem, learns to foretell that budget from the "
    "question, and draws so many samples at once. adacompute draws, counts the votes, and goes on only while "
    "the next samples are worth their price."
)


def section() -> Section:
    """The diagram, with two sentences."""
    return Section(
        key="pipeline",
        title="How it works",
        words=(_WORDS,),
        pictures=(draw_pipeline(),),
    )
