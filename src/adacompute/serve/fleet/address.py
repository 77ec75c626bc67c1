"""The Redis that a fleet shares: how it is reached, and whether it keeps what it is told. Knows no ledger."""

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from adacompute.errors import ConfigError
from adacompute.records import Secret

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["connected", "failures", "frail", "said_of"]

_PORT = 6379


def connected(url: str, *, key: Secret | None, patience: float) -> "Redis":
    """A client for an address without a password; ConfigError where there is none to be had."""
    try:
        from redis.asyncio import Redis  # here, for gateways without a fleet do without it
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff
    except ImportError:
        raise ConfigError(
            f"redis {url} can't be used: the client isn't installed; pip install 'adacompute[redis]', or "
            "leave redis out"
        ) from None
    parts = urlsplit(url)
    return Redis(
        host=parts.hostname or "127.0.0.1",
        port=parts.port or _PORT,
        db=int(parts.path.strip("/") or 0),
        username=parts.username or None,
        password=None if key is None else key.reveal(),
        ssl=parts.scheme == "rediss",
        socket_timeout=patience,
        socket_connect_timeout=patience,
        retry=Retry(NoBackoff(), 0),  # what is tried again is settled by us
        decode_responses=True,
    )


def failures() -> tuple[type[Exception], ...]:
    """All that a call to Redis may fail with."""
    from redis.exceptions import RedisError

    return RedisError, OSError, TimeoutError


def said_of(url: str, exc: Exception) -> str:
    """What is wrong with Redis, and what to do, in a line; no password is in it."""
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, ResponseError

    why = str(exc) or type(exc).__name__
    if isinstance(exc, AuthenticationError | AuthorizationError | NoPermissionError):
        return (
            f"{url}: refuses us ({why}); put its password into the variable that redis_key_env names, "
            "or the file that redis_key_file does"
        )
    if isinstance(exc, ResponseError):
        return f"{url}: refuses what it is asked ({why}); see its log, and that it is Redis 6.2 or later"
    return f"{url}: can't be reached ({why}); see that it runs, and that redis names it"


def frail(info: dict[str, Any]) -> list[str]:
    """Why hard caps are less than hard with this Redis, a line each, by what it says of itself."""
    found = []
    if not int(info.get("aof_enabled", 0)):
        found.append(
            "it keeps no append-only file: where it stops, what was spent since its last snapshot is "
            "forgotten; set appendonly yes"
        )
    policy = str(info.get("maxmemory_policy", "noeviction"))
    if int(info.get("maxmemory", 0)) and policy != "noeviction":
        found.append(
            f"it may forget balances when its memory is full ({policy}); set maxmemory-policy noeviction"
        )
    return found
