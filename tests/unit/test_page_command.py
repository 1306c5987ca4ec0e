"""Where `marathonctl page` serves: --listen, else what the configuration says, else the usual place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marathond.cli import ctl
from marathond.cli import page as view
from marathond.core.errors import Refused

CONFIG = """[campaign]
name = "first"
tasks = ["tasks/*"]
[arms.nop]
kind = "nop"
[daemon]
state_dir = "state"
"""


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where it would have listened."""
    monkeypatch.chdir(tmp_path)
    for name in ("MARATHOND_CONFIG", "MARATHOND_PAGE__LISTEN", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "tasks/one/tests").mkdir(parents=True)
    (tmp_path / "marathond.toml").write_text(CONFIG)
    assert ctl.run(["init"]) == 0
    places: list[str] = []

    async def serve(_: Any, address: Any) -> None:
        places.append(str(address))

    monkeypatch.setattr(view, "_serve", serve)
    return places


def test_the_configured_place_counts_and_the_option_before_it(served: list[str], tmp_path: Path) -> None:
    assert ctl.run(["page"]) == 0
    (tmp_path / "marathond.toml").write_text(CONFIG + '[page]\nlisten = "127.0.0.1:18620"\n')
    assert ctl.run(["page"]) == 0 and ctl.run(["page", "--listen", "127.0.0.1:0"]) == 0
    assert served == ["http://127.0.0.1:8620/", "http://127.0.0.1:18620/", "http://127.0.0.1:0/"]


def test_a_wrong_configuration_is_noted_and_the_page_is_served(
    served: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "marathond.toml").write_text(CONFIG + "[admission]\nconcurrency = 0\n")
    assert ctl.run(["page"]) == 0 and served == ["http://127.0.0.1:8620/"]
    assert "admission.concurrency = 0" in capsys.readouterr().err


def test_where_the_daemon_serves_already_the_refusal_says_what_to_type(
    served: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def taken(_: Any, address: Any) -> None:
        raise Refused(f"the page cannot listen at {address}: address already in use")

    monkeypatch.setattr(view, "_serve", taken)
    (tmp_path / "marathond.toml").write_text(CONFIG + '[page]\nlisten = "127.0.0.1:18620"\n')
    assert ctl.run(["page"]) != 0
    said = capsys.readouterr().err
    assert "18620" in said and "--listen 127.0.0.1:0" in said
    assert ctl.run(["page", "--listen", "127.0.0.1:18620"]) != 0
    assert "a running daemon" not in capsys.readouterr().err
