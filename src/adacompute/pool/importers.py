"""Converts logs of lm-evaluation-harness (`--log_samples`) and inspect_ai to lines of a pool file.

Responses are grouped by problem, model and parameters. A line of an lm-eval log has all responses to one
problem, and the answers that one of lm-eval's filters extracted. A sample of inspect_ai is one response.
"""

import contextlib
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from adacompute.answers.signals import add_answer_signals, summarise_tokens
from adacompute.errors import (
    NotAPool,
    PoolDamaged,
    PoolError,
    PoolNotFound,
    RecordInvalid,
    format_value,
    needs_extra,
    to_one_line,
)
from adacompute.pool.formats import Entry, FileEntries, encode_place, parse_json, read_jsonl
from adacompute.pool.rows import Flaw, check_type, raise_flaw, read_parameters
from adacompute.pool.sqlite import DAMAGE_ERRORS, Json, map_errors, to_canonical_json

# --- zip archives, which may be damaged or malicious ---

MEMBER_LIMIT = 64 << 20  # maximum size of one unpacked file (one response) in a zip archive, in bytes
TOTAL_LIMIT = 16 << 30  # maximum total size of all unpacked files, in bytes; only one is in memory at a time
RATIO_LIMIT = 200  # maximum ratio of unpacked to packed size: about 5 to 50 for logs, 1,000 for zip bombs
FREE_BYTES = 64 << 20  # archives that unpack to at most this many bytes may exceed RATIO_LIMIT
COUNT_LIMIT = 1_000_000
_ZSTD = 93  # zip's number for zstd, used by inspect_ai since 2026; zipfile supports it from Python 3.14 on
# exceptions that zipfile and the decompressors raise for invalid archives
_BAD_ZIP = (*DAMAGE_ERRORS, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError)
_LOCAL_HEADER_BYTES = 30  # length of the header before a file in a zip archive, up to the file's name


class Archive:
    """Reads the files in a zip archive, within size limits and without unpacking them to disk.

    Refuses a file that is larger than the archive declares.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except _BAD_ZIP as exc:
            raise NotAPool(f"{path}: is not a zip archive ({to_one_line(exc)}); copy the log again") from exc
        try:
            # maps the names of the files to their headers, in the order of the archive's directory
            self.members = {info.filename: info for info in self._zip.infolist()}
            self._check_sizes()
            self._check_names()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the archive."""
        self._zip.close()

    def read(self, name: str) -> bytes:
        """Unpacks one file of the archive, and verifies its size and checksum."""
        info = self.members[name]
        if info.flag_bits & 1:
            raise PoolError(f"{self._path}: {name} is encrypted; give a log without a password")
        if info.file_size > MEMBER_LIMIT:
            raise PoolError(
                f"{self._path}: {name} has {info.file_size} bytes; at most {MEMBER_LIMIT} are read"
            )
        try:
            data = self._unpack(info)
        except _BAD_ZIP as exc:
            raise PoolDamaged(
                f"{self._path}: {name} can't be unpacked ({to_one_line(exc)}); copy the log again"
            ) from exc
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise PoolDamaged(f"{self._path}: {name} is not what was packed; copy the log again")
        return data

    def _check_sizes(self) -> None:
        total = sum(info.file_size for info in self.members.values())
        limit = min(TOTAL_LIMIT, max(FREE_BYTES, RATIO_LIMIT * self._path.stat().st_size))
        if len(self.members) > COUNT_LIMIT or total > limit:
            raise PoolError(
                f"{self._path}: holds {len(self.members)} members of {total} bytes, "
                "more than a log of its size has; check its origin"
            )

    def _check_names(self) -> None:
        """Raises an error if a file's header and the archive's directory give the file different names."""
        with self._path.open("rb") as raw:
            for name, info in self.members.items():
                raw.seek(max(0, info.header_offset))
                header = raw.read(_LOCAL_HEADER_BYTES)
                stored = raw.read(int.from_bytes(header[26:28], "little"))
                if header[:4] != b"PK\x03\x04" or stored.decode("utf-8", "replace") != info.orig_filename:
                    raise PoolDamaged(f"{self._path}: {name!r} is not where it should be; copy the log again")

    def _unpack(self, info: zipfile.ZipInfo) -> bytes:
        bound = info.file_size + 1  # reading one more byte shows if the file is larger than declared
        if info.compress_type != _ZSTD:
            with self._zip.open(info) as member:
                return member.read(bound)
        with needs_extra("parquet"):
            import pyarrow as pa

        with self._path.open("rb") as raw:
            raw.seek(info.header_offset)
            header = raw.read(_LOCAL_HEADER_BYTES)
            if len(header) < _LOCAL_HEADER_BYTES or header[:4] != b"PK\x03\x04":
                raise zipfile.BadZipFile("bad header")
            raw.seek(
                int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), io.SEEK_CUR
            )
            packed = raw.read(info.compress_size)
        with pa.CompressedInputStream(pa.BufferReader(packed), "zstd") as stream:
            return bytes(stream.read(bound))


# --- collecting the samples of each problem from many lines ---

KEPT_LIMIT = 1 << 30  # maximum total size of questions, responses and other data in memory, in bytes


class ProblemGroup:
    """Collects the responses to one problem from one model with one set of parameters."""

    def __init__(self, head: dict[str, Any]) -> None:
        self.head = head  # this problem's line of the pool file, without samples and failures
        self.samples: dict[int, dict[str, Any]] = {}
        self.failures: list[dict[str, Any]] = []
        self.next = 0  # index for the next sample; samples of a later run follow those of earlier runs

    def build_line(self) -> dict[str, Any]:
        """Builds this problem's line of a pool file."""
        samples = [
            sample if index == i else {"index": index, **sample}
            for i, (index, sample) in enumerate(sorted(self.samples.items()))
        ]
        return self.head | ({"failures": self.failures} if self.failures else {}) | {"samples": samples}


class ProblemGroups:
    """Collects all responses in memory by problem: those to one problem may be spread over the whole log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._groups: dict[tuple[str, str], ProblemGroup] = {}
        self._bytes = 0  # approximate size of all data kept in memory

    def get_group(self, head: dict[str, Any]) -> ProblemGroup:
        """Returns the group of a problem, model and parameters; adds it if it is new.

        Raises a Flaw if the group has a different question or gold answer.
        """
        parameters = read_parameters(head.get("parameters"))
        key = (head["id"], to_canonical_json([head.get("model"), parameters]))
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = ProblemGroup(head)
            self.count_bytes(head)
        for name in ("question", "gold"):
            if group.head.get(name) != head.get(name):
                raise Flaw(f"problem {head['id']!r} has two {name}s; import them into separate pools")
        return group

    def count_bytes(self, held: dict[str, Any]) -> None:
        """Adds the size of `held` to the size of all data in memory; raises PoolError if it is too large."""
        self._bytes += sum(len(v) if isinstance(v, str) else _count_json_bytes(v) for v in held.values())
        if self._bytes > KEPT_LIMIT:
            raise PoolError(
                f"{self._path}: holds more than {KEPT_LIMIT} bytes to put together; "
                "import its files one by one"
            )

    def entries(self) -> Generator[Entry, None, None]:
        """Yields each problem's line of a pool file, as an entry to import."""
        for number, group in enumerate(self._groups.values(), start=1):
            yield Entry(encode_place(0, number), group.build_line())


@contextlib.contextmanager
def locate_flaws(place: str) -> Iterator[None]:
    """Converts a Flaw raised in this context to a RecordInvalid that names the place in the log."""
    try:
        yield
    except Flaw as exc:
        raise RecordInvalid(f"{place}: {exc}") from exc


def _count_json_bytes(value: Json) -> int:
    try:
        return len(to_canonical_json(value))
    except (TypeError, ValueError, RecursionError):
        return 0  # the value can't be written as JSON; it is refused later, when the line is read


def extract_text(content: Json) -> str | None:
    """Returns a chat message's text: the content itself if it is a string, or all its text parts joined."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(part for part in parts if isinstance(part, str))


# --- inspect_ai ---

JSON_LIMIT = 2 << 30  # maximum size of a .json log, in bytes: the whole file is read into memory
_SAMPLE_MEMBER = re.compile(r"samples/(?!\.\./).+\.json")  # contains a sample's id, perhaps with a slash
_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}  # inspect_ai's Correct, Incorrect, Partial, No answer
_FINISHED = {"stop": True, "max_tokens": False, "model_length": False}
# options that affect how requests are sent, but not the responses
_TRANSPORT_OPTIONS = {
    "max_connections",
    "adaptive_connections",
    "max_retries",
    "timeout",
    "attempt_timeout",
    "batch",
    "cache",
}


def read_inspect(path: Path) -> FileEntries:
    """Reads an .eval or .json log of inspect_ai, or every .eval log in a folder and its subfolders.

    Merges the samples of a problem from several logs.
    """
    files = _list_logs(path, "*.eval", "no .eval files; give a log of inspect_ai, or a folder of them")
    if files[0].suffix not in (".eval", ".json"):
        raise NotAPool(f"{path}: has an unknown suffix; give an .eval or .json log of inspect_ai")
    entries = _read_inspect_entries(path, files)
    return FileEntries(path=path, unit="problem", files=(path.name,), entries=entries)


def _list_logs(path: Path, pattern: str, missing: str) -> list[Path]:
    """Lists the log at `path`, or all logs in the folder `path` whose names match `pattern`.

    Raises NotAPool if there are none; its message ends with `missing`.
    """
    if not path.exists():
        raise PoolNotFound(f"{path}: there is no such file; check the path")
    files = sorted(path.rglob(pattern)) if path.is_dir() else [path]
    if not files:
        raise NotAPool(f"{path}: has {missing}")
    return files


def _read_inspect_entries(path: Path, files: list[Path]) -> Generator[Entry, None, None]:
    groups = ProblemGroups(path)
    for file in files:
        # maps the id() of each problem's group to the index of its first sample from this log
        starts: dict[int, int] = {}
        with map_errors(file):
            for number, (source, sample) in enumerate(_iterate_inspect_samples(file), start=1):
                with locate_flaws(f"{file}: sample {number}"):
                    group = groups.get_group(_build_inspect_head(sample, source))
                    start = starts.setdefault(id(group), group.next)
                    groups.count_bytes(_add_inspect_sample(group, start, sample))
    yield from groups.entries()


def _iterate_inspect_samples(file: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yields (source, sample) for each sample of a log; `source` has its task, model and parameters."""
    if file.suffix == ".json":
        if file.stat().st_size > JSON_LIMIT:
            raise NotAPool(
                f"{file}: is larger than {JSON_LIMIT} bytes; convert it to .eval with inspect log convert"
            )
        log = _parse_json_object(file.read_bytes(), file, "the log")
        source = _read_inspect_source(log, file)
        samples = log.get("samples")
        if not isinstance(samples, list):
            raise RecordInvalid(f"{file}: holds no 'samples'; give a log with samples")
        yield from ((source, sample) for sample in samples)
        return
    with contextlib.closing(Archive(file)) as archive:
        header = next((n for n in ("header.json", "_journal/start.json") if n in archive.members), None)
        if header is None:
            raise NotAPool(f"{file}: has no header.json; give an .eval log of inspect_ai")
        source = _read_inspect_source(_parse_json_object(archive.read(header), file, header), file)
        for name in archive.members:
            if _SAMPLE_MEMBER.fullmatch(name):
                yield source, _parse_json_object(archive.read(name), file, name)


def _read_inspect_source(log: dict[str, Any], file: Path) -> dict[str, Any]:
    """Reads the task, model and parameters of a log."""
    with locate_flaws(f"{file}"):
        spec = check_type(dict, log.get("eval"), "eval") or {}
        if not (model := check_type(str, spec.get("model"), "eval.model")):
            raise Flaw("names no model; give a log of inspect_ai")
        task = check_type(str, spec.get("task"), "eval.task") or "task"
        plan = check_type(dict, log.get("plan"), "plan") or {}
        config: dict[str, Any] = {}
        config |= check_type(dict, spec.get("model_generate_config"), "eval.model_generate_config") or {}
        config |= check_type(dict, plan.get("config"), "plan.config") or {}
        parameters = {k: v for k, v in config.items() if v is not None and k not in _TRANSPORT_OPTIONS}
        return {"task": task, "model": model, "parameters": read_parameters(parameters)}


def _build_inspect_head(sample: Json, source: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(sample, dict) or not {"id", "epoch", "input", "target"} <= sample.keys():
        raise Flaw("lacks id, epoch, input or target; give a log of inspect_ai")
    if type(sample["id"]) not in (int, str):
        raise_flaw("id", sample["id"], "a string or a whole number")
    question = _resolve_attachment(_read_inspect_question(sample["input"]), sample)
    if question is None:
        raise Flaw(f"{format_value(sample['id'])} has no text as input; give a log of text questions")
    head: dict[str, Any] = {"id": f"{source['task']}/{sample['id']}", "question": question}
    targets = sample["target"] if isinstance(sample["target"], list) else [sample["target"]]
    if targets and isinstance(targets[0], str) and targets[0]:
        head["gold"] = targets[0]
    metadata = check_type(dict, sample.get("metadata"), "metadata") or {}
    for name, kinds in (("subject", (str,)), ("level", (str, int, float))):
        if type(metadata.get(name)) in kinds:
            head[name] = metadata[name]
    head["model"] = source["model"]
    if source["parameters"]:
        head["parameters"] = source["parameters"]
    if len(targets) > 1:
        head["targets"] = targets
    return head | ({"metadata": metadata} if metadata else {})


def _add_inspect_sample(group: ProblemGroup, start: int, sample: dict[str, Any]) -> dict[str, Any]:
    """Adds a sample or failure to its problem's group, and returns what was added."""
    epoch = sample["epoch"]
    if type(epoch) is not int or not 1 <= epoch < 2**31:
        raise Flaw(f"{format_value(sample['id'])} has epoch {format_value(epoch)}; give whole numbers from 1")
    index = start + epoch - 1
    if index in group.samples:
        raise Flaw(f"{format_value(sample['id'])} has epoch {epoch} twice; give a whole log")
    group.next = max(group.next, index + 1)
    error = check_type(dict, sample.get("error"), "error")
    if error is not None:
        failure: dict[str, Any] = {"index": index, "kind": "error"}
        message = check_type(str, error.get("message"), "error.message")
        group.failures.append(failure | ({"message": message} if message is not None else {}))
        return group.failures[-1]
    group.samples[index] = _read_inspect_response(sample)
    return group.samples[index]


def _read_inspect_response(sample: dict[str, Any]) -> dict[str, Any]:
    output = check_type(dict, sample.get("output"), "output") or {}
    choices = check_type(list, output.get("choices"), "output.choices") or [None]
    choice = check_type(dict, choices[0], "output.choices[0]") or {}
    message = check_type(dict, choice.get("message"), "output.choices[0].message") or {}
    text = extract_text(message.get("content"))
    text = _resolve_attachment(text if text is not None else output.get("completion"), sample)
    fields: dict[str, Any] = {} if text is None else {"text": text}
    fields |= _read_inspect_score(sample, text or "")
    usage = check_type(dict, output.get("usage"), "output.usage") or {}
    tokens = usage.get("output_tokens")
    if type(tokens) is int and tokens >= 0:
        fields["tokens"] = tokens
    logprobs = check_type(dict, choice.get("logprobs"), "output.choices[0].logprobs") or {}
    token_logprobs = check_type(list, logprobs.get("content"), "output.choices[0].logprobs.content") or []
    token_list = [check_type(dict, token, "logprobs.content") or {} for token in token_logprobs]
    values = [token.get("logprob") for token in token_list]
    if values and all(type(value) in (int, float) for value in values):
        fields["logprob"] = sum(values)
        fields |= _read_inspect_signals(token_list, text or "", fields.get("answer"))
    reason = check_type(str, choice.get("stop_reason"), "output.choices[0].stop_reason")
    if reason in _FINISHED:
        fields["finished"] = _FINISHED[reason]
    return fields


def _read_inspect_signals(tokens: list[dict[str, Any]], text: str, answer: str | None) -> dict[str, Any]:
    """Computes confidence signals from all tokens and, if the answer is known, from the answer's tokens."""
    signals = add_answer_signals(summarise_tokens(tokens).signals, tokens, text, answer)
    if signals is None:
        return {}
    return {"signals": {name: value for name, value in asdict(signals).items() if value is not None}}


def _read_inspect_score(sample: dict[str, Any], text: str) -> dict[str, Any]:
    """Reads the answer and grade that the first scorer gave, if any."""
    scores = check_type(dict, sample.get("scores"), "scores") or {}
    name = next(iter(scores), None)
    score = None if name is None else check_type(dict, scores[name], f"scores.{name}")
    if score is None:
        return {}
    fields: dict[str, Any] = {"scorer": name}
    answer = _resolve_attachment(score.get("answer"), sample)
    # older scorers record the whole response as the answer; ignore such an answer
    if answer is not None and answer.strip() != text.strip():
        fields["answer"] = answer or None
    if (correct := _read_inspect_grade(score.get("value"))) is not None:
        fields["correct"] = correct
    return fields


def _read_inspect_grade(value: Json) -> float | None:
    if isinstance(value, str):
        return _GRADES.get(value)
    if isinstance(value, bool | int | float) and 0 <= value <= 1:  # false for NaN, which means "not scored"
        return float(value)
    return None


def _read_inspect_question(prompt: Json) -> str | None:
    if isinstance(prompt, list):
        users = [m for m in prompt if isinstance(m, dict) and m.get("role") == "user"]
        return extract_text(users[-1].get("content")) if users else None
    return prompt if isinstance(prompt, str) else None


def _resolve_attachment(text: Json, sample: dict[str, Any]) -> str | None:
    """Returns the text itself or, if it refers to an attachment of inspect_ai, the attachment's text."""
    if isinstance(text, str) and text.startswith("attachment://"):
        attachments = check_type(dict, sample.get("attachments"), "attachments") or {}
        text = attachments.get(text.removeprefix("attachment://"), text)
    return text if isinstance(text, str) else None


def _parse_json_object(data: bytes, file: Path, part: str) -> dict[str, Any]:
    try:
        document = json.loads(data)  # also accepts NaN, which inspect_ai writes for "not scored"
    except (ValueError, RecursionError) as exc:
        raise RecordInvalid(f"{file}: {part} is not JSON ({exc}); copy the log again") from exc
    if not isinstance(document, dict):
        raise RecordInvalid(f"{file}: {part} is not a JSON object; give a log of inspect_ai")
    return document


# --- lm-evaluation-harness ---

_SAMPLES_FILE = re.compile(r"samples_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT[\d.\-:]+)\.jsonl")
# names of metrics that measure accuracy, in order of preference
_ACCURACIES = ("exact_match", "math_verify", "acc", "acc_norm", "accuracy", "em", "pass@1")
_INVALID_ANSWER = "[invalid]"  # what lm-eval records if a filter finds no answer


def read_lm_eval(path: Path) -> FileEntries:
    """Reads a samples_*.jsonl file of lm-eval, or all such files in a folder and its subfolders.

    Merges the samples of a problem from several files. lm-eval gives one score per problem and filter. It
    becomes the sample's grade if the problem has a single response. The score of several responses belongs to
    none of them, so each answer is graded on import.
    """
    missing = "no samples_*.jsonl; run lm-eval with --log_samples and --output_path"
    entries = _read_lm_eval_entries(path, _list_logs(path, "samples_*.jsonl", missing))
    return FileEntries(path=path, unit="problem", files=(path.name,), entries=entries)


def _read_lm_eval_entries(path: Path, files: list[Path]) -> Generator[Entry, None, None]:
    groups = ProblemGroups(path)
    for file in files:
        match = _SAMPLES_FILE.fullmatch(file.name)
        task = match["task"] if match else file.stem.removeprefix("samples_")
        model = _read_model_name(file.with_name(f"results_{match['date']}.json")) if match else None
        first_lines: dict[str, tuple[ProblemGroup, list[str], int]] = {}
        for entry in read_jsonl(file):
            with locate_flaws(f"{file}: line {entry.place}"):
                value = entry.value
                texts, head = _parse_lm_eval_line(value, task, model)
                group = groups.get_group(head)
                if head["id"] not in first_lines:
                    first_lines[head["id"]] = group, texts, group.next
                    _add_responses(groups, group, texts, value)
                    continue
                known_group, known_texts, start = first_lines[head["id"]]
                if known_group is not group or known_texts != texts:
                    raise Flaw(f"doc_id {format_value(value['doc_id'])} is there twice; give a whole log")
                # an earlier line has the same responses; this line has the result of another filter
                _record_filter(groups, group.samples[start], value)
    yield from groups.entries()


def _parse_lm_eval_line(value: Json, task: str, model: str | None) -> tuple[list[str], dict[str, Any]]:
    if not isinstance(value, dict) or not {"doc_id", "doc", "arguments", "resps", "filter"} <= value.keys():
        raise Flaw("is not an lm-eval sample; give a file written with --log_samples")
    if type(value["doc_id"]) not in (int, str):
        raise_flaw("doc_id", value["doc_id"], "a file that lm-eval wrote")
    resps = value["resps"]
    if not (isinstance(resps, list) and len(resps) == 1 and isinstance(resps[0], list)):
        raise Flaw("has no generated text (likelihoods?); give logs of generate_until tasks")
    texts = resps[0]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise_flaw("resps", texts, "logs of generate_until tasks")
    for name in _read_metrics(value):
        check_type(str, name, "metrics")
    arguments = value["arguments"] if isinstance(value["arguments"], dict) else {}
    first = check_type(dict, arguments.get("gen_args_0"), "arguments.gen_args_0") or {}
    question = _read_lm_eval_question(first.get("arg_0"))
    if question is None:
        raise Flaw("'arguments' holds no prompt; give a file written with --log_samples")
    head: dict[str, Any] = {"id": f"{task}/{value['doc_id']}", "question": question}
    if isinstance(value.get("target"), str):
        head["gold"] = value["target"].rsplit("####", 1)[-1].strip()  # GSM8K's answer follows "####"
    doc = value["doc"] if isinstance(value["doc"], dict) else {}
    for name, keys in (("subject", ("subject", "type")), ("level", ("level",))):
        candidates = [
            doc[key] for key in keys if isinstance(doc.get(key), str | int) and type(doc[key]) is not bool
        ]
        if candidates and (name == "level" or isinstance(candidates[0], str)):
            head[name] = candidates[0]
    head |= {"model": model} if model else {}
    if isinstance(first.get("arg_1"), dict) and first["arg_1"]:
        head["parameters"] = first["arg_1"]
    return texts, head | {"doc": value["doc"]}


def _read_metrics(value: dict[str, Any]) -> list[str]:
    return check_type(list, value.get("metrics"), "metrics") or []


def _add_responses(
    groups: ProblemGroups, group: ProblemGroup, texts: list[str], value: dict[str, Any]
) -> None:
    start = group.next
    for text in texts:
        group.samples[group.next] = {"text": text}
        groups.count_bytes(group.samples[group.next])
        group.next += 1
    filtered = value.get("filtered_resps")
    filtered_answers = filtered[0] if isinstance(filtered, list) and len(filtered) == 1 else None
    if len(texts) == 1:
        sample = group.samples[start]
        if isinstance(filtered_answers, str) and filtered_answers != texts[0]:
            sample["answer"] = None if filtered_answers == _INVALID_ANSWER else filtered_answers
        if (score := _read_accuracy(value)) is not None:
            sample["correct"] = score
    elif (
        isinstance(filtered_answers, list)
        and len(filtered_answers) == len(texts)
        and filtered_answers != texts
    ):  # the filter gave one answer per response
        for i, answer in enumerate(filtered_answers):
            if isinstance(answer, str):
                group.samples[start + i]["answer"] = None if answer == _INVALID_ANSWER else answer
    _record_filter(groups, group.samples[start], value)


def _record_filter(groups: ProblemGroups, sample: dict[str, Any], value: dict[str, Any]) -> None:
    """Stores the answers and scores of one lm-eval filter in the problem's first sample from this log."""
    names = [name for name in _read_metrics(value) if name in value]
    scores = {name: value[name] for name in names} | {"filtered_resps": value.get("filtered_resps")}
    groups.count_bytes(scores)
    sample.setdefault("lm_eval", {})[check_type(str, value["filter"], "filter") or "none"] = scores


def _read_accuracy(value: dict[str, Any]) -> float | None:
    """Reads the first known accuracy metric.

    Other metrics are ignored, because lower values of them may be better.
    """
    for name in (name for name in _ACCURACIES if name in _read_metrics(value)):
        score = value.get(name)
        if isinstance(score, bool | int | float) and 0 <= score <= 1:
            return float(score)
    return None


def _read_lm_eval_question(prompt: Json) -> str | None:
    """Returns the prompt or, if it is a conversation in JSON, its last user message."""
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        return None
    if prompt.startswith("[{"):
        try:
            messages = parse_json(prompt.encode())
        except ValueError:
            return prompt
        user_contents = [
            m.get("content") for m in messages if isinstance(m, dict) and m.get("role") == "user"
        ]
        return extract_text(user_contents[-1]) if user_contents else prompt
    return prompt


def _read_model_name(results: Path) -> str | None:
    """Reads the model's name from the results file that lm-eval writes next to the samples."""
    if not results.is_file():
        return None
    try:
        with map_errors(results):
            document = parse_json(results.read_bytes())
    except ValueError as exc:
        raise RecordInvalid(f"{results}: is not JSON ({exc}); copy it again, or remove it") from exc
    name = document.get("model_name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else None


FORMATS: Mapping[str, Callable[[Path], FileEntries]] = {"lm-eval": read_lm_eval, "inspect": read_inspect}
