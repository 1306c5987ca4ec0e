"""On a real engine: a doubt with evidence from our own side, which nothing waits for; and files graded again between two daemons."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.cli_rig import subprocess_run
from tests.support.rig import Rig, make_task

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

SAYS = "curl: (6) Could not resolve host: static.crates.io"
TEST = f"""
echo "{SAYS}"
echo 0 >/logs/verifier/reward.txt
echo '{{"quality": 0.25}}' >/logs/verifier/metrics.json
exit 1
"""
BUILD = f"""
echo "{SAYS}"; echo 'BUILD FAILED'
echo 0 >/logs/verifier/reward.txt
echo '{{"phase": "build_failed", "passed": 0, "failed": 0}}' >/logs/verifier/metrics.json
"""


async def ctl(rig: Rig, *argv: str) -> tuple[int, str, str]:
    done = await to_thread.run_sync(lambda: subprocess_run(["--config", str(rig.config), *argv], {"PATH": "/usr/bin:/bin"}))
    return done.returncode, done.stdout, done.stderr


def _until_documents_say(folder: Path, words: str, patience_s: float = 120) -> None:
    until = time.monotonic() + patience_s
    while words not in "".join(path.read_text() for path in folder.glob("*.json")):
        assert time.monotonic() < until, f"{words} in none of {sorted(folder.glob('*.json'))}"
        time.sleep(0.1)


async def test_d06_the_own_solution_failing_alike_makes_a_doubt_and_files_are_graded_again_between_two_daemons(
    docker_host: str, tmp_path: Path
) -> None:
    tasks = [make_task(tmp_path, "needs-net", test=TEST), make_task(tmp_path, "builds", test=BUILD)]
    rig = Rig(
        docker_host,
        tasks=tasks,
        arms={"nop": {"kind": "nop"}, "reference": {"kind": "oracle"}},
        replicates=2,
        overrides={"admission.concurrency": 1},
    )
    async with rig:
        await rig.until_done()
        # One after another: by the second replicate the task's own solution has met the same.
        code, detail, shown = rig.one(
            """SELECT code, detail, evidence_json FROM review JOIN v_trial ON v_trial.trial = printf('t%04d', trial_id)
               WHERE v_trial.task = 'needs-net' AND v_trial.arm = 'nop' AND v_trial.replicate = 2"""
        )
        evidence = json.loads(shown)
        assert code == "infrastructure_suspected" and SAYS in detail
        assert "the task's own solution ended alike (log:dns, 1 of 1 trials)" in detail
        assert evidence["oracles_alike"] == {"log:dns": 1} and evidence["read"]["reward"] == 0
        first = rig.one("SELECT min(trial_id) FROM trial JOIN cell USING (cell_id) JOIN task USING (task_id) WHERE task.name = 'needs-net'")
        assert json.loads(rig.one("SELECT flags_json FROM score WHERE trial_id = ?", first)) == ["log:dns"], "words alone are a flag"
        # A build that failed is scored, whoever failed alike, and nothing waits for the reviews (faults d05, d06).
        assert rig.one("SELECT count(*) FROM v_cell WHERE task = 'builds' AND state = 'done'") == 4
        assert {"build_failed", "log:dns"} <= set(json.loads(rig.one("SELECT max(flags_json) FROM score WHERE flags_json LIKE '%build%'")))
        assert rig.one("SELECT count(*) FROM void") == 0
        doubted = rig.one("SELECT min(trial_id) FROM trial WHERE state = 'review'")
        label = f"t{doubted:04d}"

        status, out, err = await ctl(rig, "review", label)
        assert status == 0, err
        assert SAYS in out and "ended alike: log:dns in" in out and "verifier/test-stdout.txt" in out
        status, out, err = await ctl(rig, "review", label, "--accept", "--reason", "the image lacks the crate")
        assert (status, out) == (0, f"{label} accepted with reward 0, as it was read\n"), err
        assert "accepted_as_read" in rig.one("SELECT flags_json FROM score WHERE trial_id = ?", doubted)

        status, out, err = await ctl(rig, "regrade")
        assert status == 1 and "needs the ledger for itself" in err and "stop it first" in err, "the daemon lives"
        await rig.kill()

        with rig.config.open("a") as config:
            config.write('[scores.needs-net]\npartial = "metrics.json:quality"\n')
        scored = rig.one("SELECT count(*) FROM v_cell WHERE task = 'needs-net' AND state = 'done'")
        status, out, err = await ctl(rig, "regrade", "--task", "needs-net")
        assert status == 0, (out, err)
        assert f"{scored} differ, newer scores written" in out and "metrics.json:quality" in out
        rows = rig.sql("SELECT partial, flags_json FROM score WHERE trial_id = ? ORDER BY score_id", doubted)
        assert [row[0] for row in rows] == [None, 0.25] and "accepted_as_read" in rows[1][1] and "log:dns" in rows[1][1]
        again = await ctl(rig, "regrade")
        assert again[0] == 0 and " 0 differ" in again[1], again

        await rig.start()
        await rig.until("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")
        assert rig.one("SELECT count(*) FROM run WHERE stop_reason = 'marathonctl regrade'") == 2
        folder = Path(rig.one("SELECT out_dir || '/' || folder FROM artifact_export JOIN campaign WHERE trial_id = ?", doubted))
        # What lies beside the artifacts follows the newest score.
        await to_thread.run_sync(_until_documents_say, folder, "0.25")
        await rig.kill()
        await anyio.Path(folder / "verifier" / "metrics.json").write_text("{}")
        status, out, err = await ctl(rig, "regrade", label)
        assert status == 1 and "metrics.json: is not what was exported" in out
        assert rig.one("SELECT count(*) FROM score WHERE trial_id = ?", doubted) == 2
