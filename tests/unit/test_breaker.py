"""Which voids close admission, and which are one task's own."""

from __future__ import annotations

from marathond.flow.breaker import worst


def test_f12_an_engine_that_fails_again_and_again_counts_in_full() -> None:
    assert worst([("container_failed", 1)] * 5) == ("container_failed", 5)
    assert worst([]) == ("", 0)


def test_f06_one_bad_task_never_reaches_the_breaker_alone() -> None:
    assert worst([("healthcheck_failed", 1)] * 9) == ("healthcheck_failed", 2)
    assert worst([("install_check_failed", task) for task in range(5)] * 3) == ("install_check_failed", 10)


def test_codes_are_not_added_up() -> None:
    assert worst([("container_failed", 1), ("engine_failed", 1), ("engine_failed", 2)]) == ("engine_failed", 2)
