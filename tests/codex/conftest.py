"""The real codex for this room's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.demo.host import SetupError
from tests.conftest import IN_CI
from tests.support.codex_env import codex_binary


@pytest.fixture(scope="session")
def codex() -> Path:
    """The real binary.  Where it cannot be had: a failure in CI, else skipped with the reason."""
    try:
        return codex_binary()
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))
