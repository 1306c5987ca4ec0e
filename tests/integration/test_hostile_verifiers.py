"""Verifiers that write nothing, nonsense, too much, elsewhere, too late: each with its outcome in the ledger, and never a 0 for a doubt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from marathond.core.errors import EngineError
from marathond.engine.docker import DockerEngine
from marathond.ports.engine import ContainerInfo, ExecSpec
from tests.support.hostile import Ran, campaign
from tests.support.rig import CALL_TIMEOUT_S, make_task

pytestmark = pytest.mark.docker

REWARD = "/logs/verifier/reward.txt"
METRICS = "/logs/verifier/metrics.json"
BIG_MB = 40

VERIFIERS = {
    "nothing": "true\n",
    "initialized": f"""echo 0 >{REWARD}; echo '{{"phase": "initialized", "partial_score": 0.0}}' >{METRICS}\n""",
    "nan": f"echo nan >{REWARD}\n",
    "true": f"echo true >{REWARD}\n",
    "one": f"printf '1.0\\n' >{REWARD}\n",
    "two": f"echo 2 >{REWARD}\n",
    "empty": f": >{REWARD}\n",
    "binary": f"printf '\\377\\376' >{REWARD}\n",
    "fifo": f"mkfifo {REWARD}\n",
    "folder": f"mkdir {REWARD}\n",
    "link-out": f"ln -s /etc/passwd {REWARD}\n",
    "link-to-one": f"echo 1 >/tmp/one; ln -s /tmp/one {REWARD}\n",
    "link-inside": f"echo 1 >/logs/verifier/real.txt; ln -s real.txt {REWARD}\n",
    "huge-counts": f"""echo 1 >{REWARD}; echo '{{"tests_passed": 1e300, "tests_total": 1e300}}' >{METRICS}\n""",
    "exits-badly": f"echo 1 >{REWARD}; exit 99\n",
    "loud": f"head -c {BIG_MB << 20} /dev/zero; echo 1 >{REWARD}\n",
    "second-try": f"if [ -e /tried ]; then echo 1 >{REWARD}; fi; touch /tried\n",
    "hangs-once": f"if [ -e /tried ]; then echo 1 >{REWARD}; exit; fi; touch /tried; sleep 600\n",
    # A score that is there when the deadline comes is not final: whoever wrote it was not done.
    "hangs": f"echo 1 >{REWARD}; sleep 600\n",
    # Goes on counting beside whoever reads.
    "counts-on": f"""touch /counts-on; echo 1 >{REWARD}; echo '{{"n": 0}}' >{METRICS}; setsid sh -c 'n=0; while :; do
        n=$((n + 1)); echo "{{\\"n\\": $n}}" >/logs/verifier/new; mv /logs/verifier/new {METRICS}; done' >/dev/null 2>&1 &\n""",
    "takes-back": f"touch /takes-back; echo 1 >{REWARD}; setsid sh -c 'sleep 0.05; while :; do rm -f {REWARD}; done' >/dev/null 2>&1 &\n",
    "no-interpreter": "",
    "ends-container": "rm -f $(command -v sleep); kill -9 $(cat /proc/1/task/1/children); while :; do :; done\n",
}
DEADLINES_S = {"hangs": 5, "hangs-once": 30}
"""Twice met by the one; the other's second run has all of it, which is plenty even on a loaded machine."""

BEFORE_REMOVAL = f"""
if [ -e /counts-on ]; then seen=$(cat {METRICS}); until [ "$(cat {METRICS})" != "$seen" ]; do :; done; fi
if [ -e /takes-back ]; then while [ -e {REWARD} ]; do :; done; fi
"""


class Unhurried(DockerEngine):
    """Between the first reading and the last one, those who write beside us get their turn: no removal comes before it."""

    async def remove_container(self, container_id: str) -> bool:
        with suppress(EngineError):  # it has ended already
            await self.run_exec(container_id, ExecSpec(["sh", "-c", BEFORE_REMOVAL]), timeout_s=CALL_TIMEOUT_S)
        return await super().remove_container(container_id)


class Late(DockerEngine):
    """Shows a container as running for some more looks after its end, as an engine does that has much to do."""

    def __init__(self, url: str) -> None:
        super().__init__("local", url, call_timeout_s=CALL_TIMEOUT_S)
        self.running, self.looks = dict[str, ContainerInfo](), 8

    async def inspect_container(self, container_id: str) -> ContainerInfo | None:
        seen = await super().inspect_container(container_id)
        if seen is not None and seen.running:
            self.running[container_id] = seen
        elif seen is not None and container_id in self.running and self.looks:
            self.looks -= 1
            return self.running[container_id]
        return seen


@pytest.fixture(scope="module")
def ran(docker_host: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    root = tmp_path_factory.mktemp("verifiers")
    tasks = [make_task(root, name, test=test, verifier_s=DEADLINES_S.get(name, 200)) for name, test in VERIFIERS.items()]
    (root / "no-interpreter" / "tests" / "test.sh").write_text("#!/no/such/interpreter\n")
    engine = Unhurried("local", docker_host, call_timeout_s=CALL_TIMEOUT_S)
    with campaign(docker_host, tasks, {"sh": {"kind": "nop"}}, engine=engine) as ran:
        yield ran


def test_d02_a_verifier_that_writes_nothing_is_run_once_more_and_then_reviewed(ran: Ran) -> None:
    assert ran.review("nothing") == (
        "score_unreadable",
        "no readable reward after 2 rounds: neither reward.json nor reward.txt was written",
    )
    assert ran.rounds("nothing") == [("exited", 0), ("exited", 0)]


def test_d02_a_reward_of_the_second_run_counts_and_is_flagged(ran: Ran) -> None:
    assert ran.reward("second-try") == 1.0
    assert ran.flags("second-try") == ["verified_again"]


def test_d01_initialized_is_no_score(ran: Ran) -> None:
    code, detail = ran.review("initialized")
    assert code == "score_unreadable" and "only initialized" in detail


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ("nan", "not finite"),
        ("true", "a boolean is not a number"),
        ("two", "above 1: 2"),
        ("empty", "empty"),
        ("binary", "not UTF-8 at byte 0"),
        ("fifo", "reward.txt is a fifo"),
        ("folder", "reward.txt is a folder"),
        ("link-out", "reward.txt is a symbolic link"),
        ("link-to-one", "reward.txt is a symbolic link"),
        ("link-inside", "reward.txt is a symbolic link"),
    ],
)
def test_a_reward_that_is_none_is_reviewed_with_the_reason(ran: Ran, task: str, why: str) -> None:
    code, detail = ran.review(task)
    assert code == "score_unreadable" and why in detail


def test_no_link_is_followed_into_the_artifacts(ran: Ran) -> None:
    trial = ran.trial("link-out")
    assert not (ran.folder("link-out") / "verifier" / "reward.txt").exists()
    assert ran.rig.one("SELECT sha256, why FROM artifact WHERE trial_id = ? AND path = 'verifier/reward.txt'", trial) == (
        "",
        "symbolic link",
    )


def test_one_with_a_line_break_is_one(ran: Ran) -> None:
    assert ran.reward("one") == 1.0 and ran.flags("one") == []


def test_the_exit_code_of_a_verifier_decides_nothing(ran: Ran) -> None:
    assert ran.reward("exits-badly") == 1.0
    assert ran.rounds("exits-badly") == [("exited", 99)]


def test_counts_beyond_any_integer_are_left_out_and_flagged(ran: Ran) -> None:
    assert ran.reward("huge-counts") == 1.0
    assert ran.flags("huge-counts") == ["counts_too_large"]
    assert ran.parts("huge-counts")["tests_passed"] == "1e+300"
    assert ran.rig.one("SELECT tests_passed, tests_total FROM score WHERE trial_id = ?", ran.trial("huge-counts")) == (None, None)


def test_forty_megabytes_of_output_lie_on_disk_hashed(ran: Ran) -> None:
    assert ran.reward("loud") == 1.0
    sql = "SELECT size_bytes, sha256 FROM artifact WHERE trial_id = ? AND path = 'verifier/test-stdout.txt'"
    expected = hashlib.sha256(bytes(BIG_MB << 20)).hexdigest()
    assert ran.rig.one(sql, ran.trial("loud")) == (BIG_MB << 20, expected)
    exported = ran.folder("loud") / "verifier" / "test-stdout.txt"
    with exported.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == expected


def test_d10_a_verifier_past_its_deadline_twice_is_reviewed(ran: Ran) -> None:
    assert ran.review("hangs") == ("verifier_deadline", "the verifier reached its deadline twice")
    assert ran.rounds("hangs") == [("deadline", None), ("deadline", None)]
    assert ran.agent("hangs", "ended_by") == "agent"  # the verifier's deadline is not the agent's


def test_d10_a_verifier_that_makes_it_the_second_time_is_scored_and_flagged(ran: Ran) -> None:
    assert ran.reward("hangs-once") == 1.0
    assert ran.flags("hangs-once") == ["verified_again"]
    assert ran.rounds("hangs-once") == [("deadline", None), ("exited", 0)]


def test_d08_what_counts_is_read_after_the_container_is_gone(ran: Ran) -> None:
    """Ledger, exported file and the recorded hash tell the same although somebody wrote all the time; that he did is flagged."""
    assert ran.reward("counts-on") == 1.0
    assert ran.flags("counts-on") == ["changed_after_exit"]
    trial, exported = ran.trial("counts-on"), (ran.folder("counts-on") / "verifier" / "metrics.json").read_bytes()
    assert float(ran.parts("counts-on")["n"]) == json.loads(exported)["n"] > 0
    sql = "SELECT sha256 FROM artifact WHERE trial_id = ? AND path = 'verifier/metrics.json'"
    assert ran.rig.one(sql, trial) == hashlib.sha256(exported).hexdigest()
    gone, scored = ran.rig.one("SELECT gone_at_ms, at_ms FROM container JOIN score USING (trial_id) WHERE trial_id = ?", trial)
    assert gone <= scored


def test_d08_a_reward_that_goes_away_again_is_no_score(ran: Ran) -> None:
    """Seen at first and gone at last, or gone before the first look of both rounds."""
    code, detail = ran.review("takes-back")
    if code == "score_changed":
        assert detail == "the reward was readable, and no longer is"
    else:
        assert code == "score_unreadable" and "neither reward.json nor reward.txt was written" in detail
        assert ran.rounds("takes-back") == [("exited", 0), ("exited", 0)]


def test_a_verifier_that_cannot_be_executed_is_reviewed(ran: Ran) -> None:
    code, _ = ran.review("no-interpreter")
    assert code == "score_unreadable"
    assert [exit_code for _, exit_code in ran.rounds("no-interpreter")] == [127, 127]


def assert_named_as_lost(ran: Ran) -> None:
    """Killed with its container, or by the engine that meets the end while it still starts it; or never known to have been started."""
    code, detail = ran.review("ends-container")
    rounds = ran.rounds("ends-container")
    if code == "verifier_lost":
        assert detail == "the container ended while the verifier ran, and the engine did not"
        assert rounds in ([("exited", 137)], [("exited", 126)], [("lost", None)])
    else:
        assert code == "verifier_not_started"
        assert detail.startswith("the container ended before the verifier could start, the engine did not: exited, exit ")
        assert rounds == [("lost", None)]


def test_a_container_that_ends_under_its_verifier_is_reviewed(ran: Ran) -> None:
    assert_named_as_lost(ran)


def test_a_container_whose_end_the_engine_notices_late_is_named_the_same(docker_host: str, tmp_path: Path) -> None:
    """No second round in a dead container, and no void: the kernel's word on its first process decides."""
    engine = Late(docker_host)
    task = make_task(tmp_path, "ends-container", test=VERIFIERS["ends-container"], verifier_s=200)
    with campaign(docker_host, [task], {"sh": {"kind": "nop"}}, engine=engine) as ran:
        assert_named_as_lost(ran)
        assert ran.rig.sql("SELECT event FROM trial_event WHERE event = 'verify_again'") == []
    assert engine.looks == 0


def test_every_run_of_a_verifier_has_an_end(ran: Ran) -> None:
    assert ran.rig.sql("SELECT trial_id, round FROM verification WHERE outcome IS NULL") == []


def test_no_verifier_can_close_admission_or_cost_an_attempt(ran: Ran) -> None:
    assert ran.stop_losses() == []
    assert ran.rig.sql("SELECT * FROM void") == []
    assert ran.rig.one("SELECT count(*) FROM trial") == len(VERIFIERS)
