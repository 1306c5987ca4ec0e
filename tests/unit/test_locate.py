"""The quick search for the daemon's paths agrees with the full settings."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from marathond.cli import ctl
from marathond.cli.locate import locate, with_ledger
from marathond.core import paths
from marathond.core.errors import ConfigError
from marathond.service.settings import load

REST = '[campaign]\nname = "c"\ntasks = ["t"]\n[arms.nop]\nkind = "nop"\n'
VALUES = st.sampled_from(["/a", "rel", "../up", "~/h", "~", "./x/../y", "", "/" + "x" * 75, "/" + "y" * 120, "\\u0000"])
IN_FILE = st.one_of(VALUES.map(lambda text: f'"{text}"'), st.sampled_from(["5", "true", '["/x"]', "{}"]))
KEYS = st.sampled_from(paths.PATH_KEYS)
PLACES = ("named", "variable", "cwd", "xdg")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    in_file=st.dictionaries(KEYS, IN_FILE),
    in_environment=st.dictionaries(KEYS, VALUES.filter(lambda text: "\\" not in text)),
    place=st.sampled_from(PLACES),
    uid=st.sampled_from([0, 1000]),
    xdg_state=st.sampled_from([None, "/xdg-state", "relative", "/" + "z" * 90]),
)
def test_locate_agrees_with_the_settings(
    tmp_path: Path, in_file: dict[str, str], in_environment: dict[str, str], place: str, uid: int, xdg_state: str | None
) -> None:
    text = "[daemon]\n" + "".join(f"{key} = {value}\n" for key, value in in_file.items()) + REST
    cwd, environ, named = _place(tmp_path, place, text)
    environ |= {paths.env_name("daemon", key): value for key, value in in_environment.items()}
    if xdg_state is not None:
        environ["XDG_STATE_HOME"] = xdg_state
    try:
        expected: object = load(named, environ=environ, cwd=cwd, uid=uid).daemon
    except ConfigError as error:
        expected = error
    try:
        found = locate(named, environ=environ, cwd=cwd, uid=uid)
    except ConfigError as error:
        assert isinstance(expected, ConfigError), f"only locate refuses: {error}"
        assert str(error) in str(expected).split("\n")
        return
    assert not isinstance(expected, ConfigError), f"only the settings refuse: {expected}"
    assert [getattr(found.paths, key) for key in paths.PATH_KEYS] == [getattr(expected, key) for key in paths.PATH_KEYS]


_COUNTER = itertools.count()


def _place(tmp_path: Path, place: str, text: str) -> tuple[Path, dict[str, str], Path | None]:
    """A fresh folder with the configuration at ``place``, and at every later place one that would be wrong to take."""
    room = tmp_path / str(next(_COUNTER))
    cwd, xdg = room / "cwd", room / "xdg/marathond"
    cwd.mkdir(parents=True)
    xdg.mkdir(parents=True)
    environ = {"HOME": "/home/ana", "XDG_CONFIG_HOME": str(room / "xdg")}
    files = {"named": room / "named.toml", "variable": room / "variable.toml", "cwd": cwd / "marathond.toml", "xdg": xdg / "config.toml"}
    for name in PLACES[PLACES.index(place) :]:
        files[name].write_text(text if name == place else "[daemon]\nstate_dir = '/decoy'\n" + REST)
    if PLACES.index(place) <= PLACES.index("variable"):
        environ["MARATHOND_CONFIG"] = str(files["variable"])
    return cwd, environ, files["named"] if place == "named" else None


def test_without_any_configuration_the_defaults_hold(tmp_path: Path) -> None:
    found = locate(environ={"HOME": str(tmp_path), "XDG_STATE_HOME": "/s"}, cwd=tmp_path, uid=1000)
    assert (found.config, found.paths.ledger) == (None, Path("/s/marathond/ledger.db"))


def test_keys_elsewhere_are_not_judged(tmp_path: Path) -> None:
    (tmp_path / "marathond.toml").write_text("[daemon]\nstate_dir = '/s'\n[nonsense]\nx = 1\n")
    assert locate(environ={}, cwd=tmp_path, uid=0).paths.state_dir == Path("/s")


def test_a_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "marathond.toml").write_text("[daemon]\nx = \n")
    with pytest.raises(ConfigError, match=r"^marathond.toml:2: not TOML"):
        locate(environ={}, cwd=tmp_path, uid=0)


@pytest.mark.parametrize("argv", [["status"], ["tail"], ["status", "--campaign", "x"]])
def test_where_there_is_no_ledger_a_wrong_key_is_named_beside_it(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt state_dir leads to the default place: that it holds no ledger is half of the truth."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MARATHOND_DAEMON__STATE_DIR", raising=False)
    config = tmp_path / "typo.toml"
    config.write_text(f'[daemon]\nstate_dri = "{tmp_path}/s"\nout_dir = "{tmp_path}/o"\n{REST}')
    assert ctl.run(["-c", str(config), *argv]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("marathonctl: no ledger at ") and "typo.toml:2: daemon.state_dri" in line and "init" not in line
    config.write_text(f'[daemon]\nstate_dri = "{tmp_path}/s"\nout_dri = "{tmp_path}/o"\n{REST}')
    assert ctl.run(["-c", str(config), *argv]) != 0
    assert capsys.readouterr().err.endswith(" (and 1 more: marathonctl config check)\n")
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}/s"\n{REST}')
    assert ctl.run(["-c", str(config), *argv]) != 0
    assert capsys.readouterr().err == f"marathonctl: no ledger at {tmp_path}/s/ledger.db; make one with: marathonctl init\n"


def test_a_wrong_key_refuses_nothing_where_a_ledger_lies(tmp_path: Path) -> None:
    config = tmp_path / "typo.toml"
    config.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\nstate_dri = "x"\n{REST}')
    (tmp_path / "ledger.db").touch()
    found = locate(config, environ={}, cwd=tmp_path)
    assert with_ledger(found) is found
