"""llama-index: its class OpenAI, or with the variant `like` OpenAILike."""

import functools
from collections.abc import Iterator
from typing import Any

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

import cases


class Product(BaseModel):
    """The product of two numbers."""

    answer: int


@functools.cache
def model(name: str = cases.MODEL) -> Any:
    common = {"model": name, "api_base": cases.BASE_URL, "api_key": cases.KEY, "max_retries": 0}
    if cases.VARIANT == "like":
        return OpenAILike(**common, is_chat_model=True, is_function_calling_model=True, temperature=0.7)
    return OpenAI(**common, temperature=0.7)


def multiply(a: int, b: int) -> int:
    """Multiplies two numbers."""
    return a * b


def ask(text: str, name: str = cases.MODEL) -> str:
    return str(model(name).chat([ChatMessage(role="user", content=text)]).message.content)


def stream(text: str) -> Iterator[str]:
    for chunk in model().stream_chat([ChatMessage(role="user", content=text)]):
        yield chunk.delta or ""


def call_tool(text: str) -> str:
    reply = model().predict_and_call([FunctionTool.from_defaults(multiply)], user_msg=text)
    return str(reply)


def parse(text: str) -> int:
    return model().as_structured_llm(Product).complete(text).raw.answer


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(ask),
            "stream": lambda: cases.read_streams(stream),
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(lambda text: ask(text, cases.FAILING)),
            "at once": lambda: cases.ask_at_once(ask),
        }
    )
