"""Tells a person what must not wait: looks at the ledger, writes down what is to be told, and tells it over each channel.

Owns when to look and how often to try.  What is told is core/notices.py; a channel that fails becomes a finding (``notify_failed``) and
holds nothing else up, not even the other channel.  Each event is told once, across lives of the daemon: it is written down before it is
sent and marked after, so one that was being sent at a kill -9 is told again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import structlog

from marathond.core.notices import Notice, Quiet, Seen, quiet_after, to_tell
from marathond.core.text import iso_utc
from marathond.flow.world import Wake
from marathond.ledger.verbs import findings, notices, settings
from marathond.ledger.verbs.notices import Marks
from marathond.ports.clock import Clock
from marathond.ports.ledger import Ledger
from marathond.service.channels import Answer, Channel

log = structlog.get_logger("marathond.notices")

LOOK_S = 10.0
PAUSES_S = (2.0, 10.0, 60.0, 300.0)
"""Between tries; after the last one a notice is given up for that channel."""
REST_S = 60.0
"""Longest sleep of a channel that has nothing to tell."""
QUIET = "quiet"
"""The observation that keeps how long each arm has been without a score."""
FORMAT = 1


def message_of(notice: Notice, *, campaign: str, ledger_id: str, now_ms: int) -> dict[str, Any]:
    """What a channel gets: one flat JSON object."""
    return {
        "v": FORMAT,
        "kind": notice.kind,
        "title": notice.title,
        "detail": notice.detail,
        "campaign": campaign,
        "host": socket.gethostname(),
        "ledger": ledger_id,
        "key": notice.key,
        "at": iso_utc(now_ms),
        "text": f"marathond on {socket.gethostname()}: {notice.title}" + (f" ({notice.detail})" if notice.detail else ""),
    }


@dataclass(frozen=True, slots=True)
class About:
    """Which campaign of which ledger."""

    campaign_id: int
    campaign: str
    ledger_id: str


class Herald:
    """One per daemon life; :meth:`run` beside everything else."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        about: About,
        channels: Sequence[Channel],
        *,
        no_score_hours: float,
        look_s: float = LOOK_S,
        pauses_s: Sequence[float] = PAUSES_S,
    ) -> None:
        self.ledger, self.clock, self.about, self.channels = ledger, clock, about, channels
        self._no_score_ms = int(no_score_hours * 3_600_000)
        self._look_s, self._pauses_s = look_s, pauses_s
        self._marks: Marks | None = None
        self._looked_mono_ms = 0
        self._quiet: dict[int, Quiet] = {}
        self._told: set[str] = set()
        self._bells = {channel.name: Wake() for channel in channels}
        self._sound: set[str] = set()
        """Whose finding ``notices_failed`` is known to be closed; of an earlier life nothing is known."""

    async def run(self) -> None:
        """For ever."""
        async with anyio.create_task_group() as group:
            for channel in self.channels:
                group.start_soon(self._keep_telling, channel, name=f"notices by {channel.name}")
            while True:
                await self._guarded("notices", self.look)
                await anyio.sleep(self._look_s)

    async def look(self) -> list[Notice]:
        """What is new is written down; returned, too."""
        now_ms, mono_ms = self.clock.wall_ms(), self.clock.mono_ms()
        if self._marks is None:
            await self._remember(mono_ms)
        assert self._marks is not None
        marks = await self.ledger.read(notices.newest)
        await self._listen(mono_ms)
        seen = Seen(
            self.about.campaign_id,
            self.about.campaign,
            await self.ledger.read(notices.findings_seen, self._marks.finding_id),
            await self.ledger.read(notices.stops_seen, self._marks.stop_id),
            await self.ledger.read(notices.progress, self.about.campaign_id),
            tuple(self._quiet.values()),
        )
        wanted = to_tell(seen, self._told, no_score_ms=self._no_score_ms)
        if wanted:
            self._told |= await self.ledger.read(notices.told, [notice.key for notice in wanted])
            wanted = [notice for notice in wanted if notice.key not in self._told]
        for notice in wanted:
            message = message_of(notice, campaign=self.about.campaign, ledger_id=self.about.ledger_id, now_ms=now_ms)
            await self.ledger.write(notices.intend, notice, message, channels=list(self._bells), now_ms=now_ms)
            self._told.add(notice.key)
            log.warning("notice", kind=notice.kind, title=notice.title, detail=notice.detail)
        self._marks = marks
        if wanted:
            for bell in self._bells.values():
                bell.ring()
        return wanted

    async def _remember(self, mono_ms: int) -> None:
        """What an earlier life knew: the clock of an arm's silence goes on where that one stopped."""
        said = (await self.ledger.read(settings.observations)).get(QUIET)
        known = said.value if said is not None and isinstance(said.value, dict) else {}
        marks = await self.ledger.read(notices.newest)
        if known.get("campaign_id") == self.about.campaign_id:
            marks = Marks(marks.finding_id, marks.stop_id, int(known["score_id"]))
            self._quiet = {row["arm_id"]: Quiet(**row) for row in known["arms"]}
        self._marks, self._looked_mono_ms = marks, mono_ms

    async def _listen(self, mono_ms: int) -> None:
        """Count on how long each arm has been quiet."""
        assert self._marks is not None
        arms, running, scored = await self.ledger.read(notices.arms_now, self.about.campaign_id, self._marks.score_id)
        passed_ms, self._looked_mono_ms = mono_ms - self._looked_mono_ms, mono_ms
        before, self._quiet = self._quiet, quiet_after(self._quiet, arms=arms, running=running, scored=scored, passed_ms=passed_ms)
        if self._quiet != before:
            rows = [{"arm_id": q.arm_id, "arm": q.arm, "score_id": q.score_id, "ms": q.ms} for q in self._quiet.values()]
            value = {
                "campaign_id": self.about.campaign_id,
                "score_id": max([self._marks.score_id, *scored.values()]),
                "arms": rows,
            }
            await self.ledger.write(settings.observe, QUIET, value, now_ms=self.clock.wall_ms())

    async def _keep_telling(self, channel: Channel) -> None:
        """What is not told yet, oldest first, also what an earlier life left."""
        while True:
            pause_s = await self._guarded(channel.name, lambda: self._tell_next(channel))
            if pause_s:
                await anyio.sleep(pause_s)
            elif pause_s is None:
                await self._bells[channel.name].wait(REST_S)

    async def _tell_next(self, channel: Channel) -> float | None:
        """One try.  Seconds until the next one; None: there is nothing to tell."""
        waiting = await self.ledger.read(notices.unsent, channel.name)
        if waiting is None:
            return None
        answer = await channel.tell(waiting.message)
        last = waiting.tries >= len(self._pauses_s)
        now_ms = self.clock.wall_ms()
        await self.ledger.write(notices.tried, waiting.notice_id, channel.name, ok=answer.ok, last=last, answer=answer.words, now_ms=now_ms)
        await self._judge(channel, answer, last=last, now_ms=now_ms)
        return 0.0 if answer.ok or last else self._pauses_s[waiting.tries]

    async def _judge(self, channel: Channel, answer: Answer, *, last: bool, now_ms: int) -> None:
        if answer.ok:
            log.info("told", channel=channel.name, answer=answer.words)
            await self.ledger.write(findings.close_finding, code="notify_failed", subject=channel.name, now_ms=now_ms)
            return
        log.error("notify_failed", channel=channel.name, answer=answer.words, gave_up=last)
        await self.ledger.write(
            findings.raise_finding,
            code="notify_failed",
            severity="error",
            subject=channel.name,
            detail=f"{answer.words}{'; given up for this message' if last else ''}",
            campaign_id=self.about.campaign_id,
            now_ms=now_ms,
        )

    async def _guarded(self, subject: str, work: Callable[[], Any]) -> Any:
        """Whatever goes wrong here, trials go on; that nobody is told is named where a person looks (fault e04), until it is over."""
        try:
            done = await work()
            if subject not in self._sound:
                await self.ledger.write(findings.close_finding, code="notices_failed", subject=subject, now_ms=self.clock.wall_ms())
                self._sound.add(subject)
        except Exception as bug:
            log.error("notices_failed", subject=subject, error=str(bug), exc_info=bug)
            await self._name(subject, bug)
            return None
        return done

    async def _name(self, subject: str, bug: Exception) -> None:
        self._sound.discard(subject)
        try:
            await self.ledger.write(
                findings.raise_finding,
                code="notices_failed",
                severity="error",
                subject=subject,
                detail=f"nobody is told while this lasts: {type(bug).__name__}: {bug}",
                campaign_id=self.about.campaign_id,
                now_ms=self.clock.wall_ms(),
            )
        except Exception as second:
            # The ledger itself says no: whoever else writes to it ends by that, and says so.
            log.error("notices_failed_unnamed", subject=subject, error=str(second), exc_info=second)
