"""Money in whole campaigns, from the provider's answer to the planner (fault f13).  The client is bash (tests/support/model_agent.py)."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from tests.support.cli_rig import subprocess_run
from tests.support.model_agent import asking, commands_that_ask
from tests.support.model_rig import ModelRig, model_rig
from tests.support.rig import make_task

pytestmark = [pytest.mark.anyio, pytest.mark.docker]

# By these prices one answer costs a dollar: 600 fresh tokens in for 0.60, 400 cached for 0.20, 200 out for 0.20.
SCRIPT = """
[[script]]
pattern = ".*"
usage = { input = 1000, cached = 400, output = 200, reasoning = 50 }
step = [{ say = "Done."%s }]
then = "repeat"
"""
PRICE = {"input": 1000.0, "cached_input": 500.0, "output": 1000.0}
ONCE = "ask 'Do it.'; [ $status = 200 ]"
FOR_EVER = "while :; do ask 'Do it.'; sleep 0.5; done"
MONEY = "SELECT value_json LIKE '%MONEY%' FROM observation WHERE key = 'waiting'"


async def status(rig: ModelRig) -> dict[str, object]:
    """What a person sees of money."""
    told = await to_thread.run_sync(lambda: subprocess_run(["--config", str(rig.config), "status", "--json"], {}))
    found = json.loads(told.stdout)["money"]
    assert isinstance(found, dict)
    return found


async def test_f13_caps_of_trial_and_campaign(docker_host: str, tmp_path: Path) -> None:
    """The trial that asks for ever ends by its cap, graded like any other; the second block does not begin until there is more money."""
    tasks = [make_task(tmp_path, name, agent_s=300) for name in ("one", "two")]
    arms = {"spender": asking(FOR_EVER), "thrifty": asking(ONCE)}
    overrides: dict[str, object] = {
        "admission.concurrency": 1,
        "money.prices": {"gpt-5.5": PRICE},
        "money.trial_cap_usd": 3.0,
        "money.campaign_cap_usd": 5.0,
        "notify.command": ["sh", "-c", f"cat >>{tmp_path}/told"],
    }
    with commands_that_ask():
        async with model_rig(docker_host, tasks, arms, SCRIPT % "", overrides=overrides) as rig:
            await rig.until("SELECT count(*) FROM finding WHERE code = 'money_cap' AND closed_at_ms IS NULL")
            await rig.until("SELECT count(*) = 2 FROM v_cell WHERE state = 'done'")
            await rig.caught_up()
            cells = "SELECT arm, trial_state, ended_by, budget_ended, reward FROM v_cell WHERE state = 'done' ORDER BY arm"
            assert rig.sql(cells) == [("spender", "scored", "money", 1, 1.0), ("thrifty", "scored", "agent", 0, 1.0)]
            assert rig.one("SELECT count(DISTINCT block) FROM v_cell WHERE state = 'done'") == 1, "one whole block"
            assert rig.one("SELECT count(*) FROM finding WHERE code = 'money_80'") == 1
            await rig.until(MONEY)
            asked, cost = rig.one("SELECT sum(requests), sum(cost_usd) FROM v_usage WHERE unknown = 0 AND arm = 'thrifty'")
            assert (asked, cost) == (1, 1.0)
            (spent,) = rig.sql("SELECT cost_nusd, priced, cut FROM trial JOIN arm USING (arm_id) WHERE arm.name = 'spender'")
            assert spent[0] == spent[1] * 10**9 >= 3 * 10**9, "a dollar for each answer"
            seen = await status(rig)
            assert seen["spent_nusd"] == spent[0] + 10**9 and seen["campaign_cap_nusd"] == 5 * 10**9
            await rig.until(
                "SELECT count(*) >= 2 FROM notice_sending JOIN notice USING (notice_id) WHERE kind = 'money' AND told_at_ms > 0"
            )
            await rig.kill()
            rig.overrides["money.campaign_cap_usd"] = 10_000.0
            await rig.start()
            await rig.until("SELECT count(*) >= 3 FROM trial")
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code LIKE 'money_%' AND closed_at_ms IS NULL")
    lines = (await anyio.Path(tmp_path / "told").read_text()).splitlines()
    messages = map(json.loads, lines)
    told = {message["title"] for message in messages if message["kind"] == "money"}  # a gateway that starts slowly is told of, too
    assert told == {"money: money_80 campaign", "money: money_cap campaign"}


async def test_f13_a_model_without_a_price_closes_admission_until_it_has_one(docker_host: str, tmp_path: Path) -> None:
    tasks = [make_task(tmp_path, name, agent_s=300) for name in ("one", "two")]
    arms = {"plain": asking(ONCE), "goal": asking(ONCE)}
    overrides: dict[str, object] = {
        "admission.concurrency": 1,
        "money.prices": {"gpt-5.5": PRICE},
        "money.campaign_cap_usd": 100.0,
        "money.expected_trial_usd": 1.0,
    }
    swapped = ', model = "gpt-5.5-other", model_header = false'
    with commands_that_ask():
        async with model_rig(docker_host, tasks, arms, SCRIPT % swapped, overrides=overrides) as rig:
            await rig.until("SELECT count(*) FROM finding WHERE code = 'price_missing' AND closed_at_ms IS NULL")
            await rig.until("SELECT count(*) = 0 FROM claim WHERE released_at_ms IS NULL")
            await rig.caught_up()
            await rig.until(MONEY)
            assert rig.one("SELECT severity, subject FROM finding WHERE code = 'price_missing'") == ("error", "gpt-5.5-other")
            (waiting,) = json.loads(rig.one("SELECT value_json FROM observation WHERE key = 'waiting'"))
            assert waiting["text"] == "MONEY unknown (no price for gpt-5.5-other)"
            asked = rig.one("SELECT count(*) FROM trial")
            assert asked < 4, "the next may have been admitted before the first answer was counted, but not all of them"
            seen = await status(rig)
            assert (seen["spent_nusd"], seen["forecast_nusd"], seen["unpriced"]) == (0, None, {"gpt-5.5-other": asked})
            await rig.kill()
            rig.overrides["money.prices"] = {"gpt-5.5": PRICE, "gpt-5.5-other": PRICE}
            await rig.start()
            await rig.until_done()
            assert rig.sql("SELECT DISTINCT cost_usd, unpriced FROM v_usage WHERE account = 'agent'") == [(1.0, 0)]
            assert (await status(rig))["spent_nusd"] == 4 * 10**9
            await rig.until("SELECT count(*) = 0 FROM finding WHERE code = 'price_missing' AND closed_at_ms IS NULL")
