"""An engine that does not answer, or that is restarted under running trials (faults b10, b11)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from marathond.engine import execs
from marathond.engine.docker import DockerEngine
from marathond.flow import scheduler, sweeper
from tests.support.outcome import assert_nothing_left, runs_of, wait_for
from tests.support.private_engine import PrivateEngine
from tests.support.relay import Relay
from tests.support.rig import CALL_TIMEOUT_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

RUNS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs"]}
WAITS = {"kind": "command", "argv": ["sh", "-c", "echo run >>/logs/artifacts/runs; until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
ENGINE_BAD = "SELECT json_extract(value_json, '$.ok') = 0 FROM observation WHERE key = 'engine'"
ENGINE_GOOD = "SELECT json_extract(value_json, '$.ok') = 1 FROM observation WHERE key = 'engine'"
SILENCE_S = 3.0
"""How long a mute engine is waited for; one that answers, however slowly, gets :data:`CALL_TIMEOUT_S`."""
WAITING = "SELECT value_json LIKE '%' || ? || '%' FROM observation WHERE key = 'waiting'"


class Listener(DockerEngine):
    """Has little patience while the relay is to be mute, and much of it otherwise: a slow answer must not pass for none."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)

    def expects_silence(self, expected: bool) -> None:
        """From the next call on."""
        self._client.call_timeout_s = SILENCE_S if expected else CALL_TIMEOUT_S


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A folder whose path leaves room for a socket's name (107 bytes)."""
    path = Path(tempfile.mkdtemp(prefix="mdt"))
    yield path
    shutil.rmtree(path)


@asynccontextmanager
async def listening(relay: Relay) -> AsyncIterator[Listener]:
    engine = Listener(relay.url)
    try:
        yield engine
    finally:
        await engine.aclose()


@pytest.fixture
def upstream(docker_host: str) -> Path:
    if not docker_host.startswith("unix://"):
        pytest.skip("the relay needs the engine's unix socket")
    return Path(docker_host.removeprefix("unix://"))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine is asked more often than every ten seconds."""
    monkeypatch.setattr(scheduler, "ENGINE_LOOK_S", 0.5)
    monkeypatch.setattr(scheduler, "TICK_S", 0.5)


def let_go(rig: Rig, trial_id: int = 1) -> None:
    (rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts" / "go").touch()


@pytest.mark.parametrize("request_", [b"networks/create", b"containers/create", b"/start HTTP", b"/exec HTTP"])
async def test_b10_carried_out_and_never_answered_is_found_and_nothing_runs_twice(
    docker_host: str, tmp_path: Path, upstream: Path, short_tmp: Path, request_: bytes
) -> None:
    """From this request on no answer comes back, for a while; the engine itself carries every one of them out."""
    async with Relay(short_tmp / "s", upstream) as relay, listening(relay) as mine:
        overrides = {"admission.concurrency": 1}
        tasks = [make_task(tmp_path, "t", network="public", agent_s=600, verifier_s=600)]
        async with Rig(relay.url, tasks=tasks, arms={"r": RUNS}, replicates=3, overrides=overrides, engine=mine) as rig:
            # The second trial is to meet it: its cell is not admitted before the first one's network is gone.
            await wait_for(lambda: rig.sql("SELECT 1 FROM trial WHERE state = 'scored'"), pause_s=0)
            assert rig.one("SELECT count(*) FROM trial") == 1
            mine.expects_silence(True)
            relay.mute_at = request_
            await wait_for(lambda: relay.mute)
            await rig.until(ENGINE_BAD)
            await rig.until(WAITING, "ENGINE")
            mine.expects_silence(False)
            relay.mute = False
            await rig.until(ENGINE_GOOD)
            await rig.until_done()
            assert rig.one("SELECT count(*) FROM v_cell WHERE state = 'done'") == 3, rig.story()
            # An exec whose id was never told cannot be found again, nor can it have begun: that attempt alone may be void.
            assert len(rig.sql("SELECT code FROM void")) <= (request_ == b"/exec HTTP")
            assert runs_of(rig) == [1, 1, 1]
            await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")
            engine = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
            await assert_nothing_left(rig, engine)
            await engine.aclose()


async def test_b10_a_running_agent_is_waited_for_and_no_image_is_given_up(tmp_path: Path, upstream: Path, short_tmp: Path) -> None:
    """Before anything was built or pulled, too: an engine that hangs is no reason to park a task."""
    async with Relay(short_tmp / "s", upstream) as relay, listening(relay) as mine:
        overrides = {"engine.build_retries": 0, "admission.concurrency": 1}
        tasks = [make_task(tmp_path, "t", agent_s=600, verifier_s=600)]
        mine.expects_silence(True)
        relay.mute_at = b"/images/"
        async with Rig(relay.url, tasks=tasks, arms={"w": WAITS}, replicates=2, overrides=overrides, engine=mine) as rig:
            await wait_for(lambda: relay.mute)
            await rig.until(ENGINE_BAD)
            mine.expects_silence(False)
            relay.mute = False
            await rig.agent_runs()
            mine.expects_silence(True)
            looked = rig.one("SELECT at_ms FROM observation WHERE key = 'engine'")
            await rig.until("SELECT at_ms > ? FROM observation WHERE key = 'engine'", looked)  # no look with much patience is under way
            relay.mute = True
            await rig.until(ENGINE_BAD)
            await rig.until(WAITING, "ENGINE")
            let_go(rig)
            mine.expects_silence(False)
            relay.mute = False
            await rig.until("SELECT state = 'scored' FROM trial WHERE trial_id = 1")
            await rig.agent_runs(2)
            let_go(rig, 2)
            await rig.until_done()
            assert rig.sql("SELECT code FROM void") == []
            assert rig.sql("SELECT code, detail FROM park") == []
            assert runs_of(rig) == [1, 1]


async def test_b10_slow_failing_and_cut_off_cost_a_running_trial_nothing(
    tmp_path: Path, upstream: Path, short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One campaign through all of it: answers after a second, the event stream alone cut, 5xx to every question, 500 to a create."""
    monkeypatch.setattr(sweeper, "PERIOD_S", 0.3)
    monkeypatch.setattr(execs, "OWN_ERRORS_S", 600.0)  # they are to last until they were counted, however long that takes
    async with Relay(short_tmp / "s", upstream) as relay:
        overrides = {"engine.call_timeout_s": CALL_TIMEOUT_S, "admission.concurrency": 1}
        tasks = [make_task(tmp_path, "t", network="public", agent_s=600, verifier_s=600)]
        async with Rig(relay.url, tasks=tasks, arms={"w": WAITS}, replicates=2, overrides=overrides) as rig:
            relay.delay_s = 0.5
            await rig.agent_runs()
            relay.delay_s = 0.0
            cut = relay.cut_requests(b"/events")
            assert cut >= 1
            again = relay.sees(b"/events")
            await wait_for(again.is_set)
            relay.fails_at = (b"GET /",)
            await rig.until(ENGINE_BAD)
            assert "containerd: connection refused" in rig.one("SELECT value_json FROM observation WHERE key = 'engine'")
            await rig.until(WAITING, "ENGINE")
            let_go(rig)
            failed = relay.failed
            await wait_for(lambda: relay.failed > failed + 20)
            assert rig.one("SELECT count(*), sum(state = 'running') FROM trial") == (1, 1)
            relay.fails_at = (b"containers/create",)
            await rig.until("SELECT state = 'scored' FROM trial WHERE trial_id = 1")
            await rig.until("SELECT count(*) FROM void WHERE trial_id = 2 AND code = 'container_failed'")
            relay.fails_at = ()
            await rig.until("SELECT max(trial_id) > 2 FROM trial WHERE state = 'running'")
            last = rig.one("SELECT max(trial_id) FROM trial")
            await rig.agent_runs(last)
            let_go(rig, last)
            await rig.until_done()
            assert rig.sql("SELECT DISTINCT code FROM void") == [("container_failed",)], rig.story()
            assert "containerd: connection refused" in rig.sql("SELECT reason FROM void")[0][0]
            assert rig.one("SELECT count(*) FROM v_cell WHERE state = 'done'") == 2
            assert sorted(runs_of(rig)) == [1, 1]
            await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")


async def test_b11_a_connection_that_breaks_under_the_tests_upload_costs_no_trial(tmp_path: Path, upstream: Path, short_tmp: Path) -> None:
    """The agent's hours are paid for: what was not begun is begun anew, in the same container."""
    async with Relay(short_tmp / "s", upstream) as relay:
        relay.breaks_at = [b"/archive?", b'mv \\"$1\\" /tests', b"marathond-verifier"]
        async with Rig(relay.url, tasks=[make_task(tmp_path, "t")], arms={"r": RUNS}) as rig:
            await rig.until_done()
            assert relay.breaks_at == []
            assert rig.sql("SELECT code, reason FROM void") == []
            assert rig.one("SELECT state FROM trial") == "scored"
            assert runs_of(rig) == [1]


async def test_b11_dockerd_stopped_without_live_restore_voids_with_evidence_and_retries(own_engine: PrivateEngine, tmp_path: Path) -> None:
    """It ends its containers while it still answers: they ended with it all the same.  Killed: test_faults_restart.py."""
    async with Rig(own_engine.url, tasks=[make_task(tmp_path, "t", network="public", agent_s=600)], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        await anyio.to_thread.run_sync(own_engine.stop)
        await anyio.to_thread.run_sync(own_engine.start)
        await rig.agent_runs(2)
        let_go(rig, 2)
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "voided"), (2, "scored")]
        ((code, reason, evidence),) = rig.sql("SELECT code, reason, evidence_json FROM void")
        assert code == "container_lost"
        assert "exit" in reason and "OOMKilled False" in reason
        assert rig.one("SELECT docker_id FROM container WHERE trial_id = 1") in evidence
        assert runs_of(rig) == [1]
