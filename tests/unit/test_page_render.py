"""What the page shows: every state of a cell, what is unknown, a daemon that is down, foreign words; and how large it grows."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from marathond.cli.happened import words as words_of_tail
from marathond.cli.output import Screen
from marathond.cli.show import lines
from marathond.cli.status import arm_table
from marathond.core.text import UNKNOWN
from marathond.ledger.verbs import board as board_verbs
from marathond.ledger.verbs import campaigns, findings, parks, runs, settings
from marathond.ledger.verbs.happened import newest
from marathond.ledger.verbs.happened_sources import Of
from marathond.ledger.verbs.reached import reached_into
from marathond.ledger.verbs.show import show
from marathond.ledger.verbs.trials import ScoreRow
from marathond.service.page import render, words
from marathond.service.page.trial import LogEnd, view
from marathond.service.picture.board import Board, gather_board, mark_of
from tests.support.big_ledger import ARMS, fill_big
from tests.support.ledgers import T0, arm, bring_to, cell, end_agent, fill, let_go, memory_ledger, submission, task

NOWHERE = Path("/nonexistent/control.sock")
NOW = T0 + 3_600_000
HOSTILE = (
    "<script>alert(1)</script>",
    "\x1b]0;title\x07\x1b[31mred",
    "\u202egnp.exe\u2066",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='x",
    "{{ 7 * 7 }}{% raw %}",
    "n" * 500,
    "a\x00b\x9b2Jc\u2028d",
)


class Tags(HTMLParser):
    """Every tag with its attributes, ids, and the text; void elements need no end."""

    VOID = frozenset({"meta", "link", "br", "img", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words, self.open, self.wrong = "", list[str](), list[str]()
        self.feed(text)
        self.wrong += self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    connection = memory_ledger()
    yield connection
    connection.close()


def looked(c: sqlite3.Connection, now_ms: int = NOW) -> Board:
    return gather_board(c, None, NOWHERE, now_ms)


def document(c: sqlite3.Connection) -> str:
    return render.page(render.board(looked(c), NOW), root="", parts_at="parts").decode()


def test_every_state_of_a_cell_has_a_letter_and_a_word(c: sqlite3.Connection) -> None:
    names = [f"task-{n}" for n in range(9)]
    fill(c, submission(tasks=[task(name) for name in names], arms=[arm("plain")]))
    for name, state in zip(names, ("running", "preparing", "reserved", "verifying", "scored", "voided", "review"), strict=False):
        admitted = bring_to(c, cell(c, name), state)
        if state in ("scored", "voided"):
            let_go(c, admitted)
    parks.park_cell(c, cell(c, names[7]), code="image_missing", detail="none", author="ana", now_ms=T0)
    board = looked(c)
    assert "".join(square.marks[0][0].letter for _, (square,) in board.grid.rows) == "RPPVSX?‖·"
    html = render.board(board, NOW).parts["grid"]
    for label in ("1: running", "1: preparing", "1: verifying", "1: scored, reward 1", "1: voided, to be tried again", "1: in review"):
        assert f'aria-label="{label}"' in html
    assert 'href="trial/t0001"' in html and 'aria-label="1: open">·</i>' in html and 'aria-label="1: parked">‖</i>' in html
    assert mark_of("claimed", "voided").letter == "X" and mark_of("claimed", None).letter == "·"


def test_a_daemon_that_is_down_and_what_nobody_saw_are_named_and_never_zero(c: sqlite3.Connection) -> None:
    fill(c)
    board = looked(c)
    html = render.board(board, NOW).parts["head"]
    assert "marathond is not running" in html and "■" in html and "ledger as of" in html
    tiles = {tile.name: tile for tile in words.tiles(board.status)}
    assert tiles["Disk"].value == tiles["Daemon's lag"].value == tiles["Done in"].value == UNKNOWN
    assert tiles["Networks"].value == "0/64 ours" and "foreign unknown" in tiles["Networks"].beside
    assert "marathond is not running" in tiles["Done in"].beside
    assert not re.search(r"(?:free|ms|tok/min)<", html), "no figure for what nobody saw"


def test_a_knob_that_a_person_has_turned_stands_in_the_head(c: sqlite3.Connection) -> None:
    fill(c)
    runs.begin_run(c, pid=1, pid_start_ticks=1, host="h", boot_id="b", version="1", now_ms=T0)
    settings.set_value(c, "admission.concurrency", old=4, new=1, author="ana", reason="the night", now_ms=T0)
    (tile,) = [tile for tile in words.tiles(looked(c).status) if tile.name == "Set by hand"]
    assert tile.value == "admission.concurrency = 1" and tile.beside.startswith("by ana at ") and "(the night)" in tile.whole
    assert "admission.concurrency = 1" in render.board(looked(c), NOW).parts["head"]
    settings.set_value(c, "admission.concurrency", old=1, new=None, author="ana", reason="", now_ms=T0)
    assert "Set by hand" not in {tile.name for tile in words.tiles(looked(c).status)}


def test_a_ledger_without_a_campaign_is_a_page(c: sqlite3.Connection) -> None:
    tags = Tags(document(c))
    assert not tags.wrong and "no campaign yet" in tags.words and "never started on this ledger" in tags.words


def test_findings_say_what_they_mean_and_what_to_do(c: sqlite3.Connection) -> None:
    campaign = fill(c)
    told = {"code": "lease_leaked", "severity": "error", "subject": "t0001", "detail": "it hangs", "campaign_id": campaign}
    number = findings.raise_finding(c, **told, now_ms=T0)  # type: ignore[arg-type]
    todo = render.board(looked(c), NOW).parts["todo"]
    assert "A trial&#39;s network cannot be removed" in todo and "<code>docker network inspect</code>" in todo and "▲" in todo
    assert f"marathonctl ack {number}" in todo and "card alarm" in todo
    findings.ack(c, number, author="ana", reason="known", now_ms=T0)
    todo = render.board(looked(c), NOW).parts["todo"]
    assert "known by ana: known" in todo and "alarm" not in todo


def test_a_mean_over_fewer_than_all_done_cells_says_over_how_many(c: sqlite3.Connection) -> None:
    """On every screen alike: a verifier that broke off wrote neither partial score nor tests, and its reward counts."""
    fill(c, submission(tasks=[task("zstd"), task("rust"), task("wasm")], arms=[arm("plain"), arm("goal")]))
    alone = ScoreRow(1, 0.0, "reward.txt", None, None, None, (), [])
    for number, name in enumerate(("zstd", "rust", "wasm")):
        let_go(c, bring_to(c, cell(c, name), "scored", score=None if number else alone))
        let_go(c, bring_to(c, cell(c, name, "goal"), "scored"))
    status = looked(c).status
    shown = {column.name: column.cells for column in words.arm_columns(status)}
    assert (shown["partial"], shown["tests"]) == (("0.50 of 2", "0.50"), ("0.75 of 2", "0.75"))
    columns, rows, _ = arm_table(status, roomy=True)
    titles = [column.title for column in columns]
    assert [[row[titles.index(name)] for row in rows] for name in ("partial", "tests")] == [["0.50 of 2", "0.50"], ["0.75 of 2", "0.75"]]


def test_an_event_is_told_in_the_words_of_tail(c: sqlite3.Connection) -> None:
    fill(c, submission(tasks=[task("zstd"), task("rust"), task("wasm")], arms=[arm("plain")]))
    let_go(c, bring_to(c, cell(c, "zstd"), "scored"))
    let_go(c, bring_to(c, cell(c, "rust"), "voided"))
    bring_to(c, cell(c, "wasm"), "review")
    told = [words_of_tail(one).split("  ")[1:3] for one in reversed(newest(c, Of(campaign_id=1), 100)) if one.kind == "trial"]
    rows = [[f"t{trial:04d}", f"{event} {detail}".strip()] for _, _, trial, event, _, _, detail in words.event_rows(looked(c))]
    assert rows == told and len(rows) > 10
    assert ["t0001", "scored reward 1.00, partial 0.50"] in rows and ["t0001", "agent_ended agent, exit 0"] in rows
    assert "score_id" not in document(c) and "scored</td>" in document(c)
    steps = view(show(c, 1), Path("/s"), [], NOW).steps
    assert [step.detail for step in steps if step.event == "scored"] == ["reward 1.00, partial 0.50"]


def test_what_a_person_ran_in_a_trial_stands_in_its_timeline_between_its_events(c: sqlite3.Connection) -> None:
    fill(c)
    trial_id = bring_to(c, cell(c), "running", now_ms=T0).trial_id
    reached_into(c, trial_id, command="kill -9 1 <b>", user="", author="ana", now_ms=T0 + 5_000)
    end_agent(c, trial_id, now_ms=T0 + 9_000)
    shown = show(c, trial_id)
    steps = view(shown, Path("/s"), [], NOW).steps
    assert [step.event for step in steps][-3:] == ["agent_started", "reached_into", "agent_ended"]
    assert (steps[-2].detail, steps[-2].run, steps[-3].lasted) == ("by ana, running: kill -9 1 <b>", None, "9s")
    html = render.page(render.trial(view(shown, Path("/s"), [], NOW)), root="../", parts_at="x").decode()
    assert "kill -9 1 &lt;b&gt;" in html and "None" not in html.partition("Timeline</h2>")[2].partition("</table>")[0]
    text = "\n".join(lines(shown, Path("/s"), Screen(width=160), NOW))
    timeline = text.partition("reached_into")
    assert "agent_started" in timeline[0] and "agent_ended" in timeline[2] and "by ana, running: kill -9 1 <b>" in timeline[2]


def test_foreign_words_are_words(c: sqlite3.Connection) -> None:
    tasks, arms = [task(f"{n}{name}") for n, name in enumerate(HOSTILE)], [arm(name[:60]) for name in HOSTILE[:4]]
    fill(c, submission(name=HOSTILE[0], tasks=tasks, arms=arms))
    for n, name in enumerate(HOSTILE):
        findings.raise_finding(c, code="x" + name, severity="info", subject=name, detail=name, campaign_id=1, now_ms=T0 + n)
    admitted = bring_to(c, cell(c, f"0{HOSTILE[0]}", HOSTILE[0][:60]), "running")
    settings.observe(c, "waiting", [{"code": HOSTILE[0], "count": 1, "text": HOSTILE[2]}], now_ms=NOW)
    log = LogEnd("agent", [words.shown(name) for name in HOSTILE])
    one = render.trial(view(show(c, admitted.trial_id), Path("/s"), [log, LogEnd("verifier", why=HOSTILE[3])], NOW))
    for html in (document(c), render.page(one, root="../", parts_at="x").decode()):
        tags = Tags(html)
        assert not tags.wrong
        kinds = [tag for tag, _ in tags.tags]
        assert kinds.count("script") == 1 and "img" not in kinds and "49" not in re.findall(r"\b49\b", tags.words)
        assert not any(name.startswith("on") for _, attrs in tags.tags for name in attrs)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028]", html), "nothing steers or turns round"
        assert "<script>alert(1)</script>" in tags.words, "and yet it is all there to be read"


def test_everything_has_a_name_and_every_table_its_heads(c: sqlite3.Connection) -> None:
    fill(c)
    bring_to(c, cell(c), "running")
    tags = Tags(document(c))
    ids = [attrs["id"] for _, attrs in tags.tags if attrs.get("id")]
    assert len(ids) == len(set(ids))
    for tag, attrs in tags.tags:
        if tag == "th":
            assert attrs.get("scope") in ("col", "row")
        if tag == "svg" or attrs.get("role") in ("img", "region"):
            assert attrs.get("aria-label") or attrs.get("aria-labelledby") in ids
        if tag == "section":
            assert attrs.get("aria-labelledby") in ids
        for where in (attrs.get("href") or "", attrs.get("src") or ""):
            assert "//" not in where and not where.startswith(("javascript", "data")), "nothing from elsewhere"
            assert not where.startswith("#") or where[1:] in ids
        assert "style" not in attrs
    kinds = [tag for tag, _ in tags.tags]
    assert kinds.count("h1") == 1 and {"main", "nav", "header", "footer"} <= set(kinds)
    assert 'lang="en"' in document(c) and 'http-equiv="refresh"' in document(c)


def test_only_what_changed_has_another_version(c: sqlite3.Connection) -> None:
    fill(c)
    before = render.board(looked(c), NOW)
    again = render.board(looked(c), NOW + 60_000)
    assert before.version == again.version and before.at != again.at, "the time of day alone is no change"
    bring_to(c, cell(c), "running")
    after = render.board(looked(c), NOW)
    changed = {name for name in after.parts if after.hashes[name] != before.hashes[name]}
    assert changed == {"head", "todo", "live", "arms", "grid", "events"} and after.version != before.version


def test_a_ledger_that_cannot_be_read_leaves_the_last_picture_marked(c: sqlite3.Connection) -> None:
    fill(c)
    screen = render.board(looked(c), NOW + 60_000, "ledger /x is gone")
    head = screen.parts["head"]
    assert "the ledger cannot be read" in head and "ledger /x is gone" in head and 'data-health="unknown"' in head
    assert screen.title.startswith("◆ unknown")


def test_a_hundred_tasks_in_five_arms_five_times_fit_into_a_page(c: sqlite3.Connection) -> None:
    fill(c, submission(tasks=[task(f"task-with-a-name-{n:03d}") for n in range(100)], arms=[arm(name) for name in ARMS], replicates=5))
    board = looked(c)
    assert len(board.grid.rows) == 100 and sum(len(s.marks) for _, row in board.grid.rows for s in row) == 2_500
    html = document(c)
    assert len(html) < 400_000 and not Tags(html).wrong


def test_a_hundred_thousand_cells_are_counted_and_events_bounded(c: sqlite3.Connection) -> None:
    fill_big(c, 5_000)
    board = looked(c)
    assert board.grid.counted and len(board.events) == 40
    counts = [count for _, row in board.grid.rows for square in row for _, count in square.counts]
    assert sum(counts) == board.status.cells.total
    by_letter: dict[str, int] = {}
    for _, row in board.grid.rows:
        for square in row:
            assert square.reward is None or 0 <= square.reward <= 1
            for mark, count in square.counts:
                by_letter[mark.letter] = by_letter.get(mark.letter, 0) + count
    assert by_letter["S"] == board.status.cells.done and by_letter["R"] == 12
    assert len(document(c)) < 100_000


def test_e02_a_campaign_of_long_ago_is_not_said_to_have_done_nothing(c: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_verbs, "LOOKED_AT", 3)
    fill(c)
    assert "Nothing has happened yet." in document(c)
    first = bring_to(c, cell(c, "zstd"), "scored")
    assert "Nothing" not in document(c)
    let_go(c, first)
    campaigns.submit(c, submission(name="later"), now_ms=T0)
    bring_to(c, c.execute("SELECT max(cell_id) FROM cell").fetchone()[0], "scored")
    old = render.board(gather_board(c, "x", NOWHERE, NOW), NOW).parts["events"]
    assert "none of the ledger&#39;s newest" in old and "Nothing has happened" not in old


def test_more_tasks_than_fit_are_named(c: sqlite3.Connection) -> None:
    fill(c, submission(tasks=[task(f"t-{n:03d}") for n in range(230)], arms=[arm("plain")]))
    assert "30 more tasks" in render.board(looked(c), NOW).parts["grid"]
