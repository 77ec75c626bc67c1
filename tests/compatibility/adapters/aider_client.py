"""aider, by its command: it writes the answer into a file, streamed and not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import cases

os.environ["OPENAI_API_BASE"], os.environ["OPENAI_API_KEY"] = cases.BASE_URL, cases.KEY
OPTIONS = [
    *("--no-git", "--yes-always", "--no-show-model-warnings", "--no-check-update", "--no-analytics"),
    *("--no-pretty", "--no-gitignore", "--edit-format", "whole", "--map-tokens", "0"),
    *("--no-show-release-notes", "--no-detect-urls", "--no-auto-lint"),
]


def edit(text: str, *more: str, model: str = cases.MODEL) -> tuple[str, str]:
    """What stands in the file afterwards, and what the command printed."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.txt")
        answer.write_text("\n")
        words = [str(Path(sys.executable).parent / "aider"), *OPTIONS, *more, "--model", f"openai/{model}"]
        words += ["--message", text, "answer.txt"]
        environ = os.environ | {"HOME": folder}
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
        return answer.read_text().strip(), done.stdout + done.stderr


def ask(text: str, *more: str) -> str:
    return edit(f"{text} Write it into answer.txt.", *more)[0]


def errors() -> dict[str, object]:
    """A prompt that is too long, of which aider has words of its own."""
    printed = edit(cases.refused("context_length_exceeded"), "--no-stream", model=cases.FAILING)[1]
    return {"facts": {"limit": "has hit a token limit" in printed}}


if __name__ == "__main__":
    cases.run(
        {
            "plain": lambda: cases.ask_all(lambda text: ask(text, "--no-stream"), cases.PLAIN[:1]),
            "stream": lambda: cases.ask_all(lambda text: ask(text, "--stream"), cases.STREAMED[:1]),
            "errors": errors,
        }
    )
