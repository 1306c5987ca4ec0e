"""``marathonctl notify``: who would be told, whether that works, and what was told.

Owns the layout.  The test needs neither daemon nor ledger and records nothing.
"""

from __future__ import annotations

import getpass
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anyio

from marathond.cli.output import note, print_json, say
from marathond.core.notices import Notice
from marathond.core.text import clean, when
from marathond.ledger.verbs.notices import NoticeRow, newest_notices
from marathond.service.channels import Answer, channels_of
from marathond.service.notices import message_of
from marathond.service.picture.reader import reading
from marathond.service.protocol import Exit
from marathond.service.settings import Settings

SHOWN = 20


def test(settings: Settings, now_ms: int, *, as_json: bool) -> int:
    """Send a message over every channel, once; 1 when one of them did not take it, or there is none."""
    channels = channels_of(settings.notify)
    if not channels:
        note("notify: nobody is told: set command or webhook in [notify]")
        return Exit.FAILED
    notice = Notice("test", "test", "this is a test", f"sent by {getpass.getuser()} with marathonctl notify --test")
    message = message_of(notice, campaign=settings.campaign.name, ledger_id="", now_ms=now_ms)

    async def tell() -> list[tuple[str, Answer]]:
        return [(channel.name, await channel.tell(message)) for channel in channels]

    answers = anyio.run(tell)
    if as_json:
        print_json([{"channel": name, **asdict(answer)} for name, answer in answers])
    else:
        for name, answer in answers:
            say(f"{name}: {'told' if answer.ok else 'FAILED'}: {clean(answer.words)}")
    return Exit.OK if all(answer.ok for _, answer in answers) else Exit.FAILED


def show(ledger: Path, *, as_json: bool) -> int:
    """What was told, newest first; 1 when something could not be told."""
    with reading(ledger) as connection:
        rows = newest_notices(connection, SHOWN)
    if as_json:
        print_json([_as_json(row) for row in rows])
    elif not rows:
        say("nothing was told yet (marathonctl notify --test tries the channels)")
    else:
        for row in rows:
            say(f"{when(row.at_ms)}  {clean(row.message.get('title', row.key))}")
            for sending in row.sendings:
                say(f"    {_sending(*sending)}")
    return Exit.FAILED if any(gave_up for row in rows for _, _, _, gave_up, _ in row.sendings) else Exit.OK


def _sending(channel: str, tries: int, told_at_ms: int | None, gave_up_at_ms: int | None, answer: str) -> str:
    words = f": {clean(answer)}" if answer else ""
    if told_at_ms is not None:
        return f"{clean(channel)} told at {when(told_at_ms)}{words}"
    state = f"given up at {when(gave_up_at_ms)}" if gave_up_at_ms is not None else "not told yet"
    return f"{clean(channel)} {state}, tried {tries}x{words}"


def _as_json(row: NoticeRow) -> dict[str, Any]:
    names = ("channel", "tries", "told_at_ms", "gave_up_at_ms", "answer")
    return {**asdict(row), "sendings": [dict(zip(names, sending, strict=True)) for sending in row.sendings]}
