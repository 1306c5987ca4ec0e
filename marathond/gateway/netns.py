"""A listening socket inside a container's network namespace, served from outside.

Owns the way in and back: a thread of its own enters the namespace, opens the socket, and ends, so that no other code can ever run in the
wrong network.  Must not know what is served.  Needs root (CAP_SYS_ADMIN).

Which namespace is meant is pinned first and proven afterwards: the namespace's file is opened, then the process's start time is compared;
had the pid been given to somebody else meanwhile, the start time would differ (fault f10).
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

LOOPBACK = "127.0.0.1"
BACKLOG = 128
_CLONE_NEWNET = 0x40000000
_PROC = Path("/proc")
T = TypeVar("T")


class NamespaceError(Exception):
    """No socket there.  ``code``: ``port_taken``, ``container_gone``, ``host_namespace``, ``not_permitted``, ``io``."""

    def __init__(self, code: str, detail: str) -> None:
        self.code, self.detail = code, detail
        super().__init__(f"{detail} ({code})")


def start_ticks(pid: int) -> int | None:
    """Field 22 of ``/proc/<pid>/stat`` (clock ticks since boot); None when there is no such process, or only its corpse."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")  # the name in it is any bytes that the process likes
    except (FileNotFoundError, ProcessLookupError):
        return None
    after_name = text[text.rindex(")") + 2 :].split()
    return None if after_name[0] in "ZXx" else int(after_name[19])


def still_there(pid: int, ticks: int) -> bool:
    return start_ticks(pid) == ticks


def open_listening(pid: int, ticks: int, port: int) -> socket.socket:
    """A socket that listens on 127.0.0.1:``port`` in the network namespace of process ``pid``, which started at ``ticks``.

    Blocks for milliseconds; call it from a thread.

    :raises NamespaceError: with its code; nothing is left open.
    """
    try:
        return inside(pid, ticks, lambda: _listen(port))
    except OSError as err:
        raise _explain(err, port) from err


def inside(pid: int, ticks: int, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, run in the network namespace of process ``pid``, which started at ``ticks``.

    Blocks for as long as ``work`` does: it must end by itself.

    :raises NamespaceError: with its code: ``work`` was not begun.
    """
    try:
        namespace = os.open(_PROC / str(pid) / "ns" / "net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as err:
        code = "not_permitted" if err.errno in (errno.EACCES, errno.EPERM) else "container_gone"
        raise NamespaceError(code, f"process {pid}: {err.strerror}") from err
    try:
        if not still_there(pid, ticks):
            raise NamespaceError("container_gone", f"process {pid} is not the one that started at tick {ticks}")
        if os.fstat(namespace).st_ino == (_PROC / "self/ns/net").stat().st_ino:
            raise NamespaceError("host_namespace", f"process {pid} shares the host's network: every process there could use the listener")
        return _in_thread(namespace, work)
    finally:
        os.close(namespace)


def _in_thread(namespace: int, work: Callable[[], T]) -> T:
    outcome: Future[T] = Future()

    def enter() -> None:
        try:
            _setns(namespace)
        except OSError as err:
            outcome.set_exception(_explain(err, 0))
            return
        try:
            outcome.set_result(work())
        except BaseException as err:  # noqa: BLE001 - raised again in the caller's thread
            outcome.set_exception(err)

    threading.Thread(target=enter, name="netns", daemon=True).start()
    return outcome.result()


def _listen(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        # Lets a new life of the gateway bind while old connections linger; two listeners on one port stay impossible.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((LOOPBACK, port))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _explain(err: OSError, port: int) -> NamespaceError:
    if err.errno == errno.EADDRINUSE:
        return NamespaceError("port_taken", f"somebody in the container listens on port {port}")
    if err.errno in (errno.EPERM, errno.EACCES):
        return NamespaceError("not_permitted", f"entering the container's network: {err.strerror}")
    return NamespaceError("io", f"{LOOPBACK}:{port} in the container: {err.strerror}")


def _setns(namespace: int) -> None:
    """``os.setns`` exists from Python 3.12 on; before, the C library's."""
    if sys.version_info >= (3, 12):
        os.setns(namespace, os.CLONE_NEWNET)
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
