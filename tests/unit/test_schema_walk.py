"""Every command of marathonctl takes --json and has a published schema; the few that have none say why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from marathond.cli import ctl
from marathond.cli import schema_forms as forms
from marathond.cli.app import app
from marathond.cli.grammar import PARTS
from marathond.cli.refusals import command_of, wants_json
from marathond.cli.schema_forms import EXEMPT, FORMS
from tests.support.published import published

assert PARTS, "their import puts the commands into the grammar"


def commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that can be called, with its full name; a group only if it does something by itself."""
    for name, command in (group or typer.main.get_group(app)).commands.items():
        whole = f"{before} {name}".strip()
        if (below := getattr(command, "commands", None)) is None or command.invoke_without_command:
            yield whole, command
        if below is not None:
            yield from commands(command, whole)


GRAMMAR = dict(commands())


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


def test_the_walk_sees_commands_groups_and_what_is_below_them() -> None:
    assert {"status", "void", "ledger check", "arms", "arms diff", "config show", "schema"} <= GRAMMAR.keys()
    assert "ledger" not in GRAMMAR and len(GRAMMAR) > 40


def test_every_command_takes_json() -> None:
    missing = sorted(name for name, command in GRAMMAR.items() if "--json" not in options(command) and name not in EXEMPT)
    assert not missing, f"no --json: {missing}; or say in marathond/cli/schema_forms.py why not"


def test_every_command_has_a_schema() -> None:
    missing = sorted(GRAMMAR.keys() - FORMS.keys() - EXEMPT.keys())
    assert not missing, f"no schema: {missing}; name the types that they print in marathond/cli/schema_forms.py"


def test_no_schema_is_of_a_command_that_there_is_not() -> None:
    assert sorted(FORMS.keys() - GRAMMAR.keys()) == [forms.ERROR]


def test_who_is_exempt_exists_has_no_json_and_says_why() -> None:
    assert len(EXEMPT) <= 4
    for name, why in EXEMPT.items():
        assert name in GRAMMAR and "--json" not in options(GRAMMAR[name]) and name not in FORMS
        assert len(why) > 20


def test_a_hidden_json_is_no_way_out() -> None:
    for name, command in GRAMMAR.items():
        for parameter in command.params:
            if "--json" in parameter.opts:
                assert parameter.help and not parameter.hidden, name


@pytest.mark.parametrize(
    ("argv", "wanted"),
    [
        ("status --json", True),
        ("-c x.toml status --json", True),
        ("report --json=out.json", True),
        ("sql --json --json", True),
        ("status", False),
        ("exec t0001 tool --json", False),
        ("--config --json exec t0001 --json", False),
        ("-c f exec t0001 -- tool --json", False),
        ("void t0001 -- --json", False),
    ],
)
def test_who_asks_for_json(argv: str, wanted: bool) -> None:
    assert wants_json(argv.split()) is wanted


def test_the_command_is_found_behind_global_options() -> None:
    assert command_of(["--config", "status", "--debug", "show", "t0001"]) == "show"
    assert command_of(["--version"]) == ""


def test_schemas_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["schema", "--list"]) == 0
    listed = capsys.readouterr().out.splitlines()[1:]
    assert len(listed) == len(forms.names())
    for words in (["ledger", "check"], ["config"], ["error"]):
        assert ctl.run(["schema", *words]) == 0
        assert json.loads(capsys.readouterr().out) == published(" ".join(words))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["schema", "exec"], "exec has none: what it prints is the command's"),
        (["schema", "stats"], "there is none of 'stats'"),
        (["schema", "status", "--josn"], "no such option"),
    ],
)
def test_a_schema_that_there_is_not(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(argv) == 2
    shown = capsys.readouterr()
    assert said in shown.err and not shown.out
