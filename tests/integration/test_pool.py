"""Networks are few, and others use them, too: a full pool costs waiting, never a trial (faults b01, b02)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from marathond.core.errors import PoolExhausted, SubnetTaken
from marathond.engine.docker import DockerEngine
from marathond.ledger.connect import connect
from marathond.ledger.verbs import admission
from marathond.ports.engine import NetworkInfo
from tests.support.outcome import wait_for
from tests.support.private_engine import PrivateEngine
from tests.support.process_rig import ProcessRig
from tests.support.rig import CALL_TIMEOUT_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

ARMS = {"a": {"kind": "nop"}, "b": {"kind": "command", "argv": ["sleep", "0.3"]}}
FOREIGN = {"marathond.test": "somebody else"}


def two_tasks(tmp_path: Path) -> list[Path]:
    return [make_task(tmp_path, name, network="public") for name in ("one", "two")]


def most_at_once(rig: Rig) -> int:
    """The most network trials at one time, by the order in which their leases and releases were written."""
    changes = rig.sql(
        """SELECT leased_at_ms AS at_ms, 1 AS step FROM network_lease
           UNION ALL SELECT released_at_ms, -1 FROM network_lease ORDER BY at_ms, step"""
    )
    running = most = 0
    for _, step in changes:
        running += step
        most = max(most, running)
    assert running == 0
    return most


async def assert_all_scored(rig: Rig, cells: int) -> None:
    assert rig.sql("SELECT count(*), sum(state = 'scored') FROM trial") == [(cells, cells)], rig.story()
    assert rig.sql("SELECT code, reason FROM void") == []
    await rig.until("SELECT count(*) = 0 FROM network_lease WHERE released_at_ms IS NULL")


async def test_b01_eight_cells_two_explicit_networks(docker_host: str, tmp_path: Path) -> None:
    overrides = {"network.cap": 2, "admission.concurrency": 8}
    async with Rig(docker_host, tasks=two_tasks(tmp_path), arms=ARMS, replicates=2, overrides=overrides) as rig:
        await rig.until("SELECT value_json LIKE '%NETPOOL 2/2%' FROM observation WHERE key = 'waiting'")
        await rig.until_done()
        await assert_all_scored(rig, 8)
        assert most_at_once(rig) == 2


async def test_b01_eight_cells_in_a_pool_that_others_use(own_engine: PrivateEngine, tmp_path: Path) -> None:
    """Four entries: docker0 holds one, somebody holds one for good and takes another now and then, faster than we can count."""
    overrides = {"network.mode": "auto", "network.margin": 0, "admission.concurrency": 8}
    rival = DockerEngine("rival", own_engine.url, call_timeout_s=CALL_TIMEOUT_S)
    await rival.create_network("kept", FOREIGN, None)
    grabbed, enough = 0, anyio.Event()

    async def grab() -> None:
        nonlocal grabbed
        while not enough.is_set():
            try:
                network_id = await rival.create_network("now and then", FOREIGN, None)
            except PoolExhausted:
                await anyio.sleep(0.01)
                continue
            grabbed += 1
            await anyio.sleep(0.3)
            await rival.remove_network(network_id)

    enter, tasks = own_engine.ip_command[:-1], two_tasks(tmp_path)
    try:
        async with ProcessRig(own_engine.url, prefix=enter, tasks=tasks, arms=ARMS, replicates=2, overrides=overrides) as rig:
            async with anyio.create_task_group() as group:
                group.start_soon(grab)
                await rig.until("SELECT count(*) >= 3 FROM trial WHERE state = 'scored'")
                enough.set()
            await rig.until_done()
            await assert_all_scored(rig, 8)
            assert most_at_once(rig) == 2
            assert rig.one("SELECT total FROM network_pool") == 4
    finally:
        for network in await rival.list_networks():
            if network.labels == FOREIGN:
                await rival.remove_network(network.id)
        await rival.aclose()
    assert grabbed > 0


class Pair:
    """The first two who come wait for each other; later ones pass."""

    def __init__(self) -> None:
        self.came, self.met = 0, anyio.Event()

    async def meet(self) -> None:
        self.came += 1
        if self.came >= 2:
            self.met.set()
        await self.met.wait()


class Rivalled(DockerEngine):
    """Somebody else is always faster: the first ``times`` subnets that we ask for are taken at the last moment.

    The first two refusals arrive together, and the next two looks at the networks end together: both trials then want the same subnet.
    """

    def __init__(self, url: str, times: int) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.times, self.taken = times, dict[str, str]()
        self._refused, self._looked = Pair(), Pair()

    async def create_network(self, name: str, labels: Mapping[str, str], subnet: str | None, *, internal: bool = False) -> str:
        if subnet is not None and len(self.taken) < self.times and subnet not in self.taken:
            self.taken[subnet] = ""
            self.taken[subnet] = await super().create_network(f"rival {subnet}", FOREIGN, subnet)
        try:
            return await super().create_network(name, labels, subnet, internal=internal)
        except SubnetTaken:
            await self._refused.meet()
            raise

    async def list_networks(self) -> list[NetworkInfo]:
        found = await super().list_networks()
        if self._refused.met.is_set():
            await self._looked.meet()
        return found


async def test_b02_a_rival_that_takes_our_next_subnets_costs_waiting_only(docker_host: str, tmp_path: Path) -> None:
    engine = Rivalled(docker_host, 6)
    try:
        arms = {"a": ARMS["a"]}
        async with Rig(docker_host, tasks=two_tasks(tmp_path), arms=arms, replicates=3, engine=engine) as rig:
            await rig.until_done()
            await assert_all_scored(rig, 6)
            assert {row[0] for row in rig.sql("SELECT subnet FROM subnet_quarantine")} == set(engine.taken)
            swapped = rig.sql("SELECT subnet, released_because FROM network_lease WHERE network_id IS NULL")
            assert sorted(swapped) == sorted((subnet, "never_created") for subnet in engine.taken)
            assert rig.sql("SELECT count(*) FROM network_lease WHERE network_id IS NOT NULL AND released_because = 'seen_gone'") == [(6,)]
            assert rig.sql("SELECT * FROM admission_stop") == []
            listed = {network.id for network in await engine.list_networks()}
            assert set(engine.taken.values()) <= listed
    finally:
        for network_id in engine.taken.values():
            await engine.remove_network(network_id)
        await engine.aclose()


async def test_b02_what_the_host_and_others_use_is_never_handed_out(own_engine: PrivateEngine, tmp_path: Path) -> None:
    """Four slots: an interface lies in the first, a route over the second, somebody's network in the third."""
    ip = [*own_engine.ip_command, "link"]
    await anyio.run_process([*ip, "add", "vpn0", "type", "bridge"])
    await anyio.run_process([*ip, "set", "vpn0", "up"])
    await anyio.run_process([*own_engine.ip_command, "addr", "add", "198.19.0.5/32", "dev", "vpn0"])
    await anyio.run_process([*own_engine.ip_command, "route", "add", "198.19.0.24/29", "dev", "vpn0"])
    rival = DockerEngine("rival", own_engine.url, call_timeout_s=CALL_TIMEOUT_S)
    network_id = await rival.create_network("third", FOREIGN, "198.19.0.32/28")
    overrides = {"network.range": "198.19.0.0/26", "network.cap": 4, "admission.concurrency": 2}
    enter, tasks = own_engine.ip_command[:-1], two_tasks(tmp_path)
    try:
        async with ProcessRig(own_engine.url, prefix=enter, tasks=tasks, arms={"a": ARMS["a"]}, overrides=overrides) as rig:
            await rig.until("SELECT count(*) FROM finding WHERE code = 'subnets_exhausted'")
            await rig.until_done()
            await assert_all_scored(rig, 2)
            assert rig.sql("SELECT DISTINCT subnet FROM network_lease") == [("198.19.0.48/28",)]
            assert most_at_once(rig) == 1
            assert rig.sql("SELECT * FROM subnet_quarantine") == []
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'subnets_exhausted' AND closed_at_ms IS NULL")
            # What of the host lies across the range is named; somebody's network of the same engine is not the host's.
            # Of networks alone: what a slow host opens and closes meanwhile is not meant.
            of_networks = "FROM finding WHERE closed_at_ms IS NULL AND (code LIKE 'network%' OR code LIKE 'subnet%')"
            await rig.until(f"SELECT count(*) = 1 {of_networks}")
            (conflict,) = rig.sql(f"SELECT code, subject, detail {of_networks}")
            assert conflict[:2] == ("network_range_conflict", "198.19.0.0/26")
            assert "route 198.19.0.24/29 dev vpn0" in conflict[2] and "interface vpn0 198.19.0.5/32" in conflict[2]
            assert "198.19.0.3" not in conflict[2]
    finally:
        await rival.remove_network(network_id)
        await rival.aclose()
        await anyio.run_process([*ip, "del", "vpn0"])


async def images_there(rig: Rig, count: int) -> None:
    """The daemon has looked them up.  Each task waits for its own alone, and the one whose answer comes first would be admitted first."""
    daemon = rig.daemon
    assert daemon is not None
    await wait_for(lambda: daemon.world is not None and len(daemon.world.images) == count)


async def test_what_is_behind_an_arm_s_name_changes_neither_order_nor_admission(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name) for name in ("one", "two")]
    kinds = [{"kind": "nop"}, {"kind": "command", "argv": ["false"]}, {"kind": "oracle"}]
    seen = []
    for turn in range(3):
        arms = {name: kinds[(place + turn) % 3] for place, name in enumerate(("a", "b", "c"))}
        rig = Rig(docker_host, tasks=tasks, arms=arms, overrides={"admission.concurrency": 2})
        with closing(connect(rig.ledger_path, mode="rw")) as c:
            admission.open_stop(c, "pause", detail="the images", author="ana", until_ms=None, now_ms=1)
        async with rig:
            await images_there(rig, len(tasks))
            assert rig.daemon is not None
            await rig.daemon.ledger.write(admission.end_stop, "pause", author="ana", now_ms=2)
            await rig.until_done()
            planned = rig.sql("SELECT task.name, arm.name, replicate, ordinal FROM cell JOIN task USING (task_id) JOIN arm USING (arm_id)")
            admitted = rig.sql("SELECT task, arm FROM v_trial ORDER BY trial")
            assert len(admitted) == 6
            seen.append((sorted(planned, key=lambda row: row[3]), admitted))
    assert seen[0] == seen[1] == seen[2]
