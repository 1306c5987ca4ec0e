"""What a trial leaves at the engine: released only when it was seen gone, found again when it was lost (faults b03, b04, b06, f09)."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import pytest

from marathond.core.belongings import container_name, network_name
from marathond.core.errors import EngineTimeout
from marathond.engine.docker import DockerEngine
from marathond.flow import sweeper
from marathond.ledger.errors import RuleBroken
from marathond.ledger.verbs import admission, trials
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER, LABEL_TRIAL, ContainerSpec
from tests.support.outcome import wait_for
from tests.support.rig import BASE_IMAGE, CALL_TIMEOUT_S, PATIENCE_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}
NOP = {"kind": "nop"}


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweeper comes round every moment instead of every ten seconds."""
    monkeypatch.setattr(sweeper, "PERIOD_S", 0.1)


def let_go(rig: Rig, trial_id: int = 1) -> None:
    (rig.root / "state" / "r" / f"t{trial_id:04d}" / "logs" / "artifacts" / "go").touch()


class Watched(DockerEngine):
    """Shows the moment of a network's removal: waits before it, and says "gone" once without having done it."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.asked, self.allowed, self.lies = anyio.Event(), anyio.Event(), 1

    async def remove_network(self, network_id: str) -> bool:
        self.asked.set()
        await self.allowed.wait()
        if self.lies:
            self.lies -= 1
            return True
        return await super().remove_network(network_id)


class Silent(DockerEngine):
    """Carries out the first creation of a trial's container, and says nothing; beside it stands a stranger's with the same labels."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.lose = 0
        self.theirs = ""

    async def create_container(self, spec: ContainerSpec) -> str:
        made = await super().create_container(spec)
        if not self.lose or not spec.name.startswith("mt-"):
            return made
        self.lose -= 1
        # Listed first: the engine lists the youngest first.
        self.theirs = await super().create_container(ContainerSpec(f"theirs-{made[:12]}", spec.image_id, spec.labels, None))
        raise EngineTimeout("container.create", 0, "no answer")


async def test_b03_a_lease_is_released_only_when_its_network_was_seen_gone(docker_host: str, tmp_path: Path, often: None) -> None:
    engine = Watched(docker_host)
    try:
        async with Rig(docker_host, tasks=[make_task(tmp_path, "t", network="public")], arms={"nop": NOP}, engine=engine) as rig:
            with anyio.fail_after(PATIENCE_S):
                await engine.asked.wait()
            network_id = rig.one("SELECT network_id FROM network_lease")
            assert rig.sql("SELECT count(*) FROM container WHERE gone_at_ms IS NOT NULL") == [(1,)]  # the container went first
            assert await engine.inspect_network(network_id) is not None
            assert rig.one("SELECT released_at_ms FROM network_lease") is None
            engine.allowed.set()
            await rig.until("SELECT leaked_at_ms IS NOT NULL FROM network_lease")  # "gone", said the engine; it was not
            await rig.until_done()
            await rig.until("SELECT released_because = 'seen_gone' FROM network_lease")
            assert await engine.inspect_network(network_id) is None
    finally:
        await engine.aclose()


async def test_b04_a_network_that_cannot_go_keeps_its_lease_and_is_named(
    docker_host: str, tmp_path: Path, engine: DockerEngine, often: None
) -> None:
    tasks = [make_task(tmp_path, "t", network="public", agent_s=600)]
    stranger = await _idle_container(engine, {"marathond.test": "stranger"}, "bridge")
    try:
        async with Rig(docker_host, tasks=tasks, arms={"w": WAITS}, replicates=2, overrides={"network.cap": 1}) as rig:
            await rig.agent_runs()
            network_id = rig.one("SELECT network_id FROM network_lease")
            await anyio.run_process(["docker", "-H", docker_host, "network", "connect", network_id, stranger])
            let_go(rig)
            await rig.until("SELECT remove_attempts >= 2 FROM network_lease WHERE trial_id = 1")
            assert rig.one("SELECT state FROM trial WHERE trial_id = 1") == "scored"
            # The leak is the pool's, not the cell's.  The sweeper may have counted its own try before the teardown wrote this down.
            await rig.until("SELECT released_at_ms IS NOT NULL FROM claim WHERE claim_id = 1")
            assert rig.one("SELECT leaked_at_ms IS NOT NULL AND released_at_ms IS NULL FROM network_lease WHERE trial_id = 1") == 1
            await rig.until("SELECT subject = 't0001' FROM finding WHERE code = 'lease_leaked' AND closed_at_ms IS NULL")
            assert rig.one("SELECT count(*) FROM trial") == 1  # the only network is not to be had
            await rig.until("SELECT value_json LIKE '%NETPOOL 1/1%' FROM observation WHERE key = 'waiting'")
            await wait_removed(engine, stranger)
            await rig.until("SELECT released_because = 'seen_gone' FROM network_lease WHERE trial_id = 1")
            assert await engine.inspect_network(network_id) is None
            await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")
            await rig.agent_runs(2)
            let_go(rig, 2)
            await rig.until_done()
            assert rig.sql("SELECT code FROM void") == []
    finally:
        await engine.remove_container(stranger)


async def test_b06_orphans_are_found_while_running_and_nobody_else_is_touched(
    docker_host: str, tmp_path: Path, engine: DockerEngine, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    nets: list[str] = []
    all_made, sweep = anyio.Event(), sweeper.Sweeper.sweep

    async def sweep_when_made(self: sweeper.Sweeper) -> None:
        """The sweeper would come in between a container's creation and its start, and rightly so."""
        await all_made.wait()
        await sweep(self)

    monkeypatch.setattr(sweeper.Sweeper, "sweep", sweep_when_made)
    monkeypatch.setattr(sweeper, "GRACE_MS", 0)
    try:
        async with Rig(docker_host, tasks=[make_task(tmp_path, "t", network="public", agent_s=600)], arms={"w": WAITS}) as rig:
            await rig.agent_runs()
            ours = {LABEL_LEDGER: rig.ledger_id, LABEL_TRIAL: "t0001", LABEL_CLAIM: "dead"}
            other = {**ours, LABEL_LEDGER: "000000000000"}
            # The names that the daemon gives, for a create that was carried out after everybody had stopped looking for it.
            ours[LABEL_TRIAL] = "t0007"
            made += [await _idle_container(engine, labels, name=container_name(labels[LABEL_LEDGER], 7)) for labels in (ours, other)]
            nets += [await engine.create_network(network_name(labels[LABEL_LEDGER], 7), labels, None) for labels in (ours, other)]
            all_made.set()
            await rig.until("SELECT count(*) = 2 FROM finding WHERE code IN ('orphan_container', 'orphan_network')")
            await rig.until("SELECT count(*) = 0 FROM finding WHERE closed_at_ms IS NULL AND severity <> 'info'")
            assert [await engine.inspect_container(i) is not None for i in made] == [False, True]
            assert [await engine.inspect_network(i) is not None for i in nets] == [False, True]
            assert rig.one("SELECT state FROM trial") == "running"
            let_go(rig)
            await rig.until_done()
            assert rig.sql("SELECT reward FROM trial") == [(1.0,)]
            assert rig.one("SELECT count(*) FROM finding") == 2  # our own living trial was never taken for an orphan
    finally:
        for container_id in made:
            await engine.remove_container(container_id)
        for network_id in nets:
            await engine.remove_network(network_id)


async def test_b06_what_copies_our_labels_is_named_and_never_touched(
    docker_host: str, tmp_path: Path, engine: DockerEngine, often: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All labels of a living trial and of a dead one, on somebody else's containers and networks; a create that looks by label, too."""
    monkeypatch.setattr(sweeper, "GRACE_MS", 0)
    made: list[str] = []
    nets: list[str] = []
    late = Silent(docker_host)
    late.lose = 1
    try:
        async with Rig(
            docker_host, tasks=[make_task(tmp_path, "t", network="public", agent_s=600)], arms={"w": WAITS}, replicates=2, engine=late
        ) as rig:
            await rig.agent_runs()
            await rig.agent_runs(2)
            for trial_id in (1, 2):
                token = rig.one("SELECT token FROM claim JOIN trial USING (claim_id) WHERE trial_id = ?", trial_id)
                labels = {LABEL_LEDGER: rig.ledger_id, LABEL_TRIAL: f"t{trial_id:04d}", LABEL_CLAIM: token}
                made.append(await _idle_container(engine, labels, name=f"theirs-{rig.ledger_id}-{trial_id}"))
                nets.append(await engine.create_network(f"theirs-{rig.ledger_id}-{trial_id}", labels, None))
            made.append(
                await _idle_container(engine, {LABEL_LEDGER: rig.ledger_id, LABEL_CLAIM: "proof"}, name=f"theirs-{rig.ledger_id}-3")
            )
            made.append(late.theirs)
            let_go(rig)
            await rig.until("SELECT released_because = 'seen_gone' FROM network_lease WHERE trial_id = 1")
            await rig.until("SELECT count(*) = 6 FROM finding WHERE code = 'label_forged' AND closed_at_ms IS NULL")
            named = "SELECT count(*) FROM finding WHERE code = 'label_forged' AND detail LIKE ?"
            assert rig.one(named, f"theirs-{rig.ledger_id}-%t0001%left alone") == 2
            await rig.kill()
            await rig.start()
            await rig.agent_runs(2)
            let_go(rig, 2)
            await rig.until_done()
            await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")
            assert rig.sql("SELECT count(*), sum(state = 'scored') FROM trial") == [(2, 2)]
            infos = [await engine.inspect_container(container_id) for container_id in made]
            assert [info is not None and info.status for info in infos] == ["running"] * 3 + ["created"]
            assert [await engine.inspect_network(network_id) is not None for network_id in nets] == [True] * 2
            assert rig.sql("SELECT code FROM finding WHERE code LIKE 'orphan%'") == []
            for container_id in made:
                await wait_removed(engine, container_id)
            for network_id in nets:
                assert await engine.remove_network(network_id)
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'label_forged' AND closed_at_ms IS NULL")
            assert rig.one("SELECT count(*) FROM finding WHERE code = 'label_forged'") == 6  # once each, over both lives
    finally:
        for container_id in made:
            await engine.remove_container(container_id)
        for network_id in nets:
            await engine.remove_network(network_id)
        await engine.remove_container(late.theirs)
        await late.aclose()


async def test_f09_nobody_is_reaped_for_being_slow(docker_host: str, tmp_path: Path, often: None, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = 0
    plain = sweeper.Sweeper.sweep

    async def counted(self: sweeper.Sweeper) -> None:
        nonlocal sweeps
        await plain(self)
        sweeps += 1

    monkeypatch.setattr(sweeper.Sweeper, "sweep", counted)
    async with Rig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=600)], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        for life in range(2):
            enough = sweeps + 5
            await wait_for(lambda enough=enough: sweeps >= enough)
            assert rig.sql("SELECT count(*), sum(released_at_ms IS NULL) FROM claim") == [(1, 1)]
            if life == 0:
                await rig.kill()
                await rig.start()
                await rig.until("SELECT count(*) FROM trial_event WHERE event = 'reattached'")
        assert rig.daemon is not None
        ledger = rig.daemon.ledger
        with pytest.raises(RuleBroken, match="claim_released_only_after_"):
            await ledger.write(trials.release_claim, 1, now_ms=0)
        again = {"cell_id": 1, "token": "second", "engine": "local", "subnet": None, "needs_network": False, "ledger_id": rig.ledger_id}
        with pytest.raises(RuleBroken, match=r"claim_only_open_cell|claim_one_live_per_cell"):
            await ledger.write(admission.admit, **again, now_ms=0)
        let_go(rig)
        await rig.until_done()
        assert rig.sql("SELECT count(*), sum(reward) FROM trial") == [(1, 1.0)]


async def wait_removed(engine: DockerEngine, container_id: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not await engine.remove_container(container_id):  # noqa: ASYNC110 - an engine's word
            await anyio.sleep(0.2)


async def _idle_container(engine: DockerEngine, labels: dict[str, str], network: str | None = None, name: str = "") -> str:
    """`sleep infinity`, which never exits by itself."""
    image = await engine.inspect_image(BASE_IMAGE)
    assert image is not None
    name = name or f"idle-{labels.get(LABEL_LEDGER, 'stranger')}-{os.getpid()}"
    container_id = await engine.create_container(ContainerSpec(name, image.id, labels, network))
    await engine.start_container(container_id)
    return container_id
