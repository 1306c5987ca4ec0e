"""Where marathond looks for its configuration and keeps its things: the rules, without touching a disk.

Owns the discovery order, the default paths, the names of the environment variables and the length of a unix socket's path.  Must not
read files and must not import anything heavy: ``marathonctl status`` starts from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from marathond.core.errors import ConfigError

ENV_PREFIX = "MARATHOND_"
ENV_CONFIG = "MARATHOND_CONFIG"
ENV_DELIMITER = "__"

CWD_NAME = "marathond.toml"
"""The only file name taken from the current folder.  ``config.toml`` there is not: too many other programs own a file of that name."""

ROOT_STATE_DIR = Path("/var/lib/marathond")
SYSTEM_CONFIG = Path("/etc/marathond/config.toml")
ENGINE_SCHEMES = ("unix://", "tcp://", "http://")
"""What the engine's client can speak: no TLS, no ssh."""

DEFAULT_ENGINE_URL = "unix:///var/run/docker.sock"

UNIX_PATH_MAX_BYTES = 107
"""``sun_path`` holds 108 bytes with its terminating zero (unix(7))."""

RUN_DIR_RESERVE = "r/t9999999/" + "x" * 20
"""The deepest socket below ``state_dir``: a trial's run directory and twenty bytes for the names inside it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where a configuration may lie.  ``required``: somebody named it, so its absence is an error."""

    path: Path
    because: str
    required: bool


def config_candidates(explicit: Path | None, environ: Mapping[str, str], cwd: Path) -> tuple[Candidate, ...]:
    """Every place in order, the first existing one wins: ``--config``, ``$MARATHOND_CONFIG``, ``./marathond.toml``,
    ``$XDG_CONFIG_HOME/marathond/config.toml``, ``/etc/marathond/config.toml``.

    A named place (the first two) ends the list: if it does not exist, no other file is taken in its stead.
    """
    if explicit is not None:
        return (Candidate(absolute(str(explicit), cwd, environ), "--config", True),)
    if named := environ.get(ENV_CONFIG):
        return (Candidate(absolute(named, cwd, environ), f"${ENV_CONFIG}", True),)
    return (
        Candidate(cwd / CWD_NAME, "the current folder", False),
        Candidate(_xdg("XDG_CONFIG_HOME", ".config", environ) / "marathond" / "config.toml", "$XDG_CONFIG_HOME", False),
        Candidate(SYSTEM_CONFIG, "the system", False),
    )


def choose_config(candidates: Iterable[Candidate], is_there: Callable[[Path], bool]) -> Path | None:
    """The configuration to read, or None when nobody named one and none lies in the usual places.

    :raises ConfigError: a named file is not there.
    """
    for candidate in candidates:
        if is_there(candidate.path):
            return candidate.path
        if candidate.required:
            raise ConfigError(str(candidate.path), f"named by {candidate.because}", "no such file")
    return None


@dataclass(frozen=True, slots=True)
class DaemonPaths:
    """The paths of ``[daemon]``, absolute."""

    state_dir: Path
    out_dir: Path
    ledger: Path
    control_socket: Path


PATH_KEYS = ("state_dir", "out_dir", "ledger", "control_socket")


def default_state_dir(uid: int, environ: Mapping[str, str]) -> Path:
    """``/var/lib/marathond`` for root; ``$XDG_STATE_HOME/marathond`` (else ``~/.local/state/marathond``) for everybody else."""
    return ROOT_STATE_DIR if uid == 0 else _xdg("XDG_STATE_HOME", ".local/state", environ) / "marathond"


def default_below(state_dir: Path, key: str) -> Path:
    """Default of one of :data:`PATH_KEYS` but ``state_dir`` itself."""
    return state_dir / {"out_dir": "out", "ledger": "ledger.db", "control_socket": "control.sock"}[key]


def default_engine_url(environ: Mapping[str, str]) -> str:
    """``DOCKER_HOST`` as Docker's own tools take it, or the usual socket."""
    return environ.get("DOCKER_HOST") or DEFAULT_ENGINE_URL


def daemon_paths(given: Mapping[str, Path], uid: int, environ: Mapping[str, str]) -> DaemonPaths:
    """Fill in what is not given.  ``given`` holds absolute paths by key of :data:`PATH_KEYS`."""
    state_dir = given.get("state_dir", default_state_dir(uid, environ))
    below = {key: given.get(key, default_below(state_dir, key)) for key in PATH_KEYS[1:]}
    return DaemonPaths(state_dir, below["out_dir"], below["ledger"], below["control_socket"])


def absolute(text: str, base: Path, environ: Mapping[str, str]) -> Path:
    """``text`` as an absolute path without ``..``: ``~`` is the home, anything else relative starts at ``base``."""
    if text == "~" or text.startswith("~/"):
        return _normal(home(environ), text[2:])
    return _normal(base, text)


def _normal(base: Path, text: str) -> Path:
    return Path(os.path.normpath(base / text))  # lexical on purpose: a socket's path must not grow by a resolved link


def home(environ: Mapping[str, str]) -> Path:
    """``$HOME``, else the password database's."""
    return Path(environ.get("HOME") or Path.home())


def _xdg(variable: str, below_home: str, environ: Mapping[str, str]) -> Path:
    value = environ.get(variable, "")
    # The specification says that a relative value is to be ignored.
    return Path(value) if value.startswith("/") else home(environ) / below_home


def names_a_file(text: str) -> bool:
    """Whether a word that may be a name or a path is a path: ``./mine.toml``, ``mine.toml``, ``~/mine``."""
    return "/" in text or text.endswith(".toml")


def path_problem(text: str) -> str | None:
    """Why ``text`` cannot be a path; None when it can."""
    if not text:
        return "must not be empty"
    return "must not contain a NUL byte" if "\0" in text else None


def socket_path_problem(path: Path) -> str | None:
    """Why ``path`` cannot be a unix socket, as words that end an error line; None when it can."""
    length = len(os.fsencode(path))
    if length <= UNIX_PATH_MAX_BYTES:
        return None
    return f"a unix socket's path holds {UNIX_PATH_MAX_BYTES} bytes, this one has {length}; choose a shorter one"


def state_dir_problem(path: Path) -> str | None:
    """Why ``path`` is too deep for the sockets of trials (``state_dir/r/t0001/…``); None when it is not."""
    room = UNIX_PATH_MAX_BYTES - len(RUN_DIR_RESERVE) - 1
    length = len(os.fsencode(path))
    if length <= room:
        return None
    return f"must be at most {room} bytes, this one has {length}: sockets in state_dir/r/t0001/ must fit in {UNIX_PATH_MAX_BYTES}"


def env_name(section: str, key: str) -> str:
    """``MARATHOND_ADMISSION__CONCURRENCY`` for ``admission.concurrency``."""
    return f"{ENV_PREFIX}{section.upper()}{ENV_DELIMITER}{key.upper()}"


def env_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that mean to be settings: our prefix and a ``__``.  Others with our prefix are somebody else's business."""
    return {name: text for name, text in environ.items() if name.startswith(ENV_PREFIX) and ENV_DELIMITER in name[len(ENV_PREFIX) :]}
