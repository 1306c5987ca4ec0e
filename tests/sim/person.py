"""A person at the control socket: random commands through the daemon's own handlers.

Owns which command comes when.  Refusals are ordinary; only what the ledger then holds is judged (invariants.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from marathond.core.errors import MarathonError
from marathond.service.peers import Peer
from tests.sim.switch import Killed
from tests.sim.tracing import LIFE

if TYPE_CHECKING:
    from tests.sim.lives import DaemonLife
    from tests.sim.run import Sim

ANA = Peer(77, 1000, 1000, "ana")
PATIENCE_S = 30.0
Wish = tuple[str, dict[str, Any]]


class Operator:
    def __init__(self, sim: Sim) -> None:
        self.sim, self.rng = sim, random.Random(f"{sim.seed}:operator")
        self.pause_s = self.rng.choice((8.0, 15.0, 40.0))
        self.quiet = False
        """Set for the second phase."""

    async def run(self) -> None:
        wishes: list[Callable[[], Wish | None]] = [
            self._void,
            self._void,
            self._unvoid,
            self._unvoid,
            self._review,
            self._review,
            self._retry,
            self._pause,
            self._resume,
            self._resume,
            self._set,
            self._ack,
            self._unpark,
        ]
        while not self.quiet:
            await trio.sleep(self.rng.expovariate(1 / self.pause_s))
            wish = self.rng.choice(wishes)()
            life = self.sim.newest
            if wish is None or life is None or self.quiet or not await self.ask(life, *wish):
                continue
            if wish[0] == "pause":  # or nothing else would happen in the seed
                await trio.sleep(self.rng.uniform(2.0, 15.0))
                newest = self.sim.newest
                if newest is not None:
                    await self.ask(newest, *self._resume())

    async def ask(self, life: DaemonLife, verb: str, given: dict[str, Any]) -> bool:
        """One request on the socket of that life; False: it did not answer, or refused."""
        if life.commands is None or life.switch.frozen or life.over.is_set():
            return False
        token = LIFE.set(life.number)
        try:
            with trio.move_on_after(PATIENCE_S):
                await life.commands.handle(ANA, verb, given)
                self.sim.count(f"command {verb}")
                return True
        except MarathonError as error:
            self.sim.trace.add(f"refused {verb}: {type(error).__name__}")
        except Killed:
            self.sim.trace.add(f"unanswered {verb}")
        finally:
            LIFE.reset(token)
        return False

    def _trial(self, *states: str) -> int | None:
        marks = ",".join("?" * len(states))
        rows = self.sim.conn.execute(f"SELECT trial_id FROM trial WHERE state IN ({marks}) ORDER BY trial_id", states).fetchall()
        return self.rng.choice(rows)[0] if rows else None

    def _void(self) -> Wish | None:
        trial = self._trial("reserved", "preparing", "running", "verifying", "scored", "review")
        code = self.rng.choice(("operator", "provider"))
        return None if trial is None else ("void", {"trials": [trial], "reason": "by hand", "code": code, "pair": self.rng.random() < 0.2})

    def _unvoid(self) -> Wish | None:
        row = self.sim.conn.execute(
            """SELECT trial_id FROM void WHERE undone_at_ms IS NULL AND from_state IN ('scored', 'review') ORDER BY void_id DESC LIMIT 1"""
        ).fetchone()
        return row and ("unvoid", {"trial": row[0], "reason": "after all"})

    def _review(self) -> Wish | None:
        trial = self._trial("review")
        if trial is None:
            return None
        given: dict[str, Any] = {"trial": trial, "reason": "looked at it"}
        if self.rng.random() < 0.6:
            given |= {"accept": True} | ({"reward": 0.5} if self.rng.random() < 0.6 else {})
        return "review", given

    def _retry(self) -> Wish | None:
        row = self.sim.conn.execute("SELECT cell_id FROM park WHERE ended_at_ms IS NULL ORDER BY park_id LIMIT 1").fetchone()
        return row and ("retry", {"cell": row[0], "reason": "again"})

    def _unpark(self) -> Wish | None:
        return "unpark", {"all": True, "reason": "mended"}

    def _pause(self) -> Wish | None:
        return "pause", {"reason": "lunch"}

    def _resume(self) -> Wish:
        return "resume", {"reason": "back"}

    def _set(self) -> Wish | None:
        key, values = self.rng.choice(
            (
                ("network.cap", ("1", "3", "6", "default")),
                ("admission.concurrency", ("1", "4", "8", "default")),
                ("admission.passes", ("1", "2", "3", "default")),
                ("admission.breaker_after", ("2", "4", "default")),
            )
        )
        return "set", {"key": key, "value": self.rng.choice(values), "reason": "tuning"}

    def _ack(self) -> Wish | None:
        row = self.sim.conn.execute("SELECT finding_id FROM finding WHERE closed_at_ms IS NULL ORDER BY finding_id LIMIT 1").fetchone()
        return row and ("ack", {"finding": row[0], "reason": "known"})
