"""Logs of inspect_ai (.eval archives and .json). Knows nothing of pools, nor of inspect_ai itself.

One sample of the log is one problem in one epoch; its epochs become the problem's samples.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from adacompute.errors import NotAPool, PoolNotFound, RecordInvalid
from adacompute.pool.archive import Archive
from adacompute.pool.content import Json
from adacompute.pool.faults import mapped
from adacompute.pool.flaw import Flaw, expected, shown, wrong
from adacompute.pool.grouping import Group, Groups, placed, plain_text
from adacompute.pool.reading import Entry, Reading
from adacompute.pool.shape import read_parameters

__all__ = ["inspect_reading"]

JSON_LIMIT = 2 << 30  # bytes of a .json log, which is read whole
_MEMBER = re.compile(r"samples/[^/]+\.json")
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # correct, incorrect, partial, no answer
_FINISHED = {"stop": True, "max_tokens": False, "model_length": False}
# how requests were sent, not what was asked for: they make no other source
_TRANSPORT = {
    "max_connections",
    "adaptive_connections",
    "max_retries",
    "timeout",
    "attempt_timeout",
    "batch",
    "cache",
}


def inspect_reading(path: Path) -> Reading:
    """An .eval or .json log, or every .eval below a folder; runs of the same problem are put together."""
    if not path.exists():
        raise PoolNotFound(f"{path}: there is no such file; check the path")
    files = sorted(path.rglob("*.eval")) if path.is_dir() else [path]
    if not files:
        raise NotAPool(f"{path}: has no .eval files; give a log of inspect_ai, or a folder of them")
    if files[0].suffix not in (".eval", ".json"):
        raise NotAPool(f"{path}: has an unknown suffix; give an .eval or .json log of inspect_ai")
    return Reading(path=path, unit="problem", files=(path.name,), entries=_entries(path, files))


def _entries(path: Path, files: list[Path]) -> Iterator[Entry]:
    groups = Groups(path)
    for file in files:
        starts: dict[int, int] = {}  # of each group: a later log goes on where an earlier one ended
        with mapped(file):
            for number, (source, sample) in enumerate(_samples(file), start=1):
                with placed(f"{file}: sample {number}"):
                    group = groups.of(_head(sample, source))
                    start = starts.setdefault(id(group), group.next)
                    groups.weigh(_add(group, start, sample))
    yield from groups.entries()


def _samples(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every sample of a log with what the log says of its source."""
    if file.suffix == ".json":
        if file.stat().st_size > JSON_LIMIT:
            raise NotAPool(
                f"{file}: is larger than {JSON_LIMIT} bytes; convert it to .eval with inspect log convert"
            )
        log = _parsed(file.read_bytes(), file, "the log")
        source = _source(log, file)
        samples = log.get("samples")
        if not isinstance(samples, list):
            raise RecordInvalid(f"{file}: holds no 'samples'; give a log with samples")
        yield from ((source, sample) for sample in samples)
        return
    with contextlib.closing(Archive(file)) as archive:
        names = archive.names()
        header = next((n for n in ("header.json", "_journal/start.json") if n in names), None)
        if header is None:
            raise NotAPool(f"{file}: has no header.json; give an .eval log of inspect_ai")
        source = _source(_parsed(archive.read(header), file, header), file)
        for name in names:
            if _MEMBER.fullmatch(name):
                yield source, _parsed(archive.read(name), file, name)


def _source(log: dict[str, Any], file: Path) -> dict[str, Any]:
    """task, model and parameters."""
    with placed(f"{file}"):
        spec = expected(dict, log.get("eval"), "eval") or {}
        if not (model := expected(str, spec.get("model"), "eval.model")):
            raise Flaw("names no model; give a log of inspect_ai")
        task = expected(str, spec.get("task"), "eval.task") or "task"
        plan = expected(dict, log.get("plan"), "plan") or {}
        asked: dict[str, Any] = {}
        asked |= expected(dict, spec.get("model_generate_config"), "eval.model_generate_config") or {}
        asked |= expected(dict, plan.get("config"), "plan.config") or {}
        parameters = {k: v for k, v in asked.items() if v is not None and k not in _TRANSPORT}
        return {"task": task, "model": model, "parameters": read_parameters(parameters, exact=True)}


def _head(sample: Json, source: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(sample, dict) or not {"id", "epoch", "input", "target"} <= sample.keys():
        raise Flaw("lacks id, epoch, input or target; give a log of inspect_ai")
    if type(sample["id"]) not in (int, str):
        wrong("id", sample["id"], "a string or a whole number")
    question = _resolved(_question(sample["input"]), sample)
    if question is None:
        raise Flaw(f"{shown(sample['id'])} has no text as input; give a log of text questions")
    head: dict[str, Any] = {"id": f"{source['task']}/{sample['id']}", "question": question}
    targets = sample["target"] if isinstance(sample["target"], list) else [sample["target"]]
    if targets and isinstance(targets[0], str) and targets[0]:
        head["gold"] = targets[0]
    metadata = expected(dict, sample.get("metadata"), "metadata") or {}
    for name, kinds in (("subject", (str,)), ("level", (str, int, float))):
        if type(metadata.get(name)) in kinds:
            head[name] = metadata[name]
    head["model"] = source["model"]
    if source["parameters"]:
        head["parameters"] = source["parameters"]
    if len(targets) > 1:
        head["targets"] = targets
    return head | ({"metadata": metadata} if metadata else {})


def _add(group: Group, start: int, sample: dict[str, Any]) -> dict[str, Any]:
    """Puts a sample, or its failure, into its group; answers what was put."""
    epoch = sample["epoch"]
    if type(epoch) is not int or not 1 <= epoch < 2**31:
        raise Flaw(f"{shown(sample['id'])} has epoch {shown(epoch)}; give whole numbers from 1")
    index = start + epoch - 1
    if index in group.samples:
        raise Flaw(f"{shown(sample['id'])} has epoch {epoch} twice; give a whole log")
    group.next = max(group.next, index + 1)
    error = expected(dict, sample.get("error"), "error")
    if error is not None:
        failure: dict[str, Any] = {"index": index, "kind": "error"}
        message = expected(str, error.get("message"), "error.message")
        group.failures.append(failure | ({"message": message} if message is not None else {}))
        return group.failures[-1]
    group.samples[index] = _response(sample)
    return group.samples[index]


def _response(sample: dict[str, Any]) -> dict[str, Any]:
    output = expected(dict, sample.get("output"), "output") or {}
    choices = expected(list, output.get("choices"), "output.choices") or [None]
    choice = expected(dict, choices[0], "output.choices[0]") or {}
    message = expected(dict, choice.get("message"), "output.choices[0].message") or {}
    text = plain_text(message.get("content"))
    text = _resolved(text if text is not None else output.get("completion"), sample)
    made: dict[str, Any] = {} if text is None else {"text": text}
    made |= _scored(sample, text or "")
    usage = expected(dict, output.get("usage"), "output.usage") or {}
    tokens = usage.get("output_tokens")
    if type(tokens) is int and tokens >= 0:
        made["tokens"] = tokens
    logprobs = expected(dict, choice.get("logprobs"), "output.choices[0].logprobs") or {}
    drawn = expected(list, logprobs.get("content"), "output.choices[0].logprobs.content") or []
    values = [(expected(dict, token, "logprobs.content") or {}).get("logprob") for token in drawn]
    if values and all(type(value) in (int, float) for value in values):
        made["logprob"] = sum(values)
    reason = expected(str, choice.get("stop_reason"), "output.choices[0].stop_reason")
    if reason in _FINISHED:
        made["finished"] = _FINISHED[reason]
    return made


def _scored(sample: dict[str, Any], text: str) -> dict[str, Any]:
    """What the first scorer made of it: answer and correctness, as far as it says."""
    scores = expected(dict, sample.get("scores"), "scores") or {}
    name = next(iter(scores), None)
    score = None if name is None else expected(dict, scores[name], f"scores.{name}")
    if score is None:
        return {}
    made: dict[str, Any] = {"scorer": name}
    answer = _resolved(score.get("answer"), sample)
    # older scorers give the whole response as the answer: that is none
    if answer is not None and answer.strip() != text.strip():
        made["answer"] = answer or None
    if (correct := _grade(score.get("value"))) is not None:
        made["correct"] = correct
    return made


def _grade(value: Json) -> float | None:
    if isinstance(value, str):
        return _GRADES.get(value)
    if isinstance(value, bool | int | float) and 0 <= value <= 1:  # NaN, for "not scored", is neither
        return float(value)
    return None


def _question(asked: Json) -> str | None:
    if isinstance(asked, list):
        users = [m for m in asked if isinstance(m, dict) and m.get("role") == "user"]
        return plain_text(users[-1].get("content")) if users else None
    return asked if isinstance(asked, str) else None


def _resolved(text: Json, sample: dict[str, Any]) -> str | None:
    """Long texts are kept once, as attachments, and referred to."""
    if isinstance(text, str) and text.startswith("attachment://"):
        kept = expected(dict, sample.get("attachments"), "attachments") or {}
        text = kept.get(text.removeprefix("attachment://"), text)
    return text if isinstance(text, str) else None


def _parsed(data: bytes, file: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)  # with NaN: inspect_ai writes it for "not scored"
    except (ValueError, RecursionError) as exc:
        raise RecordInvalid(f"{file}: {what} is no JSON ({exc}); copy the log again") from exc
    if not isinstance(found, dict):
        raise RecordInvalid(f"{file}: {what} is no JSON object; give a log of inspect_ai")
    return found
