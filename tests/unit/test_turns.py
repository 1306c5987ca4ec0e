"""Whose verifier may begin: the rule by examples, and by a small world that must always come to rest."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from marathond.core.turns import Alone, Busy, Turn, alone_of, decide, takes_turns

NO, VERIFIERS, EVERYTHING = Alone.NO, Alone.VERIFIERS, Alone.EVERYTHING


def test_ordinary_verifiers_run_beside_each_other_and_close_nothing() -> None:
    said = decide([Turn(1, NO, held=True), Turn(2, NO), Turn(3, NO)], Busy(preparing=2, building=1, agents=3))
    assert (said.granted, said.waits, said.closed) == ((2, 3), {}, "")


def test_a_lone_one_waits_for_other_verifiers_and_is_not_overtaken() -> None:
    said = decide([Turn(1, NO, held=True), Turn(2, VERIFIERS), Turn(3, NO), Turn(4, VERIFIERS)], Busy(agents=2))
    assert said.granted == () and said.closed == ""  # admission goes on: what may begin meanwhile ends before it, or is waited for
    assert said.waits == {
        2: "until 1 other verifier ended",
        3: "t0002 verifies alone before it",
        4: "t0002 verifies alone before it",
    }


def test_then_for_what_is_being_prepared_and_admission_stands_still() -> None:
    said = decide([Turn(2, VERIFIERS), Turn(3, NO)], Busy(preparing=1, building=1, agents=2))
    assert said.granted == () and said.closed == "t0002 will verify alone, until 1 preparation ended"
    said = decide([Turn(2, VERIFIERS), Turn(3, NO)], Busy(building=2, agents=2))
    assert said.granted == () and said.closed == "t0002 will verify alone, until 2 images ended"


def test_agents_go_on_beside_it_unless_it_wants_to_be_alone_with_everything() -> None:
    assert decide([Turn(2, VERIFIERS), Turn(3, NO)], Busy(agents=2)).granted == (2,)
    said = decide([Turn(2, EVERYTHING), Turn(3, NO), Turn(4, VERIFIERS)], Busy(agents=2))
    # Its agents end one after the other, and each of those verifies meanwhile; nothing new begins.
    assert said.granted == (3,) and said.closed == "t0002 will verify alone, until 2 agents ended"
    assert said.waits == {2: "until 2 agents ended", 4: "until 1 other verifier ended"}
    assert decide([Turn(2, EVERYTHING), Turn(3, NO)], Busy()).granted == (2,)


def test_while_it_runs_nobody_begins() -> None:
    said = decide([Turn(2, VERIFIERS, held=True), Turn(3, NO), Turn(4, EVERYTHING)], Busy(agents=1))
    assert said.granted == () and said.closed == "t0002 verifies alone"
    assert set(said.waits.values()) == {"t0002 verifies alone"}


def test_a_campaign_says_whose_verifier_is_alone() -> None:
    treatment = {"exclusive_verifier": {"tasks": ["zstd"], "from": "everything"}}
    assert (alone_of(treatment, "zstd"), alone_of(treatment, "rust"), alone_of({}, "zstd")) == (EVERYTHING, NO, NO)
    assert takes_turns(treatment) and not takes_turns({})


@dataclass
class Host:
    """Trials that are admitted, run an agent and verify; each step lets one thing happen that may."""

    alone: list[Alone]
    slots: int
    dice: random.Random
    state: dict[int, str] = field(default_factory=dict)
    queue: list[int] = field(default_factory=list)
    granted: list[int] = field(default_factory=list)
    overtaken: dict[int, int] = field(default_factory=dict)

    def turns(self) -> list[Turn]:
        return [Turn(n, self.alone[n], self.state[n] == "verifying") for n in self.queue]

    def busy(self) -> Busy:
        states = list(self.state.values())
        return Busy(states.count("preparing"), 0, states.count("running"))

    def step(self) -> bool:
        """One thing; False when nothing can happen any more."""
        said = decide(self.turns(), self.busy())
        live = [n for n, state in self.state.items() if state != "done"]
        may = [("begin", n) for n in said.granted]
        may += [("go on", n) for n in live if self.state[n] in ("preparing", "running", "verifying")]
        may += [("void", n) for n in live if self.dice.random() < 0.05]
        if len(self.state) < len(self.alone) and len(live) < self.slots and not said.closed:
            may.append(("admit", len(self.state)))
        if not may:
            return False
        what, n = self.dice.choice(may)
        if what == "admit":
            self.state[n] = "preparing"
        elif what == "begin":
            self._begin(n)
        elif what == "void" or self.state[n] == "verifying":
            self._done(n)
        else:
            self.state[n] = {"preparing": "running", "running": "waiting"}[self.state[n]]
            if self.state[n] == "waiting":
                self.queue.append(n)
        return True

    def _begin(self, n: int) -> None:
        beside = [m for m in self.queue if m != n and self.state[m] == "verifying"]
        busy = self.busy()
        if self.alone[n] is not NO:
            assert beside == [] and busy.preparing == 0, "alone means alone"
            assert self.alone[n] is VERIFIERS or busy.agents == 0
        assert all(self.alone[m] is NO for m in beside), "nothing begins beside a lone one"
        ready = decide(self.turns(), busy).granted
        for m in self.queue[: self.queue.index(n)]:
            if self.state[m] == "waiting" and m not in ready:
                self.overtaken[m] = self.overtaken.get(m, 0) + 1
        self.state[n] = "verifying"
        self.granted.append(n)

    def _done(self, n: int) -> None:
        self.state[n] = "done"
        if n in self.queue:
            self.queue.remove(n)


@given(
    st.lists(st.sampled_from([NO, NO, VERIFIERS, EVERYTHING]), min_size=1, max_size=25),
    st.integers(min_value=1, max_value=6),
    st.randoms(use_true_random=False),
)
def test_every_world_comes_to_rest_alone_means_alone_and_waiting_is_bounded(alone: list[Alone], slots: int, dice: random.Random) -> None:
    host = Host(alone, slots, dice)
    for _ in range(len(alone) * 20):
        if not host.step():
            break
    # No step is left: nobody waits for ever, and every trial was admitted and ended.
    assert not host.step() and set(host.state) == set(range(len(alone))) and set(host.state.values()) == {"done"}
    for n, times in host.overtaken.items():
        # Only what was there when it asked may pass one that waits for agents; one that waits for verifiers is not overtaken at all.
        assert host.alone[n] is EVERYTHING and times < slots


@given(
    st.lists(st.tuples(st.sampled_from(list(Alone)), st.booleans()), max_size=8), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)
)
def test_each_that_asked_is_granted_or_told_why_not(asked: list[tuple[Alone, bool]], preparing: int, building: int, agents: int) -> None:
    lone_held = [n for n, (alone, held) in enumerate(asked) if held and alone is not NO]
    queue = [Turn(n, alone, held and (not lone_held or n == lone_held[0])) for n, (alone, held) in enumerate(asked)]
    said = decide(queue, Busy(preparing, building, agents))
    waiting = {turn.trial_id for turn in queue if not turn.held}
    assert set(said.granted) | said.waits.keys() == waiting and not set(said.granted) & said.waits.keys()
    assert all(said.waits.values())
    lone = [turn for turn in queue if turn.alone is not NO and (turn.held or turn.trial_id in said.granted)]
    assert len(lone) <= 1 and (not lone or said.closed == f"t{lone[0].trial_id:04d} verifies alone")
