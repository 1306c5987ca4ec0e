"""How a codex arm's run may end, in a whole campaign: every end is a value, graded alike for all arms, and what ended it is told.

Beside ``plain`` and ``goal`` runs ``operator``, a goal that is resumed when the model blocks it.  The provider refuses a field that only a
goal's requests hold: the gateway strips it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from marathond.agents.codex import drive
from marathond.core.agent_rules import BY_RULE
from marathond.practice.script import Practice
from tests.support.cli_rig import subprocess_run
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

TURNS, UNBLOCKS = 4, 2
GOAL: dict[str, Any] = {"kind": "codex", "drive": "goal", "turns_at_most": TURNS}
ARMS: dict[str, dict[str, Any]] = {
    "plain": {"kind": "codex", "drive": "turn"},
    "goal": GOAL,
    "operator": {**GOAL, "operator": True, "unblocks_at_most": UNBLOCKS},
}
GOALS = ("goal", "operator")
every_arm = pytest.mark.parametrize("arm", ARMS)
both_goals = pytest.mark.parametrize("arm", GOALS)

# A command of the agent's leaves a process behind that takes all requests which its listener serves at one time: each asks for something
# and then says nothing more.  Three times 33 connections, and no more.
CROWD = r"""
echo one >>/made
for each in /proc/[0-9]*/environ; do
    key=$(tr '\0' '\n' <"$each" 2>/dev/null | sed -n 's/^MARATHOND_MODEL_KEY=//p') && [ -n "$key" ] && break
done
cat >/crowd <<'END'
for round in 1 2 3; do
    for n in $(seq 33); do
        exec {fd}<>/dev/tcp/127.0.0.1/PORT || break
        printf 'POST /v1/responses HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: 9\r\n\r\n' "$1" >&$fd
        all="$all $fd"
    done
    echo "$round" >>/crowded
    sleep 55
    for fd in $all; do exec {fd}>&-; done
    all=
done
END
setsid bash /crowd "$key" >/dev/null 2>&1 &
until [ -s /crowded ]; do sleep 0.1; done
sleep 2
"""

MADE = "grep -q one /made && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"
OF_THE_END = {"no_commands", "silent_turns", "gateway_crowded", *(code for code, _ in BY_RULE.values())}
PORT = 8790
"""Of the agent's listener, where the configuration names no other."""
FIELD = "namespace"
"""Of the item by which a goal tells its objective."""


def script(task: str, *steps: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"text": f"TASK-{task}:", "step": list(steps), **rest}


def count(word: str, **more: Any) -> dict[str, Any]:
    return {"run": f"echo {word} >>/made", **more}


SCRIPT = Practice.model_validate(
    {
        "script": [
            script("blocked", count("one"), then="blocked"),
            script("endless", count("one"), {"say": "more to do"}, then="repeat"),
            script("hiccup", {**count("one"), "fault": [{"kind": "status", "status": 400, "times": 1}]}),
            script("mute", then="silent"),
            script("crowd", {"run": CROWD.replace("PORT", str(PORT))}),
            script("spent", {"run": "echo one >>/made; sleep 600"}),
            script("field", count("one"), reject_fields=[f"input.*.{FIELD}"]),
        ]
    }
)


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    root = tmp_path_factory.mktemp("tasks")
    # Long enough for codex to come up on a busy machine, and no more: it is waited for.
    seconds = {"spent": 25.0}
    tests = {"spent": "echo 1 >/logs/verifier/reward.txt\n"}
    names = [script_.text.removeprefix("TASK-").removesuffix(":") for script_ in SCRIPT.script if script_.text]
    tasks = [
        make_task(root, name, instruction=f"TASK-{name}: do it.\n", agent_s=seconds.get(name, 240.0), test=tests.get(name, MADE))
        for name in names
    ]
    overrides = {"gateway.strip": [f"input[].{FIELD}"], "codex.infra_retries": 2, "codex.stream_max_retries": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "PAUSE_FIRST_S", 0.3)
        patch.setattr(drive, "OPERATOR_PAUSE_S", 0.3)
        with model_campaign(docker_host, tasks, ARMS, SCRIPT, overrides=overrides, patience_s=400.0) as ran:
            yield ran


def log(ran: ModelRan, task: str, arm: str) -> list[tuple[str, dict[str, Any]]]:
    sql = "SELECT kind, detail_json FROM agent_event WHERE trial_id = ? ORDER BY seq"
    return [(kind, json.loads(detail)) for kind, detail in ran.rig.sql(sql, ran.trial(task, arm))]


def causes(ran: ModelRan, task: str, arm: str) -> list[str]:
    """Why it was taken up again, each time."""
    told = [detail["cause"] for kind, detail in log(ran, task, arm) if kind in ("turn_intended", "unblock")]
    return [cause for cause in told if cause != "first"]


def ended_by(ran: ModelRan, task: str, arm: str) -> str:
    """Of a trial that was verified once, scored and never void, whatever ended its agent."""
    assert ran.state(task, arm) == "scored" and ran.rounds(task, arm) == [("exited", 0)] and ran.voids(task, arm) == [], ran.rig.story()
    return str(ran.agent(task, "ended_by", arm))


def budget_ended(ran: ModelRan, task: str, arm: str) -> bool:
    return bool(ran.rig.one("SELECT budget_ended FROM trial WHERE trial_id = ?", ran.trial(task, arm)))


def named(ran: ModelRan, task: str, arm: str) -> set[str]:
    """Codes of the findings on the trial that its agent's end gave."""
    label = f"t{ran.trial(task, arm):04d}"
    return {code for (code,) in ran.rig.sql("SELECT code FROM finding WHERE subject = ?", label)} & OF_THE_END


@every_arm
def test_a04_a_spent_deadline_is_a_value_and_graded_alike(ran: ModelRan, arm: str) -> None:
    assert ended_by(ran, "spent", arm) == "deadline" and budget_ended(ran, "spent", arm)
    assert ran.reward("spent", arm) == 1.0 and ran.flags("spent", arm) == ran.flags("spent", "plain")


@both_goals
def test_a04_c07_so_is_a_spent_cap_of_turns_and_a_finding_names_it(ran: ModelRan, arm: str) -> None:
    assert ended_by(ran, "endless", arm) == "turn_cap" and budget_ended(ran, "endless", arm)
    assert [kind for kind, _ in log(ran, "endless", arm)].count("turn_completed") == TURNS
    assert ran.reward("endless", arm) == ran.reward("endless", "plain") == 1.0
    assert named(ran, "endless", arm) == {"turn_cap_reached"} and named(ran, "endless", "plain") == set()


def test_a05_c06_a_goal_that_the_model_blocks_is_resumed_by_an_operator_alone_and_within_a_bound(ran: ModelRan) -> None:
    ends = {arm: ended_by(ran, "blocked", arm) for arm in ARMS}
    assert ends == {"plain": "agent", "goal": "blocked", "operator": "unblock_cap"}
    assert {arm: causes(ran, "blocked", arm) for arm in ARMS} == {"plain": [], "goal": [], "operator": ["model"] * UNBLOCKS}
    assert {ran.reward("blocked", arm) for arm in ARMS} == {1.0}
    assert {arm: named(ran, "blocked", arm) for arm in ARMS} == {"plain": set(), "goal": set(), "operator": {"unblock_cap_reached"}}
    assert not any(budget_ended(ran, "blocked", arm) for arm in ARMS)


def test_a05_a_turn_that_the_infrastructure_failed_is_taken_up_again_once_in_every_arm_and_counted_apart(ran: ModelRan) -> None:
    assert {arm: ended_by(ran, "hiccup", arm) for arm in ARMS} == dict.fromkeys(ARMS, "agent")
    assert {arm: causes(ran, "hiccup", arm) for arm in ARMS} == {"plain": ["retry"], "goal": ["infra"], "operator": ["infra"]}
    assert {ran.reward("hiccup", arm) for arm in ARMS} == {1.0}
    for arm in ARMS:
        statuses = [detail["status"] for kind, detail in log(ran, "hiccup", arm) if kind == "turn_completed"]
        assert statuses[0] == "failed" and set(statuses[1:]) == {"completed"}, (arm, statuses)


@every_arm
def test_c13_c07_empty_answers_for_ever_end_by_rule_and_are_named(ran: ModelRan, arm: str) -> None:
    assert ended_by(ran, "mute", arm) == {"plain": "agent"}.get(arm, "no_progress")
    assert named(ran, "mute", arm) == {"silent_turns", "no_commands"} | ({"no_progress"} if arm in GOALS else set())
    assert ran.reward("mute", arm) == 0.0
    kinds = [kind for kind, _ in log(ran, "mute", arm)]
    assert kinds.count("turn_completed") == kinds.count("silent_turn") == (3 if arm in GOALS else 1)


@every_arm
def test_an_agent_that_fills_its_own_way_to_the_model_ends_by_itself_and_gets_no_free_retry(ran: ModelRan, arm: str) -> None:
    """Its client's failure is no infrastructure when the gateway turned it away for what the trial itself had open."""
    assert ended_by(ran, "crowd", arm) == "agent" and "gateway_crowded" in named(ran, "crowd", arm)
    assert ran.reward("crowd", arm) == 1.0
    sql = "SELECT count FROM model_refusal WHERE trial_id = ? AND account = 'agent' AND code = 'too_many_streams'"
    assert 0 < dict(log(ran, "crowd", arm))["crowded"]["refused"] <= ran.rig.one(sql, ran.trial("crowd", arm))


@every_arm
def test_a02_a_field_that_the_provider_refuses_is_stripped(ran: ModelRan, arm: str) -> None:
    assert ended_by(ran, "field", arm) == "agent" and ran.reward("field", arm) == 1.0 and causes(ran, "field", arm) == []
    assert ran.usage("field", arm)["failed"] == 0 and ran.findings("bad_request_one_arm") == []
    stripped = [record["stripped"] for record in ran.rig.gateway.records() if record["trial"] == f"t{ran.trial('field', arm):04d}"]
    assert any(stripped) == (arm in GOALS), "a goal's requests alone hold it"


def test_a_reached_cap_is_seen_in_status_findings_and_show(ran: ModelRan) -> None:
    label = f"t{ran.trial('blocked', 'operator'):04d}"
    config = ["--config", str(ran.rig.config)]
    environ = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    for command in (["status"], ["findings"], ["show", label]):
        said = subprocess_run([*config, *command], environ)
        line = next((line for line in said.stdout.splitlines() if "unblock_cap_reached" in line), None)
        assert line is not None, (command, said.stdout, said.stderr)
        assert command[0] != "findings" or label in line
    assert "ended by unblock_cap" in subprocess_run([*config, "show", label], environ).stdout
