"""The HTML: whole by itself, well formed, safe against whatever others wrote, small enough, and readable without colours."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

import marathond.report
from marathond.cli.output import Screen
from marathond.cli.report_text import render
from marathond.core.compare import compare
from marathond.core.results import ArmResult, CellResult, Contrast, DisclosureResult, FindingResult, Results, VoidResult
from marathond.report import html
from marathond.report.blocks import Document, Forest, HeatMap, Line, Panels, Section, Strips, Table, prose
from marathond.report.document import document, make
from marathond.report.page import page
from marathond.report.plots import budget_panels
from marathond.report.tables import to_csv
from tests.support.some_results import T0, a_campaign, a_cell, some_results

EVIL = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{7*7}}{% raw %}\x1b[31m\u202e\x00"
LONG = "x" * 5_000
VOID = frozenset({"meta", "link", "line", "circle", "rect", "polyline", "i", "br"})


class Page(HTMLParser):
    """Tags in order, with a check that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


def whole(results: Results) -> str:
    return html.render(document(make(results, compare(results))))


@pytest.fixture(scope="module")
def campaign() -> str:
    return whole(a_campaign())


def test_it_needs_nothing_else(campaign: str) -> None:
    parsed = Page(campaign)
    assert {tag for tag, _ in parsed.tags}.isdisjoint({"script", "img", "iframe", "object", "embed", "audio", "video", "form", "base"})
    assert [attrs["href"] for attrs in parsed.of("link")] == ["data:,"]
    assert all(str(attrs["href"]).startswith("#") for attrs in parsed.of("a"))
    assert not re.search(r"url\(|@import|https?://|\bon\w+=", campaign)
    assert any("default-src 'none'" in str(attrs.get("content")) for attrs in parsed.of("meta"))


def test_links_lead_somewhere_and_ids_are_unique(campaign: str) -> None:
    parsed = Page(campaign)
    ids = [attrs["id"] for _, attrs in parsed.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {str(attrs["href"])[1:] for attrs in parsed.of("a")} <= {str(each) for each in ids}
    labelled = [attrs["aria-labelledby"] for _, attrs in parsed.tags if "aria-labelledby" in attrs]
    assert labelled and set(labelled) <= set(ids)


def test_size_of_twenty_tasks_by_five_arms_by_five_replicates(campaign: str) -> None:
    assert len(campaign.encode()) < 3_000_000


def test_every_picture_has_a_text_and_every_table_a_name(campaign: str) -> None:
    parsed = Page(campaign)
    pictures = parsed.of("svg")
    assert len(pictures) > 100 and all(attrs.get("role") == "img" and attrs.get("aria-label") for attrs in pictures)
    boxes = [attrs for attrs in parsed.of("div") if attrs.get("class") == "scroll"]
    assert boxes and all(attrs.get("aria-label") and attrs.get("tabindex") == "0" for attrs in boxes)
    assert len(parsed.of("table")) == len(boxes)
    assert all(attrs.get("scope") in ("col", "row") for attrs in parsed.of("th"))


def test_all_figures_are_there_and_none_tells_by_colour_alone() -> None:
    results = a_campaign()
    blocks = [block for section in document(make(results, compare(results))).sections for block in section.blocks]
    heat = [block for block in blocks if isinstance(block, HeatMap)]
    assert [block.title for block in heat] == ["Reward, task by arm", "Partial score, task by arm"]
    assert all(cell.text for block in heat for _, cells in block.rows for cell in cells)
    forests = [block for block in blocks if isinstance(block, Forest)]
    assert len(forests) == 2 + 2 * 4 and all(row.text for block in forests for row in block.rows)
    assert {block.title for block in blocks if isinstance(block, Strips)} == {
        *("Time of the agent, by arm", "Tokens, in and out, by arm", "Tokens out, by arm", "Money, by arm")
    }
    panels = [block for block in blocks if isinstance(block, Panels)]
    assert [block.title for block in panels] == ["Score against budget", "Cells scored and voids, by arm"]
    assert all(isinstance(block.numbers, Table) and len(block.numbers.rows) == 5 for block in panels)
    assert all(panel.text for block in panels for panel in block.panels)


def test_positions_lie_on_their_axes() -> None:
    results = a_campaign()
    for section in document(make(results, compare(results))).sections:
        for block in section.blocks:
            match block:
                case Forest():
                    at = [value for row in block.rows for value in (row.at, row.low, row.high) if value is not None]
                case Strips():
                    at = [dot.at for row in block.rows for dot in row.dots]
                case Panels():
                    at = [value for panel in block.panels for curve in panel.curves for point in curve.path for value in point]
                    rising = [curve.path for panel in block.panels for curve in panel.curves]
                    assert all(a[0] <= b[0] and a[1] >= b[1] for path in rising for a, b in itertools.pairwise(path))
                case _:
                    continue
            assert all(0 <= value <= 100 for value in at)


def _two_by_two() -> Results:
    """Reward differs by +1 in both tasks, partial by +0.5: there is no spread, hence no interval."""
    scores = {"goal": (1.0, 1.0), "plain": (0.0, 0.5)}
    cells = [a_cell(task, arm, 1, reward, partial=partial) for task in ("sql", "zip") for arm, (reward, partial) in scores.items()]
    return some_results(cells, contrasts=(Contrast("goal", "plain", T0, 0),))


def test_what_has_no_interval_is_an_open_mark_and_no_bar_that_looks_like_one() -> None:
    made = make(_two_by_two(), compare(_two_by_two()))
    for shown in (document(made), page(made)):
        figures = re.findall(r'<figure class="rows" role="group" aria-label="Differences in.*?</figure>', html.render(shown), re.DOTALL)
        assert figures
        for figure in figures:
            assert figure.count('<circle class="open"') == 1 and 'class="mark"' not in figure
            assert "<line class=" in figure and 'class="stem"' not in figure and 'class="span"' not in figure
            assert re.search(r"[+]\d[.]\d+ no interval", figure) and "open mark: no interval" in figure
    known = html.render(document(make(a_campaign(), compare(a_campaign()))))
    assert 'class="span"' in known and '<circle class="open"' not in known and "open mark" not in known
    assert 'class="stem"' in known  # by task: a bar from no difference, and its legend says that it is no interval
    assert "no interval" in known and ".open{fill:var(--bg);" in known


def test_the_same_difference_is_as_long_in_reward_as_in_partial() -> None:
    made = make(_two_by_two(), compare(_two_by_two()))
    forests = [block for section in document(made).sections for block in section.blocks if isinstance(block, Forest)]
    at = {block.title: {row.at for row in block.rows} for block in forests}
    assert at == {
        "Differences in reward, with 95 % intervals": {100.0},
        "Differences in partial, with 95 % intervals": {75.0},
        "Reward by task: goal - plain": {100.0},
        "Partial by task: goal - plain": {75.0},
    }
    assert {tuple(tick.text for tick in block.ticks) for block in forests} == {("-1.000", "-0.500", "0", "+0.500", "+1.000")}


def test_shades_can_be_read_in_both_schemes() -> None:
    """Text on each shade of a heat map has a contrast of at least 4.5 to 1 (WCAG 2.1, 1.4.3)."""
    css = (html.TEMPLATES / "report.css").read_text()
    pairs = re.findall(r"\.h\d+\{background:(#\w{6});color:(#\w{6})\}", css)
    assert len(pairs) == 2 * (html.SHADES + 1)
    assert [pair for pair in pairs if _contrast(*pair) < 4.5] == []


def _contrast(one: str, other: str) -> float:
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_what_stands_between_backticks_is_code_and_no_backtick_is_seen() -> None:
    told = DisclosureResult("goals_off", "plain", "The feature `goals` is off.", "codex has `a<b>` on; one ` alone stays.")
    loss = FindingResult("image_drift", "stop_loss", "zstd", "see `out/x`", T0, None, None, None)
    results = replace(a_campaign(), disclosures=(told,), findings=(loss,))
    made = make(results, compare(results))
    shown = html.render(document(made))
    assert made.refusal is not None and "`marathonctl findings`" in made.refusal.words()
    codes = re.findall(r"<code>(.*?)</code>", shown)
    assert {"goals", "a&lt;b&gt;", "out/x", "marathonctl findings"} <= set(codes)
    assert "The feature <code>goals</code> is off." in shown and shown.count("`") == 1 and "one ` alone stays." in shown
    assert "<code>marathonctl findings</code>" in html.render(page(made))
    Page(shown)
    plain = html.render(Document("t", "s", (), (Section("k", "T", (Line("see `x`"), Table((prose("c"), prose("d")), (("r", "`y`"),)))),)))
    assert "see <code>x</code></p>" in plain and '<td class="prose"><code>y</code></td>' in plain
    assert html.runs("a `b`") == [("a ", False), ("b", True)] and html.runs("`x``y`") == [("x", True), ("y", True)]
    assert html.runs("") == [] and html.runs("``") == [("``", False)] and html.runs("`a") == [("`a", False)]


def test_schemes_and_paper_are_provided_for() -> None:
    css = (html.TEMPLATES / "report.css").read_text()
    assert "prefers-color-scheme:dark" in css and "@media print" in css and "@page" in css


# ── hostile words ──


def hostile(text: str) -> Results:
    """Every field that somebody else writes holds ``text``."""
    cells = [
        CellResult(
            task=f"{text}{n}",
            arm=arm,
            replicate=1,
            state=state,
            block_id=n,
            trial=text,
            reward=1.0 if state == "done" else None,
            flags=(text, "build_failed"),
            ended_by=text,
            agent_s=1.0,
            park_code=text,
            review_code=text,
            scored_at_ms=T0 + n,
        )
        for n, state in enumerate(("done", "parked", "review", "done"))
        for arm in (text, "plain")
    ]
    return some_results(
        cells,
        campaign=text,
        benchmark=text,
        treatment_hash=text,
        ledger_id=text,
        origin="import",
        imported=(text,),
        arms=(ArmResult(text, text, 1, text, text), ArmResult("plain", "codex", 2, "h", None)),
        voids=(VoidResult(text, text, text, 1, text, text, text, "operator", text, T0, True, True, 1.0, 0.0),),
        findings=(FindingResult(text, "warning", text, text, T0, None, text, text, None),),
        disclosures=(DisclosureResult(text, text, text, text),),
        spent_usd={text: 1.0},
        unpriced={text: 1},
    )


@pytest.mark.parametrize(
    "text", [EVIL, LONG, "", "\u202e", "\ud800", "a\nb\tc"], ids=["evil", "long", "empty", "bidi", "surrogate", "blanks"]
)
def test_what_others_wrote_is_text_and_bounded(text: str) -> None:
    results = hostile(text)
    made = make(results, compare(results))
    for shown in (document(made), page(made)):
        text_of = html.render(shown)
        parsed = Page(text_of)  # nests: no tag of theirs is one of ours
        assert "script" not in {tag for tag, _ in parsed.tags} and not any("onerror" in attrs for _, attrs in parsed.tags)
        assert "49" not in re.findall(r"<h1>(.*?)</h1>", text_of)[0]
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text_of)
        assert not re.search(r"x{1100}", text_of)
        text_of.encode()
        for line in render(shown, Screen(80)):
            assert not re.search(r"[\x00-\x1f\x7f\u202a-\u202e]", line)


@pytest.mark.parametrize("start", ["=1+1", "+1", "-1", "@x", "\uff1d1+1", "\uff20x"])
def test_no_cell_of_the_csv_is_a_formula(start: str) -> None:
    results = hostile(start)
    text = to_csv(make(results, compare(results)))
    assert f"'{start}" in text and not re.search(rf"(^|,)\"?{re.escape(start)}", text, re.MULTILINE)


def test_a_withheld_report_is_escaped_too() -> None:
    stop = FindingResult(EVIL, "stop_loss", EVIL, EVIL, T0, None, None, None, None)
    results = replace(hostile(EVIL), findings=(stop,))
    Page(html.render(document(make(results, None))))


def test_empty_one_armed_and_uncontrasted_campaigns_have_a_page() -> None:
    for results in (some_results([]), a_campaign(tasks=2, arms=("plain",), replicates=1, whole=True)):
        made = make(results, compare(results))
        assert "nothing is compared" in whole(results) and "nothing is compared" in html.render(page(made))


def test_templates_ship_with_the_package() -> None:
    """They lie inside the package, which is what the wheel takes whole, and are found from there in an editable install, too."""
    assert html.TEMPLATES.parent == Path(marathond.report.__file__).parent
    assert {path.name for path in html.TEMPLATES.iterdir()} == {"report.html.j2", "figures.html.j2", "report.css"}


def test_a_solved_cell_whose_time_nobody_knows_is_told_beside_the_curve_that_leaves_it_out() -> None:
    cells = [a_cell("t", "one", replicate, 1.0, agent_s=None if replicate == 1 else 60.0) for replicate in range(1, 5)]
    cells += [a_cell("t", "two", replicate, 1.0, agent_s=60.0) for replicate in range(1, 5)]
    results = some_results(cells)
    (panels,) = [block for block in budget_panels(compare(results), [results]) if isinstance(block, Panels)]
    assert [panel.text for panel in panels.panels] == [
        "75 % solved in the end, and 1 cell more after a time that is not known",
        "100 % solved in the end",
    ]
