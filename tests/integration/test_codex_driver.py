"""A codex arm driven to its end: every rule on the real binary in real containers, without daemon and gateway around it.

Another daemon life is what the product makes of it: the wait is cancelled, and called again with nothing but the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from marathond.agents.codex import drive, gates
from marathond.agents.codex.client import CodexClient, connect
from marathond.agents.codex.messages import TurnInterrupt, TurnStart
from marathond.agents.codex.reach import Reach
from marathond.agents.codex.state import fold
from marathond.core.errors import GateFailed
from marathond.core.model import Arm, Mount
from marathond.core.names import Drive, EndedBy
from marathond.ports.agent import AgentEnd
from marathond.practice.script import Practice
from tests.support.codex_trial import codex_arm, codex_trial
from tests.support.driven import PATIENCE_S, Driven, by, count
from tests.support.rig import make_task
from tests.support.yard import Yard, yard

pytestmark = [pytest.mark.docker, pytest.mark.anyio]
OWN = (Drive.TURN, Drive.GOAL)
"""Drives that need nothing but codex."""
KILL_THE_SERVER = "for d in /proc/[0-9]*; do case $(readlink $d/exe) in */bin/codex) kill -9 ${d#/proc/} ;; esac; done"
FOLDER = "/tmp/codex-daemon-0"


@pytest.fixture
async def ground(docker_host: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    monkeypatch.setattr(drive, "PAUSE_FIRST_S", 0.2)
    monkeypatch.setattr(drive, "OPERATOR_PAUSE_S", 0.2)
    async with yard(docker_host) as made:
        yield made


@contextlib.asynccontextmanager
async def begun(
    ground: Yard, tmp_path: Path, arm: Arm, *steps: dict[str, Any], timer_s: int = 600, others: Sequence[dict[str, Any]] = (), **script: Any
) -> AsyncIterator[Driven]:
    """A trial that is prepared as its gates would have left it, and whose server runs."""
    task = make_task(tmp_path, "task", instruction="do it\n")
    practice = Practice.model_validate({"script": [{"text": "do it", "step": list(steps), **script}, *others]})
    async with codex_trial(ground, task, arm, practice) as trial:
        await trial.agent.prepare(trial.env, await gates.survey(trial.env))
        exec_id = await trial.agent.create(replace(trial.env, timer_s=timer_s))
        assert exec_id is not None
        await trial.agent.begin(trial.env, exec_id)
        yield Driven(trial, exec_id)


def failing(times: int = 1, **fault: Any) -> dict[str, Any]:
    return {**count("late"), "fault": [{"kind": "status", "status": 400, "times": times, **fault}]}


def goal_arm(**codex: Any) -> Arm:
    return codex_arm(Drive.GOAL, **codex)


@pytest.mark.parametrize(("drive_", "model"), [(Drive.TURN, "gpt-6-sol"), (Drive.GOAL, "gpt-6-sol"), (Drive.GOAL, "gpt-5.5")])
async def test_a_run_from_its_start_to_its_end(ground: Yard, tmp_path: Path, drive_: Drive, model: str) -> None:
    async with begun(ground, tmp_path, codex_arm(drive_, model=model), count("one"), {"say": "so far"}, count("two")) as driven:
        assert await driven.wait() == by()
        # A plain turn is over with the first answer that calls no tool; a goal goes on.
        assert await driven.lines("/ran") == (["one"] if drive_ is Drive.TURN else ["one", "two"])
        assert [ended["by"] for ended in await driven.log("ended")] == ["agent"]
        await driven.trial.collect()
        assert (await driven.log("config"))[0]["same"] is True
        assert not await driven.log("warning") and not await driven.log("no_commands")
        assert await driven.wait() == by(), "asked again it says the same"


@pytest.mark.parametrize("arm", [codex_arm(infra_retries=2), goal_arm(infra_retries=2)], ids=["plain", "goal"])
async def test_a05_both_arms_are_taken_up_again_after_a_failed_turn(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    async with begun(ground, tmp_path, arm, count("one"), failing(2), {"say": "done"}) as driven:
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["one", "late"]
        state = fold((entry.kind, entry.detail) for entry in await driven.trial.env.log.entries())
        assert (state.infra, state.unblocks) == (2, 0)


@pytest.mark.parametrize("arm", [codex_arm(infra_retries=1), goal_arm(infra_retries=1, operator=True)], ids=["plain", "goal"])
async def test_a05_and_given_up_alike(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    async with begun(ground, tmp_path, arm, count("one"), failing(100)) as driven:
        with pytest.raises(GateFailed) as failure:
            await driven.wait()
        assert failure.value.code == "model_failed" and "after 1 retries" in failure.value.detail
        assert await driven.lines("/ran") == ["one"]


@pytest.mark.parametrize("arm", [codex_arm(), goal_arm(operator=True)], ids=["plain", "goal"])
@pytest.mark.parametrize(("code", "word"), [("insufficient_quota", "usage_limit"), ("context_length_exceeded", "contextWindowExceeded")])
async def test_failures_that_no_repetition_mends(ground: Yard, tmp_path: Path, arm: Arm, code: str, word: str) -> None:
    async with begun(ground, tmp_path, arm, count("one"), {**count("two"), "fault": [{"kind": "failed", "code": code}]}) as driven:
        if word == "usage_limit":
            with pytest.raises(GateFailed) as failure:
                await driven.wait()
            assert failure.value.code == word
        else:
            assert await driven.wait() == by()
            assert (await driven.log("ended"))[0]["why"] == word
        assert not await driven.log("unblock") and await driven.lines("/ran") == ["one"]


async def test_c06_a_goal_that_locks_itself(ground: Yard, tmp_path: Path) -> None:
    async with begun(ground, tmp_path, goal_arm(), count("one"), then="blocked") as driven:
        assert await driven.wait() == by(EndedBy.BLOCKED)
    arm = goal_arm(operator=True, unblocks_at_most=2)
    folder = tmp_path / "again"
    async with begun(ground, folder, arm, count("one"), then="blocked") as driven:
        assert await driven.wait() == by(EndedBy.UNBLOCK_CAP)
        assert [unblock["cause"] for unblock in await driven.log("unblock")] == ["model", "model"]


async def test_c07_c13_a_model_that_answers_nothing(ground: Yard, tmp_path: Path) -> None:
    """Every arm ends by rule, with its findings' evidence; nothing runs on afterwards."""
    silent: list[dict[str, Any]] = [{"shape": "deltas", "say": "lost"}]
    async with begun(ground, tmp_path / "plain", codex_arm(), *silent, then="silent") as driven:
        assert await driven.wait() == by()
        assert len(await driven.log("silent_turn")) == 1 and len(await driven.log("no_commands")) == 1
    async with begun(ground, tmp_path / "goal", goal_arm(idle_turns_at_most=4), *silent, then="silent") as driven:
        assert await driven.wait() == by(EndedBy.NO_PROGRESS)
        assert len(await driven.log("silent_turn")) == len(await driven.log("turn_completed")) == 4
        await driven.asks_no_more()


async def test_c07_a_goal_that_never_ends(ground: Yard, tmp_path: Path) -> None:
    async with begun(ground, tmp_path, goal_arm(turns_at_most=3), count("one"), {"say": "more"}, then="repeat") as driven:
        assert await driven.wait() == by(EndedBy.TURN_CAP)
        assert len(await driven.log("turn_completed")) == 3


async def test_tool_calls_of_which_no_item_tells_are_progress(ground: Yard, tmp_path: Path) -> None:
    steps = [{"javascript": "text('thinking');"}, {"say": "more"}] * 3
    arm = goal_arm(model="gpt-6-sol", idle_turns_at_most=2)
    async with begun(ground, tmp_path, arm, *steps) as driven:
        assert await driven.wait() == by()
        assert [(turn["acts"], turn["responses"]) for turn in await driven.log("turn_completed")][:3] == [(0, 2)] * 3


async def test_a_sub_agents_commands_are_counted_apart(ground: Yard, tmp_path: Path) -> None:
    def call(name: str, **arguments: Any) -> dict[str, Any]:
        return {"call": {"name": name, "namespace": "collaboration", "arguments": arguments}}

    spawn = call("spawn_agent", task_name="helper", message="please help", fork_turns="none")
    helper = {"step": [count("helper"), {"say": "helped"}]}
    steps = [spawn, call("wait_agent", timeout_ms=60_000), {"say": "all done"}]
    async with begun(ground, tmp_path, codex_arm(model="gpt-6-sol"), *steps, others=[helper]) as driven:
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["helper"]
        (turn,), (counts,) = await driven.log("turn_completed"), await driven.log("rpc_counts")
        assert (turn["commands"], turn["sub_acts"]) == (0, 1) and counts["sub_agents"] == 1


async def test_a_token_budget_is_an_end_of_its_own(ground: Yard, tmp_path: Path) -> None:
    step = {**count("one"), "usage": {"input": 5000, "output": 100}}
    async with begun(ground, tmp_path, goal_arm(token_budget=2000), step, {"say": "more"}, then="repeat") as driven:
        assert await driven.wait() == by(EndedBy.TOKEN_BUDGET)


@pytest.mark.parametrize("drive_", OWN)
async def test_c01_tools_that_die_after_the_gates(ground: Yard, tmp_path: Path, drive_: Drive) -> None:
    broken = tmp_path / "sidecar"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    mounts = (Mount(str(broken), gates.SIDECAR),)
    arm = codex_arm(drive_, model="gpt-6-sol", mounts=mounts, turns_at_most=5)
    async with begun(ground, tmp_path, arm, count("one")) as driven:
        with pytest.raises(GateFailed) as failure:
            await driven.wait()
        assert failure.value.code == "dead_agent" and "code-mode" in failure.value.detail


@pytest.mark.parametrize("arm", [codex_arm(), goal_arm()], ids=["plain", "goal"])
async def test_c08_told_to_stop_it_stops(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    run = {"run": "while :; do echo x >>/ticks; sleep 0.05; done", "yield_ms": 1000}
    async with begun(ground, tmp_path, arm, run) as driven:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.holds("[ -s /ticks ]")
            group.cancel_scope.cancel()
        await driven.trial.agent.halt(driven.trial.env, driven.exec_id)
        (halted,) = await driven.log("halted")
        assert halted["turn"] and halted["goal"] == ("paused" if arm.codex and arm.codex.drive is Drive.GOAL else "")
        # Not killed: stopped by codex itself, foreground command and all.
        await driven.stands_still("/ticks")
        await driven.asks_no_more()


@pytest.mark.parametrize("arm", [codex_arm(), goal_arm()], ids=["plain", "goal"])
async def test_c08_a_turn_that_nobody_of_us_interrupted_is_an_end(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    """The agent's shell reaches its own control socket.  A goal stays active and idle then: it is not waited for."""
    async with begun(ground, tmp_path, arm, {"run": "echo one >>/ran; sleep 600", "yield_ms": 30_000}) as driven:
        async with anyio.create_task_group() as group:

            async def waiting() -> None:
                assert await driven.wait() == by()
                group.cancel_scope.cancel()

            group.start_soon(waiting)
            await driven.holds("grep -q one /ran")
            await driven.until("turn_started")
            thread_id = (await driven.log("thread"))[0]["thread_id"]
            turn_id = (await driven.log("turn_started"))[-1]["turn_id"]
            env = driven.trial.env
            other = await connect(Reach(env.pid, env.start_ticks, 0, gates.SOCKET_NAME), sink=lambda _: None, timeout_s=60)
            await other.request(TurnInterrupt(thread_id=thread_id, turn_id=turn_id), 60)
            await other.aclose()
            await anyio.sleep_forever()
        assert (await driven.log("ended"))[0]["why"] == "turn interrupted by nobody of us"
        await driven.asks_no_more()


async def test_c19_the_containers_own_timer_ends_it(ground: Yard, tmp_path: Path) -> None:
    """No daemon was there when it fired; the next one takes the engine's word.  What the command's shell had begun is gone too."""
    ticking = "sh -c 'while :; do echo x >>/ticks; sleep 0.05; done'; true"
    async with begun(ground, tmp_path, codex_arm(), {"run": ticking, "yield_ms": 1000}, timer_s=20) as driven:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.holds("[ -s /ticks ]")  # else it would be a server that died before any command
            group.cancel_scope.cancel()
        assert await driven.wait() == AgentEnd(137, "exec")
        assert await driven.shell("cat /marathond/ctl/exit-status") == "timer\n"
        await driven.stands_still("/ticks")


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-6-sol"])
@pytest.mark.parametrize("drive_", OWN)
async def test_another_life_takes_over_in_mid_turn(ground: Yard, tmp_path: Path, drive_: Drive, model: str) -> None:
    """In the middle of a command, and again between two: no command runs twice, none is lost."""
    held = {"run": "echo begun >>/ran; while [ ! -e /go ]; do sleep 0.05; done; echo gone >>/ran"}
    async with begun(ground, tmp_path, codex_arm(drive_, model=model), count("one"), held, count("two")) as driven:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.holds("grep -q begun /ran")
            group.cancel_scope.cancel()
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.until("reattached")
            group.cancel_scope.cancel()
        await driven.shell("touch /go")
        await driven.holds("grep -q two /ran")
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["one", "begun", "gone", "two"]
        assert len(await driven.log("turn_intended")) == 1 == len(await driven.log("thread"))
        first = (await driven.log("turn_completed"))[0]
        assert (first["commands"], first["acts"], first["cause"]) == (3, 3, "first")


async def test_a_goal_whose_first_message_was_dropped_is_told_its_task_and_named(
    ground: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that dies between the goal and the message, which codex then drops: the next life says it again, and that it was late."""
    sent = asyncio.Event()
    request = CodexClient.request

    async def lost(client: CodexClient, asked: Any, timeout_s: float) -> Any:
        if isinstance(asked, TurnStart):
            sent.set()
            await asyncio.Event().wait()
        return await request(client, asked, timeout_s)

    async with begun(ground, tmp_path, goal_arm(), count("one"), count("two")) as driven:
        async with anyio.create_task_group() as group:
            with monkeypatch.context() as patch:
                patch.setattr(CodexClient, "request", lost)
                group.start_soon(driven.wait)
                with anyio.fail_after(PATIENCE_S):
                    await sent.wait()
                    while not driven.trial.asked()[0]:  # noqa: ASYNC110 - the goal's own turn, of which this life does not hear any more
                        await anyio.sleep(0.02)
            group.cancel_scope.cancel()
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["one", "two"] and driven.messages() == ["do it\n"]
        assert len(await driven.log("goal_alone")) == 1 == len(await driven.log("turn_intended"))
    async with begun(ground, tmp_path / "undisturbed", goal_arm(), count("one")) as driven:
        assert await driven.wait() == by() and not await driven.log("goal_alone")


@pytest.mark.parametrize("arm", [codex_arm(), goal_arm()], ids=["plain", "goal"])
async def test_c18_nothing_that_the_container_can_forge_decides(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    """The agent forges its exit status, puts a listener of its own in the socket's place, and links it to the host's."""
    forge = (
        f"echo 0 >{gates.CTL}/exit-status; mv {FOLDER} {FOLDER}.old; mkdir {FOLDER}; chmod 700 {FOLDER};"
        f"ln -s /marathond/ctl/app {FOLDER}/{gates.SOCKET_NAME}; echo forged >>/ran"
    )
    held = {"run": "while [ ! -e /go ]; do sleep 0.05; done; echo gone >>/ran"}
    async with begun(ground, tmp_path, arm, {"run": forge}, held, count("two")) as driven:
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            await driven.holds("grep -q forged /ran")
            group.cancel_scope.cancel()
        # A next life cannot reach the server: it waits, and decides nothing.
        async with anyio.create_task_group() as group:
            group.start_soon(driven.wait)
            with anyio.fail_after(PATIENCE_S):
                while "socket_symlink" not in {entry["code"] for entry in await driven.log("unreachable")}:  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            assert not await driven.log("ended") and not await driven.log("server_ended")
            await driven.shell(f"rm -r {FOLDER}; mv {FOLDER}.old {FOLDER}; touch /go")
            await driven.until("ended")
            group.cancel_scope.cancel()
        assert await driven.wait() == by()
        assert await driven.lines("/ran") == ["forged", "gone", "two"]


@pytest.mark.parametrize("arm", [codex_arm(), goal_arm()], ids=["plain", "goal"])
async def test_c18_an_agent_that_kills_its_own_server_has_ended(ground: Yard, tmp_path: Path, arm: Arm) -> None:
    async with begun(ground, tmp_path, arm, count("one"), {"run": f"{KILL_THE_SERVER}; sleep 60"}) as driven:
        assert await driven.wait() == AgentEnd(137, "exec")
        assert (await driven.log("server_ended"))[0]["exit_code"] == 137


async def test_a_server_that_dies_before_any_command_is_infrastructure(ground: Yard, tmp_path: Path) -> None:
    stall = {**count("one"), "fault": [{"kind": "stall", "for_s": 600, "at": "headers"}]}
    async with begun(ground, tmp_path, codex_arm(), stall) as driven, anyio.create_task_group() as group:

        async def waiting() -> None:
            with pytest.raises(GateFailed) as failure:
                await driven.wait()
            assert failure.value.code == "driver_failed" and "exited 137" in failure.value.detail
            group.cancel_scope.cancel()

        group.start_soon(waiting)
        await driven.until("turn_started")
        await driven.shell(KILL_THE_SERVER)


async def test_the_whole_conversation_is_kept_where_no_container_reaches(ground: Yard, tmp_path: Path) -> None:
    async with begun(ground, tmp_path, codex_arm(), count("one")) as driven:
        await driven.wait()
        run = driven.trial.env.run_dir
        assert not (run.logs / "agent" / "codex-messages.jsonl").exists()
        await driven.trial.collect()
        lines = (run.kept / "codex-messages.jsonl").read_text().splitlines()
        messages = [json.loads(line) for line in lines]
        sent = [message["message"].get("method") for message in messages if message["way"] == "out"]
        assert sent[:2] == ["initialize", "initialized"] and sent[-1] == "turn/start"
        assert {message["message"].get("method") for message in messages if message["way"] == "in"} >= {"turn/completed", "item/completed"}
        assert not any("mt-key-of-a-test" in line for line in lines)
