"""What tests of the gateway need: the scripted upstream of tests/client, and the gateway in front of it."""

import logging
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _uvicorn_s_loggers_as_they_come() -> None:
    """A server in this process sets uvicorn's loggers, and they would stay so for the tests after it."""
    for name in ("", ".error", ".access", ".asgi"):
        logger = logging.getLogger(f"uvicorn{name}")
        logger.setLevel(logging.NOTSET)
        logger.propagate = True


@pytest.fixture(autouse=True)
def _close_sdk_clients() -> Iterator[None]:
    """Closes the clients of OpenAI that a test has made by `sdk_clients.sdk`."""
    yield
    if (clients := sys.modules.get("sdk_clients")) is not None:
        clients.close_clients()
