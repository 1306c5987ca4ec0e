"""A codex arm's contract: the whole of its first request and its config.toml, as a record that can be reviewed and compared (fault a14).

Owns how such a record is made, what in it is replaced because it must vary, what each field of an arm's row declares to change in it, and
the reviewed records that ship with the package (``contracts/``: one for each drive and tool surface; most of their text is codex's own,
Apache-2.0).  Pure but for reading those; must not know who captured a request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

from marathond.agents.codex.config import PROVIDER
from marathond.core.arms import arm_to_data
from marathond.core.contract import NAME, Declared, Difference, Path, differences, tools_of
from marathond.core.model import Arm, Drive

Surface = Literal["direct", "code"]
SURFACES: tuple[Surface, ...] = ("direct", "code")
FOLDER = FilePath(__file__).with_name("contracts")
DRIVES: Mapping[Drive, str] = {Drive.TURN: "plain", Drive.GOAL: "goal"}
"""A record's file is named as the arm of that drive usually is."""

REPLACED: Mapping[str, str] = {
    "{thread}": "id of the thread, which is also the session's",
    "{turn}": "id of the turn",
    "{installation}": "id that codex makes for each CODEX_HOME",
    "{context window}": "id of the context window",
    "{item}": "id of an input item",
    "{time}": "when the turn started",
    "{date}": "the day on which the trial ran",
    "{cwd}": "the task's working directory",
    "{instruction}": "the task's instruction",
    "{key}": "the key, of which the provider keeps a fingerprint",
    "{provider}": "host and port of the provider behind the gateway",
    "{port}": "the listener's port in the container",
    "{length}": "of the body, in bytes",
    "{system}": "name and version of the image's system, and the processor",
}
"""All that is replaced in a record, and what it was."""

METADATA = "x-codex-turn-metadata"
"""A header, and a field of the body, that holds JSON."""
_IDS = {"thread_id": "{thread}", "turn_id": "{turn}", "installation_id": "{installation}", "context_window_id": "{context window}"}
_HEADERS = {"authorization": "{key}", "host": "{provider}", "content-length": "{length}"}
_ITEM_ID = re.compile(r"[a-z]{2,4}_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TAG = re.compile(r"<[a-z_]+[^>\n]{0,100}>")
_DATE = re.compile(r"(?<=<current_date>)[^<]*")
_CWD = re.compile(r"(?<=<cwd>)[^<]*")
_AGENT_SYSTEM = re.compile(r"(?<=/)(\S+) \([^)]*\)")


def record(asked: Mapping[str, Any], config: Mapping[str, Any], *, instruction: str) -> dict[str, Any]:
    """The contract of one trial.

    :param asked: ``path``, ``headers`` and ``body`` of its first request, as a provider got it.
    :param config: the values of its config.toml.
    """
    body: dict[str, Any] = dict(asked["body"])
    headers: dict[str, Any] = {name.lower(): value for name, value in sorted(asked["headers"].items(), key=lambda item: item[0].lower())}
    metadata = _parsed(headers)
    if isinstance(own := body.get("client_metadata"), Mapping):
        body["client_metadata"] = own = dict(sorted(own.items()))  # codex writes them in any order
        _parsed(own)
    ids = {value: word for key, word in _IDS.items() if isinstance(value := metadata.get(key), str) and value}
    items = body.pop("input", [])
    cwd = next((found[0] for text in _texts(items) if (found := _CWD.search(text))), "")
    made: dict[str, Any] = {
        "request": str(asked["path"]),
        "headers": {name: _HEADERS.get(name, value) for name, value in headers.items()},
        "body": {key: value for key, value in sorted(body.items()) if key != "tools"},
        "tools": tools_of({"tools": body.get("tools"), "input": items}),
        "input": _labelled(items, instruction),
        "config": _config(config, cwd),
    }
    made["headers"]["user-agent"] = _AGENT_SYSTEM.sub(r"\1 ({system})", str(made["headers"].get("user-agent", "")), count=1)
    made = _walked(made, ids, cwd, instruction)
    text = json.dumps(made, ensure_ascii=False)
    return {"replaced": {word: why for word, why in REPLACED.items() if word in text}, **made}


def _parsed(holder: dict[str, Any]) -> Mapping[str, Any]:
    """The metadata in ``holder``, where it takes its text's place."""
    try:
        found = json.loads(holder.get(METADATA, ""))
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    if "turn_started_at_unix_ms" in found:
        found["turn_started_at_unix_ms"] = "{time}"
    holder[METADATA] = found
    return found


def _texts(items: Any) -> Iterator[str]:
    for item in items if isinstance(items, list) else ():
        for part in item.get("content") or ():
            if isinstance(part, Mapping) and isinstance(part.get("text"), str):
                yield part["text"]


def _labelled(items: Sequence[Mapping[str, Any]], instruction: str) -> list[dict[str, Any]]:
    """Input items by what they are, in their order; of a message each part, the first one with what belongs to the ``message`` itself.

    Tools stand for themselves.
    """
    found: list[dict[str, Any]] = []
    taken: dict[str, int] = {}

    def named(label: str) -> str:
        taken[label] = taken.get(label, 0) + 1
        return label if taken[label] == 1 else f"{label} {taken[label]}"

    for item in items:
        rest = {key: value for key, value in item.items() if key not in ("content", "tools")}
        kind, who = str(item.get("type", "message")), str(item.get("role", ""))
        if kind != "message":
            found.append({NAME: named(f"{kind} {item.get('name', '')}".strip()), **rest})
            continue
        parts = item.get("content") or [{}]
        found.append({NAME: named(f"{who} {_called(parts[0], instruction)}"), "message": rest, **parts[0]})
        found += [{NAME: named(f"{who} {_called(part, instruction)}"), **part} for part in parts[1:]]
    return found


def _called(part: Mapping[str, Any], instruction: str) -> str:
    text = str(part.get("text", ""))
    if text == instruction:
        return "{instruction}"
    tag = _TAG.match(text)
    return tag[0] if tag else "text"


def _config(config: Mapping[str, Any], cwd: str) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(config))
    provider = made.get("model_providers", {}).get(PROVIDER, {})
    if isinstance(url := provider.get("base_url"), str):
        provider["base_url"] = re.sub(r":\d+/", ":{port}/", url)
    made["projects"] = {"{cwd}" if path == cwd else path: value for path, value in made.get("projects", {}).items()}
    return made


def _walked(value: Any, ids: Mapping[str, str], cwd: str, instruction: str) -> Any:
    """All texts with what varies replaced."""
    if isinstance(value, Mapping):
        return {key: _walked(below, ids, cwd, instruction) for key, below in value.items()}
    if isinstance(value, list):
        return [_walked(below, ids, cwd, instruction) for below in value]
    if not isinstance(value, str):
        return value
    if value == instruction:
        return "{instruction}"
    if _ITEM_ID.fullmatch(value):
        return "{item}"
    for known, word in ids.items():
        value = value.replace(known, word)
    if value.startswith("<environment_context>"):
        value = _DATE.sub("{date}", value)
        value = value.replace(f"<cwd>{cwd}<", "<cwd>{cwd}<").replace(f"<root>{cwd}<", "<root>{cwd}<")
    return value


# ---- records as files


def to_text(made: Mapping[str, Any]) -> str:
    """As JSON in which a text of several lines stands as its lines, so that a change of one is a change of one line."""
    return json.dumps(_lines(made), ensure_ascii=False, indent=1) + "\n"


def from_text(text: str) -> dict[str, Any]:
    made = _joined(json.loads(text))
    assert isinstance(made, dict)
    return made


def _lines(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _lines(below) for key, below in value.items()}
    if isinstance(value, list):
        return [_lines(below) for below in value]
    return {"lines": value.split("\n")} if isinstance(value, str) and "\n" in value else value


def _joined(value: Any) -> Any:
    if isinstance(value, dict):
        if list(value) == ["lines"]:
            return "\n".join(value["lines"])
        return {key: _joined(below) for key, below in value.items()}
    return [_joined(below) for below in value] if isinstance(value, list) else value


def file_of(drive: Drive, surface: Surface) -> FilePath:
    return FOLDER / f"{DRIVES[drive]}.{surface}.json"


def reviewed(drive: Drive, surface: Surface) -> dict[str, Any]:
    """The record that ships with the package.  Raises OSError when the installation is not whole."""
    return from_text(file_of(drive, surface).read_text("utf-8"))


# ---- what rows declare

GOAL_TOOLS = ("get_goal", "create_goal", "update_goal")
_SET, _OBJECTIVE, _GO_ON = (
    'user <codex_internal_context source="user_goal">',
    "function_call_output goal_objective",
    'user <codex_internal_context source="goal">',
)
"""Input items of a goal: that one was set, its objective, and how to pursue it."""
_ALL: tuple[Path, ...] = tuple((part,) for part in ("request", "headers", "body", "tools", "input", "instructions", "config", "replaced"))


def _told(field: str, name: str) -> tuple[Declared, ...]:
    """Something that codex tells the provider about its turn, in a header and in the body."""
    return tuple(Declared(field, ((*where, METADATA, name),)) for where in (("headers",), ("body", "client_metadata")))


def _provider(key: str) -> tuple[Declared, ...]:
    return (Declared(f"codex.{key}", (("config", "model_providers", PROVIDER, key),)),)


_OBJECTIVES = (("input", _SET), ("input", _OBJECTIVE))
_WAKE = ("input", "user {instruction}")
"""The first wake's text: LoopX's body follows the instruction."""

DRIVE_MAKES: Mapping[Drive, tuple[Declared, ...]] = {
    Drive.TURN: (),
    Drive.GOAL: (
        *(Declared("codex.drive", (("tools", name), ("tools", f"functions.exec/{name}"))) for name in GOAL_TOOLS),
        *(Declared("codex.drive", (("input", label),)) for label in (_SET, _OBJECTIVE, _GO_ON)),
        Declared("codex.drive", (("config", "features", "goals"),)),
        *_told("codex.drive", "turn_trigger"),
    ),
    Drive.WAKE: (Declared("codex.drive", (_WAKE,)),),
}
"""What each has beside a turn with goals off."""


def _loopx(field: str, *paths: Path) -> tuple[Declared, ...]:
    return tuple(Declared(f"codex.loopx{field}", (path,)) for path in paths)


_TOLD_OF: tuple[Path, ...] = (
    ("input", "developer <skills_instructions>"),
    ("input", "developer <permissions instructions>", "message"),
    ("instructions",),
)
"""Skills that codex tells of begin the message that begins with the permissions otherwise."""

DECLARES: Mapping[str, tuple[Declared, ...]] = {
    "kind": (Declared("kind", _ALL),),
    "codex.package": (Declared("codex.package", _ALL),),
    "codex.version": (Declared("codex.version", _ALL),),
    "codex.model": (Declared("codex.model", _ALL),),
    "codex.effort": (
        Declared("codex.effort", (("body", "reasoning", "effort"),)),
        Declared("codex.effort", (("config", "model_reasoning_effort"),)),
        *_told("codex.effort", "reasoning_effort"),
    ),
    "codex.request_max_retries": _provider("request_max_retries"),
    "codex.stream_max_retries": _provider("stream_max_retries"),
    "codex.stream_idle_timeout_ms": _provider("stream_idle_timeout_ms"),
    "codex.drive": tuple(each for made in DRIVE_MAKES.values() for each in made),
    "codex.objective": tuple(Declared("codex.objective", (path,)) for path in _OBJECTIVES),
    "codex.token_budget": (Declared("codex.token_budget", (("input", _GO_ON),)),),
    # What the driver does between turns and after failures: nothing of it reaches codex before it happens.
    "codex.infra_retries": (),
    "codex.operator": (),
    "codex.unblocks_at_most": (),
    "codex.turns_at_most": (),
    "codex.idle_turns_at_most": (),
    "codex.loopx": _loopx("", *_TOLD_OF, *_OBJECTIVES, _WAKE),
    # Another LoopX is another body, and its skills are others.
    "codex.loopx.package": _loopx(".package", *_TOLD_OF, *_OBJECTIVES, _WAKE),
    "codex.loopx.version": _loopx(".version", *_TOLD_OF, *_OBJECTIVES, _WAKE),
    "codex.loopx.source": (),
    "codex.loopx.state_inside": _loopx(".state_inside", *_OBJECTIVES, _WAKE),
    "codex.loopx.profile": _loopx(".profile", *_OBJECTIVES, _WAKE),
    "codex.loopx.wake_interval_s": (),
    # Of the container and its processes: codex does not tell the model, and a working directory is replaced.
    "argv": (),
    "env": (),
    "user": (),
    "cwd": (),
    "mounts": (),
    "install_check": (),
    "after_agent": (),
}
"""Field of an arm's row to the differences that it is meant to make in a first request or in config.toml."""


def row_differences(a: Arm, b: Arm) -> list[Difference]:
    """The fields in which two rows differ; their names are no treatment."""
    return [found for found in differences(_row(a), _row(b)) if found.path != ("name",)]


def _row(arm: Arm) -> dict[str, Any]:
    """Fields of codex beside the others; lists are one value each."""
    data = arm_to_data(arm)
    codex = data.pop("codex")
    plain = {key: (value,) if isinstance(value, list) else value for key, value in data.items()}
    return {**plain, **({} if codex is None else {f"codex.{key}": value for key, value in codex.items()})}


def field_of(path: Path) -> str:
    """Name of the field of :data:`DECLARES` that a row difference is one of; of what this version does not know, its own."""
    nested = ".".join(path)
    return nested if nested in DECLARES else path[0]


def declared(a: Arm, b: Arm) -> tuple[Declared, ...]:
    """All that the rows of two codex arms declare to be different.  Of a field that this version does not know it is not known what it
    declares: it comes without paths."""
    fields = dict.fromkeys(field_of(found.path) for found in row_differences(a, b))
    given = [each for field in fields for each in DECLARES.get(field, (Declared(field, ()),))]
    if "codex.drive" in fields:
        assert a.codex is not None and b.codex is not None
        # A goal's own fields say nothing of a turn, and all of the goal's context is the drive's already.
        given = [each for each in given if each.field not in ("codex.drive", "codex.objective", "codex.token_budget")]
        given += [each for drive in (a.codex.drive, b.codex.drive) for each in DRIVE_MAKES[drive]]
    return tuple(given)
