"""The last words of a daemon life."""

from __future__ import annotations

from marathond.core.parting import NAMED_AT_MOST, UNDONE_AT_MOST, Left, parting


def test_nothing_left_is_said() -> None:
    assert parting("SIGTERM", Left()) == "SIGTERM: nothing left running"


def test_each_kind_of_trial_is_told_by_number() -> None:
    left = Left(((1, "running"), (2, "verifying"), (3, "preparing"), (4, "reserved")), (5,))
    assert parting("drain by root (upgrade)", left, ["unpausing container 0123"]) == (
        "drain by root (upgrade): 2 trials left running: t0001 t0002; 2 trials not begun yet, void at the next start: t0003 t0004; "
        "1 trial not torn down yet, the next daemon sweeps: t0005; cut short: unpausing container 0123"
    )


def test_it_is_bounded() -> None:
    words = parting("SIGTERM", Left([(n, "running") for n in range(1, 1001)]), [f"act {n}" for n in range(1000)])
    assert f"and {1000 - NAMED_AT_MOST} more" in words and f"and {1000 - UNDONE_AT_MOST} more" in words and len(words) < 400
