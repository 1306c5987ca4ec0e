"""The control socket: real server, real client, real kernel credentials."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.cli.client import DaemonDown, call
from marathond.core.errors import ConfigError, LedgerRefused, Refused
from marathond.service import control, protocol
from marathond.service.control import ControlServer, make_way
from marathond.service.exits import CallFailed, Exit
from marathond.service.peers import Peer, may_command, peer_of

pytestmark = pytest.mark.anyio
TEMP = Path(tempfile.gettempdir()).resolve()


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


def test_silence_is_busy_and_the_outcome_unknown(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(path))
        mute.listen(1)
        with pytest.raises(CallFailed, match="whether it was done is unknown") as caught:
            call(path, "void", {}, timeout_s=0.1)
    assert caught.value.exit_code == Exit.BUSY
