"""`show`, `pool`, `logs`, `sql`, `wait`: the commands that only look, besides status."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.cli import wait as wait_module
from marathond.core.detached import detached_argv
from marathond.ledger.verbs import admission, networks, runs, trials
from marathond.ledger.verbs.networks import NetworkSeen
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, mixed, now_ms


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


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


def test_show_knows_the_cells_and_blocks_that_it_prints(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        have.let_go(c, have.bring_to(c, have.cell(c, "rust", "goal"), "voided"))
        labels = {
            state: c.execute("SELECT printf('c%04d', cell_id) FROM cell_state WHERE state = ? LIMIT 1", (state,)).fetchone()[0]
            for state in ("done", "review", "claimed", "open")
        }
    for state, words in {
        "done": "  next: done: t0001 counts",
        "review": "  next: somebody decides: marathonctl review t0002",
        "claimed": "  next: t0003 is in work: marathonctl show t0003",
        "open": "  next: it runs when its turn comes: marathonctl status says what cells wait for",
    }.items():
        lines = rig.ask("show", labels[state]).splitlines()
        assert lines[0] == f"{labels[state]}  {state}" and words in lines
    assert "  no trial yet" not in lines and any(" voided " in line for line in lines), "the void trial of the open cell"
    made = json.loads(rig.ask("show", labels["done"].upper(), "--json"))
    assert (made["task"], made["cells"][0]["arm"], made["cells"][0]["trials"][0]["trial"]) == ("zstd", "plain", "t0001")
    block = rig.ask("show", made["block"]).splitlines()
    assert block[0] == f"{made['block']}  2 cells" and f"  {labels['done']}  done   arm plain" in block
    assert f"  {labels['review']}  review   arm goal" in block and block[-1].endswith(f"marathonctl history {made['block']}")


def test_show_of_a_parked_cell_says_why_and_how_it_is_opened(rig: Rig) -> None:
    with rig.sql() as c:
        cell_id = have.cell(c, "rust", "goal")
        task_id = c.execute("SELECT task_id FROM cell WHERE cell_id = ?", (cell_id,)).fetchone()[0]
        admission.park_task(c, task_id, code="image_missing", detail="no registry has it", author="x", now_ms=now_ms())
    lines = rig.ask("show", f"c{cell_id:04d}").splitlines()
    assert "  parked: image_missing: no registry has it" in lines and "  no trial yet" in lines
    assert f"  next: it stays until somebody opens it again: marathonctl unpark c{cell_id:04d} --reason …" in lines
    for absent in ("c9999", "b9999"):
        answer = rig.run("show", absent)
        assert (answer.code, answer.out) == (2, "") and answer.err.endswith(f" {absent} in this ledger\n")


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


def test_show_of_a_driven_end_says_whose_word_it_is_and_spares_our_own_script(rig: Rig) -> None:
    argv = " ".join(detached_argv("marathond-agent", ["codex"], timer_s=1, output="o", status="s"))[:200]
    with rig.sql() as c:
        trial_id = have.bring_to(c, have.cell(c), "running").trial_id
        end: dict[str, Any] = {"ended_by": "agent", "exit_code": None, "exit_source": "driver", "overrun_ms": None}
        listed = [{"pid": 7, "argv": argv, "fate": "killed"}, {"pid": 8, "argv": "sh -c mine", "fate": "kept"}]
        trials.agent_ended(c, trial_id, oom_killed=False, ended_mono_ms=61_000, processes=listed, now_ms=now_ms(), **end)
    lines = rig.ask("show", "t0001").splitlines()
    assert any(line.startswith("  ended by agent after ") and line.endswith(", by its driver's word") for line in lines)
    assert "    killed  7 sh (our own wrapper)" in lines and "    kept    8 sh -c mine" in lines


def test_show_names_the_file_alone_when_a_ledger_holds_no_key(rig: Rig) -> None:
    with rig.sql() as c:
        trial_id = have.bring_to(c, have.cell(c), "verifying").trial_id
        trials.verification_ended(c, trial_id, 1, outcome="exited", exit_code=0, now_ms=now_ms())
        trials.scored(c, trial_id, trials.ScoreRow(1, 1.0, "reward.txt:"), now_ms=now_ms())
    assert "  reward 1 from reward.txt" in rig.ask("show", "t0001").splitlines()


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
    assert "docker network rm f00dfeedf00d" in out and re.search(r"\b25h0\dm\b", out)
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
    assert blind.code == 4 and "foreign unknown" in blind.out and re.search(r"last seen 2m[0-5]\ds ago", blind.out)


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


class Naps:
    """Stands for the module ``time`` in `wait`: seconds pass while it sleeps and at no other time, so that no machine is too slow for it.

    ``act`` is done while the first whole second passes.
    """

    time_ns = staticmethod(time.time_ns)

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._now, self.acted = act, 0.0, False

    def monotonic(self) -> float:
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        if self._now >= 1.0 and not self.acted:
            self.acted = True
            self._act()


def test_wait_behind_a_start_waits_for_the_daemon_that_is_coming(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """`marathond & marathonctl wait`: the life before has ended, and the new one has not begun yet."""
    mixed(rig)

    def begins() -> None:
        with rig.sql() as c:
            rig.begin_life(c)

    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
    monkeypatch.setattr(wait_module, "time", naps := Naps(begins))
    answer = rig.run("wait", "t0003", "--timeout", "2.5")
    assert naps.acted and naps.monotonic() >= 2.5
    assert (answer.code, "not done within" in answer.err) == (75, True), "it saw the new life, and waited for the trial"


def test_wait_behind_a_start_waits_for_a_ledger_that_is_not_there_yet(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    mixed(rig)
    aside = rig.ledger.with_name("aside.db")
    with rig.sql() as c:
        c.execute("VACUUM INTO ?", (str(aside),))
    for name in (rig.ledger.name, f"{rig.ledger.name}-wal", f"{rig.ledger.name}-shm"):
        rig.ledger.with_name(name).unlink(missing_ok=True)
    monkeypatch.setattr(wait_module, "time", naps := Naps(lambda: aside.rename(rig.ledger)))
    assert rig.run("wait", "t0001").code == 0
    assert naps.acted


def test_wait_for_a_daemon_that_does_not_come_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_module, "STARTS_S", 0.8)
    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
    began = time.monotonic()
    assert rig.run("wait").code == 3 and 0.8 <= time.monotonic() - began < 60
    rig.ledger.unlink()
    missing = rig.run("wait")
    assert missing.code != 0 and "no ledger" in missing.err


def test_wait_ends_when_every_cell_has_a_result(rig: Rig) -> None:
    with rig.sql() as c:
        for task in ("zstd", "rust"):
            for arm in ("plain", "goal"):
                have.let_go(c, have.bring_to(c, have.cell(c, task, arm), "scored"))
    answer = rig.run("wait")
    assert (answer.code, answer.out, answer.err) == (0, "", "x: 4 done\n")


def test_pool_is_exit_4_while_the_capacity_is_unknown(rig: Rig) -> None:
    with rig.sql() as c:
        networks.set_pool(c, have.ENGINE, mode="auto", range="198.19.0.0/16", prefix=28, cap=64, margin=2)
        assert rig.run("pool").code == 0
        networks.observe_pool(c, have.ENGINE, total=None, foreign_used=3, host_used=0, now_ms=now_ms())
    for argv in (["pool"], ["pool", "--json"], ["pool", "--foreign"]):
        assert rig.run(*argv).code == 4
    assert "capacity unknown · ours 0 (0 leaked) · free unknown" in rig.run("pool").out
