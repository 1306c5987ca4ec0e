"""Which voids close admission, and which are one task's own."""

from __future__ import annotations

from marathond.flow.breaker import worst


def test_f12_an_engine_that_fails_again_and_again_counts_in_full() -> None:
    assert worst([("engine_failed", 1)] * 5, tasks=9) == ("engine_failed", 5)
    assert worst([("container_failed", task) for task in range(5)], tasks=9) == ("container_failed", 5)
    assert worst([], tasks=9) == ("", 0)


def test_f06_one_bad_task_never_reaches_the_breaker_alone() -> None:
    for code in ("healthcheck_failed", "container_failed", "image_gone", "a code of tomorrow"):
        assert worst([(code, 1)] * 9, tasks=3) == (code, 2)
    assert worst([("install_check_failed", task) for task in range(5)] * 3, tasks=5) == ("install_check_failed", 10)


def test_a_campaign_of_one_task_is_judged_by_it() -> None:
    assert worst([("container_failed", 1)] * 6, tasks=1) == ("container_failed", 6)


def test_codes_are_not_added_up() -> None:
    assert worst([("container_failed", 1), ("engine_failed", 1), ("engine_failed", 2)], tasks=5) == ("engine_failed", 2)
