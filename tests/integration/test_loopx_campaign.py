"""LoopX's arms in a whole campaign: what of it outlives its agent, and what a person is told of an arm that blocks itself.

LoopX's daemon outlives the call that started it, in a session of its own, and only these arms have one: under either policy for what an
agent detached it must be gone before the verifier looks around.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from marathond.agents.codex import drive
from marathond.agents.loopx import profile
from marathond.core.names import LoopXProfile
from marathond.practice.script import Practice
from marathond.staging.manifest import StagedTree
from tests.support import loopx_agent
from tests.support.cli_rig import subprocess_run
from tests.support.loopx_env import loopx_wanted
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

GOAL = LoopXProfile.SSH_GOAL
ARMS: dict[str, dict[str, Any]] = {
    "goal": {"kind": "codex", "drive": "goal"},
    "keeping": {"kind": "codex", "drive": "goal", "loopx": GOAL.value, "unblocks_at_most": 1},
    "killing": {"kind": "codex", "drive": "goal", "loopx": GOAL.value, "unblocks_at_most": 1, "after_agent": "kill-all"},
}
HERE = f"grep -aqE '^{profile.NODE}' /proc/[0-9]*/cmdline 2>/dev/null"
ACT = f"""
setsid sleep 4321 >/dev/null 2>&1 &
[ ! -x {profile.CLI} ] && echo acted >>/seen && exit
{loopx_agent.ask(GOAL)["run"]}
{HERE} && echo acted >>/seen
"""
TEST = f"""
{HERE} && echo 0 >/logs/verifier/reward.txt && exit
grep -q acted /seen && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt
"""
SCRIPT = Practice.model_validate(
    {"script": [{"text": "TASK-locked", "step": [{"run": ACT}, {"goal": "blocked"}, {"say": "stuck"}], "then": "repeat"}]}
)


@pytest.fixture(scope="module")
def ran(docker_host: str, staged_loopx: StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    task = make_task(tmp_path_factory.mktemp("tasks"), "locked", instruction="TASK-locked: do it.\n", agent_s=600.0, test=TEST)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "OPERATOR_PAUSE_S", 0.3)
        overrides = {"loopx.python": loopx_wanted().python}
        with model_campaign(docker_host, [task], ARMS, SCRIPT, overrides=overrides, patience_s=600.0) as ran:
            yield ran


@pytest.mark.parametrize("arm", ["keeping", "killing"])
def test_c17_loopxs_daemon_is_gone_before_the_verifier_whatever_the_policy(ran: ModelRan, arm: str) -> None:
    assert ran.voids("locked", arm) == [] and ran.reward("locked", arm) == 1.0, ran.rig.story()
    fates = dict.fromkeys(fate for fate, argv in ran.processes("locked", arm) if argv.startswith(profile.NODE))
    assert list(fates) == ["killed"], "its agent saw it alive"
    sleeping = {fate for fate, argv in ran.processes("locked", arm) if argv == "sleep 4321"}
    assert sleeping == ({"kept"} if arm == "keeping" else {"killed"})


def test_c06_the_same_script_ends_goal_at_once_and_arms_of_loopx_at_their_bound(ran: ModelRan) -> None:
    ended = {arm: ran.agent("locked", "ended_by", arm) for arm in ARMS}
    assert ended == {"goal": "blocked", "keeping": "unblock_cap", "killing": "unblock_cap"}
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}

    def told(*command: str) -> str:
        return subprocess_run(["--config", str(ran.rig.config), *command], environ).stdout

    assert "unblock_cap_reached" in told("status")
    for arm, unblocks in {"goal": 0, "keeping": 1, "killing": 1}.items():
        trial_id = ran.trial("locked", arm)
        shown = told("show", f"t{trial_id:04d}")
        assert f"ended by {ended[arm]}" in shown
        assert (f"unblocks {unblocks} model" in shown) == bool(unblocks), shown
        receipt = json.loads(ran.rig.one("SELECT receipt_json FROM receipt WHERE trial_id = ?", trial_id))
        assert receipt["unblocks"] == {"model": unblocks, "infra": 0, "stalled": 0, "gate": 0}
