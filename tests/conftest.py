"""Shared fixtures.  Must not start anything: engines come from the environment that `make test` prepares."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
