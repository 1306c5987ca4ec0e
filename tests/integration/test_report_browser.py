"""The report in a real browser without a network: it asks for nothing, complains of nothing, fits a desk's screen, a phone and paper."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from marathond.core.compare import compare
from marathond.core.results import FindingResult, Results
from marathond.report import html
from marathond.report.blocks import Document
from marathond.report.document import document, make
from marathond.report.page import page
from tests.support import browser
from tests.support.some_results import T0, a_campaign

WIDTHS = (1280, 390)
FITS = "[document.documentElement.scrollWidth, innerWidth]"
# What sticks out of the window and does not lie in a box that scrolls by itself.
STICKS_OUT = """[...document.querySelectorAll('main *, header *, nav *')].filter(e => {
    if (e.closest('.scroll') && !e.classList.contains('scroll')) return false;
    if (e.closest('svg')) return false;
    const box = e.getBoundingClientRect();
    return box.width > 0 && (box.right > innerWidth + 1 || box.left < -1);
}).map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 60))"""
CUT = """[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1
    && getComputedStyle(e).overflowX !== 'auto').length"""
SMALLEST = (
    "Math.min(...[...document.querySelectorAll('p, td, th, .label, .value, .x span')].map(e => parseFloat(getComputedStyle(e).fontSize)))"
)
OVERFLOWS = "[...document.querySelectorAll('.row > span')].filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
GROUND = "getComputedStyle(document.body).backgroundColor"


def long_names() -> Results:
    """Names as long as they are shown, without a place to break, thirteen arms."""
    arms = [f"harness-{number:02d}-{'m' * 90}" for number in range(1, 14)]
    return replace(a_campaign(tasks=6, arms=arms, replicates=2), contrasts=())


def two_tasks() -> Results:
    """So few that intervals go beyond every axis: with one degree of freedom t is 12.7."""
    few = a_campaign(tasks=2, replicates=2)
    arms = [arm.name for arm in few.arms]
    by_task = dict(zip(few.tasks, (0.9, 0.2), strict=True))
    cells = [replace(cell, reward=by_task[cell.task] if cell.arm == arms[0] else 0.1, partial=by_task[cell.task]) for cell in few.cells]
    return replace(few, cells=tuple(cells), contrasts=())


def stopped() -> Results:
    return replace(
        a_campaign(), findings=(FindingResult("infra_disparity", "stop_loss", "goal", "x " * 400, T0, None, None, None, "some"),)
    )


def whole(results: Results) -> Document:
    return document(make(results, compare(results)))


def one_page(results: Results) -> Document:
    return page(make(results, compare(results)))


CASES: dict[str, Callable[[], Document]] = {
    "whole": lambda: whole(a_campaign()),
    "page": lambda: one_page(a_campaign()),
    "long-names": lambda: whole(long_names()),
    "page-of-long-names": lambda: one_page(long_names()),
    "withheld": lambda: whole(stopped()),
    "intervals-beyond-the-axis": lambda: whole(two_tasks()),
}


@pytest.mark.usefixtures("chromium")
@pytest.mark.parametrize("case", CASES)
def test_it_fits_asks_for_nothing_and_complains_of_nothing(case: str, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(html.render(CASES[case]()))

    async def look() -> None:
        async with browser.browser() as tab:
            grounds = set()
            for width in WIDTHS:
                for dark in (False, True):
                    seen = await tab.open(file, width=width, dark=dark)
                    assert seen.console == [] and seen.requests == []
                    needed, there = await tab.evaluate(FITS)
                    assert there == width and needed <= there, f"{case} at {width}: {await tab.evaluate(STICKS_OUT)}"
                    assert await tab.evaluate(STICKS_OUT) == []
                    assert await tab.evaluate(CUT) == 0
                    assert await tab.evaluate(OVERFLOWS) == []
                    assert await tab.evaluate(SMALLEST) >= 9
                    grounds.add(await tab.evaluate(GROUND))
            assert len(grounds) == 2  # light and dark

    anyio.run(look)


@pytest.mark.usefixtures("chromium")
@pytest.mark.parametrize("case", ["page", "page-of-long-names"])
def test_the_one_page_form_is_one_page_on_paper(case: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(html.render(CASES[case]()))

    async def look() -> bytes:
        async with browser.browser() as tab:
            await tab.open(file, width=1280)
            return await tab.printed()

    assert len(re.findall(rb"/Type\s*/Page\b", anyio.run(look))) == 1


@pytest.mark.usefixtures("chromium")
def test_what_is_folded_away_is_printed(tmp_path: Path) -> None:
    """A reader of paper cannot unfold anything."""
    file = tmp_path / "report.html"
    file.write_text(html.render(whole(a_campaign())))
    shown = "[...document.querySelectorAll('details:not([open]) table')].map(e => e.checkVisibility())"

    async def look() -> tuple[list[bool], list[bool]]:
        async with browser.browser() as tab:
            await tab.open(file, width=1280)
            folded = await tab.evaluate(shown)
            await tab.call("Emulation.setEmulatedMedia", media="print")
            return folded, await tab.evaluate(shown)

    folded, printed = anyio.run(look)
    assert len(folded) > 4 and not any(folded) and all(printed)


@pytest.mark.usefixtures("chromium")
def test_these_looks_can_fail(tmp_path: Path) -> None:
    bad = "<html><head><link rel='icon' href='data:,'></head><body><main><p style='width:3000px;font-size:4px'>x</p></main>"
    bad += "<img src='http://192.0.2.1/x.png'><script>console.error('told'); throw new Error('broken')</script></body></html>"
    file = tmp_path / "bad.html"
    file.write_text(bad)

    async def look() -> None:
        async with browser.browser() as tab:
            seen = await tab.open(file, width=1280)
            assert any("told" in line for line in seen.console) and any("broken" in line for line in seen.console)
            assert seen.requests == ["http://192.0.2.1/x.png"]
            needed, there = await tab.evaluate(FITS)
            assert needed > there and await tab.evaluate(STICKS_OUT) == ["P.: x"] and await tab.evaluate(SMALLEST) < 9

    anyio.run(look)
