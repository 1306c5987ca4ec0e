"""The schema of a configuration file agrees with the loader: what loads is right by it, and it refuses what the loader refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from marathond.cli.schema_config import config_schema
from marathond.core.errors import ConfigError
from marathond.demo import run as demo
from marathond.service.settings import load
from tests.support.published import wrong

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config.example.toml"
VALIDATOR = Draft202012Validator(config_schema())
MINIMAL = """[campaign]
name = "first"
tasks = ["tasks/*"]
[arms.nop]
kind = "nop"
"""


def faults(text: str) -> list[str]:
    return [error.json_path for error in VALIDATOR.iter_errors(tomllib.loads(text))]


def refused_by_the_loader(folder: Path, text: str) -> bool:
    path = folder / "marathond.toml"
    path.write_text(text)
    try:
        load(path, environ={}, cwd=folder, uid=0)
    except ConfigError:
        return True
    return False


def test_the_example_is_right_as_it_is_and_with_every_knob_written_out() -> None:
    text = EXAMPLE.read_text()
    assert faults(text) == []
    lines = [line[1:] if line.startswith("#") and line[1:2].isalpha() and " = " in line else line for line in text.splitlines()]
    spoken = "\n".join(lines)
    try:
        data = tomllib.loads(spoken)
    except tomllib.TOMLDecodeError as error:
        pytest.fail(f"the example's commented knobs are no TOML: {error}")
    wrong_keys = {error.json_path for error in VALIDATOR.iter_errors(data)}
    assert not wrong_keys, wrong_keys


def test_the_example_names_its_schema_for_editors() -> None:
    """Even Better TOML and taplo read this line; the path is relative to the file."""
    first = EXAMPLE.read_text().splitlines()[0]
    directive, _, place = first.partition(" ")
    assert directive == "#:schema" and (EXAMPLE.parent / place).resolve() == ROOT / "docs" / "schema" / "config.schema.json"
    assert (EXAMPLE.parent / place).is_file()


def test_the_demo_is_right() -> None:
    text = demo.CONFIG.format(name="demo", samples="/somewhere/samples", python="/somewhere/python", provider="http://127.0.0.1:1")
    assert faults(text) == []


def test_a_configuration_that_only_the_loader_takes_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every configuration that any test loads is held against the schema (tests/conftest.py); the look itself can fail."""
    monkeypatch.setattr("tests.support.published.wrong", lambda _name, _value: ["$.campaign: strange"])
    with pytest.raises(AssertionError, match=r"the published schema does not: \['\$.campaign: strange'\]"):
        refused_by_the_loader(tmp_path, f"# {tmp_path}\n{MINIMAL}[campaign.x]\n".replace("[campaign.x]\n", f'user = "{tmp_path.name}"\n'))


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("[admission]\nconcurency = 3\n", "$.admission"),
        ("[admision]\n", "$"),
        ('[admission]\nconcurrency = "3"\n', "$.admission.concurrency"),
        ("[admission]\nconcurrency = 0\n", "$.admission.concurrency"),
        ("[admission]\nconcurrency = -1\n", "$.admission.concurrency"),
        ("[admission]\nconcurrency = 1001\n", "$.admission.concurrency"),
        ("[admission]\nconcurrency = 2.5\n", "$.admission.concurrency"),
        ("[admission]\ncpu_overcommit = 0\n", "$.admission.cpu_overcommit"),
        ('[admission]\norder = "random"\n', "$.admission.order"),
        ("[limits]\nagent_timeout_s = -5\n", "$.limits.agent_timeout_s"),
        ("[limits]\nagent_timeout_s = true\n", "$.limits.agent_timeout_s"),
        ("[limits]\npids = -1\n", "$.limits.pids"),
        ('[limits]\nafter_agent = "nothing"\n', "$.limits.after_agent"),
        ("[network]\nprefix = 40\n", "$.network.prefix"),
        ('[network]\nmode = "automatic"\n', "$.network.mode"),
        ('[engine]\nname = "Not A Slug"\n', "$.engine.name"),
        ('[engine]\nurl = ""\n', "$.engine.url"),
        ('[engine]\nbuild_args = { "1X" = "y" }\n', "$.engine.build_args"),
        ("[engine]\nbuild_args = { X = 1 }\n", "$.engine.build_args.X"),
        ('[daemon]\nlog_level = "loud"\n', "$.daemon.log_level"),
        ("[daemon]\nstate_dir = 7\n", "$.daemon.state_dir"),
        ('[arms.other]\nkind = "codec"\n', "$.arms.other.kind"),
        ("[arms.other]\n", "$.arms.other"),
        ('[arms.other]\nkind = "nop"\ncwd = "relative"\n', "$.arms.other.cwd"),
        ('[arms."Not A Slug"]\nkind = "nop"\n', "$.arms"),
        ('[arms.other]\nkind = "nop"\nmounts = [{ source = "/x" }]\n', "$.arms.other.mounts[0]"),
        ("[money]\nprices = { m = { input = -1, output = 1 } }\n", "$.money.prices.m.input"),
        ("[page]\nlisten = 8620\n", "$.page.listen"),
    ],
)
def test_a_mistake_is_refused_by_both(tmp_path: Path, more: str, place: str) -> None:
    assert refused_by_the_loader(tmp_path, MINIMAL + more)
    assert any(found == place for found in faults(MINIMAL + more)), faults(MINIMAL + more)


def test_what_is_left_out_is_refused_by_both(tmp_path: Path) -> None:
    for text in ("", '[campaign]\nname = "c"\ntasks = ["t"]\n', '[campaign]\ntasks = ["t"]\n[arms.x]\nkind = "nop"\n', "[arms]\n"):
        assert refused_by_the_loader(tmp_path, text) and faults(text), text
    assert not refused_by_the_loader(tmp_path, MINIMAL) and faults(MINIMAL) == []


def test_only_what_no_file_must_say_may_be_left_out() -> None:
    schema = config_schema()
    assert schema["required"] == ["campaign", "arms"]
    assert "required" not in schema["$defs"]["Daemon"] and schema["$defs"]["Campaign"]["required"] == ["name", "tasks"]


def test_no_null_and_no_title_is_left_in_it() -> None:
    """TOML knows no null."""
    text = str(config_schema())
    assert "'null'" not in text and "'default': None" not in text
    assert wrong("config", tomllib.loads(MINIMAL)) == []
