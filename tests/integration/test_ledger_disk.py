"""The ledger's disk fills while trials run (fault f05): nothing acknowledged is lost; the daemon waits, says so, and goes on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from marathond.engine.docker import DockerEngine
from tests.support.ledgers import file_ledger
from tests.support.outcome import assert_nothing_left, runs_of, wait_for
from tests.support.process_rig import START_S, ProcessRig
from tests.support.rig import PATIENCE_S, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

SOON = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; sleep 0.5"]}
EVENTS = "SELECT trial_id, seq, event, at_ms FROM trial_event ORDER BY trial_id, seq"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real ext4 of 24 MB in a file."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    image, point = tmp_path / "image", tmp_path / "small"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(24 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", str(point)], check=True)


class Rig(ProcessRig):
    """Its ledger lies on a disk of its own."""

    def __init__(self, docker_host: str, disk: Path, **options: object) -> None:
        super().__init__(docker_host, **options)
        self.ledger_path.unlink()
        self.disk, self.ledger_path = disk, disk / "ledger.db"
        self.ledger_id = file_ledger(self.ledger_path, host=socket.gethostname(), now_ms=time.time_ns() // 1_000_000)
        self.config.write_text(self.config.read_text().replace("[daemon]\n", f'[daemon]\nledger = "{self.ledger_path}"\n', 1))

    def fill(self) -> None:
        """To the last byte."""
        with (self.disk / "ballast").open("ab", buffering=0) as file:
            for piece in (65536, 1024, 1):
                try:
                    while True:
                        file.write(bytes(piece))
                except OSError:
                    continue

    def empty(self) -> None:
        (self.disk / "ballast").unlink()

    async def waits(self, times: int) -> None:
        """The daemon has found its ledger's disk full so many times."""
        await wait_for(lambda: (self.root / "log").read_text("utf-8", "replace").count('"ledger_waits"') >= times)

    async def is_refused(self, words: str) -> None:
        """A start ends with status 1, so that systemd tries again."""
        process = self.popen(stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            _, said = await to_thread.run_sync(process.communicate, None, START_S)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 1 and words in said.decode(), said

    async def ctl(self, *words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "marathond.cli.ctl", "--config", str(self.config), *words]
        done = await to_thread.run_sync(lambda: subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False))
        return done.returncode, done.stdout + done.stderr


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def waits_calmly(pid: int) -> None:
    """Less than half a core in some three seconds.  Agents that end meanwhile cost the daemon something, on a slow machine much of it; one
    that asks its disk again and again without a pause never has such a moment."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            used_s, began_s = cpu_s(pid), time.monotonic()
            await anyio.sleep(3)
            if cpu_s(pid) - used_s < 0.5 * (time.monotonic() - began_s):
                return


async def test_f05_a_disk_that_fills_under_running_trials_loses_nothing(
    docker_host: str, tmp_path: Path, engine: DockerEngine, small_disk: Path
) -> None:
    tasks = [make_task(tmp_path, "a"), make_task(tmp_path, "b")]
    async with Rig(docker_host, small_disk, tasks=tasks, arms={"x": SOON, "y": SOON}, replicates=3) as rig:
        await rig.until("SELECT count(*) FROM trial WHERE state = 'scored'")
        rig.fill()
        await rig.waits(1)
        process = rig.process
        assert process is not None
        acknowledged = rig.sql(EVENTS)
        status, said = await rig.ctl("pause", "--reason", "x")
        assert status != 0 and "no space left" in said, said  # a person is told, and does not wait
        status, said = await rig.ctl("stop", "--now", "--reason", "x")
        assert status != 0 and "no space left" in said, said  # and nothing is ended of which nobody could write down why
        await waits_calmly(process.pid)
        assert process.poll() is None and set(acknowledged) <= set(rig.sql(EVENTS))
        rig.empty()
        await wait_for(lambda: '"ledger_goes_on"' in (rig.root / "log").read_text())
        assert set(acknowledged) <= set(rig.sql(EVENTS))

        rig.fill()
        await rig.waits(2)
        acknowledged = rig.sql(EVENTS)
        rig.strike(signal.SIGTERM)
        assert await rig.ended() == 0, rig.log()
        rig.fill()  # an orderly end took the log into the file, and gave back its room
        await rig.is_refused("no room for 1 MB")
        rig.empty()
        await rig.start()
        await rig.until_done()
        assert set(acknowledged) <= set(rig.sql(EVENTS))
        assert rig.sql("SELECT count(*) FROM v_cell WHERE state = 'done'") == [(12,)], rig.story()
        assert runs_of(rig) == [1] * 12
        assert {row[0] for row in rig.sql("SELECT code FROM void")} <= {"daemon_lost"}
        assert rig.sql("PRAGMA integrity_check") == [("ok",)] and rig.sql("PRAGMA foreign_key_check") == []
        await assert_nothing_left(rig, engine)
