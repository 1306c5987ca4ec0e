"""What docs/ tells a person to type exists: commands, options, keys of the configuration, columns of the views."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from marathond.cli.app import app
from marathond.cli.grammar import PARTS
from marathond.service.settings import load
from tests.support import ledgers as have

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md"))
GRAMMAR = typer.main.get_group(app)
assert PARTS, "their import puts the commands into the grammar"
SQL = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "sql.md").read_text(), re.DOTALL)
QUERIES = json.loads((ROOT / "docs" / "datasette.json").read_text())["databases"]["ledger"]["queries"]


def typed(page: Path) -> Iterator[list[str]]:
    text = page.read_text()
    for words in (*re.findall(r"`marathonctl ([^`]+)`", text), *re.findall(r"^    marathonctl (.+)$", text, re.MULTILINE)):
        if words[0].islower():
            yield shlex.split(words, comments=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_and_option_exists(page: Path) -> None:
    for words in typed(page):
        group: TyperGroup = GRAMMAR
        command, *rest = words
        assert command in group.commands, words
        while isinstance(inner := group.commands[command], TyperGroup) and rest and rest[0] in inner.commands:
            group, (command, *rest) = inner, rest
        known = {option for each in group.commands[command].params for option in (*each.opts, *each.secondary_opts)}
        given = rest[: rest.index("--")] if "--" in rest else rest
        assert {word for word in given if word.startswith("-")} <= known, words


def test_pages_name_commands() -> None:
    assert len(PAGES) > 3 and sum(len(list(typed(page))) for page in PAGES) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.fixture(scope="module")
def ledger() -> Iterator[sqlite3.Connection]:
    c = have.memory_ledger()
    have.fill(c)
    have.begin(c)
    have.bring_to(c, have.cell(c), "scored")
    yield c
    c.close()


@pytest.mark.parametrize("sql", [*SQL, *(query["sql"] for query in QUERIES.values())])
def test_each_query_is_answered(ledger: sqlite3.Connection, sql: str) -> None:
    ledger.execute(sql, {"trial": "t0001"} if ":trial" in sql else ()).fetchall()


def test_every_published_view_is_named() -> None:
    c = have.memory_ledger()
    views = {row[0] for row in c.execute("SELECT name FROM sqlite_schema WHERE type = 'view' AND name LIKE 'v\\_%' ESCAPE '\\'")}
    assert views == set(re.findall(r"`(v_[a-z_]+)`", (ROOT / "docs" / "sql.md").read_text()))


def test_every_knob_of_the_guide_is_a_key_of_the_configuration() -> None:
    example = (ROOT / "config.example.toml").read_text()
    table = (ROOT / "docs" / "migrate.md").read_text().split("## Variables")[1].split("##")[0]
    keys = [
        key
        for cell in re.findall(r"^\| `[A-Z].*?\| (.*?) \|", table, re.MULTILINE)
        for key in re.findall(r"`(?:\[[^\]]+\] )?([a-z_]+)`", cell)
    ]
    assert len(keys) > 10
    for key in keys:
        assert re.search(rf"^#?{key} = ", example, re.MULTILINE), key


def arm_example(tmp_path: Path) -> tuple[str, str, dict[str, object]]:
    """run.sh, solve.sh and the rows of the arm of docs/add-an-arm.md."""
    text = (ROOT / "docs" / "add-an-arm.md").read_text()
    run, solve = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    codex, own = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert len((codex + own + run + solve).splitlines()) < 40
    return run, solve, tomllib.loads(codex + own)["arms"]


def test_the_arms_of_the_example_load(tmp_path: Path) -> None:
    _, _, arms = arm_example(tmp_path)
    text = (ROOT / "docs" / "add-an-arm.md").read_text()
    rows = "".join(re.findall(r"```toml\n(.*?)```", text, re.DOTALL))
    provider = '[codex]\nmodel = "m"\n[gateway.routes.main]\nbase_url = "https://api.example.org/v1"\nkey_file = "key"\n'
    (tmp_path / "key").write_text("k")
    (tmp_path / "marathond.toml").write_text(f'[campaign]\nname = "x"\ntasks = ["t"]\n{rows}{provider}')
    assert set(load(tmp_path / "marathond.toml", environ={}, cwd=tmp_path, uid=0).arm_names) == set(arms) == {"goal-short", "twice"}
