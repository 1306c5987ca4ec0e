"""How agents end: by themselves, at the deadline, with what they leave running; and which deadline it was.

Two campaigns: one keeps what detached itself, as Harbor does, and has an own limit beside the tasks'; the other kills all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.engine.docker import DockerEngine
from marathond.ports.engine import ExecInfo
from tests.support.hostile import Ran, campaign
from tests.support.rig import CALL_TIMEOUT_S, LIMIT_S, make_task

pytestmark = pytest.mark.docker

COUNT = "n=0; while :; do n=$((n + 1)); echo $n >/new; mv /new /count; sleep 0.05; done"
MOVED = "[ $(cat /count 2>/dev/null || echo 0) != $first ]"
VERIFIER = """
first=$(cat /count 2>/dev/null || echo 0)
sleep 0.5
echo "{\\"first\\": $first, \\"second\\": $(cat /count 2>/dev/null || echo 0)}" >/logs/verifier/metrics.json
echo 1 >/logs/verifier/reward.txt
"""
WAITS_FOR_MORE = VERIFIER.replace("sleep 0.5", f"until {MOVED}; do sleep 0.05; done")
"""Of a task whose counter must go on: it hangs, up to its deadline, where that does not."""
OWN_S = 60.0
LATE_S, GATE_S = 16.0, 25
"""More than a start takes on a loaded machine, and less (times the multiplier) than the health check before it."""
BEGUN = "until [ -e /count ]; do sleep 0.05; done"
BACKGROUND = f"({COUNT}) & {BEGUN}; exit 0"
DETACHED = f"setsid sh -c '{COUNT}' >/dev/null 2>&1 & {BEGUN}; exit 0"
NESTED = f"setsid sh -c '({COUNT}) & setsid sleep 300 & wait' >/dev/null 2>&1 & {BEGUN}; exit 0"

AGENTS = {
    "counts-on": COUNT,
    "counts-behind": BACKGROUND,
    "counts-detached": DETACHED,
    "forks": "i=0; while [ $i -lt 200 ]; do sleep 300 & i=$((i + 1)); done; wait",
    "stopped": "trap '' TERM INT HUP; kill -STOP $$; sleep 300",
    "late-start": "exit 0",
}
AT_DEADLINE = ("counts-on", "forks", "stopped")
LIMITS_S = dict.fromkeys((*AT_DEADLINE, "late-start"), LATE_S)
SLEEPS = f"[ -e /ready ] || {{ touch /ready; sleep {GATE_S}; false; }}"
SLOW = f'healthcheck = {{ command = "{SLEEPS}", interval_sec = 0.1, timeout_sec = 100 }}'


@pytest.fixture(scope="module")
def kept(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root, tasks = tmp_path_factory.mktemp("endings"), []
    for name, script in AGENTS.items():
        environment = SLOW if name == "late-start" else ""
        test = WAITS_FOR_MORE if name == "counts-detached" else VERIFIER
        agent_s = LIMITS_S.get(name, 200)
        tasks.append(make_task(root, name, instruction=script, test=test, agent_s=agent_s, environment=environment))
    tasks.append(make_task(root, "own-limit", instruction="exit 0", test=VERIFIER, agent_s=OWN_S * 10))
    tasks.append(undeclared := make_task(root, "no-limit", instruction="exit 0", test=VERIFIER))
    text = (undeclared / "task.toml").read_text()
    (undeclared / "task.toml").write_text(text.replace(f"timeout_sec = {LIMIT_S}\n", ""))
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    overrides = {"limits.agent_timeout_s": OWN_S, "limits.agent_timeout_multiplier": 1.5, "limits.verifier_timeout_multiplier": 2.0}
    with campaign(docker_host, tasks, arms, overrides) as ran:
        yield ran


@pytest.fixture(scope="module")
def killed(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("killall")
    tasks = [
        make_task(root, "counts-detached", instruction=DETACHED, test=VERIFIER),
        make_task(root, "counts-nested", instruction=NESTED, test=VERIFIER),
    ]
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"'], "after_agent": "kill-all"}}
    with campaign(docker_host, tasks, arms) as ran:
        yield ran


def counted(ran: Ran, task: str) -> tuple[float, float]:
    parts = ran.parts(task)
    return float(parts["first"]), float(parts["second"])


@pytest.mark.parametrize("task", ["counts-on", "counts-behind"])
def test_b07_what_runs_in_the_agents_session_is_dead_before_the_verifiers_first_line(kept: Ran, task: str) -> None:
    first, second = counted(kept, task)
    assert first == second > 0
    assert all(fate == "killed" for fate, _ in kept.processes(task)) and kept.processes(task)
    assert kept.reward(task) == 1.0


def test_b07_what_detached_itself_goes_on_under_keep_detached_and_is_listed(kept: Ran) -> None:
    first, second = counted(kept, "counts-detached")
    assert second > first > 0
    assert any(fate == "kept" and "count" in argv for fate, argv in kept.processes("counts-detached"))
    assert kept.facts("counts-detached")["after agent"] == ("keep-detached", "arm")


@pytest.mark.parametrize("task", ["counts-detached", "counts-nested"])
def test_b07_what_detached_itself_is_dead_under_kill_all_and_is_listed(killed: Ran, task: str) -> None:
    first, second = counted(killed, task)
    assert first == second > 0
    assert any("count" in argv for _, argv in killed.processes(task))
    assert {fate for fate, _ in killed.processes(task)} == {"killed"}
    assert killed.facts(task)["after agent"] == ("kill-all", "arm")


@pytest.mark.parametrize("task", AT_DEADLINE)
def test_c10_a_spent_budget_is_an_ordinary_end_verified_once_and_scored(kept: Ran, task: str) -> None:
    assert kept.reward(task) == 1.0
    assert kept.agent(task, "ended_by, exit_code") == ("deadline", None)
    events = [row[0] for row in kept.rig.sql("SELECT event FROM trial_event WHERE trial_id = ? ORDER BY seq", kept.trial(task))]
    assert events == ["reserved", "environment_up", "agent_started", "budget_spent", "scored"]
    assert kept.rounds(task) == [("exited", 0)]
    assert kept.rig.one("SELECT budget_ended FROM trial WHERE trial_id = ?", kept.trial(task)) == 1


def test_two_hundred_processes_die_at_the_deadline(kept: Ran) -> None:
    assert sum(fate == "killed" for fate, _ in kept.processes("forks")) == 200  # the record's bound; one more is the shell itself


def test_c09_the_deadline_starts_with_the_agent_not_with_its_gates(kept: Ran) -> None:
    """The health check alone takes longer than the agent's limit; the agent has its whole time after it."""
    assert kept.agent("late-start", "ended_by, exit_code") == ("agent", 0)
    trial = kept.trial("late-start")
    waited, limit = kept.rig.one(
        "SELECT started_at_ms - created_at_ms, limit_ms FROM trial JOIN trial_agent USING (trial_id) WHERE trial_id = ?", trial
    )
    assert waited > GATE_S * 1000 and limit == int(LATE_S * 1500) and waited > limit
    assert kept.facts("late-start")["gate healthcheck"] == ("passed at try 2", "task")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("late-start", (24000, "task 16 x 1.5", "own 60")),
        ("own-limit", (60000, "own", "task 600 x 1.5")),
        ("no-limit", (60000, "own", "")),
    ],
)
def test_c15_the_effective_deadline_is_recorded_with_its_origin_and_its_rival(kept: Ran, task: str, expected: tuple[int, str, str]) -> None:
    assert kept.agent(task, "limit_ms, limit_origin, limit_loser") == expected


@pytest.mark.parametrize(
    ("task", "expected"), [("own-limit", (400000, "task 200 x 2.0")), ("no-limit", (1200000, "format-default 600 x 2.0"))]
)
def test_c15_the_verifiers_deadline_too(kept: Ran, task: str, expected: tuple[int, str]) -> None:
    assert kept.rig.one("SELECT limit_ms, limit_origin FROM verification WHERE trial_id = ?", kept.trial(task)) == expected


def test_no_ending_closes_admission_or_costs_an_attempt(kept: Ran, killed: Ran) -> None:
    for ran in (kept, killed):
        assert ran.stop_losses() == []
        assert ran.rig.sql("SELECT * FROM void") == []
        assert ran.rig.sql("SELECT * FROM review") == []


class Forgetful(DockerEngine):
    """A real engine that answers as one does after a restart under live-restore: of the first exec that is waited for it knows nothing."""

    forgotten: str | None = None

    async def wait_exec(self, exec_id: str) -> ExecInfo | None:
        self.forgotten = self.forgotten or exec_id
        return None if exec_id == self.forgotten else await super().wait_exec(exec_id)

    async def inspect_exec(self, exec_id: str) -> ExecInfo | None:
        return None if exec_id == self.forgotten else await super().inspect_exec(exec_id)


def test_b07_an_agent_whose_exec_the_engine_forgot_is_dead_all_the_same(docker_host: str, tmp_path: Path) -> None:
    """Its session is known from the start, so what it left behind dies too, although it killed the shell that we would look for."""
    task = make_task(tmp_path, "forgotten", instruction=f"({COUNT}) & {BEGUN}; kill -9 $PPID; sleep 300", test=VERIFIER, agent_s=LATE_S)
    engine = Forgetful("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    with campaign(docker_host, [task], arms, engine=engine) as ran:
        assert engine.forgotten is not None
        first, second = counted(ran, "forgotten")
        assert first == second > 0
        assert ran.agent("forgotten", "ended_by") == "deadline"
        assert {fate for fate, _ in ran.processes("forgotten")} == {"killed"}
