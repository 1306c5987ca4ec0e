"""A tab in a shell: what its function asks, and the answer in that shell's own language.

Owns what the shells' ways of cutting words lose (bash at ``=``, zsh and fish before it), and that a tab never hangs, fails or speaks of an
error.  What is offered is complete.py's; the commands are found by grammar.py.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

VARIABLE = "_MARATHONCTL_COMPLETE"
"""By which the shell's function asks; typer's name."""
ALL_S = 5.0
"""The whole answer, start of the interpreter apart: a disk that hangs must not hang the prompt."""
_OPTION = re.compile(r"--[A-Za-z][A-Za-z-]*=")
_ZSH = "_arguments '*: :(("


def answer(argv: Sequence[str]) -> int:
    """What the shell's function asked for, on stdout; of an error nothing, on stderr nothing."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(1))
    signal.setitimer(signal.ITIMER_REAL, ALL_S)
    from marathond.cli import grammar  # within the bound: the disk that it is read from may be the one that hangs

    before, lost = _mended(os.environ), _lost(os.environ)
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(io.StringIO()):
            code = grammar.invoke(argv)
    except Exception:  # noqa: BLE001 - whatever it is, a prompt is no place to tell it
        return 1
    lines = filter(None, told.getvalue().splitlines())
    sys.stdout.write("".join(f"{_led(line.removeprefix(before), lost)}\n" for line in lines))
    return code


def _lost(environ: Mapping[str, str]) -> str:
    """zsh and fish compare whole words, and of ``--arm=g`` click answers the value alone: what has to stand before it again."""
    words = environ.get("_TYPER_COMPLETE_ARGS", "")
    found = None if " -- " in words else _OPTION.match(words.rpartition(" ")[2])
    return "" if found is None else found[0]


def _led(line: str, lost: str) -> str:
    """fish is told a value in a line; zsh a line of its own language, in which values are quoted."""
    if not lost or line == "_files":
        return line
    begin, quote, rest = line.partition('"')
    return f"{begin}{quote}{lost}{rest}" if begin in ("", _ZSH) and quote else f"{lost}{line}"


def _mended(environ: Any) -> str:
    """bash takes ``key=value`` apart into three words and completes the third: they become one again.  What to take off each answer."""
    words, at = environ.get("COMP_WORDS", "").split("\n"), environ.get("COMP_CWORD", "")
    if environ.get(VARIABLE) != "complete_bash" or not at.isdigit():
        return ""
    place = int(at)
    sign = place if place < len(words) and words[place] == "=" else place - 1
    if sign < 1 or sign >= len(words) or words[sign] != "=":
        return ""
    value = words[place] if place < len(words) and place != sign else ""
    environ["COMP_WORDS"] = "\n".join([*words[: sign - 1], f"{words[sign - 1]}={value}"])
    environ["COMP_CWORD"] = str(sign - 1)
    return f"{words[sign - 1]}="
