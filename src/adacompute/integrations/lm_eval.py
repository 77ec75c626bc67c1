"""A filter for lm-evaluation-harness: votes over a question's responses, comparing answers by meaning.

The harness's own `majority_vote` compares strings, so "12", "12.0" and "$12" are three answers, and "no
match" wins if enough responses have no answer. This filter counts answers with the same meaning together,
and responses without an answer abstain. In a task's YAML, after `repeats: 16`:

    filter_list:
      - name: vote
        filter:
          - function: adacompute_vote

Importing this module registers the filter. `docs/integrations.md` has a complete example.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter

from adacompute.answers import Tally
from adacompute.answers.extract import read_answers

__all__ = ["VoteFilter"]


@register_filter("adacompute_vote")
class VoteFilter(Filter):
    """Chooses the most frequent answer; answers with the same meaning count as equal.

    `question` names the document field with the question, which helps to extract answers. If no response
    states an answer, the filter returns `fallback`. With `extract=False`, every response is an answer that an
    earlier filter has extracted, and a response equal to `fallback` counts as an abstention.
    """

    def __init__(
        self, question: str = "question", fallback: str = "[invalid]", *, extract: bool = True
    ) -> None:
        super().__init__()
        self._question = question
        self._fallback = fallback
        self._extract = extract

    def apply(self, resps: Iterable[Sequence[Any]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
        """Returns the winning answer of each document."""
        return [[self._vote(each, doc)] for each, doc in zip(resps, docs, strict=True)]

    def _vote(self, responses: Sequence[Any], doc: dict[str, Any]) -> str:
        texts = [response if isinstance(response, str) else "" for response in responses]
        answers: Sequence[str | None]
        if self._extract:
            answers = read_answers(texts, str(doc.get(self._question) or ""))
        else:
            answers = [text if text and text != self._fallback else None for text in texts]
        return Tally.of(answers).leader or self._fallback


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
