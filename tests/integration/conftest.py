"""A browser; a client of the run's engine; an engine of the tests' own, made once for those that break it: it has to load an image."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from marathond.demo.host import SetupError
from marathond.engine.docker import DockerEngine
from tests.conftest import IN_CI
from tests.support import browser
from tests.support.private_engine import PrivateEngine, missing, private_dockerd
from tests.support.rig import BASE_IMAGE, CALL_TIMEOUT_S


@pytest.fixture(scope="session")
def chromium() -> str:
    """A browser.  Where none can be had: a failure in CI, skipped elsewhere."""
    try:
        return browser.program()
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


@pytest.fixture
async def engine(docker_host: str) -> AsyncIterator[DockerEngine]:
    made = DockerEngine("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    yield made
    await made.aclose()


@pytest.fixture(scope="session")
def own_engine_made(docker_host: str) -> Iterator[PrivateEngine]:
    if reason := missing():
        pytest.skip(reason)
    with private_dockerd(pools=[("10.99.0.0/24", 26)]) as engine:
        engine.load(docker_host, BASE_IMAGE)
        yield engine


@pytest.fixture
def own_engine(own_engine_made: PrivateEngine) -> Iterator[PrivateEngine]:
    """Running, with the plain arguments, four networks' room (docker0 takes one) and the sample image."""
    plain = list(own_engine_made.arguments)
    yield own_engine_made
    if own_engine_made.arguments != plain or own_engine_made.environ or own_engine_made.process is None:
        own_engine_made.stop()
        own_engine_made.arguments[:] = plain
        own_engine_made.environ.clear()
        own_engine_made.start()
