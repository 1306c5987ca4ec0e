"""The verbs against a small model: whatever the order of events, the ledger keeps its promises.

The model knows of each cell only its current attempt and what is still held.  Hypothesis chooses the steps; illegal ones must be refused
and change nothing.
"""

from __future__ import annotations

import sqlite3

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule, run_state_machine_as_test
from support import ledgers as help
from support.big_ledger import check
from support.ledger_model import REACHED, Attempt, LedgerHands, Model
from support.ledgers import ENGINE, T0, cell, fill, memory_ledger, submission, subnet, task

from marathond.ledger.verbs import admission, campaigns, networks, operator, status, trials
from marathond.ledger.verbs.admission import Admitted
from marathond.ledger.verbs.cells import cells_by_arm, standing_by_arm

CAP = 3
PASSES = 2
STEPS = (
    "intend_container",
    "bring_up",
    "start_agent",
    "end_agent",
    "score",
    "doubt",
    "reattach",
    "container_is_gone",
    "network_is_gone",
    "release_claim",
)
WAYS = ("bring_up", "start_agent", "reattach", "end_agent", "verify_again", "score", "doubt", "decide")
NEEDS = {
    "intend_container": "reserved",
    "bring_up": "reserved",
    "start_agent": "preparing",
    "reattach": "running",
    "end_agent": "running",
    "score": "verifying",
    "doubt": "verifying",
}

LIVE = ("reserved", "preparing", "running", "verifying")


class LedgerMachine(LedgerHands, RuleBasedStateMachine):
    attempts = Bundle("attempts")

    @initialize(target=attempts)
    def begin(self) -> object:
        self.start()
        return multiple(*(self._admit(cell_id, n) for n, cell_id in enumerate(self.cells[:3])))

    def start(self) -> None:
        self.c = memory_ledger()
        self.campaign_id = fill(self.c, submission(tasks=[task("zstd"), task("rust", network=False)], replicates=2), cap=CAP)
        self.model = Model()
        self._ended_by = "agent"
        self.cells = [row[0] for row in self.c.execute("SELECT cell_id FROM cell ORDER BY cell_id").fetchall()]
        self.now = T0

    def teardown(self) -> None:
        if hasattr(self, "c"):
            self.c.close()

    # ── steps ──

    @rule(a=attempts, what=st.sampled_from(STEPS))
    def one_step(self, a: Attempt, what: str) -> None:
        """Whatever comes, legal or not."""
        getattr(self, what)(a)

    @rule(a=attempts, to=st.sampled_from(WAYS), budget=st.booleans())
    def go_on(self, a: Attempt, to: str, budget: bool) -> None:
        """A trial's ordinary way, up to and with one step; a walk of single steps alone seldom gets far."""
        self._ended_by = "deadline" if budget else "agent"
        way = ["intend_container", "bring_up", "start_agent", "end_agent", "score"]
        if to == "reattach":
            way = [*way[:3], "reattach"]
        elif to == "verify_again":
            way = way[:4]
        elif to in ("doubt", "decide"):
            way = [*way[:4], "doubt"]
        else:
            way = way[: way.index(to) + 1]
        for what in way:
            if a.state == NEEDS[what] and not (what == "intend_container" and a.container):
                getattr(self, what)(a)
        if to == "decide":
            self.decide(a, budget)
        elif to == "verify_again":
            for cause in ("interrupted", "unreadable", "deadline"):
                self.verify_again(a, cause)

    @rule(a=attempts, order=st.permutations(["container_is_gone", "network_is_gone", "release_claim"]))
    def tear_down(self, a: Attempt, order: list[str]) -> None:
        """In any order: what comes too early is refused."""
        for what in order:
            if a.state not in LIVE:
                getattr(self, what)(a)

    @rule(target=attempts, nth=st.integers(0, 7), net=st.integers(0, 3))
    def admit(self, nth: int, net: int) -> object:
        attempt = self._admit(self.cells[nth], net)
        return multiple() if attempt is None else attempt

    def _admit(self, cell_id: int, net: int) -> Attempt | None:
        needs = bool(self.c.execute("SELECT needs_network FROM cell JOIN task USING (task_id) WHERE cell_id = ?", (cell_id,)).fetchone()[0])
        arguments = {
            "cell_id": cell_id,
            "token": f"k{len(self.model.attempts)}-{self.now}-{self.c.total_changes}",
            "engine": ENGINE,
            "subnet": subnet(net) if needs else None,
            "needs_network": needs,
            "ledger_id": help.LEDGER_ID,
            "now_ms": self.tick(),
        }
        fits = not needs or (len(self.model.leases) < CAP and net not in self.model.leases.values())
        if self.model.state(cell_id) != "open" or not fits:
            self.refused(admission.admit, **arguments)
            return None
        admitted = self.do(admission.admit, **arguments)
        assert isinstance(admitted, Admitted) and admitted.attempt == len(self.model.of(cell_id)) + 1
        attempt = Attempt(admitted, cell_id, net if needs else None)
        self.model.attempts.append(attempt)
        if needs:
            self.model.leases[admitted.trial_id] = net
        return attempt

    def intend_container(self, a: Attempt) -> None:
        known = self.c.execute("SELECT 1 FROM container WHERE trial_id = ?", (a.admitted.trial_id,)).fetchone()
        leased = a.subnet is None or a.admitted.trial_id in self.model.leases
        verb = help.intend
        if a.state != "reserved" or known or not leased:
            self.refused(verb, a.admitted)
        else:
            self.do(verb, a.admitted)
            a.container = True

    def bring_up(self, a: Attempt) -> None:
        def bring_environment_up(c: sqlite3.Connection) -> None:
            if a.admitted.lease_id is not None:
                networks.network_created(c, a.admitted.lease_id, network_id=f"n{a.admitted.trial_id}")
            trials.container_created(c, a.admitted.trial_id, docker_id=f"d{a.admitted.trial_id}")
            trials.environment_up(c, a.admitted.trial_id, started_at="t", detail={}, now_ms=self.tick())

        if a.state != "reserved" or not a.container or (a.subnet is not None and a.admitted.trial_id not in self.model.leases):
            self.refused(bring_environment_up)
        else:
            self.do(bring_environment_up)
            a.state = "preparing"

    def start_agent(self, a: Attempt) -> None:
        if a.state != "preparing":
            self.refused(help.start_agent, a.admitted.trial_id)
        else:
            self.do(help.start_agent, a.admitted.trial_id, now_ms=self.tick())
            a.state = "running"

    def reattach(self, a: Attempt) -> None:
        verb, kwargs = trials.reattached, {"detail": {}, "now_ms": self.tick()}
        if a.state != "running":
            self.refused(verb, a.admitted.trial_id, **kwargs)
        else:
            self.do(verb, a.admitted.trial_id, **kwargs)

    def end_agent(self, a: Attempt) -> None:
        if a.state != "running":
            self.refused(help.end_agent, a.admitted.trial_id)
        else:
            self.do(help.end_agent, a.admitted.trial_id, ended_by=self._ended_by, now_ms=self.tick())
            a.state = "verifying"

    def verify_again(self, a: Attempt, cause: str) -> None:
        verb, kwargs = trials.verify_again, {"cause": cause, "now_ms": self.tick()}
        if a.state != "verifying" or (a.again and cause != "interrupted"):
            self.refused(verb, a.admitted.trial_id, **kwargs)
        else:
            self.do(verb, a.admitted.trial_id, **kwargs)
            a.again = a.again or cause != "interrupted"

    def score(self, a: Attempt, reward: float = 0.5) -> None:
        verb = trials.scored
        if a.state in ("scored", "review"):
            return  # reading again is legal in scored; a person's word is another rule
        if a.state != "verifying":
            self.refused(verb, a.admitted.trial_id, help.good_score(reward), now_ms=self.tick())
        else:
            self.do(verb, a.admitted.trial_id, help.good_score(reward), now_ms=self.tick())
            a.state, a.reward = "scored", reward

    def doubt(self, a: Attempt) -> None:
        verb, kwargs = trials.doubted, {"code": "unreadable", "detail": "d", "evidence": {}, "now_ms": self.tick()}
        if a.state == "voided":
            return  # a review row is part of an unvoid there
        if a.state != "verifying":
            self.refused(verb, a.admitted.trial_id, **kwargs)
        else:
            self.do(verb, a.admitted.trial_id, **kwargs)
            a.state = "review"

    def decide(self, a: Attempt, accept: bool) -> None:
        kwargs = {"accept": accept, "reward": 0.25, "reason": "r", "author": "ana", "now_ms": self.tick()}
        if a.state != "review":
            self.refused(operator.decide_review, a.admitted.trial_id, **kwargs)
            return
        self.do(operator.decide_review, a.admitted.trial_id, **kwargs)
        if accept:
            a.state, a.reward = "scored", 0.25
        else:
            a.state, a.before_void, a.by_daemon, a.counts = "voided", "review", False, False

    @rule(a=attempts, who=st.sampled_from(["daemon", "daemon, in a breaker's window", "person"]))
    def void(self, a: Attempt, who: str) -> None:
        if who == "person":
            self.person_voids(a)
        else:
            self.daemon_voids(a, who == "daemon")

    def daemon_voids(self, a: Attempt, counts: bool) -> None:
        arguments = {"passes": PASSES, "counts": counts, "now_ms": self.tick()}
        if a.state not in LIVE:
            self.refused(help.daemon_void, a.admitted.trial_id, **arguments)
            return
        parks = self.do(help.daemon_void, a.admitted.trial_id, **arguments)
        a.before_void, a.state, a.by_daemon, a.counts = a.state, "voided", True, counts
        used = sum(1 for each in self.model.of(a.cell_id) if each.by_daemon and each.counts)
        expected = counts and used >= PASSES and a.cell_id not in self.model.parked
        assert parks is expected
        if expected:
            self.model.parked[a.cell_id] = "passes_exhausted"

    def person_voids(self, a: Attempt) -> None:
        kwargs = {"code": "operator", "reason": "r", "author": "ana", "now_ms": self.tick()}
        result = self.do(operator.void_trials, [a.admitted.trial_id], **kwargs)
        assert isinstance(result, operator.VoidResult)
        if a.state == "voided":
            assert (len(result.voided), len(result.already)) == (0, 1)
            return
        assert result.voided[0].score_was_known is (a.reward is not None)
        a.before_void, a.state, a.by_daemon, a.counts = a.state, "voided", False, False

    @rule(a=attempts)
    def unvoid(self, a: Attempt) -> None:
        result = self.do(operator.unvoid, trial_id=a.admitted.trial_id, author="bob", reason="r", now_ms=self.tick())
        assert isinstance(result, operator.UnvoidResult)
        newest = a is self.model.of(a.cell_id)[-1]
        if a.state == "voided" and a.before_void in ("scored", "review") and newest:
            assert [state for _, state in result.restored] == [a.before_void]
            a.state, a.before_void = a.before_void, ""
        else:
            assert result.restored == () and len(result.refused) == 1

    def container_is_gone(self, a: Attempt) -> None:
        if a.state in LIVE:
            return  # teardown comes after rest
        assert self.do(trials.container_gone, a.admitted.trial_id, now_ms=self.tick()) is a.container
        a.container = False

    def network_is_gone(self, a: Attempt, because: str = "seen_gone") -> None:
        if a.admitted.lease_id is None or a.state in LIVE:
            return
        arguments = {"because": because, "now_ms": self.tick()}
        if a.admitted.trial_id in self.model.leases and a.container and because == "seen_gone":
            self.refused(networks.release_lease, a.admitted.lease_id, **arguments)
            return
        released = self.do(networks.release_lease, a.admitted.lease_id, **arguments)
        assert released is (self.model.leases.pop(a.admitted.trial_id, None) is not None)

    def release_claim(self, a: Attempt) -> None:
        if a.claim and (a.state in LIVE or a.container):
            self.refused(trials.release_claim, a.admitted.trial_id, now_ms=self.tick())
        else:
            assert self.do(trials.release_claim, a.admitted.trial_id, now_ms=self.tick()) is a.claim
            a.claim = False

    @rule(nth=st.integers(0, 7), what=st.sampled_from(["park", "retry", "unpark_all", "submit_again"]))
    def on_cells(self, nth: int, what: str) -> None:
        getattr(self, what)(self.cells[nth])

    def park(self, cell_id: int) -> None:
        done = self.do(admission.park_cell, cell_id, code="by_hand", detail="d", author="ana", now_ms=self.tick())
        assert done is (cell_id not in self.model.parked)
        self.model.parked.setdefault(cell_id, "by_hand")

    def retry(self, cell_id: int) -> None:
        state = self.model.state(cell_id)
        kwargs = {"cell_id": cell_id, "author": "ana", "reason": "r", "now_ms": self.tick()}
        if state in ("done", "review"):
            self.refused(operator.retry, **kwargs)
            return
        result = self.do(operator.retry, **kwargs)
        assert isinstance(result, operator.RetryResult)
        assert result.outcome == ("unparked" if state == "parked" else state)
        if state == "parked":
            self._opened_by_person(cell_id)

    def unpark_all(self, _cell_id: int) -> None:
        ended = self.do(operator.unpark, campaign_id=self.campaign_id, author="ana", reason="r", now_ms=self.tick())
        assert ended == len(self.model.parked)
        for cell_id in list(self.model.parked):
            self._opened_by_person(cell_id)

    def _opened_by_person(self, cell_id: int) -> None:
        """Attempts voided so far use up no passes any more; one that is voided later does, though it was admitted before."""
        del self.model.parked[cell_id]
        for each in self.model.of(cell_id):
            if each.state == "voided":
                each.counts = False

    def submit_again(self, _cell_id: int) -> None:
        again = submission(tasks=[task("zstd"), task("rust", network=False)], replicates=2)
        result = self.do(campaigns.submit, again, now_ms=self.tick())
        assert isinstance(result, campaigns.SubmitResult)
        assert (result.added_cells, result.parked, result.unparked) == (0, 0, 0)

    # ── what always holds ──

    @invariant()
    def cells_are_what_the_model_says(self) -> None:
        if not hasattr(self, "c"):
            return
        seen = dict(self.c.execute("SELECT cell_id, state FROM cell_state").fetchall())
        assert seen == {cell_id: self.model.state(cell_id) for cell_id in self.cells}
        counts = cells_by_arm(self.c, self.campaign_id, standing_by_arm(self.c, self.campaign_id))
        by_arm: dict[int, dict[str, int]] = {}
        for arm_id, state, n in self.c.execute("SELECT arm_id, state, count(*) FROM cell_state GROUP BY arm_id, state").fetchall():
            by_arm.setdefault(arm_id, {})[state] = n
        assert {arm: {s: n for s, n in states.items() if n} for arm, states in counts.items()} == by_arm
        snapshot = admission.snapshot(self.c, self.campaign_id, engine=ENGINE, limit=2)
        assert snapshot.open_total == sum(1 for state in seen.values() if state == "open")
        assert snapshot.live_leases == len(self.model.leases) <= CAP
        assert len(snapshot.holdings) == sum(each.claim for each in self.model.attempts)

    @invariant()
    def status_counts_what_the_view_counts(self) -> None:
        if not hasattr(self, "c"):
            return
        view = {row["arm"]: row for row in self.c.execute("SELECT * FROM v_arm").fetchall()}
        for counts in status.counts_by_arm(self.c, self.campaign_id):
            row = view[counts.arm]
            for name in ("done", "open", "claimed", "parked", "review", "voids", "reward", "partial", "budget_ended"):
                assert getattr(counts, name) == row[name], name

    @invariant()
    def ledger_is_consistent_as_a_whole(self) -> None:
        if hasattr(self, "c"):
            assert check(self.c) == []
            live = {row[0] for row in self.c.execute("SELECT trial_id FROM network_lease WHERE released_at_ms IS NULL").fetchall()}
            assert live == set(self.model.leases)


MUST_HAPPEN = {
    "did admit",
    "did bring_environment_up",
    "did reattached",
    "did verify_again",
    "did scored",
    "did doubted",
    "did decide_review",
    "did daemon_void",
    "did void_trials",
    "did unvoid",
    "did release_lease",
    "did release_claim",
    "did retry",
    "did unpark",
    "claim_only_open_cell",
    "claim_one_live_per_cell",
    "claim_released_only_after_trial",
    "claim_released_only_after_container",
    "network_lease_within_cap",
    "network_lease_one_live_per_subnet",
    "network_lease_outlives_container",
    "container_needs_live_trial",
    "verify_again_only_once",
    "score_only_while_graded",
    "Refused",
}
"""What the walk must have met, or it proves nothing."""


def test_ledger_keeps_its_promises_whatever_the_order() -> None:
    REACHED.clear()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        LedgerMachine,
        settings=settings(
            max_examples=100,
            stateful_step_count=60,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            database=None,
        ),
    )
    assert MUST_HAPPEN - REACHED.keys() == set(), REACHED


def test_the_model_is_not_blind() -> None:
    """The machine's invariant catches a planted fault: a claim released behind the model's back."""
    machine = LedgerMachine()
    machine.start()
    admitted = help.bring_to(machine.c, cell(machine.c), "voided")
    machine.model.attempts.append(Attempt(admitted, cell(machine.c), 0, state="voided", by_daemon=True, counts=True))
    machine.model.leases[admitted.trial_id] = 0
    machine.cells_are_what_the_model_says()
    trials.release_claim(machine.c, admitted.trial_id, now_ms=T0)
    try:
        machine.cells_are_what_the_model_says()
    except AssertionError:
        pass
    else:
        raise RuntimeError("the invariant saw nothing")
    finally:
        machine.teardown()
