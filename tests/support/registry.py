"""A registry of one package on 127.0.0.1, for the real npm; and packages small enough for tests.

It can hold a tarball back in mid-way and counts how often one was asked for.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from marathond.staging import npm

NAME = "@openai/codex"
INSIDE = Path("vendor/x86_64-unknown-linux-musl")
PATIENCE_S = 120.0


def make_tree(root: Path, version: str = "0.171.0", padding: int = 100_000) -> Path:
    """What a codex tree looks like, with a shell script for the program."""
    for name, text, mode in (
        ("bin/codex", f"#!/bin/sh\necho codex-cli {version}\n", 0o755),
        ("bin/codex-code-mode-host", "#!/bin/sh\nexit 0\n", 0o755),
        ("codex-path/rg", "#!/bin/sh\nexit 0\n" + "#" * padding, 0o755),
        ("codex-resources/bwrap", "#!/bin/sh\nexit 0\n", 0o755),
        ("codex-package.json", "{}\n", 0o644),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(mode)
    return root


def pack(folder: Path, version: str = "0.171.0", *, label: str | None = None, padding: int = 100_000) -> Path:
    """A real package made by the real ``npm pack``; ``label``: what its package.json claims to be instead."""
    make_tree(folder / "source" / INSIDE, version, padding)
    described = {"name": NAME, "version": label or f"{version}-linux-x64", "os": ["linux"], "cpu": ["x64"], "files": ["vendor"]}
    (folder / "source" / "package.json").write_text(json.dumps(described))
    (folder / "source" / "README.md").write_text("A small one.\n")
    argv = ["npm", "pack", str(folder / "source"), "--pack-destination", str(folder), "--cache", str(folder / "cache")]
    subprocess.run(argv, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S, check=True)
    (tarball,) = folder.glob("*.tgz")
    return tarball


def integrity(tarball: Path) -> str:
    return npm.tarball_integrity(tarball, lambda _: None)


class Registry:
    """Serves ``tarball`` as the package of ``version``.

    ``short_by``: bytes of it that are kept back for ever; ``advertised``: the integrity told instead of its own; ``gate`` closed: after
    half of the bytes nothing comes until it is opened.
    """

    def __init__(self, tarball: Path, version: str = "0.171.0") -> None:
        self.content = tarball.read_bytes()
        self.version = f"{version}-linux-x64"
        self.short_by = 0
        self.advertised: str | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.halfway = threading.Event()
        self.tarballs = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False  # joined at the end: no thread is left to another test

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/"

    def environ(self) -> dict[str, str]:
        """For npm: this registry, without a proxy, and no second try."""
        return {
            "npm_config_registry": self.url,
            "npm_config_noproxy": "127.0.0.1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "npm_config_fetch_retries": "0",
            "npm_config_audit": "false",
        }

    @contextlib.contextmanager
    def serving(self) -> Iterator[Registry]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="registry")
        thread.start()
        try:
            yield self
        finally:
            self.gate.set()
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def _packument(self) -> bytes:
        own = "sha512-" + base64.b64encode(hashlib.sha512(self.content).digest()).decode()
        dist = {"tarball": f"{self.url}tarball.tgz", "integrity": self.advertised or own}
        versions = {self.version: {"name": NAME, "version": self.version, "dist": dist}}
        return json.dumps({"name": NAME, "dist-tags": {"latest": self.version}, "versions": versions}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_tarball = self.path == "/tarball.tgz"
                if not is_tarball and self.path.lower() != "/@openai%2fcodex":
                    self.send_error(404)
                    return
                body = registry.content if is_tarball else registry._packument()
                registry.tarballs += is_tarball
                self.send_response(200)
                self.send_header("Content-Type", "application/octet-stream" if is_tarball else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                with contextlib.suppress(ConnectionError):  # an npm that was killed
                    self._send(body, is_tarball)

            def _send(self, body: bytes, is_tarball: bool) -> None:
                half = len(body) // 2
                self.wfile.write(body[:half])
                self.wfile.flush()
                if is_tarball:
                    registry.halfway.set()
                    registry.gate.wait(PATIENCE_S)
                    body = body[: len(body) - registry.short_by]
                self.wfile.write(body[half:])

            def log_message(self, *_: object) -> None:
                """Silent."""

        return Handler
