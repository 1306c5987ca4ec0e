"""The synchronous end of the control socket.

Owns connecting, the deadline of a call, what a person is told while it waits, and what its failures mean.  Must not know the verbs.

A daemon that is stopped (SIGSTOP), or whose loop hangs, takes calls that it answers later or never.  Who gives up hangs up *first* and
looks *then* whether the request was read: one that was not is never begun, for the daemon looks for a hang-up before it acts
(:mod:`marathond.service.control`).  The other order would leave a moment in which it is read and begun.
"""

from __future__ import annotations

import errno
import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from marathond.cli.output import note
from marathond.service import protocol
from marathond.service.exits import Answered, CallFailed, Exit
from marathond.service.peers import peer_of
from marathond.service.protocol import BadRequest

T = TypeVar("T")

CALL_TIMEOUT_S = 60.0
"""Longer than the daemon's own deadline of an ordinary verb, so that the daemon's answer is the one that is shown."""

TELL_AFTER_S = 2.5
"""Without an answer for so long, the person is told for whom the command waits."""


class DaemonDown(CallFailed):
    """Nobody listens at the socket."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"marathond is not running ({path}: {why}); start it with: systemctl start marathond, or: marathond", Exit.DOWN)


def call(path: Path, verb: str, args: dict[str, Any], *, timeout_s: float = CALL_TIMEOUT_S, tell: Callable[[str], object] = note) -> Any:
    """One request, one answer.

    :param tell: is given one line, once, when no answer has come for a while.
    :raises DaemonDown: nobody listens.
    :raises CallFailed: not allowed, no answer in time (exit 75: the words say whether it may still be carried out), or the daemon refused.
    """
    try:
        request = protocol.encode_request(verb, args)
    except BadRequest as error:
        raise CallFailed(str(error), Exit.USAGE) from error
    with _connect(path, min(timeout_s, 5.0)) as connection:
        wait = _Wait(connection, path, verb, timeout_s, tell)
        try:
            _send(connection, request, wait)
            line = _read_line(connection, wait)
        except TimeoutError as error:
            raise CallFailed(f"{verb}: no answer within {timeout_s:g} s from {wait.whom()}; {wait.given_up()}", Exit.BUSY) from error
        except KeyboardInterrupt:
            tell(f"{verb}: given up; {wait.given_up()}")
            raise
        except (BrokenPipeError, ConnectionResetError) as error:
            # A refusal is sent before our request is read, so it may still lie in the socket.
            line = _what_is_left(connection, verb, wait, error)
    return _result(line, verb)


class _Wait:
    """The time that one call has, and what is said of it: once after a while, once at its end."""

    def __init__(self, connection: socket.socket, path: Path, verb: str, timeout_s: float, tell: Callable[[str], object]) -> None:
        self._connection, self._path, self._verb, self._tell = connection, path, verb, tell
        self._began_s = time.monotonic()
        self._ends_s, self._tells_s = self._began_s + timeout_s, self._began_s + TELL_AFTER_S
        self._told = False

    def on(self, act: Callable[[], T]) -> T:
        """``act`` on the connection, as soon as it can be done.

        :raises TimeoutError: the call's time is over.
        """
        while True:
            now_s = time.monotonic()
            if not self._told and now_s >= self._tells_s:
                self._told = True
                self._tell(f"{self._verb}: waits for {self.whom()}; Ctrl-C gives up, and what has not begun by then is not done")
            if now_s >= self._ends_s:
                raise TimeoutError
            self._connection.settimeout((self._ends_s if self._told else min(self._tells_s, self._ends_s)) - now_s)
            with suppress(TimeoutError):
                return act()

    def whom(self) -> str:
        """Whom the call waits for, and what can be seen of it."""
        pid = self._pid()
        who = f"marathond (pid {pid}, {self._path})" if pid else f"marathond ({self._path})"
        if _stopped(pid):
            return f"{who}: the process is stopped by a signal, kill -CONT {pid} lets it go on"
        return f"{who}: it has not answered"

    def given_up(self) -> str:
        """Hang up; the truth about the request, and what to do."""
        read = _hung_up(self._connection)
        if read is False:
            again = "let it go on, then ask again" if _stopped(self._pid()) else "ask again, or see its log: it may hang"
            return f"it had not read the request, which is not done and will not be: {again}"
        return "whether it was done, or still will be, is unknown: look with marathonctl status before you ask again"

    def _pid(self) -> int:
        """Of whoever listens, by the kernel's word; 0: not to be seen from here."""
        try:
            return peer_of(self._connection).pid
        except OSError:
            return 0


def _stopped(pid: int) -> bool:
    from marathond.engine.processes import read_stat

    stat = read_stat(pid) if pid else None
    return stat is not None and stat.state in "Tt"


def _hung_up(connection: socket.socket) -> bool | None:
    """Both ways, for good; then whether the other end had taken all that was sent (None: the kernel does not say)."""
    import fcntl
    import struct
    import termios

    try:
        connection.shutdown(socket.SHUT_RDWR)
        (unread,) = struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, struct.pack("i", 0)))
    except OSError:
        return None
    return bool(unread == 0)


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
            text = f"{path}: marathond accepts no more calls (it is stopped, or hangs), so nothing was asked; see marathonctl status"
            raise CallFailed(text, Exit.BUSY) from error
        raise CallFailed(f"{path}: {error.strerror or error}") from error
    return connection


def _send(connection: socket.socket, request: bytes, wait: _Wait) -> None:
    rest = memoryview(request)
    while rest:
        rest = rest[wait.on(partial(connection.send, rest)) :]


def _read_line(connection: socket.socket, wait: _Wait) -> bytes:
    """Up to the first newline, or what came before the end."""
    received = bytearray()
    while not received.endswith(b"\n") and len(received) <= protocol.RESPONSE_MAX_BYTES:
        piece = wait.on(partial(connection.recv, 65536))
        if not piece:
            break
        received += piece
    return bytes(received)


def _what_is_left(connection: socket.socket, verb: str, wait: _Wait, cause: OSError) -> bytes:
    try:
        return _read_line(connection, wait)
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
