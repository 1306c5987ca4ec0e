"""What must hold in every seed, after each write of a life and each change at the engine.

Owns the rules, each under a name of its own.  Looks at the ledger's rows and at the engine's real things side by side; asks neither the
product's own opinion nor its clients.  Cheap: temporary triggers say which rows a transaction touched, and only those are looked at.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from marathond.core.names import trial_label
from marathond.core.score import read_score
from marathond.flow.verify import PREPARE
from marathond.ports.engine import LABEL_CLAIM, LABEL_LEDGER
from marathond.tasks.scorefiles import collect
from tests.sim.fake_box import ContainerRecord, ExecRecord
from tests.sim.programs import AGENT, VERIFIER
from tests.sim.world import LEDGER_ID

if TYPE_CHECKING:
    from tests.sim.run import Sim

SAW = {
    "claimed": "AFTER INSERT ON main.claim",
    "gone": "AFTER UPDATE OF gone_at_ms ON main.container",
    "released": "AFTER UPDATE OF released_at_ms ON main.claim",
    "event": "AFTER INSERT ON main.trial_event",
    "void": "AFTER INSERT ON main.void",
    "score": "AFTER INSERT ON main.score",
    "leased": "AFTER INSERT ON main.network_lease",
    "lease_over": "AFTER UPDATE OF released_at_ms ON main.network_lease",
    "agent": "AFTER INSERT ON main.trial_agent",
    "round": "AFTER INSERT ON main.verification",
    "finding": "AFTER INSERT ON main.finding",
}
KEYS = {
    "claim": "claim_id",
    "container": "trial_id",
    "trial_event": "event_id",
    "void": "void_id",
    "score": "score_id",
    "network_lease": "lease_id",
    "trial_agent": "trial_id",
    "verification": "trial_id",
    "finding": "finding_id",
}
LATE_S = 12.0
"""Longest that an agent may live past its deadline while a daemon looks on and nothing is wrong with the engine."""
WELL_S = 4.0
"""A life that begins this long before a deadline has recovered by then."""
GONE_CODES = ("container_lost", "host_rebooted", "daemon_lost")
PROOF = "proof"


class Invariants:
    """:param violated: told the rule's name and what was seen."""

    def __init__(self, sim: Sim, conn: sqlite3.Connection) -> None:
        self.sim, self.conn = sim, conn
        self._saw: list[tuple[str, int]] = []
        self._agents: dict[str, set[int]] = defaultdict(set)
        """Container → sessions of its agents that live."""
        self._begun: set[str] = set()
        self._made_s: dict[str, float] = {}
        self._gone_s: dict[str, float] = {}
        """When a container was made; when the ledger took that of a claim's token for gone."""
        self._verifiers: dict[str, set[int]] = defaultdict(set)
        self._cells: dict[str, int] = {}
        """Token of a claim → its cell."""
        self.checks = 0
        self._began_s: dict[int, float] = {}
        """Run → when its life wrote first."""
        conn.create_function("sim_saw", 2, lambda kind, key: self._saw.append((kind, key)))
        for kind, when in SAW.items():
            table = when.rpartition("main.")[2]
            conn.execute(f"CREATE TEMP TRIGGER sim_{kind} {when} BEGIN SELECT sim_saw('{kind}', NEW.{KEYS[table]}); END")

    def _broken(self, rule: str, what: str) -> None:
        self.sim.violated(rule, what)

    def one(self, sql: str, *args: Any) -> sqlite3.Row:
        row = self.conn.execute(sql, args).fetchone()
        assert row is not None, sql
        found: sqlite3.Row = row
        return found

    # ── after a write ──

    def undone(self) -> None:
        """The transaction was rolled back."""
        self._saw.clear()

    def wrote(self, run_id: int) -> None:
        """A transaction of that life was committed."""
        saw, self._saw = self._saw, []
        self._began_s.setdefault(run_id, trio.current_time())
        if run_id != self.sim.newest_run:
            self._broken("no write of an old epoch", f"run {run_id} wrote after run {self.sim.newest_run} had begun: {saw}")
        for kind, key in saw:
            self.checks += 1
            check: Callable[[int], None] = getattr(self, f"_{kind}")
            check(key)

    def _claimed(self, claim_id: int) -> None:
        row = self.one("SELECT cell_id, token, run_id FROM claim WHERE claim_id = ?", claim_id)
        self._cells[row["token"]] = row["cell_id"]
        used = self.one(
            """SELECT count(*) FROM trial JOIN void USING (trial_id) WHERE cell_id = ?1 AND decided_by = 'daemon' AND counts_pass
               AND undone_at_ms IS NULL AND void_id > (SELECT coalesce(max(passes_from_void_id), 0) FROM park WHERE cell_id = ?1)""",
            row["cell_id"],
        )[0]
        if used >= self.sim.passes_most:
            self._broken("passes are never exceeded", f"cell {row['cell_id']} is begun again after {used} passes")
        ours = [c for c in self.sim.engine.containers.values() if self.ours(c)]
        rivals = [c for c in ours if self._cells.get(c.labels[LABEL_CLAIM]) == row["cell_id"]]
        if alive := [c for c in rivals if self._alive_sessions(c, self._agents)]:
            self._broken("one running agent per cell", f"cell {row['cell_id']} is claimed while an agent runs in {alive[0].name}")

    def _released(self, claim_id: int) -> None:
        token = self.one("SELECT token FROM claim WHERE claim_id = ?", claim_id)[0]
        left = [c for c in self.sim.engine.containers.values() if self.ours(c) and c.labels.get(LABEL_CLAIM) == token]
        # A request that nobody waits for any more may be carried out after the look that found nothing: then it is the sweeper's.
        gone_s = self._gone_s.get(token, 0.0)
        left = [c.name for c in left if self._made_s.get(c.id, 0.0) <= gone_s]
        if left:
            self._broken("a released claim has no container", f"claim {claim_id} is released, and {left} is there")

    def _gone(self, trial_id: int) -> None:
        self._gone_s[self.one("SELECT token FROM claim JOIN trial USING (claim_id) WHERE trial_id = ?", trial_id)[0]] = trio.current_time()

    def _leased(self, lease_id: int) -> None:
        row = self.one("""SELECT cap, (SELECT count(*) FROM network_lease WHERE released_at_ms IS NULL) AS live FROM network_pool""")
        if row["live"] > row["cap"]:
            self._broken("leases stay within the cap", f"{row['live']} of {row['cap']}")

    def _lease_over(self, lease_id: int) -> None:
        row = self.one("SELECT network_name, released_because FROM network_lease WHERE lease_id = ?", lease_id)
        left = [n.id for n in self.sim.engine.networks.values() if n.name == row["network_name"]]
        if left:
            self._broken("a released lease has no network", f"lease {lease_id} is released ({row[1]}), and network {row[0]} is there")

    def _event(self, event_id: int) -> None:
        row = self.one("SELECT trial_id, event, from_state, to_state, run_id FROM trial_event WHERE event_id = ?", event_id)
        self.sim.transitions[row["from_state"], row["event"], row["to_state"]] += 1
        if row["run_id"] != self.sim.newest_run:
            self._broken("no event of an old epoch", f"event {event_id} carries run {row['run_id']}, the newest is {self.sim.newest_run}")
        if row["event"] in ("agent_ended", "budget_spent"):
            self._ended(row["trial_id"])
            self._in_time(row["trial_id"])
        standing = self.one(
            """SELECT count(*) FROM trial WHERE state <> 'voided' AND cell_id = (SELECT cell_id FROM trial WHERE trial_id = ?)""",
            row["trial_id"],
        )[0]
        if standing > 1:
            self._broken("one valid trial per cell", f"{standing} trials stand beside {trial_label(row['trial_id'])}")

    def _ended(self, trial_id: int) -> None:
        for container in self.sim.engine.containers.values():
            mine = self.ours(container) and container.name.endswith(f"-{trial_label(trial_id)}")
            if mine and self._alive_sessions(container, self._agents):
                self._broken("an ended agent is dead", f"{trial_label(trial_id)} is written down as ended, a process of its session lives")

    def _in_time(self, trial_id: int) -> None:
        """Whatever the row says: how late was it, and how long has a daemon been there to see it, with an engine that was well?"""
        row = self.one(
            """SELECT started_mono_ms, limit_ms, ended_mono_ms, credit_ms, ended_at_ms - started_at_ms AS seen_ms FROM trial_agent
               WHERE trial_id = ?""",
            trial_id,
        )
        if row["limit_ms"] is None:
            return
        # Nobody knows when: not later than it was found.
        ran_ms = row["seen_ms"] if row["ended_mono_ms"] is None else row["ended_mono_ms"] - row["started_mono_ms"]
        late_s = (ran_ms - row["limit_ms"] - row["credit_ms"]) / 1000
        calm_s = trio.current_time() - max(self._began_s[self.sim.newest_run], self.sim.engine.trouble_s)
        if late_s > LATE_S and calm_s > late_s + WELL_S:
            self._broken(
                "a deadline holds over restarts", f"{trial_label(trial_id)} ended {late_s:.1f} s late, all was well for {calm_s:.1f} s"
            )

    def _void(self, void_id: int) -> None:
        row = self.one("SELECT trial_id, code, reason, evidence_json, decided_by, from_state FROM void WHERE void_id = ?", void_id)
        self.sim.voids[row["code"]] += 1
        label = trial_label(row["trial_id"])
        if not row["reason"].strip() or (row["decided_by"] == "daemon" and "engine_breaks" not in json.loads(row["evidence_json"])):
            self._broken("every void has evidence", f"{label}: {row['code']}: {row['reason']!r} {row['evidence_json']}")
        if row["code"] == "stop_now" and row["from_state"] in ("scored", "review"):
            self._broken("stop --now voids what runs", f"{label} was {row['from_state']}")
        if row["code"] not in GONE_CODES or row["from_state"] not in ("running", "verifying"):
            return
        stored = self.one("SELECT docker_id, started_at FROM container WHERE trial_id = ?", row["trial_id"])
        there = self.sim.engine.containers.get(stored["docker_id"] or "")
        if row["code"] == "daemon_lost":
            if self.sim.programs.runs[label, "agent"] and there is not None and self._alive_sessions(there, self._agents):
                self._broken("only what is gone is voided", f"{label} is void ({row['code']}) and its agent runs: {row['reason']}")
        elif there is not None and there.running and there.started_at == stored["started_at"]:
            self._broken("only what is gone is voided", f"{label} is void ({row['code']}) and its container runs: {row['reason']}")

    def _score(self, score_id: int) -> None:
        row = self.one("SELECT trial_id, extractor, reward, flags_json FROM score WHERE score_id = ?", score_id)
        if row["extractor"] == 0:
            return  # a person's word
        label = trial_label(row["trial_id"])
        written = self.sim.programs.written[label]
        if row["reward"] not in {payload.reward for payload in written}:
            self._broken("a score is what a verifier wrote", f"{label} has {row['reward']}; written were {[p.reward for p in written]}")
        if "accepted_as_read" in row["flags_json"] or "verifier_oom" in row["flags_json"]:
            return  # by a person's word; or killed for want of memory in a container that lived on, and the score says so
        if self.sim.programs.ended.get(label) != (begun := self.sim.programs.runs[label, "verifier"]):
            self._broken("a score is of a verifier that ended", f"{label} is scored, and its verifier {begun} did not come to its own end")
        left = [c for c in self.sim.engine.containers.values() if self.ours(c) and c.name.endswith(f"-{label}")]
        if left and "container_outlived_score" not in row["flags_json"]:
            self._broken("a scored payload is final", f"{label} is scored, and its container is there")
        logs = self.sim.folder / "r" / label / "logs"
        if logs.is_dir() and not left:
            files, unread = collect(logs)
            now = read_score(files, verifier_exited=True, unread=unread).reward
            if now is None or now.value != row["reward"]:
                self._broken("a scored payload is final", f"{label} is scored {row['reward']}, on disk is {now}")

    def _agent(self, trial_id: int) -> None:
        """The agent's row comes before its start."""
        if self.sim.programs.runs[trial_label(trial_id), "agent"]:
            self._broken("the row comes before the act", f"the agent of {trial_label(trial_id)} began before it was written down")

    def _round(self, trial_id: int) -> None:
        rounds = self.one(
            """SELECT (SELECT count(*) FROM verification WHERE trial_id = ?1) AS rounds, (SELECT count(*) FROM trial_event
               WHERE trial_id = ?1 AND event = 'verify_again') AS again""",
            trial_id,
        )
        if rounds["rounds"] > rounds["again"] + 1:
            self._broken(
                "every further round is announced", f"{trial_label(trial_id)}: {rounds['rounds']} rounds, {rounds['again']} events"
            )

    def _finding(self, finding_id: int) -> None:
        row = self.one("SELECT code, subject, detail FROM finding WHERE finding_id = ?", finding_id)
        self.sim.findings[row["code"]] += 1
        if row["code"] in ("invariant_broken", "audit_failed"):
            self._broken("the flow breaks no rule of the ledger", f"{row['code']} {row['subject']}: {row['detail']}")

    # ── after a change at the engine ──

    @staticmethod
    def ours(container: ContainerRecord) -> bool:
        return container.labels.get(LABEL_LEDGER) == LEDGER_ID and not container.foreign

    def changed(self, verb: str, thing: str) -> None:
        """The engine did something."""
        engine = self.sim.engine
        self.checks += 1
        if engine.touched:
            self._broken("what is not ours is not touched", f"{verb}: {engine.touched}")
            engine.touched.clear()
        if verb in ("process.end", "process.kill", "container.die"):
            self._pruned(thing)
        elif verb == "exec.start" and (made := engine.execs.get(thing)) is not None:
            self._started(made)
        elif verb == "container.create" and (container := engine.containers.get(thing)) is not None:
            self._created(container)
        elif verb == "container.remove":
            self._removed(thing)
        elif verb == "network.create" and (network := engine.networks.get(thing)) is not None:
            ours = network.labels.get(LABEL_LEDGER) == LEDGER_ID
            if ours and not self._known("network_lease", "network_name", network.name):
                self._broken("the row comes before the act", f"network {network.name} was made, and no lease names it")

    def _pruned(self, container_id: str) -> None:
        """A session without a process is over, and its number may be another's from now on."""
        container = self.sim.engine.containers.get(container_id)
        alive = {process.session for process in container.processes.values()} if container is not None else set()
        for sessions in (self._agents, self._verifiers):
            if container_id in sessions:
                sessions[container_id] &= alive

    def _removed(self, container_id: str) -> None:
        row = self.conn.execute(
            "SELECT trial_id, state FROM container JOIN trial USING (trial_id) WHERE docker_id = ?", (container_id,)
        ).fetchone()
        if row is not None and row["state"] in ("reserved", "preparing", "running") and not self.sim.old_is_heard:
            self._broken(
                "nothing is torn down under a living agent", f"the container of {trial_label(row[0])} is removed while that is {row[1]}"
            )

    def _known(self, table: str, column: str, value: str) -> bool:
        return self.conn.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (value,)).fetchone() is not None

    def _created(self, container: ContainerRecord) -> None:
        self._made_s[container.id] = trio.current_time()
        ours = self.ours(container) and container.labels.get(LABEL_CLAIM) != PROOF
        if ours and not self._known("container", "name", container.name):
            self._broken("the row comes before the act", f"container {container.name} was made, and no row names it")

    def _started(self, made: ExecRecord) -> None:
        container, argv, process = made.container, tuple(made.spec.argv), made.process
        if process is None or not self.ours(container):
            return
        name, judged = argv[3] if len(argv) > 3 else "", not self.sim.old_is_heard
        if name == AGENT:
            if judged:
                self._agent_starts(container)
            self._agents[container.id].add(process.session)
        elif judged and (name == VERIFIER or (argv[2:3] == (PREPARE,) and argv[4] in container.uploads)):  # else it finds nothing to do
            if self._alive_sessions(container, self._agents):
                self._broken("no verifier beside a living agent", f"in {container.name}")
            if self._alive_sessions(container, self._verifiers):
                self._broken("one verifier at a time", f"in {container.name}")
        if judged and name in (AGENT, VERIFIER):
            self._keeps_apart(container, name)
        if name == VERIFIER:
            self._verifiers[container.id].add(process.session)

    def _keeps_apart(self, container: ContainerRecord, name: str) -> None:
        """Nothing begins beside a verifier that runs alone, nor such a one beside another verifier."""
        mine = self._alone(container)
        for other in self.sim.engine.containers.values():
            if other is container or not self.ours(other) or not self._alive_sessions(other, self._verifiers):
                continue
            theirs = self._alone(other)
            if name == AGENT and theirs == "verifiers" and self._asked_before(container, other):
                continue  # agents go on beside it, and this one only waited for the engine to begin
            if theirs not in (None, "no") or (name == VERIFIER and theirs is not None and mine not in (None, "no")):
                self._broken("a lone verifier is alone", f"{name} begins in {container.name} ({mine}) beside {other.name} ({theirs})")
        if mine == "everything" and name == VERIFIER:
            agents = [c.name for c in self.sim.engine.containers.values() if self.ours(c) and self._alive_sessions(c, self._agents)]
            if agents:
                self._broken("a lone verifier is alone", f"it begins in {container.name} beside agents in {agents}")

    def _alone(self, container: ContainerRecord) -> str | None:
        """What the verifier in it is alone from; None: its trial is verified no more (a person voided it)."""
        row = self.conn.execute(
            """SELECT coalesce(alone, 'no') FROM container JOIN trial USING (trial_id) LEFT JOIN verifier_turn AS turn
                   ON turn.trial_id = trial.trial_id AND granted_at_ms IS NOT NULL AND ended_at_ms IS NULL
               WHERE docker_id = ? AND state IN ('running', 'verifying')""",
            (container.id,),
        ).fetchone()
        return None if row is None else str(row[0])

    def _asked_before(self, agent: ContainerRecord, verifier: ContainerRecord) -> bool:
        """Whether the agent's start was on record before the verifier's: an engine that hangs carries it out when it likes."""
        row = self.conn.execute(
            """SELECT 1 FROM trial_agent AS a JOIN verification AS v ON a.boot_id = v.boot_id AND a.started_mono_ms <= v.started_mono_ms
               WHERE v.ended_at_ms IS NULL AND a.trial_id = (SELECT trial_id FROM container WHERE docker_id = ?)
                   AND v.trial_id = (SELECT trial_id FROM container WHERE docker_id = ?)""",
            (agent.id, verifier.id),
        ).fetchone()
        return row is not None

    def _agent_starts(self, container: ContainerRecord) -> None:
        if container.id in self._begun:
            self._broken("an agent is begun once", f"in {container.name}")
        self._begun.add(container.id)
        cell = self._cells.get(container.labels[LABEL_CLAIM])
        for other in self.sim.engine.containers.values():
            rival = other is not container and self.ours(other) and self._cells.get(other.labels[LABEL_CLAIM]) == cell
            if rival and cell is not None and self._alive_sessions(other, self._agents):
                self._broken("one running agent per cell", f"cell {cell}: {container.name} beside {other.name}")

    def _alive_sessions(self, container: ContainerRecord, sessions: dict[str, set[int]]) -> bool:
        mine = sessions.get(container.id, set())
        return any(process.session in mine for process in container.processes.values()) if mine else False

    # ── at the end ──

    def left(self) -> list[str]:
        """What keeps the seed from being at rest, in words."""
        c, engine = self.conn, self.sim.engine
        restless = "SELECT cell_id, state FROM cell_state WHERE state NOT IN ('done','parked','review')"
        found = [f"cell {r[0]} is {r[1]}" for r in c.execute(restless)]
        found += [f"claim {r[0]} is held" for r in c.execute("SELECT claim_id FROM claim WHERE released_at_ms IS NULL")]
        found += [f"lease {r[0]} is held" for r in c.execute("SELECT lease_id FROM network_lease WHERE released_at_ms IS NULL")]
        found += [f"container of {r[0]} is not seen gone" for r in c.execute("SELECT trial_id FROM container WHERE gone_at_ms IS NULL")]
        found += [f"container {x.name} ({x.status}) is there" for x in engine.containers.values() if self.ours(x)]
        found += [f"network {n.name} is there" for n in engine.networks.values() if n.labels.get(LABEL_LEDGER) == LEDGER_ID]
        found += [
            f"trial {r[0]} is not exported"
            for r in c.execute(
                """SELECT trial_id FROM trial WHERE state IN ('scored','voided','review')
                   AND trial_id NOT IN (SELECT trial_id FROM artifact_export)"""
            )
        ]
        return found

    def whole(self) -> None:
        """The file itself, once per seed."""
        for pragma in ("integrity_check", "foreign_key_check"):
            rows = [tuple(row) for row in self.conn.execute(f"PRAGMA {pragma}").fetchall()]
            if rows not in ([], [("ok",)]):
                self._broken("the ledger is whole", f"{pragma}: {rows[:3]}")
        cells = self.one("SELECT count(*) FROM cell")[0]
        if cells != self.sim.shape.cells:
            self._broken("no cell is lost", f"{cells} of {self.sim.shape.cells}")
        engine = self.sim.engine
        foreign = sorted(thing for thing in engine.foreign if thing not in engine.networks and thing not in engine.containers)
        if foreign:
            self._broken("what is not ours is not touched", f"gone: {foreign}")
