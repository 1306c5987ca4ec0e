"""A ledger in memory or on disk, and the shortest way to bring a trial into each state.  No test of its own."""

from __future__ import annotations

import functools
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from marathond.core.model import Unrunnable
from marathond.ledger.connect import connect_memory
from marathond.ledger.migrate import migrate
from marathond.ledger.open import create
from marathond.ledger.verbs import admission, campaigns, networks, runs, trials
from marathond.ledger.verbs.admission import Admitted
from marathond.ledger.verbs.campaigns import ArmRow, Submission, TaskRow
from marathond.ledger.verbs.trials import ScoreRow

ENGINE = "main"
LEDGER_ID = "0123456789ab"
T0 = 1_790_000_000_000
"""2026-09-21T14:13:20Z."""

STATES = ("reserved", "preparing", "running", "verifying", "scored", "review", "voided")

_tokens = itertools.count(1)


def task(
    name: str, *, digest: str | None = "d1", network: bool = True, limit_ms: int | None = 600_000, why: Unrunnable | None = None
) -> TaskRow:
    return TaskRow(name, f"/tasks/{name}", digest, digest and f"c-{digest}", limit_ms, 1.0, 512, network, "{}", why)


def arm(name: str, treatment_hash: str = "h1") -> ArmRow:
    return ArmRow(name, "command", treatment_hash, '{"argv":["true"]}')


def submission(
    *,
    name: str = "x",
    arms: Sequence[ArmRow] = (arm("plain"), arm("goal")),
    tasks: Sequence[TaskRow] = (task("zstd"), task("rust", network=False)),
    replicates: int = 1,
    treatment_hash: str = "t1",
    order: str = "replicate-major",
    seed: int = 7,
    out_dir: str = "/out",
) -> Submission:
    return Submission(name, "ana", treatment_hash, "{}", "{}", out_dir, seed, order, replicates, tuple(arms), tuple(tasks))


def begin(c: sqlite3.Connection, now_ms: int = T0) -> int:
    return runs.begin_run(c, pid=4121, pid_start_ticks=99, host="build7", boot_id="boot-1", version="0.1.0", now_ms=now_ms)


def fill(c: sqlite3.Connection, wanted: Submission | None = None, *, cap: int = 64) -> int:
    """A run, a pool and a campaign; returns the campaign's id."""
    begin(c)
    networks.set_pool(c, ENGINE, mode="explicit", range="198.19.0.0/16", prefix=28, cap=cap, margin=0)
    return campaigns.submit(c, wanted or submission(), now_ms=T0).campaign_id


@functools.cache
def _migrated() -> sqlite3.Connection:
    """What the migrations make, made once: they cost more than all that a test then does with its ledger."""
    c = connect_memory()
    migrate(c, None)
    return c


def memory_ledger() -> sqlite3.Connection:
    c = connect_memory()
    _migrated().backup(c)
    return c


def file_ledger(path: Path, *, host: str, now_ms: int) -> str:
    """As ``create`` makes it; only the migrations' result is copied.  Its id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("marathond.ledger.open.migrate", lambda conn, _: _migrated().backup(conn))
        return create(path, host=host, now_ms=now_ms)


def cell(c: sqlite3.Connection, task_name: str = "zstd", arm_name: str = "plain", replicate: int = 1) -> int:
    sql = """SELECT cell_id FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id)
             WHERE task.name = ? AND arm.name = ? AND replicate = ?"""
    return int(c.execute(sql, (task_name, arm_name, replicate)).fetchone()[0])


def subnet(n: int) -> str:
    return f"198.19.{n // 16}.{n % 16 * 16}/28"


def admit(c: sqlite3.Connection, cell_id: int, *, now_ms: int = T0, subnet_n: int | None = None, token: str | None = None) -> Admitted:
    needs = bool(c.execute("SELECT needs_network FROM cell JOIN task USING (task_id) WHERE cell_id = ?", (cell_id,)).fetchone()[0])
    number = next(_tokens)
    return admission.admit(
        c,
        cell_id=cell_id,
        token=token or f"token-{number}",
        engine=ENGINE,
        subnet=subnet(number % 4096 if subnet_n is None else subnet_n) if needs else None,
        needs_network=needs,
        ledger_id=LEDGER_ID,
        now_ms=now_ms,
    )


def intend(c: sqlite3.Connection, admitted: Admitted, *, now_ms: int = T0) -> None:
    trials.container_intended(
        c, admitted.trial_id, engine=ENGINE, name=admitted.container_name, image_id="sha256:i", context_digest="c-d1", now_ms=now_ms
    )


def prepare(c: sqlite3.Connection, admitted: Admitted, *, now_ms: int = T0) -> None:
    if admitted.lease_id is not None:
        networks.network_created(c, admitted.lease_id, network_id=f"net-{admitted.trial_id}")
    intend(c, admitted, now_ms=now_ms)
    trials.container_created(c, admitted.trial_id, docker_id=f"id-{admitted.trial_id}")
    trials.environment_up(c, admitted.trial_id, started_at="2026-09-21T14:13:21.5Z", detail={}, now_ms=now_ms)


def start_agent(c: sqlite3.Connection, trial_id: int, *, now_ms: int = T0, limit_ms: int | None = 600_000) -> None:
    trials.agent_started(
        c,
        trial_id,
        exec_id="e1",
        started_mono_ms=1_000,
        boot_id="boot-1",
        limit_ms=limit_ms,
        limit_origin="task 600 x 1.0",
        limit_loser="",
        now_ms=now_ms,
    )


def end_agent(c: sqlite3.Connection, trial_id: int, *, ended_by: str = "agent", exit_code: int | None = None, now_ms: int = T0) -> None:
    trials.agent_ended(
        c,
        trial_id,
        ended_by=ended_by,
        exit_code=exit_code if exit_code is not None else 0 if ended_by == "agent" else 137,
        exit_source="exec",
        oom_killed=False,
        overrun_ms=None,
        processes=[],
        ended_mono_ms=61_000,
        now_ms=now_ms,
    )


def start_verifier(c: sqlite3.Connection, trial_id: int, *, round: int = 1, now_ms: int = T0) -> None:
    trials.verification_started(
        c,
        trial_id,
        round=round,
        exec_id="v1",
        started_mono_ms=62_000,
        boot_id="boot-1",
        limit_ms=60_000,
        limit_origin="task 60 x 1.0",
        now_ms=now_ms,
    )


def good_score(reward: float = 1.0, partial: float | None = 0.5) -> ScoreRow:
    return ScoreRow(1, reward, "reward.txt", partial, 3, 4, (), [("partial", "0.5", "metrics.json partial_score")])


def daemon_void(
    c: sqlite3.Connection, trial_id: int, *, code: str = "engine_failed", passes: int = 3, counts: bool = True, now_ms: int = T0
) -> bool:
    return trials.void_by_daemon(
        c, trial_id, code=code, reason="it broke", evidence={"status": 500}, counts_pass=counts, passes=passes, now_ms=now_ms
    )


def bring_to(
    c: sqlite3.Connection,
    cell_id: int,
    state: str,
    *,
    now_ms: int = T0,
    reward: float = 1.0,
    ended_by: str = "agent",
    score: ScoreRow | None = None,
) -> Admitted:
    """A new trial of the cell in the wanted state; claim, container and lease are still held.  ``score`` in place of an ordinary one."""
    admitted = admit(c, cell_id, now_ms=now_ms)
    if state == "reserved":
        return admitted
    if state == "voided":
        daemon_void(c, admitted.trial_id, now_ms=now_ms)
        return admitted
    prepare(c, admitted, now_ms=now_ms)
    if state == "preparing":
        return admitted
    start_agent(c, admitted.trial_id, now_ms=now_ms)
    if state == "running":
        return admitted
    end_agent(c, admitted.trial_id, ended_by=ended_by, now_ms=now_ms)
    start_verifier(c, admitted.trial_id, now_ms=now_ms)
    if state == "verifying":
        return admitted
    trials.verification_ended(c, admitted.trial_id, 1, outcome="exited", exit_code=0, now_ms=now_ms)
    if state == "scored":
        trials.scored(c, admitted.trial_id, score or good_score(reward), now_ms=now_ms)
    elif state == "review":
        trials.doubted(c, admitted.trial_id, code="unreadable", detail="no reward file", evidence={"seen": []}, now_ms=now_ms)
    else:
        raise ValueError(state)
    return admitted


def let_go(c: sqlite3.Connection, admitted: Admitted, *, now_ms: int = T0) -> None:
    """Container gone, network gone, claim released."""
    trials.container_gone(c, admitted.trial_id, now_ms=now_ms)
    if admitted.lease_id is not None:
        networks.release_lease(c, admitted.lease_id, because="seen_gone", now_ms=now_ms)
    trials.release_claim(c, admitted.trial_id, now_ms=now_ms)
