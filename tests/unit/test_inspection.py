"""Is the container what was asked for?"""

from __future__ import annotations

import dataclasses

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
