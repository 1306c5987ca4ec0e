"""The control socket: real server, real client, real kernel credentials."""

from __future__ import annotations

import json
import os
import pwd
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.cli import client
from marathond.cli.client import DaemonDown, call
from marathond.core.errors import ConfigError, LedgerRefused, Refused
from marathond.service import control, protocol
from marathond.service.control import ControlServer, make_way
from marathond.service.exits import CallFailed, Exit
from marathond.service.peers import Peer, has_gone, may_command, peer_of

pytestmark = pytest.mark.anyio
TEMP = Path(tempfile.gettempdir()).resolve()
GIVES_UP_S, TELLS_S = 2.0, 0.5
"""Of a call that nobody answers; and when it says for whom it waits.  The request must have been sent by then, for that is what the words
tell of: a process that the host leaves standing for a moment must not come too late for that."""


class Echo:
    """Answers what it was asked, refuses on demand."""

    def __init__(self) -> None:
        self.seen: list[tuple[Peer, str, dict[str, Any]]] = []

    async def __call__(self, peer: Peer, verb: str, args: dict[str, Any]) -> object:
        self.seen.append((peer, verb, args))
        match verb:
            case "refuse":
                raise Refused("not now: it rains")
            case "bug":
                raise ZeroDivisionError("a bug")
            case "hang":
                await anyio.sleep_forever()
            case "large":
                return "x" * (protocol.RESPONSE_MAX_BYTES + 1)
        return {"verb": verb, "args": args}


@asynccontextmanager
async def serving(path: Path, deadline_s: float = 120.0) -> AsyncIterator[Echo]:
    handler = Echo()
    server = ControlServer(path, handler, deadline_s=lambda verb: 0.05 if verb == "hang" else deadline_s)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        yield handler
        with anyio.fail_after(120):
            while server.callers:  # anyio trips over a connection that is readable and cancelled in the same turn of the loop
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def ask(path: Path, verb: str, **args: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: call(path, verb, args, timeout_s=120))


async def raw(path: Path, payload: bytes) -> list[dict[str, Any]]:
    """Everything that the server answers to ``payload`` before the end of the connection."""

    def talk() -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(str(path))
            connection.sendall(payload)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received

    return [json.loads(line) for line in (await anyio.to_thread.run_sync(talk)).splitlines()]


async def test_a_call_is_answered_and_its_author_is_the_kernels_word(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path) as echo:
        assert await ask(path, "ping", n=1, text="grüße") == {"verb": "ping", "args": {"n": 1, "text": "grüße"}}
        peer = echo.seen[0][0]
        assert (peer.uid, peer.pid, peer.name) == (os.geteuid(), os.getpid(), pwd.getpwuid(os.geteuid()).pw_name)
        assert path.stat().st_mode & 0o777 == 0o660
    assert not path.exists()


async def test_one_connection_carries_many_requests(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    line = protocol.encode_request("ping", {})
    async with serving(path):
        assert [answer["ok"] for answer in await raw(path, line * 3)] == [True] * 3


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"hello\n", "not a JSON line"),
        (b"[" * 100_000 + b"\n", "not a JSON line"),
        (b"[]\n", "must be a JSON object"),
        (b'{"v":2,"verb":"ping"}\n', "this daemon speaks 1"),
        (b'{"v":true,"verb":"ping"}\n', "this daemon speaks 1"),
        (b'{"v":1,"verb":7}\n', "needs verb"),
        (b'{"v":1,"verb":"ping","args":[]}\n', "needs verb"),
        (b"\xff\xfe\n", "not a JSON line"),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_lives(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "c.sock"
    async with serving(path) as echo:
        bad, good = await raw(path, line + protocol.encode_request("ping", {}))
        assert not bad["ok"] and words in bad["error"] and bad["exit"] == Exit.USAGE
        assert good["ok"]
        assert [verb for _, verb, _ in echo.seen] == ["ping"]


async def test_a_request_without_end_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"

    def pour() -> dict[str, Any]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(120)
            connection.connect(str(path))
            connection.sendall(b"x" * protocol.REQUEST_MAX_BYTES)
            answer: dict[str, Any] = json.loads(connection.recv(65536))
            return answer

    async with serving(path):
        answer = await anyio.to_thread.run_sync(pour)
        assert not answer["ok"] and str(protocol.REQUEST_MAX_BYTES) in answer["error"]
        assert (await ask(path, "ping"))["verb"] == "ping"


async def test_refusals_bugs_and_silence_are_one_line_with_a_code(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        for verb, words, code in (
            ("refuse", "not now: it rains", Exit.FAILED),
            ("bug", "bug: internal error, see the daemon's log", Exit.FAILED),
            ("hang", "hang: no outcome within 0.05 s", Exit.BUSY),
            ("large", "done, but its answer is too large", Exit.FAILED),
        ):
            with pytest.raises(CallFailed) as caught:
                await ask(path, verb)
            assert words in str(caught.value) and caught.value.exit_code == code
        assert (await ask(path, "ping"))["verb"] == "ping"


async def test_the_request_that_ends_the_server_is_answered(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"

    async with anyio.create_task_group() as tasks:

        async def stop(peer: Peer, verb: str, args: dict[str, Any]) -> object:
            tasks.cancel_scope.cancel()
            return "stopping"

        await tasks.start(ControlServer(path, stop, deadline_s=lambda _: 120).serve)
        answers: list[object] = []

        async def caller() -> None:
            with anyio.CancelScope(shield=True):
                answers.append(await ask(path, "stop"))

        tasks.start_soon(caller)
    assert answers == ["stopping"]


async def test_too_many_callers_are_told_busy(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        idle = []
        for _ in range(control.CONNECTIONS_MAX):
            connection = await anyio.connect_unix(path)
            await connection.send(protocol.encode_request("ping", {}))
            await connection.receive()  # it has been let in
            idle.append(connection)
        with pytest.raises(CallFailed) as caught:
            await ask(path, "ping")
        assert caught.value.exit_code == Exit.BUSY and "busy" in str(caught.value)
        for connection in idle:
            await connection.aclose()


async def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with serving(path):
        assert (await ask(path, "ping"))["verb"] == "ping"


async def test_a_live_daemons_socket_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        with pytest.raises(LedgerRefused, match=f"in use by another daemon \\(pid {os.getpid()}\\)") as caught:
            await ControlServer(path, Echo(), deadline_s=lambda _: 1).serve()
        assert caught.value.code == "in_use"
        assert (await ask(path, "ping"))["verb"] == "ping"


async def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.is_socket()


def test_what_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("work")
    with pytest.raises(ConfigError, match="no socket"):
        make_way(path)
    assert path.read_text() == "work"


def test_a_link_to_a_file_is_never_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "precious", tmp_path / "c.sock"
    target.write_text("work")
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="no socket"):
        make_way(link)
    assert link.is_symlink() and target.read_text() == "work"


async def test_a_group_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-group"):
        ControlServer(tmp_path / "c.sock", Echo(), deadline_s=lambda _: 1, group="no-such-group")


def test_who_may_command() -> None:
    nobody = pwd.getpwnam("nobody")
    stranger = Peer(1, nobody.pw_uid, 4_000_000, "nobody")
    assert not may_command(stranger, daemon_uid=1_234_567, socket_gid=4_000_001)
    assert may_command(stranger, daemon_uid=nobody.pw_uid, socket_gid=4_000_001)
    assert may_command(stranger, daemon_uid=1_234_567, socket_gid=4_000_000)
    assert may_command(stranger, daemon_uid=1_234_567, socket_gid=nobody.pw_gid)
    assert may_command(Peer(1, 0, 0, "root"), daemon_uid=1_234_567, socket_gid=4_000_001)
    assert not may_command(Peer(1, 3_999_999, 3_999_999, "uid 3999999"), daemon_uid=0, socket_gid=0)


def test_credentials_come_from_the_kernel() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert peer_of(ours).pid == os.getpid()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
async def test_a_stranger_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    nobody = pwd.getpwnam("nobody")

    def as_nobody() -> bytes:
        """In a child, because changing the user is for a whole process; it gets in past the mode so that the second check is met."""
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            try:
                os.setgroups([])
                os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
                os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
                connection = socket.socket(socket.AF_UNIX)
                connection.settimeout(120)
                connection.connect(str(path))
                os.write(writer, connection.recv(4096))
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        return told

    async with serving(path) as echo:
        path.chmod(0o666)
        for folder in (tmp_path, *(parent for parent in tmp_path.parents if TEMP in parent.parents)):
            folder.chmod(folder.stat().st_mode | 0o711)
        answer = json.loads(await anyio.to_thread.run_sync(as_nobody))
        assert not answer["ok"] and answer["error"].startswith("nobody may not command this daemon")
        assert echo.seen == []


def test_no_daemon_is_exit_3(tmp_path: Path) -> None:
    with pytest.raises(DaemonDown) as caught:
        call(tmp_path / "none.sock", "ping", {})
    assert caught.value.exit_code == Exit.DOWN and "not running" in str(caught.value)


@contextmanager
def mute(path: Path) -> Iterator[socket.socket]:
    """Somebody who takes calls and says nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(4)
        yield listener


def test_a_request_that_nobody_read_is_not_done_and_the_deadline_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with mute(path) as listener:
        with pytest.raises(CallFailed) as caught:
            call(path, "void", {}, timeout_s=GIVES_UP_S)
        assert caught.value.exit_code == Exit.BUSY and "\n" not in str(caught.value)
        assert str(caught.value).startswith(
            f"void: no answer within {GIVES_UP_S:g} s from marathond (pid {os.getpid()}, {path}): it has not answered; "
        )
        assert "it had not read the request, which is not done and will not be: ask again" in str(caught.value)
        accepted, _ = listener.accept()
        with accepted:  # what makes these words true: the request is there to be read, and who looks sees that nobody waits
            assert has_gone(accepted.fileno()) and accepted.recv(65536) == protocol.encode_request("void", {})


def test_of_a_request_that_was_read_the_outcome_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TELL_AFTER_S", TELLS_S)
    path, read = tmp_path / "c.sock", threading.Event()

    def take(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            read.set()
            connection.recv(65536)  # until the caller hangs up

    with mute(path) as listener:
        reader = threading.Thread(target=take, args=(listener,))
        reader.start()
        with pytest.raises(CallFailed, match="whether it was done, or still will be, is unknown: look with marathonctl status") as caught:
            call(path, "void", {}, timeout_s=GIVES_UP_S, tell=lambda _: read.wait(120))
        reader.join(120)
    assert caught.value.exit_code == Exit.BUSY and read.is_set()


def test_who_waits_is_told_once_for_whom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TELL_AFTER_S", 0.05)
    path, told = tmp_path / "c.sock", list[str]()
    with mute(path), pytest.raises(CallFailed):
        call(path, "pause", {}, timeout_s=0.5, tell=told.append)
    (line,) = told
    assert line == (
        f"pause: waits for marathond (pid {os.getpid()}, {path}): it has not answered; Ctrl-C gives up, and what has not begun by then is "
        "not done"
    )


def test_a_request_larger_than_the_socket_holds_waits_no_longer_than_its_deadline(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with mute(path), pytest.raises(CallFailed, match="not done and will not be"):
        call(path, "void", {"text": "x" * 900_000}, timeout_s=GIVES_UP_S)


def test_who_gives_up_is_told_whether_it_may_still_be_done(tmp_path: Path) -> None:
    path, told = tmp_path / "c.sock", list[str]()

    def tell(line: str) -> None:
        told.append(line)
        if len(told) == 1:
            raise KeyboardInterrupt  # as if at that very moment

    with mute(path), pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(client, "TELL_AFTER_S", TELLS_S)
        call(path, "drain", {}, timeout_s=120, tell=tell)
    assert told[1] == (
        "drain: given up; it had not read the request, which is not done and will not be: ask again, or see its log: it may hang"
    )


def test_of_a_process_that_is_stopped_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of its own, frozen as `kill -STOP` freezes it; what was given up meanwhile is not begun once it goes on."""
    monkeypatch.setattr(client, "TELL_AFTER_S", 0.05)
    path, seen, told = tmp_path / "c.sock", tmp_path / "seen", list[str]()
    with subprocess.Popen([sys.executable, "-c", FROZEN, str(path), str(seen)], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "serves\n"
            server.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(CallFailed) as caught:
                call(path, "given-up", {}, timeout_s=GIVES_UP_S, tell=told.append)
            server.send_signal(signal.SIGCONT)
            assert call(path, "waited-for", {}, timeout_s=120) == "done"
        finally:
            server.kill()
    stopped = f"marathond (pid {server.pid}, {path}): the process is stopped by a signal, kill -CONT {server.pid} lets it go on"
    assert told == [f"given-up: waits for {stopped}; Ctrl-C gives up, and what has not begun by then is not done"]
    assert str(caught.value) == (
        f"given-up: no answer within {GIVES_UP_S:g} s from {stopped}; it had not read the request, which is not done and will not be: let "
        "it go on, then ask again"
    )
    assert seen.read_text() == "waited-for\n"


FROZEN = """
import sys
from pathlib import Path
import anyio
from marathond.service.control import ControlServer

async def act(peer, verb, args):
    with Path(sys.argv[2]).open("a") as file:
        file.write(verb + chr(10))
    return "done"

async def main():
    async with anyio.create_task_group() as tasks:
        await tasks.start(ControlServer(Path(sys.argv[1]), act, deadline_s=lambda _: 120).serve)
        print("serves", flush=True)

anyio.run(main)
"""


async def test_a_request_whose_caller_has_gone_is_not_begun(tmp_path: Path) -> None:
    """The loop is held while somebody asks and leaves, as a stopped process is: all of it lies in the socket when the daemon looks."""
    path = tmp_path / "c.sock"
    async with serving(path) as echo:
        for how in (socket.SHUT_RDWR, None):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(protocol.encode_request("ping", {}) * 3)
                if how is not None:
                    connection.shutdown(how)
        assert (await ask(path, "status"))["verb"] == "status"
        assert [verb for _, verb, _ in echo.seen] == ["status"]


async def test_a_caller_that_has_closed_one_half_still_waits_and_is_served(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    async with serving(path) as echo:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(protocol.encode_request("ping", {}))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(120)
            assert json.loads(await anyio.to_thread.run_sync(connection.recv, 65536))["ok"]
        assert [verb for _, verb, _ in echo.seen] == ["ping"]
