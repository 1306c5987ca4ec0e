"""A start with another engine is refused while anything of ours may be on the first: there, every container would look gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ledgers import ENGINE, admit, bring_to, cell, fill, let_go, memory_ledger

from marathond.core.errors import Refused
from marathond.ledger.verbs import networks
from marathond.service.engine_choice import refuse_other_engine, same_engine

OLD, NEW = "tcp://10.0.0.1:2375", "tcp://10.0.0.2:2375"


@pytest.fixture
def c() -> Iterator[sqlite3.Connection]:
    made = memory_ledger()
    fill(made)
    use(made, OLD)
    yield made
    made.close()


def use(c: sqlite3.Connection, url: str, engine: str = ENGINE) -> None:
    networks.set_pool(c, engine, url=url, mode="explicit", range="198.19.0.0/16", prefix=28, cap=64, margin=0)


def test_another_url_is_refused_while_a_container_may_be_there_and_names_both(c: sqlite3.Connection) -> None:
    running = bring_to(c, cell(c, "rust", "plain"), "scored")  # at rest, but its container was not seen gone
    with pytest.raises(Refused) as caught:
        refuse_other_engine(c, ENGINE, NEW)
    said = str(caught.value)
    assert OLD in said and NEW in said and "engine.name" in said and "1 containers and 0 networks" in said and "\n" not in said
    refuse_other_engine(c, ENGINE, OLD)
    let_go(c, running)
    refuse_other_engine(c, ENGINE, NEW)


def test_another_url_is_refused_while_a_lease_lives(c: sqlite3.Connection) -> None:
    admit(c, cell(c, "zstd", "plain"))
    with pytest.raises(Refused, match="0 containers and 1 networks"):
        refuse_other_engine(c, ENGINE, NEW)


def test_a_ledger_that_never_knew_the_url_lets_any_pass(c: sqlite3.Connection) -> None:
    use(c, "")
    bring_to(c, cell(c, "zstd", "plain"), "running")
    refuse_other_engine(c, ENGINE, NEW)
    assert networks.engine_url(c, "never-seen") == ""


def test_another_name_is_refused_while_trials_run_on_the_first(c: sqlite3.Connection) -> None:
    """Recovery would ask the new engine about the old one's containers just the same."""
    refuse_other_engine(c, "second", NEW)
    running = bring_to(c, cell(c, "zstd", "plain"), "running")
    with pytest.raises(Refused) as caught:
        refuse_other_engine(c, "second", NEW)
    assert f"1 live trials run on engine {ENGINE} ({OLD})" in str(caught.value)
    assert running.trial_id == 1


def test_two_spellings_of_one_socket_are_one_engine(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "var").symlink_to(tmp_path / "run")
    assert same_engine(f"unix://{tmp_path}/run/d.sock", f"unix://{tmp_path}/var/d.sock")
    assert same_engine(f"unix://{tmp_path}/run/d.sock", f"unix://{tmp_path}/run/../run/d.sock")
    assert same_engine("tcp://Host:2375", "http://host:2375/")
    assert not same_engine(f"unix://{tmp_path}/run/d.sock", f"unix://{tmp_path}/run/e.sock")
    assert not same_engine("tcp://host:2375", "tcp://host:2376")
