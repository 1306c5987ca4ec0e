"""The synchronous end of the control socket.

Owns connecting, the deadline of a call and what its failures mean to a person.  Must not know the verbs.
"""

from __future__ import annotations

import errno
import json
import socket
from pathlib import Path
from typing import Any

from marathond.service import protocol
from marathond.service.exits import Answered, CallFailed, Exit
from marathond.service.protocol import BadRequest

CALL_TIMEOUT_S = 60.0
"""Longer than the daemon's own deadline of an ordinary verb, so that the daemon's answer is the one that is shown."""


class DaemonDown(CallFailed):
    """Nobody listens at the socket."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"marathond is not running ({path}: {why}); start it with: systemctl start marathond, or: marathond", Exit.DOWN)


def call(path: Path, verb: str, args: dict[str, Any], *, timeout_s: float = CALL_TIMEOUT_S) -> Any:
    """One request, one answer.

    :raises DaemonDown: nobody listens.
    :raises CallFailed: not allowed, no answer in time (exit 75: the outcome is unknown), or the daemon refused.
    """
    try:
        request = protocol.encode_request(verb, args)
    except BadRequest as error:
        raise CallFailed(str(error), Exit.USAGE) from error
    with _connect(path, min(timeout_s, 5.0)) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.sendall(request)
            line = _read_line(connection)
        except TimeoutError as error:
            text = f"{verb}: marathond gave no answer within {timeout_s:g} s; whether it was done is unknown, look with marathonctl status"
            raise CallFailed(text, Exit.BUSY) from error
        except (BrokenPipeError, ConnectionResetError) as error:
            # A refusal is sent before our request is read, so it may still lie in the socket.
            line = _what_is_left(connection, verb, error)
    return _result(line, verb)


def _connect(path: Path, timeout_s: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        if error.errno in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
            raise DaemonDown(path, "no socket" if error.errno != errno.ECONNREFUSED else "nobody listens") from error
        if error.errno in (errno.EACCES, errno.EPERM):
            raise CallFailed(f"{path}: permission denied; be root, the daemon's user, or in the socket's group") from error
        if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
            raise CallFailed(f"{path}: marathond does not accept calls; try again", Exit.BUSY) from error
        raise CallFailed(f"{path}: {error.strerror or error}") from error
    return connection


def _read_line(connection: socket.socket) -> bytes:
    """Up to the first newline, or what came before the end."""
    received = bytearray()
    while not received.endswith(b"\n") and len(received) <= protocol.RESPONSE_MAX_BYTES:
        piece = connection.recv(65536)
        if not piece:
            break
        received += piece
    return bytes(received)


def _what_is_left(connection: socket.socket, verb: str, cause: OSError) -> bytes:
    try:
        return _read_line(connection)
    except OSError:
        raise CallFailed(f"{verb}: marathond closed the connection; look with marathonctl status", Exit.BUSY) from cause


def _result(line: bytes, verb: str) -> Any:
    if not line.endswith(b"\n"):
        raise CallFailed(f"{verb}: marathond ended before it answered; look with marathonctl status", Exit.BUSY)
    try:
        answer = json.loads(line)
        ok = answer["ok"]
        if ok is True:
            return answer["result"]
        message, code = str(answer["error"]), int(answer["exit"])
    except (ValueError, KeyError, TypeError) as error:
        raise CallFailed(f"{verb}: what answers at the control socket is not marathond") from error
    raise Answered(message, code)
