"""What is made of what a codex run left: the receipt and the trajectory, from copies that no container reaches.

Owns which files of CODEX_HOME are worth keeping and the order of the work.  Must not know the ledger, nor what decides a trial.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from anyio import to_thread

from marathond.agents.codex import gates
from marathond.agents.codex.transcript import NAME as MESSAGES
from marathond.ports.agent import Finished, Keep, Receipt

SESSIONS, HOME = "sessions", "codex-home"
KEEPS: Sequence[Keep] = (
    Keep("home/sessions", SESSIONS, ("*.jsonl",), deep=True),
    Keep("home", HOME, ("config.toml", "*.sqlite", "*.sqlite-wal", "*.sqlite-shm")),
)


async def collect(run: Finished) -> Receipt | None:
    prepared = next((entry.detail for entry in await run.log.entries() if entry.kind == "prepared"), None)
    await to_thread.run_sync(_messages, run)
    if prepared is not None:
        after = await to_thread.run_sync(gates.config_hash, run.run_dir.home)
        await run.log.append("config", {"sha256": after, "same": after == prepared["config_sha256"]})
    return None


def _messages(run: Finished) -> None:
    """Beside the rest; the same bytes, not a copy."""
    with suppress(FileNotFoundError, FileExistsError):
        os.link(run.run_dir.root / MESSAGES, run.run_dir.kept / MESSAGES)
