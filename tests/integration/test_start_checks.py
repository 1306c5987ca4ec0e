"""What a start looks at before it touches anything: is it the same engine, is the range free; and what only a start can change."""

from __future__ import annotations

import signal
import subprocess
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from anyio import to_thread

from marathond.cli.client import call
from marathond.core.errors import MarathonError
from marathond.engine.docker import DockerEngine
from marathond.engine.host import occupied
from tests.support.process_rig import ProcessRig
from tests.support.rig import CALL_TIMEOUT_S, make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

WAITS = {"kind": "command", "argv": ["sh", "-c", "until [ -e /logs/artifacts/go ]; do sleep 0.05; done"]}


def rewrite(rig: ProcessRig, old: str, new: str) -> None:
    text = rig.config.read_text()
    assert old in text
    rig.config.write_text(text.replace(old, new))


async def test_another_engine_under_the_same_name_is_refused_while_a_trial_runs(docker_host: str, tmp_path: Path) -> None:
    if not docker_host.startswith("unix://"):
        pytest.skip("the engine has no socket to give another name")
    # Three starts go by before the agent may end: its deadline is none of this test's.
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t", agent_s=10_000)], arms={"w": WAITS}) as rig:
        await rig.agent_runs()
        assert rig.one("SELECT url FROM network_pool") == docker_host
        rig.strike(signal.SIGTERM)
        assert await rig.ended() == 0
        other = f"unix://{rig.root}/other.sock"
        rewrite(rig, docker_host, other)
        refused = rig.popen(stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        _, said = await to_thread.run_sync(refused.communicate, None, 240)
        assert refused.returncode == 78, said
        (line,) = [line for line in said.decode().splitlines() if line.startswith("marathond: ")]
        assert docker_host in line and other in line
        assert rig.sql("SELECT state FROM trial") == [("running",)]
        assert rig.one("SELECT url FROM network_pool") == docker_host
        # The same socket by another path is the same engine: the trial is taken over.
        (rig.root / "other.sock").symlink_to(docker_host.removeprefix("unix://"))
        await rig.start()
        await rig.until("SELECT count(*) FROM trial_event WHERE event = 'reattached'")
        (rig.root / "state" / "r" / "t0001" / "logs" / "artifacts" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM trial") == [(1, "scored")]


async def test_what_only_a_restart_changes_is_named_and_left_alone(docker_host: str, tmp_path: Path) -> None:
    overrides = {"network.range": "198.19.0.0/16", "admission.concurrency": 1}
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"nop": {"kind": "nop"}}, overrides=overrides) as rig:
        await rig.until_done()
        rewrite(rig, "198.19.0.0/16", "198.18.0.0/16")
        rewrite(rig, "concurrency = 1", "concurrency = 3")
        answer = await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", {})
        assert answer["needs_restart"] == ["network.range"]
        await rig.until("""SELECT json_extract(value_json, '$."admission.concurrency"') = 3 FROM observation WHERE key = 'limits'""")
        assert rig.one("SELECT range FROM network_pool") == "198.19.0.0/16"
        await rig.kill()
        await rig.start()
        await rig.until("SELECT range = '198.18.0.0/16' FROM network_pool")


async def test_f06_a_mistyped_task_is_refused_and_one_that_vanished_ends_no_later_start(docker_host: str, tmp_path: Path) -> None:
    """The first start and a submission refuse a folder that nobody knows; a start that goes on with the campaign does not end over one."""
    tasks = [make_task(tmp_path, "t", toml="[metdata]\n"), make_task(tmp_path, "lost")]
    rig = ProcessRig(docker_host, tasks=[*tasks, tmp_path / "lots"], arms={"nop": {"kind": "nop"}})
    wrong, right = f'"{tmp_path}/lost", "{tmp_path}/lots"', f'"{tmp_path}/lost"'
    first = rig.popen(stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    _, said = await to_thread.run_sync(first.communicate, None, 240)
    rewrite(rig, wrong, right)
    async with rig:
        assert first.returncode == 78, said
        (line,) = [line for line in said.decode().splitlines() if line.startswith("marathond: ")]
        assert line.endswith(f'campaign.tasks[2] = "{tmp_path}/lots": no such folder; near names in {tmp_path}: lost')
        await rig.until_done()
        rewrite(rig, right, wrong)
        with pytest.raises(MarathonError, match="no such folder; near names"):
            await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", {})
        rewrite(rig, wrong, right)
        answer = await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", {})
        assert answer["notes"] == ["t: task.toml: metdata: unknown key, ignored; did you mean metadata?"]
        await rig.kill()
        (tmp_path / "lost").rename(tmp_path / "unmounted")
        await rig.start()
        await rig.until("SELECT count(*) = 2 FROM run WHERE ready_at_ms IS NOT NULL")
        # Away, it parks; nobody needs to wait for it with a submission.
        await to_thread.run_sync(call, rig.root / "state" / "control.sock", "submit", {})
        await rig.kill()
        rewrite(rig, right, wrong)
        await rig.start()
        await rig.until("SELECT count(*) = 3 FROM run WHERE ready_at_ms IS NOT NULL")
        (line,) = [line for line in (rig.root / "log").read_text().splitlines() if "config_left_out" in line]
        assert f"{tmp_path}/lots" in line
        assert f"{tmp_path}/lots" in rig.one("SELECT subject FROM finding WHERE code = 'config_left_out' AND closed_at_ms IS NULL")
        assert rig.sql("SELECT name, count(*) FROM task JOIN cell USING (task_id) GROUP BY 1") == [("lost", 1), ("t", 1)]


async def test_a_range_that_meets_this_host_and_the_clocks_of_the_roots_are_in_the_ledger(docker_host: str, tmp_path: Path) -> None:
    engine = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    try:
        # Other tests' networks come and go: the bridge of one that was there at only one of two looks would pass for this host's own.
        networks = list(await engine.list_networks())
        found = await to_thread.run_sync(occupied)
        networks += await engine.list_networks()
    finally:
        await engine.aclose()
    bridges = [IPv4Network("198.18.0.0/15"), *(IPv4Network(text) for net in networks for text in net.subnets if ":" not in text)]
    addresses = [IPv4Network(item.cidr, strict=False) for item in found if item.what.startswith("interface")]
    mine = [
        net
        for net in addresses
        if net.is_private and not net.is_loopback and not net.is_link_local and not any(net.overlaps(b) for b in bridges)
    ]
    if not mine:
        pytest.skip("this host has no private address of its own")
    range_ = str(mine[0] if mine[0].prefixlen <= 24 else mine[0].supernet(new_prefix=24))
    overrides = {"network.range": range_, "network.cap": 1}
    async with ProcessRig(docker_host, tasks=[make_task(tmp_path, "t")], arms={"nop": {"kind": "nop"}}, overrides=overrides) as rig:
        await rig.until("SELECT count(*) FROM finding WHERE code = 'network_range_conflict' AND closed_at_ms IS NULL")
        subject, detail = rig.one("SELECT subject, detail FROM finding WHERE code = 'network_range_conflict'")
        assert subject == range_ and "interface" in detail
        await rig.until_done()
        await rig.until("SELECT count(*) FROM observation WHERE key = 'clock_offset'")
        offsets = dict(rig.sql("SELECT j.key, j.value FROM observation o, json_each(o.value_json) j WHERE o.key = 'clock_offset'"))
        assert set(offsets) == {str(rig.root / "state"), str(rig.root / "out")}
        assert all(isinstance(offset, int) for offset in offsets.values())
        await rig.kill()
        rewrite(rig, range_, "198.19.0.0/16")
        await rig.start()
        await rig.until("SELECT count(*) = 0 FROM finding WHERE subject = ? AND closed_at_ms IS NULL", range_)
