"""The provider's answers: which are waited out, how long, and what they cost."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.gateway import retry, usage
from marathond.gateway.retry import Policy
from marathond.gateway.usage import Tokens, Watcher
from tests.support.gateway_rig import HELLO, USAGE, completed, event

TOKENS = Tokens(100, 40, 0, 20, 5)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (None, None, "wait"),
        (429, None, "wait"),
        (429, "rate_limit_exceeded", "wait"),
        (500, None, "wait"),
        (529, "overloaded", "wait"),
        (408, None, "wait"),
        (400, None, "pass"),
        (401, None, "pass"),
        (404, None, "pass"),
        (429, "insufficient_quota", "usage_limit"),
        (402, "billing_hard_limit_reached", "usage_limit"),
        (500, "insufficient_quota", "wait"),
    ],
)
def test_a01_verdicts(status: int | None, code: str | None, expected: str) -> None:
    assert retry.verdict(status, code) == expected


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3000),
        ({"retry-after": "0.25"}, 250),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "-4"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e400"}, None),
        ({"retry-after": "999999999"}, retry.RETRY_AFTER_AT_MOST_MS),
        ({"retry-after-ms": "120", "retry-after": "1"}, 120),
        ({"retry-after-ms": "x", "retry-after": "1"}, 1000),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT"}, 50_000),
    ],
)
def test_retry_after(headers: dict[str, str], expected: int | None) -> None:
    assert retry.retry_after_ms(headers, 10_000) == expected


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_back_off_is_bounded(failures: int, chance: float) -> None:
    policy = Policy()
    assert policy.first_ms * (1 - policy.jitter) <= retry.wait_ms(policy, failures, None, chance) <= policy.at_most_ms
    assert retry.wait_ms(policy, failures, 77_000, chance) == 77_000


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error":{"code":"a","type":"b"}}', "a"),
        (b'{"error":{"code":null,"type":"b"}}', "b"),
        (b'{"error":{"code":"429","type":"insufficient_quota"}}', "insufficient_quota"),
        (b'{"error":"text"}', None),
        (b"<html>", None),
        (b"[" * 100_000, None),
        (b"", None),
    ],
)
def test_error_code(body: bytes, expected: str | None) -> None:
    assert retry.error_code(body) == expected


WHOLE = HELLO + event("response.output_text.delta", delta="the response.completed of \n\n words") + completed()


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12), st.sampled_from([b"\n", b"\r\n"]))
def test_usage_is_found_however_the_bytes_are_cut(cuts: list[int], newline: bytes) -> None:
    whole = WHOLE.replace(b"\n", newline)
    watcher = Watcher(sse=True)
    edges = [0, *sorted(set(cuts)), len(whole)]
    for start, end in itertools.pairwise(edges):
        watcher.feed(whole[start:end])
    assert (watcher.closed, watcher.tokens, watcher.model, watcher.error_type) == (True, TOKENS, "gpt-test-2026", None)


@given(st.integers(0, len(WHOLE) - len(completed())))
def test_without_its_closing_event_usage_is_unknown(length: int) -> None:
    watcher = Watcher(sse=True)
    watcher.feed(WHOLE[:length])
    watcher.end()
    assert (watcher.closed, watcher.tokens) == (False, None)


def test_stream_without_event_lines() -> None:
    watcher = Watcher(sse=True)
    watcher.feed(b"data: " + json.dumps({"type": "response.completed", "response": {"model": "m", "usage": USAGE}}).encode())
    watcher.end()
    assert (watcher.closed, watcher.tokens) == (True, TOKENS)


def test_failure_inside_a_stream_is_named() -> None:
    watcher = Watcher(sse=True)
    watcher.feed(event("response.failed", response={"error": {"code": "server_overloaded"}, "usage": None}))
    assert (watcher.closed, watcher.tokens, watcher.error_type) == (True, None, "server_overloaded")


def test_chat_stream_counts_come_in_its_last_chunk() -> None:
    watcher = Watcher(sse=True)
    watcher.feed(b'data: {"model":"j","choices":[{"delta":{"content":"a"}}],"usage":null}\n\n')
    watcher.feed(b'data: {"model":"j","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n')
    assert (watcher.closed, watcher.tokens, watcher.error_type) == (True, Tokens(3, 0, 0, 2, 0), None)


def test_line_beyond_all_bounds_is_named_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "LINE_AT_MOST", 1000)
    watcher = Watcher(sse=True)
    for _ in range(50):
        watcher.feed(b"data: " + b"x" * 100)
    assert len(watcher._tail) <= 1000
    watcher.feed(b"\n\n" + completed())
    assert (watcher.tokens, watcher.error_type) == (TOKENS, "line_too_long")


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"input_tokens": "3", "output_tokens": 1},
        {"input_tokens": -1, "output_tokens": 1},
        {"input_tokens": True, "output_tokens": 1},
    ],
)
def test_counts_that_are_none_are_unknown(told: object) -> None:
    assert usage.read_usage(told) is None
