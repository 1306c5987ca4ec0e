"""Which events are worth a message, and that each is told once (fault f15)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marathond.core.notices import FindingSeen, Progress, Quiet, Seen, StopSeen, quiet_after, to_tell

HOUR_MS = 3_600_000


def told(seen: Seen, before: set[str] | None = None) -> list[tuple[str, str]]:
    return [(notice.kind, notice.key) for notice in to_tell(seen, before or set(), no_score_ms=6 * HOUR_MS)]


def seen(**over: object) -> Seen:
    return Seen(1, "x", **over)  # type: ignore[arg-type]


def finding(number: int, code: str, severity: str = "warning") -> FindingSeen:
    return FindingSeen(number, code, severity, "s", "d")


def test_f15_what_is_worth_a_message() -> None:
    codes = [
        ("money_80", "warning"),
        ("held_disparity", "error"),
        ("infra-disparity", "warning"),
        ("gateway_stale", "error"),
        ("usage_limit", "stop_loss"),
        ("disk_low", "error"),
        ("notify_failed", "error"),
    ]
    state = seen(findings=tuple(finding(n, *code) for n, code in enumerate(codes, 1)), stops=(StopSeen(4, "breaker", "5 x"),))
    assert told(state) == [
        ("stop_loss", "finding:5"),
        ("breaker", "stop:4"),
        ("money", "finding:1"),
        ("disparity", "finding:2"),
        ("disparity", "finding:3"),
        ("gateway", "finding:4"),
    ]


def test_a_stop_loss_and_the_finding_about_it_are_one_message() -> None:
    stop = StopSeen(3, "stop_loss", "usage_limit: used up")
    assert told(seen(stops=(stop,), findings=(finding(9, "usage_limit", "stop_loss"),))) == [("stop_loss", "finding:9")]
    assert told(seen(stops=(stop,))) == [("stop_loss", "stop:3")]
    assert told(seen(stops=(StopSeen(3, "pause", "lunch"),))) == []


def test_f15_the_end_is_told_once_and_says_what_is_left() -> None:
    done = seen(progress=Progress(done=5, parked=2, review=1))
    (notice,) = to_tell(done, set(), no_score_ms=HOUR_MS)
    assert (notice.key, notice.title) == ("done:1:8", "campaign x is done: 5 of 8 cells scored, 2 parked, 1 in review")
    assert told(done, {"done:1:8"}) == []
    assert told(seen(progress=Progress(done=5, open=1))) == told(seen(progress=Progress(done=5, claimed=1))) == told(seen()) == []


def test_f15_an_arm_without_a_score_for_hours_is_named() -> None:
    quiet = (Quiet(1, "plain", 7, 6 * HOUR_MS), Quiet(2, "goal", 9, 6 * HOUR_MS - 1))
    (notice,) = to_tell(seen(quiet=quiet), set(), no_score_ms=6 * HOUR_MS)
    assert (notice.key, notice.title) == ("quiet:1:7", "no score of arm plain for 6h00m while its trials run")


def test_foreign_words_steer_no_terminal_and_end_somewhere() -> None:
    (notice,) = to_tell(seen(stops=(StopSeen(1, "breaker", "\x1b[31mred\n" + "x" * 5000),)), set(), no_score_ms=1)
    assert notice.detail.startswith("red xxx") and len(notice.detail) <= 1000


def look(before: dict[int, Quiet], *, running: set[int], scored: dict[int, int] | None = None, ms: int = 10) -> dict[int, Quiet]:
    return quiet_after(before, arms={1: "plain", 2: "goal", 3: "dead"}, running=running, scored=scored or {}, passed_ms=ms)


def test_f15_three_dead_arms_are_quiet_while_the_others_score() -> None:
    state: dict[int, Quiet] = {}
    for number in range(1, 5):
        state = look(state, running={1, 3}, scored={1: number})
    assert [(q.arm, q.score_id, q.ms) for q in state.values()] == [("plain", 4, 0), ("goal", 0, 0), ("dead", 0, 40)]


def test_time_in_which_nothing_runs_is_no_silence() -> None:
    state = look(look({}, running={1}), running=set(), ms=10**9)
    assert state[1].ms == 10
    assert look(state, running={1})[1].ms == 20


@given(st.lists(st.tuples(st.sampled_from(["money_80", "breaker", "x_disparity"]), st.integers(1, 9)), max_size=12))
def test_what_was_told_is_never_told_again(events: list[tuple[str, int]]) -> None:
    before: set[str] = set()
    for code, number in events:
        state = seen(findings=() if code == "breaker" else (finding(number, code),), stops=(StopSeen(number, code, ""),))
        new = [key for _, key in told(state, before)]
        assert not before.intersection(new) and len(new) == len(set(new))
        before.update(new)
        assert told(state, before) == []
