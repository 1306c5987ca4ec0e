"""What a submission would be refused for is said by `config check` and `plan` before anybody submits, in the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from marathond.core.errors import Refused
from marathond.ledger.verbs import artifacts, campaigns
from marathond.service.settings import load
from marathond.service.submission import build
from tests.support import ledgers as have
from tests.support.cli_rig import Rig, living_rig
from tests.support.rig import make_task

UNASKED = "; the host was not asked (plan does)"

CONFIG = """[campaign]
name = "first"
tasks = ["tasks/*"]
replicates = 2
[engine]
url = "unix://{folder}/none.sock"
[limits]
agent_timeout_multiplier = {multiplier}
[arms.plain]
kind = "nop"
[arms.hasty]
kind = "command"
argv = ["{argv}"]
env = {{ SECRET = "geheim" }}
"""


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    with living_rig(monkeypatch, capsys) as rig:
        make_task(rig.state_dir / "tasks", "one")
        write(rig)
        submit(rig)
        yield rig


def write(rig: Rig, argv: str = "true", multiplier: float = 1, more: str = "") -> None:
    (rig.state_dir / "marathond.toml").write_text(CONFIG.format(folder=rig.state_dir, argv=argv, multiplier=multiplier) + more)


def submit(rig: Rig) -> None:
    with rig.sql() as c:
        campaigns.submit(c, build(load(Path("marathond.toml")), "ana", {}, {}), now_ms=have.T0)


def refusal(rig: Rig) -> str:
    with pytest.raises(Refused) as caught:
        submit(rig)
    return str(caught.value)


def test_a18_a_changed_arm_is_named_by_check_and_plan_as_the_submission_will_name_it(rig: Rig) -> None:
    assert rig.ask("config", "check") == f"ok: campaign first, 1 task, 2 arms, 2 replicates: 4 cells{UNASKED}\n"
    assert "refused" not in rig.run("plan").out
    write(rig, argv="false")
    why = refusal(rig)
    assert why.startswith("arm hasty was ") and why.endswith(" (changed: argv): needs a new campaign (or another name)")
    checked = rig.run("config", "check")
    assert (checked.code, checked.err) == (1, "")
    assert checked.out.splitlines() == [f"not ok: campaign first, 1 task, 2 arms, 2 replicates: 4 cells{UNASKED}", f"refused: {why}"]
    assert json.loads(rig.run("config", "check", "--json").out)["refused"] == [why]
    plan = rig.run("plan")
    said = " ".join(plan.out.split())
    assert plan.code == 1
    assert f"changed since the campaign was submitted; a submission of it, or the next start, would be refused: {why}" in said
    made = rig.run("plan", "--json")
    assert (made.code, json.loads(made.out)["refused"]) == (1, [why])
    write(rig)
    assert rig.ask("config", "check").startswith("ok: ")


def test_a18_a_changed_treatment_and_each_changed_arm_are_named_at_once(rig: Rig) -> None:
    write(rig, argv="false", multiplier=2, more='[arms.added]\nkind = "nop"\n')
    whole, arm = rig.run("config", "check").out.splitlines()[1:]
    assert (
        whole.startswith("refused: campaign first: treatment was ") and "(changed: agent_timeout_multiplier): needs a new campaign" in whole
    )
    assert arm.startswith("refused: arm hasty was ") and "geheim" not in arm
    assert f"refused: {refusal(rig)}" == whole


def test_a_changed_folder_of_artifacts_is_refused_by_the_next_start_and_said_so(rig: Rig) -> None:
    """A running daemon goes on with the folder that it began with, and takes a submission."""
    write(rig, more=f'[daemon]\nout_dir = "{rig.state_dir}/elsewhere"\n')
    assert rig.ask("config", "check").startswith("ok: "), "nothing lies in the first one yet"
    with rig.sql() as c:
        cell_id = c.execute("SELECT min(cell_id) FROM cell JOIN task USING (task_id) WHERE task.name = 'one'").fetchone()[0]
        artifacts.exported(c, have.bring_to(c, cell_id, "scored").trial_id, folder="f", records=[], now_ms=have.T0)
    why = refusal(rig)
    assert why.startswith("campaign first: out_dir was ") and why.endswith(": finished artifacts lie in the first one")
    next_start = "a running marathond takes a submission and goes on with that folder; its next start is refused"
    assert rig.run("config", "check").out.splitlines()[1:] == [f"refused: {why} ({next_start})"]
    assert json.loads(rig.run("plan", "--json").out)["refused"] == [f"{why} ({next_start})"]


def test_an_added_arm_another_campaign_and_no_ledger_are_no_change(rig: Rig) -> None:
    write(rig, more='[arms.added]\nkind = "nop"\n')
    assert rig.ask("config", "check").startswith("ok: campaign first, 1 task, 3 arms")
    write(rig, argv="false")
    config = rig.state_dir / "marathond.toml"
    config.write_text(config.read_text().replace('"first"', '"second"'))
    assert rig.ask("config", "check").startswith("ok: campaign second")
    rig.ledger.unlink()
    write(rig, argv="false")
    assert rig.ask("config", "check").startswith("ok: campaign first")


def test_an_imported_campaigns_name_is_refused_beforehand_too(rig: Rig) -> None:
    with rig.sql() as c:
        c.execute(
            "INSERT INTO campaign (name, created_at_ms, created_by, treatment_hash, treatment_json, config_json, out_dir, cell_order, "
            "seed, origin) VALUES ('there', 1, 'ana', 'x', '{}', '{}', '/o', 'replicate-major', 1, 'import')"
        )
    config = rig.state_dir / "marathond.toml"
    config.write_text(config.read_text().replace('"first"', '"there"'))
    why = refusal(rig)
    assert rig.run("config", "check").out.splitlines()[1:] == [f"refused: {why}"] and "imported" in why


def test_where_codex_is_not_staged_its_arms_are_unknown_and_the_others_are_looked_at(rig: Rig) -> None:
    more = """[codex]
model = "m"
[gateway.routes.main]
base_url = "https://provider.example/v1"
key_file = "/k"
[arms.goal]
kind = "codex"
drive = "goal"
"""
    write(rig, argv="false", more=more)
    checked = rig.run("config", "check")
    assert checked.code == 1 and any(line.startswith("refused: arm hasty was ") for line in checked.out.splitlines())
    assert "note: whether arms with codex are those of the submitted campaign is unknown: " in checked.err
