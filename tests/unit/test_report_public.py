"""The public table of trials, imported and reported: what is printed is what is known of it, to the digit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from marathond.cli import ctl

TRIALS = Path(__file__).resolve().parents[1] / "data" / "swe-marathon-trials.csv"
ARMS = {
    "Claude Code / Claude Opus 4.8": (26, "100/100", "0.711"),
    "Claude Code / Claude Opus 4.7": (16, "100/100", "0.661"),
    "Codex / GPT-5.5": (12, "100/100", "0.640"),
    "Terminus 2 / Claude Opus 4.7": (11, "100/100", "0.582"),
    "Gemini CLI / Gemini 3.5 Flash": (7, "100/100", "0.372"),
    "Terminus 2 / GPT-5.5": (6, "100/100", "0.443"),
    "Terminus 2 / DeepSeek V4 Pro": (4, "100/100", "0.373"),
    "Terminus 2 / Gemini 3.1 Pro": (4, "100/100", "0.358"),
    "Gemini CLI / Gemini 3.1 Pro": (2, "99/100", "0.408"),
    "Terminus 2 / GLM 5.1": (1, "100/100", "0.292"),
    "Terminus 2 / Kimi K2.6": (0, "100/100", "0.294"),
    "Terminus 2 / MiniMax M2.7": (0, "100/100", "0.137"),
    "Kimi CLI / Kimi K2.6": (0, "100/100", "0.133"),
}
BEST = "Claude Code / Claude Opus 4.8 - Claude Code / Claude Opus 4.7"
KNOWN = (
    *("+0.1000", "[-0.0472, +0.2472]", "0.1713", "0.2500", "0.0703", "0.4531", "exact p 0.0222"),
    *("Cochran-Mantel-Haenszel p 0.0124", "common odds ratio 3.083"),
)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The report as text and as HTML, tags left out."""
    folder = tmp_path_factory.mktemp("public")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
            patch.delenv(name)
        patch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder / "state"))
        patch.setenv("XDG_CONFIG_HOME", str(folder / "none"))
        patch.chdir(folder)
        assert ctl.run(["init"]) == 0
        assert ctl.run(["import", "--csv", str(TRIALS), "--name", "public"]) == 0
        with (folder / "r.txt").open("w") as out:
            patch.setattr("sys.stdout", out)
            assert ctl.run(["report", "--campaign", "public"]) == 0
        patch.undo()
        patch.setenv("MARATHOND_DAEMON__STATE_DIR", str(folder / "state"))
        patch.chdir(folder)
        assert ctl.run(["report", "--html", "r.html"]) == 0
    shown = re.sub(r"<(style|title).*?</\1>", "", (folder / "r.html").read_text(), flags=re.DOTALL)
    yield {"text": (folder / "r.txt").read_text(), "html": unescape(re.sub(r"<[^>]+>", "  ", shown).replace("\n", ""))}


@pytest.mark.parametrize("form", ["text", "html"])
@pytest.mark.parametrize("arm", ARMS)
def test_solved_cells_and_mean_partial_of_each_configuration(reported: dict[str, str], form: str, arm: str) -> None:
    solved, done, partial = ARMS[arm]
    own = reported[form].split("Own means of each arm")[1].split("pass@k")[0]
    row = re.search(rf"(?<![\w-] ){re.escape(arm)}\s+{done}\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)", own)
    assert row is not None and (int(row[1]), row[4]) == (solved, partial)
    assert row[3] == f"{solved / int(done.split('/')[0]):.3f}"


@pytest.mark.parametrize("form", ["text", "html"])
def test_the_two_best_compared_are_as_published(reported: dict[str, str], form: str) -> None:
    after = re.split(rf"(?:## |  ){re.escape(BEST)}\s+not declared", reported[form])
    assert len(after) == 2
    own = after[1][:6000]
    # Text has the tests once, in the comparison's own table, where many arms make a contrast's name two lines.
    tested = own if form == "html" else reported[form].split("# Comparison")[1].split("p (t): ")[0]
    assert [number for number in KNOWN if number not in own + tested] == []
    assert re.search(r"reward\s+1\.42\d\d\s+0\.4531\s+0\.\d{4}\s+7\s+5\s+2\s+0\.0156", own)


def test_where_it_was_read_from_and_what_it_cannot_tell(reported: dict[str, str]) -> None:
    for form in reported.values():
        assert "imported: measured elsewhere" in form and "1299 trials from" in form
        assert "no column test_rate: none of 1299 done cells has a test rate" in form
        assert "Tokens out: not known of any done cell." in form
        assert "when voids were is not known" in reported["html"]
