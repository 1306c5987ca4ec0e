"""Daemon, gateway and provider go away and come back under running trials; the real key is nowhere but where it belongs."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiodocker
import anyio
import pytest

from marathond.engine.docker import DockerEngine
from marathond.flow import ways
from marathond.ledger.verbs import admission
from marathond.ports.clock import SystemClock
from marathond.ports.engine import LABEL_LEDGER
from marathond.practice.play import Identity
from tests.support.model_agent import asking, commands_that_ask
from tests.support.model_rig import ModelProcessRig, ModelRig, files_with, model_rig
from tests.support.rig import CALL_TIMEOUT_S, make_task

pytestmark = [pytest.mark.docker, pytest.mark.anyio]

SCRIPT = '[[script]]\npattern = ".*"\nstep = [{ say = "Done." }]\nthen = "repeat"\n'
TEST = "if [ -e /tmp/done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
WAIT = 'wait_for() { until [ -e "$1" ]; do sleep 0.1; done; }\n'


@pytest.fixture(autouse=True)
def asking_commands() -> Iterator[None]:
    with commands_that_ask():
        yield


def task(tmp_path: Path, **options: object) -> Path:
    return make_task(tmp_path, "work", test=TEST, **options)  # type: ignore[arg-type]


def run_dir(rig: ModelRig | ModelProcessRig, trial: int = 1) -> Path:
    return rig.root / "state" / "r" / f"t{trial:04d}"


async def until_there(rig: ModelRig | ModelProcessRig, path: Path, patience_s: float = 120.0) -> None:
    with anyio.move_on_after(patience_s):
        while not path.exists():  # noqa: ASYNC110, ASYNC240 - what is waited for is a file
            await anyio.sleep(0.05)
        return
    raise AssertionError(f"{path} did not come\n{rig.story()}")


async def until_readable(path: Path, patience_s: float = 120.0) -> dict[str, Any]:
    """The object in a JSON file, once it is one."""
    with anyio.fail_after(patience_s):
        while True:
            with contextlib.suppress(ValueError):
                return dict(json.loads(await anyio.Path(path).read_text()))
            await anyio.sleep(0.05)


# ── the key ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def seen_from_outside(docker_host: str, rig: ModelRig) -> tuple[str, list[bytes]]:
    """All that the engine tells of the only container and of its execs, and the environment of each of its processes."""
    engine, docker = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S), aiodocker.Docker(url=docker_host)
    try:
        (found,) = await engine.list_containers({LABEL_LEDGER: rig.ledger_id})
        pids = [process.pid for process in await engine.processes(found.id)]
        shown = await docker.containers.container(found.id).show()
        execs = [await docker._query_json(f"exec/{exec_id}/json") for exec_id in shown["ExecIDs"] or ()]
    finally:
        await engine.aclose()
        await docker.close()
    return str([shown, execs]), [environ(pid) for pid in pids]


def environ(pid: int) -> bytes:
    """Empty of a process that ended since it was listed: the agent sleeps between two looks."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


async def test_c14_the_real_key_is_in_no_container_log_artifact_ledger_or_file_of_ours(docker_host: str, tmp_path: Path) -> None:
    agent = WAIT + "ask 'Do it.'; env >/logs/agent/env; cat /proc/*/environ >/logs/agent/environ 2>/dev/null; touch /logs/agent/asked\n"
    agent += "wait_for /marathond/ctl/go; [ $status = 200 ] && touch /tmp/done"
    script = "known_keys_only = true\n" + SCRIPT
    patient = task(tmp_path, agent_s=300.0)
    async with model_rig(docker_host, [patient], {"sh": asking(agent)}, script, record=tmp_path / "record") as rig:
        rig.provider.enroll(rig.key, Identity("t1"))  # who asks with another key is refused
        await until_there(rig, run_dir(rig) / "logs/agent/asked")
        shown, environs = await seen_from_outside(docker_host, rig)
        assert len([each for each in environs if each]) >= 2
        assert rig.key not in shown and not any(rig.key.encode() in each for each in environs)
        (run_dir(rig) / "ctl" / "go").touch()
        await rig.until_done()
        assert rig.one("SELECT reward FROM score") == 1.0, rig.story()
        assert rig.provider.tally("t1").requests == 1
        assert (run_dir(rig).parent.parent / "gateway" / "gateway.json").exists()
        await rig.kill()
        await rig.gateway.end()
        assert files_with(rig.key, rig.root) == [rig.key_file]
        assert files_with(rig.key, tmp_path) == []


# ── the gateway ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_gateway_killed_in_the_middle_opens_its_listeners_again_and_nothing_is_admitted_meanwhile(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent asks, the gateway dies, a cell waits for it; it comes back, the agent asks through the same listener, the cell runs.

    Meanwhile the listener's file is damaged: the daemon writes it anew, with the key that the agent has.
    """
    agent = WAIT + "ask 'Do it.'; touch /logs/agent/asked; wait_for /marathond/ctl/go\n"
    agent += "until ask 'Do it.' && [ $status = 200 ]; do sleep 0.2; done; touch /tmp/done"
    arms = {"sh": asking(agent), "later": asking("ask 'Do it.'; [ $status = 200 ] && touch /tmp/done")}
    monkeypatch.setattr(ways, "ALIVE_MS", 6_000)  # three signs of life missed; else this test would wait for seven
    patient = task(tmp_path, agent_s=300.0)
    async with model_rig(docker_host, [patient], arms, SCRIPT, overrides={"campaign.arms": '["sh"]'}) as rig:
        await until_there(rig, run_dir(rig) / "logs/agent/asked")
        await rig.gateway.kill()
        listener = rig.gateway.folder / "listeners" / "t0001.json"
        whole = json.loads(listener.read_text())
        listener.write_text(listener.read_text()[:40])
        await rig.until("SELECT count(*) FROM finding WHERE code = 'gateway_stale' AND closed_at_ms IS NULL")
        del rig.overrides["campaign.arms"]  # the campaign grows while the gateway is away
        await rig.kill()
        await rig.start()
        await rig.until("SELECT value_json LIKE '%GATEWAY%' FROM observation WHERE key = 'waiting'")
        assert rig.one("SELECT count(*) FROM trial") == 1
        anew = await until_readable(listener)
        assert anew == {**whole, "version": anew["version"]} and anew["version"] > whole["version"]
        rig.gateway.start()
        await rig.gateway.serving()
        (run_dir(rig) / "ctl" / "go").touch()
        await rig.until_done()
        assert rig.sql("SELECT reward FROM score") == [(1.0,), (1.0,)], rig.story()
        await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'gateway_stale' AND closed_at_ms IS NULL")
        assert [row[0] for row in rig.sql("SELECT requests FROM model_usage ORDER BY trial_id")] == [2, 1]
        assert rig.sql("SELECT code FROM finding WHERE code LIKE 'journal%'") == []


# ── the daemon ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_c19_without_a_daemon_the_gateway_refuses_after_the_deadline_and_nothing_is_counted_twice(
    docker_host: str, tmp_path: Path
) -> None:
    agent = "until ask 'Do it.'; [ $status = 403 ]; do touch /logs/agent/asked; echo $status >>/logs/agent/said; sleep 0.2; done\n"
    agent += "cp /tmp/answer /logs/agent/refused; sleep 600"
    # Within its limit the agent must have asked once and the daemon have been killed; what comes after that takes as long as it takes.
    made = model_rig(docker_host, [task(tmp_path, agent_s=20.0)], {"sh": asking(agent)}, SCRIPT, in_process=False)
    async with made as rig:
        await until_there(rig, run_dir(rig) / "logs/agent/asked")
        await rig.agent_runs()
        await rig.kill()
        await until_there(rig, run_dir(rig) / "logs/agent/refused")
        refused = (run_dir(rig) / "logs/agent/refused").read_text()
        await rig.start()
        await rig.until_done()
        assert '"code": "deadline"' in refused
        assert rig.one("SELECT state FROM trial") == "scored", rig.story()
        ended_by, overrun_ms = rig.one("SELECT ended_by, overrun_ms FROM trial_agent")
        assert ended_by == "deadline" and overrun_ms > 0
        asked = len(next(rig.root.glob("out/**/agent/said")).read_text().split())
        assert asked == len(rig.gateway.records()) == rig.one("SELECT requests FROM model_usage")
        assert rig.one("SELECT code, count >= 1 FROM model_refusal") == ("deadline", 1)


class Later(SystemClock):
    """The same boot, some time on."""

    def __init__(self, by_ms: int) -> None:
        super().__init__()
        self.by_ms = by_ms

    def mono_ms(self) -> int:
        return super().mono_ms() + self.by_ms


async def test_c19_an_agent_that_had_far_more_than_its_time_is_for_review(docker_host: str, tmp_path: Path) -> None:
    agent = "touch /logs/agent/asked /tmp/done; sleep 600"
    async with model_rig(docker_host, [task(tmp_path, agent_s=60.0)], {"sh": asking(agent)}, SCRIPT) as rig:
        await until_there(rig, run_dir(rig) / "logs/agent/asked")
        await rig.agent_runs()
        await rig.kill()
        rig.clock = Later(20 * 60_000)
        await rig.start()
        await rig.until("SELECT state = 'review' FROM trial")
        code, detail, evidence = rig.one("SELECT code, detail, json_extract(evidence_json, '$.reward') FROM review")
        assert code == "overrun" and "the verifier read 1" in detail and evidence == 1.0
        ended_by, overrun_ms = rig.one("SELECT ended_by, overrun_ms FROM trial_agent")
        assert ended_by == "deadline" and overrun_ms > 15 * 60_000


async def test_a17_a_new_daemon_goes_on_crediting_a_wait_that_began_before_it(docker_host: str, tmp_path: Path) -> None:
    """Killed while a request is held; the next life's first look comes after the deadline that it would have without the wait."""
    script = """
    [[script]]
    text = "outage"
    step = [{ say = "Done.", fault = [{ kind = "status", status = 503, for_s = 24 }] }]
    """
    agent = "touch /logs/agent/asked; ask outage; [ $status = 200 ] && touch /tmp/done"
    async with model_rig(docker_host, [task(tmp_path, agent_s=16.0)], {"sh": asking(agent)}, script) as rig:
        await rig.agent_runs()
        await rig.until("SELECT count(*) FROM model_request WHERE held_from_mono_ms IS NOT NULL")
        await rig.kill()
        started_ms = rig.one("SELECT started_mono_ms FROM trial_agent")
        while time.monotonic_ns() // 1_000_000 < started_ms + 17_000:  # noqa: ASYNC110 - the deadline is a time
            await anyio.sleep(0.1)
        await rig.start()
        await rig.until_done()
        assert rig.one("SELECT reward FROM score") == 1.0, rig.story()
        # None: the machine was so slow that the new life came after all of it, and nobody saw when the agent ended.
        assert rig.one("SELECT ended_by, overrun_ms FROM trial_agent") in (("agent", 0), ("agent", None))


# ── the provider's account ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_spent_account_stops_admission_for_all_arms_until_a_person_resumes(docker_host: str, tmp_path: Path) -> None:
    script = """
    [[script]]
    pattern = ".*"
    step = [{ say = "Done.", fault = [{ kind = "status", status = 429, code = "insufficient_quota" }] }]
    then = "repeat"
    """
    agent = "ask 'Do it.'; [ $status = 200 ] && touch /tmp/done"
    arms = {"one": asking(agent), "two": asking(agent)}
    async with model_rig(docker_host, [task(tmp_path)], arms, script, overrides={"admission.concurrency": 1}) as rig:
        detail = await rig.until("SELECT detail FROM finding WHERE code = 'usage_limit' AND severity = 'stop_loss'")
        assert "route main is used up" in detail and "for any arm" in detail
        await rig.until("SELECT value_json LIKE '%STOP_LOSS (usage_limit%' FROM observation WHERE key = 'waiting'")
        assert rig.one("SELECT count(*) FROM trial") == 1, "nothing more was admitted, for any arm"
        await rig.until("SELECT state = 'scored' FROM trial")
        assert rig.daemon is not None
        await rig.daemon.ledger.write(admission.end_stop, "stop_loss", author="ana", now_ms=0)
        rig.key_file.rename(rig.key_file.with_suffix(".away"))
        await rig.until("SELECT detail LIKE '%all are held%' FROM finding WHERE code = 'gateway_key' AND closed_at_ms IS NULL")
        rig.key_file.with_suffix(".away").rename(rig.key_file)
        await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'gateway_key' AND closed_at_ms IS NULL")
        await rig.until_done()
