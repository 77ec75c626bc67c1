"""Names of hosts to addresses, in threads that nobody has to wait for. Remembers nothing."""

import asyncio
import contextlib
import socket
import threading

from aiohttp.abc import AbstractResolver, ResolveResult

__all__ = ["Resolver"]

_Found = list[ResolveResult]


class Resolver(AbstractResolver):
    """The system's resolver. A slow one holds up neither a timeout nor the exit of the process.

    The event loop's own threads are joined when it ends, so that one lookup without an answer would hold the
    process for as long as the system tries; these are daemons.
    """

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> _Found:
        """The addresses of a host; OSError or UnicodeError where there are none."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[_Found] = loop.create_future()

        def look() -> None:
            addresses: _Found = []
            error: Exception | None = None
            try:
                addresses = _addresses(host, port, family)
            except Exception as exc:  # noqa: BLE001 - raised where it is waited for
                error = exc
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_tell, found, addresses, error)

        threading.Thread(target=look, name=f"resolve {host}", daemon=True).start()
        return await found

    async def close(self) -> None:
        """Nothing is held open."""


def _tell(found: "asyncio.Future[_Found]", addresses: _Found, error: Exception | None) -> None:
    if found.done():  # given up
        return
    if error is None:
        found.set_result(addresses)
    else:
        found.set_exception(error)


def _addresses(host: str, port: int, family: socket.AddressFamily) -> _Found:
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            # with its zone, where an address of IPv6 has one
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=kind,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, proto, _, address in infos
    ]
