"""Logs of lm-evaluation-harness (`--log_samples`). Knows nothing of pools; reads a file or an output folder.

One line is one document under one filter, with all its repeats in `resps`. A score belongs to the filtered
response: with one repeat it is the sample's; with several it is nobody's, so each is extracted and graded.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adacompute.errors import NotAPool, PoolNotFound, RecordInvalid
from adacompute.pool.content import Json, has_inexact_number
from adacompute.pool.faults import mapped
from adacompute.pool.flaw import Flaw, expected, shown, wrong
from adacompute.pool.grouping import Group, Groups, placed, plain_text
from adacompute.pool.jsonl import jsonl_entries, parse_exactly
from adacompute.pool.reading import Entry, Reading

__all__ = ["lm_eval_reading"]

_NAME = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.\-:]+)\.jsonl")
_ACCURACIES = ("exact_match", "math_verify", "acc", "acc_norm", "accuracy", "em", "pass@1")  # in this order
_INVALID = "[invalid]"  # what a filter writes when it finds nothing


def lm_eval_reading(path: Path) -> Reading:
    """A samples_*.jsonl file, or every one below a folder; runs of the same problem are put together."""
    if not path.exists():
        raise PoolNotFound(f"{path}: there is no such file; check the path")
    files = sorted(path.rglob("samples_*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise NotAPool(f"{path}: has no samples_*.jsonl; run lm-eval with --log_samples and --output_path")
    return Reading(path=path, unit="problem", files=(path.name,), entries=_entries(path, files))


def _entries(path: Path, files: list[Path]) -> Iterator[Entry]:
    groups = Groups(path)
    for file in files:
        found = _NAME.fullmatch(file.name)
        task = found["task"] if found else file.stem.removeprefix("samples_")
        model = _model(file.with_name(f"results_{found['date']}.json")) if found else None
        seen: dict[str, tuple[Group, list[str], int]] = {}
        for entry in jsonl_entries(file):
            with placed(f"{file}: line {entry.place}"):
                value = _exact(entry)
                texts, head = _read(value, task, model)
                group = groups.of(head)
                if head["id"] not in seen:
                    seen[head["id"]] = group, texts, group.next
                    _add(groups, group, texts, value)
                    continue
                before, same, start = seen[head["id"]]
                if before is not group or same != texts:
                    raise Flaw(f"doc_id {shown(value['doc_id'])} is there twice; give a whole log")
                _note_filter(groups, group.samples[start], value)  # the same, under another filter
    yield from groups.entries()


def _read(value: Json, task: str, model: str | None) -> tuple[list[str], dict[str, Any]]:
    if not isinstance(value, dict) or not {"doc_id", "doc", "arguments", "resps", "filter"} <= value.keys():
        raise Flaw("is no lm-eval sample; give a file written with --log_samples")
    if type(value["doc_id"]) not in (int, str):
        wrong("doc_id", value["doc_id"], "a file that lm-eval wrote")
    resps = value["resps"]
    if not (isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list)):
        raise Flaw("has no generated text (likelihoods?); give logs of generate_until tasks")
    texts = resps[0]
    if not texts or not all(isinstance(text, str) for text in texts):
        wrong("resps", texts, "logs of generate_until tasks")
    for name in _metrics(value):
        expected(str, name, "metrics")
    asked = value["arguments"] if isinstance(value["arguments"], dict) else {}
    first = expected(dict, asked.get("gen_args_0"), "arguments.gen_args_0") or {}
    question = _question(first.get("arg_0"))
    if question is None:
        raise Flaw("'arguments' holds no prompt; give a file written with --log_samples")
    head: dict[str, Any] = {"id": f"{task}/{value['doc_id']}", "question": question}
    if isinstance(value.get("target"), str):
        head["gold"] = value["target"].rsplit("####", 1)[-1].strip()  # GSM8K's targets end in "#### answer"
    doc = value["doc"] if isinstance(value["doc"], dict) else {}
    for name, keys in (("subject", ("subject", "type")), ("level", ("level",))):
        known = [
            doc[key] for key in keys if isinstance(doc.get(key), str | int) and type(doc[key]) is not bool
        ]
        if known and (name == "level" or isinstance(known[0], str)):
            head[name] = known[0]
    head |= {"model": model} if model else {}
    if isinstance(first.get("arg_1"), dict) and first["arg_1"]:
        head["parameters"] = first["arg_1"]
    return texts, head | {"doc": value["doc"]}


def _exact(entry: Entry) -> Json:
    """The line with its whole numbers as written."""
    try:
        return entry.again() if has_inexact_number(entry.value) and entry.again else entry.value
    except ValueError as exc:
        raise Flaw(f"{exc}; give a file that lm-eval wrote") from exc


def _metrics(value: dict[str, Any]) -> list[str]:
    return expected(list, value.get("metrics"), "metrics") or []


def _add(groups: Groups, group: Group, texts: list[str], value: dict[str, Any]) -> None:
    start = group.next
    for text in texts:
        group.samples[group.next] = {"text": text}
        groups.weigh(group.samples[group.next])
        group.next += 1
    filtered = value.get("filtered_resps")
    each = filtered[0] if isinstance(filtered, list) and len(filtered) == 1 else None
    if len(texts) == 1:
        sample = group.samples[start]
        if isinstance(each, str) and each != texts[0]:
            sample["answer"] = None if each == _INVALID else each
        if (score := _score(value)) is not None:
            sample["correct"] = score
    elif isinstance(each, list) and len(each) == len(texts) and each != texts:  # a filter of every repeat
        for i, answer in enumerate(each):
            if isinstance(answer, str):
                group.samples[start + i]["answer"] = None if answer == _INVALID else answer
    _note_filter(groups, group.samples[start], value)


def _note_filter(groups: Groups, sample: dict[str, Any], value: dict[str, Any]) -> None:
    """What the tool made of it, filter by filter, kept beside the first repeat."""
    names = [name for name in _metrics(value) if name in value]
    scores = {name: value[name] for name in names} | {"filtered_resps": value.get("filtered_resps")}
    groups.weigh(scores)
    sample.setdefault("lm_eval", {})[expected(str, value["filter"], "filter") or "none"] = scores


def _score(value: dict[str, Any]) -> float | None:
    """The first accuracy that was measured; of any other metric less may be better, or nothing said."""
    for name in (name for name in _ACCURACIES if name in _metrics(value)):
        score = value.get(name)
        if isinstance(score, bool | int | float) and 0 <= score <= 1:
            return float(score)
    return None


def _question(prompt: Json) -> str | None:
    """The prompt, or the last user message where it is a conversation (written as JSON in a list)."""
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        return None
    if prompt.startswith("[{"):
        try:
            messages = parse_exactly(prompt.encode())
        except ValueError:
            return prompt
        asked = [m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"]
        return plain_text(asked[-1]) if asked else prompt
    return prompt


def _model(results: Path) -> str | None:
    """The model's name from the results that lie beside the samples."""
    if not results.is_file():
        return None
    try:
        with mapped(results):
            found = parse_exactly(results.read_bytes())
    except ValueError as exc:
        raise RecordInvalid(f"{results}: is no JSON ({exc}); copy it again, or remove it") from exc
    name = found.get("model_name") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
