"""The first request of a trial's agent leaves its shape in the journal: names and hashes, no word of it (fault a14)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marathond.core.requests import First, Who, decode
from marathond.gateway import proxy
from tests.support.gateway_rig import Rig, rig

pytestmark = pytest.mark.anyio

SECRET = "nobody may read this"
BODY: dict[str, Any] = {
    "model": "m",
    "reasoning": {"effort": "high"},
    "input": [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": SECRET}]}],
    "tools": [{"type": "function", "name": "exec_command", "description": SECRET}],
    "half\ud83d": [1],
}


async def ask(it: Rig, at: Any, body: Any = None, **more: str) -> int:
    async with it.post(at, BODY if body is None else body, **more) as got:
        await got.read()
        return int(got.status)


async def test_a14_the_shape_of_the_first_request_alone_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        at, other = await it.listen(), await it.listen("t0002")
        for listener in (at, at, other):
            assert await ask(it, listener, originator="codex") == 200
        first, second = it.requests("first")
        assert (first["trial"], first["number"], second["trial"]) == ("t0001", 1, "t0002")
        assert first["begin"] == it.requests("begin")[0]["seq"] and first["shape"] == second["shape"]
        assert first["shape"]["body"]["reasoning"] == {"effort": "high"} and list(first["shape"]["tools"]) == ["exec_command"]
        assert first["shape"]["headers"]["originator"] == "sent"
        assert SECRET not in json.dumps(it.entries())
        event = decode(first)
        assert isinstance(event, First) and event.who == Who(1, "agent", 1)
        assert json.dumps(event.shape, ensure_ascii=False).encode() and "half?" in event.shape["body"]


async def test_gates_and_judges_are_no_arm(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        for name, account in (("t0001.gate", "gate"), ("t0001.verifier", "verifier")):
            await ask(it, await it.listen(name, account=account))
        assert it.requests("first") == [] and len(it.requests()) == 2


async def test_what_cannot_be_taken_apart_goes_out_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as it:
        assert await ask(it, await it.listen(), b'{"model": "m", "model": "n"}') == 200
        monkeypatch.setattr(proxy, "SHAPE_BYTES_AT_MOST", 100)
        assert await ask(it, await it.listen("t0002")) == 200
        huge = {**BODY, **{f"{number:0200}": "x" * 200 for number in range(300)}}
        monkeypatch.setattr(proxy, "SHAPE_BYTES_AT_MOST", 1 << 20)
        assert await ask(it, await it.listen("t0003"), huge) == 200
        assert it.requests("first") == [] or {told["trial"] for told in it.requests("first")} == {"t0003"}
        assert len(it.requests()) == 3
