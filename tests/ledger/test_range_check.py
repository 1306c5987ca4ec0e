"""What of the host lies across network.range is a finding with names, and is over when it is gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest
from support.ledgers import T0, fill, memory_ledger

from marathond.core.subnets import Occupied
from marathond.ledger.verbs import findings
from marathond.service.range_check import CODE, DETAIL_MAX, record, words

RANGE = "198.19.0.0/16"
VPN = Occupied("198.18.0.0/15", "route 198.18.0.0/15 dev tun0")


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made)
    yield made
    made.close()


def standing(c: sqlite3.Connection) -> list[tuple[str, str, str, str]]:
    return [(row.code, row.severity, row.subject, row.detail) for row in findings.open_findings(c)]


def test_a_conflict_opens_one_finding_and_its_end_closes_it(c: sqlite3.Connection) -> None:
    said = "meets route 198.18.0.0/15 dev tun0; subnets that overlap are passed over"
    record(c, RANGE, [VPN], now_ms=T0)
    record(c, RANGE, [VPN], now_ms=T0 + 1)
    assert standing(c) == [(CODE, "warning", RANGE, said)]
    record(c, RANGE, [], now_ms=T0 + 2)
    assert standing(c) == []


def test_another_range_takes_the_finding_of_the_first_with_it(c: sqlite3.Connection) -> None:
    record(c, RANGE, [VPN], now_ms=T0)
    record(c, "198.18.0.0/16", [VPN], now_ms=T0 + 1)
    assert [subject for _, _, subject, _ in standing(c)] == ["198.18.0.0/16"]


def test_a_thousand_routes_are_bounded_and_each_is_named_once() -> None:
    many = [Occupied(f"198.19.{n}.0/24", f"route {n} " + "x" * 200) for n in range(200)]
    assert len(words(many)) < DETAIL_MAX + 100
    assert " and 190 more" in words(many)
    assert words([VPN, VPN]).count("tun0") == 1
