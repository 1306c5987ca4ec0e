"""What reaches the gateway: requests, the provider's answers, its own files after a kill.  Unknown is never 0, and nothing counts twice."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core import contract, requests
from marathond.core.errors import ArtifactError, ConfigError
from marathond.flow.ways import SignOfLife, read_sign_of_life
from marathond.gateway import body, config, files, journal_read, retry, usage
from marathond.gateway.files import Ack, Listener
from marathond.gateway.journal import Journal, encode
from marathond.gateway.journal_read import Position, Record
from marathond.gateway.usage import Tokens, Watcher
from marathond.ports.clock import SystemClock
from tests.support.fuzzing import ODD, few, files_of_json, fuzz, nested, refused_by, spoiled, torn
from tests.support.gateway_rig import USAGE, event

REQUEST: Mapping[str, Any] = {
    "model": "gpt-5.5",
    "instructions": "You are codex.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "<environment_context> x"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}], "id": "m"},
    ],
    "tools": [
        {"type": "function", "name": "exec_command", "description": "runs\n\n### `apply_patch`\nwrites", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "functions", "tools": [{"type": "web_search"}]},
    ],
    "tool_choice": "auto",
    "reasoning": {"effort": "high"},
    "prompt_cache_key": "k",
    "stream": True,
    "metadata": {"a": {"b": 1}},
}
PATHS = ("input[].id", "metadata.a.b", "reasoning")
COMPLETED = {"response": {"id": "r", "model": "gpt-5.5", "usage": USAGE, "output": []}}
STREAM = event("response.created", response={"model": "gpt-5.5"}) + event("response.completed", **COMPLETED) + b"data: [DONE]\n\n"
ERROR = {"error": {"code": "rate_limit_exceeded", "type": "tokens", "message": "slow down"}}
LISTENER = Listener(
    name="t0001", version=3, trial="t0001", account="agent", container_id="c", started_at="2026-01-01T00:00:00Z", pid=7, start_ticks=9,
    boot_id="b", port=8790, key_sha256="ab" * 32, route="main", network="none", deadline_mono_ms=5, strip=("metadata",), models=("m",),
)  # fmt: skip
ACK = {
    "name": "t0001", "version": 3, "state": "listening", "code": "", "detail": "", "container_id": "c",
    "started_at": "2026-01-01T00:00:00Z", "port": 8790, "life": "l", "mono_ms": 5,
}  # fmt: skip
SETTINGS = {
    "format": 1,
    "routes": {"main": {"base_url": "http://127.0.0.1:1/v1", "key_file": "/k", "tokens_per_min": 1000, "headers": {"a": "b"}}},
    "hold": {"hold_ms": 1000, "jitter": 0.25},
    "bounds": {"streams": 4},
}
WHO = {"trial": "t0001", "account": "agent", "listener": "t0001", "route": "main", "number": 1}
TOKENS = {"input": 100, "cached": 40, "cache_write": 0, "output": 20, "reasoning": 5}
ENDED = {
    **WHO, "begin": 2, "wall_ms": 1, "mono_ms": 9, "path": "POST /v1/responses", "end": "complete", "status": 200, "upstream_status": None,
    "first_byte_ms": 1, "total_ms": 8, "held_ms": 0, "held_from_mono_ms": None, "budget_held_ms": 0, "retries": 1, "retried": {"429": 1},
    "attempts_unknown": 0, "retry_after_s": None, "request_bytes": 1, "response_bytes": 1, "stripped": 0, "model_asked": "m", "model": "m",
    "usage": "known", "tokens": TOKENS, "error_type": None,
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"seq": 2, "event": "begin", **WHO, "wall_ms": 1, "mono_ms": 1},
    {"seq": 3, "event": "first", **WHO, "begin": 2, "shape": {"format": 2, "body": {}}},
    {"seq": 4, "event": "held", "begin": 2, "from_mono_ms": 2},
    {"seq": 5, "event": "released", "begin": 2, "until_mono_ms": 3},
    {"seq": 6, "event": "request", **ENDED},
    {"seq": 7, "event": "refused", "trial": "t0001", "account": "agent", "error_type": "bad_key", "count": 1, "wall_ms": 1},
    {"seq": 8, "event": "segment", "journal": "j", "numbers": {"t0001": 1}, "open": {"2": WHO}},
    {"seq": 9, "event": "life"},
]


def numbers_in(value: Any) -> set[int]:
    if isinstance(value, dict | list):
        return set[int]().union(*(numbers_in(each) for each in (value.values() if isinstance(value, dict) else value)))
    return {value} if isinstance(value, int) and not isinstance(value, bool) else set()


# ---- requests


@fuzz
@given(files_of_json(REQUEST))
def test_a15_a_body_is_read_checked_and_stripped_or_refused(raw: bytes) -> None:
    asked = refused_by(lambda: body.parse(raw), body.BadBody)
    plain = body.surely_plain(raw, body.words_to_look_for(True, PATHS))
    model = body.model_near_the_front(raw)
    assert model is None or model.encode()
    if isinstance(asked, body.BadBody):
        return
    if plain:
        assert body.network_tool(asked) is None and body.strip(asked, PATHS) == 0, "what is passed on unread needs no reading"
    body.strip(asked, PATHS)
    assert body.strip(asked, PATHS) == 0
    again = body.parse(body.dump(asked))
    assert body.dump(again) == body.dump(asked)


@fuzz
@given(files_of_json(REQUEST), st.lists(st.text(max_size=9), max_size=4))
def test_a14_every_body_has_a_shape_without_its_words_that_the_ledger_takes(raw: bytes, headers: list[str]) -> None:
    asked = refused_by(lambda: body.parse(raw), body.BadBody)
    if isinstance(asked, body.BadBody):
        return
    shape = refused_by(lambda: contract.shape(asked, headers), RecursionError)
    if isinstance(shape, RecursionError):
        return
    line = encode({"seq": 1, "event": "first", **WHO, "begin": 1, "shape": shape})
    found = requests.decode(json.loads(line))
    assert isinstance(found, requests.First) and json.dumps(found.shape, ensure_ascii=False).encode()


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_a_body_at_the_edge_of_depth_is_refused_or_passed_on_whole(kind: str) -> None:
    """The depth at which Python gives up differs by who reads: what was read must be writable, or refused."""
    for depth in range(850, 1050, 3):
        raw = json.dumps({"model": "m", "metadata": 1, "x": 0}).encode().replace(b"0", _deep(depth, kind))
        asked = refused_by(lambda raw=raw: body.parse(raw), body.BadBody)  # type: ignore[misc]
        if not isinstance(asked, body.BadBody):
            refused_by(lambda asked=asked: body.dump(asked), body.BadBody)  # type: ignore[misc]


def _deep(depth: int, kind: str) -> bytes:
    return (b"[" * depth + b"]" * depth) if kind == "list" else (b'{"a":' * depth + b"1" + b"}" * depth)


# ---- answers


@fuzz
@given(
    torn(STREAM, (b"event: response.completed\n", b"data: ", b'"usage"', b"\n\n")),
    st.lists(st.integers(0, 10**6), max_size=6),
    st.booleans(),
)
def test_tokens_are_the_streams_own_however_it_is_cut(data: bytes, places: list[int], sse: bool) -> None:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    made = []
    for steps in (list(pairwise(edges)), [(0, len(data))]):
        watcher = Watcher(sse)
        for a, b in steps:
            watcher.feed(data[a:b])
        watcher.end()
        made.append((watcher.closed, watcher.tokens, watcher.model, watcher.error_type))
    assert made[0] == made[1]
    if (tokens := made[0][1]) is not None:
        assert all(str(count).encode() in data or count == 0 for count in (tokens.input, tokens.cached, tokens.output, tokens.reasoning))


@fuzz
@given(spoiled(USAGE))
def test_usage_is_whole_counts_that_stand_there_or_unknown(raw: Any) -> None:
    tokens = usage.read_usage(raw)
    assert tokens is None or isinstance(tokens, Tokens)
    if tokens is not None:
        known = numbers_in(raw)
        assert {tokens.input, tokens.output} <= known and {tokens.cached, tokens.cache_write, tokens.reasoning} <= known | {0}
        assert all(0 <= count <= requests.COUNT_AT_MOST for count in (tokens.input, tokens.cached, tokens.output, tokens.reasoning))


@fuzz
@given(files_of_json(COMPLETED), files_of_json(ERROR))
def test_a_document_is_read_or_unknown_and_an_error_has_a_short_word_or_none(answer: bytes, error: bytes) -> None:
    for data in (answer, error):
        watcher = Watcher(sse=False)
        watcher.feed(data)
        watcher.end()
        assert watcher.model is None or len(watcher.model) <= 128
        code = retry.error_code(data)
        assert code is None or 0 <= len(code) <= 64


@fuzz
@given(
    st.sampled_from(
        [each for each in ODD if isinstance(each, str)] + ["3", "Thu, 01 Jan 1970 00:01:00 GMT", "Thu, 99 Jan 99999 00:00:00 +9999"]
    )
    | st.text(max_size=20)
    | st.floats().map(str),
    st.integers(0, 2**45),
)
def test_a_wait_is_bounded_or_unknown(value: str, wall_ms: int) -> None:
    for header in ("retry-after", "retry-after-ms"):
        waits = retry.retry_after_ms({header: value}, wall_ms)
        assert waits is None or (type(waits) is int and 0 <= waits <= retry.RETRY_AFTER_AT_MOST_MS)


# ---- files


@fuzz
@given(files_of_json(files.listener_json(LISTENER)))
def test_a_listener_is_taken_whole_or_refused_by_its_field(raw: bytes) -> None:
    told = refused_by(lambda: json.loads(raw), ValueError)
    if isinstance(told, ValueError):
        return
    seen = refused_by(lambda: files.parse_listener("t0001", told), ConfigError)
    if not isinstance(seen, ConfigError):
        assert files.parse_listener("t0001", files.listener_json(seen)) == seen
        assert all(type(count) is int for count in (seen.version, seen.pid, seen.start_ticks, seen.port))
        assert seen.name == "t0001" and seen.network in ("none", "public")


def test_a_listener_comes_back_as_it_was_written(tmp_path: Path) -> None:
    @few
    @given(st.integers(0, 2**40), st.sampled_from(["none", "public"]), st.lists(st.text(max_size=5), max_size=3))
    def written(deadline_ms: int, network: Any, models: list[str]) -> None:
        listener = replace(LISTENER, deadline_mono_ms=deadline_ms, network=network, models=tuple(models))
        files.write_listener(tmp_path, listener)
        assert files.parse_listener("t0001", files.read_json(files.listener_path(tmp_path, "t0001"))) == listener

    written()


def test_acks_settings_and_signs_of_life_are_read_or_refused(tmp_path: Path) -> None:
    for name in ("acks", "listeners"):
        (tmp_path / name).mkdir()
    alive = {
        "boot_id": SystemClock().boot_id, "mono_ms": SystemClock().mono_ms() + 10**6, "journal": "j", "config_error": "",
        "journal_error": "", "key_errors": {"main": "no"}, "not_opened": 0,
    }  # fmt: skip

    @fuzz
    @given(files_of_json(ACK), files_of_json(SETTINGS), files_of_json(alive))
    def read(ack: bytes, settings: bytes, sign: bytes) -> None:
        for path, data in (
            (files.ack_path(tmp_path, "t0001"), ack),
            (tmp_path / "gateway.json", settings),
            (tmp_path / "alive.json", sign),
        ):
            path.write_bytes(data)
        found = refused_by(lambda: files.read_ack(tmp_path, "t0001"), ArtifactError)
        if isinstance(found, Ack):
            assert all(type(count) is int and count >= 0 for count in (found.version, found.port, found.mono_ms))
            assert found.state in ("listening", "failed", "refused", "closed")
        made = refused_by(lambda: config.load(tmp_path), ConfigError, ArtifactError)
        if isinstance(made, config.GatewayConfig):
            assert made.routes and made.bounds.streams > 0 and math.isfinite(made.hold.jitter)
        life = read_sign_of_life(tmp_path, SystemClock())
        assert isinstance(life, SignOfLife) and (life.away or type(life.not_opened) is int)

    read()


# ---- the journal


@fuzz
@given(spoiled(EVENTS))
def test_a_record_of_the_journal_is_one_that_is_known_or_strange(raw: Any) -> None:
    for fields in raw if isinstance(raw, list) else []:
        if isinstance(fields, dict):
            found = refused_by(lambda fields=fields: requests.decode(fields), ValueError)  # type: ignore[misc]
            if isinstance(found, requests.Ended) and found.usage == "known" and found.end not in requests.BURIED:
                assert found.tokens is not None and found.tokens.input in numbers_in(fields)
            if isinstance(found, requests.Ended) and found.usage != "known":
                assert found.tokens is None or found.usage == "none"


def test_a_journal_of_torn_and_foreign_lines_is_read_once_and_goes_on(tmp_path: Path) -> None:
    runs = iter(range(10**9))

    @few
    @given(spoiled(EVENTS), st.data(), st.integers(1, 5))
    def lived(events: Any, data: st.DataObject, at_most: int) -> None:
        folder = tmp_path / str(next(runs))
        folder.mkdir()
        lines = b"".join(encode(each) for each in events if isinstance(each, dict) and each) if isinstance(events, list) else b""
        journal_read.segment_path(folder, 1).write_bytes(data.draw(torn(lines, (b',"crc":"00000000"}\n',))))
        made = refused_by(lambda: Journal(folder), ArtifactError)
        if isinstance(made, Journal):
            seq = made.append("x")
            made.close()
        whole, end = journal_read.read_from(folder, at_most=10**6)
        position, found = journal_read.START, []
        while True:
            got, position = journal_read.read_from(folder, position, at_most)
            if not got:
                break
            found += got
        assert found == whole and position >= Position(end.segment, 0)
        assert all(type(each.seq) is int and isinstance(each.fields["event"], str) for each in found if isinstance(each, Record))
        if isinstance(made, Journal):
            last = [each for each in found if isinstance(each, Record)][-1]
            assert (last.seq, last.fields["event"]) == (seq, "x")

    lived()


def test_a_record_that_is_nested_too_deeply_is_torn(tmp_path: Path) -> None:
    line = encode({"seq": 1, "event": "x", "deep": nested(100)}).replace(b"[1]", b"[" * 3000 + b"1" + b"]" * 3000)
    journal_read.segment_path(tmp_path, 1).write_bytes(line + encode({"seq": 2, "event": "y"}))
    found, _ = journal_read.read_from(tmp_path)
    assert [type(each).__name__ for each in found] == ["Torn", "Record"]
