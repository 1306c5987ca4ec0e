"""README.md tells what a person types: its commands and options exist, its configuration loads, its arms are those that ship."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import typer
from typer.core import TyperGroup

from marathond.agents.codex.contract import BARE, WITH_LOOPX
from marathond.cli.app import app
from marathond.cli.grammar import PARTS
from marathond.service.settings import load

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SWE_MARATHON = (ROOT / "docs" / "swe-marathon.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
GRAMMAR = typer.main.get_group(app)
assert PARTS, "their import puts the commands into the grammar"


def _commands() -> Iterator[list[str]]:
    """Each whole line, table cell or quoted text that calls ``marathonctl``, from its first word on; comments left out."""
    quoted = re.findall(r"`(?:systemd-run [^`]* )?marathonctl ([^`]+)`", README)
    lines = re.findall(r"^    (?:install .*\| )?marathonctl (.+)$", README, re.MULTILINE)
    for words in (*quoted, *lines):
        if words[0].islower():
            yield shlex.split(words, comments=True)


def test_each_command_and_its_options_exist() -> None:
    commands = list(_commands())
    for words in commands:
        group: TyperGroup = GRAMMAR
        command, *rest = words
        while isinstance(inner := group.commands[command], TyperGroup) and rest and rest[0] in inner.commands:
            group, (command, *rest) = inner, rest
        known = {option for each in group.commands[command].params for option in (*each.opts, *each.secondary_opts)}
        given = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in given if word.startswith("-")} <= known, words
    campaign = ["config", "init", "stage", "prebuild", "plan", "preflight", "verify-envs", "canary"]
    assert set(campaign) <= {words[0] for words in commands}


def test_the_changelog_names_every_command() -> None:
    listed = re.search(r"`marathonctl` with (.*?)\.\n", CHANGELOG, re.DOTALL)
    assert listed is not None
    assert sorted(listed[1].replace("\n", " ").replace(",", " ").split()) == sorted(GRAMMAR.commands)


def test_its_configuration_loads(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "marathond.toml").write_text(text)
    settings = load(tmp_path / "marathond.toml", environ={}, cwd=tmp_path, uid=0)
    assert settings.arm_names == ("plain", "goal") and settings.codex.model in settings.money.prices


def test_its_table_of_arms_is_that_of_the_contracts() -> None:
    rows = re.findall(r"^\| `(\S+)` \| `(turn|goal|wake)` \| (?:`(\S+)`)? ?\|", README, re.MULTILINE)
    bare = [(name, drive.value, "") for drive, name in BARE.items()]
    drives = {"ssh-goal": "goal", "codex-cli": "goal", "heartbeat": "wake"}
    assert rows == [*bare, *((name, drives[name], profile.value) for profile, name in WITH_LOOPX.items())]


def test_the_line_that_takes_the_campaign_out_of_the_example(tmp_path: Path) -> None:
    (line,) = re.findall(r"^    (sed -n '.*' config\.example\.toml) >", SWE_MARATHON, re.MULTILINE)
    said = subprocess.run(["sh", "-c", line], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert tomllib.loads(said)["campaign"]["benchmark"] == "swe-marathon"
    (tmp_path / "swe.toml").write_text(said)
    assert len(load(tmp_path / "swe.toml", environ={}, cwd=tmp_path, uid=0).arm_names) == len((*BARE, *WITH_LOOPX))
