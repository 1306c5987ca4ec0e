"""The admission rule: what fits starts, in order; the rest says why it waits."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from marathond.core.plan import Holding, Host, Limits, OpenCell, Plan, Snapshot, Stop, plan


def cell(n: int, *, cpus: float | None = 1, mb: int | None = 100, net: bool = False) -> OpenCell:
    return OpenCell(n, n, cpus, mb, net)


ROOMY = Host(ncpu=64, memory_mb=64_000, networks_free=64, networks_capacity=64)


def decide(
    cells: list[OpenCell], *, slots: int = 4, host: Host = ROOMY, held: int = 0, stops: tuple[Stop, ...] = (), ready: set[int] | None = None
) -> Plan:
    snapshot = Snapshot(tuple(cells), len(cells), tuple(Holding(1, 100) for _ in range(held)), 0, stops)
    tasks = {c.task_id for c in cells} if ready is None else ready
    return plan(snapshot, Limits(concurrency=slots), host, ready_tasks=tasks, now_ms=0)


def ids(decided: Plan) -> list[int]:
    return [c.cell_id for c in decided.admissions]


def test_admits_in_order_up_to_the_slots() -> None:
    decided = decide([cell(n) for n in range(10)], slots=4, held=1)
    assert ids(decided) == [0, 1, 2]
    assert [(w.code, w.count, w.text) for w in decided.waiting] == [("CONCURRENCY", 7, "CONCURRENCY 4/4")]


def test_a_large_task_at_the_head_is_not_starved_by_small_ones() -> None:
    host = dataclasses.replace(ROOMY, ncpu=4)
    decided = decide([cell(0, cpus=4), cell(1, cpus=1)], host=host, held=1)
    assert ids(decided) == []
    assert [(w.code, w.count) for w in decided.waiting] == [("CPU", 2)]


def test_an_idle_host_admits_one_cell_whatever_its_size() -> None:
    assert ids(decide([cell(0, cpus=100, mb=10**9)], host=dataclasses.replace(ROOMY, ncpu=2))) == [0]


def test_memory_counts_with_its_reserve() -> None:
    snapshot = Snapshot((cell(0, mb=600), cell(1, mb=600)), 2, (), 0)
    limits = Limits(concurrency=9, reserve_memory_mb=500)
    decided = plan(snapshot, limits, dataclasses.replace(ROOMY, memory_mb=1500), ready_tasks={0, 1}, now_ms=0)
    assert ids(decided) == [0]
    assert decided.waiting[0].text == "MEM 600/1000 MB"


def test_b01_an_exhausted_pool_waits_and_lets_networkless_tasks_pass() -> None:
    host = dataclasses.replace(ROOMY, networks_free=1, networks_capacity=3)
    decided = decide([cell(0, net=True), cell(1, net=True), cell(2), cell(3, net=True)], host=host, slots=9)
    assert ids(decided) == [0, 2]
    assert [(w.code, w.count, w.text) for w in decided.waiting] == [("NETPOOL", 2, "NETPOOL 3/3")]


def test_what_is_unknown_admits_nothing_that_needs_it() -> None:
    assert ids(decide([cell(0)], host=dataclasses.replace(ROOMY, ncpu=None))) == []
    blind = dataclasses.replace(ROOMY, networks_free=None, networks_capacity=None)
    decided = decide([cell(0, net=True), cell(1)], host=blind)
    assert ids(decided) == [1]
    assert decided.waiting[0].text == "NETPOOL unknown"


def test_a_task_without_image_waits_alone() -> None:
    decided = decide([cell(0), cell(1)], ready={1})
    assert ids(decided) == [1]
    assert [(w.code, w.count) for w in decided.waiting] == [("IMAGE", 1)]


def test_stops_close_admission_for_everything_alike() -> None:
    decided = decide([cell(0), cell(1)], stops=(Stop("breaker", "5 x container_failed", 200_000),))
    assert ids(decided) == []
    assert decided.waiting[0].text == "BREAKER 4m (5 x container_failed)"
    assert decide([cell(0)], stops=(Stop("pause", "lunch", None),)).waiting[0].code == "PAUSED"


def test_b12_a_full_disk_stops_admission_and_names_the_file_system() -> None:
    decided = decide([cell(0)], host=dataclasses.replace(ROOMY, disk_low="/srv: 100 MB free (0.5 %)"))
    assert ids(decided) == []
    assert "/srv" in decided.waiting[0].text


def test_without_a_gateway_nothing_is_admitted_whatever_the_arm() -> None:
    decided = decide([cell(0), cell(1)], host=dataclasses.replace(ROOMY, gateway_away="no sign of life for 20 s"))
    assert ids(decided) == []
    assert [(each.code, each.count, each.text) for each in decided.waiting] == [("GATEWAY", 2, "GATEWAY (no sign of life for 20 s)")]


def test_b10_an_engine_that_does_not_answer_admits_nothing() -> None:
    decided = decide([cell(0)], host=dataclasses.replace(ROOMY, engine_down="no answer in 30 s (info)"))
    assert ids(decided) == []
    assert decided.waiting[0].code == "ENGINE"


@given(
    st.lists(st.tuples(st.floats(0.1, 4), st.integers(1, 500), st.booleans()), max_size=30),
    st.integers(0, 8),
    st.integers(0, 5),
    st.integers(0, 6),
)
def test_never_more_than_there_is_and_every_cell_is_accounted_for(
    shapes: list[tuple[float, int, bool]], slots: int, held: int, networks: int
) -> None:
    cells = [cell(n, cpus=c, mb=m, net=net) for n, (c, m, net) in enumerate(shapes)]
    host = Host(8, 2000, networks, 6)
    decided = decide(cells, slots=slots, host=host, held=held)
    assert len(decided.admissions) <= max(0, slots - held)
    assert sum(c.needs_network for c in decided.admissions) <= networks
    if len(decided.admissions) + held > 1:
        assert held * 1 + sum(c.cpus or 0 for c in decided.admissions) <= 8 + 1e-6
    assert len(decided.admissions) + sum(w.count for w in decided.waiting) == len(cells)
