"""Money on the command line: `status`, `show` and `plan`; what is unknown is never 0 (fault f13)."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from marathond.cli.plan_money import History, forecast_of, money_words
from marathond.core.money import Rules, Spent, nusd
from marathond.core.order import CellKey
from marathond.ledger.verbs import agentlog, campaigns, operator, settings
from marathond.ports.clock import SystemClock
from marathond.service.picture.money_words import short_count
from marathond.tasks.digest import task_digest
from tests.support import ledgers as have
from tests.support.cli_rig import NASTY, Rig, living_rig, now_ms
from tests.support.published import printed
from tests.support.rig import make_task
from tests.support.spending import run_cell, spend

CAPS = {"campaign_cap_nusd": nusd(10_000), "trial_cap_nusd": nusd(40), "expected_trial_nusd": None, "models": ["gpt-x"]}
CODEX = [dataclasses.replace(have.arm(name), kind="codex") for name in ("one", "two")]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """With a campaign ``paid`` of two codex arms, four tasks and a daemon that has said its caps."""
    with living_rig(monkeypatch, capsys) as rig:
        with rig.sql() as c:
            wanted = have.submission(name="paid", arms=CODEX, tasks=[have.task(name) for name in "abcd"])
            campaigns.submit(c, wanted, now_ms=now_ms())
            settings.observe(c, "money", CAPS, now_ms=now_ms())
        yield rig


def money_line(rig: Rig) -> str:
    found = [line for line in rig.run("status").out.splitlines() if line.startswith("spent ")]
    assert len(found) == 1, found
    return found[0]


def test_f13_status_says_spent_with_its_voids_the_forecast_and_the_cap(rig: Rig) -> None:
    with rig.sql() as c:
        run_cell(c, "a", "one", 1000.0)
        run_cell(c, "a", "two", 3000.0)
        withdrawn = run_cell(c, "b", "one", 112.0)
        operator.void_trials(c, [withdrawn], code="provider", reason="outage", author="ana", now_ms=now_ms())
        run_cell(c, "b", "two", 500.0, state="running")
    # Two arms' means: 1,000 for three open cells of one, 3,000 for two open cells of two and what is left of the one in work.
    assert money_line(rig) == ("spent $4,612 (voids $112.00)   forecast $16,112 (mean of 2 ended trials, of any task)   cap $10,000 (46 %)")
    found = printed("status", rig.run("status", "--json").out)
    assert found["money"]["spent_nusd"] == nusd(4612) and found["money"]["forecast_nusd"] == nusd(16112)
    (live,) = found["live"]
    assert (live["tokens"], live["cost_nusd"]) == (1050, nusd(500))


def test_f13_status_never_shows_unknown_costs_as_0(rig: Rig) -> None:
    with rig.sql() as c:
        trial_id = run_cell(c, "a", "one", 10.0)
        spend(c, trial_id, requests=0, cut=2)
        spend(c, trial_id, requests=0, unpriced=3, model=NASTY)
    assert money_line(rig).startswith(
        "spent at least $10.00 (voids $0.00) + ~$20.00 for 2 cut requests + unknown for 3 requests (no price for redevil second)"
        "   forecast unknown (some of what was spent is unknown)   cap $10,000 (0 %)"
    )


def test_status_is_silent_about_money_that_nobody_asked_for(rig: Rig) -> None:
    out = rig.run("status", "--campaign", "x").out
    with rig.sql() as c:
        settings.observe(c, "money", {**CAPS, "campaign_cap_nusd": None, "models": []}, now_ms=now_ms())
    assert "spent" not in rig.run("status", "--campaign", "paid").out
    assert "provider" not in out and "tokens" not in out


def told(rig: Rig, **over: Any) -> None:
    """The gateway's sign of life."""
    folder = rig.state_dir / "gateway"
    folder.mkdir(exist_ok=True)
    clock = SystemClock()
    alive = {
        "boot_id": clock.boot_id,
        "mono_ms": clock.mono_ms(),
        "streams": 3,
        "waiting": {"gate": 0, "main": 2},
        "tokens_per_min": {"main": [410_000, 600_000]},
    }
    (folder / "alive.json").write_text(json.dumps({**alive, **over}))


def test_status_says_the_providers_load_as_long_as_the_gateway_lives(rig: Rig) -> None:
    told(rig)
    assert "provider 410k/600k tok/min, 2 waiting, 3 streams" in rig.run("status").out.splitlines()
    told(rig, tokens_per_min={}, waiting={"gate": 0, "judge": 0, "main": 1})
    assert "provider judge 0 waiting, provider main 1 waiting, 3 streams" in rig.run("status").out.splitlines()
    told(rig, mono_ms=SystemClock().mono_ms() - 61_000)
    # A whole second may pass between the sign and the look at it.
    assert re.search(r"provider unknown \(gateway: no sign of life for (6[1-9]|[7-9]\d|1\d\d) s\)", rig.run("status").out)
    told(rig, boot_id="another")
    assert "provider unknown (gateway: no sign of life since the host was started)" in rig.run("status").out
    (rig.state_dir / "gateway" / "alive.json").write_text("[")
    assert "provider unknown (gateway: its sign of life cannot be read" in rig.run("status").out


def test_show_has_tokens_by_kind_cost_held_time_turns_and_the_end_of_the_log(rig: Rig) -> None:
    with rig.sql() as c:
        trial_id = run_cell(c, "a", "one", 12.5)
        spend(c, trial_id, account="verifier", model="judge", requests=0, unpriced=1, cut=1)
        log = [("turn_intended", {"n": 1, "cause": "first"})]
        log += [("turn_completed", {"turn_id": f"u{n}", "status": "completed"}) for n in (1, 2, 2)]
        log += [("turn_completed", {"turn_id": "u3", "status": "failed"}), ("unblock", {"n": 1, "cause": "model"})]
        log += [("goal", {"status": status}) for status in ("active", "blocked", "blocked", "active")]
        log += [("warning", {"text": NASTY, "n": n}) for n in range(20)]
        for kind, detail in log:
            agentlog.append(c, trial_id, kind=kind, detail=detail, mono_ms=1, now_ms=have.T0)
        agentlog.keep_receipt(c, trial_id, schema=2, data={"turns": {"completed": 2}, "model": NASTY, "list": [1, 2]}, now_ms=have.T0)
    lines = rig.ask("show", f"t{trial_id:04d}").splitlines()
    words = [line.split() for line in lines]
    assert ["agent", "gpt-x", "1", "0", "0", "1,000", "800", "0", "50", "0", "0", "$12.50"] in words
    assert ["verifier", "judge", "2", "1", "1", "1,000", "800", "0", "50", "0", "0", "unknown"] in words
    assert "  cost at least $12.50 + ~$12.50 for 1 cut request + unknown for 1 request without a price   held by the gateway 0s" in lines
    assert (
        "  driver: turns 2 completed, 1 failed   messages 1 first   unblocks 1 model   goal active → blocked → active   20 warnings"
        in lines
    )
    assert "  receipt, schema 2:" in lines and "    turns.completed 2" in lines and "    model redevil second" in lines
    assert "  agent log, last 15 of 30 lines:" in lines
    found = printed("show", rig.ask("show", "--json", f"t{trial_id:04d}"))
    assert len(found["log"]) == 30 and found["receipt"]["data"]["list"] == [1, 2]
    assert [row["cost_nusd"] for row in found["usage"]] == [nusd(12.5), None]


def test_show_of_a_trial_without_a_model_has_nothing_of_it(rig: Rig) -> None:
    with rig.sql() as c:
        trial_id = have.bring_to(c, have.cell(c, "a", "one"), "running").trial_id
    out = rig.ask("show", f"t{trial_id:04d}")
    assert not any(word in out for word in ("driver", "receipt", "cost", "account", "agent log"))


# ── plan ──

PLAN = """[campaign]
name = "paid"
tasks = ["tasks/*"]
[arms.one]
kind = "codex"
drive = "turn"
[arms.two]
kind = "codex"
drive = "turn"
[codex]
model = "gpt-x"
[gateway.routes.main]
base_url = "https://provider.example/v1"
key_file = "key"
[money]
campaign_cap_usd = 100.0
trial_cap_usd = 20.0
[money.prices."gpt-x"]
input = 1.0
output = 10.0
"""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Rig]:
    """The same campaign, submitted as its four folders lie there: of a task that differs nothing would be left to run."""
    with living_rig(monkeypatch, capsys) as rig:
        folders = [make_task(rig.state_dir / "tasks", name) for name in "abcd"]
        tasks = [have.task(folder.name, digest=task_digest(folder)) for folder in folders]
        with rig.sql() as c:
            campaigns.submit(c, have.submission(name="paid", arms=CODEX, tasks=tasks), now_ms=now_ms())
        yield rig


def test_f13_plan_says_what_the_campaign_costs_and_how_far_the_cap_goes(planned: Rig) -> None:
    Path("marathond.toml").write_text(PLAN)
    lines = planned.run("plan").out.splitlines()
    assert "money $160.00 expected (the trial's cap where none has ended)" in lines
    assert "cap $100.00: enough for 2 of 4 new blocks; the others do not begin" in lines
    with planned.sql() as c:
        run_cell(c, "a", "one", 4.0)
        run_cell(c, "a", "two", 8.0)
        run_cell(c, "b", "one", 6.0)
    made = printed("plan", planned.run("plan", "--json").out)["money"]
    assert (made["spent_nusd"], made["begun_nusd"], made["expected_nusd"]) == (nusd(18), nusd(8), nusd(8 + 2 * 13))
    lines = planned.run("plan").out.splitlines()
    assert "money $18.00 spent + $34.00 expected (mean of 3 ended trials, of any task)" in lines
    assert "cap $100.00: $8.00 of it for blocks that have begun; enough for all 2 new blocks" in lines


def test_plan_is_silent_about_money_that_nobody_asked_for(rig: Rig) -> None:
    make_task(rig.state_dir / "tasks", "a")
    Path("marathond.toml").write_text('[campaign]\nname = "x"\ntasks = ["tasks/*"]\n[arms.nop]\nkind = "nop"\n')
    assert not any(line.startswith("money") for line in rig.run("plan").out.splitlines())


def test_f13_what_cannot_be_told_is_unknown_in_a_plan() -> None:
    cells = [CellKey("a", "one", 1, None)]
    plan = forecast_of(cells, Rules({}, nusd(9)), ["one"], History())
    assert (plan.expected_nusd, plan.fitting) == (None, 0)
    assert money_words(plan)[1] == "cap $9.00: enough for 0 of 1 new block; the others do not begin"
    plan = forecast_of(cells, Rules({}, nusd(9), nusd(1)), ["one"], History(spent=Spent(unpriced={"m": 2})))
    assert plan.fitting is None
    assert money_words(plan) == [
        "money $0.00 spent + unknown for 2 requests (no price for m) + $1.00 expected (the trial's cap where none has ended)",
        "cap $9.00: unknown for how many of 1 new block it is enough",
    ]


@pytest.mark.parametrize(
    ("count", "text"), [(None, "-"), (0, "0"), (999, "999"), (1000, "1.0k"), (410_000, "410k"), (12_400_000, "12.4M"), (2 * 10**9, "2.0G")]
)
def test_short_counts(count: int | None, text: str) -> None:
    assert short_count(count) == text
