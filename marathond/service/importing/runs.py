"""The file-based runs of the scripts before this project: ``<out>/<task>/<arm>/<stamp>/<arm>/<trial>``, and their sibling of voided trials.

Owns that layout: arms that had to begin another folder (``<arm>-<pid>``), claims of what is still in work, the drivers' settings, withdrawn
trials with the reasons in their READMEs.  Must not decide which trial counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from marathond.core.errors import Refused
from marathond.core.text import printable
from marathond.service.importing.job import Job, read_job
from marathond.service.importing.owner import Sieve
from marathond.service.importing.seen import NAME_MAX, Difference, Listed, Reading, Seen
from marathond.service.importing.tree import FILE, FOLDER, Parts, Tree
from marathond.service.importing.trial import TrialRead, looks_like_trial, read_trial

CLAIMS, DRIVER_ENV = ".claims", ".driver_env"
DEPTH = 4
"""Names from the out folder to a job: task, arm, stamp, arm."""
MAX_BATCH_DEPTH = 3
"""Folders above a task in the folder of voided trials."""
_NUMBERED = re.compile(r"(.+)-(\d{2,7})", re.DOTALL)
_SETTING = re.compile(r"\s*(?:export\s+)?([A-Z][A-Z0-9_]*)=(.*)")
_TOLD = ("MARATHON_", "GOAL_", "NET_", "WEN_MODE")
"""Settings of the drivers that are taken over, by their beginning: others might hold a secret."""
HARBOR_JOB = "harbor_job"
READMES = ("README", "README.md", "README.txt")
MAX_TEXT_BYTES = 1 << 20


def is_runs(tree: Tree) -> bool:
    """Whether the folder is the out folder of such runs."""
    if tree.has((), CLAIMS, FOLDER) or tree.has((), DRIVER_ENV):
        return True
    return any(True for _ in _jobs_blindly(tree))


def _jobs_blindly(tree: Tree) -> Iterator[Parts]:
    for task in _plain(tree, ()):
        for arm in _plain(tree, (task,)):
            for stamp in _plain(tree, (task, arm)):
                for job in _plain(tree, (task, arm, stamp)):
                    if job == arm or _base(arm) == job:
                        yield (task, arm, stamp, job)


def _plain(tree: Tree, parts: Parts) -> list[str]:
    return [entry.name for entry in tree.entries(parts) if entry.kind == FOLDER and not entry.name.startswith(".")]


def _base(name: str) -> str | None:
    found = _NUMBERED.fullmatch(name)
    return found[1] if found else None


def read_runs(tree: Tree, uid: int | None = None, aside: Sequence[Parts] = ()) -> Reading:
    """Every trial of the out folder and of its sibling of voided ones.

    :param aside: folders below it that hold something else: listed.
    """
    for parts in aside:
        tree.note(HARBOR_JOB, parts, "a Harbor job among runs, which one import does not mix: import its own folder by itself")
    sieve = Sieve(tree, uid)
    told: list[str] = []
    jobs = list(_jobs(tree, sieve, aside=aside))
    arms = _arms(jobs, told)
    claims = _claims(tree)
    trials: list[Seen] = []
    differences: list[Difference] = []
    attempts = 1
    for parts in jobs:
        job = read_job(tree, parts)
        attempts = max(attempts, job.attempts)
        names = [entry.name for entry in sieve.folders(parts) if looks_like_trial(tree, (*parts, entry.name))]
        if not names:
            tree.note("empty", parts, "a job without a trial")
        for name in names:
            read = read_trial(tree, (*parts, name), job)
            claim = next((claims[key] for key in ((parts[0], parts[1]), (parts[0], arms[parts])) if key in claims), None)
            if not read.finished and claim is not None:
                tree.note("in_work", (*parts, name), f"not at its end, and claimed by {claim}: a later import takes it")
                continue
            trials.append(_seen(tree, (*parts, name), parts[0], arms[parts], read))
            differences += _difference(tree, (*parts, name), job, read)
    withdrawn, listed = _voided(tree, sieve, told, set(arms.values()))
    gone = {trial.key for trial in withdrawn}
    for trial in trials:
        if trial.key in gone:
            told.append(f"{trial.key} lies among the voided trials, too: it is withdrawn")
    kept = [trial for trial in trials if trial.key not in gone]
    return Reading(
        "runs",
        str(tree.root),
        (*kept, *withdrawn),
        (*tree.listed, *listed),
        tuple(differences),
        attempts,
        tuple(told),
        _driver_env(tree),
    )


def _jobs(tree: Tree, sieve: Sieve, above: Parts = (), aside: Sequence[Parts] = ()) -> Iterator[Parts]:
    for task in sieve.folders(above, shared=True):
        if (*above, task.name) in aside:
            continue
        for arm in sieve.folders((*above, task.name)):
            for stamp in sieve.folders((*above, task.name, arm.name)):
                here = (*above, task.name, arm.name, stamp.name)
                found = [entry.name for entry in sieve.folders(here)]
                jobs = [name for name in found if name in (arm.name, _base(arm.name))]
                for name in found:
                    if name not in jobs:
                        tree.note("layout", (*here, name), f"expected a job named {_base(arm.name) or arm.name}")
                for name in jobs:
                    yield (*here, name)


def _arms(jobs: Sequence[Parts], told: list[str]) -> dict[Parts, str]:
    """Job → arm.  ``<arm>-<pid>`` is the arm where another folder, or the job inside, has the arm's plain name."""
    plain = {parts[-1] for parts in jobs if _base(parts[-1]) is None} | {parts[-3] for parts in jobs if _base(parts[-3]) is None}
    arms: dict[Parts, str] = {}
    for parts in jobs:
        folder, base = parts[-3], _base(parts[-3])
        arms[parts] = base if base is not None and base in plain else folder
        line = f"{parts[-4]}/{folder} is arm {arms[parts]}: another folder of it, named by a process"
        if arms[parts] != folder and line not in told:
            told.append(line)
    return arms


def _claims(tree: Tree) -> dict[tuple[str, str], str]:
    """(task, arm) → who claims it; the arm as its folder is named or as itself."""
    found: dict[tuple[str, str], str] = {}
    for entry in tree.entries((CLAIMS,)) if tree.has((), CLAIMS, FOLDER) else ():
        task, sign, arm = entry.name.removesuffix(".claim").partition("__")
        if entry.kind != FILE or not sign or not entry.name.endswith(".claim"):
            continue
        data = tree.read((CLAIMS, entry.name), MAX_TEXT_BYTES) or b""
        pid = data.decode("ascii", "replace").strip()
        found[task, arm] = f"pid {printable(pid, 20)}" if pid else "a claim without a pid"
    return found


def _driver_env(tree: Tree) -> Mapping[str, str]:
    data = tree.read((DRIVER_ENV,), MAX_TEXT_BYTES) if tree.has((), DRIVER_ENV) else None
    matches = [_SETTING.fullmatch(line) for line in (data or b"").decode("utf-8", "replace").splitlines()]
    return {m[1]: printable(m[2].strip().strip("\"'"), NAME_MAX) for m in matches if m is not None and m[1].startswith(_TOLD)}


def _seen(tree: Tree, parts: Parts, task: str, arm: str, read: TrialRead) -> Seen:
    key = "/".join(parts)
    return Seen(key, tree.place(parts), task, arm, key, read.sha256, read.score, read.why, read.details, facts=read.facts)


def _difference(tree: Tree, parts: Parts, job: Job, read: TrialRead) -> Iterator[Difference]:
    done, numbers = job.old_rule
    if done == (not read.why):
        return
    why = read.why or ("a spent budget is an ordinary end of a long task" if read.errors else "its own files hold a whole result")
    yield Difference(tree.place(parts), f"{'done' if done else 'not done'} ({numbers})", "valid" if not read.why else "no result", why)


def voided_folder(root: Path) -> Path | None:
    """``marathon-voided`` beside ``marathon-full``, or ``<out>-voided``; a link in its place, too.

    :raises Refused: it cannot be told whether there is one; what was withdrawn would count.
    """
    stem = root.name.rpartition("-")[0]
    names = [f"{root.name}-voided", *([f"{stem}-voided"] if stem else []), "voided"]
    try:
        return next((found for name in names if (found := root.parent / name) != root and found.is_dir()), None)
    except OSError as error:
        raise Refused(f"{root.parent}: {error.strerror}: cannot see whether trials were withdrawn there") from error


def _voided(out: Tree, sieve: Sieve, told: list[str], known: set[str]) -> tuple[list[Seen], list[Listed]]:
    """Withdrawn trials, under the keys that they had in the out folder."""
    folder = voided_folder(out.root)
    if folder is None:
        return [], []
    if folder.is_symlink():
        return [], [Listed("link", f"../{folder.name}", "a symbolic link, not followed: trials that were withdrawn there are not known")]
    tree = Tree(folder)
    told.append(f"withdrawn trials are read from {folder}")
    inner = Sieve(tree, sieve.uid)
    trials = []
    for above, parts in _places(tree, inner, ()):
        task, arm, stamp, name = parts
        plain = base if (base := _base(arm)) is not None and (base in known or base == name) else arm
        here = (*above, *parts)
        job = read_job(tree, here)
        for entry in inner.folders(here):
            if not looks_like_trial(tree, (*here, entry.name)):
                continue
            read = read_trial(tree, (*here, entry.name), job)
            key = "/".join((task, arm, stamp, name, entry.name))
            reason = f"withdrawn there: {_reason(tree, (*here, entry.name))}"
            place = f"{folder.name}/{tree.place((*here, entry.name))}"
            trials.append(
                Seen(key, place, task, plain, key, read.sha256, read.score, reason, read.details, withdrawn=True, facts=read.facts)
            )
    listed = [Listed(each.code, f"{folder.name}/{each.place}", each.why) for each in tree.listed]
    return trials, listed


def _places(tree: Tree, sieve: Sieve, above: Parts) -> Iterator[tuple[Parts, Parts]]:
    """(folders of batches, the four names of a job): in the folder of voided trials a run's tree may lie below folders of its own."""
    for entry in sieve.folders(above, shared=True):
        here = (*above, entry.name)
        jobs = list(_fitting(sieve, above, entry.name))
        if jobs:
            yield from ((above, job) for job in jobs)
        elif looks_like_trial(tree, here):
            tree.note("layout", here, "a trial whose task and arm its path does not tell (task/arm/stamp/arm/trial)")
        elif len(above) < MAX_BATCH_DEPTH:
            yield from _places(tree, sieve, here)


def _fitting(sieve: Sieve, above: Parts, task: str) -> Iterator[Parts]:
    for arm in _names(sieve, (*above, task)):
        for stamp in _names(sieve, (*above, task, arm)):
            for job in _names(sieve, (*above, task, arm, stamp)):
                if job in (arm, _base(arm)):
                    yield (task, arm, stamp, job)


def _names(sieve: Sieve, parts: Parts) -> list[str]:
    return [entry.name for entry in sieve.folders(parts)]


def _reason(tree: Tree, parts: Parts) -> str:
    """Of the nearest README above: the line that names the trial, its stamp or its task, else its first words."""
    for depth in range(len(parts), -1, -1):
        here = parts[:depth]
        name = next((each for each in READMES if tree.has(here, each)), None)
        data = tree.read((*here, name), MAX_TEXT_BYTES) if name else None
        if data is not None and (lines := _lines(data)):
            named = (line for part in reversed(parts[depth:]) for line in lines if part in line)
            return printable(next(named, lines[0]), 2 * NAME_MAX)
    return "no README says why"


def _lines(data: bytes) -> list[str]:
    """Without marks of headings and lists; a heading is the last choice."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    prose = [line.lstrip("-* ") for line in lines if not line.startswith(("#", "=="))]
    return prose or [line.lstrip("# ") for line in lines]
