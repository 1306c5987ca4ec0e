"""``marathonctl archive``: finished trials' artifacts, each trial in one file, proven before the ledger says so.

Owns the choice of trials, whom the rows are told, and the words; ``prune`` shares the last two.  The packing is
:mod:`marathond.service.keeping`'s, done by this process; rows are written by the daemon, or on the ledger itself while none runs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marathond.cli.client import DaemonDown, call
from marathond.cli.output import note, print_json, say
from marathond.core.names import trial_label
from marathond.core.text import clean, plural
from marathond.ledger.verbs import archive as verbs
from marathond.ledger.verbs.archive import Keepable
from marathond.service.exits import CallFailed, Exit
from marathond.service.keeping import Ask, Done, Look, Wanted, archive_one, one_at_a_time, prune_trial
from marathond.service.picture.reader import campaign_id, check_trial, reading

if TYPE_CHECKING:
    from marathond.core.paths import DaemonPaths

LEFT_NAMED = 8
"""Different reasons for being left that are named; the count before them is complete."""


@dataclass(frozen=True, slots=True)
class Kept:
    """:param dry_run: nothing was changed.  :param done: each thing that was looked at, in order."""

    dry_run: bool
    done: Sequence[Done]


@contextmanager
def asking(paths: DaemonPaths, what: str) -> Iterator[Ask]:
    """Whoever writes the ledger now: the daemon, or this command while it holds the ledger."""
    try:
        call(paths.control_socket, "ping", {})
    except DaemonDown:
        from marathond.service.offline_commands import asking as holding

        with holding(paths.ledger, what) as ask:
            yield ask
        return
    yield lambda verb, args: dict(call(paths.control_socket, verb, args))


@contextmanager
def nobody() -> Iterator[Ask]:
    """Of a dry run."""

    def ask(verb: str, args: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"a dry run asked for {verb} {args}")

    yield ask


def looking(ledger: Path) -> Look:
    def look(verb: Callable[..., Any], *args: Any, **named: Any) -> Any:
        with reading(ledger) as c:
            return verb(c, *args, **named)

    return look


def identity(look: Look) -> str:
    return str(look(lambda c: c.execute("SELECT ledger_id FROM ledger_identity").fetchone()[0]))


def chosen(look: Look, trials: Sequence[int], *, campaign: str | None, task: str | None, arm: str | None, every: bool) -> list[Keepable]:
    """:param every: without a campaign's name all of them are meant, not the newest.
    :raises CallFailed: exit 2, there is no such trial or campaign.
    """

    def found(c: Any) -> list[Keepable]:
        for trial_id in trials:
            check_trial(c, trial_id)
        if trials:
            return verbs.keepable(c, trials=trials)
        which = None if every and campaign is None else campaign_id(c, campaign)
        if which is None and not every:
            raise CallFailed("no campaign in this ledger yet", Exit.USAGE)
        return verbs.keepable(c, campaign_id=None if which is None else which[0], task=task, arm=arm)

    rows: list[Keepable] = look(found)
    return rows


def run(
    paths: DaemonPaths,
    to: Path,
    *,
    trials: Sequence[int],
    campaign: str | None,
    task: str | None,
    arm: str | None,
    remove: str,
    dry_run: bool,
    as_json: bool,
    now_ms: int,
) -> int:
    """:param remove: the reason for which each folder is removed once its archive stands; empty: it stays.
    :return: exit status, 1 when something was refused.
    """
    to = to.absolute()
    try:
        there = to.is_dir()
    except OSError as error:
        raise CallFailed(f"--to {clean(to)}: {error.strerror or error}", Exit.USAGE) from error
    to = plain(to)
    if not there:
        raise CallFailed(f"--to {clean(to)}: no such folder; make it first, on the disk that is meant", Exit.USAGE)
    look = looking(paths.ledger)
    rows, ledger_id, done = chosen(look, trials, campaign=campaign, task=task, arm=arm, every=False), identity(look), list[Done]()
    wanted = Wanted(0, now_ms, remove, dry_run=dry_run)
    with one_at_a_time(paths.state_dir), nobody() if dry_run else asking(paths, "marathonctl archive") as ask:
        for row in rows:
            done.append(archive_one(look, ask, row, to, ledger_id, dry_run=dry_run))
            tell(done[-1], as_json=as_json, aloud=bool(trials))
            if remove and done[-1].outcome in ("archived", "already"):
                (again,) = look(verbs.keepable, trials=[row.trial_id])
                if not again.facts.pruned:
                    done.append(prune_trial(look, ask, again, wanted, ledger_id))
                    tell(done[-1], as_json=as_json, aloud=True)
    return finish(done, dry_run=dry_run, as_json=as_json, aloud=bool(trials))


def plain(to: Path) -> Path:
    """Without ``..``, for it stands in the ledger for years; not where that would be another folder (``..`` behind a link)."""
    short = Path(os.path.normpath(to))
    try:
        return short if short.samefile(to) else to
    except OSError:
        return to


def tell(done: Done, *, as_json: bool, aloud: bool) -> None:
    """One line as it happens; of what was left only where it was meant by name."""
    if as_json or (done.outcome == "left" and not aloud):
        return
    what = f"{trial_label(done.trial)} {done.kind.replace('_', ' ')}" if done.trial is not None else clean(done.path)
    sizes = f"{plural(done.files, 'file')}, {size_words(done.size_bytes)}"
    why = f": {clean(done.why, 2000)}" if done.why else ""
    words = {
        "archived": f"archived in {clean(done.archive)} ({sizes})",
        "already": f"is in {clean(done.archive)} ({sizes}){why}",
        "pruned": f"pruned ({sizes}){why}" + (f"; {clean(done.archive)}" if done.archive else ""),
        "would": ("would be archived in " + clean(done.archive)) if done.archive and not done.files else f"would be pruned ({sizes}){why}",
        "left": f"left{why}",
        "refused": f"refused{why}",
    }
    say(f"{what}: {words[done.outcome]}")


def finish(done: Sequence[Done], *, dry_run: bool, as_json: bool, aloud: bool) -> int:
    """The last lines, or the whole as JSON; the exit status."""
    if as_json:
        print_json(asdict(Kept(dry_run, done)))
    else:
        left = Counter(each.why for each in done if each.outcome == "left")
        counts = Counter(each.outcome for each in done)
        words = {
            "archived": "archived",
            "already": "archived before",
            "pruned": "pruned",
            "would": "to do",
            "left": "left",
            "refused": "refused",
        }
        parts = [f"{counts[name]} {word}" for name, word in words.items() if counts[name]]
        freed = sum(each.size_bytes for each in done if each.outcome in ("pruned", "would") and each.kind)
        room = f"; {size_words(freed)} {'would be ' if dry_run else ''}freed" if counts["pruned"] or (dry_run and freed) else ""
        say((" · ".join(parts) or "nothing there") + room + ("; nothing was changed" if dry_run else ""))
        for why, count in [] if aloud else left.most_common(LEFT_NAMED):
            note(f"left {count}: {clean(why)}")
        if len(left) > LEFT_NAMED and not aloud:
            note(f"and {len(left) - LEFT_NAMED} more reasons (--json tells each)")
    return Exit.FAILED if any(each.outcome == "refused" for each in done) else Exit.OK


def size_words(count: int) -> str:
    """``512 bytes``, ``1.4 MiB``."""
    value = float(count)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            return plural(count, "byte") if count < 1024 else f"{value:.1f} {unit}"
    raise AssertionError("unreachable: the last unit returns")
