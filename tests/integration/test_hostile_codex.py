"""A codex agent that would rather have another attempt: whatever it does to its own server or its own goal is its own end (fault c18)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from marathond.ports.agent import AgentEnd
from marathond.practice.script import Practice
from tests.integration.test_codex_driver import KILL_THE_SERVER, begun, by, count
from tests.support.codex_trial import codex_arm
from tests.support.model_rig import model_rig
from tests.support.rig import make_task
from tests.support.yard import Yard, yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]


@pytest.fixture(name="ground")
async def made_ground(docker_host: str) -> AsyncIterator[Yard]:
    async with yard(docker_host) as made:
        yield made


def ends_it(signal: str) -> str:
    return KILL_THE_SERVER.replace("-9", f"-{signal}")


@pytest.mark.parametrize(("signal", "code"), [("ABRT", 134), ("TERM", 0)])
async def test_c18_it_ends_its_server_by_another_signal(ground: Yard, tmp_path: Path, signal: str, code: int) -> None:
    """After TERM codex waits for its turn, and exits 0; a second one ends it at once."""
    twice = f"{ends_it(signal)}; sleep 1; {ends_it(signal)}; sleep 60"
    async with begun(ground, tmp_path, codex_arm(), count("one"), {"run": twice}) as driven:
        assert await driven.wait() == AgentEnd(code, "exec")


async def test_c01_a_command_that_still_runs_is_a_command(ground: Yard, tmp_path: Path) -> None:
    """It never ends as an item; and the words about a dead sidecar are the agent's own, in a file that it can write."""
    forge = "echo ERROR code mode host is gone >>/logs/agent/codex-server.txt; sleep 600"
    async with begun(ground, tmp_path, codex_arm(), {"run": forge, "wait": False}, {"say": "done"}) as driven:
        assert await driven.wait() == by()
        assert (await driven.log("turn_completed"))[0]["acts"] == 0 and not await driven.log("no_commands")
        assert await driven.log("acted") == [{"type": "commandExecution"}]


async def test_c18_its_very_first_command_kills_its_server(docker_host: str, tmp_path: Path) -> None:
    """Codex is dead before it says that a command began; that its model had answered only the gateway knows."""
    arms = {"plain": {"kind": "codex", "drive": "turn"}, "goal": {"kind": "codex", "drive": "goal"}}
    script = Practice.model_validate({"script": [{"step": [{"run": f"{ends_it('KILL')}; sleep 60"}]}]})
    async with model_rig(docker_host, [make_task(tmp_path, "task", agent_s=240.0)], arms, script) as rig:
        await rig.until_done()
        assert rig.sql("SELECT attempt, state FROM v_trial") == [(1, "scored")] * 2, rig.story()
        assert rig.sql("SELECT ended_by, exit_code, exit_source FROM trial_agent") == [("agent", 137, "exec")] * 2
