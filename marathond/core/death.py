"""Who must die before the verifier may start.

Owns the decision over a process list read while the container was paused (nothing can fork then).  Must not know how it is read or
how a process is killed.  Facts: `docker exec` starts its command in a session of its own, so the session id of the agent is its pid;
a process that called setsid has another one, which is what "detached on purpose" means here (Harbor keeps those running).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from marathond.core.names import AfterAgent


@dataclass(frozen=True, slots=True)
class Proc:
    """One process: host pid, parent, session, start time in clock ticks, command line for the record."""

    pid: int
    ppid: int
    session: int
    start_ticks: int
    argv: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kill``: must die now.  ``keep``: detached by the agent, left alone by policy.  The container's own main process is in neither."""

    kill: tuple[Proc, ...]
    keep: tuple[Proc, ...]


def judge(
    processes: Iterable[Proc],
    *,
    main_pid: int,
    agent_pids: Iterable[int],
    policy: AfterAgent,
    tool_sessions: bool = False,
    harness: str = "",
) -> Verdict:
    """Decide over one paused look.

    :param main_pid: State.Pid of the container; its session is the idle main process and is never touched.
    :param agent_pids: host pids of the execs that must be dead (their sessions bear the same numbers).
    :param tool_sessions: an agent that gives each tool command a session of its own (codex 0.171 does): the sessions of its children are
        what it is doing right now, and die with it (fault b07).  What a command put into a further session is detached.
    :param harness: how the command line of a process of the harness starts, empty: there is none.  Only some arms have one, so it never
        runs on beside the verifier, wherever its session is (fault c17: LoopX's daemon outlives the call that started it).
    """
    everyone = list(processes)
    by_pid = {p.pid: p for p in everyone}
    main_session = by_pid[main_pid].session if main_pid in by_pid else main_pid
    agents = set(agent_pids)
    ours = [p for p in everyone if p.pid == main_pid or (p.session == main_session and p.session not in agents)]
    others = [p for p in everyone if p not in ours]
    if policy is AfterAgent.KILL_ALL:
        return Verdict(tuple(others), ())
    # A session lives on after its leader ended, so the number alone decides; descent says nothing once a parent is dead.
    doomed = {p.pid for p in others if p.session in agents or p.pid in agents}
    if tool_sessions:
        sessions = {p.session for p in others if p.ppid in doomed}
        doomed |= {p.pid for p in others if p.session in sessions}
    if harness:
        doomed |= {p.pid for p in others if p.argv.startswith(harness)}
    kill = tuple(p for p in others if p.pid in doomed)
    return Verdict(kill, tuple(p for p in others if p not in kill))
