"""inspect_ai: an eval of questions, one of tools, and one in which a prompt is too long; 20 at once."""

import tempfile
from typing import Any

import inspect_ai
from inspect_ai import Task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

import cases

FOLDER = tempfile.TemporaryDirectory()  # of its logs


@tool
def multiply() -> Any:
    async def execute(a: int, b: int) -> int:
        """Multiplies two numbers.

        Args:
            a: The first.
            b: The second.
        """
        return a * b

    return execute


def model(name: str = cases.MODEL) -> Any:
    return get_model(
        f"openai/{name}",
        base_url=cases.BASE_URL,
        api_key=cases.KEY,
        responses_api=False,
        config=GenerateConfig(max_retries=0, temperature=0.7, max_connections=20),
    )


def evaluate(pairs: list[tuple[int, int]], *, extra: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """Runs an eval: how it ended, how many samples were scored, how many were right."""
    samples = [Sample(input=cases.question(pair), target=str(pair[0] * pair[1])) for pair in pairs]
    samples += [Sample(input=text, target="none") for text in extra]
    name = more.pop("name", cases.MODEL)
    task = Task(dataset=samples, scorer=includes(), **{"solver": generate(), **more})
    (log,) = inspect_ai.eval(task, model=model(name), display="none", log_dir=FOLDER.name, fail_on_error=True)
    scored = [sample for sample in log.samples or () if sample.scores]
    right = sum(sample.scores["includes"].value == "C" for sample in scored)
    limits = sorted(str(sample.limit.type) for sample in scored if sample.limit)
    stops = sorted({sample.output.stop_reason for sample in scored})
    error = log.error.message.partition("\n")[0][:80] if log.error else None
    facts = {"status": log.status, "scored": len(scored), "limits": limits, "stops": stops, "error": error}
    return {"right": right, "of": len(pairs), "facts": facts}


def errors() -> dict[str, Any]:
    """Prompts that are too long or filtered are no failures of an eval; a missing model is.

    429 and 500 are left out, for inspect_ai tries them again with waits of its own.
    """
    found = {}
    for code in ("context_length_exceeded", "content_filter", "model_not_found"):
        outcome = evaluate([], extra=(cases.refused(code),), name=cases.FAILING)["facts"]
        outcome["error"] = outcome["error"] and outcome["error"].partition(" ")[0].partition("(")[0]
        found[code] = outcome
    return {"facts": found}


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: evaluate(cases.PLAIN, extra=(cases.refused("context_length_exceeded"),)),
            "tools": lambda: evaluate(cases.CALLED, solver=[use_tools(multiply()), generate()]),
            "errors": errors,
            "at once": lambda: evaluate(cases.MANY),
        }
    )
