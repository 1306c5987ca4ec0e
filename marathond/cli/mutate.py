"""What a person decides: requests to the daemon, and its answers in words.

Owns the sentences.  Each answer names what was done, by whom it was done before, and how to take it back.  Must not touch the ledger:
only the daemon writes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from marathond.cli.client import DaemonDown, call
from marathond.cli.output import note, say
from marathond.core.model import block_label, cell_label, trial_label
from marathond.core.parting import named
from marathond.core.text import clean, clock, plural
from marathond.service.protocol import CallFailed, Exit

SUBMIT_TIMEOUT_S = 660.0
NAMED_MAX = 20
"""Trials named in one sentence; the count before them is complete."""

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Answer = dict[str, Any]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def since(text: str, now: int) -> int:
    """``90m``, ``2h``, ``1d`` ago, or an ISO-8601 instant (UTC unless it says otherwise), in milliseconds.

    :raises CallFailed: exit 2.
    """
    if match := _AGO.fullmatch(text):
        return _after_1970(now - int(match[1]) * _SECONDS[match[2]] * 1000, text)
    from datetime import UTC, datetime

    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise CallFailed(f"--since {text!r}: must be such as 90m, 2h, 1d or 2026-09-01T02:10:00Z", Exit.USAGE) from error
    return _after_1970(int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000), text)


def _after_1970(at_ms: int, text: str) -> int:
    if at_ms < 0:
        raise CallFailed(f"--since {text!r}: is before 1970; nothing was", Exit.USAGE)
    return at_ms


def by(author: object, at_ms: int, reason: object) -> str:
    """``by ana at 09:14Z: provider outage``."""
    at = clock(at_ms, now_ms())
    shown = f"{at[:5]}Z" if len(at) == len("14:02:11Z") else at
    return f"by {clean(author)} at {shown}: {clean(reason)}"


def void(socket: Path, args: Mapping[str, Any]) -> int:
    """Send, and say what came of it."""
    return say_void(call(socket, "void", dict(args)), args)


def say_void(answer: Answer, args: Mapping[str, Any]) -> int:
    """What came of a void; the exit code."""
    for line in void_words(answer, args):
        say(line)
    return Exit.FAILED if "would_void" not in answer and answer["count"]["refused"] else Exit.OK


def void_words(answer: Answer, args: Mapping[str, Any]) -> Iterator[str]:
    """What came of a void, line by line."""
    if "would_void" in answer:
        for row in answer["already"][:NAMED_MAX]:
            yield (f"{trial_label(row['trial_id'])} ({clean(row['arm'])}) is voided already")
        yield (f"would void {plural(answer['count'], 'trial')}; nothing was changed")
        for row in answer["would_void"]:
            known = "" if row["reward"] is None else f", reward {row['reward']:g} is known"
            words = f"{clean(row['arm'])}  {clean(row['task'])}  replicate {row['replicate']}  {row['state']}{known}"
            yield (f"  {trial_label(row['trial_id'])}  {words}")
        if (more := answer["count"] - len(answer["would_void"])) > 0:
            yield (f"  and {more} more")
        if late := answer["late"]:
            yield (f"  {plural(late, 'post-score void')} among them; counted as such in every report")
        return
    count = answer["count"]
    for row in answer["already"][:NAMED_MAX]:
        yield (f"{trial_label(row['trial']['trial_id'])} already voided {by(row['author'], row['at_ms'], row['reason'])}")
    for row in answer["refused"][:NAMED_MAX]:
        yield (f"{trial_label(row['trial']['trial_id'])} left as it is: {clean(row['why'])}")
    if count["voided"]:
        yield from _voided_words(answer, args)
    elif not count["already"] and not count["refused"]:
        yield ("no trial meets these filters; nothing was changed")


def _voided_words(answer: Answer, args: Mapping[str, Any]) -> Iterator[str]:
    rows: list[Answer] = answer["voided"]
    total, named = answer["count"]["voided"], args.get("trials") or []
    if args.get("pair") and len(named) == 1 and (first := next((row for row in rows if row["trial_id"] == named[0]), None)):
        mates = [row for row in rows if row is not first]
        block = f" and its block: {_names(mates, len(mates))}" if mates else " (its block has no other standing trial)"
        yield (f"voided {trial_label(first['trial_id'])} ({clean(first['arm'])}, {_score(first)}){block}")
    elif total == 1:
        yield (f"voided {trial_label(rows[0]['trial_id'])} ({clean(rows[0]['arm'])}, {_score(rows[0])})")
    else:
        yield (f"voided {plural(total, 'trial')}: {_names(rows, total)}")
    yield from _known_words([row for row in rows if row["score_was_known"]], answer, args, total)
    undo = _undo(rows, answer["batch"], bool(args.get("pair")))
    if not answer["reopened"] and answer["imported"]:
        yield (f"  imported, so nothing runs in {'its cell' if total == 1 else 'their cells'} again · undo: {undo}")
        return
    parked = f", {answer['parked']} parked (marathonctl unpark)" if answer["parked"] else ""
    held = total - answer["reopened"] - answer["parked"] - answer["imported"]
    later = f", {held} more as soon as {'its container is' if held == 1 else 'their containers are'} gone" if held > 0 else ""
    yield (f"  {plural(answer['reopened'], 'cell')} open again{later}{parked} · undo (until the cell runs again; pause first): {undo}")


def _known_words(known: Sequence[Answer], answer: Answer, args: Mapping[str, Any], total: int) -> Iterator[str]:
    """Aloud: a side of a pair that is withdrawn after its score was seen turns a comparison round (fault a08)."""
    if not known:
        return
    if total > 1:
        shown = ", ".join(f"{trial_label(row['trial_id'])} {clean(row['arm'])} {_reward(row)}" for row in known[:NAMED_MAX])
        more = f" and {len(known) - NAMED_MAX} more" if len(known) > NAMED_MAX else ""
        yield (f"  {len(known)} of them had a score: counted as post-score voids: {shown}{more}")
    else:
        yield (f"  its score was known when it was withdrawn: counted as a post-score void of {clean(known[0]['arm'])} in every report")
    if answer["left"] and not args.get("pair"):
        again = " ".join(trial_label(row["trial_id"]) for row in known[:NAMED_MAX])
        left, stand = plural(answer["left"], "trial"), "stands" if answer["left"] == 1 else "stand"
        yield (
            f"  {left} of the same {'block' if total == 1 else 'blocks'} still {stand}; to withdraw both sides: "
            f"marathonctl void {again} --pair --reason …"
        )


def _reward(row: Answer) -> str:
    return f"reward {row['reward']:g}" if row.get("reward") is not None else "reward known"


def _undo(rows: Sequence[Answer], batch: str, pair: bool) -> str:
    blocks = {row["block_id"] for row in rows}
    if len(rows) == 1:
        return f"marathonctl unvoid {trial_label(rows[0]['trial_id'])} --reason …"
    if pair and len(blocks) == 1:
        return f"marathonctl unvoid --block {block_label(rows[0]['block_id'])} --reason …"
    return f"marathonctl unvoid --batch {batch} --reason …"


def _score(row: Answer) -> str:
    return f"score was known: {_reward(row)}" if row["score_was_known"] else "score unknown"


def _names(rows: Sequence[Answer], total: int) -> str:
    shown = ", ".join(f"{trial_label(row['trial_id'])} {clean(row['arm'])}" for row in rows[:NAMED_MAX])
    return shown + (f" and {total - NAMED_MAX} more" if total > NAMED_MAX else "")


def unvoid(socket: Path, args: Mapping[str, Any]) -> int:
    return say_unvoid(call(socket, "unvoid", dict(args)))


def say_unvoid(answer: Answer) -> int:
    """What came of an unvoid; the exit code."""
    dry_run, count = answer["dry_run"], answer["count"]
    for row in answer["restored"]:
        trial = row["trial"]
        say(f"{trial_label(trial['trial_id'])} ({clean(trial['arm'])}) {'would be' if dry_run else 'is'} {row['state']} again")
    for row in answer["refused"]:
        say(f"{trial_label(row['trial']['trial_id'])} {'would be left' if dry_run else 'left'} as it is: {clean(row['why'])}")
    if (more := sum(count.values()) - len(answer["restored"]) - len(answer["refused"])) > 0:
        say(f"and {more} more")
    if not sum(count.values()):
        say("no trial there was ever run; nothing was changed")
    elif dry_run:
        say("nothing was changed")
    # A trial that is not voided (any more) is what was asked for.
    undone = [row for row in answer["refused"] if row["trial"]["state"] == "voided"]
    return Exit.FAILED if undone else Exit.OK


def review(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "review", dict(args))
    label, before = trial_label(answer["trial"]), answer["already"]
    if before is not None:
        say(f"{label} already {answer['decision']} {by(before['author'], before['decided_at_ms'], before['reason'])}")
    elif args.get("accept"):
        how = "" if args.get("reward") is not None else ", as it was read"
        say(f"{label} accepted with reward {answer['reward']:g}{how}")
    else:
        say(f"{label} voided" + ("" if answer.get("known") is None else f" (score was known: reward {answer['known']:g})"))
        if answer.get("known") is not None:
            say(f"  counted as a post-score void; to withdraw its whole block: marathonctl void {label} --pair --reason …")
    return Exit.OK


def retry(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "retry", dict(args))
    outcome = {"unparked": "is open again", "open": "is open already", "claimed": "is being run already"}[answer["outcome"]]
    say(f"{cell_label(answer['cell_id'])} {outcome}")
    return Exit.OK


def unpark(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "unpark", dict(args))
    say(f"{plural(answer['count'], 'park')} ended" if answer["count"] else "nothing was parked there")
    return Exit.OK


def pause(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "pause", dict(args))
    if (before := answer["already"]) is not None:
        say(f"already paused {by(before['author'], before['at_ms'], before['detail'])}")
    else:
        say("paused: nothing new starts, what runs goes on · undo: marathonctl resume")
    return Exit.OK


def resume(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "resume", dict(args))
    for stop in answer["ended"]:
        say(f"ended {stop['kind']} ({by(stop['author'], stop['at_ms'], stop['detail'])})")
    if not answer["ended"]:
        say("admission is open already")
    return Exit.OK


def drain(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "drain", dict(args))
    if (before := answer["already"]) is not None:
        say(f"already draining {by(before['author'], before['at_ms'], before['detail'])}")
    else:
        say("draining: nothing new starts, marathond ends with the last running trial · undo: marathonctl resume")
    if answer["live"]:
        say(f"waits for {_trials(answer)}")
    return Exit.OK


def stop(socket: Path, args: Mapping[str, Any]) -> int:
    """A daemon that is not running is stopped: exit 0."""
    try:
        answer: Answer = call(socket, "stop", dict(args))
    except DaemonDown:
        say("marathond is not running; nothing to stop")
        return Exit.OK
    if answer["mode"] == "now":
        say(f"stopping pid {answer['pid']}: running trials are voided (stop_now) and torn down: {_trials(answer)}")
    else:
        say(f"stopping pid {answer['pid']}: running agents go on, the next start takes them over: {_trials(answer)}")
    return Exit.OK


def _trials(answer: Answer) -> str:
    return f"{plural(len(answer['live']), 'trial')} {named(answer['live'])}".rstrip()


def submit(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "submit", dict(args), timeout_s=SUBMIT_TIMEOUT_S)
    parts = [
        f"{plural(answer[key], word)} {rest}"
        for key, word, rest in (
            ("added_arms", "arm", "added"),
            ("added_tasks", "task", "added"),
            ("added_cells", "cell", "added"),
            ("parked", "cell", "parked"),
            ("unparked", "parked cell", "open again, to be tried"),
        )
        if answer[key]
    ]
    say(("campaign created: " if answer["created"] else "submitted: ") + (", ".join(parts) or "nothing new"))
    if answer["declared"]:
        say(f"contrasts declared (version {answer['declared']}) with {plural(answer['declared_after'], 'score')} known")
    if answer["needs_restart"]:
        note(f"counts from marathond's next start: {clean(', '.join(answer['needs_restart']))}")
    if answer["parked"]:
        note("why cells are parked: marathonctl sql \"select task, arm, park_code, park_detail from v_cell where state = 'parked'\"")
    return Exit.OK


def set_knob(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "set", dict(args))
    if answer["changed"]:
        say(f"{answer['key']} = {clean(answer['new'])} (was {clean(answer['old'])})")
    else:
        say(f"{answer['key']} is {clean(answer['old'])} already")
    return Exit.OK


def ack(socket: Path, args: Mapping[str, Any]) -> int:
    answer: Answer = call(socket, "ack", dict(args))
    for row in answer["already"]:
        who = by(row["acked_by"], row["acked_at_ms"], row["ack_reason"])
        say(f"finding {row['finding_id']} {row['code']} already acknowledged {who}")
    if answer["count"]:
        left = f"; {plural(answer['alarms'], 'alarm')} left" if answer["alarms"] else ""
        say(f"{answer['count']} of {plural(answer['open'], 'open finding')} acknowledged{left}")
    return Exit.OK


Mutation = Callable[[Path, Mapping[str, Any]], int]
