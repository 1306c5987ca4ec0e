"""What the server hands out, each made at most so often: the first screen, trials, samples, readiness.

Owns the caches and the threads behind them.  One thread reads the ledger for all; trials, whose logs may lie on a file system that hangs,
have another.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial

from marathond.core.errors import MarathonError
from marathond.core.text import clean
from marathond.service.page import health, render, trial
from marathond.service.page.health import Health
from marathond.service.page.keeper import Kept, Worker
from marathond.service.page.metrics import exposition
from marathond.service.page.place import Place, now_ms
from marathond.service.page.render import Screen
from marathond.service.picture.board import Board, gather_board
from marathond.service.picture.reader import reading

TRIALS_KEPT = 32
PAST = 12
"""Earlier versions of a screen against which changes can be told; who has an older one gets all parts."""


class Screens:
    """One screen over time."""

    def __init__(self, kept: Kept[Screen]) -> None:
        self.kept = kept
        self._past: deque[Screen] = deque(maxlen=PAST)

    async def get(self) -> Screen:
        screen = await self.kept.get()
        if not self._past or self._past[-1].version != screen.version:
            self._past.append(screen)
        return screen

    def changed(self, screen: Screen, version: str) -> dict[str, str]:
        """Its parts that differ from what a browser has that was given ``version``."""
        had = next((past.hashes for past in self._past if past.version == version), {})
        return {name: html for name, html in screen.parts.items() if had.get(name) != screen.hashes[name]}


class Sources:
    def __init__(self, place: Place) -> None:
        self.place = place
        self._ledger, self._files = Worker("page-ledger"), Worker("page-files")
        self._ledger.put(render.warm)
        self._last: Board | None = None
        self._grid = ""
        self.board = Screens(Kept(self._ledger, self._board))
        self.metrics: Kept[bytes] = Kept(self._ledger, partial(exposition, place))
        self.ready: Kept[Health] = Kept(self._ledger, partial(health.ready, place))
        self.live: Kept[Health] = Kept(self._ledger, partial(health.live, place))
        self._trials: OrderedDict[int, Screens] = OrderedDict()

    def trial(self, trial_id: int) -> Screens:
        """:raises CallFailed: from its ``get``, there is no such trial."""
        found = self._trials.get(trial_id)
        if found is None:
            found = self._trials[trial_id] = Screens(Kept(self._files, partial(self._trial, trial_id)))
            while len(self._trials) > TRIALS_KEPT:
                self._trials.popitem(last=False)
        self._trials.move_to_end(trial_id)
        return found

    def close(self) -> None:
        self._ledger.close()
        self._files.close()

    def _board(self) -> Screen:
        """In a thread.  A ledger that cannot be read leaves the last picture, marked."""
        now = now_ms()
        try:
            with reading(self.place.ledger) as c:
                campaign = self.place.shown_campaign(c)
                picture = gather_board(c, campaign, self.place.control_socket, now, self.place.gateway)
        except MarathonError as error:
            if self._last is None:
                return render.problem("cannot see", clean(error), now, "")
            return render.board(self._last, now, clean(error))
        grid = self._grid if self._last is not None and self._last.grid == picture.grid else None
        screen = render.board(picture, now, grid=grid)
        self._last, self._grid = picture, screen.parts["grid"]
        return screen

    def _trial(self, trial_id: int) -> Screen:
        return render.trial(trial.look(self.place, trial_id))
