"""``marathonctl arms`` and ``arms show``: the arms of a campaign, as the ledger holds them and as the configuration has them.

Owns where an arm's row comes from, and how it is shown.  Reads; needs neither a daemon nor, where there is a ledger, a configuration.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from typing_extensions import TypedDict

from marathond.agents.codex import contract
from marathond.cli.config_cmds import hidden
from marathond.cli.disclosures import of_one, short
from marathond.cli.locate import locate
from marathond.cli.output import Column, flat, note, print_json, say, screen, table, wrapped
from marathond.cli.settled import Settled
from marathond.core.arms import arm_from_data, arm_to_data
from marathond.core.contract import NAME
from marathond.core.disclosure import Disclosure
from marathond.core.disclosures import disclosures
from marathond.core.errors import ConfigError, LedgerRefused, StageError
from marathond.core.model import Arm
from marathond.core.mounts import Reading, by_mount, story
from marathond.core.names import Drive
from marathond.core.text import clean
from marathond.ledger.verbs import shapes, stored, treatments
from marathond.ledger.verbs.disclosures import told
from marathond.ledger.verbs.mounts import readings
from marathond.ledger.verbs.treatments import Treated
from marathond.practice.script import CODE_MODELS
from marathond.service.disclosing import conditions, task_facts
from marathond.service.exits import CallFailed, Exit
from marathond.service.picture.reader import campaign_id, reading
from marathond.service.settings import Settings
from marathond.service.staged import look_at_trees, package_ids
from marathond.service.taskread import read_tasks
from marathond.service.treatment import arm_treatment, treatment_hash

LEDGER, CONFIGURATION, CHANGED = "ledger", "configuration", "ledger; the configuration has changed"
HASH_SHOWN = 12
VALUE_MAX = 200


@dataclass(frozen=True, slots=True)
class ArmShown:
    """``source``: whose row it is.  ``treatment`` empty: what it drives is not staged, which is a part of it."""

    arm: Arm
    treatment: str
    source: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """``asked``: first requests of the campaign's trials, of codex arms that have begun to ask.

    ``disclosures``: the ledger's; of arms that are not submitted yet, what their rows and the settings give.
    ``treated``: arms with LoopX, of whose trials there are receipts.
    """

    campaign: str
    arms: tuple[ArmShown, ...]
    asked: tuple[shapes.ShapeRow, ...] = ()
    disclosures: tuple[Disclosure, ...] = ()
    treated: Mapping[str, Treated] = field(default_factory=dict)
    mounted: tuple[Reading, ...] = ()
    """What arms' mounts held, at the submission and in trials."""

    def arm(self, name: str) -> ArmShown:
        """:raises CallFailed: exit 2, there is none of that name; with the names there are."""
        for shown in self.arms:
            if shown.arm.name == name:
                return shown
        known = ", ".join(shown.arm.name for shown in self.arms)
        raise CallFailed(f"no arm {clean(name)} in campaign {clean(self.campaign)}; there are: {clean(known)}", Exit.USAGE)


def gather(chosen: Settled, campaign: str | None, *, disclosed: bool = True) -> Gathered:
    """The named campaign's arms; by default the configured one's, with what is not submitted yet; without a configuration the newest's.

    :param disclosed: whether the disclosures are wanted: of arms that are not submitted yet every task is read for them.
    :raises CallFailed: no such campaign.  :raises ConfigError, LedgerRefused: there is neither a campaign nor a configuration to read.
    """
    settings, wrong = _settings(chosen)
    try:
        stored_arms = _stored(chosen, campaign, None if settings is None else settings.campaign.name)
    except LedgerRefused as error:
        if error.code != "missing" or settings is None or campaign is not None:
            raise
        stored_arms = None
    configured = () if settings is None else _configured(settings)
    if stored_arms is None:
        if settings is None:
            raise wrong or CallFailed("no campaign yet, and no configuration: nothing to show")
        return Gathered(settings.campaign.name, configured, disclosures=_not_submitted(settings, configured, ()) if disclosed else ())
    if wrong is not None:
        note(f"the configuration is left out: {clean(wrong)}")
    if settings is None or settings.campaign.name != stored_arms.campaign:
        return stored_arms
    now = {shown.arm.name: shown for shown in configured}
    known = {shown.arm.name for shown in stored_arms.arms}
    merged = [_merged(shown, now.get(shown.arm.name)) for shown in stored_arms.arms]
    arms = (*merged, *(shown for name, shown in now.items() if name not in known))
    told_of = (*stored_arms.disclosures, *(_not_submitted(settings, configured, known) if disclosed else ()))
    return replace(stored_arms, arms=arms, disclosures=told_of)


def _not_submitted(settings: Settings, arms: Sequence[ArmShown], known: Collection[str]) -> tuple[Disclosure, ...]:
    """What the configuration and its tasks tell of those of its arms that the ledger does not know, as ``plan`` tells it."""
    if all(shown.arm.name in known for shown in arms):
        return ()
    try:
        tasks = read_tasks(settings, os.environ).tasks
    except ConfigError as error:
        note(f"what the tasks add to the disclosures is left out: {clean(error)}")
        tasks = ()
    made = disclosures([shown.arm for shown in arms], conditions(settings, task_facts(settings, tasks)))
    new = [replace(each, arms=tuple(name for name in each.arms if name not in known)) for each in made]
    return tuple(each for each in new if each.arms)


def _settings(chosen: Settled) -> tuple[Settings | None, ConfigError | None]:
    """Neither: there is no configuration."""
    if locate(chosen.config).config is None:
        return None, None
    try:
        return chosen.settings(), None
    except ConfigError as error:
        return None, error


def _stored(chosen: Settled, campaign: str | None, configured: str | None) -> Gathered | None:
    """None: the ledger has no campaign, or not the configured one."""
    with reading(chosen.located().paths.ledger) as c:
        if campaign is None and configured is not None and stored.campaign_by_name(c, configured) is None:
            return None
        found = campaign_id(c, campaign or configured)
        if found is None:
            return None
        arms = tuple(ArmShown(_read(row), row.treatment_hash, LEDGER) for row in stored.arms_of(c, found[0]))
        told_of = told(c, found[0]).rows
        return Gathered(found[1], arms, tuple(shapes.shapes(c, found[0])), told_of, treatments.treated(c, found[0]), readings(c, found[0]))


def _read(row: stored.StoredArm) -> Arm:
    try:
        return arm_from_data(row.data)
    except (KeyError, ValueError, TypeError) as error:
        raise CallFailed(f"the row of arm {clean(row.name)} was not written by this version: {type(error).__name__}: {error}") from error


def _configured(settings: Settings) -> tuple[ArmShown, ...]:
    try:
        seen = look_at_trees(settings)
    except (StageError, OSError) as error:
        note(f"what is staged cannot be seen: {clean(error)}")
        seen = {}
    packages = package_ids({name: look.tree for name, look in seen.items() if look.tree is not None})
    return tuple(
        ArmShown(arm, treatment_hash(arm_treatment(arm)) if _is_known(arm) else "", CONFIGURATION) for arm in settings.arm_models(packages)
    )


def _is_known(arm: Arm) -> bool:
    """Whether all that it drives is staged."""
    return arm.codex is None or bool(arm.codex.package and (arm.codex.loopx is None or arm.codex.loopx.package))


def _merged(kept: ArmShown, now: ArmShown | None) -> ArmShown:
    """The ledger's row counts; whether the configuration still says the same stands beside it."""
    if now is None or now.treatment in ("", kept.treatment):
        return kept
    return ArmShown(kept.arm, kept.treatment, CHANGED)


def surface_of(arm: Arm, asked: str | None) -> contract.Surface:
    """How the arm's model is offered its tools: as asked for, else by its slug."""
    assert arm.codex is not None
    for surface in get_args(contract.Surface):
        if surface == asked:
            return surface  # type: ignore[no-any-return]
    return "code" if any(fnmatch.fnmatchcase(arm.codex.model, pattern) for pattern in CODE_MODELS) else "direct"


def row(arm: Arm) -> dict[str, Any]:
    """The whole row as plain values, without what a screen must not show: fields of codex hold no secret, whatever their names."""
    data = arm_to_data(arm)
    codex = data.pop("codex")
    return {**{key: hidden(key, value) for key, value in data.items()}, "codex": codex}


# ---- the list


def print_list(found: Gathered, *, as_json: bool) -> None:
    if as_json:
        print_json([_as_json(found, shown) for shown in found.arms])
        return
    where = screen()
    say(f"campaign {clean(found.campaign)}")
    columns = (Column("arm", least=8), Column("kind"), Column("drive"), Column("operator"), Column("caps", least=12))
    rows = [
        (
            clean(shown.arm.name),
            shown.arm.kind.value,
            "-" if (codex := shown.arm.codex) is None else codex.drive.value,
            "-" if codex is None or codex.drive is Drive.TURN else "yes" if codex.operator else "no",
            caps(shown.arm),
            *(_treated(found, shown.arm.name) if found.treated else ()),
            _short(shown.treatment),
            shown.source,
        )
        for shown in found.arms
    ]
    given = (Column("delivered", right=True), Column("used", right=True)) if found.treated else ()
    for line in table((*columns, *given, Column("treatment"), Column("from", least=6)), rows, where):
        say(line)
    if found.disclosures:
        say()
    for line in short(found.disclosures, [shown.arm.name for shown in found.arms], where):
        say(line)


def _treated(found: Gathered, arm: str) -> tuple[str, str]:
    """To how many trials LoopX was delivered, and in how many the agent used it."""
    if (counts := found.treated.get(arm)) is None:
        return "-", "-"
    return f"{counts.delivered}/{counts.trials}", f"{counts.used}/{counts.trials}"


def caps(arm: Arm) -> str:
    """What ends a run of it besides its own end and the trial's deadline."""
    codex = arm.codex
    if codex is None:
        return "-"
    parts = [f"{codex.turns_at_most} turns", f"{codex.infra_retries} infra retries"]
    if codex.drive is not Drive.TURN:
        parts.append(f"{codex.idle_turns_at_most} idle turns")
        parts += [f"{codex.unblocks_at_most} unblocks"] if codex.operator else []
        parts += [f"{codex.token_budget} tokens"] if codex.token_budget is not None else []
    return ", ".join(parts)


def _short(treatment: str) -> str:
    return treatment.removeprefix("sha256:")[:HASH_SHOWN] or "unknown"


Source = TypedDict("Source", {"from": str})
"""``from``: whose row it is: the ledger's, the configuration's, or the ledger's of which the configuration has changed."""


@dataclass(frozen=True, slots=True)
class Beside:
    """What --json has beside an arm's row.

    :param treatment_hash: null: what it drives is not staged, which is a part of it.
    """

    treatment_hash: str | None


@dataclass(frozen=True, slots=True)
class ToldOf:
    """:param disclosures: what a reader must be told of it.
    :param loopx_trials: to how many trials LoopX was delivered, and in how many it was used; null: it has none, or no trial is at rest.
    :param mounts_held: what its mounts held, at the submission and in trials that stand."""

    disclosures: list[Disclosure]
    loopx_trials: Treated | None
    mounts_held: list[Reading]


@dataclass(frozen=True, slots=True)
class Record:
    """:param contract: the reviewed record of a codex arm's first request and config.toml; null: it is of another kind."""

    contract: dict[str, Any] | None


def _as_json(found: Gathered, shown: ArmShown) -> dict[str, Any]:
    mine = [each for each in found.disclosures if shown.arm.name in each.arms]
    whole, source = row(shown.arm), Source({"from": shown.source})
    if whole["codex"] is not None:
        whole["codex"].setdefault("loopx", None)  # left out of the row itself, whose hash is from before there was one
    told_of = ToldOf(mine, found.treated.get(shown.arm.name), [each for each in found.mounted if each.arm == shown.arm.name])
    return flat(whole, Beside(shown.treatment or None), source, told_of)


# ---- one arm


def print_arm(found: Gathered, name: str, surface: str | None, *, as_json: bool) -> None:
    shown = found.arm(name)
    made = file = None
    if shown.arm.codex is not None:
        chosen = surface_of(shown.arm, surface)
        record = contract.name_of(shown.arm.codex)
        made, file = contract.reviewed(record, chosen), contract.file_of(record, chosen)
    if as_json:
        print_json(flat(_as_json(found, shown), Record(made)))
        return
    say(f"arm {clean(shown.arm.name)} of campaign {clean(found.campaign)}   treatment {_short(shown.treatment)}   from {shown.source}")
    lines = [f"  {line}" for line in _lines(row(shown.arm))]
    held = by_mount(each for each in found.mounted if each.arm == name)
    lines += [f"  content of {clean(target)} = {story(group)}" for (_, target), group in held.items()]
    if made is not None and file is not None:
        lines += ["", *_contract_lines(made, file.name)]
    if told_of := list(of_one(found.disclosures, name)):
        lines += ["", *told_of]
    where = screen()
    for line in lines:
        for part in wrapped(line, where):
            say(part)


def _lines(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "env":
            yield from _lines(value, f"{prefix}{key}.")
        elif key != "name":
            yield f"{prefix}{key} = {clean(words(value), VALUE_MAX)}"


def words(value: Any) -> str:
    """A value of a row as TOML would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(words(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {words(item)}" for key, item in value.items()) + " }" if value else "{}"
    return str(value)


def _contract_lines(made: dict[str, Any], name: str) -> Iterator[str]:
    """The record in short: what is offered and what is said, by name."""
    yield f"what an arm so driven is given first, as reviewed ({name}; whole with --json):"
    body, config = made["body"], made["config"]
    yield f"  {clean(made['headers'].get('user-agent', ''))}, {made['request']}"
    yield f"  model {clean(body['model'])}, effort {clean(body['reasoning'].get('effort', '-'))}, web search {clean(config['web_search'])}"
    yield f"  features {clean(words(config['features']))}"
    yield f"  tools {clean(_names(made['tools']), 2000)}"
    for item in made["input"]:
        size = len(item.get("text", item.get("output", "")))
        yield f"  input {clean(item[NAME])}" + (f", {size:,} characters" if size else "")
    if loopx := made.get("loopx"):
        given, events = loopx["set_up"], {event[NAME]: event["summary"] for event in loopx["events"]}
        yield f"  LoopX goal {clean(given['goal_id'])}, profile {clean(given['profile'])}, {clean('; '.join(events.values()))}"
        yield f"  LoopX state {clean(', '.join(given['state'].values()))}"


def _names(named: Sequence[dict[str, Any]]) -> str:
    return ", ".join(element[NAME] for element in named)
