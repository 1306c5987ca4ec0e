"""LoopX's state as its set-up leaves it, as a record to be reviewed and compared: the part of an arm's contract that is no request.

Owns what is replaced in it because it must vary.  Pure; must not know who took the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from marathond.agents.loopx.goal import Goal
from marathond.core.contract import NAME

REPLACED: Mapping[str, str] = {
    "{todo}": "id of the task's todo",
    "{operation}": "id of what made the goal",
    "{store}": "id of LoopX's database, and of what stands in it",
    "{event}": "id of an event of LoopX's",
}
_IDS: Mapping[str, re.Pattern[str]] = {
    "{todo}": re.compile(r"(?<=\btodo_)[0-9a-f]{12,64}\b"),
    "{operation}": re.compile(r"(?<=\bgoal-create:)[0-9a-f]{32}\b"),
    "{store}": re.compile(r"(?<=\bsqlite:)[0-9a-f]{32}\b|(?<=\brecords_sha256=)[0-9a-f]{64}\b"),
    "{time}": re.compile(r"\b20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)"),
}
_PASSING = (".lock", "-wal", "-shm")
"""Ends of names that come and go with whoever looks."""


@dataclass(frozen=True, slots=True)
class Left:
    """``files``: content by path below the state's root.  ``goal``: what the log's ``prepared`` holds of it (:meth:`Goal.data`)."""

    goal: Goal
    files: Mapping[str, bytes]

    def at(self, path: str) -> str:
        """The text of the file that is ``path`` in the container.  Raises KeyError."""
        return self.files[path.removeprefix(f"{self.root}/")].decode()

    @property
    def root(self) -> str:
        """Folder of the registry in the container."""
        return self.goal.state.registry.rpartition("/")[0]


def record(left: Left, *, cwd: str, instruction: str) -> dict[str, Any]:
    """Registry, the goal's state file and its document, LoopX's own events (todo, quota's decision), names of all files.

    :raises KeyError, ValueError: one of these is missing, or has another form.
    """
    goal, given = left.goal, left.goal.data()
    events = [json.loads(line) for line in left.at(f"{goal.state.runtime}/goals/{goal.goal_id}/rollout-event-log.jsonl").splitlines()]
    del given["body"]  # the first request holds it, or what becomes of it
    document = left.at(goal.state.document)
    made = {
        "set_up": given,
        "registry": json.loads(left.at(goal.state.registry)),
        "goal": left.at(goal.state.state_file),
        "document": "{instruction}" if document == instruction else document,
        "events": [{NAME: event.pop("event_kind"), **event, "event_id": "{event}"} for event in events],
        "files": sorted(_lasting(left.files)),
    }
    place = re.compile(rf"(?<![\w/]){re.escape(cwd)}(?![\w/])")
    found: dict[str, Any] = _walked(made, place)
    return found


def _lasting(names: Iterable[str]) -> list[str]:
    return [name for name in names if not name.endswith(_PASSING)]


def _walked(value: Any, cwd: re.Pattern[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _walked(below, cwd) for key, below in value.items()}
    if isinstance(value, list):
        return [_walked(below, cwd) for below in value]
    if not isinstance(value, str):
        return value
    for word, pattern in _IDS.items():
        value = pattern.sub(word, value)
    return cwd.sub("{cwd}", value)
