"""A real browser for tests: Debian's chromium, headless, driven over its DevTools websocket."""

import asyncio
import base64
import contextlib
import itertools
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp

from guard import RUN

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--font-render-hinting=none",
    "--remote-debugging-port=0",
)


@contextlib.contextmanager
def chromium() -> Iterator[str]:
    """A browser; its DevTools address."""
    assert CHROMIUM is not None
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as home:
        process = subprocess.Popen(
            [CHROMIUM, *FLAGS, f"--user-data-dir={home}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "TZ": "UTC", "LANG": "C.UTF-8"}
            | {name: os.environ[name] for name in (RUN,) if name in os.environ},
        )
        assert process.stderr is not None
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        try:
            said = []
            for line in process.stderr:
                said.append(line)
                if found := re.search(r"ws://\S+", line):
                    break
            else:
                raise RuntimeError(f"chromium ended before it listened: {''.join(said)[-2000:]}")
            drain = threading.Thread(
                target=process.stderr.read, daemon=True
            )  # or it would stall on a full pipe
            drain.start()
            yield found[0]
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if drain.ident is not None:
                drain.join(5)
            process.stderr.close()


class Page:
    """One tab. `wrong` collects errors of script, console and policy; `requests` every address asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session: str | None = None
        self.wrong: list[str] = []
        self.requests: list[str] = []

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol, and its result."""
        number = next(self._ids)
        reply = self._replies[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        return await asyncio.wait_for(reply, 90)

    async def listen(self) -> None:
        """Sorts what the browser says, to the end."""
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                reply = self._replies.pop(told["id"])
                if reply.cancelled():
                    continue
                if "error" in told:
                    reply.set_exception(RuntimeError(str(told["error"])))
                else:
                    reply.set_result(told["result"])
            else:
                self._heard(told["method"], told["params"])

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.wrong.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.wrong.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.wrong.append(f"{params['entry'].get('url', '')} {params['entry']['text']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def attach(self, width: int, height: int, *, dark: bool) -> None:
        context = (await self.send("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
        made = await self.send("Target.createTarget", url="about:blank", browserContextId=context)
        attached = await self.send("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.send(f"{domain}.enable")
        phone = width < 600
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme])

    async def open(self, url: str) -> None:
        await self.send("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        told = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise RuntimeError(str(told["exceptionDetails"]))
        return told["result"].get("value")

    async def until(self, expression: str, *, within: float = 60.0) -> Any:
        """Waits until an expression is true, and gives its value."""
        async with asyncio.timeout(within):
            while True:
                with contextlib.suppress(RuntimeError):  # the page is being changed
                    if value := await self.js(expression):
                        return value
                await asyncio.sleep(0.05)

    async def picture(self, path: Path, *, whole: bool = True) -> bytes:
        """A PNG of the page."""
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        data = base64.b64decode(shot["data"])
        path.write_bytes(data)
        return data


@contextlib.asynccontextmanager
async def tab(
    address: str, *, width: int = 1280, height: int = 900, dark: bool = False
) -> AsyncIterator[Page]:
    """A tab of its own, without the cookies or caches of others."""
    async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
        page = Page(socket)
        listening = asyncio.create_task(page.listen())
        try:
            await page.attach(width, height, dark=dark)
            yield page
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
