"""An eval of 16 epochs, as it is and with adaptive epochs, on inspect_ai's mock model."""

import json
import random
import sys

import inspect_ai
from inspect_ai import Epochs, Task
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, solver

from adacompute.integrations.inspect_ai import AdaptiveEpochs

SAMPLES, EPOCHS, BUDGET = 30, 16, 4
COUNTS = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}


def reply(state_input, tools, tool_choice, config):
    """Right in 85, 60 or 35% of the epochs, by the sample."""
    number = int(state_input[-1].text.split("#")[1])
    right = random.random() < (0.85, 0.6, 0.35)[number % 3]
    answer = 42 if right else random.choice([6, 7, 13, 36, 48])
    output = ModelOutput.from_content("mockllm/model", f"The answer is {answer}")
    output.usage = ModelUsage(**COUNTS)
    return output


@solver
def fail():
    """Fails in an epoch of four, the first of its tries alone if it is tried again."""
    tried = set()

    async def solve(state, generate):
        key = (state.sample_id, state.epoch)
        if random.random() < 0.25 and key not in tried:
            tried.add(key)
            raise RuntimeError("no model today")
        return await generate(state)

    return solve


def run(stopping, reducers, *, solver=generate, **options):
    random.seed(7)
    samples = [Sample(input=f"What is 6 * 7? #{number}", target="42", id=number) for number in range(SAMPLES)]
    task = Task(
        dataset=samples,
        solver=solver(),
        scorer=match(),
        epochs=Epochs(EPOCHS, reducers),
        early_stopping=stopping,
    )
    model = get_model("mockllm/model", custom_outputs=reply)
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=sys.argv[1], **options)
    assert log.status == "success", log.error
    (score,) = log.results.scores
    counts = {}
    for sample in log.samples:
        counts[sample.id] = counts.get(sample.id, 0) + 1
    stopped = log.results.early_stopping
    return {
        "accuracy": score.metrics["accuracy"].value,
        "stderr": score.metrics["stderr"].value,
        "epochs": sum(counts.values()),
        "least": min(counts.values()),
        "most": max(counts.values()),
        "stops": len(stopped.early_stops) if stopped else 0,
        "told": stopped.metadata if stopped else {},
        "manager": stopped.manager if stopped else "",
    }


print(
    json.dumps(
        {
            "all": run(None, "adacompute/vote"),
            "mode": run(None, "mode"),
            "adaptive": run(AdaptiveEpochs(BUDGET), "adacompute/vote"),
            "few_at_once": run(AdaptiveEpochs(BUDGET), "adacompute/vote", max_samples=4),
            "failing": run(AdaptiveEpochs(BUDGET), "adacompute/vote", solver=fail, fail_on_error=False),
            "tried_again": run(AdaptiveEpochs(BUDGET), "adacompute/vote", solver=fail, retry_on_error=1),
        }
    )
)
