"""What lies around from elsewhere: other ledgers' folders, other campaigns' trials, a tight umask, other people's IPv6."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from marathond.core.errors import Refused
from marathond.engine.docker import DockerEngine
from tests.support.rig import CALL_TIMEOUT_S, Rig, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
NOP = {"kind": "nop"}


@pytest.fixture
def tight_umask() -> Iterator[None]:
    """As the shipped unit has it (UMask=0027)."""
    before = os.umask(0o027)
    try:
        yield
    finally:
        os.umask(before)


async def test_any_user_reads_its_instruction_under_the_units_umask(docker_host: str, tight_umask: None, tmp_path: Path) -> None:
    task = make_task(tmp_path, "read", instruction="the words\n", environment="", toml="")
    (task / "task.toml").write_text((task / "task.toml").read_text().replace("[agent]\n", '[agent]\nuser = "nobody"\n'))
    arms = {"cat": {"kind": "command", "argv": ["sh", "-c", 'cat "$MARATHOND_INSTRUCTION" >/logs/artifacts/seen']}}
    async with Rig(docker_host, tasks=[task], arms=arms) as rig:
        await rig.until_done()
        folder = rig.root / "out" / rig.one("SELECT folder FROM artifact_export")
        assert (folder / "artifacts" / "seen").read_text() == "the words\n"


async def test_f07_a_run_directory_of_another_ledger_is_moved_aside_not_adopted(docker_host: str, tmp_path: Path) -> None:
    look = {"kind": "command", "argv": ["sh", "-c", "ls /logs/artifacts >/logs/agent/saw"]}
    rig = Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"look": look})
    old = rig.root / "state" / "r" / "t0001" / "logs" / "artifacts"
    old.mkdir(parents=True)
    (old / "old-solution.txt").write_text("from another life")
    async with rig:
        await rig.until_done()
        folder = rig.root / "out" / rig.one("SELECT folder FROM artifact_export")
        assert (folder / "agent" / "saw").read_text() == ""
        assert not (folder / "artifacts" / "old-solution.txt").exists()
        assert [p.name for p in (rig.root / "state" / "r").glob("t0001.found-*/logs/artifacts/*")] == ["old-solution.txt"]


async def test_f07_a_campaign_folder_of_another_ledger_is_refused(docker_host: str, tmp_path: Path) -> None:
    rig = Rig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"nop": NOP})
    folder = rig.root / "out" / "test"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"marathond": {"ledger": "0123456789ab"}}))
    with pytest.RaisesGroup(pytest.RaisesExc(Refused, match="holds artifacts of ledger 0123456789ab"), flatten_subgroups=True):
        async with rig:
            await anyio.sleep_forever()


async def test_b02_other_peoples_ipv6_networks_disturb_nobody(docker_host: str, tmp_path: Path) -> None:
    engine, mine = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S), secrets.token_hex(2)
    config = {"Driver": "default", "Config": [{"Subnet": f"fd00:dead:{mine}::/64"}]}  # another run of the tests may use the same engine
    body = {"Name": f"foreign6-{mine}-{os.getpid()}", "EnableIPv6": True, "IPAM": config}
    foreign = (await engine._client.request("network.create", "POST", "networks/create", body=body))["Id"]
    try:
        async with Rig(docker_host, tasks=[make_task(tmp_path, "net", network="public")], arms={"nop": NOP}) as rig:
            await rig.until_done()
            assert rig.sql("SELECT state FROM v_trial") == [("scored",)]
    finally:
        await engine.remove_network(foreign)
        await engine.aclose()


async def test_f02_a_trial_of_the_last_campaign_is_finished_by_its_own_rules_and_lands_in_its_own_folder(
    docker_host: str, tmp_path: Path
) -> None:
    task = make_task(tmp_path, "t", agent_s=1000)
    wait = {"kind": "command", "argv": ["sh", "-c", "while [ ! -e /logs/artifacts/go ]; do sleep 0.1; done"]}
    rig = Rig(docker_host, tasks=[task], arms={"old": wait})
    async with rig:
        await rig.agent_runs()
        await rig.kill()
        text = rig.config.read_text().replace('name = "test"', 'name = "next"').replace("[arms.old]", "[arms.new]")
        rig.config.write_text(text.replace("[arms.new]", "[limits]\nverifier_timeout_multiplier = 7.0\n[arms.new]", 1))
        await rig.start()
        for number in (1, 2):
            await rig.until("SELECT count(*) FROM trial WHERE trial_id = ? AND state = 'running'", number)
            (rig.root / "state" / "r" / f"t{number:04d}" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT campaign, arm, state FROM v_trial ORDER BY trial") == [("test", "old", "scored"), ("next", "new", "scored")]
        limits = rig.sql("SELECT limit_origin FROM verification ORDER BY trial_id")
        assert limits == [("task 200 x 1.0",), ("task 200 x 7.0",)]
        for name in ("test", "next"):
            result = json.loads((rig.root / "out" / name / "result.json").read_text())
            assert result["stats"]["n_completed_trials"] == 1


async def test_f06_an_image_without_a_shell_stops_nobody_else(docker_host: str, tmp_path: Path) -> None:
    bare = make_task(tmp_path, "a-bare", environment="", network="no-network")
    (bare / "environment").mkdir()
    (bare / "environment" / "Dockerfile").write_text("FROM scratch\nCOPY nothing /nothing\n")
    (bare / "environment" / "nothing").touch()
    (bare / "task.toml").write_text("\n".join(x for x in (bare / "task.toml").read_text().splitlines() if "docker_image" not in x))
    tasks = [bare, make_task(tmp_path, "b-good"), make_task(tmp_path, "c-good"), make_task(tmp_path, "d-good")]
    async with Rig(docker_host, tasks=tasks, arms={"n": NOP, "m": NOP}) as rig:
        await rig.until_done()
        assert rig.sql("SELECT DISTINCT task FROM v_cell WHERE state <> 'done'") == [("a-bare",)]
        assert rig.sql("SELECT DISTINCT park_code FROM v_cell WHERE task = 'a-bare'") == [("passes_exhausted",)]
        assert rig.sql("SELECT kind FROM admission_stop") == []
