"""Lines of the control socket: each is a request or a refusal of one line, and every answer can be sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import ConfigError
from marathond.service import protocol
from marathond.service.args import Args
from marathond.service.exits import Exit
from marathond.service.protocol import BadRequest, Request
from tests.support.fuzzing import ODD, dumped, files_of_json, fuzz, nested, plain_json, refused_by

VOID = {"v": 1, "verb": "void", "args": {"trials": [871, 872], "reason": "provider outage", "pair": True, "since_ms": 1, "task": "t"}}
TEXTS = st.text(alphabet=st.characters(), max_size=30)


@fuzz
@given(files_of_json(VOID))
def test_a_line_is_a_request_or_is_refused_in_one_line(line: bytes) -> None:
    seen = refused_by(lambda: protocol.decode_request(line), BadRequest)
    if isinstance(seen, BadRequest):
        answer = protocol.encode_error(str(seen), Exit.USAGE)
        assert len(answer) < 1000 and answer.count(b"\n") == 1
    else:
        assert protocol.decode_request(protocol.encode_request(seen.verb, json.loads(json.dumps(seen.args)))).verb == seen.verb


@fuzz
@given(files_of_json(VOID))
def test_arguments_are_of_their_kind_or_refused(line: bytes) -> None:
    seen = refused_by(lambda: protocol.decode_request(line), BadRequest)
    if not isinstance(seen, Request):
        return
    args = refused_by(lambda: Args(seen.verb, seen.args, tuple(VOID["args"])), ConfigError)  # type: ignore[arg-type]
    if isinstance(args, ConfigError):
        return
    trials, since_ms = refused_by(lambda: args.ids("trials"), ConfigError), refused_by(lambda: args.integer("since_ms"), ConfigError)
    assert isinstance(trials, ConfigError) or all(type(trial) is int and 0 < trial < 2**63 for trial in trials)
    assert isinstance(since_ms, ConfigError) or since_ms is None or type(since_ms) is int
    assert isinstance(refused_by(lambda: args.flag("pair"), ConfigError), bool | ConfigError)
    for text in (refused_by(lambda: args.text("task"), ConfigError), refused_by(args.reason, ConfigError)):
        assert text is None or isinstance(text, ConfigError) or text.encode()


@fuzz
@given(TEXTS | st.sampled_from([each for each in ODD if isinstance(each, str)]), plain_json)
def test_whatever_an_answer_says_it_is_one_line_that_reads_back(words: str, result: object) -> None:
    answer = protocol.encode_error(words, Exit.FAILED)
    assert answer.count(b"\n") == 1 and json.loads(answer)["exit"] == Exit.FAILED
    try:
        line = protocol.encode_result(result)
    except ValueError:  # NaN: the server tells of an internal error
        return
    assert line.count(b"\n") == 1 and json.loads(line)["ok"] is True


@pytest.mark.parametrize(
    "line",
    [
        *(dumped({"v": version, "verb": "ping"}) for version in (None, True, 1.0, "1", [1], {"1": 1}, 2, -1, 10**400, nested(900))),
        *(dumped({"v": 1, "verb": verb}) for verb in (None, 1, "", "x" * 41, "\ud800", ["ping"])[:2]),
        *(dumped({"v": 1, "verb": "ping", "args": args}) for args in ([], "x", 1, {"a": "\ud800"}, {"\udc00": 1})),
        dumped({"v": 1, "verb": "\ud800"}),
        dumped({"v": 1, "verb": "x" * 41}),
        b'{"v":1,"verb":"ping"' + b',"a":[' * 50_000,
        b'{"v":' + b"9" * 5000 + b',"verb":"ping"}',
        b'\0{"v":1}',
        '{"v":1,"verb":"ping"}'.encode("utf-16"),
    ],
    ids=lambda line: repr(line[:30]),
)
def test_what_is_no_request_is_refused(line: bytes) -> None:
    if line.startswith(b"\xff\xfe"):
        assert protocol.decode_request(line) == Request("ping", {}), "JSON in UTF-16 is JSON"
        return
    with pytest.raises(BadRequest) as caught:
        protocol.decode_request(line)
    assert len(str(caught.value)) < 300 and "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_refused_before_they_are_sent() -> None:
    with pytest.raises(BadRequest, match="not UTF-8"):
        protocol.encode_request("void", {"task": "t\udcff"})
