"""Verifiers that ask a judge model: a listener, a route, a key and an account of their own, during verification only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.model_agent import ASK
from tests.support.model_rig import ModelRan, files_with, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

SCRIPT = """
[[script]]
text = "Judge this."
usage = { input = 50, output = 1 }
step = [{ say = "1" }]
then = "repeat"
"""
TOML = '[verifier.env]\nJUDGE_KEY = "${OPENAI_API_KEY}"\nMODE = "strict"\n'
TEST = f"""
env >/logs/verifier/env
[ "$MODE" = strict ] && [ "$JUDGE_KEY" = "$OPENAI_API_KEY" ] || exit 1
cat >/tmp/ask.sh <<'END'
{ASK}
ask 'Judge this.'; echo $status >/logs/verifier/status
[ $status = 200 ] && echo 1 >/logs/verifier/reward.txt
END
MODEL_URL=$OPENAI_BASE_URL MODEL_KEY=$OPENAI_API_KEY bash /tmp/ask.sh
"""
# Whether anybody listens before verification, on any of the three ports.
EARLY = "awk '$4 == \"0A\"' /proc/net/tcp >/logs/agent/listening"
TAKES = """
setsid perl -MIO::Socket::INET -e '
    $taken = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8792, Listen => 1) or die; sleep 600' &
until awk '$4 == "0A" { print $2 }' /proc/net/tcp | grep -q :2258; do sleep 0.1; done
"""


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    folder = tmp_path_factory.mktemp("tasks")
    tasks = [
        make_task(folder, "judged", test=TEST, toml=TOML),
        make_task(folder, "plain", test="echo 1 >/logs/verifier/reward.txt; env >/logs/verifier/env\n"),
    ]
    arms = {
        "early": {"kind": "command", "argv": ["sh", "-c", EARLY]},
        "takes": {"kind": "command", "argv": ["sh", "-c", TAKES]},
    }
    env = {"OPENAI_API_KEY": "{key}", "OPENAI_BASE_URL": "{base_url}"}
    overrides = {"gateway.verifier_route": "judge", "gateway.verifier_env": env}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "sk-the-daemons-own")
        with model_campaign(docker_host, tasks, arms, SCRIPT, overrides=overrides) as ran:
            yield ran


def test_a_judge_is_asked_with_the_trials_own_key_over_its_own_route(ran: ModelRan) -> None:
    assert ran.reward("judged", "early") == 1.0
    (asked,) = ran.rig.gateway.records()
    assert (asked["account"], asked["route"], asked["listener"], asked["status"]) == (
        "verifier",
        "judge",
        f"{asked['trial']}.verifier",
        200,
    )
    counted = ran.usage("judged", "early", "verifier")
    assert (counted["requests"], counted["input_tokens"]) == (1, 50)
    assert ran.usage("judged", "early", "agent") == {}


def test_there_is_no_way_to_the_judge_before_verification_nor_after(ran: ModelRan) -> None:
    assert (ran.folder("judged", "early") / "agent" / "listening").read_text() == ""
    assert list((ran.rig.root / "state/gateway/listeners").glob("*.json")) == []


def test_c14_neither_key_reaches_a_verifier(ran: ModelRan) -> None:
    seen = (ran.folder("judged", "early") / "verifier" / "env").read_text()
    assert "OPENAI_BASE_URL=http://127.0.0.1:8792/v1" in seen and "OPENAI_API_KEY=mt-" in seen
    for key in (ran.rig.key, ran.rig.judge_key, "sk-the-daemons-own"):
        assert [path for path in files_with(key, ran.rig.root) if path.suffix != ".key"] == []
    assert "OPENAI_API_KEY" not in (ran.folder("plain", "early") / "verifier" / "env").read_text()


def test_who_takes_the_judges_port_earns_no_other_attempt(ran: ModelRan) -> None:
    code, detail = ran.review("judged", "takes")
    assert code == "verifier_not_started" and "port of the verifier's way to its judge" in detail
    assert ran.reward("plain", "takes") == 1.0
