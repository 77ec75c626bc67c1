"""The endpoint that settings name, with its key. Sends nothing."""

from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from adacompute.config import EndpointConfig, read_key
from adacompute.endpoint.settings import Endpoint, Limits, Retries, Timeouts
from adacompute.errors import ConfigError

__all__ = ["configured", "exposed"]


def configured(settings: EndpointConfig, *, remedy: str = "give --endpoint URL") -> Endpoint:
    """The endpoint of these settings; ConfigError, with the remedy, where they name none."""
    if not settings.url:
        raise ConfigError(
            f"no endpoint is named; {remedy} (or [endpoint] url in adacompute.toml); "
            "`adacompute local` serves a small model on this machine"
        )
    file = Path(settings.key_file) if settings.key_file else None
    key = read_key(env=settings.key_env, file=file)
    if key is None and settings.key_env != EndpointConfig().key_env:
        raise ConfigError(f"environment variable {settings.key_env} holds no key; set it, or name another")
    return Endpoint(
        url=settings.url,
        key=key,
        timeouts=Timeouts(
            connect=min(settings.connect_timeout, settings.total_timeout),
            first_byte=min(settings.first_byte_timeout, settings.total_timeout),
            total=settings.total_timeout,
        ),
        retries=Retries(
            attempts=settings.attempts, deadline=settings.deadline, after_timeout=settings.retry_timeouts
        ),
        limits=Limits(
            concurrency=settings.concurrency,
            requests_per_minute=settings.requests_per_minute or None,
            tokens_per_minute=settings.tokens_per_minute or None,
        ),
    )


def exposed(endpoint: Endpoint) -> str | None:
    """A warning where the key goes out unencrypted; None where it doesn't."""
    if endpoint.key is None or not endpoint.url.startswith("http://") or _near(endpoint.url):
        return None
    return f"{endpoint.url}: the key goes there unencrypted; use https:// where you can"


def _near(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
