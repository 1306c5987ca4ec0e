"""What each arm's codex is really given, through the whole way, against the reviewed records and against each other (fault a14).

A sixth arm is planted: its row declares a mount, and what is mounted is a skill that codex tells the model of.  Nobody declared that.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest

from marathond.agents.codex import contract, declares
from marathond.cli import ctl
from marathond.core.contract import differences, undeclared, undelivered
from marathond.flow.contracts import Contracts
from marathond.staging.manifest import StagedTree
from tests.support.contracts import ARMS, contract_campaign, rows
from tests.support.model_rig import ModelRan

pytestmark = pytest.mark.docker

SKILL = "---\nname: brew\ndescription: how to brew\n---\nBrew.\n"
Captured = tuple[ModelRan, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def direct(docker_host: str, staged_loopx: StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    folder = tmp_path_factory.mktemp("direct")
    (folder / "skill").mkdir()
    (folder / "skill" / "SKILL.md").write_text(SKILL)
    mounts = [{"source": str(folder / "skill"), "target": "/app/.agents/skills/brew"}]
    with contract_campaign(docker_host, folder, "direct", {**ARMS, "skilled": {**ARMS["plain"], "mounts": mounts}}) as made:
        yield made


@pytest.fixture(scope="module")
def code(docker_host: str, staged_loopx: StagedTree, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Captured]:
    with contract_campaign(docker_host, tmp_path_factory.mktemp("code"), "code") as made:
        yield made


@pytest.fixture(params=contract.SURFACES)
def surface(request: pytest.FixtureRequest) -> contract.Surface:
    chosen: contract.Surface = request.param
    return chosen


@pytest.fixture
def made(surface: contract.Surface, request: pytest.FixtureRequest) -> Captured:
    captured: Captured = request.getfixturevalue(surface)
    return captured


@pytest.mark.parametrize("name", contract.ARMS)
def test_a14_the_contract_is_the_reviewed_one(made: Captured, surface: contract.Surface, name: str) -> None:
    """If this fails after an upgrade: python -m tests.support.contracts, and read what changed before it is committed."""
    found = differences(contract.reviewed(name, surface), made[1][name])
    assert not found, "\n".join(each.words("reviewed", "now") for each in found)


def test_a03_a14_a15_each_pair_differs_in_what_its_rows_declare_alone(made: Captured) -> None:
    ran, contracts = made
    arms = rows(ran)
    for a, b in combinations(contract.ARMS, 2):
        declared = declares.declared(arms[a], arms[b])
        found = undeclared(contracts[a], contracts[b], declared)
        assert not found, "\n".join(each.words(a, b) for each in found)
        assert undelivered(contracts[a], contracts[b], declared) == []
    for made_ in contracts.values():
        assert not [tool for tool in made_["tools"] if str(tool.get("type", "")).startswith(("web_search", "mcp"))]


def test_a14_a_real_difference_that_no_row_declares_is_named(direct: Captured) -> None:
    ran, contracts = direct
    arms = rows(ran)
    assert declares.declared(arms["plain"], arms["skilled"]) == ()
    found = undeclared(contracts["plain"], contracts["skilled"], ())
    # What codex says of skills begins the message that began with the permissions, and names the skill.
    told, pushed = "input.developer <skills_instructions>", "input.developer <permissions instructions>.message"
    assert {each.where for each in found} == {told, pushed}, [each.words() for each in found]
    assert "brew" in next(each.b["text"] for each in found if each.where == told)
    changed = copy.deepcopy(contracts["plain"])
    changed["body"]["reasoning"]["effort"] = "low"
    (named,) = undeclared(contracts["plain"], changed, ())
    assert named.where == "body.reasoning.effort"


def test_a14_the_gateway_saw_it_too_and_a_finding_says_so(direct: Captured) -> None:
    ran, _ = direct
    assert ran.portal.call(ran.rig.until, "SELECT count(*) = 2 FROM finding WHERE code = 'arm_contract_differs'")
    found = {subject: detail for _, subject, detail in ran.findings("arm_contract_differs")}
    assert all("skilled" in subject and "instructions.skills_instructions: " in detail for subject, detail in found.items()), found
    # Arms with LoopX may be told of other skills: their rows declare it.
    assert {frozenset(subject.split(" x ")) for subject in found} == {frozenset({"skilled", other}) for other in contract.BARE.values()}
    text = "".join(shape for (shape,) in ran.rig.sql("SELECT shape_json FROM first_request"))
    assert "exec_command" in text and "TASK-contract" not in text and "You are Codex" not in text


def test_a14_arms_diff_says_it_too(direct: Captured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in os.environ if name.startswith("MARATHOND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MARATHOND_DAEMON__STATE_DIR", str(direct[0].rig.root / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    monkeypatch.chdir(direct[0].rig.root / "state")
    assert ctl.run(["arms", "diff", "plain", "goal"]) == 0
    out = capsys.readouterr().out
    assert "9 differences, none undeclared" in out and "1 trial of plain, 1 trial of goal; as declared" in out
    assert ctl.run(["arms", "diff", "ssh-goal", "codex-cli"]) == 0
    out = capsys.readouterr().out
    assert "3 differences, none undeclared" in out and "1 trial of ssh-goal, 1 trial of codex-cli; as declared" in out
    assert ctl.run(["arms", "diff", "goal", "heartbeat"]) == 0
    assert "none undeclared" in capsys.readouterr().out
    assert ctl.run(["arms", "diff", "plain", "skilled"]) == 1
    assert "UNDECLARED" in capsys.readouterr().out


def test_arms_that_differ_as_declared_give_no_finding(code: Captured) -> None:
    ran, _ = code
    assert ran.portal.call(ran.rig.until, "SELECT count(*) = 5 FROM first_request")
    assert ran.rig.daemon is not None and ran.rig.daemon.world is not None
    assert ran.portal.call(Contracts(ran.rig.daemon.world).look) == []
    assert ran.findings("arm_contract_differs") == []
