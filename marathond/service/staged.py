"""The programs that a campaign's arms need, as they lie staged.

Owns the question which there must be and whether they are there; fetching them is ``marathonctl stage``.  A daemon must not fetch: what an
arm drives is decided by the person who pinned it, and looked at before the campaign starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from marathond.core.errors import Refused
from marathond.service.settings import Settings
from marathond.staging.manifest import StagedTree
from marathond.staging.store import Asked, Look, look


def wanted_trees(settings: Settings) -> tuple[Asked, ...]:
    """What the campaign's arms need, codex first."""
    return (
        *((settings.codex.wanted(),) if settings.drives_codex else ()),
        *((settings.loopx.wanted(),) if settings.drives_loopx else ()),
    )


def look_at_trees(settings: Settings) -> dict[str, Look]:
    """Name of the package (``codex``, ``loopx``) to what is there.  Reads sizes and times, no contents: a tenth of a second."""
    return {asked.name: look(settings.daemon.state_dir, asked) for asked in wanted_trees(settings)}


def staged_trees(settings: Settings) -> dict[str, StagedTree]:
    """Name of the package to its tree; empty where no arm drives codex.

    :raises Refused: one is not staged, or not as it was staged.
    """
    found = {}
    for name, seen in look_at_trees(settings).items():
        if seen.tree is None:
            raise Refused(f"{seen.why}: run marathonctl stage")
        found[name] = seen.tree
    return found


def package_ids(trees: Mapping[str, StagedTree]) -> dict[str, str]:
    """Name of the package to its id, as :meth:`Settings.arm_models` takes them."""
    return {name: tree.package_id for name, tree in trees.items()}
