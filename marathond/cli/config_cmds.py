"""``marathonctl config check`` and ``config show``: is the configuration right, and where does each value come from.

Owns how settings are shown.  Needs no daemon and no engine, so of what the engine's host decides it says that it did not ask; a ledger is
looked at where there is one, for tasks that have changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marathond.cli import refusals
from marathond.cli.output import note, print_json, say
from marathond.core.errors import ConfigError
from marathond.core.model import Unrunnable
from marathond.core.text import clean, hidden_url, plural
from marathond.service.exits import Exit

if TYPE_CHECKING:
    from marathond.cli.differing import Taken
    from marathond.service.settings import Settings

VALUE_MAX = 4000
"""Characters of one value that are shown."""

HOST_NOT_ASKED = "the host was not asked (plan does)"
"""Beside every verdict: a task that the engine's host is too small for parks as well."""

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION", re.IGNORECASE)
_NO_SECRETS = frozenset({"key_file", "key_credential", "key_header", "tokens_per_min"})
"""Of a route: where a key lies and how much may be used; a person looks for these."""
_USER_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")

ConfigOption = Annotated[Path | None, typer.Option("--config", "-c", help="Configuration file; by default the usual places.")]

app = typer.Typer(
    name="config", help="Check the configuration, show where each value comes from.", no_args_is_help=True, rich_markup_mode=None
)


Json = Annotated[bool, typer.Option("--json", help="Print JSON; marathonctl schema tells its fields.")]


@dataclass(frozen=True, slots=True)
class Park:
    """Cells that would park.

    :param arm: the arm alone whose cells do; null: all arms.
    :param code: stable word for the reason.
    """

    task: str
    arm: str | None
    code: str
    why: str


@dataclass(frozen=True, slots=True)
class Tolerated:
    """Something in a task that was taken all the same."""

    task: str
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    """A configuration that can be read, and what of it will not run.

    :param ok: nothing parks, everything can start, and a submission would not be refused.
    :param tasks: how many.
    :param arms: how many.
    :param cells: tasks x arms x replicates.
    :param parked_cells: of them, cells that park, as far as can be told without the engine's host; one that has a score is not among them.
    :param cannot_start: mounts that are not there, a line each.
    :param refused: what was changed since the campaign was submitted and needs a new one, a line each: a submission, or the next start,
        would be refused.
    :param remounted: arms whose mounts do not hold what the submitted campaign's did, a line each: it takes no submission as they are.
    """

    ok: bool
    campaign: str
    tasks: int
    arms: int
    replicates: int
    cells: int
    parked_cells: int
    parks: list[Park]
    cannot_start: list[str]
    refused: list[str]
    remounted: list[str]
    notes: list[Tolerated]


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of the configuration.

    :param value: as JSON; (hidden) in place of what may be a secret.
    :param origin: default, profile NAME, file:line, env VARIABLE, override, or set by NAME: marathonctl set, in the ledger.
    :param change: how it may change: live, reload, restart, treatment or extent.
    """

    value: Any
    origin: str
    change: str


Shown = dict[str, Setting]
"""Key to what is known of it."""


@app.command()
def check(ctx: typer.Context, config: ConfigOption = None, as_json: Json = False) -> None:
    """Read the configuration and each of its tasks.  What was tolerated in a task is a note on stderr.

    The engine is not asked: tasks that its host is too small for are named by marathonctl plan.

    Where the campaign was submitted already, a task whose files have changed since is named; so is what a submission would be refused for,
    such as a changed arm, and an arm of which the files that it mounts have changed.

    Exit status: 0 all will run, 1 some cells will park or cannot start, or it would be refused (each named), 2 the configuration is wrong.
    """
    from marathond.cli.changed import changed_now
    from marathond.cli.differing import as_submitted, known_now, remounted_now
    from marathond.service.taskread import read_tasks

    settings = _load(ctx, config, as_json=as_json)
    try:
        taken = as_submitted(settings, read_tasks(settings, {}, known=known_now(settings)).tasks)
    except ConfigError as error:
        raise _usage(error, as_json=as_json) from error
    found = _checked(settings, taken, changed_now(settings), remounted_now(settings))
    if as_json:
        print_json(found)
    else:
        _say_checked(found)
    if not found.ok:
        raise typer.Exit(Exit.FAILED)


def _checked(settings: Settings, taken: Taken, refused: Sequence[str], remounted: Sequence[str]) -> Checked:
    from marathond.cli.parks import arm_parks

    tasks = taken.tasks
    arms, replicates = len(settings.arm_names), settings.campaign.replicates
    whole = [Park(task.name, None, task.code, task.detail) for task in tasks if isinstance(task, Unrunnable)]
    alone = [Park(one.task, one.arm, one.code, one.why) for one in arm_parks(settings, tasks)]
    parked_cells = (len(whole) * arms + len(alone)) * replicates - sum(taken.scored.values())
    missing = list(_missing_mounts(settings))
    return Checked(
        ok=not parked_cells and not missing and not refused and not remounted,
        campaign=settings.campaign.name,
        tasks=len(tasks),
        arms=arms,
        replicates=replicates,
        cells=len(tasks) * arms * replicates,
        parked_cells=parked_cells,
        parks=[*whole, *alone],
        cannot_start=missing,
        refused=list(refused),
        remounted=list(remounted),
        notes=[Tolerated(task.name, text) for task in tasks if not isinstance(task, Unrunnable) for text in task.warnings],
    )


def _say_checked(found: Checked) -> None:
    counts = f"{plural(found.tasks, 'task')}, {plural(found.arms, 'arm')}, {plural(found.replicates, 'replicate')}"
    parked = f", of which {found.parked_cells} park{'s' if found.parked_cells == 1 else ''}" if found.parked_cells else ""
    verdict = "ok" if found.ok else "not ok"
    say(f"{verdict}: campaign {found.campaign}, {counts}: {plural(found.cells, 'cell')}{parked}; {HOST_NOT_ASKED}")
    for park in found.parks:
        say(f"parks: {clean(park.task)}: {park.code}: {clean(park.why)}")
    for line in found.cannot_start:
        say(f"cannot start: {clean(line)}")
    for line in found.refused:
        say(f"refused: {clean(line, VALUE_MAX)}")
    for line in found.remounted:
        say(f"changed: {line}")
    for each in found.notes:
        note(f"note: {clean(each.task)}: {clean(each.text)}")


@app.command()
def show(
    ctx: typer.Context,
    config: ConfigOption = None,
    origin: Annotated[bool, typer.Option("--origin", help="Where each value comes from, and how it may change.")] = False,
    as_json: Json = False,
) -> None:
    """Every setting as it counts: set in the ledger, environment, file, defaults.  Values that look like secrets are hidden.

    Exit status: 0, or 2 when the configuration is wrong.
    """
    from marathond.cli.turned import turned_now, whose
    from marathond.service.settings import origins
    from marathond.service.treatment import change_of

    settings = _load(ctx, config, as_json=as_json)
    known = {key: (hidden(key, plain(value)), source, change_of(key).value) for key, (value, source) in origins(settings).items()}
    turned = turned_now(settings)
    for each in turned:
        _, source, change = known[each.key]
        known[each.key] = (each.value, f"{whose(each)}; configured: {each.configured} ({source})", change)
    if as_json:
        print_json({key: Setting(*each) for key, each in known.items()})
        return
    width = max(len(f"{key} = {_toml(value)}") for key, (value, _, _) in known.items())
    for key, (value, source, change) in known.items():
        line = clean(f"{key} = {_toml(value)}", VALUE_MAX)
        say(f"{line:<{min(width, 60)}}  # {clean(source)} [{change}]" if origin else line)
    if turned and not origin:
        note(f"note: set in the ledger, not in the configuration: {', '.join(each.key for each in turned)} (--origin tells by whom)")


def _load(ctx: typer.Context, config: Path | None, *, as_json: bool) -> Settings:
    """:param config: these commands' own --config; without it, the one given before the command."""
    from marathond.cli.settled import Settled
    from marathond.service.settings import load

    before = ctx.find_object(Settled)
    try:
        return load(config or (before.config if before else None))
    except ConfigError as error:
        raise _usage(error, as_json=as_json) from error


def _usage(error: ConfigError, *, as_json: bool) -> typer.Exit:
    if as_json:
        return typer.Exit(refusals.refused(error, as_json=True))
    for line in str(error).split("\n"):
        note(clean(line, VALUE_MAX))
    return typer.Exit(Exit.USAGE)


def _missing_mounts(settings: Settings) -> Iterator[str]:
    from marathond.service.settings import where

    for name in settings.arm_names:
        for index, mount in enumerate(settings.arms[name].mounts):
            try:
                mount.source.stat()
            except OSError as error:
                place = where(settings, "arms", name, "mounts", index, "source")
                yield f"{place}: arms.{name}.mounts[{index}].source = {mount.source}: {(error.strerror or str(error)).lower()}"


def plain(value: Any) -> Any:
    """A setting's value as JSON knows it: paths and words as text, models as tables, tuples as lists."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def hidden(key: str, value: Any) -> Any:
    """Without what a screen or a bug report must not show: values of variables named like secrets, users and passwords in URLs, and where
    a webhook leads."""
    if key == "notify.webhook":
        return hidden_url(value)
    if key == "gateway.routes":
        return {
            name: {field: item if field in _NO_SECRETS else hidden("", {field: item})[field] for field, item in route.items()}
            for name, route in value.items()
        }
    if isinstance(value, dict):
        return {name: "(hidden)" if _SECRET_NAME.search(name) else hidden(name, item) for name, item in value.items()}
    if isinstance(value, list):
        return [hidden(key, item) for item in value]
    return _USER_IN_URL.sub("(hidden)@", value) if isinstance(value, str) else value


def _toml(value: Any) -> str:
    """As it would stand in the file; ``none`` for nothing, which TOML cannot say."""
    import json

    if value is None:
        return "none"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }" if value else "{}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
