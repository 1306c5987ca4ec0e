"""The few Docker calls that set-up makes, over the standard library: it runs before anything is installed.

The product's own adapter is :mod:`marathond.engine`; nothing outside set-up may use this one.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DEFAULT_SOCKET = "unix:///var/run/docker.sock"


class DockerHttpError(Exception):
    """The engine did not answer, or answered with an error; the text names the call."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def _tls_context() -> ssl.SSLContext:
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


class Docker:
    """One engine by its DOCKER_HOST: ``unix://PATH``, ``tcp://HOST:PORT`` (TLS by DOCKER_TLS_VERIFY), ``http(s)://HOST:PORT``."""

    def __init__(self, host: str) -> None:
        self.host = host
        parts = urlsplit(host)
        if parts.scheme not in ("unix", "tcp", "http", "https"):
            raise DockerHttpError(f"DOCKER_HOST={host}: only unix://, tcp:// and https:// are understood")
        self._parts = parts

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        scheme, name, port = self._parts.scheme, self._parts.hostname or "localhost", self._parts.port
        if scheme == "unix":
            return _UnixConnection(self._parts.path, timeout_s)
        if scheme == "https" or (scheme == "tcp" and os.environ.get("DOCKER_TLS_VERIFY")):
            return http.client.HTTPSConnection(name, port or 2376, timeout=timeout_s, context=_tls_context())
        return http.client.HTTPConnection(name, port or 2375, timeout=timeout_s)

    def call(self, method: str, path: str, timeout_s: float = 10.0) -> tuple[int, Any]:
        """One call: (status, JSON value or text).  ``timeout_s`` is between two pieces of the answer.  Raises DockerHttpError."""
        connection = self._connect(timeout_s)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as err:
            raise DockerHttpError(f"{method} {path} at {self.host}: {err or type(err).__name__}") from err
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    def progress(
        self, method: str, path: str, body: Iterable[bytes] | None = None, first_s: float = 10.0, next_s: float = 60.0
    ) -> Iterator[dict[str, Any]]:
        """A call that answers with lines of JSON; closing the iterator cancels it.  Raises DockerHttpError, also on an error line.

        ``first_s`` bounds the wait for the first line, ``next_s`` for each later one.
        """
        connection = self._connect(first_s)
        headers = {"Content-Type": "application/x-tar"} if body is not None else {}
        try:
            connection.request(method, path, body=body, headers=headers)  # an iterable body is sent in chunks
            answer = connection.getresponse()
            if answer.status >= 300:
                raise DockerHttpError(f"{method} {path}: {answer.status} {answer.read().decode(errors='replace').strip()}")
            while line := answer.readline():
                if connection.sock is not None:
                    connection.sock.settimeout(next_s)
                if not line.strip():
                    continue
                piece: dict[str, Any] = json.loads(line)
                if "error" in piece:
                    raise DockerHttpError(f"{method} {path}: {piece['error']}")
                yield piece
        except (OSError, http.client.HTTPException, ValueError) as err:
            raise DockerHttpError(f"{method} {path} at {self.host}: {err or type(err).__name__}") from err
        finally:
            connection.close()


def why_silent(host: str, timeout_s: float = 3.0) -> str | None:
    """None when the engine at ``host`` answers a ping in time, else the reason in a few words."""
    try:
        status, text = Docker(host).call("GET", "/_ping", timeout_s=timeout_s)
    except (DockerHttpError, OSError, ssl.SSLError) as err:
        return str(err)
    return None if status == 200 else f"ping answered {status}: {text}"
