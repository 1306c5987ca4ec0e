"""`marathonctl status`: exit codes, unknowns, plain text, JSON."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from marathond.cli import ctl
from marathond.cli.output import Screen
from marathond.cli.status import render
from marathond.gateway.netns import start_ticks
from marathond.ledger.verbs import admission, findings, networks, parks, runs, settings
from marathond.ledger.verbs.networks import NetworkSeen
from marathond.service.picture.status import gather
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, make_ledger, mixed, now_ms, subprocess_run


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


def test_a_healthy_campaign_is_exit_0_and_says_everything(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        rig.observe_all(c, waiting=[{"code": "CONCURRENCY", "count": 1, "text": "CONCURRENCY 4/4"}])
    lines = rig.ask("status").splitlines()
    assert re.match(rf"marathond 0\.1\.0  pid {os.getpid()} up 1m\d\ds ", lines[0])
    assert lines[0].endswith("campaign x   healthy · 1 in review")
    assert lines[1].startswith("cells 4: 1 done · 1 running · 1 open · 1 review   ETA ")
    assert lines[1].endswith("(from 1 duration of 0 of 1 task)")
    assert re.fullmatch(r"  1 in review, the oldest for \d+\w+: marathonctl review", lines[2])
    assert lines[3] == f"networks 1/64 ours (0 leaked) · foreign 15   disk 71 % free   ledger {rig.ledger}"
    table = [line.split() for line in lines[5:8]]
    assert table[0] == ["arm", "done", "reward", "partial", "tests", "budget-ended", "voids", "running", "open", "review"]
    assert table[1] == ["plain", "1", "1.00", "(1/1)", "0.50", "0.75", "0", "%", "0", "1", "0", "0"]
    trial, task, arm, state, elapsed, word = lines[10].split()[:6]
    assert (trial, task, arm, state, word) == ("t0003", "rust", "plain", "running", "in")
    assert re.fullmatch(r"2m(0[5-9]|[1-5]\d)s", elapsed)  # 2m05s when it was written; the look comes later
    assert lines[-1] == "waiting: 1 cell — 1 CONCURRENCY 4/4"


@pytest.mark.parametrize("width", [None, 200, 100, 80])
def test_long_paths_make_no_long_line(rig: Rig, width: int | None) -> None:
    mixed(rig)
    folder = "/srv/storage-of-the-group/benchmarks/2026/autumn/marathond"
    disk = [{"path": f"{folder}/{name}", "free_bytes": free, "total_bytes": 100} for name, free in (("state", 41), ("out", 42))]
    with rig.sql() as c:
        rig.observe_all(c, disk=disk)
        found = replace(gather(c, None, rig.socket, now_ms(), rig.state_dir / "gateway"), ledger=f"{folder}/state/ledger.db")
    lines = render(found, Screen(width))
    first = next(number for number, line in enumerate(lines) if line.startswith("networks "))
    assert all(len(line) <= 100 for line in lines)
    assert "disk 41 % free at …/marathond/state" in " ".join(lines[first : first + 3])
    assert Screen(width).fit(f"  ledger {folder}/state/ledger.db") in lines[first + 1 : first + 3]


@pytest.mark.parametrize("width", [100, 80, 40])
def test_a_command_to_type_is_never_cut(rig: Rig, width: int) -> None:
    """Half of a command is none; what else is too long is cut as before."""
    mixed(rig)
    with rig.sql() as c:
        for key, value in (("admission.concurrency", 2), ("admission.cpu_overcommit", 2.0)):
            reason = "an evening alone " * 3
            settings.set_value(c, key, old=1, new=value, author="a-person-of-a-long-name", reason=reason, now_ms=now_ms())
        admission.open_stop(c, "pause", detail="long " * 60, author="ana", until_ms=None, now_ms=now_ms())
        rig.observe_all(c)
        found = gather(c, None, rig.socket, now_ms(), rig.state_dir / "gateway")
    lines = render(found, Screen(width))
    whole = " ".join(" ".join(lines).split())
    assert "until marathonctl set concurrency=default" in whole and "until marathonctl set cpu_overcommit=default" in whole
    assert "marathonctl review" in whole and all(len(line) <= width for line in lines)
    assert any(line.startswith("pause by ") and line.endswith("…") for line in lines)


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
    assert lines[6].startswith("  and 1 more (2 cells): marathonctl sql ") and lines[7].startswith("  1 in review, the oldest for ")
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


def test_an_alarm_degrades_until_a_person_acknowledges_it(rig: Rig) -> None:
    with rig.sql() as c:
        findings.raise_finding(c, code="leak", severity="error", subject="n1", detail=NASTY, campaign_id=None, now_ms=now_ms())
        findings.raise_finding(c, code="note", severity="warning", subject="n2", detail="fine", campaign_id=None, now_ms=now_ms())
    answer = rig.run("status")
    assert answer.code == 1 and "degraded · 2 findings (0 stop-loss)" in answer.out and "  leak n1: redevil second" in answer.out
    listed = rig.run("findings")
    assert listed.code == 1 and "\x1b" not in listed.out and listed.out.splitlines()[2].split()[:3] == ["1", "error", "leak"]
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


@contextmanager
def another_process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_f10_a_daemon_that_was_killed_and_not_waited_for_is_not_running(rig: Rig) -> None:
    """Its pid and start time are there until its parent looks: in a container without an init that is for ever."""
    mixed(rig)
    with another_process() as process, rig.sql() as c:
        rig.begin_life(c, pid=process.pid, pid_start_ticks=start_ticks(process.pid))
        rig.observe_all(c)
        assert rig.run("status").code == 0
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        answer = rig.run("status")
        assert answer.code == 3 and f"pid {process.pid} gone" in answer.out.splitlines()[0]


def test_e04_a_daemon_that_is_stopped_by_a_signal_is_not_healthy_however_young_its_word(rig: Rig) -> None:
    mixed(rig)
    with another_process() as process, rig.sql() as c:
        rig.begin_life(c, pid=process.pid, pid_start_ticks=start_ticks(process.pid))
        rig.observe_all(c)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        answer = rig.run("status")
        assert answer.code == 4 and f"pid {process.pid} is stopped by a signal" in answer.out and f"kill -CONT {process.pid}" in answer.out
        assert "healthy" not in answer.out
        assert "within the last minute" not in answer.out, "its word is a second old"
        waits = rig.run("wait", "--timeout", "1.5")
        assert waits.code == 75 and waits.err.count(f"still waiting, though pid {process.pid} is stopped by a signal") == 1
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED)
        assert rig.run("status").code == 0


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
        with rig.sql() as c:  # a daemon's word is good for a minute, and four programs may need longer
            rig.observe_all(c)
            networks.observe_pool(c, have.ENGINE, total=4096, foreign_used=15, host_used=0, now_ms=now_ms())
        answer = subprocess_run(argv, environ)
        assert "\x1b" not in answer.stdout + answer.stderr
        if argv != ["--help"]:
            assert answer.returncode == 0 and "…" not in answer.stdout


def test_status_starts_without_the_heavy_packages(rig: Rig) -> None:
    heavy = {"pydantic", "aiodocker", "aiohttp", "aiosqlite", "anyio", "asyncio", "typer", "rich", "structlog"}
    code = f"import sys; from marathond.cli import ctl; code = ctl.run(['status']); print(code, sorted({heavy} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), capture_output=True, text=True, timeout=240, check=True)
    assert found.stdout.splitlines()[-1] == "0 []"


def test_the_fast_way_and_typers_way_print_the_same(rig: Rig) -> None:
    mixed(rig)
    from marathond.cli import status

    fast = rig.run("status", "--campaign=x")
    assert status.parse(["status", "--campaign=x"]) is not None
    slow = rig.run("status", "--campaign", "x", "--no-such-option")
    assert fast.code == 0 and slow.code == 2 and "no such option" in slow.err


@pytest.mark.parametrize(
    "argv", [["status", "-h"], ["status", "x"], ["--campaign", "x", "status"], ["statuss"], ["status", "--campaign"], []]
)
def test_what_is_not_plainly_status_is_left_to_typer(argv: list[str]) -> None:
    from marathond.cli import status

    assert status.parse(argv) is None


def test_usage_errors_are_exit_2(rig: Rig) -> None:
    for argv in (["nonsense"], ["show"], ["sql"], ["void", "t0001"], ["set", "concurrency=8"], ["pool", "--nope"]):
        answer = rig.run(*argv)
        assert answer.code == 2 and answer.out == "" and answer.err != ""


def test_version(rig: Rig) -> None:
    assert rig.ask("--version") == "marathonctl 0.1.0\n"
