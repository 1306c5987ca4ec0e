"""What is kept of codex runs, on the real binary in one campaign for the module: receipts, sessions, databases, trajectories, tokens.

Of runs that ended well, were stopped at their deadline, or were void; of one with a sub-agent; and of agents that put into their CODEX_HOME
what a careless copy would follow, block on, be filled by or believe.
"""

from __future__ import annotations

import json
import re
import sqlite3
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from marathond.agents.codex import drive, summary
from marathond.agents.codex.receipt import CodexReceipt, validated
from marathond.ports.agent import Finished, Remark
from marathond.practice.script import Practice
from tests.support.codex_env import VERSION
from tests.support.harbor_env import harbor_view, run_harbor_python
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

MODEL = "gpt-6-sol"
ARMS: dict[str, dict[str, Any]] = {"plain": {"kind": "codex", "drive": "turn"}, "goal": {"kind": "codex", "drive": "goal"}}
both_arms = pytest.mark.parametrize("arm", ARMS)
TASKS = ("work", "late", "vain", "kid", "hostile", "gone")
RENAMED = ("gone", "plain")
"""The cell in whose receipt a careless hand renames a field."""
CELLS = [(task, arm) for task in TASKS for arm in ARMS if (task, arm) != RENAMED]
USAGE = {"input": 1000, "cached": 400, "output": 50, "reasoning": 20}
PRICES = {MODEL: {"input": 2.0, "cached_input": 0.5, "output": 8.0}}
ANSWER_USD = (600 * 2.0 + 400 * 0.5 + 50 * 8.0) / 1e6
HOME = "/marathond/codex"
MAIN = f"main=$(ls {HOME}/sessions/*/*/*/rollout-*.jsonl | head -n 1)"
SPAWN = {"name": "spawn_agent", "namespace": "collaboration", "arguments": {"message": "Help me.", "task_name": "kid"}}
PLANTED = "sk-planted-0123456789"
"""Where keys lie in a CODEX_HOME of other people."""
PLANT = f"""
cd {HOME}; {MAIN}
ln -s /etc/passwd link.sqlite; ln -s /etc sessions/2000; mkfifo pipe.sqlite sessions/pipe.jsonl; mkdir folder.sqlite
truncate -s 300G huge.sqlite; truncate -s 300G sessions/rollout-huge.jsonl
printf '%s' '{PLANTED}' >auth.json; mkdir -p tmp; printf '%s' '{PLANTED}' >tmp/key.sqlite
printf 'no database' >broken.sqlite; printf '\\xff\\n[]\\n{{"timestamp":"x"}}\\n' >sessions/rollout-odd.jsonl
printf '{{"timestamp":"2026-01-01T00:00:00Z","type":"response_item","payload":{{"type":"function_call","nom":"x"}}}}\\n' >>"$main"
line=$(grep token_usage_record "$main" | tail -n 1); printf '%s\\n' "$line" >>"$main"
printf '# mine now\\n' >>config.toml
mv /logs/agent /logs/was; ln -s /etc /logs/agent
echo planted
"""
FOUND = ("usage_differs", "receipt_incomplete", "config_changed", "receipt_invalid", "not_collected")


def script(task: str, *steps: dict[str, Any], **rest: Any) -> dict[str, Any]:
    return {"text": f"TASK-{task}:", "step": list(steps), "usage": USAGE, **rest}


SCRIPT = Practice.model_validate(
    {
        "script": [
            script("work", {"say": "I look.", "run": "echo one >>/ran"}, {"run": "exit 3"}, {"say": "Did it."}),
            script("late", {"run": "echo one >>/ran"}, {"run": "sleep 1000"}),
            script("vain", {"run": "echo one >>/ran"}, {"say": "x", "fault": [{"kind": "status", "status": 400, "times": 1000}]}),
            # The sub-agent inherits the conversation and goes on in it: each of the two leaves a line, and waits for the other's.
            script("kid", {"call": SPAWN}, {"run": "echo here >>/ran; while [ $(wc -l </ran) -lt 2 ]; do sleep 0.1; done"}),
            script("hostile", {"run": PLANT}),
            script("gone", {"run": f"find {HOME}/sessions -delete"}),
        ]
    }
)


def carelessly(made: Any) -> Any:
    """Fault e03, planted: a field is renamed in one place and not in the other."""

    def receipt(run: Finished, *known: Any) -> tuple[dict[str, Any], list[Remark]]:
        data, remarks = made(run, *known)
        if (run.task, run.arm.name) == RENAMED:
            data["turns"]["comands"] = data["turns"].pop("commands")
        return data, remarks

    return receipt


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    folder = tmp_path_factory.mktemp("tasks")
    # Long enough for eight of them to come up at once on a busy machine; the deadline itself is what ends the one that sleeps.
    limits = {task: 60.0 if task == "late" else 240.0 for task in TASKS}
    tasks = [make_task(folder, name, instruction=f"TASK-{name}: do it.\n", agent_s=limit_s) for name, limit_s in limits.items()]
    overrides = {"codex.infra_retries": 1, "admission.passes": 1, "codex.model": MODEL, "money.prices": PRICES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drive, "PAUSE_FIRST_S", 0.5)
        patch.setattr(summary, "receipt", carelessly(summary.receipt))
        with model_campaign(docker_host, tasks, ARMS, SCRIPT, overrides=overrides, patience_s=400.0) as ran:
            yield ran


def receipt(ran: ModelRan, task: str, arm: str) -> CodexReceipt:
    """The one in the ledger, which is the exported one, and fits its schema."""
    schema, data = ran.rig.one("SELECT schema, receipt_json FROM receipt WHERE trial_id = ?", ran.trial(task, arm))
    assert json.loads((ran.folder(task, arm) / "agent" / "receipt.json").read_text()) == json.loads(data)
    return validated(json.loads(data), schema)


def trajectory(ran: ModelRan, task: str, arm: str) -> dict[str, Any]:
    return dict(json.loads((ran.folder(task, arm) / "agent" / "trajectory.json").read_text()))


def remarks(ran: ModelRan, task: str, arm: str) -> dict[str, str]:
    """Findings about what was kept, by code."""
    rows = ran.rig.sql("SELECT code, detail FROM finding WHERE subject = ?", f"t{ran.trial(task, arm):04d}")
    return {code: detail for code, detail in rows if code in FOUND}


# ---- receipts


@pytest.mark.parametrize(("task", "arm"), CELLS)
def test_every_trial_has_its_receipt_and_its_trajectory(ran: ModelRan, task: str, arm: str) -> None:
    made = receipt(ran, task, arm)
    assert (made.names.trial, made.names.task, made.names.arm) == (f"t{ran.trial(task, arm):04d}", task, arm)
    assert made.versions.codex == VERSION and set(made.versions.told) <= {VERSION}
    assert made.versions.tree_sha256 is not None and made.versions.package.endswith(made.versions.tree_sha256[:12])
    assert (made.given.model, made.given.effort) == (MODEL, "high") and made.given.config_before is not None
    assert made.given.instruction.chars == len(f"TASK-{task}: do it.\n") and made.given.gates["skills"] == "none"
    assert (made.goal is not None) is (arm == "goal")
    assert made.rpc.complete and made.rpc.requests["turn/start"] >= 1 and not made.rpc.refused
    assert made.kept.trajectory is not None and made.kept.trajectory.steps == len(trajectory(ran, task, arm)["steps"])
    if task not in ("hostile", "gone"):
        assert remarks(ran, task, arm) == {} and made.remarks == [] and made.given.config_same is True
        assert (made.kept.unreadable, made.kept.unknown, made.kept.left_out) == (0, {}, [])


@both_arms
def test_tokens_by_kind_agree_with_the_gateways(ran: ModelRan, arm: str) -> None:
    for task in ("work", "late", "vain", "kid"):
        made = receipt(ran, task, arm).tokens
        assert made.client is not None and made.gateway is not None and made.difference is not None
        assert made.client.source == "rollouts" and made.explained is True
        # Where a thread was stopped, its last answer may have been on its way.
        assert task in ("late", "kid") or set(made.difference.model_dump().values()) == {0}
        total, answers = made.gateway.total, made.gateway.answers
        usage = ran.usage(task, arm)
        assert (total.requests, total.input, total.output) == (usage["requests"], usage["input_tokens"], usage["output_tokens"])
        assert (total.input, total.cached, total.output, total.reasoning) == tuple(answers * USAGE[kind] for kind in USAGE)
        assert total.cost_usd == pytest.approx(answers * ANSWER_USD)


def test_a_run_that_ended_well(ran: ModelRan) -> None:
    plain, goal = receipt(ran, "work", "plain"), receipt(ran, "work", "goal")
    assert (plain.turns.by_status, plain.turns.by_cause, plain.turns.commands) == ({"completed": 1}, {"first": 1}, 2)
    assert (goal.turns.by_status, goal.turns.by_cause, goal.turns.told) == ({"completed": 2}, {"first": 1, "goal": 1}, {"completed": 2})
    assert goal.goal is not None and [(each.status, each.cause) for each in goal.goal.changes] == [("active", "arm"), ("complete", "model")]
    assert plain.end.by == goal.end.by == "agent" and not plain.end.deadline and plain.tools_called == {"exec": 2}


@both_arms
def test_a_run_past_its_deadline(ran: ModelRan, arm: str) -> None:
    made = receipt(ran, "late", arm)
    assert (made.end.by, made.end.deadline, made.end.halted, made.end.void) == ("deadline", True, True, None)
    assert made.turns.open == 1 and made.turns.commands >= 1
    assert made.time.ran_ms is not None and made.time.limit_ms is not None and made.time.ran_ms >= made.time.limit_ms
    sql = "SELECT count(*) FROM agent_event WHERE trial_id = ? AND kind = 'halted'"
    obeyed = ran.rig.one(sql, ran.trial("late", arm)) == 1  # a codex on a loaded machine may have been killed before it could
    stopped = ("paused", "harness")
    if made.goal is not None:
        assert [(each.status, each.cause) for each in made.goal.changes] == [("active", "arm"), *([stopped] if obeyed else [])]
    assert made.turns.told in ({"interrupted": 1}, {})
    said = [step["message"] for step in trajectory(ran, "late", arm)["steps"] if step["source"] == "system"]
    assert (said != [] and said[-1].startswith("The turn was interrupted")) is bool(made.turns.told)


@both_arms
def test_a_trial_that_was_voided(ran: ModelRan, arm: str) -> None:
    assert [code for code, _ in ran.voids("vain", arm)] == ["model_failed"]
    made = receipt(ran, "vain", arm)
    assert (made.end.by, made.end.void, made.end.deadline) == (None, "model_failed", False)
    assert made.turns.by_status == {"failed": 2} and made.errors.failed == {"other": 2}
    assert (made.turns.retries, made.unblocks.infra) == {"plain": (1, 0), "goal": (0, 1)}[arm]
    if made.goal is not None:
        assert [each.cause for each in made.goal.changes] == ["arm", "infrastructure", "retry", "infrastructure"]


@both_arms
def test_a_sub_agent_is_told_apart(ran: ModelRan, arm: str) -> None:
    made, drawn = receipt(ran, "kid", arm), trajectory(ran, "kid", arm)
    (kid,) = made.sub_agents
    assert kid.rollout and kid.path.endswith("/kid") and kid.parent_id == made.thread_id
    assert made.tokens.client is not None and kid.tokens == made.tokens.client.sub_agents and kid.tokens.answers >= 1
    assert [child["trajectory_id"] for child in drawn["subagent_trajectories"]] == [kid.thread_id]


def test_e03_a_receipt_with_a_renamed_field_is_named_and_not_stored(ran: ModelRan) -> None:
    assert ran.state(*RENAMED) == "scored", "it holds no trial up"
    trial_id = ran.trial(*RENAMED)
    assert ran.rig.sql("SELECT count(*) FROM receipt WHERE trial_id = ?", trial_id) == [(0,)]
    sql = "SELECT severity, detail FROM finding WHERE code = 'receipt_invalid' AND subject = ? AND closed_at_ms IS NULL"
    ((severity, detail),) = ran.rig.sql(sql, f"t{trial_id:04d}")
    assert severity == "error" and "turns.commands: Field required" in detail
    agent = ran.folder(*RENAMED) / "agent"
    assert not (agent / "receipt.json").exists() and (agent / "codex-home" / "config.toml").exists(), "what it was made of is kept"


# ---- what agents may have done to it


@both_arms
def test_a_hostile_codex_home_is_copied_without_following_or_believing_it(ran: ModelRan, arm: str) -> None:
    assert ran.state("hostile", arm) == "scored", "it holds no trial up"
    agent = ran.folder("hostile", arm) / "agent"
    assert not any(path.is_symlink() or path.is_fifo() for path in agent.rglob("*"))
    files = [path for path in agent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 50 << 20
    # The command that planted it stands in the session; the files where it was planted are not there.
    assert not any(
        PLANTED.encode() in path.read_bytes() for path in files if path.parent.name == "codex-home" and "sqlite" not in path.name
    )
    assert not (agent / "codex-home" / "auth.json").exists() and not (agent / "codex-home" / "tmp").exists()
    said = remarks(ran, "hostile", arm)
    assert set(said) == {"config_changed", "receipt_incomplete", "usage_differs"}
    parts = (
        "link.sqlite: symbolic link",
        "pipe.sqlite: fifo",
        "huge.sqlite: too large",
        "rollout-huge.jsonl: too large",
        "pipe.jsonl: fifo",
    )
    for words in (*parts, "rollout-odd.jsonl: is no rollout", "FunctionCallLine: call_id", "broken.sqlite: DatabaseError"):
        assert words in said["receipt_incomplete"]
    made = receipt(ran, "hostile", arm)
    assert made.given.config_same is False and (agent / "codex-home" / "config.toml").read_text().endswith("# mine now\n")
    assert "# mine now" not in (agent / "codex-home" / "config.before.toml").read_text()
    assert made.kept.rollouts == 1 and (agent / "trajectory.json").exists()


@both_arms
def test_tokens_that_an_agent_made_up_are_named(ran: ModelRan, arm: str) -> None:
    made = receipt(ran, "hostile", arm)
    assert made.tokens.explained is False and made.tokens.difference is not None
    assert (made.tokens.difference.answers, made.tokens.difference.input) == (-1, -1000)
    assert "input -1000" in remarks(ran, "hostile", arm)["usage_differs"]


def test_without_a_rollout_the_driver_tells_what_it_heard(ran: ModelRan) -> None:
    made, drawn = receipt(ran, "gone", "goal"), trajectory(ran, "gone", "goal")
    assert made.kept.rollouts == 0 and "no rollout was left" in remarks(ran, "gone", "goal")["receipt_incomplete"]
    assert made.tokens.client is not None and made.tokens.client.source == "app-server" and made.tokens.explained is True
    assert made.kept.trajectory is not None and made.kept.trajectory.source == "app-server"
    assert [step["source"] for step in drawn["steps"]][:2] == ["user", "agent"]


# ---- artifacts


@both_arms
def test_sessions_databases_and_messages_are_among_the_artifacts(ran: ModelRan, arm: str) -> None:
    """What stands in a write-ahead log alone is there too: codex was killed."""
    agent = ran.folder("work", arm) / "agent"
    made = receipt(ran, "work", arm)
    (rollout,) = (agent / "sessions").rglob("rollout-*.jsonl")
    assert rollout.name.endswith(f"{made.thread_id}.jsonl")
    messages = [json.loads(line) for line in (agent / "codex-messages.jsonl").read_text().splitlines()]
    assert messages[0]["message"]["method"] == "initialize"
    databases = {each.name: each for each in made.kept.databases}
    assert {"state_5.sqlite", "goals_1.sqlite", "thread_history_1.sqlite"} <= set(databases)
    assert {each.check for each in databases.values()} == {"ok"} and any(each.log_bytes for each in databases.values())
    with closing(sqlite3.connect(f"file:{agent}/codex-home/state_5.sqlite?mode=ro", uri=True)) as state:
        assert state.execute("SELECT count(*) FROM threads WHERE id = ?", (made.thread_id,)).fetchone() == (1,)
    with closing(sqlite3.connect(f"file:{agent}/codex-home/goals_1.sqlite?mode=ro", uri=True)) as goals:
        statuses = goals.execute("SELECT status FROM thread_goals").fetchall()
    assert statuses == ([] if arm == "plain" else [("complete",)])
    recorded = ran.rig.sql("SELECT path, sha256 FROM artifact WHERE trial_id = ?", ran.trial("work", arm))
    hashed = {path for path, sha256 in recorded if sha256}
    assert {"agent/receipt.json", "agent/trajectory.json", "agent/codex-home/state_5.sqlite", "agent/codex-messages.jsonl"} <= hashed


def test_no_key_is_in_any_artifact_or_in_the_ledger(ran: ModelRan) -> None:
    """The real one nowhere; the trials' own dummies neither: codex is given them by a variable of its exec alone."""
    files = [path for path in (ran.rig.root / "out").rglob("*") if path.is_file()]
    assert len(files) > 100
    ledger = [*ran.rig.ledger_path.parent.glob("ledger.db*")]
    assert [path for path in (*files, *ledger) if ran.rig.key.encode() in path.read_bytes()] == []
    dummy = re.compile(rb"mt-[A-Za-z0-9_-]{32}")
    assert [path for path in files if dummy.search(path.read_bytes())] == []


# ---- Harbor

VALIDATE = """
import sys
from pathlib import Path
from harbor.models.trajectories import Trajectory
from harbor.models.trial.result import TrialResult
for path in sorted(Path(sys.argv[1]).glob("*/agent/trajectory.json")):
    made = Trajectory.model_validate_json(path.read_text())
    usage = TrialResult.model_validate_json((path.parents[1] / "result.json").read_text()).agent_result
    counts = (usage.n_input_tokens, usage.n_cache_tokens, usage.n_output_tokens, usage.cost_usd, ",".join(usage.model_usage or {}))
    print(path.parents[1].name, made.final_metrics.total_steps, *counts)
"""


def test_harbor_takes_trajectories_tokens_and_cost(ran: ModelRan, harbor: None) -> None:
    out = ran.rig.root / "out" / "test"
    done = run_harbor_python(VALIDATE, str(out), paths=[out])
    assert done.returncode == 0, done.stderr[-3000:]
    told = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert len(told) == len(CELLS) + 1
    for task, arm in CELLS:
        steps, *counts, cost, models = told[ran.folder(task, arm).name]
        gateway = receipt(ran, task, arm).tokens.gateway
        assert gateway is not None and int(steps) == len(trajectory(ran, task, arm)["steps"])
        assert [int(count) for count in counts] == [gateway.answers * USAGE[kind] for kind in ("input", "cached", "output")]
        assert float(cost) == pytest.approx(gateway.answers * ANSWER_USD) and models == MODEL


def test_harbors_viewer_shows_them(ran: ModelRan, harbor: None) -> None:
    name = ran.folder("kid", "goal").name
    with harbor_view(ran.rig.root / "out") as base:
        with urllib.request.urlopen(f"{base}/api/jobs/test/trials/{name}", timeout=240) as answer:
            page = json.load(answer)
        with urllib.request.urlopen(f"{base}/api/jobs/test/trials/{name}/trajectory", timeout=240) as answer:
            shown = json.load(answer)
    assert page["agent_result"]["n_input_tokens"] == ran.usage("kid", "goal")["input_tokens"]
    assert page["agent_info"]["model_info"]["name"] == MODEL
    assert shown["agent"]["name"] == "goal" and len(shown["steps"]) == len(trajectory(ran, "kid", "goal")["steps"])
