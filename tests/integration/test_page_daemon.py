"""The page in a daemon, which never waits for it nor ends with it; and `marathonctl page`, from the ledger alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import aiohttp
import anyio
import pytest

from marathond.ledger.connect import connect
from marathond.service.page import life
from marathond.service.page.place import Place, to_data
from tests.support.page_house import half_done
from tests.support.rig import Rig, make_task

pytestmark = pytest.mark.anyio

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
OPEN = "SELECT count(*) FROM finding WHERE code = 'page_down' AND closed_at_ms IS NULL"


async def asked(url: str, status: int = 200) -> str:
    """The body, once it answers with that status."""
    with anyio.fail_after(120):
        while True:
            try:
                async with aiohttp.ClientSession() as client, client.get(url) as answer:
                    if answer.status == status:
                        return await answer.text()
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)


@pytest.mark.docker
async def test_a_page_that_cannot_be_served_is_a_finding_and_the_daemon_goes_on(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "AGAIN_S", 0.5)
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    port = other.getsockname()[1]
    overrides = {"page.listen": f"127.0.0.1:{port}"}
    tasks = [make_task(tmp_path, "t", agent_s=600.0)]  # it runs until all has been looked at
    async with Rig(docker_host, tasks=tasks, arms={"w": WAITS}, overrides=overrides) as rig:
        await rig.until(OPEN)
        assert "address already in use" in str(rig.one("SELECT detail FROM finding WHERE code = 'page_down'"))
        other.close()
        url = f"http://127.0.0.1:{port}"
        assert "event loop goes round" in await asked(f"{url}/livez")
        assert (await asked(f"{url}/readyz")).startswith("ready: run 1 since ")
        await rig.until("SELECT NOT EXISTS (SELECT 1 FROM finding WHERE code = 'page_down' AND closed_at_ms IS NULL)")
        await rig.until("SELECT count(*) FROM trial WHERE state = 'running'")
        page = await asked(f"{url}/")
        assert "marathond" in page and "test" in page
        shown = await asked(f"{url}/trial/t0001")
        assert "t0001" in shown and "environment_up" in shown
        assert 'marathond_trials_live{campaign="test",phase="running"} 1.0' in await asked(f"{url}/metrics")

        # A look that breaks, of data alone: an instant beyond the year 9999 has no words.
        broken = "SELECT detail FROM finding WHERE code = 'page_broken' AND subject = '/readyz' AND closed_at_ms IS"
        ready_ms = int(rig.one("SELECT ready_at_ms FROM run"))
        change(rig, "UPDATE run SET ready_at_ms = ?", 10**17)
        assert "the daemon's log has why" in await asked(f"{url}/readyz", 500)
        assert (await rig.until(f"{broken} NULL")).startswith("/readyz: OverflowError: ")
        assert "test" in await asked(f"{url}/"), "one page breaks, no other"
        change(rig, "UPDATE run SET ready_at_ms = ?", ready_ms)
        assert (await asked(f"{url}/readyz")).startswith("ready: run 1 since ")
        await rig.until(f"{broken} NOT NULL")

        (child,) = pages()
        os.kill(child, signal.SIGKILL)
        await rig.until("SELECT count(*) FROM finding WHERE code = 'page_down' AND detail LIKE '%status -9%'")
        assert "live" in await asked(f"{url}/livez"), "and it comes back"
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def change(rig: Rig, sql: str, *values: object) -> None:
    """As a person with a shell: beside the daemon."""
    with closing(connect(rig.ledger_path, mode="rw", busy_ms=60_000)) as c:
        c.execute("BEGIN IMMEDIATE")
        c.execute(sql, values)
        c.execute("COMMIT")


@pytest.mark.docker
async def test_what_was_found_of_a_page_is_over_when_nobody_wants_one(docker_host: str, tmp_path: Path) -> None:
    other = socket.socket()
    other.bind(("127.0.0.1", 0))
    other.listen()
    overrides = {"page.listen": f"127.0.0.1:{other.getsockname()[1]}"}
    with other:
        async with Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"nop": {"kind": "nop"}}, overrides=overrides) as rig:
            await rig.until(OPEN)
            await rig.kill()
            del rig.overrides["page.listen"]
            await rig.start()
            await rig.until("SELECT count(*) FROM finding WHERE code = 'page_down' AND closed_at_ms IS NOT NULL")
            await rig.until_done()


def pages() -> list[int]:
    """Pids of this process's pages."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        children: list[str] = []
        with suppress(OSError):  # a thread that ended since
            children = (task / "children").read_text().split()
        for pid in map(int, children):
            with suppress(OSError):
                found += [pid] if life.CHILD.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() else []
    return found


async def test_it_ends_with_its_daemon_and_hears_its_loop(tmp_path: Path) -> None:
    place = Place(tmp_path / "no.db", tmp_path, tmp_path / "c")
    argv = [sys.executable, "-m", life.CHILD, json.dumps(to_data(place)), f"unix:{tmp_path}/p.sock"]
    process = await asyncio.create_subprocess_exec(*argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert await process.stdout.readline() == f"at unix:{tmp_path}/p.sock\n".encode()

    async def told(status: int) -> str:
        with anyio.fail_after(120):
            while True:
                connector = aiohttp.UnixConnector(f"{tmp_path}/p.sock")
                async with aiohttp.ClientSession(connector=connector) as client, client.get("http://x/livez") as answer:
                    if answer.status == status:
                        return await answer.text()
                await asyncio.sleep(0.1)

    assert "has not gone round yet" in await told(503)
    process.stdin.write(b".")
    await process.stdin.drain()
    assert "goes round" in await told(200)
    process.stdin.close()
    assert await asyncio.wait_for(process.wait(), 120) == 0 and not (tmp_path / "p.sock").exists()


async def test_the_command_serves_the_ledger_alone_and_says_that_no_daemon_runs(tmp_path: Path) -> None:
    with half_done() as house:
        config = tmp_path / "marathond.toml"
        config.write_text(f'[daemon]\nstate_dir = "{house.folder}"\n')
        argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(config), "page", "--listen"]
        process = await asyncio.to_thread(subprocess.Popen, [*argv, "127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
        with process:
            try:
                assert process.stderr is not None
                line = await asyncio.to_thread(process.stderr.readline)
                found = re.match(r"the page is at (http://127\.0\.0\.1:\d+)/ until Ctrl-C$", line)
                assert found is not None, line
                assert "half" not in line and "scratch" in await asked(f"{found[1]}/")
                assert "run 1 gives signs of life" in await asked(f"{found[1]}/livez")
                house.c.execute("UPDATE run SET stopped_at_ms = seen_at_ms, stop_reason = 'SIGTERM'")
                house.commit()
                assert await asked(f"{found[1]}/livez", 503) == "no daemon runs: stopped: SIGTERM\n"
                with anyio.fail_after(120):
                    while "marathond is not running" not in await asked(f"{found[1]}/"):  # noqa: ASYNC110 - another process's word
                        await asyncio.sleep(0.5)
                process.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(process.wait, 120) == 0
            finally:
                process.kill()
        for place, told in {"0.0.0.0:80": "--listen: 0.0.0.0:80: must be a loopback address", "unix:x": "must be absolute"}.items():
            done = await asyncio.to_thread(subprocess.run, [*argv, place], capture_output=True, text=True, timeout=240, check=False)
            assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1
