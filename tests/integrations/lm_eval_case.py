"""A task of lm-evaluation-harness with 8 responses a question, filtered by its own vote and by ours."""

import json
import sys
from pathlib import Path

import lm_eval
from lm_eval.tasks import TaskManager

import adacompute.integrations.lm_eval  # noqa: F401 - registers the filter

URL, FOLDER = sys.argv[1], Path(sys.argv[2])
PAIRS = [(a, 7) for a in range(11, 31)]
path = FOLDER / "products.jsonl"
rows = [{"question": f"What is {a} times {b}?", "answer": str(a * b)} for a, b in PAIRS]
path.write_text("\n".join(map(json.dumps, rows)))
take = {"function": "take_first"}
regex = {"function": "regex", "regex_pattern": r"exactly (\d+)\."}  # which most responses lack
task = {
    "task": "products",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": str(path)}},
    "test_split": "test",
    "output_type": "generate_until",
    "repeats": 8,
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\n\n"], "do_sample": True, "temperature": 0.7, "max_gen_toks": 64},
    "filter_list": [
        {"name": "theirs", "filter": [regex, {"function": "majority_vote"}, take]},
        {"name": "ours", "filter": [{"function": "adacompute_vote"}, take]},
        {"name": "after", "filter": [regex, {"function": "adacompute_vote", "extract": False}, take]},
    ],
    "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
}
arguments = {
    "model": "gpt-4o-mini",
    "base_url": f"{URL}/chat/completions",
    "num_concurrent": 4,
    "tokenized_requests": False,
    "tokenizer_backend": None,
}
results = lm_eval.simple_evaluate(
    model="local-chat-completions",
    model_args=arguments,
    tasks=[task],
    task_manager=TaskManager(include_defaults=False),
    apply_chat_template=True,
    bootstrap_iters=0,
    log_samples=True,
)
found = {}
for sample in results["samples"]["products"]:
    found.setdefault(sample["filter"], []).append([sample["filtered_resps"], sample["exact_match"]])
single = sum(
    str(doc["answer"]) in response
    for sample in results["samples"]["products"][: len(PAIRS)]
    for doc, response in [(sample["doc"], sample["resps"][0][0])]
)
print(json.dumps({"found": found, "single": single, "of": len(PAIRS)}))
