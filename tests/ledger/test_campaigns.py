"""Submission only adds, and says what it cannot add to."""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.ledgers import ENGINE, T0, arm, begin, bring_to, cell, daemon_void, fill, let_go, memory_ledger, submission, task

from marathond.core.errors import Refused
from marathond.core.model import Unrunnable
from marathond.core.order import CellKey, Order, order_cells
from marathond.ledger.verbs import admission, artifacts, campaigns, operator, settings
from marathond.ledger.verbs.campaigns import ArmRow, Submission, SubmitResult


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    begin(made)
    yield made
    made.close()


def states(c: sqlite3.Connection) -> dict[str, str]:
    rows = c.execute("SELECT task || '/' || arm || '/' || replicate AS name, coalesce(park_code, state) AS state FROM v_cell ORDER BY name")
    return {row["name"]: row["state"] for row in rows.fetchall()}


def unrunnable(name: str, code: str) -> Unrunnable:
    return Unrunnable(name, f"/tasks/{name}", code, "line 3: no good")


def test_first_submission_makes_blocks_of_all_arms(c: sqlite3.Connection) -> None:
    result = campaigns.submit(c, submission(replicates=2), now_ms=T0)
    assert result == SubmitResult(1, True, 2, 2, 8, 0, 0)
    blocks = c.execute("SELECT block_id, count(DISTINCT arm_id), count(*) FROM cell GROUP BY block_id").fetchall()
    assert [tuple(row)[1:] for row in blocks] == [(2, 2)] * 4


def test_submitting_again_changes_nothing(c: sqlite3.Connection) -> None:
    campaigns.submit(c, submission(), now_ms=T0)
    before = list(c.iterdump())
    assert campaigns.submit(c, submission(), now_ms=T0 + 9) == SubmitResult(1, False, 0, 0, 0, 0, 0)
    assert list(c.iterdump()) == before


def test_arms_tasks_and_replicates_are_added_to_a_running_campaign(c: sqlite3.Connection) -> None:
    campaigns.submit(c, submission(), now_ms=T0)
    kept = {tuple(row) for row in c.execute("SELECT cell_id, block_id, task_id, arm_id, replicate FROM cell").fetchall()}
    bigger = submission(
        arms=[arm("plain"), arm("goal"), arm("new")], tasks=[task("zstd"), task("rust", network=False), task("third")], replicates=2
    )
    assert campaigns.submit(c, bigger, now_ms=T0) == SubmitResult(1, False, 1, 1, 14, 0, 0)
    assert kept <= {tuple(row) for row in c.execute("SELECT cell_id, block_id, task_id, arm_id, replicate FROM cell").fetchall()}
    assert len(states(c)) == 3 * 3 * 2
    assert campaigns.submit(c, submission(), now_ms=T0).added_cells == 0  # a smaller one takes nothing away
    assert len(states(c)) == 3 * 3 * 2


def test_a18_changed_treatment_needs_a_new_campaign(c: sqlite3.Connection) -> None:
    campaigns.submit(c, submission(), now_ms=T0)
    before = list(c.iterdump())
    with pytest.raises(Refused, match="campaign x: treatment was t1, now t2: needs a new campaign"):
        campaigns.submit(c, submission(treatment_hash="t2"), now_ms=T0)
    with pytest.raises(Refused, match="arm goal was h1, now h2: needs a new campaign"):
        campaigns.submit(c, submission(arms=[arm("plain"), arm("goal", "h2")]), now_ms=T0)
    assert list(c.iterdump()) == before
    assert campaigns.submit(c, submission(name="y", treatment_hash="t2"), now_ms=T0).created


def test_a18_a_refusal_names_the_keys_that_changed_and_no_value(c: sqlite3.Connection) -> None:
    def made(limit: float | None, **over: object) -> Submission:
        data = {"argv": ["run"], "env": {"MODE": "x", "API_KEY": "geheim1"}, "user": None, **over}
        mine = ArmRow("mine", "command", f"sha256:{json.dumps(data)}", json.dumps(data))
        treatment = json.dumps({"agent_timeout_s": limit, "build_args": {"TOKEN": "geheim"}})
        return replace(submission(arms=[mine], treatment_hash=f"sha256:{limit}"), treatment_json=treatment)

    campaigns.submit(c, made(60), now_ms=T0)
    with pytest.raises(Refused, match=r"^arm mine was .* \(changed: argv, env.API_KEY, env.NEW\): needs a new campaign"):
        campaigns.submit(c, made(60, argv=["walk"], env={"MODE": "x", "API_KEY": "geheim2", "NEW": "1"}), now_ms=T0)
    with pytest.raises(Refused, match=r"^campaign x: treatment was 60, now None \(changed: agent_timeout_s\): needs a new campaign"):
        campaigns.submit(c, made(None), now_ms=T0)
    many = {f"V{n}": "geheim" for n in range(12)}
    with pytest.raises(Refused, match=r"\(changed: env\.API_KEY, env\.MODE, .* and 6 more\)") as refused:
        campaigns.submit(c, made(60, env=many), now_ms=T0)
    assert "geheim" not in str(refused.value)


def test_a18_changed_task_parks_until_it_is_what_it_was(c: sqlite3.Connection) -> None:
    fill(c)
    let_go(c, bring_to(c, cell(c, "zstd", "plain"), "scored"))
    bring_to(c, cell(c, "rust", "plain"), "running")
    changed = submission(tasks=[task("zstd", digest="d2"), task("rust", network=False, digest="d2")])
    result = campaigns.submit(c, changed, now_ms=T0)
    assert result.parked == 3  # all but the one that is done; the running one goes on, but is not tried again
    assert states(c) == {
        "rust/goal/1": "task_changed",
        "rust/plain/1": "task_changed",
        "zstd/goal/1": "task_changed",
        "zstd/plain/1": "done",
    }
    assert c.execute("SELECT state FROM v_cell WHERE task = 'rust' AND arm = 'plain'").fetchone()[0] == "claimed"
    assert c.execute("SELECT DISTINCT digest FROM task").fetchall()[0][0] == "d1"
    assert campaigns.submit(c, changed, now_ms=T0).parked == 0
    assert campaigns.submit(c, submission(), now_ms=T0).unparked == 3
    assert set(states(c).values()) == {"done", "claimed", "open"}


def test_f06_unreadable_task_parks_its_cells_and_is_filled_in_later(c: sqlite3.Connection) -> None:
    broken = submission(tasks=[task("zstd"), task("rust", digest=None, limit_ms=None, why=unrunnable("rust", "task_broken"))])
    assert campaigns.submit(c, broken, now_ms=T0).parked == 2
    assert states(c) == {"rust/goal/1": "task_broken", "rust/plain/1": "task_broken", "zstd/goal/1": "open", "zstd/plain/1": "open"}
    detail = c.execute("SELECT DISTINCT detail FROM park").fetchall()
    assert [row[0] for row in detail] == ["line 3: no good"]
    fixed = campaigns.submit(c, submission(tasks=[task("zstd"), task("rust", limit_ms=900_000)]), now_ms=T0 + 5)
    assert (fixed.parked, fixed.unparked) == (0, 2)
    stored = {row.name: row for row in campaigns.tasks_of(c, 1)}["rust"]
    assert (stored.digest, stored.context_digest, stored.declared_limit_ms, stored.needs_network) == ("d1", "c-d1", 900_000, True)
    assert set(states(c).values()) == {"open"}


def test_reason_for_a_park_follows_the_task(c: sqlite3.Connection) -> None:
    campaigns.submit(c, submission(tasks=[task("rust", digest=None, why=unrunnable("rust", "task_missing"))]), now_ms=T0)
    again = campaigns.submit(c, submission(tasks=[task("rust", digest=None, why=unrunnable("rust", "task_broken"))]), now_ms=T0)
    assert (again.parked, again.unparked) == (2, 0)  # they are parked as before, with another reason
    assert set(states(c).values()) == {"task_broken"}
    assert c.execute("SELECT count(*) FROM park").fetchone()[0] == 4  # the history stays


def test_a_persons_and_the_breakers_parks_survive_a_submission(c: sqlite3.Connection) -> None:
    fill(c)
    admission.park_cell(c, cell(c), code="by_hand", detail="d", author="ana", now_ms=T0)
    assert campaigns.submit(c, submission(), now_ms=T0).unparked == 0
    assert states(c)["zstd/plain/1"] == "by_hand"


def test_cells_added_to_a_parked_task_are_parked(c: sqlite3.Connection) -> None:
    bad = task("rust", digest=None, why=unrunnable("rust", "task_missing"))
    campaigns.submit(c, submission(tasks=[bad]), now_ms=T0)
    assert campaigns.submit(c, submission(tasks=[bad], replicates=2), now_ms=T0).parked == 2
    assert set(states(c).values()) == {"task_missing"}


def test_out_dir_may_move_until_something_lies_in_it(c: sqlite3.Connection) -> None:
    fill(c)
    campaigns.submit(c, submission(out_dir="/elsewhere"), now_ms=T0)
    assert campaigns.campaigns(c)[0].out_dir == "/elsewhere"
    done = bring_to(c, cell(c), "scored")
    artifacts.exported(c, done.trial_id, folder="f", records=[], now_ms=T0)
    with pytest.raises(Refused, match="out_dir was /elsewhere, now /out: finished artifacts"):
        campaigns.submit(c, submission(), now_ms=T0)


@pytest.mark.parametrize("order", list(Order))
def test_ordinals_are_the_orders_places(c: sqlite3.Connection, order: Order) -> None:
    tasks = [task("short", limit_ms=1_000), task("long", limit_ms=9_000), task("endless", limit_ms=None)]
    campaigns.submit(c, submission(tasks=tasks, replicates=3, order=order.value, seed=3), now_ms=T0)
    rows = c.execute("SELECT task, arm, replicate FROM v_cell ORDER BY ordinal").fetchall()
    limits = {"short": 1.0, "long": 9.0, "endless": None}
    keys = [CellKey(t, a, r, limits[t]) for t, a, r in itertools.product(limits, ("plain", "goal"), (1, 2, 3))]
    assert [tuple(row) for row in rows] == [
        (k.task, k.arm, k.replicate) for k in order_cells(keys, order=order, seed=3, arms=("plain", "goal"))
    ]
    assert [r[0] for r in c.execute("SELECT ordinal FROM cell ORDER BY ordinal").fetchall()] == list(range(1, 19))
    assert campaigns.reorder(c, 1, order=order.value, seed=3) == 0
    moved = campaigns.reorder(c, 1, order=order.value, seed=4)
    assert (moved > 0) == (order is not Order.ARM_MAJOR)  # there the arms' order is given, and no two tasks are equally long
    stored = campaigns.campaign_by_name(c, "x")
    assert stored is not None and (stored.order, stored.seed, stored.replicates) == (order.value, 4, 3)


def test_a12_arms_of_a_block_stand_side_by_side(c: sqlite3.Connection) -> None:
    fill(c, submission(arms=[arm(n) for n in "abc"], tasks=[task(f"k{n}") for n in range(5)], replicates=2))
    rows = c.execute("SELECT block_id FROM cell ORDER BY ordinal").fetchall()
    assert [len(list(group)) for _, group in itertools.groupby(row[0] for row in rows)] == [3] * 10
    firsts = {row[0] for row in c.execute("SELECT arm FROM v_cell WHERE (ordinal - 1) % 3 = 0").fetchall()}
    assert len(firsts) > 1  # no arm is always first


def test_snapshot_walks_the_order_and_counts_what_is_held(c: sqlite3.Connection) -> None:
    campaign_id = fill(c, submission(tasks=[task(f"k{n}") for n in range(4)]))
    other = campaigns.submit(c, submission(name="other"), now_ms=T0).campaign_id
    order = [row[0] for row in c.execute("SELECT cell_id FROM cell WHERE campaign_id = ? ORDER BY ordinal", (campaign_id,)).fetchall()]
    done, parked, voided, running = order[0], order[1], order[2], order[3]
    let_go(c, bring_to(c, done, "scored"))
    admission.park_cell(c, parked, code="c", detail="d", author="a", now_ms=T0)
    bring_to(c, voided, "voided")  # not torn down yet: still claimed
    bring_to(c, running, "running")
    foreign = c.execute(
        "SELECT cell_id FROM cell JOIN task USING (task_id) WHERE cell.campaign_id = ? AND needs_network LIMIT 1", (other,)
    ).fetchone()[0]
    bring_to(c, foreign, "reserved")
    admission.open_stop(c, "pause", detail="lunch", author="ana", until_ms=None, now_ms=T0)
    seen = admission.snapshot(c, campaign_id, engine=ENGINE, limit=3)
    assert [each.cell_id for each in seen.open_cells] == order[4:7]
    assert seen.open_total == 4
    assert len(seen.holdings) == 3  # of every campaign: they share the host
    assert seen.live_leases == 3
    assert [(stop.kind, stop.detail) for stop in seen.stops] == [("pause", "lunch")]
    assert admission.snapshot(c, campaign_id, engine=ENGINE, limit=9).open_total == 4
    assert admission.snapshot(c, campaign_id, engine="other", limit=1).live_leases == 0


def test_stops_are_idempotent(c: sqlite3.Connection) -> None:
    assert admission.open_stop(c, "pause", detail="a", author="ana", until_ms=None, now_ms=T0)
    assert not admission.open_stop(c, "pause", detail="b", author="bob", until_ms=None, now_ms=T0)
    assert [(s.detail, s.author) for s in admission.stops(c)] == [("a", "ana")]
    assert admission.end_stop(c, "pause", author="bob", now_ms=T0)
    assert not admission.end_stop(c, "pause", author="bob", now_ms=T0)
    assert admission.open_stop(c, "pause", detail="again", author="ana", until_ms=None, now_ms=T0)


def test_overrides_are_the_last_value_of_each_key(c: sqlite3.Connection) -> None:
    for key, new in (("concurrency", 8), ("cap", 3), ("concurrency", 4), ("cap", None)):
        settings.set_value(c, key, old=1, new=new, author="ana", reason="r", now_ms=T0)
    assert settings.overrides(c) == {"concurrency": 4}
    settings.observe(c, "disk", {"free": 1}, now_ms=T0)
    settings.observe(c, "disk", {"free": 2}, now_ms=T0 + 1)
    assert settings.observations(c) == {"disk": ({"free": 2}, T0 + 1, 1)}
    begin(c)
    settings.observe(c, "disk", {"free": 3}, now_ms=T0 + 2)
    assert settings.observations(c)["disk"].run_id == 2


def test_passes_are_counted_from_the_last_time_a_person_opened_the_cell(c: sqlite3.Connection) -> None:
    """Also with a wall clock that steps back (fault e06): rows are ordered by number, not by time."""
    fill(c)
    one = cell(c)
    back = -3_600_000
    for n, parks in enumerate((False, False, True)):
        admitted = bring_to(c, one, "reserved")
        assert daemon_void(c, admitted.trial_id, passes=3, now_ms=T0 + n * back) is parks
        let_go(c, admitted)
    assert states(c)["zstd/plain/1"] == "passes_exhausted"
    assert operator.unpark(c, campaign_id=1, task="zstd", author="ana", reason="fixed", now_ms=T0 + 9 * back) == 1
    admitted = bring_to(c, one, "reserved")
    assert daemon_void(c, admitted.trial_id, passes=3, now_ms=T0 + 10 * back) is False
    let_go(c, admitted)
    assert states(c)["zstd/plain/1"] == "open"


def test_f12_voids_that_do_not_count_use_up_no_passes(c: sqlite3.Connection) -> None:
    fill(c)
    for _ in range(5):
        admitted = bring_to(c, cell(c), "reserved")
        assert daemon_void(c, admitted.trial_id, passes=2, counts=False) is False
        let_go(c, admitted)
    assert states(c)["zstd/plain/1"] == "open"


def test_passes_used_up_while_a_task_park_stands_hold_when_that_park_ends(c: sqlite3.Connection) -> None:
    fill(c)
    admitted = bring_to(c, cell(c), "reserved")
    campaigns.submit(c, submission(tasks=[task("zstd", digest="d2")]), now_ms=T0)
    assert states(c)["zstd/plain/1"] == "task_changed"
    assert daemon_void(c, admitted.trial_id, passes=1) is True
    let_go(c, admitted)
    campaigns.submit(c, submission(), now_ms=T0)
    assert states(c)["zstd/plain/1"] == "passes_exhausted"


def test_task_parks_that_end_by_themselves_give_no_new_passes(c: sqlite3.Connection) -> None:
    fill(c)
    admitted = bring_to(c, cell(c), "reserved")
    daemon_void(c, admitted.trial_id, passes=2)
    let_go(c, admitted)
    campaigns.submit(c, submission(tasks=[task("zstd", digest="d2")]), now_ms=T0)
    campaigns.submit(c, submission(), now_ms=T0)
    admitted = bring_to(c, cell(c), "reserved")
    assert daemon_void(c, admitted.trial_id, passes=2) is True
