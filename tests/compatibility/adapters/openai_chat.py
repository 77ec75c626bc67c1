"""openai-python, chat completions: the sync client, or with the variant `async` the async one."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

import cases

client = OpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0)
MULTIPLY = {
    "type": "function",
    "function": {
        "name": "multiply",
        "description": "Multiplies two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


class Product(BaseModel):
    answer: int


def messages(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def ask(text: str, model: str = cases.MODEL) -> str:
    reply = client.chat.completions.create(model=model, messages=messages(text))
    return reply.choices[0].message.content or ""


def stream(text: str) -> Iterator[str]:
    with client.chat.completions.create(model=cases.MODEL, messages=messages(text), stream=True) as chunks:
        for chunk in chunks:
            if chunk.choices:
                yield chunk.choices[0].delta.content or ""


def call_tool(text: str) -> str:
    """The model's call, and its answer to what the tool gives."""
    history = messages(text)
    first = client.chat.completions.create(model=cases.MODEL, messages=history, tools=[MULTIPLY])
    call = first.choices[0].message.tool_calls[0]
    assert first.choices[0].finish_reason == "tool_calls"
    given = json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] * given["b"])}
    history += [first.choices[0].message.model_dump(exclude_none=True), result]
    second = client.chat.completions.create(model=cases.MODEL, messages=history, tools=[MULTIPLY])
    return second.choices[0].message.content or ""


def parse(text: str) -> int:
    reply = client.chat.completions.parse(model=cases.MODEL, messages=messages(text), response_format=Product)
    assert reply.choices[0].message.parsed is not None
    return reply.choices[0].message.parsed.answer


def other_routes() -> dict[str, Any]:
    """Embeddings, the older completions, models, and what a reply says of itself."""
    vector = client.embeddings.create(model="text-embedding-3-small", input="hello").data[0].embedding
    text = client.completions.create(model=cases.MODEL, prompt=cases.question((3, 4))).choices[0].text
    listed = {model.id: model.model_dump() for model in client.models.list()}
    reply = client.chat.completions.create(
        model=cases.MODEL, messages=messages(cases.STORY), logprobs=True, top_logprobs=1
    )
    details = reply.usage.completion_tokens_details
    facts = {
        "embedding": [round(x, 4) for x in vector],
        "completion": text,
        "models": listed,
        "model": client.models.retrieve(cases.MODEL).model_dump(),
        "replied": reply.model,
        "fingerprint": reply.system_fingerprint,
        "reasoning": None if details is None else details.reasoning_tokens,
        "logprobs": len(reply.choices[0].logprobs.content) if reply.choices[0].logprobs else None,
    }
    return {"facts": facts}


async def at_once() -> dict[str, Any]:
    async with AsyncOpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0) as several:

        async def one(text: str) -> str:
            reply = await several.chat.completions.create(model=cases.MODEL, messages=messages(text))
            return reply.choices[0].message.content or ""

        answers = await asyncio.gather(*(one(cases.question(pair)) for pair in cases.MANY))
    return cases.score(cases.MANY, answers)


def run_async(coroutine: Any) -> Any:
    return loop.run_until_complete(coroutine)


def use_async() -> None:
    """Asks by the async client from here on."""
    global ask, stream
    several = AsyncOpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0)

    def ask(text: str, model: str = cases.MODEL) -> str:
        reply = run_async(several.chat.completions.create(model=model, messages=messages(text)))
        return reply.choices[0].message.content or ""

    def stream(text: str) -> Iterator[str]:
        chunks = run_async(
            several.chat.completions.create(model=cases.MODEL, messages=messages(text), stream=True)
        )
        while (chunk := run_async(anext(aiter(chunks), None))) is not None:
            if chunk.choices:
                yield chunk.choices[0].delta.content or ""


if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    tried = {
        "plain": lambda: cases.ask_all(ask),
        "stream": lambda: cases.read_streams(stream),
        "errors": lambda: cases.collect_errors(lambda text: ask(text, cases.FAILING)),
        "at once": lambda: run_async(at_once()),
    }
    if cases.VARIANT == "async":
        use_async()
    else:
        tried |= {
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "at once": lambda: cases.ask_at_once(ask),
            "other routes": other_routes,
        }
    cases.run(tried)
