"""Is the container what was asked for?"""

from __future__ import annotations

import dataclasses

import pytest

from marathond.core.inspection import problems
from marathond.ports.engine import ContainerInfo, ContainerSpec

LABELS = {"marathond.ledger": "abc", "marathond.trial": "t0001"}
SPEC = ContainerSpec(name="mt", image_id="sha256:1", labels=LABELS, network=None)
SHOWN = ContainerInfo("id", "mt", LABELS, "sha256:1", True, False, "running", 7, "2026", None, False, "none", env=("PATH=/bin",))


def check(shown: ContainerInfo, spec: ContainerSpec = SPEC, allowed: frozenset[str] = frozenset()) -> str | None:
    found = problems(shown, spec, allowed_env=allowed)
    return found[0] if found else None


def test_as_asked_is_fine() -> None:
    assert check(SHOWN) is None


def test_b13_a_proxy_nobody_asked_for_is_named() -> None:
    dirty = dataclasses.replace(SHOWN, env=("PATH=/bin", "HTTP_PROXY=http://10.0.0.1:3128", "no_proxy=x"))
    found = problems(dirty, SPEC, allowed_env=frozenset())
    assert found is not None
    assert found[0] == "environment_dirty"
    assert "HTTP_PROXY, no_proxy" in found[1]
    assert check(dirty, allowed=frozenset({"HTTP_PROXY", "no_proxy"})) is None


def test_labels_network_image_and_state_are_compared() -> None:
    assert check(dataclasses.replace(SHOWN, labels={})) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, network_mode="bridge")) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, image_id="sha256:2")) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, running=False, status="exited", exit_code=1)) == "container_failed"


@pytest.mark.parametrize(("asked", "shown"), [(None, 0.5), (0.5, None), (0.5, 0.4), (64, None), (None, 64), (64, 128)])
def test_limits_that_do_not_hold_as_asked_are_named(asked: float | None, shown: float | None) -> None:
    """An environment with other limits than the task's is another task; None is unlimited."""
    for key in ("cpus", "memory_mb"):
        spec, info = dataclasses.replace(SPEC, **{key: asked}), dataclasses.replace(SHOWN, **{key: shown})
        found = problems(info, spec, allowed_env=frozenset())
        assert found is not None and found[0] == "environment_mismatch"
        words = ["unlimited" if value is None else f"{value:g}" for value in (shown, asked)]
        assert key in found[1] and f" {words[0]}, asked for {words[1]}" in found[1]
        assert check(dataclasses.replace(info, **{key: asked}), spec) is None


@pytest.mark.parametrize("cpus", [0.1, 0.29, 1 / 3, 4.0, 0.01])
def test_a_limit_read_back_in_nanoseconds_is_the_limit_asked_for(cpus: float) -> None:
    assert check(dataclasses.replace(SHOWN, cpus=int(cpus * 1e9) / 1e9), dataclasses.replace(SPEC, cpus=cpus)) is None
