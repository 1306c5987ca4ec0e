"""The page in a real browser: it keeps itself up to date and what one is doing, fits a phone, goes by keys, says when nobody answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest

from marathond.core.names import trial_label
from marathond.service.doctor.scratch import Scratch
from marathond.service.page import keeper
from marathond.service.page.address import Port
from tests.support import browser
from tests.support.page_house import conversation, half_done, log_of, place_of, served, trouble

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("chromium")]

FITS = "document.documentElement.scrollWidth <= innerWidth"
SMALL = """[...document.querySelectorAll('a, summary')].filter(e => e.offsetParent && !e.closest('p, li') &&
    (e.getBoundingClientRect().height < 18 || e.getBoundingClientRect().width < 18)).map(e => e.outerHTML.slice(0, 80))"""
UNNAMED = """[...document.querySelectorAll('a, [role=img], [role=region], svg, table')].filter(e => {
    if (e.tagName === 'TABLE') return !e.querySelector('thead th[scope=col]') || [...e.querySelectorAll('th')].some(h => !h.scope);
    return !(e.getAttribute('aria-label') || (document.getElementById(e.getAttribute('aria-labelledby')) || e).textContent.trim());
}).map(e => e.outerHTML.slice(0, 120))"""
# Contrast of every text against what really lies behind it (WCAG 2.2, 1.4.3): 4.5 to 1, large text 3 to 1.
PALE = """(() => {
    const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
    const ground = e => {
        for (; e; e = e.parentElement) {
            const c = rgb(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] > 0) return c;
        }
        return [255, 255, 255];
    };
    const pale = [];
    for (const e of document.querySelectorAll('body *')) {
        const speaks = [...e.childNodes].some(n => n.nodeType === 3 && n.nodeValue.trim());
        if (!speaks || !e.getClientRects().length || e.closest('.hidden, .skip')) continue;
        const style = getComputedStyle(e), a = light(rgb(style.color)), b = light(ground(e));
        const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
        const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
        if (ratio < (large ? 3 : 4.5)) pale.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)} ${e.textContent.slice(0, 40)}`);
    }
    return pale;
})()"""
ACTIVE = "document.activeElement.getAttribute('href')"


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks as often as a browser asks, so that a test does not wait for the next one."""
    monkeypatch.setattr(keeper, "LEAST_S", 0.5)
    monkeypatch.setattr(keeper, "SHARE", 1e9)


@pytest.fixture
def house() -> Iterator[Scratch]:
    with half_done() as scratch:
        yield scratch


async def until(tab: browser.Tab, script: str) -> Any:
    with anyio.fail_after(120):
        while True:
            try:
                if value := await tab.evaluate(script):
                    return value
            except RuntimeError as error:
                # A page that just gives way to the next one takes along what it was asked: "Inspected target navigated or closed", …
                if not any(words in str(error) for words in ("navigated or closed", "execution context", "Execution context")):
                    raise
            await asyncio.sleep(0.1)


async def key(tab: browser.Tab, name: str) -> None:
    for kind in ("rawKeyDown", "keyUp"):
        codes = {"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "ArrowDown": 40, "ArrowUp": 38, "Home": 36, "End": 35}
        await tab.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=codes[name])


async def test_it_is_sound_at_every_width_and_shade_well_and_in_trouble(house: Scratch) -> None:
    scored = int(house.c.execute("SELECT max(trial_id) FROM trial WHERE state = 'scored'").fetchone()[0])
    log_of(house, scored, "agent/output.txt", "w" * 3_000 + "\nthe end\n")
    async with served(place_of(house, beat=time.monotonic)) as url, browser.browser() as tab:
        for bad in (False, True):
            if bad:
                trouble(house)
                await asyncio.sleep(0.6)
            for path in ("/", f"/trial/{trial_label(scored)}"):
                for width, dark in ((1280, bad), (360, not bad)):
                    seen = await tab.open(url + path, width=width, dark=dark)
                    what = (path, width, dark, bad)
                    assert seen.console == [], (what, seen.console)
                    assert all(each.startswith(url) for each in seen.requests), what
                    assert await tab.evaluate(FITS), what
                    assert await tab.evaluate(PALE) == [], what
                    assert await tab.evaluate(UNNAMED) == [] and await tab.evaluate(SMALL) == [], what
            word = await tab.evaluate("(async () => (await (await fetch('/')).text()).match(/data-health=\"(\\w+)\"/)[1])()")
            assert word == ("degraded" if bad else "healthy")


async def test_a_long_path_is_its_end_and_whole_for_who_points_at_it(house: Scratch) -> None:
    whole = f"/srv/{'a-folder-of-no-end-' * 9}/marathond/state"
    house.observe("disk", [{"path": path, "free_bytes": 1, "total_bytes": size} for path, size in ((whole, 3), ("/", 2))])
    house.commit()
    tile = "[...document.querySelectorAll('.tiles > div')].find(e => e.firstChild.textContent === 'Disk')"
    async with served(place_of(house)) as url, browser.browser() as tab:
        for width in (1280, 390, 320):
            await tab.open(f"{url}/", width=width)
            assert await tab.evaluate(f"{tile}.querySelector('dd span').textContent") == "at …/marathond/state"
            assert await tab.evaluate(f"{tile}.querySelector('dd span').title") == whole
            assert await tab.evaluate(FITS) and await tab.evaluate(f"{tile}.scrollWidth <= {tile}.clientWidth"), width
            assert await tab.evaluate(f"{tile}.querySelector('dd span').getClientRects().length <= 3"), "no column of letters"


async def test_it_keeps_itself_up_to_date_and_what_one_is_doing(house: Scratch) -> None:
    async with served(place_of(house)) as url, browser.browser() as tab:
        await tab.open(f"{url}/", width=1280, height=500)
        await tab.evaluate("window.marked = 1, document.querySelector('#cells a').focus(), scrollTo(0, 600)")
        await tab.evaluate("getSelection().selectAllChildren(document.querySelector('#arms tbody th'))")
        before = await tab.evaluate(f"[{ACTIVE}, scrollY, String(getSelection()), document.querySelector('#cells').textContent]")
        assert before[1] > 300 and before[2] == "plain"
        house.trial(task="decoder", arm="goal", replicate=3, state="running")
        trouble(house)
        await until(tab, "document.querySelector('#head h1').dataset.health === 'degraded'")
        assert "lease_leaked" in await until(tab, "document.querySelector('#todo').textContent")
        after = await tab.evaluate(f"[{ACTIVE}, scrollY, String(getSelection()), document.querySelector('#cells').textContent]")
        assert [after[0], after[2]] == [before[0], before[2]] and after[3] != before[3]
        assert await tab.evaluate("window.marked") == 1, "nothing was loaded again"
        assert (await tab.evaluate("document.getElementById('say').textContent")).startswith("▲ degraded"), "a reader is told"
        assert (await tab.evaluate("document.title")).startswith("▲ degraded"), "and who has it in another tab"


async def test_it_says_by_itself_that_nobody_answers_and_that_somebody_does_again(house: Scratch) -> None:
    async with AsyncExitStack() as stack, browser.browser() as tab:
        url = await stack.enter_async_context(served(place_of(house)))
        await tab.open(f"{url}/", width=360)
        assert await tab.evaluate("document.getElementById('contact').hidden")
        at = await until(tab, "document.getElementById('at').textContent")
        await stack.aclose()
        said = await until(tab, "!document.getElementById('contact').hidden && document.getElementById('contact').textContent")
        assert said.startswith("no contact since 20") and said >= f"no contact since {at}"
        assert await tab.evaluate("document.getElementById('say').textContent") == said and await tab.evaluate(FITS)
        async with served(place_of(house), Port("127.0.0.1", int(url.rpartition(":")[2]))):
            await until(tab, "document.getElementById('contact').hidden")
            assert await tab.evaluate("document.getElementById('say').textContent") == "contact again"


async def test_everything_is_reached_by_keys(house: Scratch) -> None:
    async with served(place_of(house)) as url, browser.browser() as tab:
        await tab.open(f"{url}/", width=1280)
        await key(tab, "Tab")
        assert await tab.evaluate(ACTIVE) == "#main"
        assert await tab.evaluate("document.activeElement.getBoundingClientRect().top >= 0"), "the skip link shows itself"
        assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        stops = []
        for _ in range(80):
            await key(tab, "Tab")
            stops.append(
                await tab.evaluate("document.activeElement.closest('section, header, footer')?.id || document.activeElement.tagName")
            )
            if await tab.evaluate("!!document.activeElement.closest('#cells')"):
                break
        assert "live" in stops and stops[-1] == "grid", stops
        begun = await tab.evaluate(ACTIVE)
        await key(tab, "ArrowRight")
        right = await tab.evaluate(ACTIVE)
        await key(tab, "ArrowDown")
        down = await tab.evaluate("document.activeElement.closest('tr').rowIndex")
        assert right != begun and down == 2
        await key(tab, "ArrowUp")
        await key(tab, "ArrowLeft")
        assert await tab.evaluate(ACTIVE) == begun
        await key(tab, "End")
        assert await tab.evaluate("document.activeElement.closest('td').cellIndex") == 4
        await key(tab, "Tab")
        assert await tab.evaluate("!document.activeElement.closest('#cells')"), "one step leads out of the grid"
        await tab.evaluate("document.querySelector('#cells a').focus()")
        await tab.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
        await until(tab, "location.pathname.startsWith('/trial/t')")


async def test_it_is_whole_without_its_script(house: Scratch) -> None:
    async with served(place_of(house)) as url, browser.browser() as tab:
        await tab.call("Emulation.setScriptExecutionDisabled", value=True)
        await tab.call("Page.navigate", url=f"{url}/")
        text = await until(tab, "document.readyState === 'complete' && document.body.innerText")
        assert "healthy" in text and "t0053" in text and "Tasks × arms" in text
        assert await tab.evaluate("document.querySelector('noscript meta').httpEquiv") == "refresh"
        assert await tab.evaluate("!document.querySelector('#cells a').hasAttribute('tabindex')"), "the tab key visits each cell then"


async def test_a_trials_log_is_at_its_end_and_hostile_words_do_nothing(house: Scratch) -> None:
    live = int(house.c.execute("SELECT min(trial_id) FROM trial WHERE state = 'running'").fetchone()[0])
    path = house.folder / "r" / trial_label(live) / "codex-messages.jsonl"
    path.parent.mkdir(parents=True)
    lines = [f"line {n}" for n in range(100)]
    path.write_text(conversation(*lines, "<img src=x onerror='window.hurt=1'>", "\u202egnp.exe", "x" * 2_000))
    house.finding("x_code", "error", "<script>window.hurt=1</script>", "'\"><svg onload=window.hurt=1>")
    house.commit()
    async with served(place_of(house)) as url, browser.browser() as tab:
        for address in (f"{url}/trial/{trial_label(live)}", f"{url}/"):
            seen = await tab.open(address, width=360)
            assert seen.console == [] and await tab.evaluate("window.hurt === undefined && document.scripts.length === 1")
            assert await tab.evaluate(FITS)
        await tab.open(f"{url}/trial/{trial_label(live)}", width=360)
        log = "document.querySelector('.log').getBoundingClientRect()"
        assert await tab.evaluate("document.querySelector('.log').scrollHeight > document.querySelector('.log').clientHeight")
        assert await tab.evaluate(f"document.querySelector('.log code').getBoundingClientRect().bottom <= {log}.bottom + 1"), (
            "its end is in sight"
        )
        with path.open("a") as file:
            file.write(conversation("a new word").replace('"id": "0"', '"id": "new"'))
        await until(tab, "document.querySelector('.log').textContent.includes('a new word')")
        assert await tab.evaluate(f"document.querySelector('.log code').getBoundingClientRect().bottom <= {log}.bottom + 1")
