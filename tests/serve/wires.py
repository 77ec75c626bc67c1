"""Raw connections to the gateway, for clients that no library would make; and waiting for what is to come."""

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from running import PATIENCE, QUESTION

__all__ = ["connect", "end", "post", "reply_of", "resident", "until"]


def connect(gate: Any, *, receive: int = 0, timeout: float = 60.0) -> socket.socket:
    """A connection to a gateway; `receive` is how many bytes its system takes before they are read."""
    line = socket.socket()
    if receive:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
    line.settimeout(timeout)
    line.connect(("127.0.0.1", int(gate.base.rpartition(":")[2])))
    return line


def post(
    body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None, **more: Any
) -> bytes:
    """A whole request, as bytes."""
    raw = json.dumps({**(body or QUESTION), **more}).encode()
    lines = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(raw)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + raw


def end(line: socket.socket, how: str) -> None:
    """Ends a connection: by "fin", by "rst", or "half": nothing more is sent, but read."""
    if how == "half":
        line.shutdown(socket.SHUT_WR)
        return
    if how == "rst":
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    line.close()


def reply_of(line: socket.socket, *, head: bool = False) -> tuple[int, dict[str, str], bytes]:
    """The next reply that has a length: status, headers with lower-case names, body, or only its `head`."""
    got = b""
    while b"\r\n\r\n" not in got:
        more = line.recv(65_536)
        assert more, f"it ended after {got!r}"
        got += more
    start, _, body = got.partition(b"\r\n\r\n")
    first, *lines = start.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
    while not head and len(body) < int(headers["content-length"]):
        more = line.recv(65_536)
        assert more, "it ended in its body"
        body += more
    return int(first.split(" ")[1]), headers, body


def until(true: Callable[[], Any], seconds: float = PATIENCE) -> float:
    """Waits until it is true; after how many seconds that was. What takes long to ask is asked less often."""
    began = asked = time.monotonic()
    while not true():
        now = time.monotonic()
        assert now < began + seconds, "it doesn't come true"
        time.sleep(max(0.005, 2 * (now - asked)))
        asked = time.monotonic()
    return time.monotonic() - began


def resident(pid: int) -> int:
    """Bytes of memory that a process takes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
