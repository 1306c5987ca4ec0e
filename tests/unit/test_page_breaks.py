"""What the page's process tells of pages that break: how often, of what, and that a daemon reads nothing else as such a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.service.page import breaks
from marathond.service.page.breaks import AGAIN_S, PLACES, Break, Breaks, parsed, place_of


class Heard:
    """Lines, as the daemon reads them, by a clock that is set."""

    def __init__(self) -> None:
        self.found: list[Break | None] = []
        self.now_s = 0.0
        self.breaks = Breaks(lambda line: self.found.append(parsed(line)), clock=lambda: self.now_s)


def test_a_page_that_breaks_at_every_look_is_told_once_a_minute() -> None:
    heard = Heard()
    for _ in range(100):
        heard.breaks.broke("/trial/t0001", "KeyError: 'x'")
        heard.now_s += AGAIN_S / 50
    assert heard.found == [Break("/trial", "/trial/t0001: KeyError: 'x'")] * 2


def test_a_place_is_whole_once_each_address_that_broke_was_answered() -> None:
    heard = Heard()
    for path in ("/trial/t0001", "/trial/t0002", "/metrics"):
        heard.breaks.broke(path, "E: e")
    for path in ("/trial/t0003", "/trial/t0001", "/"):
        heard.breaks.answered(path)
    assert [found.place for found in heard.found if found is not None] == ["/trial", "/metrics"]
    heard.breaks.answered("/trial/t0002")
    heard.breaks.answered("/trial/t0002")
    assert heard.found[2:] == [Break("/trial", "")]


def test_one_that_breaks_every_other_time_is_two_lines_a_minute() -> None:
    heard = Heard()
    for _ in range(600):
        heard.breaks.broke("/", "E: e")
        heard.breaks.answered("/")
        heard.now_s += 0.1
    assert heard.found == [Break("/", "/: E: e"), Break("/", "")]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breaks, "PATHS_MAX", 3)
    heard = Heard()
    for number in range(10):
        heard.breaks.broke(f"/trial/t{number}", "E: e")
    for number in range(3):
        heard.breaks.answered(f"/trial/t{number}")
    assert heard.found[-1] == Break("/trial", "")


def test_every_route_has_its_place() -> None:
    for path in ("/", "/parts", "/trial/t0001", "/trial/t0001/parts", "/static/page.css", "/metrics", "/livez", "/readyz"):
        assert place_of(path) in PLACES


@given(st.text(max_size=80), st.sampled_from(PLACES), st.text(min_size=1, max_size=2_000))
def test_a_line_says_what_was_told_or_nothing(stray: str, place: str, why: str) -> None:
    found = parsed(stray)
    assert found is None or stray.partition(" ")[0] in ("broke", "whole")
    heard: list[str] = []
    path = {"/trial": "/trial/t0001"}.get(place, place)
    Breaks(heard.append).broke(path, why)
    (line,) = heard
    told = parsed(line)
    assert "\n" not in line and len(line.encode("utf-8", "replace")) < 4096
    assert told is not None and told.place == place and told.why.startswith(f"{path}:")
