"""Runs of somebody else, tables and folders: each row and trial is taken whole or listed, and no number is made of nothing."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import ConfigError, Refused
from marathond.service.importing.run import Wanted, read
from marathond.service.importing.seen import END_MS, Reading, Seen
from marathond.service.importing.table import FIELDS, read_table
from tests.support.fuzzing import few, fuzz, refused_by, spoiled, torn
from tests.support.old_runs import STAMP, Trial, job_folder, passed, put, run_folder

TABLE = b"".join((Path(__file__).parents[1] / "data" / "swe-marathon-trials.csv").read_bytes().splitlines(keepends=True)[:9])
CELLS = (
    b"nan",
    b"1e400",
    b"-1",
    b".5",
    b"true",
    b'"',
    b"\0",
    b"2026-13-45 99:99 UTC",
    b"0001-01-01",
    b"9" * 400,
    b",",
    b"\r\n",
    b"\xff",
    b"=1+1",
)
RECEIPT = {"_unblock_count": 2, "turns": 5, "tokens": {"input": 1}, "wall_s": 1e400}


def checked(seen: Seen) -> None:
    """What the ledger will be given."""
    details = seen.details
    for count in (details.tokens, details.cost_nusd, details.turns, details.agent_ms):
        assert count is None or (type(count) is int and 0 <= count < 2**63)
    assert details.started_at_ms is None or 0 <= details.started_at_ms < END_MS
    assert (seen.score is None) <= (not seen.valid)
    assert all(text.encode() is not None and "\0" not in text for text in (seen.key, seen.task, seen.arm, seen.place, seen.why))
    if seen.score is not None:
        for share in (seen.score.reward, seen.score.partial, seen.score.test_rate):
            assert share is None or 0 <= share <= 1
        assert all(text.encode() is not None for part in seen.score.parts for text in part)


def read_rows(path: Path, data: bytes, mapping: tuple[str, ...] = ()) -> Any:
    path.write_bytes(data)
    return refused_by(lambda: read_table(path, mapping), Refused, ConfigError)


def test_a_table_is_read_row_by_row(tmp_path: Path) -> None:
    @fuzz
    @given(torn(TABLE, CELLS), st.sampled_from([(), ("partial=test_rate",), ("steps=",), ("nope=task",)]))
    def table(data: bytes, mapping: tuple[str, ...]) -> None:
        reading = read_rows(tmp_path / "t.csv", data, mapping)
        if isinstance(reading, Reading):
            assert len(reading.trials) + len(reading.listed) <= data.count(b"\n") + data.count(b"\r") + 1
            for seen in reading.trials:
                checked(seen)

    table()


def test_a_cell_of_any_kind_is_its_number_or_is_listed(tmp_path: Path) -> None:
    header = [
        "task",
        "arm",
        "trial",
        "reward",
        "partial",
        "tests_passed",
        "tests_total",
        "tokens",
        "cost_usd",
        "duration_s",
        "started_at",
        "turns",
    ]
    good = ["t", "a", "x", "1", "0.5", "3", "4", "100", "1.5", "60", "2026-05-02 09:19 UTC", "7"]
    words = (
        st.sampled_from([cell.decode("latin-1") for cell in CELLS]) | st.text(max_size=8) | st.floats().map(str) | st.integers().map(str)
    )

    @fuzz
    @given(st.lists(st.tuples(st.integers(0, len(header) - 1), words), max_size=3))
    def row(changes: list[tuple[int, str]]) -> None:
        cells = list(good)
        for at, word in changes:
            cells[at] = word
        text = io.StringIO()
        csv.writer(text).writerows([header, cells])
        reading = read_rows(tmp_path / "t.csv", text.getvalue().encode("utf-8", "replace"))
        if not isinstance(reading, Reading):
            return
        assert len(reading.trials) + len(reading.listed) == 1 or any(each.code == "no_csv" for each in reading.listed)
        for seen in reading.trials:
            checked(seen)
            untouched = dict(zip(header, good, strict=True)).items() - {(header[at], good[at]) for at, _ in changes}
            assert seen.details.tokens == (100 if ("tokens", "100") in untouched else seen.details.tokens)
            if seen.details.tokens is not None:
                assert float(cells[7]) == seen.details.tokens

    assert set(header) <= set(FIELDS)
    row()


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    trial = Trial("zstd__a", files=passed(), receipt=RECEIPT, error=("AgentTimeoutError", "late"))
    job = job_folder(tmp_path / "job", [trial, Trial("zstd__b", files=passed(0.5))])
    out = tmp_path / "marathon-full"
    run_folder(out, "zstd", "plain", STAMP, Trial("zstd__a", files=passed(), receipt=RECEIPT))
    put(out / ".claims" / "zstd__plain.claim", "4121\n")
    put(out / ".driver_env", 'GOAL_TIMEOUT_SEC=21600\nexport MARATHON_CONCURRENCY="12"\n')
    put(tmp_path / "marathon-voided" / "README.md", "# Voided\n- zstd: outage\n")
    run_folder(tmp_path / "marathon-voided", "zstd", "goal", "20260831-0100", Trial("zstd__v", files=passed()))
    return job, out


@pytest.mark.parametrize("which", ["job", "runs"])
def test_a_folder_of_runs_is_taken_whole_or_listed(folders: tuple[Path, Path], which: str) -> None:
    source = folders[0] if which == "job" else folders[1]
    root = source if which == "job" else source.parent
    files = sorted(path for path in root.rglob("*") if path.is_file() and (which == "job" or "job" not in path.relative_to(root).parts[:1]))
    kept = {path: path.read_bytes() for path in files}
    assert all(seen.valid or seen.withdrawn for seen in read(Wanted(source)).trials)

    @few
    @given(st.lists(st.integers(0, len(files) - 1), min_size=1, max_size=3, unique=True), st.data())
    def spoil(which: list[int], data: st.DataObject) -> None:
        for at in which:
            raw = kept[files[at]]
            document = json.loads(raw) if files[at].suffix == ".json" else None
            made = json.dumps(data.draw(spoiled(document))).encode() if document is not None else data.draw(torn(raw, (b"stripe", b"=")))
            files[at].write_bytes(data.draw(torn(made)) if data.draw(st.integers(0, 3)) == 0 else made)
        reading = refused_by(lambda: read(Wanted(source)), Refused)
        if isinstance(reading, Reading):
            assert len({seen.key for seen in reading.trials}) == len(reading.trials) <= 3
            for seen in reading.trials:
                checked(seen)
        for at in which:
            files[at].write_bytes(kept[files[at]])

    spoil()
    shutil.rmtree(root, ignore_errors=True)
