"""Which of the provider's answers are waited out, for how long, and when the client is told to come back instead.

Pure.  One policy for every trial (faults a01, a05): 429, 5xx and connections that fail before the first byte are all waited out; a spent
account is not, because no waiting mends it.  Must not know trials, arms or sockets.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from marathond.core.requests import USAGE_LIMIT

RETRY_AFTER_AT_MOST_MS = 24 * 3_600_000
Verdict = Literal["pass", "wait", "usage_limit"]


@dataclass(frozen=True, slots=True)
class Policy:
    """``hold_ms`` must stay below the client's own idle limit (codex: 300 s), so that holding never looks like a dead stream.

    ``jitter``: the share of a back-off that is left to chance, so that held requests do not all return at one instant.
    """

    hold_ms: int = 240_000
    first_ms: int = 500
    at_most_ms: int = 30_000
    jitter: float = 0.25
    retry_after_s: int = 5
    retry_after_at_most_s: int = 60


def verdict(status: int | None, error_code: str | None) -> Verdict:
    """What to do with an answer; ``status`` None means that no first byte came (connection refused, reset, cut, timed out)."""
    if error_code in USAGE_LIMIT and status in (402, 403, 429):
        return "usage_limit"
    return "wait" if status is None or status in (408, 429) or status >= 500 else "pass"


def error_code(body: bytes) -> str | None:
    """``error.code`` or ``error.type`` of an error answer: the one that names a spent account, else the first there is; None without."""
    try:
        parsed: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if not isinstance(error, dict):
        return None
    words = [word for word in (error.get("code"), error.get("type")) if isinstance(word, str)]
    return next((word for word in words if word in USAGE_LIMIT), words[0][:64] if words else None)


def retry_after_ms(headers: dict[str, str], wall_ms: int) -> int | None:
    """``retry-after-ms`` or ``Retry-After`` (seconds or a date, RFC 9110) by lower-case name; None when absent or unreadable."""
    for name, scale in (("retry-after-ms", 1), ("retry-after", 1000)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            wait_ms = float(value) * scale
        except ValueError:
            try:
                wait_ms = parsedate_to_datetime(value).timestamp() * 1000 - wall_ms
            except (ValueError, OverflowError):
                continue
        if math.isfinite(wait_ms):
            return min(max(0, math.ceil(wait_ms)), RETRY_AFTER_AT_MOST_MS)
    return None


def wait_ms(policy: Policy, failures: int, asked_ms: int | None, chance: float) -> int:
    """Wait before the next attempt: what the provider asked for, else doubling from ``first_ms``; ``chance`` lies in [0, 1)."""
    if asked_ms is not None:
        return asked_ms
    doubled: int = min(policy.at_most_ms, policy.first_ms * 2 ** min(max(0, failures - 1), 30))
    return round(doubled * (1 - policy.jitter * chance))


def come_back_s(policy: Policy, wait_left_ms: int) -> int:
    """``Retry-After`` for a request that was held long enough, in whole seconds."""
    return min(policy.retry_after_at_most_s, max(policy.retry_after_s, math.ceil(wait_left_ms / 1000)))
