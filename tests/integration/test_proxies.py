"""Proxies in running containers: given on purpose, slipped in, and never without a network (fault b13); and a host without BuildKit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.engine import buildkit
from tests.support.hostile import MANY, Ran, campaign
from tests.support.prebuilds import built_task, remove_images, tag_of
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

PROXY = "http://user:pass-word@proxy.invalid:3128"
SHOWS = {"kind": "command", "argv": ["sh", "-c", "env >/logs/artifacts/env"]}
VERIFIER = "env >/logs/verifier/env; echo 1 >/logs/verifier/reward.txt\n"
SLIPPED = {"upper": "ALL_PROXY", "mixed": "Https_Proxy", "tool": "npm_config_proxy"}
"""Tasks whose image brings a proxy, each under another name."""


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    folder, programs = tmp_path_factory.mktemp("tasks"), tmp_path_factory.mktemp("bin")
    own = 'env = { HTTP_PROXY = "${HTTP_PROXY}" }'
    tasks = [
        make_task(folder, "open", network="public", test=VERIFIER),
        make_task(folder, "open-own", network="public", test=VERIFIER, environment='env = { http_proxy = "own.invalid:1" }'),
        make_task(folder, "closed", test=VERIFIER),
        make_task(folder, "leaky", environment=own),
        *(built_task(folder, name, f"ENV {variable}=http://p.invalid:1") for name, variable in SLIPPED.items()),
        built_task(folder, "turned-off", "ENV HTTP_PROXY= no_proxy="),
        built_task(folder, "needs-kit", "COPY --chmod=700 Dockerfile /"),
    ]
    (programs / "docker").write_text('#!/bin/sh\n[ "$1" = --version ] && echo Docker version 28.2.2, build x\n')
    (programs / "docker").chmod(0o755)
    (programs / "ip").symlink_to(shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") or "/none")  # the daemon reads routes with it
    overrides = {**MANY, "network.runtime_proxy": {"HTTP_PROXY": PROXY}, "admission.passes": 1, "engine.build_retries": 0}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HTTP_PROXY", PROXY)  # the daemon's own, which a task's template asks for
        patch.setenv("PATH", str(programs))
        patch.setenv("HOME", str(programs))
        patch.delenv("DOCKER_CONFIG", raising=False)
        patch.setattr(buildkit, "_PATH", ())
        patch.setattr(buildkit, "PLUGIN_FOLDERS", ())
        try:
            with campaign(docker_host, tasks, {"sh": SHOWS}, overrides=overrides) as ran:
                yield ran
        finally:
            remove_images(docker_host, [tag_of(task) for task in tasks if (task / "environment").is_dir()])


def proxies(path: Path) -> dict[str, str]:
    pairs = dict(line.split("=", 1) for line in path.read_text().splitlines() if "=" in line)
    return {name: value for name, value in pairs.items() if name.lower().endswith("proxy")}


def test_b13_a_runtime_proxy_is_given_to_tasks_with_a_network_and_recorded_without_its_password(ran: Ran) -> None:
    exceptions = "localhost,127.0.0.1,::1"
    assert ran.reward("open") == 1.0
    for phase in ("artifacts", "verifier"):
        assert proxies(ran.folder("open") / phase / "env") == {"HTTP_PROXY": PROXY, "NO_PROXY": exceptions, "no_proxy": exceptions}
    said = f"HTTP_PROXY=http://***@proxy.invalid:3128 NO_PROXY={exceptions} no_proxy={exceptions}"
    assert ran.facts("open")["runtime proxy"] == (said, "config")


def test_b13_a_task_s_own_proxy_stands_beside_it_and_the_fact_says_so(ran: Ran) -> None:
    assert proxies(ran.folder("open-own") / "artifacts" / "env")["http_proxy"] == "own.invalid:1"
    words, origin = ran.facts("open-own")["runtime proxy"]
    assert "http_proxy=own.invalid:1" in words and origin == "task, arm or config"


def test_b13_a_task_without_network_never_gets_one(ran: Ran) -> None:
    assert ran.reward("closed") == 1.0
    for phase in ("artifacts", "verifier"):
        assert proxies(ran.folder("closed") / phase / "env") == {}
    assert "runtime proxy" not in ran.facts("closed")


@pytest.mark.parametrize(("task", "variable"), [*SLIPPED.items(), ("leaky", "HTTP_PROXY")])
def test_b13_one_that_slips_in_is_infrastructure_before_the_agent(ran: Ran, task: str, variable: str) -> None:
    ((code, reason),) = ran.voids(task)
    assert code == "environment_dirty" and variable in reason and "pass-word" not in reason
    assert ("set by the task or the arm" in reason) is (task == "leaky")
    assert ran.rig.sql("SELECT * FROM trial_agent WHERE trial_id = ?", ran.trial(task)) == []


def test_b13_one_that_is_turned_off_is_none(ran: Ran) -> None:
    assert ran.reward("turned-off") == 1.0


def test_b16_a_task_that_needs_buildkit_parks_by_name_where_there_is_none_and_says_what_to_install(ran: Ran) -> None:
    code, detail = ran.park("needs-kit")
    assert code == "image_needs_buildkit"
    assert "Docker version 28.2.2" in detail and "has no buildx; install docker with buildx" in detail and "docker-buildx" in detail
    assert ran.trials("needs-kit") == []
