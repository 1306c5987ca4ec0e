"""Files in a task's image that would speak to an agent: instructions, settings and skills beside the work.

Owns their names and the places where codex looks.  Must not know how one asks a container for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

INSTRUCTIONS = ("AGENTS.override.md", "AGENTS.md")
SETTINGS = (".codex/config.toml",)
SKILLS = (".codex/skills", ".agents/skills")
PROJECT_FILES = (*INSTRUCTIONS, *SETTINGS, *SKILLS)
"""Instructions are what an untrusted project loses; settings could name another model (fault a11); skills are read even when untrusted."""


def candidates(workdir: str, names: Iterable[str] = PROJECT_FILES) -> list[str]:
    """Where each of ``names`` would be found: in ``workdir`` (absolute) and in every folder above it, nearest first."""
    folder = PurePosixPath(workdir or "/")
    wanted = list(names)
    return [str(place / name) for place in (folder, *folder.parents) for name in wanted]
