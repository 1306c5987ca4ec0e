"""`marathonctl status` and the other commands that only look: exit codes, unknowns, plain text, JSON."""

from __future__ import annotations

import csv
import io
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.cli import ctl
from marathond.cli.gather import Cells, estimate
from marathond.ledger.verbs import findings, networks, parks, runs, settings, trials
from marathond.ledger.verbs.admission import StopRow
from marathond.ledger.verbs.networks import NetworkSeen
from tests.support import ledgers as have
from tests.support.cli_rig import RecordingControl, Rig, make_ledger, now_ms, subprocess_run

NASTY = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b2J\u202eevil\r\nsecond"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """A ledger with a campaign of four cells and a living, talkative daemon (this process)."""
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
    monkeypatch.chdir(folder)
    rig = Rig(folder, capsys, RecordingControl())
    make_ledger(rig.ledger)
    with rig.sql() as c:
        have.fill(c)
        networks.observe_pool(c, have.ENGINE, total=4096, foreign_used=15, host_used=0, now_ms=now_ms())
        rig.begin_life(c)
        rig.observe_all(c)
    yield rig
    shutil.rmtree(folder)


def mixed(rig: Rig) -> None:
    """One cell done, one in review, one running, one open."""
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "plain"), "scored"))
        have.bring_to(c, have.cell(c, "zstd", "goal"), "review")
        have.bring_to(c, have.cell(c, "rust", "plain"), "running", now_ms=now_ms() - 125_000)


def test_a_healthy_campaign_is_exit_0_and_says_everything(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        rig.observe_all(c, waiting=[{"code": "CONCURRENCY", "count": 1, "text": "CONCURRENCY 4/4"}])
    lines = rig.ask("status").splitlines()
    assert lines[0].startswith(f"marathond 0.1.0  pid {os.getpid()} up 1m0") and lines[0].endswith("campaign x   healthy · 1 in review")
    assert lines[1].startswith("cells 4: 1 done · 1 running · 1 open · 1 review   ETA ") and lines[1].endswith("(from 1 duration)")
    assert lines[2] == "  1 in review: marathonctl review"
    assert lines[3] == "networks 1/64 ours (0 leaked) · foreign 15   disk 71 % free"
    table = [line.split() for line in lines[5:8]]
    assert table[0] == ["arm", "done", "reward", "partial", "tests", "budget-ended", "voids", "running", "open", "review"]
    assert table[1] == ["plain", "1", "1.00", "(1/1)", "0.50", "0.75", "0", "%", "0", "1", "0", "0"]
    assert lines[10].split()[:6] == ["t0003", "rust", "plain", "running", "2m05s", "in"]
    assert lines[-1] == "waiting: 1 cell — 1 CONCURRENCY 4/4"


def test_json_has_every_fact_and_null_for_unknown(rig: Rig) -> None:
    mixed(rig)
    found = json.loads(rig.ask("status", "--json"))
    assert found["health"] == "healthy" and found["exit"] == 0 and found["campaign"] == "x"
    assert found["cells"] == {"total": 4, "done": 1, "claimed": 1, "open": 1, "parked": 0, "review": 1}
    assert [arm["arm"] for arm in found["arms"]] == ["plain", "goal"]
    assert found["pools"][0]["foreign"] == 15
    with rig.sql() as c:
        networks.observe_pool(c, have.ENGINE, total=None, foreign_used=None, host_used=None, now_ms=now_ms())
    blind = rig.run("status", "--json")
    assert blind.code == 4 and json.loads(blind.out)["pools"][0]["foreign"] is None


@pytest.mark.parametrize("key", ["engine", "disk", "waiting"])
def test_e04_what_the_daemon_has_not_said_lately_is_unknown_and_exit_4(rig: Rig, key: str) -> None:
    with rig.sql() as c:
        settings.observe(c, key, {"ok": True}, now_ms=now_ms() - 61_000)
    answer = rig.run("status")
    assert answer.code == 4 and f"unknown: {key}" in answer.out and " 0 %" not in answer.out
    if key == "disk":
        assert "disk unknown" in answer.out
    if key == "waiting":
        assert answer.out.splitlines()[-1] == "waiting: 4 cells — unknown"


def test_an_engine_that_is_away_is_degraded_and_named(rig: Rig) -> None:
    with rig.sql() as c:
        rig.observe_all(c, engine={"ok": False, "detail": f"cannot reach Docker: {NASTY}"})
    answer = rig.run("status")
    assert answer.code == 1 and "degraded" in answer.out
    assert "  engine: cannot reach Docker: redevil second" in answer.out.splitlines()
    assert "\x1b" not in answer.out and "\u202e" not in answer.out


def test_parked_cells_and_reviews_are_healthy_and_cannot_be_overlooked(rig: Rig) -> None:
    why = {"passes_exhausted": 1, "task_unsupported": 2, "task_broken": 3, "image_missing": 4, "by_hand": 5}
    rig.ledger.unlink()
    make_ledger(rig.ledger)
    with rig.sql() as c:
        names = [f"{code}-{n}" for code, tasks in why.items() for n in range(tasks)]
        have.fill(c, have.submission(tasks=[have.task(name) for name in (*names, "zstd")]))
        networks.observe_pool(c, have.ENGINE, total=4096, foreign_used=15, host_used=0, now_ms=now_ms())
        rig.begin_life(c)
        rig.observe_all(c)
        for name in names:
            for arm in ("plain", "goal"):
                detail = f"{name}: {NASTY}"
                parks.park_cell(c, have.cell(c, name, arm), code=name[:-2], detail=detail, author="daemon", now_ms=now_ms())
        have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "plain"), "review"))
        have.let_go(c, have.bring_to(c, have.cell(c, "zstd", "goal"), "scored"))
    lines = rig.ask("status").splitlines()  # exit 0, although nothing is left to run
    assert lines[0].endswith("   healthy · 30 parked · 1 in review")
    assert lines[2] == "  10 parked: by_hand: 5 tasks, such as by_hand-0: by_hand-0: redevil second"
    assert lines[5] == "  4 parked: task_unsupported: 2 tasks, such as task_unsupported-0: task_unsupported-0: redevil second"
    assert lines[6].startswith("  and 1 more (2 cells): marathonctl sql ") and lines[7] == "  1 in review: marathonctl review"
    assert json.loads(rig.ask("status", "--json"))["parks"][4] == {
        "code": "passes_exhausted", "cells": 2, "tasks": 1, "task": "passes_exhausted-0", "detail": f"passes_exhausted-0: {NASTY}"
    }  # fmt: skip
    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
    assert rig.run("status").out.splitlines()[1] == "campaign x · 30 parked · 1 in review"


def test_e04_what_an_earlier_life_saw_is_unknown_however_young_it_is(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        others = [NetworkSeen("f00d" * 16, "shop", "foreign", "shop", "172.18.0.0/16", now_ms())]
        networks.replace_networks_seen(c, have.ENGINE, others, now_ms=now_ms())
        rig.observe_all(c, waiting=[{"code": "CONCURRENCY", "count": 1, "text": "CONCURRENCY 4/4"}])
        assert "foreign 15   disk 71 % free" in rig.ask("status") and rig.run("pool").code == 0
        rig.begin_life(c, now_ms=now_ms() + 1)
        settings.observe(c, "engine", {"ok": False, "detail": "info: no answer"}, now_ms=now_ms())
    answer = rig.run("status")
    assert answer.code == 1 and "  engine: info: no answer" in answer.out
    assert "  unknown: disk, waiting, networks of main (nothing from this daemon within the last minute)" in answer.out.splitlines()
    assert "ETA unknown (the engine does not answer)" in answer.out and "foreign unknown   disk unknown" in answer.out
    assert answer.out.splitlines()[-1] == "waiting: 1 cell — unknown" and "CONCURRENCY" not in answer.out
    pool = rig.run("pool")
    assert pool.code == 4 and "foreign unknown" in pool.out and "last seen " in pool.out


def test_pool_is_exit_4_while_the_capacity_is_unknown(rig: Rig) -> None:
    with rig.sql() as c:
        networks.set_pool(c, have.ENGINE, mode="auto", range="198.19.0.0/16", prefix=28, cap=64, margin=2)
        assert rig.run("pool").code == 0
        networks.observe_pool(c, have.ENGINE, total=None, foreign_used=3, host_used=0, now_ms=now_ms())
    for argv in (["pool"], ["pool", "--json"], ["pool", "--foreign"]):
        assert rig.run(*argv).code == 4
    assert "capacity unknown · ours 0 (0 leaked) · free unknown" in rig.run("pool").out


def test_an_alarm_degrades_until_a_person_acknowledges_it(rig: Rig) -> None:
    with rig.sql() as c:
        findings.raise_finding(c, code="leak", severity="error", subject="n1", detail=NASTY, campaign_id=None, now_ms=now_ms())
        findings.raise_finding(c, code="note", severity="warning", subject="n2", detail="fine", campaign_id=None, now_ms=now_ms())
    answer = rig.run("status")
    assert answer.code == 1 and "degraded · 2 findings (0 stop-loss)" in answer.out and "  leak n1: redevil second" in answer.out
    listed = rig.run("findings")
    assert listed.code == 1 and "\x1b" not in listed.out and listed.out.splitlines()[1].split()[:3] == ["1", "error", "leak"]
    with rig.sql() as c:
        findings.ack(c, 1, author="ana", reason="known", now_ms=now_ms())
    assert "healthy · 2 findings (0 stop-loss, 1 acknowledged)" in rig.ask("status")


def test_a_stopped_daemon_is_exit_3_and_the_ledger_is_shown_as_stale(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms() - 3_600_000)
    answer = rig.run("status")
    first = answer.out.splitlines()[0]
    assert answer.code == 3 and first.startswith("marathond is not running (last seen ") and "stopped: SIGTERM" in first
    assert "; ledger as of " in first and "cells 4: 1 done" in answer.out and "ETA unknown (marathond is not running)" in answer.out


@pytest.mark.parametrize(("field", "value"), [("pid", 2**22 + 1), ("pid_start_ticks", 1), ("boot_id", "another")])
def test_a_killed_daemon_is_exit_3_even_if_its_pid_lives_on_as_another(rig: Rig, field: str, value: object) -> None:
    with rig.sql() as c:
        rig.begin_life(c, **{field: value})
    answer = rig.run("status")
    assert answer.code == 3 and " gone); ledger as of " in answer.out.splitlines()[0]


def test_a_ledger_that_never_had_a_daemon_is_exit_3(rig: Rig) -> None:
    rig.ledger.unlink()
    make_ledger(rig.ledger)
    answer = rig.run("status")
    assert answer.code == 3 and answer.out.splitlines()[:2] == [
        "marathond is not running (never started on this ledger)",
        "no campaign yet",
    ]


def test_no_ledger_is_not_an_empty_one(rig: Rig) -> None:
    rig.ledger.unlink()
    answer = rig.run("status")
    assert answer.code == 4 and answer.out == ""
    assert answer.err == f"marathonctl: no ledger at {rig.ledger}; make one with: marathonctl init\n"


def test_a_campaign_that_does_not_exist_is_usage(rig: Rig) -> None:
    answer = rig.run("status", "--campaign", "y")
    assert answer.code == 2 and answer.err == "marathonctl: no campaign y; there are: x\n"


def as_nobody(argv: list[str]) -> tuple[int, str]:
    """Exit code and stdout of marathonctl in a child that has become another user (who may not even read this interpreter)."""
    nobody = pwd.getpwnam("nobody")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        code = 70
        try:
            os.setgroups([])
            os.setresgid(nobody.pw_gid, nobody.pw_gid, nobody.pw_gid)
            os.setresuid(nobody.pw_uid, nobody.pw_uid, nobody.pw_uid)
            with os.fdopen(writer, "w") as sys.stdout:
                code = ctl.run(argv)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        told = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), told


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
@pytest.mark.parametrize("alive", [True, False])
def test_status_needs_no_write_permission(rig: Rig, alive: bool) -> None:
    """In a folder that it may only read: beside a connection that writes, and after an orderly end, when -wal and -shm are gone."""
    rig.state_dir.chmod(0o755)
    for file in rig.state_dir.iterdir():
        file.chmod(0o644)
    with rig.sql() as c:
        if alive:
            assert rig.ledger.with_name("ledger.db-shm").exists()
        else:
            runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
            c.close()
            assert not rig.ledger.with_name("ledger.db-wal").exists()
        code, told = as_nobody(["status"])
    assert code == (0 if alive else 3)
    assert "campaign x" in told and "cells 4: 0 done" in told


def test_off_a_terminal_nothing_is_coloured_cut_or_asked(rig: Rig) -> None:
    mixed(rig)
    environ = {**os.environ, "COLUMNS": "20", "TERM": "xterm-256color", "FORCE_COLOR": "1"}
    for argv in (["status"], ["show", "t0001"], ["--help"], ["pool", "--foreign"]):
        answer = subprocess_run(argv, environ)
        assert "\x1b" not in answer.stdout + answer.stderr
        if argv != ["--help"]:
            assert answer.returncode == 0 and "…" not in answer.stdout


def test_status_starts_without_the_heavy_packages(rig: Rig) -> None:
    heavy = {"pydantic", "aiodocker", "aiohttp", "aiosqlite", "anyio", "asyncio", "typer", "rich", "structlog"}
    code = f"import sys; from marathond.cli import ctl; code = ctl.run(['status']); print(code, sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.splitlines()[-1] == "0 []"


def test_the_fast_way_and_typers_way_print_the_same(rig: Rig) -> None:
    mixed(rig)
    from marathond.cli import status

    fast = rig.run("status", "--campaign=x")
    assert status.parse(["status", "--campaign=x"]) is not None
    slow = rig.run("status", "--campaign", "x", "--no-such-option")
    assert fast.code == 0 and slow.code == 2 and "No such option" in slow.err


@pytest.mark.parametrize(
    "argv", [["status", "-h"], ["status", "x"], ["--campaign", "x", "status"], ["statuss"], ["status", "--campaign"], []]
)
def test_what_is_not_plainly_status_is_left_to_typer(argv: list[str]) -> None:
    from marathond.cli import status

    assert status.parse(argv) is None


# ── the other commands that look ──


def test_show_tells_all_of_a_trial(rig: Rig) -> None:
    mixed(rig)
    out = rig.ask("show", "t0001")
    for words in (
        "t0001  scored   attempt 1 of 1",
        "campaign x   task zstd   arm plain   replicate 1",
        "cell c0001 (done)   block b0001",
        "agent deadline 600 s: task 600 x 1.0",
        "ended by agent after 1m00s, exit code 0 (the engine's word)",
        "reward 1 from reward.txt   partial 0.50   tests 3/4",
        "metrics.json partial_score",
    ):
        assert words in out
    assert json.loads(rig.ask("show", "1", "--json"))["context"]["task"] == "zstd"


def test_show_says_which_deadline_applied_and_whose_word_the_exit_code_is(rig: Rig) -> None:
    with rig.sql() as c:
        trial_id = (admitted := have.admit(c, have.cell(c))).trial_id
        have.prepare(c, admitted)
        limit: dict[str, Any] = {"limit_ms": 60_000, "limit_origin": "own", "limit_loser": "task 60 x 1.0"}
        trials.agent_started(c, trial_id, exec_id="e", started_mono_ms=1, boot_id="b", now_ms=now_ms(), **limit)
        end: dict[str, Any] = {"ended_by": "agent", "exit_code": 0, "exit_source": "file", "overrun_ms": None, "processes": []}
        trials.agent_ended(c, trial_id, oom_killed=False, ended_mono_ms=61_000, now_ms=now_ms(), **end)
    lines = rig.ask("show", "t0001").splitlines()
    assert "  agent deadline 60 s: own 60 s; task 60 x 1.0 did not apply" in lines
    assert "  ended by agent after 1m00s, exit code 0 (from a file the container could write)" in lines


@pytest.mark.parametrize(
    ("trial", "code", "words"), [("t9999", 1, "no trial t9999 in this ledger (last is t0003)"), ("zebra", 2, "must be")]
)
def test_a_trial_that_does_not_exist_is_one_line(rig: Rig, trial: str, code: int, words: str) -> None:
    mixed(rig)
    for command in (["show", trial], ["logs", trial], ["wait", trial]):
        answer = rig.run(*command)
        assert answer.code == code and answer.out == "" and words.split(" (")[0] in answer.err and answer.err.count("\n") == 1


def test_pool_names_foreign_networks_and_hands_out_commands(rig: Rig) -> None:
    with rig.sql() as c:
        leased = have.bring_to(c, have.cell(c), "voided")
        assert leased.lease_id is not None
        networks.removal_failed(c, leased.lease_id, now_ms=now_ms())
        others = [
            NetworkSeen("f00dfeed" * 8, f"shop_{NASTY}", "foreign", "shop", "172.18.0.0/16", now_ms() - 90_000_000),
            NetworkSeen("beadcafe" * 8, "mn-ffffffffffff-t0001", "other_ledger", "", "198.19.9.0/28", now_ms()),
            NetworkSeen("0123abcd" * 8, "mn-0123456789ab-t0001", "ours", "", "198.19.0.0/28", now_ms()),
        ]
        networks.replace_networks_seen(c, have.ENGINE, others, now_ms=now_ms())
    out = rig.ask("pool", "--foreign")
    assert "capacity 64 · ours 1 (1 leaked) · free 63 · foreign 15" in out and "\x1b" not in out
    assert "docker network rm f00dfeedf00d" in out and "25h00m" in out
    assert "docker network rm beadcafebead" in out and "other ledger" in out and "0123abcd" not in out
    with rig.sql() as c:  # the pool itself was not looked at, as in explicit mode: the listing tells who else is there
        networks.observe_pool(c, have.ENGINE, total=None, foreign_used=None, host_used=None, now_ms=now_ms() - 120_000)
        others.append(NetworkSeen("b" * 64, "bridge", "foreign", "", "172.17.0.0/16", now_ms()))
        networks.replace_networks_seen(c, have.ENGINE, others, now_ms=now_ms())
    told = rig.ask("pool", "--foreign")
    assert "· foreign 2" in told and "bridge" not in told
    with rig.sql() as c:
        networks.replace_networks_seen(c, have.ENGINE, others, now_ms=now_ms() - 61_000)
    blind = rig.run("pool")
    assert blind.code == 4 and "foreign unknown" in blind.out and "last seen 2m00s ago" in blind.out


def test_sql_prints_three_ways(rig: Rig) -> None:
    mixed(rig)
    statement = "select task, arm, state, reward from v_cell order by task, arm"
    assert rig.ask("sql", statement).splitlines()[0].split() == ["task", "arm", "state", "reward"]
    rows = json.loads(rig.ask("sql", "--json", statement))
    assert rows[3] == {"task": "zstd", "arm": "plain", "state": "done", "reward": 1.0}
    table = list(csv.reader(io.StringIO(rig.ask("sql", "--csv", statement))))
    assert table[0] == ["task", "arm", "state", "reward"] and table[4] == ["zstd", "plain", "done", "1.0"] and table[1][3] == ""


@pytest.mark.parametrize(
    "statement",
    [
        "delete from run",
        "insert into observation values ('a', '1', 1, 1)",
        "attach database 'stolen.db' as s",
        "pragma journal_mode = delete",
        "pragma query_only = 0",
        "vacuum into 'stolen.db'",
        "select 1; select 2",
        "selct 1",
        "select load_extension('x')",
        "",
        "begin immediate",
    ],
)
def test_sql_only_reads(rig: Rig, statement: str) -> None:
    before = rig.ledger.read_bytes()
    answer = rig.run("sql", statement)
    assert answer.code == 2 and answer.out == "" and answer.err.startswith("marathonctl: sql: ") and answer.err.count("\n") == 1
    assert rig.ledger.read_bytes() == before and not (rig.state_dir / "stolen.db").exists()


def test_sql_that_takes_too_long_is_busy(rig: Rig) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    answer = rig.run("sql", "--timeout", "0.1", endless)
    assert answer.code == 75 and "not done within 0.1 s" in answer.err


def test_sql_tames_what_it_prints(rig: Rig) -> None:
    out = rig.ask("sql", "select char(27) || '[2J' || 'x' as shown")
    assert out.split() == ["shown", "x"]


def logs_of(rig: Rig, trial: str, text: bytes) -> Path:
    path = rig.state_dir / "r" / trial / "logs/agent/output.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(text)
    return path


def test_logs_are_the_run_directorys_until_they_are_exported(rig: Rig) -> None:
    mixed(rig)
    none = rig.run("logs", "t0001")
    assert none.code == 1 and "no output of t0001's agent yet" in none.err
    path = logs_of(rig, "t0003", b"one\n  two\n")
    assert rig.ask("logs", "t0003") == "one\n  two\n"
    path.write_bytes(b"")
    silent = rig.run("logs", "t0003")
    assert (silent.code, silent.out, silent.err) == (0, "", "(the agent wrote nothing yet)\n")
    done = logs_of(rig, "t0001", b"")
    done.with_name("output.txt").rename(done.parent.parent / "x")
    test_output = done.parent.parent / "verifier/test-stdout.txt"
    test_output.parent.mkdir()
    test_output.touch()
    assert rig.run("logs", "t0001", "--verifier").err == "(the verifier wrote nothing)\n"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert rig.run("logs", "t0003").code == 1


def test_wait_for_a_trial_and_a_campaign(rig: Rig) -> None:
    mixed(rig)
    assert rig.run("wait", "t0001").code == 0 and rig.run("wait", "t0002").code == 1
    running = rig.run("wait", "t0003", "--timeout", "0")
    assert running.code == 75 and "t0003 running; not done within 0 seconds" in running.err
    assert rig.run("wait", "--timeout", "0").code == 75
    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
    down = rig.run("wait")
    assert down.code == 3 and "1 claimed, 1 done, 1 open, 1 review; marathond is not running" in down.err


def test_wait_ends_when_every_cell_has_a_result(rig: Rig) -> None:
    with rig.sql() as c:
        for task in ("zstd", "rust"):
            for arm in ("plain", "goal"):
                have.let_go(c, have.bring_to(c, have.cell(c, task, arm), "scored"))
    answer = rig.run("wait")
    assert (answer.code, answer.out, answer.err) == (0, "", "x: 4 done\n")


# ── the estimate ──

HOUR = 3_600_000


@pytest.mark.parametrize(
    ("cells", "begun", "lengths", "slots", "expected"),
    [
        (Cells(10, 10, 0, 0, 0, 0), [], [HOUR], 4, (0, "nothing left to run")),
        (Cells(10, 0, 0, 10, 0, 0), [], [], 4, (None, "no durations yet")),
        (Cells(10, 2, 0, 8, 0, 0), [], [HOUR, HOUR], None, (None, "concurrency not known")),
        (Cells(10, 2, 0, 8, 0, 0), [], [HOUR, 3 * HOUR], 4, (4 * HOUR, "from 2 durations")),
        (Cells(10, 8, 2, 0, 0, 0), [0, HOUR // 2], [HOUR], 4, (HOUR // 4, "from 1 duration")),
        (Cells(10, 8, 1, 1, 0, 0), [0], [HOUR], 8, (HOUR // 2, "from 1 duration")),
    ],
)
def test_the_estimate_says_what_it_rests_on(
    cells: Cells, begun: list[int], lengths: list[int], slots: int | None, expected: tuple[int | None, str]
) -> None:
    eta = estimate(cells, begun, lengths, slots, [], HOUR)
    assert (eta.ms, eta.basis) == expected


def test_no_estimate_while_admission_is_closed() -> None:
    eta = estimate(Cells(2, 1, 0, 1, 0, 0), [], [HOUR], 4, [StopRow(1, "pause", "lunch", "ana", 0, None)], HOUR)
    assert (eta.ms, eta.basis) == (None, "admission is closed: pause")


def test_usage_errors_are_exit_2(rig: Rig) -> None:
    for argv in (["nonsense"], ["show"], ["sql"], ["void", "t0001"], ["set", "concurrency=8"], ["pool", "--nope"]):
        answer = rig.run(*argv)
        assert answer.code == 2 and answer.out == "" and answer.err != ""


def test_version(rig: Rig) -> None:
    assert rig.ask("--version") == "marathonctl 0.1.0\n"
