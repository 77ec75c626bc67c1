"""The LiteLLM proxy in front of the server, asked by openai-python as in openai_chat.py."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import litellm_proxy

import cases


def embed() -> dict[str, Any]:
    vector = chat.client.embeddings.create(model=embedding, input="hello").data[0].embedding
    return {"facts": {"embedding": [round(x, 4) for x in vector]}}


if __name__ == "__main__":
    cases.MODEL, cases.FAILING, embedding = litellm_proxy.name_models(cases.BASE_URL)
    cases.BASE_URL = litellm_proxy.start_proxy()
    chat = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("openai_chat.py"))))
    cases.run(
        {
            "plain": lambda: cases.ask_all(chat.ask),
            "stream": lambda: cases.read_streams(chat.stream),
            "tools": lambda: cases.ask_all(chat.call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(chat.parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(lambda text: chat.ask(text, cases.FAILING)),
            "at once": lambda: cases.ask_at_once(chat.ask),
            "other routes": embed,
        }
    )
