"""What a replicate that begins takes from other campaigns of the ledger: trials of the same tasks, run here or imported."""

from __future__ import annotations

import csv
import socket
import sqlite3
import statistics
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from support.ledgers import T0, arm, begin, bring_to, file_ledger, let_go, memory_ledger, submission, task

from marathond.cli.show import placed_words
from marathond.ledger.connect import connect
from marathond.ledger.verbs import campaigns, imports, ordering
from marathond.ledger.verbs.imports import Details, ImportedCell, ImportedTrial, Withdrawal
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.importing.run import Wanted, carry_out, plan

PUBLIC = Path(__file__).resolve().parents[1] / "data" / "swe-marathon-trials.csv"
TASKS = ("one", "two", "three", "four")
ELDERS_S = {"one": 300, "two": 1_500, "three": 900, "four": 1_200}


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    begin(made)
    yield made
    made.close()


def submit(c: sqlite3.Connection, name: str, *, digests: Mapping[str, str] | None = None, replicates: int = 2) -> int:
    tasks = [task(each, digest=(digests or {}).get(each, "d1"), network=False, limit_ms=3_600_000) for each in TASKS]
    wanted = submission(name=name, arms=[arm("plain"), arm("goal")], tasks=tasks, replicates=replicates, seed=5, out_dir=f"/out/{name}")
    return campaigns.submit(c, wanted, now_ms=T0).campaign_id


def cell(c: sqlite3.Connection, campaign_id: int, name: str, arm_name: str, replicate: int = 1) -> int:
    sql = """SELECT cell_id FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id)
             WHERE cell.campaign_id = ? AND task.name = ? AND arm.name = ? AND replicate = ?"""
    return int(c.execute(sql, (campaign_id, name, arm_name, replicate)).fetchone()[0])


def run(c: sqlite3.Connection, campaign_id: int, took_s: Mapping[str, float], *, arm_name: str = "plain", state: str = "scored") -> None:
    """One whole trial of each; it held its slot for so long."""
    for name, each in took_s.items():
        let_go(c, bring_to(c, cell(c, campaign_id, name, arm_name), state), now_ms=T0 + round(each * 1000))


def bring_in(c: sqlite3.Connection, name: str, trials: Mapping[str, list[ImportedTrial]]) -> None:
    at = imports.begin_import(c, name, kind="csv", source="/t.csv", author="ana", refused=[], conditions={}, now_ms=T0)
    cells = [ImportedCell(each, "elder", number, (one,)) for each, all_of in trials.items() for number, one in enumerate(all_of, start=1)]
    imports.add_cells(c, at, [(each.task, each.arm, each.replicate) for each in cells])
    imports.import_cells(c, at, cells, now_ms=T0)


def imported(key: str, agent_s: float | None, *, void: bool = False) -> ImportedTrial:
    score, gone = ScoreRow(1, 1.0, "reward.txt"), Withdrawal("its pool ran out") if void else None
    return ImportedTrial(key, key, Details(agent_ms=None if agent_s is None else round(agent_s * 1000)), None if void else score, gone)


def learned(c: sqlite3.Connection, campaign_id: int, replicate: int = 1) -> list[str]:
    """The tasks in the order of their blocks, once the replicate has begun."""
    ordering.begin(c, campaign_id, replicate, slots=1, now_ms=T0)
    sql = "SELECT task.name FROM cell JOIN task USING (task_id) WHERE cell.campaign_id = ? AND replicate = ? ORDER BY ordinal"
    return list(dict.fromkeys(name for (name,) in c.execute(sql, (campaign_id, replicate)).fetchall()))


LONGEST_FIRST = ["two", "four", "three", "one"]


def test_the_first_replicate_begins_by_what_its_tasks_took_in_an_earlier_campaign(c: sqlite3.Connection) -> None:
    run(c, submit(c, "elder"), ELDERS_S)
    mine = submit(c, "mine")
    assert learned(c, mine) == LONGEST_FIRST
    seen = ordering.basis(c, mine, 1, "four")
    assert seen == ordering.BlockBasis(1, 2, blocks=4, limit_s=3600.0, trials=1, mean_s=1200.0, short_first=False, elsewhere=1)
    assert "1 trial before (1 in other campaigns) took 20m00s on the mean" in placed_words(seen)


def test_what_was_imported_counts_by_what_its_source_says_of_the_agent(c: sqlite3.Connection) -> None:
    """Such a trial is claimed and let go in one moment: that it took no time would be a plausible number, and wrong."""
    bring_in(c, "old", {name: [imported(f"{name} a", each), imported(f"{name} b", None)] for name, each in ELDERS_S.items()})
    mine = submit(c, "mine")
    assert learned(c, mine) == LONGEST_FIRST
    seen = ordering.basis(c, mine, 1, "two")
    assert seen is not None and (seen.trials, seen.mean_s) == (1, 1500.0)


def test_own_trials_and_those_of_others_count_alike(c: sqlite3.Connection) -> None:
    run(c, submit(c, "elder"), ELDERS_S)
    mine = submit(c, "mine", replicates=3)
    for arm_name in ("plain", "goal"):
        run(c, mine, {"one": 3_000, "two": 600, "three": 800, "four": 1_200}, arm_name=arm_name)
    assert learned(c, mine, 2) == ["one", "four", "two", "three"]  # means 2100, 1200, 900, 833
    seen = ordering.basis(c, mine, 2, "one")
    assert seen is not None and (seen.trials, seen.elsewhere, seen.mean_s) == (3, 1, 2100.0)


def test_neither_voids_nor_other_contents_nor_other_names_count(c: sqlite3.Connection) -> None:
    run(c, submit(c, "elder", digests={"one": "another"}), {"one": 3_000})
    run(c, submit(c, "void"), {"one": 3_000}, state="voided")
    bring_in(c, "old", {"One": [imported("a", 3_000)], "one": [imported("b", 3_000, void=True)]})
    mine = submit(c, "mine")
    run(c, mine, {"two": 10, "three": 20, "four": 30})
    assert learned(c, mine, 2)[0] == "one"  # nothing is known of it: its whole limit
    seen = ordering.basis(c, mine, 2, "one")
    assert seen is not None and (seen.trials, seen.elsewhere, seen.mean_s) == (0, 0, None)


def test_so_many_of_the_newest_campaigns_are_enough(c: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "ELSEWHERE", 3)
    bring_in(c, "old", {"one": [imported(f"old {n}", 3_000) for n in range(4)]})
    bring_in(c, "new", {"one": [imported(f"new {n}", 30) for n in range(2)]})
    mine = submit(c, "mine")
    learned(c, mine)
    seen = ordering.basis(c, mine, 1, "one")
    assert seen is not None and (seen.trials, seen.mean_s) == (3, pytest.approx((30 + 30 + 3_000) / 3))


def test_what_an_older_version_noted_is_read(c: sqlite3.Connection) -> None:
    run(c, submit(c, "elder"), ELDERS_S)
    mine = submit(c, "mine")
    learned(c, mine)
    c.execute("""UPDATE observation SET value_json = json_set(value_json, '$.blocks[0]', json('["two", 3600.0, 1, 1500.0]'))""")
    seen = ordering.basis(c, mine, 1, "two")
    assert seen is not None and (seen.trials, seen.elsewhere) == (1, 0)


def test_a_table_of_trials_orders_the_first_replicate(tmp_path: Path) -> None:
    """The whole way: a table of real trials is imported, a campaign of its tasks submitted, and its first replicate begins."""
    took: dict[str, list[float]] = {}
    with PUBLIC.open(newline="") as file:
        for row in csv.DictReader(file):
            took.setdefault(row["task"], []).append(float(row["duration_s"]))
    path = tmp_path / "ledger.db"
    file_ledger(path, host=socket.gethostname(), now_ms=T0)
    carry_out(path, plan(path, Wanted(PUBLIC, csv=True), "ana"))
    with closing(connect(path, mode="rw")) as c:
        begin(c)
        wanted = submission(name="mine", tasks=[task(name, network=False, limit_ms=36_000_000) for name in took], out_dir="/out/mine")
        mine = campaigns.submit(c, wanted, now_ms=T0).campaign_id
        order = learned(c, mine)
        seen = [ordering.basis(c, mine, 1, name) for name in order]
    means = [each.mean_s for each in seen if each is not None and each.elsewhere == each.trials == len(took[order[each.place - 1]])]
    assert means == pytest.approx([statistics.fmean(took[name]) for name in order])
    assert means[:15] == sorted(means[:15], reverse=True)  # the last quarter goes by the longest trial
    assert [max(took[name]) for name in order[15:]] == sorted((max(took[name]) for name in order[15:]), reverse=True)
