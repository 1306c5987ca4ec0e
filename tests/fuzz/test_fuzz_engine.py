"""What an engine may answer: each is read whole or refused as an EngineError, and no number is made out of nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import EngineError
from marathond.engine import decode
from marathond.engine.client import LINE_MAX, EngineClient, json_lines
from marathond.engine.docker import DockerEngine
from marathond.engine.images import Images, line_text
from marathond.engine.processes import parse_stat, parse_top
from tests.support.fuzzing import dumped, few, fuzz, refused_by, spoiled, torn

INFO: Mapping[str, Any] = {
    "ServerVersion": "20.10.24",
    "NCPU": 2,
    "MemTotal": 8 << 30,
    "DockerRootDir": "/var/lib/docker",
    "HttpProxy": "",
    "HttpsProxy": "",
    "LiveRestoreEnabled": False,
    "DefaultAddressPools": [{"Base": "10.0.0.0/8", "Size": 24}],
    "PidsLimit": True,
}
NETWORK: Mapping[str, Any] = {
    "Name": "m",
    "Id": "n1",
    "Created": "2026-01-01T00:00:00.123456789Z",
    "Driver": "bridge",
    "Internal": True,
    "IPAM": {"Driver": "default", "Config": [{"Subnet": "198.19.0.0/28"}]},
    "Labels": {"marathond.trial": "t0001"},
}
CONTAINER: Mapping[str, Any] = {
    "Id": "c1",
    "Created": "2026-01-01T00:00:00.123456789Z",
    "Name": "/m",
    "Image": "sha256:ab",
    "State": {
        "Status": "exited",
        "Running": False,
        "Paused": False,
        "OOMKilled": False,
        "Pid": 4711,
        "ExitCode": 137,
        "StartedAt": "2026-01-01T00:00:01Z",
    },
    "HostConfig": {"NetworkMode": "n1", "NanoCpus": 2_000_000_000, "Memory": 1 << 30, "PidsLimit": 100},
    "Config": {"Env": ["A=b"], "Labels": {"marathond.trial": "t0001"}, "Cmd": ["sh"]},
    "NetworkSettings": {"Networks": {"m": {"NetworkID": "n1"}}},
}
LISTED: Mapping[str, Any] = {
    "Id": "c1",
    "Names": ["/m"],
    "ImageID": "sha256:ab",
    "Created": 1_767_225_600,
    "State": "exited",
    "Status": "Exited (137) 3 minutes ago",
    "Labels": {"marathond.trial": "t0001"},
    "HostConfig": {"NetworkMode": "n1"},
    "NetworkSettings": {"Networks": {"m": {"NetworkID": "n1"}}},
}
EXEC: Mapping[str, Any] = {"ID": "e1", "Running": False, "ExitCode": 3, "Pid": 4712}
IMAGE: Mapping[str, Any] = {
    "Id": "sha256:ab",
    "RepoTags": ["m:1"],
    "Size": 1000,
    "Config": {"Labels": {"a": "b"}, "Env": ["PATH=/bin"], "WorkingDir": "/app"},
}
EVENT: Mapping[str, Any] = {
    "Type": "container",
    "Action": "exec_die",
    "Actor": {"ID": "c1", "Attributes": {"execID": "e1", "exitCode": "0"}},
    "timeNano": 1,
}
TOP: Mapping[str, Any] = {
    "Titles": ["PID", "PPID", "SESS", "COMMAND"],
    "Processes": [["4711", "1", "4711", "sh -c x"], ["4712", "4711", "4711", "y"]],
}
STAT = b"42 (a) Z 1 ) R 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 631234 0 0"
BUILD = [
    {"stream": "Step 1/2 : FROM base\n"},
    {"status": "Pulling", "id": "ab", "progress": "[=>]"},
    {"aux": {"ID": "sha256:ab"}},
    {"errorDetail": {"message": "no"}, "error": "no"},
    {"stream": "Successfully built ab\n"},
]


def numbers_in(value: Any) -> set[int | float]:
    if isinstance(value, dict | list):
        return set[int | float]().union(*(numbers_in(each) for each in (value.values() if isinstance(value, dict) else value)))
    return {value} if isinstance(value, int | float) and not isinstance(value, bool) else set()


@fuzz
@given(spoiled(INFO))
def test_e04_what_an_engine_says_of_itself_is_never_a_number_that_it_did_not_say(raw: Any) -> None:
    seen = refused_by(lambda: decode.engine_info(raw, "1.41"), EngineError)
    if not isinstance(seen, EngineError):
        assert {seen.ncpu, seen.memory_bytes} <= numbers_in(raw)
        assert seen.ncpu > 0 and seen.memory_bytes > 0


@fuzz
@given(spoiled(NETWORK))
def test_a_network_is_read_whole_or_refused(raw: Any) -> None:
    seen = refused_by(lambda: decode.network(raw), EngineError)
    if not isinstance(seen, EngineError):
        assert seen.id and all(isinstance(text, str) for pair in seen.labels.items() for text in pair)


@fuzz
@given(spoiled(CONTAINER))
def test_b09_an_exit_code_of_a_container_is_the_engines_own(raw: Any) -> None:
    seen = refused_by(lambda: decode.container(raw), EngineError)
    if isinstance(seen, EngineError):
        return
    known = numbers_in(raw)
    assert seen.exit_code is None or seen.exit_code in known
    assert seen.pid == 0 or seen.pid in known
    assert seen.oom_killed is raw["State"].get("OOMKilled", False), "no word of it is none"
    assert seen.running is raw["State"]["Running"]
    assert all(isinstance(text, str) for pair in seen.labels.items() for text in pair)
    assert seen.memory_mb is None or seen.memory_mb > 0
    assert seen.cpus is None or seen.cpus > 0


@fuzz
@given(spoiled(LISTED))
def test_a_row_of_the_list_is_read_whole_or_refused(raw: Any) -> None:
    seen = refused_by(lambda: decode.listed_container(raw), EngineError)
    if not isinstance(seen, EngineError):
        assert seen.id and seen.created_ms % 1000 == 0
        assert seen.exit_code is None or f"({seen.exit_code})" in raw["Status"]


@fuzz
@given(spoiled(EXEC))
def test_c18_an_exec_that_the_engine_does_not_call_ended_has_no_exit_code(raw: Any) -> None:
    seen = refused_by(lambda: decode.exec_info(raw), EngineError)
    if not isinstance(seen, EngineError):
        assert seen.running is raw["Running"]
        assert seen.exit_code is None or (not seen.running and seen.exit_code is raw["ExitCode"])


@fuzz
@given(spoiled(IMAGE))
def test_an_image_is_read_whole_or_refused(raw: Any) -> None:
    seen = refused_by(lambda: decode.image(raw), EngineError)
    if not isinstance(seen, EngineError):
        assert seen.id and all(isinstance(text, str) for text in (*seen.tags, *seen.env, seen.workdir))


@fuzz
@given(spoiled(EVENT))
def test_an_event_is_a_hint_or_nothing_and_never_an_error(raw: Any) -> None:
    seen = decode.event(raw)
    assert seen is None or all(isinstance(text, str) for text in (seen.type, seen.action, seen.id, *seen.attributes.values()))


@fuzz
@given(spoiled(TOP))
def test_rows_of_top_are_pids_or_refused(raw: Any) -> None:
    rows = refused_by(lambda: parse_top(raw), EngineError)
    if not isinstance(rows, EngineError):
        assert all(type(pid) is int and pid > 0 and isinstance(argv, str) for pid, argv in rows)


@fuzz
@given(torn(STAT, (b"(", b")", b" Z ", "²".encode())))
def test_a_process_is_read_whole_or_refused_whatever_it_calls_itself(text: bytes) -> None:
    refused_by(lambda: parse_stat(text.decode("utf-8", "replace")), EngineError)


class Bytes:
    """An answer's body, in pieces."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.content, self._pieces = self, pieces

    async def iter_any(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(edges)]


LINES = b"".join(dumped(line) + b"\r\n" for line in BUILD)


@few
@given(torn(LINES, (b"x" * (LINE_MAX + 2), b"[" * 5000)), st.lists(st.integers(0, 10**7), max_size=5))
def test_a_build_ends_with_an_image_or_an_engines_error(data: bytes, places: list[int]) -> None:
    logged = bytearray()

    async def log(piece: bytes) -> None:
        assert len(piece) <= 1 << 16
        logged.extend(piece)

    async def follow() -> str:
        body: Any = Bytes(cut(data, places))
        return await Images(EngineClient("unix:///nowhere", 1))._follow(json_lines("image.build", body), log)

    built = refused_by(lambda: anyio.run(follow), EngineError)
    assert isinstance(built, EngineError) or built == "" or built.encode("utf-8", "surrogatepass") in data


@fuzz
@given(spoiled(BUILD))
def test_a_line_of_a_build_has_a_text_whatever_it_holds(raw: Any) -> None:
    for line in raw if isinstance(raw, list) else []:
        if isinstance(line, dict):
            assert line_text(line).encode("utf-8", "replace") is not None


CALLS: Mapping[str, tuple[Any, Callable[[DockerEngine], Any]]] = {
    "info": (INFO, lambda engine: engine.info()),
    "networks": ([NETWORK], lambda engine: engine.list_networks()),
    "network": (NETWORK, lambda engine: engine.inspect_network("n1")),
    "created network": ({"Id": "n1"}, lambda engine: engine.create_network("m", {}, None)),
    "containers": ([LISTED], lambda engine: engine.list_containers()),
    "container": (CONTAINER, lambda engine: engine.inspect_container("c1")),
    "exec": (EXEC, lambda engine: engine.inspect_exec("e1")),
    "image": (IMAGE, lambda engine: engine.inspect_image("m:1")),
    "top": (TOP, lambda engine: engine._top("c1")),
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_b10_foreign_errors_never_leave_the_adapter(name: str) -> None:
    document, call = CALLS[name]

    @few
    @given(spoiled(document))
    def through_the_port(answer: Any) -> None:
        async def ask() -> object:
            async def query(*_: object, **__: object) -> Any:
                return json.loads(dumped(answer))

            engine = DockerEngine("e", "unix:///nowhere")
            with patch.object(type(engine._client.control), "_query_json", query):
                try:
                    return await call(engine)
                finally:
                    await engine.aclose()

        refused_by(lambda: anyio.run(ask), EngineError)

    through_the_port()
