"""A whole batch answered within one average budget, resumable. Knows nothing of terminals."""

from adacompute.batch.answer import answer
from adacompute.batch.limit import left_within, samples_of
from adacompute.batch.outcome import Answer, Answers
from adacompute.batch.output import check_output, write_answers

__all__ = ["Answer", "Answers", "answer", "check_output", "left_within", "samples_of", "write_answers"]
