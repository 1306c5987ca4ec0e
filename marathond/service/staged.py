"""The codex that a campaign's arms drive, as it lies staged.

Owns the question whether it is there; fetching it is ``marathonctl stage``.  A daemon must not fetch: what an arm drives is decided by the
person who pinned it, and looked at before the campaign starts.
"""

from __future__ import annotations

from marathond.core.errors import Refused
from marathond.service.settings import Settings
from marathond.staging.manifest import StagedTree
from marathond.staging.store import look


def staged_codex(settings: Settings) -> StagedTree | None:
    """None: no arm drives codex.  Reads sizes and times of the tree, no contents: milliseconds.

    :raises Refused: it is not staged, or not as it was staged.
    """
    if not settings.drives_codex:
        return None
    found = look(settings.daemon.state_dir, settings.codex.wanted())
    if found.tree is None:
        raise Refused(f"{found.why}: run marathonctl stage")
    return found.tree
