"""`marathond --take-over`, and what becomes of a daemon that was replaced (faults f01, f10), on real processes with real trials."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.engine.processes import read_stat
from marathond.ledger import lock
from marathond.ports.clock import SystemClock
from marathond.ports.engine import LABEL_LEDGER, LABEL_TRIAL
from tests.support.outcome import assert_nothing_left, runs_of, wait_for
from tests.support.process_rig import END_S, ProcessRig
from tests.support.relay import Relay
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
TAKE_OVER = "--take-over"


def let_go(rig: ProcessRig, *trials: int) -> None:
    for trial in trials:
        (rig.root / "state" / "r" / f"t{trial:04d}" / "logs" / "artifacts" / "go").touch()


async def in_rest(rig: ProcessRig, engine: DockerEngine, cells: int) -> None:
    """Every cell done by its first trial, each agent ran once, nothing left."""
    await rig.until_done()
    assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")] * cells, rig.story()
    assert runs_of(rig) == [1] * cells
    await assert_nothing_left(rig, engine)


async def test_f01_a_healthy_daemon_and_then_a_stopped_one_are_taken_over(docker_host: str, tmp_path: Path, engine: DockerEngine) -> None:
    tasks = [make_task(tmp_path, "net", network="public", agent_s=1000), make_task(tmp_path, "plain", agent_s=1000)]
    async with ProcessRig(docker_host, tasks=tasks, arms={"w": WAITS}) as rig:
        for trial in (1, 2):
            await rig.agent_runs(trial)
        healthy = rig.process
        assert healthy is not None
        await rig.start(TAKE_OVER)
        assert healthy.wait(END_S) == 0
        await rig.until("SELECT count(*) = 2 FROM trial_event WHERE event = 'reattached' AND run_id = 2")

        stopped = rig.process
        assert stopped is not None
        stopped.send_signal(signal.SIGSTOP)
        await rig.start(TAKE_OVER)
        assert stopped.wait(END_S) == -signal.SIGKILL
        await rig.until("SELECT count(*) = 2 FROM trial_event WHERE event = 'reattached' AND run_id = 3")
        first, second, third = rig.sql("SELECT stop_reason, stopped_at_ms IS NULL FROM run ORDER BY run_id")
        assert "SIGTERM" in first[0] and "taken over: SIGTERM, ended after" in first[0]
        assert second[0].startswith("taken over: SIGTERM, was stopped and could not answer, SIGKILL after") and third == (None, 1)
        said = (rig.root / "log").read_text()
        assert f'"pid": {stopped.pid}' in said and '"event": "took_over"' in said, said

        let_go(rig, 1, 2)
        await in_rest(rig, engine, 2)


def dump(ledger: Path) -> list[str]:
    """All rows, as SQL."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as conn:
        return list(conn.iterdump())


def rows_of_life(ledger: Path, run_id: int) -> dict[str, int]:
    """How many rows of each table bear this life's number."""
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as conn:
        tables = [row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'observation'")]
        bearing = [name for name in tables if any(column[1] == "run_id" for column in conn.execute(f"PRAGMA table_info({name})"))]
        return {name: conn.execute(f"SELECT count(*) FROM {name} WHERE run_id = ?", (run_id,)).fetchone()[0] for name in bearing}


async def is_made(engine: DockerEngine, ledger_id: str, trial: str) -> None:
    """The engine has the trial's container, whoever knows of it."""
    with anyio.fail_after(END_S):
        while True:
            if await engine.list_containers({LABEL_LEDGER: ledger_id, LABEL_TRIAL: trial}):
                return
            await anyio.sleep(0.02)


def all_stopped(pid: int) -> bool:
    """Each thread: one that is in a system call goes on for a moment, and may be taking a lock in it."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return bool(stats) and all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


async def stop_between_writes(rig: ProcessRig) -> None:
    """SIGSTOP at a moment at which the daemon does not hold SQLite's write lock."""
    assert rig.process is not None
    pid = rig.process.pid
    while True:
        rig.strike(signal.SIGSTOP)
        await wait_for(lambda: all_stopped(pid))
        with closing(sqlite3.connect(rig.ledger_path, timeout=0.0, isolation_level=None)) as conn:
            try:
                conn.execute("BEGIN IMMEDIATE")
                conn.execute("ROLLBACK")
                return
            except sqlite3.OperationalError:
                rig.strike(signal.SIGCONT)
        await anyio.sleep(0.05)


async def test_f01_a_daemon_that_was_replaced_while_it_was_stopped_changes_nothing_and_ends(
    docker_host: str, tmp_path: Path, engine: DockerEngine
) -> None:
    """Its lock file is removed, so that nothing but the epoch stands between the two; and one of its calls is on its way to Docker."""
    if not docker_host.startswith("unix://"):
        pytest.skip("the relay needs the engine's unix socket")
    tasks = [make_task(tmp_path, "plain", agent_s=1000), make_task(tmp_path, "second", agent_s=1000)]
    with tempfile.TemporaryDirectory(prefix="mdt") as short:
        async with (
            Relay(Path(short) / "s", Path(docker_host.removeprefix("unix://"))) as relay,
            ProcessRig(relay.url, tasks=tasks, arms={"w": WAITS}, overrides={"admission.concurrency": 1}) as rig,
        ):
            await rig.agent_runs(1)
            old = rig.process
            assert old is not None
            try:
                # In flight: the second trial's container is made, and the old daemon never hears of it.
                relay.mute_at = b"/containers/create?name="
                let_go(rig, 1)
                await wait_for(lambda: relay.mute)
                await is_made(engine, rig.ledger_id, "t0002")
                await stop_between_writes(rig)  # one that is stopped in a write holds the ledger's lock, and nobody else begins
                relay.mute = False
                lock.lock_path(rig.ledger_path).unlink()
                mine = rows_of_life(rig.ledger_path, 1)
                assert mine["trial_event"] > 0
                await rig.start()
                await rig.agent_runs(3)
                assert rig.sql("SELECT trial_id, code, counts_pass FROM void") == [(2, "daemon_lost", 0)]

                await stop_between_writes(rig)  # so that every change from here on would be the old one's
                before = dump(rig.ledger_path)
                old.send_signal(signal.SIGCONT)
                assert await anyio.to_thread.run_sync(old.wait, END_S) == 78
                assert dump(rig.ledger_path) == before
                rig.strike(signal.SIGCONT)
            finally:
                old.kill()
                old.wait()

            told = [line for line in (rig.root / "log").read_text().splitlines() if line.startswith("marathond: ")]
            assert len(told) == 1 and "run 1 was replaced by run 2" in told[0]
            assert len(await engine.list_containers({LABEL_LEDGER: rig.ledger_id})) == 1  # what was in flight is gone
            let_go(rig, 3)
            await rig.until_done()
            assert rig.sql("SELECT task, attempt, state FROM v_trial ORDER BY 1, 2") == [
                ("plain", 1, "scored"),
                ("second", 1, "voided"),
                ("second", 2, "scored"),
            ]
            assert runs_of(rig) == [1, 1]
            assert rows_of_life(rig.ledger_path, 1) == mine
            await assert_nothing_left(rig, engine)


async def test_f10_take_over_ends_nobody_but_the_holder(docker_host: str, tmp_path: Path) -> None:
    """Each refusal is one line, and the process that its words name, or that has the pid, goes on."""
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        await rig.agent_runs(1)
        holder = rig.process
        assert holder is not None
        path = lock.lock_path(rig.ledger_path)
        truth = json.loads(path.read_text())
        assert truth["pid"] == holder.pid and truth["host"] == socket.gethostname()
        stat = read_stat(holder.pid)
        assert stat is not None and (truth["boot_id"], truth["start_ticks"]) == (SystemClock().boot_id, stat.start_ticks)
        bystander = other_process()
        try:
            for content, words in [
                ("not json", "its lock file does not say by whom"),
                (json.dumps(truth | {"host": "elsewhere"}), "is in use on host elsewhere"),
                (json.dumps(truth | {"pid": bystander.pid}), "is not that process any more"),
                (json.dumps(truth | {"boot_id": "an earlier one"}), "a process of an earlier boot"),
                (json.dumps(truth | {"what": "marathonctl import"}), "wait for its end"),
                (json.dumps({"pid": bystander.pid, "host": truth["host"], "since_ms": 1}), "nothing says when that process began"),
            ]:
                path.write_text(content)  # the same file, so the lock is held all the while
                await refused(rig, words)
            assert (bystander.poll(), holder.poll()) == (None, None)
            assert rig.one("SELECT count(*) FROM run") == 1

            path.write_text(json.dumps({key: truth[key] for key in ("pid", "host", "since_ms")}))  # as an older version wrote it
            await rig.start(TAKE_OVER)
            assert holder.wait(END_S) == 0
        finally:
            bystander.kill()
            bystander.wait()


def other_process() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"])


async def refused(rig: ProcessRig, words: str) -> None:
    process = rig.popen(TAKE_OVER, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    _, said = await anyio.to_thread.run_sync(process.communicate, None, 240)
    assert process.returncode == 78 and len(said.decode().splitlines()) == 1 and words in said.decode(), said


async def test_take_over_where_nobody_holds_just_starts_and_a_lost_lock_file_hides_nobody(docker_host: str, tmp_path: Path) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        await rig.agent_runs(1)
        await rig.kill()
        await rig.start(TAKE_OVER)
        # SIGTERM would kill one that has just begun, as it does any process that has not said otherwise yet.
        await rig.until("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")
        first = rig.process
        assert first is not None
        lock.lock_path(rig.ledger_path).unlink()  # the ledger's last life is known all the same
        await rig.start(TAKE_OVER)
        assert first.wait(END_S) == 0


async def test_f14_a_daemon_whose_ledger_is_moved_away_ends_and_one_whose_lock_file_is_removed_takes_it_again(
    docker_host: str, tmp_path: Path
) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        await rig.agent_runs(1)
        await rig.until("SELECT ready_at_ms FROM run WHERE run_id = 1")
        path = lock.lock_path(rig.ledger_path)
        path.unlink()
        await wait_for(lambda: path.exists() and lock.is_held(rig.ledger_path))
        assert rig.process is not None and rig.process.poll() is None
        second = rig.popen(stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        assert await anyio.to_thread.run_sync(second.wait, 240) == 78

        moved = rig.ledger_path.with_name("elsewhere.db")
        rig.ledger_path.rename(moved)
        assert await rig.ended() == 78
        told = [line for line in (rig.root / "log").read_text().splitlines() if line.startswith("marathond: ")]
        assert len(told) == 1 and "was moved away or replaced under this daemon" in told[0]
        moved.rename(rig.ledger_path)
