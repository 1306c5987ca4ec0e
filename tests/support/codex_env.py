"""The real codex for tests, wherever they run: ``MARATHOND_CODEX``, or the pinned package staged below ``.cache/codex``.

Staged as ``marathonctl stage`` does it; only npm itself is installed here when it is missing, which the product leaves to people.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from marathond.demo.host import SetupError, need_tools, say, widen_path
from marathond.staging import pins, store

VERSION = pins.DEFAULT_VERSION
CACHE = Path(__file__).resolve().parents[2] / ".cache" / "codex"
TRIES = 2


def _binary(given: Path) -> Path | None:
    return next((p.absolute() for p in (given / "bin" / "codex", given) if p.is_file() and os.access(p, os.X_OK)), None)


@functools.cache
def codex_binary() -> Path:
    """Path of the executable, with its siblings beside it.  Raises SetupError with one clear line."""
    if given := os.environ.get("MARATHOND_CODEX"):
        found = _binary(Path(given))
        if found is None:
            raise SetupError(f"MARATHOND_CODEX={given}: neither the binary nor a folder with bin/codex")
        return found
    return codex_tree().root / "bin" / "codex"


@functools.cache
def codex_wanted() -> store.Wanted:
    """The pinned package; or the folder of ``MARATHOND_CODEX``."""
    if os.environ.get("MARATHOND_CODEX"):
        return store.Wanted("codex", VERSION, None, codex_binary().parents[1])
    return store.Wanted("codex", VERSION, pins.KNOWN[VERSION], None)


def need_npm() -> None:
    """npm on PATH; installed on a fresh Debian.  Raises SetupError with one clear line."""
    widen_path()
    need_tools({"npm": "npm"}, CACHE / "setup.log")


def staged(asked: store.Asked, fetched: str) -> store.StagedTree:
    """From the cache, or staged there now, as ``marathonctl stage`` does it.

    :param fetched: what is said to be fetched then; empty: nothing is.
    :raises SetupError: with one clear line.
    """
    if (there := store.find(CACHE, asked)) is not None:
        return there
    if fetched:
        need_npm()
        say(f"{asked.name}: fetching {asked.version} {fetched}")
    for attempt in range(1, TRIES + 1):
        try:
            return store.stage(CACHE, asked, lambda progress: say(progress.text) if progress.step == "note" else None)
        except store.StageError as error:
            if error.code not in {"npm", "pip"} or attempt == TRIES:  # a registry may hiccup once
                raise SetupError(f"{asked.name}: {error}") from error
    raise AssertionError("unreachable")


@functools.cache
def codex_tree() -> store.StagedTree:
    """Staged once for all tests.  Raises SetupError with one clear line."""
    return staged(codex_wanted(), "" if codex_wanted().folder is not None else "(about 170 MB, once)")


def staged_into(state_dir: Path) -> store.StagedTree:
    """What ``marathonctl stage`` would have put below ``state_dir``, without its 444 MB: a link to the one copy of all tests."""
    codex_tree()
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / "staged").symlink_to(CACHE / "staged")
    tree = store.find(state_dir, codex_wanted())
    assert tree is not None
    return tree
