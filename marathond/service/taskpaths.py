"""From the paths, folders of tasks and patterns of ``[campaign]`` to task folders.

Owns patterns, ``include``, ``exclude`` and the rule that a task's name is its folder's.  Must not read what is in a folder: a bad task
parks its cells later and disturbs nobody; a path, a pattern or a name that fits nothing is a typing error and is refused here, for a task
once submitted is its campaign's for ever.
"""

from __future__ import annotations

import difflib
import glob
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from marathond.core.benchmark import NAMES_SHOWN
from marathond.core.errors import ConfigError
from marathond.core.tomlindex import dotted
from marathond.service.knobs import did_you_mean
from marathond.service.settings import Settings, where
from marathond.service.settings_errors import ConfigErrors
from marathond.service.tomlfile import show

TASKS_MAX = 10_000
"""More folders than this is a pattern gone wrong."""
NEAR_AT_MOST = 5
"""Names in one line of what is wrong, and as many of what may be meant."""
_ESCAPED = re.compile(r"\[([*?[])\]")
"""A character that :func:`glob.escape` wrote: a configuration's own folder may have any."""
_WILD = re.compile(r"[*?]|\[[^]]*\]")


def task_folders(settings: Settings, *, begun: Mapping[str, str] | None = None, known: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """The campaign's task folders by name, each once.

    :param known: tasks that the ledger has of the campaign, by name, in these folders.  Where they are gone (a disk that is not mounted)
        they are listed all the same, and park: an arm or a replicate can be added meanwhile.
    :param begun: the same, of a campaign that a daemon's start goes on with.  Running agents must not lose their daemon over a path,
        pattern or name that fits nothing (a disk to come), nor over a rule of ``[scores]`` for one: it is left out, see :func:`left_out`.
    :raises ConfigErrors: a path that is no task and no folder of tasks, a pattern without a match, a name in ``include``, ``exclude``,
        ``verifier.exclusive`` or ``[scores]`` that no task has, two folders of one name, no task left, or more than :data:`TASKS_MAX`.
    """
    seen = _seen(settings, (begun if begun is not None else known) or {})
    errors = list(seen.errors)
    if begun is None:
        errors += seen.unfit
        if errors and not seen.found:
            raise ConfigErrors(errors)  # without a folder every name is unknown: that would be said again for each
        errors += [*_rules_without_task(settings, seen.names), *_alone_without_task(settings, seen.names)]
    if (count := len(seen.chosen)) > TASKS_MAX:
        errors.append(ConfigError(where(settings, "campaign", "tasks"), f"campaign.tasks: {count}", f"must be at most {TASKS_MAX}"))
    if errors:
        raise ConfigErrors(errors)
    return tuple(seen.found[name] for name in sorted(seen.chosen))


def left_out(settings: Settings, begun: Mapping[str, str]) -> tuple[ConfigError, ...]:
    """What a start that goes on with a campaign passes over, in the words in which a submission refuses it."""
    seen = _seen(settings, begun)
    return (*seen.unfit, *_rules_without_task(settings, seen.names), *_alone_without_task(settings, seen.names))


@dataclass(frozen=True, slots=True)
class _Seen:
    """``found``: folders by name; ``chosen``: of them, the names that ``include`` and ``exclude`` leave; ``names``: with those of tasks
    that the ledger knows.  ``errors``: what nobody can go on with; ``unfit``: what fits nothing."""

    found: Mapping[str, Path]
    chosen: Set[str]
    names: Collection[str]
    errors: Sequence[ConfigError]
    unfit: Sequence[ConfigError]


def _seen(settings: Settings, known: Mapping[str, str]) -> _Seen:
    errors, unfit = [], []
    found: dict[str, Path] = {}
    for index, pattern in enumerate(settings.campaign.tasks):
        folders = _folders(pattern) or _vanished(pattern, known)
        if not folders:
            unfit.append(_error(settings, "tasks", index, pattern, _no_task(pattern)))
        for folder in folders:
            if found.setdefault(folder.name, folder) != folder:
                errors.append(_error(settings, "tasks", index, str(folder), f"has the same name as {found[folder.name]}"))
    names = {**dict.fromkeys(known), **dict.fromkeys(found)}
    if found:
        unfit += _unknown_names(settings, names)
    chosen = {name for name in found if not settings.campaign.include or name in settings.campaign.include}
    chosen -= set(settings.campaign.exclude)
    if not chosen and not unfit and not errors:
        unfit.append(ConfigError(where(settings, "campaign", "exclude"), "campaign", "no task is left"))
    return _Seen(found, chosen, names, errors, unfit)


def _folders(pattern: str) -> list[Path]:
    path = Path(pattern)
    try:
        if path.is_dir():
            return [path] if (path / "task.toml").exists() else _tasks_below(path)
    except PermissionError:
        return [path]  # reading it as a task says what may not be read, and parks it
    except OSError:
        return []  # a name that no file system takes, a server that is away: :func:`_no_task` says which
    if not glob.has_magic(pattern):
        return []
    matches = glob.glob(pattern)  # noqa: PTH207  # Path.glob would match hidden folders
    return sorted(match for match in map(Path, matches) if _is_folder(match))


def _is_folder(path: Path) -> bool:
    """As far as can be seen: what cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _tasks_below(path: Path) -> list[Path]:
    """The folders in ``path`` if it is a folder of tasks: if one of them has a task.toml.  One without parks, it is not passed over."""
    folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    return folders if any((folder / "task.toml").exists() for folder in folders) else []


def _vanished(pattern: str, known: Mapping[str, str]) -> list[Path]:
    """What a campaign knows of a folder of tasks, a pattern or a task that leads nowhere now."""
    path, folders = Path(pattern), sorted(map(Path, known.values()))
    if _is_pattern(path):
        return [folder for folder in folders if folder.match(pattern)]
    if below := [folder for folder in folders if folder.parent == path]:
        return below
    return [path] if path.name in known else []


def _is_pattern(path: Path) -> bool:
    """Not so for a configuration's own folder with such characters in its name: that is there, as it is written."""
    return any(glob.has_magic(each.name) and not _is_folder(each) for each in (path, *path.parents))


def _no_task(pattern: str) -> str:
    try:
        return _why_none(Path(pattern), pattern)
    except OSError as error:
        return f"cannot be looked at: {error.strerror or error}"


def _why_none(path: Path, pattern: str) -> str:
    if path.is_dir():
        names = sorted(child.name for child in islice(path.iterdir(), TASKS_MAX) if child.is_dir() and not child.name.startswith("."))
        return "holds no task.toml, and no folder that does" + _near([], names, of=" in it")
    if glob.has_magic(pattern):
        return "matches no folder" + _near_folders(pattern)
    return ("is no folder" if path.exists() else "no such folder") + _near_folders(pattern)


def _near_folders(pattern: str) -> str:
    """What there is in place of the first part of a pattern that leads nowhere; empty: nothing."""
    base, *parts = Path(pattern).parts
    here = Path(base)
    for part in parts:
        literal = _ESCAPED.sub(r"\1", part)
        if (here / part).is_dir():
            here /= part
            continue
        if glob.has_magic(_ESCAPED.sub("", part)) or not (here / literal).is_dir():
            break
        here /= literal
    else:
        return ""
    try:
        names = [child.name for child in islice(here.iterdir(), TASKS_MAX) if not child.name.startswith(".") and child.is_dir()]
    except OSError:
        return ""
    return _near([_WILD.sub("", literal)], names, of=f" in {here}")


def _near(wrong: Sequence[str], known: Iterable[str], *, of: str = "") -> str:
    """``; near names: one, two``, at most :data:`NEAR_AT_MOST`; where none is near, the first there are; empty: there is none."""
    names = sorted(known)
    near = list(dict.fromkeys(close for name in wrong for close in difflib.get_close_matches(name, names, n=NEAR_AT_MOST, cutoff=0.6)))
    if near:
        return f"; near names{of}: {', '.join(near[:NEAR_AT_MOST])}"
    return f"; there {'is' if len(names) == 1 else 'are'}{of} {_few(names)}" if names else ""


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:NEAR_AT_MOST]) + (f" and {len(names) - NEAR_AT_MOST} more" if len(names) > NEAR_AT_MOST else "")


def _unknown_names(settings: Settings, found: Collection[str]) -> list[ConfigError]:
    """A line for each, but one for a list of which nothing fits, or more than a few names do not."""
    errors = []
    for key in ("include", "exclude"):
        names = getattr(settings.campaign, key)
        wrong = [name for name in names if name not in found]
        if len(wrong) > NEAR_AT_MOST or len(wrong) == len(names) > 1:
            what = "none of its {} names is a task" if len(wrong) == len(names) else f"{len(wrong)} of its {{}} names are no tasks"
            expected = f"{what.format(len(names))} ({_few(wrong)}){_near(wrong, found)}"
            errors.append(ConfigError(where(settings, "campaign", key), f"campaign.{key}", expected))
            continue
        errors += [
            _error(settings, key, index, name, "no such task" + did_you_mean(name, found))
            for index, name in enumerate(names)
            if name not in found
        ]
    return errors


def _rules_without_task(settings: Settings, found: Collection[str]) -> list[ConfigError]:
    names = sorted(found)
    known = ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else "")
    wrong = [name for name in settings.scores if name not in found]
    hints = {name: did_you_mean(name, found, otherwise=f"; there are {known}") for name in wrong}
    return [ConfigError(where(settings, "scores", name), dotted(("scores", name)), f"no such task{hints[name]}") for name in wrong]


def _alone_without_task(settings: Settings, found: Collection[str]) -> list[ConfigError]:
    return [
        ConfigError(
            where(settings, "verifier", "exclusive", index),
            show(f"verifier.exclusive[{index}]", name),
            "no such task" + did_you_mean(name, found),
        )
        for index, name in enumerate(settings.verifier.exclusive)
        if name not in found
    ]


def _error(settings: Settings, key: str, index: int, value: str, expected: str) -> ConfigError:
    return ConfigError(where(settings, "campaign", key, index), show(f"campaign.{key}[{index}]", value), expected)
