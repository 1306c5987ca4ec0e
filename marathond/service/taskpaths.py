"""From the paths, folders of tasks and patterns of ``[campaign]`` to task folders.

Owns patterns, ``include``, ``exclude`` and the rule that a task's name is its folder's.  Must not read what is in a folder: a bad task
parks its cells later and disturbs nobody; a pattern or a name that fits nothing is a typing error and is refused here.
"""

from __future__ import annotations

import glob
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


def task_folders(settings: Settings, *, begun: bool = False) -> tuple[Path, ...]:
    """The campaign's task folders by name, each once.  A folder named without a pattern is listed even if it is not there.

    :param begun: a daemon goes on with the campaign, and a rule of ``[scores]`` whose task's folder is gone must not end it.
    :raises ConfigErrors: a pattern without a match, a name in ``include``, ``exclude``, ``verifier.exclusive`` or ``[scores]`` that no task
        has, two folders of one name, no task left, or more than :data:`TASKS_MAX`.
    """
    errors: list[ConfigError] = []
    found: dict[str, Path] = {}
    for index, pattern in enumerate(settings.campaign.tasks):
        folders = _folders(pattern)
        if not folders:
            errors.append(_error(settings, "tasks", index, pattern, "matches no folder"))
        for folder in folders:
            if found.setdefault(folder.name, folder) != folder:
                errors.append(_error(settings, "tasks", index, str(folder), f"has the same name as {found[folder.name]}"))
    errors += [*_unknown_names(settings, found), *([] if begun else _rules_without_task(settings, found))]
    errors += [] if begun else _alone_without_task(settings, found)
    chosen = {name for name in found if not settings.campaign.include or name in settings.campaign.include}
    chosen -= set(settings.campaign.exclude)
    if not errors and not chosen:
        errors.append(ConfigError(where(settings, "campaign", "exclude"), "campaign", "no task is left"))
    if len(chosen) > TASKS_MAX:
        errors.append(ConfigError(where(settings, "campaign", "tasks"), f"campaign.tasks: {len(chosen)}", f"must be at most {TASKS_MAX}"))
    if errors:
        raise ConfigErrors(errors)
    return tuple(found[name] for name in sorted(chosen))


def _folders(pattern: str) -> list[Path]:
    path = Path(pattern)
    try:
        if path.is_dir():
            return [path] if (path / "task.toml").exists() else _tasks_below(path) or [path]
    except PermissionError:
        return [path]  # reading it as a task says what may not be read, and parks it
    if not glob.has_magic(pattern):
        return [path]
    matches = glob.glob(pattern)  # noqa: PTH207  # Path.glob would match hidden folders
    return sorted(match for match in map(Path, matches) if match.is_dir())


def _tasks_below(path: Path) -> list[Path]:
    """The folders in ``path`` if it is a folder of tasks: if one of them has a task.toml.  One without parks, it is not passed over."""
    folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
    return folders if any((folder / "task.toml").exists() for folder in folders) else []


def _unknown_names(settings: Settings, found: dict[str, Path]) -> list[ConfigError]:
    return [
        _error(settings, key, index, name, "no such task" + did_you_mean(name, found))
        for key in ("include", "exclude")
        for index, name in enumerate(getattr(settings.campaign, key))
        if name not in found
    ]


def _rules_without_task(settings: Settings, found: dict[str, Path]) -> list[ConfigError]:
    names = sorted(found)
    known = ", ".join(names[:NAMES_SHOWN]) + (f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else "")
    wrong = [name for name in settings.scores if name not in found]
    hints = {name: did_you_mean(name, found, otherwise=f"; there are {known}") for name in wrong}
    return [ConfigError(where(settings, "scores", name), dotted(("scores", name)), f"no such task{hints[name]}") for name in wrong]


def _alone_without_task(settings: Settings, found: dict[str, Path]) -> list[ConfigError]:
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
