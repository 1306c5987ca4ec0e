"""[comparison]: contrasts that name no arm, or say one thing twice, are one clear line; what stands there reaches plan and config show."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from marathond.cli.grammar import app
from marathond.cli.plan import contrast_words
from marathond.core.errors import ConfigError
from marathond.service.settings import Settings, load, origins
from marathond.service.submission import build
from marathond.service.treatment import campaign_treatment, change_of, needs_restart, treatment_hash

HEAD = """[daemon]
state_dir = "/s"
[campaign]
name = "x"
tasks = ["t"]
arms = ["plain", "goal", "loop"]
[arms.plain]
kind = "nop"
[arms.goal]
kind = "nop"
[arms.loop]
kind = "nop"
[arms.aside]
kind = "oracle"
[comparison]
"""
LINE = HEAD.count("\n") + 1


def _load(tmp_path: Path, contrasts: str) -> Settings:
    path = tmp_path / "marathond.toml"
    path.write_text(f"{HEAD}{contrasts}\n")
    return load(path, environ={}, cwd=tmp_path, uid=0)


def test_pairs_are_read_in_their_order(tmp_path: Path) -> None:
    found = _load(tmp_path, 'contrasts = [["goal", "plain"], ["loop", "plain"], ["loop", "goal"]]')
    assert found.comparison.contrasts == (("goal", "plain"), ("loop", "plain"), ("loop", "goal"))
    assert origins(found)["comparison.contrasts"][1] == f"marathond.toml:{LINE}"


def test_none_is_the_default(tmp_path: Path) -> None:
    assert _load(tmp_path, "").comparison.contrasts == ()


@pytest.mark.parametrize(
    ("contrasts", "line"),
    [
        ('[["goal", "plane"]]', 'comparison.contrasts[0][1] = "plane": no such arm; did you mean plain?'),
        ('[["goal", "zzz"]]', 'comparison.contrasts[0][1] = "zzz": no such arm; the campaign\'s arms: plain, goal, loop'),
        ('[["aside", "plain"]]', 'comparison.contrasts[0][0] = "aside": no such arm; the campaign\'s arms: plain, goal, loop'),
        ('[["goal", "goal"]]', 'comparison.contrasts[0] = ["goal", "goal"]: must be two arms, not one twice'),
        ('[["goal", "plain"], ["goal", "plain"]]', 'comparison.contrasts[1] = ["goal", "plain"]: named twice'),
        (
            '[["goal", "plain"], ["plain", "goal"]]',
            'comparison.contrasts[1] = ["plain", "goal"]: is goal against plain the other way round, which stands above',
        ),
        ('[["goal"]]', 'comparison.contrasts[0] = ["goal"]: must be two arms, as in ["goal", "plain"]'),
        ('[["goal", "plain", "loop"]]', 'comparison.contrasts[0] = ["goal", "plain", "loop"]: must be two arms, as in ["goal", "plain"]'),
        (
            '["goal", "plain"]',
            'comparison.contrasts = ["goal", "plain"]: must be a list of pairs of arms, as in [["goal", "plain"]]',
        ),
        (
            '["loop", "plain"]',
            'comparison.contrasts = ["loop", "plain"]: must be a list of pairs of arms, as in [["loop", "plain"]]',
        ),
        ('["goal"]', 'comparison.contrasts = ["goal"]: must be a list of pairs of arms, as in [["goal", "plain"]]'),
        ('"goal"', 'comparison.contrasts = "goal": must be a list of pairs of arms, as in [["goal", "plain"]]'),
        ('["goal", ["goal", "plain"]]', 'comparison.contrasts[0] = "goal": must be a list'),
        ('[["goal", 3]]', "comparison.contrasts[0][1] = 3: must be text in quotes"),
    ],
)
def test_a_wrong_contrast_is_one_line(tmp_path: Path, contrasts: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, f"contrasts = {contrasts}")
    assert str(caught.value).split("\n") == [f"marathond.toml:{LINE}: {line}"]


def test_a_declaration_is_no_treatment_and_needs_no_restart(tmp_path: Path) -> None:
    """A campaign that runs takes another one; how late it came is kept beside it."""
    before, after = _load(tmp_path, ""), _load(tmp_path, 'contrasts = [["goal", "plain"]]')
    assert change_of("comparison.contrasts") == "reload"
    assert treatment_hash(campaign_treatment(before)) == treatment_hash(campaign_treatment(after))
    assert needs_restart(before, after) == ()


def test_the_environment_sets_it_as_json(tmp_path: Path) -> None:
    path = tmp_path / "marathond.toml"
    path.write_text(HEAD)
    found = load(path, environ={"MARATHOND_COMPARISON__CONTRASTS": '[["goal", "plain"]]'}, cwd=tmp_path, uid=0)
    assert found.comparison.contrasts == (("goal", "plain"),)


def test_plan_and_config_show_say_what_will_be_compared(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    (folder / "environment").mkdir(parents=True)
    (folder / "task.toml").write_text("")
    (folder / "instruction.md").write_text("do it")
    (folder / "environment" / "Dockerfile").write_text("FROM scratch\n")
    (folder / "tests").mkdir()
    (folder / "tests" / "test.sh").write_text("")
    _load(tmp_path, 'contrasts = [["goal", "plain"], ["loop", "goal"]]')
    runner, config = CliRunner(), ["--config", str(tmp_path / "marathond.toml")]
    assert 'comparison.contrasts = [["goal", "plain"], ["loop", "goal"]]' in runner.invoke(app, [*config, "config", "show"]).stdout
    plan = runner.invoke(app, [*config, "plan"]).stdout
    assert "compares goal against plain, loop against goal" in plan
    _load(tmp_path, "")
    plan = runner.invoke(app, [*config, "plan"]).stdout
    assert "compares every pair of arms, 3 in all: [comparison] declares none" in plan
    assert contrast_words(["one"], ()) == ""


def test_a_submission_carries_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "task.toml").touch()
    settings = _load(tmp_path, 'contrasts = [["goal", "plain"]]')
    assert build(settings, "ana", {}, {}).contrasts == (("goal", "plain"),)
