"""What commands really print with --json is as their schemas say: over a ledger where everything has happened, and where nothing has.

Commands that need Docker are held against their schemas where they are run (tests.support.published).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.cli import ctl
from marathond.cli.output import flat, json_text
from marathond.ledger.connect import connect
from marathond.ledger.verbs import findings, runs
from marathond.service.exits import Exit
from tests.support import ledgers as have
from tests.support.big_ledger import fill_big
from tests.support.cli_rig import Rig, living_rig, mixed, now_ms
from tests.support.old_runs import plant
from tests.support.poison import HOSTILE, hostile_ledger
from tests.support.published import no_number, printed, printed_lines, wrong

CONFIG = '[campaign]\nname = "c"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n[arms.oracle]\nkind = "oracle"\n'
TASK = '[verifier]\ntimeout_sec = 60\n[environment]\ndocker_image = "some:image"\n'
WHY = ("--reason", "a test")
Ask = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        yield rig


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in which nothing is configured but where the state is."""
    for name in [name for name in os.environ if name.startswith("MARATHOND_") or name == "DOCKER_HOST"]:
        monkeypatch.delenv(name)
    state = Path(tempfile.mkdtemp(prefix="ms", dir=tmp_path))
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(state))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    def typed(*argv: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = ctl.run([str(word) for word in argv])
        said = capsys.readouterr()
        return code, said.out, said.err

    return typed


def make_task(room: Path, name: str = "good") -> None:
    folder = room / "tasks" / name
    (folder / "tests").mkdir(parents=True)
    (folder / "tests/test.sh").write_text("#!/bin/sh\n")
    (folder / "instruction.md").write_text("Do it.\n")
    (folder / "task.toml").write_text(TASK)


def failure(err: str) -> Any:
    """What a refused command leaves: the last line of stderr."""
    return printed("error", err.splitlines()[-1])


# ---- a ledger in which everything has happened, every text of it hostile

LOOKS = (
    *("status", "findings", "findings --all", "pool", "pool --foreign", "review", "arms", "disclosures", "audit", "notify"),
    *("ledger check", "tail -n 0", "tail -n 10000", "history", "report", "capacity", "regrade --dry-run", "explain"),
    *("sizes", "prune --older-than 90m --dry-run", "archive --to /tmp --dry-run"),
)


@pytest.fixture(scope="module")
def hostile() -> Iterator[Any]:
    ledger = hostile_ledger(HOSTILE, now_ms())
    yield ledger
    ledger.close()


@pytest.fixture
def over_hostile(hostile: Any, monkeypatch: pytest.MonkeyPatch, ask: Ask) -> Ask:
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(hostile.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hostile.folder / "none"))
    monkeypatch.chdir(hostile.folder)
    return ask


@pytest.mark.parametrize("words", LOOKS)
def test_every_look_at_a_hostile_ledger_is_as_its_schema_says(over_hostile: Ask, words: str) -> None:
    code, out, _ = over_hostile(*words.split(), "--json")
    name = next(name for name in (" ".join(words.split()[:2]), words.split()[0]) if name in ctl_names())
    assert code in (0, 1, 3, 4)
    if name in ("tail", "history"):
        assert words == "tail -n 0" or len(printed_lines(name, out)) > 5
    else:
        assert printed(name, out) not in ([], {}, None)


def ctl_names() -> set[str]:
    from marathond.cli.schema_forms import FORMS

    return set(FORMS)


def test_every_trial_finding_and_review_of_a_hostile_ledger(over_hostile: Ask, hostile: Any) -> None:
    for name, sql in (
        ("show", "SELECT min(trial_id) FROM trial GROUP BY state UNION SELECT min(trial_id) FROM imported_trial"),
        ("review", "SELECT DISTINCT trial_id FROM review"),
        ("findings", "SELECT finding_id FROM finding"),
    ):
        numbers = [row[0] for row in hostile.c.execute(sql).fetchall()]
        assert len(numbers) > 1
        for number in numbers:
            printed(name, over_hostile(name, number, "--json")[1])
    arms = [row[0] for row in hostile.c.execute("SELECT name FROM arm WHERE campaign_id = 1 ORDER BY arm_id").fetchall()]
    assert [printed("arms show", over_hostile("arms", "show", arm, "--json")[1])["name"] for arm in arms] == arms
    diff = printed("arms diff", over_hostile("arms", "diff", *arms[:2], "--json")[1])
    assert (diff["a"], diff["b"]) == tuple(arms[:2])
    run, imported = [row[0] for row in hostile.c.execute("SELECT name FROM campaign ORDER BY campaign_id").fetchall()]
    assert printed("diff", over_hostile("diff", run, imported, "--json")[1])
    assert printed("report", over_hostile("report", "--json", "--campaign", imported)[1])["campaigns"][0]["campaign"] == imported


def test_texts_in_json_are_as_they_are_and_steer_nothing(over_hostile: Ask, hostile: Any) -> None:
    (name,) = hostile.c.execute("SELECT name FROM campaign ORDER BY campaign_id LIMIT 1").fetchone()
    out = over_hostile("status", "--json", "--campaign", name)[1]
    assert json.loads(out)["campaign"] == name and "\x1b" in name
    assert out.isascii() and "\x1b" not in out


# ---- where nothing is

NOTHING = ("status", "findings", "pool", "review", "notify", "tail", "history", "ledger check")


def test_a_fresh_ledger(room: Path, ask: Ask) -> None:
    made = printed("init", ask("init", "--json")[1])
    assert made["made"] is True and printed("init", ask("init", "--json")[1]) == {**made, "made": False}
    for words in NOTHING:
        code, out, err = ask(*words.split(), "--json")
        assert code in (0, 1, 3, 4) and not err, words
        printed_lines(words, out) if words in ("tail", "history") else printed(words, out)


@pytest.mark.parametrize("words", [*NOTHING, "show t0001", "audit", "doctor", "report", "void t0001 --reason x", "wait", "submit", "sql x"])
def test_without_a_ledger_a_refusal_is_one_object(room: Path, ask: Ask, words: str) -> None:
    code, out, err = ask(*words.split(), "--json")
    assert code and not out and err.count("\n") == 1
    assert failure(err)["exit"] == code and failure(err)["problems"] == []


def test_a_daemon_that_is_down(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        runs.end_run(c, reason="SIGTERM", now_ms=now_ms())
    down = rig.run("status", "--json")
    assert down.code == Exit.DOWN and printed("status", down.out)["health"] == "down" and not down.err
    assert printed("stop", rig.ask("stop", "--json")) == {"mode": "down", "pid": None, "live": []}
    refused = rig.run("pause", *WHY, "--json")
    assert refused.code == Exit.DOWN and not refused.out
    assert failure(refused.err)["exit"] == Exit.DOWN and "marathond is not running" in failure(refused.err)["error"]
    waiting = rig.run("wait", "--json")
    assert waiting.code == Exit.DOWN and failure(waiting.err)["exit"] == Exit.DOWN


def test_a_large_ledger(room: Path, ask: Ask) -> None:
    path = Path(os.environ["MARATHOND_DAEMON__STATE_DIR"]) / "ledger.db"
    have.file_ledger(path, host=socket.gethostname(), now_ms=now_ms())
    connection = connect(path, mode="rw")
    fill_big(connection, 1000)
    connection.close()
    assert printed("status", ask("status", "--json")[1])["cells"]["total"] == 1000
    assert len(printed_lines("tail", ask("tail", "-n", "300", "--json")[1])) == 300
    assert len(printed("sql", ask("sql", "--json", "select * from v_cell")[1])) == 1000
    assert printed("show", ask("show", "t0900", "--json")[1])["context"]["trial_id"] == 900


# ---- what a person decides


def test_decisions_are_answered_as_the_daemon_gave_them(rig: Rig) -> None:
    mixed(rig)
    with rig.sql() as c:
        have.daemon_void(c, have.bring_to(c, have.cell(c, "rust", "goal"), "running").trial_id)
        rig.begin_life(c)
        rig.observe_all(c)
    with rig.serving():

        def said(name: str, *argv: str, exit_code: int = 0) -> Any:
            answer = rig.run(*name.split(), *argv, "--json")
            assert (answer.code, answer.err) == (exit_code, ""), answer
            return printed(name, answer.out)

        assert [row["trial_id"] for row in said("void", "t0001", "--dry-run", *WHY)["would_void"]] == [1]
        voided = said("void", "t0001", "--pair", *WHY)
        assert voided["count"] == {"voided": 2, "already": 0, "refused": 0} and voided["voided"][0]["reward"] == 1.0
        assert said("void", "t0001", *WHY)["count"]["already"] == 1
        assert said("unvoid", "--batch", voided["batch"], "--dry-run", *WHY)["dry_run"] is True
        assert said("unvoid", "t0002", *WHY)["restored"][0]["state"] == "review"
        assert said("unvoid", "t0001", *WHY)["restored"][0]["trial"]["task"] == "zstd"
        assert said("review", "t0002", "--accept", "--reward", "0.5", *WHY) == {
            **{"trial": 2, "decision": "accepted", "already": None, "reward": 0.5},
            "known": None,
        }
        assert said("review", "t0002", "--accept", "--reward", "0.5", *WHY)["already"]["decision"] == "accepted"
        assert said("retry", "c0003", *WHY)["outcome"] in ("open", "claimed", "unparked")
        assert said("unpark", "--all", *WHY) == {"count": 0}
        assert said("pause", *WHY) == {"already": None} and said("pause", *WHY)["already"]["kind"] == "pause"
        assert [stop["kind"] for stop in said("resume")["ended"]] == ["pause"]
        assert said("drain", *WHY)["live"] == [3] and said("drain", *WHY)["already"]["kind"] == "drain"
        assert said("submit")["added_cells"] == 4
        assert said("set", "concurrency=3", *WHY) == {"key": "admission.concurrency", "old": 4, "new": 3, "changed": True}
        assert said("set", "concurrency=4", *WHY)["changed"] is False
        assert said("stop")["mode"] == "term" and said("stop", "--now", *WHY)["mode"] == "now"
        finding = _finding(rig)
        assert said("ack", str(finding), *WHY) == {"count": 1, "already": [], "open": 1, "alarms": 0}
        assert said("ack", "disk_low", *WHY)["already"][0]["acked_by"]
        refused = rig.run("ack", "nothing", *WHY, "--json")
        assert refused.code == Exit.FAILED and not refused.out and "no open finding nothing" in failure(refused.err)["error"]


def _finding(rig: Rig) -> int:
    with rig.sql() as c:
        told: dict[str, Any] = {"subject": "disk:/", "detail": "4 % free", "campaign_id": None, "now_ms": now_ms()}
        return findings.raise_finding(c, code="disk_low", severity="error", **told)


def test_what_is_waited_for_is_told(rig: Rig) -> None:
    mixed(rig)
    assert printed("wait", rig.ask("wait", "t0001", "--json")) == {"exit": 0, "text": "t0001 scored", "states": {"scored": 1}}
    late = rig.run("wait", "--timeout", "0", "--json")
    assert late.code == Exit.BUSY and not late.out and failure(late.err)["exit"] == Exit.BUSY


def test_the_doctor(rig: Rig) -> None:
    """At another place than its own it looks at nothing; what it proves is held against the schema by its own tests."""
    with rig.sql() as c:
        c.execute("UPDATE ledger_identity SET host = 'elsewhere'")
    answer = rig.run("doctor", "--json")
    assert answer.code == Exit.BLIND and printed("doctor", answer.out)["looked_at"]["elsewhere"]


# ---- streams


def test_a_stream_is_an_object_a_line(rig: Rig) -> None:
    mixed(rig)
    logs = rig.state_dir / "r" / "t0003" / "logs"
    (logs / "agent").mkdir(parents=True)
    (logs / "verifier").mkdir()
    (logs / "agent" / "output.txt").write_bytes(b'first\n\x1b[31m"second"\xff\n\nlast without an end')
    (logs / "verifier" / "test-stdout.txt").write_bytes(b"tests\n")
    lines = printed_lines("logs", rig.ask("logs", "t0003", "--json"))
    assert [line["text"] for line in lines] == ["first", '\x1b[31m"second"\ufffd', "", "last without an end"]
    assert {(line["trial"], line["source"]) for line in lines} == {("t0003", "agent")}
    assert printed_lines("logs", rig.ask("logs", "t0003", "--verifier", "--json"))[0]["source"] == "verifier"
    for line in rig.ask("tail", "--json").splitlines():
        printed("tail", line)


def test_a_watched_status_is_an_object_a_line(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([None, KeyboardInterrupt])

    def pause(_seconds: float) -> None:
        if next(looks) is KeyboardInterrupt:
            raise KeyboardInterrupt

    monkeypatch.setattr("marathond.cli.status.time.sleep", pause)
    answer = rig.run("status", "--watch", "--json")
    assert len(printed_lines("status", answer.out)) == 2


# ---- the house


def test_a_ledger_is_checked_copied_and_adopted(room: Path, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Path(printed("init", ask("init", "--json")[1])["ledger"])
    backup = printed("ledger backup", ask("ledger", "backup", room / "copy.db", "--json")[1])
    assert backup["size_bytes"] == (room / "copy.db").stat().st_size
    assert printed("ledger check", ask("ledger", "check", "--json")[1])["ok"] is True
    moved = room / "moved"
    moved.mkdir()
    shutil.copy(room / "copy.db", moved / ledger.name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(moved))
    code, out, _ = ask("ledger", "check", "--json")
    found = printed("ledger check", out)
    assert (code, found["ok"]) == (Exit.FAILED, False) and found["elsewhere"]
    done = printed("ledger adopt", ask("ledger", "adopt", "--copy", "--json")[1])
    assert done["how"] == "copy" and done["ledger_id"] != done["old_ledger_id"]
    assert failure(ask("ledger", "backup", room / "copy.db", "--json")[2])["error"].endswith("exists already; nothing was changed")


def test_configuration_and_plan(room: Path, ask: Ask) -> None:
    make_task(room)
    (room / "marathond.toml").write_text(CONFIG)
    code, out, _ = ask("config", "check", "--json")
    found = printed("config check", out)
    assert code == 1 and (found["cells"], found["parked_cells"]) == (2, 1) and found["parks"][0]["arm"] == "oracle"
    keys = printed("config show", ask("config", "show", "--json")[1])
    assert keys["campaign.name"] == {"value": "c", "origin": "marathond.toml:2", "change": "extent"}
    (room / "marathond.toml").write_text(CONFIG + '[engine]\nurl = "unix:///nowhere/docker.sock"\n')
    assert printed("plan", ask("plan", "--json")[1])["parked_cells"] == 1
    assert {arm["name"] for arm in printed("arms", ask("arms", "--json")[1])} == {"nop", "oracle"}
    assert printed("disclosures", ask("disclosures", "--json")[1])["version"] == 0


def test_a_wrong_configuration_is_told_key_by_key(room: Path, ask: Ask) -> None:
    (room / "marathond.toml").write_text(CONFIG + "[admission]\nconcurrency = 0\npasses = 'x'\n")
    for argv in (["config", "check"], ["config", "show"], ["plan"], ["stage"]):
        code, out, err = ask(*argv, "--json")
        assert code == Exit.USAGE and not out
        assert [(each["where"], each["what"]) for each in failure(err)["problems"]] == [
            ("marathond.toml:9", "admission.concurrency = 0"),
            ("marathond.toml:10", 'admission.passes = "x"'),
        ]


def test_what_cannot_be_read_is_one_object_too(room: Path, ask: Ask) -> None:
    wrong_lines = ("void --json", "status --josn --json", "show --json", "sql --json --csv x", "findings x --json", "nothing --json")
    for argv in (*wrong_lines, "pause --json"):
        code, out, err = ask(*argv.split())
        assert code == Exit.USAGE and not out and err.count("\n") == 1, argv
        assert failure(err)["exit"] == Exit.USAGE and failure(err)["error"]


def test_an_import_and_what_is_seen_of_it(room: Path, ask: Ask) -> None:
    ask("init")
    out = plant(room)
    dry = printed("import", ask("import", out, "--dry-run", "--json")[1])
    taken = printed("import", ask("import", out, "--json")[1])
    assert dry["dry_run"] and not taken["dry_run"] and dry["trials"] == taken["trials"] and len(taken["trials"]) > 3
    name = taken["campaign"]
    assert printed("status", ask("status", "--campaign", name, "--json")[1])["readings"]
    assert printed("show", ask("show", "t0001", "--json")[1])["imported"]["kind"] == "runs"
    assert printed("report", ask("report", "--campaign", name, "--json")[1])["campaigns"][0]["campaign"] == name
    assert printed("audit", ask("audit", "--campaign", name, "--json")[1])["looked_at"]["origin"] == "import"
    assert printed("void", ask("void", "t0001", *WHY, "--json")[1])["imported"] == 1
    assert printed("unvoid", ask("unvoid", "t0001", *WHY, "--json")[1])["count"]["restored"] == 1
    assert printed("wait", ask("wait", "--campaign", name, "--json")[1])["states"]


# ---- values


def test_what_json_does_not_know_is_defined(tmp_path: Path) -> None:
    value = {
        "nan": float("nan"),
        "inf": [float("-inf")],
        "bytes": b"\x00\xff",
        "path": tmp_path,
        "set": {"b", "a"},
        "half": "a\udcffb",
        "😀": 1,
    }
    for indent in (None, 2):
        read = json.loads(json_text(value, indent), parse_constant=no_number)
        assert read == {
            **{"nan": None, "inf": [None], "bytes": "00ff", "path": str(tmp_path), "set": ["a", "b"], "half": "a\ufffdb"},
            "😀": 1,
        }
    with pytest.raises(TypeError, match="object has no form in JSON"):
        json_text({"x": object()})


def test_sql_shows_bytes_infinities_and_odd_names(room: Path, ask: Ask) -> None:
    ask("init")
    (row,) = printed("sql", ask("sql", "--json", 'select x\'00ff\' as b, 9e999 as i, -9e999 as j, null as n, \'é"\' as "t""x"')[1])
    assert row == {"b": "00ff", "i": None, "j": None, "n": None, 't"x': 'é"'}


def test_the_columns_of_a_report_and_channels_that_there_are_not(room: Path, ask: Ask) -> None:
    assert "reward" in printed("report", ask("report", "--columns", "--json")[1])
    (room / "marathond.toml").write_text(CONFIG)
    code, out, err = ask("notify", "--test", "--json")
    assert code == 1 and printed("notify", out) == [] and "nobody is told" in err


def test_no_field_stands_in_two_parts() -> None:
    with pytest.raises(TypeError, match="a: in two parts"):
        flat({"a": 1}, {"a": 2})


def test_a_field_that_is_not_declared_is_seen() -> None:
    """The look itself can fail."""
    assert wrong("pause", {"already": None}) == []
    assert wrong("pause", {"already": None, "more": 1}) and wrong("pause", {}) and wrong("pause", {"already": "x"})
    assert wrong("error", {"error": "x", "exit": "1", "problems": []})


def test_stdout_that_is_full_is_one_object_too(room: Path, ask: Ask) -> None:
    ask("init")
    code = f"import sys; sys.argv[1:] = ['status', '--json']; from marathond.cli import ctl; ctl.main()  # {time.time_ns()}"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=240)
    assert done.returncode == Exit.FAILED and failure(done.stderr)["error"].startswith("what is printed cannot be written")
