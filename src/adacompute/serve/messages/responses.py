"""The Responses API on top of chat completions: translates the request, and builds the reply.

A request that a chat can't express, e.g. with server-side tools, raises `UntranslatableRequest`. Chats aren't
stored, so a reply says `store: false`, and its id can't be referenced. Fields unknown to the Responses API go
upstream unchanged.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from adacompute.client.large_json import Alternative
from adacompute.errors import EndpointError, RequestInvalid
from adacompute.serve.messages.reply import get_object, list_objects
from adacompute.serve.messages.request_parser import ChatRequest

Body = dict[str, Any]

_STATEFUL = ("previous_response_id", "conversation", "background", "prompt")
_FOREIGN = ("moderation", "access_programs", "image", "context_management", "prompt_cache_options")
# fields of the request that are handled here, and aren't sent upstream under these names
_OWN_FIELDS = frozenset(
    {
        *("input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
        *("max_output_tokens", "max_tool_calls", "metadata", "store", "truncation", "include", "stream"),
        *("stream_options", "top_logprobs", *_STATEFUL, *_FOREIGN),
    }
)
_LOGPROBS = "message.output_text.logprobs"  # value of the field `include` that asks for log-probabilities
_TEXT_PARTS = ("input_text", "output_text", "text")
_ROLES = ("user", "assistant", "system", "developer")
_DETAILS = ("auto", "low", "high")
# map: the chat's finish_reason -> the response's reason for being incomplete
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_TOOL_CHOICES = ("none", "auto", "required")
# fields of the request that its response repeats unchanged
_REPEATED_FIELDS = (
    *("instructions", "max_output_tokens", "max_tool_calls", "prompt_cache_key", "safety_identifier"),
    *("temperature", "top_p", "user"),
)


class UntranslatableRequest(Exception):
    """A request that a chat completion can't or shouldn't answer.

    `field` is the request's field that is the reason; `body` is the whole request.
    """

    def __init__(self, field: str, *, needed: bool = True, refusal: EndpointError | None = None) -> None:
        super().__init__(field)
        self.field = field
        self.body: Body = {}
        self.needed = needed  # whether only the Responses API can answer; False: a chat could, too
        self.refusal = refusal  # the upstream's error, if the request was first sent as a chat completion


def translate_request(body: Body) -> Body:
    """Translates the body of a request to that of a chat completion.

    Raises RequestInvalid if the body is invalid, UntranslatableRequest if a chat can't express it.

    >>> translate_request({"model": "m", "input": "Hi", "instructions": "Be brief."})["messages"]
    [{'role': 'system', 'content': 'Be brief.'}, {'role': 'user', 'content': 'Hi'}]
    """
    _check_types(body)
    for name in (*_STATEFUL, *_FOREIGN):
        if body.get(name) not in (None, False):
            raise UntranslatableRequest(name)
    chat = {name: value for name, value in body.items() if name not in _OWN_FIELDS}
    chat["messages"] = _translate_input(body.get("input"), body.get("instructions"))
    chat |= _translate_tools(body) | _translate_text(body.get("text") or {}) | _translate_logprobs_wish(body)
    if (limit := body.get("max_output_tokens")) is not None:
        chat["max_tokens"] = limit  # renamed later if the model expects another name
    if (effort := (body.get("reasoning") or {}).get("effort")) is not None:
        chat["reasoning_effort"] = effort
    if body.get("stream"):
        options = body.get("stream_options") or {}
        chat |= {"stream": True, "stream_options": {**options, "include_usage": True}}
    return chat


_TYPES: Mapping[str, tuple[type, str]] = {
    "instructions": (str, "a text"),
    "tools": (list, "a list"),
    "text": (dict, "an object"),
    "reasoning": (dict, "an object"),
    "metadata": (dict, "an object of texts"),
    "stream": (bool, "true or false"),
    "stream_options": (dict, "an object"),
    "store": (bool, "true or false"),
    "parallel_tool_calls": (bool, "true or false"),
    "include": (list, "a list"),
    "user": (str, "a text"),
    "safety_identifier": (str, "a text"),
    "prompt_cache_key": (str, "a text"),
    "max_tool_calls": (int, "a whole number"),
}


def _check_types(body: Body) -> None:
    for name, (kind, words) in _TYPES.items():
        if body.get(name) is not None and type(body[name]) is not kind:
            if name == "instructions" and isinstance(body[name], list):
                raise UntranslatableRequest(name)
            raise _make_invalid(name, f"give {words}")
    if not all(isinstance(value, str) for value in (body.get("metadata") or {}).values()):
        raise _make_invalid("metadata", "give an object of texts")
    if body.get("truncation") not in (None, "auto", "disabled"):
        raise _make_invalid("truncation", "give auto or disabled")
    for name, remedy in _REPLACEMENTS.items():
        if body.get(name) is not None:
            raise RequestInvalid(
                f"{name} belongs to chat completions; {remedy}, or POST /v1/chat/completions",
                param=name,
            )


_RENAMED = {  # map: field of a chat request -> field of the Responses API that is translated to it
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "messages": "input",
}
_REPLACEMENTS = {name: f"give {ours}" for name, ours in _RENAMED.items() if name != "reasoning_effort"} | {
    "n": "leave it out"
}
# finds a chat field's name in an error message, but not `max_tokens` if it means the operator's setting
_NAMES = re.compile(rf"(?<!the operator for a larger )(?<![\w.])({'|'.join(_RENAMED)})(?!\w)")


def translate_names(text: str) -> str:
    """Replaces the names of a chat's fields in an error with the Responses API's names.

    >>> translate_names("max_completion_tokens is 0; give 1 to 9")
    'max_output_tokens is 0; give 1 to 9'
    >>> translate_names("max_tokens is 10; give 1 to 9, or ask the operator for a larger max_tokens")
    'max_output_tokens is 10; give 1 to 9, or ask the operator for a larger max_tokens'
    """
    return _NAMES.sub(lambda match: _RENAMED[match[1]], text)


def _make_invalid(place: str, remedy: str) -> RequestInvalid:
    return RequestInvalid(f"{place} can't be read; {remedy}", param=place)


# --- translating the input ---


def _translate_input(items: object, instructions: str | None) -> list[Body]:
    """Translates the request's input to the messages of a chat."""
    messages: list[Body] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(items, str):
        return [*messages, {"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        problem = "is missing" if items is None else "is empty or no list"
        raise RequestInvalid(f"input {problem}; give a text, or a list of items", param="input")
    for number, item in enumerate(items):
        _add_item(messages, item, f"input[{number}]")
    return messages


def _add_item(messages: list[Body], item: object, place: str) -> None:
    """Adds an input item to the messages."""
    if not isinstance(item, dict):
        raise _make_invalid(place, "give an object with a role, or with a type")
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "message":
        messages.append(_translate_message(item, place))
    elif kind == "function_call":
        _add_call(messages, item, place)
    elif kind == "function_call_output":
        messages.append(_translate_call_output(item, place))
    elif not isinstance(kind, str):
        raise _make_invalid(place, "give an object with a role, or with a type")
    elif kind != "reasoning":  # reasoning is dropped: only the server that made it can read it
        raise UntranslatableRequest(f"{place}.type {kind[:60]!r}")


def _translate_message(item: Body, place: str) -> Body:
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise _make_invalid(f"{place}.role", f"give one of {', '.join(_ROLES)}")
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, list):
        raise _make_invalid(f"{place}.content", "give a text, or a list of parts")
    parts = [_translate_part(part, f"{place}.content[{number}]") for number, part in enumerate(content)]
    texts = [part["text"] for part in parts if part["type"] == "text"]
    if role == "assistant" or len(parts) == 1:  # joined into one text: some servers refuse a list of parts
        if len(texts) == len(parts):
            return {"role": role, "content": "".join(texts)}
        refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
        if len(texts) + len(refusals) == len(parts):
            return {"role": role, "content": "".join(texts) or None, "refusal": "".join(refusals)}
    return {"role": role, "content": parts}


def _translate_part(part: object, place: str) -> Body:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise _make_invalid(place, "give an object with a type, such as input_text")
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": _read_text(part, "text", place)}
    if kind == "refusal":
        return {"type": "refusal", "refusal": _read_text(part, "refusal", place)}
    if kind == "input_image" and part.get("file_id") is None:
        detail = {"detail": part["detail"]} if part.get("detail") in _DETAILS else {}
        return {"type": "image_url", "image_url": {"url": _read_text(part, "image_url", place), **detail}}
    if kind == "input_file" and part.get("file_url") is None:
        return {"type": "file", "file": _select_given(part, "file_id", "file_data", "filename")}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": part.get("input_audio")}
    raise UntranslatableRequest(f"{place}.type {kind[:60]!r}")


def _select_given(value: Body, *names: str) -> Body:
    return {name: value[name] for name in names if value.get(name) is not None}


def _read_text(value: Body, name: str, place: str) -> str:
    if not isinstance(text := value.get(name), str):
        raise _make_invalid(f"{place}.{name}", "give a text")
    return text


def _add_call(messages: list[Body], item: Body, place: str) -> None:
    """Adds a tool call to the previous message if that is the assistant's, otherwise as a new message."""
    function = {"name": _read_text(item, "name", place), "arguments": _read_text(item, "arguments", place)}
    call = {"id": _read_text(item, "call_id", place), "type": "function", "function": function}
    last = messages[-1] if messages else None
    if last is not None and last["role"] == "assistant" and not last.get("refusal"):
        last.setdefault("tool_calls", []).append(call)
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _translate_call_output(item: Body, place: str) -> Body:
    output = item.get("output")
    if isinstance(output, list):
        parts = [_translate_part(part, f"{place}.output[{number}]") for number, part in enumerate(output)]
        if any(part["type"] != "text" for part in parts):
            raise UntranslatableRequest(f"{place}.output")
        output = "".join(part["text"] for part in parts)
    if not isinstance(output, str):
        raise _make_invalid(f"{place}.output", "give a text")
    return {"role": "tool", "tool_call_id": _read_text(item, "call_id", place), "content": output}


# --- translating tools and formats ---


def _translate_tools(body: Body) -> Body:
    tools, choice = body.get("tools") or [], body.get("tool_choice")
    translated = [_translate_tool(tool, f"tools[{number}]") for number, tool in enumerate(tools)]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        translated, choice = _select_allowed(translated, choice)
    chat: Body = {} if choice is None else {"tool_choice": _translate_choice(choice)}
    if not translated:
        return {}
    chat["tools"] = translated
    if body.get("parallel_tool_calls") is not None:
        chat["parallel_tool_calls"] = body["parallel_tool_calls"]
    return chat


def _translate_tool(tool: object, place: str) -> Body:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(kind, str):
        raise _make_invalid(place, "give an object with a type, such as function")
    if kind != "function" or tool.get("defer_loading"):
        raise UntranslatableRequest(f"{place}.type {kind[:60]!r}")
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise _make_invalid(f"{place}.parameters", "give a JSON schema")
    rest = _select_given(tool, "description", "parameters", "strict")
    return {"type": "function", "function": {"name": _read_text(tool, "name", place), **rest}}


def _translate_choice(choice: object) -> object:
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise UntranslatableRequest("tool_choice")
        return {"type": "function", "function": {"name": _read_text(choice, "name", "tool_choice")}}
    if choice not in _TOOL_CHOICES:
        raise _make_invalid("tool_choice", f"give one of {', '.join(_TOOL_CHOICES)}, or a function")
    return choice


def _select_allowed(tools: list[Body], choice: Body) -> tuple[list[Body], object]:
    """Selects the tools that may be called; the model doesn't see the others."""
    entries = choice.get("tools")
    if not isinstance(entries, list) or choice.get("mode") not in ("auto", "required"):
        raise _make_invalid("tool_choice", "give mode and tools")
    if not all(isinstance(entry, dict) and entry.get("type") == "function" for entry in entries):
        raise UntranslatableRequest("tool_choice")
    names = {_read_text(entry, "name", f"tool_choice.tools[{at}]") for at, entry in enumerate(entries)}
    return [tool for tool in tools if tool["function"]["name"] in names], choice["mode"]


def _translate_text(text: Body) -> Body:
    chat: Body = {} if text.get("verbosity") is None else {"verbosity": text["verbosity"]}
    form = text.get("format")
    if form is None:
        return chat
    if not isinstance(form, dict) or not isinstance(kind := form.get("type"), str):
        raise _make_invalid("text.format", "give text, json_object or json_schema as its type")
    if kind == "json_schema":
        schema = _select_given(form, "name", "description", "schema", "strict")
        return chat | {"response_format": {"type": kind, "json_schema": schema}}
    return chat if kind == "text" else chat | {"response_format": {"type": kind}}


def _translate_logprobs_wish(body: Body) -> Body:
    tops = body.get("top_logprobs")
    if _LOGPROBS not in (body.get("include") or []) and not tops:
        return {}
    return {"logprobs": True} | ({} if tops is None else {"top_logprobs": tops})


# --- building the reply ---


def make_id(kind: str) -> str:
    """Makes a new id, e.g. for a message: `msg_` and random digits."""
    return f"{kind}_{os.urandom(16).hex()}"


def describe_request(request: ChatRequest, reply_id: str, at: float) -> Body:
    """Builds a response that has just begun: it has the request's settings, but no output."""
    body: Mapping[str, Any] = request.original or {}
    reasoning, text = body.get("reasoning") or {}, body.get("text") or {}
    return {
        "id": reply_id,
        "object": "response",
        "created_at": int(at),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        **{name: body.get(name) for name in _REPEATED_FIELDS},
        "model": request.body["model"],
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "reasoning": {"effort": reasoning.get("effort"), "summary": None},
        "store": False,  # even if the client asked to store it
        "text": {"format": text.get("format") or {"type": "text"}}
        | ({"verbosity": text["verbosity"]} if "verbosity" in text else {}),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": [_describe_tool(tool) for tool in body.get("tools") or []],
        "top_logprobs": body.get("top_logprobs") or 0,
        "truncation": "disabled",  # the gateway never drops messages
        "usage": None,
        "metadata": body.get("metadata") or {},
    }


def _describe_tool(tool: Body) -> Body:
    return {"description": None, "parameters": None, "strict": False} | {
        name: value for name, value in tool.items() if value is not None
    }


def build_response(base: Body, completion: Mapping[str, Any], at: float) -> Body:
    """Builds the complete response from a chat completion; `base` comes from `describe_request`."""
    choice = next(iter(completion.get("choices") or [{}]))
    reason = choice.get("finish_reason")
    return finish_response(base, completion, make_output(choice), reason, at)


def finish_response(
    base: Body, completion: Mapping[str, Any], output: Sequence[Body], reason: str | None, at: float
) -> Body:
    """Adds the output and the status to a response. The status depends on the chat's finish_reason."""
    incomplete = _INCOMPLETE.get(reason or "")
    response = base | {
        "status": "incomplete" if incomplete else "completed",
        "completed_at": None if incomplete else int(at),
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "model": completion.get("model") or base["model"],
        "output": list(output),
        "usage": translate_usage(completion.get("usage") or {}),
    }
    if isinstance(tier := completion.get("service_tier"), str) and tier in _SERVICE_TIERS:
        response["service_tier"] = tier
    return response | ({"adacompute": completion["adacompute"]} if "adacompute" in completion else {})


_SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority")


def make_output(choice: Mapping[str, Any]) -> list[Body]:
    """Makes the output items of a chat's choice: reasoning, message, tool calls."""
    message = choice.get("message") or {}
    status = "incomplete" if choice.get("finish_reason") in _INCOMPLETE else "completed"
    items: list[Body] = []
    if thought := read_thought(message):
        items.append(make_reasoning(make_id("rs"), [{"type": "reasoning_text", "text": thought}], status))
    calls = list_objects(message, "tool_calls")
    text, refusal = message.get("content"), message.get("refusal")
    if text or refusal or not calls:
        logprobs = translate_logprobs(choice)
        parts = [make_text(text or "", logprobs)] if text or not refusal else []
        parts += [{"type": "refusal", "refusal": refusal}] if isinstance(refusal, str) and refusal else []
        items.append(make_message(make_id("msg"), parts, status))
    return [*items, *(make_call(make_id("fc"), call, status) for call in calls)]


def read_thought(message: Mapping[str, Any]) -> str:
    """Reads a model's reasoning from a message or part of one; servers use two names for the field."""
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str) and text:
            return text
    return ""


def make_reasoning(item_id: str, parts: Sequence[Body], status: str) -> Body:
    """Makes an output item for reasoning."""
    return {"id": item_id, "type": "reasoning", "summary": [], "content": list(parts), "status": status}


def make_message(item_id: str, parts: Sequence[Body], status: str) -> Body:
    """Makes an output item for a message."""
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": list(parts),
    }


def make_text(text: str, logprobs: Sequence[Body] = ()) -> Body:
    """Makes a text part of a message."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": list(logprobs)}


def make_call(item_id: str, call: Mapping[str, Any], status: str) -> Body:
    """Makes an output item for a chat's tool call."""
    function = get_object(call, "function")
    return {
        "id": item_id,
        "type": "function_call",
        "status": status,
        "call_id": _to_text(call.get("id")) or make_id("call"),
        "name": _to_text(function.get("name")),
        "arguments": _to_text(function.get("arguments")),
    }


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def translate_usage(usage: Mapping[str, Any]) -> Body:
    """Converts a chat's usage to the Responses API's format."""
    prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": prompt + completion,
    }


def translate_logprobs(choice: Mapping[str, Any]) -> list[Body]:
    """Converts the log-probabilities of a chat's choice to the Responses API's format."""
    return [_translate_token(token) for token in list_objects(get_object(choice, "logprobs"), "content")]


def _translate_token(token: Mapping[str, Any] | Alternative) -> Body:
    alternatives = list_objects(token, "top_logprobs")
    return _describe_token(token) | {"top_logprobs": [_describe_token(item) for item in alternatives]}


def _describe_token(token: Mapping[str, Any] | Alternative) -> Body:
    text, logprob, raw = _to_text(token.get("token")), token.get("logprob"), token.get("bytes")
    return {
        "token": text,
        "logprob": logprob if type(logprob) in (int, float) else 0.0,
        "bytes": raw if isinstance(raw, list) else list(text.encode("utf-8", "replace")),
    }
