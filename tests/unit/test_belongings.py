"""Labels are copied easily: what is ours bears our name as well (fault b06)."""

from __future__ import annotations

import pytest

from marathond.core.belongings import container_name, fitness_name, is_ours, network_name

LEDGER = "0123456789ab"


@pytest.mark.parametrize(
    ("name", "trial", "claim", "ours"),
    [
        (container_name(LEDGER, 7), "t0007", "token", True),
        (network_name(LEDGER, 123456), "t123456", "token", True),
        (network_name(LEDGER, 7) + "-2", "t0007", "token", True),
        (fitness_name(LEDGER, "0a1b2c3d"), None, "proof", True),
        ("marathond-proof-k3_x9abc", None, "proof", True),
        ("marathond-preflight-0123456789ab", None, "proof", True),
        ("db-1", "t0007", "token", False),
        (container_name(LEDGER, 7) + "-2", "t0007", "token", False),
        (network_name(LEDGER, 7) + "-", "t0007", "token", False),
        (container_name(LEDGER, 8), "t0007", "token", False),
        (container_name("ffffffffffff", 7), "t0007", "token", False),
        (container_name(LEDGER, 7), None, "token", False),
        (container_name(LEDGER, 7), "t0007", "proof", False),
        (fitness_name(LEDGER, "0a1b2c3d"), None, "token", False),
        ("marathond-proof-", None, "proof", False),
        (f"mt-{LEDGER}-t0007\n", "t0007\n", "token", False),
        (f"mt-{LEDGER}-", "", "token", False),
        (f"mt-{LEDGER}-.*", ".*", "token", False),
    ],
)
def test_b06_label_and_name_go_together(name: str, trial: str | None, claim: str, ours: bool) -> None:
    assert is_ours(name, ledger_id=LEDGER, trial=trial, claim=claim) is ours
