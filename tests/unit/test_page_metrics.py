"""/metrics: every name is documented and every documented name can be seen; what is unknown has no sample; labels do not grow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from marathond.service.doctor.scratch import Scratch
from marathond.service.page import health
from marathond.service.page.metrics import exposition, rank
from marathond.service.page.place import Place
from tests.support.page_house import HOUR_MS, gateway, half_done, place_of, trouble

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(marathond_\w+)` \| (\w+) \|([^|]*)\| (.+) \|$", re.MULTILINE)
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(place: Place) -> Samples:
    """By name and labels, as Prometheus reads them."""
    found: Samples = {}
    for family in text_string_to_metric_families(exposition(place).decode()):
        assert family.documentation and family.type in ("gauge", "counter")
        for each in family.samples:
            key = (each.name, frozenset(each.labels.items()))
            assert key not in found, key
            found[key] = each.value
    return found


def value(found: Samples, name: str, **labels: str) -> float | None:
    return found.get((f"marathond_{name}", frozenset(labels.items())))


WELL: list[str] = []
"""The answer before the trouble, in which there is an estimate of the end."""


@pytest.fixture(scope="module")
def house() -> Iterator[Scratch]:
    with half_done() as scratch:
        caps = {"models": ["gpt-5.5"], "campaign_cap_nusd": 40 * 10**9, "trial_cap_nusd": 10**9, "expected_trial_nusd": None}
        scratch.observe("money", caps)
        scratch.commit()
        WELL.append(exposition(place_of(scratch)).decode())
        trouble(scratch)
        yield scratch


def test_names_types_and_labels_are_those_of_the_documentation(house: Scratch) -> None:
    rows = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels, _ in ROW.findall(DOCS.read_text())}
    seen: dict[str, tuple[str, set[str]]] = {}
    for family in (*text_string_to_metric_families(WELL[0]), *text_string_to_metric_families(exposition(place_of(house)).decode())):
        for each in family.samples:
            seen[each.name] = (family.type, set(each.labels))
    assert seen == rows


def test_figures_are_the_ledgers(house: Scratch) -> None:
    found, of = samples(place_of(house)), {"campaign": "scratch"}
    done = house.c.execute("SELECT arm, done FROM v_arm").fetchall()
    assert {row[0]: value(found, "cells", **of, arm=row[0], state="done") for row in done} == {row[0]: row[1] for row in done}
    assert (
        value(found, "tokens_total", **of, arm="goal", kind="input")
        == house.c.execute("SELECT sum(input_tokens) FROM v_usage WHERE arm = 'goal' AND account = 'agent'").fetchone()[0]
    )
    for arm, code, count in house.c.execute("SELECT arm, code, count(*) FROM v_void WHERE standing GROUP BY 1, 2").fetchall():
        assert value(found, "voids", **of, arm=arm, code=code) == count
    assert value(found, "daemon_up") == value(found, "ledger_readable") == value(found, "gateway_up") == 1
    assert (
        value(found, "engine_up") == 0 and value(found, "health", health="degraded") == 1 and value(found, "health", health="healthy") == 0
    )
    assert value(found, "stops", kind="stop_loss") == 1
    assert value(found, "findings_open", code="lease_leaked", severity="error", acknowledged="no") == 1
    assert value(found, "findings_open", code="clock_offset", severity="warning", acknowledged="yes") == 1
    assert value(found, "loop_lag_seconds", quantile="p99") == pytest.approx(0.0032)
    assert value(found, "gateway_minute_tokens_limit", route="main") == 600_000 and value(found, "cap_dollars", **of) == 40
    assert value(found, "wal_bytes") == house.path.with_name("ledger.db-wal").stat().st_size


def test_e04_what_is_unknown_has_no_sample() -> None:
    with Scratch(replicates=1) as scratch:
        scratch.all_is_well(ago_ms=HOUR_MS)  # alive by its pid, and silent for an hour
        scratch.observe("loop", {"p50_ms": 1, "p99_ms": 2, "max_ms": 3}, ago_ms=HOUR_MS)
        gateway(scratch, ago_ms=HOUR_MS)
        scratch.commit()
        found = samples(place_of(scratch))
    names = {name.removeprefix("marathond_") for name, _ in found}
    unseen = {
        "loop_lag_seconds",
        "engine_up",
        "disk_free_bytes",
        "pool_foreign",
        "waiting_cells",
        "gateway_streams",
        "mean_reward",
        "eta_seconds",
    }
    assert names & (unseen | {"cap_dollars", "gateway_first_byte_seconds", "tokens_total"}) == set()
    assert value(found, "gateway_up") == 0 and value(found, "health", health="unknown") == 1 and value(found, "daemon_up") == 1


def test_a_ledger_that_is_not_there_is_said(tmp_path: Path) -> None:
    found = samples(Place(tmp_path / "ledger.db", tmp_path, tmp_path / "control.sock"))
    assert {name for name, _ in found} == {"marathond_build_info", "marathond_ledger_readable"} and value(found, "ledger_readable") == 0


def test_labels_do_not_grow_with_the_campaign() -> None:
    counts = []
    for replicates in (1, 3):
        with Scratch(replicates=replicates) as scratch:
            scratch.clean(replicates=range(1, replicates + 1))
            scratch.commit()
            counts.append(len(samples(place_of(scratch))))
    assert abs(counts[1] - counts[0]) <= 4, "only voids may differ, by arm and code"


@pytest.mark.parametrize(("share", "at"), [(0.5, 50), (0.9, 90), (0.99, 99)])
def test_quantiles_are_by_nearest_rank(share: float, at: int) -> None:
    assert rank(range(1, 101), share) == at and rank([7], share) == 7


def test_live_and_ready_say_why_not(tmp_path: Path) -> None:
    import time

    with Scratch(replicates=1) as scratch:
        scratch.commit()
        place = place_of(scratch)
        assert health.live(place).good and health.ready(place).words.startswith("ready: run 1 since ")
        inside = replace(place, beat_s=lambda: None)
        assert health.live(inside) == health.Health(False, "the daemon's event loop has not gone round yet")
        inside = replace(place, beat_s=lambda: time.monotonic() - 90)
        assert not health.live(inside).good and "has not gone round for 1m30s" in health.live(inside).words
        assert health.live(replace(place, beat_s=time.monotonic)).good
        scratch.observe("engine", {"ok": False, "detail": "connection refused"})
        scratch.commit()
        assert health.ready(place).words == "the engine does not answer: connection refused"
        scratch.observe("engine", {"ok": True}, ago_ms=HOUR_MS)
        scratch.commit()
        assert health.ready(place).words == "unknown: the engine was not seen lately"
        scratch.c.execute("UPDATE run SET ready_at_ms = NULL")
        scratch.commit()
        assert "has not said READY yet" in health.ready(place).words
        scratch.c.execute("UPDATE run SET stopped_at_ms = seen_at_ms, stop_reason = 'SIGTERM'")
        scratch.commit()
        assert health.live(place).words == health.ready(place).words == "no daemon runs: stopped: SIGTERM"
    gone = Place(tmp_path / "no.db", tmp_path, tmp_path / "c")
    assert health.live(gone).words.startswith("unknown: ") and not health.ready(gone).good
