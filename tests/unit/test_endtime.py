"""The time of an end that nobody saw (faults c18, c19): within what is possible, with its source, or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from marathond.agents.pinned import written_ms
from marathond.core.endtime import HEARD_MS, SHORT_MS, WORDS, Ended, TimeSource, Watched, judged, of_driver, of_process, told_in
from marathond.core.names import EndedBy

START, LIMIT, LOOK = 1_000_000, 60_000, 1_101_000
AWAY = Watched(before_ms=START, alive=False)
"""Another life started it, and this one came 100 s later and has not found it alive."""
TIMER_MS = 30_000


def by(told: Ended, *, by: EndedBy = EndedBy.AGENT, killed: bool = False, timer_ms: int = TIMER_MS) -> tuple[EndedBy, int | None]:
    return judged(by, told, seen_ms=LOOK, deadline_ms=START + LIMIT, timer_ms=timer_ms, killed=killed)


def test_c19_an_end_that_nobody_saw_has_its_files_time_and_is_no_spent_budget() -> None:
    told = of_process(AWAY, seen_ms=LOOK, written_ms=START + 12_000)
    assert told == Ended(START + 12_000, TimeSource.FILE)
    assert by(told) == (EndedBy.AGENT, 0)
    assert by(told, killed=True) == (EndedBy.AGENT, 0), "killed within its limit is not the timer's doing"


def test_an_end_that_was_watched_is_the_daemons_whatever_the_file_says() -> None:
    for watched in (Watched(START, alive=True), Watched(LOOK - 1_000, alive=False)):
        assert of_process(watched, seen_ms=LOOK, written_ms=START + 1) == Ended(LOOK, TimeSource.WATCHED)


@pytest.mark.parametrize("written", [None, 0, START - 60_000, LOOK + 60_000])
def test_c18_a_time_that_cannot_be_is_none(written: int | None) -> None:
    told = of_process(AWAY, seen_ms=LOOK, written_ms=written)
    assert (told.at_ms, told.source) == (None, TimeSource.UNKNOWN)
    assert by(told) == (EndedBy.AGENT, None)


def test_c18_a_time_a_moment_outside_is_drawn_to_what_is_possible() -> None:
    assert of_process(AWAY, seen_ms=LOOK, written_ms=START - 900) == Ended(START, TimeSource.FILE)
    assert of_process(AWAY, seen_ms=LOOK, written_ms=LOOK + 900) == Ended(LOOK, TimeSource.FILE)


def test_it_had_not_ended_before_it_was_seen_alive() -> None:
    frozen = Watched(before_ms=START + 50_000, alive=False)
    assert of_process(frozen, seen_ms=LOOK, written_ms=START + 12_000).at_ms is None
    assert of_process(frozen, seen_ms=LOOK, written_ms=START + 55_000).at_ms == START + 55_000


def test_c19_the_containers_timer_is_told_by_its_time_and_by_its_word() -> None:
    timer = of_process(AWAY, seen_ms=LOOK, written_ms=START + LIMIT + TIMER_MS + 200)
    assert by(timer, killed=True) == (EndedBy.TIMER, TIMER_MS)
    early = of_process(AWAY, seen_ms=LOOK, written_ms=START + LIMIT + 10_000)
    assert by(early, killed=True) == (EndedBy.DEADLINE, 10_000), "its deadline was over, and nobody there to end it"
    mute = of_process(AWAY, seen_ms=LOOK, written_ms=None)
    assert by(mute, killed=True) == (EndedBy.AGENT, None), "the timer leaves a word before it kills"
    forged = of_process(AWAY, seen_ms=LOOK, written_ms=0)
    assert by(forged, killed=True) == (EndedBy.TIMER, TIMER_MS)


def test_a_deadline_that_was_ours_is_overrun_by_what_it_was_and_none_has_no_overrun() -> None:
    assert by(Ended(LOOK, TimeSource.WATCHED), by=EndedBy.DEADLINE) == (EndedBy.DEADLINE, LOOK - START - LIMIT)
    unlimited = judged(EndedBy.AGENT, Ended(LOOK, TimeSource.WATCHED), seen_ms=LOOK, deadline_ms=None, timer_ms=0, killed=True)
    assert unlimited == (EndedBy.AGENT, None)


def test_a_drivers_end_is_codexs_word_of_the_last_turn_where_nobody_heard_it() -> None:
    def driver(word_ms: int | None, *, since_ms: int = 1_100_000, seen_ms: int = LOOK) -> Ended:
        return of_driver(since_ms=since_ms, started_ms=START, seen_ms=seen_ms, word_ms=word_ms)

    assert driver(START + 12_000) == Ended(START + 12_000, TimeSource.CODEX)
    assert driver(1_100_500) == Ended(LOOK, TimeSource.WATCHED)
    assert driver(None).source is TimeSource.UNKNOWN and driver(START - 10_000).source is TimeSource.UNKNOWN
    for word in (None, START + 12_000):  # a driver that rests before it ends the run
        assert driver(word, since_ms=START) == Ended(LOOK, TimeSource.WATCHED)
        late = 1_100_000 + HEARD_MS + 1  # one that came back long before it decided on the end
        assert driver(word, seen_ms=late) == Ended(late, TimeSource.WATCHED)


def test_an_end_known_to_lie_after_the_deadline_is_the_deadlines_as_if_somebody_had_been_there() -> None:
    assert by(Ended(START + LIMIT + 11_000, TimeSource.FILE)) == (EndedBy.DEADLINE, 11_000)
    assert by(Ended(START + LIMIT + 11_000, TimeSource.CODEX), by=EndedBy.TURN_CAP) == (EndedBy.DEADLINE, 11_000)
    assert by(Ended(START + LIMIT + 1_000, TimeSource.CODEX)) == (EndedBy.AGENT, 1_000), "codex tells whole seconds"


def test_a_short_time_without_anybody_needs_no_word_where_there_is_none() -> None:
    short = Watched(before_ms=LOOK - SHORT_MS, alive=False)
    assert of_process(short, seen_ms=LOOK, written_ms=None) == Ended(LOOK, TimeSource.WATCHED)
    assert of_process(short, seen_ms=LOOK, written_ms=LOOK - 9_000) == Ended(LOOK - 9_000, TimeSource.FILE)


def test_what_was_killed_at_its_deadline_before_anybody_could_ask_is_the_deadlines_without_a_time() -> None:
    told = by(Ended(None, TimeSource.UNKNOWN), by=EndedBy.DEADLINE)
    assert told == (EndedBy.DEADLINE, LOOK - START - LIMIT), "it was there until then: a person is asked where that is long"


def test_each_source_has_words_and_what_is_written_is_read_again() -> None:
    assert set(WORDS) == set(TimeSource) and [each for each in TimeSource if not WORDS[each]] == [TimeSource.WATCHED]
    assert all(told_in({"time_source": each.value}) is each for each in TimeSource)
    assert told_in({}) is TimeSource.WATCHED and told_in({"time_source": "sundial"}) is TimeSource.UNKNOWN


def test_c18_only_a_regular_file_has_a_time(tmp_path: Path) -> None:
    status = tmp_path / "exit-status"
    assert written_ms(status) is None
    os.mkfifo(status)
    assert written_ms(status) is None
    status.unlink()
    status.write_text("0\n")
    os.utime(status, ns=(0, 1_700_000_000_123_000_000))
    assert written_ms(status) == 1_700_000_000_123
