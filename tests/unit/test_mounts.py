"""What arms mount: read whole where it can be, told apart by every change that an agent could notice, compared by all who ask."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marathond.core.errors import Refused
from marathond.core.model import Arm
from marathond.core.mounts import APART, HELD, NAMES, UNREAD, WHOLE, WRITABLE, Reading, mixed, short, story, sure
from marathond.core.names import AgentKind
from marathond.core.unlike import Change, Side, unlike
from marathond.flow import mounts
from marathond.ledger.verbs import campaigns, trials
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.ledger.verbs.mounts import readings
from marathond.ledger.verbs.trials import Fact
from marathond.service.settings import load
from marathond.service.submission import build
from marathond.service.treatment import arm_treatment, treatment_hash
from marathond.staging import mounted
from marathond.staging.mounted import Mounted
from tests.support import ledgers as have
from tests.support.arm_tree import LONG_S, edit, make_tree, value
from tests.support.cli_rig import Rig, living_rig
from tests.support.rig import make_task

UNASKED = "; the host was not asked (plan does)"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


# ── reading ──


def edit_and_set_its_time_back(root: Path) -> None:
    status = (root / "run.sh").stat()
    edit(root)
    os.utime(root / "run.sh", ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": edit,
    "edited, and its time set back": edit_and_set_its_time_back,
    "added": lambda root: (root / "more").write_text(""),
    "removed": lambda root: (root / "bin/tool").unlink(),
    "renamed": lambda root: (root / "run.sh").rename(root / "walk.sh"),
    "executable": lambda root: (root / "run.sh").chmod(0o755),
    "a folder more": lambda root: (root / "empty").mkdir(),
    "a link's target": lambda root: ((root / "bin/link").unlink(), (root / "bin/link").symlink_to("../run.sh")),
    "a link in place of a file": lambda root: ((root / "bin/tool").unlink(), (root / "bin/tool").symlink_to("../run.sh")),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a18_every_change_is_another_value_however_often_it_was_looked_at(tree: Path, change: str, looks: int) -> None:
    reader = Mounted()
    before = {value(tree, reader) for _ in range(looks)}
    assert len(before) == 1 and min(before).startswith(WHOLE) and value(tree) in before
    CHANGES[change](tree)
    after = value(tree, reader)
    assert after.startswith(WHOLE) and after not in before and after == value(tree), "remembered or read anew, it is the same"


def test_times_owners_and_places_are_no_content(tree: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(tree, copy, symlinks=True)
    for path in (copy / "run.sh", copy / "bin"):
        os.utime(path, (1, 1))
    (tmp_path / "by-link").symlink_to(copy)
    assert value(copy) == value(tree) == value(tmp_path / "by-link"), "the engine mounts a link's target, too"
    assert value(tree / "run.sh").startswith(WHOLE) and value(tree / "run.sh") != value(tree / "bin/tool"), "a single file"


def test_what_is_unchanged_is_not_read_a_third_time(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real = mounted._open
    monkeypatch.setattr(mounted, "_open", lambda path, flags: (opened.append(path), real(path, flags))[1])
    reader = Mounted()
    counts = []
    for _ in range(4):
        value(tree, reader)
        counts.append(len(opened))
    assert counts == [2, 4, 4, 4]
    edit(tree)
    value(tree, reader)
    assert len(opened) == 5


def test_too_much_is_told_by_names_sizes_and_times_and_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = value(tree)
    for limit in ({"READ_MAX": 3}, {"BYTES_MAX": 10}):
        with monkeypatch.context() as patched:
            for name, most in limit.items():
                patched.setattr(mounted, name, most)
            seen = value(tree)
            assert seen.startswith(NAMES) and seen != whole and short(seen).startswith("names, sizes and times alone ")
            os.utime(tree / "run.sh", (5, min(limit.values())))
            assert value(tree) not in (seen, whole)
    monkeypatch.setattr(mounted, "NAMES_MAX", 3)
    reader = Mounted()
    assert value(tree, reader) == f"{UNREAD}more than 3 names, asked again after five minutes"
    monkeypatch.setattr(mounted, "_walk", None)
    assert value(tree, reader) == f"{UNREAD}more than 3 names, asked again after five minutes", "nor is it walked over for every trial"
    monkeypatch.undo()
    monkeypatch.setattr(mounted, "monotonic", lambda: time.monotonic() + 301)
    assert reader.answer(reader.ask(str(tree)), time.monotonic() + 301 + LONG_S) == whole


def test_what_is_no_harness_is_not_digested_and_said(tree: Path) -> None:
    os.mkfifo(tree / "bin/queue")
    assert value(tree) == f"{APART}holds a pipe, bin/queue"
    assert value(tree / "bin/queue") == f"{APART}is a pipe"
    (tree / "bin/queue").unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(tree)  # the path of a socket must be short
        try:
            bound.bind("s")
        finally:
            os.chdir(here)
        assert value(tree) == f"{APART}holds a socket, s"
    assert value(Path("/dev/null")) == f"{APART}is a device"
    assert value(tree / "nothing") == f"{UNREAD}no such file or directory"


def test_one_that_is_written_to_meanwhile_is_unread(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mounted._open
    monkeypatch.setattr(mounted, "_open", lambda path, flags: (edit_longer(tree), real(path, flags))[1])
    assert value(tree).startswith(UNREAD) and "changed while it was read" in value(tree)


def test_names_that_are_no_utf8_are_told_in_words_that_a_ledger_takes(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tree / name).write_text("")
    assert value(tree).startswith(WHOLE)
    with monkeypatch.context() as patched:
        patched.setattr(mounted, "_seen", lambda status: (os.urandom(8),))
        assert value(tree / name) == f"{UNREAD}caf\ufffd changed while it was read, or is no plain file"
    os.mkfifo(tree / f"{name} {name}")
    assert value(tree) == f"{APART}holds a pipe, caf\ufffd caf\ufffd"
    monkeypatch.setattr(mounted, "_walk", lambda root, look: 1 / len(root[:0]) if root else name.encode())
    assert value(tree) == f"{UNREAD}ZeroDivisionError: division by zero"
    sqlite3.connect(":memory:").execute("SELECT ?", (value(tree),))


def test_what_the_kernel_makes_up_has_no_size_and_is_unread() -> None:
    assert value(Path("/proc/self/status")) == f"{UNREAD}status changed while it was read, or is no plain file"


def test_what_changes_by_itself_and_is_no_part_of_a_harness_is_not_looked_at(tree: Path) -> None:
    before = value(tree)
    for folder in (tree / ".git", tree / "bin/__pycache__"):
        folder.mkdir()
        (folder / "any").write_text("x")
    (tree / "bin/tool.pyc").write_text("x")
    os.mkfifo(tree / ".run.sh.swp")
    assert value(tree) == before
    (tree / ".gitignore").write_text("x")
    assert value(tree) != before


def edit_longer(tree: Path) -> None:
    for path in (tree / "run.sh", tree / "bin/tool"):
        with path.open("a") as file:
            file.write("# more\n")


# ── words ──


def reading(digits: str, trials: int = 1, first: str | None = "t0004", *, submitted: bool = False) -> Reading:
    return Reading("hasty", "/opt/hasty", WHOLE + 32 * digits, trials, first, submitted)


def test_the_story_of_a_mount() -> None:
    both = [reading("3c", 2, "t0001", submitted=True), reading("ad")]
    assert story(both) == f"{'3c' * 6} as submitted and in 2 trials from t0001 on; {'ad' * 6} in 1 trial from t0004 on"
    assert mixed(both) and sure(both) and not mixed(both[:1])
    assert not mixed([both[0], replace(both[1], value=f"{UNREAD}no answer")]), "what is unknown is no change"


ROW = {"kind": "command", "mounts": [{"source": "/srv/hasty", "target": "/opt/hasty", "read_only": True}]}


@pytest.mark.parametrize(
    ("a", "b", "changes", "unsure"),
    [
        ([reading("3c")], [reading("3c")], [], ""),
        ([reading("3c")], [reading("ad")], [Change("content of /opt/hasty", WHOLE + 32 * "3c", WHOLE + 32 * "ad")], ""),
        (
            [reading("3c"), reading("ad")],
            [reading("ad")],
            [Change("content of /opt/hasty", [WHOLE + 32 * "3c", WHOLE + 32 * "ad"], WHOLE + 32 * "ad")],
            "",
        ),
        ([reading("3c", 0, None, submitted=True), reading("ad")], [reading("ad")], [], ""),
        ([reading("3c", 0, None, submitted=True)], [reading("3c")], [], ""),
        ([], [reading("3c")], [], "(first: no trial yet)"),
        ([reading("3c")], [replace(reading(""), value=WRITABLE)], [], "(second: not digested: writable in 1 trial from t0004 on)"),
    ],
)
def test_two_campaigns_whose_mounts_held_other_things_differ(
    a: list[Reading], b: list[Reading], changes: list[Change], unsure: str
) -> None:
    found = unlike(Side("first", arms={"hasty": ROW}, mounted=a), Side("second", arms={"hasty": ROW}, mounted=b))
    assert [change for arm in found.arms for change in arm.changes] == changes
    assert [each.like for each in found.by_arm] == [not changes]
    if unsure:
        assert found.warnings == (f"whether arm hasty mounts the same at /opt/hasty is not known {unsure}",)
    else:
        assert len(found.warnings) == len(changes) and all("hasty" in line for line in found.warnings)


# ── a campaign ──

CONFIG = """[campaign]
name = "{name}"
tasks = ["tasks/*"]
replicates = {replicates}
[engine]
url = "unix://{folder}/none.sock"
[arms.hasty]
kind = "command"
argv = ["sh", "/opt/hasty/hasty.sh"]
mounts = [{{ source = "{folder}/agents", target = "/opt/hasty" }}]
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        make_task(rig.state_dir / "tasks", "one")
        (rig.state_dir / "agents").mkdir()
        (rig.state_dir / "agents/hasty.sh").write_text("echo old\n")
        write_config(rig)
        yield rig


def write_config(rig: Rig, name: str = "first", replicates: int = 4) -> None:
    (rig.state_dir / "marathond.toml").write_text(CONFIG.format(name=name, replicates=replicates, folder=rig.state_dir))


def edit_script(rig: Rig) -> None:
    (rig.state_dir / "agents/hasty.sh").write_text("echo new\n")


def submit(rig: Rig, *, looks: bool = True) -> SubmitResult:
    """As the daemon does it; ``looks``: not at its start, nor did earlier versions."""
    settings = load(Path("marathond.toml"))
    made = build(settings, "ana", {}, {})
    if looks:
        made = anyio.run(mounts.with_held, made, settings.arm_models({}), Mounted())
    with rig.sql() as c:
        return campaigns.submit(c, made, now_ms=have.T0)


def run_one(rig: Rig, campaign: str = "first", *, records: bool = True) -> None:
    """One trial as it is recorded; ``records``: not by earlier versions."""
    sql = """SELECT cell_id FROM cell_state AS s JOIN campaign USING (campaign_id) WHERE campaign.name = ? AND state = 'open'
             ORDER BY cell_id LIMIT 1"""
    with rig.sql() as c:
        made = have.bring_to(c, c.execute(sql, (campaign,)).fetchone()[0], "scored")
        have.let_go(c, made)
        trial_id = c.execute("SELECT max(trial_id) FROM trial").fetchone()[0]
        if records:
            trials.facts(c, trial_id, [Fact("mount /opt/hasty", value(rig.state_dir / "agents"), "arm")], now_ms=have.T0)


def test_a18_a_script_edited_in_mid_campaign_is_told_before_a_submission_and_refused_by_it(rig: Rig) -> None:
    submit(rig)
    run_one(rig)
    assert rig.run("config", "check").out.splitlines() == [f"ok: campaign first, 1 task, 1 arm, 4 replicates: 4 cells{UNASKED}"]
    edit_script(rig)
    write_config(rig, replicates=8)
    checked = rig.run("config", "check")
    assert checked.code == 1
    line = checked.out.splitlines()[-1]
    assert checked.out.startswith("not ok: campaign first, ")
    assert line.startswith(f"changed: arm hasty mounts {rig.state_dir}/agents at /opt/hasty, whose content is not that of campaign first (")
    assert "begin a campaign (or an arm) of another name" in line
    assert json.loads(rig.run("config", "check", "--json").out)["remounted"] == [line.removeprefix("changed: ")]
    plan = rig.run("plan")
    assert plan.code == 1 and line in plan.err
    with pytest.raises(Refused, match=r"arm hasty: what it mounts at /opt/hasty was [0-9a-f]{12}, now [0-9a-f]{12} .*needs a new campaign"):
        submit(rig)
    with rig.sql() as c:
        assert c.execute("SELECT count(*) FROM cell JOIN campaign USING (campaign_id) WHERE name = 'first'").fetchone()[0] == 4
    (rig.state_dir / "agents/hasty.sh").write_text("echo old\n")
    assert submit(rig).added_cells == 4
    assert rig.run("config", "check").code == 0


def test_f06_a_daemon_that_starts_refuses_nothing_over_it(rig: Rig) -> None:
    submit(rig)
    edit_script(rig)
    assert submit(rig, looks=False).added_cells == 0


def test_a_campaign_begun_by_an_earlier_version_goes_on_and_its_first_known_trial_counts(rig: Rig) -> None:
    submit(rig, looks=False)
    run_one(rig, records=False)
    assert submit(rig).added_cells == 0, "nothing is known of what it ran"
    run_one(rig)
    assert submit(rig).added_cells == 0
    edit_script(rig)
    with pytest.raises(Refused, match="arm hasty: what it mounts at /opt/hasty"):
        submit(rig)
    shown = rig.ask("arms", "show", "hasty")
    assert "content of /opt/hasty = not read: an earlier version ran it in 1 trial from " in shown


def test_a_script_edited_before_the_first_trial_is_one_arm(rig: Rig) -> None:
    submit(rig)
    edit_script(rig)
    assert rig.run("config", "check").code == 1, "no trial knows yet"
    run_one(rig)
    with rig.sql() as c:
        held = readings(c, c.execute("SELECT campaign_id FROM campaign WHERE name = 'first'").fetchone()[0])
    assert [(each.submitted, each.trials) for each in held] == [(True, 0), (False, 1)] and not mixed(held)
    write_config(rig, replicates=8)
    assert rig.run("config", "check").code == 0
    assert submit(rig).added_cells == 4, "what ran counts"
    (rig.state_dir / "agents/hasty.sh").write_text("echo old\n")
    assert rig.run("config", "check").code == 1


def test_of_too_much_to_be_read_it_may_have_changed_and_nothing_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounted, "READ_MAX", 0)
    submit(rig)
    os.utime(rig.state_dir / "agents/hasty.sh", (5, 5))
    for command in (("config", "check"), ("plan",)):
        ran = rig.run(*command)
        told = f"note: arm hasty mounts {rig.state_dir}/agents at /opt/hasty, whose content may have changed since campaign first began ("
        assert told in ran.err and "changed: " not in ran.err + ran.out
        assert "if it did, and not its times alone, trials from now on run another arm" in ran.err
    assert rig.run("config", "check").code == 0
    assert submit(rig).added_cells == 0
    monkeypatch.undo()


def test_what_is_kept_beside_an_arm_is_no_part_of_its_hash(rig: Rig) -> None:
    submit(rig)
    with rig.sql() as c:
        row = c.execute("SELECT treatment_hash, data_json FROM arm WHERE name = 'hasty'").fetchone()
    (arm,) = load(Path("marathond.toml")).arm_models({})
    assert row[0] == treatment_hash(arm_treatment(arm))
    assert json.loads(row[1])[HELD] == {"/opt/hasty": value(rig.state_dir / "agents")}


def test_arms_show_report_and_diff_tell_what_was_mounted(rig: Rig) -> None:
    submit(rig)
    old = short(value(rig.state_dir / "agents"))
    run_one(rig)
    edit_script(rig)
    new = short(value(rig.state_dir / "agents"))
    run_one(rig)
    write_config(rig, "second")
    submit(rig)
    run_one(rig, "second")
    told = f"{old} as submitted and in 1 trial from t"
    shown = rig.ask("arms", "show", "hasty", "--campaign", "first")
    assert f"content of /opt/hasty = {told}" in shown and f"; {new} in 1 trial from t" in shown
    (one, other) = json.loads(rig.ask("arms", "show", "hasty", "--campaign", "first", "--json"))["mounts_held"]
    assert (one["submitted"], one["trials"], other["submitted"], other["trials"]) == (True, 1, False, 1)
    differs = rig.run("diff", "first", "second")
    flat = " ".join(differs.out.split())
    assert "hasty content of /opt/hasty: " in flat and "arms of one name are not the same arm (hasty)" in flat
    said = " ".join(rig.ask("report", "--campaign", "first").split())
    assert f"hasty at /opt/hasty: {told}" in said


def test_readings_of_arms_that_mount_nothing_are_none() -> None:
    c: sqlite3.Connection = have.memory_ledger()
    campaign_id = have.fill(c)
    assert readings(c, campaign_id) == ()
    assert Arm("x", AgentKind.COMMAND).mounts == ()
