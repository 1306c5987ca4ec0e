"""What a new daemon makes of a container that is no longer the one it knew, and other losses, each void with its evidence (fault f02)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.flow import ending, life
from marathond.ports.engine import LABEL_CLAIM, ContainerInfo, Process
from tests.support.outcome import assert_nothing_left
from tests.support.rig import CALL_TIMEOUT_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
QUICK = {"kind": "command", "argv": ["true"]}


class Odd(DockerEngine):
    """``relabelled``: shown with another claim; ``spared``: no process of ours dies; ``silent``: not answered for until ``answers``."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.relabelled = self.silent = ""
        self.spared = False
        self.asked, self.answers = anyio.Event(), anyio.Event()

    async def inspect_container(self, container_id: str) -> ContainerInfo | None:
        if container_id == self.silent:
            self.asked.set()
            await self.answers.wait()
        seen = await super().inspect_container(container_id)
        if seen is not None and container_id == self.relabelled:
            return replace(seen, labels={**seen.labels, LABEL_CLAIM: "another"})
        return seen

    async def kill(self, processes: Sequence[Process]) -> None:
        if not self.spared:
            await super().kill(processes)


def let_go(rig: Rig, trial_id: int) -> None:
    (rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts" / "go").touch()


async def test_f02_a_container_that_is_no_longer_ours_or_had_another_life(docker_host: str, tmp_path: Path) -> None:
    """The third trial's is as it was, and goes on."""
    engine = Odd(docker_host)
    overrides: dict[str, Any] = {"admission.concurrency": 3, "admission.breaker_after": 100}
    try:
        tasks = [make_task(tmp_path, "t", agent_s=10_000)]
        async with Rig(docker_host, engine=engine, tasks=tasks, arms={"w": WAITS}, replicates=3, overrides=overrides) as rig:
            for trial_id in (1, 2, 3):
                await rig.agent_runs(trial_id)
            await rig.kill()
            ids = dict(rig.sql("SELECT trial_id, docker_id FROM container"))
            engine.relabelled = ids[1]
            seen = await engine.inspect_container(ids[2])
            assert seen is not None
            os.kill(seen.pid, signal.SIGKILL)
            while (ended := await engine.inspect_container(ids[2])) is not None and ended.running:  # noqa: ASYNC110 - the engine tells it
                await anyio.sleep(0.05)
            await engine.start_container(ids[2])
            await rig.start()
            await rig.until("SELECT count(*) = 2 FROM void")
            reasons = dict(rig.sql("SELECT trial_id, code || ': ' || reason FROM void"))
            token = rig.one("SELECT token FROM claim JOIN trial USING (claim_id) WHERE trial_id = 1")
            assert reasons[1] == f"container_lost: container {ids[1][:12]} carries another claim than {token}"
            assert reasons[2].startswith(f"container_lost: container {ids[2][:12]} was started again at ")
            engine.relabelled = ""
            for trial_id in (4, 5):
                await rig.agent_runs(trial_id)
            for trial_id in (3, 4, 5):
                let_go(rig, trial_id)
            await rig.until_done()
            assert rig.one("SELECT count(*) FROM v_cell WHERE state = 'done'") == 3
            assert rig.sql("SELECT trial_id, state FROM trial WHERE trial_id = 3") == [(3, "scored")]
            await assert_nothing_left(rig, engine)
    finally:
        await engine.aclose()


async def test_f02_a_recovery_that_was_cut_takes_each_trial_over_once(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Odd(docker_host)
    monkeypatch.setattr(life, "RECOVERY_S", 3.0)
    try:
        tasks = [make_task(tmp_path, "t", agent_s=10_000)]
        overrides = {"admission.concurrency": 2}
        async with Rig(docker_host, engine=engine, tasks=tasks, arms={"w": WAITS}, replicates=2, overrides=overrides) as rig:
            for trial_id in (1, 2):
                await rig.agent_runs(trial_id)
            await rig.kill()
            engine.silent = rig.one("SELECT docker_id FROM container WHERE trial_id = 1")
            await rig.start()
            await rig.until("SELECT count(*) = 1 FROM trial_event WHERE event = 'reattached' AND trial_id = 2")
            await rig.until("SELECT ready_at_ms IS NOT NULL FROM run ORDER BY run_id DESC LIMIT 1")  # cut, and READY without it
            assert engine.asked.is_set()
            engine.answers.set()
            await rig.until("SELECT count(*) >= 2 FROM trial_event WHERE event = 'reattached'")
            for trial_id in (1, 2):
                let_go(rig, trial_id)
            await rig.until_done()
            lives = rig.sql("SELECT trial_id, run_id, count(*) FROM trial_event WHERE event = 'reattached' GROUP BY 1, 2 ORDER BY 1, 2")
            assert lives == [(1, 2, 1), (2, 2, 1)]
    finally:
        await engine.aclose()


async def test_a_run_directory_that_cannot_be_made_costs_the_attempt_alone(docker_host: str, tmp_path: Path) -> None:
    rig = Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"q": QUICK})
    (rig.root / "state" / "r").mkdir()
    (rig.root / "state" / "r" / "t0001").symlink_to("nowhere")
    async with rig:
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial ORDER BY trial_id") == [(1, "voided"), (2, "scored")], rig.story()
        ((code, reason),) = rig.sql("SELECT code, reason FROM void")
        assert code == "run_dir_lost" and "t0001" in reason


async def test_b07_an_agent_that_does_not_die_is_void_and_meets_no_verifier(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "ROUNDS", 4)
    engine = Odd(docker_host)
    engine.spared = True
    try:
        async with Rig(docker_host, engine=engine, tasks=[make_task(tmp_path, "t", agent_s=3)], arms={"w": WAITS}) as rig:
            await rig.until("SELECT count(*) FROM void")
            engine.spared = False
            ((code, reason),) = rig.sql("SELECT code, reason FROM void WHERE trial_id = 1")
            assert code == "agent_undead" and "still alive after 4 rounds of SIGKILL" in reason
            assert rig.sql("SELECT * FROM verification WHERE trial_id = 1") == []
            await rig.until_done()
            assert rig.sql("SELECT attempt, state FROM trial ORDER BY trial_id") == [(1, "voided"), (2, "scored")], rig.story()
            await assert_nothing_left(rig, engine)
    finally:
        await engine.aclose()
