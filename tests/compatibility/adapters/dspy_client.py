"""dspy: a signature by its default adapter (`[[ ## answer ## ]]`), a stream of it, JSON, and a tool."""

import asyncio
import functools
import time
from typing import Any

import dspy

import cases

dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


@functools.cache
def language_model(name: str = cases.MODEL) -> Any:
    return dspy.LM(
        f"openai/{name}",
        api_base=cases.BASE_URL,
        api_key=cases.KEY,
        temperature=0.7,
        cache=False,
        num_retries=0,
    )


def ask(text: str, name: str = cases.MODEL, adapter: Any = None) -> str:
    with dspy.context(lm=language_model(name), adapter=adapter or dspy.ChatAdapter()):
        return str(dspy.Predict("question -> answer")(question=text).answer)


def ask_lm(text: str) -> str:
    return str(language_model(cases.FAILING)(text)[0])


def parse(text: str) -> str:
    with dspy.context(lm=language_model(), adapter=dspy.JSONAdapter()):
        return str(dspy.Predict("question -> answer: int")(question=text).answer)


def reason(text: str) -> str:
    with dspy.context(lm=language_model(), adapter=dspy.ChatAdapter()):
        return str(dspy.ChainOfThought("question -> answer")(question=text).answer)


async def stream(text: str) -> tuple[str, list[float]]:
    program = dspy.streamify(
        dspy.Predict("question -> answer"),
        stream_listeners=[dspy.streaming.StreamListener(signature_field_name="answer")],
    )
    began, times, answer = time.monotonic(), [], ""
    with dspy.context(lm=language_model(), adapter=dspy.ChatAdapter()):
        async for piece in program(question=text):
            times.append(time.monotonic() - began)
            if isinstance(piece, dspy.Prediction):
                answer = str(piece.answer)
    return answer, times


def read_streams() -> dict[str, Any]:
    answers = [asyncio.run(stream(cases.question(pair)))[0] for pair in cases.STREAMED]
    return cases.score(cases.STREAMED, answers)


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(ask),
            "stream": read_streams,
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(ask_lm),
            "at once": lambda: cases.ask_at_once(reason),
        }
    )
