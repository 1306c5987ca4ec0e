"""The control socket called by somebody else, and by somebody who means it badly: bounded, refused in a line, and the others are served."""

from __future__ import annotations

import json
import os
import pwd
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.service import control, protocol
from marathond.service.control import ControlServer
from marathond.service.exits import CallFailed, Exit
from marathond.service.peers import Peer, group_id
from tests.support.process_rig import ProcessRig
from tests.support.rig import make_task
from tests.support.stranger import UID, as_user, connected, heard, let_in, poured

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")]

MIB = 1 << 20
PING = protocol.encode_request("ping", {})
BAD_LINES = (
    b"\n",
    b"\0\0\0\n",
    b'{"v":2,"verb":"ping"}\n',
    b'{"v":1,"verb":"\\ud800"}\n',
    b'{"v":1,"verb":"' + b"x" * 5000 + b'"}\n',
    b'{"v":1,"verb":"ping","args":{"\\udfff":NaN}}\n',
    b'{"v":1,"verb":"ping","args":' + b"[" * 200_000 + b"\n",
    b'{"v":1,"verb":"void","args":{"trials":' + b"9" * 5000 + b"}}\n",
    b"\xff\xfe\n",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not pytest's: other users cannot get there, and its name is long."""
    with tempfile.TemporaryDirectory(prefix="mt-", dir="/tmp") as made:
        yield Path(made)


@asynccontextmanager
async def serving(path: Path, **options: Any) -> AsyncIterator[list[str]]:
    """A server whose verbs are a line each; what was asked for."""
    seen: list[str] = []

    async def answer(peer: Peer, verb: str, args: dict[str, Any]) -> object:
        seen.append(f"{peer.uid} {verb}")
        return "x" * args.get("bytes", 1)

    server = ControlServer(path, answer, deadline_s=lambda _: 120, **options)
    async with anyio.create_task_group() as tasks:
        await tasks.start(server.serve)
        let_in(path)
        yield seen
        with anyio.fail_after(120):
            while server.callers:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def served(path: Path) -> None:
    """Another client is answered meanwhile."""
    assert await to_thread.run_sync(lambda: call(path, "ping", {}, timeout_s=60)) is not None


@contextmanager
def asked(path: Path, payload: bytes = b"") -> Iterator[socket.socket]:
    with connected(path) as connection:
        connection.sendall(payload)
        yield connection


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def say(path: Path, payload: bytes) -> Callable[[], bytes]:
    def work() -> bytes:
        with connected(path) as connection:
            poured(connection, payload, bool(payload))  # who is refused may have been cut off by then
            return heard(connection)

    return work


@pytest.mark.parametrize("uid", [pwd.getpwnam("nobody").pw_uid, UID, 4_000_000_000], ids=["nobody", "in no database", "beyond 2**31"])
async def test_another_user_is_refused_in_one_line_whatever_the_mode(folder: Path, uid: int) -> None:
    async with serving(folder / "c.sock") as seen:
        for payload in (b"", PING, PING * 3, b"\0" * 100, b"{"):
            (refusal,) = lines_of(await to_thread.run_sync(as_user, say(folder / "c.sock", payload), uid, uid))
            name = "nobody" if uid < UID else f"uid {uid}"
            assert refusal["error"] == f"{name} may not command this daemon: be root, the daemon's user, or in the socket's group"
            assert (refusal["ok"], refusal["exit"]) == (False, Exit.FAILED)
        await served(folder / "c.sock")
        assert seen == ["0 ping"]


async def test_the_group_may_command_and_no_other(folder: Path) -> None:
    gid = pwd.getpwnam("nobody").pw_gid
    async with serving(folder / "c.sock", group=str(gid)) as seen:
        assert (folder / "c.sock").stat().st_gid == gid
        (one,) = lines_of(await to_thread.run_sync(as_user, say_and_close(folder / "c.sock", PING), UID, gid))
        (other,) = lines_of(await to_thread.run_sync(as_user, say(folder / "c.sock", PING), UID, gid + 1))
        assert one["ok"] and not other["ok"] and seen == [f"{UID} ping"]


def test_digits_that_are_no_number_are_no_group() -> None:
    assert group_id("²") is None and group_id("1000") == 1000


async def test_a_stranger_who_pours_is_cut_off_before_it_fills_anything(folder: Path) -> None:
    def flood() -> bytes:
        with connected(folder / "c.sock") as connection:
            taken = poured(connection, b"x" * MIB, 100)
            return b"%d\n" % taken + heard(connection)

    async with serving(folder / "c.sock"):
        taken, line = (await to_thread.run_sync(as_user, flood)).split(b"\n", 1)
        assert int(taken) < 4 * MIB and not json.loads(line)["ok"]
        await served(folder / "c.sock")


async def test_a_thousand_strangers_take_no_place_of_a_caller(folder: Path) -> None:
    def many() -> bytes:
        refused = 0
        for _ in range(20):
            with ExitStack() as stack:
                each = [stack.enter_context(connected(folder / "c.sock")) for _ in range(50)]
                refused += sum(b"may not command" in heard(connection) for connection in each)
        return str(refused).encode()

    async with serving(folder / "c.sock") as seen, anyio.create_task_group() as tasks:
        told: list[bytes] = []

        async def knock() -> None:
            told.append(await to_thread.run_sync(as_user, many))

        tasks.start_soon(knock)
        while not told:
            await served(folder / "c.sock")
        assert told == [b"1000"] and seen and set(seen) == {"0 ping"}


async def test_who_is_refused_and_gone_before_it_is_told_ends_nothing(folder: Path) -> None:
    """A stranger who only knocks, and a caller for whom there was no place."""

    def knock() -> bytes:
        for _ in range(300):
            connected(folder / "c.sock").close()
        return b"done"

    async with serving(folder / "c.sock"):
        with ExitStack() as stack:
            assert await to_thread.run_sync(as_user, knock, 4_000_000_000, 4_000_000_000) == b"done"
            await served(folder / "c.sock")
            for _ in range(control.CONNECTIONS_MAX):
                await to_thread.run_sync(stack.enter_context(asked(folder / "c.sock", PING)).recv, 65536)
            await to_thread.run_sync(knock)
        await served(folder / "c.sock")


async def test_lines_that_are_none_are_refused_and_the_next_is_heard(folder: Path) -> None:
    async with serving(folder / "c.sock") as seen:
        for line in BAD_LINES:
            bad, good = lines_of(await to_thread.run_sync(say_and_close(folder / "c.sock", line + PING)))
            assert (bad["ok"], bad["exit"], good["ok"]) == (False, Exit.USAGE, True) and len(bad["error"]) < 300
        assert seen == ["0 ping"] * len(BAD_LINES)


def say_and_close(path: Path, payload: bytes) -> Callable[[], bytes]:
    def work() -> bytes:
        with asked(path, payload) as connection:
            connection.shutdown(socket.SHUT_WR)
            return heard(connection)

    return work


async def test_callers_who_speak_slowly_or_stop_hold_their_own_places_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "c.sock"

    def slowly(stack: ExitStack) -> list[socket.socket]:
        return [stack.enter_context(asked(path, PING[:-1])) for _ in range(control.CONNECTIONS_MAX - 2)]

    monkeypatch.setattr(control, "LINE_WAIT_S", 120.0)  # nobody is let go while the others are looked at, however slow the host is
    async with serving(path) as seen:
        with ExitStack() as stack:
            slow = slowly(stack)
            for number in range(5):
                slow[0].sendall(b" ")
                await served(path)
                assert len(seen) == number + 1
    monkeypatch.setattr(control, "LINE_WAIT_S", 1.0)
    async with serving(path) as seen:
        with ExitStack() as stack:
            slow = slowly(stack)
            while poured(slow[0], b" ", 1):
                await served(path)
            # Half a line is never carried out, and who says no more, or goes on for ever, is let go: the places are free again.
            assert await to_thread.run_sync(lambda: [heard(connection) for connection in slow]) == [b""] * len(slow)
        await served(path)
        assert set(seen) == {"0 ping"}


async def test_a_line_of_a_hundred_megabytes_is_cut_off_at_its_bound(folder: Path) -> None:
    def pour() -> tuple[int, bytes]:
        with connected(folder / "c.sock") as connection:
            return poured(connection, b"x" * MIB, 100), heard(connection)

    async with serving(folder / "c.sock"):
        taken, told = await to_thread.run_sync(pour)
        assert taken < 8 * MIB and str(protocol.REQUEST_MAX_BYTES) in json.loads(told)["error"]
        await served(folder / "c.sock")


async def test_a_client_that_goes_in_the_middle_of_its_answer_leaves_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One goes away, one stays and takes nothing: neither holds anybody up."""
    monkeypatch.setattr(control, "SEND_S", 0.5)
    large = protocol.encode_request("show", {"bytes": protocol.RESPONSE_MAX_BYTES - 100})
    async with serving(folder / "c.sock") as seen:

        def leave() -> None:
            with asked(folder / "c.sock", large) as connection:
                connection.recv(10)

        for _ in range(3):
            await to_thread.run_sync(leave)
            await served(folder / "c.sock")
        with asked(folder / "c.sock", large * 3):
            while seen.count("0 show") < 4:
                await served(folder / "c.sock")
        await served(folder / "c.sock")


async def test_a_socket_that_is_gone_or_anothers_is_neither_removed_nor_an_end(folder: Path) -> None:
    path = folder / "c.sock"
    async with serving(path):
        with asked(path) as connection:
            path.unlink()
            path.write_text("somebody's")
            connection.sendall(PING)
            assert json.loads(await to_thread.run_sync(connection.recv, 65536))["ok"]
        with pytest.raises(CallFailed):
            await to_thread.run_sync(lambda: call(path, "ping", {}, timeout_s=5))
    assert path.read_text() == "somebody's"


def memory_kb(pid: int) -> int:
    """The most that it ever held."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0])


@pytest.mark.docker
async def test_the_daemon_answers_its_own_while_others_attack(docker_host: str, tmp_path: Path) -> None:
    """A real daemon, by its real command: strangers knock, callers pour, lag, and leave; one goes on to be answered, memory is bounded."""
    wait = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=1000)], arms={"w": wait}) as rig:
        await rig.agent_runs(1)
        path = rig.root / "state" / "control.sock"
        let_in(path)
        assert rig.process is not None
        before_kb, pid = memory_kb(rig.process.pid), rig.process.pid

        def knock() -> bytes:
            refused = 0
            for number in range(300):
                with connected(path) as connection:
                    if number % 30 == 0:
                        poured(connection, b"x" * MIB, 100)
                    refused += b"may not command" in heard(connection)
            return str(refused).encode()

        def pour() -> None:
            for line in (*BAD_LINES, *(b"x" * (2 * MIB) for _ in range(10))):
                with connected(path) as connection:
                    poured(connection, line, 10)

        def lag() -> list[bytes]:
            with ExitStack() as stack:
                slow = [stack.enter_context(asked(path, PING[:-1])) for _ in range(20)]
                for connection in slow:
                    connection.sendall(b"\n")
                return [connection.recv(65536) for connection in slow]

        refused: list[bytes] = []
        async with anyio.create_task_group() as tasks:

            async def attack() -> None:
                refused.append(await to_thread.run_sync(as_user, knock))
                await to_thread.run_sync(pour)
                assert all(json.loads(line)["ok"] for line in await to_thread.run_sync(lag))
                refused.append(b"done")

            tasks.start_soon(attack)
            answers = 0
            while len(refused) < 2:
                await served(path)
                answers += 1
        assert refused[0] == b"300" and answers > 1
        assert memory_kb(pid) - before_kb < 64 * 1024
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.process.poll() is None and rig.one("SELECT count(*) FROM finding") == 0
