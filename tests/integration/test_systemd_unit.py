"""The unit files as systemd itself reads them, and their installation into a staging folder."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from marathond.demo.host import SetupError, need_tools
from marathond.service.exits import Exit
from tests.conftest import IN_CI

SYSTEMD = Path(__file__).parents[2] / "systemd"
UNIT = SYSTEMD / "marathond.service"
GATEWAY = SYSTEMD / "marathond-gateway.service"


@pytest.fixture(scope="module")
def systemd_analyze(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The program, from Debian's package where this host lacks it.  It needs no running systemd."""
    if shutil.which("systemd-analyze") is not None:
        return
    try:
        need_tools({"systemd-analyze": "systemd"}, tmp_path_factory.mktemp("apt") / "log")
    except SetupError as err:
        if IN_CI:
            pytest.fail(str(err))
        pytest.skip(str(err))


@pytest.fixture
def program(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "marathond"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


def install(program: Path, root: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": "/usr/bin:/bin", "PROGRAM": str(program), "DESTDIR": str(root)}
    return subprocess.run([str(SYSTEMD / "install.sh")], env=environ, capture_output=True, text=True, timeout=240, check=False)


def verify(unit: Path) -> str:
    """What systemd has to say; empty when it has nothing against the unit.  It exits 0 on an unknown key, so the words count."""
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=240, check=False)
    return (result.stderr + result.stdout).strip() + (f" (exit {result.returncode})" if result.returncode else "")


@pytest.mark.usefixtures("systemd_analyze")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [("marathond", "--config /etc/marathond/config.toml"), ("marathond-gateway", "gateway --wait /var/lib/marathond/gateway")],
)
def test_systemd_has_nothing_against_the_installed_units(tmp_path: Path, program: Path, name: str, arguments: str) -> None:
    result = install(program, tmp_path / "root")
    assert result.returncode == 0, result.stderr
    unit = tmp_path / "root/etc/systemd/system" / f"{name}.service"
    assert f"ExecStart={program} {arguments}" in unit.read_text().splitlines()
    assert verify(unit) == ""


@pytest.mark.usefixtures("systemd_analyze")
def test_the_check_can_fail(tmp_path: Path, program: Path) -> None:
    unit = tmp_path / "marathond.service"
    text = UNIT.read_text().replace("/usr/local/bin/marathond", str(program))
    unit.write_text(text.replace("[Install]", "NoSuchKey=1\n[Install]"))
    assert "NoSuchKey" in verify(unit)


@pytest.mark.parametrize("unit", [UNIT, GATEWAY], ids=["daemon", "gateway"])
def test_refusals_do_not_restart_for_ever(unit: Path) -> None:
    values = re.search(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE)
    assert values is not None
    assert set(values[1].split()) == {str(int(Exit.REFUSED_TO_START)), str(int(Exit.USAGE))}


def test_configuration_that_exists_is_kept(tmp_path: Path, program: Path) -> None:
    config = tmp_path / "root/etc/marathond/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("# mine\n")
    result = install(program, tmp_path / "root")
    assert result.returncode == 0, result.stderr
    assert config.read_text() == "# mine\n"
    assert "kept" in result.stdout


@pytest.mark.parametrize(("name", "expected"), [("relative", "must be an absolute path"), ("/opt/a b/marathond", "letters, digits")])
def test_a_program_that_systemd_would_misread_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    result = install(Path(name), tmp_path / "root")
    assert result.returncode == 1
    assert expected in result.stderr
    assert not (tmp_path / "root").exists()
