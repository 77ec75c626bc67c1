"""Collecting from an endpoint: ours beside a bare aiohttp loop and the OpenAI SDK, which store nothing.

Knows nothing of `make`: `run()` answers rows; each way runs in a process of its own, so that its processor
time and its memory are its own.
"""

import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.processes import first_line, peak_kb

LATENCY = 0.05  # seconds that the endpoint takes for a call
SAMPLES = 48  # of each problem
# way, concurrency, samples in a call, log-probabilities, problems
CASES = (
    ("collect", 32, 1, False, 250),
    ("aiohttp", 32, 1, False, 250),
    ("openai", 32, 1, False, 40),
    ("collect", 64, 1, False, 500),
    ("aiohttp", 64, 1, False, 500),
    ("collect", 256, 1, False, 500),
    ("aiohttp", 256, 1, False, 500),
    ("collect", 256, 48, False, 4000),
    ("collect", 64, 1, True, 500),
)


@contextlib.contextmanager
def upstream(most: int, *, latency: float = LATENCY) -> Iterator[str]:
    """The address of an endpoint in another process."""
    words = [sys.executable, "-m", "benchmarks.upstream", "--latency", str(latency), "--most", str(most)]
    with first_line(words) as address:
        yield address


def ours(url: str, concurrency: int, *, logprobs: bool, problems: int, samples: int = SAMPLES) -> int:
    """`collect`: graded, classed, hashed, durable when it counts."""
    from adacompute.client import Endpoint, RateLimits
    from adacompute.pool import open_pool
    from adacompute.problems import Template
    from adacompute.records import Problem
    from adacompute.sampling import Asking, SourcePlan, collect

    asked = [Problem(id=f"p{i}", question=f"What is {i} and so on?", gold="42") for i in range(problems)]
    asking = Asking(
        model="m",
        template=Template.named("boxed"),
        sampling={"temperature": 0.7, "max_tokens": 64},
        logprobs=logprobs,
    )
    endpoint = Endpoint(url=url, limits=RateLimits(concurrency=concurrency))
    with tempfile.TemporaryDirectory() as folder, open_pool(Path(folder) / "p.sqlite", create=True) as pool:
        done = collect(asked, pool, SourcePlan(endpoint=endpoint, asking=asking, samples=samples))
    assert done.complete
    return done.added


def bare(url: str, concurrency: int, *, logprobs: bool, problems: int, samples: int = SAMPLES) -> int:
    """The least that aiohttp takes: send, receive, parse."""
    import aiohttp

    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "What is 1 and so on?"}],
        "temperature": 0.7,
        "max_tokens": 64,
        **({"logprobs": True} if logprobs else {}),
    }
    left = iter(range(problems * samples))

    async def lane(session: aiohttp.ClientSession) -> int:
        came = 0
        for _ in left:
            async with session.post(url + "/chat/completions", json=body) as response:
                came += len((await response.json())["choices"])
        return came

    async def main() -> int:
        connector = aiohttp.TCPConnector(limit=concurrency)
        async with aiohttp.ClientSession(connector=connector) as session:
            return sum(await asyncio.gather(*(lane(session) for _ in range(concurrency))))

    return asyncio.run(main())


def sdk(url: str, concurrency: int, *, logprobs: bool, problems: int, samples: int = SAMPLES) -> int:
    """The official SDK, asynchronous."""
    import openai

    left = iter(range(problems * samples))

    async def lane(client: openai.AsyncOpenAI) -> int:
        came = 0
        for _ in left:
            reply = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "What is 1 and so on?"}],
                temperature=0.7,
                max_tokens=64,
                logprobs=logprobs,
            )
            came += len(reply.choices)
        return came

    async def main() -> int:
        async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
            return sum(await asyncio.gather(*(lane(client) for _ in range(concurrency))))

    return asyncio.run(main())


WAYS = {"collect": ours, "aiohttp": bare, "openai": sdk}


def one(
    way: str, concurrency: int, most: int, logprobs: bool, problems: int, samples: int = SAMPLES
) -> dict[str, Any]:
    """One case, in a process of its own."""
    with upstream(most) as url:
        words = [sys.executable, "-m", "benchmarks.collect", way, url, str(concurrency), str(int(logprobs))]
        words += [str(problems), str(samples)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    allowed = concurrency / LATENCY * most
    return {
        "way": way,
        "concurrency": concurrency,
        "most": most,
        "logprobs": logprobs,
        **found,
        "share": found["rate"] / allowed,
    }


def run() -> list[dict[str, Any]]:
    """Every case."""
    return [one(*case) for case in CASES]


def main(way: str, url: str, concurrency: str, logprobs: str, problems: str, each: str) -> None:
    """Prints what one way took, as JSON; a few first, so that nothing is imported while it is timed."""
    how = {"logprobs": logprobs == "1", "samples": int(each)}
    WAYS[way](url, int(concurrency), **how | {"problems": 1, "samples": 1})
    before, start = _processor(), time.perf_counter()
    samples = WAYS[way](url, int(concurrency), **how, problems=int(problems))
    seconds, processor = time.perf_counter() - start, _processor() - before
    peak = peak_kb() // 1024
    print(
        json.dumps(
            {
                "samples": samples,
                "rate": samples / seconds,
                "cpu_ms": 1000 * processor / samples,
                "peak_mb": peak,
            }
        )
    )


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
