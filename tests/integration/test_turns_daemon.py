"""A verifier that runs alone, and artifacts that are packed and pruned, on a whole daemon with real containers, killed in between."""

from __future__ import annotations

import json
import os
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from anyio import to_thread

from marathond.cli import ctl
from marathond.ledger.connect import connect
from marathond.ledger.verbs.status import live_trials
from marathond.service.peers import user_name
from tests.support.outcome import wait_for
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
VERIFIER = "date +%s%N >/logs/verifier/when; {until}sleep 3; date +%s%N >>/logs/verifier/when; echo 1 >/logs/verifier/reward.txt\n"
UNTIL = "until [ -e /logs/artifacts/grade ]; do sleep 0.05; done; "
"""So that the first one runs until everybody has asked, the daemon was killed and the next one has begun, however long that takes."""
ALONE = "SELECT trial_id FROM verifier_turn WHERE alone <> 'no' AND granted_at_ms IS NOT NULL AND ended_at_ms IS NULL"
WAITING = "SELECT count(*) FROM verifier_turn WHERE granted_at_ms IS NULL"


async def marathonctl(rig: Rig, *argv: str) -> tuple[int, str]:
    def run() -> tuple[int, str]:
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            return ctl.run(["--config", str(rig.config), *argv]), said.getvalue()

    return await to_thread.run_sync(run)


def say(rig: Rig, word: str, *trials: int) -> None:
    for trial in trials:
        (rig.root / "state" / "r" / f"t{trial:04d}" / "logs" / "artifacts" / word).touch()


def intervals(rig: Rig) -> dict[int, tuple[int, int]]:
    """Trial to the nanoseconds between which its verifier ran, by the container's own clock."""
    folders = rig.sql("SELECT trial_id, folder FROM artifact_export")
    return {
        trial: tuple(map(int, (rig.root / "out" / folder / "verifier" / "when").read_text().split()))  # type: ignore[misc]
        for trial, folder in folders
    }


async def test_c09_timed_verifiers_run_alone_across_a_kill_and_pruned_folders_stay_away(docker_host: str, tmp_path: Path) -> None:
    tests = {"timed": VERIFIER.format(until=UNTIL), "plain": VERIFIER.format(until="")}
    tasks = [make_task(tmp_path, name, test=test, agent_s=10_000, verifier_s=1000) for name, test in tests.items()]
    overrides = {"verifier.exclusive": ["timed"], "admission.concurrency": 4, "admission.order": "replicate-major"}
    async with Rig(docker_host, tasks=tasks, arms={"w": WAITS, "v": WAITS}, overrides=overrides, replicates=2) as rig:
        for trial in (1, 2, 3, 4):
            await rig.agent_runs(trial)
        first = rig.one("SELECT min(trial_id) FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE task.name = 'timed'")
        say(rig, "go", first)
        assert await rig.until(ALONE) == first
        say(rig, "go", *{1, 2, 3, 4} - {first})
        await rig.until(f"SELECT ({WAITING}) = 3")
        with closing(connect(rig.ledger_path, mode="ro")) as c:
            turns = {trial.trial_id: trial.turn for trial in live_trials(c, 1)}
        assert turns == {trial: "alone" if trial == first else "waits" for trial in (1, 2, 3, 4)}
        assert "waits for the verifier slot" in (await marathonctl(rig, "status"))[1]
        await rig.kill()  # while one runs alone and others wait
        await rig.start()
        say(rig, "grade", 1, 2, 3, 4)
        for trial in (5, 6, 7, 8):
            await rig.until("SELECT count(*) FROM trial WHERE trial_id = ? AND state = 'running'", trial)
            say(rig, "grade", trial)
            say(rig, "go", trial)
        await rig.until_done()
        assert rig.sql("SELECT DISTINCT state, attempt FROM trial") == [("scored", 1)], rig.story()
        assert rig.one("SELECT count(*) FROM verification") == rig.one("SELECT count(*) FROM verifier_turn") == 8

        ran = intervals(rig)
        timed = [
            row[0]
            for row in rig.sql("SELECT trial_id FROM v_verifier_turn JOIN trial ON trial = printf('t%04d', trial_id) WHERE task = 'timed'")
        ]
        assert len(timed) == 4
        for trial in timed:
            beside = [other for other, (begin, end) in ran.items() if other != trial and begin < ran[trial][1] and ran[trial][0] < end]
            assert beside == [], f"t{trial:04d} ran beside {beside}: {ran}"
        # It had to be kept apart: three asked before the first one's last three seconds.
        assert rig.one("SELECT count(*) FROM verifier_turn WHERE granted_at_ms - asked_at_ms > 3000") >= 3
        # Nothing was admitted meanwhile, and each verifier's time began with itself.
        lone = rig.sql(
            """SELECT t.trial_id, t.granted_at_ms, v.started_at_ms, v.ended_at_ms
               FROM verifier_turn t JOIN verification v USING (trial_id, round)"""
        )
        assert all(granted <= started for _, granted, started, _ in lone)
        for trial, granted, _, ended in lone:
            if trial in timed:
                assert rig.one("SELECT count(*) FROM trial WHERE created_at_ms > ? AND created_at_ms < ?", granted, ended) == 0
        said = (await marathonctl(rig, "show", f"t{timed[0]:04d}"))[1]
        assert "for its turn; alone among verifiers," in said

        await archived_and_pruned(rig)


async def archived_and_pruned(rig: Rig) -> None:
    """Beside the living daemon: it writes the rows, and its exporter does not bring a folder back."""
    to = rig.root / "kept"
    to.mkdir()
    code, said = await marathonctl(rig, "archive", "--to", str(to))
    assert (code, said.splitlines()[-1]) == (0, "8 archived"), said
    code, said = await marathonctl(rig, "prune", "--older-than", "0m", "--reason", "room")
    assert code == 0 and "8 pruned" in said, said
    out = rig.root / "out" / "test"
    assert [path.name for path in out.iterdir() if path.is_dir()] == [] and len(list((to / "test").iterdir())) == 8
    ((author,),) = rig.sql("SELECT author FROM archive UNION SELECT author FROM prune")
    assert author == user_name(os.geteuid())
    assert rig.one("SELECT count(*) FROM prune WHERE done_at_ms IS NULL") == 0
    code, said = await marathonctl(rig, "regrade", "--dry-run")
    assert code == 1 and said.count(f"refused: artifacts pruned by {author} at") == 8 and "; unpack it to read it again" in said

    document = out / "result.json"
    code, said = await marathonctl(rig, "void", "t0001", "--reason", "changed my mind")
    assert code == 0, said
    await wait_for(lambda: json.loads(document.read_text())["stats"]["n_errored_trials"] >= 1, pause_s=0.1)
    await rig.kill()
    seen = document.stat().st_mtime_ns  # of a number that a file had, the next but one may have it again
    await rig.start()  # a new life writes every document anew
    await wait_for(lambda: document.stat().st_mtime_ns != seen, pause_s=0.1)
    pruned = [path.name for path in out.iterdir() if path.is_dir() and path.name.startswith(tuple(f"t{n:04d}" for n in range(1, 9)))]
    assert pruned == []
