"""langchain-openai: ChatOpenAI, and OpenAIEmbeddings."""

import functools
from collections.abc import Iterator
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

import cases


@functools.cache
def chat(model: str = cases.MODEL) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0)


class Product(BaseModel):
    """The product of two numbers."""

    answer: int


@tool
def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


def ask(text: str, model: str = cases.MODEL) -> str:
    return str(chat(model).invoke(text).content)


def stream(text: str) -> Iterator[str]:
    for chunk in chat().stream(text):
        yield str(chunk.content)


def call_tool(text: str) -> str:
    bound = chat().bind_tools([multiply])
    history: list[Any] = [HumanMessage(text)]
    first = bound.invoke(history)
    call = first.tool_calls[0]
    result = ToolMessage(str(multiply.invoke(call["args"])), tool_call_id=call["id"])
    return str(bound.invoke([*history, first, result]).content)


def parse(text: str) -> int:
    return chat().with_structured_output(Product).invoke(text).answer


def parse_by_tool(text: str) -> int:
    return chat().with_structured_output(Product, method="function_calling").invoke(text).answer


def structured() -> dict[str, Any]:
    one, other = cases.ask_all(parse, cases.TYPED), cases.ask_all(parse_by_tool, cases.CALLED)
    return {key: one[key] + other[key] for key in one}


def embed() -> dict[str, Any]:
    embeddings = OpenAIEmbeddings(
        model="text-embedding-3-small",
        base_url=cases.BASE_URL,
        api_key=cases.KEY,
        check_embedding_ctx_length=False,
    )
    return {"facts": {"embedding": [round(x, 4) for x in embeddings.embed_query("hello")]}}


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(ask),
            "stream": lambda: cases.read_streams(stream),
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": structured,
            "errors": lambda: cases.collect_errors(lambda text: ask(text, cases.FAILING)),
            "at once": lambda: cases.score(
                cases.MANY,
                [
                    m.content
                    for m in chat().batch(list(map(cases.question, cases.MANY)), {"max_concurrency": 20})
                ],
            ),
            "other routes": embed,
        }
    )
