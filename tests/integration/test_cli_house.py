"""init, ledger, plan, logs -f and the daemon's exit codes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from marathond.cli import daemon
from marathond.cli.findings import Listed, lines
from marathond.cli.logs import follow, tame
from marathond.cli.output import Column, Screen, cut, display_width, table, wrapped
from marathond.cli.plan import hours_at_most
from marathond.core import paths
from marathond.core.errors import ConfigError, EngineUnreachable, LedgerRefused, MarathonError, Refused
from marathond.core.text import fields
from marathond.ledger.verbs.findings import FindingRow
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, make_ledger
from tests.support.rig import make_task

UNASKED = "; the host was not asked (plan does)"


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    folder = Path(tempfile.mkdtemp(prefix="mc"))
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
    monkeypatch.chdir(folder)
    (folder / "marathond.toml").write_text(
        f'[daemon]\nstate_dir = "{folder}/state"\n[engine]\nurl = "unix://{folder}/none.sock"\n'
        '[campaign]\nname = "x"\ntasks = ["tasks/*"]\nreplicates = 2\n[arms.oracle]\nkind = "oracle"\n[arms.nop]\nkind = "nop"\n'
    )
    rig = Rig(folder / "state", capsys)
    yield rig
    shutil.rmtree(folder)


def test_init_makes_a_ledger_once(rig: Rig) -> None:
    assert rig.ask("init").startswith("made ledger ")
    before = rig.ledger.read_bytes()
    assert rig.ask("init").endswith("; nothing was changed\n") and rig.ledger.read_bytes() == before
    assert rig.ask("ledger", "check").startswith("ok: ledger ")


@pytest.fixture
def nowhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """A folder without a configuration; the default place lies below it, too."""
    Path("marathond.toml").unlink()
    monkeypatch.setattr(paths, "SYSTEM_CONFIG", Path("etc/config.toml").absolute())
    monkeypatch.setattr(paths, "ROOT_STATE_DIR", Path("state").absolute())
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("xdg").absolute()))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return rig


def test_init_makes_no_ledger_where_nobody_said(nowhere: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = nowhere.run("init")
    assert (answer.code, answer.out) == (2, "") and answer.err.startswith("marathonctl: no configuration: looked for ")
    assert answer.err == nowhere.run("plan").err and not nowhere.state_dir.exists()
    monkeypatch.setenv("MARATHOND_DAEMON__CONTROL_SOCKET", "/run/x.sock")
    assert nowhere.run("init").code == 2
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(nowhere.state_dir))
    assert nowhere.ask("init").startswith("made ledger ")


def test_without_configuration_and_ledger_every_command_says_so_in_one_line(nowhere: Rig) -> None:
    for argv in (["status"], ["show", "t0001"], ["logs", "t1"], ["wait"], ["pause", "--reason", "x"], ["stop"], ["ledger", "check"]):
        answer = nowhere.run(*argv)
        assert answer.code == (4 if argv == ["status"] else 1) and answer.out == "" and answer.err.count("\n") == 1
        assert answer.err.startswith(f"marathonctl: no configuration found (looked for {Path.cwd()}/marathond.toml, ")
        assert answer.err.endswith(f") and no ledger at {nowhere.ledger}\n") and "init" not in answer.err


def test_a_ledger_at_the_default_place_needs_no_configuration(nowhere: Rig) -> None:
    nowhere.state_dir.mkdir()
    make_ledger(nowhere.ledger)
    assert nowhere.run("status").out.startswith("marathond is not running (never started on this ledger)")
    assert nowhere.run("pause", "--reason", "x").code == 3


def test_what_lies_in_a_ledgers_place_is_never_overwritten(rig: Rig) -> None:
    rig.state_dir.mkdir()
    rig.ledger.write_bytes(b"somebody's thesis, and long enough to be no empty file")
    answer = rig.run("init")
    assert answer.code == 1 and answer.out == "" and answer.err.count("\n") == 1
    assert rig.ledger.read_bytes().startswith(b"somebody's thesis")


def test_backup_is_whole_and_overwrites_nothing(rig: Rig) -> None:
    rig.ask("init")
    with rig.sql() as c:
        have.fill(c)  # the writer stays open: its log is not in the file yet
        answer = rig.run("ledger", "backup", "copy.db")
    assert answer.code == 0 and "backed up" in answer.out
    copy = rig.state_dir.parent / "copy.db"
    with sqlite3.connect(copy) as c:
        assert c.execute("SELECT count(*) FROM cell").fetchone()[0] == 4
    c.close()
    again = rig.run("ledger", "backup", "copy.db")
    assert again.code == 1 and "exists already; nothing was changed" in again.err
    assert [path.name for path in copy.parent.glob("*copy.db*")] == ["copy.db"]


def test_f14_a_copied_ledger_is_named_and_adopted(rig: Rig) -> None:
    rig.ask("init")
    with rig.sql() as c:
        have.fill(c)
        have.bring_to(c, have.cell(c), "running")
        original = c.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0]
    rig.run("ledger", "backup", "copy.db")
    rig.ledger.rename("original.db")  # it keeps its inode, so that the copy gets another
    shutil.copy("copy.db", rig.ledger)
    checked = rig.run("ledger", "check")
    assert checked.code == 1 and "not at its place" in checked.out
    assert rig.run("ledger", "adopt").code == 2
    said = rig.ask("ledger", "adopt", "--copy")
    assert f"is a copy of {original}" in said and "1 trial in work belong to the original and are void here: t0001" in said
    assert rig.ask("ledger", "check").startswith("ok: ledger ")


def test_a_damaged_ledger_is_exit_1(rig: Rig) -> None:
    rig.ask("init")
    data = bytearray(rig.ledger.read_bytes())
    data[8192:40960] = b"\xff" * (40960 - 8192)
    rig.ledger.write_bytes(bytes(data))
    answer = rig.run("ledger", "check")
    assert answer.code == 1 and "Traceback" not in answer.err + answer.out


def test_plan_says_what_would_run_and_what_parks(rig: Rig) -> None:
    tasks = rig.state_dir.parent / "tasks"
    make_task(tasks, "short", agent_s=1800, verifier_s=600)
    make_task(tasks, "long", agent_s=7200, verifier_s=600, network="public")
    make_task(tasks, "broken", environment="cpus = -1")
    answer = rig.run("plan")
    assert answer.code == 1  # a task parks
    assert "campaign x: 12 cells = 3 tasks x 2 arms (oracle, nop) x 2 replicates" in answer.out
    assert "time at most 2.8 h, 4 at one time · networks 4 at one time, cap 64" in answer.out
    assert "host unknown: " in answer.out and "cannot reach Docker" in answer.out
    assert "parked: 4 cells of 1 task" in answer.out and "broken: task_broken: " in answer.out
    made = json.loads(rig.run("plan", "--json").out)
    assert [cell["replicate"] for cell in made["cells"]] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert made["cells"][0]["task"] == "long"
    shutil.rmtree(tasks / "broken")
    assert rig.run("plan").code == 4  # nothing parks as far as can be seen, and the host cannot be asked


def test_plan_knows_what_config_check_knows(rig: Rig) -> None:
    tasks = rig.state_dir.parent / "tasks"
    make_task(tasks, "solved", toml="[nonsense]\n")
    make_task(tasks, "unsolved", solve=None)
    answer = rig.run("plan")
    assert answer.code == 1 and "parked: 2 cells of 1 task" in answer.out
    assert "  unsolved: no_solution: arm oracle needs solution/solve.sh, and there is none" in answer.out.splitlines()
    assert answer.err == "note: solved: task.toml: nonsense: unknown key, ignored\n"
    made = json.loads(rig.run("plan", "--json").out)
    assert sorted((cell["task"], cell["arm"]) for cell in made["cells"] if cell["replicate"] == 1) == [
        ("solved", "nop"),
        ("solved", "oracle"),
        ("unsolved", "nop"),
    ]
    checked = rig.run("config", "check")
    assert checked.code == 1 and f": 8 cells, of which 2 park{UNASKED}\n" in checked.out and checked.err == answer.err
    assert "parks: unsolved: no_solution: arm oracle needs solution/solve.sh, and there is none" in checked.out.splitlines()


def test_plan_says_which_deadline_does_not_apply(rig: Rig) -> None:
    make_task(rig.state_dir.parent / "tasks", "short", agent_s=1800)
    with Path("marathond.toml").open("a") as file:
        file.write("[limits]\nagent_timeout_s = 60\n")
    assert "1m00s (own; task 1800 x 1.0 does not apply)" in rig.run("plan").out


@pytest.mark.parametrize(
    ("durations", "slots", "hours"),
    [([], 4, 0.0), ([3600.0] * 4, 2, 2.0), ([7200.0, 3600.0, 3600.0], 2, 2.0), ([3600.0, None], 2, None), ([3600.0], 64, 1.0)],
)
def test_the_upper_bound_of_hours(durations: list[float | None], slots: int, hours: float | None) -> None:
    assert hours_at_most(durations, slots) == hours


def test_an_error_in_the_configuration_is_its_own_line(rig: Rig) -> None:
    Path("marathond.toml").write_text('[campaign]\nname = "x"\ntasks = ["t"]\nreplicate = 2\n[arms.nop]\nkind = "nop"\n')
    answer = rig.run("plan")
    assert answer.code == 2 and answer.err.startswith("marathond.toml:4: campaign.replicate") and answer.err.count("\n") == 1


# ── the daemon's own command ──


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("c.toml:1", "x", "y"), 78),
        (Refused("no"), 78),
        (LedgerRefused("missing", "no"), 78),
        (LedgerRefused("in_use", "no"), 78),
        (LedgerRefused("disk_full", "no"), 1),
        (LedgerRefused("busy", "no"), 1),
        (EngineUnreachable("info", 0, "no"), 1),
    ],
)
def test_refusals_have_the_exit_code_that_systemd_does_not_restart(error: MarathonError, code: int) -> None:
    assert daemon.exit_code(error) == code


def test_f11_the_daemon_refuses_a_missing_ledger_in_one_line(rig: Rig) -> None:
    make_task(rig.state_dir.parent / "tasks", "short")
    command = [sys.executable, "-m", "marathond.cli.daemon"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert answer.returncode == 78 and not rig.ledger.exists()
    assert answer.stderr.splitlines()[-1].startswith("marathond: no ledger at ") and "Traceback" not in answer.stderr
    usage = subprocess.run([*command, "--nonsense"], capture_output=True, text=True, timeout=240, check=False)
    assert usage.returncode == 2
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=240, check=False)
    assert (version.returncode, version.stdout) == (0, "marathond 0.1.0\n")


# ── following and laying out ──


def test_following_shows_what_was_written_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one ")
    looks = iter([True, True, False])

    def goes_on() -> bool:
        more = next(looks)
        if not more:
            with path.open("ab") as writer:
                writer.write(b"last")
        return more

    naps: list[float] = []
    with path.open("rb") as file:
        assert b"".join(follow(file, goes_on, naps.append)) == b"one last"
    assert len(naps) == 1
    assert list(follow(BytesIO(b"x" * 10), lambda: False)) == [b"x" * 10]


def test_a_log_line_keeps_its_blanks_and_loses_its_power() -> None:
    assert tame("  a\tb \x1b[2J\x1b]52;c;aGk=\x07c\u202e  d  ") == "  a     b c  d"


def test_what_must_not_be_cut_goes_on_in_the_next_line() -> None:
    columns = (Column("name"), Column("value", least=8, wrap=True), Column("from"))
    rows = [("gate", "model m, effort high", "arm"), ("cpus", "2", "task")]
    assert [line.split() for line in table(columns, rows, Screen(width=24))[1:]] == [
        ["gate", "model", "m,", "arm"],
        ["effort", "high"],
        ["cpus", "2", "task"],
    ]
    assert table(columns, rows, Screen())[1] == "gate  model m, effort high  arm"
    line = "  UNDECLARED  one that nobody declared"
    assert wrapped(line, Screen(width=24)) == ["  UNDECLARED  one that", "    nobody declared"] and wrapped(line, Screen()) == [line]
    assert fields({"a": None, "b": "", "c": 0, "d": True, "e": "x"}) == "c 0, d yes, e x"


def test_a_finding_is_read_whole_on_a_narrow_terminal() -> None:
    words = "the provider says that the account of route main is used up"
    row = FindingRow(1, None, "usage_limit", "stop_loss", "main", words, 0, 0, 1, None, None, None, None)
    shown = list(lines(Listed([row], {}, {"house": (1, 1)}, frozenset({None})), Screen(width=40), 5_000))
    assert all(len(line) <= 40 for line in shown[:-1]), shown
    assert shown[0] == "open findings: house 1 of 1 (1" and shown[3].startswith("   1 STOP-LOSS usage_limit main")
    assert words in " ".join(line.strip() for line in shown)
    assert f"     {words}" in lines(Listed([row], {}, {"house": (1, 1)}, frozenset({None})), Screen(), 5_000)


def test_tables_fit_a_terminal_and_are_whole_elsewhere() -> None:
    columns = (Column("task", least=6), Column("n", right=True))
    rows = [("a-very-long-task-name", "12"), ("日本語", "3")]
    assert table(columns, rows, Screen()) == ["task                    n", "a-very-long-task-name  12", "日本語                  3"]
    narrow = table(columns, rows, Screen(width=12))
    assert narrow[1] == "a-very-…  12" and all(display_width(line) <= 12 for line in narrow)
    assert cut("\x1b[31mred\x1b[0m and more", 5) == "red…"
