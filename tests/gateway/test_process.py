"""The gateway as a process of its own, with real network namespaces: needs root.

What is waited for is the gateway's own log line, never time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from marathond.gateway import journal_read, netns
from marathond.gateway.files import Ack, Listener, key_hash, read_ack, write_listener
from marathond.ports.clock import SystemClock
from tests.support.gateway_rig import HELLO, REAL_KEY, completed, free_port, provider, streams, write_config

pytestmark = pytest.mark.anyio
PORT = 14_080
"""In a namespace of its own, and one test looks that the host has nobody there: below the ports of tests.support.worker."""
CLIENT = """
import sys, urllib.request, urllib.error
req = urllib.request.Request(sys.argv[1], data=b'{"model":"m","input":[]}', headers={"Authorization": "Bearer " + sys.argv[2]})
try:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(req) as got:
        while line := got.readline():
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
except urllib.error.HTTPError as err:
    sys.exit("HTTP %d" % err.code)
"""
OCCUPANT = "import socket,sys; s=socket.create_server(('127.0.0.1',int(sys.argv[1]))); print('up',flush=True); sys.stdin.read()"


@pytest.fixture
def box() -> Iterator[subprocess.Popen[str]]:
    """A process that idles in a network namespace of its own, as a container's PID 1 does."""
    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces are made and entered")
    script = "ip link set lo up && echo up && exec cat"
    with subprocess.Popen(
        ["unshare", "-n", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "up\n":
            process.kill()
            assert process.stderr is not None
            pytest.skip(f"needs the right to make network namespaces: {process.stderr.read().strip()}")
        yield process
        process.kill()


@pytest.fixture
def box_of_another(box: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The same, of another user than ours (``box`` has proven the rights)."""
    assert box.pid
    script = "ip link set lo up && echo up && exec setpriv --reuid=65534 --regid=65534 --clear-groups cat"
    with subprocess.Popen(["unshare", "-n", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


@pytest.fixture
def named_box(box: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process in a namespace made by ``ip netns add`` (``box`` has proven the rights)."""
    name = f"mgw{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        script = "ip link set lo up && echo up && exec cat"
        argv = ["ip", "netns", "exec", name, "sh", "-c", script]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
            yield process
            process.kill()
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


class Running:
    """A gateway process; :meth:`said` waits for one of its log lines."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process, self.lines = process, [""]

    async def said(self, event: str, **fields: Any) -> dict[str, Any]:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.lines.append(line.decode())
            told = json.loads(line) if line.startswith(b"{") else {}
            if told.get("event") == event and all(told.get(key) == value for key, value in fields.items()):
                return told
        raise AssertionError("the gateway ended:\n" + "".join(self.lines))


@asynccontextmanager
async def running(folder: Path, *prefix: str) -> AsyncIterator[Running]:
    """``prefix``: a command in front of the gateway's own."""
    argv = [*prefix, sys.executable, "-m", "marathond.gateway", str(folder)]
    process = await asyncio.create_subprocess_exec(*argv, stderr=subprocess.PIPE)
    it = Running(process)
    try:
        await it.said("gateway_started")
        yield it
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stderr is not None
        it.lines.append((await process.stderr.read()).decode())
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # else its pipes warn when collected after the loop


def seat(pid: int, **changes: Any) -> Listener:
    fields: dict[str, Any] = {
        "name": "t0001",
        "version": 1,
        "trial": "t0001",
        "account": "agent",
        "container_id": "c1",
        "started_at": "s1",
        "pid": pid,
        "start_ticks": netns.start_ticks(pid) or 0,
        "boot_id": SystemClock().boot_id,
        "port": PORT,
        "key_sha256": key_hash("dummy"),
        "route": "model",
        "network": "none",
    }
    return Listener(**{**fields, **changes})


def acked(folder: Path) -> Ack:
    ack = read_ack(folder, "t0001")
    assert ack is not None
    return ack


async def client(pid: int, url: str = f"http://127.0.0.1:{PORT}/v1/responses") -> asyncio.subprocess.Process:
    argv = ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", CLIENT, url, "dummy"]
    return await asyncio.create_subprocess_exec(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def journal(folder: Path) -> list[dict[str, Any]]:
    found, _ = journal_read.read_from(folder / "journal")
    return [entry.fields for entry in found if isinstance(entry, journal_read.Record)]


async def test_b15_the_container_sees_the_gateway_and_nothing_else(tmp_path: Path, box: subprocess.Popen[str]) -> None:
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box.pid))
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="listening")
            out, err = await (await client(box.pid)).communicate()
            assert (out, err) == (HELLO + completed(), b"")
            _, err = await (await client(box.pid, upstream.url + "/responses")).communicate()
            assert b"Connection refused" in err
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", PORT)  # the host's own loopback
            gateway.process.send_signal(signal.SIGTERM)
            assert await gateway.process.wait() == 0
        assert upstream.seen[0].headers["authorization"] == f"Bearer {REAL_KEY}"
    assert REAL_KEY not in "".join(gateway.lines)
    assert "dummy" not in "".join(gateway.lines)


async def test_the_rights_that_the_unit_leaves_it_suffice_for_a_container_of_another_user(
    tmp_path: Path, box_of_another: subprocess.Popen[str]
) -> None:
    unit = (Path(__file__).parents[2] / "systemd" / "marathond-gateway.service").read_text()
    left = next(line.partition("=")[2].split() for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    rights = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in left)])
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box_of_another.pid))
        async with running(tmp_path, "setpriv", "--bounding-set", rights, "--inh-caps", "-all", "--no-new-privs") as gateway:
            await gateway.said("listener", state="listening")
            out, _ = await (await client(box_of_another.pid)).communicate()
            assert out == HELLO + completed()


async def test_kill_9_in_mid_stream_leaves_unknown_and_the_next_life_listens_again(tmp_path: Path, box: subprocess.Popen[str]) -> None:
    gate = asyncio.Event()

    async def before(number: int) -> None:
        if number:
            await gate.wait()

    async with provider() as upstream:
        upstream.script.append(streams(HELLO, completed(), before_each=before))
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box.pid))
        async with running(tmp_path) as gateway:
            life = (await gateway.said("listener", state="listening")) and acked(tmp_path).life
            asking = await client(box.pid)
            assert asking.stdout is not None
            assert await asking.stdout.readline() == HELLO.split(b"\n")[0] + b"\n"
            gateway.process.kill()
            await asking.communicate()
        gate.set()
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="listening")
            assert acked(tmp_path).life != life
            out, _ = await (await client(box.pid)).communicate()
            assert out == HELLO + completed()
    told = [fields for fields in journal(tmp_path) if fields["event"] == "request"]
    assert [(fields["number"], fields["usage"], fields["end"]) for fields in told] == [
        (1, "unknown", "gateway_died"),
        (2, "known", "complete"),
    ]
    seqs = [fields["seq"] for fields in journal(tmp_path)]
    assert seqs == list(range(1, len(seqs) + 1))


async def test_port_taken_in_the_namespace_is_noticed_and_given_back(tmp_path: Path, box: subprocess.Popen[str]) -> None:
    argv = ["nsenter", "-t", str(box.pid), "-n", sys.executable, "-c", OCCUPANT, str(PORT)]
    agent = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert agent.stdout is not None
    await agent.stdout.readline()
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box.pid))
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="failed", code="port_taken")
            assert acked(tmp_path).code == "port_taken"
            await agent.communicate(b"")  # its stdin ends, and so does it
            await gateway.said("listener", state="listening")


async def test_ended_process_closes_its_listener(tmp_path: Path, box: subprocess.Popen[str]) -> None:
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box.pid))
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="listening")
            box.kill()
            await gateway.said("listener", state="failed", code="container_gone")


async def test_sigterm_lets_a_stream_end(tmp_path: Path, box: subprocess.Popen[str]) -> None:
    gate = asyncio.Event()

    async def before(number: int) -> None:
        if number:
            await gate.wait()

    async with provider() as upstream:
        upstream.script.append(streams(HELLO, completed(), before_each=before))
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(box.pid))
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="listening")
            asking = await client(box.pid)
            assert asking.stdout is not None
            first = await asking.stdout.readline()
            gateway.process.send_signal(signal.SIGTERM)
            await gateway.said("draining")
            gate.set()
            out, _ = await asking.communicate()
            assert first + out == HELLO + completed()
            assert await gateway.process.wait() == 0
    assert journal(tmp_path)[-1]["usage"] == "known"


async def test_second_process_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        async with running(tmp_path):
            second = await asyncio.create_subprocess_exec(sys.executable, "-m", "marathond.gateway", str(tmp_path), stderr=subprocess.PIPE)
            _, err = await second.communicate()
            assert second.returncode == 78
            assert b"another gateway" in err


def test_f10_reused_pid_is_not_entered(box: subprocess.Popen[str]) -> None:
    ticks = netns.start_ticks(box.pid)
    assert ticks is not None
    with pytest.raises(netns.NamespaceError) as caught:
        netns.open_listening(box.pid, ticks + 1, PORT)
    assert caught.value.code == "container_gone"


def test_b15_host_namespace_is_refused() -> None:
    own = os.getpid()
    with pytest.raises(netns.NamespaceError) as caught:
        netns.open_listening(own, netns.start_ticks(own) or 0, free_port())
    assert caught.value.code == "host_namespace"


def test_vanished_process_is_named() -> None:
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with pytest.raises(netns.NamespaceError) as caught:
        netns.open_listening(gone.pid, 1, PORT)
    assert caught.value.code == "container_gone"


def test_callers_own_network_is_untouched(box: subprocess.Popen[str]) -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    with netns.open_listening(box.pid, netns.start_ticks(box.pid) or 0, PORT) as opened:
        assert opened.getsockname() == ("127.0.0.1", PORT)
    assert Path("/proc/thread-self/ns/net").readlink() == before


async def test_named_namespace_of_ip_netns(tmp_path: Path, named_box: subprocess.Popen[str]) -> None:
    async with provider() as upstream:
        write_config(tmp_path, upstream.url)
        write_listener(tmp_path, seat(named_box.pid))
        async with running(tmp_path) as gateway:
            await gateway.said("listener", state="listening")
            out, _ = await (await client(named_box.pid)).communicate()
            assert out == HELLO + completed()
