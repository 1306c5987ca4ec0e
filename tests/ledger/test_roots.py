"""The clock of every root that is written to is compared with ours, and only a person draws conclusions (fault e05)."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.ledgers import T0, fill, memory_ledger

from marathond.ledger.verbs import findings, settings
from marathond.service import roots


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made)
    yield made
    made.close()


def shifted_by(offset_s: int) -> Callable[[Path], roots.Times]:
    def stat(path: Path) -> roots.Times:
        return SimpleNamespace(st_mtime_ns=path.stat().st_mtime_ns + offset_s * 1_000_000_000)

    return stat


@pytest.mark.parametrize(("offset_s", "side"), [(-120, "120.0 s behind"), (120, "120.0 s ahead of")])
def test_e05_a_root_whose_clock_is_off_is_recorded_and_named(c: sqlite3.Connection, tmp_path: Path, offset_s: int, side: str) -> None:
    other = tmp_path / "out"
    other.mkdir()
    frozen_ns = time.time_ns()  # our own clock stands still, so that the offset is the shift and nothing else

    def stat(path: Path) -> roots.Times:
        return SimpleNamespace(st_mtime_ns=frozen_ns + (offset_s * 1_000_000_000 if path.parent == other else 0))

    offsets = {str(root): roots.offset_ms(root, stat=stat, wall_ns=lambda: frozen_ns) for root in (tmp_path, other)}
    assert offsets == {str(tmp_path): 0, str(other): offset_s * 1000}
    roots.record(c, offsets, now_ms=T0)
    assert settings.observations(c)["clock_offset"].value == offsets
    (row,) = findings.open_findings(c)
    assert (row.code, row.severity, row.subject) == ("clock_offset", "warning", str(other))
    assert str(other) in row.detail and side in row.detail
    roots.record(c, {str(tmp_path): 0, str(other): None}, now_ms=T0 + 1)  # unknown: it still stands
    assert [row.subject for row in findings.open_findings(c)] == [str(other)]
    roots.record(c, {str(tmp_path): 0, str(other): 4999}, now_ms=T0 + 2)
    assert findings.open_findings(c) == []


def test_e05_a_root_that_is_used_no_more_has_no_finding(c: sqlite3.Connection) -> None:
    roots.record(c, {"/old": -60_000}, now_ms=T0)
    roots.record(c, {"/new": 1}, now_ms=T0 + 1)
    assert findings.open_findings(c) == []


def test_e05_a_real_root_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    assert abs(roots.offset_ms(tmp_path)) <= roots.OFFSET_MAX_MS
    assert roots.offset_ms(tmp_path, stat=shifted_by(-3600)) < -3_500_000
    (tmp_path / f".marathond-clock-{os.getpid()}").write_text("left by a life that was killed")
    roots.offset_ms(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        roots.offset_ms(tmp_path / "none")
