"""Faults for the rule about infrastructure failures, planted in scratch ledgers.

Owns one plant per code of ``core/audit/bias.py``, each the least that its rule must see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from marathond.service.doctor.planted import ARMS, TASKS
from marathond.service.doctor.scratch import Scratch


def infra_disparity(scratch: Scratch) -> None:
    """Six gates of one arm say no, one after another, while all others' trials get through."""
    for replicate in (1, 2):
        for task in TASKS:
            if replicate == 1:
                scratch.trial(task=task, arm=ARMS[2], replicate=replicate, state="voided", void_code="loopx_setup")
            for arm in ARMS[:2]:
                scratch.trial(task=task, arm=arm, replicate=replicate)


PLANTS: Mapping[str, Callable[[Scratch], None]] = {plant.__name__: plant for plant in (infra_disparity,)}
