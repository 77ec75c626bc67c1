"""The address of the Redis that gateways share, and the fleet's name in it. Reaches nobody."""

import re
from urllib.parse import urlsplit

from adacompute.errors import ConfigError

__all__ = ["ALONE", "check_redis"]

ALONE = "adacompute"  # the name of a fleet that was given none

_FLEET = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_FORM = "give redis://HOST:PORT/DB, or rediss:// for TLS"


def check_redis(url: str, fleet: str) -> None:
    """ConfigError where they can't be used; no message shows a password."""
    if not _FLEET.fullmatch(fleet):
        raise ConfigError(f"fleet {fleet!r} can't be a name; give 1 to 64 of A-Z a-z 0-9 _ . -")
    if not url and fleet != ALONE:  # it would have caps of its own
        raise ConfigError(
            f"fleet {fleet!r} is shared through Redis, and redis isn't given; {_FORM} (--redis)"
        )
    if not url:
        return
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(f"redis is no address; {_FORM}") from None
    if parts.password is not None or "@" in parts.path + parts.query + parts.fragment:
        raise ConfigError(
            "redis has a password in it, which others could see; leave it out, and put it into the "
            "environment variable ADACOMPUTE_REDIS_KEY (redis_key_env) or a file (redis_key_file)"
        )
    if parts.query or parts.fragment:  # not shown: who knows what is in it
        raise ConfigError(f"redis has something after its database; {_FORM}")
    whole = parts.scheme in ("redis", "rediss") and parts.hostname and port != 0
    if not whole or not re.fullmatch(r"/?[0-9]{0,5}", parts.path):
        raise ConfigError(f"redis {url!r} can't be used; {_FORM}")
