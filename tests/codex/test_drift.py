"""Every field that is relied upon, renamed in real traffic: each is an error that names the method and the field."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from marathond.agents.codex import messages
from marathond.agents.codex.attach import reattach, retell
from marathond.agents.codex.errors import ProtocolDrift
from marathond.agents.codex.messages import FeaturesList, GoalSet, SkillsList, TextInput, ThreadStart, TurnStart
from marathond.agents.codex.notices import NOTIFICATIONS
from marathond.agents.codex.shapes import Wire, parse
from marathond.agents.codex.story import Story
from marathond.practice.script import Practice
from tests.support.app_server import TIMEOUT_S, app_server, pursue, turn_end

pytestmark = [pytest.mark.anyio, pytest.mark.docker]
RESULTS = {made.METHOD: made.RESULT for made in vars(messages).values() if isinstance(made, type) and hasattr(made, "METHOD")}
SEEN = {
    "initialize",
    "skills/list",
    "experimentalFeature/list",
    "thread/start",
    "thread/resume",
    "thread/loaded/list",
    "thread/read",
    "thread/turns/list",
    "thread/items/list",
    "thread/goal/set",
    "thread/goal/get",
    "turn/start",
    "thread/started",
    "thread/status/changed",
    "turn/started",
    "turn/completed",
    "item/started",
    "item/completed",
    "thread/goal/updated",
    "thread/tokenUsage/updated",
    "error",
}
"""What this test's traffic must hold, so that it does not pass on nothing."""


def required(model: type[BaseModel], raw: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all fields in ``raw`` that ``model`` insists on."""
    if not isinstance(raw, Mapping):
        return
    for field in model.model_fields.values():
        name = field.alias or ""
        if name not in raw:
            continue
        if field.is_required():
            yield (*path, name)
        inner = list(_models(field.annotation))
        values = raw[name] if isinstance(raw[name], list) else [raw[name]]
        for number, value in enumerate(values):
            where = (*path, name, number) if isinstance(raw[name], list) else (*path, name)
            for part in inner:
                yield from required(part, value, where)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models(part)


def renamed(raw: Any, path: tuple[str | int, ...]) -> Any:
    changed = copy.deepcopy(raw)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[f"{path[-1]}New"] = at.pop(path[-1])
    return changed


def traffic_of(lines: list[Mapping[str, Any]]) -> Iterator[tuple[str, type[Wire], Any]]:
    """Method, model and content of everything heard that has a type."""
    asked: dict[int, str] = {}
    for line in lines:
        message = line["message"]
        if line["way"] == "out":
            if message.get("method") == "initialize":
                asked.clear()  # another connection counts from 1 again
            asked[message.get("id", 0)] = message.get("method", "")
        elif "method" in message and message["method"] in NOTIFICATIONS:
            yield message["method"], NOTIFICATIONS[message["method"]], message["params"]
        elif "result" in message:
            yield asked[message["id"]], RESULTS[asked[message["id"]]], message["result"]


async def test_e03_a_renamed_field_is_an_error_that_names_it(docker_host: str, codex: Path) -> None:
    fault = {"kind": "status", "status": 400, "message": "no"}
    steps = [{"run": "echo one >> ran"}, {"say": "More to do."}, {"say": "Never said.", "fault": [fault]}]
    # By its text: the turn that the goal begins does nothing before it has the message.
    script = Practice.model_validate({"script": [{"text": "Do it.", "step": steps}]})
    async with app_server(docker_host, codex, script, goals=True) as (box, _):
        folder, skill = "/app/.codex/skills/look", "---\\nname: look\\ndescription: looks\\n---\\n"
        await box.shell(f"mkdir -p {folder} && printf -- '{skill}' > {folder}/SKILL.md")
        client = await box.client()
        assert [skill.name for row in (await client.request(SkillsList(cwds=["/app"]), TIMEOUT_S)).data for skill in row.skills] == ["look"]
        await client.request(FeaturesList(limit=2), TIMEOUT_S)
        thread = (await client.request(ThreadStart(cwd="/app"), TIMEOUT_S)).thread.id
        goal = GoalSet(thread_id=thread, objective="Finish the task.", status="active", origin="user")
        await pursue(client, goal, TurnStart(thread_id=thread, input=[TextInput(text="Do it.")], client_user_message_id="m"))
        assert [(await turn_end(client, thread)).status for _ in range(2)] == ["completed", "failed"]
        await client.aclose()
        client = await box.client()
        found = await reattach(client, None, goals=True, timeout_s=TIMEOUT_S)
        assert found is not None and found.goal is not None and found.goal.status == "blocked"
        story = Story(thread)
        await retell(client, found, story, timeout_s=TIMEOUT_S)
        last = list(story.turns.values())[-1]
        assert last.status == "failed" and last.error is not None and last.error.codex_error_info == "other"
        await client.aclose()
        heard = list(traffic_of(box.traffic))

    assert {method for method, _, _ in heard} >= SEEN
    looked: set[tuple[str, tuple[str | int, ...]]] = set()
    for method, model, raw in heard:
        parse(method, model, raw)
        for path in required(model, raw):
            if (method, path) in looked:
                continue
            looked.add((method, path))
            with pytest.raises(ProtocolDrift) as drift:
                parse(method, model, renamed(raw, path))
            assert (drift.value.method, drift.value.field) == (method, ".".join(map(str, path)))
    assert len(looked) > 150
