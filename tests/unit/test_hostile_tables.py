"""Every text of a ledger is hostile, and every command that reads one is run over it.

The twin of that ledger has the same words without their power: what is printed must be the same, letter by letter, so that no layout gives
way either.  Which columns are hostile comes from the schema (tests/support/poison.py).
"""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from marathond.cli import ctl
from marathond.cli.output import display_width
from tests.support.poison import HOSTILE, TAME, hostile_ledger, powers

VIEWS = (
    *("v_cell", "v_trial", "v_event", "v_arm", "v_pair", "v_pool", "v_void", "v_finding", "v_usage"),
    *("v_disclosure", "v_treatment", "v_contrast", "v_archive", "v_prune", "v_verifier_turn"),
)
WIDTH = 80


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str


class Stdout(io.TextIOWrapper):
    """Text and bytes are kept; ``terminal``: it says that it is one."""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal


class Talk:
    """marathonctl, asked over one ledger; ``now`` stands still, so that twins say the same."""

    def __init__(self, words: str, now_ns: int, patch: pytest.MonkeyPatch) -> None:
        self.ledger, self._patch, self._now_ns = hostile_ledger(words, now_ns // 1_000_000), patch, now_ns

    def names(self, sql: str) -> list[str]:
        return [str(row[0]) for row in self.ledger.c.execute(sql).fetchall()]

    def ask(self, argv: Sequence[str], *, terminal: bool = False) -> Said:
        out, err = Stdout(io.BytesIO(), encoding="utf-8"), io.StringIO()
        out.terminal = terminal
        with self._patch.context() as patch:
            patch.setenv("MARATHOND_DAEMON__STATE_DIR", str(self.ledger.folder))
            patch.setenv("XDG_CONFIG_HOME", str(self.ledger.folder / "none"))
            patch.setenv("NO_COLOR", "1")
            patch.setenv("COLUMNS", str(WIDTH))
            patch.chdir(self.ledger.folder)
            patch.setattr(time, "time_ns", lambda: self._now_ns)
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = ctl.run(argv)
            out.flush()
        data = out.buffer
        assert isinstance(data, io.BytesIO)
        texts = (data.getvalue().decode(), err.getvalue())
        return Said(code, *(text.replace(str(self.ledger.folder), "FOLDER") for text in texts))

    def texts(self) -> dict[str, list[str]]:
        """Commands whose words are the same for both twins, by a name without any of those words."""
        arms = self.names("SELECT name FROM arm WHERE campaign_id = 1 ORDER BY arm_id")
        run, imported = self.names("SELECT name FROM campaign ORDER BY campaign_id")
        (task, *_) = self.names("SELECT name FROM task ORDER BY task_id")
        trials = self.names("SELECT min(trial_id) FROM trial GROUP BY state")
        trials += self.names(
            "SELECT trial_id FROM model_refusal UNION SELECT trial_id FROM imported_trial UNION SELECT trial_id FROM review"
        )
        plain = (
            "status|findings|findings --all|review|arms|disclosures|audit|pool|pool --foreign|notify|ledger check|show t9999|arms show nope"
        )
        plain += "|report|report --page|report --csv|report --columns|report --campaign nope|report --contrast a,b|wait --timeout 0"
        plain += "|status --campaign nope|regrade --dry-run"
        asked = {words: words.split() for words in plain.split("|")}
        asked |= {f"show t{trial}": ["show", f"t{trial}"] for trial in trials}
        asked |= {f"findings {number}": ["findings", number] for number in self.names("SELECT finding_id FROM finding")}
        asked |= {f"review t{trial}": ["review", f"t{trial}"] for trial in self.names("SELECT trial_id FROM review")}
        asked |= {f"arms show {number}": ["arms", "show", arm] for number, arm in enumerate(arms[1:3])}
        asked["arms diff"] = ["arms", "diff", *arms[:2]]
        asked["report --contrast"] = ["report", "--contrast", f"{arms[0]},{arms[1]}"]
        asked["report --against"] = ["report", "--against", imported]
        asked["report of the import"] = ["report", "--campaign", imported]
        asked["report against itself"] = ["report", "--against", run]
        asked["void"] = ["void", "--task", task, "--dry-run", "--reason", "x"]
        return asked


@pytest.fixture(scope="module")
def twins() -> Iterator[tuple[Talk, Talk]]:
    with pytest.MonkeyPatch.context() as patch:
        now_ns = time.time_ns()
        hostile, tame = Talk(HOSTILE, now_ns, patch), Talk(TAME, now_ns, patch)
        yield hostile, tame
        hostile.ledger.close()
        tame.ledger.close()


@pytest.fixture(scope="module")
def hostile(twins: tuple[Talk, Talk]) -> Talk:
    return twins[0]


def test_the_words_have_every_power_and_the_tame_ones_none() -> None:
    assert {"U+0000", "U+001B", "U+009B", "U+202E", "U+2066", "U+000D", "U+0009", "U+007F", "U+2028", "U+FEFF"} <= powers(HOSTILE)
    assert powers(TAME) == set() and "<script>" in TAME and "red" in TAME and "日" in TAME


def test_every_command_says_of_hostile_texts_what_it_says_of_tame_ones(twins: tuple[Talk, Talk]) -> None:
    hostile, tame = twins
    known = tame.texts()
    said = {name: (hostile.ask(argv), tame.ask(known[name])) for name, argv in hostile.texts().items()}
    assert {name: powers(one.out + one.err) for name, (one, _) in said.items() if powers(one.out + one.err)} == {}
    assert [name for name, (one, other) in said.items() if one != other] == []
    assert all(one.out or one.err for one, _ in said.values()) and {one.code for one, _ in said.values()} <= {0, 1, 2, 3, 4, 75}
    refusals = [one.err for one, _ in said.values() if one.code == 2]
    assert len(refusals) >= 4 and all(text.count("\n") == 1 for text in refusals)


def test_on_a_terminal_nothing_steers_it_and_lists_stay_within_it(hostile: Talk) -> None:
    for name, argv in hostile.texts().items():
        if name.partition(" ")[0] not in ("status", "show", "findings", "review", "audit", "report") or "--csv" in argv:
            continue
        said = hostile.ask(argv, terminal=True)
        assert powers(said.out + said.err) == set(), name
        assert [line for line in said.out.splitlines()[1:] if display_width(line) > WIDTH] == [], name


@pytest.mark.parametrize("form", [[], ["--page"]])
def test_html_holds_the_words_as_text_and_nothing_else(hostile: Talk, form: list[str]) -> None:
    said = hostile.ask(["report", "--html", "-", *form])
    assert powers(said.out) == set()
    seen = Tags()
    seen.feed(said.out)
    assert seen.forbidden == [] and "<script>alert(1)</script><!-- ' \" `; DROP TABLE trial; --|&amp;{{7*7}}日" in seen.text


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forbidden: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "img", "iframe", "object", "base") or any(name.startswith("on") for name, _ in attrs):
            self.forbidden.append(tag)

    def handle_comment(self, data: str) -> None:
        self.forbidden.append(f"comment {data}")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_csv_holds_rows_and_no_formula(hostile: Talk) -> None:
    forms = [["report", "--csv"], *(["sql", "--csv", f"SELECT * FROM {view}"] for view in VIEWS)]
    for argv in forms:
        said = hostile.ask(argv)
        assert (said.code, said.err, powers(said.out)) == (0, "", set())
        rows = list(csv.reader(io.StringIO(said.out)))
        assert len(rows) > 1 and {len(row) for row in rows} == {len(rows[0])} and said.out.count("\n") == len(rows), argv
        assert [field for row in rows for field in row if field[:1] in ("=", "+", "@")] == []
        assert any(field.startswith("'=1+") for row in rows for field in row), argv


def test_json_holds_the_words_as_they_are_and_ascii_alone(hostile: Talk) -> None:
    forms = [
        [command, "--json"] for command in ("status", "findings", "review", "arms", "disclosures", "audit", "pool", "notify", "report")
    ]
    forms += [["show", "t2", "--json"], ["sql", "--json", "SELECT detail FROM v_finding"]]
    for argv in forms:
        said = hostile.ask(argv)
        assert said.err == "" and said.out.isascii() and powers(said.out) == set(), argv
        assert any(HOSTILE in each for each in leaves(json.loads(said.out))), argv


def leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("view", VIEWS)
def test_a_table_of_sql_has_a_line_for_each_row_and_columns_that_begin_together(hostile: Talk, view: str) -> None:
    count = int(hostile.names(f"SELECT count(*) FROM {view}")[0])
    said = hostile.ask(["sql", f'SELECT *, 1 AS "\x1b[2Jlast" FROM {view}'])
    header, *rows = said.out.splitlines()
    assert (said.code, powers(said.out), len(rows)) == (0, set(), count) and count
    assert {display_width(row) for row in rows} == {display_width(header)}


def test_the_doctor_says_what_is_hostile_without_its_power(hostile: Talk) -> None:
    said = hostile.ask(["doctor"])
    assert said.code in (0, 1, 4) and powers(said.out + said.err) == set()
