"""A LiteLLM provider: `adacompute/MODEL` samples MODEL several times, within an average budget.

    import litellm
    from adacompute.integrations.litellm import register

    register()
    litellm.completion("adacompute/qwen", messages=[...], api_base="http://127.0.0.1:8081/v1", budget=3)

In the proxy's YAML:

    litellm_settings:
      custom_provider_map:
        - {provider: adacompute, custom_handler: adacompute.integrations.litellm.provider}

LiteLLM counts the usage of every sample and prices it as usual. `budget` and `policy` mean the same as for
`adacompute.Asker`; calls with the same endpoint, key, model, budget and policy share an average. A streamed
reply has one chunk with the text that won the vote.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import litellm
from litellm.llms.custom_llm import CustomLLM, CustomLLMError
from litellm.types.utils import GenericStreamingChunk, ModelResponse

from adacompute.errors import AdacomputeError, EndpointError, ServeError
from adacompute.serve.ask.asker import Asker
from adacompute.serve.ask.prompt_engine import Reply

__all__ = ["AdacomputeLLM", "provider", "register"]

_OWN = ("budget", "policy")  # parameters for `Asker`, which aren't sent to the endpoint
# parameters that only affect the reply to the client, so they aren't sent to the endpoint
_STREAM = ("stream", "stream_options", "n")
_NO_KEY = "none"  # sent if no key is given, because local endpoints don't check it
_ASKERS = 64  # maximum number of `Asker` objects; a call that would need another one is refused


class AdacomputeLLM(CustomLLM):
    """Answers LiteLLM's calls with `Asker`s, one per endpoint, model, key, budget and policy."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._askers: dict[tuple[Any, ...], Asker] = {}

    def completion(self, **call: Any) -> ModelResponse:  # noqa: ANN401 - LiteLLM's parameters
        """Samples the model several times and returns the completion that won the vote."""
        asker, fields = self._open(**call)
        try:
            return _build_response(asker.ask(call["messages"], options=fields), call["model_response"])
        except AdacomputeError as exc:
            raise _convert_error(exc) from exc

    async def acompletion(self, **call: Any) -> ModelResponse:  # noqa: ANN401
        """Like `completion`, asynchronously."""
        asker, fields = await asyncio.to_thread(lambda: self._open(**call))
        try:
            reply = await asker.ask_async(call["messages"], options=fields)
        except AdacomputeError as exc:
            raise _convert_error(exc) from exc
        return _build_response(reply, call["model_response"])

    def streaming(self, **call: Any) -> Iterator[GenericStreamingChunk]:  # noqa: ANN401
        """Yields the completion that won the vote: its tool calls, then the text in one chunk."""
        yield from _build_chunks(self.completion(**call))

    async def astreaming(self, **call: Any) -> AsyncIterator[GenericStreamingChunk]:  # noqa: ANN401
        """Like `streaming`, asynchronously."""
        for chunk in _build_chunks(await self.acompletion(**call)):
            yield chunk

    def _open(
        self,
        *,
        model: str,
        api_base: str | None,
        api_key: str | None,
        optional_params: dict[str, Any],
        **_: Any,  # noqa: ANN401
    ) -> tuple[Asker, dict[str, Any]]:
        """Returns the `Asker` for a call, and the request fields other than the messages."""
        fields = {**optional_params, **(optional_params.get("extra_body") or {})}
        fields.pop("extra_body", None)
        own = {name: fields.pop(name) for name in _OWN if name in fields}
        for name in _STREAM:
            fields.pop(name, None)
        place = (model, api_base, api_key, *sorted(own.items()))
        with self._lock:
            asker = self._askers.get(place)
            if asker is None:
                if len(self._askers) >= _ASKERS:
                    raise CustomLLMError(400, f"more than {_ASKERS} endpoints, models and budgets are in use")
                try:
                    asker = Asker(api_base, model=model, key=api_key or _NO_KEY, **own)
                except AdacomputeError as exc:
                    raise _convert_error(exc) from exc
                self._askers[place] = asker
        return asker, fields


provider = AdacomputeLLM()


def register(name: str = "adacompute") -> None:
    """Makes LiteLLM accept models named `NAME/MODEL` in this process."""
    others = [each for each in litellm.custom_provider_map if each["provider"] != name]
    litellm.custom_provider_map = [*others, {"provider": name, "custom_handler": provider}]
    if name not in litellm.provider_list:
        litellm.provider_list.append(name)
    if name not in litellm._custom_providers:
        litellm._custom_providers.append(name)


def _build_response(reply: Reply, response: ModelResponse) -> ModelResponse:
    has_calls = bool(reply.message.get("tool_calls"))
    choice = response.choices[0]
    choice.message = litellm.Message(**{"role": "assistant", **reply.message})
    choice.finish_reason = "tool_calls" if has_calls else "stop"
    response.usage = litellm.Usage(**reply.usage)
    response.model = reply.model
    return response


def _build_chunks(response: ModelResponse) -> Iterator[GenericStreamingChunk]:
    """Yields a chunk for each tool call, then a chunk with the text, the finish reason and the usage."""
    choice = response.choices[0]
    usage = response.usage.model_dump()
    for index, call in enumerate(choice.message.tool_calls or []):
        tool = {**call.model_dump(), "index": index}
        yield GenericStreamingChunk(
            text="", is_finished=False, finish_reason="", index=0, tool_use=tool, usage=None
        )
    yield GenericStreamingChunk(
        text=choice.message.content or "",
        is_finished=True,
        finish_reason=choice.finish_reason,
        index=0,
        tool_use=None,
        usage=usage,
    )


def _convert_error(error: AdacomputeError) -> CustomLLMError:
    status = error.status if isinstance(error, ServeError | EndpointError) else 400
    return CustomLLMError(status or 503, str(error))
