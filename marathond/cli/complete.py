"""Tab completion of values: trials, cells, blocks, campaigns, arms, tasks, findings, codes, knobs, schemas.

Owns what is offered, and that asking harms nothing: the ledger is read without a lock, a migration or a write, within :data:`LOOK_S`, and
whatever goes wrong offers nothing and says nothing.  Must stay light: a person waits for it at every tab.  How shells ask is tab.py's.

A shell evaluates what it is offered (zsh does so twice), so only values and words of plain characters are: a task's name is somebody
else's text.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import typer

from marathond.cli.locate import locate
from marathond.core.errors import MarathonError
from marathond.ledger.connect import connect

OFFERED = 60
"""Values at one time: the newest ones, or the first by name."""
LOOK_S = 0.4
BUSY_MS = 100

PLAIN = re.compile(r"[A-Za-z0-9._:@%+,/=-]+")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._@%+,/=-]+")
HELP_MAX = 60

Offer = list[tuple[str, str]]
Completer = Callable[[typer.Context, str], Offer]


# ── the ledger, without leaving a trace ──


@contextlib.contextmanager
def _looking(ctx: typer.Context) -> Iterator[sqlite3.Connection]:
    """:raises MarathonError, OSError, sqlite3.Error: there is nothing to look at."""
    config = ctx.find_root().params.get("config")
    path = Path(os.path.realpath(locate(config).paths.ledger))
    log, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    logged = log.exists() and log.stat().st_size > 0
    if logged and not shared.exists():
        raise FileNotFoundError(shared)  # reading would have to make it
    # Without a log nobody has it open: as it lies there, SQLite would make both files again only for this look.
    with closing(connect(path, mode="ro", immutable=not shared.exists(), busy_ms=BUSY_MS)) as c:
        until = time.monotonic() + LOOK_S
        c.set_progress_handler(lambda: int(time.monotonic() > until), 2_000)
        yield c


def _asked(ctx: typer.Context, incomplete: str, sql: str, **params: Any) -> Offer:
    """(value, words) of a question that knows ``:prefix`` and ``:campaign``, the number of the one that is meant."""
    try:
        with _looking(ctx) as c:
            name = ctx.params.get("campaign")
            chosen = c.execute(
                "SELECT campaign_id FROM campaign WHERE ?1 IS NULL OR name = ?1 ORDER BY origin = 'run' DESC, campaign_id DESC LIMIT 1",
                (name,),
            ).fetchone()
            known = {"prefix": f"{_literal(incomplete)}*", "campaign": None if chosen is None else chosen[0], "most": OFFERED, **params}
            rows = c.execute(f"{sql} LIMIT :most", known).fetchall()
    except (MarathonError, OSError, sqlite3.Error, ValueError):
        return []
    return plain((str(row[0]), str(row[1] or "")) for row in rows)


def _literal(text: str) -> str:
    """For GLOB."""
    return re.sub(r"([*?\[])", r"[\1]", text)


def plain(offers: Iterable[tuple[str, str]]) -> Offer:
    """Only what no shell can take for anything else."""
    return [(value, _NOT_PLAIN.sub(" ", words).strip()[:HELP_MAX]) for value, words in offers if PLAIN.fullmatch(value)]


# ── what is offered ──


def _trials(where: str) -> Completer:
    """Newest first; their ids as they are typed, with or without the letter."""

    def complete(ctx: typer.Context, incomplete: str) -> Offer:
        label = "CAST(trial_id AS TEXT)" if incomplete[:1].isdigit() else "printf('t%04d', trial_id)"
        sql = f"""SELECT {label}, task.name || ' ' || arm.name || ' ' || trial.state
                  FROM trial CROSS JOIN cell ON cell.cell_id = trial.cell_id JOIN task ON task.task_id = cell.task_id
                      JOIN arm ON arm.arm_id = cell.arm_id
                  WHERE {label} GLOB :prefix AND {where} ORDER BY trial_id DESC"""
        return _asked(ctx, incomplete.lower(), sql)

    return complete


trials = _trials("TRUE")
live_trials = _trials("trial.state IN ('reserved', 'preparing', 'running', 'verifying')")
standing_trials = _trials("trial.state <> 'voided'")
voided_trials = _trials("trial.state = 'voided'")
doubtful_trials = _trials("trial.state = 'review'")


def _sql(sql: str) -> Completer:
    return lambda ctx, incomplete: _asked(ctx, incomplete, sql)


parked_cells = _sql(
    """SELECT printf('c%04d', park.cell_id), code || ' ' || task.name || ' ' || arm.name
       FROM park JOIN cell ON cell.cell_id = park.cell_id JOIN task ON task.task_id = cell.task_id JOIN arm ON arm.arm_id = cell.arm_id
       WHERE ended_at_ms IS NULL AND printf('c%04d', park.cell_id) GLOB :prefix ORDER BY park.cell_id"""
)
blocks = _sql(
    """SELECT printf('b%04d', block.block_id), task.name || ' replicate ' || block.replicate
       FROM block JOIN task ON task.task_id = block.task_id
       WHERE printf('b%04d', block.block_id) GLOB :prefix AND block.campaign_id IS :campaign
           AND EXISTS (SELECT 1 FROM cell JOIN trial ON trial.cell_id = cell.cell_id WHERE cell.block_id = block.block_id)
       ORDER BY block.block_id DESC"""
)
batches = _sql(
    """SELECT batch, count(*) || ' voided ' || max(code) FROM void
       WHERE undone_at_ms IS NULL AND decided_by = 'operator' AND batch GLOB :prefix GROUP BY batch ORDER BY max(void_id) DESC"""
)
campaigns = _sql("SELECT name, origin FROM campaign WHERE name GLOB :prefix ORDER BY campaign_id DESC")
arms = _sql("SELECT name, kind FROM arm WHERE campaign_id IS :campaign AND name GLOB :prefix ORDER BY position")
tasks = _sql("SELECT name, '' FROM task WHERE campaign_id IS :campaign AND name GLOB :prefix ORDER BY name")
findings = _sql(
    """SELECT finding_id, severity || ' ' || code || ' ' || subject FROM finding
       WHERE closed_at_ms IS NULL AND CAST(finding_id AS TEXT) GLOB :prefix ORDER BY finding_id DESC"""
)
finding_codes = _sql(
    """SELECT code, count(*) || ' open ' || max(severity) FROM finding
       WHERE closed_at_ms IS NULL AND code GLOB :prefix GROUP BY code ORDER BY code"""
)
void_codes = _sql("SELECT code, explanation FROM void_code WHERE side = 'operator' AND code GLOB :prefix ORDER BY code")
authors = _sql(
    """SELECT DISTINCT author, '' FROM (
           SELECT author FROM void UNION SELECT author FROM setting_change UNION SELECT author FROM admission_stop
           UNION SELECT acked_by FROM finding UNION SELECT created_by FROM campaign) WHERE author GLOB :prefix ORDER BY author"""
)


def pairs(ctx: typer.Context, incomplete: str) -> Offer:
    """``A,B`` as ``report --contrast`` takes it; whole pairs, so that the shell stops behind the comma and not behind a blank."""
    known = [name for name, _ in arms(ctx, "") if "," not in name]
    every = [(f"{a},{b}", f"{a} minus {b}") for a in known for b in known if a != b]
    return [offer for offer in every if offer[0].startswith(incomplete)][:OFFERED]


def _either(*completers: Completer) -> Completer:
    return lambda ctx, incomplete: [offer for each in completers for offer in each(ctx, incomplete)][:OFFERED]


trials_or_cells = _either(parked_cells, trials)
numbers_or_codes = _either(findings, finding_codes)
subjects = _either(arms, tasks, trials)


def codes(_: typer.Context, incomplete: str) -> Offer:
    """Of everything that ``explain`` knows."""
    from marathond.cli.explain import known

    return plain({each.code: each.means for each in known() if each.code.startswith(incomplete)}.items())


def schemas(ctx: typer.Context, incomplete: str) -> Offer:
    """Of names of schemas the word that is being typed: some have two, as ``ledger check``."""
    from marathond.cli.schema_forms import about, names

    typed = tuple(ctx.params.get("command") or ())
    found: dict[str, str] = {}
    for name in names():
        words = tuple(name.split())
        if words[: len(typed)] == typed and len(words) > len(typed) and words[len(typed)].startswith(incomplete):
            found.setdefault(words[len(typed)], about(name) if len(words) == len(typed) + 1 else f"{' '.join(words[: len(typed) + 1])} ...")
    return plain(found.items())


def knobs(ctx: typer.Context, incomplete: str) -> Offer:
    """``concurrency=8``, as it is now, and ``concurrency=default``: two of them, so that the shell stops behind the sign."""
    from marathond.service.knobs import KNOBS, short_name

    key, sign, _ = incomplete.partition("=")
    now = _knobs_now(ctx)
    found = []
    for knob in KNOBS.values():
        for name in (short_name(knob.key), knob.key):
            if sign and name != key:
                continue
            values = knob.choices or (str(now.get(knob.key, knob.default)),)
            found += [(f"{name}={value}", knob.effect) for value in (*values, "default")]
    return plain(offer for offer in found if offer[0].startswith(incomplete))


def _knobs_now(ctx: typer.Context) -> dict[str, Any]:
    """As the daemon said them last; empty: unknown."""
    import json

    try:
        with _looking(ctx) as c:
            row = c.execute("SELECT value_json FROM observation WHERE key = 'limits'").fetchone()
        found = {} if row is None else json.loads(row[0])
    except (MarathonError, OSError, sqlite3.Error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
