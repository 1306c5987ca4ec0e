"""The files between daemon and gateway: what is taken, what is refused and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marathond.core.errors import ArtifactError, ConfigError
from marathond.gateway import config
from marathond.gateway.files import Listener, key_hash, listener_json, parse_listener, read_json, write_json, write_listener
from marathond.gateway.keys import KeyFile, KeyUnavailable

GOOD: dict[str, Any] = {
    "name": "t0001",
    "version": 3,
    "trial": "t0001",
    "account": "agent",
    "container_id": "c",
    "started_at": "2026-11-29T10:00:00Z",
    "pid": 5,
    "start_ticks": 6,
    "boot_id": "b",
    "port": 18000,
    "key_sha256": key_hash("dummy"),
    "route": "model",
    "network": "none",
    "deadline_mono_ms": 99,
    "strip": ("a.b", "input[].c"),
    "models": ("m",),
}


def test_listener_survives_its_file(tmp_path: Path) -> None:
    listener = Listener(**GOOD)
    write_listener(tmp_path, listener)
    assert parse_listener("t0001", read_json(tmp_path / "listeners/t0001.json")) == listener
    assert "dummy" not in (tmp_path / "listeners/t0001.json").read_text()
    assert [path.name for path in (tmp_path / "listeners").iterdir()] == ["t0001.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "format"),
        ({"port": 80}, "port = 80"),
        ({"port": True}, "port = True"),
        ({"pid": -1}, "pid = -1"),
        ({"network": "some"}, "none or public"),
        ({"key_sha256": "dummy"}, "key_sha256"),
        ({"name": "../x"}, "file's own name"),
        ({"name": "t0002"}, "file's own name"),
        ({"strip": ["a..b"]}, "strip"),
        ({"strip": "a"}, "list"),
        ({"deadline_mono_ms": "9"}, "deadline_mono_ms"),
        ({"colour": 1}, "no such field"),
        ({"route": ""}, "route"),
    ],
)
def test_wrong_listener_is_named(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_listener("t0001", {**listener_json(Listener(**GOOD)), **change})


@pytest.mark.parametrize("missing", [key for key in GOOD if key not in ("deadline_mono_ms", "strip", "models")])
def test_missing_field_is_named(missing: str) -> None:
    told = listener_json(Listener(**GOOD))
    del told[missing]
    with pytest.raises(ConfigError, match=missing):
        parse_listener("t0001", told)


@pytest.mark.parametrize("raw", [b"{", b"[]", b" " * 70_000])
def test_unreadable_file_is_an_error_and_a_missing_one_is_none(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "f").write_bytes(raw)
    with pytest.raises(ArtifactError):
        read_json(tmp_path / "f")
    assert read_json(tmp_path / "g") is None


def load(folder: Path, **route: Any) -> config.GatewayConfig:
    write_json(folder / "gateway.json", {"format": 1, "routes": {"model": {"base_url": "https://x/v1", "key_file": "/k", **route}}})
    return config.load(folder)


def test_settings_have_defaults_below_the_clients_idle_limit(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.hold.policy().hold_ms == 240_000
    assert loaded.routes["model"].allow == ("POST /v1/responses", "GET /v1/models")


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({"base_url": "ftp://x"}, "base_url"),
        ({"key_credential": "k"}, "exactly one"),
        ({"key": "sk-1"}, "key"),
        ({"requests_per_min": 0}, "requests_per_min"),
    ],
)
def test_wrong_settings_are_named_without_their_values(tmp_path: Path, route: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        load(tmp_path, **route)
    assert "sk-1" not in str(caught.value)


def test_credential_of_a_unit(tmp_path: Path) -> None:
    route = config.Route(base_url="https://x", key_credential="provider")
    assert route.key_path({"CREDENTIALS_DIRECTORY": "/run/credentials/u"}) == Path("/run/credentials/u/provider")
    with pytest.raises(ConfigError, match="CREDENTIALS_DIRECTORY"):
        route.key_path({})


@pytest.mark.parametrize("raw", [b"", b" \n", b"two\nlines", b"sp ace", b"\xff", b"x" * 9000])
def test_c14_unusable_key_is_refused_without_being_quoted(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "key").write_bytes(raw)
    with pytest.raises(KeyUnavailable) as caught:
        KeyFile(tmp_path / "key").current()
    assert "lines" not in str(caught.value)
