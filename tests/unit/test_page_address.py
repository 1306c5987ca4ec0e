"""[page] listen: loopback or a unix socket, everything else refused by name in one line; who may ask by which Host."""

from __future__ import annotations

from pathlib import Path

import pytest

from marathond.core.errors import ConfigError
from marathond.service.page.address import Port, Socket, host_allowed, parse
from marathond.service.settings import Settings, load, origins
from marathond.service.treatment import Change, change_of, needs_restart

HEAD = """[daemon]
state_dir = "/s"
[campaign]
name = "x"
tasks = ["t"]
[arms.plain]
kind = "nop"
[page]
"""
LINE = HEAD.count("\n") + 1


def _load(tmp_path: Path, listen: str) -> Settings:
    path = tmp_path / "marathond.toml"
    path.write_text(f"{HEAD}{listen}\n")
    return load(path, environ={}, cwd=tmp_path, uid=0)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("127.0.0.1:8620", Port("127.0.0.1", 8620)),
        ("127.8.9.1:1", Port("127.8.9.1", 1)),
        ("localhost:0", Port("localhost", 0)),
        ("[::1]:65535", Port("::1", 65535)),
        ("unix:/run/marathond/page.sock", Socket(Path("/run/marathond/page.sock"))),
    ],
)
def test_loopback_and_sockets_are_places(text: str, where: Port | Socket) -> None:
    assert parse(text) == where


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("0.0.0.0:8620", "0.0.0.0 is not loopback"),
        ("[::]:8620", ":: is not loopback"),
        ("192.168.1.7:8620", "192.168.1.7 is not loopback"),
        ("example.org:8620", "example.org is not loopback"),
        ("127.0.0.1.example.org:8620", "not loopback"),
        ("8620", "loopback address with a port"),
        (":8620", "loopback address with a port"),
        ("127.0.0.1", "loopback address with a port"),
        ("127.0.0.1:", "loopback address with a port"),
        ("127.0.0.1:http", "loopback address with a port"),
        ("127.0.0.1:٣", "loopback address with a port"),
        ("127.0.0.1:70000", "at most 65535"),
        ("::1:80", "loopback address with a port"),
        ("http://127.0.0.1:8620", "loopback address with a port"),
        ("unix:page.sock", "must be absolute"),
        ("unix:", "must not be empty"),
        ("unix:/" + "x" * 120, "107 bytes"),
    ],
)
def test_another_place_is_refused_in_one_line_with_its_place(tmp_path: Path, text: str, names: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse(text)
    assert names in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(ConfigError) as refused:
        _load(tmp_path, f'listen = "{text}"')
    assert str(refused.value).startswith(f"marathond.toml:{LINE}: page.listen = ") and names in str(refused.value)


def test_it_is_off_unless_somebody_says_where_and_only_a_restart_changes_it(tmp_path: Path) -> None:
    off, on = _load(tmp_path, ""), _load(tmp_path, 'listen = "127.0.0.1:8620"')
    assert off.page.listen is None and on.page.listen == "127.0.0.1:8620"
    assert origins(on)["page.listen"][1] == f"marathond.toml:{LINE}"
    assert change_of("page.listen") is Change.RESTART and needs_restart(off, on) == ("page.listen",)


HERE = Port("127.0.0.1", 8620)


@pytest.mark.parametrize(
    "header", ["127.0.0.1:8620", "localhost:8620", "localhost", "LOCALHOST:9", "localhost.", "[::1]:8620", "127.0.0.1:9999", "127.1.2.3"]
)
def test_a_forwarded_port_leads_here(header: str) -> None:
    assert host_allowed(HERE, header)


@pytest.mark.parametrize(
    "header",
    [None, "", "evil.example:8620", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1:8620", "[::2]:8620", "evil@localhost"],
)
def test_a_name_that_was_made_to_lead_here_does_not(header: str | None) -> None:
    assert not host_allowed(HERE, header)
    assert host_allowed(Socket(Path("/s")), header), "before a unix socket stands somebody's own server"
