"""Which ledger a page shows, and what its server knows of the daemon that began it, if one did."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Place:
    """``campaign`` None: the newest.  ``beat_s``: asks when the daemon's loop was last heard of, by ``time.monotonic``.

    ``beat_s`` None: no daemon began this process, and what is known of one is the ledger's word.
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


def to_data(place: Place) -> dict[str, str | None]:
    """For another process; without its beat."""
    paths = {"ledger": place.ledger, "state_dir": place.state_dir, "control_socket": place.control_socket}
    return {**{key: str(path) for key, path in paths.items()}, "campaign": place.campaign}


def from_data(data: dict[str, str | None]) -> Place:
    """Of :func:`to_data`'s."""
    ledger, state_dir, control_socket = (Path(data[key] or "") for key in ("ledger", "state_dir", "control_socket"))
    return Place(ledger, state_dir, control_socket, data["campaign"])


def now_ms() -> int:
    """Wall clock."""
    return time.time_ns() // 1_000_000
