"""Where the page is served: a port of this host's loopback, or a unix socket.  Pure, and light: every start reads it.

Nothing of the page asks who somebody is, so that it is never offered to a network: another address is refused by name.  Who wants it from
elsewhere forwards the port over ssh, or puts a server of his own, which asks, before the socket.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from marathond.core.paths import path_problem, socket_path_problem

UNIX = "unix:"
EXPECTED = 'must be a loopback address with a port, as in "127.0.0.1:8620", or a socket, as in "unix:/run/marathond/page.sock"'


@dataclass(frozen=True, slots=True)
class Port:
    """``port`` 0: the system chooses one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"


@dataclass(frozen=True, slots=True)
class Socket:
    """A unix socket."""

    path: Path

    def __str__(self) -> str:
        return f"{UNIX}{self.path}"


Address = Port | Socket


def parse(text: str) -> Address:
    """:raises ValueError: no such place; with what was expected, as words that end an error line."""
    if text.startswith(UNIX):
        return _socket(text.removeprefix(UNIX))
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not bare or (":" in bare and bare == host) or not (port.isascii() and port.isdigit() and len(port) <= 5):
        raise ValueError(EXPECTED)
    if int(port) > 65535:
        raise ValueError(f"{EXPECTED}; a port is at most 65535")
    if bare != "localhost" and not _loopback(bare):
        raise ValueError(f"{EXPECTED}; {bare} is not loopback, and whoever can reach it could read everything")
    return Port(bare, int(port))


def _socket(text: str) -> Socket:
    path = Path(text)
    if (problem := path_problem(text)) is not None or (problem := socket_path_problem(path)) is not None:
        raise ValueError(f"the socket's path {problem}")
    if not path.is_absolute():
        raise ValueError("the socket's path must be absolute, as in unix:/run/marathond/page.sock")
    return Socket(path)


def _loopback(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return False


def host_allowed(address: Address, header: str | None) -> bool:
    """Whether a request's Host is one that leads here.

    A foreign page whose name is made to resolve to 127.0.0.1 (DNS rebinding) shows itself by its own name.  Any port: a forwarded one has
    another number.  To a unix socket no browser comes by itself; the server before it has settled what is asked for.
    """
    if isinstance(address, Socket):
        return True
    if header is None:
        return False
    name, colon, port = header.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()):
        name = header
    name = name.lower().removesuffix(".")
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    return bare == "localhost" or _loopback(bare)
