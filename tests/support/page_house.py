"""A house to be looked at in a browser: a campaign half done, healthy or in trouble, and the page's server on it.  No test of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from marathond.core.names import trial_label
from marathond.gateway import files
from marathond.ledger.verbs import admission, findings, parks
from marathond.ports.clock import SystemClock
from marathond.service.doctor.planted import ARMS, TASKS
from marathond.service.doctor.scratch import Scratch
from marathond.service.page.address import Address, Port, parse
from marathond.service.page.place import Place
from marathond.service.page.server import PageServer
from marathond.service.page.sources import Sources

ANYWHERE = Port("127.0.0.1", 0)
HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def place_of(scratch: Scratch, *, beat: Callable[[], float | None] | None = None) -> Place:
    return Place(scratch.path, scratch.folder, scratch.control_socket, scratch.campaign, beat)


@asynccontextmanager
async def served(place: Place, address: Address = ANYWHERE) -> AsyncIterator[str]:
    """The page's address, as a URL without a slash at its end where it is one."""
    sources = Sources(place)
    try:
        async with PageServer(sources, address).serving() as server:
            yield str(server.bound).rstrip("/")
    finally:
        sources.close()


@contextmanager
def half_done(*, replicates: int = 3) -> Iterator[Scratch]:
    """Two replicates scored, a third in every phase, two voids, one trial in review."""
    with Scratch(replicates=replicates) as scratch:
        scratch.clean(replicates=[1, 2])
        phases = ("running", "running", "verifying", "preparing", "voided", "running", "review", "scored")
        number = 0
        for task in TASKS[:3]:
            for arm in ARMS:
                scratch.trial(task=task, arm=arm, replicate=3, state=phases[number % len(phases)], void_code=None)
                number += 1
        scratch.observe("loop", {"p50_ms": 0.4, "p99_ms": 3.2, "max_ms": 11.0, "samples": 600, "window_s": 60})
        scratch.observe("waiting", [{"code": "CONCURRENCY", "count": 9, "text": "CONCURRENCY 12/12 (then NETPOOL at 64)"}])
        gateway(scratch)
        scratch.commit()
        yield scratch


def gateway(scratch: Scratch, *, ago_ms: int = 0) -> None:
    """Its sign of life, with a provider's budget."""
    clock = SystemClock()
    scratch.gateway.mkdir(exist_ok=True)
    told = {"boot_id": clock.boot_id, "mono_ms": clock.mono_ms() - ago_ms, "waiting": {"main": 2}, "streams": 7}
    files.write_json(scratch.gateway / "alive.json", {**told, "tokens_per_min": {"main": [410_000, 600_000]}})


def trouble(scratch: Scratch) -> None:
    """What makes it degraded: a stop-loss, an error, a leak, an engine that does not answer; a park; an acknowledged warning."""
    scratch.finding(
        "infra_disparity", "stop_loss", "heartbeat", "7 of 41 trials void by infrastructure against 2 of 43", ago_ms=40 * MINUTE_MS
    )
    scratch.finding("lease_leaked", "error", "t0007", "network mn-5c7a7c4e0000-t0007 has active endpoints", times=6, ago_ms=HOUR_MS)
    known = scratch.finding("clock_offset", "warning", str(scratch.out_dir), "the file system's clock is 4.1 s ahead")
    findings.ack(scratch.c, known, author="ana", reason="the storage's clock is known to be off", now_ms=scratch.now_ms)
    scratch.observe("engine", {"ok": False, "detail": "connect to /var/run/docker.sock: connection refused"})
    admission.open_stop(
        scratch.c,
        "stop_loss",
        detail="infrastructure fails heartbeat more often than the others",
        author="marathond",
        until_ms=None,
        now_ms=scratch.now_ms - 40 * MINUTE_MS,
    )
    cell = scratch.c.execute("SELECT cell_id FROM cell_state WHERE state = 'open' ORDER BY cell_id LIMIT 1").fetchone()[0]
    detail = "pull access denied for example/filesystem"
    parks.park_cell(scratch.c, cell, code="image_missing", detail=detail, author="marathond", now_ms=scratch.now_ms)
    scratch.commit()


def log_of(scratch: Scratch, trial_id: int, name: str, text: bytes | str) -> Path:
    """What its agent (``agent/output.txt``) or verifier (``verifier/test-stdout.txt``) wrote."""
    path = scratch.folder / "r" / trial_label(trial_id) / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def conversation(*messages: str) -> str:
    """Of a codex agent, as its driver keeps it."""
    items = [
        {
            "at_ms": 1,
            "way": "in",
            "message": {"method": "item/completed", "params": {"item": {"id": str(n), "type": "agentMessage", "text": text}}},
        }
        for n, text in enumerate(messages)
    ]
    return "".join(f"{json.dumps(item)}\n" for item in items)


__all__ = ["ANYWHERE", "conversation", "gateway", "half_done", "log_of", "parse", "place_of", "served", "trouble"]
