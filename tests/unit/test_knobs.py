"""Operational knobs: what `set` accepts is what the file accepts, in the same words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marathond.core.errors import ConfigError
from marathond.service.knobs import KNOBS, KnobValue, find_knob, parse_setting
from marathond.service.sections import Admission, Network
from marathond.service.settings import load

TEXTS = st.one_of(
    st.integers(-5, 3000).map(str),
    st.floats(-2, 100).map(lambda value: repr(round(value, 3))),
    st.sampled_from(["nan", "inf", "", "x", "true", "1e3", "arm-major", "ARM-MAJOR", "task-major", " 8 "]),
)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("concurrency", "8", 8),
        ("admission.concurrency", " 8 ", 8),
        ("cap", "31", 31),
        ("order", "arm-major", "arm-major"),
        ("disk_floor_percent", "10", 10.0),
        ("breaker_pause_s", "60.5", 60.5),
    ],
)
def test_settings_that_are_fine(key: str, text: str, value: KnobValue) -> None:
    parsed = parse_setting(key, text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("key", "text", "line"),
    [
        ("concurrency", "0", "admission.concurrency = 0: must be at least 1"),
        ("concurrency", "1.5", "admission.concurrency = 1.5: must be a whole number"),
        ("concurrency", "many", "admission.concurrency = many: must be a whole number"),
        ("cpu_overcommit", "0", "admission.cpu_overcommit = 0: must be greater than 0"),
        ("cpu_overcommit", "inf", "admission.cpu_overcommit = inf: must be a finite number"),
        ("order", "task-majr", "must be one of replicate-major, arm-major, task-major; did you mean task-major?"),
        ("concurency", "8", "concurency: not a knob that can be set while running; did you mean concurrency?"),
        ("agent_timeout_s", "8", "agent_timeout_s: not a knob that can be set while running"),
        ("daemon.state_dir", "8", "not a knob that can be set while running; knobs: cap, margin, concurrency, order"),
    ],
)
def test_settings_that_are_not(key: str, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_setting(key, text)
    assert line in str(caught.value)


def test_short_names_are_unambiguous() -> None:
    assert len({key.rpartition(".")[2] for key in KNOBS}) == len(KNOBS)
    assert find_knob("margin").key == "network.margin"


def test_every_default_is_the_models_and_lies_in_its_own_range() -> None:
    models = {"admission": Admission(), "network": Network()}
    for knob in KNOBS.values():
        section, _, key = knob.key.partition(".")
        assert getattr(models[section], key) == knob.default
        assert type(getattr(models[section], key)) is type(knob.default) or knob.choices
        assert knob.problem(knob.default) is None


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("knobs") / "c.toml"
    path.write_text('[campaign]\nname = "c"\ntasks = ["t"]\n[arms.nop]\nkind = "nop"\n')
    return path


@given(st.sampled_from(sorted(KNOBS)), TEXTS)
def test_set_and_the_settings_agree_on_every_text(config: Path, key: str, text: str) -> None:
    try:
        value: object = parse_setting(key, text)
    except ConfigError as error:
        value = error.expected
    try:
        settings = load(config, {key: text.strip()}, environ={}, uid=0)
    except ConfigError as error:
        assert error.expected == value
    else:
        section, _, field = key.partition(".")
        assert getattr(getattr(settings, section), field) == value


@pytest.mark.parametrize("module", ["marathond.service.knobs", "marathond.cli.locate"])
def test_the_quick_commands_load_neither_pydantic_nor_the_engine(module: str) -> None:
    probe = f"import sys, {module}; print([name for name in ('pydantic', 'pydantic_core', 'aiodocker', 'aiohttp') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
