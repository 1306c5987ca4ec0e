"""What a person decides: requests to the daemon, and its answers in words.

Owns the sentences.  Each answer names what was done, by whom it was done before, and how to take it back; with --json it is printed as the
daemon gave it (service/answers.py).  Must not touch the ledger: only the daemon writes it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from marathond.cli.client import CALL_TIMEOUT_S, DaemonDown, call
from marathond.cli.output import note, print_json, say
from marathond.core.differing import Differing, meaning
from marathond.core.names import block_label, cell_label, trial_label
from marathond.core.parting import named
from marathond.core.text import clean, clock, plural
from marathond.service.answers import Stopping
from marathond.service.exits import Answered, CallFailed, Exit

SUBMIT_TIMEOUT_S = 660.0
NAMED_MAX = 20
"""Trials named in one sentence; the count before them is complete."""
DIFFERING_SHOWN = 5
"""Changed tasks that an answer to a submission tells of, a line each."""

BACK_TO_CONFIG = "default"
"""The word for a value, of service/commands.py, which is too much to import here."""

UNKNOWN_ARGUMENT = "unknown argument"
"""Of service/args.py, in every version so far."""

_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One verb: ``say`` puts its answer into words, ``code`` makes the exit code of it.  ``down``: what is true where no daemon runs; None:
    then it cannot be answered.  ``newer``: an argument that an older daemon, which runs on beside a new command, may not know, and what is
    said when it is asked without."""

    verb: str
    say: Callable[[Answer, Mapping[str, Any]], None]
    code: Callable[[Answer], int] = lambda _answer: Exit.OK
    timeout_s: float = CALL_TIMEOUT_S
    down: Callable[[], Answer] | None = None
    newer: tuple[str, str] | None = None

    def __call__(self, socket: Path, args: Mapping[str, Any], *, as_json: bool = False) -> int:
        """Send, and say what came of it; the exit code.

        :raises CallFailed: refused, not allowed, no daemon, or no answer in time.
        """
        try:
            answer = self._asked(socket, dict(args))
        except DaemonDown:
            if self.down is None:
                raise
            answer = self.down()
        return self.told(answer, args, as_json=as_json)

    def _asked(self, socket: Path, args: Answer) -> Answer:
        try:
            answer: Answer = call(socket, self.verb, args, timeout_s=self.timeout_s)
        except Answered as error:
            # Arguments are looked at before anything is done: nothing is asked for twice.
            if self.newer is None or self.newer[0] not in args or str(error) != f"{self.verb}: {self.newer[0]}: {UNKNOWN_ARGUMENT}":
                raise
            name, said = self.newer
            note(f"note: {said}")
            return self._asked(socket, {key: value for key, value in args.items() if key != name})
        return answer

    def told(self, answer: Answer, args: Mapping[str, Any], *, as_json: bool = False) -> int:
        """Print an answer, in words or as it is; the exit code that belongs to it."""
        if as_json:
            print_json(answer)
        else:
            self.say(answer, args)
        return self.code(answer)


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


def _void_code(answer: Answer) -> int:
    return Exit.FAILED if "would_void" not in answer and answer["count"]["refused"] else Exit.OK


def _say_void(answer: Answer, args: Mapping[str, Any]) -> None:
    for line in void_words(answer, args):
        say(line)


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


def _unvoid_code(answer: Answer) -> int:
    """A trial that is not voided (any more) is what was asked for."""
    return Exit.FAILED if any(row["trial"]["state"] == "voided" for row in answer["refused"]) else Exit.OK


def _say_unvoid(answer: Answer, _args: Mapping[str, Any]) -> None:
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


def _say_review(answer: Answer, args: Mapping[str, Any]) -> None:
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


def _say_retry(answer: Answer, _args: Mapping[str, Any]) -> None:
    outcome = {"unparked": "is open again", "open": "is open already", "claimed": "is being run already"}[answer["outcome"]]
    say(f"{cell_label(answer['cell_id'])} {outcome}")


def _say_unpark(answer: Answer, _args: Mapping[str, Any]) -> None:
    say(f"{plural(answer['count'], 'park')} ended" if answer["count"] else "nothing was parked there")


def _say_pause(answer: Answer, _args: Mapping[str, Any]) -> None:
    if (before := answer["already"]) is not None:
        say(f"already paused {by(before['author'], before['at_ms'], before['detail'])}")
    else:
        say("paused: nothing new starts, what runs goes on · undo: marathonctl resume")


def _say_resume(answer: Answer, _args: Mapping[str, Any]) -> None:
    for stop in answer["ended"]:
        say(f"ended {stop['kind']} ({by(stop['author'], stop['at_ms'], stop['detail'])})")
    if not answer["ended"]:
        say("admission is open already")


def _say_drain(answer: Answer, _args: Mapping[str, Any]) -> None:
    if (before := answer["already"]) is not None:
        say(f"already draining {by(before['author'], before['at_ms'], before['detail'])}")
    else:
        say("draining: nothing new starts, marathond ends with the last running trial · undo: marathonctl resume")
    if answer["live"]:
        say(f"waits for {_trials(answer)}")


def _say_stop(answer: Answer, _args: Mapping[str, Any]) -> None:
    if answer["mode"] == "down":
        say("marathond is not running; nothing to stop")
    elif answer["mode"] == "now":
        say(f"stopping pid {answer['pid']}: running trials are voided (stop_now) and torn down: {_trials(answer)}")
    else:
        say(f"stopping pid {answer['pid']}: running agents go on, the next start takes them over: {_trials(answer)}")


def _trials(answer: Answer) -> str:
    return f"{plural(len(answer['live']), 'trial')} {named(answer['live'])}".rstrip()


def _say_submit(answer: Answer, _args: Mapping[str, Any]) -> None:
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
    for line in answer.get("notes", ()):  # a daemon from before an upgrade does not say it
        note(f"note: {clean(line)}")
    if answer["declared"]:
        say(f"contrasts declared (version {answer['declared']}) with {plural(answer['declared_after'], 'score')} known")
    differing = answer.get("differing", ())  # a daemon from before an upgrade does not say it
    for row in differing[:DIFFERING_SHOWN]:
        say(f"task {clean(row['task'])} {meaning(Differing(**row))}")
    if (more := len(differing) - DIFFERING_SHOWN) > 0:
        say(f"… {plural(more, 'task')} more differ: marathonctl config check lists them")
    if answer["needs_restart"]:
        note(f"counts from marathond's next start: {clean(', '.join(answer['needs_restart']))}")
    if answer["parked"]:
        note("why cells are parked: marathonctl sql \"select task, arm, park_code, park_detail from v_cell where state = 'parked'\"")


def _say_set(answer: Answer, args: Mapping[str, Any]) -> None:
    if answer["changed"]:
        say(f"{answer['key']} = {clean(answer['new'])} (was {clean(answer['old'])})")
        if args.get("value") == BACK_TO_CONFIG:
            say("  as the configuration has it, now and after each change of it")
        else:
            back = f"marathonctl set {answer['key'].rpartition('.')[2]}={BACK_TO_CONFIG} --reason …"
            say(f"  holds for this ledger, over restarts and in further campaigns, too, whatever the configuration says, until {back}")
    else:
        say(f"{answer['key']} is {clean(answer['old'])} already")


def _say_ack(answer: Answer, _args: Mapping[str, Any]) -> None:
    for row in answer["already"]:
        who = by(row["acked_by"], row["acked_at_ms"], row["ack_reason"])
        say(f"finding {row['finding_id']} {row['code']} already acknowledged {who}")
    if answer["count"]:
        left = f"; {plural(answer['alarms'], 'alarm')} left" if answer["alarms"] else ""
        say(f"{answer['count']} of {plural(answer['open'], 'open finding')} acknowledged{left}")


void = Mutation("void", _say_void, _void_code)
unvoid = Mutation("unvoid", _say_unvoid, _unvoid_code)
review = Mutation("review", _say_review)
retry = Mutation("retry", _say_retry)
unpark = Mutation("unpark", _say_unpark)
pause = Mutation("pause", _say_pause)
resume = Mutation("resume", _say_resume)
drain = Mutation("drain", _say_drain)
stop = Mutation("stop", _say_stop, down=lambda: asdict(Stopping("down", None, [])))
"""A daemon that is not running is stopped: exit 0."""
_OTHER_FILE = "marathond runs an older version, which reads its own configuration, whichever file is meant here"
submit = Mutation("submit", _say_submit, timeout_s=SUBMIT_TIMEOUT_S, newer=("config", _OTHER_FILE))
set_knob = Mutation("set", _say_set)
ack = Mutation("ack", _say_ack)
