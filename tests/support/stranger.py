"""Another user, for what a socket's other end may be: work done in a child that gave up every right of ours."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

UID = 3_999_999
"""In no password database."""


def as_user(work: Callable[[], bytes], uid: int = UID, gid: int = UID) -> bytes:
    """What ``work`` returns, done as that user.  Needs root; blocking.  In a child, because changing the user is for a whole process."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.close(reader)
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def let_in(path: Path) -> None:
    """Whoever wants may reach the socket: what refuses then is not its mode."""
    path.chmod(0o666)
    for folder in path.parents:
        if folder.owner() == path.owner() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o711)


def connected(path: Path, timeout_s: float = 120.0) -> socket.socket:
    """Waits for its place among those who have not been met yet: with Python's timeout, Linux would say EAGAIN at once."""
    made = socket.socket(socket.AF_UNIX)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", round(timeout_s), 0))
    made.connect(str(path))
    made.settimeout(timeout_s)
    return made


def heard(connection: socket.socket) -> bytes:
    """All that is said before the end of the connection, also one that was cut while we spoke."""
    received = bytearray()
    try:
        while piece := connection.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)


def poured(connection: socket.socket, piece: bytes, times: int) -> int:
    """How many bytes of it the other end took before it closed."""
    taken = 0
    try:
        for _ in range(times):
            taken += connection.send(piece)
    except ConnectionError:
        pass
    return taken
