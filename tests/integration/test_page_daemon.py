"""The page in a daemon, which never waits for it nor ends with it; and `marathonctl page`, from the ledger alone."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import anyio
import pytest

from marathond.service.page import life, server
from marathond.service.page.life import PageThread
from marathond.service.page.place import Place
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
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"w": WAITS}, overrides=overrides) as rig:
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
        assert "t0001" in shown and "environment up" in shown
        assert 'marathond_trials_live{campaign="test",phase="running"} 1.0' in await asked(f"{url}/metrics")

        async def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        with monkeypatch.context() as patch:
            patch.setattr(server, "serve", broken)
            (thread,) = [each for each in PAGES if each.runs]
            thread.stop()
            await rig.until("SELECT count(*) FROM finding WHERE code = 'page_down' AND detail LIKE '%a bug%'")
        assert "live" in await asked(f"{url}/livez"), "and it comes back"
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")]
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5)


PAGES: list[PageThread] = []


@pytest.fixture(autouse=True)
def _pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every thread that is begun."""
    PAGES.clear()
    begin = PageThread.start

    def start(self: PageThread) -> None:
        PAGES.append(self)
        begin(self)

    monkeypatch.setattr(PageThread, "start", start)


async def test_it_ends_when_it_is_asked_to_whenever_that_is(tmp_path: Path) -> None:
    thread = PageThread(Place(tmp_path / "no.db", tmp_path, tmp_path / "c"), f"unix:{tmp_path}/p.sock")
    early = PageThread(Place(tmp_path / "no.db", tmp_path, tmp_path / "c"), f"unix:{tmp_path}/p.sock")
    early.stop()
    early.start()
    with anyio.fail_after(60):
        while early.runs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert not early.where, "asked to end before it began, it never listens"
    thread.start()
    with anyio.fail_after(60):
        while not thread.where:  # noqa: ASYNC110 - another loop's word
            await asyncio.sleep(0.02)
    thread.stop()
    with anyio.fail_after(60):
        while thread.runs:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    assert thread.failed == "it ended" and not (tmp_path / "p.sock").exists()


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
                assert await asyncio.to_thread(process.wait, 60) == 0
            finally:
                process.kill()
        for place, told in {"0.0.0.0:80": "--listen: 0.0.0.0:80: must be a loopback address", "unix:x": "must be absolute"}.items():
            done = await asyncio.to_thread(subprocess.run, [*argv, place], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 2 and told in done.stderr and len(done.stderr.splitlines()) == 1
