"""The audit in the daemon, over a real ledger: what opens, what closes, what stops, and what a person's word means to it."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from marathond.core.audit.facts import Facts
from marathond.core.audit.rule import Found, Look, Rule
from marathond.core.audit.rules import RULES
from marathond.core.notices import Seen, to_tell
from marathond.flow import auditor
from marathond.flow.auditor import Auditor
from marathond.flow.world import Wake, World
from marathond.ledger.verbs import admission, campaigns, findings, networks, notices, trials
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.ledger.verbs.trials import ScoreRow
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service import decisions
from tests.support import ledgers as have

pytestmark = pytest.mark.anyio

ARMS = ("plain", "goal", "heartbeat")
TASKS = tuple(f"task-{n}" for n in range(9))
BIAS = tuple(rule for rule in RULES if rule.code == "infra_disparity")


class Clock(SystemClock):
    """A test moves both hands; each step of a trial takes a minute, so that failures are no burst."""

    at_ms = 1_000_000

    def mono_ms(self) -> int:
        return self.at_ms

    def wall_ms(self) -> int:
        return have.T0 + self.at_ms


class House:
    """One daemon life over the ledger, without engine or host."""

    def __init__(self, ledger: SqliteLedger, campaign_id: int, clock: Clock, rules: tuple[Rule, ...] = BIAS, name: str = "x") -> None:
        fixed, nobody = SimpleNamespace(campaign_id=campaign_id, campaign=name), cast(Any, None)
        self.ledger, self.clock, self.campaign_id = ledger, clock, campaign_id
        self.world = World(cast(Any, fixed), nobody, ledger, nobody, nobody, clock)
        self.rules = rules
        self.auditor = Auditor(self.world, rules=rules)

    async def rest(self, arm: str, tasks: tuple[str, ...], *, failed: bool, replicate: int = 1) -> None:
        for task in tasks:
            self.clock.at_ms += 120_000
            await self.ledger.write(_rest, arm, task, replicate, failed=failed, now_ms=self.clock.wall_ms())

    async def resume(self) -> None:
        await self.ledger.write(decisions.reopen_admission, author="ana", now_ms=self.clock.wall_ms())

    async def stands(self) -> list[str]:
        return [stop.kind for stop in await self.ledger.read(admission.stops)]

    async def open(self) -> list[tuple[str, str]]:
        return [(row.code, row.subject) for row in await self.ledger.read(findings.open_findings)]

    async def told(self) -> int:
        return await self.ledger.read(lambda c: int(c.execute("SELECT count(*) FROM finding").fetchone()[0]))


def _rest(c: sqlite3.Connection, arm: str, task: str, replicate: int, *, failed: bool, now_ms: int) -> None:
    cell_id = have.cell(c, task, arm, replicate)
    admitted = have.bring_to(c, cell_id, "voided" if failed else "scored", now_ms=now_ms)
    have.let_go(c, admitted, now_ms=now_ms)


@asynccontextmanager
async def life(path: Path) -> AsyncIterator[SqliteLedger]:
    async with await SqliteLedger.open(path) as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="h", boot_id="b", version="0", now_ms=have.T0)
        yield ledger


async def submitted(ledger: SqliteLedger, name: str = "x") -> int:
    wanted = have.submission(
        name=name, arms=[have.arm(arm) for arm in ARMS], tasks=[have.task(task, network=False) for task in TASKS], replicates=3
    )
    await ledger.write(networks.set_pool, have.ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)
    result: SubmitResult = await ledger.write(campaigns.submit, wanted, now_ms=have.T0)
    return result.campaign_id


@pytest.fixture
def path(tmp_path: Path) -> Path:
    have.file_ledger(tmp_path / "ledger.db", host="h", now_ms=have.T0)
    return tmp_path / "ledger.db"


@pytest.fixture
async def house(path: Path) -> AsyncIterator[House]:
    async with life(path) as ledger:
        yield House(ledger, await submitted(ledger), Clock())


async def hit(house: House) -> None:
    """Nine of nine trials of one arm fail, none of the others'."""
    for arm in ("plain", "heartbeat"):
        await house.rest(arm, TASKS, failed=False)
    await house.rest("goal", TASKS, failed=True)
    await house.auditor.look()


async def test_f08_the_last_words_of_a_daemon_are_about_all_its_trials(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor, "LAST_S", 120.0)  # that it is bounded is not what is shown here, and two seconds a loaded machine may need
    assert await house.auditor.look_if_due()
    async with anyio.create_task_group() as group:
        group.start_soon(house.auditor.run)
        await house.rest("plain", TASKS, failed=False)
        await house.rest("goal", TASKS, failed=True)
        group.cancel_scope.cancel()
    assert await house.open() == [("infra_disparity", "goal")]


async def test_d09_refused_scores_are_a_finding_until_the_newest_score_of_none_has_one(house: House) -> None:
    def again(c: sqlite3.Connection, *rows: ScoreRow) -> None:
        for trial_id, row in enumerate(rows, start=1):
            trials.scored(c, trial_id, row, now_ms=house.clock.wall_ms())

    it = Auditor(house.world, rules=tuple(rule for rule in RULES if rule.code == "score_refused"))
    for arm in ("plain", "goal"):
        await house.rest(arm, TASKS[:1], failed=False)
    await it.look()
    assert await house.open() == []
    percent = ScoreRow(2, 0.0, "reward.txt", parts=[("refused 1", "above 1: 50", "metrics.json:partial_score")])
    await house.ledger.write(again, percent)
    await it.look()
    (found,) = await house.ledger.read(findings.open_findings)
    assert (found.code, found.severity, found.subject) == ("score_refused", "error", "task-0")
    assert found.detail == "partial refused in 1 of 2 scored trials (above 1: 50, at metrics.json:partial_score), and kept in 1: t0001"
    await house.ledger.write(again, ScoreRow(2, 0.0, "reward.txt", 0.5))
    await it.look()
    assert await house.open() == []


async def test_a06_admission_closes_for_all_arms_and_a_notice_says_infrastructure_first(house: House) -> None:
    await house.auditor.look()
    assert (await house.open(), await house.stands()) == ([], [])
    await hit(house)
    assert await house.open() == [("infra_disparity", "goal")]
    (stop,) = await house.ledger.read(admission.stops)
    assert (stop.kind, stop.author) == ("stop_loss", "marathond")
    assert stop.detail.startswith("infra_disparity: infrastructure first: 9 of 9 trials of goal")
    seen = Seen(1, "x", await house.ledger.read(notices.findings_seen, 0), await house.ledger.read(notices.stops_seen, 0))
    assert [(notice.kind, notice.title) for notice in to_tell(seen, (), no_score_ms=1) if notice.kind == "stop_loss"] == [
        ("stop_loss", "infrastructure first: infra_disparity goal: admission is closed for all arms")
    ]


async def test_a06_what_a_person_has_answered_stops_again_only_when_it_happens_again(house: House) -> None:
    await hit(house)
    await house.resume()
    await house.auditor.look()
    await house.rest("plain", TASKS[:3], failed=False, replicate=2)  # more of the same, and more unlikely still
    await house.auditor.look()
    assert (await house.open(), await house.stands()) == ([("infra_disparity", "goal")], [])
    await house.rest("goal", TASKS[:1], failed=True, replicate=2)
    await house.auditor.look()
    assert await house.stands() == ["stop_loss"]
    assert await house.told() == 1  # the same finding, counted on


async def test_what_failed_before_a_person_resumed_is_answered_whether_it_was_looked_at_or_not(house: House) -> None:
    await hit(house)
    await house.rest("goal", TASKS[:2], failed=True, replicate=2)  # what still ran when it closed
    await house.auditor.look()
    await house.rest("goal", TASKS[2:3], failed=True, replicate=2)  # a moment before the person's word
    await house.resume()
    await house.auditor.look()
    assert await house.stands() == []


async def test_e06_a_clock_that_steps_back_behind_the_resume_hides_no_failure(house: House) -> None:
    await hit(house)
    await house.resume()
    house.clock.at_ms -= 3_600_000
    await house.rest("goal", TASKS[:1], failed=True, replicate=2)
    await house.auditor.look()
    assert await house.stands() == ["stop_loss"]


async def test_a_restart_neither_doubles_a_finding_nor_forgets_what_was_answered(path: Path) -> None:
    clock = Clock()
    async with life(path) as ledger:
        house = House(ledger, await submitted(ledger), clock)
        await hit(house)
        await house.resume()
    async with life(path) as ledger:
        again = House(ledger, 1, clock)
        await again.auditor.look()
        assert (await again.open(), await again.stands(), await again.told()) == ([("infra_disparity", "goal")], [], 1)
        (row,) = await ledger.read(findings.open_findings)
        assert row.times == 1
        await again.rest("goal", TASKS[:1], failed=True, replicate=2)
        await again.auditor.look()
        assert await again.stands() == ["stop_loss"]


async def test_an_acknowledged_finding_stays_open_and_stops_nothing_more(house: House) -> None:
    await hit(house)
    await house.ledger.write(findings.ack, "infra_disparity", author="ana", reason="known: waiting for a disk", now_ms=have.T0)
    assert await house.stands() == ["stop_loss"]
    await house.resume()
    await house.rest("goal", TASKS[:2], failed=True, replicate=2)
    await house.auditor.look()
    assert (await house.open(), await house.stands()) == ([("infra_disparity", "goal")], [])


async def test_a_stop_loss_stays_open_until_a_person_answers_though_it_is_over(house: House) -> None:
    await hit(house)
    house.auditor = Auditor(house.world, rules=(quiet("infra_disparity"),))
    await house.auditor.look()
    assert await house.open() == [("infra_disparity", "goal")]
    await house.resume()
    await house.auditor.look()
    assert await house.open() == []


def quiet(code: str, unseen: str = "") -> Rule:
    return Rule(code, "stop_loss", "it", "do", lambda facts: Look(0, 1, "things", (), unseen))


def says(code: str, words: Callable[[Facts], str], severity: str = "warning") -> Rule:
    def look(facts: Facts) -> Look:
        detail = words(facts)
        return Look(1, 1, "things", (Found(code, severity, "arm", detail),) if detail else ())

    return Rule(code, severity, "it", "do", look)


async def test_findings_open_follow_the_facts_and_close(house: House) -> None:
    now = {"words": "one"}
    house.auditor = Auditor(house.world, rules=(says("made_up", lambda facts: now["words"]),))
    for words in ("one", "one", "two"):
        now["words"] = words
        await house.auditor.look()
    (row,) = await house.ledger.read(findings.open_findings)
    assert (row.detail, row.times, row.campaign_id) == ("two", 2, house.campaign_id)
    now["words"] = ""
    await house.auditor.look()
    assert await house.open() == []
    now["words"] = "again"
    await house.auditor.look()
    assert await house.told() == 2


async def test_e04_a_rule_that_cannot_see_closes_nothing_and_one_that_breaks_is_named(house: House) -> None:
    rule = says("made_up", lambda facts: "true")
    other = says("other", lambda facts: "seen")
    house.auditor = Auditor(house.world, rules=(rule, other))
    await house.auditor.look()
    blind = Auditor(house.world, rules=(quiet("made_up", "its source is dead"), other))
    await blind.look()
    assert await house.open() == [("made_up", "arm"), ("other", "arm")]
    broken = Auditor(house.world, rules=(says("made_up", lambda facts: str(1 // 0)), other))
    await broken.look()
    assert await house.open() == [("audit_failed", "made_up"), ("made_up", "arm"), ("other", "arm")]
    await house.auditor.look()
    sound = Auditor(house.world, rules=(rule, other))
    await sound.look()
    assert await house.open() == [("made_up", "arm"), ("other", "arm")]


async def test_e02_another_campaign_s_finding_of_the_same_name_is_left_alone(path: Path) -> None:
    clock = Clock()
    async with life(path) as ledger:
        first = House(ledger, await submitted(ledger), clock)
        await hit(first)
        await first.resume()
        second = House(ledger, await submitted(ledger, "y"), clock, name="y")
        second.auditor = Auditor(second.world, rules=(says("infra_disparity", lambda facts: "mine"),))
        await second.auditor.look()
        rows = await ledger.read(findings.open_findings)
        assert sorted((row.campaign_id, row.subject) for row in rows) == [(1, "goal"), (2, "arm")]
        # A subject that another campaign's finding has already gets the campaign's name.
        third = Auditor(second.world, rules=(Rule("infra_disparity", "warning", "it", "do", _goal),))
        await third.look()
        subjects = sorted((row.campaign_id, row.subject) for row in await ledger.read(findings.open_findings))
        assert subjects == [(1, "goal"), (2, "goal (y)")]


def _goal(facts: Facts) -> Look:
    return Look(1, 1, "things", (Found("infra_disparity", "warning", "goal", "mine"),))


async def test_a_stop_that_stands_for_another_reason_is_not_doubled(house: House) -> None:
    stop = "usage_limit: the account is used up"
    await house.ledger.write(admission.open_stop, "stop_loss", detail=stop, author="marathond", until_ms=None, now_ms=have.T0)
    await hit(house)
    assert [each.detail for each in await house.ledger.read(admission.stops)] == [stop]
    assert await house.open() == [("infra_disparity", "goal")]


async def test_it_looks_after_an_event_at_most_every_two_seconds_and_at_least_every_minute(house: House) -> None:
    clock, each = house.clock, house.auditor
    assert await each.look_if_due()
    clock.at_ms += auditor.APART_MS
    assert not await each.look_if_due()
    await house.ledger.write(_rest, "plain", TASKS[0], 1, failed=True, now_ms=clock.wall_ms())
    assert await each.look_if_due()
    await house.ledger.write(_rest, "plain", TASKS[0], 1, failed=False, now_ms=clock.wall_ms())
    assert not await each.look_if_due()
    clock.at_ms += auditor.APART_MS
    assert await each.look_if_due()
    clock.at_ms += auditor.AT_LEAST_MS
    assert await each.look_if_due()


async def test_the_scheduler_is_woken_when_admission_closes(house: House) -> None:
    rung: list[bool] = []

    class Bell(Wake):
        def ring(self) -> None:
            rung.append(True)

    house.world.wake = Bell()
    await hit(house)
    await house.auditor.look()
    assert rung == [True]
