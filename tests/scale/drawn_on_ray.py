"""What the tests of drawing on Ray share: an upstream whose answers depend on nothing but what is asked."""

import sys
import zlib
from pathlib import Path
from typing import Any

from behaviours import Reply

from adacompute.pool import open_pool

COMMAND = Path(sys.executable).parent / "adacompute"


class Steady:
    """A script by which the sample of a seed is the same, whoever asks for it, when, and with how many."""

    def __init__(self, *, tokens: int = 12, delay: float = 0.0) -> None:
        self.tokens = tokens
        self.delay = delay

    def __call__(self, _number: int, body: dict[str, Any]) -> Reply:
        question, count = body["messages"][-1]["content"], body.get("n", 1)
        choices = [self._choice(question, body["seed"] + i, i) for i in range(count)]
        usage = {"prompt_tokens": 20, "completion_tokens": self.tokens * count}
        return Reply(body={"object": "chat.completion", "choices": choices, "usage": usage}, delay=self.delay)

    def _choice(self, question: str, seed: int, index: int) -> dict[str, Any]:
        mixed = zlib.crc32(f"{question}/{seed}".encode())
        hard = zlib.crc32(question.encode()) % 3  # some agree, some don't
        logprobs = [{"token": "t", "logprob": -0.01 * (mixed % 97)}] * self.tokens
        return {
            "index": index,
            "message": {"role": "assistant", "content": f"Sample {seed}. Answer: {mixed % (1 + 3 * hard)}"},
            "finish_reason": "stop",
            "logprobs": {"content": logprobs},
        }


SEEDED = {"temperature": 0.7, "max_tokens": 32, "seed": 5}


def exported(path: Path) -> list[dict[str, Any]]:
    """A pool's lines, in their order."""
    with open_pool(path) as pool:
        return list(pool.lines())
