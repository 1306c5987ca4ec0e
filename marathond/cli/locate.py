"""Finds the daemon's ledger and socket without reading all settings: what ``marathonctl status`` starts from.

Must agree with :mod:`marathond.service.settings` (a test compares them) and must not import pydantic, which takes longer than the
whole command may.  Keys outside the paths of ``[daemon]`` are not judged here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from marathond.core import paths
from marathond.core.errors import ConfigError, LedgerRefused
from marathond.service.tomlfile import TomlFile, is_there, read_toml, show


@dataclass(frozen=True, slots=True)
class Located:
    """``config`` None: no configuration anywhere (``looked``: where), so what is not in ``given`` is a default."""

    config: Path | None
    paths: paths.DaemonPaths
    given: frozenset[str] = frozenset()
    looked: tuple[Path, ...] = ()

    def names(self, *keys: str) -> bool:
        """Whether somebody named the place: by a configuration, or one of ``keys`` by the environment."""
        return self.config is not None or bool(self.given.intersection(keys))


def locate(
    config: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    uid: int | None = None,
) -> Located:
    """The daemon's paths by the same order as the daemon itself: environment, configuration, defaults.

    :raises ConfigError: a named file is missing or no TOML, or one of the paths is no text or cannot hold a socket.
    """
    environ = os.environ if environ is None else environ
    cwd = Path.cwd() if cwd is None else cwd
    uid = os.geteuid() if uid is None else uid
    candidates = paths.config_candidates(config, environ, cwd)
    chosen = paths.choose_config(candidates, is_there)
    file = None if chosen is None else read_toml(chosen, cwd)
    written = {key: _written(key, file, environ, cwd) for key in paths.PATH_KEYS}
    given = {key: _absolute(key, text, environ) for key, text in written.items() if text is not None}
    found = paths.daemon_paths(given, uid, environ)
    _check(found, written)
    return Located(chosen, found, frozenset(given), tuple(candidate.path for candidate in candidates))


def with_ledger(located: Located) -> Located:
    """``located`` itself, unless there is no ledger and nothing was configured (then nobody has been here yet), or wrongly: where a key
    is misspelt, the place that was looked at is the default and not what somebody meant.

    :raises LedgerRefused: ``missing``, in one line that names every place that was looked at, or what is wrong in the file.
    """
    try:
        located.paths.ledger.stat()
    except (FileNotFoundError, NotADirectoryError):
        if located.config is not None and (wrong := _wrong_in(located.config)):
            raise LedgerRefused("missing", f"no ledger at {located.paths.ledger}, and {wrong}") from None
        if located.names("state_dir", "ledger", "control_socket"):
            return located
        looked = ", ".join(map(str, located.looked))
        raise LedgerRefused("missing", f"no configuration found (looked for {looked}) and no ledger at {located.paths.ledger}") from None
    except OSError:
        return located  # there may be one; who opens it says what is in the way
    return located


def _wrong_in(config: Path) -> str:
    """The first thing that is wrong in a configuration; empty: nothing.  All settings are read for it, on this way to a refusal alone."""
    from marathond.service.settings import load

    try:
        load(config)
    except ConfigError as error:
        first, *more = getattr(error, "errors", (error,))
        return f"{first}{f' (and {len(more)} more: marathonctl config check)' if more else ''}"
    return ""


@dataclass(frozen=True, slots=True)
class _Written:
    """A path as somebody wrote it, where, and against which folder it is meant."""

    value: object
    where: str
    base: Path


def _written(key: str, file: TomlFile | None, environ: Mapping[str, str], cwd: Path) -> _Written | None:
    name = paths.env_name("daemon", key)
    if (text := environ.get(name)) is not None:
        return _Written(text, f"env {name}", cwd)
    daemon = file.data.get("daemon") if file else None
    if file is None or not isinstance(daemon, dict) or key not in daemon:
        return None
    return _Written(daemon[key], file.where(("daemon", key)), file.base)


def _absolute(key: str, written: _Written, environ: Mapping[str, str]) -> Path:
    if not isinstance(written.value, str):
        raise _wrong(key, written, "must be a path in quotes")
    if (problem := paths.path_problem(written.value)) is not None:
        raise _wrong(key, written, problem)
    return paths.absolute(written.value, written.base, environ)


def _check(found: paths.DaemonPaths, written: Mapping[str, _Written | None]) -> None:
    for key, problem in (
        ("state_dir", paths.state_dir_problem(found.state_dir)),
        ("control_socket", paths.socket_path_problem(found.control_socket)),
    ):
        if problem is not None:
            raise _wrong(key, written[key] or _Written(getattr(found, key), "default", Path()), problem)


def _wrong(key: str, written: _Written, expected: str) -> ConfigError:
    return ConfigError(written.where, show(f"daemon.{key}", written.value), expected)
