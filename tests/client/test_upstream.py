"""The scripted upstream as a process of its own: it counts what it was asked and what it gave."""

import asyncio
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from client_runs import BODY, endpoint

from adacompute.client import LOGPROBS, Client, RateLimits

PROGRAM = Path(__file__).with_name("upstream.py")


def started(*options: str) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM), "--port", "0", *options], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def counted(url: str) -> dict:
    with urllib.request.urlopen(url.removesuffix("/v1") + "/count", timeout=10) as reply:
        return json.load(reply)


@pytest.mark.parametrize(
    "options",
    [
        ["--n", "ignore", "--latency", "0.001"],
        ["--n", "refuse:4", "--usage", "none", "--logprobs", "refuse"],
        ["--n", "short:3", "--error-rate", "0.2", "--error-status", "503"],
        ["--rate-limit", "40", "--n", "ignore"],
    ],
)
def test_an_upstream_in_a_process_counts_what_the_client_accounts_for(options):
    async def run() -> None:
        async with Client(endpoint(url, limits=RateLimits(concurrency=8))) as client:
            events = [event async for event in client.draw({**BODY, "logprobs": True}, 30, optional=LOGPROBS)]
            texts = [response.text for event in events for response in event.responses]
            assert len(texts) == len(set(texts)) == 30
            count = counted(url)
            assert count["requests"] == client.totals.calls
            assert count["completions"] == client.totals.paid
            assert count["choices"] == 30
            if "none" not in options:
                assert count["completion_tokens"] == client.totals.completion_tokens
            assert await client.models() == ["scripted"]

    process, url = started(*options)
    try:
        asyncio.run(run())
    finally:
        process.terminate()
        process.communicate(timeout=10)
