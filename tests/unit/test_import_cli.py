"""``marathonctl import`` as people type it, and what the other commands say of an imported campaign."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.cli import ctl
from marathond.core.paths import daemon_paths
from marathond.ledger import lock
from marathond.ledger.connect import connect
from marathond.service.exits import Exit
from tests.support import ledgers as have
from tests.support.old_runs import Trial, job_folder, passed, plant, put

PUBLIC = Path(__file__).resolve().parents[1] / "data" / "swe-marathon-trials.csv"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(tmp_path / "s"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    path = daemon_paths({"state_dir": tmp_path / "s"}, 0, {}).ledger
    have.file_ledger(path, host=socket.gethostname(), now_ms=have.T0)
    return path


@pytest.fixture
def run(ledger: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def typed(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = ctl.run([str(word) for word in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


@pytest.fixture
def out(tmp_path: Path, ledger: Path) -> Path:
    return plant(tmp_path)


def test_a_dry_run_says_what_a_real_one_says_and_does(run: Run, out: Path, ledger: Path) -> None:
    before = ledger.read_bytes()
    code, dry, err = run("import", out, "--dry-run")
    assert (code, err) == (0, "") and ledger.read_bytes() == before
    _, real, _ = run("import", out)
    *first, last = dry.splitlines()
    *same, did = real.splitlines()
    assert [line.removesuffix(" (dry run)") for line in first] == same
    assert last == "dry run: nothing was written; without --dry-run it is"
    assert did.startswith("imported 15 trials into campaign marathon-full")
    for words in (
        "runs of the old scripts, as campaign marathon-full",
        "15 new trials: 6 count, 9 do not; 7 listed and not taken",
        "cells 16: 4 tasks x 4 arms, 1 replicate",
        "driven with GOAL_TIMEOUT_SEC=21600, MARATHON_CONCURRENCY=12",
        "judged otherwise than by the old rule (completed >= 1 and errored == 0):",
        "owned by uid 54321" if "other_owner" in real else "listed, not taken:",
    ):
        assert words in real
    assert "sk-secret" not in real
    assert run("import", out)[1].splitlines()[-1] == "nothing new: the ledger is as it was"


def test_as_json_holds_every_trial(run: Run, out: Path) -> None:
    found = json.loads(run("import", out, "--dry-run", "--json")[1])
    assert (found["kind"], found["campaign"], found["dry_run"], len(found["trials"])) == ("runs", "marathon-full", True, 15)
    assert sum(trial["counts"] for trial in found["trials"]) == 6


def test_the_public_table_in_a_few_seconds_to_the_last_solved_task(run: Run, ledger: Path) -> None:
    begun = time.process_time()
    code, said, err = run("import", "--csv", PUBLIC)
    assert (code, err) == (0, "") and "1299 new trials: 1299 count, 0 do not" in said
    assert time.process_time() - begun < 30
    assert "swe-marathon-trials.csv:21 and 54 more" in said
    code, rows, _ = run(
        "sql",
        "select count(*) filter (where state = 'done') n, sum(reward) solved, round(avg(partial), 3) p, count(*) cells from v_cell"
        " where campaign = 'swe-marathon-trials' group by arm order by solved desc, p desc",
        "--json",
    )
    found = json.loads(rows)
    assert [row["solved"] for row in found] == [26, 16, 12, 11, 7, 6, 4, 4, 2, 1, 0, 0, 0]
    assert [row["n"] for row in found] == [100] * 8 + [99] + [100] * 4
    assert {row["cells"] for row in found} == {100}
    assert [row["p"] for row in found][:9] == [0.711, 0.661, 0.64, 0.582, 0.372, 0.443, 0.373, 0.358, 0.408]
    again = run("import", "--csv", PUBLIC)[1]
    assert "nothing new, 1299 known already" in again


def test_a_closed_pipe_does_not_undo_it(out: Path, ledger: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run([sys.executable, "-m", "marathond.cli.ctl", "import", str(out)], stdout=write_end, timeout=240, check=False)
    finally:
        os.close(write_end)
    assert done.returncode in (1, 141)  # click's, or our own, whichever meets it first
    with connect(ledger, mode="ro") as c:
        assert c.execute("SELECT count(*) FROM imported_trial").fetchone()[0] == 15


def test_rows_that_a_person_must_look_at_make_the_exit_status(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "t.csv", "task,arm,reward\nzstd,plain,1\nzstd,plain,yes\n")
    code, said, _ = run("import", "--csv", tmp_path / "t.csv")
    assert code == Exit.FAILED and "t.csv:3" in said and "imported 1 trial" in said


def test_a_changed_source_is_refused_by_name(run: Run, tmp_path: Path) -> None:
    folder = job_folder(tmp_path / "j", [Trial("a"), Trial("b", files=passed())], attempts=2)
    assert run("import", folder)[0] == 0
    put(folder / "a" / "verifier" / "reward.txt", "1\n")
    code, said, _ = run("import", folder)
    assert code == Exit.FAILED and "its files are not what they were when t0001 was read" in said
    assert "nothing new: the ledger is as it was" in said


def test_what_was_in_work_is_taken_the_next_time(run: Run, out: Path) -> None:
    run("import", out)
    goal = out / "stripe" / "goal"
    (out / ".claims" / "stripe__goal.claim").unlink()
    stamp = next(goal.iterdir())
    job_folder(stamp / "goal", [Trial("stripe__g1", task="stripe", files=passed())])
    said = run("import", out)[1]
    assert "1 new trial: 1 count, 0 do not, 15 known already" in said


def test_a_daemon_that_lives_is_named_and_nothing_is_written(run: Run, out: Path, ledger: Path) -> None:
    held = lock.acquire(ledger, pid=4121, host="build7", now_ms=have.T0)
    try:
        assert run("import", out, "--dry-run")[0] == 0
        before = ledger.read_bytes()
        code, _, err = run("import", out)
        assert code == Exit.FAILED and "marathonctl import needs the ledger for itself" in err and "pid 4121" in err
        assert ledger.read_bytes() == before
    finally:
        held.release()


def test_names(run: Run, out: Path, ledger: Path) -> None:
    with connect(ledger, mode="rw") as c:
        have.fill(c)
    code, _, err = run("import", out, "--name", "x")
    assert code == Exit.FAILED and "campaign x was run by this ledger: give the import another name with --name" in err
    assert run("import", out, "--name", "a\x1b[31m")[0] == Exit.USAGE
    assert run("import")[0] == run("import", out, "--csv", out)[0] == run("import", out, "--map", "a=b")[0] == Exit.USAGE
    assert run("import", out, "--owner", "nobody-of-that-name")[0] == Exit.USAGE


def test_status_shows_the_campaign_that_runs_unless_another_is_named(run: Run, out: Path, ledger: Path) -> None:
    with connect(ledger, mode="rw") as c:
        have.fill(c)
    run("import", out)
    assert "campaign x" in run("status")[1]
    code, said, _ = run("status", "--campaign", "marathon-full")
    assert code == 0 and said.startswith("campaign marathon-full  imported: nothing runs in it")
    assert "cells 16: 6 done · 10 missing" in said and "7 listed and not taken" in said
    for word in ("ETA", "marathond is", "waiting", "networks", "disk", "running", "budget", "unknown"):
        assert word not in said, word
    found = json.loads(run("status", "--campaign", "marathon-full", "--json")[1])
    assert (found["health"], found["eta"]["basis"]) == ("healthy", "imported: nothing runs in it")


def test_show_says_where_it_was_read_from(run: Run, out: Path) -> None:
    run("import", out)
    said = run("show", "t0015")[1]
    assert f"imported from {out} (runs) by " in said
    assert "model gpt-5.5" in said and "ended by deadline" in said and "its files stay where they were read from" in said
    assert "run directory" not in said and "task digest" not in said
    assert json.loads(run("show", "t0015", "--json")[1])["imported"]["tokens"] == 1_020


def test_what_people_decide_of_imported_trials_needs_no_daemon(run: Run, out: Path, ledger: Path) -> None:
    run("import", out)
    code, said, err = run("void", "t0015", "--reason", "the disk was full", "--dry-run")
    assert (code, err) == (0, "") and "would void 1 trial" in said
    code, said, err = run("void", "t0015", "--reason", "the disk was full")
    assert (code, err) == (0, "") and "voided t0015 (plain, score was known" in said and "imported, so nothing runs in its cell" in said
    assert "already voided" in run("void", "t0015", "--reason", "again")[1]
    assert "t0015 (plain) is scored again" in run("unvoid", "t0015", "--reason", "it was not")[1]
    code, _, err = run("retry", "t0015", "--reason", "r")
    assert code == Exit.FAILED and "is of an imported campaign: nothing can run in it" in err
    assert run("retry", "c0001", "--reason", "r")[0] == Exit.FAILED


def test_what_runs_here_still_needs_the_daemon(run: Run, out: Path, ledger: Path) -> None:
    with connect(ledger, mode="rw") as c:
        have.fill(c)
        have.let_go(c, have.bring_to(c, have.cell(c), "scored"))
    run("import", out)
    for argv in (["void", "t0001"], ["void", "t0001", "t0002"], ["void", "--arm", "plain"], ["retry", "t0001"]):
        assert run(*argv, "--reason", "r")[0] == Exit.DOWN, argv


def test_other_commands_say_that_nothing_runs_in_it(run: Run, out: Path) -> None:
    run("import", out)
    code, _, err = run("wait", "--campaign", "marathon-full")
    assert code == Exit.FAILED and "imported, so nothing runs in it" in err
    assert "was imported: its files stay" in run("logs", "t0015")[2]


def test_e04_what_an_import_does_not_tell_is_said_and_no_reason_to_look_again_and_it_needs_no_daemon(run: Run) -> None:
    """A table of trials knows no images and no verifier's output: nothing that anybody does would open that eye."""
    assert run("import", "--csv", PUBLIC, "--name", "old")[0] == Exit.OK
    code, out, _ = run("audit", "--campaign", "old")
    assert code == Exit.OK and "image_stale              unknown" in out
    assert "unknown: image_stale: of no trial is the image known" in out
    assert "could not see what was not imported" in out.splitlines()[-1]
    code, out, _ = run("doctor", "--campaign", "old", "--json")
    rows = {row["name"]: row for row in json.loads(out)["sources"]}
    assert code == Exit.OK, [row for row in rows.values() if row["verdict"] not in ("ok", "nothing yet")]
    assert "imported" in rows["daemon"]["why"]


def test_e04_a_report_of_an_import_says_that_nobody_looked_for_findings(run: Run) -> None:
    run("import", "--csv", PUBLIC, "--name", "old")
    for form in ([], ["--page"]):
        text = run("report", "--campaign", "old", *form)[1]
        assert "None is open" not in text and "Open findings: none" not in text
        assert "marathonctl audit --campaign old" in text
