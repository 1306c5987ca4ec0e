"""A verifier's judge that fails: for the provider's reasons a doubt, by the verifier's own request or words alone a score (fault d06)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.model_agent import ASK
from tests.support.model_rig import ModelRan, model_campaign
from tests.support.rig import make_task

pytestmark = pytest.mark.docker

SCRIPT = """
[[script]]
text = "down"
step = [{ say = "1", fault = [{ kind = "status", status = 503, times = 1000 }] }]

[[script]]
text = "bad"
step = [{ say = "1", fault = [{ kind = "status", status = 400, code = "invalid_prompt", times = 1000 }] }]

[[script]]
pattern = ".*"
step = [{ say = "1" }]
then = "repeat"
"""
TOML = '[verifier.env]\nJUDGE_KEY = "${OPENAI_API_KEY}"\n'


def verifier(*asks: str, says: str = "") -> str:
    """Asks so, one after another; says ``says`` and gives 0 when the last answer was none, as graders do."""
    fresh = "THREAD=$(cat /proc/sys/kernel/random/uuid)"  # a conversation of its own, with a script of its own
    lines = "\n".join(f"{fresh}; ask '{text}'; echo \"judge: HTTP $status\"" for text in asks)
    return f"""
cat >/tmp/ask.sh <<'END'
{ASK}
{lines}
[ $status = 200 ] || echo '{says}'
echo 0 >/logs/verifier/reward.txt; echo '{{"partial_score": 0.5}}' >/logs/verifier/metrics.json
END
MODEL_URL=$OPENAI_BASE_URL MODEL_KEY=$OPENAI_API_KEY bash /tmp/ask.sh
"""


RATE = "openai.APIConnectionError: Connection error."
VERIFIERS = {
    "down": verifier("fine", "down", says="no answer"),
    "down-says": verifier("down", "fine", "down", says=RATE),
    "made-good": verifier("down", "fine"),
    "own-request": verifier("bad", says=RATE),
    "only-words": f"echo '{RATE}'; echo 0 >/logs/verifier/reward.txt\n",
}


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelRan]:
    folder = tmp_path_factory.mktemp("tasks")
    tasks = [make_task(folder, name, test=test, toml=TOML, verifier_s=200) for name, test in VERIFIERS.items()]
    env = {"OPENAI_API_KEY": "{key}", "OPENAI_BASE_URL": "{base_url}"}
    overrides = {"gateway.verifier_route": "judge", "gateway.verifier_env": env, "gateway.hold_s": 1.0}
    with model_campaign(docker_host, tasks, {"sh": {"kind": "nop"}}, SCRIPT, overrides=overrides) as ran:
        yield ran


def test_d06_a_judge_that_the_provider_failed_last_is_a_doubt_with_the_gateways_word(ran: ModelRan) -> None:
    code, detail = ran.review("down")
    assert code == "judge_failed" and "gave_up HTTP 429" in detail
    evidence = json.loads(ran.rig.one("SELECT evidence_json FROM review WHERE trial_id = ?", ran.trial("down", "sh")))
    assert (evidence["judge"]["asked"], evidence["judge"]["ours"], evidence["judge"]["own"]) == (2, 1, 0)
    assert (evidence["read"]["reward"], evidence["read"]["partial"]) == (0, 0.5)


def test_d06_words_of_the_judges_client_beside_the_gateways_word_are_a_doubt_with_both(ran: ModelRan) -> None:
    code, detail = ran.review("down-says")
    assert code == "infrastructure_suspected"
    assert RATE in detail and "2 of 3 judge requests failed for the provider's or our own reasons" in detail


def test_d06_a_failure_that_was_made_good_is_none(ran: ModelRan) -> None:
    assert ran.reward("made-good") == 0.0 and ran.flags("made-good") == []


def test_d06_what_the_verifier_itself_asked_wrongly_and_words_alone_are_scored(ran: ModelRan) -> None:
    assert ran.reward("own-request") == 0.0 and ran.flags("own-request") == ["log:provider_error"]
    assert ran.reward("only-words") == 0.0 and ran.flags("only-words") == ["log:provider_error"]
    assert ran.rig.one("SELECT count(*) FROM void") == 0
