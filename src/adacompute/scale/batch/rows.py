"""Rows for Ray's processors, and samples from theirs. Knows nothing of how a processor is run.

A row is one sample: vLLM's stage gives the first output of a request only. Texts travel as JSON, so that
no column's type depends on what is in it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson

from adacompute.collect import Asking
from adacompute.collect.left import Run
from adacompute.endpoint.drawing import seeded
from adacompute.endpoint.habits import Habits
from adacompute.endpoint.outcome import Response
from adacompute.endpoint.reply import cap_of, choices_of, one_line, responses_of
from adacompute.endpoint.signals import entropy_of, logprob_of
from adacompute.endpoint.usage import whole
from adacompute.errors import ReplyInvalid
from adacompute.pool import Drawn
from adacompute.records import Call, Failure, Sample

__all__ = ["ERROR", "chat_payload", "chat_told", "drawn_of", "rows_of", "vllm_request", "vllm_told"]

ERROR = "__inference_error__"  # the column of Ray's that says why a row failed
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What came of a row, as it travels."""

    sample: dict[str, Any] | None = None
    seconds: float = 0.0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    error: str | None = None

    def row(self, given: Row) -> dict[str, Any]:
        told = orjson.dumps(asdict(self)).decode()
        return {"problem": given["problem"], "index": int(given["index"]), "told": told}


def rows_of(runs: Sequence[Run], asking: Asking) -> Iterator[dict[str, Any]]:
    """A row for each sample of some runs, in their order, with the request for it."""
    for run in runs:
        body = asking.body(run.problem)
        for index in range(run.first, run.first + run.count):
            asked = orjson.dumps(dict(seeded(body, index))).decode()
            yield {"problem": run.problem.id, "index": index, "asked": asked}


def chat_payload(row: Row) -> dict[str, Any]:
    """A row as the stage of HTTP requests wants it."""
    return {"payload": orjson.loads(row["asked"])}


def chat_told(row: Row) -> dict[str, Any]:
    """A row with the reply of a chat completion -> what came of it."""
    body, reply = orjson.loads(row["asked"]), _plain(row["http_response"])
    try:
        choices, _ = choices_of(reply)
    except ReplyInvalid as exc:
        return _Told(error=str(exc)).row(row)
    responses, counted = responses_of(choices, reply, asked=1, cap=cap_of(body), habits=Habits())
    usage = reply.get("usage")
    prompt = whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return _of(responses[0], prompt_tokens=prompt, completion_tokens=counted.total).row(row)


def vllm_request(row: Row) -> dict[str, Any]:
    """A row as the stages of vLLM want it: messages for the chat template, parameters for the engine."""
    body = orjson.loads(row["asked"])
    messages, logprobs = body.pop("messages"), body.pop("logprobs", None)
    top = body.pop("top_logprobs", 0)
    body.pop("model")
    if "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    if logprobs:
        body["logprobs"] = top  # vLLM's 0: that of the token itself
    return {"messages": messages, "sampling_params": body}


def vllm_told(row: Row) -> dict[str, Any]:
    """A row with vLLM's output -> what came of it.

    Ray doesn't pass on why a response ended: one that has all the tokens it may have counts as cut off.
    """
    asked = orjson.loads(row["asked"])
    cap, count = cap_of(asked), int(row["num_generated_tokens"])
    tokens = _tokens(row, alternatives=bool(asked.get("top_logprobs")))
    response = Response(
        text=row["generated_text"],
        finish_reason=None if cap is None else "length" if count >= cap else "stop",
        tokens=count,
        logprob=None if tokens is None else logprob_of(tokens),
        entropy=None if tokens is None else entropy_of(tokens),
    )
    seconds = max(0.0, float(row.get("time_taken_llm") or 0.0))
    return replace(
        _of(response, prompt_tokens=int(row["num_input_tokens"]), completion_tokens=count), seconds=seconds
    ).row(row)


def drawn_of(row: Row) -> Drawn:
    """A row that came back, with or without a sample, as a pool keeps it."""
    index, error = int(row["index"]), row.get(ERROR) or None
    told = _Told(error=one_line(str(error))) if error else _Told(**orjson.loads(row["told"]))
    at = time.time()
    call = Call(
        at=at - told.seconds,
        seconds=told.seconds,
        asked=1,
        got=int(told.sample is not None),
        kind="ok" if told.sample is not None else "worker",
        paid="yes" if told.sample is not None else "no",
        prompt_tokens=told.prompt_tokens,
        completion_tokens=told.completion_tokens,
    )
    if told.sample is None:
        failure = Failure(index=index, kind="worker", message=told.error, at=at)
        return Drawn(row["problem"], (), [failure], [call])
    return Drawn(row["problem"], [(index, Sample(**told.sample))], (), [call])


def _of(response: Response, *, prompt_tokens: int | None, completion_tokens: int | None) -> _Told:
    kept = {name: value for name, value in asdict(response.sample()).items() if value is not None}
    return _Told(sample=kept, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def _tokens(row: Row, *, alternatives: bool) -> list[dict[str, Any]] | None:
    """vLLM's log-probabilities, by token and by id, in the shape of a chat completion's."""
    each = _plain(row.get("logprobs"))
    if not each:
        return None
    found = []
    for id_, known in zip(_plain(row["generated_tokens"]), each, strict=False):
        # on the way through Arrow an id may have become a text, and ids of other tokens have come along empty
        values = {str(key): value["logprob"] for key, value in known.items() if value is not None}
        if str(id_) not in values:
            return None
        token: dict[str, Any] = {"logprob": values[str(id_)]}
        if alternatives:
            token["top_logprobs"] = [{"logprob": value} for value in values.values()]
        found.append(token)
    return found or None


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever Arrow made of JSON data
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
