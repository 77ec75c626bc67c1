"""pydantic-ai: OpenAIChatModel, or with the variant `responses` the model of "openai:NAME"."""

import asyncio
import functools
import time
from typing import Any

from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

import cases


class Product(BaseModel):
    answer: int


@functools.cache
def model(name: str = cases.MODEL) -> Any:
    client = AsyncOpenAI(base_url=cases.BASE_URL, api_key=cases.KEY, max_retries=0)
    kind = OpenAIResponsesModel if cases.VARIANT == "responses" else OpenAIChatModel
    return kind(name, provider=OpenAIProvider(openai_client=client))


async def ask(text: str, name: str = cases.MODEL) -> str:
    return str((await Agent(model(name)).run(text)).output)


async def call_tool(text: str) -> str:
    agent = Agent(model())

    @agent.tool_plain
    def multiply(a: int, b: int) -> int:
        """Multiplies two numbers."""
        return a * b

    return str((await agent.run(text)).output)


async def parse(text: str) -> int:
    return (await Agent(model(), output_type=Product).run(text)).output.answer


async def stream(text: str) -> list[tuple[float, str]]:
    began, pieces = time.monotonic(), []
    async with Agent(model()).run_stream(text) as result:
        async for piece in result.stream_text(delta=True, debounce_by=None):
            pieces.append((time.monotonic() - began, piece))
    return pieces


async def read_streams() -> dict[str, Any]:
    texts = ["".join(piece for _, piece in await stream(cases.question(pair))) for pair in cases.STREAMED]
    return cases.score(cases.STREAMED, texts) | cases.judge_story([at for at, _ in await stream(cases.STORY)])


async def at_once() -> dict[str, Any]:
    answers = await asyncio.gather(*(ask(cases.question(pair)) for pair in cases.MANY))
    return cases.score(cases.MANY, answers)


if __name__ == "__main__":
    loop = asyncio.new_event_loop()
    wait = loop.run_until_complete
    cases.run(
        {
            "plain": lambda: cases.ask_all(lambda text: wait(ask(text))),
            "stream": lambda: wait(read_streams()),
            "tools": lambda: cases.ask_all(lambda text: wait(call_tool(text)), cases.CALLED),
            "structured": lambda: cases.ask_all(lambda text: wait(parse(text)), cases.TYPED),
            "errors": lambda: cases.collect_errors(lambda text: wait(ask(text, cases.FAILING))),
            "at once": lambda: wait(at_once()),
        }
    )
