"""``archive``, ``prune`` and ``sizes`` on a ledger with trials in every state: what is done, what is refused, and kill -9 at every step."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support import ledgers
from support.kept import FILES, Kept, Snapshot, killed_at, make_kept

from marathond.cli.archive import asking, looking
from marathond.cli.schema_forms import schema
from marathond.core.keeping import DAY_MS
from marathond.ledger import migrate
from marathond.ledger.connect import connect
from marathond.ledger.verbs import archive, artifacts, operator, runs
from marathond.service import keeping
from marathond.tasks import archiving

EVERYTHING = ("trial", "trial_event", "score", "void", "artifact_export", "artifact", "review", "claim", "container")


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return make_kept(tmp_path)


def whole(folder: Path) -> bool:
    return {path: (folder / path).read_bytes() for path in FILES if (folder / path).is_file()} == FILES


def test_archive_then_prune_and_everything_still_tells(kept: Kept) -> None:
    before = {table: kept.rows(f"SELECT * FROM {table}") for table in EVERYTHING}
    said = kept.archive()
    assert (said.code, said.out.splitlines()[-1]) == (0, "2 archived · 2 left")
    assert "is in review: decide it first" in said.err and "is not exported yet" in said.err
    standing = kept.rows("SELECT trial_id, file, sha256, size_bytes, files, author FROM archive")
    assert [(row["trial_id"], row["file"], row["files"]) for row in standing] == [
        (1, str(kept.file("zstd")), 6),
        (2, str(kept.file("rust")), 6),
    ]
    for row in standing:
        data = Path(row["file"]).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (row["sha256"], row["size_bytes"])
    assert whole(kept.folder("zstd"))
    again = kept.archive()
    assert (again.code, again.out.splitlines()[-1]) == (0, "2 archived before · 2 left") and len(kept.rows("SELECT * FROM archive")) == 2

    dry = kept.prune("--dry-run")
    assert dry.code == 0 and "2 to do · 2 left" in dry.out and "nothing was changed" in dry.out and whole(kept.folder("zstd"))
    assert kept.prune(age="1000d").out.splitlines()[-1] == "4 left"
    said = kept.prune()
    assert said.code == 0 and "2 pruned · 2 left" in said.out
    assert not kept.folder("zstd").exists() and not kept.folder("rust").exists() and kept.folder("wal").is_dir()
    assert [path.name for path in (kept.out / "x").iterdir()] == [kept.folder("wal").name]
    (row,) = kept.rows("SELECT * FROM v_prune WHERE trial = 't0001'")
    assert (row["kind"], row["reason"], row["archive"], row["unarchived"]) == ("artifacts", "room", str(kept.file("zstd")), 0)
    assert row["rested_at_ms"] == ledgers.T0 + 1 and row["done_at_ms"] >= row["at_ms"] and row["files"] == 6
    assert {table: kept.rows(f"SELECT * FROM {table}") for table in EVERYTHING} == before

    shown = kept.ctl("show", "t0001")
    assert f"artifacts pruned by {row['author']} at {row['at'][:19]}Z: room; archive {kept.file('zstd')}" in shown.out
    assert "verifier/reward.txt" in shown.out and "reward 1 from reward.txt" in shown.out
    assert "artifacts pruned by" in kept.ctl("logs", "t0001").err
    assert kept.ctl("sql", "select count(*) from v_cell where state = 'done'").out.split() == ["count(*)", "2"]
    assert kept.prune().out.splitlines()[-1] == "4 left" and "t0001 artifacts: left: is pruned already" in kept.prune("t0001").out
    assert kept.archive("t0001").out.splitlines()[-1] == "1 archived before"

    with tarfile.open(kept.file("zstd")) as tar:  # who wants to read it again unpacks it where it was
        tar.extractall(kept.out / "x", filter="data")
    assert whole(kept.folder("zstd"))


def test_sizes_by_campaign_and_kind(kept: Kept) -> None:
    kept.archive("t0001")
    kept.prune("t0001")
    (kept.state / "builds").mkdir()
    (kept.state / "builds" / "zstd.log").write_bytes(b"x" * 5000)
    sizes = {(row["campaign"], row["kind"]): row for row in json.loads(kept.ctl("sizes", "--json").out)["sizes"]}
    content = sum(map(len, FILES.values()))
    assert (sizes["x", "artifacts"]["size_bytes"], sizes["x", "pruned"]["size_bytes"]) == (2 * content, content)
    assert sizes["x", "archives"]["size_bytes"] == kept.file("zstd").stat().st_size
    assert sizes[None, "build logs"]["files"] == 1 and sizes[None, "build logs"]["size_bytes"] >= 5000
    assert sizes[None, "ledger"]["size_bytes"] == kept.ledger.stat().st_size
    assert "build logs" in kept.ctl("sizes").out


def test_what_is_refused_is_named_and_nothing_of_it_goes(kept: Kept) -> None:
    said = kept.prune()
    assert said.code == 1 and said.out.count("is not archived as it is now: marathonctl archive, or --unarchived to lose it") == 2
    kept.archive()
    folder = kept.folder("zstd")
    (folder / "agent" / "notes.txt").write_text("somebody's")
    assert "not provably ours: agent/notes.txt: was not written by marathond" in kept.prune("t0001").out
    (folder / "agent" / "notes.txt").unlink()
    (folder / "verifier" / "reward.txt").write_text("0")
    assert "not provably ours: verifier/reward.txt: is not what was exported" in kept.prune("t0001").out
    (folder / "verifier" / "reward.txt").write_bytes(FILES["verifier/reward.txt"])
    marker = (folder / "result.json").read_bytes()
    (folder / "result.json").write_bytes((kept.folder("rust") / "result.json").read_bytes())
    assert "not provably ours: result.json: is not of t0001 of this ledger" in kept.prune("t0001").out
    (folder / "result.json").write_bytes(marker)
    archived = kept.file("zstd").read_bytes()
    kept.file("zstd").write_bytes(archived[:-1])
    assert "is not what was written" in kept.prune("t0001").out
    kept.file("zstd").unlink()
    assert "cannot be read" in kept.prune("t0001").out
    said = kept.prune("t0003", "t0004", "t0005", "--unarchived")
    assert (
        "t0003 artifacts: left: is in review" in said.out
        and "t0004 artifacts: left: is running" in said.out
        and "t0005 artifacts: left: is not exported yet" in said.out
    )
    assert kept.rows("SELECT * FROM prune") == [] and whole(folder)
    assert kept.archive("t0001").code == 0 and kept.file("zstd").read_bytes() == archived  # packed again, the same bytes
    assert kept.prune("t0001").code == 0 and not folder.exists()
    kept.file("zstd").unlink()
    assert "its artifacts are pruned, and its archive" in kept.archive("t0001").out


def test_json_names_each_thing_as_its_schema_says(kept: Kept) -> None:
    for command, said in (("archive", kept.archive("--json")), ("prune", kept.prune("--json")), ("sizes", kept.ctl("sizes", "--json"))):
        found = json.loads(said.out)
        Draft202012Validator(schema(command)).validate(found)
        if command != "sizes":
            assert [(row["trial"], row["outcome"]) for row in found["done"][:3]] == [(1, f"{command}d"), (2, f"{command}d"), (3, "left")]


def test_lost_on_purpose_only_when_that_is_said(kept: Kept) -> None:
    said = kept.prune("--voids-only", "--unarchived")
    assert said.code == 0 and whole(kept.folder("zstd")) and not kept.folder("rust").exists()
    assert kept.rows("SELECT trial_id, unarchived, archive_id FROM prune") == [{"trial_id": 2, "unarchived": 1, "archive_id": None}]
    assert "no archive of them stands" in kept.ctl("show", "t0002").out
    assert "no archive of them stands" in kept.archive("t0002").out


def test_another_place_replaces_the_archive_and_a_strangers_file_stays(kept: Kept) -> None:
    kept.archive("t0001")
    other = kept.root / "other"
    (other / "x").mkdir(parents=True)
    (other / "x" / kept.file("zstd").name).write_text("mine")
    said = kept.ctl("archive", "t0001", "--to", str(other))
    assert said.code == 1 and "is there already, and is no archive of t0001 of this ledger" in said.out
    (other / "x" / kept.file("zstd").name).unlink()
    assert kept.ctl("archive", "t0001", "--to", str(other), "--remove", "--reason", "full").code == 0
    rows = kept.rows("SELECT file, ended_reason FROM archive ORDER BY archive_id")
    assert rows[0]["ended_reason"] == f"replaced by {rows[1]['file']}" and rows[1]["ended_reason"] is None
    assert not kept.folder("zstd").exists() and kept.rows("SELECT reason FROM prune") == [{"reason": "full"}]
    assert "no such folder" in kept.ctl("archive", "--to", str(kept.root / "nowhere")).err


def test_run_directories_build_logs_and_backups_go_by_the_ledgers_own_times(kept: Kept) -> None:
    for name in ("t0001", "t0003", "t0004", "t9999", "strange"):
        (kept.state / "r" / name).mkdir(parents=True)
        (kept.state / "r" / name / "f").write_text("x")
    builds = kept.state / "builds"
    builds.mkdir()
    for name in ("zstd.log", "vim.log", "nobody.log", "zstd.txt"):
        (builds / name).write_text("log")
    with closing(connect(kept.ledger, mode="rw")) as c:
        backup = migrate.back_up(c, kept.ledger, 7)
        c.execute("UPDATE run SET seen_at_ms = seen_at_ms + 1")
    foreign = kept.state / "ledger.db.before-0006"
    shutil.copy(backup, foreign)
    with closing(sqlite3.connect(foreign)) as c:
        for (name,) in c.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'ledger_identity'").fetchall():
            c.execute(f"DROP TRIGGER {name}")
        c.execute("UPDATE ledger_identity SET ledger_id = 'ffffffffffff'")
        c.commit()
    assert "left" in kept.prune(age="1000d").out and backup.exists() and (builds / "zstd.log").exists()
    said = kept.prune("--only", "run-dirs", "--only", "build-logs", "--only", "backups")
    assert said.code == 1 and "is of ledger ffffffffffff" in said.out
    assert sorted(path.name for path in (kept.state / "r").iterdir()) == ["strange", "t0003", "t0004", "t9999"]
    assert sorted(path.name for path in builds.iterdir()) == ["nobody.log", "vim.log", "zstd.txt"]  # vim's trial is in work
    assert not backup.exists() and foreign.exists() and whole(kept.folder("zstd"))
    assert [row["kind"] for row in kept.rows("SELECT kind FROM prune")] == ["run_dir", "build_log", "backup"]
    assert kept.prune("--only", "walls").code == 2


def test_two_at_a_time_are_refused_and_a_young_ledger_gives_nothing(kept: Kept) -> None:
    with keeping.one_at_a_time(kept.state):
        assert "another marathonctl archive or prune is at work" in kept.archive().err
    assert kept.archive().code == 0
    with closing(connect(kept.ledger, mode="rw")) as c:  # somebody decides today: it rests since today
        c.execute("BEGIN IMMEDIATE")
        runs.begin_run(c, pid=1, pid_start_ticks=1, host="h", boot_id="b", version="v", now_ms=ledgers.T0)
        now_ms = max(row["at_ms"] for row in kept.rows("SELECT at_ms FROM archive"))
        operator.void_trials(c, [1], code="operator", reason="r", author="ana", now_ms=now_ms - 29 * DAY_MS)
        c.execute("COMMIT")
    assert "t0001 artifacts: left: came to rest within the last 30 days" in kept.prune("t0001").out and whole(kept.folder("zstd"))


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder whose files cost no disk: what is proven here is order, and the ledger's file is written anew at every step."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mt-kept-", dir=memory if memory.is_dir() else None) as made:
        yield Path(made)


def test_f05_a_kill_at_every_step_of_archive_leaves_the_old_state_or_the_new_one(in_memory: Path) -> None:
    kept, halves = make_kept(in_memory / "k"), 0
    snapshot = Snapshot(kept)
    for step in range(1000):
        snapshot.back()
        killed = killed_at(step, lambda: kept.archive_now(1), kept.root)
        assert whole(kept.folder("zstd"))
        rows, file = kept.rows("SELECT file, sha256 FROM archive"), kept.file("zstd")
        if rows:
            assert hashlib.sha256(file.read_bytes()).hexdigest() == rows[0]["sha256"]
        elif file.exists():  # renamed, and not written down yet: whole all the same
            halves += 1
            with tarfile.open(file) as tar:
                assert len(tar.getmembers()) == len(FILES) + 3
        if killed:
            assert kept.archive_now(1) == 0
        assert len(kept.rows("SELECT * FROM archive")) == 1 and [path.name for path in file.parent.iterdir()] == [file.name]
        if not killed:
            break
    assert halves >= 1 and 8 <= step < 999


def test_f05_a_kill_at_every_step_of_prune_leaves_the_old_state_or_what_the_next_one_finishes(in_memory: Path) -> None:
    kept, halves = make_kept(in_memory / "k"), 0
    assert kept.archive("t0001").code == 0
    archived = kept.file("zstd").read_bytes()
    snapshot = Snapshot(kept)
    for step in range(1000):
        snapshot.back()
        killed = killed_at(step, lambda: kept.prune_now(1), kept.root)
        rows = kept.rows("SELECT done_at_ms FROM prune")
        assert rows or whole(kept.folder("zstd")), "nothing goes before its row"
        half = bool(rows) and rows[0]["done_at_ms"] is None
        if half and not halves:
            assert "(broken off: the next marathonctl prune finishes it)" in kept.ctl("show", "t0001").out
        halves += half
        assert half or bool(rows) != kept.folder("zstd").exists()
        if half:
            code, said = kept.prune_now(2, days=1000)  # whatever it is asked for
            assert code == 0 and "was broken off" in said
        elif not rows:
            assert kept.prune_now(1)[0] == 0
        assert [path.name for path in (kept.out / "x").iterdir() if "zstd" in path.name] == []
        assert [row["done_at_ms"] is not None for row in kept.rows("SELECT done_at_ms FROM prune")] == [True]
        assert kept.file("zstd").read_bytes() == archived
        if not killed:
            break
    assert halves >= 5 and 10 <= step < 999


def begun(kept: Kept, kind: keeping.Kind, path: Path, **more: int) -> None:
    """As a prune leaves it that was killed right after its row."""
    with closing(connect(kept.ledger, mode="rw")) as c:
        c.execute("BEGIN IMMEDIATE")
        wish = archive.Wish(kind, str(path), 5, 5, **more)  # type: ignore[arg-type]
        archive.prune_begins(c, wish, author="ana", reason="r", now_ms=ledgers.T0 + 60 * DAY_MS)
        c.execute("COMMIT")


def test_a_folder_that_was_touched_after_a_kill_is_left_and_named(kept: Kept) -> None:
    kept.archive("t0001")
    begun(kept, keeping.Kind.ARTIFACTS, kept.folder("zstd"), trial_id=1)
    (kept.folder("zstd") / "mine.txt").write_text("mine")
    said = kept.prune("t0002", age="1000d")
    assert said.code == 1 and "its removal was broken off, and now: mine.txt: was not written by marathond" in said.out
    (kept.folder("zstd") / "mine.txt").unlink()
    assert kept.prune("t0002", age="1000d").code == 0 and not kept.folder("zstd").exists()


def test_f05_a_broken_off_removal_leaves_what_stands_when_the_archive_was_lost_meanwhile(kept: Kept) -> None:
    kept.archive("t0001", "t0002")
    for task in ("zstd", "rust"):
        begun(kept, keeping.Kind.ARTIFACTS, kept.folder(task), trial_id=kept.trials[task])
    archived = kept.file("zstd").read_bytes()
    kept.file("zstd").write_bytes(archived[:-1])
    aside = kept.folder("rust").rename(archiving.aside_name(kept.folder("rust")))  # killed right after the rename
    (aside / "agent" / "agent.txt").unlink()
    kept.file("rust").rename(kept.root / "elsewhere")
    said = kept.prune("t0003")
    assert said.code == 1 and said.out.count("its removal was broken off, and now: its archive") == 2
    assert "is not what was written" in said.out and "cannot be read" in said.out
    assert whole(kept.folder("zstd")) and (aside / "verifier" / "reward.txt").is_file()
    assert kept.archive("t0001").code == 0 and kept.file("zstd").read_bytes() == archived  # the originals are packed anew
    (kept.root / "elsewhere").rename(kept.file("rust"))
    assert kept.prune("t0003").code == 0 and [path.name for path in (kept.out / "x").iterdir()] == [kept.folder("wal").name]
    assert "is in " in kept.archive("t0001").out


def test_e04_what_cannot_be_seen_is_not_called_gone(kept: Kept) -> None:
    kept.archive("t0001")
    begun(kept, keeping.Kind.ARTIFACTS, kept.folder("zstd"), trial_id=1)
    away = kept.out.rename(kept.root / "unmounted")
    kept.out.mkdir()
    said = kept.prune("t0003")
    assert said.code == 1 and "whether it is gone cannot be seen: is its disk mounted?" in said.out
    assert kept.rows("SELECT done_at_ms FROM prune") == [{"done_at_ms": None}]
    kept.out.rmdir()
    away.rename(kept.out)
    assert kept.prune("t0003").code == 0 and not kept.folder("zstd").exists()


def test_f05_one_backup_that_cannot_be_read_stops_nothing_else(kept: Kept) -> None:
    kept.archive()
    backup = kept.ledger.with_name("ledger.db.before-0006")
    backup.write_bytes(b"no database" * 1000)
    begun(kept, keeping.Kind.BACKUP, backup, rested_at_ms=ledgers.T0)
    said = kept.prune()
    assert said.code == 1 and "its removal was broken off, and now it cannot be read as a ledger" in said.out
    assert backup.exists() and not kept.folder("zstd").exists() and not kept.folder("rust").exists()


def test_f10_a_run_directory_is_known_by_its_whole_name(kept: Kept) -> None:
    for name in ("t00001", "t\u0660\u0660\u0660\u0661", "t0001.found-0a1b2c3d"):
        (kept.state / "r" / name).mkdir(parents=True)
    assert kept.prune("--only", "run-dirs").out.splitlines() == ["nothing there"]
    assert len(list((kept.state / "r").iterdir())) == 3 and kept.rows("SELECT * FROM prune") == []


def test_f14_a_copy_removes_nothing_of_its_original(kept: Kept) -> None:
    (kept.folder("zstd") / "result.json").unlink()
    assert kept.ctl("ledger", "adopt", "--copy").code == 0
    said = kept.prune("--unarchived", "--only", "artifacts")
    assert said.code == 1 and "t0001 artifacts: refused: not provably ours: result.json: is missing" in said.out
    assert "t0002 artifacts: refused: not provably ours: result.json: is not of t0002 of this ledger" in said.out
    assert whole(kept.folder("zstd")) and whole(kept.folder("rust"))
    with closing(connect(kept.ledger, mode="rw")) as c:
        assert artifacts.not_exported(c) == [kept.trials["sed"]]  # vim was in work: its files are the original's to export


def test_a08_what_was_packed_before_a_score_was_withdrawn_is_packed_anew(kept: Kept) -> None:
    kept.archive("t0001")
    (first,) = kept.rows("SELECT at_ms, sha256 FROM archive")
    with closing(connect(kept.ledger, mode="rw")) as c:
        c.execute("BEGIN IMMEDIATE")
        runs.begin_run(c, pid=1, pid_start_ticks=1, host="h", boot_id="b", version="v", now_ms=first["at_ms"])
        operator.void_trials(c, [1], code="operator", reason="r", author="ana", now_ms=first["at_ms"] + 1)
        c.execute("COMMIT")
    document = kept.folder("zstd") / "result.json"
    told = json.loads(document.read_text())
    document.write_text(json.dumps(told | {"agent_result": {"metadata": {"marathond": {"state": "scored"}}}}))
    said = kept.archive("t0001")
    assert said.code == 1 and "result.json says scored still, the trial is voided: marathond renews it while it runs" in said.out
    document.write_text(json.dumps(told | {"agent_result": {"metadata": {"marathond": {"state": "voided"}}}}))
    (kept.folder("zstd") / "config.json").write_text('{"void": "operator"}')
    said = kept.prune("t0001", age="0d")
    assert said.code == 1 and "is not archived as it is now" in said.out and whole(kept.folder("zstd"))
    assert kept.archive("t0001").code == 0
    with tarfile.open(kept.file("zstd")) as tar:
        config = tar.extractfile(f"{kept.folder('zstd').name}/config.json")
        assert config is not None and config.read() == b'{"void": "operator"}'
    rows = kept.rows("SELECT sha256, ended_at_ms FROM archive ORDER BY archive_id")
    assert [row["ended_at_ms"] is None for row in rows] == [False, True] and rows[1]["sha256"] != first["sha256"]
    assert kept.prune("t0001", age="0d").code == 0 and not kept.folder("zstd").exists()


def test_a08_a_score_that_is_withdrawn_while_it_is_packed_is_packed_again(kept: Kept) -> None:
    look = looking(kept.ledger)
    (trial,) = look(archive.keepable, trials=[1])
    with asking(kept.paths, "test") as ask, closing(connect(kept.ledger, mode="rw")) as c:

        def slowly(verb: Callable[..., Any], *args: Any, **named: Any) -> Any:
            if verb is archive.recorded:
                c.execute("BEGIN IMMEDIATE")
                operator.void_trials(c, [1], code="operator", reason="r", author="ana", now_ms=ledgers.T0 + DAY_MS)
                c.execute("COMMIT")
            return look(verb, *args, **named)

        done = keeping.archive_one(slowly, ask, trial, kept.to, kept.ledger_id)
    assert (done.outcome, done.why) == ("refused", "something was decided about it while it was packed; say it again")
    assert kept.rows("SELECT * FROM archive") == []
    assert kept.archive("t0001").code == 0 and len(kept.rows("SELECT * FROM archive")) == 1


@pytest.mark.parametrize("killed", [False, True])
def test_f07_what_is_put_into_a_folder_after_the_look_does_not_go_with_it(kept: Kept, killed: bool) -> None:
    """A look at gigabytes takes long.  ``killed``: right after the rename, so that the next prune looks."""
    kept.archive("t0001")
    look = looking(kept.ledger)
    (trial,) = look(archive.keepable, trials=[1])
    notes = kept.folder("zstd") / "agent" / "notes.txt"
    with asking(kept.paths, "test") as ask:

        def slowly(verb: str, args: dict[str, Any]) -> dict[str, Any]:
            answer = ask(verb, args)
            if verb == "prune":
                notes.write_text("mine")
            return answer

        wanted = keeping.Wanted(0, time.time_ns() // 1_000_000, "room")
        done = keeping.prune_trial(look, slowly, trial, wanted, kept.ledger_id)
    assert done.outcome == "refused" and "agent/notes.txt: was not written by marathond" in done.why
    assert notes.read_text() == "mine" and whole(kept.folder("zstd"))
    if killed:
        kept.folder("zstd").rename(archiving.aside_name(kept.folder("zstd")))
    said = kept.prune("t0003")
    assert said.code == 1 and "agent/notes.txt: was not written by marathond" in said.out and notes.read_text() == "mine"
    notes.unlink()
    assert kept.prune("t0003").code == 0 and not kept.folder("zstd").exists()


def test_f06_a_target_that_cannot_be_looked_at_is_refused_trial_by_trial(kept: Kept) -> None:
    deep = kept.to
    while len(str(deep)) < 4075:
        deep /= "d" * min(200, 4075 - len(str(deep)))
    deep.mkdir(parents=True)
    said = kept.ctl("archive", "--to", str(deep), "--json")
    done = json.loads(said.out)["done"]
    assert said.code == 1 and [row["outcome"] for row in done] == ["refused", "refused", "left", "left"]
    assert all("name too long" in row["why"] for row in done[:2])
    said = kept.ctl("archive", "--to", str(kept.to / ("d" * 300)))
    assert (said.code, said.out) == (2, "") and "name too long" in said.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for others")
def test_the_lock_that_root_makes_in_a_dry_run_is_the_daemons_users(kept: Kept) -> None:
    os.chown(kept.state, 65534, 65534)
    assert kept.archive("--dry-run").code == 0
    status = (kept.state / keeping.LOCK).stat()
    assert (status.st_uid, status.st_gid) == (65534, 65534)


def test_an_archive_that_would_lie_in_what_it_packs_leaves_no_folder_there(kept: Kept) -> None:
    link = kept.root / "link"
    link.symlink_to(kept.folder("zstd"))
    said = kept.ctl("archive", "t0001", "--to", str(link))
    assert said.code == 1 and "lies in what is packed" in said.out and not (kept.folder("zstd") / "x").exists()
    assert kept.archive("t0001").code == 0
