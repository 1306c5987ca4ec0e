"""Shared fixtures.  Must not start anything: engines come from the environment that `make test` prepares."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from marathond.demo.docker_http import DEFAULT_SOCKET, why_silent
from marathond.demo.host import SetupError
from marathond.staging.manifest import StagedTree
from tests.support.harbor_env import harbor_env
from tests.support.loopx_env import loopx_tree
from tests.support.published import configurations_watched

# How long an example takes says how busy the machine is, and nothing about the code; and examples by chance fail by chance: every run has
# the same ones.  `HYPOTHESIS_PROFILE=search` looks for new ones.
settings.register_profile("repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", parent=settings.get_profile("repeatable"), derandomize=False, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

LONGEST = ("tests/sim/test_sim.py", "tests/sim/test_sim_reach.py", "tests/sim/test_sim_rest.py")
"""Minutes without a wait, one file for each test process: at the end there would be nobody to run beside them."""

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")


@pytest.fixture(scope="session", autouse=True)
def _configurations_are_as_published() -> Generator[None]:
    """Every configuration that a test loads is right by docs/schema/config.schema.json, too."""
    with configurations_watched():
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def docker_host() -> str:
    """DOCKER_HOST of an answering engine.  None answers: the test fails in CI, and is skipped with the reason elsewhere."""
    host = os.environ.get("DOCKER_HOST") or DEFAULT_SOCKET
    reason = why_silent(host, timeout_s=60.0)  # a busy engine's first word may take longer than set-up has patience for
    if reason is not None:
        message = f"no Docker engine at {host}: {reason} (make test provides one)"
        if IN_CI:
            pytest.fail(message)
        pytest.skip(message)
    return host


@pytest.fixture(scope="session")
def harbor() -> None:
    """Harbor itself is there for :mod:`tests.support.harbor_env`.  Where it cannot be had: a failure in CI, skipped elsewhere."""
    try:
        harbor_env("view")
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


@pytest.fixture(scope="session")
def staged_loopx() -> StagedTree:
    """The real LoopX as it is staged for campaigns.  Where it cannot be had: a failure in CI, skipped elsewhere."""
    try:
        return loopx_tree()
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin; all others in their order."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skipped Docker test is a failure: a suite that silently leaves out its heart would pass on any machine."""
    report = yield
    if IN_CI and report.skipped and item.get_closest_marker("docker") is not None and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: a test that needs Docker was skipped in CI: {report.longrepr}"
    return report
