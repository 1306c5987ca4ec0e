"""A command line that cannot be read is refused like everything else: one line, and at most one that says where help is."""

from __future__ import annotations

import json

import pytest

from marathond.cli import ctl


@pytest.mark.parametrize(
    ("argv", "line", "command"),
    [
        (["statsu"], "marathonctl: no such command 'statsu'", "marathonctl"),
        (["ledger", "x"], "marathonctl: no such command 'x'", "marathonctl ledger"),
        (["review", "t0001", "--accept", "--reward", "2"], "marathonctl: invalid value for '--reward': ", "marathonctl review"),
        (["review", "t0001", "--rewrd"], "marathonctl: no such option: --rewrd", "marathonctl review"),
        (["tail", "-n", "x"], "marathonctl: invalid value for '--lines' / '-n': ", "marathonctl tail"),
        (["show"], "marathonctl: missing argument 'TRIAL'", "marathonctl show"),
        (["--nope"], "marathonctl: no such option: --nope", "marathonctl"),
    ],
)
def test_a_usage_error_is_one_line_and_a_way_to_help(argv: list[str], line: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(argv) == 2
    said = capsys.readouterr()
    first, second = said.err.splitlines()
    assert said.out == "" and first.startswith(line) and second == f"Try: {command} --help"
    assert ctl.run([*argv, "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and json.loads(said.err)["exit"] == 2 and json.loads(said.err)["error"] == first.removeprefix("marathonctl: ")


@pytest.mark.parametrize("argv", [[], ["ledger"]])
def test_without_a_command_help_is_shown_whole(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(argv) == 2
    assert capsys.readouterr().err.startswith(f"Usage: {' '.join(['marathonctl', *argv])} ")


def test_what_ends_well_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["--version"]) == 0 and ctl.run(["tail", "--help"]) == 0
    assert capsys.readouterr().err == ""


def test_a_name_that_steers_a_terminal_steers_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl.run(["\x1b[31mx\nsecond"]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and len(said.splitlines()) == 2
