"""Who must die before the verifier starts."""

from __future__ import annotations

from marathond.core.death import Proc, judge
from marathond.core.names import AfterAgent

MAIN = Proc(100, 1, 100, 5, "sh -c idle")
SLEEP = Proc(101, 100, 100, 6, "sleep 86400")
WRAPPER = Proc(200, 99, 200, 7, "sh marathond-agent")
CHILD = Proc(201, 200, 200, 8, "make")
DETACHED = Proc(300, 100, 300, 9, "server --daemon")
GRANDCHILD = Proc(301, 300, 300, 10, "worker")
ORPHAN = Proc(202, 100, 200, 11, "left in the agent's session")
EVERYONE = [MAIN, SLEEP, WRAPPER, CHILD, DETACHED, GRANDCHILD, ORPHAN]


def test_keep_detached_kills_the_agents_session_and_lists_the_rest() -> None:
    verdict = judge(EVERYONE, main_pid=100, agent_pids=[200], policy=AfterAgent.KEEP_DETACHED)
    assert set(verdict.kill) == {WRAPPER, CHILD, ORPHAN}
    assert set(verdict.keep) == {DETACHED, GRANDCHILD}


def test_kill_all_spares_the_containers_own_main_process_only() -> None:
    verdict = judge(EVERYONE, main_pid=100, agent_pids=[200], policy=AfterAgent.KILL_ALL)
    assert set(verdict.kill) == {WRAPPER, CHILD, ORPHAN, DETACHED, GRANDCHILD}
    assert verdict.keep == ()


def test_the_session_counts_when_its_leader_is_long_dead() -> None:
    verdict = judge([MAIN, SLEEP, ORPHAN], main_pid=100, agent_pids=[200], policy=AfterAgent.KEEP_DETACHED)
    assert verdict.kill == (ORPHAN,)


def test_nothing_left_is_nothing_to_do() -> None:
    verdict = judge([MAIN, SLEEP], main_pid=100, agent_pids=[200], policy=AfterAgent.KILL_ALL)
    assert verdict.kill == verdict.keep == ()


def test_a_main_process_that_is_not_in_the_list_protects_its_session_by_number() -> None:
    verdict = judge([SLEEP, CHILD], main_pid=100, agent_pids=[200], policy=AfterAgent.KILL_ALL)
    assert verdict.kill == (CHILD,)
