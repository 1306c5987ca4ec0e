"""The host reboots under trials in every phase: each is accounted for, and nothing is left (faults f02, e06)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.flow import grading, verify
from marathond.ports.engine import LABEL_TRIAL, ContainerSpec
from tests.support.outcome import assert_nothing_left, runs_of
from tests.support.reboot import Booted, reboot
from tests.support.rig import CALL_TIMEOUT_S, PATIENCE_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

RUNS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
GRADES = "until [ -e /logs/artifacts/grade ]; do sleep 0.05; done\necho 1 >/logs/verifier/reward.txt\n"


class Stuck(DockerEngine):
    """Carries out what the named trial's phase ends with, and is never heard of again there; other trials go on."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.removing: set[str] = set()
        """Container ids whose removal is carried out and never answered."""
        self.never_made = ""
        self.reached = {"create": anyio.Event(), "remove": anyio.Event()}

    async def create_container(self, spec: ContainerSpec) -> str:
        made = await super().create_container(spec)
        if self.never_made and spec.labels.get(LABEL_TRIAL) == self.never_made:
            self.reached["create"].set()
            await anyio.sleep_forever()
        return made

    async def remove_container(self, container_id: str) -> bool:
        gone = await super().remove_container(container_id)
        if container_id in self.removing:
            self.reached["remove"].set()
            await anyio.sleep_forever()
        return gone


def folder(rig: Rig, trial_id: int) -> Path:
    return rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts"


async def until_done(rig: Rig) -> None:
    """With every agent and verifier let go, also those of later attempts."""

    async def let_go() -> None:
        while True:
            for each in (rig.root / "state" / "r").glob("t*/logs/artifacts"):
                for word in ("go", "grade"):
                    try:
                        (each / word).touch()
                    except FileNotFoundError:
                        continue  # exported and removed just now
            await anyio.sleep(0.1)

    async with anyio.create_task_group() as group:
        group.start_soon(let_go)
        await rig.until_done()
        group.cancel_scope.cancel()


async def test_f02_a_reboot_in_every_phase(docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six trials: being made, running, verified, its verifier ended, its container gone unseen, its container gone and known to be."""
    engine = Stuck(docker_host)
    tasks = [make_task(tmp_path, "t", test=GRADES, network="public", agent_s=10_000, verifier_s=10_000)]
    overrides: dict[str, Any] = {"admission.concurrency": 6, "admission.passes": 1, "admission.breaker_after": 2}
    final, held = verify.read, anyio.Event()
    gone_known, ended = 6, 4
    reads: Mapping[int, anyio.Event] = {gone_known: anyio.Event(), ended: anyio.Event()}

    async def read(world: Any, trial_id: int, *, verifier_exited: bool) -> Any:
        """The last look at the payload of one, the first of another, is not come back from in the first life."""
        context = rig.sql("SELECT gone_at_ms IS NOT NULL FROM container WHERE trial_id = ?", trial_id)
        if not held.is_set() and (trial_id == ended or (trial_id == gone_known and context == [(1,)])):
            reads[trial_id].set()
            await anyio.sleep_forever()
        return await final(world, trial_id, verifier_exited=verifier_exited)

    monkeypatch.setattr(grading.verify, "read", read)
    try:
        rig = Rig(docker_host, engine=engine, clock=Booted(), tasks=tasks, arms={"r": RUNS}, replicates=6, overrides=overrides)
        engine.never_made = "t0001"
        async with rig:
            for trial_id in (2, 3, 4, 5, 6):
                await rig.agent_runs(trial_id)
            for trial_id in (3, 4, 5, 6):
                (folder(rig, trial_id) / "go").touch()
            await rig.until("SELECT count(*) = 4 FROM verification")
            engine.removing.add(rig.one("SELECT docker_id FROM container WHERE trial_id = 5"))
            for trial_id in (4, 5, 6):
                (folder(rig, trial_id) / "grade").touch()
            with anyio.fail_after(PATIENCE_S):
                for event in (*engine.reached.values(), *reads.values()):
                    await event.wait()
            await rig.kill()
            states = dict(rig.sql("SELECT trial_id, state FROM trial"))
            assert states == {1: "reserved", 2: "running", **dict.fromkeys((3, 4, 5, 6), "verifying")}
            held.set()
            rig.engine_given, engine.never_made = None, ""
            await reboot(rig, engine)
            await rig.start()
            await until_done(rig)
            voids = rig.sql("SELECT trial_id, code, counts_pass FROM void ORDER BY trial_id")
            assert voids == [(1, "daemon_lost", 0), (2, "host_rebooted", 0), (3, "host_rebooted", 0)], rig.story()
            assert rig.one("SELECT reason FROM void WHERE trial_id = 2").startswith("started in boot ")
            firsts = rig.sql("SELECT trial_id, attempt, state, reward FROM trial WHERE trial_id BETWEEN 4 AND 6 ORDER BY trial_id")
            assert firsts == [(number, 1, "scored", 1.0) for number in (4, 5, 6)], rig.story()
            assert rig.one("SELECT count(*) FROM v_cell WHERE state = 'done'") == 6
            assert runs_of(rig) == [1] * 6
            assert rig.sql("SELECT * FROM admission_stop WHERE kind = 'breaker'") == []
            assert rig.one("SELECT count(DISTINCT boot_id) FROM run") == 2
            await assert_nothing_left(rig, engine)
    finally:
        await engine.aclose()
