"""openai-python, the responses API."""

import json
from collections.abc import Iterator
from typing import Any

from openai import OpenAI
from pydantic import BaseModel

import cases

client = OpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0)
MULTIPLY = {
    "type": "function",
    "name": "multiply",
    "description": "Multiplies two numbers.",
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}


class Product(BaseModel):
    answer: int


def ask(text: str, model: str = cases.MODEL) -> str:
    return client.responses.create(model=model, input=text).output_text


def stream(text: str) -> Iterator[str]:
    with client.responses.create(model=cases.MODEL, input=text, stream=True) as events:
        for event in events:
            if event.type == "response.output_text.delta":
                yield event.delta


def call_tool(text: str) -> str:
    """The model's call, and its answer to what the tool gives."""
    history: list[Any] = [{"role": "user", "content": text}]
    first = client.responses.create(model=cases.MODEL, input=history, tools=[MULTIPLY])
    (call,) = [item for item in first.output if item.type == "function_call"]
    given = json.loads(call.arguments)
    result = {"type": "function_call_output", "call_id": call.call_id, "output": str(given["a"] * given["b"])}
    history += [call.model_dump(exclude_none=True), result]
    return client.responses.create(model=cases.MODEL, input=history, tools=[MULTIPLY]).output_text


def parse(text: str) -> int:
    reply = client.responses.parse(model=cases.MODEL, input=text, text_format=Product)
    assert reply.output_parsed is not None
    return reply.output_parsed.answer


def stream_events() -> dict[str, Any]:
    """The kinds of events of a stream, and what a response says of itself."""
    with client.responses.stream(model=cases.MODEL, input=cases.STORY) as events:
        kinds = list(dict.fromkeys(event.type for event in events))
        final = events.get_final_response()
    reply = client.responses.create(model=cases.MODEL, input=cases.STORY)
    facts = {
        "events": kinds,
        "status": final.status,
        "object": reply.object,
        "replied": reply.model,
        "reasoning": reply.usage.output_tokens_details.reasoning_tokens,
    }
    return {"facts": facts}


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(ask),
            "stream": lambda: cases.read_streams(stream),
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(lambda text: ask(text, cases.FAILING)),
            "at once": lambda: cases.ask_at_once(ask),
            "other routes": stream_events,
        }
    )
