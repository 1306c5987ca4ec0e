"""A task that was edited after its campaign was submitted is named by `config check`, `plan` and a second `submit`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.ledger.verbs import campaigns
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.service.settings import load
from marathond.service.submission import build
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig
from tests.support.rig import make_task

UNASKED = "; the host was not asked (plan does)"

CONFIG = """[campaign]
name = "first"
tasks = ["tasks/*"]
replicates = {replicates}
[engine]
url = "unix://{folder}/none.sock"
[arms.nop]
kind = "nop"
[arms.mine]
kind = "command"
argv = ["true"]
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        write_config(rig, 2)
        for name in ("edited", "kept"):
            make_task(rig.state_dir / "tasks", name)
        submit(rig)
        yield rig


def write_config(rig: Rig, replicates: int) -> None:
    (rig.state_dir / "marathond.toml").write_text(CONFIG.format(replicates=replicates, folder=rig.state_dir))


def submit(rig: Rig) -> SubmitResult:
    """As the daemon does it: the folders are read, and the ledger takes them."""
    with rig.sql() as c:
        return campaigns.submit(c, build(load(Path("marathond.toml")), "ana", {}, {}), now_ms=have.T0)


def edit(rig: Rig, name: str = "edited") -> None:
    with (rig.state_dir / "tasks" / name / "tests/test.sh").open("a") as file:
        file.write("# edited\n")


def score(rig: Rig, task: str, most: int) -> None:
    sql = """SELECT cell_id FROM cell JOIN task USING (task_id) JOIN campaign ON campaign.campaign_id = cell.campaign_id
             WHERE campaign.name = 'first' AND task.name = ? ORDER BY cell_id LIMIT ?"""
    with rig.sql() as c:
        for row in c.execute(sql, (task, most)).fetchall():
            have.let_go(c, have.bring_to(c, row[0], "scored"))


def told(cells: str) -> str:
    """A pattern for the words."""
    return rf"differs from what campaign first was submitted with \(digest [0-9a-f]{{12}}, now [0-9a-f]{{12}}\): {cells}"


PARKS = "4 cells without a score park until the old files are back; to run the new files begin a campaign of another name"


def matches(text: str, pattern: str) -> bool:
    return re.fullmatch(pattern, text) is not None


def test_before_a_submission_and_of_what_is_as_it_was_nothing_is_said(rig: Rig) -> None:
    assert rig.ask("config", "check") == f"ok: campaign first, 2 tasks, 2 arms, 2 replicates: 8 cells{UNASKED}\n"
    assert "differs" not in rig.run("plan").out
    assert submit(rig).differing == ()
    edit(rig)
    (rig.state_dir / "marathond.toml").write_text(CONFIG.format(replicates=2, folder=rig.state_dir).replace('"first"', '"second"'))
    assert rig.ask("config", "check") == f"ok: campaign second, 2 tasks, 2 arms, 2 replicates: 8 cells{UNASKED}\n"
    rig.ledger.unlink()
    write_config(rig, 2)
    assert rig.ask("config", "check").startswith("ok: campaign first")
    assert not rig.ledger.exists(), "looking makes none"


def test_a18_check_and_plan_name_an_edited_task_before_anything_runs(rig: Rig) -> None:
    edit(rig)
    checked = rig.run("config", "check")
    head, line = checked.out.splitlines()
    assert (checked.code, checked.err) == (1, "")
    assert head == f"not ok: campaign first, 2 tasks, 2 arms, 2 replicates: 8 cells, of which 4 park{UNASKED}"
    assert matches(line, "parks: edited: task_changed: " + told(PARKS))

    plan = rig.run("plan")
    assert plan.code == 1 and "\nparked: 4 cells of 1 task\n" in plan.out
    assert any(matches(each, "  edited: task_changed: " + told(PARKS)) for each in plan.out.splitlines())
    made = json.loads(rig.run("plan", "--json").out)
    assert {cell["task"] for cell in made["cells"]} == {"kept"} and made["parked_cells"] == 4
    assert {task["name"]: task["parks"] for task in made["tasks"]} == {"edited": "task_changed", "kept": ""}


def test_scores_stand_and_replicates_to_come_park(rig: Rig) -> None:
    score(rig, "edited", 4)
    edit(rig)
    noted = rig.run("config", "check")
    assert (noted.code, noted.out) == (0, f"ok: campaign first, 2 tasks, 2 arms, 2 replicates: 8 cells{UNASKED}\n")
    assert matches(noted.err, "note: edited: " + told("its 4 scores stand, nothing of it is left to run\n"))
    assert matches(rig.run("plan").err, "note: edited: " + told("its 4 scores stand, nothing of it is left to run\n"))

    write_config(rig, 3)
    head, line = rig.run("config", "check").out.splitlines()
    assert "12 cells, of which 2 park;" in head, "as many as the next line says"
    planned = rig.run("plan").out
    assert planned.startswith("campaign first: 12 cells = ") and "\nparked: 2 cells of 1 task\n" in planned
    made = json.loads(rig.run("plan", "--json").out)
    assert (len(made["cells"]), made["parked_cells"], made["scored_cells"]) == (6, 2, 4)
    left = PARKS.replace("4 cells", "2 cells").replace("back;", "back, its 4 scores stand;")
    assert matches(line, "parks: edited: task_changed: " + told(left))
    with rig.sql() as c:
        assert c.execute("SELECT count(*) FROM park").fetchone()[0] == 0, "looking records nothing"


def test_a_second_submission_says_so_each_time_and_bounded(rig: Rig) -> None:
    edit(rig)
    with rig.serving():
        for parked in ("4 cells parked", "nothing new"):
            rig.control.result = submit(rig)
            said = rig.run("submit")
            head, line = said.out.splitlines()
            assert (said.code, head) == (0, f"submitted: {parked}")
            assert matches(line, "task edited " + told(PARKS))
        assert [each["task"] for each in json.loads(rig.run("submit", "--json").out)["differing"]] == ["edited"]
        for number in range(7):
            shutil.copytree(rig.state_dir / "tasks/kept", rig.state_dir / f"tasks/more-{number}")
        submit(rig)
        for number in range(7):
            edit(rig, f"more-{number}")
        rig.control.result = submit(rig)
        lines = rig.run("submit").out.splitlines()
        assert len(lines) == 7 and lines[-1] == "… 3 tasks more differ: marathonctl config check lists them"


def test_a_ledger_that_cannot_be_read_is_unknown_and_not_in_order(rig: Rig) -> None:
    rig.ledger.write_bytes(b"no ledger at all" * 64)
    edit(rig)
    checked = rig.run("config", "check")
    assert checked.code == 0 and checked.err.startswith("note: whether tasks and arms are those of the submitted campaign is unknown: ")
    assert len(checked.err.splitlines()) == 1


def test_f06_a_folder_that_is_away_parks_in_check_plan_and_the_next_submission(rig: Rig) -> None:
    """A disk that is not mounted: an arm or a replicate can be added meanwhile."""
    config = rig.state_dir / "marathond.toml"
    config.write_text(config.read_text().replace('"tasks/*"', '"tasks/kept", "tasks/edited"'))
    (rig.state_dir / "tasks/edited").rename(rig.state_dir / "unmounted")
    checked = rig.run("config", "check")
    head, line = checked.out.splitlines()
    assert (checked.code, head) == (1, f"not ok: campaign first, 2 tasks, 2 arms, 2 replicates: 8 cells, of which 4 park{UNASKED}")
    assert line.startswith("parks: edited: ")
    made = json.loads(rig.run("plan", "--json").out)
    assert made["parked_cells"] == 4 and {cell["task"] for cell in made["cells"]} == {"kept"}
    config.write_text(config.read_text().replace('"tasks/edited"', '"tasks/edited", "tasks/edted"'))
    for words in (("config", "check"), ("plan",)):
        refused = rig.run(*words)
        assert refused.code == 2 and "tasks/edted" in refused.err and "no such folder" in refused.err
