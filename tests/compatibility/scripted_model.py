"""A scripted model behind OpenAI's API, as a process: right most of the time, wrong at random, by a seed.

    python tests/compatibility/scripted_model.py --port 0        # prints its address first

It multiplies: "What is 6 times 7?" is answered in a sentence, by a call of the first tool, or as JSON by the
asked schema, whichever the request wants. One sample of four is wrong. What a sample says depends on the
question and on how often it was asked since the last POST /reset, so that two runs meet the same samples.
A prompt that names a code of `ERRORS` is refused with that error; one for a story gets a long text, slowly.
It has chat completions, responses, completions, embeddings and models, streams where it is asked to.
"""

import argparse
import asyncio
import base64
import collections
import json
import random
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SEED = 111
WRONG = 0.25  # share of the samples
GAP = 0.01  # seconds between the words of a story
MODELS = ("gpt-4o-mini", "gpt-4o", "text-embedding-3-small")
STORY = " ".join(f"Then, on day {day}, the sailor saw another island." for day in range(1, 9))
ERRORS: dict[str, tuple[int, dict[str, Any]]] = {
    "context_length_exceeded": (
        400,
        {
            "message": "This model's maximum context length is 128000 tokens. However, your messages "
            "resulted in 140012 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
    ),
    "model_not_found": (
        404,
        {
            "message": "The model `gpt-9` does not exist or you do not have access to it.",
            "type": "invalid_request_error",
            "param": None,
            "code": "model_not_found",
        },
    ),
    "content_filter": (
        400,
        {
            "message": "The response was filtered due to the prompt triggering the content "
            "management policy.",
            "type": "invalid_request_error",
            "param": "prompt",
            "code": "content_filter",
        },
    ),
    "rate_limit_exceeded": (
        429,
        {
            "message": "Rate limit reached for requests. Limit: 3 / min. Please try again in 20s.",
            "type": "requests",
            "param": None,
            "code": "rate_limit_exceeded",
        },
    ),
    "server_error": (
        500,
        {
            "message": "The server had an error while processing your request. Sorry about that!",
            "type": "server_error",
            "param": None,
            "code": None,
        },
    ),
}


@dataclass(frozen=True)
class Ask:
    """What a request wants, whichever route it came by."""

    question: str  # the last message of the user
    prompt: str  # all messages
    result: str | None = None  # of a tool, where that is the last message
    tools: tuple[dict[str, Any], ...] = ()  # name and parameters of each
    schema: dict[str, Any] | None = None  # of the JSON that is asked for
    json: bool = False  # JSON is asked for, by this schema or by one in the prompt

    @property
    def key(self) -> str:
        """Samples of one key are drawn one after the other."""
        form = "tool" if self.tools else "json" if self.json else "text"
        return f"{form}/{self.result is None}/{self.factors}/{self.question if not self.factors else ''}"

    @property
    def factors(self) -> tuple[int, int] | None:
        """The numbers to multiply."""
        found = re.findall(r"(\d+) times (\d+)", self.question)
        return (int(found[-1][0]), int(found[-1][1])) if found else None


@dataclass(frozen=True)
class Sample:
    """One answer: a text, or a call of a tool."""

    text: str = ""
    tool: str = ""
    arguments: str = ""
    gap: float = 0.0  # seconds between its words, in a stream

    @property
    def words(self) -> list[str]:
        return re.findall(r"\S+\s*|\s+", self.text or self.arguments) or [""]


@dataclass
class Model:
    """Counts how often each question was asked, and draws the samples."""

    asked: collections.Counter[str] = field(default_factory=collections.Counter)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def draw(self, ask: Ask) -> Sample:
        """The next sample of this question."""
        self.asked[ask.key] += 1
        chance = random.Random(f"{SEED}/{ask.key}/{self.asked[ask.key]}")
        return answer(ask, wrong=chance.randint(1, 5) if chance.random() < WRONG else 0)


def answer(ask: Ask, *, wrong: int) -> Sample:
    """An answer in the form that is asked for; `wrong`: by how much a factor of it is."""
    if "story" in ask.question:
        return Sample(STORY, gap=GAP)
    if ask.result is not None:
        found = re.findall(r"\d+", ask.result)
        return Sample(f"The answer is {int(found[-1]) + 10 * wrong if found else ask.result}.")
    left, right = ask.factors or (1, 1)
    right += wrong
    if ask.tools:
        tool = ask.tools[0]
        return Sample(tool=tool["name"], arguments=json.dumps(fill(tool["parameters"], left, right)))
    if ask.json:
        schema = ask.schema or schema_in(ask.prompt)
        return Sample(json.dumps(fill(schema, left, right)))
    if "[[ ## completed ## ]]" in ask.prompt:
        return Sample(dspy_fields(ask.question, left * right))
    if "answer.txt" in ask.question:
        return Sample(f"answer.txt\n```\n{left * right}\n```\n")
    return Sample(f"{left} times {right - wrong} is {left * right}.")


def fill(schema: dict[str, Any], left: int, right: int) -> Any:
    """A value of a JSON schema: `a` and `b` are the factors, every other number or text their product."""
    definitions = schema.get("$defs", {})

    def value(part: dict[str, Any], name: str) -> Any:
        if "$ref" in part:
            part = definitions[part["$ref"].rpartition("/")[2]]
        if "enum" in part:
            return part["enum"][0]
        for choice in part.get("anyOf", ()):
            if choice.get("type") != "null":
                return value(choice, name)
        kind = part.get("type", "object")
        if kind == "object":
            return {key: value(inner, key) for key, inner in part.get("properties", {}).items()}
        if kind == "array":
            return [value(part.get("items", {}), name)]
        number = {"a": left, "b": right}.get(name, left * right)
        return {"integer": number, "number": number, "boolean": True}.get(kind, str(number))

    return value(schema, "")


def schema_in(prompt: str) -> dict[str, Any]:
    """The first JSON schema that stands in a prompt."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", prompt):
        try:
            found, _ = decoder.raw_decode(prompt, match.start())
        except ValueError:
            continue
        if "properties" in found:
            return found
    return {"type": "object", "properties": {"answer": {"type": "integer"}}}


def dspy_fields(question: str, value: int) -> str:
    """The fields that DSPy asks for, the last of them the answer."""
    asked = question.rpartition("Respond with")[2]
    names = [name for name in re.findall(r"\[\[ ## (\w+) ## \]\]", asked) if name != "completed"]
    fields = [f"[[ ## {name} ## ]]\n{value if name == names[-1] else 'One multiplies.'}" for name in names]
    return "\n\n".join([*fields, "[[ ## completed ## ]]"])


def text_of(content: Any) -> str:
    """The text of a message's content."""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content or ())


def read_chat(body: dict[str, Any]) -> Ask:
    """What a request for a chat completion wants."""
    messages = body["messages"]
    users = [text_of(message.get("content")) for message in messages if message["role"] == "user"]
    last = messages[-1]
    form = body.get("response_format") or {}
    return Ask(
        question=users[-1] if users else "",
        prompt="\n".join(text_of(message.get("content")) for message in messages),
        result=text_of(last.get("content")) if last["role"] == "tool" else None,
        tools=()
        if body.get("tool_choice") == "none"
        else tuple(t["function"] for t in body.get("tools") or ()),
        schema=form.get("json_schema", {}).get("schema"),
        json=form.get("type") in ("json_schema", "json_object"),
    )


def read_response(body: dict[str, Any]) -> Ask:
    """What a request for a response wants."""
    items = body["input"]
    if isinstance(items, str):
        items = [{"role": "user", "content": items}]
    users = [text_of(item.get("content")) for item in items if item.get("role") == "user"]
    last = items[-1]
    form = (body.get("text") or {}).get("format") or {}
    return Ask(
        question=users[-1] if users else "",
        prompt="\n".join([body.get("instructions") or "", *(text_of(item.get("content")) for item in items)]),
        result=text_of(last["output"]) if last.get("type") == "function_call_output" else None,
        tools=tuple(tool for tool in body.get("tools") or () if tool["type"] == "function"),
        schema=form.get("schema"),
        json=form.get("type") in ("json_schema", "json_object"),
    )


def refusal(ask: Ask, prompt: str = "messages") -> Response | None:
    """The error that the prompt names, if any; `prompt` is the field that the route has it in."""
    for code, (status, error) in ERRORS.items():
        if code in ask.question:
            error = error | {"param": prompt if error["param"] == "messages" else error["param"]}
            headers = {"retry-after-ms": "10"} if status == 429 else {}
            return JSONResponse({"error": error}, status, headers=headers)
    return None


def usage(ask: Ask, samples: list[Sample]) -> tuple[int, int]:
    """Tokens of the prompt and of the samples: words."""
    return max(1, len(ask.prompt.split())), sum(len(sample.words) + REASONING for sample in samples)


REASONING = 3  # hidden tokens of each sample


def chat_usage(ask: Ask, samples: list[Sample]) -> dict[str, Any]:
    given, made = usage(ask, samples)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": REASONING * len(samples), "audio_tokens": 0},
    }


def logprobs_of(sample: Sample, tops: int) -> dict[str, Any]:
    """Log-probabilities of a sample's words, all alike: they tell nothing of what is right."""
    return {
        "content": [
            {
                "token": word,
                "logprob": -0.2,
                "bytes": list(word.encode()),
                "top_logprobs": [{"token": word, "logprob": -0.2, "bytes": None}][:tops],
            }
            for word in sample.words
        ],
        "refusal": None,
    }


def message_of(sample: Sample, number: int) -> dict[str, Any]:
    """A sample as a message of a chat."""
    message: dict[str, Any] = {"role": "assistant", "content": sample.text or None, "refusal": None}
    if sample.tool:
        function = {"name": sample.tool, "arguments": sample.arguments}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    return message


def chat_reply(body: dict[str, Any], ask: Ask, samples: list[Sample], number: int) -> dict[str, Any]:
    """A chat completion."""
    choices = []
    for index, sample in enumerate(samples):
        choice = {
            "index": index,
            "message": message_of(sample, number),
            "logprobs": logprobs_of(sample, body.get("top_logprobs") or 0) if body.get("logprobs") else None,
            "finish_reason": "tool_calls" if sample.tool else "stop",
        }
        choices.append(choice)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": f"{body['model']}-2026-01-01",
        "choices": choices,
        "usage": chat_usage(ask, samples),
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


async def chat_events(
    body: dict[str, Any], ask: Ask, samples: list[Sample], number: int
) -> AsyncIterator[str]:
    """A chat completion as a stream of chunks."""
    head = {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": f"{body['model']}-2026-01-01",
        "system_fingerprint": "fp_scripted",
    }
    for index, sample in enumerate(samples):
        first: dict[str, Any] = {"role": "assistant", "content": None if sample.tool else ""}
        if sample.tool:
            function = {"name": sample.tool, "arguments": ""}
            call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            first["tool_calls"] = [call]
        yield event({**head, "choices": [chunk_choice(index, first)]})
        tokens = logprobs_of(sample, body.get("top_logprobs") or 0)["content"]
        for word, token in zip(sample.words, tokens, strict=True):
            delta: dict[str, Any] = {"content": word}
            if sample.tool:
                delta = {"tool_calls": [{"index": 0, "function": {"arguments": word}}]}
            choice = chunk_choice(index, delta)
            if body.get("logprobs"):
                choice["logprobs"] = {"content": [token], "refusal": None}
            yield event({**head, "choices": [choice]})
            await asyncio.sleep(sample.gap)
        yield event({**head, "choices": [chunk_choice(index, {}, "tool_calls" if sample.tool else "stop")]})
    if (body.get("stream_options") or {}).get("include_usage"):
        yield event({**head, "choices": [], "usage": chat_usage(ask, samples)})
    yield "data: [DONE]\n\n"


def chunk_choice(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}


def event(value: dict[str, Any], name: str = "") -> str:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(value)}\n\n"


def output_item(sample: Sample, number: int, *, empty: bool = False) -> dict[str, Any]:
    """A sample as an item of a response."""
    status = "in_progress" if empty else "completed"
    if sample.tool:
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_{number}",
            "name": sample.tool,
            "arguments": "" if empty else sample.arguments,
            "status": status,
        }
    content = [] if empty else [output_text(sample.text)]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": status,
        "content": content,
    }


def output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def response_object(
    body: dict[str, Any], ask: Ask, samples: list[Sample], number: int, *, done: bool = True
) -> dict[str, Any]:
    """A response; `done`: with what came of it."""
    given, made = usage(ask, samples)
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "completed" if done else "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "model": f"{body['model']}-2026-01-01",
        "output": [output_item(sample, number) for sample in samples] if done else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": True,
        "temperature": 1.0,
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": given,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": REASONING * len(samples)},
            "total_tokens": given + made,
        }
        if done
        else None,
        "user": None,
        "metadata": {},
    }


def response_steps(
    body: dict[str, Any], ask: Ask, sample: Sample, number: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a streamed response, each with its name."""
    begun = response_object(body, ask, [sample], number, done=False)
    item, place = f"{'fc' if sample.tool else 'msg'}_{number}", {"output_index": 0}
    text_place = {**place, "item_id": item, "content_index": 0}
    yield "response.created", {"response": begun}
    yield "response.in_progress", {"response": begun}
    yield "response.output_item.added", {**place, "item": output_item(sample, number, empty=True)}
    if sample.tool:
        for word in sample.words:
            yield "response.function_call_arguments.delta", {**place, "item_id": item, "delta": word}
        done = {**place, "item_id": item, "name": sample.tool, "arguments": sample.arguments}
        yield "response.function_call_arguments.done", done
    else:
        yield "response.content_part.added", {**text_place, "part": output_text("")}
        for word in sample.words:
            yield "response.output_text.delta", {**text_place, "delta": word, "logprobs": []}
        yield "response.output_text.done", {**text_place, "text": sample.text, "logprobs": []}
        yield "response.content_part.done", {**text_place, "part": output_text(sample.text)}
    yield "response.output_item.done", {**place, "item": output_item(sample, number)}
    yield "response.completed", {"response": response_object(body, ask, [sample], number)}


async def response_events(body: dict[str, Any], ask: Ask, sample: Sample, number: int) -> AsyncIterator[str]:
    """A response as a stream."""
    for order, (name, value) in enumerate(response_steps(body, ask, sample, number)):
        yield event({"type": name, "sequence_number": order, **value}, name)
        if name.endswith(".delta"):
            await asyncio.sleep(sample.gap)


def build_app() -> Starlette:
    """The server."""
    model = Model()

    async def chat(request: Request) -> Response:
        body = await request.json()
        ask = read_chat(body)
        if (error := refusal(ask)) is not None:
            return error
        samples = [model.draw(ask) for _ in range(body.get("n") or 1)]
        number = next(model.numbers)
        if body.get("stream"):
            return StreamingResponse(chat_events(body, ask, samples, number), media_type="text/event-stream")
        return JSONResponse(chat_reply(body, ask, samples, number))

    async def responses(request: Request) -> Response:
        body = await request.json()
        ask = read_response(body)
        if (error := refusal(ask, "input")) is not None:
            return error
        sample, number = model.draw(ask), next(model.numbers)
        if body.get("stream"):
            return StreamingResponse(
                response_events(body, ask, sample, number), media_type="text/event-stream"
            )
        return JSONResponse(response_object(body, ask, [sample], number))

    async def reset(_: Request) -> Response:
        model.asked.clear()
        return JSONResponse({})

    routes = [
        Route("/v1/chat/completions", chat, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/models", models),
        Route("/v1/models/{name}", one_model),
        Route("/reset", reset, methods=["POST"]),
    ]
    return Starlette(routes=routes)


async def completions(request: Request) -> Response:
    """The older API: the product, as a bare number."""
    body = await request.json()
    ask = Ask(question=body["prompt"], prompt=body["prompt"])
    if (error := refusal(ask)) is not None:
        return error
    left, right = ask.factors or (1, 1)
    choice = {"index": 0, "text": f" {left * right}", "logprobs": None, "finish_reason": "stop"}
    used = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": body["model"]}
    return JSONResponse({**head, "choices": [choice], "usage": used})


async def embeddings(request: Request) -> Response:
    """Vectors of 8 numbers, by the text alone."""
    body = await request.json()
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = []
    for index, text in enumerate(texts):
        drawn = random.Random(str(text))
        vector: Any = [drawn.uniform(-1.0, 1.0) for _ in range(8)]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack("<8f", *vector)).decode()
        data.append({"object": "embedding", "index": index, "embedding": vector})
    used = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return JSONResponse({"object": "list", "data": data, "model": body["model"], "usage": used})


def model_object(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "scripted",
        "context_window": 128_000,
    }


async def models(_: Request) -> Response:
    return JSONResponse({"object": "list", "data": [model_object(name) for name in MODELS]})


async def one_model(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in MODELS:
        status, error = ERRORS["model_not_found"]
        return JSONResponse({"error": error}, status)
    return JSONResponse(model_object(name))


def main() -> None:
    parser = argparse.ArgumentParser(description="A scripted model behind OpenAI's API, on loopback.")
    parser.add_argument("--port", type=int, default=0)
    asked = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", asked.port), backlog=256)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/v1", flush=True)
    config = uvicorn.Config(build_app(), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
