"""llm, with an extra-openai-models.yaml, as its users set it up: by its command, and by its Python API."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import llm

import cases

FOLDER = tempfile.TemporaryDirectory()
os.environ["LLM_USER_PATH"] = FOLDER.name
os.environ["OPENAI_API_KEY"] = cases.KEY
MODELS = [
    {
        "model_id": name,
        "model_name": model,
        "api_base": cases.BASE_URL,
        "supports_schema": True,
        "supports_tools": True,
    }
    for name, model in (("scripted", cases.MODEL), ("failing", cases.FAILING))
]
Path(FOLDER.name, "extra-openai-models.yaml").write_text(json.dumps(MODELS))  # JSON is YAML


def ask(text: str) -> str:
    return llm.get_model("scripted").prompt(text, stream=False).text()


def fail(text: str) -> str:
    return llm.get_model("failing").prompt(text, stream=False).text()


def stream(text: str) -> Iterator[str]:
    yield from llm.get_model("scripted").prompt(text, stream=True)


def command(text: str) -> str:
    words = [str(Path(sys.executable).parent / "llm"), "-m", "scripted", "--no-log", text]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def call_tool(text: str) -> str:
    def multiply(a: int, b: int) -> str:
        """Multiplies two numbers."""
        return str(a * b)

    return llm.get_model("scripted").chain(text, tools=[multiply], stream=False).text()


def parse(text: str) -> int:
    schema = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}
    return json.loads(llm.get_model("scripted").prompt(text, schema=schema, stream=False).text())["answer"]


def plain() -> dict[str, object]:
    """Most by the Python API; the command itself once, for each start of it takes a second."""
    began = time.monotonic()
    assert command(cases.STORY).startswith("Then, on day 1")
    assert time.monotonic() - began < 60
    return cases.ask_all(ask)


if __name__ == "__main__":
    cases.run(
        {
            "plain": plain,
            "stream": lambda: cases.read_streams(stream),
            "tools": lambda: cases.ask_all(call_tool, cases.CALLED),
            "structured": lambda: cases.ask_all(parse, cases.TYPED),
            "errors": lambda: cases.collect_errors(fail),
            "at once": lambda: cases.ask_at_once(ask),
        }
    )
