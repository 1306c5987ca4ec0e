"""`marathond` as a process: killed with SIGKILL and SIGTERM, started twice (faults f01, f02, f08)."""

from __future__ import annotations

import random
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.ports.engine import LABEL_LEDGER
from tests.support.outcome import assert_nothing_left, runs_of, wait_for
from tests.support.process_rig import ProcessRig
from tests.support.relay import Relay
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

SOON = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; sleep 0.7"]}
WAITS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
ONE_BY_ONE = {"admission.concurrency": 1}


@pytest.fixture
async def relay(docker_host: str) -> AsyncIterator[Relay]:
    if not docker_host.startswith("unix://"):
        pytest.skip("the relay needs the engine's unix socket")
    with tempfile.TemporaryDirectory(prefix="mdt") as short:  # its path leaves room for a socket's name
        async with Relay(Path(short) / "s", Path(docker_host.removeprefix("unix://"))) as made:
            yield made


def let_go(rig: ProcessRig, trial_id: int, word: str) -> None:
    (rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts" / word).touch()


async def test_f02_killed_in_mid_agent_mid_verify_and_mid_teardown(relay: Relay, tmp_path: Path, engine: DockerEngine) -> None:
    """Agent and verifier wait for a word, and the removal of the last network for an answer: each moment lasts until the kill."""
    check = "touch /logs/artifacts/grading\nuntil [ -e /logs/artifacts/grade ]; do sleep 0.05; done\necho 1 >/logs/verifier/reward.txt\n"
    tasks = [make_task(tmp_path, "t", network="public", test=check, agent_s=1000, verifier_s=1000)]
    verifies = "SELECT count(*) FROM verification WHERE trial_id = ? AND ended_at_ms IS NULL"
    tears_down = "SELECT count(*) FROM trial JOIN claim USING (claim_id) WHERE trial_id = 3 AND state = 'scored' AND released_at_ms IS NULL"
    async with ProcessRig(relay.url, tasks=tasks, arms={"w": WAITS}, replicates=3, overrides=ONE_BY_ONE) as rig:
        await rig.agent_runs(1)
        await rig.kill()
        await rig.start()
        let_go(rig, 1, "go")
        let_go(rig, 1, "grade")
        await rig.agent_runs(2)
        let_go(rig, 2, "go")
        # Begun, not only written down as begun: between the two, the kill would leave a verifier that runs a second time.
        await wait_for((rig.root / "state" / "r" / "t0002" / "logs" / "artifacts" / "grading").exists)
        await rig.kill()
        assert rig.one(verifies, 2) == 1
        await rig.start()
        let_go(rig, 2, "grade")
        await rig.agent_runs(3)
        network = rig.one("SELECT network_id FROM network_lease WHERE trial_id = 3")
        relay.mute_at = f"DELETE /v{(await engine.info()).api_version}/networks/{network}".encode()
        let_go(rig, 3, "go")
        let_go(rig, 3, "grade")
        await wait_for(lambda: relay.mute)
        assert rig.one(tears_down) == 1
        await rig.kill()
        relay.mute = False
        await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")] * 3
        assert rig.sql("SELECT trial_id FROM trial_event WHERE event = 'reattached'") == [(1,)]
        assert rig.sql("SELECT round, outcome FROM verification") == [(1, "exited")] * 3
        assert runs_of(rig) == [1, 1, 1]
        await assert_nothing_left(rig, engine)


async def test_f02_killed_at_random_moments_it_converges(docker_host: str, tmp_path: Path, engine: DockerEngine) -> None:
    moments = random.Random(20)
    tasks = [make_task(tmp_path, "net", network="public"), make_task(tmp_path, "plain")]
    async with ProcessRig(docker_host, tasks=tasks, arms={"a": SOON, "b": SOON}, replicates=2, overrides={"admission.passes": 1}) as rig:
        for _ in range(5):  # many more in virtual time: tests/sim
            await anyio.sleep(moments.uniform(0.0, 0.8))
            await rig.kill()
            await rig.start()
        await rig.until_done()
        assert rig.sql("SELECT count(*) FROM v_cell WHERE state = 'done'") == [(8,)], rig.story()
        assert runs_of(rig) == [1] * 8
        assert {row[0] for row in rig.sql("SELECT code FROM void")} <= {"daemon_lost"}
        await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")
        await assert_nothing_left(rig, engine)


async def test_f08_sigterm_leaves_the_agent_alone_for_the_next_daemon(docker_host: str, tmp_path: Path, engine: DockerEngine) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        rig.strike(signal.SIGTERM)
        assert await rig.ended() == 0
        assert rig.one("SELECT stopped_at_ms IS NOT NULL FROM run") == 1
        (container,) = await engine.list_containers({LABEL_LEDGER: rig.ledger_id})
        assert container.running
        await rig.start()
        await rig.until("SELECT count(*) FROM trial_event WHERE event = 'reattached'")
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT attempt, state, reward FROM trial") == [(1, "scored", 1.0)]
        assert runs_of(rig) == [1]
        await assert_nothing_left(rig, engine)


async def test_f01_a_second_daemon_is_refused_by_name(docker_host: str, tmp_path: Path) -> None:
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        assert rig.process is not None
        second = rig.popen(stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        _, said = await anyio.to_thread.run_sync(second.communicate, None, 240)
        assert second.returncode == 78, said
        assert f"pid {rig.process.pid}" in said.decode()
        assert len(said.decode().splitlines()) == 1
        assert rig.process.poll() is None
        assert rig.one("SELECT count(*) FROM run") == 1  # it did not even begin a life
