"""The verbs of the control socket, one handler each.

Owns which arguments a verb takes, what it changes and what the daemon must hear of it.  Every change carries its author (the peer's user
name) and a reason, and may be sent twice.  Must not know the socket or the terminal.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

import structlog
from anyio import to_thread

from marathond import __version__
from marathond.core.errors import ConfigError, Refused
from marathond.core.keeping import Kind
from marathond.core.names import LIVE_STATES
from marathond.ledger.verbs import archive, runs
from marathond.ledger.verbs import settings as setting_verbs
from marathond.ledger.verbs.admission import StopRow
from marathond.ledger.verbs.campaigns import SubmitResult
from marathond.ledger.verbs.operator import Touched
from marathond.ledger.verbs.reached import COMMAND_MAX, reached_into
from marathond.ports.clock import Clock
from marathond.ports.ledger import Ledger
from marathond.service import decisions
from marathond.service.answers import (
    AckAnswer,
    Closed,
    DecidedBefore,
    Drained,
    KnobTurned,
    Reopened,
    Restored,
    ReviewDecided,
    Stopping,
    Unparked,
    UnvoidAnswer,
    UnvoidCount,
    VoidAnswer,
    VoidCount,
    VoidPreview,
)
from marathond.service.args import PATH_MAX, REASON_MAX, Args
from marathond.service.decisions import Choice
from marathond.service.knobs import KnobValue, find_knob, parse_setting
from marathond.service.peers import Peer
from marathond.service.protocol import ROWS_MAX

StopMode = Literal["term", "drain", "now"]

BACK_TO_CONFIG = "default"
"""``set KEY=default``: forget what was set, the configuration's value counts again."""

DEADLINE_S = 30.0
SUBMIT_DEADLINE_S = 600.0
"""Submission reads every task."""

log = structlog.get_logger(__name__)

JsonObject = dict[str, Any]
_Handler = Callable[[str, Args], Awaitable[JsonObject]]

_CHOICE = ("trials", "campaign", "arm", "task", "replicate", "since_ms", "block", "pair")
_CELLS = ("campaign", "cell", "task", "arm", "all")


class DaemonControl(Protocol):
    """What the running daemon does for its operator.  Calls return at once; the work happens in the daemon's own coroutines."""

    def wake(self) -> None:
        """The ledger changed: plan again."""
        ...

    def trial_voided(self, trial_id: int) -> None:
        """An operator voided a live trial: its coroutine must tear down."""
        ...

    def request_stop(self, mode: StopMode, author: str, reason: str) -> None:
        """``term``: end within seconds, agents go on.  ``drain``: end when the last trial is at rest, as long as the ledger's stop
        ``drain`` stands.  ``now``: void what runs, tear down, end."""
        ...

    def apply_settings(self) -> None:
        """Operational knobs changed in the ledger."""
        ...

    def effective(self, key: str) -> KnobValue:
        """The value of a knob that counts now."""
        ...

    def configured(self, key: str) -> KnobValue:
        """The configuration's own."""
        ...

    async def submit(self, author: str) -> SubmitResult:
        """Read the configuration again and submit its campaign."""
        ...

    def health(self) -> JsonObject:
        """What the daemon knows of itself, as JSON."""
        ...


class Commands:
    """Answers requests; give :meth:`handle` and :meth:`deadline_s` to a ControlServer."""

    def __init__(self, ledger: Ledger, control: DaemonControl, clock: Clock, *, config: Callable[[], Path | None] = lambda: None) -> None:
        """:param config: the file that the daemon reads again at a submission; None: nobody knows."""
        self._ledger, self._control, self._clock, self._config = ledger, control, clock, config
        self._verbs: dict[str, tuple[_Handler, tuple[str, ...]]] = {
            "ping": (self._ping, ()),
            "void": (self._void, (*_CHOICE, "code", "reason", "dry_run")),
            "unvoid": (self._unvoid, ("trial", "block", "batch", "reason", "dry_run")),
            "review": (self._review, ("trial", "accept", "reward", "code", "reason")),
            "retry": (self._retry, ("trial", "cell", "reason")),
            "unpark": (self._unpark, (*_CELLS, "reason")),
            "pause": (self._pause, ("reason",)),
            "resume": (self._resume, ("reason",)),
            "drain": (self._drain, ("reason",)),
            "stop": (self._stop, ("now", "reason")),
            "submit": (self._submit, ("config",)),
            "set": (self._set, ("key", "value", "reason")),
            "ack": (self._ack, ("finding", "code", "reason")),
            "exec": (self._exec, ("trial", "command", "user")),
            "archived": (self._archived, ("trial", "file", "sha256", "size_bytes", "files", "content_bytes")),
            "prune": (self._prune, ("kind", "path", "trial", "files", "size_bytes", "rested_at_ms", "unarchived", "reason")),
            "pruned": (self._pruned, ("prune",)),
        }

    @staticmethod
    def deadline_s(verb: str) -> float:
        return SUBMIT_DEADLINE_S if verb == "submit" else DEADLINE_S

    async def handle(self, peer: Peer, verb: str, given: JsonObject) -> JsonObject:
        """:raises MarathonError: refused, in one line."""
        if verb not in self._verbs:
            raise ConfigError("", f"verb {verb[:40]!r}", f"must be one of {', '.join(self._verbs)}")
        handler, known = self._verbs[verb]
        return await handler(peer.name, Args(verb, given, known))

    def _now(self) -> int:
        return self._clock.wall_ms()

    async def _ping(self, _author: str, _args: Args) -> JsonObject:
        return {"version": __version__, "pid": os.getpid(), "health": self._control.health()}

    async def _void(self, author: str, args: Args) -> JsonObject:
        choice = Choice(
            trials=tuple(args.ids("trials")),
            campaign=args.text("campaign"),
            arm=args.text("arm"),
            task=args.text("task"),
            replicate=args.integer("replicate"),
            since_ms=args.integer("since_ms", least=0),
            pair=args.flag("pair"),
            block_id=args.integer("block"),
        )
        if choice.trials and choice.filters:
            raise ConfigError("void", "trials and filters", "give one or the other")
        code, reason = args.text("code") or "operator", args.reason()
        if args.flag("dry_run"):
            met = await self._ledger.read(decisions.preview, choice, code=code)
            rows = [row for row in met if row.state != "voided"]
            late = sum(row.reward is not None for row in rows)
            already = [row for row in met if row.state == "voided"]
            return asdict(VoidPreview(rows[:ROWS_MAX], len(rows), late, already[:ROWS_MAX]))
        done = await self._ledger.write(decisions.void, choice, code=code, reason=reason, author=author, now_ms=self._now())
        self._tear_down(done.result.voided)
        if done.result.voided:
            self._control.wake()
        result = done.result
        return asdict(
            VoidAnswer(
                batch=result.batch,
                reopened=done.reopened,
                left=done.left,
                imported=done.imported,
                parked=done.parked,
                count=VoidCount(len(result.voided), len(result.already), len(result.refused)),
                voided=result.voided[:ROWS_MAX],
                already=result.already[:ROWS_MAX],
                refused=result.refused[:ROWS_MAX],
            )
        )

    def _tear_down(self, voided: Sequence[Touched]) -> None:
        for trial in voided:
            if trial.state in LIVE_STATES:
                self._control.trial_voided(trial.trial_id)

    async def _unvoid(self, author: str, args: Args) -> JsonObject:
        args.exactly_one("trial", "block", "batch")
        unvoid = functools.partial(
            decisions.unvoid,
            trial_id=args.integer("trial"),
            block_id=args.integer("block"),
            batch=args.text("batch"),
            reason=args.reason(),
            author=author,
            now_ms=self._now(),
        )
        if dry_run := args.flag("dry_run"):
            result = await self._ledger.read(unvoid, dry_run=True)
        else:
            result = await self._ledger.write(unvoid)
            self._control.wake()
        count = UnvoidCount(len(result.restored), len(result.refused))
        restored = [Restored(trial, state) for trial, state in result.restored[:ROWS_MAX]]
        return asdict(UnvoidAnswer(dry_run, count, restored, result.refused[:ROWS_MAX]))

    async def _review(self, author: str, args: Args) -> JsonObject:
        trial_id, accept, reward = args.integer("trial"), args.flag("accept"), args.number("reward", 0, 1)
        if trial_id is None:
            raise ConfigError("review", "trial", "is needed")
        if reward is not None and not accept:
            raise ConfigError("review", "reward", "belongs to accept")
        if (code := args.text("code")) is not None and accept:
            raise ConfigError("review", "code", "belongs to a void")
        done = await self._ledger.write(
            decisions.review,
            trial_id,
            accept=accept,
            reward=reward,
            code=code or "operator",
            reason=args.reason(),
            author=author,
            now_ms=self._now(),
        )
        self._control.wake()
        before = None if done["already"] is None else DecidedBefore(**done["already"])
        decision: Literal["accepted", "voided"] = "accepted" if accept else "voided"
        return asdict(ReviewDecided(trial_id, decision, before, done["reward"], done.get("known")))

    async def _retry(self, author: str, args: Args) -> JsonObject:
        args.exactly_one("trial", "cell")
        result = await self._ledger.write(
            decisions.retry,
            cell_id=args.integer("cell"),
            trial_id=args.integer("trial"),
            reason=args.reason(),
            author=author,
            now_ms=self._now(),
        )
        self._control.wake()
        return asdict(result)

    async def _unpark(self, author: str, args: Args) -> JsonObject:
        args.exactly_one("cell", "task", "arm", "all")
        args.flag("all")
        count = await self._ledger.write(
            decisions.unpark,
            campaign=args.text("campaign"),
            cell_id=args.integer("cell"),
            task=args.text("task"),
            arm=args.text("arm"),
            reason=args.reason(),
            author=author,
            now_ms=self._now(),
        )
        self._control.wake()
        return asdict(Unparked(count))

    async def _pause(self, author: str, args: Args) -> JsonObject:
        return asdict(Closed(await self._close("pause", author, args.reason())))

    async def _close(self, kind: str, author: str, reason: str) -> StopRow | None:
        before = await self._ledger.write(decisions.close_admission, kind, reason=reason, author=author, now_ms=self._now())
        self._control.wake()
        return before

    async def _resume(self, author: str, args: Args) -> JsonObject:
        reason = args.text("reason", REASON_MAX) or ""
        ended = await self._ledger.write(decisions.reopen_admission, author=author, now_ms=self._now())
        log.info("admission_reopened", author=author, reason=reason, kinds=[stop.kind for stop in ended])
        self._control.wake()
        return asdict(Reopened(ended))

    async def _drain(self, author: str, args: Args) -> JsonObject:
        reason = args.reason()
        before = await self._close("drain", author, reason)
        self._control.request_stop("drain", author, reason)
        return asdict(Drained(before, await self._live()))

    async def _stop(self, author: str, args: Args) -> JsonObject:
        mode: Literal["term", "now"] = "now" if args.flag("now") else "term"
        reason = args.reason()
        live = await self._live()
        if mode == "now":  # said to be done only where it can be written down: not on a full disk
            await self._close("drain", author, reason)
        self._control.request_stop(mode, author, reason)
        return asdict(Stopping(mode, os.getpid(), live))

    async def _live(self) -> list[int]:
        """Trials that are not at rest, for whoever asks what goes on."""
        return [trial for trial, _ in (await self._ledger.read(runs.left)).live]

    async def _submit(self, author: str, args: Args) -> JsonObject:
        own = self._config()
        meant = None if args.text("config", PATH_MAX) is None else args.path("config")
        if own is not None and meant is not None:
            await to_thread.run_sync(_refuse_another, meant, own)
        result = await self._control.submit(author)
        self._control.wake()
        return asdict(result)

    async def _set(self, author: str, args: Args) -> JsonObject:
        key, text, reason = find_knob(args.word("key")).key, args.word("value"), args.reason()
        new = None if text == BACK_TO_CONFIG else parse_setting(key, text)
        old = self._control.effective(key)
        if new is not None and new == old:
            return asdict(KnobTurned(key, old, old, changed=False))
        if new is None and key not in await self._ledger.read(setting_verbs.overrides):
            return asdict(KnobTurned(key, old, old, changed=False))
        await self._ledger.write(setting_verbs.set_value, key, old=old, new=new, author=author, reason=reason, now_ms=self._now())
        self._control.apply_settings()
        self._control.wake()
        return asdict(KnobTurned(key, old, self._control.configured(key) if new is None else new, changed=True))

    async def _ack(self, author: str, args: Args) -> JsonObject:
        args.exactly_one("finding", "code")
        number, code = args.integer("finding"), args.text("code")
        which: int | str = number if number is not None else code or ""
        done = await self._ledger.write(decisions.ack, which, reason=args.reason(), author=author, now_ms=self._now())
        return asdict(AckAnswer(done.count, done.already[:ROWS_MAX], done.open, done.alarms))

    async def _exec(self, author: str, args: Args) -> JsonObject:
        """Asked by ``marathonctl exec`` before it runs anything: what a person does inside a trial is part of it."""
        command, user = args.text("command", COMMAND_MAX), args.text("user") or ""
        if command is None:
            raise ConfigError("exec", "command", "is needed")
        trial, now_ms = args.whole("trial", 1), self._now()
        number = await self._ledger.write(reached_into, trial, command=command, user=user, author=author, now_ms=now_ms)
        return {"number": number}

    async def _archived(self, author: str, args: Args) -> JsonObject:
        """Told by ``marathonctl archive``, which packed and proved the file."""
        sizes = {name: args.whole(name) for name in ("size_bytes", "files", "content_bytes")}
        file, sha256 = args.path("file"), args.word("sha256")
        now_ms, trial = self._now(), args.whole("trial", 1)
        return {"new": await self._ledger.write(archive.archived, trial, file=file, sha256=sha256, author=author, now_ms=now_ms, **sizes)}

    async def _prune(self, author: str, args: Args) -> JsonObject:
        """Asked by ``marathonctl prune`` before it removes anything: the row comes before the act."""
        wish = archive.Wish(
            kind=args.one_of("kind", Kind),
            path=args.path("path"),
            files=args.whole("files"),
            size_bytes=args.whole("size_bytes"),
            trial_id=args.integer("trial"),
            rested_at_ms=args.integer("rested_at_ms", least=0),
            unarchived=args.flag("unarchived"),
        )
        return {"prune": await self._ledger.write(archive.prune_begins, wish, author=author, reason=args.reason(), now_ms=self._now())}

    async def _pruned(self, _author: str, args: Args) -> JsonObject:
        number = args.whole("prune", 1)
        await self._ledger.write(archive.prune_ended, number, now_ms=self._now())
        return {"prune": number}


def _refuse_another(callers: str, own: Path) -> None:
    """Each as it is now, links followed: a name that is pointed elsewhere is read from there.  One file has two paths through a bind mount
    or a hard link, too.  Blocking.

    :raises Refused: the caller means another file than the one that would be read: its answer would speak of what nobody asked for.
    """
    if os.path.realpath(callers) != os.path.realpath(own) and not _one_file(callers, own):
        raise Refused(
            f"submit: the running marathond uses {own}, not {callers}: change that file, or name it (marathonctl -c {own} submit); "
            f"to run {callers}, restart marathond with it"
        )


def _one_file(callers: str, own: Path) -> bool:
    try:
        return own.samefile(callers)
    except OSError:
        return False  # one that cannot be looked at is not known to be the daemon's
