"""OpenAI's own client of a gateway; conftest.py closes it at the end of the test that made it."""

import openai
from running import Running

_clients: list[openai.OpenAI] = []


def sdk(gate: Running) -> openai.OpenAI:
    """A client that never tries again by itself."""
    _clients.append(openai.OpenAI(base_url=gate.url, api_key="none", max_retries=0, timeout=60.0))
    return _clients[-1]


def close_clients() -> None:
    """Closes all that were made."""
    while _clients:
        _clients.pop().close()
