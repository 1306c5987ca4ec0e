"""Who is killed when: the daemon, the gateway and the private dockerd, at seeded random moments, and what each kill met.

Owns schedule and record of the kills.  Each victim is a child that this process has not collected yet, so that its pid is nobody else's.  A
process that is gone before we killed it is remembered: nothing here may end by itself.  Must not know what the count makes of it.
"""

from __future__ import annotations

import json
import random
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import anyio
from anyio import to_thread

from tests.support.model_rig import ModelProcessRig
from tests.support.private_engine import PrivateEngine
from tests.support.process_rig import START_S
from tests.support.rig import PATIENCE_S

DAEMON, GATEWAY, DOCKERD = "daemon", "gateway", "dockerd"
RUNNING, STARTING = "agent running", "agent starting"
YOUNG_SHARE, YOUNG_S = 0.15, (0.05, 4.0)
"""So many lives are ended before they are this old: in start-up, recovery, the first admissions."""
LIFE_S = (10.0, 75.0)
AWAY_S = ((0.0, 0.5), (0.5, 6.0))
"""One or the other, by a coin."""
DOCKERD_LIFE_S, DOCKERD_AWAY_S, DOCKERD_PATIENCE_S = (0.0, 12.0), (0.1, 4.0), 90.0
_LIVE = """
SELECT t.trial_id, t.state, a.trial_id IS NOT NULL AND a.ended_at_ms IS NULL,
    EXISTS (SELECT 1 FROM trial_fact f WHERE f.trial_id = t.trial_id AND f.name = 'agent session')
        OR EXISTS (SELECT 1 FROM agent_event e WHERE e.trial_id = t.trial_id AND e.kind = 'server')
FROM trial t JOIN claim c USING (claim_id) LEFT JOIN trial_agent a ON a.trial_id = t.trial_id WHERE c.released_at_ms IS NULL"""


@dataclass(frozen=True)
class Kill:
    """``at_s`` since the soak began; ``phases``: live trials by what they were at; ``running``: agents that had begun and not ended."""

    victim: str
    at_s: float
    at_ms: int
    away_s: float
    phases: dict[str, int]
    running: tuple[int, ...]
    starting: tuple[int, ...]
    """Begun by the ledger, and nobody has written down yet that they were seen."""
    ready: bool
    """Whether the daemon's life had come as far as its first admission; true of others."""


@dataclass
class Chaos:
    """``low_water``: with fewer open cells than this the next daemon finds one more replicate."""

    rig: ModelProcessRig
    engine: PrivateEngine
    seed: int
    low_water: int
    say: Callable[[str], None]
    kills: list[Kill] = field(default_factory=list)
    by_themselves: list[str] = field(default_factory=list)
    replicates: int = 1
    began_s: float = field(default_factory=time.monotonic)

    async def strike(self, minutes: float) -> None:
        """Kill daemon and gateway for so long, independently of each other; both run afterwards."""
        until_s = time.monotonic() + 60 * minutes
        async with anyio.create_task_group() as group:
            group.start_soon(self._daemon, until_s)
            group.start_soon(self._gateway, until_s)

    async def strike_running(self, times: int, agents: int) -> None:
        """Kill daemon and gateway so often, one after the other, each pair once so many agents run; however slow the machine is.

        Nothing more is killed when the campaign is over before.
        """
        chance = random.Random(f"{self.seed}:pairs")
        for _ in range(times):
            if not await self._running(agents):
                return
            for strike, bring in ((self._kill_daemon, self._next), (self._kill_gateway, self.rig.gateway.start)):
                away_s = chance.uniform(*AWAY_S[0])
                await strike(away_s)
                await anyio.sleep(away_s)
                bring()
            await self.lives()
            await self.rig.gateway.serving()

    async def _running(self, agents: int) -> bool:
        """Wait until so many agents run, fewer when not as many cells are left; False: none will."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                left = self._rows("SELECT count(*) FROM cell_state WHERE state IN ('open', 'claimed')")[0][0]
                if not left:
                    return False
                if sum(_phase(*row[1:]) == RUNNING for row in self._rows(_LIVE)) >= min(agents, left):
                    return True
                await anyio.sleep(0.1)

    async def _daemon(self, until_s: float) -> None:
        chance = random.Random(f"{self.seed}:{DAEMON}")
        async for away_s in self._moments(chance, until_s):
            await self._kill_daemon(away_s)
            await anyio.sleep(away_s)
            self._next()

    async def _gateway(self, until_s: float) -> None:
        chance = random.Random(f"{self.seed}:{GATEWAY}")
        async for away_s in self._moments(chance, until_s):
            await self._kill_gateway(away_s)
            await anyio.sleep(away_s)
            self.rig.gateway.start()

    async def _kill_daemon(self, away_s: float) -> None:
        process = self.rig.process
        assert process is not None
        if process.poll() is not None:
            self.by_themselves.append(f"daemon, with {process.returncode}")
        await self.rig.kill()
        self._record(DAEMON, away_s)

    async def _kill_gateway(self, away_s: float) -> None:
        status = await self.rig.gateway.end(signal.SIGKILL)
        if status != -signal.SIGKILL:
            self.by_themselves.append(f"gateway, with {status}")
        self._record(GATEWAY, away_s)

    async def _moments(self, chance: random.Random, until_s: float) -> AsyncIterator[float]:
        """How long to stay away, each time that a life is to end."""
        while True:
            young, coin = chance.random() < YOUNG_SHARE, chance.randrange(2)
            life_s = chance.uniform(*YOUNG_S) if young else chance.uniform(*LIFE_S)
            away_s = chance.uniform(*AWAY_S[coin])
            if time.monotonic() + life_s > until_s:
                return
            await anyio.sleep(life_s)
            yield away_s

    def launch(self) -> None:
        """A daemon; its life is not waited for."""
        with (self.rig.root / "log").open("ab") as log:
            self.rig.process = self.rig.popen(stdout=log, stderr=log, process_group=0)

    def _next(self) -> None:
        self._grow()
        self.launch()

    async def lives(self) -> None:
        """Until the last daemon that was launched is ready: one that has not come as far knows no orderly end."""
        assert self.rig.process is not None
        sql = "SELECT pid = ? AND ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1"
        await self.rig.until(sql, self.rig.process.pid, patience_s=START_S)

    async def restart(self) -> float:
        """SIGTERM, as an upgrade does, and the next daemon; how many seconds the old one took."""
        await self.lives()
        self.rig.strike(signal.SIGTERM)
        began_s = time.monotonic()
        status = await self.rig.ended()
        took_s = time.monotonic() - began_s
        if status != 0:
            self.by_themselves.append(f"daemon, at SIGTERM, with {status}")
        self._next()
        return took_s

    async def strike_dockerd(self, times: int, agents: int, *, at_once: bool = False) -> None:
        """Kill dockerd so often, at a random moment after so many agents run; its containers go on (live-restore).

        :param at_once: not at a random moment, but as soon as they run.
        """
        chance = random.Random(f"{self.seed}:{DOCKERD}")
        for _ in range(times):
            # What the last kill brought about may keep admission closed for longer than is worth waiting for.
            with anyio.move_on_after(DOCKERD_PATIENCE_S):
                await self._running(agents)
            await anyio.sleep(0 if at_once else chance.uniform(*DOCKERD_LIFE_S))
            away_s = chance.uniform(*DOCKERD_AWAY_S)
            self._record(DOCKERD, away_s)  # the daemon goes on: what it met is read before
            await to_thread.run_sync(self.engine.kill)
            await anyio.sleep(away_s)
            await to_thread.run_sync(self.engine.start)

    def _record(self, victim: str, away_s: float) -> None:
        """What the kill met.  A killed daemon writes no more: what is read then is what its end met."""
        phases: Counter[str] = Counter()
        running: dict[str, list[int]] = {RUNNING: [], STARTING: []}
        for trial_id, state, has_agent, seen in self._rows(_LIVE):
            phase = _phase(state, has_agent, seen)
            running.get(phase, []).append(trial_id)
            phases[phase] += 1
        ready = victim != DAEMON or bool(self._rows("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")[0][0])
        at_s = time.monotonic() - self.began_s
        agents = (tuple(running[RUNNING]), tuple(running[STARTING]))
        kill = Kill(victim, round(at_s, 3), time.time_ns() // 1_000_000, round(away_s, 3), dict(phases), *agents, ready)
        self.kills.append(kill)
        with (self.rig.root / "kills.jsonl").open("a") as file:
            file.write(json.dumps(asdict(kill)) + "\n")
        met = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "no trial"
        self.say(f"{at_s:6.0f} s  kill -9 {victim}, away {away_s:.1f} s; met {met}")

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        for _ in range(5):
            with suppress(sqlite3.OperationalError):  # a ledger whose last writer was killed is locked while the next one recovers its WAL
                return self.rig.sql(query)
            time.sleep(0.1)
        return self.rig.sql(query)

    def _grow(self) -> None:
        """While no daemon lives: one more replicate when few cells are left, so that the campaign lasts as long as the soak."""
        if self._rows("SELECT count(*) FROM cell_state WHERE state = 'open'")[0][0] >= self.low_water:
            return
        self.replicates += 1
        path = Path(self.rig.config)
        path.write_text(re.sub(r"^replicates = \d+$", f"replicates = {self.replicates}", path.read_text(), flags=re.MULTILINE))


def _phase(state: str, has_agent: int, seen: int) -> str:
    """A trial's state; of a running one whether its agent begins, runs or ends; of one at rest, teardown."""
    if state == "running":
        return (RUNNING if seen else STARTING) if has_agent else "agent ending"
    return state if state in ("reserved", "preparing", "verifying") else "teardown"


def met(kills: list[Kill]) -> Iterator[tuple[str, int, Counter[str]]]:
    """Of each victim: how often it was killed, and trials met by phase."""
    for victim in (DAEMON, GATEWAY, DOCKERD):
        mine = [kill for kill in kills if kill.victim == victim]
        phases: Counter[str] = Counter()
        for kill in mine:
            phases.update(kill.phases)
        yield victim, len(mine), phases
