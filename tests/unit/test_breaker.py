"""Which voids close admission, which are one task's own, and what the trial that is then tried shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.breaker import LONGEST, OF_ENGINE, OWN_ENDS, REASON_MAX, Probe, Trying, Verdict, detail, pause_ms, verdict, worst
from marathond.core.names import TrialState
from marathond.core.plan import Host, Limits, OpenCell, Plan, Snapshot, Stop, plan


def test_f12_an_engine_that_fails_again_and_again_counts_in_full() -> None:
    assert worst([("engine_failed", 1)] * 5, tasks=9) == ("engine_failed", 5)
    assert worst([("container_failed", task) for task in range(5)], tasks=9) == ("container_failed", 5)
    assert worst([], tasks=9) == ("", 0)


def test_f06_one_bad_task_never_reaches_the_breaker_alone() -> None:
    for code in ("healthcheck_failed", "container_failed", "image_gone", "a code of tomorrow"):
        assert worst([(code, 1)] * 9, tasks=3) == (code, 2)
    assert worst([("install_check_failed", task) for task in range(5)] * 3, tasks=5) == ("install_check_failed", 10)


def test_a_campaign_of_one_task_is_judged_by_it() -> None:
    assert worst([("container_failed", 1)] * 6, tasks=1) == ("container_failed", 6)


def test_codes_are_not_added_up() -> None:
    assert worst([("container_failed", 1), ("engine_failed", 1), ("engine_failed", 2)], tasks=5) == ("engine_failed", 2)


def test_f12_the_words_carry_an_example_that_is_bounded_and_steers_nothing() -> None:
    why = "exec: /opt/arms/nothere: no such file"
    assert detail("agent_not_started", 5, 600.0, (12, why)) == f"5 x agent_not_started within 600 s, e.g. t0012: {why}"
    assert detail("agent_not_started", 5, 600.0, None) == "5 x agent_not_started within 600 s"
    assert detail("agent_not_started", 5, 600.0, (12, "")) == "5 x agent_not_started within 600 s, e.g. t0012"
    long = detail("agent_not_started", 5, 600.0, (12, "\x1b[2Ja\nb " + "x" * 5_000))
    assert "t0012: a b xxx" in long and len(long) <= REASON_MAX + 60


def test_f12_pauses_grow_and_are_bounded() -> None:
    assert [pause_ms(300_000, failed) // 60_000 for failed in range(6)] == [5, 10, 20, 40, 40, 40]
    assert pause_ms(1, 10**9) == LONGEST


AT_A_GATE = Probe(TrialState.PREPARING, 1, "", by_daemon=False, agent_runs=False)


@pytest.mark.parametrize(
    ("probe", "shows"),
    [
        (AT_A_GATE, Verdict.NOT_YET),
        (replace(AT_A_GATE, state=TrialState.RESERVED), Verdict.NOT_YET),
        # The row comes before the start: an agent that cannot be started is one of the failures that close admission.
        (replace(AT_A_GATE, state=TrialState.RUNNING), Verdict.NOT_YET),
        (replace(AT_A_GATE, state=TrialState.RUNNING, agent_runs=True), Verdict.GOOD),
        *((replace(AT_A_GATE, state=state), Verdict.GOOD) for state in (TrialState.VERIFYING, TrialState.SCORED, TrialState.REVIEW)),
        *(
            (replace(AT_A_GATE, state=TrialState.VOIDED, void_code=code, by_daemon=True), Verdict.BAD)
            for code in (*sorted(OF_ENGINE), "healthcheck_failed")
        ),
        *((replace(AT_A_GATE, state=TrialState.VOIDED, void_code=code, by_daemon=True), Verdict.NOTHING) for code in sorted(OWN_ENDS)),
        (replace(AT_A_GATE, state=TrialState.VOIDED, void_code="container_lost", agent_runs=True), Verdict.NOTHING),
    ],
)
def test_f12_what_a_probe_shows(probe: Probe, shows: Verdict) -> None:
    assert verdict(probe) is shows


ROOMY = Host(ncpu=64, memory_mb=64_000, networks_free=64, networks_capacity=64)


def decide(trying: Trying | None, cells: int = 4, *more: Stop, host: Host = ROOMY) -> Plan:
    stops = (*more, Stop("breaker", "5 x container_failed", 200_000, trying))
    found = tuple(OpenCell(n, n, 1, 100, False) for n in range(cells))
    return plan(Snapshot(found, len(found), (), 0, stops), Limits(concurrency=9), host, ready_tasks=range(cells), now_ms=0)


def test_f12_half_open_admits_the_plans_next_cell_and_no_other() -> None:
    decided = decide(Trying(1, half_open=True))
    assert [cell.cell_id for cell in decided.admissions] == [0]
    assert [(each.count, each.text) for each in decided.waiting] == [(3, "BREAKER probe (5 x container_failed)")]


def test_f12_while_one_is_tried_all_others_wait_for_it_by_name() -> None:
    decided = decide(Trying(1, half_open=True, probe=123))
    assert decided.admissions == ()
    assert [(each.count, each.text) for each in decided.waiting] == [(4, "BREAKER probe t0123 (5 x container_failed)")]


@given(
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 9)),
    st.lists(st.integers(0, 9), max_size=6).map(tuple),
    st.integers(0, 9),
    st.booleans(),
)
def test_f12_never_more_than_one_at_a_time(half_open: bool, probe: int | None, tried: tuple[int, ...], cells: int, paused: bool) -> None:
    more = (Stop("pause", "lunch", None),) if paused else ()
    decided = decide(Trying(1, half_open, probe, len(tried), tried), cells, *more)
    may = half_open and probe is None and not paused and cells > 0
    assert len(decided.admissions) == may
    assert sum(each.count for each in decided.waiting) == cells - may
    fresh = [n for n in range(cells) if n not in tried]
    if may:
        assert decided.admissions[0].cell_id == (fresh[0] if fresh else 0)


def test_f12_what_else_closes_admission_holds_up_the_probe() -> None:
    for more, host, code in ((Stop("drain", "", None), ROOMY, "DRAINING"), (None, replace(ROOMY, engine_down="away"), "ENGINE")):
        decided = decide(Trying(1, half_open=True), 4, *((more,) if more else ()), host=host)
        assert decided.admissions == () and [each.code for each in decided.waiting] == [code]
