"""A folder of somebody's old runs, looked at without touching it.

Owns the walk: no link is followed, nothing that is no regular file is opened, everything is bounded, and what could not be seen is listed
with the reason.  Must not know any layout.
"""

from __future__ import annotations

import json
import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marathond.core.errors import ArtifactError, Refused
from marathond.core.text import printable
from marathond.service.importing.seen import NAME_MAX, Listed
from marathond.tasks.artifacts import read_bounded
from marathond.tasks.paths import kind_of, open_folder, open_subfolder, translate

MAX_NAMES = 20_000
"""Entries looked at in one folder."""
MAX_FOLDERS = 200_000
"""Folders looked at in one source."""
MAX_JSON_BYTES = 16 << 20
TOO_MANY, UNREADABLE = "too_many", "unreadable"
FOLDER, FILE, LINK = "folder", "file", "symbolic link"

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """``kind``: as :func:`marathond.tasks.paths.kind_of`."""

    name: str
    kind: str
    uid: int
    size_bytes: int


class Tree:
    """``listed`` grows while one looks: what was met and could not be seen."""

    def __init__(self, root: Path) -> None:
        """:raises Refused: ``root`` is no folder that can be read."""
        self.root = Path(os.path.realpath(root))
        self.listed: list[Listed] = []
        self._known: set[Listed] = set()
        self._looked: dict[Parts, tuple[Entry, ...]] = {}
        try:
            with open_folder(self.root) as folder:
                self.uid = os.fstat(folder).st_uid
        except OSError as error:
            raise Refused(f"{root}: {error.strerror}: must be a folder of old runs, or a Harbor job") from error

    def place(self, parts: Parts) -> str:
        """For a person, relative to the root."""
        return printable("/".join(parts) or ".", 4 * NAME_MAX)

    def note(self, code: str, parts: Parts, why: str) -> None:
        found = Listed(code, self.place(parts), why)
        if found not in self._known:
            self._known.add(found)
            self.listed.append(found)

    def entries(self, parts: Parts) -> tuple[Entry, ...]:
        """By name; empty, and listed, when it cannot be looked at."""
        if parts not in self._looked:
            if len(self._looked) >= MAX_FOLDERS:
                raise Refused(f"{self.root}: more than {MAX_FOLDERS} folders: give the folder of one run")
            self._looked[parts] = tuple(self._look(parts))
        return self._looked[parts]

    def _look(self, parts: Parts) -> list[Entry]:
        try:
            with open_folder(self.root) as root, open_subfolder(root, parts, self.place(parts)) as folder, os.scandir(folder) as listing:
                found: list[Entry] = []
                for entry in listing:
                    if len(found) == MAX_NAMES:
                        self.note(TOO_MANY, parts, f"more than {MAX_NAMES} entries: none of them was looked at")
                        return []
                    try:
                        status = os.stat(entry.name, dir_fd=folder, follow_symlinks=False)
                    except FileNotFoundError:  # removed since it was listed; the rest of the folder is there all the same
                        continue
                    found.append(Entry(entry.name, kind_of(status.st_mode), status.st_uid, status.st_size))
        except FileNotFoundError:
            return []
        except OSError as error:
            self.note(UNREADABLE, parts, f"cannot be looked at: {error.strerror}")
            return []
        except ArtifactError as error:
            self.note(UNREADABLE, parts, error.detail)
            return []
        return sorted(found, key=lambda entry: entry.name)

    def folders(self, parts: Parts) -> list[Entry]:
        """Folders below; links and other things in their place are listed."""
        found = []
        for entry in self.entries(parts):
            if entry.kind == FOLDER and _is_text(entry.name):
                found.append(entry)
            elif entry.kind == FOLDER:
                self.note(UNREADABLE, (*parts, os.fsencode(entry.name).decode(errors="backslashreplace")), "its name is not UTF-8")
            elif entry.kind == LINK:
                self.note("link", (*parts, entry.name), "a symbolic link, not followed")
            elif entry.kind != FILE:
                self.note("no_file", (*parts, entry.name), f"a {entry.kind}")
        return found

    def has(self, parts: Parts, name: str, kind: str = FILE) -> bool:
        return any(entry.name == name and entry.kind == kind for entry in self.entries(parts))

    def read(self, parts: Parts, max_bytes: int = MAX_JSON_BYTES) -> bytes | None:
        """None: absent, or it could not be read and is listed."""
        if all(entry.name != parts[-1] for entry in self.entries(parts[:-1])):
            return None
        try:
            return read_bounded(self.root, "/".join(parts), max_bytes)
        except ArtifactError as error:
            self.note(UNREADABLE, parts, f"{error.detail} ({error.code})")
            return None
        except OSError as error:
            self.note(UNREADABLE, parts, str(translate("", error).detail))
            return None

    def table(self, parts: Parts) -> tuple[dict[str, Any] | None, bytes]:
        """The object of a JSON file, and its bytes; None: absent, or no whole object, and then it is listed."""
        data = self.read(parts)
        if data is None:
            return None, b""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self.note("half_written", parts, f"no whole JSON object ({len(data)} bytes)")
            return None, data
        return value, data


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def owner_name(uid: int) -> str:
    """``ana (uid 1000)``, or the number alone."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
