"""LoopX's three arms driven to their end: the real codex and the real LoopX in real containers, without daemon and gateway around them.

One trial for each arm; one that blocks itself for ever; one whose daemon dies in the middle of a wake and between two; one whose LoopX
breaks.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.agents.codex import drive, harness
from marathond.agents.loopx import profile
from marathond.core.errors import GateFailed
from marathond.core.model import Arm, LoopXArm
from marathond.core.names import Drive, EndedBy, LoopXProfile
from marathond.practice.script import Practice
from tests.support import loopx_agent
from tests.support.codex_trial import LOOPX_PACKAGE, ListLog, codex_arm, codex_trial
from tests.support.driven import PATIENCE_S, Driven, by, count
from tests.support.loopx_env import loopx_tree
from tests.support.rig import make_task
from tests.support.yard import Yard, yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


@pytest.fixture
async def ground(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    monkeypatch.setattr(drive, "PAUSE_FIRST_S", 0.2)
    monkeypatch.setattr(drive, "OPERATOR_PAUSE_S", 0.2)
    monkeypatch.setattr(harness, "PAUSE_S", 0.2)
    async with yard(docker_host) as made:
        yield made


def loopx_arm(runtime: LoopXProfile, **codex: Any) -> Arm:
    drive_ = Drive.WAKE if runtime is LoopXProfile.GENERIC_CLI else Drive.GOAL
    interval_s = codex.pop("wake_interval_s", None)
    loopx = LoopXArm(LOOPX_PACKAGE, loopx_agent.VERSION, "wheel", profile=runtime, wake_interval_s=interval_s)
    return codex_arm(drive_, **{"operator": True, "loopx": loopx, **codex})


HEARTBEAT = LoopXProfile.GENERIC_CLI


@contextlib.asynccontextmanager
async def begun(ground: Yard, tmp_path: Path, arm: Arm, *steps: dict[str, Any], **script: Any) -> AsyncIterator[Driven]:
    """A trial whose gates have passed, and whose server runs."""
    task = make_task(tmp_path, "task", instruction="do it\n")
    practice = Practice.model_validate({"script": [{"text": "do it", "step": list(steps), "latest": loopx_agent.LATEST, **script}]})
    async with codex_trial(ground, task, arm, practice, loopx=loopx_tree().root) as trial:
        await trial.agent.gates(trial.env)
        exec_id = await trial.agent.create(trial.env)
        assert exec_id is not None
        await trial.agent.begin(trial.env, exec_id)
        yield Driven(trial, exec_id)


@pytest.mark.parametrize("runtime", list(LoopXProfile))
async def test_c05_an_arm_of_loopx_from_its_start_to_its_end(ground: Yard, tmp_path: Path, runtime: LoopXProfile) -> None:
    steps = (loopx_agent.ask(runtime), count("worked"), loopx_agent.settle())
    async with begun(ground, tmp_path, loopx_arm(runtime), *steps) as driven:
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["asked", "worked", "settled"]
        prepared = (await driven.log("prepared"))[0]["loopx"]
        if runtime is HEARTBEAT:
            (wake,) = await driven.log("wake_intended")
            assert (wake["cause"], wake["n"]) == ("first", 1)
            assert wake["turn_id"] in await driven.shell(f"cat {loopx_agent.SEEN}")
            assert [said["stop"] for said in await driven.log("quota")] == [True]
            assert (await driven.log("ended"))[0]["why"].startswith("loopx: stop_until_explicit_resume")
            assert not await driven.log("goal_set") and not await driven.log("replayed")
        else:
            assert [said["objective"] for said in await driven.log("goal_set")] == [prepared["body"]]
            assert (await driven.log("ended"))[0]["why"] == "goal complete" and not await driven.log("quota")
        receipt = await driven.trial.collect()
        assert receipt is not None and receipt.data["unblocks"] == {"model": 0, "infra": 0, "stalled": 0, "gate": 0}


async def test_c06_a_loopx_arm_that_blocks_itself_for_ever(ground: Yard, tmp_path: Path) -> None:
    """Resumed with the whole task, LoopX's gate cleared with it once and counted apart; then it is over by rule."""
    steps = (
        {"run": f"echo acted >>/ran; [ -e /tmp/gate.json ] || {{ {loopx_agent.gate()['run']}; }}"},
        {"goal": "blocked"},
        {"say": "stuck"},
    )
    arm = loopx_arm(LoopXProfile.SSH_GOAL, unblocks_at_most=3)
    async with begun(ground, tmp_path, arm, *steps, then="repeat") as driven:
        assert await driven.wait(2 * PATIENCE_S) == by(EndedBy.UNBLOCK_CAP)
        assert await driven.lines("/ran") == ["acted", "gated", *["acted"] * 3]
        assert [said["cause"] for said in await driven.log("unblock")] == ["gate", "model", "model"]
        cleared, *others = [said["ids"] for said in await driven.log("gate_cleared")]
        assert len(cleared) == 1 and others == [[], []]
        receipt = await driven.trial.collect()
        assert receipt is not None and receipt.data["unblocks"] == {"model": 2, "infra": 0, "stalled": 0, "gate": 1}
        assert "blocked again after 3 times" in receipt.data["end"]["why"]
        changes = [(change["status"], change["cause"]) for change in receipt.data["goal"]["changes"]]
        assert changes == [("active", "arm"), *[("blocked", "model"), ("active", "operator")] * 3, ("blocked", "model")]
        assert driven.messages() == [driven.trial.env.task.instruction] * 4


async def test_a05_c06_a_heartbeat_over_failures_gates_and_daemons(ground: Yard, tmp_path: Path) -> None:
    """A wake that the infrastructure failed, one in whose middle the daemon dies and which leaves a gate, and after a pause, in which
    it dies again, one that settles: nothing is done twice, each wake has an id of its own, and the last one brings the task once more."""
    failing = {**count("one"), "fault": [{"kind": "status", "status": 400, "times": 1}]}
    held = {"run": "echo begun >>/ran; while [ ! -e /go ]; do sleep 0.05; done; echo gone >>/ran"}
    steps = (failing, held, loopx_agent.gate(), {"say": "waiting"}, loopx_agent.ask(HEARTBEAT), loopx_agent.settle(), {"say": "settled"})
    arm = loopx_arm(HEARTBEAT, wake_interval_s=3600.0)
    async with begun(ground, tmp_path, arm, *steps) as driven:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.holds("grep -q begun /ran")
            group.cancel_scope.cancel()
        assert [wake["cause"] for wake in await driven.log("wake_intended")] == ["first", "retry"]
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.until("reattached")
            await driven.shell("touch /go")
            # Asked twice: its gate is told, and once it is cleared, that there is work.
            await driven.until("quota", 2)
            group.cancel_scope.cancel()
        waits, works = await driven.log("quota")
        assert (waits["requires_user"], waits["should_run"], works["should_run"], works["requires_user"]) == (True, False, True, False)
        assert [said["cause"] for said in await driven.log("unblock")] == ["gate"] and len(await driven.log("wake_intended")) == 2
        log = driven.trial.env.log
        assert isinstance(log, ListLog)
        log.passed(3600.0)
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["one", "begun", "gone", "gated", "asked", "settled"]
        wakes = await driven.log("wake_intended")
        assert [wake["cause"] for wake in wakes] == ["first", "retry", "gate"] and len({wake["turn_id"] for wake in wakes}) == 3
        assert len(await driven.log("turn_accepted")) == len(await driven.log("turn_completed")) == 3
        assert not await driven.log("replayed")
        texts = driven.messages()
        assert [text.startswith(driven.trial.env.task.instruction) for text in texts] == [True, False, True]
        assert [wake["turn_id"] in text for wake, text in zip(wakes, texts, strict=True)] == [True] * 3


async def test_c18_a_loopx_that_says_no(ground: Yard, tmp_path: Path) -> None:
    """Its registry is broken: before the agent did anything that is the infrastructure, afterwards what the agent did to itself."""
    registry = f"{profile.STATE}/registry.json"
    breaking = f"cp {registry} /kept.json; echo '{{' >{registry}"
    async with begun(ground, tmp_path, loopx_arm(HEARTBEAT), {"run": f"{breaking}; echo broken >>/ran"}, {"say": "done"}) as driven:
        await driven.shell(breaking)
        with pytest.raises(GateFailed) as failure:
            await driven.wait()
        assert failure.value.code == "loopx_failed" and failure.value.detail.startswith("heartbeat-prompt: refused"), failure.value
        await driven.shell(f"cp /kept.json {registry}")
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["broken"]
        assert [said["call"] for said in await driven.log("loopx_refused")] == ["quota should-run"]
        assert (await driven.log("ended"))[0]["why"].startswith("LoopX does not answer any more: quota should-run: ")


async def test_c18_an_agent_that_takes_its_loopx_the_means_to_run(ground: Yard, tmp_path: Path) -> None:
    """Its libc's loader is gone, as after an upgrade that went wrong: codex needs none, LoopX's Python does.  No free second try."""
    unlinked = {"run": "echo acted; mv /lib64/ld-linux-x86-64.so.2 /lib64/gone"}
    async with begun(ground, tmp_path, loopx_arm(HEARTBEAT), unlinked, {"say": "done"}) as driven:
        assert await driven.wait() == by()
        (refused,) = await driven.log("loopx_refused")
        assert (refused["call"], refused["code"]) == ("quota should-run", "broken")
        assert (await driven.log("ended"))[0]["why"].startswith("LoopX does not answer any more: quota should-run: ")
