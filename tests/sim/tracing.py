"""What happened in a seed, step by step: (virtual ms, life, what), and a digest over all of it.

Owns the record alone.  Two runs of a seed are the same run if their digests are.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar

LIFE: ContextVar[int] = ContextVar("life", default=0)
"""Number of the daemon life whose task this is; 0: the world outside."""

KEPT = 400


class Trace:
    """:param now_ms: virtual time.  :param say: is given each line as it comes; None: nobody listens.
    :param hide: path of the seed's folder; it and the folder that it lies in differ from process to process.
    """

    def __init__(self, now_ms: Callable[[], int], hide: str, say: Callable[[str], None] | None = None) -> None:
        self._now_ms, self._say = now_ms, say
        self._hide, self._around = hide, hide.rpartition("/")[0]
        self._digest = hashlib.sha256()
        self.steps = 0
        self.last: deque[str] = deque(maxlen=KEPT)
        """The newest lines, for a report."""

    def add(self, what: str) -> None:
        line = f"{self._now_ms():>9} L{LIFE.get()} {what}"
        if self._around in line:
            line = self._hidden(line)
        self.steps += 1
        self._digest.update(line.encode())
        self.last.append(line)
        if self._say is not None:
            self._say(line)

    def aside(self, what: str) -> None:
        """Shown and kept out of the digest: words of the product's own log."""
        if self._say is not None:
            self._say(f"{self._now_ms():>9} L{LIFE.get()}   {self._hidden(what)}")

    def _hidden(self, text: str) -> str:
        return text.replace(self._hide, "~").replace(self._around, "^")

    @property
    def listened(self) -> bool:
        return self._say is not None

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
