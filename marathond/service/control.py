"""The control socket: who may call, how much, how long; what the calls do is the handler's business.

Owns the socket file (a dead daemon's is replaced, a live one's is refused), peer credentials, the bounds on requests and connections,
and the translation of errors into answers.  A request whose caller has hung up before it was begun is not begun: a daemon that was stopped
for an hour must not carry out then what somebody gave up on, and perhaps asked otherwise since.  Must not know the verbs.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import structlog
from anyio.streams.buffered import BufferedByteReceiveStream

from marathond.core.errors import ConfigError, EngineTimeout, LedgerRefused, MarathonError
from marathond.ports.leaving import last_act
from marathond.service import protocol
from marathond.service.exits import Exit
from marathond.service.peers import Peer, group_id, has_gone, may_command, peer_of
from marathond.service.protocol import BadRequest

MODE = 0o660

CONNECTIONS_MAX = 32
"""Callers at one time; the next one is told that the daemon is busy."""

BACKLOG = 64

LINE_WAIT_S = 30.0
"""A caller that connected and says nothing is let go."""

SEND_S = 2.0
"""A caller that does not take its answer is let go; the daemon's end waits for it, so this is short."""

ACCEPT_PAUSE_S = 1.0

STRANGERS_KNOWN = 1000
"""User ids whose refusals are counted one by one."""

_PROBE_S = 2.0

Handler = Callable[[Peer, str, dict[str, Any]], Awaitable[object]]
"""Answers a JSON value; raises MarathonError to refuse."""

log = structlog.get_logger(__name__)


class ControlServer:
    """One listening socket, for one daemon life.

    :param handler: called once per request, under the deadline that ``deadline_s`` names for the verb.
    :param group: name or number of the group that may command, besides root and the daemon's user; None: the socket's own.
    :param replaced: whether the process of this pid is a daemon that this one has replaced, whose socket may be taken.
    """

    def __init__(
        self,
        path: Path,
        handler: Handler,
        *,
        deadline_s: Callable[[str], float],
        group: str | None = None,
        replaced: Callable[[int], bool] = lambda _: False,
    ) -> None:
        self.path, self._handler, self._deadline_s, self._replaced = path, handler, deadline_s, replaced
        self._gid = None if group is None else group_id(group)
        if group is not None and self._gid is None:
            raise ConfigError("", f"control group {group!r}", "must be a group of this host")
        self._callers = 0
        self._refused: Counter[int] = Counter()

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled.  Started once the socket accepts callers.

        :raises LedgerRefused: ``in_use``, another daemon answers there.
        :raises ConfigError: the path cannot hold the socket.
        """
        await anyio.to_thread.run_sync(make_way, self.path, self._replaced)
        try:
            listener = await anyio.create_unix_listener(self.path, mode=MODE, backlog=BACKLOG)
        except OSError as error:
            raise ConfigError("", f"control socket {self.path}", (error.strerror or str(error)).lower()) from error
        async with listener:
            if self._gid is not None:
                os.chown(self.path, -1, self._gid)
            made = self.path.stat()
            self._gid = made.st_gid
            try:
                task_status.started()
                await self._accept(listener)
            finally:
                self._unlink(made.st_ino)

    @property
    def callers(self) -> int:
        """Connections that are being served."""
        return self._callers

    async def _accept(self, listener: anyio.abc.SocketListener) -> None:
        async with anyio.create_task_group() as tasks:
            while True:
                try:
                    stream = await listener.accept()
                except anyio.BrokenResourceError as error:
                    # Out of file descriptors, most likely: that passes, and must not end the daemon.
                    log.error("control_accept_failed", error=str(error.__cause__ or error))
                    await anyio.sleep(ACCEPT_PAUSE_S)
                    continue
                tasks.start_soon(self._connection, stream, name="control connection")

    def _unlink(self, inode: int) -> None:
        """Only our own: a successor may already have bound its socket at the same path."""
        try:
            if self.path.stat().st_ino == inode:
                self.path.unlink()
        except FileNotFoundError:
            pass

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            peer = peer_of(stream.extra(anyio.abc.SocketAttribute.raw_socket))
            if (refusal := self._refusal(peer)) is not None:
                # Whoever is refused may be gone before it is told: that is nobody's end but its own.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await _send(stream, refusal)
                return
            self._callers += 1
            try:
                await self._requests(stream, peer)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                log.info("control_caller_left", pid=peer.pid, user=peer.name)
            finally:
                self._callers -= 1

    def _refusal(self, peer: Peer) -> bytes | None:
        if not may_command(peer, daemon_uid=os.geteuid(), socket_gid=self._gid if self._gid is not None else -1):
            self._told_of(peer)
            expected = "be root, the daemon's user, or in the socket's group"
            return protocol.encode_error(f"{peer.name} may not command this daemon: {expected}", Exit.FAILED)
        if self._callers >= CONNECTIONS_MAX:
            return protocol.encode_error(f"busy: {CONNECTIONS_MAX} callers already; try again", Exit.BUSY)
        return None

    def _told_of(self, peer: Peer) -> None:
        """At every doubling: who knocks a thousand times a second must not fill the log's disk."""
        if len(self._refused) >= STRANGERS_KNOWN:
            self._refused.clear()
        self._refused[peer.uid] += 1
        times = self._refused[peer.uid]
        if times & (times - 1) == 0:
            log.warning("control_caller_refused", pid=peer.pid, uid=peer.uid, times=times)

    async def _requests(self, stream: anyio.abc.SocketStream, peer: Peer) -> None:
        lines = BufferedByteReceiveStream(stream)
        while True:
            with anyio.move_on_after(LINE_WAIT_S) as waiting:
                try:
                    line = await lines.receive_until(b"\n", protocol.REQUEST_MAX_BYTES)
                except anyio.IncompleteRead:
                    return
                except anyio.DelimiterNotFound:
                    await _send(stream, protocol.encode_error(f"request over {protocol.REQUEST_MAX_BYTES} bytes", Exit.USAGE))
                    return
            if waiting.cancelled_caught:
                return
            # Asked here and not at the connection's end: everything that was sent before a hang-up still lies in the socket, to be read.
            if has_gone(stream.extra(anyio.abc.SocketAttribute.raw_socket).fileno()):
                log.info("control_request_given_up", pid=peer.pid, user=peer.name, bytes=len(line))
                return
            await _send(stream, await self._answer(peer, line))

    async def _answer(self, peer: Peer, line: bytes) -> bytes:
        """Every request gets an answer; only cancellation of the daemon itself passes through."""
        try:
            request = protocol.decode_request(line)
        except BadRequest as error:
            return protocol.encode_error(str(error), Exit.USAGE)
        deadline_s = self._deadline_s(request.verb)
        try:
            with anyio.fail_after(deadline_s):
                result = await self._handler(peer, request.verb, request.args)
            answer = protocol.encode_result(result)
        except TimeoutError:
            log.warning("control_request_timed_out", verb=request.verb, user=peer.name, deadline_s=deadline_s)
            return protocol.encode_error(f"{request.verb}: no outcome within {deadline_s:g} s; look with marathonctl status", Exit.BUSY)
        except MarathonError as error:
            return protocol.encode_error(str(error), exit_code_of(error))
        except Exception:  # a bug in one verb must not end the daemon: it is logged whole and the caller is told
            log.exception("control_request_failed", verb=request.verb, user=peer.name)
            return protocol.encode_error(f"{request.verb}: internal error, see the daemon's log", Exit.FAILED)
        if len(answer) > protocol.RESPONSE_MAX_BYTES:
            return protocol.encode_error(f"{request.verb}: done, but its answer is too large to be sent", Exit.FAILED)
        return answer


def exit_code_of(error: MarathonError) -> Exit:
    """The exit code that belongs to an error: 2 what the caller wrote, 75 busy, 1 everything else."""
    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, EngineTimeout) or (isinstance(error, LedgerRefused) and error.code == "busy"):
        return Exit.BUSY
    return Exit.FAILED


def make_way(path: Path, replaced: Callable[[int], bool] = lambda _: False) -> None:
    """Remove the socket of a dead daemon, or of one that was replaced.  Blocking, at most two seconds.

    Whether it is dead is asked of the kernel by connecting: a refused connection has no listener behind it.  Whose it is otherwise, the
    kernel tells, too; a daemon that was stopped (SIGSTOP) before it was replaced still listens.

    :raises LedgerRefused: ``in_use``, something accepts connections there.
    :raises ConfigError: something that is no socket lies at ``path``, or it cannot be looked at.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError("", f"control socket {path}", (error.strerror or str(error)).lower()) from error
    if not stat.S_ISSOCK(mode):
        raise ConfigError("", f"control socket {path}", "something that is no socket lies there; move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_S)
        try:
            probe.connect(str(path))
        except (TimeoutError, BlockingIOError) as error:  # a full backlog: somebody listens, however slowly
            raise LedgerRefused("in_use", f"control socket {path} belongs to a daemon that does not answer; stop it first") from error
        except OSError as error:
            if error.errno != errno.ECONNREFUSED:
                raise ConfigError("", f"control socket {path}", (error.strerror or str(error)).lower()) from error
        else:
            pid = peer_of(probe).pid
            if not replaced(pid):
                raise LedgerRefused("in_use", f"control socket {path} is in use by another daemon (pid {pid})")
    path.unlink(missing_ok=True)


async def _send(stream: anyio.abc.SocketStream, answer: bytes) -> None:
    """Shielded, for the answer to ``stop`` is on its way while the daemon is already being cancelled."""
    with last_act("", SEND_S):
        await stream.send(answer)
