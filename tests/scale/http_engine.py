"""The engine of `--vllm` with Ray's stage of HTTP requests in the place of vLLM's, which needs a GPU."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adacompute.client.response_parser import build_responses, parse_choices, parse_count, read_token_cap
from adacompute.client.server_quirks import ModelQuirks
from adacompute.errors import ReplyInvalid
from adacompute.scale.vllm import RowResult, VllmEngine, build_result, to_plain


def build_chat_payload(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the stage of HTTP requests expects it."""
    return {"payload": orjson.loads(row["request"])}


def parse_chat_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Turns a row with the reply of a chat completion into its result."""
    body, reply = orjson.loads(row["request"]), to_plain(row["http_response"])
    try:
        choices, _ = parse_choices(reply)
    except ReplyInvalid as exc:
        return RowResult(error=str(exc)).to_row(row)
    responses, token_count = build_responses(
        choices, reply, requested=1, cap=read_token_cap(body), quirks=ModelQuirks()
    )
    usage = reply.get("usage")
    prompt = parse_count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    result = build_result(responses[0], row, prompt_tokens=prompt, completion_tokens=token_count.total)
    return result.to_row(row)


@dataclass(frozen=True, kw_only=True)
class HttpEngine(VllmEngine):
    """Draws from a chat completions endpoint without a key, by Ray's own requests, not our client's."""

    model: str = ""
    url: str  # with /v1
    width: int = 8  # type: ignore[assignment] # a field here

    def __post_init__(self) -> None:
        """Needs no vLLM."""

    def build_processor(self, processors: int) -> Any:
        from ray import cloudpickle
        from ray.data.llm import HttpRequestProcessorConfig, build_processor

        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers can't import it
        url = f"{self.url.rstrip('/')}/chat/completions"
        config = HttpRequestProcessorConfig(url=url, concurrency=self.workers, batch_size=1)
        return build_processor(config, preprocess=build_chat_payload, postprocess=parse_chat_row)
