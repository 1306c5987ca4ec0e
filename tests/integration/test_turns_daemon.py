"""A verifier that runs alone, and artifacts that are packed and pruned, on a whole daemon with real containers, killed in between."""

from __future__ import annotations

import json
import os
from contextlib import closing, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from marathond.cli import ctl
from marathond.ledger.connect import connect
from marathond.ledger.verbs.status import live_trials
from marathond.service.peers import user_name
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
VERIFIER = "date +%s%N >/logs/verifier/when; sleep 3; date +%s%N >>/logs/verifier/when; echo 1 >/logs/verifier/reward.txt\n"
ALONE = "SELECT trial_id FROM verifier_turn WHERE alone <> 'no' AND granted_at_ms IS NOT NULL AND ended_at_ms IS NULL"
WAITING = "SELECT count(*) FROM verifier_turn WHERE granted_at_ms IS NULL"


async def marathonctl(rig: Rig, *argv: str) -> tuple[int, str]:
    def run() -> tuple[int, str]:
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            return ctl.run(["--config", str(rig.config), *argv]), said.getvalue()

    return await to_thread.run_sync(run)


def intervals(rig: Rig) -> dict[int, tuple[int, int]]:
    """Trial to the nanoseconds between which its verifier ran, by the container's own clock."""
    folders = rig.sql("SELECT trial_id, folder FROM artifact_export")
    return {
        trial: tuple(map(int, (rig.root / "out" / folder / "verifier" / "when").read_text().split()))  # type: ignore[misc]
        for trial, folder in folders
    }


async def test_c09_timed_verifiers_run_alone_across_a_kill_and_pruned_folders_stay_away(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name, test=VERIFIER, agent_s=1000, verifier_s=200) for name in ("timed", "plain")]
    overrides = {"verifier.exclusive": ["timed"], "admission.concurrency": 4, "admission.order": "replicate-major"}
    async with Rig(docker_host, tasks=tasks, arms={"w": WAITS, "v": WAITS}, overrides=overrides, replicates=2) as rig:
        for trial in (1, 2, 3, 4):
            await rig.agent_runs(trial)
        for trial in (1, 2, 3, 4):  # their verifiers ask at the same moment
            (rig.root / "state" / "r" / f"t{trial:04d}" / "logs" / "artifacts" / "go").touch()
        first = await rig.until(f"{ALONE} AND ({WAITING}) > 0")
        with closing(connect(rig.ledger_path, mode="ro")) as c:
            turns = {trial.trial_id: trial.turn for trial in live_trials(c, 1)}
        assert turns[first] in ("alone", None) and "waits" in turns.values()
        assert "waits for the verifier slot" in (await marathonctl(rig, "status"))[1]
        await rig.kill()  # while one runs alone and others wait
        await rig.start()
        for trial in (5, 6, 7, 8):
            await rig.until("SELECT count(*) FROM trial WHERE trial_id = ? AND state = 'running'", trial)
            (rig.root / "state" / "r" / f"t{trial:04d}" / "logs" / "artifacts" / "go").touch()
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
        # It had to be kept apart: at least three waited for longer than one verifier takes.
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

    async def written_anew(before: int) -> dict[str, object]:
        with anyio.fail_after(120):
            while True:
                if (out / "result.json").stat().st_ino != before:
                    break
                await anyio.sleep(0.1)
        return dict(json.loads((out / "result.json").read_text()))

    seen = (out / "result.json").stat().st_ino
    code, said = await marathonctl(rig, "void", "t0001", "--reason", "changed my mind")
    assert code == 0, said
    assert (await written_anew(seen))["stats"]["n_errored_trials"] >= 1  # type: ignore[index]
    seen = (out / "result.json").stat().st_ino
    await rig.kill()
    await rig.start()  # a new life writes every document anew
    await written_anew(seen)
    pruned = [path.name for path in out.iterdir() if path.is_dir() and path.name.startswith(tuple(f"t{n:04d}" for n in range(1, 9)))]
    assert pruned == []
