"""Packing what trials left and removing what is old: the acts behind ``marathonctl archive`` and ``marathonctl prune``.

Owns the order of steps, so that a kill at any instant leaves the old state or the new one: an archive is whole and proven before its row
is written; the row of a removal is written before the removal, which is one rename and then the rest.  What is removed must provably be
ours: of this ledger, holding what was exported and nothing else.  Rows are written by whoever ``ask`` leads to: the daemon, or the ledger
itself while no daemon lives.  Everything here blocks.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from marathond.core.errors import ArtifactError, MarathonError, Refused
from marathond.core.keeping import Kind, not_packed, not_pruned, too_young
from marathond.core.names import trial_label
from marathond.core.text import clean, when
from marathond.ledger.verbs import archive as verbs
from marathond.ledger.verbs.archive import Keepable, PruneRow
from marathond.tasks import archiving
from marathond.tasks.archiving import Recorded
from marathond.tasks.artifacts import read_bounded
from marathond.tasks.atomic import sync_folder
from marathond.tasks.layout.names import trial_uuid

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""A verb of the control socket and its arguments; its answer."""

Look = Callable[..., Any]
"""A reading verb of the ledger with its arguments; its answer.  Each look is short: what is packed for an hour must not hold the WAL."""

LOCK = "keeping.lock"
SUFFIX = ".tar.gz"
RESULT = "result.json"
"""Says whose folder it is: the identity of ledger and trial."""
NAMED_AT_MOST = 5
AGAIN = "say it again"


@contextmanager
def one_at_a_time(state_dir: Path) -> Iterator[None]:
    """:raises Refused: another archive or prune is at work; the kernel frees the lock of one that was killed."""
    try:
        descriptor = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Refused(f"{state_dir / LOCK}: {error.strerror or error}; be the daemon's user") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.geteuid() == 0:  # also after a dry run by root the daemon's own user must get at it
                owner = state_dir.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
        except BlockingIOError as error:
            raise Refused(f"another marathonctl archive or prune is at work ({state_dir / LOCK}); wait for its end") from error
        yield
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one thing.  ``outcome``: ``archived``, ``already``, ``pruned``, ``would`` (a dry run), ``left`` (not meant by the
    request: too young, say) or ``refused``; ``why``: of the last two.  ``trial`` None: of no trial."""

    kind: str
    path: str
    outcome: str
    trial: int | None = None
    why: str = ""
    files: int = 0
    size_bytes: int = 0
    archive: str = ""
    sha256: str = ""
    campaign: str = ""


# ── archive ──


def archive_one(look: Look, ask: Ask, trial: Keepable, to: Path, ledger_id: str, *, dry_run: bool = False) -> Done:
    """Pack one trial into ``to``; what stands there already and is whole is left as it is."""
    folder = _folder(trial)
    done = Done("artifacts", str(folder), "refused", trial.trial_id, campaign=trial.campaign)
    if why := not_packed(trial.facts):
        return replace(done, outcome="left", why=why)
    assert trial.folder is not None
    target = to / f"{trial.folder}{SUFFIX}"
    try:
        # A removal that was broken off before it began: what stands there still may be needed, for its archive may be lost by now.
        gone = trial.facts.pruned and not (trial.prune is not None and trial.prune.done_at_ms is None and folder.is_dir())
        if (standing := trial.archive) is not None and (gone or (trial.facts.archived and _same(standing.file, target))):
            why = not_whole(standing.file, standing.sha256)
            if not why:
                why = f"archived by {standing.author} at {when(standing.at_ms)}"
                done = replace(done, outcome="already", why=why, archive=standing.file, sha256=standing.sha256)
                return replace(done, size_bytes=standing.size_bytes, files=standing.files)
            if gone:
                return replace(done, why=f"its artifacts are pruned, and {why}")
        if gone:
            return replace(done, why="its artifacts are pruned, and no archive of them stands")
        if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(folder)):
            return replace(done, why=f"{target} lies in what is packed")
        recorded = recorded_of(look, trial.trial_id)
        if problems := not_ours(folder, recorded, ledger_id, trial.trial_id):
            return replace(done, why=f"not provably ours: {problems}")
        if (said := _told(folder).get("state", trial.facts.state)) != trial.facts.state:
            return replace(
                done, why=f"{RESULT} says {said} still, the trial is {trial.facts.state}: marathond renews it while it runs; {AGAIN}"
            )
        if dry_run:
            return replace(done, outcome="would", archive=str(target))
        return _packed(look, ask, trial, folder, recorded, target, ledger_id, done)
    except OSError as error:  # of a look at the target: another trial's may lie where we may go
        return replace(done, why=f"{target}: {error.strerror or error}")
    except MarathonError as error:
        return replace(done, why=str(error))


def _same(file: str, target: Path) -> bool:
    """Also by a path with ``..``, as an earlier version wrote it down."""
    try:
        return Path(file) == target or target.samefile(file)
    except OSError:
        return False


def _told(folder: Path) -> dict[str, Any]:
    """What a trial's own document says of it in marathond's words; empty: nothing, as those of an earlier version."""
    try:
        said = json.loads(read_bounded(folder, RESULT, archiving.DOCUMENT_BYTES) or b"{}")["agent_result"]["metadata"]["marathond"]
    except (ValueError, KeyError, TypeError):
        return {}
    return said if isinstance(said, dict) else {}


def _packed(
    look: Look, ask: Ask, trial: Keepable, folder: Path, recorded: Sequence[Recorded], target: Path, ledger_id: str, done: Done
) -> Done:
    label = trial_label(trial.trial_id)
    if target.exists() and archiving.archive_of(target) != (ledger_id, label):
        return replace(done, why=f"{target} is there already, and is no archive of {label} of this ledger")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArtifactError("io", str(target.parent), error.strerror or str(error)) from error
    sync_folder(target.parent.parent)  # the campaign's folder, too, is there after a power cut
    about = {"ledger": ledger_id, "trial": label, "campaign": trial.campaign, "task": trial.task, "arm": trial.arm}
    about |= {"replicate": trial.replicate, "attempt": trial.attempt}  # type: ignore[dict-item]
    assert trial.facts.rested_at_ms is not None
    packed = archiving.pack(folder, recorded, target, about=about, at_s=trial.facts.rested_at_ms // 1000)
    (now,) = look(verbs.keepable, trials=[trial.trial_id])
    if now.facts.rested_at_ms != trial.facts.rested_at_ms:  # what was packed may be of before, the row would be of after
        return replace(done, why=f"something was decided about it while it was packed; {AGAIN}")
    said = {"file": str(target), "sha256": packed.sha256, "size_bytes": packed.size_bytes, "files": packed.files}
    ask("archived", {"trial": trial.trial_id, **said, "content_bytes": packed.content_bytes})
    return replace(done, outcome="archived", archive=str(target), sha256=packed.sha256, size_bytes=packed.size_bytes, files=packed.files)


def recorded_of(look: Look, trial_id: int) -> list[Recorded]:
    return [Recorded(row.path, row.sha256, row.size_bytes) for row in look(verbs.recorded, trial_id)]


def not_ours(folder: Path, recorded: Sequence[Recorded], ledger_id: str, trial_id: int, *, whole: bool = False) -> str:
    """What in the folder is not what marathond exported there; empty: all of it is.  ``whole``: hashes, too.

    :raises ArtifactError: the folder is not there, or cannot be read.
    """
    problems = archiving.strange(folder, recorded)
    result = read_bounded(folder, RESULT, archiving.DOCUMENT_BYTES)
    try:
        marked = None if result is None else json.loads(result)["id"]
    except (ValueError, KeyError, TypeError):
        marked = "unreadable"
    if result is None:
        problems.append(f"{RESULT}: is missing, and nothing else says whose these are; marathond writes it anew at its start")
    elif marked != trial_uuid(ledger_id, trial_id):
        problems.append(f"{RESULT}: is not of {trial_label(trial_id)} of this ledger")
    if whole and not problems:
        problems = archiving.altered(folder, recorded)
    return _named(problems)


def _named(problems: Sequence[str]) -> str:
    more = f" and {len(problems) - NAMED_AT_MOST} more" if len(problems) > NAMED_AT_MOST else ""
    return "; ".join(map(clean, problems[:NAMED_AT_MOST])) + more


def not_whole(file: str, sha256: str) -> str:
    """Why an archive is not the one that the ledger knows; empty: it is.  Reads all of it."""
    try:
        found, _ = archiving.file_sum(Path(file))
    except ArtifactError as error:
        return f"its archive {file} cannot be read: {error.detail}"
    return "" if found == sha256 else f"its archive {file} is not what was written (sha256 {sha256[:12]}…)"


def _folder(trial: Keepable) -> Path:
    return Path(trial.out_dir) / (trial.folder or "")


# ── prune ──


@dataclass(frozen=True, slots=True)
class Wanted:
    """What somebody wants removed.  ``kinds``: of what; ``trials``: of these alone, and then nothing that belongs to none."""

    older_than_ms: int
    now_ms: int
    reason: str
    kinds: frozenset[Kind] = frozenset(Kind)
    voids_only: bool = False
    unarchived: bool = False
    dry_run: bool = False


def prune_trial(look: Look, ask: Ask, trial: Keepable, wanted: Wanted, ledger_id: str) -> Done:
    """Artifacts of one trial."""
    folder = _folder(trial)
    done = Done("artifacts", str(folder), "refused", trial.trial_id, campaign=trial.campaign)
    limits = {"now_ms": wanted.now_ms, "older_than_ms": wanted.older_than_ms}
    if why := not_pruned(trial.facts, **limits, voids_only=wanted.voids_only, unarchived=wanted.unarchived):
        loud = "not archived" in why
        return replace(done, outcome="refused" if loud else "left", why=why)
    try:
        recorded = recorded_of(look, trial.trial_id)
        files, size, _ = archiving.tree_size(folder)
        done = replace(done, files=files, size_bytes=size, archive=trial.archive.file if trial.archive else "")
        # The archive first: it may be read for an hour, in which somebody puts something into the folder.
        if not wanted.dry_run and trial.archive is not None and (why := not_whole(trial.archive.file, trial.archive.sha256)):
            return replace(done, why=why)
        if problems := not_ours(folder, recorded, ledger_id, trial.trial_id, whole=not wanted.dry_run):
            return replace(done, why=f"not provably ours: {problems}")
        if wanted.dry_run:
            return replace(done, outcome="would")
        asked = {"trial": trial.trial_id, "unarchived": trial.archive is None}
        _remove_folder(ask, Kind.ARTIFACTS, folder, files, size, wanted.reason, asked, recorded)
    except MarathonError as error:
        return replace(done, why=str(error))
    return replace(done, outcome="pruned")


def _remove_folder(
    ask: Ask,
    kind: Kind,
    folder: Path,
    files: int,
    size: int,
    reason: str,
    more: dict[str, Any],
    recorded: Sequence[Recorded] | None = None,
) -> None:
    number = ask("prune", {"kind": kind.value, "path": str(folder), "files": files, "size_bytes": size, "reason": reason, **more})["prune"]
    _away(folder, recorded)
    ask("pruned", {"prune": number})


def _away(folder: Path, recorded: Sequence[Recorded] | None) -> None:
    """The folder goes.  ``recorded``: of artifacts.  Said again after a kill at any instant it comes to its end.

    Race prevented: what somebody put there after we looked.  Under its name aside nobody puts anything there, so the last look is at that.

    :raises ArtifactError: ``altered``: there is more in it than was exported, and it is under its own name again; ``io``.
    """
    archiving.move_aside(folder)
    if recorded is not None and (more := archiving.put_there(archiving.aside_name(folder), recorded)):
        archiving.move_back(folder)
        raise ArtifactError("altered", str(folder), _named(more))
    archiving.remove_aside(folder)


def prune_run_dirs(ask: Ask, run_root: Path, trials: Sequence[Keepable], wanted: Wanted) -> Iterator[Done]:
    """Run directories that stand although their trial was exported: their removal had failed."""
    there = {path.name: path for path in _listed(run_root)}
    for trial in trials:
        path = there.get(trial_label(trial.trial_id))  # by its whole name: t00001 is nobody's
        if path is None:
            continue
        done = Done("run_dir", str(path), "refused", trial.trial_id, campaign=trial.campaign)
        facts = replace(trial.facts, pruned=False, archived=True)
        if why := not_pruned(facts, now_ms=wanted.now_ms, older_than_ms=wanted.older_than_ms, voids_only=wanted.voids_only):
            yield replace(done, outcome="left", why=why)
            continue
        try:
            files, size, _ = archiving.tree_size(path)
            done = replace(done, files=files, size_bytes=size)
            if not wanted.dry_run:
                _remove_folder(ask, Kind.RUN_DIR, path, files, size, wanted.reason, {"trial": trial.trial_id})
            yield replace(done, outcome="would" if wanted.dry_run else "pruned")
        except MarathonError as error:
            yield replace(done, why=str(error))


def prune_build_logs(look: Look, ask: Ask, builds: Path, wanted: Wanted) -> Iterator[Done]:
    """Logs of images' builds, by when the ledger last heard of their task."""
    used = look(verbs.last_used)
    for path in _listed(builds):
        if path.suffix != ".log" or not path.is_file() or path.is_symlink():
            continue
        if path.stem in used:
            yield _file(ask, Kind.BUILD_LOG, path, used[path.stem], wanted)
        else:
            known = look(verbs.is_task, path.stem)
            yield Done(
                "build_log", str(path), "left", why="its task has a trial in work" if known else "no task of this ledger has that name"
            )


def prune_backups(ask: Ask, ledger: Path, ledger_id: str, wanted: Wanted) -> Iterator[Done]:
    """Copies that were made before migrations, by the last word of the ledger in them."""
    name = re.compile(re.escape(ledger.name) + r"\.before-\d{4}(\.\d+)?")
    for path in _listed(ledger.parent):
        if name.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            try:
                theirs, last_ms = backup_facts(path)
            except sqlite3.Error as error:
                yield Done("backup", str(path), "refused", why=f"cannot be read as a ledger: {error}")
                continue
            if theirs != ledger_id:
                yield Done("backup", str(path), "refused", why=f"is of ledger {clean(theirs)}, this is {ledger_id}")
            else:
                yield _file(ask, Kind.BACKUP, path, last_ms, wanted)


def backup_facts(path: Path) -> tuple[str, int]:
    """(id of the ledger, its last life's last sign of life, milliseconds).  Raises sqlite3.Error."""
    from urllib.parse import quote

    with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)) as c:
        row = c.execute("SELECT ledger_id, (SELECT max(seen_at_ms) FROM run), created_at_ms FROM ledger_identity").fetchone()
    if row is None:
        raise sqlite3.DatabaseError("it has no identity")
    return str(row[0]), int(row[1] or row[2])


def _file(ask: Ask, kind: Kind, path: Path, rested_at_ms: int, wanted: Wanted) -> Done:
    done = Done(kind.value, str(path), "refused", files=1)
    try:
        done = replace(done, size_bytes=path.lstat().st_size)
        if why := too_young(rested_at_ms, now_ms=wanted.now_ms, older_than_ms=wanted.older_than_ms):
            return replace(done, outcome="left", why=why)
        if wanted.dry_run:
            return replace(done, outcome="would")
        asked = {"kind": kind.value, "path": str(path), "files": 1, "size_bytes": done.size_bytes, "rested_at_ms": rested_at_ms}
        number = ask("prune", {**asked, "reason": wanted.reason})["prune"]
        path.unlink(missing_ok=True)
        ask("pruned", {"prune": number})
    except OSError as error:
        return replace(done, why=f"cannot be removed: {error.strerror or error}")
    except MarathonError as error:
        return replace(done, why=str(error))
    return replace(done, outcome="pruned")


def finish_broken_off(look: Look, ask: Ask, ledger_id: str, *, dry_run: bool) -> Iterator[Done]:
    """Removals that an earlier command began and did not end, whatever is asked for now: their rows say that they are gone."""
    for row in look(verbs.broken_off):
        done = Done(row.kind, row.path, "would" if dry_run else "pruned", row.trial_id, "was broken off", row.files, row.size_bytes)
        try:
            if problems := _still_that(look, row, ledger_id):
                yield replace(done, outcome="refused", why=f"its removal was broken off, and now: {problems}")
                continue
            if not dry_run:
                _finish(look, row)
                ask("pruned", {"prune": row.prune_id})
            yield done
        except OSError as error:
            yield replace(done, outcome="refused", why=f"cannot be removed: {error.strerror or error}")
        except sqlite3.Error as error:
            yield replace(done, outcome="refused", why=f"its removal was broken off, and now it cannot be read as a ledger: {error}")
        except MarathonError as error:
            yield replace(done, outcome="refused", why=str(error))


def _still_that(look: Look, row: PruneRow, ledger_id: str) -> str:
    """Why what lies there now is not what the row speaks of; empty: it is, or nothing lies there."""
    path = Path(row.path)
    if not path.parent.is_dir():
        return f"{path.parent} is not there, so whether it is gone cannot be seen: is its disk mounted?"
    if row.kind == Kind.ARTIFACTS and row.trial_id is not None:
        there, aside = path.exists(), archiving.aside_name(path).exists()
        if (there or aside) and not row.unarchived and (why := _archive_lost(look, row.trial_id)):
            return why
        return not_ours(path, recorded_of(look, row.trial_id), ledger_id, row.trial_id, whole=True) if there else ""
    if not path.exists():
        return ""
    if row.kind == Kind.BACKUP:
        return "" if backup_facts(path) == (ledger_id, row.rested_at_ms) else "another backup has that name"
    if row.kind == Kind.BUILD_LOG:
        return "" if look(verbs.last_used).get(path.stem) == row.rested_at_ms else "its task was used since"
    return ""


def _archive_lost(look: Look, trial_id: int) -> str:
    """Why what is left of a trial's artifacts must stay; empty: its archive stands, whole."""
    (trial,) = look(verbs.keepable, trials=[trial_id])
    if trial.archive is None:
        return "no archive of it stands"
    why = not_whole(trial.archive.file, trial.archive.sha256)
    return f"{why}; marathonctl archive {trial_label(trial_id)} packs it anew while it is whole" if why else ""


def _finish(look: Look, row: PruneRow) -> None:
    path = Path(row.path)
    if row.kind in (Kind.ARTIFACTS, Kind.RUN_DIR):
        _away(path, recorded_of(look, row.trial_id) if row.kind == Kind.ARTIFACTS and row.trial_id is not None else None)
    else:
        path.unlink(missing_ok=True)


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Refused(f"{folder}: {error.strerror or error}") from error
