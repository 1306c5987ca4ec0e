"""The provider fails for a while in the middle of trials: waited out alike for every arm, recorded, and not charged (fault a17).

The provider's clock runs eighty times as fast as ours: its outage of 20 minutes is over after 15 seconds.  The limit of the agents that
meet it is shorter than that.  A request is held for 3 s at most, so that clients are also told to come back.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.model_agent import asking
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

LIMIT_S = 14.0
HOLD_S = 3.0
SCRIPT = """
speed = 80
[[script]]
text = "outage"
step = [{ say = "Done.", fault = [{ kind = "status", status = 503, for_s = 1200 }] }]

[[script]]
text = "limited"
step = [{ say = "Done.", fault = [{ kind = "status", status = 429, for_s = 480 }] }]

[[script]]
pattern = ".*"
step = [{ say = "Done." }]
then = "repeat"
"""
ARM = """
work() {  # as codex does: a 429 with Retry-After is honoured, anything else but success ends the turn
    THREAD=$(cat /proc/sys/kernel/random/uuid)  # a conversation of its own, with a script of its own
    until ask "$1"; [ $status = 200 ]; do
        wait_s=$(tr -d '\\r' </tmp/answer | sed -n 's/^[Rr]etry-[Aa]fter: //p')
        [ $status = 429 ] && [ -n "$wait_s" ] || { echo $status >/logs/agent/failed; exit 1; }
        sleep "$wait_s"
    done
}
for turn in $TURNS; do work 'before'; done
work "$(cat "$MARATHOND_INSTRUCTION")"
work 'after'
touch /tmp/done
"""
TEST = "if [ -e /tmp/done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n"
ARMS = ("plain", "goal")


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    folder = tmp_path_factory.mktemp("tasks")
    limits = {"steady": 300.0, "outage": LIMIT_S, "limited": 300.0}  # only where the test is about it: a slow machine needs the time
    tasks = [make_task(folder, name, test=TEST, instruction=name, agent_s=limit_s) for name, limit_s in limits.items()]
    arms = {"plain": {**asking(ARM), "env": {"TURNS": "1"}}, "goal": {**asking(ARM), "env": {"TURNS": "1 2"}}}
    with model_campaign(docker_host, tasks, arms, SCRIPT, commands_ask=True, overrides={"gateway.hold_s": HOLD_S}) as ran:
        yield ran


def held_s(ran: ModelRan, task: str, arm: str) -> float:
    """As `show` tells it, and all of it not charged."""
    value, origin = ran.facts(task, arm)["held by the gateway"]
    assert origin == f"not charged: {value}"
    return float(value.removesuffix(" s"))


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("task", ["outage", "limited"])
def test_a17_both_arms_end_with_the_same_score_as_without_it(ran: ModelRan, task: str, arm: str) -> None:
    assert ran.reward(task, arm) == ran.reward("steady", arm) == 1.0
    assert ran.agent(task, "ended_by", arm) == "agent"
    assert ran.agent(task, "overrun_ms", arm) == 0


@pytest.mark.parametrize("arm", ARMS)
def test_a17_an_outage_longer_than_the_deadline_moves_the_deadline(ran: ModelRan, arm: str) -> None:
    limit_ms, started, ended = ran.agent("outage", "limit_ms, started_mono_ms, ended_mono_ms", arm)
    assert limit_ms == LIMIT_S * 1000 and ended - started > limit_ms
    held = held_s(ran, "outage", arm)
    assert held >= HOLD_S, "one whole hold, for a client was told to come back; how soon it does is the machine's business"
    assert ended - started - limit_ms < held * 1000 <= ended - started
    assert ran.agent("outage", "credit_ms", arm) == pytest.approx(held * 1000, abs=100)
    assert ran.rig.one("SELECT credit_s FROM v_trial WHERE task = 'outage' AND arm = ?", arm) > 0
    assert ran.usage("outage", arm)["retries"] > 0
    assert ran.rig.sql("SELECT 1 FROM model_request WHERE trial_id = ? AND end = 'gave_up'", ran.trial("outage", arm))


@pytest.mark.parametrize("arm", ARMS)
def test_a01_a_429_without_retry_after_is_waited_out_alike(ran: ModelRan, arm: str) -> None:
    assert held_s(ran, "limited", arm) >= 2.0
    limited, failed = ran.rig.one(
        "SELECT sum(rate_limited), sum(status NOT IN (200, 429)) FROM model_request WHERE trial_id = ?", ran.trial("limited", arm)
    )
    assert limited > 0 and failed == 0


def test_a01_a_wait_that_hits_both_arms_is_no_disparity(ran: ModelRan) -> None:
    assert ran.findings("held_disparity") == [] and ran.stop_losses() == []
