"""A daemon that was killed wrote no end of its life: ``tail`` and ``history`` tell it all the same, where it belongs, once."""

from __future__ import annotations

from marathond.cli.happened import words
from marathond.cli.history import decided
from marathond.ledger.verbs import runs
from marathond.ledger.verbs.happened import ALL, marks, newest, since
from marathond.ledger.verbs.happened_sources import Of
from tests.support import ledgers as have

T0 = have.T0


def test_a_life_that_was_killed_is_told_before_the_next_one_even_to_who_follows() -> None:
    """Life 1 is killed, life 2 is a command that is killed, life 3 ends in order, and of life 4 nobody knows yet."""
    c = have.memory_ledger()
    have.fill(c)
    have.admit(c, have.cell(c, "zstd", "plain"), now_ms=T0 + 4_000)
    runs.mark_seen(c, now_ms=T0 + 3_000)  # what it did after its last sign of life stands before its end all the same
    here = marks(c)
    me = {"pid": 1, "pid_start_ticks": 1, "host": "h", "boot_id": "b", "version": "0.1.0"}
    runs.begin_offline(c, what="void", **me, now_ms=T0 + 60_000)  # type: ignore[arg-type]
    first, here = since(c, Of(), here)
    have.begin(c, now_ms=T0 - 3_600_000)  # the clock was set back
    runs.end_run(c, reason="SIGTERM", now_ms=T0 + 80_000)
    have.begin(c, now_ms=T0 + 90_000)
    second, here = since(c, Of(), here)
    told = [words(one) for one in newest(c, Of(), ALL) if one.kind in ("daemon", "trial")]
    assert [text.split("  ", 1)[1] for text in told] == [
        "marathond  life 1 started, 0.1.0, pid 4121 on build7",
        "t0001  reserved attempt 1  (zstd, plain, replicate 1)",
        "marathond  life 1 ended without a word (killed, or the host went down), last seen 2026-09-21T14:13:23Z",
        "marathond  life 2 started, 0.1.0, pid 1 on h",
        "marathond  life 2 (void) ended without a word (killed, or the host went down), last seen 2026-09-21T14:14:20Z",
        "marathond  life 3 started, 0.1.0, pid 4121 on build7",
        "marathond  life 3 stopped: SIGTERM",
        "marathond  life 4 started, 0.1.0, pid 4121 on build7",
    ]
    assert [told[place][:20] for place in (2, 4)] == [
        "2026-09-21T14:14:20Z",
        "2026-09-21T13:13:20Z",
    ]  # with the next life
    followed = [f"{one.life} {one.what}" for one in [*first, *second]]
    assert followed == ["1 lost", "2 started", "2 lost", "3 started", "3 stopped", "4 started"]
    assert since(c, Of(), here)[0] == [] and all(decided(one) for one in [*first, *second])
