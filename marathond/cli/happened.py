"""What happened, in words and as JSON, and whose it is: what ``tail`` and ``history`` share.

Owns the line.  Must not decide what happened or in which order: :mod:`marathond.ledger.verbs.happened` does.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from marathond.core.names import block_label, cell_label, trial_label
from marathond.core.text import clean, plural, when
from marathond.ledger.verbs.happened import Happening
from marathond.ledger.verbs.happened_sources import Of
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.event_words import event_words, why_words
from marathond.service.picture.reader import campaign_id, check_trial, number_of, trial_number


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happened, for ``--json``; see :class:`~marathond.ledger.verbs.happened.Happening`.  ``key`` names it for ever."""

    key: str
    at: str
    at_ms: int
    kind: str
    what: str
    name: str
    author: str | None
    text: str
    campaign: str | None
    trial: str | None
    task: str | None
    arm: str | None
    replicate: int | None
    cells: int | None
    life: int | None
    detail: dict[str, Any]


def line(one: Happening) -> Line:
    trial = None if one.trial_id is None else trial_label(one.trial_id)
    place = (one.campaign, trial, one.task, one.arm, one.replicate, one.cells, one.life or None)
    return Line(one.key, when(one.at_ms), one.at_ms, one.kind, one.what, one.name, one.author, one.text, *place, one.detail)


def words(one: Happening) -> str:
    """``2026-09-21T14:13:20Z  t0871  voided operator by ana: provider outage  (zstd-decoder, plain, replicate 2)``."""
    return f"{when(one.at_ms)}  {_SAID[one.kind](one)}"


def why(one: Happening) -> str:
    return why_words(one.author, one.text)


def _trial(one: Happening) -> str:
    said = event_words(one.what, one.name, why(one), one.detail)
    where = f"({clean(one.task)}, {clean(one.arm)}, replicate {one.replicate})"
    return f"{trial_label(one.trial_id or 0)}  {clean(one.what)}{f' {said}' if said else ''}  {where}"


def _finding(one: Happening) -> str:
    said = f"{clean(one.detail['severity'])} {clean(one.name)} {clean(one.detail['subject'])}"
    return f"finding {one.detail['finding_id']}  {one.what} {said}{why(one)}"


def _stop(one: Happening) -> str:
    if one.what == "ended":
        return f"admission  {clean(one.name)} ended{why(one)}"
    return f"admission  closed, {clean(one.name)}{why(one)}"


def _setting(one: Happening) -> str:
    old, new = (json.loads(one.detail[key]) for key in ("old_json", "new_json"))
    return f"setting  {clean(one.name)} {_value(old)} -> {'back to the configuration' if new is None else _value(new)}{why(one)}"


def _value(value: object) -> str:
    return "-" if value is None else clean(value)


def _park(one: Happening) -> str:
    cells = cell_label(one.detail["cell_id"]) if one.cells == 1 else plural(one.cells or 0, "cell")
    place = f"{clean(one.task)}, {clean(one.arm)}, replicate {one.replicate}" if one.cells == 1 else clean(one.task)
    return f"{one.what}  {cells} {clean(one.name)}{why(one)}  ({place})"


def _archive(one: Happening) -> str:
    size = f"{plural(one.detail['files'], 'file')}, {one.detail['size_bytes']} bytes"
    return f"{trial_label(one.trial_id or 0)}  {one.what.replace('_', ' ')} {clean(one.detail['file'])} ({size}){_why_not_file(one)}"


def _why_not_file(one: Happening) -> str:
    return f" by {clean(one.author)}" if one.what == "archived" else why(one)


def _prune(one: Happening) -> str:
    whose = "pruned" if one.trial_id is None else f"{trial_label(one.trial_id)}  pruned"
    return f"{whose} {clean(one.name)} {clean(one.detail['path'])} ({plural(one.detail['files'], 'file')}){why(one)}"


def _daemon(one: Happening) -> str:
    detail = one.detail
    if one.what == "started":
        return f"marathond  life {one.life} started, {clean(detail['version'])}, pid {detail['pid']} on {clean(detail['host'])}"
    if one.what == "lost":
        whose = f" ({clean(one.text)})" if one.text else ""  # a command that wrote while no daemon did
        seen = f"last seen {when(detail['seen_at_ms'])}"
        return f"marathond  life {one.life}{whose} ended without a word (killed, or the host went down), {seen}"
    return f"marathond  life {one.life} {one.what}{why(one)}"


def _campaign(one: Happening) -> str:
    return f"campaign  {clean(one.name)} {one.what}{why(one)}"


def _contrasts(one: Happening) -> str:
    known = plural(one.detail["scores_known"], "score")
    return f"contrasts  declared, version {one.detail['version']}, with {known} known{why(one)}  ({clean(one.campaign)})"


def _import(one: Happening) -> str:
    return f"import  {plural(one.detail['planned'], 'trial')} ({clean(one.name)}){why(one)}  ({clean(one.campaign)})"


_SAID = {
    "trial": _trial,
    "score": _trial,
    "finding": _finding,
    "stop": _stop,
    "setting": _setting,
    "park": _park,
    "archive": _archive,
    "prune": _prune,
    "daemon": _daemon,
    "campaign": _campaign,
    "contrasts": _contrasts,
    "import": _import,
}


# ── whose ──


def of_filters(c: sqlite3.Connection, campaign: str | None, arm: str | None, task: str | None, trial: str | None) -> Of:
    """:raises CallFailed: exit 2, there is no such campaign, arm, task or trial; with the names there are."""
    number = None if campaign is None else campaign_id(c, campaign)
    chosen = None if number is None else number[0]
    for table, name in (("arm", arm), ("task", task)):
        if name is not None:
            check_name(c, table, name, chosen)
    if trial is None:
        return Of(chosen, arm, task)
    trial_id = trial_number(trial)
    check_trial(c, trial_id)
    cell_id = c.execute("SELECT cell_id FROM trial WHERE trial_id = ?", (trial_id,)).fetchone()[0]
    return Of(chosen, arm, task, (trial_id,), (cell_id,))


def of_subject(c: sqlite3.Connection, subject: str, campaign: str | None) -> tuple[Of, str]:
    """A trial, cell, block, task or arm as somebody typed it, and what it is.

    :raises CallFailed: exit 2, there is none.
    """
    kind, chosen = subject[:1].lower(), None if campaign is None else campaign_id(c, campaign)
    number = None if chosen is None else chosen[0]
    if _named(c, "task", subject, number):  # it may be called t1
        return Of(number, task=subject), f"task {subject}"
    if _named(c, "arm", subject, number):
        return Of(number, arm=subject), f"arm {subject}"
    if kind not in "tcb" or not subject[1:].isdigit():
        raise CallFailed(f"history: no trial, cell, block, task or arm {clean(subject)} in this ledger", Exit.USAGE)
    if kind == "t":
        trial_id = trial_number(subject)
        check_trial(c, trial_id)
        return of_filters(c, campaign, None, None, subject), f"trial {trial_label(trial_id)}"
    column, said = ("cell_id", "cell") if kind == "c" else ("block_id", "block")
    wanted = number_of(subject, kind, f"a {said} such as {kind}0012")
    cells = tuple(row[0] for row in c.execute(f"SELECT cell_id FROM cell WHERE {column} = ? ORDER BY cell_id", (wanted,)).fetchall())
    label = (cell_label if kind == "c" else block_label)(wanted)
    if not cells:
        raise CallFailed(f"no {said} {label} in this ledger", Exit.USAGE)
    sql = "SELECT trial_id FROM trial WHERE cell_id IN (SELECT value FROM json_each(?)) ORDER BY trial_id"
    trials = tuple(row[0] for row in c.execute(sql, (json.dumps(cells),)).fetchall())
    return Of(number, trials=trials, cells=cells), f"{said} {label}"


def check_name(c: sqlite3.Connection, table: str, name: str, campaign: int | None) -> None:
    """:raises CallFailed: exit 2, no arm or task of that name; with the names there are."""
    if _named(c, table, name, campaign):
        return
    sql = f"SELECT DISTINCT name FROM {table} WHERE ?1 IS NULL OR campaign_id = ?1 ORDER BY name LIMIT 10"
    known = [clean(row[0]) for row in c.execute(sql, (campaign,)).fetchall()]
    there = f"there are: {', '.join(known)}" + (", …" if len(known) == 10 else "") if known else "there is none yet"
    raise CallFailed(f"no {table} {clean(name)}; {there}", Exit.USAGE)


def _named(c: sqlite3.Connection, table: str, name: str, campaign: int | None) -> bool:
    sql = f"SELECT 1 FROM {table} WHERE name = ?2 AND (?1 IS NULL OR campaign_id = ?1)"
    return c.execute(sql, (campaign, name)).fetchone() is not None
