"""Interactive shells on terminals of their own, with marathonctl in their path and its completion as ``--install-completion`` leaves it.

Nothing of whoever runs the tests is read or written: each shell has a home of its own.  One that is missing is installed where set-up may
install packages (as root on Debian).
"""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path

import pytest

from marathond.demo.host import SetupError, need_tools

LOG = Path(__file__).resolve().parents[2] / ".cache" / "shells.log"
LIMIT_S = 240.0
READY = "ready> "
KILL_LINE = "\x15"
_CONTROL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-B]|[=>78])|[\r\x07\x08]")


@dataclass(frozen=True)
class Kind:
    """``quiet``: appended to ``rc``, a file in its home; ``list_keys``: what lists everything that fits."""

    argv: tuple[str, ...]
    rc: str
    quiet: str
    list_keys: str


KINDS = {
    "bash": Kind(
        ("--noprofile", "--rcfile", ".bashrc", "-i"),
        ".bashrc",
        f"""
bind 'set bell-style none'; bind 'set enable-bracketed-paste off'; bind 'set completion-query-items 0'; bind 'set page-completions off'
PS1='{READY}'
""",
        "\x1b?",
    ),
    "zsh": Kind(
        ("-d", "-i"),  # without the machine's own beginnings
        ".zshrc",
        f"""
unsetopt beep prompt_sp prompt_cr; setopt no_auto_menu; unset zle_bracketed_paste
PROMPT='{READY}'
""",
        "\x04",
    ),
    "fish": Kind(
        ("-i",),
        ".config/fish/config.fish",
        f"""
set -g fish_greeting; set -g fish_autosuggestion_enabled 0
function fish_prompt; echo -n '{READY}'; end
""",
        "\t",
    ),
}


class Shell:
    """One of :data:`KINDS`, from its start to its end."""

    def __init__(self, name: str, folder: Path) -> None:
        """:raises SetupError: it is not here, and cannot be installed; one clear line."""
        LOG.parent.mkdir(parents=True, exist_ok=True)
        need_tools({name: name}, LOG)
        program = shutil.which(name)
        assert program is not None
        self.kind = KINDS[name]
        bin_dir = folder / "bin"
        bin_dir.mkdir()
        marathonctl = bin_dir / "marathonctl"
        marathonctl.write_text(f'#!/bin/sh\nexec {sys.executable} -m marathond.cli.ctl "$@"\n')
        marathonctl.chmod(0o755)
        at_home = {"HOME": str(folder), "ZDOTDIR": str(folder), "SHELL": program, "TERM": "xterm"}
        at_home |= {f"XDG_{what}_HOME": str(folder / where) for what, where in (("CONFIG", ".config"), ("DATA", ".local"))}
        # The package is found by its path: a shell's working directory is its home.
        path = {"PATH": f"{bin_dir}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
        environ = {**os.environ, **at_home, **path}
        # As a person does it once, in that shell: which one it is, is found out.
        subprocess.run([program, "-c", "marathonctl --install-completion; true"], env=environ, cwd=folder, timeout=LIMIT_S, check=True)
        rc = folder / self.kind.rc
        rc.parent.mkdir(parents=True, exist_ok=True)
        with rc.open("a") as file:
            file.write(self.kind.quiet)
        argv = [name, *self.kind.argv]
        self.pid, self.terminal = pty.fork()
        if not self.pid:
            ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
            os.chdir(folder)
            os.execve(program, argv, environ)
        self.text = ""
        self.wait_for(READY)

    def type(self, keys: str) -> None:
        self.text = ""
        os.write(self.terminal, keys.encode())

    def wait_for(self, *expected: str) -> str:
        """What it wrote since the last keys, without control sequences, once everything expected is in it."""
        end = time.monotonic() + LIMIT_S
        while not all(word in self.plain for word in expected):
            if not select.select([self.terminal], [], [], max(0.0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {expected!r} in {self.text!r}")
            self.text += os.read(self.terminal, 4096).decode(errors="replace")
        return self.plain

    @property
    def plain(self) -> str:
        return _CONTROL.sub("", self.text)

    def close(self) -> None:
        os.close(self.terminal)
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)


@contextmanager
def shell(name: str, folder: Path) -> Iterator[Shell]:
    """Where it cannot be had: a failure in CI, skipped elsewhere."""
    try:
        found = Shell(name, folder)
    except SetupError as error:
        if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
            pytest.fail(str(error))
        pytest.skip(str(error))
    try:
        yield found
    finally:
        found.close()
