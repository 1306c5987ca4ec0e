"""Contracts of arms: taken apart by name, compared, and judged by what rows declare (fault a14); on the records that are shipped."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from itertools import combinations
from typing import Any

import pytest

from marathond.agents.codex import contract, declares
from marathond.agents.loopx import left_record
from marathond.core.arms import arm_to_data
from marathond.core.contract import ABSENT, Declared, Difference, differences, shape, tools_of, undeclared, undelivered
from marathond.core.contract_rules import Asked, contracts_differ
from marathond.core.model import Arm, CodexArm, LoopXArm
from marathond.core.names import AgentKind, Drive, LoopXProfile
from marathond.flow.contracts import readable
from marathond.ledger.verbs.stored import StoredArm

surfaces = pytest.mark.parametrize("surface", contract.SURFACES)


names = pytest.mark.parametrize("name", contract.ARMS)


def arm(drive: Drive = Drive.TURN, name: str = "", **codex: Any) -> Arm:
    row = CodexArm(package="p", version="0.171.0", model="m", effort="high", drive=drive, **codex)
    return Arm(name or contract.name_of(row), AgentKind.CODEX, codex=row)


def loopx(profile: LoopXProfile, drive: Drive = Drive.GOAL, **more: Any) -> Arm:
    return arm(drive, loopx=LoopXArm("x", "2.1.1", "wheel", profile=profile, **more))


PLAIN, GOAL = arm(), arm(Drive.GOAL)
SSH, CLI = loopx(LoopXProfile.SSH_GOAL), loopx(LoopXProfile.CODEX_CLI)
HEARTBEAT = loopx(LoopXProfile.GENERIC_CLI, Drive.WAKE)
FIVE = (PLAIN, GOAL, SSH, CLI, HEARTBEAT)
DECLARED = declares.declared(PLAIN, GOAL)
OBJECTIVE = "function_call_output goal_objective"


def item(made: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in made["input"] if each["is"] == name)
    return found


@surfaces
@pytest.mark.parametrize(("a", "b"), [pytest.param(a, b, id=f"{a.name}-{b.name}") for a, b in combinations(FIVE, 2)])
def test_a14_each_pair_of_the_shipped_arms_differs_in_what_its_rows_declare_alone(surface: contract.Surface, a: Arm, b: Arm) -> None:
    declared = declares.declared(a, b)
    one, other = contract.reviewed(a.name, surface), contract.reviewed(b.name, surface)
    assert undeclared(one, other, declared) == [] and undelivered(one, other, declared) == []
    tools = [{tool["is"].rpartition("/")[2] for tool in made["tools"]} for made in (one, other)]
    driven = [each.codex is not None and each.codex.drive is Drive.GOAL for each in (a, b)]
    assert tools[0] ^ tools[1] == (set(declares.GOAL_TOOLS) if len(set(driven)) == 2 else set())


@surfaces
def test_c05_a14_ssh_goal_and_codex_cli_differ_in_one_line_of_the_body(surface: contract.Surface) -> None:
    ssh, cli = contract.reviewed("ssh-goal", surface), contract.reviewed("codex-cli", surface)
    found = {each.where for each in differences(ssh, cli)}
    assert found == {f"input.{OBJECTIVE}.output", "loopx.set_up.profile", "loopx.set_up.body_sha256"}
    one, other = (item(made, OBJECTIVE)["output"].splitlines() for made in (ssh, cli))
    (line,) = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    assert line[0].replace("codex_app_ssh_goal --begin-turn", "codex_cli") == line[1] and "quota should-run" in line[1]


@surfaces
@pytest.mark.parametrize("name", list(contract.WITH_LOOPX.values()))
def test_a13_c05_c16_what_a_loopx_arm_is_given_is_whole(surface: contract.Surface, name: str) -> None:
    made = contract.reviewed(name, surface)
    left, told = made["loopx"], item(made, f"developer <{declares.SKILLS}>")["text"]
    listed = [skill for skill in left["set_up"]["skills"] if f"(file: r0/{skill}/SKILL.md)" in told]
    # LoopX's own entry is for a person to call: codex tells no model of it.
    assert set(left["set_up"]["skills"]) - set(listed) == {"loopx"} and "r0` = `/marathond/codex/skills`" in told
    body = item(made, "user {instruction}")["text"] if name == "heartbeat" else item(made, OBJECTIVE)["output"]
    assert left["set_up"]["state"]["registry"] in body and "registry.global.json" not in body and "$HOME" not in body
    assert ("LOOPX_TURN={wake}\n" in body) == (name == "heartbeat")
    (registered,) = left["registry"]["goals"]
    assert registered["coordination"]["registered_agents"] == ["codex-main"] and registered["status"] == "active"
    assert left["document"] == "{instruction}" and "status=open task_class=advancement_task claimed_by=codex-main" in left["goal"]
    events = {event["is"]: event for event in left["events"]}
    assert list(events) == ["todo_add", "quota_should_run"]
    quota = events["quota_should_run"]
    assert quota["todo_id"] == left["set_up"]["todo_id"] == "todo_{todo}" and quota["details"]["should_run"] is True
    assert (quota["status"], quota["summary"]) == ("normal_run", "quota should-run decision=run state=eligible")


@surfaces
@names
def test_a15_no_shipped_arm_is_offered_a_search(surface: contract.Surface, name: str) -> None:
    made = contract.reviewed(name, surface)
    assert made["config"]["web_search"] == "disabled"
    assert not [tool["is"] for tool in made["tools"] if "web_search" in tool["is"] or str(tool.get("type", "")).startswith(("web_", "mcp"))]


@surfaces
@names
def test_what_is_replaced_is_named_and_nothing_of_one_run_is_left(surface: contract.Surface, name: str) -> None:
    made = contract.reviewed(name, surface)
    words = set(contract.REPLACED) - (set() if name == "heartbeat" else {"{wake}"})
    assert set(made["replaced"]) == words - (set() if "loopx" in made else set(left_record.REPLACED))
    assert all(contract.REPLACED[word] == why for word, why in made["replaced"].items())
    assert contract.from_text(contract.to_text(made)) == made
    text = json.dumps(made)
    assert not re.search(r"TASK-|Debian|\bmt-|\bsk-|[0-9a-f]{8}-[0-9a-f]{4}-|20\d\d-\d\d-\d\d|127\.0\.0\.1:\d|\b\d{12}\b", text)
    assert made["headers"]["authorization"] == "{key}"


def effort(made: dict[str, Any]) -> None:
    made["body"]["reasoning"]["effort"] = "low"


def tool(made: dict[str, Any]) -> None:
    made["tools"].insert(1, {"is": "web_search", "type": "web_search"})


def instruction(made: dict[str, Any]) -> None:
    text = "Think twice before you act."
    made["input"].insert(1, {"is": "developer text 2", "message": {"role": "developer"}, "text": text})


def word(made: dict[str, Any]) -> None:
    part = next(item for item in made["input"] if item["is"] == "developer text")
    part["text"] = part["text"].replace("You are Codex", "You are codex", 1)


def header(made: dict[str, Any]) -> None:
    made["headers"]["x-codex-beta-features"] += ",more"


def retries(made: dict[str, Any]) -> None:
    made["config"]["model_providers"]["marathond"]["stream_max_retries"] = 5


def order(made: dict[str, Any]) -> None:
    made["input"].reverse()


@surfaces
@pytest.mark.parametrize(
    ("plant", "named"),
    [
        (effort, "body.reasoning.effort: plain high, goal low"),
        (tool, "tools.web_search: only goal has it"),
        (instruction, "input.developer text 2: only goal has it"),
        (word, "input.developer text.text: plain You are Codex, a"),
        (header, "headers.x-codex-beta-features: plain remote_compaction_v2, goal remote_compaction_v2,more"),
        (retries, "config.model_providers.marathond.stream_max_retries: plain 8, goal 5"),
        (order, "input.(order): plain"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a14_a03_a_difference_that_nobody_declared_is_named(
    surface: contract.Surface, plant: Callable[[dict[str, Any]], None], named: str
) -> None:
    plain, goal = contract.reviewed("plain", surface), copy.deepcopy(contract.reviewed("goal", surface))
    plant(goal)
    (found,) = undeclared(plain, goal, DECLARED)
    assert found.words("plain", "goal").startswith(named), found.words("plain", "goal")


def test_a_treatment_that_did_not_arrive_is_named() -> None:
    plain, goal = contract.reviewed("plain", "direct"), contract.reviewed("goal", "direct")
    goal["tools"] = [each for each in goal["tools"] if each["is"] != "update_goal"]
    assert undeclared(plain, goal, DECLARED) == []
    assert [each.paths[0] for each in undelivered(plain, goal, DECLARED)] == [("tools", "update_goal")]


def planted_skill(made: dict[str, Any]) -> None:
    told = item(made, f"developer <{declares.SKILLS}>")
    told["text"] = told["text"].replace("### Available skills\n", "### Available skills\n- brew: how to brew.\n", 1)


def planted_line(made: dict[str, Any]) -> None:
    item(made, "developer text")["text"] += "\nWork hard."


def planted_todo(made: dict[str, Any]) -> None:
    made["loopx"]["events"][0]["details"]["task_class"] = "monitor"


def planted_scope(made: dict[str, Any]) -> None:
    made["loopx"]["registry"]["goals"][0]["coordination"]["write_scope"] = []


@surfaces
@pytest.mark.parametrize(
    ("plant", "where"),
    [
        (planted_skill, f"input.developer <{declares.SKILLS}>.text"),
        (planted_line, "input.developer text.text"),
        (planted_todo, "loopx.events.todo_add.details.task_class"),
        (planted_scope, "loopx.registry.goals"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a14_a13_a_difference_between_loopx_arms_that_nobody_declared_is_named(
    surface: contract.Surface, plant: Callable[[dict[str, Any]], None], where: str
) -> None:
    for one, other in combinations((SSH, CLI, HEARTBEAT), 2):
        changed = contract.reviewed(other.name, surface)
        plant(changed)
        found = undeclared(contract.reviewed(one.name, surface), changed, declares.declared(one, other))
        assert [each.where for each in found] == [where]


def test_every_field_of_a_row_says_what_it_declares() -> None:
    known = {f"codex.{each.name}" for each in fields(CodexArm)} | {f"codex.loopx.{each.name}" for each in fields(LoopXArm)}
    known |= set(arm_to_data(PLAIN)) - {"codex", "name"}
    assert set(declares.DECLARES) == known
    assert declares.declared(PLAIN, arm(name="other")) == ()
    assert declares.row_differences(PLAIN, arm(name="other")) == []
    assert {each.field for each in declares.declared(GOAL, arm(Drive.GOAL, objective="Else."))} == {"codex.objective"}
    assert declares.declared(GOAL, arm(Drive.GOAL, operator=True, unblocks_at_most=3)) == ()
    (found,) = declares.row_differences(GOAL, arm(Drive.GOAL, operator=True))
    assert found == Difference(("codex.operator",), False, True)


def test_a14_each_pair_of_the_five_arms_declares_what_its_rows_differ_in() -> None:
    def of(a: Arm, b: Arm) -> set[str]:
        return {each.field for each in declares.declared(a, b)}

    assert of(PLAIN, SSH) == of(GOAL, HEARTBEAT) == {"codex.drive", "codex.loopx"}
    assert of(PLAIN, HEARTBEAT) == {"codex.loopx"}, "a wake is a turn with goals off: what it brings is LoopX's"
    assert of(GOAL, CLI) == {"codex.loopx"} and of(SSH, CLI) == {"codex.loopx.profile"}
    assert of(CLI, HEARTBEAT) == {"codex.drive", "codex.loopx.profile"}
    assert declares.declared(HEARTBEAT, loopx(LoopXProfile.GENERIC_CLI, Drive.WAKE, wake_interval_s=5.0)) == ()
    assert of(SSH, loopx(LoopXProfile.SSH_GOAL, state_inside=True)) == {"codex.loopx.state_inside"}


def test_a_field_that_nobody_declared_is_a_finding_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(declares.DECLARES, "codex.effort")
    low = replace(PLAIN, name="low", codex=replace(PLAIN.codex, effort="low"))  # type: ignore[type-var]
    assert declares.declared(PLAIN, low) == (Declared("codex.effort", ()),)
    shapes = [asked(1, "plain"), asked(2, "low")]
    (found,) = contracts_differ(shapes, {("plain", "low"): declares.declared(PLAIN, low)})
    assert found.subject == "plain x low" and "codex.effort: it is not known what it declares" in found.detail


def test_a_row_of_another_version_is_a_finding_and_no_error() -> None:
    data = arm_to_data(GOAL)
    newer = {**data, "codex": {**data["codex"], "mood": "good"}}
    rows = [StoredArm(at, name, at, "codex", "h", row) for at, (name, row) in enumerate({"goal": data, "newer": newer}.items())]
    arms, strange = readable(rows)
    assert arms == [GOAL]
    assert [(found.subject, found.severity) for found in strange] == [("newer", "error")] and "mood" in strange[0].detail


def test_lists_of_named_elements_are_compared_by_name() -> None:
    a = {"x": [{"is": "one", "n": 1}, {"is": "two"}], "plain": ["p", "q"], "other": [1, 2]}
    b = {"x": [{"is": "zero"}, {"is": "one", "n": 2}, {"is": "two"}], "plain": ["q", "p"], "other": [2, 1]}
    assert differences(a, b) == [
        Difference(("x", "one", "n"), 1, 2),
        Difference(("x", "zero"), ABSENT, {"is": "zero"}),
        Difference(("plain", "(order)"), ["p", "q"], ["q", "p"]),
        Difference(("other",), [1, 2], [2, 1]),
    ]
    assert undeclared(a, b, [Declared("f", (("x",), ("plain",))), Declared("g", (("other",),))]) == []
    assert differences({"n": 1}, {"n": True}) == [Difference(("n",), 1, True)]
    assert differences({"n": None}, {}) == [Difference(("n",), None, ABSENT)]


# ---- shapes: what the gateway keeps of a first request

CODE_TOOL = {"type": "custom", "name": "exec", "description": "Runs.\n\n### `one`\nFirst.\n\n### `two`\nSecond."}
HEADERS = ["Authorization", "x-own"]


def body(**more: Any) -> dict[str, Any]:
    tools = {"type": "additional_tools", "tools": [{"type": "namespace", "name": "functions", "tools": [CODE_TOOL]}]}
    said = [{"type": "message", "role": role, "content": [{"text": f"a word to the {role}"}]} for role in ("developer", "user")]
    return {"model": "m", "reasoning": {"effort": "high"}, "prompt_cache_key": "id", "input": [tools, *said], **more}


def test_tools_inside_tools_have_names_of_their_own() -> None:
    names = ["functions", "functions.exec", "functions.exec/one", "functions.exec/two"]
    assert [each["is"] for each in tools_of(body())] == names
    hosted = [{"type": "web_search"}, {"type": "function", "name": "f"}, {"type": "function", "name": "f"}]
    assert [each["is"] for each in tools_of({"tools": hosted})] == ["web_search", "f", "f 2"]
    assert tools_of({"tools": "no", "input": [3, {"tools": [4]}]}) == []


def test_a_shape_says_what_was_asked_for_and_no_word_of_it() -> None:
    made = shape(body(long="x" * 1000, odd=float("nan")), HEADERS)
    assert made["body"]["reasoning"] == {"effort": "high"} and made["body"]["prompt_cache_key"] == "sent"
    assert made["body"]["odd"] == "not a number" and len(made["body"]["long"]) == 16
    assert list(made["tools"]) == ["functions", "functions.exec", "functions.exec/one", "functions.exec/two"]
    assert list(made["headers"]) == ["authorization", "x-own"]
    assert "a word" not in json.dumps(made) and "First." not in json.dumps(made)
    assert shape(body(prompt_cache_key="other"), HEADERS) == shape(body(), HEADERS)
    changed = body()
    changed["input"][1]["content"][0]["text"] = "another word"
    assert [each.path for each in differences(shape(body(), HEADERS), shape(changed, HEADERS))] == [("instructions", "text")]
    changed["input"][1], changed["input"][2]["content"][0]["text"] = body()["input"][1], "another task"
    assert shape(changed, HEADERS) == shape(body(), HEADERS), "what the user says is the task's"


def asked(trial: int, name: str, task: str = "t", **more: Any) -> Asked:
    made = shape(body(**more), HEADERS)
    tools = dict.fromkeys(declares.GOAL_TOOLS, "h") if name == "goal" else {}
    return Asked(trial, name, task, {**made, "tools": {**made["tools"], **tools}})


PAIRS = {("plain", "goal"): DECLARED, ("goal", "plain"): DECLARED}


def test_trials_that_ask_alike_give_no_finding() -> None:
    assert contracts_differ([], PAIRS) == []
    assert contracts_differ([asked(1, "plain"), asked(2, "goal"), asked(3, "plain", "u"), asked(4, "goal", "u")], PAIRS) == []


def test_a14_two_trials_of_one_arm_that_ask_otherwise_are_named() -> None:
    low = asked(4, "plain", reasoning={"effort": "low"})
    (found,) = contracts_differ([asked(1, "plain"), asked(2, "goal"), low], PAIRS)
    assert (found.code, found.severity, found.subject) == ("arm_contract_differs", "error", "plain")
    assert "body.reasoning.effort: t0001 high, these low (t0004)" in found.detail


def test_a14_two_arms_that_ask_otherwise_are_named() -> None:
    (found,) = contracts_differ([asked(1, "plain"), asked(2, "goal", reasoning={"effort": "low"})], PAIRS)
    assert found.subject == "plain x goal" and "body.reasoning.effort: plain high, goal low" in found.detail
    (found,) = contracts_differ([asked(1, "goal"), asked(2, "plain", tools=[{"type": "web_search"}])], PAIRS)
    assert found.subject == "goal x plain" and "tools.web_search: only plain has it" in found.detail
    same = Asked(2, "goal", "t", asked(1, "plain").shape)
    (found,) = contracts_differ([asked(1, "plain"), same], PAIRS)
    assert "codex.drive declares tools.update_goal: both are alike in it" in found.detail


def test_a13_a14_skills_that_did_not_arrive_are_named_and_hide_no_other_instruction() -> None:
    def of(trial: int, name: str, *said: str) -> Asked:
        items = [{"role": "developer", "content": [{"text": text} for text in said]}]
        return Asked(trial, name, "t", shape({"model": "m", "input": items}, HEADERS))

    pair = {("goal", "ssh-goal"): declares.declared(GOAL, SSH)}
    told = "<skills_instructions>\n- loopx-project"
    assert contracts_differ([of(1, "goal", "Be."), of(2, "ssh-goal", told, "Be.")], pair) == []
    (found,) = contracts_differ([of(1, "goal", "Be."), of(2, "ssh-goal", "Be.")], pair)
    assert "codex.loopx declares instructions.skills_instructions: both are alike in it" in found.detail
    (found,) = contracts_differ([of(1, "goal", "Be."), of(2, "ssh-goal", told, "Be good.")], pair)
    assert "instructions.text: goal" in found.detail and "skills" not in found.detail


def test_instructions_are_compared_within_a_task_only() -> None:
    skilled = {"instructions": "a skill of this task"}
    per_task = [asked(1, "plain"), asked(2, "goal"), asked(3, "plain", "u", **skilled), asked(4, "goal", "u", **skilled)]
    assert contracts_differ(per_task, PAIRS) == []
    assert contracts_differ([asked(1, "plain"), asked(2, "goal", "u", **skilled)], PAIRS) == []
    found = contracts_differ([asked(1, "plain"), asked(2, "goal", **skilled), asked(3, "plain", **skilled)], PAIRS)
    assert [each.subject for each in found] == ["plain", "plain x goal"]
    assert all("instructions.(own): " in each.detail for each in found)
