"""What a BuildKit program is started with: an environment and options of our making (fault b13)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from marathond.engine.buildkit import Builder, environment, options, plugin_folders, programs

SECRET = "http://user:pass-word@proxy:3128"
ARGS = {"https_proxy": SECRET, "NO_PROXY": "intern", "VERSION": "2"}


def test_b13_the_environment_is_made_and_not_inherited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTTP_PROXY", "DOCKER_CONTEXT", "DOCKER_CONFIG", "BUILDX_BUILDER", "BUILDX_CONFIG", "HOME", "OTHER"):
        monkeypatch.setenv(name, "planted")
    made = environment("unix:///run/docker.sock", tmp_path, {"https_proxy": SECRET, "VERSION": "2"})
    assert set(made) == {
        *("PATH", "HOME", "DOCKER_CONFIG", "DOCKER_HOST", "DOCKER_BUILDKIT", "BUILDX_NO_DEFAULT_ATTESTATIONS", "LC_ALL", "https_proxy")
    }
    assert made["HOME"] == made["DOCKER_CONFIG"] == str(tmp_path)
    assert "planted" not in made.values()


def test_b13_a_proxy_is_named_on_the_command_line_and_said_in_the_environment(tmp_path: Path) -> None:
    line = options({"l": "1"}, ARGS, "host", tmp_path / "id", tmp_path / "Dockerfile")
    assert "pass-word" not in " ".join(line)
    assert line[-8:] == ["--build-arg", "https_proxy", "--build-arg", "NO_PROXY", "--build-arg", "VERSION=2", "--network", "host"]
    assert "--network" not in options({}, {}, None, tmp_path, tmp_path)
    assert environment("unix:///s", tmp_path, ARGS)["NO_PROXY"] == "intern"


def test_an_engine_elsewhere_is_not_asked_through_the_builds_proxy(tmp_path: Path) -> None:
    made = environment("tcp://engine.example:2375", tmp_path, ARGS)
    assert (made["NO_PROXY"], made["no_proxy"]) == ("intern,engine.example", "engine.example")
    assert environment("http://engine.example:2375", tmp_path, {})["DOCKER_HOST"] == "tcp://engine.example:2375"
    assert "NO_PROXY" not in environment("tcp://engine.example:2375", tmp_path, {})


def test_buildx_loads_into_the_engine_and_the_old_client_needs_no_such_word(tmp_path: Path) -> None:
    plugin, client = (Builder("/p/docker", buildx).argv(["--x"], tmp_path) for buildx in (True, False))
    common = ["--progress", "plain", "--x", "--", str(tmp_path)]
    assert plugin[-10:] == ["/p/docker", "build", "--builder", "default", "--load", *common]
    assert client[-7:] == ["/p/docker", "build", *common]
    if shutil.which("setpriv"):
        assert client[1:4] == ["--pdeathsig", "KILL", "--"]


def test_programs_are_found_in_order_and_each_file_once(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "docker").write_text("#!/bin/sh\n")
        (tmp_path / name / "docker").chmod(0o755)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "two" / "not-runnable").write_text("")
    folders = [str(tmp_path / name) for name in ("none", "link", "two", "one")]
    assert programs("docker", folders) == [str(tmp_path / "link" / "docker"), str(tmp_path / "two" / "docker")]
    assert programs("not-runnable", folders) == []


def test_a_persons_own_plugins_come_first() -> None:
    assert plugin_folders({"HOME": "/h", "DOCKER_CONFIG": "/c"})[:2] == ["/c/cli-plugins", "/h/.docker/cli-plugins"]
    assert plugin_folders({})[0].startswith("/usr/local/lib/")
