"""A real browser for looking at a page without a network: Chromium, headless, steered over its DevTools socket.

Taken from this machine, or installed where set-up may install packages (as root on Debian).  It gets a profile of its own and a proxy that
does not exist, so that a request to anywhere would fail, and be seen.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import anyio

from marathond.demo.host import need_tools

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
LOG = Path(__file__).resolve().parents[2] / ".cache" / "browser.log"
START_S = 120.0
ANSWER_S = 120.0
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--proxy-server=127.0.0.1:9"),
    *("--remote-debugging-port=0", "--remote-debugging-address=127.0.0.1"),
)


def program() -> str:
    """:raises SetupError: there is none, and it cannot be installed here; one clear line."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        LOG.parent.mkdir(parents=True, exist_ok=True)
        need_tools({"chromium": "chromium"}, LOG)
        found = shutil.which("chromium")
    assert found is not None
    return found


@dataclass(slots=True)
class Seen:
    """What a page did while it was loaded: messages of its console, errors, and every request but the one for itself."""

    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


class Tab:
    """One page over one DevTools connection, asked one question at a time."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._number, self._session = socket, 0, ""
        self._events: list[dict[str, Any]] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """:raises RuntimeError: the browser refuses."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        with anyio.fail_after(ANSWER_S):
            while True:
                answer = await self._socket.receive_json()
                if answer.get("id") == self._number:
                    if "error" in answer:
                        raise RuntimeError(f"{method}: {answer['error']}")
                    result: dict[str, Any] = answer["result"]
                    return result
                self._events.append(answer)

    async def attach(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        self._session = (await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Page.setLifecycleEventsEnabled", enabled=True)

    async def open(self, path: Path | str, *, width: int, height: int = 900, dark: bool = False) -> Seen:
        """Load a file (its absolute path) or a URL at a width in CSS pixels, as a phone below 600."""
        scheme = "dark" if dark else "light"
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        await self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._events.clear()
        url = path if isinstance(path, str) else path.as_uri()
        # Of this very load: the word that the blank page before it is loaded may come late.
        loader = (await self.call("Page.navigate", url=url))["loaderId"]
        loaded = {"name": "load", "loaderId": loader}.items()
        with anyio.fail_after(ANSWER_S):
            while not any(event.get("method") == "Page.lifecycleEvent" and loaded <= event["params"].items() for event in self._events):
                self._events.append(await self._socket.receive_json())
        await self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")
        return self._seen(url)

    def _seen(self, url: str) -> Seen:
        seen = Seen()
        for event in self._events:
            params = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled":
                    seen.console.append(str(params["args"]))
                case "Runtime.exceptionThrown":
                    seen.console.append(str(params["exceptionDetails"]))
                case "Log.entryAdded":
                    seen.console.append(str(params["entry"]["text"]))
                case "Network.requestWillBeSent" if not params["request"]["url"].startswith((url, "data:")):
                    seen.requests.append(params["request"]["url"])
        return seen

    async def evaluate(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        answer = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])

    async def printed(self) -> bytes:
        """The page as it would be printed, by its own page size: a PDF."""
        answer = await self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(answer["data"])


class Chromium:
    """The process, from its start to its end, in a process group and a profile of its own."""

    def __init__(self) -> None:
        self._profile = Path(tempfile.mkdtemp(prefix="mt-browser-"))
        argv = [program(), *FLAGS, f"--user-data-dir={self._profile / 'profile'}", "about:blank"]
        # Killed, it leaves its lock's folder behind: in ours, not in everybody's.
        env = os.environ | {"HOME": str(self._profile), "TMPDIR": str(self._profile)}
        # A file and no pipe: nobody reads on once the address was told, and a browser with much to say would stand still.
        self._said = self._profile / "said"
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, env=env, start_new_session=True
            )

    def __enter__(self) -> Chromium:
        return self

    def address(self) -> str:
        """Of its DevTools socket, which it tells on stderr.  :raises RuntimeError: it did not start."""
        end = time.monotonic() + START_S
        while True:
            over = self._process.poll() is not None or time.monotonic() > end
            told = self._said.read_bytes()
            for line in told.split(b"\n")[:-1]:
                if line.startswith(b"DevTools listening on "):
                    return line.removeprefix(b"DevTools listening on ").decode().strip()
            if over:
                raise RuntimeError(f"the browser did not start: {told[-2000:].decode(errors='replace')}")
            time.sleep(0.05)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


@asynccontextmanager
async def browser() -> AsyncIterator[Tab]:
    """:raises SetupError: no browser can be had.  :raises RuntimeError: it does not start."""
    with Chromium() as chromium:
        address = await anyio.to_thread.run_sync(chromium.address)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0, autoclose=True) as socket:
            tab = Tab(socket)
            await tab.attach()
            yield tab
