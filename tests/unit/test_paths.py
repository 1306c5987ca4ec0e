"""Where the configuration is looked for, and what a path may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.core import paths
from marathond.core.errors import ConfigError

CWD = Path("/work-dir")
ENV = {"HOME": "/home/ana"}


def _choose(there: set[str], explicit: Path | None = None, environ: dict[str, str] = ENV) -> Path | None:
    return paths.choose_config(paths.config_candidates(explicit, environ, CWD), lambda path: str(path) in there)


def test_the_order_of_discovery() -> None:
    usual = ["/work-dir/marathond.toml", "/home/ana/.config/marathond/config.toml", "/etc/marathond/config.toml"]
    for index, expected in enumerate(usual):
        assert _choose(set(usual[index:])) == Path(expected)
    assert _choose(set()) is None
    everything = {*usual, "/named.toml", "/work-dir/from-env.toml"}
    named = {**ENV, "MARATHOND_CONFIG": "from-env.toml"}
    assert _choose(everything, environ=named) == Path("/work-dir/from-env.toml")
    assert _choose(everything, Path("/named.toml"), named) == Path("/named.toml")
    assert _choose({"/xdg/marathond/config.toml"}, environ={**ENV, "XDG_CONFIG_HOME": "/xdg"}) == Path("/xdg/marathond/config.toml")


def test_a_relative_xdg_directory_is_ignored_as_its_specification_says() -> None:
    assert paths.default_state_dir(1000, {**ENV, "XDG_STATE_HOME": "relative"}) == Path("/home/ana/.local/state/marathond")


def test_a_config_toml_in_the_current_folder_is_not_ours() -> None:
    assert _choose({"/work-dir/config.toml"}) is None


@pytest.mark.parametrize(
    ("explicit", "environ", "words"),
    [
        (Path("x.toml"), ENV, "/work-dir/x.toml: named by --config"),
        (None, {**ENV, "MARATHOND_CONFIG": "/y"}, r"/y: named by \$MARATHOND_CONFIG"),
    ],
)
def test_a_named_file_that_is_missing_is_an_error_and_nothing_else_is_taken(
    explicit: Path | None, environ: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words + ": no such file"):
        _choose({"/work-dir/marathond.toml"}, explicit, environ)


def test_default_paths() -> None:
    root = paths.daemon_paths({}, 0, ENV)
    assert root == paths.DaemonPaths(
        Path("/var/lib/marathond"),
        Path("/var/lib/marathond/out"),
        Path("/var/lib/marathond/ledger.db"),
        Path("/var/lib/marathond/control.sock"),
    )
    assert paths.daemon_paths({}, 1000, ENV).ledger == Path("/home/ana/.local/state/marathond/ledger.db")
    assert paths.daemon_paths({}, 1000, {**ENV, "XDG_STATE_HOME": "/s"}).state_dir == Path("/s/marathond")
    given = paths.daemon_paths({"state_dir": Path("/a"), "ledger": Path("/b/l.db")}, 0, ENV)
    assert (given.ledger, given.out_dir) == (Path("/b/l.db"), Path("/a/out"))


@pytest.mark.parametrize(
    ("text", "expected"), [("/a/../b", "/b"), ("x/./y", "/base/x/y"), ("~", "/home/ana"), ("~/z", "/home/ana/z"), ("~x", "/base/~x")]
)
def test_paths_become_absolute(text: str, expected: str) -> None:
    assert paths.absolute(text, Path("/base"), ENV) == Path(expected)


def test_a_unix_socket_holds_107_bytes_not_characters() -> None:
    assert paths.socket_path_problem(Path("/" + "x" * 106)) is None
    assert "107 bytes, this one has 108" in (paths.socket_path_problem(Path("/" + "x" * 107)) or "")
    assert "has 121" in (paths.socket_path_problem(Path("/" + "é" * 60)) or "")


def test_a_state_dir_leaves_room_for_the_sockets_of_trials() -> None:
    longest = "/" + "s" * 74
    assert paths.state_dir_problem(Path(longest)) is None
    assert len(f"{longest}/{paths.RUN_DIR_RESERVE}") == paths.UNIX_PATH_MAX_BYTES
    assert "must be at most 75 bytes, this one has 76" in (paths.state_dir_problem(Path(longest + "s")) or "")
