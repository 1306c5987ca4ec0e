"""What an event of a trial says, in the same words wherever it is told: ``tail``, ``history``, ``top``, the page.

Owns what stands behind the event's name.  When it was, and whose, is the caller's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marathond.core.names import REACHED_INTO
from marathond.core.text import clean, fields, number, span

TEXT_MAX = 300


def why_words(author: str | None, text: str) -> str:
    """`` by ana: provider outage``; empty: nobody said."""
    return (f" by {clean(author)}" if author else "") + (f": {clean(text, TEXT_MAX)}" if text else "")


def event_words(event: str, name: str, why: str, detail: Mapping[str, Any]) -> str:
    """Behind ``scored``: ``reward 0.25, partial 0.48``.

    :param name: the code of a void or a review.  :param why: as :func:`why_words` makes it.
    """
    if event in ("voided", "unvoided", "doubted"):
        known = "; its score was known" if event == "voided" and detail.get("score_was_known") else ""
        return f"{clean(name)}{why}{known}"
    if event in ("scored", "accepted", "regraded"):
        partial = "" if detail.get("partial") is None else f", partial {number(detail['partial'])}"
        return f"reward {number(detail.get('reward'))}{partial}{why}"
    if event in ("agent_ended", "budget_spent"):
        code = "" if detail.get("exit_code") is None else f", exit {detail['exit_code']}"
        return f"{clean(detail.get('ended_by', ''))}{code}"
    if event == "agent_started":
        limit = "no limit" if detail.get("limit_ms") is None else f"limit {span(detail['limit_ms'])}"
        return f"{limit} ({clean(detail.get('limit_origin', ''))})"
    if event == REACHED_INTO:
        return why.strip()
    if event == "reserved":
        return f"attempt {detail.get('attempt', '-')}"
    return fields({key: value for key, value in detail.items() if key != "attempt"})
