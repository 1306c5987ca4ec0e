"""The gateway's journal taken in by the flow: real journal, real ledger, no engine.  Torn, missing and foreign records are named."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from marathond.core.arms import arm_to_data
from marathond.core.requests import HOLD_AT_MOST_MS
from marathond.flow import ways
from marathond.flow.ingest import BATCH, Intake
from marathond.flow.watching import credit_ms
from marathond.flow.world import World
from marathond.gateway import journal_read
from marathond.gateway.exchange import Exchange, bury
from marathond.gateway.files import Listener, ack_path, write_json, write_listener
from marathond.gateway.journal import Journal
from marathond.gateway.usage import Tokens
from marathond.ledger.connect import connect
from marathond.ledger.verbs import findings
from marathond.ledger.verbs.campaigns import ArmRow
from marathond.ledger.writer import SqliteLedger
from marathond.ports.clock import SystemClock
from marathond.service import effective
from marathond.service.settings import load
from tests.support.ledgers import T0, bring_to, cell, file_ledger, fill, submission

pytestmark = pytest.mark.anyio

CONFIG = """
[campaign]
name = "x"
tasks = ["tasks/*"]
[arms.plain]
kind = "codex"
drive = "turn"
[codex]
model = "m"
[gateway.routes.main]
base_url = "https://provider.example/v1"
key_file = "key"
"""


@dataclass
class House:
    """A ledger with running trial t0001, and the gateway's folder.  ``intake()``: a new daemon life's."""

    world: World
    folder: Path

    def intake(self) -> Intake:
        return Intake(self.world)

    def journal(self, **bounds: int) -> Journal:
        return Journal(self.folder / "journal", **bounds)

    def ask(self, journal: Journal, trial: str = "t0001", ends: bool = True) -> Exchange:
        listener = Listener(
            **{"name": trial, "version": 1, "trial": trial, "account": "agent", "container_id": "c", "started_at": "s", "pid": 1},
            **{"start_ticks": 1, "boot_id": "b", "port": 8790, "key_sha256": "0" * 64, "route": "main", "network": "none"},  # type: ignore[arg-type]
        )
        asked = Exchange(listener, "POST", "/v1/responses", self.world.clock.mono_ms())
        asked.begins(journal, self.world.clock)
        asked.ready_ms = asked.sent_ms = asked.arrived_ms
        asked.status = asked.upstream_status = 200
        asked.end, asked.usage, asked.tokens, asked.model, asked.model_asked = "complete", "known", Tokens(10, 4, 0, 2, 1), "m", "m"
        if ends:
            asked.ends(journal, self.world.clock)
        return asked

    async def count(self, sql: str = "SELECT coalesce(sum(requests), 0) FROM model_usage") -> Any:
        return await self.world.ledger.read(lambda c: c.execute(sql).fetchone()[0])

    async def found(self) -> dict[str, str]:
        """Open findings: code to words."""
        return {row.code: row.detail for row in await self.world.ledger.read(findings.open_findings)}

    def alive(self, **changes: object) -> None:
        clock = self.world.clock
        told = {
            "boot_id": clock.boot_id,
            "mono_ms": clock.mono_ms(),
            "journal": "j",
            "config_error": "",
            "journal_error": "",
            "key_errors": {},
        }
        write_json(self.folder / "alive.json", {**told, "not_opened": 0, **changes}, durable=False)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    (tmp_path / "tasks" / "one").mkdir(parents=True)
    (tmp_path / "config.toml").write_text(CONFIG)
    settings = load(tmp_path / "config.toml", {"daemon.state_dir": str(tmp_path / "state")}, environ={}, cwd=tmp_path, uid=0)
    path = tmp_path / "ledger.db"
    file_ledger(path, host="h", now_ms=T0)
    c = connect(path, mode="rw")
    (plain,) = settings.arm_models({"codex": "p"})
    fill(c, submission(arms=[ArmRow("plain", "codex", "h", json.dumps(arm_to_data(plain)))]))
    bring_to(c, cell(c, "zstd", "plain"), "running")
    c.close()
    clock = SystemClock()
    async with await SqliteLedger.open(path) as ledger:
        await ledger.begin_life(pid=1, pid_start_ticks=1, host="h", boot_id=clock.boot_id, version="v", now_ms=T0)
        fixed = effective.fixed(settings, "0123456789ab", 1, {}, {})
        knobs = effective.knobs_from(effective.configured_knobs(settings))
        nobody = cast(Any, None)  # neither engine nor host is asked
        folder = effective.gateway_folder(settings)
        folder.mkdir(parents=True)
        yield House(World(fixed, knobs, ledger, nobody, nobody, clock), folder)


async def met(house: House) -> Intake:
    intake = house.intake()
    await intake.meet()
    return intake


async def test_what_is_told_is_taken_in_once_whoever_looks(house: House) -> None:
    intake = await met(house)
    await intake.catch_up()
    journal = house.journal()
    for _ in range(BATCH + 20):
        house.ask(journal)
    await asyncio.gather(intake.catch_up(), intake.catch_up())
    assert await house.count() == BATCH + 20
    house.ask(journal)
    again = await met(house)  # the next life
    await again.catch_up()
    await intake.catch_up()
    assert await house.count() == BATCH + 21
    assert await house.found() == {}
    assert journal_read.read_ingested(house.folder / "journal").segment == 1
    journal.close()


async def test_a_journal_that_is_older_than_the_ledger_is_not_its_own(house: House) -> None:
    journal = house.journal()
    house.ask(journal)
    intake = await met(house)
    await intake.catch_up()
    assert await house.count() == 0
    house.ask(journal)
    await intake.catch_up()
    assert await house.count() == 1 and await house.found() == {}
    journal.close()


async def test_an_empty_journal_at_the_first_meeting_loses_nothing(house: House) -> None:
    """Killed between the first requests and the first look: the next life must not take them for an older ledger's."""
    await met(house)
    journal = house.journal()
    house.ask(journal)
    intake = await met(house)
    await intake.catch_up()
    assert await house.count() == 1
    journal.close()


async def test_a_torn_line_is_a_finding_and_its_request_unknown_at_the_end(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    house.ask(journal)
    house.ask(journal)
    journal.close()
    path = journal_read.segment_path(house.folder / "journal", 1)
    lines = path.read_bytes().splitlines(keepends=True)
    last = lines[-1]
    path.write_bytes(b"".join(lines[:-1]) + last[: len(last) // 2])  # killed in the middle of a write
    journal = house.journal()  # the next life begins a segment of its own
    house.ask(journal)
    await intake.catch_up()
    found = await house.found()
    assert (
        list(found) == ["journal_torn"] and "1 lines cannot be read" in found["journal_torn"] and "segment 1 byte" in found["journal_torn"]
    )
    assert await house.count() == 2
    bury(journal, house.world.clock, "gateway_died", list(journal.open_requests))
    await intake.catch_up()
    assert await house.count("SELECT sum(unknown) FROM model_usage") == 1 and await house.count() == 3
    journal.close()


async def test_a_line_that_was_changed_on_disk_is_a_finding_and_no_gap(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    house.ask(journal)
    house.ask(journal)
    journal.close()
    path = journal_read.segment_path(house.folder / "journal", 1)
    text = path.read_text()
    path.write_text(text.replace('"input":10', '"input":99', 1))
    await intake.catch_up()
    assert list(await house.found()) == ["journal_torn"]
    assert await house.count("SELECT sum(input_tokens) FROM model_usage") == 10


async def test_missing_records_are_a_finding(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    house.ask(journal)
    await intake.catch_up()
    journal._seq += 3  # as if three lines had been cut out
    house.ask(journal)
    await intake.catch_up()
    assert "3 records are missing" in (await house.found())["journal_gap"]
    assert await house.count() == 2
    journal.close()


async def test_a_segment_removed_before_it_was_read_is_a_finding_and_the_rest_is_read(house: House) -> None:
    intake = await met(house)
    journal = house.journal(segment_bytes=2000)
    house.ask(journal)
    await intake.catch_up()
    while len(journal_read.segments(house.folder / "journal")) < 3:
        house.ask(journal)
    first, *_, last = journal_read.segments(house.folder / "journal")
    for number in (first, first + 1):
        journal_read.segment_path(house.folder / "journal", number).unlink()
    await intake.catch_up()
    assert "records are missing" in (await house.found())["journal_gap"] or "is gone" in (await house.found())["journal_gap"]
    row = await house.count("SELECT segment FROM gateway_journal")
    assert row == last
    before = await house.count()
    house.ask(journal)
    await intake.catch_up()
    assert await house.count() == before + 1
    journal.close()


@pytest.mark.parametrize("fill_up", [0, 20], ids=["shorter than what was read", "longer than what was read"])
async def test_a_journal_made_anew_is_named_and_counted_from_its_beginning(house: House, fill_up: int) -> None:
    intake = await met(house)
    journal = house.journal()
    for _ in range(4):
        house.ask(journal)
    await intake.catch_up()
    journal.close()
    for path in (house.folder / "journal").glob("*"):
        path.unlink()
    anew = house.journal()
    for _ in range(1 + fill_up):
        house.ask(anew)
    await intake.catch_up()
    assert await house.count() == 4 + 1 + fill_up
    assert "belongs to another journal" in (await house.found())["journal_gap"]
    assert await house.count("SELECT count(*) FROM gateway_journal") == 2
    anew.close()


async def test_trials_that_the_ledger_does_not_know_and_records_of_unknown_form_are_named(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    house.ask(journal, trial="t0999")
    journal.append("tomorrow", something=1)
    house.ask(journal)
    await intake.catch_up()
    found = (await house.found())["journal_strange"]
    assert "t0999: no such trial" in found or "'tomorrow': no such kind" in found
    assert await house.count() == 1
    assert await house.count("SELECT times FROM finding WHERE code = 'journal_strange'") == 2
    journal.close()


async def test_a_spent_account_stops_everything_in_the_same_transaction_and_is_over_when_the_provider_answers(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    failed = house.ask(journal, ends=False)
    failed.status = failed.upstream_status = 429
    failed.usage, failed.tokens, failed.error_type = "none", None, "usage_limit"
    failed.ends(journal, house.world.clock)
    await intake.catch_up()
    assert await house.count("SELECT count(*) FROM admission_stop WHERE kind = 'stop_loss' AND ended_at_ms IS NULL") == 1
    assert list(await house.found()) == ["usage_limit"]
    house.ask(journal)
    again = await met(house)
    await again.catch_up()
    assert await house.found() == {}
    assert await house.count("SELECT count(*) FROM admission_stop WHERE ended_at_ms IS NULL") == 1, "a person ends it"
    journal.close()


# ── the gateway's other files ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"config_error": "no such key"}, "gateway_settings", "no such key"),
        ({"journal_error": "full"}, "gateway_journal", "full"),
        ({"key_errors": {"main": "/k: no such file"}}, "gateway_key", "/k: no such file"),
        ({"not_opened": 3}, "gateway_listeners", "3 listeners"),
    ],
)
async def test_what_the_gateway_says_of_itself_is_a_finding_until_it_is_over(
    house: House, changes: dict[str, object], code: str, words: str
) -> None:
    intake = await met(house)
    house.alive(**changes)
    await intake.look()
    assert words in (await house.found())[code]
    house.alive()
    await intake.look()
    assert await house.found() == {}


async def later(house: House, by_ms: int, what: Callable[[], Any]) -> Any:
    """As the world looks some time on."""
    clock, mono_ms = house.world.clock, house.world.clock.mono_ms
    cast(Any, clock).mono_ms = lambda: mono_ms() + by_ms
    try:
        return await what()
    finally:
        cast(Any, clock).mono_ms = mono_ms


async def test_a_gateway_without_a_sign_of_life_is_named_and_closes_by_itself(house: House) -> None:
    intake = await met(house)
    await intake.look()
    assert await house.found() == {}, "both processes start together: it has a moment"
    assert "never given a sign" in (await ways.sign_of_life(house.world)).away
    house.alive()
    assert (await ways.sign_of_life(house.world)).away == ""
    await later(house, ways.ALIVE_MS + 1000, intake.look)
    # At least so long: what this test itself takes between the sign and the look counts, too.
    told = re.search(r"no sign of life for (\d+) s", (await house.found())["gateway_stale"])
    assert told is not None and int(told[1]) >= (ways.ALIVE_MS + 1000) // 1000
    house.alive()
    await intake.look()
    assert await house.found() == {}
    house.alive(boot_id="another")
    assert "since the host was started" in (await ways.sign_of_life(house.world)).away


async def test_a_port_that_was_taken_is_a_finding_of_its_trial_until_the_listener_is_open(house: House) -> None:
    intake = await met(house)
    house.alive()
    journal = house.journal()
    asked = house.ask(journal)
    journal.close()
    write_listener(house.folder, asked.listener)

    def ack(state: str, code: str) -> None:
        told = {"name": "t0001", "version": 1, "state": state, "code": code, "detail": "d", "container_id": "c", "started_at": "s"}
        write_json(ack_path(house.folder, "t0001"), {**told, "port": 8790, "life": "l", "mono_ms": 1})

    ack("failed", "port_taken")
    await intake.look()
    assert "no way to its model" in (await house.found())["port_taken"]
    ack("listening", "")
    await intake.look()
    assert await house.found() == {}
    ack("failed", "container_gone")
    await intake.look()
    assert await house.found() == {}


async def test_a17_a_wait_of_minutes_without_an_end_is_credited_and_bounded(house: House) -> None:
    intake = await met(house)
    journal = house.journal()
    asked = house.ask(journal, ends=False)
    asked.waits(journal, house.world.clock)
    await intake.catch_up()

    async def credited() -> int:
        return await credit_ms(house.world, 1)

    assert 120_000 <= await later(house, 120_000, credited) < 240_000
    assert await later(house, 10 * HOLD_AT_MOST_MS, credited) == HOLD_AT_MOST_MS
    assert house.world.fixed.gateway is not None
    less = replace(house.world.fixed, gateway=replace(house.world.fixed.gateway, held_at_most_ms=60_000))
    house.world.fixed = less
    assert await later(house, 120_000, credited) == 60_000
    house.world.fixed = replace(less, gateway=replace(house.world.fixed.gateway, held_at_most_ms=0))
    assert await later(house, 120_000, credited) == 0
    journal.close()
