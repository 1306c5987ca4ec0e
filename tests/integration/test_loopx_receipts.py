"""What a receipt tells of LoopX, on the real codex and the real LoopX in two campaigns for the module.

One of all three arms, in two of which the agent calls LoopX, and in the third it never does and one of its wakes comes without a body
(fault a13, planted); and one whose five runs are the same.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from marathond.agents.codex.harness import LoopX
from marathond.agents.codex.receipt import CodexReceipt, validated
from marathond.agents.codex.receipt_loopx import LoopXPart
from marathond.agents.loopx import goal, left, profile
from marathond.core.names import LoopXProfile
from marathond.ledger.verbs import treatments
from marathond.practice.script import Practice
from marathond.staging.store import StagedTree
from tests.support import loopx_agent
from tests.support.comparable import NAMED, comparable, differences
from tests.support.loopx_env import loopx_wanted
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

ARMS: dict[str, dict[str, Any]] = {
    "ssh-goal": {"kind": "codex", "drive": "goal", "loopx": LoopXProfile.SSH_GOAL.value},
    "codex-cli": {"kind": "codex", "drive": "goal", "loopx": LoopXProfile.CODEX_CLI.value},
    "heartbeat": {"kind": "codex", "drive": "wake", "loopx": LoopXProfile.GENERIC_CLI.value, "wake_interval_s": 0.2, "turns_at_most": 2},
}
CALLING, SILENT = ("ssh-goal", "codex-cli"), "heartbeat"
FIVE = {"heartbeat": {"kind": "codex", "drive": "wake", "loopx": LoopXProfile.GENERIC_CLI.value}}
USAGE = {"input": 1000, "cached": 400, "output": 50, "reasoning": 20}
"""Of each answer; a count of the words would follow the times that codex tells its model."""
AGENT_S, PATIENCE_S = 900.0, 560.0
"""The runs end by themselves; a loaded machine needs many times what an idle one does."""
ASK = loopx_agent.ask(LoopXProfile.CODEX_CLI)
BY_SCRIPT = {
    "run": f"cat >/tmp/ask.sh <<'END'\n{ASK['run'].partition('>')[0]}\nEND\nsh /tmp/ask.sh >/tmp/said; grep -c {profile.CLI} /tmp/ask.sh"
}
"""A call that stands in no command line of its own."""
WORK = {"run": f"ls {profile.ROOT}; echo done >>/ran"}


def campaign(docker_host: str, folder: Path, arms: dict[str, Any], scripts: list[dict[str, Any]], **options: Any) -> Any:
    task = make_task(folder, "task", instruction="TASK: do it.\n", agent_s=AGENT_S)
    common = {"text": "TASK:", "latest": loopx_agent.LATEST, "usage": USAGE}
    script = Practice.model_validate({"script": [{**common, **each} for each in scripts]})
    overrides = {"loopx.python": loopx_wanted().python, "admission.concurrency": 3, **options.pop("overrides", {})}
    return model_campaign(docker_host, [task], arms, script, overrides=overrides, patience_s=PATIENCE_S, **options)


def carelessly(made: Any) -> Any:
    """Fault a13, planted: a second wake says something else than LoopX."""
    wakes: list[str] = []

    async def body(self: LoopX, turn_id: str) -> str:
        wakes.append(turn_id)
        return str(await made(self, turn_id)) if len(set(wakes)) == 1 else "Go on."

    return body


@pytest.fixture(scope="module")
def ran(docker_host: str, staged_loopx: StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    scripts = [{"arm": "goal", "step": [ASK, WORK, BY_SCRIPT]}, {"arm": "plain", "step": [WORK, {"say": "Later."}]}]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopX, "body", carelessly(LoopX.body))
        with campaign(docker_host, tmp_path_factory.mktemp("three"), ARMS, scripts) as ran:
            patch.undo()  # the other campaign's wakes are LoopX's own
            yield ran


def receipt(ran: ModelRan, arm: str) -> tuple[CodexReceipt, LoopXPart]:
    schema, data = ran.rig.one("SELECT schema, receipt_json FROM receipt WHERE trial_id = ?", ran.trial("task", arm))
    made = validated(json.loads(data), schema)
    assert made.loopx is not None
    return made, made.loopx


def found(ran: ModelRan, arm: str) -> dict[str, str]:
    """Findings about the treatment: code to severity."""
    rows = ran.rig.sql("SELECT code, severity FROM finding WHERE subject = ?", f"t{ran.trial('task', arm):04d}")
    return {code: severity for code, severity in rows if code.startswith("treatment_")}


@pytest.mark.parametrize("arm", CALLING)
def test_an_arm_whose_agent_used_loopx(ran: ModelRan, arm: str) -> None:
    """Its command line is counted once, what only mentions LoopX is not, and LoopX's own log knows of the script's call, too."""
    whole, made = receipt(ran, arm)
    assert (made.delivered_all, made.used_any, found(ran, arm)) == (True, True, {})
    assert (made.used.by_name, made.used.first, made.used.commands, made.used.complete) == ({"quota should-run": 1}, 1, 3, True)
    assert made.used.events is not None and made.used.events.agent == {"quota_should_run": 2}
    assert made.used.events.harness == {"todo_add": 1, "quota_should_run": 1}
    assert whole.goal is not None and made.set_up is not None
    assert made.set_up.body.sha256 == made.set_up.hashes[made.set_up.profile] and len(set(made.set_up.hashes.values())) == 2
    assert whole.given.objective is not None and whole.given.objective.sha256 == made.set_up.body.sha256


def test_two_arms_were_given_the_same_set_up_but_for_the_profile(ran: ModelRan) -> None:
    one, other = (receipt(ran, arm)[1] for arm in CALLING)
    assert one.versions == other.versions and one.versions.python.startswith("3.") and one.versions.node.startswith("22.")
    assert one.set_up is not None and other.set_up is not None
    assert (one.set_up.hashes, one.set_up.skills) == (other.set_up.hashes, other.set_up.skills) and len(one.set_up.skills) >= 8
    assert [part.set_up.profile for part in (one, other) if part.set_up is not None] == ["codex_app_ssh_goal", "codex_cli"]


def test_a13_not_delivered_and_unused_are_two_findings_beside_the_score(ran: ModelRan) -> None:
    whole, made = receipt(ran, SILENT)
    assert ran.state("task", SILENT) == "scored" and whole.end.by == "turn_cap"
    assert found(ran, SILENT) == {"treatment_not_delivered": "warning", "treatment_unused": "warning"}
    assert set(whole.remarks) >= {"treatment_not_delivered", "treatment_unused"}
    assert made.delivered.missing == ["a body in 1 of 2 wakes"] and made.delivered.set_up and made.delivered.todo
    wakes = made.delivered.wakes
    assert wakes is not None and (wakes.taken, wakes.distinct, wakes.bodiless, wakes.unseen) == (2, 2, 1, 0)
    assert wakes.by_cause == {"first": 1, "hint": 1} and made.delivered.polls.n == 1
    assert (made.used.calls, made.used.commands) == (0, 1) and made.used.events is not None and made.used.events.agent == {}
    assert made.used.events.harness == {"todo_add": 1, "quota_should_run": 2}


def test_a13_arms_are_compared_by_two_columns(ran: ModelRan) -> None:
    rows = ran.rig.sql("SELECT arm, delivered, used, calls, calls_logged, wakes FROM v_treatment WHERE campaign = 'test'")
    assert sorted(map(tuple, rows)) == [("codex-cli", 1, 1, 1, 2, None), ("heartbeat", 0, 0, 0, 0, 2), ("ssh-goal", 1, 1, 1, 2, None)]
    with closing(sqlite3.connect(ran.rig.ledger_path)) as c:
        seen = treatments.treated(c, 1)
    assert {arm: (each.trials, each.delivered, each.used) for arm, each in seen.items()} == {
        **dict.fromkeys(CALLING, (1, 1, 1)),
        SILENT: (1, 0, 0),
    }


@pytest.mark.parametrize("arm", ARMS)
def test_what_loopx_wrote_is_among_the_artifacts(ran: ModelRan, arm: str) -> None:
    """Also what stands in a write-ahead log alone: LoopX's daemon was killed with the agent."""
    kept = ran.folder("task", arm) / "agent" / "loopx"
    _, made = receipt(ran, arm)
    assert made.set_up is not None and made.state is not None
    assert [(todo.todo_id, todo.role, todo.status) for todo in made.state.todos] == [(made.set_up.todo_id, "agent", "open")]
    (database,) = (kept / "runtime" / left.DATABASES).glob("*.sqlite")
    assert [(each.name, each.check) for each in made.databases] == [(database.name, "ok")]
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as authority:
        assert made.set_up.todo_id in authority.execute("SELECT projection FROM head").fetchone()[0]
    here = [f"goals/{goal.GOAL_ID}/ACTIVE_GOAL_STATE.md", f"runtime/goals/{goal.GOAL_ID}/{left.EVENTS}", "registry.json"]
    recorded = ran.rig.sql("SELECT path, sha256 FROM artifact WHERE trial_id = ?", ran.trial("task", arm))
    assert {f"agent/loopx/{path}" for path in here} <= {path for path, sha256 in recorded if sha256}
    assert not any(path.name.endswith(".lock") for path in kept.rglob("*"))


def test_five_identical_runs_give_five_equal_receipts_but_for_ids_and_times(
    docker_host: str, staged_loopx: StagedTree, tmp_path: Path
) -> None:
    """Over the other surface of tools: codex's code mode.

    A command that outlasts codex's patience is asked after by its model, and a run in which one did is another run: it must be equal to
    those in which the model called its tools as often.
    """
    steps = [loopx_agent.ask(LoopXProfile.GENERIC_CLI), WORK, *loopx_agent.settle_in_steps()]
    overrides = {"codex.model": "gpt-6-sol"}
    with campaign(docker_host, tmp_path, FIVE, [{"step": steps}], replicates=5, overrides=overrides) as ran:
        rows = ran.rig.sql("SELECT receipt_json FROM receipt ORDER BY trial_id")
        assert ran.rig.sql("SELECT code, detail FROM finding WHERE code LIKE 'treatment_%'") == []
    whole = [json.loads(row[0]) for row in rows]
    assert len(whole) == 5 and all(each["loopx"]["stopped"].startswith("stop_until_explicit_resume") for each in whole)
    assert all(each["loopx"]["used"]["by_name"]["todo complete"] == 1 and each["loopx"]["used"]["calls"] == 5 for each in whole)
    alike: dict[str, list[dict[str, Any]]] = {}
    for each in whole:
        alike.setdefault(json.dumps(each["tools_called"], sort_keys=True), []).append(comparable(each))
    assert [line for first, *others in alike.values() for other in others for line in differences(first, other)] == []
    assert max(map(len, alike.values())) >= 2
    assert len({each["loopx"]["set_up"]["todo_id"] for each in whole}) == len({each["thread_id"] for each in whole}) == 5
    another = comparable({**whole[0], "turns": {**whole[0]["turns"], "commands": 99}})
    assert [line.partition(":")[0] for line in differences(comparable(whole[0]), another)] == ["turns.commands"], "what is not named counts"
    assert len(NAMED) == len(set(NAMED))
