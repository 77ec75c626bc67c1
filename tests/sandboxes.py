"""The processes that read answers from long texts."""

from adacompute.answers import extract


def close_sandbox() -> None:
    """Ends them; the next text starts new ones."""
    for process in (extract._extractor, extract.search_helper, extract._trial_helper):
        process.close()
