"""The script of the scripted gate: a turn that proves that a trial's codex runs commands, before the first token is spent.

Owns the gate's message and what is answered to it.  One provider with this script serves the gates of all trials, whatever their model:
what is to be written, and where, stands in the message itself.

    async with practising(gate_practice(), host="127.0.0.1") as server:
        …  # a turn whose text is gate_message(proof, path), sent to f"{server.url}/v1": afterwards ``path`` holds ``proof``
"""

from __future__ import annotations

import re

from marathond.practice.script import Practice, Script, Step, Usage

GATE_WORD = "marathond-gate"
DONE = "The gate is done."
_PROOF, _PATH = r"[A-Za-z0-9_.-][A-Za-z0-9/_.-]{0,199}", r"/[A-Za-z0-9/_.-]{1,399}"
"""Nothing that a shell reads as anything but itself."""


def gate_message(proof: str, path: str) -> str:
    """The user's message of the gate's turn.

    :param proof: what the file shall hold, byte for byte; at most 200 characters.
    :param path: absolute path in the container; its folder exists.
    :raises ValueError: one of them is longer, or holds anything but ``A-Z a-z 0-9 / _ . -``; a proof does not begin with a slash.
    """
    for name, value, allowed in (("proof", proof, _PROOF), ("path", path, _PATH)):
        if not re.fullmatch(allowed, value):
            raise ValueError(f"gate: {name} {value[:80]!r}: expected {allowed}")
    return f"{GATE_WORD} {proof} {path}"


def gate_practice() -> Practice:
    """One command that writes the proof, then :data:`DONE`.  Any other conversation is refused with HTTP 400.

    It costs no tokens, so that a gate never shows in an account.
    """
    nothing = Usage()
    write = Step(run="printf %s '{{proof}}' > '{{path}}'", usage=nothing)
    pattern = rf"\s*{GATE_WORD} (?P<proof>{_PROOF}) (?P<path>{_PATH})\s*"
    return Practice(script=(Script(pattern=pattern, step=(write, Step(say=DONE, usage=nothing)), usage=nothing),))
