"""lm-eval: a task of its own on its `local-chat-completions`, one request at a time and 20 at once."""

import json
import logging
import tempfile
from pathlib import Path
from typing import Any

import lm_eval
from lm_eval.tasks import TaskManager

import cases

FOLDER = tempfile.TemporaryDirectory()
TASKS = TaskManager(include_defaults=False)  # reading its thousands of tasks takes half a minute
logging.getLogger("lm_eval").setLevel(logging.ERROR)


def task(pairs: list[tuple[int, int]], name: str, extra: tuple[str, ...]) -> dict[str, Any]:
    """A task over questions in a file."""
    path = Path(FOLDER.name, f"{name}.jsonl")
    rows = [{"question": cases.question(pair), "answer": str(pair[0] * pair[1])} for pair in pairs]
    rows += [{"question": text, "answer": "none"} for text in extra]
    path.write_text("\n".join(map(json.dumps, rows)))
    metric = {"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}
    take = [{"function": "regex", "regex_pattern": r" is (\d+)\."}, {"function": "take_first"}]
    return {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(path)}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{answer}}",
        "generation_kwargs": {"until": ["\n\n"], "do_sample": True, "temperature": 0.7, "max_gen_toks": 64},
        "filter_list": [{"name": "number", "filter": take}],
        "metric_list": [metric],
    }


def evaluate(
    pairs: list[tuple[int, int]],
    name: str,
    *,
    extra: tuple[str, ...] = (),
    at_once: int = 1,
    model: str = cases.MODEL,
) -> dict[str, Any]:
    """Runs the task: how many samples were scored, how many were right."""
    arguments = {
        "model": model,
        "base_url": f"{cases.BASE_URL}/chat/completions",
        "num_concurrent": at_once,
        "max_retries": 1,
        "tokenized_requests": False,
        "tokenizer_backend": None,
    }
    results = lm_eval.simple_evaluate(
        model="local-chat-completions",
        model_args=arguments,
        tasks=[task(pairs, name, extra)],
        task_manager=TASKS,
        apply_chat_template=True,
        bootstrap_iters=0,
        log_samples=True,
    )
    samples = results["samples"][name]
    right = sum(int(sample["exact_match"] == 1.0) for sample in samples)
    return {"right": right, "of": len(pairs), "facts": {"scored": len(samples)}}


def errors() -> dict[str, Any]:
    return cases.collect_errors(
        lambda text: evaluate([], "failing", extra=(text,), model=cases.FAILING)["facts"]
    )


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: evaluate(cases.PLAIN, "products"),
            "errors": errors,
            "at once": lambda: evaluate(cases.MANY, "many", at_once=20),
        }
    )
