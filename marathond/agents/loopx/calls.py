"""Which commands of a shell script call LoopX, and what they ask it for.  Pure.

Owns what is a call: LoopX's own program is run, by its name or its path, directly or through a shell, a wrapper (``env``, ``timeout``,
``xargs``) or its Python.  A command that only mentions it (``grep loopx``, ``which loopx``, ``ls /opt/lxprofile``) is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from marathond.agents.loopx import profile
from marathond.agents.loopx.shell import Command, commands

DEPTH_AT_MOST = 5
"""Of shells inside shells."""
CALLS_AT_MOST = 10_000
"""Of one command line."""
NAMELESS = "(none)"
"""For what a call asks that names no sub-command, such as ``--help``."""
PROGRAMS = frozenset({"loopx", profile.COMMAND, profile.CLI, f"{profile.ROOT}/releases/native-goal-profile/bin/loopx"})
MODULES = frozenset({"loopx", "loopx.entrypoint", "loopx.cli"})

_SHELL = re.compile(r"(?:/\S*/)?(?:sh|bash|dash|ash|zsh|ksh)")
_PYTHON = re.compile(r"(?:/\S*/)?python[0-9.]*")
_WRAPPERS = frozenset(
    {"env", "sudo", "doas", "timeout", "nohup", "nice", "ionice", "time", "exec", "command", "builtin", "xargs", "stdbuf", "setsid"}
)
_TAKES_VALUE = re.compile(r"-[unksoIPLdEac]")
"""Short options of wrappers whose value is the next word."""
_IS_NO_PROGRAM = re.compile(r"-.*|[A-Za-z_]\w*=.*|[0-9.]+[smhd]?", re.DOTALL)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_ALONE = frozenset({"-h", "--help", "--version"})


def calls(line: str) -> list[str]:
    """The sub-commands that are asked for (``quota should-run``, ``todo complete``), in their order, each as often as it stands there."""
    return _calls(commands(line), 0)[:CALLS_AT_MOST]


def _calls(found: Iterable[Command], depth: int) -> list[str]:
    made: list[str] = []
    for command in found:
        if len(made) >= CALLS_AT_MOST:
            break
        made += _of(command, depth)
    return made


def _of(command: Command, depth: int) -> list[str]:
    words = list(command.words)
    while words and words[0].rpartition("/")[2] in _WRAPPERS:
        if words[0] == "command" and words[1:2] and re.fullmatch(r"-\w*[vV]\w*", words[1]):
            return []
        words = _unwrapped(words[1:])
    if not words:
        return []
    if words[0] in PROGRAMS:
        return [asked(words[1:])]
    if _PYTHON.fullmatch(words[0]) and "-m" in words:
        at = words.index("-m") + 1
        return [asked(words[at + 1 :])] if words[at : at + 1] and words[at] in MODULES else []
    if depth >= DEPTH_AT_MOST:
        return []
    if words[0] == "eval":
        return _calls(commands(" ".join(words[1:])), depth + 1)
    if _SHELL.fullmatch(words[0]):
        return _calls(commands(_script(words[1:], command.fed)), depth + 1)
    return []


def _unwrapped(words: list[str]) -> list[str]:
    """What a wrapper runs: without its own options, variables and durations."""
    while words and _IS_NO_PROGRAM.fullmatch(words[0]):
        words = words[2 if _TAKES_VALUE.fullmatch(words[0]) else 1 :]
    return words


def _script(arguments: list[str], fed: str) -> str:
    """What a shell runs: the text after ``-c``, else what it is fed; another file is not known here."""
    for n, word in enumerate(arguments):
        if re.fullmatch(r"-[a-z]*c[a-z]*", word):
            return arguments[n + 1] if n + 1 < len(arguments) else ""
        if not word.startswith("-"):
            return ""
    return fed


def asked(arguments: list[str]) -> str:
    """The sub-command: up to two words after the options for all commands, each of which but :data:`_ALONE` takes a value."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in _ALONE:
            return NAMELESS
        at += 1 if "=" in arguments[at] else 2
    names: list[str] = []
    for word in arguments[at : at + 2]:
        if not _NAME.fullmatch(word):
            break
        names.append(word)
    return " ".join(names) or NAMELESS
