"""An HTTP server that takes a webhook's messages, in a thread of its own; it answers as it is told to.  No test of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SECRET = "T0123456789/B9876543210/thesecretpartofit"


@dataclass
class Hook:
    """``answers``: statuses of the next answers, then 200; ``messages``: what came with a POST; ``silent``: take it and say nothing."""

    port: int = 0
    answers: list[int] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    silent: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/services/{SECRET}?token={SECRET}"

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [message for message in list(self.messages) if message["kind"] == kind]


@contextmanager
def hook_server() -> Iterator[Hook]:
    hook, over = Hook(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hook.messages.append(json.loads(body))
            hook.paths.append(self.path)
            if hook.silent.is_set():
                over.wait(60)
                return
            status = hook.answers.pop(0) if hook.answers else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"http://127.0.0.1:{hook.port}/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        hook.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="hook")
        thread.start()
        try:
            yield hook
        finally:
            over.set()
            server.shutdown()
            thread.join()
