"""Whose a folder is, and whether somebody put it aside (fault e08: an old run of another user is read as this one's)."""

from __future__ import annotations

from marathond.service.importing.tree import Entry, Parts, Tree, owner_name

EXCLUDED = ".excluded"


class Sieve:
    """Lets through what belongs to the owner of the run; lists the rest.

    :param uid: that owner; None: whoever owns the source's own folder.
    """

    def __init__(self, tree: Tree, uid: int | None) -> None:
        self.tree = tree
        self.uid = tree.uid if uid is None else uid

    def folders(self, parts: Parts, *, shared: bool = False) -> list[Entry]:
        """Folders below ``parts`` that may be taken; hidden ones are never results.

        :param shared: several owners may have results below them (a task's folder), so that whose they are says nothing.
        """
        return [entry for entry in self.tree.folders(parts) if self._passes(parts, entry, shared)]

    def _passes(self, parts: Parts, entry: Entry, shared: bool) -> bool:
        here = (*parts, entry.name)
        if EXCLUDED in entry.name:
            self.tree.note("excluded", here, "somebody put it aside by its name")
            return False
        if entry.name.startswith("."):
            return False
        if entry.uid != self.uid and not shared:
            why = f"owned by {owner_name(entry.uid)}, the run by {owner_name(self.uid)}: another run's (--owner takes that one's)"
            self.tree.note("other_owner", here, why)
            return False
        return True
