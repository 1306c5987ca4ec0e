"""The daemon is killed in its own process at the moments that matter; the next one finds what it left (faults b05, f02, f12)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerSpec
from tests.support.outcome import assert_nothing_left, runs_of
from tests.support.rig import CALL_TIMEOUT_S, PATIENCE_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

RUNS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs"]}


class Fatal(DockerEngine):
    """At call number ``at`` of ``call``: the engine carries it out (or not, with ``before``), and we never hear of it again.

    With ``before`` the later ones get no further either: what another trial does in its last moment is no part of the story.
    """

    def __init__(self, url: str, call: str, at: int = 1, *, before: bool = False) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.call, self.at, self.before = call, at, before
        self.seen, self.made, self.reached = 0, list[str](), anyio.Event()

    async def _stuck(self, result: str) -> None:
        self.made.append(result)
        self.reached.set()
        await anyio.sleep_forever()

    def _now(self, call: str) -> bool:
        self.seen += call == self.call
        return call == self.call and (self.seen >= self.at if self.before else self.seen == self.at)

    async def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool = False) -> str:
        made = await super().create_network(name, labels, subnet, internal=internal)
        if self._now("create_network"):
            await self._stuck(made)
        return made

    async def create_container(self, spec: ContainerSpec) -> str:
        made = await super().create_container(spec)
        if LABEL_TRIAL in spec.labels and self._now("create_container"):  # not the one that proves where our files are
            await self._stuck(made)
        return made

    async def start_created_exec(self, exec_id: str) -> None:
        now = self._now("start_created_exec")
        if now and self.before:
            await self._stuck(exec_id)
        await super().start_created_exec(exec_id)
        if now:
            await self._stuck(exec_id)


@asynccontextmanager
async def killed_at(docker_host: str, call: str, at: int = 1, *, before: bool = False, **options: Any) -> AsyncIterator[tuple[Rig, Fatal]]:
    """A campaign whose daemon died in that very call, and whose next daemon was not started yet."""
    engine = Fatal(docker_host, call, at, before=before)
    try:
        rig = Rig(docker_host, engine=engine, **options)
        async with rig:
            with anyio.fail_after(PATIENCE_S):
                await engine.reached.wait()
            await rig.kill()
            rig.engine_given = None
            yield rig, engine
    finally:
        await engine.aclose()


@pytest.mark.parametrize("call", ["create_network", "create_container"])
async def test_b05_what_was_made_and_not_recorded_is_found_by_label(docker_host: str, tmp_path: Path, call: str) -> None:
    tasks = [make_task(tmp_path, "t", network="public")]
    async with killed_at(docker_host, call, tasks=tasks, arms={"r": RUNS}) as (rig, engine):
        assert rig.one("SELECT docker_id FROM container") is None if call == "create_container" else not rig.sql("SELECT * FROM container")
        foreign_labels = {LABEL_LEDGER: "000000000000", LABEL_CLAIM: rig.one("SELECT token FROM claim")}
        foreign = await engine.create_network(f"not {rig.ledger_id}", foreign_labels, None)
        try:
            await rig.start()
            await rig.until_done()
            await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")
            assert await engine.inspect_network(foreign) is not None
        finally:
            await engine.remove_network(foreign)
        gone = await (engine.inspect_network if call == "create_network" else engine.inspect_container)(engine.made[0])
        assert gone is None
        assert rig.sql("SELECT code, counts_pass FROM void") == [("daemon_lost", 0)]
        assert rig.sql("SELECT attempt, state FROM trial ORDER BY trial_id") == [(1, "voided"), (2, "scored")]
        assert runs_of(rig) == [1]
        await assert_nothing_left(rig, engine)


async def test_f02_an_agent_that_was_created_and_never_started_costs_no_pass(docker_host: str, tmp_path: Path) -> None:
    """Six at once: a restart of ours is no series of failures, so the breaker stays out of it."""
    overrides = {"admission.passes": 1, "admission.breaker_after": 2, "admission.concurrency": 6}
    options: dict[str, Any] = {"tasks": [make_task(tmp_path, "t")], "arms": {"r": RUNS}, "replicates": 6, "overrides": overrides}
    async with killed_at(docker_host, "start_created_exec", before=True, **options) as (rig, engine):
        begun = rig.one("SELECT count(*) FROM trial")
        await rig.start()
        await rig.until_done()
        voids = rig.sql("SELECT code, counts_pass FROM void")
        assert voids == [("daemon_lost", 0)] * begun and begun >= 1
        assert rig.sql("SELECT * FROM park") == []
        assert rig.sql("SELECT * FROM admission_stop WHERE kind = 'breaker'") == []
        assert runs_of(rig) == [1] * 6
        await assert_nothing_left(rig, engine)


async def test_f02_a_started_agent_whose_start_was_never_answered_goes_on(docker_host: str, tmp_path: Path) -> None:
    async with killed_at(docker_host, "start_created_exec", tasks=[make_task(tmp_path, "t")], arms={"r": RUNS}) as (rig, engine):
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT state FROM trial") == [("scored",)]
        assert rig.one("SELECT count(*) FROM trial_event WHERE event = 'reattached'") == 1
        assert runs_of(rig) == [1]
        await assert_nothing_left(rig, engine)


async def test_f02_a_verifier_that_was_created_and_never_started_is_started(docker_host: str, tmp_path: Path) -> None:
    """Its deadline is far beyond this test's patience: waiting for it in vain would fail."""
    tasks = [make_task(tmp_path, "t", verifier_s=100 * PATIENCE_S)]
    async with killed_at(docker_host, "start_created_exec", 2, before=True, tasks=tasks, arms={"r": RUNS}) as (rig, engine):
        assert rig.sql("SELECT outcome FROM verification") == [(None,)]
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT round, outcome, exit_code FROM verification") == [(1, "exited", 0)]
        assert rig.sql("SELECT state, reward FROM trial") == [("scored", 1.0)]
        assert runs_of(rig) == [1]
        await assert_nothing_left(rig, engine)
