"""Takes the gateway's journal into the ledger, and says aloud what is wrong with gateway, provider or journal.

Owns the reading position's way: it moves in the transaction that holds what was made of the records, so that a daemon killed at any point
repeats nothing and loses nothing.  What cannot be read, is torn or missing becomes a finding, in the same transaction, never silence.
Decides nothing: the rules are core/model_rules.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
from anyio import to_thread

from marathond.agents.registry import AGENTS
from marathond.core.errors import ArtifactError
from marathond.core.model_rules import Found, new_or_over, of_campaign, of_request
from marathond.core.names import AgentKind
from marathond.core.requests import Ended, Event, Segment, decode
from marathond.flow import ways
from marathond.flow.contracts import Contracts
from marathond.flow.world import World, log
from marathond.gateway import journal_read
from marathond.gateway.journal_read import Position, Record, Torn
from marathond.ledger.verbs import findings, usage
from marathond.ledger.verbs.stored import arm_kinds
from marathond.ledger.verbs.usage import JOURNAL, JournalRow

LOOK_S = 1.0
"""How often the journal and the gateway's files are looked at."""
TRIALS_PER_S = 50
"""Of so many trials the listeners' acks are read in a second."""
BATCH = 500
"""Records of one transaction: some ten milliseconds for the one writer."""
COMPARE_MS = 5_000
"""How often arms are compared, at most."""
REST_MS = 60_000
"""So long after its trial's end a request that never ended is called lost; the gateway ends all of them within seconds."""
SPENT = ("usage_limit", "upstream_auth")
GATEWAY = ("gateway_", "port_taken")
"""What the codes of findings about the gateway itself begin with."""
WATCHED = ("model_changed", "other_model", "bad_request_one_arm", "held_disparity", "arm_contract_differs")
"""Findings over a whole campaign, closed when they are true no longer."""


async def gateway_needed(world: World) -> bool:
    """Whether a trial of the campaign may ask a model: then nothing is admitted while the gateway is away."""
    if world.fixed.gateway is None:
        return False
    kinds = await world.ledger.read(arm_kinds, world.fixed.campaign_id)
    return world.fixed.gateway.verifier_route is not None or any(AGENTS[AgentKind(kind)].needs_model for kind in kinds)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What one look at the journal brought.  ``after``: the position behind it."""

    events: tuple[tuple[int, Event], ...]
    after: Position
    last_seq: int
    found: tuple[Found, ...]


class Intake:
    """One per daemon life; :meth:`run` beside everything else, :meth:`catch_up` for who must know before it decides."""

    def __init__(self, world: World) -> None:
        assert world.fixed.gateway is not None
        self.world, self._folder = world, world.fixed.gateway.folder / "journal"
        self._one_at_a_time = anyio.Lock()
        self._confirmed = -1
        self._compared_ms = -COMPARE_MS
        self._touched = True
        self._began_ms, self._away = world.clock.mono_ms(), True
        self._told: dict[tuple[str, str], str] = {}
        self._contracts = Contracts(world)
        self._shut: dict[str, tuple[str, str]] = {}
        self._listeners_due_ms = 0
        self._loaded = False
        self._spent: dict[str, int] = {}
        """Route to the newest request by which the provider said that its account is spent, or its key refused."""

    async def meet(self) -> None:
        """To be called before the first trial of this life gets a way to its model."""
        row = await self.world.ledger.read(usage.journal)
        if row is None:
            identity, position, seq = await to_thread.run_sync(_end_of, self._folder)
            await self.world.ledger.write(
                usage.meet_journal,
                identity=identity,
                segment=position.segment,
                byte=position.byte,
                last_seq=seq,
                now_ms=self.world.clock.wall_ms(),
            )

    async def run(self) -> None:
        """For ever.  A ledger that refuses ends it; nothing that stands in a file does."""
        while True:
            await self.look()
            await anyio.sleep(LOOK_S)

    async def look(self) -> None:
        """Everything once: journal, gateway, listeners, comparison."""
        await self.catch_up()
        now_ms, mono_ms = self.world.clock.wall_ms(), self.world.clock.mono_ms()
        await self._say(GATEWAY, await self._of_gateway())
        if mono_ms - self._compared_ms < COMPARE_MS:
            return
        self._compared_ms = mono_ms
        if await self.world.ledger.read(usage.lost_in_rest, now_ms=now_ms, rest_ms=REST_MS):
            await self.world.ledger.write(usage.lost_requests, now_ms=now_ms, rest_ms=REST_MS)
            self._touched = True
        if self._touched:
            self._touched = False
            await self._compare()

    # ── the journal ──

    async def catch_up(self) -> None:
        """Until nothing is left to be read."""
        async with self._one_at_a_time:
            await self._load()
            while await self._batch():
                pass

    async def _batch(self) -> bool:
        """One transaction; False when there was nothing."""
        row = await self.world.ledger.read(usage.journal)
        if row is None or not await to_thread.run_sync(self._folder.is_dir):
            return False
        try:
            batch = await to_thread.run_sync(_read, self._folder, row)
        except ArtifactError as error:
            await self._say(("journal_unreadable",), [Found("journal_unreadable", "error", JOURNAL, str(error))])
            return False
        await self._say(("journal_unreadable",), [])
        if batch is None:
            return False
        await self._take(batch)
        if batch.after.segment != self._confirmed:
            try:
                await to_thread.run_sync(journal_read.write_ingested, self._folder, batch.after)
                self._confirmed = batch.after.segment
            except ArtifactError as error:
                log.warning("ingested_not_written", error=str(error))
        return True

    async def _take(self, batch: _Batch) -> None:
        world = self.world
        taken = await world.ledger.write(
            usage.ingest,
            batch.events,
            segment=batch.after.segment,
            byte=batch.after.byte,
            last_seq=batch.last_seq,
            prices=world.fixed.money.prices,
            found=batch.found,
            campaign_id=world.fixed.campaign_id,
            now_ms=world.clock.wall_ms(),
        )
        self._touched = self._touched or bool(taken.trials)
        for each in batch.found:
            self._told[each.code, each.subject] = each.detail
            log.error(each.code, subject=each.subject, detail=each.detail)
        for event in (event for _, event in batch.events if isinstance(event, Ended)):
            if of_request(event) is not None:
                self._spent[event.route] = event.begin
            elif event.usage == "known" and event.who.account != "gate" and event.begin > self._spent.get(event.route, -1):
                # The provider answers again.  What it stopped stays stopped until a person says otherwise.
                await self._over([key for key in self._told if key in {(code, event.route) for code in SPENT}])
        if any(each.stops for each in batch.found):
            world.wake.ring()

    # ── the gateway itself ──

    async def _shut_listeners(self) -> dict[str, tuple[str, str]]:
        """Reads a file for each listener; of hundreds therefore not at every look."""
        now_ms = self.world.clock.mono_ms()
        if now_ms >= self._listeners_due_ms:
            self._listeners_due_ms = now_ms + len(self.world.driven) // TRIALS_PER_S * 1000
            self._shut = await ways.shut_listeners(self.world)
        return self._shut

    async def _of_gateway(self) -> list[Found]:
        seen = await ways.sign_of_life(self.world)
        if self._away != bool(seen.away):
            self._away = bool(seen.away)
            self.world.wake.ring()
        if seen.away:
            # Both processes start together at boot: the gateway has a moment before it is missed.
            missed = self.world.clock.mono_ms() - self._began_ms >= ways.ALIVE_MS and await gateway_needed(self.world)
            return [Found("gateway_stale", "error", "gateway", seen.away)] if missed else []
        found = [
            Found("gateway_key", "error", route, f"no request of route {route} goes out, all are held: {why}")
            for route, why in seen.key_errors.items()
        ]
        if seen.config_error:
            found.append(Found("gateway_settings", "error", "gateway", f"goes on with its settings before: {seen.config_error}"))
        if seen.journal_error:
            found.append(
                Found("gateway_journal", "error", "gateway", f"takes no requests, for it cannot record them: {seen.journal_error}")
            )
        if seen.not_opened:
            found.append(Found("gateway_listeners", "error", "gateway", f"{seen.not_opened} listeners beyond its bound are not opened"))
        for name, (code, detail) in (await self._shut_listeners()).items():
            if code != "container_gone":  # a container that ends takes its network along; its trial's coroutine sees that by itself
                code = code if code == "port_taken" else f"gateway_{code}"
                found.append(Found(code, "error", name, f"the trial has no way to its model: {detail}"))
        return found

    # ── saying ──

    async def _compare(self) -> None:
        world = self.world
        campaign_id = world.fixed.campaign_id
        seen, held = await world.ledger.read(usage.outcomes, campaign_id), await world.ledger.read(usage.waits, campaign_id)
        await self._say(WATCHED, [*of_campaign(seen, held), *await self._contracts.look()])

    async def _load(self) -> None:
        """What an earlier life told, and is still open, once."""
        if not self._loaded:
            self._told = {(row.code, row.subject): row.detail for row in await self.world.ledger.read(findings.open_findings)}
            self._loaded = True

    async def _say(self, codes: tuple[str, ...], found: Sequence[Found]) -> None:
        """Findings whose code begins with one of ``codes``: tell what is new, close what is over."""
        world = self.world
        await self._load()
        mine = {key: detail for key, detail in self._told.items() if key[0].startswith(codes)}
        fresh, over = new_or_over(mine, found)
        now_ms = world.clock.wall_ms()
        if fresh:
            await world.ledger.write(usage.tell, fresh, campaign_id=world.fixed.campaign_id, now_ms=now_ms)
        for each in fresh:
            self._told[each.code, each.subject] = each.detail
            log.warning(each.code, subject=each.subject, detail=each.detail)
        await self._over(over)

    async def _over(self, keys: Sequence[tuple[str, str]]) -> None:
        for code, subject in keys:
            await self.world.ledger.write(findings.close_finding, code=code, subject=subject, now_ms=self.world.clock.wall_ms())
            del self._told[code, subject]
            log.info("finding_over", code=code, subject=subject)


def _end_of(folder: Path) -> tuple[str, Position, int]:
    """Name, end and last sequence number of the journal as it stands; of none: an empty name and the beginning."""
    identity, position, seq = "", journal_read.START, 0
    if not folder.is_dir():
        return identity, position, seq
    while True:
        entries, after = journal_read.read_from(folder, position)
        for entry in entries:
            if isinstance(entry, Record):
                seq = entry.seq
                if entry.fields.get("event") == "segment":
                    identity = str(entry.fields["journal"])
        if not entries:
            return identity, after, seq
        position = after


def _read(folder: Path, row: JournalRow) -> _Batch | None:
    """What follows the stored position; None: nothing.  :raises ArtifactError: it cannot be read now."""
    position, last = Position(row.segment, row.byte), row.last_seq
    found: list[Found] = []
    there = journal_read.segments(folder)
    if there and row.identity and position.segment and (anew := _made_anew(folder, there, row)):
        found.append(_gap(f"{anew}; what was not read of the journal before is lost"))
        position, last = Position(there[0], 0), 0
    elif there and position.segment and position.segment not in there:
        found.append(_gap(f"segment {position.segment} is gone before it was read to its end"))
        position = Position(next(number for number in there if number > position.segment), 0)
    entries, after = journal_read.read_from(folder, position, BATCH)
    if not entries and not found:
        return None
    events: list[tuple[int, Event]] = []
    torn: list[Torn] = []
    strange: list[str] = []
    missing, identity = 0, row.identity
    for entry in entries:
        if isinstance(entry, Torn):
            torn.append(entry)
            last += 1  # it was a record; a writer that died in it gives the number out again
            continue
        event = _decoded(entry, strange)
        if isinstance(event, Segment):
            last = last if event.journal == identity else entry.seq - 1
            identity = event.journal
        missing += max(0, entry.seq - last - 1)
        last = entry.seq
        if event is not None:
            events.append((entry.seq, event))
            if isinstance(event, Ended) and (said := of_request(event)) is not None:
                found.append(said)
    if torn:
        listed = ", ".join(f"segment {each.segment} byte {each.byte} ({each.length} bytes)" for each in torn[:5])
        found.append(
            Found("journal_torn", "error", JOURNAL, f"{len(torn)} lines cannot be read; their requests count as unknown: {listed}")
        )
    if missing:
        found.append(_gap(f"{missing} records are missing before number {last} in segment {after.segment}"))
    if strange:
        found.append(Found("journal_strange", "error", JOURNAL, f"{len(strange)} records of unknown form: {'; '.join(strange[:3])}"[:1000]))
    # One finding of a code and subject per look, however many records say so: the last one's words.
    return _Batch(tuple(events), after, last, tuple({(each.code, each.subject): each for each in found}.values()))


def _gap(words: str) -> Found:
    return Found("journal_gap", "error", JOURNAL, words)


def _made_anew(folder: Path, there: list[int], row: JournalRow) -> str:
    """Why this is not the journal of the row; empty: it is."""
    if there[-1] < row.segment:
        return f"the journal ends with segment {there[-1]}, it had been read to segment {row.segment}"
    if row.segment not in there:
        return ""
    head = next(journal_read.scan_segment(folder, row.segment, final=True), None)
    if isinstance(head, Record) and head.fields.get("event") == "segment" and head.fields.get("journal") != row.identity:
        return f"segment {row.segment} belongs to another journal"
    return ""


def _decoded(entry: Record, strange: list[str]) -> Event | None:
    try:
        return decode(entry.fields)
    except ValueError as error:
        strange.append(f"number {entry.seq}: {error}")
        return None
