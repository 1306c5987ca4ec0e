"""Which containers and networks are ours: they carry our labels, and the name that only we give.

Owns the names, and what counts as ours.  Must not know an engine.  Labels are copied easily (a compose file made from `docker inspect`, an
image whose labels a container inherits, somebody who means it), and what merely carries them is never touched.  A container's name is
unique at its engine, so a copy cannot bear the name of one that is there.
"""

from __future__ import annotations

import re

from marathond.core.names import trial_label

PROOF_CLAIM = "proof"
"""In place of a claim's token: short-lived containers and networks that belong to no trial."""
_TRIAL = re.compile(r"t[0-9]{4,}")
_PROOF = re.compile(r"marathond-(proof-[a-z0-9_]+|preflight-[0-9a-f]{12})")


def container_name(ledger_id: str, trial_id: int) -> str:
    """Of a trial's container."""
    return f"mt-{ledger_id}-{trial_label(trial_id)}"


def network_name(ledger_id: str, trial_id: int) -> str:
    """Of a trial's first network; a further one, on another subnet, has a number behind it.  The engine's names of networks are not unique:
    its id says which one."""
    return f"mn-{ledger_id}-{trial_label(trial_id)}"


def fitness_name(ledger_id: str, nonce: str) -> str:
    """Of a container that asks an image whether arms can run in it."""
    return f"mt-{ledger_id}-fit-{nonce}"


def is_ours(name: str, *, ledger_id: str, trial: str | None, claim: str | None) -> bool:
    """Whether what carries these labels bears a name that goes with them.

    :param ledger_id: of its label, which is ours; ``trial``, ``claim``: its other labels.
    """
    if claim == PROOF_CLAIM:
        return _PROOF.fullmatch(name) is not None or re.fullmatch(f"mt-{re.escape(ledger_id)}-fit-[0-9a-f]{{8}}", name) is not None
    if trial is None or _TRIAL.fullmatch(trial) is None:
        return False
    return name == f"mt-{ledger_id}-{trial}" or re.fullmatch(f"mn-{re.escape(ledger_id)}-{trial}(-[0-9]+)?", name) is not None
