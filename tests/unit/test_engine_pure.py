"""The adapter's pure halves: what texts mean, how /proc and streams are read, when to look again."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marathond.core.errors import EngineError, EngineTimeout, EngineUnreachable, NotFound, PoolExhausted, SubnetTaken
from marathond.core.model import Mount
from marathond.engine import decode
from marathond.engine.client import LINE_MAX, json_lines
from marathond.engine.docker import container_body, network_body
from marathond.engine.errors import answer_error, connection_error
from marathond.engine.execs import LOOK_MAX_BLIND_S, LOOK_MAX_HINTED_S, LOOKS_BLIND_PER_S, LOOKS_HINTED_PER_S, look_pause_s
from marathond.engine.images import line_text, split_ref, stream_error
from marathond.engine.processes import Stat, parse_stat, parse_top, read_stat
from marathond.engine.trees import Ignore
from marathond.ports.engine import ContainerSpec

# texts of 20.10.24 and 28.5.2, as they came
POOL_20 = "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network"
POOL_28 = "all predefined address pools have been fully subnetted"


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (404, POOL_20, PoolExhausted),
        (400, POOL_28, PoolExhausted),
        (403, "Pool overlaps with other one on this address space", SubnetTaken),
        (403, "cannot create network a (br-a): conflicts with network b (br-b): networks have overlapping IPv4", SubnetTaken),
        (404, "No such container: abc", NotFound),
        (403, "error while removing network: network x id y has active endpoints", EngineError),
        (500, "", EngineError),
    ],
)
def test_b01_the_text_decides_before_the_status(status: int, text: str, kind: type[EngineError]) -> None:
    error = answer_error("network.create", status, text)
    assert type(error) is kind
    assert (error.call, error.status) == ("network.create", status)
    assert str(error).endswith(f" (network.create, HTTP {error.status})")


def _refused(error: OSError) -> aiohttp.ClientConnectorError:
    key = aiohttp.client_reqrep.ConnectionKey("localhost", None, False, True, None, None, None)
    return aiohttp.ClientConnectorError(key, error)


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (PermissionError(errno.EACCES, "denied"), "permission denied (are you in group docker?)"),
        (FileNotFoundError(errno.ENOENT, "none"), "is dockerd running?"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), "is dockerd running?"),
        (OSError(errno.EHOSTUNREACH, "No route to host"), "No route to host"),
    ],
)
def test_no_connection_is_unreachable_with_a_hint(error: OSError, hint: str) -> None:
    made = connection_error("info", "unix:///run/d.sock", _refused(error), reads_only=False)
    assert isinstance(made, EngineUnreachable)
    assert made.detail == f"cannot reach Docker at unix:///run/d.sock: {made.detail.partition('d.sock: ')[2]}"
    assert hint in made.detail
    assert str(made) == made.detail, "which call met it says nothing: none can reach the engine"


def test_a_call_s_name_stands_behind_the_words_where_it_reads_like_no_log_level() -> None:
    assert str(answer_error("image.inspect", 404, "No such image: x")) == "No such image: x (image.inspect, HTTP 404)"
    assert str(EngineTimeout("info", 0, "no answer")) == "no answer (info)"


def test_a_broken_connection_is_unknown_for_a_change_and_askable_again_for_a_look() -> None:
    broken = aiohttp.ServerDisconnectedError()
    assert isinstance(connection_error("x", "u", broken, reads_only=False), EngineTimeout)
    assert isinstance(connection_error("x", "u", broken, reads_only=True), EngineUnreachable)


@settings(deadline=None)  # a deadline would measure the machine
@given(st.integers(0, 10_000), st.floats(0, 1e6), st.booleans(), st.integers(1, 100))
def test_looks_come_early_then_stay_proportional_and_bounded(looks: int, waited_s: float, hinted: bool, waiting: int) -> None:
    pause = look_pause_s(looks, waited_s, hinted=hinted, waiting=waiting)
    assert 0.01 <= pause <= (LOOK_MAX_HINTED_S if hinted else LOOK_MAX_BLIND_S)
    assert looks < 3 or pause <= max(0.04, waited_s / 4)


@pytest.mark.parametrize(("hinted", "per_s"), [(True, LOOKS_HINTED_PER_S), (False, LOOKS_BLIND_PER_S)])
def test_hundreds_of_execs_share_a_bounded_number_of_looks(hinted: bool, per_s: int) -> None:
    hour_s = 3600.0
    assert 400 / look_pause_s(1000, hour_s, hinted=hinted, waiting=400) == pytest.approx(per_s)
    assert look_pause_s(1000, hour_s, hinted=hinted, waiting=12) == (LOOK_MAX_HINTED_S if hinted else LOOK_MAX_BLIND_S)


def test_a_process_name_cannot_shift_the_fields() -> None:
    line = "42 (a) Z 1 ) R 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 631234 0 0"
    assert parse_stat(line) == Stat("R", 7, 9, 3, 631234, 4194560)


def test_a_zombie_leader_with_live_threads_still_runs_something() -> None:
    assert Stat("Z", 1, 1, 1, 5).runs_nothing
    assert not Stat("Z", 1, 1, 4, 5).runs_nothing
    assert not Stat("S", 1, 1, 1, 5).runs_nothing


def test_a_process_on_its_way_out_is_exiting_unless_other_threads_live() -> None:
    assert Stat("S", 1, 1, 1, 5, 0x400104).exiting
    assert not Stat("S", 1, 1, 2, 5, 0x400104).exiting
    assert not Stat("S", 1, 1, 1, 5, 0x400100).exiting


def test_our_own_stat_is_read_and_a_missing_one_is_none() -> None:
    own = read_stat(os.getpid())
    assert own is not None
    assert (own.ppid, own.session) == (os.getppid(), os.getsid(0))
    assert read_stat(2**22 + 1) is None


def test_rows_of_top_are_read_by_title() -> None:
    assert parse_top({"Titles": ["USER", "PID", "COMMAND"], "Processes": [["root", "12", "sh -c a b"]]}) == [(12, "sh -c a b")]
    assert parse_top({"Titles": ["PID"], "Processes": None}) == []
    for bad in ({"Titles": ["USER"]}, {"Titles": ["PID"], "Processes": [["x"]]}, {"Titles": ["A", "PID"], "Processes": [["x"]]}):
        with pytest.raises(EngineError):
            parse_top(bad)


@pytest.mark.parametrize(
    ("rules", "name", "dropped"),
    [
        ("*.key", "a.key", True),
        ("*.key", "sub/a.key", False),
        ("**/*.key", "sub/deep/a.key", True),
        ("**/*.key", "a.key", True),
        ("sub", "sub/a", True),
        ("/sub/", "sub/a", True),
        ("sub/**\n!sub/keep", "sub/keep", False),
        ("sub\n!sub/keep", "sub/other", True),
        ("*\n!src", "src/main.c", False),
        ("*\n!src", "other", True),
        ("*", "Dockerfile", False),
        ("# a.key\n\n", "a.key", False),
        ("a?c", "abc", True),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a.b", "axb", False),
    ],
)
def test_the_ignore_file_means_what_docker_means(tmp_path: Path, rules: str, name: str, dropped: bool) -> None:
    (tmp_path / ".dockerignore").write_text(rules)
    assert Ignore.of(tmp_path).drops(name) is dropped


def test_a_broken_pattern_is_named(tmp_path: Path) -> None:
    (tmp_path / ".dockerignore").write_text("[z-a]\n")
    with pytest.raises(EngineError, match=re.escape("'[z-a]' is no pattern")):
        Ignore.of(tmp_path)


@pytest.mark.parametrize(
    ("ref", "parts"),
    [
        ("debian", ("debian", "latest")),
        ("debian:12", ("debian", "12")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:1", ("host:5000/a/b", "1")),
        ("a@sha256:12", ("a", "sha256:12")),
    ],
)
def test_a_reference_is_split_where_docker_splits_it(ref: str, parts: tuple[str, str]) -> None:
    assert split_ref(ref) == parts


def test_lines_of_a_stream_read_as_text() -> None:
    assert line_text({"stream": "Step 1\n"}) == "Step 1\n"
    assert line_text({"id": "a", "status": "Pulling", "progress": "[=>]"}) == "a Pulling [=>]\n"
    assert line_text({"error": "no"}) == "no\n"
    assert line_text({"aux": {"ID": "x"}}) == ""
    assert isinstance(stream_error("image.pull", "manifest unknown: manifest unknown"), NotFound)
    assert type(stream_error("image.pull", "dial tcp: no such host")) is EngineError


def test_times_of_the_engine_are_milliseconds() -> None:
    assert decode.time_ms("2026-11-29T15:15:10.68979612Z") == 1795965310690
    assert decode.time_ms("2026-11-29T16:15:10+01:00") == 1795965310000
    assert decode.time_ms("0001-01-01T00:00:00Z") == 0


def test_a_container_request_holds_limits_mounts_and_no_swap() -> None:
    spec = ContainerSpec("n", "sha256:1", {"l": "1"}, "net", env={"A": "b"}, mounts=[Mount("/s", "/t")], cpus=1.5, memory_mb=512, pids=64)
    body = container_body(spec)
    host = body["HostConfig"]
    assert (host["NanoCpus"], host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (1_500_000_000, 512 << 20, 512 << 20, 64)
    assert host["Mounts"] == [{"Type": "bind", "Source": "/s", "Target": "/t", "ReadOnly": True}]
    assert (host["NetworkMode"], body["Env"], body["Entrypoint"]) == ("net", ["A=b"], [])
    assert container_body(ContainerSpec("n", "i", {}, None))["HostConfig"] == {"NetworkMode": "none", "Mounts": []}


def test_a_network_request_holds_the_subnet_and_nothing_else() -> None:
    assert network_body("n", {}, "198.19.0.0/28", internal=False)["IPAM"] == {"Driver": "default", "Config": [{"Subnet": "198.19.0.0/28"}]}
    assert "IPAM" not in network_body("n", {}, None, internal=True)
    with pytest.raises(EngineError, match="canonical"):
        network_body("n", {}, "198.19.0.3/28", internal=False)


class _Response:
    """The part of an answer that is read as lines."""

    def __init__(self, *chunks: bytes) -> None:
        self.content, self._chunks = self, chunks

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


@settings(deadline=None)  # a deadline would measure the machine
@given(st.lists(st.integers(1, 40), max_size=30), st.lists(st.dictionaries(st.text(max_size=3), st.integers(), max_size=3), max_size=6))
def test_lines_arrive_whole_however_they_are_cut(cuts: list[int], items: list[dict[str, int]]) -> None:
    data = b"".join(json.dumps(item).encode() + b"\r\n" for item in items)
    chunks = []
    for cut in cuts:
        chunks.append(data[:cut])
        data = data[cut:]
    assert _lines(*chunks, data) == items


def _lines(*chunks: bytes) -> list[dict[str, object]]:
    async def read() -> list[dict[str, object]]:
        return [item async for item in json_lines("events", _Response(*chunks))]  # type: ignore[arg-type]

    return anyio.run(read)


def test_a_monstrous_line_is_dropped_and_the_next_one_read() -> None:
    monster = b'{"a": "' + b"x" * LINE_MAX + b'"}\n'
    halves = [monster[: LINE_MAX // 2], monster[LINE_MAX // 2 :]]
    assert _lines(monster, b'{"b": 1}\n') == [{"b": 1}]
    assert _lines(*halves, b'{"b": 1}') == [{"b": 1}]
    assert _lines(monster[:-1]) == []
    with pytest.raises(EngineError, match="broke off"):
        _lines(b'{"b": ')
