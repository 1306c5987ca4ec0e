"""Who is at the other end of a unix socket, by the kernel's word.

Owns SO_PEERCRED, the look whether a caller has gone, and the rule of who may command the daemon: root, the daemon's own user, members of
the socket's group.  Must not know what is asked.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import select
import socket
import struct
from dataclasses import dataclass

NOBODY = 2**32 - 1
"""Of the kernel's: no group has this number, and none a larger one."""
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)
_UCRED = struct.Struct("iII")  # struct ucred of unix(7): pid, uid, gid; the ids of a user namespace may lie beyond 2**31


@dataclass(frozen=True, slots=True)
class Peer:
    """The caller.  ``name`` is the author of what it decides; ``uid 1234`` where the password database has no name."""

    pid: int
    uid: int
    gid: int
    name: str


def peer_of(connection: socket.socket) -> Peer:
    """Credentials that the kernel took down when the peer connected; the peer cannot choose them."""
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return Peer(pid, uid, gid, user_name(uid))


def has_gone(descriptor: int) -> bool:
    """Whether the other end of a connection will hear nothing any more: it was closed, or shut down both ways.

    The kernel says so by POLLHUP, at once and also while unread requests lie in the socket.  A caller that only says "no more requests"
    (``nc -N``, shutdown of its writing half) still listens: that is POLLRDHUP alone.
    """
    look = select.poll()
    look.register(descriptor, 0)  # what went wrong is told unasked
    return any(events & (select.POLLHUP | select.POLLERR | select.POLLNVAL) for _, events in look.poll(0))


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def may_command(peer: Peer, *, daemon_uid: int, socket_gid: int) -> bool:
    """Root, the daemon's user, or a member of the socket's group (primary at connect, or by the group database)."""
    return peer.uid in (0, daemon_uid) or peer.gid == socket_gid or socket_gid in groups_of(peer.uid)


def groups_of(uid: int) -> frozenset[int]:
    """Group ids of a user by the password and group databases; empty for a uid that has no entry."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return frozenset()
    return frozenset(os.getgrouplist(entry.pw_name, entry.pw_gid))


def group_id(name: str) -> int | None:
    """Number of a group by name or digits; None when there is none of that name."""
    if _NUMBER.fullmatch(name) and int(name) < NOBODY:
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, ValueError):  # a name with a NUL is none either
        return None
