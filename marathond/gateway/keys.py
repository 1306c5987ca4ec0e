"""The provider's real key: read from its file, read again when the file changes, shown to nobody.

Owns reading, rotation and redaction.  The key never enters an exception, a repr or a log.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

KEY_BYTES_AT_MOST = 8192
REDACTED = b"[key removed]"


class KeyUnavailable(Exception):
    """The key's file cannot be used now; ``str()`` names the file and why, never its content."""


class KeyFile:
    """One key.  A rotation (a file renamed over, or written in place) counts from the next request on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._key = ""

    def __repr__(self) -> str:
        return f"KeyFile({self._path})"

    def current(self) -> str:
        """The key as it stands in the file now; one ``stat`` unless it changed.

        :raises KeyUnavailable: unreadable, empty, too large, or not one line of printable ASCII.
        """
        try:
            stat = self._path.stat()
            signature = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if signature != self._seen:
                with self._path.open("rb") as file:
                    raw = file.read(KEY_BYTES_AT_MOST + 1)
                self._key = _one_line(self._path, raw)
                self._seen = signature
        except OSError as err:
            raise KeyUnavailable(f"{self._path}: {err.strerror}") from None
        return self._key

    def problem(self) -> str:
        """Why there is no key now; empty when there is one."""
        try:
            self.current()
        except KeyUnavailable as err:
            return str(err)
        return ""

    def redact(self, raw: bytes) -> bytes:
        """``raw`` without the key that was last read."""
        return raw.replace(self._key.encode(), REDACTED) if self._key else raw


def _one_line(path: Path, raw: bytes) -> str:
    text = raw.strip()
    if not text or len(raw) > KEY_BYTES_AT_MOST or any(not 0x21 <= byte <= 0x7E for byte in text):
        raise KeyUnavailable(f"{path}: must hold one line of printable ASCII, at most {KEY_BYTES_AT_MOST} bytes")
    return text.decode("ascii")


def same_key(given: str, expected_sha256: str) -> bool:
    """Compare a dummy key with its hash, in constant time."""
    return hmac.compare_digest(hashlib.sha256(given.encode("utf-8", "surrogateescape")).hexdigest(), expected_sha256)


def given_key(headers: dict[str, str]) -> str:
    """The key a client sent, by lower-case header name; empty when it sent none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", headers.get("api-key", ""))
