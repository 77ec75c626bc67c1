"""instructor, in its modes for tools (the default), JSON and JSON schemas; it has no plain replies."""

import functools
from typing import Any

import instructor
from openai import OpenAI
from pydantic import BaseModel

import cases

MODES = (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA)


class Product(BaseModel):
    """The product of two numbers."""

    answer: int


@functools.cache
def client(mode: Any = instructor.Mode.TOOLS) -> Any:
    return instructor.from_openai(
        OpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0), mode=mode
    )


def ask(text: str, mode: Any = instructor.Mode.TOOLS, model: str = cases.MODEL) -> int:
    reply = client(mode).chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": text}],
        response_model=Product,
        max_retries=0,
    )
    return reply.answer


def stream(text: str) -> int:
    *_, last = client().chat.completions.create_partial(
        model=cases.MODEL, messages=[{"role": "user", "content": text}], response_model=Product
    )
    return last.answer


def structured() -> dict[str, Any]:
    json_modes = [cases.ask_all(lambda text, m=mode: ask(text, m), cases.TYPED) for mode in MODES[1:]]
    return {key: sum(one[key] for one in json_modes) for key in json_modes[0]}


if __name__ == "__main__":
    cases.run(
        {
            "stream": lambda: cases.ask_all(stream, cases.STREAMED),
            "tools": lambda: cases.ask_all(ask, cases.CALLED),
            "structured": structured,
            "errors": lambda: cases.collect_errors(lambda text: ask(text, model=cases.FAILING)),
            "at once": lambda: cases.ask_at_once(ask),
        }
    )
