"""How the host comes to the control socket of an app-server inside a container, without trusting anything in the container.

Owns the walk from the container's main process to its socket, and the proof that the socket's listener lives in that container.  Must not
know what is spoken there.

``codex app-server --listen unix://PATH`` makes PATH a symbolic link to ``/tmp/codex-daemon-<uid>/<64 hex digits>``; the real socket is the
latter.  Neither is ever resolved as a path: the agent owns them and could plant a link to a socket of the host.  Instead

1. ``/proc/<pid>/root`` of the container's main process is opened, and only then the process's start time is compared (a reused pid shows);
2. from there ``tmp``, ``codex-daemon-<uid>`` and the name are opened one by one, each without following a link, each looked at;
3. what was found last must be a socket of the agent's user; it is connected through its descriptor, never again through a name;
4. the listener at the other end (``SO_PEERCRED``) must live in the container's pid namespace.

Needs root.  On engines whose files are not ours (Docker Desktop, a remote engine) there is no such walk, and no other way is built in:
``codex app-server proxy --sock PATH`` through an attached exec would be one.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from marathond.agents.codex.errors import ReachError

_PROC = Path("/proc")
_NAME = re.compile(r"[0-9a-f]{64}")
_UCRED = struct.Struct("3i")
"""pid, uid, gid."""
_CONNECTED = "03"
_NAMES_AT_MOST = 64
"""Entries looked at in the socket's folder; codex makes one."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the socket is.

    :param pid: the container's main process as the host numbers it (the engine's ``State.Pid``).
    :param start_ticks: its start in clock ticks since boot, field 22 of its ``stat``, read by the caller right after the engine named it.
    :param uid: the user codex runs as, as the container numbers it.
    :param name: the socket's name, 64 hex digits; None: the only one in the folder.
    :param server_pid: host-side pid of the app-server where it is known (the engine names an exec's): nobody else may listen.
    """

    pid: int
    start_ticks: int
    uid: int
    name: str | None = None
    server_pid: int | None = None


@dataclass(frozen=True, slots=True)
class Reached:
    """A socket that may be spoken to while the context lasts.

    :param path: its name for ``connect``; meaningful in this process only.
    :param name: its 64 hex digits.
    :param peer_pid: host-side pid of the process that listens, the app-server.
    """

    path: str
    name: str
    peer_pid: int


def start_ticks(pid: int) -> int | None:
    """Field 22 of ``/proc/<pid>/stat``; None when there is no such process, or only its corpse."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")  # the name in it is any bytes that the process likes
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZXx" else int(fields[19])


@contextmanager
def reached(reach: Reach) -> Iterator[Reached]:
    """Open the way, prove the listener, close everything afterwards.  Blocks for well under a millisecond.

    :raises ReachError: with its code.
    """
    opened: list[int] = []
    try:
        root = _root(reach, opened)
        tmp = _folder(root, "tmp", "tmp", opened)
        owner = _host_uid(reach)
        folder = _folder(tmp, f"codex-daemon-{reach.uid}", "folder", opened)
        if os.fstat(folder).st_uid != owner:
            raise ReachError("folder_owner", f"/tmp/codex-daemon-{reach.uid} belongs to host uid {os.fstat(folder).st_uid}, not {owner}")
        name = reach.name if reach.name is not None else _only_name(folder, reach.uid)
        found = _socket(folder, name, owner, opened)
        path = f"/proc/self/fd/{found}"
        yield Reached(path, name, _peer(path, reach))
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def _root(reach: Reach, opened: list[int]) -> int:
    try:
        root = os.open(_PROC / str(reach.pid) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as err:
        code = "not_permitted" if err.errno in (errno.EACCES, errno.EPERM) else "container_gone"
        raise ReachError(code, f"process {reach.pid}: {err.strerror}") from err
    opened.append(root)
    if start_ticks(reach.pid) != reach.start_ticks:
        raise ReachError("container_gone", f"process {reach.pid} is not the one that started at tick {reach.start_ticks}")
    return root


def _host_uid(reach: Reach) -> int:
    """The container's uid as the host's file system shows it (an engine may map users)."""
    try:
        lines = (_PROC / str(reach.pid) / "uid_map").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError) as err:
        raise ReachError("container_gone", f"process {reach.pid}: {err.strerror}") from err
    for inside, outside, length in (map(int, line.split()) for line in lines):
        if inside <= reach.uid < inside + length:
            return outside + reach.uid - inside
    raise ReachError("folder_owner", f"uid {reach.uid} does not exist in the container's user namespace")


def _open(parent: int, name: str, what: str, opened: list[int]) -> os.stat_result:
    """Open one entry without following it; its descriptor is the last of ``opened``."""
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    except OSError as err:
        code = f"{what}_missing" if err.errno in (errno.ENOENT, errno.ENOTDIR) else "io"
        raise ReachError(code, f"{name} in the container: {err.strerror}") from err
    opened.append(descriptor)
    status = os.fstat(descriptor)
    if stat.S_ISLNK(status.st_mode):
        raise ReachError(f"{what}_symlink", f"{name} in the container is a symbolic link")
    return status


def _folder(parent: int, name: str, what: str, opened: list[int]) -> int:
    if not stat.S_ISDIR(_open(parent, name, what, opened).st_mode):
        raise ReachError(f"{what}_not_folder", f"{name} in the container is no folder")
    return opened[-1]


def _only_name(folder: int, uid: int) -> str:
    # An O_PATH descriptor cannot be listed; "." of it is the very same folder.
    try:
        readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError as err:
        raise ReachError("io", f"codex-daemon-{uid} in the container: {err.strerror}") from err
    try:
        names = []
        with os.scandir(readable) as entries:
            for looked_at, entry in enumerate(entries, 1):
                if _NAME.fullmatch(entry.name):
                    names.append(entry.name)
                if looked_at > _NAMES_AT_MOST:
                    raise ReachError("sockets_several", f"more than {_NAMES_AT_MOST} entries in /tmp/codex-daemon-{uid}")
    finally:
        os.close(readable)
    if not names:
        raise ReachError("socket_missing", f"no socket in /tmp/codex-daemon-{uid}")
    if len(names) > 1:
        raise ReachError("sockets_several", f"{len(names)} sockets in /tmp/codex-daemon-{uid}, expected one")
    return names[0]


def _socket(folder: int, name: str, owner: int, opened: list[int]) -> int:
    if not _NAME.fullmatch(name):
        raise ReachError("socket_missing", f"{name[:80]!r}: a socket's name has 64 hex digits")
    status = _open(folder, name, "socket", opened)
    if not stat.S_ISSOCK(status.st_mode):
        raise ReachError("socket_not_socket", f"{name} in the container is no socket")
    if status.st_uid != owner:
        raise ReachError("socket_owner", f"{name} belongs to host uid {status.st_uid}, not {owner}")
    return opened[-1]


def _peer(path: str, reach: Reach) -> int:
    """Who listens there, as the kernel noted it; 0 for a process that ours cannot see.

    The descriptor pins the socket's inode, so that a later connect meets the same listener.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)  # a full backlog answers EAGAIN instead of waiting
        try:
            probe.connect(path)
        except OSError as err:
            raise ReachError("socket_refused" if err.errno == errno.ECONNREFUSED else "io", f"connect: {err.strerror}") from err
        pid: int = _UCRED.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))[0]
    try:
        peer = (_PROC / str(pid) / "ns" / "pid").stat().st_ino if pid else 0
    except OSError as err:
        raise ReachError("socket_refused", f"process {pid}, which listened at the socket, has ended") from err
    try:
        inside = peer == (_PROC / str(reach.pid) / "ns" / "pid").stat().st_ino
    except OSError as err:
        raise ReachError("container_gone", f"process {reach.pid}: {err.strerror}") from err
    if not inside:
        raise ReachError("peer_elsewhere", f"process {pid} listens at the socket, and is no process of the container")
    if reach.server_pid not in (None, pid):
        raise ReachError("peer_other", f"process {pid} listens at the socket, not the app-server, process {reach.server_pid}")
    return pid


def connections_from_here(server_pid: int, name: str) -> int:
    """How many connections made in this network namespace the server still holds, its ends of them.

    A process in the container cannot add to it: what it connects is listed in its own namespace.

    :raises ReachError: ``container_gone``, the server is not there any more.
    """
    folder = _PROC / str(server_pid) / "fd"
    held = set()
    try:
        for descriptor in folder.iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                held.add(str(descriptor.readlink()))
    except (FileNotFoundError, ProcessLookupError) as err:
        raise ReachError("container_gone", f"the server, process {server_pid}: {err.strerror}") from err
    rows = (line.split() for line in (_PROC / "self" / "net" / "unix").read_text(errors="replace").splitlines() if name in line)
    return sum(1 for row in rows if row[5] == _CONNECTED and f"socket:[{row[6]}]" in held)
