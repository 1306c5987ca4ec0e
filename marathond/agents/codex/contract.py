"""A codex arm's contract: the whole of its first request and its config.toml, as a record that can be reviewed and compared (fault a14).

Owns how such a record is made, what in it is replaced because it must vary, and the reviewed records that ship with the package
(``contracts/``: one for each of the five arms and each tool surface; most of their text is codex's own and LoopX's own, both Apache-2.0).
Pure but for reading those; must not know who captured a request, nor what a row declares (:mod:`~marathond.agents.codex.declares`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Literal

from marathond.agents.codex.config import PROVIDER
from marathond.agents.loopx import left_record
from marathond.core.contract import NAME, tools_of
from marathond.core.model import CodexArm
from marathond.core.names import Drive, LoopXProfile

Surface = Literal["direct", "code"]
SURFACES: tuple[Surface, ...] = ("direct", "code")
FOLDER = FilePath(__file__).with_name("contracts")
BARE: Mapping[Drive, str] = {Drive.TURN: "plain", Drive.GOAL: "goal"}
WITH_LOOPX: Mapping[LoopXProfile, str] = {
    LoopXProfile.SSH_GOAL: "ssh-goal",
    LoopXProfile.CODEX_CLI: "codex-cli",
    LoopXProfile.GENERIC_CLI: "heartbeat",
}
ARMS = (*BARE.values(), *WITH_LOOPX.values())
"""A record's file is named as the arm that is so driven usually is."""

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
    "{wake}": "id of the wake, of which LoopX makes a turn of its own",
    **left_record.REPLACED,
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
_WAKE = re.compile(r"(?<=\nLOOPX_TURN=)\S+")
_AGENT_SYSTEM = re.compile(r"(?<=/)(\S+) \([^)]*\)")


def record(
    asked: Mapping[str, Any], config: Mapping[str, Any], *, instruction: str, loopx: left_record.Left | None = None
) -> dict[str, Any]:
    """The contract of one trial.

    :param asked: ``path``, ``headers`` and ``body`` of its first request, as a provider got it.
    :param config: the values of its config.toml.
    :param loopx: what its set-up left for the agent to find, of an arm with LoopX.
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
    if loopx is not None:
        made["loopx"] = left_record.record(loopx, cwd=cwd, instruction=instruction)
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
    if text == instruction or text.startswith(f"{instruction}\n"):
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
    if value.startswith(f"{instruction}\n"):  # a wake's text: LoopX's body follows
        return "{instruction}" + _WAKE.sub("{wake}", value[len(instruction) :])
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


def name_of(codex: CodexArm) -> str:
    """Of the record of an arm that is driven so."""
    return BARE[codex.drive] if codex.loopx is None else WITH_LOOPX[codex.loopx.profile]


def file_of(name: str, surface: Surface) -> FilePath:
    """:param name: one of :data:`ARMS`."""
    return FOLDER / f"{name}.{surface}.json"


def reviewed(name: str, surface: Surface) -> dict[str, Any]:
    """The record that ships with the package.  Raises OSError when the installation is not whole."""
    return from_text(file_of(name, surface).read_text("utf-8"))
