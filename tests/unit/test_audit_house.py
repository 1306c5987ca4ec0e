"""Rules over the house: what has gone silent or lasts too long, and the nearest thing that is in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from marathond.core.audit import house
from marathond.core.audit.facts import Facts, FindingFact, LeaseFact, ReviewFact
from marathond.core.audit.rule import Look
from tests.support.audit_facts import HOUR, NOW, facts, trial, words

RULES = {rule.code: rule for rule in house.RULES}
MINUTE = 60_000


def look(code: str, seen: Facts) -> Look:
    return RULES[code].look(seen)


def leases(*leaked_ms: int | None) -> Facts:
    return facts(leases=tuple(LeaseFact("main", f"mt-{n}", n, ms) for n, ms in enumerate(leaked_ms, 1)))


def reviews(*age_ms: int) -> Facts:
    return facts(reviews=tuple(ReviewFact(n, "zstd", "plain", "overrun", ms) for n, ms in enumerate(age_ms, 1)), cells=40)


def requests(of: int, failed: int, hour: tuple[int | None, int | None] = (10, 0)) -> Facts:
    return facts([trial(1, requests=of, failed=failed), trial(2, "goal")], hour_requests=hour[0], hour_failed=hour[1])


def raised(*rows: tuple[str, int, bool], severity: str = "error") -> Facts:
    return facts(findings=tuple(FindingFact(code, severity, "x", age_ms, acked) for code, age_ms, acked in rows))


NAMED: dict[str, list[tuple[str, Callable[[], Facts], str, str]]] = {
    "leases_leaked": [
        (
            "two",
            lambda: leases(None, 31 * MINUTE, 3 * HOUR),
            "main",
            "2 of 3 leases leaked for more than 30m00s, the oldest for 3h00m; the pool holds 64: t0002 mt-2, t0003 mt-3",
        ),
    ],
    "wal_large": [
        (
            "a reader",
            lambda: facts(wal_bytes=300 << 20),
            "ledger",
            "300 MB, more than 64 MB, kept from being taken in by a reader that cannot",
        ),
        ("known", lambda: facts(wal_bytes=65 << 20, wal_readers=("pid 7 (sqlite3)",)), "ledger", "taken in by pid 7 (sqlite3)"),
    ],
    "gateway_errors": [
        ("whole", lambda: requests(400, 80), "gateway", "80 of 440 in the whole campaign (18 %)"),
        ("hour", lambda: requests(40, 0, (200, 50)), "gateway", "an error: 50 of 200 in the last hour (25 %)"),
    ],
    "review_backlog": [
        ("many", lambda: reviews(*[HOUR] * 5), "x", "waiting for a person: 5 trials, of 40 cells; the oldest for 1h00m: t0001"),
        ("old", lambda: reviews(30 * HOUR), "x", "waiting for a person: 1 trial, of 40 cells; the oldest for 30h00m: t0001"),
    ],
    "findings_unacked": [
        (
            "one of two",
            lambda: raised(("export_failed", 25 * HOUR, False), ("disk_low", 30 * HOUR, True)),
            "findings",
            "1 of 2 open errors nobody has acknowledged for more than 24h00m: export_failed x",
        ),
    ],
    "daemon_blind": [
        ("silent", lambda: facts(observations=words(waiting=([], 6 * MINUTE))), "waiting", "of waiting: said last 6m00s ago"),
        ("never", lambda: facts(observations=words(engine=None)), "engine", "of engine: said never in this daemon's life of 5h00m"),
        (
            "an earlier life's",
            lambda: facts(observations=words(waiting=([], 2 * HOUR)), daemon_up_ms=HOUR),
            "waiting",
            "said never in this daemon's life of 1h00m",
        ),
    ],
    "disk_unseen": [
        ("silent", lambda: facts(observations=words(disk=([{"path": "/"}], HOUR))), "disk", "said last 1h00m ago"),
        ("nothing seen", lambda: facts(observations=words(disk=([], 1_000))), "disk", "the last look saw no file system at all"),
    ],
    "clock_unseen": [
        ("silent", lambda: facts(observations=words(clock_offset=({"/out": 0}, 3 * HOUR))), "clock", "said last 3h00m ago"),
        ("one root", lambda: facts(observations=words(clock_offset=({"/out": None, "/srv": 0}, HOUR))), "/out", "the clock of /out"),
    ],
    "exports_behind": [
        (
            "one of two",
            lambda: facts([trial(1), trial(2, "goal", exported=False)]),
            "x",
            "1 of 2 trials at rest have no export after 30m00s: t0002",
        ),
        ("no daemon", lambda: facts([trial(2, exported=False)], daemon_alive=False, daemon_up_ms=None), "x", "1 of 1 trial at rest"),
    ],
    "receipts_missing": [
        (
            "one of two",
            lambda: facts([trial(1), trial(2, "goal", turns=None)]),
            "x",
            "1 of 2 graded trials that asked a model have no receipt: t0002",
        ),
        ("in review", lambda: facts([trial(1, state="review", turns=None)]), "x", "1 of 1 graded trial"),
    ],
    "usage_missing": [
        ("no gateway", lambda: facts([trial(1, requests=0), trial(2)]), "gateway", "1 of 2 receipts tell of turns, and the gateway of no"),
        ("nothing read", lambda: facts([trial(1, requests=None), trial(2)]), "gateway", "1 of 2 receipts tell of turns"),
        ("no turns", lambda: facts([trial(1, turns=0, commands=0), trial(2)]), "receipts", "1 of 2 receipts tell of no turn"),
    ],
}

NOT_NAMED: dict[str, list[tuple[str, Callable[[], Facts]]]] = {
    "leases_leaked": [("just now", lambda: leases(None, 29 * MINUTE))],
    "wal_large": [("large enough", lambda: facts(wal_bytes=64 << 20))],
    "gateway_errors": [
        ("few", lambda: requests(50, 40)),
        ("a share that is usual", lambda: requests(400, 20, (200, 10))),
        ("an hour of few", lambda: requests(400, 0, (60, 60))),
    ],
    "review_backlog": [("four of today", lambda: reviews(*[23 * HOUR] * 4))],
    "findings_unacked": [
        ("known", lambda: raised(("export_failed", 99 * HOUR, True))),
        ("young", lambda: raised(("export_failed", 23 * HOUR, False))),
        ("no error", lambda: raised(("held_disparity", 99 * HOUR, False), severity="warning")),
    ],
    "daemon_blind": [
        ("a slow look", lambda: facts(observations=words(waiting=([], 4 * MINUTE)))),
        ("a life that just began", lambda: facts(observations=words(waiting=None, engine=([], 9 * HOUR)), daemon_up_ms=4 * MINUTE)),
        ("stopped", lambda: facts(observations=words(waiting=None), daemon_alive=False, daemon_up_ms=None)),
    ],
    "disk_unseen": [("stopped", lambda: facts(observations={}, daemon_alive=False, daemon_up_ms=None))],
    "clock_unseen": [("two hours", lambda: facts(observations=words(clock_offset=({"/out": 7_000}, 2 * HOUR))))],
    "exports_behind": [
        ("on its way", lambda: facts([trial(1, exported=False, rested_at_ms=NOW - 20 * MINUTE)])),
        ("said already", lambda: facts([trial(1, exported=False)], open_codes={"export_failed": 1})),
        ("measured elsewhere", lambda: facts([trial(1, exported=False)], origin="import")),
        ("its original's", lambda: facts([trial(1, exported=False, state="voided", void_code="ledger_copied")])),
    ],
    "receipts_missing": [
        ("asks no model", lambda: facts([trial(1, turns=None, asks_model=False)])),
        ("withdrawn", lambda: facts([trial(1, turns=None, state="voided")])),
        ("on its way", lambda: facts([trial(1, turns=None, rested_at_ms=NOW - 5 * MINUTE)])),
        ("measured elsewhere", lambda: facts([trial(1, turns=None)], origin="import")),
    ],
    "usage_missing": [
        ("a turn that did not begin", lambda: facts([trial(1, turns=0, commands=0, requests=3)])),
        ("a turn that did not end", lambda: facts([trial(1, turns=0)])),
        ("nor had a command", lambda: facts([trial(1, turns=0, commands=0, ended_by="deadline", budget_ended=True)])),
        ("neither", lambda: facts([trial(1, turns=0, commands=0, requests=0), trial(2)])),
    ],
}


@pytest.mark.parametrize(
    ("code", "make", "subject", "said"),
    [pytest.param(code, make, subject, said, id=f"{code}: {name}") for code, cases in NAMED.items() for name, make, subject, said in cases],
)
def test_named(code: str, make: Callable[[], Facts], subject: str, said: str) -> None:
    seen = look(code, make())
    (found,) = seen.found
    assert (found.code, found.severity, found.subject) == (code, RULES[code].severity, subject)
    assert said in found.detail
    assert not seen.unseen


@pytest.mark.parametrize(
    ("code", "make"), [pytest.param(code, make, id=f"{code}: {name}") for code, cases in NOT_NAMED.items() for name, make in cases]
)
def test_not_named(code: str, make: Callable[[], Facts]) -> None:
    seen = look(code, make())
    assert (seen.found, seen.unseen) == ((), "")


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_both_cases_and_keeps_quiet_over_nothing(code: str) -> None:
    assert NAMED[code] and NOT_NAMED[code]
    seen = look(code, facts())
    assert (seen.found, seen.unseen) == ((), "")


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("wal_large", facts(wal_bytes=None)),
        ("daemon_blind", facts(daemon_alive=None)),
        ("disk_unseen", facts(daemon_alive=None)),
        ("clock_unseen", facts(daemon_alive=None)),
        ("gateway_errors", facts([trial(1, requests=None, failed=None)], hour_requests=None, hour_failed=None)),
        ("usage_missing", facts([trial(1, turns=None)])),
    ],
)
def test_e04_a_source_that_says_nothing_is_unseen_and_not_nothing_found(code: str, seen: Facts) -> None:
    told = look(code, seen)
    assert told.unseen and not told.found
    assert told.looked_at == 0 < told.of


def seen_of(code: str, seen: Facts) -> tuple[int, int, str]:
    told = look(code, seen)
    return told.looked_at, told.of, told.things


def test_what_is_over_was_there_and_is_in_order() -> None:
    """ "Nothing yet" is for what never was: leases that were released, reviews that were decided, findings that were closed have been."""
    over = facts(leases_released=8, reviews_decided=2, findings_closed=5)
    assert seen_of("leases_leaked", over) == (8, 8, "leases")
    assert seen_of("review_backlog", over) == (2, 2, "reviews, open or decided")
    assert seen_of("findings_unacked", over) == (5, 5, "findings, open or closed")
    assert seen_of("leases_leaked", replace(leases(None, None), leases_released=8)) == (10, 10, "leases")
    assert [seen_of(code, facts())[:2] for code in ("leases_leaked", "review_backlog", "findings_unacked")] == [(0, 0)] * 3


def test_where_nothing_is_asked_the_words_say_of_what() -> None:
    away = facts(daemon_alive=False, daemon_up_ms=None)
    assert [seen_of(code, away) for code in ("daemon_blind", "disk_unseen")] == [
        (0, 0, "words of the daemon; no daemon runs"),
        (0, 0, "words about disks; no daemon runs"),
    ]
    imported = facts([trial(1), trial(2, "goal")], origin="import")
    assert seen_of("exports_behind", imported) == (0, 0, "trials at rest, run here")
    assert seen_of("receipts_missing", imported) == (0, 0, "graded trials that asked a model, at rest for 10 minutes, run here")


def test_e03_receipts_that_read_as_nothing_for_ever_are_named() -> None:
    """A field is renamed, no receipt is stored any more: all of them are missing, and their comparison says that it is blind."""
    seen = facts([trial(n, turns=None, commands=None) for n in range(1, 6)])
    (found,) = look("receipts_missing", seen).found
    assert found.severity == "error"
    assert found.detail.startswith("5 of 5 graded trials that asked a model have no receipt")
    assert look("usage_missing", seen).unseen


def test_e01_a_gateway_that_counts_nothing_beside_agents_that_work_is_named() -> None:
    seen = facts([trial(n, requests=None, failed=None) for n in range(1, 6)])
    (found,) = look("usage_missing", seen).found
    assert (found.subject, found.severity) == ("gateway", "error")
    assert found.detail.startswith("5 of 5 receipts tell of turns, and the gateway of no request")


def test_e05_a_root_whose_clock_cannot_be_measured_is_named_and_one_that_is_off_is_said_where_it_is_measured() -> None:
    told = look("clock_unseen", facts(observations=words(clock_offset=({"/out": None, "/srv": -120_000}, HOUR))))
    assert [each.subject for each in told.found] == ["/out"]
    assert (told.looked_at, told.of) == (1, 2)


def test_an_alarm_of_its_own_never_keeps_itself_open() -> None:
    """A finding about findings that counted itself could never be over."""
    assert RULES["findings_unacked"].severity not in house.ALARMS


def test_a_broken_campaign_makes_each_rule_speak_once_at_most_per_subject() -> None:
    hurt = facts(
        [trial(n, ("plain", "goal")[n % 2], turns=None, exported=False, requests=200, failed=90) for n in range(1, 9)],
        observations={},
        wal_bytes=1 << 30,
    )
    for rule in house.RULES:
        keys = [(each.code, each.subject) for each in rule.look(hurt).found]
        assert len(keys) == len(set(keys))
        again = rule.look(replace(hurt)).found
        assert again == rule.look(hurt).found
