"""The daemon dies around a verification, and an image goes away: nothing hangs, nothing is said that was not so."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_TRIAL, ContainerSpec
from tests.support.outcome import wait_for
from tests.support.rig import CALL_TIMEOUT_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
NOP = {"kind": "nop"}
EARLY = "echo 1 >/logs/verifier/reward.txt\ntouch /logs/artifacts/began; sleep 600\n"
"""Writes its reward before its work is done."""


class HoldsSecondUpload(DockerEngine):
    """Its second upload of tests never comes back: the daemon is killed there."""

    uploads = 0

    async def put_tree(self, container_id: str, source: Path, target: str) -> None:
        self.uploads += 1
        if self.uploads == 2:
            await anyio.sleep_forever()
        await super().put_tree(container_id, source, target)


async def test_d02_killed_between_the_word_and_the_second_round_it_is_run_all_the_same(docker_host: str, tmp_path: Path) -> None:
    silent = make_task(tmp_path, "silent", test="true\n")
    engine = HoldsSecondUpload("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    try:
        async with Rig(docker_host, tasks=[silent], arms={"nop": NOP}, engine=engine) as rig:
            await rig.until("SELECT count(*) FROM trial_event WHERE event = 'verify_again'")
            await rig.kill()
            rig.engine_given = None
            await rig.start()
            await rig.until_done()
            assert rig.sql("SELECT state FROM v_trial") == [("review",)]
            assert rig.sql("SELECT code FROM review") == [("score_unreadable",)]
            assert rig.sql("SELECT round, outcome FROM verification ORDER BY round") == [(1, "exited"), (2, "exited")]
            # That a busy engine did not remove the container at once is another matter.
            assert rig.sql("SELECT code FROM finding WHERE code <> 'container_undeletable'") == []
    finally:
        await engine.aclose()


async def test_d10_a_verifier_that_ended_in_time_while_nobody_watched_is_no_deadline(docker_host: str, tmp_path: Path) -> None:
    """It began, and had plenty of time left, when the daemon was killed."""
    test = "touch /logs/artifacts/began; sleep 1\necho 1 >/logs/verifier/reward.txt\n"
    quick = make_task(tmp_path, "quick", test=test, verifier_s=12.0)
    async with Rig(docker_host, tasks=[quick], arms={"nop": NOP}) as rig:
        await wait_for((rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "began").exists)
        await rig.kill()
        limit_ms, started_ms = rig.one("SELECT limit_ms, started_mono_ms FROM verification")
        await anyio.sleep_until((started_ms + limit_ms) / 1000 + 0.5)  # the same monotonic clock; nobody is there meanwhile
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT round, outcome FROM verification") == [(1, "exited")]
        assert rig.sql("SELECT state, reward FROM v_trial") == [("scored", 1.0)]


class LosesImage(DockerEngine):
    """Loses the image of the second trial's container just before that is made: only then is it sure that none stands in the way."""

    trials = 0
    lost: tuple[str, ...] = ()

    async def create_container(self, spec: ContainerSpec) -> str:
        self.trials += LABEL_TRIAL in spec.labels
        if self.trials == 2 and not self.lost:
            named = await self.inspect_image(spec.image_id)
            assert named is not None and named.tags
            self.lost = tuple(named.tags)
            for tag in self.lost:
                await self.remove_image(tag)
        return await super().create_container(spec)


async def test_b14_an_image_that_was_removed_is_built_again_and_parks_nobody(docker_host: str, tmp_path: Path) -> None:
    task = make_task(tmp_path, "built")
    (task / "environment").mkdir()
    base = next(line for line in (task / "task.toml").read_text().splitlines() if "docker_image" in line).split('"')[1]
    (task / "environment" / "Dockerfile").write_text(f"FROM {base}\nRUN echo {tmp_path} >/mark\n")
    (task / "task.toml").write_text("\n".join(x for x in (task / "task.toml").read_text().splitlines() if "docker_image" not in x))
    engine = LosesImage("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    one_by_one = {"admission.concurrency": 1}
    try:
        async with Rig(docker_host, tasks=[task], arms={"nop": NOP}, replicates=3, overrides=one_by_one, engine=engine) as rig:
            await rig.until_done()
            assert engine.lost
            assert rig.one("SELECT count(*) FROM v_cell WHERE state = 'done'") == 3
            assert rig.sql("SELECT DISTINCT code FROM void") in ([("image_gone",)], [("container_failed",)])
    finally:
        await engine.aclose()


async def test_b11_a_container_that_ends_under_a_verifier_that_was_taken_over_is_not_scored(docker_host: str, tmp_path: Path) -> None:
    """The payload of a verifier that was killed in the midst of its work is not final, whichever life saw it begin."""
    early = make_task(tmp_path, "early", test=EARLY, verifier_s=300.0)
    async with Rig(docker_host, tasks=[early], arms={"nop": NOP}) as rig:
        await wait_for((rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "began").exists)
        await rig.kill()
        await rig.start()
        await wait_for(lambda: rig.daemon is not None and rig.daemon.world is not None and 1 in rig.daemon.world.driven)
        assert rig.daemon is not None
        container = await rig.daemon.engine.inspect_container(rig.one("SELECT docker_id FROM container"))
        assert container is not None and container.running
        os.kill(container.pid, signal.SIGKILL)
        await rig.until_done()
        assert rig.sql("SELECT state, reward FROM v_trial") == [("review", None)]
        assert rig.sql("SELECT code FROM review") == [("verifier_lost",)]


class HoldsKnock(DockerEngine):
    """Once told to, it never answers whether it is still there: the daemon is killed there."""

    held = False

    async def knock(self) -> None:
        if self.held:
            await anyio.sleep_forever()
        await super().knock()


async def test_b11_a_daemon_killed_after_its_verifier_was_killed_with_the_container_leaves_no_score(
    docker_host: str, tmp_path: Path
) -> None:
    """The verifier's end was written down, what it means was not: the next life must not take it for an end of its own."""
    early = make_task(tmp_path, "early", test=EARLY, verifier_s=300.0)
    engine = HoldsKnock("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    try:
        async with Rig(docker_host, tasks=[early], arms={"nop": NOP}, engine=engine) as rig:
            await wait_for((rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "began").exists)
            engine.held = True
            container = await engine.inspect_container(rig.one("SELECT docker_id FROM container"))
            assert container is not None and container.running
            os.kill(container.pid, signal.SIGKILL)
            await rig.until("SELECT count(*) FROM verification WHERE outcome IS NOT NULL")
            await rig.kill()
            rig.engine_given = None
            await rig.start()
            await rig.until("SELECT count(*) FROM trial WHERE state IN ('voided', 'scored', 'review')")
            # Nothing else of ours runs that could show that the engine went on.
            assert rig.sql("SELECT code, from_state FROM void") == [("container_lost", "verifying")]
            assert rig.sql("SELECT outcome, exit_code FROM verification WHERE trial_id = 1") == [("lost", None)]
    finally:
        await engine.aclose()
