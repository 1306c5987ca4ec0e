"""Which ledger a page shows, and what its server knows of the daemon it lives in, if any."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """``campaign`` None: the newest.  ``beat_s``: asks the daemon in this process when its loop was last seen going round.

    ``beat_s`` None: there is no daemon in this process, and what is known of one is the ledger's word.
    """

    ledger: Path
    state_dir: Path
    control_socket: Path
    campaign: str | None = None
    beat_s: Callable[[], float | None] | None = None

    @property
    def gateway(self) -> Path:
        return self.state_dir / "gateway"

    def shown_campaign(self, c: sqlite3.Connection) -> str | None:
        """The campaign's name; None, the newest there is, while the daemon has not entered its own yet."""
        there = c.execute("SELECT 1 FROM campaign WHERE name = ?", (self.campaign,)).fetchone()
        return self.campaign if there is not None else None


def now_ms() -> int:
    """Wall clock."""
    return time.time_ns() // 1_000_000
