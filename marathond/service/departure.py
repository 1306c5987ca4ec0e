"""The end of the daemon's process within seconds of the word, whatever hangs: Docker, a disk, the event loop itself (fault f08).

Owns the thread that leaves when the orderly end has not come in time, and its last words.  Must not know what hangs: everything that a
life leaves is in the ledger or carries our labels, so that leaving now is no worse than kill -9, and the next daemon goes on from there.

The thread exists from the beginning and is told by a pipe: a signal handler may run while the main thread holds any of Python's locks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import structlog

from marathond.core.errors import MarathonError
from marathond.ledger.connect import connect
from marathond.ledger.verbs import runs
from marathond.ledger.writer import check_epoch, in_transaction
from marathond.ports.clock import Clock

STOP_S = 5.0
"""The promise: from the word to the end of the process."""
TIDY_S = 2.0
"""For clean-up that must not be cut by a cancellation (ports/leaving.py)."""
CUT_S = 3.5
"""Then nothing is waited for any more."""
WORDS_S = 0.7
"""For the last words of a life that was cut; the rest of STOP_S is the machine's."""

log = structlog.get_logger("marathond")


class Departure:
    """``words``: what the end was asked for by (empty: something broke) and clauses for what is not done; called when it is too late for an
    orderly end.  A process that is cut has exit status 0 when it was asked to end.
    """

    def __init__(self, ledger: Path, run_id: int, clock: Clock, words: Callable[[], tuple[str, list[str]]]) -> None:
        self._ledger, self._run_id, self._clock, self._words = ledger, run_id, clock, words
        self._read, self._write = os.pipe()
        self._ended, self._status = False, 0
        threading.Thread(target=self._wait, name="departure", daemon=True).start()

    def begin(self) -> None:
        """From now on the process has CUT_S.  May be called often, by any thread and by a signal handler; takes no lock."""
        os.write(self._write, b"x")

    def ended(self) -> None:
        """The ledger holds the end of this life: only the process itself is still to end."""
        self._ended = True

    def _wait(self) -> None:
        os.read(self._read, 1)
        threading.Event().wait(CUT_S)
        try:
            # Words may hang like everything else (a pipe that nobody reads): they have a thread and a limit of their own.
            last = threading.Thread(target=self._last_words, name="last words", daemon=True)
            last.start()
            last.join(WORDS_S)
        finally:
            os._exit(self._status)

    def _last_words(self) -> None:
        if self._ended:
            return
        asked, undone = self._words()
        self._status = 0 if asked else 1
        undone = [*undone, f"waiting for it after {CUT_S:g} s"]
        try:
            said = self._part(asked or "ended by an error", undone)
        except MarathonError as error:  # the epoch is another's by now, or the ledger is busy: the next start sees a life without an end
            said = f"{asked}: {'; '.join(undone)} (not written down: {error})"
        log.error("left_at_once", after_s=CUT_S, said=said)

    def _part(self, asked: str, undone: list[str]) -> str:
        where = str(self._ledger)
        conn = connect(self._ledger, mode="rw", busy_ms=int(WORDS_S * 500))
        try:

            def work() -> str:
                check_epoch(conn, self._run_id, where)
                return runs.part(conn, asked=asked, undone=undone, now_ms=self._clock.wall_ms())

            return in_transaction(conn, "BEGIN IMMEDIATE", work, where)
        finally:
            conn.close()
