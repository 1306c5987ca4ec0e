"""The Engine contract, run on real Docker."""

from __future__ import annotations

import pytest
from contract.engine_contract import EngineContract
from contract.engine_real_only import RealOnly

pytestmark = [pytest.mark.anyio, pytest.mark.docker]


class TestDockerEngine(EngineContract):
    """Everything in :class:`EngineContract`."""


class TestOnlyDockerEngine(RealOnly):
    """Everything in :class:`RealOnly`."""
