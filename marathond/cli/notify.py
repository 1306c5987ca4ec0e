"""``marathonctl notify``: who would be told, whether that works, and what was told.

Owns the layout.  The test needs neither daemon nor ledger and records nothing.
"""

from __future__ import annotations

import getpass
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from marathond.cli.output import flat, note, print_json, say
from marathond.core.notices import Notice
from marathond.core.text import clean, when
from marathond.ledger.verbs.notices import NoticeRow, newest_notices
from marathond.service.channels import Answer, channels_of
from marathond.service.exits import Exit
from marathond.service.notices import message_of
from marathond.service.picture.reader import reading
from marathond.service.settings import Settings

SHOWN = 20


@dataclass(frozen=True, slots=True)
class Channel:
    """:param channel: a way to tell somebody, by name."""

    channel: str


@dataclass(frozen=True, slots=True)
class Sending:
    """One message over one channel.

    :param told_at_ms: null: not told (yet).
    :param gave_up_at_ms: null: it was told, or is still tried.
    :param answer: what the channel answered last.
    """

    channel: str
    tries: int
    told_at_ms: int | None
    gave_up_at_ms: int | None
    answer: str


@dataclass(frozen=True, slots=True)
class NoticeShown:
    """Something that people were told.

    :param message: as it went out.
    """

    notice_id: int
    key: str
    kind: str
    message: dict[str, Any]
    at_ms: int
    sendings: list[Sending]


def test(settings: Settings, now_ms: int, *, as_json: bool) -> int:
    """Send a message over every channel, once; 1 when one of them did not take it, or there is none."""
    channels = channels_of(settings.notify)
    if not channels:
        if as_json:
            print_json([])
        note("notify: nobody is told: set command or webhook in [notify]")
        return Exit.FAILED
    notice = Notice("test", "test", "this is a test", f"sent by {getpass.getuser()} with marathonctl notify --test")
    message = message_of(notice, campaign=settings.campaign.name, ledger_id="", now_ms=now_ms)

    async def tell() -> list[tuple[str, Answer]]:
        return [(channel.name, await channel.tell(message)) for channel in channels]

    answers = anyio.run(tell)
    if as_json:
        print_json([flat(Channel(name), answer) for name, answer in answers])
    else:
        for name, answer in answers:
            say(f"{name}: {'told' if answer.ok else 'FAILED'}: {clean(answer.words)}")
    return Exit.OK if all(answer.ok for _, answer in answers) else Exit.FAILED


def show(ledger: Path, *, as_json: bool) -> int:
    """What was told, newest first; 1 when something could not be told."""
    with reading(ledger) as connection:
        rows = newest_notices(connection, SHOWN)
    if as_json:
        print_json([_shown(row) for row in rows])
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


def _shown(row: NoticeRow) -> NoticeShown:
    return NoticeShown(row.notice_id, row.key, row.kind, row.message, row.at_ms, [Sending(*sending) for sending in row.sendings])
