"""What may be staged: the grammar of versions and integrity hashes, the oldest codex, the one known by default.

Pure, light and free of the network: the configuration's models import it.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from pathlib import Path

OLDEST = "0.171.0"
"""Older ones lack what the client relies on; the facts were measured on this one."""

DEFAULT_VERSION = "0.171.0"

KNOWN = {
    "0.171.0": "sha512-l66NZkQgdk2C3pbcfULDz42yEUB581MVA6I+Y43Wp4OIqEy73HCdmZ0GTjeAHY2ycuH4N00d9VsLrwT1jxshTw==",
}
"""SRI of ``@openai/codex@VERSION-linux-x64`` by version: the defaults of ``codex.integrity``."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9a-z]+(?:\.[0-9a-z]+)*))?")
_DIGEST_BYTES = {"sha512": 64, "sha256": 32}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the configuration asks for.

    :param name: the package, ``codex``.
    :param version: exact, ``0.171.0``.
    :param integrity: SRI of the package's tarball, ``sha512-…``; with ``folder`` None, or ``sha256-…`` of the tree itself.
    :param folder: a local tree with ``bin/codex`` instead of the package.
    """

    name: str
    version: str
    integrity: str | None
    folder: Path | None


def version_problem(version: str) -> str | None:
    """Why this version cannot be staged, as words that end an error line; None when it can."""
    if _parsed(version) is None:
        return f"must be one exact version such as {DEFAULT_VERSION}"
    return f"codex must be at least {OLDEST}" if is_older(version, OLDEST) else None


def is_older(version: str, than: str) -> bool:
    """A pre-release comes before its release; two of them by their parts.  Both must be versions."""
    first, second = _parsed(version), _parsed(than)
    assert first is not None and second is not None, (version, than)
    return first < second


def _parsed(version: str) -> tuple[int, int, int, bool, tuple[tuple[bool, int, str], ...]] | None:
    match = _VERSION.fullmatch(version)
    if match is None:
        return None
    parts = tuple((not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in (match[4] or "").split("."))
    return int(match[1]), int(match[2]), int(match[3]), match[4] is None, parts


def integrity_problem(integrity: str, *, from_folder: bool) -> str | None:
    """Why this is no hash for that source; None when it is."""
    wanted, what = ("sha256", "the tree's hash as marathonctl stage prints it") if from_folder else ("sha512", "the package's hash")
    kind, _, digest = integrity.partition("-")
    if kind != wanted:
        return f"must be {what}, {wanted}-…"
    try:
        length = len(base64.b64decode(digest, validate=True))
    except (binascii.Error, ValueError):
        length = -1
    return None if length == _DIGEST_BYTES[kind] else f"must be {what}, {kind}- and {_DIGEST_BYTES[kind]} bytes in base64"


def sri(kind: str, digest: bytes) -> str:
    """``sha512-…``, as npm writes it."""
    return f"{kind}-{base64.b64encode(digest).decode()}"
