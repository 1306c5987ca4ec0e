"""The command ``marathond``: what it does without a word is proven elsewhere; here are the processes beside the daemon."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import marathond.practice as practice_room

EXAMPLE = Path(practice_room.__file__).with_name("example.toml")


def marathond(*words: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-m", "marathond.cli.daemon", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_help_shows_the_daemons_options_and_both_commands() -> None:
    status, out, _ = marathond("--help")
    assert status == 0 and "--config" in out and "--take-over" in out
    commands = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()]
    assert commands == ["gateway", "practice"]
    status, out, _ = marathond("practice", "--help")
    assert status == 0 and all(option in out for option in ("--script", "--port", "--record", "--check"))


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("practice",), 2, "marathond practice: error: the following arguments are required: --script"),
        (("practice", "--script", "none.toml"), 2, "none.toml: cannot be read: No such file or directory"),
        (("practice", "--script", str(EXAMPLE), "--port", "70000"), 2, "--port 70000: must be from 0 to 65535"),
        (("gateway",), 2, "marathond: missing argument 'FOLDER'\nTry: marathond gateway --help\n"),
        (("gateway", "no-such-folder"), 78, "no-such-folder/gateway.json: no such file"),
        (("--config", "c.toml", "gateway", "."), 2, "--config, --take-over and --debug are the daemon's: gateway takes none of them"),
        (("daemon",), 2, "marathond: no such command 'daemon'\nTry: marathond --help\n"),
        (("--tak-over",), 2, "marathond: no such option: --tak-over"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(words: tuple[str, ...], status: int, told: str) -> None:
    ended, out, err = marathond(*words)
    assert (ended, out) == (status, "") and told in err


def test_a_script_that_is_right_is_checked_in_silence() -> None:
    assert marathond("practice", "--script", str(EXAMPLE), "--check") == (0, "", "")
