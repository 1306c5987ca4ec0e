"""Practice scripts: what is refused and how, and what the pure parts make of requests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from marathond.core.errors import ConfigError
from marathond.practice import script as script_module
from marathond.practice import surface
from marathond.practice.gate import GATE_WORD, gate_message, gate_practice
from marathond.practice.play import CONVERSATIONS_AT_MOST, Identity, Player, Trial, choose
from marathond.practice.request import Ask, BadRequest, read, running
from marathond.practice.script import (
    Call,
    CutFault,
    FailedFault,
    Key,
    NewGoal,
    OutageFault,
    Practice,
    Script,
    StallFault,
    StatusFault,
    Step,
    Usage,
    filled,
    load,
    parse,
)
from marathond.practice.surface import CannotPlay
from tests.support.practice import CODE, DIRECT, GOAL, user

STEP = '[[script]]\n[[script.step]]\nsay = "x"\n'


def ask(*items: dict[str, Any], tools: list[dict[str, Any]] | None = None, model: str = "gpt-5.5", **body: Any) -> Ask:
    given = {"model": model, "input": list(items), **({"tools": tools} if tools is not None else {}), **body}
    return read(json.dumps(given).encode(), {})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", "", "script: Field required"),
        ("script = [", "", "no valid TOML"),
        ("[[script]]\n[[script.step]]\nsay = 3\n", ":3", "script.0.step.0.say: Input should be a valid string"),
        ('[[script]]\n[[script.step]]\nsays = "x"\n', ":3", "script.0.step.0.says: no such key"),
        ("[[script]]\n[[script.step]]\n", ":2", 'a step needs say, an action, or shape = "empty"'),
        ('[[script]]\n[[script.step]]\nrun = "ls"\ngoal = "complete"\n', ":2", "run and goal need steps of their own"),
        ('[[script]]\n[[script.step]]\nsay = "x"\nshape = "empty"\n', ":2", "says and does nothing"),
        ('[[script]]\n[[script.step]]\nrun = "x"\nshape = "deltas"\n', ":2", "needs say and no action"),
        ('[[script]]\n[[script.step]]\npatch = "x"\n', ":3", "script.0.step.0.patch: String should match pattern"),
        (STEP + '[[script.step.fault]]\nkind = "fire"\n', ":4", "does not match any of the expected tags"),
        (STEP + '[[script.step.fault]]\nkind = "status"\nstatus = 200\n', ":6", "script.0.step.0.fault.0.status: Input should be greater"),
        (STEP + '[[script.step.fault]]\nkind = "status"\nstatus = 500\ntimes = 1\nfor_s = 2\n', ":4", "give times or for_s, not both"),
        (STEP + '[[script.step.fault]]\nkind = "stall"\nfor_s = inf\n', ":6", "fault.0.for_s: Input should be"),
        ('[[script]]\nthen = "repeat"\n', ":1", "needs a step to repeat"),
        (STEP + "usage = { input = 1, cached = 2 }\n", ":4", "cached must be at most input"),
        (STEP + '[[key]]\nkey = "12345678"\ntrial = "../x"\n', ":6", "key.0.trial"),
        ("[[script]]\npattern = '('\n", ":1", "pattern is no regular expression: missing ), unterminated subpattern"),
        ("[[script]]\nlatest = '('\n", ":1", "latest is no regular expression: missing ), unterminated subpattern"),
        ("speed = 0\n" + STEP, ":1", "speed: Input should be greater than 0"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(text: str, line: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text, "p.toml")
    said = str(caught.value)
    assert said.startswith(f"p.toml{line}: ")
    assert words in said
    assert "\n" not in said


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"x = '\xff'")
    with pytest.raises(ConfigError, match="byte 5 is not UTF-8"):
        load(tmp_path / "bad.toml")
    (tmp_path / "good.toml").write_text(STEP)
    assert load(tmp_path / "good.toml").script[0].step[0].say == "x"


def test_bad_requests_are_told_apart_from_good_ones() -> None:
    with pytest.raises(BadRequest, match="no JSON object"):
        read(b"[]", {})
    with pytest.raises(BadRequest, match="no JSON"):
        read(b"{", {})
    assert read(b'{"input": "do it"}', {}).user_texts == ["do it"]
    assert read(b'{"input": 3, "tools": 4}', {"x-codex-turn-metadata": "{"}).items == []


def test_the_offered_tools_decide_the_surface_and_the_slug_where_none_is_offered() -> None:
    practice = Practice.model_validate({"script": [{}]})
    assert surface.surface_of(practice, ask(CODE, model="gpt-5.5")) == "code"
    assert surface.surface_of(practice, ask(tools=DIRECT, model="gpt-6-sol")) == "direct"
    assert surface.surface_of(practice, ask(model="gpt-6-sol")) == "code"
    assert surface.surface_of(practice, ask(model="gpt-6")) == "direct"  # not in codex's catalogue: fallback metadata


def item(step: Step, where: surface.Surface, tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    (found,) = surface.items_of(step, 7, where, ask(tools=DIRECT if tools is None else tools))
    assert found.get("call_id") == "call_practice_7"
    return found


def test_actions_in_the_direct_surface() -> None:
    run = item(Step(run="echo 'a\"b'"), "direct")
    assert (run["type"], run["name"], json.loads(run["arguments"])["cmd"]) == ("function_call", "exec_command", "echo 'a\"b'")
    shell = item(Step(run="ls"), "direct", [{"type": "function", "name": "shell"}])
    assert (shell["name"], json.loads(shell["arguments"])) == ("shell", {"command": ["sh", "-c", "ls"]})
    assert item(Step(run="ls"), "direct", [{"type": "function", "name": "shell_command"}])["name"] == "shell_command"
    patch = item(Step(patch="*** Begin Patch\n*** End Patch"), "direct")
    assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "*** Begin Patch\n*** End Patch")
    by_command = item(Step(patch="*** Begin Patch\n*** End Patch"), "direct", [{"type": "function", "name": "exec_command"}])
    assert json.loads(by_command["arguments"])["cmd"].startswith("apply_patch <<'PRACTICE_PATCH'\n*** Begin Patch\n")
    assert json.loads(item(Step(goal="blocked"), "direct")["arguments"]) == {"status": "blocked"}
    goal = item(Step(create_goal=NewGoal(objective="all", token_budget=5)), "direct")
    assert (goal["name"], json.loads(goal["arguments"])) == ("create_goal", {"objective": "all", "token_budget": 5})
    assert item(Step(call=Call(name="view_image", arguments={"path": "x"})), "direct")["name"] == "view_image"
    with pytest.raises(CannotPlay, match="needs code mode"):
        item(Step(javascript="text(1)"), "direct")
    with pytest.raises(CannotPlay, match="only view_image"):
        item(Step(run="ls"), "direct", [{"type": "function", "name": "view_image"}])


def test_actions_in_code_mode_are_one_exec() -> None:
    for step, words in (
        (Step(run="echo `x` ${y}"), '"cmd": "echo `x` ${y}"'),
        (Step(patch="*** Begin Patch\n*** End Patch"), 'tools.apply_patch("*** Begin Patch\\n*** End Patch")'),
        (Step(goal="complete"), 'tools["update_goal"]({"status": "complete"})'),
        (Step(create_goal=NewGoal(objective="all")), 'tools["create_goal"]({"objective": "all"})'),
        (Step(call=Call(name="web__run")), 'tools["web__run"]({})'),
        (Step(javascript="text(1)"), "text(1)"),
    ):
        made = item(step, "code")
        assert (made["type"], made["name"]) == ("custom_tool_call", "exec")
        assert words in made["input"]


def test_a_running_command_is_known_by_the_head_of_its_output_only() -> None:
    direct = running("Chunk ID: 1\nWall time: 1 seconds\nProcess running with session ID 4711\nOriginal token count: 1\nOutput:\nhi")
    assert direct is not None and direct.session == "4711"
    code = running("Script running with cell ID c-9\nWall time 1 seconds\nOutput:\n")
    assert code is not None and code.cell == "c-9"
    assert running("Process exited with code 0\nOutput:\nProcess running with session ID 4711\n") is None


def test_which_script_fits() -> None:
    practice = parse(
        '[[script]]\ntask = "greet"\narm = "goal"\n[[script]]\ntask = "greet"\n[[script]]\ntask = "maze"\ntext = "S to E"\n'
        '[[script]]\nmodel = "gpt-6*"\n'
    )
    nobody = Identity("t1")

    def chosen(identity: Identity, asked: Ask) -> int | None:
        found = choose(practice, identity, asked)
        return None if found is None else found[0]

    assert chosen(nobody, ask(user("# greet\nWrite it"), GOAL)) == 0
    assert chosen(nobody, ask(user("# greet\nWrite it"))) == 1
    assert chosen(nobody, ask(user("greeting, greet-all, regreet"))) is None  # a word of its own
    assert chosen(nobody, ask(user("from S to E"))) == 2
    assert chosen(nobody, ask(user("maze"))) is None  # its text decides
    assert chosen(nobody, ask(user("x"), model="gpt-6-sol")) == 3
    assert chosen(Identity("t1", "maze"), ask(user("greet"))) == 2  # what the key says wins
    assert chosen(Identity("t1", "greet", "goal"), ask(user("x"))) == 0
    assert chosen(nobody, ask(user("<environment_context><cwd>/greet </cwd>"))) is None  # codex's own words
    assert chosen(nobody, ask(user("# AGENTS.md instructions for /greet\n\ngreet"))) is None


def test_a_pattern_fits_a_whole_message_and_what_it_catches_is_put_in() -> None:
    practice = parse("[[script]]\npattern = 'say (?P<word>[a-z]+)( again)?'\n[[script.step]]\nrun = 'echo {{word}} {{other}} {print}'\n")
    found = choose(practice, Identity("t1"), ask(user("hello"), user("say this"), user("say that")))
    assert found == (0, {"word": "this"})
    assert filled(practice.script[0].step[0], found[1]) == Step(run="echo this {{other}} {print}")
    assert choose(practice, Identity("t1"), ask(user("say this; rm x"))) is None
    assert choose(practice, Identity("t1"), ask(user("say THIS"))) is None


def test_what_the_last_message_holds_is_put_in_anew_with_every_request() -> None:
    practice = parse("[[script]]\nlatest = 'TURN=(?P<turn>\\d+)'\n[[script.step]]\nsay = 'turn {{turn}}'\n")
    player, trial = Player(practice), Trial(Identity("t1"))

    def said(*texts: str) -> bytes:
        return b"".join(part for part in player.answer(trial, ask(*map(user, texts)), 0.0, "r", 0).parts if isinstance(part, bytes))

    assert b"turn 1" in said("go on\nTURN=1\n")
    assert b"turn 2" in said("go on\nTURN=1\n", "go on\nTURN=2\n")
    assert b"turn {{turn}}" in said("go on\nTURN=1\n", "go on\n")


def test_the_conversation_that_was_silent_longest_is_forgotten() -> None:
    """Behind a gateway all trials come with one key: a provider that counted conversations would refuse the last ones of a campaign."""
    fault = {"kind": "status", "status": 500}
    player = Player(Practice.model_validate({"script": [{"step": [{"say": "one", "fault": [fault]}]}]}))
    trial = Trial(Identity("t1"))

    def status(number: int) -> int:
        return player.answer(trial, ask(user("x"), prompt_cache_key=f"thread-{number}"), 0.0, "r", 0).status

    assert (status(0), status(1)) == (500, 500)
    assert status(0) == 200
    assert {status(number) for number in range(2, CONVERSATIONS_AT_MOST + 1)} == {500}
    assert len(trial.conversations) == CONVERSATIONS_AT_MOST
    assert (status(0), status(1)) == (200, 500)  # 1 is met for the first time again


@pytest.mark.parametrize(
    ("proof", "path"),
    [("p-1", "/tmp/proof"), ("a/b_c.d-e", "/x"), ("-n", "/logs/agent/-n")],
)
def test_the_gates_message_is_what_its_script_reads(proof: str, path: str) -> None:
    found = choose(gate_practice(), Identity("t1"), ask(user(gate_message(proof, path) + "\n")))
    assert found == (0, {"proof": proof, "path": path})


@pytest.mark.parametrize(
    ("proof", "path"),
    [("", "/p"), ("a b", "/p"), ("/a", "/p"), ("a'b", "/p"), ("a", "p"), ("a", "/p;ls"), ("a", "/$(ls)"), ("a\n", "/p"), ("a" * 201, "/p")],
)
def test_a_gate_takes_nothing_that_a_shell_would_read(proof: str, path: str) -> None:
    with pytest.raises(ValueError, match=r"^gate: (proof|path) "):
        gate_message(proof, path)
    assert choose(gate_practice(), Identity("t1"), ask(user(f"{GATE_WORD} {proof} {path}"))) is None


def test_fields_are_found_by_path() -> None:
    given = ask(user("x"), GOAL, text={"verbosity": "low"})
    assert given.holds("text.verbosity") and given.holds("input.*.namespace") and given.holds("model")
    assert not given.holds("text.other") and not given.holds("input.*.phase") and not given.holds("model.x")


def test_usage_adds_up_by_kind() -> None:
    total = Usage(input=5, cached=2, output=3, reasoning=1) + Usage(input=1, output=1)
    assert total == Usage(input=6, cached=2, output=4, reasoning=1)


def test_the_example_that_ships_is_right_and_names_every_key() -> None:
    path = Path(script_module.__file__).with_name("example.toml")
    assert len(load(path).script) > 3
    text = path.read_text()
    models = (Practice, Script, Step, StatusFault, FailedFault, CutFault, StallFault, OutageFault, Key, Call, NewGoal, Usage)
    missing = [f"{model.__name__}.{key}" for model in models for key in model.model_fields if not re.search(rf"\b{key}\b", text)]
    assert missing == []
