"""`marathonctl --help` has every command once, below the heading of what it is for."""

from __future__ import annotations

import re

import pytest
import typer

from marathond.cli import ctl, grouped_help
from marathond.cli.grammar import app
from marathond.cli.grouped_help import GROUPS

COMMANDS = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def sections(out: str) -> dict[str, list[str]]:
    """Heading to the first words of its lines, of all sections behind the options."""
    found: dict[str, list[str]] = {}
    for line in out.partition("Options:")[2].splitlines():
        if heading := re.fullmatch(r"(\S[\w ]*):", line):
            found[heading[1]] = []
        elif found and (row := re.fullmatch(r"  (\S+)  +\S.*", line)):
            found[list(found)[-1]].append(row[1])
    return found


def test_every_command_is_in_one_group() -> None:
    named = [name for _, names in GROUPS for name in names]
    assert len(named) == len(set(named)) and set(named) == COMMANDS


def test_help_is_grouped_and_aligned(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("60", "80", "200"):
        monkeypatch.setenv("COLUMNS", width)
        assert ctl.run(["--help"]) == 0
        out = capsys.readouterr().out
        assert sections(out) == {title: list(names) for title, names in GROUPS}
        columns = {len(re.match(r"  \S+ +", line).group()) for line in out.partition("Watch:")[2].splitlines() if line.startswith("  ")}  # type: ignore[union-attr]
        assert columns == {len("  verify-envs  ")}


def test_a_command_that_nobody_put_anywhere_is_shown_all_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = tuple((title, tuple(name for name in names if name != "wait")) for title, names in GROUPS)
    monkeypatch.setattr(grouped_help, "GROUPS", without)
    assert ctl.run(["--help"]) == 0
    assert sections(capsys.readouterr().out)["Other"] == ["wait"]
