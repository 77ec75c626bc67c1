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
from adacompute.pool.grouping import Group, Groups, plain_text
from adacompute.pool.reading import Entry, Reading

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
            for source, sample in _samples(file):
                group = groups.of(_head(sample, source, file))
                start = starts.setdefault(id(group), group.next)
                _add(group, start, sample, file)
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
    spec = log.get("eval")
    if not isinstance(spec, dict) or not isinstance(spec.get("model"), str):
        raise RecordInvalid(f"{file}: names no model; give a log of inspect_ai")
    plan = log.get("plan") if isinstance(log.get("plan"), dict) else {}
    asked: dict[str, Any] = {}
    for more in (spec.get("model_generate_config"), (plan or {}).get("config")):
        asked |= more if isinstance(more, dict) else {}
    parameters = {k: v for k, v in asked.items() if v is not None and k not in _TRANSPORT}
    return {"task": str(spec.get("task", "task")), "model": spec["model"], "parameters": parameters}


def _head(sample: Json, source: dict[str, Any], file: Path) -> dict[str, Any]:
    if not isinstance(sample, dict) or not {"id", "epoch", "input", "target"} <= sample.keys():
        raise RecordInvalid(f"{file}: a sample lacks id, epoch, input or target; give a log of inspect_ai")
    question = _resolved(_question(sample["input"]), sample)
    if question is None:
        raise RecordInvalid(
            f"{file}: sample {sample['id']!r} has no text as input; give a log of text questions"
        )
    head: dict[str, Any] = {"id": f"{source['task']}/{sample['id']}", "question": question}
    targets = sample["target"] if isinstance(sample["target"], list) else [sample["target"]]
    if targets and isinstance(targets[0], str) and targets[0]:
        head["gold"] = targets[0]
    metadata = sample.get("metadata") if isinstance(sample.get("metadata"), dict) else {}
    for name, kinds in (("subject", (str,)), ("level", (str, int, float))):
        if type((metadata or {}).get(name)) in kinds:
            head[name] = (metadata or {})[name]
    head["model"] = source["model"]
    if source["parameters"]:
        head["parameters"] = source["parameters"]
    if len(targets) > 1:
        head["targets"] = targets
    return head | ({"metadata": metadata} if metadata else {})


def _add(group: Group, start: int, sample: dict[str, Any], file: Path) -> None:
    epoch = sample["epoch"]
    if type(epoch) is not int or not 1 <= epoch < 2**31:
        raise RecordInvalid(f"{file}: sample {sample['id']!r} has epoch {epoch!r}; give whole numbers from 1")
    index = start + epoch - 1
    if index in group.samples:
        raise RecordInvalid(f"{file}: sample {sample['id']!r} has epoch {epoch} twice; give a whole log")
    group.next = max(group.next, index + 1)
    error = sample.get("error")
    if isinstance(error, dict):
        failure = {"index": index, "kind": "error"}
        message = error.get("message")
        group.failures.append(failure | ({"message": message} if isinstance(message, str) else {}))
        return
    group.samples[index] = _response(sample)


def _response(sample: dict[str, Any]) -> dict[str, Any]:
    output = sample.get("output") if isinstance(sample.get("output"), dict) else {}
    choices = (output or {}).get("choices") or [{}]
    choice = choices[0] if isinstance(choices[0], dict) else {}
    text = plain_text((choice.get("message") or {}).get("content"))
    text = _resolved(text if text is not None else (output or {}).get("completion"), sample)
    made: dict[str, Any] = {} if text is None else {"text": text}
    name, score = next(iter((sample.get("scores") or {}).items()), (None, None))
    if isinstance(score, dict):
        answer = _resolved(score.get("answer"), sample)
        # older scorers give the whole response as the answer: that is none
        if isinstance(answer, str) and answer.strip() != (text or "").strip():
            made["answer"] = answer or None
        if (correct := _grade(score.get("value"))) is not None:
            made["correct"] = correct
        made["scorer"] = name
    tokens = ((output or {}).get("usage") or {}).get("output_tokens")
    if type(tokens) is int and tokens >= 0:
        made["tokens"] = tokens
    logprobs = ((choice.get("logprobs") or {}).get("content")) or []
    if logprobs and all(isinstance(token.get("logprob"), int | float) for token in logprobs):
        made["logprob"] = float(sum(token["logprob"] for token in logprobs))
    if choice.get("stop_reason") in _FINISHED:
        made["finished"] = _FINISHED[choice["stop_reason"]]
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
        text = (sample.get("attachments") or {}).get(text.removeprefix("attachment://"), text)
    return text if isinstance(text, str) else None


def _parsed(data: bytes, file: Path, what: str) -> dict[str, Any]:
    try:
        found = json.loads(data)  # with NaN: inspect_ai writes it for "not scored"
    except (ValueError, RecursionError) as exc:
        raise RecordInvalid(f"{file}: {what} is no JSON ({exc}); copy the log again") from exc
    if not isinstance(found, dict):
        raise RecordInvalid(f"{file}: {what} is no JSON object; give a log of inspect_ai")
    return found
