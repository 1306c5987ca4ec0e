"""What `marathonctl set` recorded is what commands that look ahead take, and they say whose word it is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.core.text import when
from marathond.ledger.verbs import settings as verbs
from tests.support.cli_rig import Rig, living_rig
from tests.support.rig import make_task

AT = 1_780_000_000_000

CONFIG = """[campaign]
name = "{campaign}"
tasks = ["tasks/*"]
replicates = 6
[engine]
url = "unix://{folder}/none.sock"
[admission]
cpu_overcommit = 2
[arms.nop]
kind = "nop"
[arms.mine]
kind = "command"
argv = ["true"]
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        write_config(rig, "first")
        make_task(rig.state_dir / "tasks", "one")
        yield rig


def write_config(rig: Rig, campaign: str) -> None:
    (rig.state_dir / "marathond.toml").write_text(CONFIG.format(campaign=campaign, folder=rig.state_dir))


def turn(rig: Rig, key: str, new: object) -> None:
    """As the daemon writes it down."""
    with rig.sql() as c:
        verbs.set_value(c, key, old=4, new=new, author="ana", reason="host shared", now_ms=AT)


def origin(rig: Rig, key: str) -> str:
    (line,) = [line for line in rig.ask("config", "show", "--origin").splitlines() if line.startswith(f"{key} = ")]
    return " ".join(line.split())


BY_ANA = f"set by ana at {when(AT)}, until marathonctl set concurrency=default"


def test_plan_takes_what_was_set_and_says_so_in_every_campaign_of_the_ledger(rig: Rig) -> None:
    assert "4 at one time" in rig.run("plan").out and "set by" not in rig.run("plan").out
    turn(rig, "admission.concurrency", 3)
    turn(rig, "admission.order", "task-major")
    turn(rig, "network.cap", 2)
    turn(rig, "knob.of_another_version", 1)
    for campaign in ("first", "later"):
        write_config(rig, campaign)
        said = rig.run("plan").out.splitlines()
        assert said[1].endswith(", 3 at one time · networks 0 at one time, cap 2") and said[2].startswith("order task-major, seed 1")
        assert f"admission.concurrency = 3: {BY_ANA}; configured: 4" in said
        assert not [line for line in said if "another_version" in line]
    made = json.loads(rig.run("plan", "--json").out)
    assert (made["concurrency"], made["networks_cap"], made["order"]) == (3, 2, "task-major")
    expected = {"key": "admission.concurrency", "value": 3, "configured": 4, "author": "ana", "at_ms": AT, "reason": "host shared"}
    assert expected in made["turned"]
    turn(rig, "admission.concurrency", None)
    assert "4 at one time" in rig.run("plan").out


def test_config_show_names_who_set_a_value_and_what_the_configuration_has(rig: Rig) -> None:
    assert origin(rig, "admission.concurrency") == "admission.concurrency = 4 # default [live]"
    turn(rig, "admission.concurrency", 3)
    turn(rig, "admission.cpu_overcommit", 1.5)
    assert origin(rig, "admission.concurrency") == f"admission.concurrency = 3 # {BY_ANA}; configured: 4 (default) [live]"
    assert origin(rig, "admission.cpu_overcommit").endswith("set cpu_overcommit=default; configured: 2.0 (marathond.toml:8) [live]")
    assert origin(rig, "admission.passes") == "admission.passes = 3 # default [live]"
    bare = rig.run("config", "show")
    assert "\nadmission.concurrency = 3\n" in bare.out
    names = "admission.concurrency, admission.cpu_overcommit"
    assert bare.err == f"note: set in the ledger, not in the configuration: {names} (--origin tells by whom)\n"
    shown = json.loads(rig.ask("config", "show", "--json"))
    assert shown["admission.concurrency"] == {"value": 3, "origin": f"{BY_ANA}; configured: 4 (default)", "change": "live"}
    turn(rig, "admission.concurrency", None)
    assert origin(rig, "admission.concurrency") == "admission.concurrency = 4 # default [live]"


def test_without_a_ledger_nothing_was_set_and_one_that_cannot_be_read_is_told(rig: Rig) -> None:
    turn(rig, "admission.concurrency", 3)
    rig.ledger.write_bytes(b"no ledger at all" * 64)
    for argv in (("config", "show", "--origin"), ("plan",)):
        said = rig.run(*argv)
        assert [line for line in said.err.splitlines() if line.startswith("note: whether marathonctl set has turned a knob is unknown: ")]
    Path(rig.ledger).unlink()
    assert rig.run("config", "show").err == "" and "4 at one time" in rig.run("plan").out
