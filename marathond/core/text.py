"""Text fit to be shown: foreign words made harmless, durations, instants.

Owns how values look in tables, logs and messages.  Must not know terminals, colours or locales.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SEQUENCES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clear
    # OSC and other strings: titles, links, clipboard.  One that begins ends the one before: a text of nothing but beginnings is read once.
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n\x9d\x90\x98\x9e\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"  # every other escape
)
_BLANKS = frozenset("\t\n\v\f\r\x85\u2028\u2029")
_FORMULA = frozenset("=+-@")
_JOINERS = frozenset("\u200c\u200d")
_SCAN_FACTOR = 16
_URL = re.compile(r"(https?)://(?:[^/?#\s]*@)?(\[[0-9A-Fa-f:.]+\]|[^/:@?#\[\s]+)(?=[:/?#]|$)")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400

_ENGINE_ID = re.compile("[0-9a-f]{64}")
ID_SHOWN = 12

UNKNOWN = "unknown"
LINE_MAX = 500
"""Characters of one foreign value in one line."""


def printable(text: str, max_len: int) -> str:
    """``text`` as one line without anything that could steer a terminal or reorder its neighbours, at most ``max_len`` characters.

    Escape sequences (CSI, OSC and the like, 7 and 8 bit), control characters, bidirectional overrides and invisible format characters
    go; line breaks become spaces; lone surrogates become U+FFFD; a cut is marked with an ellipsis.  Work is bounded by ``max_len``.
    """
    if max_len <= 0:
        return ""
    head = text[: max_len * _SCAN_FACTOR + 256]
    shown = "".join(map(_harmless, _SEQUENCES.sub("", head)))
    shown = " ".join(shown.split())
    if len(shown) > max_len or (len(head) < len(text) and shown):
        return shown[: max_len - 1].rstrip() + "…"
    return shown


def csv_text(text: str) -> str:
    """``text`` for a field of a CSV: harmless as by :func:`printable`, but whole and with its blanks; no formula for a spreadsheet.

    What begins like a formula is preceded by an apostrophe; full-width signs, too, which a spreadsheet set to an East Asian language takes
    for the plain ones.
    """
    shown = "".join(map(_harmless, _SEQUENCES.sub("", text)))
    return f"'{shown}" if unicodedata.normalize("NFKC", shown.lstrip()[:1]) in _FORMULA else shown


def _harmless(character: str) -> str:
    if character in _BLANKS:
        return " "
    match unicodedata.category(character):
        case "Cs":
            return "\ufffd"
        case "Cc" | "Cn":
            return ""
        case "Cf":
            return character if character in _JOINERS else ""
        case _:
            return character


def duration(seconds: float) -> str:
    """``12s``, ``4m02s``, ``3h41m``, ``12d07h``: two units, cut not rounded; ``unknown`` for what is no finite number."""
    if not math.isfinite(seconds):
        return "unknown"
    sign, whole = ("-" if seconds <= -1 else ""), int(abs(seconds))
    if whole < _MINUTE_S:
        return f"{sign}{whole}s"
    if whole < _HOUR_S:
        return f"{sign}{whole // _MINUTE_S}m{whole % _MINUTE_S:02d}s"
    if whole < 4 * _DAY_S:
        return f"{sign}{whole // _HOUR_S}h{whole % _HOUR_S // _MINUTE_S:02d}m"
    return f"{sign}{whole // _DAY_S}d{whole % _DAY_S // _HOUR_S:02d}h"


def hidden_url(url: str | None) -> str | None:
    """``https://hooks.example.org/…``: scheme and host alone; user, port, path and query may be secrets."""
    if url is None:
        return None
    match = _URL.match(url)
    return f"{match[1]}://{match[2]}/…" if match else "…"


def iso_utc(ms: int) -> str:
    """Milliseconds since 1970 as ``2026-11-29T15:07:30.123Z``.

    :raises OverflowError: beyond the year 9999.
    """
    instant = _EPOCH + timedelta(milliseconds=ms)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03d}Z"


def clean(value: object, max_len: int = LINE_MAX) -> str:
    """One line without anything that steers a terminal, whoever wrote it."""
    return printable(str(value), max_len)


def span(milliseconds: float | None) -> str:
    """``6h12m``, ``4m02s``, ``9s``; ``-`` for nothing."""
    return "-" if milliseconds is None else duration(max(0.0, milliseconds) / 1000)


def when(at_ms: int | None) -> str:
    """ISO-8601 UTC to the second, as the ledger's views show it."""
    return "-" if at_ms is None else iso_utc(at_ms)[:19] + "Z"


def clock(at_ms: int, now_ms: int) -> str:
    """``14:02:11Z`` within the last twenty hours, else the whole date."""
    return when(at_ms)[11:] if 0 <= now_ms - at_ms < 20 * 3_600_000 else when(at_ms)


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def of_known(text: str, known: int, done: int) -> str:
    """``0.48 of 3`` where a mean is over fewer than all ``done`` cells: beside one over all of them it would be read as theirs, too."""
    return f"{text} of {known}" if 0 < known < done else text


def plural(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def text_of(value: Any, max_len: int = LINE_MAX) -> str:
    """A field of a row as one clean line; ``-`` for nothing, ``yes`` and ``no``."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None or value == "" else clean(value, max_len)


def fields(detail: Mapping[str, Any], max_len: int = 80) -> str:
    """``key value, key value`` of all that is there; an engine's id as short as its own commands show it."""
    shown = {key: value[:ID_SHOWN] if isinstance(value, str) and _ENGINE_ID.fullmatch(value) else value for key, value in detail.items()}
    return ", ".join(f"{clean(key)} {text_of(value, max_len)}" for key, value in shown.items() if value not in (None, "", [], {}))
