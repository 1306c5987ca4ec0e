"""Agents that lie about their end, destroy what they can reach, break their container or outlive themselves.

Every one of them is a command arm; the task is the same for all but a few.  None of them may close admission, cost a cell an attempt, or be
graded as something it was not.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.hostile import Ran, campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

VERIFIER = """
echo 1 >/logs/verifier/reward.txt
[ -e /tests/planted ] && planted=true || planted=false
[ -L /tests ] && link=true || link=false
[ -e /elsewhere/test.sh ] && leaked=true || leaked=false
echo "{\\"planted\\": $planted, \\"link\\": $link, \\"leaked\\": $leaked}" >/logs/verifier/metrics.json
"""
GATE_S = 25.0
"""Of all of them: what only one of them may use up."""
END_CONTAINER = "rm -f $(command -v sleep); kill -9 $(cat /proc/1/task/1/children)"

AGENTS = {
    "deletes-own-folders": "rm -rf /logs/agent/* /logs/agent/.[!.]* /marathond/ctl/* /logs/artifacts/*; exit 3",
    "forges-exit": "echo 0 >/marathond/ctl/exit-status; (sleep 0.2; echo 0 >/marathond/ctl/exit-status) & exit 7",
    "forges-exit-by-folder": "mkdir -p /marathond/ctl/exit-status/x; exit 7",
    "plants-reward": "echo 0 >/logs/verifier/reward.txt; echo 0 >/logs/verifier/reward.json; mkdir -p /logs/verifier/d/e",
    "plants-tests": "mkdir -p /tests; touch /tests/planted; printf '#!/bin/sh\\nexit 0\\n' >/tests/test.sh",
    "plants-tests-link": "mkdir -p /elsewhere; rm -rf /tests; ln -s /elsewhere /tests; touch /elsewhere/planted",
    "plants-tests-file": "rm -rf /tests; echo planted >/tests",
    "names-not-text": "touch \"/logs/verifier/$(printf 'a\\377b')\" \"/logs/verifier/$(printf 'c\\033[2Jd')\"",
    "digs-deep": "cd /logs/verifier; i=0; while [ $i -lt 2500 ]; do mkdir d; cd d; i=$((i + 1)); done",
    "refills": "setsid sh -c 'while :; do mkdir -p /logs/verifier/d/e/f; done' >/dev/null 2>&1 & sleep 0.2",
    "takes-tools-away": "rm -f $(command -v mv)",
    "hangs-tools": "printf '#!/bin/sh\\nsleep 1000\\n' >$(command -v mv)",
    "kills-one": "kill -9 1; kill -TERM 1; kill -STOP 1; exit 0",
    "kills-everybody": "kill -9 -1",
    "ends-container": f"{END_CONTAINER}; while :; do :; done",
    "ends-container-later": f"setsid sh -c 'while [ ! -e /tests ]; do :; done; {END_CONTAINER}' >/dev/null 2>&1 & exit 0",
    "escapes": "printf '\\033]0;owned\\007\\033[2J\\033[31mred'; exit 0",
}


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """One task per agent, those first that take longest, so that each cell has its own script: the arm runs what the instruction holds."""
    root = tmp_path_factory.mktemp("agents")
    tasks = []
    for name, script in sorted(AGENTS.items(), key=lambda item: item[0] != "hangs-tools"):
        tasks.append(make_task(root, name, instruction=script, test=VERIFIER, agent_s=300))
    arms = {"sh": {"kind": "command", "argv": ["sh", "-c", 'exec sh "$MARATHOND_INSTRUCTION"']}}
    with campaign(docker_host, tasks, arms, {"limits.gate_timeout_s": GATE_S}) as ran:
        yield ran


def test_an_agent_that_deletes_its_own_folders_is_scored_by_the_engines_word(ran: Ran) -> None:
    assert ran.reward("deletes-own-folders") == 1.0
    assert ran.agent("deletes-own-folders", "exit_code, exit_source, ended_by") == (3, "exec", "agent")


@pytest.mark.parametrize("task", ["forges-exit", "forges-exit-by-folder"])
def test_c18_a_forged_exit_status_decides_nothing(ran: Ran, task: str) -> None:
    assert ran.reward(task) == 1.0
    assert ran.agent(task, "exit_code, exit_source") == (7, "exec")


def test_c11_a_planted_reward_is_removed_and_named(ran: Ran) -> None:
    assert ran.reward("plants-reward") == 1.0
    assert ran.facts("plants-reward")["removed before verification"] == (
        "d, reward.json, reward.txt",
        "written by the agent to /logs/verifier",
    )


@pytest.mark.parametrize("task", ["plants-tests", "plants-tests-link", "plants-tests-file"])
def test_c11_tests_that_the_agent_planted_are_not_run(ran: Ran, task: str) -> None:
    assert ran.reward(task) == 1.0
    assert ran.parts(task) == {"planted": "false", "link": "false", "leaked": "false"}


def test_file_names_that_are_no_text_close_nothing_and_steer_no_terminal(ran: Ran) -> None:
    assert ran.reward("names-not-text") == 1.0
    assert ran.facts("names-not-text")["removed before verification"][0] == "a\ufffdb, cd"


def test_a_tree_deeper_than_our_stack_is_removed(ran: Ran) -> None:
    assert ran.reward("digs-deep") == 1.0
    assert ran.facts("digs-deep")["removed before verification"][0] == "d"


def test_a_rival_that_refills_the_verifiers_folder_is_reviewed_or_beaten(ran: Ran) -> None:
    """Which of the two depends on who is faster; a void, a stop or a wrong number it never is."""
    assert ran.state("refills") in ("scored", "review")
    if ran.state("refills") == "scored":
        assert ran.reward("refills") == 1.0
    else:
        assert ran.review("refills")[0] == "verifier_not_started"


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("takes-tools-away", "tests could not be put in place: exit 1"),
        ("hangs-tools", f"tests could not be put in place within {GATE_S:g} s"),
    ],
)
def test_an_agent_that_keeps_its_verifier_from_starting_earns_no_further_attempt(ran: Ran, task: str, why: str) -> None:
    code, detail = ran.review(task)
    assert code == "verifier_not_started" and why in detail
    assert ran.agent(task, "exit_code, ended_by") == (0, "agent")


def test_signals_to_the_first_process_end_nothing(ran: Ran) -> None:
    assert ran.reward("kills-one") == 1.0
    assert ran.agent("kills-one", "exit_code") == 0


def test_an_agent_that_kills_everybody_it_can_is_scored(ran: Ran) -> None:
    assert ran.reward("kills-everybody") == 1.0
    assert ran.agent("kills-everybody", "exit_code, exit_source, oom_killed") == (137, "exec", 0)


def test_b09_an_exit_of_137_is_no_lack_of_memory(ran: Ran) -> None:
    assert ran.agent("kills-everybody", "exit_code, oom_killed") == (137, 0)
    assert ran.flags("kills-everybody") == []


@pytest.mark.parametrize("task", ["ends-container", "ends-container-later"])
def test_an_agent_that_ends_its_container_is_reviewed(ran: Ran, task: str) -> None:
    """The code tells in which phase it was noticed, which is a race; that nothing is voided and nothing scored is not."""
    code, detail = ran.review(task)
    assert code in ("container_ended", "verifier_not_started", "verifier_lost")
    assert "the engine did not" in detail


def test_terminal_escapes_are_kept_in_the_artifact_and_nowhere_else(ran: Ran) -> None:
    assert ran.reward("escapes") == 1.0
    assert (ran.folder("escapes") / "agent" / "output.txt").read_bytes() == b"\033]0;owned\007\033[2J\033[31mred"
    for view in ("v_trial", "v_cell", "v_event", "v_void", "v_finding"):
        assert "\033" not in "".join(map(str, ran.rig.sql(f"SELECT * FROM {view}"))).encode().decode("unicode_escape")


def test_no_agent_can_close_admission_or_cost_an_attempt(ran: Ran) -> None:
    assert ran.stop_losses() == []
    assert ran.rig.sql("SELECT * FROM void") == []
    assert ran.rig.one("SELECT count(*) FROM trial") == len(AGENTS)
