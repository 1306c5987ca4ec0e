"""The journal: kill -9, torn lines, rotation, and a reader that may come back to any place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.errors import ArtifactError
from marathond.gateway.exchange import bury
from marathond.gateway.journal import Journal, encode
from marathond.gateway.journal_read import START, Position, Record, Torn, read_from, segment_path, segments, write_ingested
from tests.support.gateway_rig import FakeClock


def all_entries(folder: Path) -> list[Record | Torn]:
    return read_from(folder, START, 10**6)[0]


def records(folder: Path, *events: str) -> list[Record]:
    return [entry for entry in all_entries(folder) if isinstance(entry, Record) and entry.fields["event"] in events]


def test_records_come_back_in_order_with_their_numbers(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    seqs = [journal.append("x", n=n, text='quote " \n é ,"crc":"00000000"}') for n in range(5)]
    assert [(entry.seq, entry.fields["n"]) for entry in records(tmp_path, "x")] == list(zip(seqs, range(5), strict=True))
    assert seqs == list(range(seqs[0], seqs[0] + 5))
    journal.close()


def test_reading_again_from_any_position_gives_the_same(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=400)
    for n in range(30):
        journal.append("x", n=n)
    whole = all_entries(tmp_path)
    position, found = START, []
    for _ in range(200):
        got, after = read_from(tmp_path, position, 3)
        assert (got, after) == read_from(tmp_path, position, 3)
        if not got:
            break
        found += got
        position = after
    assert found == whole
    assert len(segments(tmp_path)) > 3
    journal.append("x", n=30)
    assert [entry.fields["n"] for entry in read_from(tmp_path, position)[0] if isinstance(entry, Record) and "n" in entry.fields] == [30]
    journal.close()


def test_reader_waits_for_the_rest_of_a_line_that_is_being_written(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.close()
    _, position = read_from(tmp_path)
    line = encode({"seq": 9, "event": "x"})
    with segment_path(tmp_path, 1).open("ab") as file:
        file.write(line[:10])
        file.flush()
        assert read_from(tmp_path, position) == ([], position)
        file.write(line[10:])
    assert read_from(tmp_path, position)[0] == [Record(9, {"seq": 9, "event": "x"})]


@pytest.mark.parametrize("keep", [1, 20, -1])
def test_torn_last_line_is_named_and_skipped_by_the_next_life(tmp_path: Path, keep: int) -> None:
    journal = Journal(tmp_path)
    journal.append("x", n=1)
    journal.close()
    with segment_path(tmp_path, 1).open("ab") as file:
        start = file.tell()
        half = encode({"seq": 3, "event": "x", "n": 2})[:keep]
        file.write(half)
    after = Journal(tmp_path)
    assert after.torn == [Torn(1, start, len(half))]
    seq = after.append("x", n=3)
    assert [entry.fields["n"] for entry in records(tmp_path, "x")] == [1, 3]
    assert [entry for entry in all_entries(tmp_path) if isinstance(entry, Torn)] == after.torn
    assert seq > records(tmp_path, "x")[0].seq
    after.close()


@settings(max_examples=40)
@given(st.data())
def test_a_flipped_byte_is_never_believed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("j")
    journal = Journal(folder)
    for n in range(3):
        journal.append("x", n=n)
    journal.close()
    honest = set(map(str, all_entries(folder)))
    path = segment_path(folder, 1)
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    assert all(str(entry) in honest for entry in all_entries(folder) if isinstance(entry, Record))


def test_requests_of_a_dead_life_end_as_unknown(tmp_path: Path) -> None:
    first = Journal(tmp_path, segment_bytes=300)
    open_one = first.append("begin", trial="t1", account="agent", listener="t1", route="model", number=first.next_number("t1"))
    ended = first.append("begin", trial="t2", account="agent", listener="t2", route="model", number=first.next_number("t2"))
    for _ in range(20):  # the begin is several segments back when the process dies
        first.append("x")
    first.append("request", begin=ended, trial="t2")
    first.close()
    second = Journal(tmp_path, segment_bytes=300)
    assert list(second.open_requests) == [open_one]
    assert bury(second, FakeClock(), "gateway_died", list(second.open_requests)) == 1
    last = records(tmp_path, "request")[-1].fields
    assert (last["begin"], last["trial"], last["number"], last["usage"], last["tokens"]) == (open_one, "t1", 1, "unknown", None)
    assert second.next_number("t1") == 2
    assert second.open_requests == {}
    second.close()
    third = Journal(tmp_path)
    assert third.open_requests == {}
    assert third.identity == first.identity
    third.close()


def test_life_that_died_with_its_first_line_loses_nothing(tmp_path: Path) -> None:
    first = Journal(tmp_path)
    begun = first.append("begin", trial="t1", account="agent", listener="t1", route="model", number=first.next_number("t1"))
    first.close()
    segment_path(tmp_path, 2).write_bytes(b'{"seq":')
    second = Journal(tmp_path)
    assert list(second.open_requests) == [begun]
    assert second.torn == [Torn(2, 0, 7)]
    second.close()


def test_what_was_ingested_is_removed_and_only_that(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=300)
    for n in range(30):
        journal.append("x", n=n)
    before = segments(tmp_path)
    write_ingested(tmp_path, Position(before[3], 0))
    for n in range(6):
        journal.append("x", n=n)
    assert segments(tmp_path)[0] == before[3]
    with pytest.raises(ArtifactError, match="gone before it was read"):
        read_from(tmp_path, Position(before[0], 10))
    journal.close()


def test_full_journal_refuses_until_somebody_reads_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path, segment_bytes=200, segments_at_most=3)
    with pytest.raises(ArtifactError, match="nobody has ingested"):
        for n in range(100):
            journal.append("x", n=n)
    told = len(records(tmp_path, "x"))
    _, position = read_from(tmp_path, START, 10**6)
    write_ingested(tmp_path, position)
    journal.append("x", n=told)
    seqs = [entry.seq for entry in read_from(tmp_path, position)[0] if isinstance(entry, Record)]
    assert seqs
    assert seqs == sorted(set(seqs))
    journal.close()


def test_half_written_line_is_never_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path)
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, line: real(fd, line[:5]))
    with pytest.raises(ArtifactError, match="only 5 of"):
        journal.append("x", n=1)
    monkeypatch.undo()
    journal.append("x", n=2)
    assert [entry.fields["n"] for entry in records(tmp_path, "x")] == [2]
    assert [entry.length for entry in all_entries(tmp_path) if isinstance(entry, Torn)] == [5]
    journal.close()
