"""LiteLLM's library and its proxy's way of loading a provider, over a scripted model at the address given."""

import asyncio
import json
import sys
import time

import litellm
from litellm.proxy.types_utils.utils import get_instance_fn

from adacompute.integrations.litellm import provider, register

URL = sys.argv[1]
TOOL = {
    "type": "function",
    "function": {
        "name": "give_product",
        "description": "Gives the product.",
        "parameters": {"type": "object", "properties": {"product": {"type": "integer"}}},
    },
}
PRICES = {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
COMMON = {"model": "adacompute/gpt-4o-mini", "api_base": URL, "budget": 3}
costs = []


def ask(number):
    return [{"role": "user", "content": f"What is {number} times 7?"}]


def call(number, **more):
    return litellm.completion(messages=ask(number), **COMMON, **more)


async def call_async(number):
    whole = await litellm.acompletion(messages=ask(number), **COMMON)
    stream = await litellm.acompletion(messages=ask(number), stream=True, **COMMON)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    return whole.choices[0].message.content, "".join(pieces)


register()
litellm.success_callback = [lambda call, reply, start, end: costs.append(call["response_cost"])]
replies = [call(number, temperature=0.7, **PRICES) for number in range(11, 31)]
usages = [reply.usage for reply in replies]
deadline = time.monotonic() + 60
while len(costs) < len(replies) and time.monotonic() < deadline:
    time.sleep(0.05)
counted, costs[:] = list(costs), []
streamed = list(call(12, stream=True, stream_options={"include_usage": True}))
with_tool = call(13, tools=[TOOL]).choices[0]
tool_stream = list(call(13, tools=[TOOL], stream=True))
errors = {}
for name, more in [("refused", {}), ("budget", {"budget": -1})]:
    try:
        prompt = "Fail with content_filter." if name == "refused" else "What is 2 times 3?"
        messages = [{"role": "user", "content": prompt}]
        litellm.completion(messages=messages, **{**COMMON, **more})
    except litellm.exceptions.BadRequestError as exc:
        errors[name] = [exc.status_code, str(exc)]
print(
    json.dumps(
        {
            "right": sum(str(n * 7) in r.choices[0].message.content for n, r in enumerate(replies, 11)),
            "tokens": [usage.total_tokens for usage in usages],
            "priced": [usage.prompt_tokens * 1e-6 + usage.completion_tokens * 2e-6 for usage in usages],
            "costs": counted,
            "stream": "".join(chunk.choices[0].delta.content or "" for chunk in streamed),
            "stream_tokens": max(
                (getattr(c, "usage", None) or litellm.Usage()).total_tokens for c in streamed
            ),
            "tool": json.loads(with_tool.message.tool_calls[0].function.arguments),
            "finish": with_tool.finish_reason,
            "streamed_tools": [
                c.choices[0].delta.tool_calls[0].function.arguments
                for c in tool_stream
                if c.choices[0].delta.tool_calls
            ],
            "async": asyncio.run(call_async(16)),
            "errors": errors,
            "from_yaml": get_instance_fn("adacompute.integrations.litellm.provider") is provider,
        }
    )
)
