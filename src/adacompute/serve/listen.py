"""Where the gateway listens: addresses, the rule that only loopback goes without keys, certificates.

Knows nothing of HTTP, or of what is served.
"""

import errno
import socket
import ssl
from ipaddress import ip_address
from pathlib import Path

from adacompute.config import ServeConfig
from adacompute.errors import ConfigError

__all__ = ["allowed", "check_tls", "listening", "url_of"]

_BACKLOG = 2048
_SEND_BYTES = 262_144  # that the system keeps for a client that doesn't read; by itself it takes megabytes
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - what is refused without keys
_Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


def listening(settings: ServeConfig, *, keys: bool) -> list[socket.socket]:
    """Sockets that listen at every address of the host, all at one port; the caller closes them."""
    addresses = allowed(settings, keys=keys)
    sockets: list[socket.socket] = []
    port = settings.port
    try:
        for family, address in addresses:
            sockets += _bound(settings, family, (address[0], port, *address[2:]), first=not sockets)
            port = sockets[0].getsockname()[1]
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def allowed(settings: ServeConfig, *, keys: bool) -> list[_Address]:
    """The addresses of the host; ConfigError where they can't be had, or may not.

    `keys`: whether clients must have one; without, every address has to be this machine's own.
    """
    addresses = _resolved(settings.host, settings.port)
    far = [address[0] for _, address in addresses if not ip_address(address[0].split("%")[0]).is_loopback]
    if far and not keys:
        named = "" if far[0] == settings.host else f" ({far[0]})"
        raise ConfigError(
            f"host {settings.host!r}{named} can be reached from other machines, and there are no keys; "
            "give a keys file (--keys FILE, or keys_file in [serve]) with a key in it, or --host 127.0.0.1"
        )
    return addresses


def url_of(settings: ServeConfig, port: int) -> str:
    """The address that a client on this machine can use, without a path."""
    host = _ANYWHERE.get(settings.host, settings.host)
    scheme = "https" if settings.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def check_tls(settings: ServeConfig) -> None:
    """Refuses a certificate and a key that can't be used, before anything is opened."""
    if not settings.tls_cert and not settings.tls_key:
        return
    if not settings.tls_cert or not settings.tls_key:
        there, missing = ("tls_cert", "tls_key") if settings.tls_cert else ("tls_key", "tls_cert")
        raise ConfigError(f"{there} is given without {missing}; https takes both: --tls-cert and --tls-key")
    for name in (settings.tls_cert, settings.tls_key):
        try:
            Path(name).read_bytes()
        except OSError as exc:
            raise ConfigError(
                f"TLS file {name!r} can't be read ({exc.strerror}); name a PEM file that can"
            ) from exc
    try:
        # an empty password, so that nobody is asked for one
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            settings.tls_cert, settings.tls_key, password=""
        )
    except (ssl.SSLError, OSError) as exc:
        why = (exc.reason if isinstance(exc, ssl.SSLError) else exc.strerror) or "it is no PEM, or encrypted"
        raise ConfigError(
            f"TLS certificate {settings.tls_cert!r} with key {settings.tls_key!r} can't be used ({why}); "
            "give a PEM certificate chain and its own key, without a password"
        ) from exc


def _resolved(host: str, port: int) -> list[_Address]:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is no name"
        raise ConfigError(
            f"host {host!r} is no address of this machine ({why}); give e.g. 127.0.0.1"
        ) from exc
    addresses = {(family, address): None for family, _, _, _, address in found}  # each once
    return sorted(addresses, key=lambda each: each[0] != socket.AF_INET)  # type: ignore[arg-type]


def _bound(
    settings: ServeConfig, family: socket.AddressFamily, address: tuple[object, ...], *, first: bool
) -> list[socket.socket]:
    """The socket; none where a name's second address isn't there, as ::1 is without IPv6."""
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        if first:
            raise
        return []
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BYTES)  # connections inherit it
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)  # at once: until then a second process could bind, too
        opened.setblocking(False)
    except OSError as exc:
        opened.close()
        if not first and (exc.errno == errno.EADDRNOTAVAIL or settings.port == 0):
            return []
        raise ConfigError(_why(settings, address, exc)) from exc
    return [opened]


def _why(settings: ServeConfig, address: tuple[object, ...], exc: OSError) -> str:
    if exc.errno == errno.EADDRINUSE:
        return f"port {address[1]} of {settings.host} is in use; give another --port, or 0 for any free one"
    if exc.errno == errno.EACCES:
        return f"port {address[1]} may not be used ({exc.strerror}); give one from 1024 up"
    return f"{settings.host} port {address[1]} can't be listened at ({exc.strerror}); give another --host"
