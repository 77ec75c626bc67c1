"""The bundled questions of facts as an eval of 16 epochs, whole and with adaptive epochs.

    python inspect_task.py LOGS                              inspect_ai's mock model gives recorded samples
    python inspect_task.py LOGS http://127.0.0.1:8081/v1     the model that is served there answers

Prints what each took and scored, as JSON.
"""

import json
import os
import random
import sys

import inspect_ai
from inspect_ai import Epochs, Task
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.scorer import Score, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState, generate

import adacompute as ac
from adacompute.answers.extract import read_answers
from adacompute.integrations.inspect_ai import AdaptiveEpochs

EPOCHS, BUDGET = 16, 4
SHOWN = (  # the prompt that the samples were recorded with
    ChatMessageSystem(content="Answer in one line: Answer: <answer>"),
    ChatMessageUser(content="What color is the sky on a clear day?"),
    ChatMessageAssistant(content="Answer: Blue"),
)


@scorer(metrics=[accuracy(), stderr()])
def states_gold():
    """Whether the answer that a response states is the right one, as adacompute compares them."""

    async def score(state: TaskState, target: Target) -> Score:
        (answer,) = read_answers([state.output.completion], state.user_prompt.text)
        tally = ac.Tally.of([target.text, *([answer] if answer else [])])
        return Score(value=float(tally.first == 2), answer=answer)

    return score


def read_problems(limit: int):
    with ac.bundled("facts") as pool:
        recorded = [each for each in pool if each.problem.gold is not None]
    return recorded[:: max(1, len(recorded) // limit)][:limit]


def open_model(recorded, address: str):
    if address:
        os.environ["LOCAL_BASE_URL"], os.environ["LOCAL_API_KEY"] = address, "none"
        return get_model("openai-api/local/model", config=GenerateConfig(max_tokens=24, temperature=0.7))
    texts = {
        each.problem.question: [sample.text or sample.answer or "" for sample in each.samples]
        for each in recorded
    }
    rng = random.Random(7)

    def reply(messages, *_):
        output = ModelOutput.from_content("mockllm/model", rng.choice(texts[messages[-1].text]))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it is counted
        return output

    return get_model("mockllm/model", custom_outputs=reply)


def run(recorded, model, stopping) -> dict[str, object]:
    samples = [
        Sample(
            id=each.problem.id,
            input=[*SHOWN, ChatMessageUser(content=each.problem.question)],
            target=str(each.problem.gold),
        )
        for each in recorded
    ]
    task = Task(
        dataset=samples,
        solver=generate(),
        scorer=states_gold(),
        epochs=Epochs(EPOCHS, "adacompute/vote"),
        early_stopping=stopping,
    )
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=sys.argv[1], max_connections=8)
    assert log.status == "success", log.error
    metrics = log.results.scores[0].metrics
    stopped = log.results.early_stopping
    return {
        "accuracy": metrics["accuracy"].value,
        "stderr": metrics["stderr"].value,
        "epochs": len(log.samples),
        "told": stopped.metadata if stopped else {},
    }


recorded = read_problems(int(os.environ.get("SAMPLES", "100")))
model = open_model(recorded, "".join(sys.argv[2:3]))
print(
    json.dumps(
        {
            "samples": len(recorded),
            "inspect_ai": inspect_ai.__version__,
            "all": run(recorded, model, None),
            "adaptive": run(recorded, model, AdaptiveEpochs(BUDGET)),
        }
    )
)
