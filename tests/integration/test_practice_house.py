"""The practice provider as a house of many trials: who asks, what is refused, what is recorded, and the process."""

from __future__ import annotations

import asyncio
import socket
import stat
import sys
from pathlib import Path

import aiohttp
import pytest

import marathond.practice as practice_room
from marathond.core.errors import ConfigError
from marathond.practice.__main__ import main
from marathond.practice.script import Practice, Usage, parse
from marathond.practice.server import Bounds, practising
from tests.support.practice import DIRECT, KEY, Client, lines, playing, practice

pytestmark = pytest.mark.anyio
EXAMPLE = Path(practice_room.__file__).with_name("example.toml")


async def test_trials_are_told_apart_by_path_and_by_key_and_their_scripts_by_task_and_arm() -> None:
    script = parse(
        '[[script]]\ntask = "greet"\narm = "goal"\n[[script.step]]\nsay = "greet goal"\n[[script]]\ntask = "greet"\n'
        '[[script.step]]\nsay = "greet"\n[[script]]\n[[script.step]]\nsay = "any"\n'
        '[[key]]\nkey = "key-of-t7"\ntrial = "t7"\ntask = "greet"\narm = "goal"\n'
    )
    async with practising(script) as server, aiohttp.ClientSession() as session:
        said = {}
        for prefix, key in (
            ("/trial/t1/task/greet/arm/plain/v1", "same-key"),
            ("/trial/t2/task/greet/arm/goal/v1", "same-key"),
            ("/trial/t3/v1", "same-key"),
            ("/v1", "key-of-t7"),
            ("/v1", "unknown-key"),
        ):
            client = Client(session, server.url + prefix, key)
            client.say("work")
            said[prefix, key] = (await client.ask()).said
        assert list(said.values()) == ["greet", "greet goal", "any", "greet goal", "any"]
        assert list(server.tallies)[:4] == ["t1", "t2", "t3", "t7"]
        assert all(server.tally(trial).outcomes == {"completed": 1} for trial in server.tallies)


async def test_what_is_refused_is_told_in_a_sentence() -> None:
    strict = Practice.model_validate({"script": [{"task": "greet"}], "key": [{"key": "key-of-t7", "trial": "t7"}], "known_keys_only": True})
    async with practising(strict, bounds=Bounds(request_bytes=2000)) as server, aiohttp.ClientSession() as session:

        async def refused(path: str, body: bytes, key: str = "key-of-t7", method: str = "POST") -> tuple[int, str]:
            async with session.request(method, server.url + path, data=body, headers={"Authorization": f"Bearer {key}"}) as response:
                return response.status, (await response.json())["error"]["message"]

        assert await refused("/v1/responses", b"{}", key="other") == (401, "practice: this key is not known")
        assert await refused("/v1/responses", b"[") == (400, "practice: the body is no JSON: Expecting value: line 1 column 2 (char 1)")
        status, words = await refused("/v1/responses", b'{"model": "m"}')
        assert (status, words) == (400, "practice: no script fits this conversation (task unnamed, arm unnamed, model m)")
        assert await refused("/v1/responses", b" " * 2001) == (413, "practice: a request holds at most 2000 bytes")
        assert (await refused("/v1/models", b"", method="GET"))[0] == 404


async def test_the_number_of_trials_is_bounded() -> None:
    async with playing(practice({"say": "one"}), bounds=Bounds(trials=1)) as (server, client):
        assert (await client.ask()).said == "one"
        other = Client(client.session, client.url, "another-key")
        other.say("do it")
        assert (await other.ask()).error["message"] == "practice: more than 1 trials"
        assert list(server.tallies) == ["t1"]


async def test_requests_are_recorded_whole_and_no_key_with_them(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}, {"shape": "empty"}), record=tmp_path) as (server, client):
        client.say(f"my key is {KEY}")
        client.thread = f"thread of {KEY}"
        await client.ask()
        await client.ask()
        expected = server.tally("t1").usage
    text = (tmp_path / "t1.jsonl").read_text()
    assert KEY not in text and stat.S_IMODE((tmp_path / "t1.jsonl").stat().st_mode) == 0o600
    first, answer, *_ = found = lines(tmp_path)
    assert first["body"]["tools"] == DIRECT and first["body"]["input"][1]["content"][0]["text"] == "my key is ********"
    assert first["headers"]["Authorization"].startswith("(sha256 ") and first["path"] == "/v1/responses"
    assert (answer["outcome"], answer["step"], answer["conversation"]) == ("completed", 0, "thread of ********")
    usages = [Usage(**line["usage"]) for line in found if line["kind"] == "answer"]
    assert usages[0] + usages[1] == expected and expected.input > 0


async def test_a_record_that_cannot_be_written_is_no_answer_and_no_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path / "record") as (server, client):
        (tmp_path / "record" / "t1.jsonl").mkdir()
        async with client.session.post(**client.request()) as response:
            assert response.status == 500
        (tmp_path / "record" / "t1.jsonl").rmdir()
        assert (await client.ask()).said == "one"
        assert server.tally("t1").outcomes == {"broken": 1, "completed": 1}
    assert "Is a directory" in caplog.text


async def test_a_body_over_several_lines_and_one_that_is_no_json_are_lines_of_the_record(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path) as (server, client):
        for body in (b'{\r\n "input":\n "do\\nit"}', b"no\njson"):
            headers = {"Authorization": f"Bearer {KEY}"}
            async with client.session.post(server.url + "/v1/responses", data=body, headers=headers) as response:
                await response.read()
    bodies = [line["body"] for line in lines(tmp_path) if line["kind"] == "request"]
    assert bodies == [{"input": "do\nit"}, {"not_json": "no\njson"}]


async def test_the_record_is_bounded_and_the_accounts_go_on(tmp_path: Path) -> None:
    async with playing(practice({"say": "one"}), record=tmp_path, bounds=Bounds(record_bytes=3000)) as (server, client):
        for _ in range(20):
            client.say("x" * 1000)
            await client.ask(keep=False)
        assert server.tally("t1").outcomes == {"completed": 20}
    found = [line for line in lines(tmp_path) if line["kind"] == "request"]
    assert "body" in found[0] and found[-1]["left_out"] == "body"
    assert (tmp_path / "t1.jsonl").stat().st_size <= 6000


async def test_it_serves_a_given_socket_and_no_address_but_loopback(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        async with (
            practising(practice({"say": "one"}), sock=sock),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as session,
        ):
            client = Client(session, "http://localhost/v1")
            client.say("do it")
            assert (await client.ask()).said == "one"
    with pytest.raises(ConfigError, match="must be a loopback address"):
        async with practising(practice({"say": "one"}), host="0.0.0.0"):
            pass
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match="cannot listen"):
        async with practising(practice({"say": "one"}), port=taken.getsockname()[1]):
            pass


async def test_as_a_process_it_says_where_it_listens_and_ends_at_sigterm(tmp_path: Path) -> None:
    argv = ["-m", "marathond.cli.daemon", "practice", "--script", str(EXAMPLE), "--record", str(tmp_path / "record")]
    process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    words, _, url = (await process.stdout.readline()).decode().strip().rpartition(" ")
    assert words == "practice provider listens on"
    async with aiohttp.ClientSession() as session:
        client = Client(session, url, "no-trial-of-its-own")
        client.say("# greet")
        assert (await client.ask()).said
    process.terminate()
    assert await process.wait() == 0
    assert [path.name[:4] for path in (tmp_path / "record").iterdir()] == ["key-"]


def test_the_command_tells_what_is_wrong_with_a_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.toml"
    path.write_text("[[script]]\nthem = 1\n")
    assert main(["--script", str(path), "--check"]) == 2
    assert capsys.readouterr().err == f"{path}:2: script.0.them: no such key\n"
    path.write_text('[[script]]\nthen = "silent"\n')
    assert main(["--script", str(path), "--check"]) == 0
