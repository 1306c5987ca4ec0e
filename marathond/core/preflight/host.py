"""Rows about this host: places on disk, room, limits, clocks.

Owns the arithmetic of what the configured concurrency needs.  Bytes, mebibytes and milliseconds are in the names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from marathond.core.preflight.rows import Row, count, named, not_needed, ok, red, unknown, warn

FILES_BASE = 256
FILES_PER_TRIAL_LEAST, FILES_PER_TRIAL_MOST = 16, 128
"""Descriptors of daemon or gateway for each trial: a listener, a few streams, logs; at most a listener's bounds of both directions."""

_GIB = 1 << 30
_OVER = {"cores": "admission.cpu_overcommit", "memory": "admission.memory_overcommit"}


@dataclass(frozen=True, slots=True)
class Place:
    """What writing into a folder showed.  ``problem``: why a step of it failed (create, fsync, rename, read back).

    ``kind``: type of the file system, empty: not known; ``network``: it lies on another machine.  ``us``: our uid; ``seen_uid``: whose a
    file of ours became; ``as_agent``: what a process with an agent's uid met that wrote into an open folder there, empty when it went
    well, None when it could not be tried.
    """

    path: str
    owner: str
    problem: str = ""
    kind: str = ""
    network: bool = False
    us: int = 0
    seen_uid: int | None = None
    as_agent: str | None = None


def state_dir(place: Place) -> Row:
    if place.problem:
        return red("state_dir", f"{place.path}: {place.problem}", "be root or the daemon's user; the folder must be on a local disk")
    if not place.kind:
        return unknown("state_dir", f"{place.path}: on which kind of file system is not known", "look at it: findmnt -T PATH")
    if place.network:
        return red("state_dir", f"{place.path} is on {place.kind}, a network file system", "move daemon.state_dir to a local disk")
    return ok("state_dir", f"{place.path}: {place.kind}, owned by {place.owner}, written and synced")


def out_dir(place: Place) -> Row:
    if place.problem:
        return red("out_dir", f"{place.path}: {place.problem}", "be root or the daemon's user; make it writable")
    if not place.kind:
        return unknown("out_dir", f"{place.path}: on which kind of file system is not known", "look at it: findmnt -T PATH")
    kind = f"{place.kind} (on another machine)" if place.network else place.kind
    return ok("out_dir", f"{place.path}: {kind}, owned by {place.owner}, written and synced")


def out_dir_owner(place: Place) -> Row:
    """Whose files are there: what root writes over NFS may become nobody's (root_squash)."""
    if place.problem or place.seen_uid is None:
        return unknown("out_dir_owner", "nothing could be written there", "mend out_dir first")
    if place.seen_uid != place.us:
        words = f"root_squash: files that uid {place.us} writes become uid {place.seen_uid}'s"
        return warn("out_dir_owner", words, f"export it with no_root_squash, or let uid {place.seen_uid} own {place.path}")
    if place.as_agent is None:
        return unknown("out_dir_owner", f"files stay uid {place.us}'s; only root can try another uid", "run it as root, as the daemon is")
    if place.as_agent:
        words = f"files stay uid {place.us}'s; an agent's uid cannot write: {place.as_agent}"
        return warn("out_dir_owner", words, "nothing to do while the daemon copies artifacts; owners of copies are lost there")
    return ok("out_dir_owner", f"files stay their writer's: uid {place.us}, and an agent's")


@dataclass(frozen=True, slots=True)
class Space:
    """Of a file system that something of ours lies on.  ``why``: it could not be seen."""

    what: str
    free_bytes: int = 0
    total_bytes: int = 0
    why: str = ""


def disk(space: Space, *, floor_percent: float, floor_bytes: int, need_bytes: int, at_once: int) -> Row:
    """:param need_bytes: what ``at_once`` trials may fill here by their declared storage, beyond the floor."""
    if space.why:
        return unknown("disk", space.why, "look there with df", space.what)
    floor = max(floor_bytes, int(space.total_bytes * floor_percent / 100))
    words = f"{_gib(space.free_bytes)} free of {_gib(space.total_bytes)}, floor {_gib(floor)}"
    if space.free_bytes < floor:
        return red("disk", words, "make room: nothing is admitted below admission.disk_floor_*", space.what)
    if space.free_bytes - floor < need_bytes:
        words += f"; {count(at_once, 'trial')} at once may fill {_gib(need_bytes)}"
        return warn("disk", words, "make room, or lower admission.concurrency", space.what)
    return ok("disk", words, space.what)


@dataclass(frozen=True, slots=True)
class Size:
    """A task that runs, what one trial of it counts for, and how many of it there are."""

    task: str
    cpus: float
    memory_mb: int
    storage_mb: int
    cells: int


def worst(amounts: Sequence[tuple[float, int]], slots: int) -> float:
    """The most that ``slots`` trials can ask for together: (amount, how many of it) pairs."""
    total = 0.0
    for amount, cells in sorted(amounts, reverse=True):
        taken = min(cells, slots)
        total += amount * taken
        slots -= taken
    return total


def cores(sizes: Sequence[Size], concurrency: int, have: float) -> Row:
    """:param have: of the engine's host, times the overcommit, without the reserve."""
    pairs = [(size.cpus, size.cells) for size in sizes]
    return _room("cores", pairs, concurrency, have, lambda amount: f"{amount:g}", "cores")


def memory(sizes: Sequence[Size], concurrency: int, have_mb: float) -> Row:
    """As :func:`cores`, in MiB."""
    pairs = [(float(size.memory_mb), size.cells) for size in sizes]
    return _room("memory", pairs, concurrency, have_mb, lambda amount: _gib(int(amount) << 20), "memory")


def _room(code: str, pairs: Sequence[tuple[float, int]], concurrency: int, have: float, words: Callable[[float], str], what: str) -> Row:
    slots = min(concurrency, sum(cells for _, cells in pairs))
    if not slots:
        return not_needed(code, "no task can run")
    largest, need = max(amount for amount, _ in pairs), worst(pairs, slots)
    seen = f"{slots} at once need up to {words(need)} of {words(have)} {what}"
    if largest > have:
        # An idle host admits one cell whatever its size: it runs, alone.
        return warn(
            code, f"{seen}; the largest task alone needs {words(largest)}", f"it runs alone; see admission.reserve_* and {_OVER[code]}"
        )
    if need > have:
        fit = int(have // largest)
        return warn(code, f"{seen}: {fit} of the largest fit", f"the others wait; lower admission.concurrency or raise {_OVER[code]}")
    return ok(code, seen)


def tasks(total: int, parked: Mapping[str, str], blind: str = "") -> Row:
    """``parked``: task → the code its cells park with, whatever the arm.  ``blind``: why the host's size is not known."""
    words = named(f"{task} ({code})" for task, code in parked.items())
    if len(parked) == total:
        return red("tasks", f"none can run: {words}", "see marathonctl plan")
    if blind:
        also = f"; {len(parked)} of {total} park anyway: {words}" if parked else ""
        return unknown("tasks", f"whether they fit on the engine's host: {blind}{also}", "see marathonctl plan")
    if parked:
        return warn("tasks", f"{len(parked)} of {total} park: {words}", "see marathonctl plan; mend or exclude them")
    return ok("tasks", f"all {total} can run")


def open_files(soft: int, hard: int, concurrency: int, whose: str) -> Row:
    """Limits of open files, of the running daemon or of this shell, which would start it; the units of systemd have their own (65536)."""
    least, most = (FILES_BASE + concurrency * each for each in (FILES_PER_TRIAL_LEAST, FILES_PER_TRIAL_MOST))
    words = f"{soft} ({whose}); {count(concurrency, 'trial')} need {least} to {most}"
    todo = f"ulimit -n {min(most, hard)}" + (f" (the hard limit is {hard})" if most > hard else "") + ", or start it by systemd"
    if soft < least:
        return red("open_files", words, todo)
    if soft < most:
        return warn("open_files", words, todo)
    return ok("open_files", words)


@dataclass(frozen=True, slots=True)
class Offset:
    """A folder's clock minus ours; ``ms`` None: not seen, and ``why``."""

    what: str
    ms: int | None
    why: str = ""


def clock_offset(offsets: Sequence[Offset], at_most_ms: int) -> Row:
    """Each against the wall clock and against the others (fault e05)."""
    if blind := [offset for offset in offsets if offset.ms is None]:
        return unknown("clock_offset", "; ".join(f"{offset.what}: {offset.why}" for offset in blind), "make it writable, then again")
    known = {offset.what: offset.ms for offset in offsets if offset.ms is not None}
    words = ", ".join(f"{what} {round(ms / 1000, 1) + 0.0:+.1f} s" for what, ms in known.items())
    apart = max(known.values()) - min(known.values()) if known else 0
    if apart > at_most_ms or any(abs(ms) > at_most_ms for ms in known.values()):
        words += f"; {apart / 1000:.1f} s apart" if len(known) > 1 else ""
        return warn("clock_offset", f"against this host's clock: {words}", "set the clocks by NTP; order by the ledger, not by file times")
    return ok("clock_offset", f"against this host's clock: {words}")


def ledger(path: str, ledger_id: str, missing: bool, why: str) -> Row:
    """``why``: it is there and cannot be read."""
    if missing:
        return red("ledger", f"none at {path}", "marathonctl init")
    if why:
        return unknown("ledger", why, "run it as root or the daemon's user; marathonctl ledger check")
    return ok("ledger", f"{ledger_id} at {path}")


def _gib(count_bytes: int) -> str:
    return f"{count_bytes / _GIB:.1f} GiB"
