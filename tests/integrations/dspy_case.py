"""DSPy's Predict as it is and voted on, over a scripted model at the address given."""

import asyncio
import json
import sys

import dspy

from adacompute.integrations.dspy import BudgetedVote

PAIRS = [(a, b) for a in range(11, 21) for b in (7, 8, 9)]


class Product(dspy.Signature):
    """Multiplies."""

    question: str = dspy.InputField()
    product: int = dspy.OutputField()


def count_right(predict, field):
    return sum(str(a * b) in str(predict(question=f"What is {a} times {b}?")[field]) for a, b in PAIRS)


dspy.configure(lm=dspy.LM("openai/gpt-4o-mini", api_base=sys.argv[1], api_key="none", cache=False))
single = dspy.Predict("question -> answer")
vote = BudgetedVote(single, budget=3)
with dspy.context(trace=[]):
    prediction = vote(question="What is 6 times 7?")
    traced = len(dspy.settings.trace)
paired = asyncio.run(vote.acall(question="What is 8 times 7?"))
facts = {
    "single": count_right(single, "answer"),
    "voted": count_right(vote, "answer"),
    "of": len(PAIRS),
    "average": vote.average,
    "answer": prediction.answer,
    "samples": prediction.adacompute["samples"],
    "votes": prediction.adacompute["votes"],
    "async": paired.answer,
    "traced": traced,
}
typed = BudgetedVote(dspy.Predict(Product), field="product", budget=3)
facts["typed"] = typed(question="What is 6 times 7?").product
print(json.dumps(facts))
