"""config.example.toml documents every knob, and says the truth about it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from marathond.service.knobs import KNOBS
from marathond.service.sections import CODEX_KEYS, DRIVE_KEYS
from marathond.service.settings import Settings, load, origins
from marathond.service.treatment import Change, change_of

EXAMPLE = Path(__file__).parents[2] / "config.example.toml"
COMMENTED = re.compile(r"#(?P<assignment>(?P<key>[a-z_0-9]+) = .*?)(?P<none>  # default: none)?$")
SECTION = re.compile(r"\[(?P<name>[a-z.]+)\]$")
SAMPLE_TASKS = 20


def _load(path: Path) -> Settings:
    return load(path, environ={}, cwd=Path("/"), uid=0)


def _lines() -> list[str]:
    return EXAMPLE.read_text(encoding="utf-8").split("\n")


def _stated() -> dict[str, tuple[Any, bool, str]]:
    """Commented knob → (the value it shows, whether its default is none, the words above it); arms are gathered under ``arms``."""
    found: dict[str, tuple[Any, bool, str]] = {}
    section, words = "", ""
    for line in _lines():
        if match := SECTION.match(line):
            section = "arms" if match["name"].startswith("arms.") else match["name"]
        elif match := COMMENTED.match(line):
            key = f"{section}.{match['key']}"
            assert key not in found, f"{key} stands twice"
            found[key] = (tomllib.loads(match["assignment"])[match["key"]], match["none"] is not None, words)
        words = f"{words} {line}" if line.startswith("# ") else ""
    return found


def _active() -> set[str]:
    data = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
    arms = {f"arms.{key}" for arm in data.pop("arms").values() for key in arm}
    return arms | {f"{section}.{key}" for section, table in data.items() for key in table}


def _keys(settings: Settings) -> dict[str, Any]:
    """Every key of the settings with its default, one arm (``nop``, which sets only its kind) standing for all."""
    found = {key: value for key, (value, _) in origins(settings).items() if not key.startswith("arms.")}
    return found | {
        key.replace("arms.nop.", "arms."): value for key, (value, _) in origins(settings).items() if key.startswith("arms.nop.")
    }


def test_it_loads_as_it_is() -> None:
    settings = _load(EXAMPLE)
    assert settings.arm_names == ("oracle", "nop", "shell")
    assert settings.campaign.tasks == (str(EXAMPLE.parent / "tasks/*"),)


def test_every_key_stands_in_it_and_nothing_else_does() -> None:
    keys = _keys(_load(EXAMPLE))
    assert set(_stated()) | _active() == set(keys)
    required = {"campaign.name", "campaign.tasks", "arms.kind", "arms.argv"}
    assert _active() == required, "a knob with a default is shown commented"


@pytest.mark.parametrize("key", sorted(_stated()))
def test_the_default_it_states_is_the_codes(key: str) -> None:
    shown, none, _ = _stated()[key]
    default = _keys(_load(EXAMPLE))[key]
    if none:
        assert default is None
        return
    assert shown == (str(default) if isinstance(default, Path) else list(default) if isinstance(default, tuple) else default)
    assert isinstance(shown, float) == isinstance(default, float), "write 60.0 for a number that may have a fraction"


@pytest.mark.parametrize("key", sorted(set(_stated()) - {"engine.build_args"}))
def test_each_knob_is_explained_and_says_how_it_may_change(key: str) -> None:
    words = _stated()[key][2]
    assert len(words) > 20
    if not key.startswith("arms."):
        assert f"[{change_of(key)}]" in words
    assert (key in KNOBS) == ("[live]" in words)


def test_every_shown_value_is_accepted(tmp_path: Path) -> None:
    """Those of codex on arms of that kind, all others on the arm that stands for all; another source excludes the package's hash."""
    of_codex = tuple(f"#{key} =" for key in CODEX_KEYS)
    skipped = (*of_codex, "#folder =", "#wheel =", "#commit =", "#node_folder =")
    text = "\n".join(line if line.startswith(skipped) else COMMENTED.sub(r"\g<assignment>", line) for line in _lines())
    shown = [COMMENTED.sub(r"\g<assignment>", line) for line in _lines() if line.startswith(of_codex)]
    assert len(shown) == len(CODEX_KEYS)
    of_goal = (*DRIVE_KEYS, "loopx")
    goal = "\n".join(line for line in shown if line.startswith(of_goal) and not line.startswith("objective"))
    plain_goal = "\n".join(line for line in shown if line.startswith("objective"))
    wake = "\n".join(line for line in shown if line.startswith("wake_interval_s"))
    text = text.replace("#routes = {}", "").replace("routes = {}", "")
    route = 'base_url = "https://api.example.org/v1"\nkey_file = "/k"'
    text += f'\n[arms.goal]\nkind = "codex"\ndrive = "goal"\n{goal}\n'
    text += f'\n[arms.plain_goal]\nkind = "codex"\ndrive = "goal"\n{plain_goal}\n'
    text += f'\n[arms.wake]\nkind = "codex"\ndrive = "wake"\nloopx = "generic_cli"\n{wake}\n'
    text += f"\n[gateway.routes.main]\n{route}\n[gateway.routes.judge]\n{route}\n"
    (tmp_path / "all.toml").write_text(text, encoding="utf-8")
    settings = _load(tmp_path / "all.toml")
    assert settings.limits.agent_timeout_s == 5340
    assert settings.arms["shell"].user == "agent"
    assert settings.arms["goal"].unblocks_at_most == 8
    assert (settings.arms["wake"].wake_interval_s, settings.loopx.python) == (180, "uv:3.12")


def test_the_swe_marathon_example_loads_with_its_knobs(tmp_path: Path) -> None:
    text = "\n".join(line[3:] for line in _lines() if line.startswith("#: "))
    (tmp_path / "swe.toml").write_text(text, encoding="utf-8")
    settings = _load(tmp_path / "swe.toml")
    assert (settings.limits.agent_timeout_s, settings.limits.verifier_timeout_multiplier) == (5340, 4)
    assert settings.admission.concurrency == 12
    assert settings.arm_names == ("plain", "goal", "ssh-goal", "codex-cli", "heartbeat")
    assert [(arm.drive, arm.loopx) for name, arm in settings.arms.items() if name in settings.arm_names] == [
        ("turn", None),
        ("goal", None),
        ("goal", "codex_app_ssh_goal"),
        ("goal", "codex_cli"),
        ("wake", "generic_cli"),
    ]
    assert settings.comparison.contrasts == tuple((arm, "plain") for arm in settings.arm_names[1:])
    assert len(settings.campaign.include) == SAMPLE_TASKS
    assert list(settings.campaign.include) == sorted(settings.campaign.include)


def test_each_old_variable_maps_to_a_knob_that_exists() -> None:
    keys = _keys(_load(EXAMPLE))
    table = [line.replace("arms.NAME.", "arms.").replace(",", "").split()[1:3] for line in _lines() if re.match(r"#     [A-Z]+_", line)]
    assert {variable.partition("=")[0] for variable, _ in table} == {
        "GOAL_TIMEOUT_SEC",
        "MARATHON_AGENT_TIMEOUT_MULT",
        "MARATHON_VERIFIER_MULT",
        "MARATHON_CONCURRENCY",
        "MARATHON_ARM_MAJOR",
        "MARATHON_TASKS",
        "MARATHON_ARMS",
        "MARATHON_NET_CAP",
        "MARATHON_NET_MARGIN",
        "MARATHON_MAX_PASSES",
        "WEN_MODE",
        "LOOPX_UNGATED",
    }
    assert {knob for _, knob in table} <= set(keys)


def test_the_kinds_of_change_it_explains_are_all_there_are() -> None:
    head = EXAMPLE.read_text(encoding="utf-8").split("\n[campaign]")[0]
    assert all(f"[{kind}]" in head for kind in Change)
