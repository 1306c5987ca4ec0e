"""Is the container what was asked for?"""

from __future__ import annotations

import dataclasses

import pytest

from marathond.core.inspection import problems
from marathond.core.proxies import leads_to_itself, proxy_words, runtime_proxy_env, without_secret
from marathond.ports.engine import ContainerInfo, ContainerSpec

LABELS = {"marathond.ledger": "abc", "marathond.trial": "t0001"}
SPEC = ContainerSpec(name="mt", image_id="sha256:1", labels=LABELS, network=None)
SHOWN = ContainerInfo("id", "mt", LABELS, "sha256:1", True, False, "running", 7, "2026", None, False, "none", env=("PATH=/bin",))


def check(shown: ContainerInfo, spec: ContainerSpec = SPEC, allowed: frozenset[str] = frozenset()) -> str | None:
    found = problems(shown, spec, allowed_env=allowed)
    return found[0] if found else None


def test_as_asked_is_fine() -> None:
    assert check(SHOWN) is None


def test_b13_a_proxy_nobody_asked_for_is_named() -> None:
    dirty = dataclasses.replace(SHOWN, env=("PATH=/bin", "HTTP_PROXY=http://10.0.0.1:3128", "no_proxy=x"))
    found = problems(dirty, SPEC, allowed_env=frozenset())
    assert found is not None
    assert found[0] == "environment_dirty"
    assert "HTTP_PROXY, no_proxy" in found[1]
    networked = dataclasses.replace(dirty, network_mode="net")
    assert check(networked, dataclasses.replace(SPEC, network="net"), frozenset({"HTTP_PROXY", "no_proxy"})) is None


@pytest.mark.parametrize("network", [None, "net"])
@pytest.mark.parametrize(
    "variable",
    [
        *("HTTP_PROXY=p", "http_proxy=p", "Https_Proxy=p", "FTP_PROXY=p", "ALL_PROXY=p", "all_proxy=p", "NO_PROXY=p", "no_proxy=p"),
        *(
            "SOCKS_PROXY=p",
            "socks5_proxy=p",
            "RSYNC_PROXY=p",
            "ws_proxy=p",
            "AUTO_PROXY=p",
            "npm_config_proxy=p",
            "NPM_CONFIG_HTTPS_PROXY=p",
        ),
        *(
            "npm_config_noproxy=p",
            "YARN_HTTP_PROXY=p",
            "PIP_PROXY=p",
            "CARGO_HTTP_PROXY=p",
            "GLOBAL_AGENT_HTTP_PROXY=p",
            "CGI_HTTP_PROXY=p",
        ),
        *("JAVA_TOOL_OPTIONS=-Xmx1g -Dhttps.proxyHost=p", "MAVEN_OPTS=-DsocksProxyHost=p"),
    ],
)
def test_b13_every_name_of_a_proxy_is_known_in_any_case(variable: str, network: str | None) -> None:
    """Wherever it came from: Config.Env holds the image's ENV and what an engine or a client added, merged."""
    shown = dataclasses.replace(SHOWN, env=("PATH=/bin", variable), network_mode=network or "none")
    found = problems(shown, dataclasses.replace(SPEC, network=network), allowed_env=frozenset({"PATH"}))
    assert found is not None and found[0] == "environment_dirty" and variable.partition("=")[0] in found[1]


@pytest.mark.parametrize("variable", ["HTTP_PROXY=", "http_proxy", "PROXY_PORT=1", "REVERSE_PROXY=1", "VITE_PROXY=x", "JAVA_OPTS=-Xmx1g"])
def test_b13_a_proxy_that_is_turned_off_and_other_words_are_clean(variable: str) -> None:
    assert check(dataclasses.replace(SHOWN, env=("PATH=/bin", variable))) is None


def test_b13_without_a_network_a_proxy_is_dirty_whoever_set_it() -> None:
    dirty = dataclasses.replace(SHOWN, env=("HTTP_PROXY=http://10.0.0.1:3128", "NO_PROXY=x"))
    found = problems(dirty, SPEC, allowed_env=frozenset({"HTTP_PROXY", "NO_PROXY"}))
    assert found is not None and found[0] == "environment_dirty"
    assert "set by the task or the arm: HTTP_PROXY" in found[1] and "NO_PROXY" not in found[1]


def test_the_runtime_proxy_leaves_the_container_s_own_services_alone_and_is_told_without_its_password() -> None:
    given = {"HTTP_PROXY": "http://user:pass-word@proxy:3128", "no_proxy": "intern, localhost"}
    env = runtime_proxy_env(given)
    assert env["HTTP_PROXY"] == given["HTTP_PROXY"]
    assert env["NO_PROXY"] == env["no_proxy"] == "intern,localhost,127.0.0.1,::1"
    assert "pass-word" not in (words := proxy_words(env)) and "HTTP_PROXY=http://***@proxy:3128" in words
    assert runtime_proxy_env({}) == {} and proxy_words({}) == ""
    assert without_secret("u:p@proxy:1") == "***@proxy:1"
    assert [leads_to_itself(p) for p in ("127.0.0.1:3128", "http://localhost:1", "http://[::1]:1", "proxy:1", "http://10.0.0.1")] == [
        *(True, True, True),
        *(False, False),
    ]


def test_labels_network_image_and_state_are_compared() -> None:
    assert check(dataclasses.replace(SHOWN, labels={})) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, network_mode="bridge")) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, image_id="sha256:2")) == "environment_mismatch"
    assert check(dataclasses.replace(SHOWN, running=False, status="exited", exit_code=1)) == "container_failed"


@pytest.mark.parametrize(("asked", "shown"), [(None, 0.5), (0.5, None), (0.5, 0.4), (64, None), (None, 64), (64, 128)])
def test_limits_that_do_not_hold_as_asked_are_named(asked: float | None, shown: float | None) -> None:
    """An environment with other limits than the task's is another task; None is unlimited."""
    for key in ("cpus", "memory_mb", "pids"):
        spec, info = dataclasses.replace(SPEC, **{key: asked}), dataclasses.replace(SHOWN, **{key: shown})
        found = problems(info, spec, allowed_env=frozenset())
        assert found is not None and found[0] == "environment_mismatch"
        words = ["unlimited" if value is None else f"{value:g}" for value in (shown, asked)]
        assert key in found[1] and f" {words[0]}, asked for {words[1]}" in found[1]
        assert check(dataclasses.replace(info, **{key: asked}), spec) is None


@pytest.mark.parametrize("cpus", [0.1, 0.29, 1 / 3, 4.0, 0.01])
def test_a_limit_read_back_in_nanoseconds_is_the_limit_asked_for(cpus: float) -> None:
    assert check(dataclasses.replace(SHOWN, cpus=int(cpus * 1e9) / 1e9), dataclasses.replace(SPEC, cpus=cpus)) is None
