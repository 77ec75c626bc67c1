"""litellm's own client, with "openai/NAME"."""

import json
from collections.abc import Iterator
from typing import Any

import litellm
from openai_chat import MULTIPLY
from pydantic import BaseModel

import cases

litellm.suppress_debug_info = True


class Product(BaseModel):
    answer: int


def complete(history: list[Any], model: str = cases.MODEL, **more: Any) -> Any:
    return litellm.completion(
        model=f"openai/{model}",
        messages=history,
        api_base=cases.BASE_URL,
        api_key=cases.KEY,
        max_retries=0,
        num_retries=0,
        **more,
    )


def messages(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def ask(text: str, model: str = cases.MODEL) -> str:
    return complete(messages(text), model).choices[0].message.content


def stream(text: str) -> Iterator[str]:
    for chunk in complete(messages(text), stream=True):
        yield chunk.choices[0].delta.content or ""


def call_tool(text: str) -> str:
    history = messages(text)
    first = complete(history, tools=[MULTIPLY]).choices[0].message
    call = first.tool_calls[0]
    given = json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] * given["b"])}
    return complete([*history, first.model_dump(), result], tools=[MULTIPLY]).choices[0].message.content


def parse(text: str) -> int:
    reply = complete(messages(text), response_format=Product)
    return Product.model_validate_json(reply.choices[0].message.content).answer


def embed() -> dict[str, Any]:
    reply = litellm.embedding(
        model="openai/text-embedding-3-small",
        input=["hello"],
        api_base=cases.BASE_URL,
        api_key=cases.KEY,
        encoding_format="float",
    )
    return {"facts": {"embedding": [round(x, 4) for x in reply.data[0]["embedding"]]}}


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(ask),
            "stream": lambda: cases.read_streams(stream),
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(lambda text: ask(text, cases.FAILING)),
            "at once": lambda: cases.ask_at_once(ask),
            "other routes": embed,
        }
    )
