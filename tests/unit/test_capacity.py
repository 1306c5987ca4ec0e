"""What limits, and what one more of each thing gives: always what the scheduler's own plan would do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.cli.capacity import render
from marathond.cli.output import Screen
from marathond.core.breaker import Trying
from marathond.core.capacity import OneMore, outlook
from marathond.core.money import NUSD, Purse
from marathond.core.plan import Holding, Host, Limits, OpenCell, Snapshot, Stop, plan
from marathond.service.doctor.scratch import Scratch
from marathond.service.exits import CallFailed
from marathond.service.knobs import KNOBS
from marathond.service.picture.capacity import Capacity, gather_capacity, limits_from

LIMITS = Limits(concurrency=4, reserve_memory_mb=512)
HOST = Host(ncpu=16, memory_mb=32_768, networks_free=60, networks_capacity=64)


def cells(count: int, *, cpus: float | None = 1.0, memory_mb: int | None = 1024, network: bool = True) -> tuple[OpenCell, ...]:
    return tuple(OpenCell(number, 1, cpus, memory_mb, network, 100 + number // 2) for number in range(count))


def snapshot(open_cells: tuple[OpenCell, ...], held: int = 0, **over: object) -> Snapshot:
    made = Snapshot(open_cells, len(open_cells), (Holding(1.0, 1024),) * held, held)
    return replace(made, **over)


def more(seen: Snapshot, limits: Limits = LIMITS, host: Host = HOST, ready: frozenset[int] = frozenset({1})) -> dict[str, OneMore]:
    return {one.what: one for one in outlook(seen, limits, host, ready_tasks=ready, now_ms=0).more}


def gives(found: dict[str, OneMore]) -> dict[str, int | None]:
    return {what: one.starts for what, one in found.items() if one.starts != 0}


def test_only_what_limits_gives_anything() -> None:
    full = snapshot(cells(9), held=4)
    assert gives(more(full)) == {"a slot": 1}
    assert more(full)["a slot"].then == "8 CONCURRENCY 5/5" and more(full)["a core"].then == "9 CONCURRENCY 4/4"
    many = Limits(concurrency=99)
    assert gives(more(snapshot(cells(9), held=16), many)) == {"a core": 1}
    assert gives(more(snapshot(cells(9, cpus=0.1), held=4), many, replace(HOST, memory_mb=4_200))) == {"a GiB of memory": 1}
    assert gives(more(snapshot(cells(9), held=4), many, replace(HOST, networks_free=0))) == {"a network": 1}
    assert gives(more(snapshot(cells(2), held=1))) == {}  # all begin anyhow


def test_where_two_things_limit_one_more_of_either_gives_nothing_and_the_other_is_named() -> None:
    found = more(snapshot(cells(9), held=16), replace(LIMITS, concurrency=16))
    assert gives(found) == {}
    assert found["a slot"].then == "9 CPU 16/16" and found["a core"].then == "9 CONCURRENCY 16/16"


def test_what_closes_admission_is_asked_without() -> None:
    stop = Stop("pause", "lunch", None)
    seen = snapshot(cells(9), held=1, stops=(stop,))
    assert gives(more(seen)) == {"without the pause": 3}
    both = snapshot(cells(9), held=1, stops=(stop, Stop("stop_loss", "a refused key", None)))
    assert gives(more(both)) == {} and {"without the pause", "without the stop-loss"} <= set(more(both))
    assert more(both)["without the pause"].then.startswith("9 STOP_LOSS")
    probing = Stop("breaker", "5 x engine_failed", 0, Trying(1, half_open=True))
    assert more(snapshot(cells(9), stops=(probing,)))["without the breaker"].starts == 3  # four instead of the one that is tried
    down = replace(HOST, engine_down="no answer", disk_low="/: 1 GB")
    assert more(snapshot(cells(9)), host=down)["room on the disk"].then == "9 ENGINE (no answer)"
    assert gives(more(snapshot(cells(9)), host=replace(HOST, gateway_away="gone"))) == {"a gateway that is there": 4}
    assert gives(more(snapshot(cells(9)), host=replace(HOST, verifying_alone="t0001"))) == {"no verifier that runs alone": 4}


def test_money_for_one_block_more() -> None:
    purse = Purse(10 * NUSD, 6 * NUSD, 2 * NUSD, {100: 3 * NUSD, 101: 4 * NUSD})
    found = more(snapshot(cells(4), purse=purse))
    assert gives(found) == {"money for a block ($3.00)": 2} and "MONEY" in found["money for a block ($3.00)"].then
    one_fits = replace(purse, cap_nusd=12 * NUSD)
    assert gives(more(snapshot(cells(4), purse=one_fits))) == {"money for a block ($3.00)": 2}
    unknown = more(snapshot(cells(4), purse=replace(purse, unknown="no price for x")))["money for a block"]
    assert (unknown.starts, unknown.then) == (None, "no price for x")
    nothing_to_go_by = more(snapshot(cells(4), purse=replace(purse, blocks={100: None, 101: None})))["money for a block"]
    assert nothing_to_go_by.starts is None


def test_what_is_unknown_stays_unknown() -> None:
    blind = more(snapshot(cells(3)), host=Host(None, None, None, None))
    assert [blind[what].starts for what in ("a core", "a GiB of memory", "a network")] == [None, None, None]
    assert outlook(snapshot(cells(3)), LIMITS, Host(None, None, None, None), ready_tasks=(), now_ms=0).used.cpus_of is None


def test_images_that_are_being_built() -> None:
    assert gives(more(snapshot(cells(3)), ready=frozenset())) == {"every image": 3}


HELD = st.lists(st.builds(Holding, st.none() | st.floats(0, 8), st.none() | st.integers(1, 9000)), max_size=12).map(tuple)
OPEN = st.lists(
    st.builds(
        OpenCell, st.integers(0, 99), st.integers(1, 3), st.none() | st.floats(0.1, 8), st.none() | st.integers(1, 9000), st.booleans()
    ),
    max_size=12,
    unique_by=lambda cell: cell.cell_id,
).map(tuple)
FREE = st.integers(0, 12)


@settings(max_examples=100)
@given(OPEN, HELD, st.integers(1, 14), st.integers(1, 32), st.integers(256, 65_536), FREE, st.sets(st.integers(1, 3)))
def test_every_answer_is_the_plans(
    open_cells: tuple[OpenCell, ...], held: tuple[Holding, ...], slots: int, ncpu: int, memory: int, free: int, ready: set[int]
) -> None:
    seen = Snapshot(open_cells, len(open_cells), held, len(held))
    limits, host = Limits(concurrency=slots), Host(ncpu, memory, free, free + len(held))
    found = outlook(seen, limits, host, ready_tasks=ready, now_ms=0)
    now = plan(seen, limits, host, ready_tasks=ready, now_ms=0)
    assert found.now == now
    answers = {one.what: one for one in found.more}
    for what, then in (
        ("a slot", plan(seen, replace(limits, concurrency=slots + 1), host, ready_tasks=ready, now_ms=0)),
        ("a core", plan(seen, limits, replace(host, ncpu=ncpu + 1), ready_tasks=ready, now_ms=0)),
        ("a GiB of memory", plan(seen, limits, replace(host, memory_mb=memory + 1024), ready_tasks=ready, now_ms=0)),
    ):
        assert answers[what].starts == len(then.admissions) - len(now.admissions) >= 0
    limiting = {waiting.code for waiting in now.waiting}
    gains = {what for what, one in answers.items() if one.starts}
    by_code = {"a slot": "CONCURRENCY", "a core": "CPU", "a GiB of memory": "MEM", "a network": "NETPOOL", "every image": "IMAGE"}
    assert {by_code[what] for what in gains} <= limiting


# ── from a ledger ──


@pytest.fixture
def scratch() -> Iterator[Scratch]:
    with Scratch() as made:
        for number in range(6):
            made.trial(agent_ms=(10 + number) * 60_000)
        made.observe("limits", {key: knob.default for key, knob in KNOBS.items()} | {"admission.concurrency": 2})
        made.observe("engine", {"ok": True, "detail": "", "ncpu": 16, "memory_mb": 65_536, "ready_tasks": list(range(1, 50))})
        for _ in range(2):
            made.trial(state="running", created_at_ms=made.now_ms - 60_000)
        yield made


def look(scratch: Scratch, campaign: str | None = None) -> Capacity:
    c = scratch.reader()
    try:
        return gather_capacity(c, campaign, scratch.control_socket, scratch.now_ms, scratch.gateway)
    finally:
        c.close()


def shown(found: Capacity) -> str:
    return "\n".join(render(found, Screen()))


def test_a_full_campaign(scratch: Scratch) -> None:
    found = look(scratch)
    assert found.unknown == [] and found.starts == 0 and found.used is not None
    assert (found.used.slots, found.used.slots_of, found.used.networks, found.used.networks_of) == (2, 2, 2, 64)
    assert found.waiting is not None and [(each.code, each.count) for each in found.waiting] == [("CONCURRENCY", found.cells)]
    slot = next(each for each in found.more if each.what == "a slot")
    assert slot.starts == 1 and slot.eta_ms is not None and found.eta.ms is not None and slot.eta_ms < found.eta.ms
    assert {each.what: each.starts for each in found.more if each.what != "a slot"} == {"a core": 0, "a GiB of memory": 0, "a network": 0}
    text = shown(found)
    assert "none can start now; done in " in text and "slots 2/2   CPU " in text and f"{found.cells} wait: CONCURRENCY 2/2" in text


def test_e04_what_the_daemon_has_not_said_is_unknown(scratch: Scratch) -> None:
    scratch.observe("engine", {"ok": True, "detail": "", "ncpu": 16, "memory_mb": 65_536}, ago_ms=61_000)
    found = look(scratch)
    assert "engine" in found.unknown and found.used is not None and found.used.cpus_of is None
    assert {each.what: each.starts for each in found.more}["a core"] is None
    assert "unknown: engine" in shown(found)
    scratch.observe("limits", {})
    blind = look(scratch)
    assert blind.more == [] and blind.waiting is None and "knobs" in blind.unknown
    scratch.observe("engine", {"ok": True, "detail": "", "ncpu": 16, "memory_mb": 65_536})
    scratch.observe("limits", {key: knob.default for key, knob in KNOBS.items()})
    assert look(scratch).unknown == ["which images are built (taken for built)"]


def test_e04_a_list_of_images_that_is_older_than_the_daemons_newest_look_holds_nothing_back(scratch: Scratch) -> None:
    """The list comes with looks at the engine, ten seconds apart; the first one is from before any image was asked for."""
    host = {"ok": True, "detail": "", "ncpu": 2, "memory_mb": 65_536}
    scratch.observe("limits", {key: knob.default for key, knob in KNOBS.items()} | {"admission.concurrency": 9})
    scratch.observe("engine", {**host, "ready_tasks": []}, ago_ms=8_000)
    cells_open = look(scratch).cells
    scratch.observe("waiting", [{"code": "CPU", "count": cells_open, "text": "CPU 2/2"}], ago_ms=1_000)
    found = look(scratch)
    assert found.waiting is not None and "IMAGE" not in {each.code for each in found.waiting}
    assert found.unknown == ["which images are built (taken for built)"] and "every image" not in {each.what for each in found.more}
    # Both words agree: images are being built, and nothing is unknown.
    scratch.observe("waiting", [{"code": "IMAGE", "count": cells_open, "text": "IMAGE (being built)"}], ago_ms=1_000)
    found = look(scratch)
    assert found.unknown == [] and found.waiting is not None and [each.code for each in found.waiting] == ["IMAGE"]
    # The list is the newer word: an image that is gone again.
    scratch.observe("waiting", [], ago_ms=9_000)
    assert [each.code for each in look(scratch).waiting or []] == ["IMAGE"] and look(scratch).unknown == []


def test_a_task_that_was_admitted_since_the_list_has_its_image(scratch: Scratch) -> None:
    scratch.observe("limits", {key: knob.default for key, knob in KNOBS.items()} | {"admission.concurrency": 9})
    scratch.observe("engine", {"ok": True, "detail": "", "ncpu": 64, "memory_mb": 65_536, "ready_tasks": []}, ago_ms=8_000)
    scratch.observe("waiting", [{"code": "IMAGE", "count": 999, "text": "IMAGE (being built)"}], ago_ms=1_000)
    before = look(scratch)
    assert before.starts == 0
    scratch.trial(state="running", created_at_ms=scratch.now_ms - 2_000)
    assert look(scratch).starts != 0 and look(scratch).unknown == []


def test_what_only_the_daemon_sees_is_taken_from_its_word(scratch: Scratch) -> None:
    scratch.observe("waiting", [{"code": "GATEWAY", "count": 9, "text": "GATEWAY (no sign of life)"}])
    found = look(scratch)
    assert found.waiting is not None and [each.text for each in found.waiting] == ["GATEWAY (no sign of life)"]
    assert "a gateway that is there" in {each.what for each in found.more}


def test_a_disk_below_the_floor(scratch: Scratch) -> None:
    scratch.observe("disk", [{"path": "/srv", "free_bytes": 1 << 30, "total_bytes": 100 << 30}])
    found = look(scratch)
    assert found.waiting is not None and found.waiting[0].text == "DISK /srv: 1024 MB free (1.0 %)"


def test_e04_what_only_the_daemon_could_not_see_keeps_everything_waiting(scratch: Scratch) -> None:
    """A file system out of sight is in no row; routes that cannot be read, a range without a free subnet, stand nowhere else."""
    scratch.observe("limits", {key: knob.default for key, knob in KNOBS.items()} | {"admission.concurrency": 9})
    assert look(scratch).starts == 7
    low = "/srv/docker: unknown (No such device)"
    scratch.observe("waiting", [{"code": "DISK", "count": 9, "text": f"DISK {low}"}])
    found = look(scratch)
    assert found.waiting is not None and [each.text for each in found.waiting] == [f"DISK {low}"]
    assert (found.starts, {each.what for each in found.more if each.starts}) == (0, {"room on the disk"})
    # Of one that is seen its own numbers count: the daemon's word is some seconds older.
    scratch.observe("waiting", [{"code": "DISK", "count": 9, "text": "DISK /srv: 1024 MB free (1.0 %)"}])
    scratch.observe("disk", [{"path": "/srv", "free_bytes": 90 << 30, "total_bytes": 100 << 30}])
    assert look(scratch).starts == 7
    scratch.observe("waiting", [{"code": "NETPOOL", "count": 9, "text": "NETPOOL unknown"}])
    found = look(scratch)
    assert found.starts == 0 and {each.what: each.starts for each in found.more}["a network"] is None
    scratch.observe("waiting", [{"code": "NETPOOL", "count": 9, "text": "NETPOOL (no subnet free)"}])
    found = look(scratch)
    assert found.starts == 0 and {each.what: each.starts for each in found.more}["a network"] == 1


def test_e02_a_campaign_that_the_daemon_does_not_run_has_no_end_and_no_capacity(scratch: Scratch) -> None:
    scratch.observe("campaign", scratch_campaign(scratch))
    assert look(scratch).eta.ms is not None and look(scratch).unknown == []
    scratch.submit("next", 1, now_ms=scratch.now_ms)
    scratch.observe("campaign", "next")
    old = look(scratch, scratch_campaign(scratch))
    assert old.eta.ms is None and old.eta.basis == "marathond runs campaign next"
    assert (old.starts, old.waiting, old.more) == (None, None, []) and "marathond runs campaign next" in shown(old)
    assert look(scratch).campaign == "next" and look(scratch).waiting is not None


def scratch_campaign(scratch: Scratch) -> str:
    return str(scratch.c.execute("SELECT name FROM campaign ORDER BY campaign_id LIMIT 1").fetchone()[0])


def test_a_daemon_that_is_down_and_a_campaign_that_is_not_there(scratch: Scratch) -> None:
    with pytest.raises(CallFailed):
        look(scratch, "nobody")
    scratch.begin_run(now_ms=scratch.now_ms, pid=1 << 30)
    found = look(scratch)
    assert found.alive is False and found.waiting is None and found.more == []
    assert "marathond is not running" in shown(found)


def test_where_nothing_is_open_nothing_limits(scratch: Scratch) -> None:
    scratch.submit("small", 1, now_ms=scratch.now_ms)
    whole = look(scratch, "small")
    assert whole.starts == 0 and "as things are" not in shown(whole)  # nothing has ended in it yet
    nothing = shown(replace(whole, cells=0))
    assert "no cell is open: nothing limits" in nothing and "one more" not in nothing


def test_the_limits_are_the_knobs_of_their_names() -> None:
    values = {key: knob.default for key, knob in KNOBS.items()}
    limits = limits_from(values)
    assert limits.concurrency == values["admission.concurrency"] and limits.reserve_memory_mb == values["admission.reserve_memory_mb"]
